"""Prices corrected by their own rounding: the minima stay exact, and every bound true."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsap.proof import certificate as certificates
from bigsap.proof.certificate import certify, checked_prices
from bigsap.proof.minima import minima
from bigsap.proof.row_minima import NearPairs, Prices, row_minima, whole
from bigsap.proof.scan import no_near
from bigsap.proof.tighten import largest, tightened
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.clipped import ClippedCosts
from contracts import whole as every_pair
from exactly import check_gap, fractions_of
from examples_of import examples
from oracle import optimal_prices, optimum


def problem(rng, shape, kind):
    """Costs whose optimal prices are not floats, as a rule."""
    cost = rng.random(shape)
    if kind == "tied":
        cost = rng.choice(rng.random(4), shape)
    elif kind == "offset":
        cost += 1e9
    elif kind == "outlier":
        cost[0, 1:] = cost[1:, 0] = 1e12
    elif kind == "small":
        cost = cost**9 * 1e-200
    return cost


def rounded_prices(rng, cost, noise):
    """Optimal prices, wrong by so many units in the last place."""
    prices = np.array([float(p) for p in optimal_prices(cost)])
    return prices + noise * np.spacing(np.abs(prices)) * rng.standard_normal(prices.size)


def noted(source, matching, prices, maximize=False, width=None):
    width = 2.0**-40 * float(np.ptp(prices.high)) if width is None else width
    found, _ = minima(source, matching, prices, maximize, every_pair=True, width=width)
    return found


def same_minima(source, one, prices, maximize=False):
    """Fail unless minima are those of all pairs at these prices, bit for bit."""
    every = row_minima(source, None, prices, maximize, 1, 1 << 20, None)
    for mine, theirs in zip(whole(one), whole(every), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@examples(150)
@given(
    shape=st.sampled_from([(8, 8), (20, 20), (7, 15), (1, 4)]),
    kind=st.sampled_from(["random", "tied", "offset", "outlier", "small"]),
    noise=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    maximize=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_rounded_prices_prove_what_exact_ones_do(shape, kind, noise, maximize, seed):
    rng = np.random.default_rng(seed)
    cost = problem(rng, shape, kind)
    v = rounded_prices(rng, cost, noise)
    best, col4row = optimum(cost)
    signed = -cost if maximize else cost
    c = certify(ArraySource(signed), col4row, v, maximize=maximize)
    fun, size = check_gap(c, signed, col4row, maximize)
    assert fun == best
    v -= v.max() if shape[0] == shape[1] else np.partition(v, shape[0] - 1)[shape[0] - 1]
    plain = certify(ArraySource(signed), col4row, v, maximize=maximize, normalise=False)
    assert c.gap <= plain.gap
    if noise < 100:
        assert c.optimal
        assert c.clear
        assert Fraction(c.gap) <= size / 2**50


@examples(100)
@given(
    shape=st.sampled_from([(8, 8), (20, 20), (7, 15)]),
    kind=st.sampled_from(["random", "tied", "offset", "outlier"]),
    noise=st.sampled_from([1.0, 1000.0]),
    paired=st.booleans(),
    gate=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_new_minima_are_those_of_all_pairs(shape, kind, noise, paired, gate, seed):
    rng = np.random.default_rng(seed)
    cost = problem(rng, shape, kind)
    source = ArraySource(cost)
    if gate:
        caps = np.quantile(cost, 0.3) * (0.5 + rng.random(shape[0]))
        caps[rng.random(shape[0]) < 0.3] = np.inf
        source = ClippedCosts(source, caps)
        cost = every_pair(source)
    v = rounded_prices(rng, cost, noise)
    low = np.spacing(np.abs(v)) * rng.standard_normal(v.size) if paired else None
    prices = checked_prices(v, v.size, False, low)
    col4row = np.array(optimum(cost)[1])
    found = noted(source, col4row, prices)
    same_minima(source, found, prices)
    better = tightened(found, col4row, found.matched, prices, 0.0)
    if better is None:
        return
    changed, closer = better
    same_minima(source, changed, closer)
    assert (closer.high == closer.high + closer.low).all()
    old, new = fractions_of(v, low), fractions_of(closer.high, closer.low)
    # Prices rise, by less than near pairs were noted for, and none above the largest.
    assert all(a <= b <= a + Fraction(found.near.width) for a, b in zip(old, new, strict=True))
    if gate:
        assert max(new) <= max(old)
    elif cost.shape[0] < cost.shape[1]:
        assert max(new) <= max(0, *old)


def test_prices_that_are_not_wrong_by_rounding_stay():
    """An assignment that is not optimal has a circle that nothing makes tight."""
    rng = np.random.default_rng(0)
    cost = rng.random((12, 12))
    v = rounded_prices(rng, cost, 1.0)
    wrong = np.roll(optimum(cost)[1], 1)
    source = ArraySource(cost)
    found = noted(source, wrong, Prices(v), width=10.0)
    assert found.near.rows.size == 144
    assert tightened(found, wrong, found.matched, Prices(v), 0.0) is None
    # Wrong by more than near pairs were noted for.
    col4row = np.array(optimum(cost)[1])
    v[col4row[3]] -= 0.5
    found = noted(source, col4row, Prices(v), width=1e-6)
    assert tightened(found, col4row, found.matched, Prices(v), 0.0) is None
    found = noted(source, col4row, Prices(v), width=2.0)
    changed, closer = tightened(found, col4row, found.matched, Prices(v), 0.0)
    same_minima(source, changed, closer)


def test_near_pairs_that_do_not_fit_change_nothing():
    """All pairs of equal costs are near; then the certificate says what the prices prove."""
    cost = np.ones((300, 300))
    cost[0, 0] = 0.5
    v = np.zeros(300)
    v[1:40] = np.spacing(1.0) * np.arange(39)
    col4row = np.arange(300)
    found = noted(ArraySource(cost), col4row, Prices(v), width=1e-9)
    assert found.near is None
    assert tightened(found, col4row, found.matched, Prices(v), 0.0) is None
    c = certify(ArraySource(cost), col4row, v)
    assert c.gap > 0
    assert c.bound <= 299.5 == c.fun
    assert no_near(5).rows.size == 5


def test_integers_beyond_float64_are_left_alone():
    """Their near pairs are not noted: of a few pairs alone the minima would be too high."""
    rng = np.random.default_rng(3)
    cost = 2**60 + rng.integers(0, 1000, (40, 40))
    best, col4row = optimum(cost)
    v = np.array([float(p) for p in optimal_prices(cost)]) + 0.25
    v[3] += 0.4
    assert noted(ArraySource(cost), np.array(col4row), Prices(v), width=100.0).near is None
    for noise in (1e-12, 1e-3, 0.3, 3.0):
        for low in (None, noise * rng.standard_normal(40)):
            c = certify(ArraySource(cost), col4row, v + noise * rng.random(40), low)
            check_gap(c, cost, col4row)
            assert c.bound <= best


def test_a_rise_that_a_low_part_cannot_hold_is_rounded_down():
    """Up, it could pass what pairs were noted for: they would not be all that matter."""
    u = np.spacing(100.0)
    source = ArraySource(
        np.array([[2.0**60, -100 - u, 0.0], [2.0**60, 0.0, -100 - u], [2.0**61, -200.0, 0.0]])
    )
    prices = Prices(np.array([2.0**60, -0.4 * u, -0.2 * u]), np.array([100.0, 0.0, 0.0]))
    col4row = np.array([0, 2, 1])
    found = noted(source, col4row, prices, width=u)
    width = 0.7 * u  # the row's own pair needs 0.6 u, the second row's has 0.8
    listed = found.near.rows != 1
    near = NearPairs(width, found.near.rows[listed], found.near.columns[listed], found.near.costs[listed])
    _, closer = tightened(dataclasses.replace(found, near=near), col4row, found.matched, prices, 0.0)
    raised = fractions_of(closer.high, closer.low)[0] - 2**60 - 100
    assert 0 <= raised <= width


def test_nothing_to_do_is_nothing_done():
    cost = np.random.default_rng(0).random((9, 9))
    col4row = np.array(optimum(cost)[1])
    v = np.array([float(p) for p in optimal_prices(cost)])
    found = noted(ArraySource(cost), col4row, Prices(v))
    without = dataclasses.replace(found, near=None)
    assert tightened(without, col4row, found.matched, Prices(v), 0.0) is None
    cost = np.rint(9 * cost)
    _, col4row = optimum(cost)
    v = np.array([float(p) for p in optimal_prices(cost)])
    found = noted(ArraySource(cost), np.array(col4row), Prices(v), width=1.0)
    assert found.near.rows.size >= 9
    assert tightened(found, np.array(col4row), found.matched, Prices(v), 0.0) is None


@pytest.mark.parametrize(
    ("high", "low", "expected"),
    [
        ([1.0, 2.0], None, 2),
        ([1.0, 2.0], [0.0, -5.0], 1),
        ([1.0, 0.5, 1.0], [-0.75, 0.25, -0.5], Fraction(3, 4)),
        ([2.0**53, 2.0**53], [0.25, 0.5], 2**53 + Fraction(1, 2)),
        ([-3.0], [1.0], -2),
    ],
)
def test_the_largest_price(high, low, expected):
    """Low parts that are given may be larger than what high parts differ by."""
    prices = checked_prices(high, len(high), False, low)
    assert sum(map(Fraction, largest(prices))) == expected
    assert fractions_of(prices.high, prices.low) == fractions_of(high, low)


def test_caps_are_at_the_largest_price_whatever_the_low_parts():
    """A false bound would follow from another one."""
    source = ClippedCosts(ArraySource(np.full((2, 2), 9.0)), [1.0, np.inf])
    prices = checked_prices([1.0, 0.9], 2, False, [0.0, 0.5])
    found, _ = minima(source, None, prices, False)
    assert fractions_of(found.high, found.mid, found.low)[0] == 1 - Fraction(0.9) - Fraction(0.5)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
@pytest.mark.parametrize("maximize", [False, True])
def test_prices_in_two_parts_of_any_size(shape, maximize):
    rng = np.random.default_rng(1)
    cost = rng.random(shape)
    matching = np.array(optimum(cost, maximize)[1])
    for scale in (1e-17, 1e-9, 1.0, 1e9):
        v, low = rng.standard_normal(shape[1]), scale * rng.standard_normal(shape[1])
        for normalise in (False, True):
            c = certify(ArraySource(cost), matching, v, low, maximize=maximize, normalise=normalise)
            check_gap(c, cost, matching, maximize)


def test_the_shift_puts_the_largest_of_two_parts_at_zero():
    high, low = np.array([1e16, 1e16, 3.0]), np.array([0.25, 0.75, 0.0])
    found = certificates.shifted(Prices(high, low), 3, 3, True, parted=True)
    assert fractions_of(found.high, found.low) == [Fraction(-1, 2), 0, 3 - 10**16 - Fraction(3, 4)]
    unchanged = certificates.shifted(Prices(high, low), 3, 3, False, parted=True)
    assert fractions_of(unchanged.high, unchanged.low) == fractions_of(high, low)
