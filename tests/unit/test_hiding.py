"""Searches that go far: rows evaluated without what their search has settled."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment as reference

import bigsap
from bigsap.engine.core.precision import choose
from bigsap.engine.core.team import Team
from bigsap.engine.lists.bounds import BLOCK
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.lists import solve_compressed
from pairwise import each


def clusters(n, m, surplus, far, generator, dimensions=2):
    """Two clusters far apart; the first has so many more rows than columns."""
    half = n // 2
    x, y = generator.normal(size=(n, dimensions)), generator.normal(size=(m, dimensions))
    x[half:] += far
    y[half - surplus :] += far
    return x, y


def squared(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(axis=2)


def solved_by_lists(source, k, *, epsilon=True, maximize=False, large=False):
    problem = Problem(source, maximize)
    solved = ListSolve()
    with Team(1) as team:
        setting = ListSettings(team, Monitor(), choose(problem, large=large), epsilon, 0, k)
        solve_compressed(problem, setting, solved)
    return solved


def check_thresholds(engine, cost):
    """No column outside a row's list is nearer than its threshold, rounding included."""
    found, v = engine.lists, engine.v
    for row in range(cost.shape[0]):
        ids = found.ids[found.start[row] : found.start[row] + found.size[row]]
        outside = np.setdiff1d(np.arange(cost.shape[1]), ids)
        if not outside.size:
            continue
        tau = (cost[row, outside] - found.reference[row]) - v[outside]
        assert tau.min() >= found.theta[row]
    assert engine.frontier.at.n_hidden == 0
    assert (engine.frontier.slack == engine.infinity).all()


KINDS = ["float", "int32", "int64", "float32", "offset", "maximize", "holes", "tall", "wide"]


@each(seed=range(3), kind=KINDS)
def test_matrices(kind, seed):
    """Lists of 6 where a search passes 60 columns and more; none had to be doubled."""
    generator = np.random.default_rng([seed, 17])
    n, m = {"tall": (130, 120), "wide": (120, 130)}.get(kind, (120, 120))
    cost = squared(*clusters(n, m, 1 + seed, 40.0, generator))
    large = kind == "int64"
    if kind in ("int32", "int64"):
        cost = np.round(cost * (1e3 if kind == "int32" else 1e9)).astype(kind)
    elif kind == "float32":
        cost = cost.astype(np.float32)
    elif kind == "offset":
        cost += 1e7
    elif kind == "maximize":
        cost = -cost
    elif kind == "holes":
        cost[generator.random(cost.shape) < 0.2] = np.inf
    for epsilon in (False, True):
        maximize = kind == "maximize"
        found = solved_by_lists(as_source(cost), 6, epsilon=epsilon, maximize=maximize, large=large)
        rows = np.flatnonzero(found.outcome.column_of_row >= 0)
        columns = found.outcome.column_of_row[rows]
        assert len(set(columns.tolist())) == rows.size == min(n, m)
        pairs = reference(cost, maximize)
        best = cost[pairs].sum(dtype=float)
        assert cost[rows, columns].sum(dtype=float) == pytest.approx(best, rel=1e-12)
        engine = found.engine
        if engine is None:  # solved without lists
            continue
        signed = -cost if maximize else cost
        if n <= m:
            check_thresholds(engine, signed if large else signed.astype(np.float64))
        if kind not in ("tall", "holes", "int32", "int64"):
            assert engine.lists.counts.doubled == 0


@pytest.mark.parametrize("seed", range(2))
def test_points_with_bounds(seed):
    """Blocks of columns that are all settled are passed by their bounds' order."""
    generator = np.random.default_rng(seed)
    x, y = clusters(1400, 1400, 2, 12.0, generator, dimensions=3)
    source = bigsap.points(x, y)
    found = solved_by_lists(source, 24)
    result = bigsap.solve(squared(x, y), method="ssp")
    rows = found.rows[np.arange(1400)]
    cost = squared(x, y)
    assert cost[np.arange(1400), found.outcome.column_of_row].sum() == pytest.approx(result.fun, rel=1e-12)
    assert found.engine.lists.counts.doubled == 0
    check_thresholds(found.engine, cost[np.ix_(rows, found.columns)])


@pytest.mark.parametrize("scattered", [False, True])
def test_minima_seen_under_hidden_prices_are_not_kept(monkeypatch, scattered):
    """The smallest ``c - v`` of a block at its last visit, where settled columns had none."""
    generator = np.random.default_rng(5)
    n = 900
    cost = squared(*clusters(n, n, 2, 40.0, generator))
    order = generator.permutation(n).astype(np.int32) if scattered else np.empty(0, np.int32)
    monkeypatch.setattr(
        sys.modules["bigsap.strategies.lists"],
        "choose_bounds",
        lambda engine, *rest: engine.keep_minima(order),
    )
    found = solved_by_lists(as_source(cost), 16)
    best = cost[reference(cost)].sum()
    chosen = found.outcome.column_of_row
    assert cost[np.arange(n), chosen].sum() == pytest.approx(best, rel=1e-12)
    check_thresholds(found.engine, cost)
    low = found.engine.lists.low
    tau = (cost - found.engine.lists.reference[:, None]) - found.engine.v
    tau = tau[:, order] if scattered else tau
    for block in range(low.shape[1]):
        part = tau[:, block * BLOCK : (block + 1) * BLOCK]
        assert (low[:, block] <= part.min(axis=1)).all()


def test_far_clusters_take_few_evaluations_and_little_memory():
    """One column too few on one side: without leaving out, 9.3 evaluations a row and 1.5 GB."""
    generator = np.random.default_rng(1)
    n = 4000
    x, y = clusters(n, n, 1, 10.0, generator, dimensions=3)
    result = bigsap.solve(bigsap.points(x, y), threads=1)
    assert result.status == "optimal"
    assert result.stats["lists_doubled"] == 0
    assert result.stats["rows_evaluated"] <= 8 * n
    assert result.gap <= 1e-9
