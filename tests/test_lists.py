"""Evaluation into lists: what a list and its threshold promise, checked on every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigsap
from bigsap.engine import bounds, lists
from bigsap.engine.compressed import ListEngine
from bigsap.engine.ordering import compact_order
from bigsap.engine.team import Team
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.sources import as_source


def engine_for(cost, k, *, threads=1, maximize=False):
    source = as_source(cost)
    return ListEngine(
        Problem(source, maximize), Team(threads), Monitor(), np.dtype(np.float64), k, seed=1
    )


def dense(source):
    n, m = source.shape
    out = np.empty((n, m), source.dtype)
    source.read(np.arange(n), slice(0, m), out)
    return out.astype(np.float64)


def check_lists(engine, cost, v, free=None):
    """Every promise of the store; costs signed, (n, m)."""
    found = engine.lists
    for row in range(cost.shape[0]):
        start, size = found.start[row], found.size[row]
        assert size <= found.width[row]
        ids = found.ids[start : start + size]
        assert len(set(ids.tolist())) == size
        reference = found.reference[row]
        assert np.array_equal(found.costs[start : start + size], cost[row, ids] - reference)
        tau = (cost[row] - reference) - v
        outside = np.setdiff1d(np.arange(cost.shape[1]), ids)
        if outside.size:
            assert tau[outside].min() >= found.theta[row]
        else:
            assert found.theta[row] >= tau.max()
        k = int(found.width[row])
        best = np.sort(tau[np.isfinite(tau)])
        # Nearly all of the k best, and none beyond them but the best free column.
        assert size >= min(k - k // 16, best.size) - 1
        if free is not None and free.any() and np.isfinite(tau[free]).any():
            assert tau[free].min() == tau[ids][free[ids]].min()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**32 - 1),
    st.sampled_from(["real", "ties", "holes", "offset", "constant"]),
)  # fmt: skip
def test_lists_keep_their_promises(n, m, k, seed, kind):
    generator = np.random.default_rng(seed)
    cost = generator.random((n, m))
    if kind == "ties":
        cost = generator.integers(0, 3, (n, m)).astype(float)
    elif kind == "holes":
        cost[generator.random((n, m)) < 0.5] = np.inf
    elif kind == "offset":
        cost += 1e9
    elif kind == "constant":
        cost[:] = 7.0
    engine = engine_for(cost, k)
    engine.v[:] = -generator.random(m) if kind != "ties" else -generator.integers(0, 3, m)
    free = generator.random(m) < 0.3
    engine.open_price[:] = np.where(free, engine.v, -np.inf)
    engine.evaluate(np.arange(n))
    check_lists(engine, cost, engine.v, free)
    # Prices fall; the thresholds stay valid without another look.
    engine.v -= generator.random(m)
    for row in range(n):
        start, size = engine.lists.start[row], engine.lists.size[row]
        outside = np.setdiff1d(np.arange(m), engine.lists.ids[start : start + size])
        tau = (cost[row] - engine.lists.reference[row]) - engine.v
        assert not outside.size or tau[outside].min() >= engine.lists.theta[row]


def test_wide_rows_are_thinned_panel_by_panel():
    generator = np.random.default_rng(3)
    m = 3 * lists.PANEL + 77
    cost = np.stack([np.sort(generator.random(m))[::-1], generator.random(m), np.arange(m) % 5.0])
    engine = engine_for(cost, 50)
    engine.open_price[:] = -np.inf
    engine.evaluate(np.arange(3))
    check_lists(engine, cost, engine.v)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_make_the_same_lists(threads):
    generator = np.random.default_rng(4)
    cost = generator.integers(0, 9, (40, 500)).astype(float)
    one, many = engine_for(cost, 16), engine_for(cost, 16, threads=threads)
    for engine in (one, many):
        engine.open_price[:] = engine.v
        engine.evaluate(np.arange(40))
    assert np.array_equal(one.lists.ids, many.lists.ids)
    assert np.array_equal(one.lists.theta, many.lists.theta)


SEPARABLE = ["sqeuclidean", "cityblock", "euclidean", "chebyshev", "weighted", "lowrank"]


def separable(kind, n, m, generator):
    if kind == "lowrank":
        return bigsap.lowrank(generator.normal(size=(n, 3)), generator.normal(size=(m, 3)))
    d = 3
    w = [1.0, 0.5, 2.0] if kind == "weighted" else None
    metric = "sqeuclidean" if kind == "weighted" else kind
    return bigsap.points(generator.random((n, d)), generator.random((m, d)) * 3, metric, w=w)


@pytest.mark.parametrize("kind", SEPARABLE)
@pytest.mark.parametrize("seed", range(3))
def test_bounds_bound_every_pair(kind, seed):
    """Also with prices of 1e6 times the costs, and with prices that fell since the fit."""
    generator = np.random.default_rng(seed)
    source = separable(kind, 30, 1000, generator)
    source = source.select(np.arange(30), compact_order(source.separable().y.T, bounds.BLOCK))
    blocks = bounds.blocks_of(source)
    assert blocks.offset.size == -(-1000 // bounds.BLOCK)
    y = source.separable().y
    v = [1.0, 1e-3, 1e6][seed] * (generator.normal(size=1000) + y.sum(axis=0))
    bounds.fit(blocks, y, v)
    v = v - generator.random(1000) * 0.1
    cost = dense(source)
    out = np.empty(blocks.offset.size)
    for row in range(30):
        bounds.bound_row(row, blocks, out)
        for block in range(out.size):
            columns = slice(block * bounds.BLOCK, (block + 1) * bounds.BLOCK)
            assert out[block] <= (cost[row, columns] - v[columns]).min()


@pytest.mark.parametrize("kind", SEPARABLE)
def test_bounded_evaluation_keeps_the_promises(kind):
    generator = np.random.default_rng(7)
    source = separable(kind, 25, 2000, generator)
    source = source.select(np.arange(25), compact_order(source.separable().y.T, bounds.BLOCK))
    engine = ListEngine(Problem(source), Team(1), Monitor(), np.dtype(np.float64), 32, seed=0)
    assert engine.blocks.offset.size
    cost = dense(source)
    for attempt in range(3):
        engine.v -= generator.random(2000) * 0.01
        engine.open_price[:] = -np.inf
        if attempt != 1:  # once with majorants that have loosened
            engine.fit_bounds()
        engine.evaluate(np.arange(25))
        check_lists(engine, cost, engine.v)
    assert engine.pairs_evaluated < 3 * 25 * 2000


def test_bounds_are_off_where_they_cannot_help():
    generator = np.random.default_rng(0)
    high = bigsap.points(generator.random((600, 20)), generator.random((600, 20)))
    assert not bounds.blocks_of(high).offset.size
    cosine = bigsap.points(generator.random((600, 2)), generator.random((600, 2)), "cosine")
    assert not bounds.blocks_of(cosine).offset.size
    assert not bounds.blocks_of(as_source(generator.random((600, 600)))).offset.size


def test_compact_order_is_a_permutation_of_small_boxes():
    generator = np.random.default_rng(1)
    points = generator.random((5000, 2))
    order = compact_order(points, 128)
    assert np.array_equal(np.sort(order), np.arange(5000))
    sides = [np.ptp(points[order[k : k + 128]], axis=0).max() for k in range(0, 5000, 128)]
    # 40 equal squares of the unit square have sides of 0.16.
    assert np.median(sides) < 0.25
    assert compact_order(np.zeros((300, 2)), 128).size == 300
    assert compact_order(np.empty((0, 2)), 128).size == 0
