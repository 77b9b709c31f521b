"""Options, starts and parameters are refused where the library would refuse them, before a job is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import zarr
from bigsap_server.costs.request import Options
from checks import SQUARE, problem, solved, upload

import bigsap
from pairwise import cover

COSTS = np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])
DRY = "/v1/jobs?dry_run=true"


@pytest.fixture
def api(shared: Any) -> Any:
    return shared


def choices(name: str) -> tuple[Any, ...]:
    return get_args(Options.model_fields[name].annotation)


def test_combinations_are_judged_as_the_library_does(api: Any) -> None:
    names = ("method", "variant", "start", "epsilon")
    refused = 0
    given = [*(choices(name) for name in names[:3]), (True, False)]
    for case in cover([len(values) for values in given]):
        options = {name: values[k] for name, values, k in zip(names, given, case, strict=True)}
        try:
            bigsap.solve(COSTS, **options)
            said = None
        except bigsap.OptionError as error:
            said = str(error)
        answer = api.post(DRY, json=SQUARE | {"options": options})
        if said is None:
            assert answer.status_code == 200, (options, answer.text)
        else:
            refused += 1
            assert problem(answer, 422, "invalid-spec", "/options/variant")["detail"] == said
    assert 0 < refused < 50


def test_names_of_the_library_are_taken(make_app: Any) -> None:
    """An option may have its name in ``bigsap.solve``; errors name what was sent."""
    api = make_app({"time_limit_s": 90})
    given = {"time_limit": 60, "checkpoint_every": 5, "certify": True}
    answer = api.post(DRY, json=SQUARE | {"options": given})
    assert answer.status_code == 200, answer.text
    taken = answer.json()["spec"]["options"]
    assert (taken["time_limit_s"], taken["checkpoint_s"], taken["certify"]) == (60, 5, "bounds")
    for name, value in (("time_limit", -1), ("checkpoint_every", 0), ("certify", False), ("certify", 1)):
        answer = api.post(DRY, json=SQUARE | {"options": {name: value}})
        problem(answer, 422, "invalid-spec", f"/options/{name}")
    answer = api.post(DRY, json=SQUARE | {"options": {"time_limit": 5, "time_limit_s": 5}})
    problem(answer, 422, "invalid-spec", "/options/time_limit")
    answer = api.post(DRY, json=SQUARE | {"options": {"time_limit": 100}})
    problem(answer, 422, "over-limit", "/options/time_limit")


FLAT = [0, 0, 0]


@pytest.mark.parametrize("uploaded", [False, True])
@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"v": [0, "Infinity", 0]}, "v"),
        ({"v": [0.0, "-Infinity", 0]}, "v"),
        ({"v": [2**62, 0, 0]}, "v"),
        ({"v": [1.2e307, 0, 0]}, "v"),
        ({"v": FLAT, "col4row": [5, 0, 1]}, "col4row"),
        ({"v": FLAT, "col4row": [0.5, 1, 2]}, "col4row"),
        ({"v": FLAT, "col4row": [-2, 0, 1]}, "col4row"),
        ({"v": FLAT, "col4row": [0, 0, 1]}, "col4row"),
    ],
)
def test_starts_that_are_none(api: Any, start: dict[str, Any], field: str, uploaded: bool) -> None:
    numbers = {
        name: np.array(values, float if "Infinity" in str(values) else None) for name, values in start.items()
    }
    given = (numbers["v"], numbers["col4row"]) if "col4row" in numbers else numbers["v"]
    with pytest.raises(bigsap.OptionError) as said:
        bigsap.solve(COSTS, warm_start=given)
    if uploaded:
        start = start | {field: {"array": upload(api, numbers[field])}}
    for path in ("/v1/jobs", DRY):
        answer = api.post(path, json=SQUARE | {"warm_start": start})
        found = problem(answer, 422, "invalid-spec")
        assert found["pointer"].startswith(f"/warm_start/{field}"), found
        if field == "v":
            assert found["detail"] == str(said.value)


@pytest.mark.parametrize(
    "start",
    [{"v": [0, 1, -2]}, {"v": [0.5, 1, -2], "col4row": [-1, -1, -1]}, {"v": FLAT, "col4row": [2, -1, 0]}],
)
def test_starts_that_are(api: Any, start: dict[str, Any]) -> None:
    job = solved(api, SQUARE | {"warm_start": start})
    assert job["result"]["objective"] == 5, job


def test_what_unassigned_rows_cannot_cost(api: Any) -> None:
    for maximize, wrong in ((False, "-Infinity"), (True, "Infinity")):
        options = {"maximize": maximize, "unassigned_cost": [1, wrong, 1]}
        answer = api.post("/v1/jobs", json=SQUARE | {"options": options})
        found = problem(answer, 422, "invalid-cost", "/options/unassigned_cost/1")
        assert found["row"] == 1
        options["maximize"] = not maximize
        assert api.post(DRY, json=SQUARE | {"options": options}).status_code == 200
    options = {"unassigned_cost": [2**62, 1, 1]}
    answer = api.post("/v1/jobs", json=SQUARE | {"options": options})
    problem(answer, 422, "invalid-cost", "/options/unassigned_cost")
    # Floats do not hold this one; whole numbers and listed ones do.
    listed = {"type": "sparse", "shape": [3, 3], "rows": [0], "columns": [0], "costs": [1]}
    lowrank = {"type": "lowrank", "a": FLAT, "b": FLAT}
    for price, field in ((2**53 + 1, ""), ([1, 1, 2**53 + 1], "/2")):
        options = {"unassigned_cost": price}
        for path in ("/v1/jobs", DRY):
            answer = api.post(path, json={"cost": lowrank, "options": options})
            problem(answer, 422, "invalid-cost", f"/options/unassigned_cost{field}")
        for cost in (SQUARE["cost"], listed):
            assert api.post(DRY, json={"cost": cost, "options": options}).status_code == 200


def test_large_starts_are_not_read(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"v": {"array": upload(api, np.array([0.0, np.inf, 0]))}}
    monkeypatch.setattr("bigsap_server.costs.validate.SMALL_BYTES", 20)
    assert api.post(DRY, json=SQUARE | {"warm_start": start}).status_code == 200


@pytest.mark.parametrize("method", ["hungarian", "auction"])
def test_methods_for_wide_costs(tmp_path: Any, make_app: Any, method: str) -> None:
    """They refuse a tall matrix on the disk, which gives no columns, and take one in memory."""
    tall = np.arange(15.0).reshape(5, 3) % 4
    (tmp_path / "lab").mkdir()
    np.save(tmp_path / "lab" / "turned.npy", np.asfortranarray(tall))
    zarr.save(str(tmp_path / "lab" / "tall.zarr"), tall)
    api = make_app(stores={"lab": tmp_path / "lab"})
    options = {"method": method}
    for cost in (
        {"type": "array", "values": {"array": upload(api, tall)}},
        {"type": "zarr", "store": "lab", "path": "tall.zarr"},
    ):
        body = {"cost": cost, "options": options}
        problem(api.post("/v1/jobs", json=body), 422, "invalid-spec", "/options/method")
        body["options"] = options | {"unassigned_cost": 9.0}
        assert solved(api, body)["state"] == "succeeded"
    for cost in (
        {"type": "array", "values": tall.tolist()},
        {"type": "array", "values": {"store": "lab", "path": "turned.npy"}},
        {"type": "array", "values": {"array": upload(api, tall.T)}},
        {"type": "points", "x": [[1.0]] * 5, "y": [[2.0]] * 3},
    ):
        job = solved(api, {"cost": cost, "options": options})
        assert job["state"] == "succeeded", job["problem"]


def test_capacities_and_demands(api: Any) -> None:
    cost = {"type": "array", "values": [[4.0, 1, 3], [2, 0, 5], [3, 2, 2], [1, 1, 1]]}
    costs = np.array(cost["values"])
    job = solved(api, {"cost": cost, "options": {"capacity": [1, 2, 2]}})
    result = api.get(f"/v1/jobs/{job['id']}/result").json()
    assert result["objective"] == bigsap.solve(costs, capacity=[1, 2, 2]).fun
    assert "row4col" not in result["links"]
    asked = {"Accept": "application/json"}
    found = api.get(f"/v1/jobs/{job['id']}/result/capacity", headers=asked)
    assert found.json()["values"] == [1, 2, 2]
    problem(api.get(f"/v1/jobs/{job['id']}/result/row4col"), 404, "not-found")
    whole = api.get(f"/v1/jobs/{job['id']}/result", headers={"Accept": "application/x-npz"})
    assert whole.status_code == 200
    job = solved(api, {"cost": {"type": "array", "values": costs.T.tolist()}, "options": {"demand": 1}})
    result = api.get(f"/v1/jobs/{job['id']}/result").json()
    assert result["objective"] == bigsap.solve(costs.T, demand=1).fun
    assert "col4row" not in result["links"]


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"capacity": [1, 2]}, "/options/capacity"),
        ({"capacity": [1.5, 1, 1]}, "/options/capacity"),
        ({"capacity": -1}, "/options/capacity"),
        ({"capacity": 1.5}, "/options/capacity"),
        ({"demand": [1, 1, -1]}, "/options/demand"),
        ({"demand": 2, "capacity": 2}, "/options/demand"),
        ({"demand": [1, 2, 1], "capacity": [1, 1, 2]}, "/options/demand"),
        ({"objective": "bottleneck", "capacity": 1}, "/options/objective"),
        ({"objective": "bottleneck", "demand": 1}, "/options/objective"),
        ({"objective": "bottleneck", "unassigned_cost": 1}, "/options/unassigned_cost"),
        ({"objective": "bottleneck", "gap": 0.5}, "/options/gap"),
        ({"objective": "bottleneck", "method": "ssp", "cache": 8}, "/options/cache"),
    ],
)
def test_capacities_are_refused_as_the_library_does(api: Any, options: Any, pointer: str) -> None:
    with pytest.raises(bigsap.InputError):
        bigsap.solve(COSTS, **options)
    problem(api.post(DRY, json=SQUARE | {"options": options}), 422, "invalid-spec", pointer)


@pytest.mark.parametrize("method", ["auto", "ssp", "compressed", "hungarian", "auction"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_methods_of_a_bottleneck(api: Any, method: str, shape: tuple[int, int]) -> None:
    costs = np.random.default_rng(1).integers(0, 9, shape)
    options = {"objective": "bottleneck", "method": method}
    body = {"cost": {"type": "array", "values": costs.tolist()}, "options": options}
    try:
        bigsap.solve(costs, **options)
    except bigsap.OptionError:
        problem(api.post(DRY, json=body), 422, "invalid-spec", "/options/method")
    else:
        assert api.post(DRY, json=body).status_code == 200


@pytest.fixture
def idle(api: Any) -> Iterator[Any]:
    """The same, of which no request makes a job."""

    def jobs() -> Any:
        return api.get("/v1/jobs").json()["jobs"]

    before = jobs()
    yield api
    assert jobs() == before


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/nothing", "/v1", "/v2/jobs", "/js/nothing.js", "/js", "/v1/jobs/a/b/c"]
)
def test_what_is_not_there_is_not_found(idle: Any, method: str, path: str) -> None:
    answer = idle.request(method, path)
    problem(answer, 404, "not-found")
    assert "Allow" not in answer.headers


PARAMETERS = [
    ("POST", "/v1/jobs", "dryrun", "dry_run"),
    ("GET", "/v1/jobs", "pagesize", "page_size"),
    ("GET", "/v1/jobs/job_1", "timeout", "wait"),
    ("GET", "/v1/jobs/job_1/events", "since", "after"),
    ("GET", "/v1/jobs/job_1/result/u", "start", "offset"),
    ("POST", "/v1/jobs/job_1/cancel", "mode", "none"),
    ("GET", "/v1/arrays", "page_size", "limit"),
    ("POST", "/v1/costs:check", "samples", "sample"),
    ("GET", "/v1/capabilities", "x", "none"),
]


@pytest.mark.parametrize(("method", "path", "name", "known"), PARAMETERS)
def test_unknown_parameters_are_refused(idle: Any, method: str, path: str, name: str, known: str) -> None:
    given = {} if method in ("GET", "PUT") else {"json": SQUARE}
    answer = idle.request(method, path, params={name: "1"}, **given)
    found = problem(answer, 422, "invalid-spec")
    (error,) = found["errors"]
    assert error["parameter"] == name
    assert known in error["detail"]


def test_all_unknown_parameters_are_named(idle: Any) -> None:
    found = idle.post("/v1/jobs?dry_run=true&dryrun=1&x=", json=SQUARE)
    names = [error["parameter"] for error in problem(found, 422, "invalid-spec")["errors"]]
    assert names == ["dryrun", "x"]
    assert idle.post("/v1/jobs?dry_run=true", json=SQUARE).status_code == 200
    # Probes and scrapers may add what they like, and the page is no resource of the service.
    for path in ("/healthz?probe=1", "/metrics?format=text", "/?theme=dark", "/openapi.json?v=3"):
        assert idle.get(path).status_code == 200, path


WIDE = {"type": "points", "x": [[0.0]] * 3, "y": [[1.0]] * 200}
TALL = {"type": "points", "x": [[0.0]] * 200, "y": [[1.0]] * 3}


@pytest.mark.parametrize(
    ("cost", "option", "size", "row_bytes"),
    [
        (WIDE, "cache", "1kB", 1600),
        (WIDE, "cache", 1599, 1600),
        (WIDE, "memory_limit", "1KiB", 1600),
        (TALL, "memory_limit", "1KiB", 1600),
        (TALL, "cache", "1KiB", 1600),
        ({"type": "sum", "terms": [WIDE, WIDE]}, "cache", 1, 1600),
        ({"type": "array", "values": [[1.5] * 200] * 2}, "memory_limit", "1KiB", 1600),
    ],
)
def test_sizes_that_hold_no_row(
    api: Any, cost: dict[str, Any], option: str, size: Any, row_bytes: int
) -> None:
    """Refused where the solve would refuse them, and only there."""
    body = {"cost": cost, "options": {option: size}}
    for path in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        found = problem(api.post(path, json=body), 422, "invalid-spec", f"/options/{option}")
        assert f"{row_bytes} bytes" in found["detail"]
        assert "one row" in found["detail"]
    job = solved(api, {"cost": cost, "options": {option: row_bytes}})
    assert job["state"] == "succeeded", job["problem"]


def test_a_matrix_scanned_in_place_needs_no_cache(api: Any) -> None:
    wide = np.arange(600.0).reshape(3, 200)
    for values in (wide.tolist(), {"array": upload(api, wide)}):
        cost = {"type": "array", "values": values}
        job = solved(api, {"cost": cost, "options": {"cache": "1kB"}})
        assert job["state"] == "succeeded", job["problem"]
    narrow = {"type": "array", "values": {"array": upload(api, wide.astype("f2"))}}
    body = {"cost": narrow, "options": {"cache": 399}}
    problem(api.post("/v1/jobs", json=body), 422, "invalid-spec", "/options/cache")
    gated = {"cache": "1kB", "unassigned_cost": 1.0}
    body = {"cost": {"type": "array", "values": wide.tolist()}, "options": gated}
    problem(api.post("/v1/jobs", json=body), 422, "invalid-spec", "/options/cache")


@pytest.mark.parametrize("maximize", [False, True])
def test_rows_that_must_all_be_assigned(api: Any, maximize: bool) -> None:
    """An infinite price of all rows, as of one: JSON has it as text."""
    text, price = ("-Infinity", -np.inf) if maximize else ("Infinity", np.inf)
    options = {"maximize": maximize, "unassigned_cost": text}
    for costs in (COSTS, COSTS[:, :2]):  # the second has a row that no column is left for
        expected = bigsap.solve(costs, maximize=maximize, unassigned_cost=price)
        body = {"cost": {"type": "array", "values": costs.tolist()}, "options": options}
        job = solved(api, body)
        assert (job["result"]["status"], job["result"]["objective"]) == (expected.status, expected.fun)
        assert api.get(job["links"]["self"] + "/spec").json()["options"]["unassigned_cost"] == text
    wrong = {"unassigned_cost": "-Infinity", "maximize": False}
    problem(api.post(DRY, json=SQUARE | {"options": wrong}), 422, "invalid-cost", "/options/unassigned_cost")
    for other in ("1", "NaN", "inf", True):
        answer = api.post(DRY, json=SQUARE | {"options": {"unassigned_cost": other}})
        problem(answer, 422, "invalid-spec", "/options/unassigned_cost")
