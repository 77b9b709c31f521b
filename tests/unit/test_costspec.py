"""Cost specs and the other things COSTS may be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bigsap.cli.costspec import from_spec, open_costs, open_problem
from bigsap.errors import DtypeError, ExpressionError, InputError, OverflowRiskError, ShapeError, StoreError
from bigsap.sources.cost_specs import KINDS
from contracts import whole


def write(folder, spec, name="spec.json") -> str:
    file = folder / name
    file.write_text(spec if isinstance(spec, str) else json.dumps(spec))
    return str(file)


INF = float("inf")
RNG = np.random.default_rng(5)
X, Y = RNG.random((4, 2)), RNG.random((6, 2))


def test_npy_file(tmp_path):
    cost = RNG.random((3, 5))
    np.save(tmp_path / "c.npy", cost)
    np.testing.assert_array_equal(whole(open_costs(tmp_path / "c.npy")), cost)


def test_zarr_store(tmp_path):
    zarr = pytest.importorskip("zarr", reason="extra zarr")
    cost = RNG.random((3, 5))
    zarr.save_array(str(tmp_path / "c.zarr"), cost)
    np.testing.assert_array_equal(whole(open_costs(tmp_path / "c.zarr")), cost)
    spec = write(tmp_path, {"type": "zarr", "path": "c.zarr"})
    np.testing.assert_array_equal(whole(open_costs(spec)), cost)


def test_points_inline_and_from_files_relative_to_the_spec(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "x.npy", X)
    spec = {"type": "points", "metric": "cityblock", "x": {"npy": "x.npy"}, "y": Y.tolist(), "w": [1, 3]}
    file = write(folder, spec)
    monkeypatch.chdir(tmp_path)  # not the spec's folder
    expected = (np.abs(X[:, None] - Y[None]) * [1, 3]).sum(axis=2)
    np.testing.assert_allclose(whole(open_costs(file)), expected, rtol=1e-15)


def test_points_default_metric_and_parameters(tmp_path):
    squared = ((X[:, None] - Y[None]) ** 2).sum(axis=2)
    spec = {"type": "points", "x": X.tolist(), "y": Y.tolist()}
    np.testing.assert_allclose(whole(from_spec(spec, tmp_path)), squared, rtol=1e-15)
    cubes = (np.abs(X[:, None] - Y[None]) ** 3).sum(axis=2) ** (1 / 3)
    spec |= {"metric": "minkowski", "p": 3}
    np.testing.assert_allclose(whole(from_spec(spec, tmp_path)), cubes, rtol=1e-12)


def test_near_points(tmp_path):
    squared = ((X[:, None] - Y[None]) ** 2).sum(axis=2)
    spec = {"type": "points", "x": X.tolist(), "y": Y.tolist(), "max_distance": 0.5}
    expected = np.where(squared > 0.25, np.inf, squared)
    np.testing.assert_allclose(whole(from_spec(spec, tmp_path)), expected, rtol=1e-15)
    with pytest.raises(InputError, match="max_distance must be a number >= 0"):
        from_spec({**spec, "max_distance": -1}, tmp_path)


def test_lowrank(tmp_path):
    spec = {
        "type": "lowrank",
        "a": X.tolist(),
        "b": Y.tolist(),
        "row_terms": [1, 2, 3, 4],
        "column_terms": [0, 0, 0, 0, 0, 7],
    }
    expected = X @ Y.T + np.array([[1], [2], [3], [4]]) + np.array([0, 0, 0, 0, 0, 7])
    np.testing.assert_allclose(whole(from_spec(spec, tmp_path)), expected, rtol=1e-14)


def test_table(tmp_path):
    spec = {"type": "table", "values": [[0, 5], [6, 1]], "row_class": [1, 0], "column_class": [0, 1, 1]}
    np.testing.assert_array_equal(whole(from_spec(spec, tmp_path)), [[6, 1, 1], [0, 5, 5]])


def test_inline_array_with_a_forbidden_pair(tmp_path):
    file = write(tmp_path, '{"type": "array", "values": [[1, Infinity], [2, 3.5]]}')
    np.testing.assert_array_equal(whole(open_costs(file)), [[1, np.inf], [2, 3.5]])


def test_inline_integers_stay_integers(tmp_path):
    source = from_spec({"type": "array", "values": [[1, 2], [3, 4]]}, tmp_path)
    assert source.dtype == np.int64


def test_expression(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    spec = {
        "type": "expression",
        "code": "abs(x[i,0]-y[j,0]) + scale*(x[i,1]-y[j,1])**2",
        "shape": [4, 6],
        "arrays": {"x": X.tolist(), "y": {"npy": "y.npy"}, "scale": 0.1},
    }
    expected = np.abs(X[:, None, 0] - Y[:, 0]) + 0.1 * (X[:, None, 1] - Y[:, 1]) ** 2
    np.testing.assert_array_equal(whole(open_costs(write(tmp_path, spec))), expected)


def test_sparse(tmp_path):
    np.save(tmp_path / "costs.npy", np.array([4, 0, 2]))
    spec = {"type": "sparse", "rows": [1, 0, 0], "columns": [1, 0, 1], "costs": {"npy": "costs.npy"}}
    source = open_costs(write(tmp_path, spec))
    np.testing.assert_array_equal(whole(source), [[0, 2], [np.inf, 4]])
    assert source.entries().costs.dtype == np.int64
    by_start = {"type": "sparse", "start": [0, 1, 2], "columns": [1, 0], "costs": [1.5, 2], "shape": [2, 2]}
    np.testing.assert_array_equal(whole(from_spec(by_start, tmp_path)), [[np.inf, 1.5], [2, np.inf]])
    del by_start["shape"]
    with pytest.raises(InputError, match="need the shape"):
        from_spec(by_start, tmp_path)
    with pytest.raises(InputError, match="either rows, or start"):
        from_spec({"type": "sparse", "columns": [0], "costs": [1]}, tmp_path)


def test_npy_type(tmp_path):
    np.save(tmp_path / "c.npy", X)
    source = open_costs(write(tmp_path, {"type": "npy", "path": "c.npy"}))
    np.testing.assert_array_equal(whole(source), X)


def test_combinations_of_costs(tmp_path):
    np.save(tmp_path / "c.npy", [[4.0, 1, 3], [2, 0, 5]])
    c = {"type": "npy", "path": "c.npy"}
    e = {"type": "expression", "code": "i + j"}
    off = [[0, 0, 1], [0, 1, 0]]
    cases = [
        ({"type": "sum", "terms": [c, {**e, "shape": [2, 3]}]}, [[4, 2, 5], [3, 2, 8]]),
        ({"type": "scale", "cost": c, "factor": 0.5}, [[2, 0.5, 1.5], [1, 0, 2.5]]),
        ({"type": "mask", "cost": c, "forbidden": off}, [[4, 1, INF], [2, INF, 5]]),
        ({"type": "mask", "cost": c, "allowed": off}, [[INF, INF, 3], [INF, 0, INF]]),
        ({"type": "forbid_above", "cost": c, "threshold": 3}, [[INF, 1, 3], [2, 0, INF]]),
    ]
    for spec, expected in cases:
        np.testing.assert_array_equal(whole(open_costs(write(tmp_path, spec))), expected)
        inside = {"type": "scale", "factor": 2, "cost": {"type": "sum", "terms": [spec]}}
        np.testing.assert_array_equal(whole(from_spec(inside, tmp_path)), 2 * np.array(expected))
        forbidden = np.where(np.isinf(expected), -np.inf, expected)
        np.testing.assert_array_equal(whole(from_spec(spec, tmp_path, maximize=True)), forbidden)
    # The request's shape is that of all costs in it that have none.
    job = {"shape": [2, 3], "cost": {"type": "sum", "terms": [e, {"type": "scale", "cost": e, "factor": 2}]}}
    source, _ = open_problem(write(tmp_path, job))
    np.testing.assert_array_equal(whole(source), [[0, 3, 6], [3, 6, 9]])


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_key_is_refused_and_named(kind, tmp_path):
    spec = {"type": kind, "metrik": 1} | {key: [[1]] for key in KINDS[kind].required}
    with pytest.raises(InputError, match=r"/metrik: unknown key for type '" + kind):
        from_spec(spec, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_key_is_named(kind, tmp_path):
    first = KINDS[kind].required[0]
    with pytest.raises(InputError, match=f"/{first}: required for type '{kind}'"):
        from_spec({"type": kind}, tmp_path)


A = {"type": "array"}
P = {"type": "points", "y": [[1]]}
E = {"type": "expression", "code": "i + j", "shape": [2, 2]}
M = {"type": "mask"}
NESTED: dict[str, object] = A | {"values": [[1]]}
for _ in range(17):
    NESTED = {"type": "scale", "cost": NESTED, "factor": 1}
BAD = [
    ([1, 2], InputError, "must be a JSON object, got a list"),
    ({}, InputError, "/type: must be one of points"),
    ({"type": "pickle"}, InputError, "got 'pickle'"),
    (A | {"values": [[1, 2], [3]]}, ShapeError, "/values: the lists are ragged"),
    (A | {"values": [["1", "2"]]}, DtypeError, "/values: every entry must be a number"),
    (A | {"values": [[1, 10**30]]}, DtypeError, "/values: every entry must be a number"),
    (A | {"values": 3}, InputError, "/values: must be nested lists"),
    (A | {"values": {"npz": "a"}}, InputError, "/values: expected .*got the keys 'npz'"),
    (P | {"x": {"npy": 7}}, InputError, "/x/npy: must be a path, got a number"),
    (P | {"x": {"npy": "absent.npy"}}, InputError, "/x: .*absent.npy: no such file"),
    (P | {"x": [[1]], "metric": 2}, InputError, "/metric: must be a string, got a number"),
    (P | {"x": [[1]], "p": True}, InputError, "/p: must be a number, got a boolean"),
    (E | {"shape": [2]}, InputError, "/shape: "),
    (E | {"arrays": [1]}, InputError, "/arrays: must be an object of names and arrays, got a list"),
    (E | {"arrays": {"x": [["a"]]}}, DtypeError, "/arrays/x: every entry must be a number"),
    (E | {"arrays": {"a/b": "c"}}, InputError, "/arrays/a~1b: must be nested lists"),
    (E | {"arrays": {"code": 1}}, ExpressionError, "'code' cannot be the name of an array"),
    (E | {"code": "i + z"}, ExpressionError, "column 5: unknown name 'z'"),
    (E | {"code": 7}, InputError, "/code: must be a string, got a number"),
    (M | {"cost": [[1]]}, InputError, "/cost: must be a JSON object, got a list"),
    (M | {"cost": A | {"values": 3}}, InputError, "/cost: /values: must be nested lists"),
    (M | {"cost": A | {"values": [[1]]}}, InputError, "either forbidden or allowed"),
    ({"type": "sum", "terms": {}}, InputError, "/terms: must be a list of costs, got an object"),
    ({"type": "sum", "terms": []}, InputError, "at least one source"),
    ({"type": "sum", "terms": [3]}, InputError, "/terms/0: must be a JSON object, got a number"),
    (NESTED, InputError, "costs are nested more than 16 deep"),
]


@pytest.mark.parametrize(("spec", "error", "match"), BAD)
def test_bad_field_is_named(spec, error, match, tmp_path):
    with pytest.raises(error, match=match):
        from_spec(spec, tmp_path)


TEXTS = [
    ('{"type": "array",', "spec.json: not JSON: .* at line 1, column"),
    ('{"type": "array", "type": "npy"}', "key 'type' appears twice"),
    ("[" * 200_000, "nested too deeply"),
    ('{"type": "array", "values": [[-1e999]]}', "-1e999 is beyond float64"),
    ("", "not JSON"),
    ('{"type": "array", "values": [[' + "9" * 5000 + "]]}", "spec.json: not JSON that can be read: .*limit"),
]


@pytest.mark.parametrize(("text", "match"), TEXTS)
def test_bad_json_names_the_file(text, match, tmp_path):
    with pytest.raises(InputError, match=match):
        open_costs(write(tmp_path, text))


def test_binary_json_names_the_file(tmp_path):
    (tmp_path / "spec.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match=r"spec\.json: not UTF-8"):
        open_costs(tmp_path / "spec.json")


def test_damaged_and_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY")
    np.savez(tmp_path / "archive.npy.npz", a=X)
    for name in ("objects.npy", "short.npy", "archive.npy.npz"):
        spec = {"type": "points", "x": {"npy": name}, "y": [[1]]}
        with pytest.raises(StoreError, match=f"/x: .*{name}"):
            from_spec(spec, tmp_path)


def test_what_is_no_cost_file(tmp_path):
    (tmp_path / "c.csv").write_text("1,2")
    with pytest.raises(InputError, match=r"c\.csv"):
        open_costs(tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"absent\.npy: no such file"):
        open_costs(tmp_path / "absent.npy")


@pytest.mark.parametrize("beside", [0.5, float("inf"), 2**63])
def test_an_integer_is_not_rounded_beside_others(beside, tmp_path):
    spec = {"type": "array", "values": [[2**53 + 1, -1], [beside, 2]]}
    with pytest.raises(OverflowRiskError, match=f"/values: {2**53 + 1} is an integer"):
        open_costs(write(tmp_path, spec))
    exact = {"type": "array", "values": [[2**53 + 2, -1], [beside, 2]]}
    assert whole(open_costs(write(tmp_path, exact)))[0, 0] == 2**53 + 2
