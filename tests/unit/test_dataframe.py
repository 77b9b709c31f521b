"""The pairs of a result with their costs, as an array and as data frames."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import bigsap
from bigsap.errors import OptionError, StoreError
from contracts import whole
from pairwise import each

RNG = np.random.default_rng(23)


def check(result, cost):
    pairs = result.pairs(costs=True)
    assert pairs.dtype.names == ("row", "column", "cost")
    assert np.array_equal(pairs["row"], result.row_ind)
    assert np.array_equal(pairs["column"], result.col_ind)
    assert np.array_equal(pairs["cost"], np.asarray(cost)[result.row_ind, result.col_ind])
    assert not len(pairs) or np.array_equal(result.costs, pairs["cost"])
    return pairs


@each(
    shape=[(9, 9), (7, 12), (12, 7), (1, 3), (0, 4)],
    maximize=[False, True],
    method=["auto", "ssp", "compressed"],
)
def test_costs_of_the_pairs(shape, maximize, method):
    for cost in (RNG.standard_normal(shape), RNG.integers(-9, 9, shape), RNG.random(shape).astype("f4")):
        for certify in (True, False):
            result = bigsap.solve(cost, maximize=maximize, method=method, certify=certify)
            pairs = check(result, cost)
            assert not len(pairs) or pairs["cost"].dtype.kind == ("i" if cost.dtype.kind == "i" else "f")
        check(bigsap.solve(np.asfortranarray(cost), maximize=maximize, method=method), cost)


@pytest.mark.parametrize("shape", [(9, 9), (7, 12), (12, 7)])
def test_rows_that_stay_unassigned_are_not_listed(shape):
    cost = RNG.random(shape)
    for method in ("auto", "compressed"):
        for price in (0.05, 0.3, np.linspace(0, 0.4, shape[0])):
            check(bigsap.solve(cost, unassigned_cost=price, method=method), cost)


def test_costs_are_a_flag():
    with pytest.raises(bigsap.OptionError, match="costs must be True or False"):
        bigsap.solve(np.eye(3)).pairs(costs=np.ones(2))


def test_other_sources_and_batches():
    x, y = RNG.random((2, 300, 2))
    source = bigsap.points(x, y)
    matrix = whole(source)
    check(bigsap.solve(source), matrix)
    check(bigsap.solve(source, objective="bottleneck"), matrix)
    rows, columns = np.nonzero(matrix < 0.2)
    check(bigsap.solve(bigsap.sparse((rows, columns, matrix[rows, columns]), (300, 300))), matrix)
    costs = RNG.random((4, 6, 8))
    for result, cost in zip(bigsap.solve_many(costs), costs, strict=True):
        check(result, cost)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_not_installed_is_named(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    result = bigsap.solve(np.eye(3))
    with pytest.raises(ImportError, match=rf"Result.to_dataframe needs {library}: pip install {library}"):
        result.to_dataframe(library=library)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    frames = pytest.importorskip(library)
    cost = RNG.integers(0, 50, (5, 8))
    result = bigsap.solve(cost)
    frame = result.to_dataframe(library=library)
    assert isinstance(frame, frames.DataFrame)
    assert list(frame.columns) == ["row", "column", "cost"]
    assert frame["row"].to_list() == result.row_ind.tolist()
    assert frame["column"].to_list() == result.col_ind.tolist()
    assert frame["cost"].to_list() == cost[result.row_ind, result.col_ind].tolist()
    empty = bigsap.solve(np.full((2, 2), np.inf)).to_dataframe(library=library)
    assert len(empty) == 0


def test_pandas_is_the_default():
    frames = pytest.importorskip("pandas")
    assert isinstance(bigsap.solve(np.eye(3)).to_dataframe(), frames.DataFrame)
    with pytest.raises(OptionError, match="library must be"):
        bigsap.solve(np.eye(3)).to_dataframe("numpy")


def test_saved_results_keep_costs(tmp_path):
    cost = RNG.random((6, 9))
    result = bigsap.solve(cost)
    result.save(tmp_path / "r.npz")
    check(bigsap.Result.load(tmp_path / "r.npz"), cost)
    with np.load(tmp_path / "r.npz") as parts:
        kept = {name: parts[name] for name in parts.files}
    np.savez(tmp_path / "short.npz", **{**kept, "costs": kept["costs"][1:]})
    with pytest.raises(StoreError, match="costs does not fit"):
        bigsap.Result.load(tmp_path / "short.npz")
    # A file of a version without costs.
    np.savez(tmp_path / "old.npz", **{name: part for name, part in kept.items() if name != "costs"})
    old = bigsap.Result.load(tmp_path / "old.npz")
    assert old.pairs().shape == (6, 2)
    for ask in (lambda: old.pairs(costs=True), old.to_dataframe):
        with pytest.raises(OptionError, match="costs of the pairs are not known"):
            ask()
