"""From cost specs to sources: every member of the union gives the costs it promises."""

from __future__ import annotations

import importlib.metadata
import io
import itertools
import json
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bigsap_server
import numpy as np
import pytest
from bigsap_server.costs import sandbox
from bigsap_server.costs.build import Resolver, build_source
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.specs import MEMBERS
from bigsap_server.costs.validate import validate
from bigsap_server.problems import HttpProblem, from_error
from bigsap_server.settings import Settings
from checks import normalised, problem, solved, upload
from pydantic import BaseModel, ValidationError

import bigsap
from bigsap.cli import costspec
from bigsap.sources.cost_specs import KINDS

A = [[4, 1, 3], [2, 0, 5]]
X, Y = [[0.0, 1], [2, 3]], [[1.0, 1], [0, 2], [5, 5]]


def costs(spec: dict[str, Any], tmp_path: Path, maximize: bool = False, **given: Any) -> Any:
    """The whole matrix of a spec."""
    request = {"cost": spec, "options": {"maximize": maximize}, **given}
    plain = Settings(data=tmp_path).model_dump(mode="json")
    source = build_source(normalised(request), tmp_path, plain)
    out = np.empty(source.shape, source.dtype)
    source.read(np.arange(source.shape[0]), slice(0, source.shape[1]), out)
    return out


INF = float("inf")
EXPECTED: list[tuple[dict[str, Any], Any]] = [
    ({"type": "array", "values": A}, A),
    ({"type": "array", "array": A}, A),
    ({"type": "array", "values": [[1, "Infinity"]]}, [[1, INF]]),
    ({"type": "points", "x": X, "y": Y}, [[1, 1, 41], [5, 5, 13]]),
    ({"type": "points", "x": X, "y": Y, "metric": "cityblock"}, [[1, 1, 9], [3, 3, 5]]),
    ({"type": "points", "x": X, "y": Y, "w": [1.0, 0.0]}, [[1, 0, 25], [1, 4, 9]]),
    ({"type": "points", "x": [1, 2], "y": [3, 5]}, [[4, 16], [1, 9]]),
    ({"type": "points", "x": [1, 2], "y": [3, 5], "max_distance": 2}, [[4, INF], [1, INF]]),
    ({"type": "points", "x": X, "y": Y, "metric": "minkowski", "p": 1.0}, [[1, 1, 9], [3, 3, 5]]),
    ({"type": "lowrank", "a": X, "b": Y}, [[1, 2, 5], [5, 6, 25]]),
    (
        {"type": "lowrank", "a": X, "b": Y, "row_terms": [1, 2], "column_terms": [0, 1, 0]},
        [[2, 4, 6], [7, 9, 27]],
    ),
    (
        {"type": "table", "values": A, "row_class": [1, 0, 1], "column_class": [2, 0]},
        [[5, 2], [3, 4], [5, 2]],
    ),
    (
        {
            "type": "expression",
            "code": "x[i] * 10 + j + c",
            "shape": [2, 2],
            "arrays": {"x": [1, 2], "c": 0.5},
        },
        [[10.5, 11.5], [20.5, 21.5]],
    ),
    (
        {"type": "sparse", "shape": [2, 3], "rows": [1, 0, 0], "columns": [2, 0, 1], "costs": [4, 0, 2]},
        [[0, 2, INF], [INF, INF, 4]],
    ),
    (
        {"type": "sparse", "shape": [2, 3], "start": [0, 2, 3], "columns": [1, 0, 2], "costs": [2, 0, 4]},
        [[0, 2, INF], [INF, INF, 4]],
    ),
    ({"type": "sum", "terms": [{"type": "array", "values": A}] * 2}, 2 * np.array(A)),
    ({"type": "scale", "factor": 0.5, "cost": {"type": "array", "values": A}}, np.array(A) / 2),
    ({"type": "mask", "cost": {"type": "array", "values": [[1, 2]]}, "forbidden": [[0, 1]]}, [[1, INF]]),
    ({"type": "mask", "cost": {"type": "array", "values": [[1, 2]]}, "allowed": [[0, 1]]}, [[INF, 2]]),
    (
        {"type": "forbid_above", "threshold": 3.0, "cost": {"type": "array", "values": A}},
        [[INF, 1, 3], [2, 0, INF]],
    ),
]


@pytest.mark.parametrize(("spec", "expected"), EXPECTED, ids=[str(k) for k in range(len(EXPECTED))])
def test_members(spec: dict[str, Any], expected: Any, tmp_path: Path) -> None:
    np.testing.assert_allclose(costs(spec, tmp_path), np.array(expected, float), rtol=1e-14)


def test_a_mask_that_waits_can_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop reaches the mask's own rows, which may lie in a slow store."""

    class Slow:
        shape, dtype, check = (1, 2), np.dtype(np.uint8), None

        def while_waiting(self, check: Any) -> None:
            self.check = check

    slow = Slow()
    real = bigsap.as_source
    monkeypatch.setattr(bigsap, "as_source", lambda it: slow if np.asarray(it).max() == 7 else real(it))
    spec = {"type": "mask", "cost": {"type": "array", "values": [[1, 2]]}, "allowed": [[0, 7]]}
    plain = Settings(data=tmp_path).model_dump(mode="json")
    source: Any = build_source(normalised({"cost": spec}), tmp_path, plain)
    source.while_waiting(pytest.fail)
    assert slow.check is pytest.fail


def test_faults_of_sparse_costs_are_named_before_a_job_runs(api: Any) -> None:
    good = {"type": "sparse", "shape": [2, 2], "rows": [0, 1], "columns": [1, 0], "costs": [1, 2]}
    assert solved(api, {"cost": good})["outcome"]["objective"] == 3
    for fault, slug, pointer in (
        ({"columns": [1, 2]}, "invalid-spec", "/cost"),
        ({"columns": [1.5, 0]}, "invalid-spec", "/cost/columns"),
        ({"costs": [1]}, "invalid-spec", "/cost/columns"),
        ({"rows": [0, 0], "columns": [1, 1]}, "invalid-cost", "/cost"),
        ({"start": [0, 1, 2]}, "invalid-spec", None),
        ({"rows": None, "start": [0, 2, 1]}, "invalid-spec", "/cost/start"),
        ({"rows": None, "start": [0, 2]}, "invalid-spec", "/cost/start"),
        ({"rows": None, "start": [0, 1, 2], "columns": [[1], [0]]}, "invalid-spec", "/cost/columns"),
    ):
        found = problem(api.post("/v1/jobs", json={"cost": good | fault}), 422, slug, pointer)
        assert "indptr" not in found["detail"]
    dry = api.post("/v1/jobs?dry_run=true", json={"cost": good | {"shape": [10**6, 10**6]}}).json()
    assert dry["estimate"]["seconds"] < 5
    assert dry["estimate"]["memory"]["lists"] == 0


def test_integers_stay_integers(tmp_path: Path) -> None:
    assert costs({"type": "array", "values": A}, tmp_path).dtype == np.int64
    assert costs({"type": "array", "values": [[1.0]]}, tmp_path).dtype == np.float64


def test_maximize_decides_what_forbids(tmp_path: Path) -> None:
    spec = {"type": "forbid_above", "threshold": 3.0, "cost": {"type": "array", "values": A}}
    assert costs(spec, tmp_path, maximize=True)[0, 0] == -INF


@pytest.mark.parametrize(
    "spec",
    [spec for spec, _ in EXPECTED if spec["type"] in KINDS and "values" in str(spec)]
    + [spec for spec, _ in EXPECTED if spec["type"] in ("points", "lowrank", "expression", "sparse")],
)
def test_the_command_line_reads_the_same_documents(spec: dict[str, Any], tmp_path: Path) -> None:
    if "array" in spec or "Infinity" in str(spec):
        pytest.skip("the service's own short form")
    source = costspec.from_spec(json.loads(json.dumps(spec)), tmp_path)
    out = np.empty(source.shape, source.dtype)
    source.read(np.arange(source.shape[0]), slice(0, source.shape[1]), out)
    np.testing.assert_array_equal(out, costs(spec, tmp_path))


def test_both_dialects_have_the_same_fields() -> None:
    """But for where the service reads from, and what it asks an operator for."""
    more = {"zarr": {"store", "uri"}, "http_rows": {"credentials"}}
    fewer = {"http_rows": {"headers"}}
    given = {"zarr": {"path"}}  # one of two ways to say where
    elsewhere = {"expression": {"shape"}, "http_rows": {"shape"}}  # perhaps in the request
    seen = set()
    for name, member in MEMBERS.items():
        if name not in KINDS or name == "npy":  # a path here, an address there
            continue
        seen.add(name)
        fields = {field: info for field, info in member.model_fields.items() if field != "type"}
        assert set(fields) - more.get(name, set()) == set(KINDS[name].fields) - fewer.get(name, set())
        needed = {field for field, info in fields.items() if info.is_required()}
        assert needed | given.get(name, set()) | elsewhere.get(name, set()) == set(KINDS[name].required)
    assert set(KINDS) - seen == {"npy"}


def test_the_page_has_words_for_every_member() -> None:
    script = (Path(bigsap_server.__file__).parent / "page" / "js" / "job.js").read_text()
    listed = re.search(r"const KINDS = {(.*?)};", script, re.S)
    assert listed is not None
    assert set(re.findall(r"(\w+): \"", listed[1])) == set(MEMBERS)


def test_normalised_requests_are_stable(tmp_path: Path) -> None:
    """What is stored reads back as itself: jobs outlive the server that accepted them."""
    for spec, _ in EXPECTED:
        once = JobRequest.model_validate({"cost": spec}).model_dump(mode="json")
        text = json.dumps(once, allow_nan=False)
        assert JobRequest.model_validate(json.loads(text)).model_dump(mode="json") == once


def test_shapes(tmp_path: Path) -> None:
    plain = Settings(data=tmp_path).model_dump(mode="json")
    spec = {"type": "expression", "code": "i + j"}
    with pytest.raises(HttpProblem, match="needs the shape") as caught:
        build_source(normalised({"cost": spec}), tmp_path, plain)
    assert caught.value.pointer == "/shape"
    with pytest.raises(HttpProblem) as caught:
        build_source(normalised({"cost": {**spec, "shape": [2, 3]}, "shape": [3, 2]}), tmp_path, plain)
    assert caught.value.pointer == "/cost/shape"
    assert build_source(normalised({"cost": spec, "shape": [2, 3]}), tmp_path, plain).shape == (2, 3)


@pytest.mark.parametrize(
    ("cost", "shape"),
    [
        ({"type": "points", "x": "ID", "y": "ID"}, [6, 6]),
        ({"type": "lowrank", "a": "ID", "b": "ID"}, [6, 6]),
        ({"type": "array", "values": "ID"}, [6, 2]),
        ({"type": "expression", "code": "x[i, 0] - x[j, 1]", "arrays": {"x": "ID"}}, [6, 6]),
    ],
)
def test_uploaded_arrays_in_specs(api: Any, cost: dict[str, Any], shape: list[int]) -> None:
    points = np.random.default_rng(3).uniform(size=(6, 2)).astype(np.float32)
    array_id = upload(api, points)
    text = json.dumps({"cost": cost, "shape": shape}).replace('"ID"', f'{{"array": "{array_id}"}}')
    job = solved(api, json.loads(text))
    assert job["state"] == "succeeded", job
    assert job["result"]["status"] == "optimal"
    assert job["shape"] == shape


def test_arrays_that_are_not_sealed_or_not_finite(api: Any) -> None:
    open_id = upload(api, np.eye(2), seal=False)
    body = {"cost": {"type": "array", "values": {"array": open_id}}}
    problem(api.post("/v1/jobs", json=body), 409, "array-incomplete", "/cost/values")
    infinite = upload(api, np.array([[1.0, np.inf], [2, 3]]))
    body = {"cost": {"type": "points", "x": {"array": infinite}, "y": [[1, 2]]}}
    problem(api.post("/v1/jobs", json=body), 422, "invalid-cost", "/cost/x")
    body = {"cost": {"type": "array", "values": {"array": infinite}}}
    assert solved(api, body)["result"]["objective"] == 4


def test_large_formulas_are_judged_without_their_arrays(
    make_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import bigsap_server.costs.validate

    monkeypatch.setattr(bigsap_server.costs.validate, "SMALL_BYTES", 100)
    api = make_app()
    array_id = upload(api, np.ones((100, 3)))
    arrays = {"x": {"array": array_id}, "c": 2.0}

    def ask(code: str, shape: list[int]) -> Any:
        cost = {"type": "expression", "code": code, "arrays": arrays}
        return api.post("/v1/jobs?dry_run=true", json={"shape": shape, "cost": cost})

    assert ask("x[i, 0] * c + j", [100, 7]).status_code == 200
    assert ask("x[i, 0] - x[j, 2]", [100, 100]).status_code == 200
    problem(ask("x[i, 3]", [100, 7]), 422, "invalid-spec", "/cost/code")
    problem(ask("x[j, 0]", [100, 7]), 422, "invalid-spec", "/cost/code")
    problem(ask("x[i, 0]", [101, 7]), 422, "invalid-spec", "/cost/arrays/x")


class _Params(BaseModel):
    size: int
    step: float = 1.0


def _fake_plugin(params: _Params, shape: tuple[int, int] | None) -> Any:
    """Costs of a grid."""
    n = params.size
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))) * params.step


_fake_plugin.Params = _Params  # type: ignore[attr-defined]


def test_plugins(make_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("grid", "fake_grid:plugin", "bigsap.costs")
    module = types.ModuleType("fake_grid")
    module.plugin = _fake_plugin  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "fake_grid", module)
    original = importlib.metadata.entry_points

    def entry_points(**wanted: Any) -> Any:
        if wanted.get("group") == "bigsap.costs":
            return [entry] if wanted.get("name", "grid") == "grid" else []
        return original(**wanted)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    cost = {"type": "plugin", "name": "grid", "params": {"size": 4}}
    api = make_app(plugins=["grid"])
    job = solved(api, {"cost": cost})
    assert job["result"]["objective"] == 0
    bad = {"cost": cost | {"params": {"size": "many"}}}
    problem(api.post("/v1/jobs", json=bad), 422, "invalid-spec", "/cost/params/size")
    (plugin,) = api.get("/v1/kernels").json()["plugins"]
    assert plugin["schema"]["properties"]["size"]["type"] == "integer"
    # One that cannot be used is not in the catalogue, and takes none of the others along.
    del module.plugin
    assert api.get("/v1/cost-types").json()["plugins"] == []
    found = problem(api.post("/v1/jobs", json={"cost": cost}), 422, "invalid-spec", "/cost/name")
    assert "cannot be used" in found["detail"]


def test_a_check_says_what_a_plugin_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plugin(params: _Params, shape: tuple[int, int] | None) -> Any:
        print("looking for the city")
        raise KeyError("no such city")

    plugin.Params = _Params  # type: ignore[attr-defined]
    monkeypatch.setattr("bigsap_server.costs.build.plugin_of", lambda *_: plugin)
    monkeypatch.setattr(sandbox, "limit_process", lambda **most: None)
    cost = {"type": "plugin", "name": "grid", "params": {"size": 4}}
    order = {
        "request": {"cost": cost, "shape": None, "maximize": False},
        "data": ".",
        "settings": {"limits": {"check_s": 1}, "plugins": ["grid"], "data": "."},
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(order)))
    assert sandbox.main() == 0
    found = json.loads(capsys.readouterr().out)["problem"]
    assert found["detail"] == "KeyError: 'no such city'"


@pytest.mark.parametrize("depth", [64, 65, 300, 900])
@pytest.mark.parametrize("kind", ["[]", "{}"])
def test_parameters_of_plugins_are_not_nested_too_deeply(shared: Any, depth: int, kind: str) -> None:
    opening, closing = ("[", "]") if kind == "[]" else ('{"a": ', "}")
    params = '{"a": ' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"
    body = '{"cost": {"type": "plugin", "name": "none", "params": ' + params + "}}"
    for path in ("/v1/jobs", "/v1/costs:check"):
        answer = shared.post(path, content=body, headers={"Content-Type": "application/json"})
        found = problem(answer, 422, "invalid-spec", f"/cost/{'params' if depth > 64 else 'name'}")
        assert ("64 levels" in found["detail"]) == (depth > 64)


def test_types_of_remote_rows_are_types_of_numpy(make_app: Callable[..., Any]) -> None:
    api = make_app(http_rows_hosts=["rows.example"])
    cost = {"type": "http_rows", "url": "http://rows.example/", "shape": [2, 2]}
    taken = []
    for order, kind, size in itertools.product(("", "<", "|"), ("f", "i", "u"), "1248"):
        answer = api.post("/v1/jobs?dry_run=true", json={"cost": cost | {"dtype": order + kind + size}})
        if answer.status_code == 200:
            taken.append(answer.json()["dtype"])
        else:
            problem(answer, 422, "invalid-spec", "/cost/dtype")
    assert len(taken) == 33
    for name in ("float8", ">f8", "f16", "complex64", "f8\n"):
        answer = api.post("/v1/jobs?dry_run=true", json={"cost": cost | {"dtype": name}})
        problem(answer, 422, "invalid-spec", "/cost/dtype")
    for name in ("float16", "float32", "int8", "uint64"):
        answer = api.post("/v1/jobs?dry_run=true", json={"cost": cost | {"dtype": name}})
        assert answer.json()["dtype"] == name


# Integers beyond 2**53

BIG = 2**53
LARGE = {"type": "array", "values": [[BIG + 1, BIG + 1], [1, 2]]}


def test_thresholds_meet_integers_as_they_are(tmp_path: Path) -> None:
    """Rounded, both would be BIG, and the pair allowed."""
    for threshold in (BIG, float(BIG)):
        spec = {"type": "forbid_above", "threshold": threshold, "cost": LARGE}
        np.testing.assert_array_equal(costs(spec, tmp_path), [[INF, INF], [1, 2]])
    # The threshold stays an integer, too, in what is stored and sent again.
    spec = {"type": "forbid_above", "threshold": BIG + 1, "cost": LARGE}
    parsed = JobRequest.model_validate({"cost": spec})
    assert parsed.model_dump(mode="json")["cost"]["threshold"] == BIG + 1
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\] is an integer") as caught:
        costs(spec, tmp_path)
    told = from_error(caught.value)
    assert (told.slug, told.extra) == ("invalid-cost", {"row": 0, "column": 0})


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "sum", "terms": [LARGE, {"type": "array", "values": [[0, 0], [0, 0]]}]},
        {"type": "sum", "terms": [LARGE, {"type": "array", "values": [[0.5, 0], [0, 0]]}]},
        {"type": "scale", "factor": 3, "cost": LARGE},
        {"type": "scale", "factor": 0.5, "cost": LARGE},
        {"type": "mask", "forbidden": [[0, 1], [0, 0]], "cost": LARGE},
        {"type": "forbid_above", "threshold": 2**60, "cost": LARGE},
    ],
)
def test_integers_are_never_rounded_silently(spec: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\] is an integer"):
        costs(spec, tmp_path)


def test_what_float64_holds_is_exact(tmp_path: Path) -> None:
    one = {"type": "array", "values": [[1, -1], [0, 0]]}
    found = costs({"type": "sum", "terms": [LARGE, one]}, tmp_path)
    assert [int(value) for value in found[0]] == [BIG + 2, BIG]
    found = costs({"type": "scale", "factor": 2, "cost": one}, tmp_path)
    np.testing.assert_array_equal(found, [[2, -2], [0, 0]])
    masked = {"type": "mask", "forbidden": [[1, 1], [0, 0]], "cost": LARGE}
    np.testing.assert_array_equal(costs(masked, tmp_path), [[INF, INF], [1, 2]])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"cost": {"type": "array", "values": [[BIG + 1, 0.5]]}}, "does not hold"),
        ({"cost": {"type": "array", "values": [[BIG + 1, "Infinity"]]}}, "does not hold"),
        ({"cost": {"type": "scale", "factor": BIG + 1, "cost": LARGE}}, "does not hold"),
        (
            {"cost": {"type": "expression", "code": "k", "shape": [1, 1], "arrays": {"k": BIG + 1}}},
            "does not hold",
        ),
        ({"cost": {"type": "forbid_above", "threshold": 10**400, "cost": LARGE}}, "beyond"),
        ({"cost": LARGE, "options": {"unassigned_cost": [BIG + 1, 0.5]}}, "does not hold"),
    ],
)
def test_numbers_that_would_be_rounded_are_refused(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        JobRequest.model_validate(request_)


def test_an_integer_price_of_unassigned_rows_stays_one(tmp_path: Path) -> None:
    plain = Settings(data=tmp_path).model_dump(mode="json")
    for price, kind in ((BIG + 1, int), (3, float), (2.5, float)):
        request = normalised({"cost": LARGE, "options": {"unassigned_cost": price}})
        found = request["options"]["unassigned_cost"]
        assert found == price
        assert type(found) is kind
    for price in (2**62 + 1, -(2**80) - 1):
        request = normalised({"cost": LARGE, "options": {"unassigned_cost": price}})
        with pytest.raises(HttpProblem) as caught:
            validate(request, Resolver(tmp_path, plain), ["cpu"])
        assert caught.value.pointer == "/options/unassigned_cost"
