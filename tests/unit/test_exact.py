"""Exact arithmetic on floats, and the certificate's scan, against rational numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsap.errors import OverflowRiskError
from bigsap.proof import exact, scan
from bigsap.proof.row_minima import NearPairs, Prices, joined, row_minima
from bigsap.sources.arrays.matrix import ArraySource
from exactly import down, fractions_of, up
from examples_of import examples

SIGNIFICANT = st.integers(-(2**53), 2**53)
#: Floats of few bits, whose sums end half way between two floats now and then, or of many.
ROUND = st.builds(math.ldexp, st.integers(-3, 3).map(float), st.integers(-120, 120))
ANY = st.builds(math.ldexp, SIGNIFICANT.map(float), st.integers(-1074, 900))
NEAR = st.builds(math.ldexp, SIGNIFICANT.map(float), st.integers(-60, 5))
NUMBERS = st.one_of(ROUND, ANY, NEAR, st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2**53 + 2.0]))


@examples(600)
@given(NUMBERS, NUMBERS)
def test_two_sum(a, b):
    high, low = exact.two_sum(a, b)
    assert Fraction(high) + Fraction(low) == Fraction(a) + Fraction(b)
    assert high == a + b


def check_three(a, b, c, parts):
    """Each part is the rest rounded to nearest, ties to even."""
    rest = Fraction(a) + Fraction(b) + Fraction(c)
    for part in parts:
        assert float(part) == float(rest)
        rest -= Fraction(float(part))
    assert rest == 0


HALVES = [
    (1.0, 2.0**-53, 2.0**-120),
    (1.0, 2.0**-53, -(2.0**-120)),
    (1.0, -(2.0**-54), 2.0**-120),
    (1.0, -(2.0**-54), -(2.0**-120)),
    (1.0, 2.0**-53, 0.0),
    (1.0 + 2.0**-52, 2.0**-53, 0.0),
    (1.0 + 2.0**-52, 2.0**-53, -(2.0**-1074)),
    (1.0 + 2.0**-52, 2.0**-53, 2.0**-1074),
    (2.0**53, 1.0, 2.0**-200),
    (2.0**53, 1.0, -(2.0**-200)),
    (2.0**53, -1.0, 2.0**-200),
    (1e16, 1.0, -1e16),
    (1e300, 1.0, -1e300),
    (1.0, 1e-17, -1.0),
    (2.0**-1022, 2.0**-1074, -(2.0**-1022)),
]


@pytest.mark.parametrize("numbers", HALVES)
def test_three_sum_half_way_between_two_floats(numbers):
    for signed in (numbers, tuple(-x for x in numbers)):
        for a, b, c in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1), (2, 0, 1), (1, 2, 0)):
            given_now = signed[a], signed[b], signed[c]
            check_three(*given_now, exact.three_sum(*given_now))


@examples(1500)
@given(NUMBERS, NUMBERS, NUMBERS)
def test_three_sum(a, b, c):
    check_three(a, b, c, exact.three_sum(a, b, c))


def test_three_sum_of_vectors_is_that_of_numbers():
    a, b, c = np.array(HALVES).T
    each = np.array([exact.three_sum(*numbers) for numbers in HALVES]).T
    np.testing.assert_array_equal(np.array(exact.three_sum(a, b, c)), each)


@examples(400)
@given(NUMBERS, NUMBERS, NUMBERS)
def test_differences_of_the_scan_have_the_same_parts(cost, price, below):
    found = scan.no_minima(1)
    zero = np.zeros(1, np.int64)
    scan.fold(zero, zero, np.array([cost]), np.array([price]), np.array([below]), found)
    check_three(cost, -price, -below, [part[0] for part in found])
    found = scan.no_minima(1)
    scan.fold(zero, zero, np.array([cost]), np.array([price]), np.empty(0), found)
    check_three(cost, -price, 0.0, [part[0] for part in found])


# -- sums ------------------------------------------------------------------------------


@examples(200)
@given(st.lists(NUMBERS, max_size=40), st.lists(NUMBERS, max_size=8), st.integers(0, 1))
def test_an_expansion_is_the_exact_sum(numbers, more, long):
    repeats = 300 if long else 1  # the compiled way, too
    vector = np.array(numbers * repeats, np.float64)
    try:
        terms = exact.expansion(vector, more)
    except OverflowRiskError:
        assert sum(map(abs, map(Fraction, [*vector.tolist(), *more]))) > 2**1023
        return
    total = sum(map(Fraction, numbers), Fraction(0)) * repeats + sum(map(Fraction, more))
    assert sum(map(Fraction, terms), Fraction(0)) == total
    assert exact.nearest(terms) == float(total)
    assert (exact.down(terms), exact.up(terms)) == (down(total), up(total))


def test_sums_of_numbers_of_few_bits_at_all_scales():
    """While they are added, there may be more terms than room: with few bits each."""
    rng = np.random.default_rng(2)
    vector = np.ldexp(rng.choice([-1.0, 1.0], 3000), rng.integers(-1000, 900, 3000))
    most = 0
    for count in range(300, 3001, 300):
        most = max(most, exact.accumulate(np.empty(200), 0, vector[:count]))
        terms = exact.expansion(vector[:count])
        assert sum(map(Fraction, terms)) == sum(map(Fraction, vector[:count].tolist()))
        assert len(terms) <= 64
    assert most > 64


def test_sums_with_what_is_not_finite_stay_within_their_room():
    rng = np.random.default_rng(2)
    vector = np.ldexp(rng.choice([-1.0, 1.0], 3000), rng.integers(-1000, 900, 3000))
    for bad in (np.inf, np.nan):
        vector[500] = bad
        partials = np.zeros(70)
        assert exact.accumulate(partials[:64], 0, vector) < 64
        assert not partials[64:].any()
        with pytest.raises(OverflowRiskError):
            exact.expansion(vector)


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [1.0],
        [2.0**-1074],
        [2.0**-53, 1.0],
        [-(2.0**-54), 1.0],
        [5e-324, 2.0**-53, 1.0],
        [-5e-324, 2.0**-53, 1.0],
        [-5e-324, 0.0],
        [1e300, -1e300, 1.0],
    ],
)
def test_sums_are_rounded_to_either_side(terms):
    for signed in (terms, [-x for x in terms]):
        total = sum(map(Fraction, signed), Fraction(0))
        assert exact.nearest(signed) == float(total)
        assert exact.down(signed) == down(total)
        assert exact.up(signed) == up(total)


@pytest.mark.parametrize("count", [2, 1000])
def test_sums_beyond_float64(count):
    with pytest.raises(OverflowRiskError, match="the sum of the costs leaves float64"):
        exact.expansion(np.full(count, 1.7e308))
    with pytest.raises(OverflowRiskError, match="leaves float64"):
        exact.down([1.7e308, 1.7e308])


def test_sums_of_integers():
    numbers = np.array([2**63 - 1, 2**63 - 1, -(2**63), 5, -1] * 1000)
    assert exact.exact_sum(numbers) == 1000 * (2 * (2**63 - 1) - 2**63 + 4)
    assert exact.exact_sum(numbers.astype(object)) == exact.exact_sum(numbers)
    assert type(exact.exact_sum(numbers)) is int
    assert exact.exact_sum(np.array([1e16, 1.0, -1e16])) == 1.0


# -- the scan --------------------------------------------------------------------------


def far_apart(rng, shape, spread, ties):
    """Costs over so many orders of magnitude; some of few values."""
    cost = rng.standard_normal(shape) * 10.0 ** rng.uniform(-spread, spread, shape)
    return rng.choice(cost.ravel()[:3], shape) if ties else cost


def near_prices(rng, cost, paired, noise):
    """Prices that make many differences of a row nearly or exactly the same, in two parts."""
    v = cost[0] * (1 + noise * rng.standard_normal(cost.shape[1]))
    v = np.where(rng.random(v.size) < 0.8, v, rng.standard_normal(v.size) * np.abs(v).max())
    if not paired:
        return v, None
    # Low parts of any size: as tightened prices have them, more than a unit in the last place.
    low = np.spacing(np.abs(v)) * rng.standard_normal(v.size) * 10.0 ** rng.uniform(-3, 6, v.size)
    return v, np.where(rng.random(v.size) < 0.3, 0.0, low)


@examples(300)
@given(
    n=st.integers(1, 6),
    m=st.integers(1, 90),
    spread=st.sampled_from([0, 3, 16, 150]),
    ties=st.booleans(),
    paired=st.booleans(),
    maximize=st.booleans(),
    forbidden=st.booleans(),
    noise=st.sampled_from([0.0, 1e-16, 1e-13, 0.1]),
    share=st.sampled_from([None, 0.0, 1e-12, 0.3]),
    seed=st.integers(0, 10**6),
)
def test_the_scan_in_parts_finds_the_exact_minima_and_all_near_pairs(
    n, m, spread, ties, paired, maximize, forbidden, noise, share, seed
):
    rng = np.random.default_rng(seed)
    signed = far_apart(rng, (n, m), spread, ties)
    v, low = near_prices(rng, signed, paired, noise)
    if forbidden:
        signed[rng.random((n, m)) < 0.3] = np.inf
    cost = -signed if maximize else signed
    width = 0.0 if share is None else share * float(np.ptp(v))
    found, near = scan.no_minima(n), scan.no_near(4 * n * m)
    below = np.empty(0) if low is None else low
    edges = np.unique([0, m, *rng.integers(0, m + 1, 3)]).tolist()
    for first, last in itertools.pairwise(edges):
        flags = scan.scan_rows(
            cost[:, first:].ctypes.data,
            m,
            n,
            last - first,
            -1.0 if maximize else 1.0,
            v,
            below,
            0,
            first,
            width,
            found,
            near,
        )
        assert flags in (0, scan.UNREACHED)
    prices = fractions_of(v, low)
    listed = list(zip(*(part[: near.counts[0]].tolist() for part in near[:3]), strict=True))
    assert near.counts[1] == 0
    assert len({pair[:2] for pair in listed}) == len(listed)
    assert all(signed[row, column] == c for row, column, c in listed)
    noted = {pair[:2] for pair in listed}
    reach = Fraction(width) * (1 - Fraction(1, 2**40))
    for row in range(n):
        left = {j: Fraction(c) - prices[j] for j, c in enumerate(signed[row].tolist()) if c < math.inf}
        if not left:
            assert found.high[row] == math.inf
            continue
        least = rest = min(left.values())
        for part in found:
            assert part[row] == float(rest)
            rest -= Fraction(part[row])
        assert rest == 0
        assert {(row, j) for j, x in left.items() if x <= least + reach} <= noted


def test_the_scan_reports_what_is_invalid():
    v = np.zeros(40)
    for bad, flag in ((np.nan, scan.INVALID), (-np.inf, scan.INVALID), (np.inf, 0)):
        cost = np.ones((1, 40))
        cost[0, 33] = bad
        given = (1.0, v, np.empty(0), 0, 0, 0.0, scan.no_minima(1), scan.no_near(0))
        assert scan.scan_rows(cost.ctypes.data, 40, 1, 40, *given) == flag
        assert scan.scan_rows(cost.ctypes.data, 40, 1, 40, *given[:2], v, *given[3:]) == flag
    cost[:] = np.inf
    assert scan.scan_rows(cost.ctypes.data, 40, 1, 40, *given) == scan.UNREACHED


def test_near_pairs_that_do_not_fit_are_counted():
    cost, v = np.zeros((3, 50)), np.zeros(50)
    near = scan.no_near(100)
    scan.scan_rows(cost.ctypes.data, 50, 3, 50, 1.0, v, np.empty(0), 0, 0, 1.0, scan.no_minima(3), near)
    assert near.counts.tolist() == [100, 50]
    assert joined([near], 1.0) is None
    near.counts[1] = 0
    assert isinstance(joined([near], 1.0), NearPairs)


@examples(150)
@given(
    n=st.integers(1, 30),
    m=st.integers(1, 60),
    dtype=st.sampled_from(["f8", "f4", "i8", "i4"]),
    order=st.sampled_from("CF"),
    paired=st.booleans(),
    maximize=st.booleans(),
    block_bytes=st.sampled_from([1, 300, 1 << 20]),
    threads=st.integers(1, 3),
    wide=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_pass_is_exact_whatever_the_costs_lie_in(
    n, m, dtype, order, paired, maximize, block_bytes, threads, wide, seed
):
    """Real prices of integers, too, up to the ends of int64."""
    rng = np.random.default_rng(seed)
    if dtype[0] == "i":
        end = (2**62 if dtype == "i8" else 2**31 - 1) if wide else 1000
        cost = rng.integers(-end, end, (n, m)).astype(dtype)
    else:
        cost = far_apart(rng, (n, m), 30 if wide else 1, False).astype(dtype)
    cost = np.asarray(cost, order=order)
    signed = [[(-1 if maximize else 1) * Fraction(c) for c in row] for row in cost.tolist()]
    v, low = near_prices(rng, cost.astype(float) * (-1 if maximize else 1), paired, 1e-15)
    v[0] += 0.25  # no integers
    found = row_minima(ArraySource(cost), None, Prices(v, low), maximize, threads, block_bytes, None)
    prices = fractions_of(v, low)
    expected = [min(c - p for c, p in zip(row, prices, strict=True)) for row in signed]
    got = fractions_of(found.high, found.mid, found.low)
    if wide and dtype == "i8" and paired:  # the last part may be rounded down
        for one, other in zip(got, expected, strict=True):
            assert 0 <= other - one <= abs(other) / 2**150
    else:
        assert got == expected
    assert found.high.tolist() == [float(x) for x in expected]
