"""What breaks other solvers, and every kind of bad input: a clear error or the answer."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import bigsap
from bigsap import RowCache, solve
from bigsap.sources import Counted, as_source
from instances import CLASSES, integers, points_of
from oracle import optimum, value
from pairwise import each

# Ways to present a matrix: in memory, and from a cache of one, two, three or all rows.
WAYS = [None, 1, 2, 3, 1000]


def solved_in(way, cost, **more):
    if way is None:
        return solve(cost, **more)
    return solve(Counted(as_source(cost)), cache=RowCache(bytes=way * cost[0].nbytes), **more)


def assert_right(res, cost, maximize=False):
    """Optimal, whatever the certificate says; and the certificate says so too."""
    assert res.status == "optimal"
    best, _ = optimum(cost, maximize)
    exact = value(cost, res.row_ind, res.col_ind)
    assert len(res.row_ind) == min(cost.shape)
    assert float(exact) == pytest.approx(float(best), rel=1e-13, abs=1e-13)
    if cost.dtype.kind in "iu":
        assert exact == best == res.fun
    res.verify(cost)


# --- costs on which published code fails --------------------------------------------


@each(shape=[(20, 20), (5, 20), (20, 5)], number=[0.0, 2.5, -1e15, 7], maximize=[False, True], way=WAYS)
def test_constant_matrix(shape, number, maximize, way):
    cost = np.full(shape, number)
    res = solved_in(way, cost, maximize=maximize)
    np.testing.assert_array_equal(res.row_ind, np.arange(min(shape)))
    np.testing.assert_array_equal(res.col_ind, np.arange(min(shape)))
    assert_right(res, cost, maximize)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 3])
def test_identity_already_optimal(threads, way):
    cost = CLASSES["random"](40, seed=1) + 1
    np.fill_diagonal(cost, 0.5)
    res = solved_in(way, cost, threads=threads)
    np.testing.assert_array_equal(res.col4row, np.arange(40))
    assert_right(res, cost)
    # The identity is optimal, but only non-zero prices prove it.
    res = solved_in(way, cost + np.arange(40)[None, :], threads=threads)
    np.testing.assert_array_equal(res.col4row, np.arange(40))
    assert_right(res, cost + np.arange(40)[None, :])


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_a_point_set_against_itself(rows):
    x, _ = points_of("geometric", 50, seed=2)
    for metric in ("sqeuclidean", "euclidean", "cityblock"):
        res = solve(bigsap.points(x, x, metric=metric), cache=rows * 400)
        np.testing.assert_array_equal(res.col4row, np.arange(50))
        assert res.fun == res.bound == res.gap == 0
        assert res.status == "optimal"


@each(huge=[1e9, 1e30], shape=[(30, 30), (20, 30), (30, 20)], maximize=[False, True], way=WAYS)
def test_one_huge_row(huge, shape, maximize, way):
    """It can take any column; with rows to spare it takes none."""
    for seed in (2, 3, 4):
        cost = CLASSES["geometric"](30, seed=seed)[: shape[0], : shape[1]].copy()
        cost[7] = -huge if maximize else huge
        res = solved_in(way, cost, maximize=maximize)
        assert res.status == "optimal"
        assert len(res.row_ind) == min(shape)
        best, _ = optimum(cost, maximize)
        found = value(cost, res.row_ind, res.col_ind)
        # 1e30 swallows what the other rows cost, as it does in float64 anywhere.
        room = 1e-13 if shape[0] > shape[1] else 1e-14 * huge
        assert abs(float(found - best)) <= room
        if shape[0] > shape[1]:
            assert res.col4row[7] == -1
        res.verify(cost)


@each(way=WAYS, big=[1e9, 1e15, 1e30])
def test_big_m_instead_of_forbidden(big, way):
    rng = np.random.default_rng(4)
    cost = rng.random((25, 25))
    cost[rng.random((25, 25)) < 0.7] = big
    cost[:, 3] = big  # at least one big pair must be used
    res = solved_in(way, cost)
    best, _ = optimum(cost)
    assert (cost[res.row_ind, res.col_ind] == big).sum() == best // int(big)
    res.verify(cost)


# --- integers -----------------------------------------------------------------------


@each(maximize=[False, True], way=[None, 1, 3], base=[0, 2**40, -(2**53), 2**53])
def test_huge_integers_are_exact(base, way, maximize):
    cost = base + integers(9, seed=5, factor=3)
    res = solved_in(way, cost, maximize=maximize)
    assert isinstance(res.fun, int)
    assert_right(res, cost, maximize)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("base", [2**57, 2**60, -(2**60), 2**62])
def test_integers_near_the_end_of_int64(base, maximize):
    """Exact, or refused; never wrong."""
    flip = np.array([[base, -base], [-base, base]])
    for costs in (base - integers(4, seed=5, factor=3), flip):
        try:
            res = solve(costs, maximize=maximize)
        except bigsap.OverflowRiskError as error:
            assert "integer costs" in str(error)  # noqa: PT017 - either way is right
            assert (error.row, error.column) in np.ndindex(costs.shape)  # noqa: PT017
        else:
            assert_right(res, costs, maximize)


@pytest.mark.parametrize("way", [None, 2])
def test_integers_whose_sums_leave_int64(way):
    cost = np.random.default_rng(1).integers(-(2**62), 2**62, (64, 64))
    with pytest.raises(bigsap.OverflowRiskError, match="integer costs"):
        solved_in(way, cost)


def test_unsigned_beyond_int64():
    cost = np.array([[2**64 - 1, 5], [7, 2**63]], dtype=np.uint64)
    with pytest.raises(bigsap.InvalidCostError, match="int64"):
        solve(cost)
    # No rounding, where float64 holds them.
    cost[0, 0] = 2**64 - 2**12
    res = solve(cost)
    assert res.fun == 12
    assert res.success
    with pytest.raises(bigsap.InvalidCostError, match="round"):
        solve([[2**70 + 1, 2**70], [1, 2]])
    assert solve([[2**70, 2**71], [1, 2]]).fun == 2.0**70 + 2


# --- forbidden pairs and infeasibility ----------------------------------------------


def assert_hall(res, cost, maximize=False):
    """The violator is a proof by itself."""
    n, m = cost.shape
    assert res.status == "infeasible"
    assert not res.success
    assert res.fun is None
    assert len(res.row_ind) == len(res.col_ind) == 0
    rows = res.violator
    assert rows.dtype == np.intp
    assert len(set(rows.tolist())) == len(rows) > 0
    allowed = (cost[rows] != (-np.inf if maximize else np.inf)).any(axis=0).sum()
    assert len(rows) - allowed > max(n - m, 0)
    assert str(rows[0]) in res.message
    res.verify(cost)


@each(way=WAYS, maximize=[False, True], shape=[(12, 12), (8, 12)])
def test_a_row_of_inf(shape, maximize, way):
    cost = CLASSES["random"](12, seed=1)[: shape[0]].copy()
    cost[4] = -np.inf if maximize else np.inf
    res = solved_in(way, cost, maximize=maximize)
    assert_hall(res, cost, maximize)
    assert res.violator.tolist() == [4]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("maximize", [False, True])
def test_rows_of_inf_to_spare(maximize, way):
    cost = CLASSES["random"](12, seed=1)[:, :9].copy()
    cost[[2, 5, 11]] = -np.inf if maximize else np.inf
    res = solved_in(way, cost, maximize=maximize)
    assert_right(res, cost, maximize)
    assert (res.col4row[[2, 5, 11]] == -1).all()
    cost[0] = cost[2]
    assert_hall(solved_in(way, cost, maximize=maximize), cost, maximize)


@each(way=[None, 1, 3], shape=[(10, 10), (7, 10), (10, 7), (10, 3)])
def test_random_forbidden_pairs(shape, way):
    feasible = infeasible = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        cost = rng.random(shape)
        cost[rng.random(shape) < rng.choice([0.5, 0.75, 0.85])] = np.inf
        res = solved_in(way, cost)
        if optimum(cost) is None:
            infeasible += 1
            assert_hall(res, cost)
        else:
            feasible += 1
            assert_right(res, cost)
    assert feasible >= 5
    assert infeasible >= 5 or shape[1] == 3


# --- invalid costs ------------------------------------------------------------------


@each(
    shape=[(30, 30), (20, 30), (30, 20)], bad=["nan", "inf"], maximize=[False, True], threads=[1, 3], way=WAYS
)
def test_nan_and_the_wrong_infinity(shape, bad, maximize, threads, way):
    wrong = np.nan if bad == "nan" else (np.inf if maximize else -np.inf)
    cost = CLASSES["random"](30, seed=1)[: shape[0], : shape[1]].copy()
    cost[17, 13] = cost[17, 8] = cost[19, 2] = wrong
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[17, 8\] is ") as caught:
        solved_in(way, cost, maximize=maximize, threads=threads)
    assert (caught.value.row, caught.value.column) == (17, 8)


# --- options ------------------------------------------------------------------------


# --- functions that misbehave -------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_a_function_that_changes_its_mind():
    """Never called optimal where rows are read again, by the search or the certificate."""
    rng = np.random.default_rng(0)

    def row(i):
        return rng.random(20)

    outcomes = []
    for rows in (2, 10):
        source = bigsap.from_function(row, (20, 20), kind="row")
        try:
            res = solve(source, cache=RowCache(bytes=rows * 160))
        except bigsap.CertificateError as error:
            assert "change" in str(error)  # noqa: PT017 - the usual way
            outcomes.append("refused")
        else:
            outcomes.append(res.status)
    assert "optimal" not in outcomes


@pytest.mark.parametrize("scale", [1e160, 1e300])
@pytest.mark.parametrize("kind", ["mixed", "rank 2"])
def test_costs_so_large_that_the_squares_of_gaps_are_no_numbers(kind, scale):
    generator = np.random.default_rng(0)
    n = 64
    if kind == "mixed":
        cost = generator.choice([1, -1, 1e-300, 0.0, -0.0], (n, n)) * generator.random((n, n))
    else:
        cost = generator.random((n, 2)) @ generator.random((2, n))
    cost *= scale
    best = float(optimum(cost)[0])
    for method in ("ssp", "compressed"):
        result = bigsap.solve(cost, method=method)
        assert result.status == "optimal"
        assert result.fun == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"objective": "bottleneck"}, {"capacity": 2}], ids=str)
@pytest.mark.parametrize("costs", [[-(2**63)], [-(2**63), -(2**63) + 5]], ids=str)
def test_the_least_integer_has_no_opposite(options, costs):
    sparse = bigsap.sparse(([0] * len(costs), range(len(costs)), np.array(costs)))
    for cost in (sparse, np.array([costs])):
        with contextlib.suppress(bigsap.OverflowRiskError):
            assert solve(cost, maximize=True, **options).fun == max(costs)
    rows, columns = bigsap.linear_sum_assignment(sparse, maximize=True)
    assert (rows.tolist(), columns.tolist()) == ([0], [len(costs) - 1])
