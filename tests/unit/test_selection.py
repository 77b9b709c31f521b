"""The vectorised selections of the lists equal plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from bigsap.engine.core.scan import n_invalid
from bigsap.engine.core.selection import extremes, gather, thin
from bigsap.engine.core.state import LANES, infinity

PRICES = [np.float64, np.int64]


def some(rng, n, kind, ties=False):
    """n values, a tenth of them infinite, of few distinct ones with ties."""
    values = (rng.integers(-5, 6, n) if ties else rng.normal(size=n) * 1000).astype(kind)
    values[rng.random(n) < 0.1] = infinity(np.dtype(kind))
    return values


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kind", PRICES)
def test_gather_takes_what_a_test_per_column_takes(kind, ties):
    rng = np.random.default_rng(0)
    beyond = infinity(np.dtype(kind))
    for n in (0, 1, 63, 64, 65, 128, 200, 1000, 1024):
        for cap in (kind(-2000), kind(0), kind(300), kind(10**6), beyond):
            tau = some(rng, n, kind, ties)
            best = np.zeros(n + 3, kind), np.zeros(n + 3, np.int32)
            found = gather(tau, cap, beyond, 40, *best, 3)
            places = np.flatnonzero((tau <= cap) & (tau < beyond))
            assert found == 3 + places.size
            assert np.array_equal(best[0][3:found], tau[places])
            assert np.array_equal(best[1][3:found], 40 + places)


@pytest.mark.parametrize("kind", PRICES)
def test_gather_refuses_what_cannot_be(kind):
    """More candidates than there is room for."""
    beyond = infinity(np.dtype(kind))
    tau = np.arange(100).astype(kind)
    best = np.zeros(50, kind), np.zeros(50, np.int32)

    def found(cap, n=0):
        return gather(tau, kind(cap), beyond, 0, *best, n)

    assert found(49) == 50
    assert found(50) == found(20, 30) == -1


@pytest.mark.parametrize("kind", PRICES)
def test_extremes(kind):
    rng = np.random.default_rng(1)
    beyond = infinity(np.dtype(kind))
    lanes = np.empty(2 * LANES, kind)
    for n in (0, 1, 7, 63, 64, 65, 127, 128, 500):
        values = some(rng, n, kind)
        for floor in (-beyond, kind(0)):
            high = values[values < beyond].max(initial=-beyond)
            low = values[values > floor].min(initial=beyond)
            assert extremes(values, n, floor, beyond, lanes) == (low, high)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kind", PRICES)
def test_thin_keeps_the_smallest_in_order(kind, ties):
    rng = np.random.default_rng(2)
    beyond = infinity(np.dtype(kind))
    lanes = np.empty(2 * LANES, kind)
    for n, k in ((2, 1), (20, 16), (300, 160), (700, 160), (900, 16)):
        tau = some(rng, n, kind, ties)
        cost, ids = rng.random(n).astype(kind), np.arange(n, dtype=np.int32)
        before = tau.copy(), cost.copy()
        kept, rest = thin(tau, cost, ids, n, k, beyond, lanes)
        assert k - k // 16 <= kept <= k
        taken = ids[:kept]
        assert (np.diff(taken) > 0).all()
        assert np.array_equal(tau[:kept], before[0][taken])
        assert np.array_equal(cost[:kept], before[1][taken])
        left = np.delete(before[0], taken)
        assert rest == left.min(initial=beyond)
        assert tau[:kept].max() <= rest


@pytest.mark.parametrize("tie", [1e17, -np.inf, 0.0])
def test_thin_keeps_no_more_than_asked_of_equal_ones(tie):
    """1e17 - 1 is 1e17, and nothing is below -inf."""
    tau, cost, ids = np.full(300, tie), np.zeros(300), np.arange(300, dtype=np.int32)
    kept, rest = thin(tau, cost, ids, 300, 160, np.inf, np.empty(2 * LANES))
    assert (kept, rest) == (160, tie)
    assert ids[:160].tolist() == list(range(160))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int32])
def test_invalid_costs_are_counted(kind):
    rng = np.random.default_rng(3)
    cost = (rng.normal(size=777) * 100).astype(kind)
    if np.dtype(kind).kind == "f":
        cost[::10], cost[5::50], cost[7::50] = np.nan, np.inf, -np.inf
    for sign, low, high in ((1.0, -np.inf, np.inf), (-1.0, -np.inf, np.inf), (1.0, -50.0, 80.0)):
        signed = sign * cost[3:700].astype(float)
        expected = (~((signed > low) & (signed <= high))).sum()
        assert n_invalid(cost, sign, low, high, 3, 700) == expected
