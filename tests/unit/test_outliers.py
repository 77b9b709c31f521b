"""A few points, or costs, of another size than all others: they take what they would without."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.problem import Problem
from bigsap.proof.near_matching import matched_again
from bigsap.proof.row_minima import NearPairs, Prices, RowMinima
from bigsap.strategies.outlying import outlying

N = 4500


def points(distance, kind, count=1, metric="euclidean"):
    """In the unit square, but for some rows, columns or pairs, that are put away."""
    x, y = np.random.default_rng(3).random((2, N, 2))
    if kind in ("rows", "pairs"):
        x[:count, 0] += distance
    if kind in ("columns", "pairs"):
        y[:count, 0] += distance
    return bigsap.points(x, y, metric)


@pytest.fixture(scope="module")
def without():
    """Counts of the same solve without outliers."""
    return {
        metric: bigsap.solve(points(0.0, "none", metric=metric)).stats
        for metric in ("euclidean", "sqeuclidean")
    }


@pytest.mark.some(5)
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("kind", ["rows", "columns", "pairs"])
@pytest.mark.parametrize(("distance", "count"), [(1e2, 1), (1e4, 1), (1e6, 10), (1e9, 1)])
def test_outliers_take_no_more(metric, kind, distance, count, without):
    if metric == "sqeuclidean" and kind != "pairs" and distance >= 1e6:
        # Such squares are rounded by more than most points are apart.
        pytest.skip("columns, or ten rows that want the same few columns, take up to five times")
    result = bigsap.solve(points(distance, kind, count, metric))
    assert result.status == "optimal"
    for name in ("rows_scanned", "rows_evaluated", "pairs_evaluated"):
        assert result.stats[name] <= 2.5 * without[metric][name], name
    # Searches for other problems, or a matrix of residual costs, are not needed.
    assert result.stats["refined"] <= 1
    assert len(result.stats["phases"]) <= 4


def test_points_that_are_outlying():
    far = outlying(Problem(points(1e3, "pairs", 3)))
    assert far is not None
    assert far.rows.tolist() == far.columns.tolist() == [0, 1, 2]
    assert outlying(Problem(points(10.0, "pairs"))) is None
    assert outlying(Problem(points(1e3, "pairs", N // 2))) is None


@pytest.mark.parametrize("seed", range(8))
def test_near_pairs_tell_a_better_assignment(seed):
    """All pairs being near, any assignment and any prices lead to an optimal one."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    cost = rng.integers(0, 30, (n, n)).astype(float) if seed % 2 else rng.random((n, n))
    v = rng.random(n)
    matching = rng.permutation(n) if seed % 3 else linear_sum_assignment(cost)[1]
    rows, columns = (ids.ravel() for ids in np.indices((n, n)))
    near = NearPairs(np.inf, rows, columns, cost.ravel())
    minima = RowMinima((cost - v).min(axis=1), None, None, cost[np.arange(n), matching], near)
    signed = cost[np.arange(n), matching]
    found = matched_again(minima, matching, signed, Prices(v))
    assert found is not None
    again, prices = found
    assert sorted(again.tolist()) == list(range(n))
    best = cost[linear_sum_assignment(cost)].sum()
    assert cost[np.arange(n), again].sum() == pytest.approx(best, abs=1e-12)
    left = cost - prices.high
    assert left[np.arange(n), again] == pytest.approx(left.min(axis=1), abs=1e-12)
