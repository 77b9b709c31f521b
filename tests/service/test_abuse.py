"""Hostile requests: always a 4xx problem document, and other jobs never notice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server.costs import validate
from checks import SQUARE, problem, solved

import bigsap

JSON = {"Content-Type": "application/json"}
POST = ("/v1/jobs", "/v1/costs:check", "/v1/arrays")


@pytest.fixture
def intact(shared: Any) -> Iterator[Any]:
    """One service for all: no request here makes a job, and the service goes on."""

    def newest() -> list[str]:
        return [job["id"] for job in shared.get("/v1/jobs?page_size=1").json()["jobs"]]

    before = newest()
    yield shared
    assert newest() == before
    assert shared.get("/readyz").status_code == 200


def test_service_still_solves_after_all(shared: Any) -> None:
    text = b"[" * 100_000
    problem(shared.post("/v1/jobs", content=text, headers=JSON), 400, "malformed-json")
    assert solved(shared, SQUARE)["result"]["objective"] == 5


@pytest.mark.some(7)
@pytest.mark.parametrize("path", POST)
@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"",
        b"\xff\xfe",
        b'{"a":1}{"b":2}',
        b"\x00",
        b'"\xed\xa0\x80"',
        b'{"cost": 1' + b"0" * 5000 + b"}",
    ],
)
def test_what_is_no_json(intact: Any, path: str, text: bytes) -> None:
    answer = intact.post(path, content=text, headers=JSON)
    assert answer.status_code in (400, 422)
    problem(answer, answer.status_code, answer.json()["type"].rpartition(":")[2])


@pytest.mark.parametrize("path", POST)
@pytest.mark.parametrize("opening", [b"[", b'{"cost":', b'{"cost":{"type":"scale","cost":'])
def test_nesting_100000_deep(intact: Any, path: str, opening: bytes) -> None:
    problem(intact.post(path, content=opening * 100_000, headers=JSON), 400, "malformed-json")
    closing = b"]" if opening == b"[" else b"}" * opening.count(b"{")
    text = opening * 100_000 + b"1" + closing * 100_000
    problem(intact.post(path, content=text, headers=JSON), 400, "malformed-json")


@pytest.mark.parametrize("depth", [17, 100, 250, 300])
def test_nesting_of_combinators(intact: Any, depth: int) -> None:
    cost: Any = SQUARE["cost"]
    for _ in range(depth):
        cost = {"type": "scale", "factor": 1.0, "cost": cost}
    slug = {17: "over-limit", 100: "over-limit"}.get(depth)
    answer = intact.post("/v1/jobs", json={"cost": cost})
    problem(answer, 422, slug or answer.json()["type"].rpartition(":")[2])


def test_repeated_keys(intact: Any) -> None:
    text = b'{"cost": {"type": "array", "values": [[1]], "values": [[2]]}}'
    found = problem(intact.post("/v1/jobs", content=text, headers=JSON), 400, "malformed-json")
    assert "'values'" in found["detail"]


BAD: list[tuple[Any, str]] = [
    (None, ""),
    ({}, "/cost"),
    ({"cost": None}, "/cost"),
    ({"cost": {"type": "pickle", "data": "gASV"}}, "/cost"),
    ({"cost": {"type": "array"}}, "/cost/values"),
    ({"cost": {"type": "array", "values": [["1"]]}}, "/cost/values"),
    ({"cost": {"type": "array", "values": [[None]]}}, "/cost/values"),
    ({"cost": {"type": "array", "values": [[1, 2], [3]]}}, "/cost/values"),
    ({"cost": {"type": "array", "values": [1, 2]}}, "/cost/values"),
    ({"cost": {"type": "array", "values": [[2**70]]}}, "/cost/values"),
    ({"cost": {"type": "array", "values": [[1]], "more": 1}}, "/cost/more"),
    ({"cost": {"type": "array", "values": {"array": "../../etc"}}}, "/cost/values/array"),
    ({"cost": {"type": "array", "values": {"array": "arr_0"}}}, "/cost/values"),
    ({"cost": {"type": "array", "array": [["1"]]}}, "/cost/array"),
    ({"cost": {"type": "array", "array": {"array": "../../etc"}}}, "/cost/array/array"),
    ({"cost": {"type": "array", "array": "../../etc"}}, "/cost/array"),
    ({"cost": {"type": "array", "array": "arr_0"}}, "/cost/array"),
    ({"cost": {"type": "array", "array": [["-Infinity"]]}}, "/cost/array/0/0"),
    ({"cost": {"type": "sum", "terms": [{"type": "array", "array": [[None]]}]}}, "/cost/terms/0/array"),
    ({"cost": {"type": "sum", "terms": [{"type": "array", "array": [1]}]}}, "/cost/terms/0/array"),
    (SQUARE | {"shape": [3, 4]}, "/shape"),
    (SQUARE | {"shape": [-1, 3]}, "/shape/0"),
    (SQUARE | {"shape": [3.0, 3]}, "/shape/0"),
    (SQUARE | {"options": {"gap": "0"}}, "/options/gap"),
    (SQUARE | {"options": {"maximize": 1}}, "/options/maximize"),
    (SQUARE | {"shape": [10**30, 3]}, "/shape/0"),
    (SQUARE | {"options": {"threads": 10**9}}, "/options/threads"),
    (SQUARE | {"options": {"time_limit_s": -1}}, "/options/time_limit_s"),
    (SQUARE | {"options": {"cache": "8 elephants"}}, "/options/cache"),
    (SQUARE | {"options": {"device": "cuda"}}, "/options/device"),
    (SQUARE | {"options": {"method": "magic"}}, "/options/method"),
    (SQUARE | {"options": {"checkpoint": "/etc/passwd"}}, "/options/checkpoint"),
    (SQUARE | {"warm_start": {"job": "job_1"}}, "/warm_start/job"),
    (SQUARE | {"warm_start": {"v": [1, 2]}}, "/warm_start/v"),
    (SQUARE | {"warm_start": {}}, "/warm_start"),
    (SQUARE | {"label": "x" * 201}, "/label"),
    (SQUARE | {"unknown": 3}, "/unknown"),
    ({"cost": {"type": "points", "x": [[1, 2]], "y": [[1]]}}, "/cost/y"),
    ({"cost": {"type": "points", "x": [1], "y": [1], "metric": "warp"}}, "/cost/metric"),
    ({"cost": {"type": "points", "x": [1], "y": [1], "p": 3.0}}, "/cost/p"),
    ({"cost": {"type": "points", "x": [1], "y": [1], "w": [-1]}}, "/cost"),
    ({"cost": {"type": "points", "x": [1e308], "y": [-1e308]}}, "/cost"),
    ({"cost": {"type": "points", "x": ["Infinity"], "y": [1]}}, "/cost"),
    ({"cost": {"type": "table", "values": [[1]], "row_class": [1], "column_class": [0]}}, "/cost"),
    ({"cost": {"type": "lowrank", "a": [[1, 2]], "b": [[1]]}}, "/cost/b"),
    ({"cost": {"type": "array", "values": [["-Infinity"]]}}, "/cost/values/0/0"),
    ({"cost": {"type": "scale", "factor": 10**400, "cost": SQUARE["cost"]}}, "/cost/factor"),
    ({"cost": {"type": "sum", "terms": []}}, "/cost/terms"),
    ({"cost": {"type": "sum", "terms": [SQUARE["cost"], {"type": "array", "values": [[1]]}]}}, "/cost"),
    ({"cost": {"type": "mask", "cost": SQUARE["cost"], "forbidden": [[1]]}}, "/cost/forbidden"),
    ({"cost": {"type": "plugin", "name": "os"}}, "/cost/name"),
    ({"cost": {"type": "table", "table": [[1]], "row_class": [0], "column_class": [0]}}, "/cost/values"),
    ({"cost": {"type": "mask", "cost": {"type": "array", "values": [["x"]]}}}, "/cost/cost/values"),
    ({"cost": {"type": "sum", "terms": [{"type": "sum", "terms": [], "sum": 1}]}}, "/cost/terms/0/terms"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD, ids=[str(k) for k in range(len(BAD))])
def test_bad_requests_name_the_field(intact: Any, body: Any, pointer: str) -> None:
    answer = intact.post("/v1/jobs", content=json.dumps(body), headers=JSON)
    problem(answer, 422, answer.json()["type"].rpartition(":")[2], pointer)


def test_nan_and_infinity_tokens(intact: Any) -> None:
    text = b'{"cost": {"type": "array", "values": [[1, NaN], [2, 3]]}}'
    found = problem(intact.post("/v1/jobs", content=text, headers=JSON), 422, "invalid-spec")
    assert found["pointer"] == "/cost/values"
    assert "[0, 1]" in found["detail"]
    text = b'{"cost": {"type": "array", "values": [[1]]}, "options": {"gap": Infinity}}'
    problem(intact.post("/v1/jobs", content=text, headers=JSON), 422, "invalid-spec")
    text = b'{"cost": {"type": "plugin", "name": "x", "params": {"a": "\\ud800", "b": NaN}}}'
    problem(intact.post("/v1/jobs", content=text, headers=JSON), 422, "invalid-spec")


EXPRESSIONS = [
    "__import__('os').system('id')",
    "().__class__.__bases__",
    "exec('1')",
    "lambda: 1",
    "x[i].real",
    "i := 3",
    "9**9**9 + y",
    "'a' * 9",
    "x[i+1]",
    "sum(k for k in range(10**9))",
    "(" * 2000 + "i" + ")" * 2000,
    "i+" * 2000 + "i",
    "x[i, 4097]",
    "i\n;j",
    "i # \x00",
    "sum(sum(sum(1 for a in range(4096)) for b in range(4096)) for c in range(4096))",
]


@pytest.mark.parametrize("code", EXPRESSIONS, ids=[str(k) for k in range(len(EXPRESSIONS))])
def test_expression_attacks(intact: Any, code: str) -> None:
    cost = {"type": "expression", "code": code, "arrays": {"x": [1.0, 2.0]}}
    for path in ("/v1/jobs", "/v1/costs:check"):
        answer = intact.post(path, json={"shape": [2, 2], "cost": cost})
        problem(answer, 422, "invalid-spec", "/cost/code")


def test_bodies_over_the_limit(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"body_bytes": 2000, "block_bytes": 4000})
    large = b'{"cost": ' + b" " * 3000 + b"1}"
    problem(api.post("/v1/jobs", content=large, headers=JSON), 413, "body-too-large")

    sent = []

    def endless() -> Any:
        for _ in range(10_000):
            sent.append(1)
            yield b" " * 1000

    problem(api.post("/v1/jobs", content=endless(), headers=JSON), 413, "body-too-large")
    wrong = {**JSON, "Content-Length": "9" * 30}
    problem(api.post("/v1/jobs", content=b"{}", headers=wrong), 413, "body-too-large")
    array = api.post("/v1/arrays", json={"dtype": "f8", "shape": [1000, 10]}).json()
    row = array["links"]["self"] + "/rows/0"
    problem(api.put(row, content=b"\0" * 8000), 413, "body-too-large")
    assert api.get(array["links"]["self"]).json()["received"] == []


def test_inline_limit(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"inline_numbers": 8})
    cost = {"type": "array", "values": [[1.0] * 3] * 3}
    problem(api.post("/v1/jobs", json={"cost": cost}), 422, "over-limit", "/cost/values")


def test_size_limits(make_app: Callable[..., Any]) -> None:
    api = make_app(
        limits={"rows": 10, "columns": 20, "pairs": 100, "memory_bytes": 1 << 20, "array_bytes": 99}
    )
    code = {"type": "expression", "code": "i + j"}
    for shape in ([11, 1], [1, 21], [10, 11]):
        answer = api.post("/v1/jobs", json={"shape": shape, "cost": code})
        problem(answer, 422, "over-limit", "/shape")
    found = problem(api.post("/v1/jobs", json={"shape": [2, 2], "cost": code}), 422, "over-limit")
    assert "memory" in found["detail"]
    answer = api.post("/v1/arrays", json={"dtype": "f8", "shape": [100]})
    problem(answer, 422, "over-limit", "/shape")


def test_the_longest_time_limit_is_the_default(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"time_limit_s": 10})
    for asked, given in ((None, 10), (10, 10), (3.5, 3.5)):
        body = SQUARE | {"options": {"time_limit_s": asked}}
        spec = api.post("/v1/jobs?dry_run=true", json=body).json()["spec"]
        assert spec["options"]["time_limit_s"] == given
    assert solved(api, SQUARE)["state"] == "succeeded"
    body = SQUARE | {"options": {"time_limit_s": 10.5}}
    problem(api.post("/v1/jobs", json=body), 422, "over-limit", "/options/time_limit_s")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        (JSON | {"Idempotency-Key": ""}, 422),
        (JSON | {"Idempotency-Key": "k" * 256}, 422),
        (JSON | {"Idempotency-Key": "a\tb"}, 400),
        (JSON | {"X-Padding": "x" * 40_000}, 431),
        (JSON | {f"X-{k}": "x" for k in range(120)}, 431),
        (JSON | {"Host": "evil.example"}, 403),
        (JSON | {"Host": "127.0.0.1.evil.example"}, 403),
        (JSON | {"Host": "localhost@evil.example"}, 403),
        (JSON | {"Origin": "https://evil.example"}, 403),
        (JSON | {"Origin": "null"}, 403),
        (JSON | {"Host": "[:]"}, 403),
        (JSON | {"Host": "[1.2.3.4]:80"}, 403),
        (JSON | {"Origin": "http://[1.2.3.4]"}, 403),
        (JSON | {"Origin": "http://[:::]:1"}, 403),
    ],
)
def test_header_abuse(intact: Any, headers: dict[str, str], status: int) -> None:
    answer = intact.post("/v1/jobs", content=json.dumps(SQUARE), headers=headers)
    problem(answer, status, answer.json()["type"].rpartition(":")[2])


@pytest.mark.parametrize("value", ["x", "-1", "1e3", "", "9" * 40, "1,2"])
def test_last_event_ids_that_are_none(shared: Any, value: str) -> None:
    job = solved(shared, SQUARE)
    answer = shared.get(job["links"]["events"], headers={"Last-Event-ID": value})
    problem(answer, 400, "malformed-request")


def test_page_files_only(intact: Any) -> None:
    for path in ("/../pyproject.toml", "/%2e%2e/pyproject.toml", "/..%2fapp.py", "/app.py"):
        assert intact.get(path).status_code == 404


STORE_PATHS = [
    "../secret.npy",
    "a/../../secret.npy",
    "/etc/passwd",
    ".",
    "link.npy",
    "linked/x.npy",
    "inner.npy",
    "inside/x.npy",
    "x.npy\0",
    "file:///etc/passwd",
    "\\..\\secret.npy",
]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A store with a good file, and temptations around it."""
    store = tmp_path / "lab"
    store.mkdir()
    (store / "a").mkdir()
    np.save(store / "x.npy", np.array([[4.0, 1], [2, 0]]))
    np.save(tmp_path / "secret.npy", np.zeros((2, 2)))
    (store / "inner.npy").symlink_to(store / "x.npy")
    (store / "inside").symlink_to(store / "a")
    np.save(store / "a" / "x.npy", np.zeros((2, 2)))
    (store / "link.npy").symlink_to(tmp_path / "secret.npy")
    (store / "linked").symlink_to(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    os.mkfifo(store / "fifo.npy")
    (store / "text.npy").write_text("hello")
    np.save(store / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    return store


@pytest.mark.some(8)
@pytest.mark.parametrize("path", STORE_PATHS)
def test_store_paths_are_jailed(make_app: Callable[..., Any], lab: Path, path: str) -> None:
    api = make_app(stores={"lab": lab})
    ref = {"store": "lab", "path": path}
    answer = api.post("/v1/jobs", json={"cost": {"type": "array", "values": ref}})
    slug = answer.json()["type"].rpartition(":")[2]
    assert slug in ("forbidden-path", "invalid-store")
    problem(answer, 422, slug)
    answer = api.post("/v1/jobs", json={"cost": {"type": "zarr", **ref}})
    problem(answer, 422, answer.json()["type"].rpartition(":")[2])
    assert str(lab.parent) not in answer.text


def test_store_files_that_are_no_arrays(make_app: Callable[..., Any], lab: Path) -> None:
    api = make_app(stores={"lab": lab})
    for path in ("fifo.npy", "text.npy", "objects.npy", "a", "missing.npy"):
        ref = {"store": "lab", "path": path}
        answer = api.post("/v1/jobs", json={"cost": {"type": "array", "values": ref}})
        problem(answer, 422, "invalid-store")
    ref = {"store": "other", "path": "x.npy"}
    answer = api.post("/v1/jobs", json={"cost": {"type": "array", "values": ref}})
    problem(answer, 422, "invalid-store", "/cost/values/store")
    ref = {"store": "lab", "path": "x.npy"}
    assert solved(api, {"cost": {"type": "array", "values": ref}})["result"]["objective"] == 3


@pytest.mark.parametrize("name", ["code", "shape", "i", "__a", "a b", "for", "sum", "é", ""])
def test_names_of_arrays_in_expressions(intact: Any, name: str) -> None:
    cost = {"type": "expression", "code": "i + j", "arrays": {name: [1.0, 2.0]}}
    problem(intact.post("/v1/jobs", json={"shape": [2, 2], "cost": cost}), 422, "invalid-spec")


#: Rows of a hollow array: its entries take no bytes, however many rows there are.
HOLLOW = 2**53 - 1


@pytest.mark.parametrize(
    "cost",
    [
        {"type": "lowrank", "a": "tall", "b": "tall"},
        {"type": "points", "x": "tall", "y": "tall"},
        {"type": "points", "x": "wide", "y": "wide"},
        {"type": "table", "values": "tall", "row_class": [], "column_class": []},
        {"type": "table", "values": "wide", "row_class": [], "column_class": []},
        {"type": "array", "values": "tall"},
        {"type": "mask", "cost": {"type": "array", "values": [[1]]}, "allowed": "tall"},
        {"type": "expression", "code": "i + x[i, 0]", "arrays": {"x": "tall"}, "shape": [HOLLOW, 1]},
        {"type": "expression", "code": "i + x[j, 0]", "arrays": {"x": "wide"}, "shape": [1, 0]},
        {"type": "sparse", "rows": [0], "columns": [0], "costs": [1], "shape": [HOLLOW, HOLLOW]},
        {"type": "sparse", "rows": [0], "columns": [0], "costs": [1], "shape": [1, HOLLOW]},
    ],
)
def test_nothing_is_built_of_a_shape_beyond_the_solver(
    make_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, cost: dict[str, Any]
) -> None:
    def build(spec: Any, *rest: Any) -> Any:
        assert spec["type"] == "array"
        return bigsap.as_source(np.ones((1, 1)))

    api, arrays = make_app(limits={"rows": 2**54, "columns": 2**54, "pairs": 2**108}), {}
    for name, shape in (("tall", [HOLLOW, 0]), ("wide", [0, HOLLOW])):
        arrays[name] = api.post("/v1/arrays", json={"dtype": "f8", "shape": shape}).json()["id"]
        assert api.post(f"/v1/arrays/{arrays[name]}/seal").status_code == 200
    text = json.dumps(cost)
    for name, array in arrays.items():
        text = text.replace(f'"{name}"', json.dumps({"array": array}))
    monkeypatch.setattr(validate, "build", build)
    for place in ("/v1/jobs", "/v1/costs:check?sample=false"):
        answer = api.post(place, json={"cost": json.loads(text)})
        problem(answer, 422, "over-limit")


def test_nothing_is_built_of_a_shape_beyond_the_operators_limits(
    shared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "build", None)
    sparse = {"type": "sparse", "rows": [0], "columns": [0], "costs": [1], "shape": [10**8, 10**8]}
    problem(shared.post("/v1/jobs", json={"cost": sparse}), 422, "over-limit", "/shape")


def test_hollow_arrays_within_the_limits_are_not_walked(shared: Any) -> None:
    array = shared.post("/v1/arrays", json={"dtype": "f8", "shape": [3_000_000, 0]}).json()["id"]
    assert shared.post(f"/v1/arrays/{array}/seal").status_code == 200
    cost = {"type": "lowrank", "a": {"array": array}, "b": {"array": array}}
    answer = shared.post("/v1/jobs?dry_run=true", json={"cost": cost})
    assert answer.status_code in (200, 422), answer.text
