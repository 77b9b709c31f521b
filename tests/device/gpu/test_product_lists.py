"""Lists from inner products by cuBLAS: those of whole costs, for sizes that no stand-in reaches."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.cuda.device_lists import DeviceListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.cuda.placed import bring_all, place


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("d", [9, 40, 512])
def test_lists_are_those_of_whole_costs(metric: str, d: int, dtype: str) -> None:
    g = np.random.default_rng(d)
    x = g.normal(size=(300, d)).astype(dtype)
    y = np.repeat(x, 20, axis=0) + 1e-7 * g.normal(size=(6000, d))  # near duplicates
    y = y.astype(dtype)
    v, taken = 0.1 * g.random(6000), g.random(6000) < 0.95
    found = []
    with Team(1) as team:
        for with_products in (True, False):
            problem = Problem(place(bigsap.points(x, y, metric=metric), 0, None))
            engine = DeviceListEngine(problem, team, Monitor(), np.dtype("f8"), 128, 0)
            assert engine._products is not None
            if not with_products:
                engine._products = None
            engine.v[:], engine.open_price[:] = v, np.where(taken, engine.blocked, v)
            engine.evaluate(np.arange(300))
            found.append(engine.lists)
    one, other = found
    assert np.array_equal(one.size, other.size)
    assert np.array_equal(one.theta, other.theta)
    for start, size in zip(one.start, one.size, strict=True):
        some = slice(start, start + size)
        assert np.array_equal(one.ids[some], other.ids[some])
        assert np.array_equal(one.costs[some], other.costs[some])


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "inner products"])
def test_rows_made_there_have_the_hosts_bits(metric: str, dtype: str) -> None:
    g = np.random.default_rng(2)
    x, y = (g.normal(size=(n, 200)).astype(dtype) for n in (700, 1300))
    if metric == "inner products":
        here = bigsap.lowrank(x, y)
    else:
        here = bigsap.points(x, y, metric=metric)
    expected, found = np.empty((2, 700, 1300))
    here.read(np.arange(700), slice(0, 1300), expected)
    bring_all(place(here, 0, None), found, 3, lambda n_done: None)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "inner products"])
@pytest.mark.parametrize(("d", "dtype"), [(60, "f8"), (60, "f4"), (200, "f4")])
def test_many_dimensions_are_solved_by_lists(metric: str, d: int, dtype: str) -> None:
    g = np.random.default_rng(1)
    x, y = (g.normal(size=(3000, d)).astype(dtype) for _ in range(2))
    if metric == "inner products":
        source = bigsap.lowrank(x, y)
    else:
        source = bigsap.points(x, y, metric=metric)
    result = bigsap.solve(source, device="cuda")
    assert (result.status, result.stats["method"]) == ("optimal", "compressed")
    assert result.fun == bigsap.solve(source).fun
    result.verify(source)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("d", [9, 40, 512])
def test_a_proof_by_products_is_that_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch, d: int, maximize: bool, metric: str
) -> None:
    g = np.random.default_rng(d)
    x = g.normal(size=(300, d))
    y = np.repeat(x, 20, axis=0) + 1e-7 * g.normal(size=(6000, d))  # near duplicates
    source = place(bigsap.points(x, y, metric=metric), 0, None)
    prices, matching = 0.1 * g.random(6000), g.permutation(6000)[:300]
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    given = matching, prices, None, maximize, lambda _: None
    for here, there in zip(source.bounded_minima(*given)[0], source.row_minima(*given), strict=True):
        assert (here is None) == (there is None)
        assert here is None or np.array_equal(here, there)
