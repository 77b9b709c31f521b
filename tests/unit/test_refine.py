"""Costs far apart: refinement, its residual problems, and results whose duals have two parts."""

from __future__ import annotations

import dataclasses
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.errors import CertificateError
from bigsap.proof.certificate import certify
from bigsap.result import Result, Status
from bigsap.run import on_rows
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.compiled import read_pairs
from bigsap.sources.residual import Residual
from bigsap.strategies.baselines import auction
from contracts import whole
from exact_judge import Truth, judge
from exactly import fractions_of
from examples_of import examples
from pairwise import each


def right(cost, result, **problem):
    """Every claim of an optimal result, judged in exact arithmetic."""
    assert judge(Truth(cost, **problem), result).faults == []
    assert result.status == "optimal"
    assert result
    return result


def forced(n, m, size, largest=100.0):
    """One pair forced by the usual stand-in for forbidden ones; costs, and the optimum."""
    cost = np.random.default_rng(0).random((n, m)) * largest
    cost[0, 1:] = cost[1:, 0] = size
    rows, columns = linear_sum_assignment(cost[1:, 1:])
    return cost, Fraction(cost[0, 0]) + sum(map(Fraction, cost[rows + 1, columns + 1].tolist()))


@pytest.fixture(scope="module")
def bids():
    """An auction bids among costs of any sizes, so that its prices reach the largest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auction, "_UNIT", 0.0)
        yield


@pytest.fixture(scope="module")
def sentinel(bids):
    """Solved with the largest integer as forbidden, by a method whose prices reach that size."""
    cost, _ = forced(1100, 1100, sys.maxsize)
    result = bigsap.solve(cost, method="auction")
    assert result.stats["refined"] > 0
    return cost, result


@pytest.mark.some(2)
@pytest.mark.parametrize("size", [1e13, 1e14, 1e16, 1e18, float(sys.maxsize), 1e300])
def test_forced_pairs(size, bids):
    cost, best = forced(1100, 1100, size)
    # An auction's prices reach that size; other methods begin with prices that do not.
    for method, refined in (("auction", size > 1e15), ("auto", False)):
        result = right(cost, bigsap.solve(cost, method=method))
        assert result.fun == float(best)
        assert (result.stats["refined"] > 0) >= refined
        assert result.verify(cost, pairs=True).optimal
    assert result.stats["refined"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ssp"},
        {"method": "ssp", "epsilon": False},
        {"method": "compressed"},
        {"method": "hungarian"},
        {"method": "auction"},
        {"method": "compressed", "start": "levels"},
        {"method": "ssp", "dtype": "float64"},
    ],
    ids=str,
)
def test_forced_pairs_by_every_method(options):
    cost, best = forced(300, 300, float(sys.maxsize))
    result = right(cost, bigsap.solve(cost, **options))
    assert result.fun == float(best)


@pytest.mark.some(3)
@each(maximize=[False, True], shape=[(700, 1600), (1600, 700), (60, 60), (1100, 1100)])
def test_crosses_and_blocks_of_sentinels(shape, maximize):
    """Where the sentinel is not avoided, too."""
    rng = np.random.default_rng(1)
    for block in ((1, 1), (30, 5)):
        cost = rng.random(shape)
        cost[: block[0]] = 1e17
        cost[:, : block[1]] = 1e17
        signed = -cost if maximize else cost
        right(signed, bigsap.solve(signed, maximize=maximize), maximize=maximize)


OPTIMUM = 1.7393054822881036


@pytest.mark.some(3)
@pytest.mark.parametrize("distance", [1e5, 1e6, 1e7, 1e8, 1e10, 1e12, 1e15])
def test_one_faulty_reading_among_points(distance):
    x, y = np.random.default_rng(3).random((2, 1500, 2))
    x[0] = y[0] = [distance, 0]
    result = bigsap.solve(bigsap.points(x, y))
    cost = np.empty((1500, 1500))
    bigsap.points(x, y).read(np.arange(1500), slice(0, 1500), cost)
    right(cost, result)
    assert result.fun == OPTIMUM
    assert result.verify(bigsap.points(x, y), pairs=True).optimal


@pytest.mark.some(1)
@pytest.mark.parametrize("offset", [1e12, 1e9, 1e15])
def test_offsets(offset):
    """What all costs have in common hides nothing."""
    cost = np.random.default_rng(5).random((1100, 1100)) + offset
    result = right(cost, bigsap.solve(cost))
    rows, columns = linear_sum_assignment(cost - offset)
    assert result.fun == float(sum(map(Fraction, cost[rows, columns].tolist())))


def test_ordinary_costs_are_not_refined():
    rng = np.random.default_rng(6)
    for shape in ((1100, 1100), (600, 1500), (1500, 600)):
        assert bigsap.solve(rng.random(shape)).stats["refined"] == 0
    x, y = rng.random((2, 1500, 2))
    assert bigsap.solve(bigsap.points(x, y)).stats["refined"] == 0


def far_apart(rng, shape, maximize):
    """A few pairs, some of them hugely good, which forbidden pairs then keep out."""
    cost = rng.integers(1, 10, shape).astype(float)
    huge = rng.random(shape) < 0.3
    cost[huge] *= -(10.0 ** rng.integers(15, 21, huge.sum()))
    cost[rng.random(shape) < 0.4] = np.inf
    return -cost if maximize else cost


def listed(cost):
    rows, columns = np.nonzero(np.isfinite(cost))
    return bigsap.sparse((rows, columns, cost[rows, columns]), shape=cost.shape)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("method", ["sparse", "ssp", "compressed", "hungarian", "auction"])
def test_a_huge_pair_that_is_kept_out_of_a_rectangle(method, turned, maximize):
    """Its column's price is huge, among few columns and among many."""
    for m in (3, 200):
        cost = np.full((2, m), np.inf)
        cost[[0, 0, 0, 1], [0, 1, 2, 1]] = [-1.0, -2e19, -3.0, -7.0]
        cost = np.ascontiguousarray(cost.T if turned else cost) * (-1 if maximize else 1)
        costs, options = (listed(cost), {}) if method == "sparse" else (cost, {"method": method})
        result = right(cost, bigsap.solve(costs, maximize=maximize, **options), maximize=maximize)
        assert abs(result.fun) == 10.0
        assert result.stats["refined"] > 0 or method == "auction"


@pytest.mark.parametrize("maximize", [False, True])
def test_small_rectangles_of_huge_pairs(maximize):
    rng = np.random.default_rng(23)
    refined = 0
    for case in range(150):
        n, m = rng.integers(2, 6), rng.integers(2, 7)
        cost = far_apart(rng, (n, m), maximize)
        price = None
        if case % 3 == 0:
            price = (-1 if maximize else 1) * rng.integers(1, 10, n) * 10.0 ** rng.choice([0, 0, 17], n)
        truth = Truth(cost, maximize, price)
        for costs, method in ((listed(cost), "auto"), (cost, "ssp")):
            result = bigsap.solve(costs, maximize=maximize, unassigned_cost=price, method=method)
            assert judge(truth, result).faults == []
            assert result.status == ("infeasible" if truth.infeasible else "optimal")
            refined += result.stats["refined"]
        if price is None and not truth.infeasible:
            pairs = bigsap.linear_sum_assignment(listed(cost), maximize)
            assert cost[pairs].sum() == pytest.approx(result.fun, rel=1e-15)
    assert refined > 10


# -- results ---------------------------------------------------------------------------


def test_a_stored_result_still_proves_itself(sentinel, tmp_path):
    cost, result = sentinel
    right(cost, result)
    assert result.v_low is not None
    result.save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    for name in ("u", "u_low", "v", "v_low"):
        np.testing.assert_array_equal(loaded[name], result[name])
    assert loaded.verify(cost).optimal
    # The rounded duals alone prove less.
    for name in ("u_low", "v_low"):
        with pytest.raises(CertificateError):
            dataclasses.replace(loaded, **{name: None}).verify(cost)


def test_one_unit_in_the_last_place_of_a_price_is_seen(sentinel):
    """Prices of the sentinel's size: a unit of theirs is more than all that is assigned."""
    cost, result = sentinel
    v = result.v + result.v_low
    v[0] = -(2.0**60)
    proof = certify(ArraySource(cost), result.col4row, v)
    assert proof.optimal
    result = dataclasses.replace(result, u=proof.u, u_low=proof.u_low, v=proof.v, v_low=proof.v_low)
    assert result.verify(cost).optimal
    columns = np.flatnonzero(np.spacing(np.abs(result.v)) > 1)
    assert columns.size
    for column in columns[:3]:
        for side in (-np.inf, np.inf):
            v = result.v.copy()
            v[column] = np.nextafter(v[column], side)
            with pytest.raises(CertificateError):
                dataclasses.replace(result, v=v).verify(cost)


def test_a_result_is_true_when_it_succeeded():
    cost = np.random.default_rng(0).random((5, 5))
    solved = bigsap.solve(cost)
    assert solved
    for status in Status:
        success = status in (Status.OPTIMAL, Status.GAP_REACHED)
        assert bool(dataclasses.replace(solved, status=status, success=success)) == success
    blocked = np.full((3, 3), np.inf)
    assert not bigsap.solve(blocked)
    imprecise = Result.from_assignment([0], shape=(1, 1), status=Status.IMPRECISE)
    assert not imprecise.success
    assert not imprecise
    assert "only to within gap" in imprecise.message


def test_an_outcome_of_integers_that_is_not_optimal_is_searched_again(monkeypatch):
    """Whatever a method returns, no rounding can excuse it."""
    cost = np.random.default_rng(0).integers(0, 1000, (60, 60))
    right(cost, best := bigsap.solve(cost, method="ssp"))
    search = on_rows.WholeRows.attempt
    for price in (0.0, 1.0):

        def wrong(strategy, run, price=price):
            outcome = search(strategy, run)
            return dataclasses.replace(
                outcome, column_of_row=np.roll(outcome.column_of_row, 1), v=price * outcome.v
            )

        monkeypatch.setattr(on_rows.WholeRows, "attempt", wrong)
        assert right(cost, bigsap.solve(cost, method="ssp")).fun == best.fun


# -- without a certificate -------------------------------------------------------------


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [1e18, 1e14, float(sys.maxsize)])
def test_without_a_certificate_danger_is_noticed(size):
    cost, best = forced(1100, 1100, size)
    result = bigsap.solve(cost, certify=False)
    assert result.fun == float(best)
    assert (result.bound, result.gap, result.certificate) == (None, None, None)
    assert judge(Truth(cost), result, certified=False).faults == []


def test_without_a_certificate_ordinary_costs_are_looked_at_once():
    for cost in (np.random.default_rng(1).random((1100, 1100)), np.eye(1100) + 1e3):
        result = bigsap.solve(cost, certify=False)
        assert (result.stats["certificate_pairs"], result.stats["refined"]) == (0, 0)


# -- residual problems -----------------------------------------------------------------


def exact_residuals(cost, u, v, sign):
    """(n, m) Fractions."""
    return [
        [None if math.isinf(c) else sign * Fraction(c) - u[i] - v[j] for j, c in enumerate(row)]
        for i, row in enumerate(cost.tolist())
    ]


def feasible_duals(rng, cost, sign, size, paired):
    """Row minima at some prices, in two parts each."""
    n, m = cost.shape
    v = size * rng.standard_normal(m) - (size * 4 if n < m else 0.0)
    low = np.spacing(np.abs(v)) * rng.uniform(-0.4, 0.4, m) if paired else np.zeros(m)
    c = certify(ArraySource(sign * cost), None, v, low, normalise=n != m)
    return (
        c.u,
        np.zeros(n) if c.u_low is None else c.u_low,
        c.v,
        (np.zeros(m) if c.v_low is None else c.v_low),
    )


@examples(80)
@given(
    shape=st.sampled_from([(6, 6), (4, 9), (9, 4), (1, 1)]),
    maximize=st.booleans(),
    size=st.sampled_from([0.0, 1.0, 1e9, 1e18, 1e200]),
    paired=st.booleans(),
    gap=st.sampled_from([1e-9, 0.5, 1e6, 1e300]),
    forbidden=st.booleans(),
    dtype=st.sampled_from(["f8", "f4", "i4"]),
    seed=st.integers(0, 10**6),
)
def test_residual_costs_are_rounded_once(shape, maximize, size, paired, gap, forbidden, dtype, seed):
    rng = np.random.default_rng(seed)
    n, m = shape
    cost = (100 * rng.random(shape)).astype(dtype)
    sign = -1 if maximize else 1
    if forbidden and dtype != "i4":
        cost[rng.random(shape) < 0.2] = sign * np.inf
        cost[np.arange(min(n, m)), np.arange(min(n, m))] = 1.0
        cost[cost[:, 0] * sign == np.inf, 0] = 7.0
    duals = feasible_duals(rng, cost.astype(float), sign, size, paired)
    residual = Residual(ArraySource(cost), duals, gap, maximize=maximize)
    side = max(n, m)
    assert residual.shape == (side, side)
    found = np.full((side, side), np.nan)
    residual.read(np.arange(side), slice(0, side), found)
    # Any part of any rows is the same.
    rows = rng.permutation(side)[:3]
    first = int(rng.integers(0, side))
    part = np.empty((rows.size, side - first))
    residual.read(rows, slice(first, side), part)
    np.testing.assert_array_equal(part, found[rows, first:])
    scale = Fraction(residual.scale)
    assert math.frexp(residual.scale)[0] == 0.5
    cap = min(2 * Fraction(gap), Fraction(2) ** 1023)
    if 1e-290 < gap < 1e290:
        assert 0.5 <= cap * scale <= 2
    u, v = fractions_of(*duals[:2]), fractions_of(*duals[2:])
    most = max([*map(abs, u), *map(abs, v), Fraction(100)])
    exact = exact_residuals(cost, u, v, sign)
    for i in range(side):
        for j in range(side):
            if i < n and j < m:
                wanted = exact[i][j]
            else:
                wanted = -v[j] if i >= n else -u[i]
            if wanted is None:
                assert found[i, j] == np.inf
                continue
            wanted = min(max(wanted, Fraction(0)), cap)
            room = wanted / 2**52 + most / 2**104
            assert abs(Fraction(found[i, j]) / scale - wanted) <= room
            assert found[i, j] >= 0


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_the_compiled_residual_is_the_one_that_is_read(dtype, maximize):
    rng = np.random.default_rng(2)
    source = bigsap.from_function(
        lambda i, j: np.sin(i * 3.0 + j) + (1e12 if (i == 0) != (j == 0) else 0.0),
        (70, 70),
        dtype=dtype,
        kind="value",
        compiled=True,
    )
    assert source.dtype == dtype
    cost = whole(source)
    sign = -1 if maximize else 1
    duals = feasible_duals(rng, cost.astype(float), sign, 1e9, True)
    for gap in (0.5, 1e13):
        residual = Residual(source, duals, gap, maximize=maximize)
        read, filled = np.empty((2, 70, 70))
        residual.read(np.arange(70), slice(0, 70), read)
        fill = residual.fill()
        assert fill is not None
        rows, columns = np.divmod(np.arange(4900), 70)
        read_pairs(fill, rows, columns, filled.ravel())
        np.testing.assert_array_equal(read, filled)
        assert 0 <= read.min() < read.max() <= 2


@pytest.mark.parametrize("method", ["ssp", "compressed", "auction"])
@pytest.mark.parametrize("shape", [(24, 24), (16, 30), (30, 16)])
def test_pairs_that_cost_nothing_are_proved_by_prices_of_0(method, shape):
    """No other gap than 0 is small beside them; residual problems took 20 rounds to get there."""
    if method == "auction" and shape[0] > shape[1]:
        shape = shape[::-1]
    for seed in range(12):
        rng = np.random.default_rng(seed)
        cost = np.where(rng.random(shape) < 0.5, 0.0, rng.random(shape))
        cost[rng.random(shape) < 0.2] = np.inf
        source = bigsap.from_function(lambda i, cost=cost: cost[i], shape)
        res = bigsap.solve(source, method=method, warm_start=1e12 * rng.normal(size=shape[1]))
        assert (res.status, res.fun, res.gap, res.stats["refined"]) == ("optimal", 0, 0, 0)


@pytest.mark.parametrize("method", ["ssp", "hungarian"])
def test_clipped_costs_where_every_row_has_its_minimum(method):
    """The assignment costs 0, as clipped pairs would, too, if they were clipped at 0. Some are forbidden."""
    refined = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        cost = np.rint(2 * rng.random((20, 20 + seed % 9)))
        cost[rng.random(cost.shape) < 0.1] = np.inf
        start = 10.0 ** rng.integers(3, 15) * rng.normal(size=cost.shape[1])
        res = bigsap.solve(cost, method=method, warm_start=start)
        rows, columns = linear_sum_assignment(cost)
        assert (res.status, res.fun) == ("optimal", cost[rows, columns].sum())
        refined.add(res.stats["refined"])
    assert refined == {0, 1}
