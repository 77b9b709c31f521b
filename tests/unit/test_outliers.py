"""A few points, or costs, of another size than all others: they take what they would without."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.engine.core.team import Team
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.near_matching import matched_again
from bigsap.proof.row_minima import NearPairs, Prices, RowMinima
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.strategies.first_prices import _engine, choose_first_prices
from bigsap.strategies.outlying import outlying
from bigsap.strategies.start.estimate import estimate
from bigsap.strategies.start.outliers import lower_outliers, outlying_lines, usual, without_forced
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.strata import strata_of
from pairwise import each

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


def outlying_of(source):
    problem = Problem(source)
    return outlying(problem, strata_of(problem, Monitor(), 0, Counts()))


def test_points_that_are_outlying():
    far = outlying_of(points(1e3, "pairs", 3))
    assert far is not None
    assert far.rows.tolist() == far.columns.tolist() == [0, 1, 2]
    assert outlying_of(points(10.0, "pairs")) is None
    assert outlying_of(points(1e3, "pairs", N // 2)) is None


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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("outlier", ["a forced row", "a forced column", "forced rows", "columns"])
@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("kind", ["random", "heavy tails"])
def test_forced_rows_do_not_make_epsilon(kind, method, outlier, seed):
    """Whichever rows choose first: a greedy matching that reaches a forced row late takes a huge cost."""
    cost = matrix(kind, 1300 + seed)
    plain = bigsap.solve(cost, method=method)
    result = bigsap.solve(put_away(cost, outlier, 1e12), method=method)
    assert (result.status, result.stats["refined"]) == ("optimal", 0)
    assert result.stats["rows_scanned"] <= 1.6 * plain.stats["rows_scanned"]
    assert result.stats["pairs_evaluated"] <= 1.6 * plain.stats["pairs_evaluated"]


@each(
    method=["ssp", "compressed"],
    outlier=["rows", "columns", "pairs", "crosses", "a forced row", "a forced column", "forced rows"],
    n=[100, 150, 199],
)
def test_small_matrices_by_a_named_method_are_not_refined(n, outlier, method):
    result = bigsap.solve(put_away(matrix("heavy tails", n), outlier, float(2**63)), method=method)
    assert (result.status, result.stats["refined"]) == ("optimal", 0)


def test_a_forbidding_number_a_thousand_times_the_costs_makes_no_epsilon():
    rng = np.random.default_rng(2)
    cost = rng.integers(0, 1000, (1200, 1200)).astype(float)
    forced = cost.copy()
    rows = np.arange(0, 35, 7)
    forced[rows] = 1e6
    forced[rows, rows] = cost[rows, rows]
    plain, found = (bigsap.solve(c, method="compressed").stats for c in (cost, forced))
    assert found["rows_scanned"] <= 1.6 * plain["rows_scanned"]
    assert found["pairs_evaluated"] <= 1.6 * plain["pairs_evaluated"]


def test_the_rounding_of_huge_sums_makes_no_epsilon():
    """A row's costs are rounded by a million times what others differ by; so is the bound."""
    rng = np.random.default_rng(2)
    x, y = rng.random((2, 1500, 2))
    cost = ((x[:, None] - y) ** 2).sum(-1)
    huge = cost.copy()
    huge[750] += 2.0**63
    plain, found = (bigsap.solve(c, method="ssp").stats for c in (cost, huge))
    assert found["rows_scanned"] <= 1.6 * plain["rows_scanned"]


def test_only_a_few_that_are_far_count_as_forced():
    excess = np.random.default_rng(1).random(400)
    assert without_forced(excess) is excess
    forced = excess.copy()
    forced[:3] = 1e6
    usual_one = without_forced(forced)
    np.testing.assert_array_equal(usual_one[3:], excess[3:])
    assert (usual_one[:3] <= 1).all()
    for other in (
        forced[:19],
        np.where(np.arange(400) < 3, 1e6, 0.0),
        np.where(np.arange(400) < 40, 1e6, excess),
    ):
        assert without_forced(other) is other


def put_away(cost, kind, size):
    """Make a pair, a row, a column, or both of these, cost ``size``; or all of it but a pair, or a block."""
    cost = cost.copy()
    row, column = len(cost) // 3, cost.shape[1] // 2
    pair = cost[row, column]
    if kind in ("rows", "crosses"):
        cost[row] += size
    if kind in ("columns", "crosses"):
        cost[:, column] += size
    if kind == "pairs":
        cost[row, column] = size
    few = 5 if kind == "forced rows" else 1
    block = cost[row : row + few, column : column + few].copy()
    if kind in ("a forced row", "forced rows"):
        cost[row : row + few] = size
    if kind == "a forced column":
        cost[:, column] = size
    if "forced" in kind:
        cost[row : row + few, column : column + few] = block
    if kind == "crosses":
        cost[row, column] = pair
    return cost


def matrix(kind, n):
    rng = np.random.default_rng(n)
    if kind == "distances":
        x, y = rng.random((2, n, 2))
        return np.sqrt(((x[:, None] - y) ** 2).sum(axis=2))
    if kind == "heavy tails":
        return rng.lognormal(0, 2, (n, n))
    return 100 * rng.random((n, n)) if kind == "random" else rng.random((n, 2)) @ rng.random((2, n))


@each(
    n=[60, 300, 1100, 1700],
    size=[1e6, 1e13, float(2**63)],
    outlier=["rows", "columns", "pairs", "crosses", "a forced row", "a forced column", "forced rows"],
    kind=["random", "rank 2", "distances", "heavy tails"],
)
def test_a_huge_cost_in_a_matrix_takes_no_more(kind, outlier, size, n):
    """Of a matrix, by the kernel for small ones, the estimator, and levels."""
    cost = matrix(kind, n)
    plain = bigsap.solve(cost)
    result = bigsap.solve(put_away(cost, outlier, size))
    assert result.status == "optimal"
    assert result.stats["method"] == plain.stats["method"]
    # Columns that are not so far that digits are lost are not made rows.
    refined = outlier == "columns" and size < 1e10 and n > 1000
    assert result.stats["rows_scanned"] <= (4 if refined else 2.5) * plain.stats["rows_scanned"]
    assert result.stats["refined"] <= refined


@pytest.mark.parametrize(("n", "size"), [(1100, 1e13), (60, 1e13), (240, 1e16), (1700, float(2**63))])
def test_a_forced_pair_takes_no_more(n, size):
    """By the estimator's prices, limits of bids, shifts of prices, and tight pairs, in this order."""
    rng = np.random.default_rng(n)
    cost = rng.lognormal(0, 2, (n, n)) if n == 240 else 100 * rng.random((n, n))
    plain = bigsap.solve(cost)
    pair = cost[0, 0]
    cost[0] = cost[:, 0] = size
    cost[0, 0] = pair
    result = bigsap.solve(cost)
    assert result.stats["method"] == plain.stats["method"]
    assert result.stats["rows_scanned"] <= 3 * plain.stats["rows_scanned"]
    assert result.stats["refined"] == 0


def test_outlying_lines_of_a_matrix():
    cost = matrix("distances", 1700)
    for kind, rows, columns in (("rows", [566], []), ("columns", [], [850]), ("crosses", [566], [850])):
        far = outlying_of(ArraySource(put_away(cost, kind, 1e6)))
        assert far.rows.tolist() == rows
        assert far.columns.tolist() == columns
    for source in (ArraySource(cost), ArraySource(put_away(cost, "pairs", 1e6))):
        assert outlying_of(source) is None
    forbidden = put_away(cost, "rows", 1e6)
    forbidden[:, ::2] = np.inf
    assert outlying_of(ArraySource(forbidden)) is None


def test_numbers_without_outliers():
    v = np.linspace(0.0, 1.0, 400)
    v[7] = 1e9
    lowered = v.copy()
    lower_outliers(lowered)
    assert lowered[7] < 1000
    assert np.delete(lowered == v, 7).all()
    few = v[:19].copy()
    lower_outliers(few)
    np.testing.assert_array_equal(few, v[:19])
    whole = v.astype(np.int64)
    lower_outliers(whole)
    assert whole[7] == 10**9
    assert usual(v)[7] < 1000
    assert outlying_lines(v[:, None], 1e3).tolist() == [7]
    assert not outlying_lines(v[:, None], 1e12).size
    assert not outlying_lines(np.ones((400, 3)), 1e3).size


def test_points_too_large_to_be_squared_are_solved():
    """The choice of first prices compares their spread without overflow."""
    x, y = np.random.default_rng(0).random((2, 17_000, 5)) * 1e80
    problem = Problem(bigsap.points(x, y, "sqeuclidean"))
    assert choose_first_prices(problem, Monitor(), 0, Counts())[0] in ("none", "levels")


def test_the_first_epsilon_stays_within_the_costs():
    """Where all differences but a few are tiny, what is left without these is far smaller than any gap."""
    for seed in (21, 22, 23):
        rng = np.random.default_rng(seed)
        cost = rng.random((300, 300)) * 1e-280
        few, share = int(rng.integers(1, 14)), 0.99
        rows = rng.permutation(300)[:few]
        rng.choice(5)
        for row in rows:
            cost[row, rng.random(300) < share] = rng.choice([1.0, 0.5])
        if rng.random() < 0.5:
            cost[rng.random((300, 300)) < 0.001] = 1.0
        with Team(1) as team:
            assert estimate(_engine(cost, team)).epsilon <= 2.0
