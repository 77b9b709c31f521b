"""Options and starts are refused where ``bigsap.solve`` would refuse them, before a job is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import zarr
from apps import TestClient, settings_in
from bigsap_server.api.app import create_app
from bigsap_server.costs.request import Options
from checks import SQUARE, problem, solved, upload

import bigsap
from pairwise import cover

COSTS = np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])
DRY = "/v1/jobs?dry_run=true"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # Each combination is two requests.
    limits = {"requests_per_s": 10_000, "burst": 10_000}
    app = create_app(settings_in(tmp_path_factory.mktemp("options") / "data", limits))
    base = "http://127.0.0.1:8765"
    with TestClient(app, base_url=base, raise_server_exceptions=False) as client:
        yield client


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


def test_a_variant_of_another_method_makes_no_job(api: Any) -> None:
    options = {"method": "ssp", "variant": "tree"}
    problem(api.post("/v1/jobs", json=SQUARE | {"options": options}), 422, "invalid-spec")
    assert api.get("/v1/jobs").json()["jobs"] == []


FLAT = [0, 0, 0]


@pytest.mark.parametrize("uploaded", [False, True])
@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"v": [0, "Infinity", 0]}, "v"),
        ({"v": [0.0, "-Infinity", 0]}, "v"),
        ({"v": [2**62, 0, 0]}, "v"),
        ({"v": [1e301, 0, 0]}, "v"),
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
    ],
)
def test_capacities_are_refused_as_the_library_does(api: Any, options: Any, pointer: str) -> None:
    problem(api.post(DRY, json=SQUARE | {"options": options}), 422, "invalid-spec", pointer)
