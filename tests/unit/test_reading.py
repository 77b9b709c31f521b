"""The C functions that read costs of each dtype do what numpy does, to the bit."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from bigsap.engine.core.state import ID, LANES, infinity
from bigsap.engine.lists.reading import costs_in
from bigsap.sources.base import SCANNABLE

KINDS = [(dtype, np.dtype(np.float64)) for dtype in SCANNABLE]
KINDS += [(np.dtype(np.int64), np.dtype(np.int64))]
SIZES = (1, 63, 64, 65, 255, 256, 257, 700, 1024)


def function(address, price, signature):
    """The function at an address: w a word, p a number in the prices' type, else an address."""
    number = ctypes.c_double if price.kind == "f" else ctypes.c_int64
    kinds = {"w": ctypes.c_int64, "p": number, "a": ctypes.c_void_p}
    return ctypes.CFUNCTYPE(ctypes.c_int64, *(kinds[kind] for kind in signature))(address)


def some(rng, n, dtype, price, bad=False):
    """n costs; with ``bad`` some that no solve takes, where the dtype has such."""
    costs = rng.integers(0, 200, n).astype(dtype)
    if dtype.kind == "f":
        costs += rng.random(n).astype(dtype)
        if bad:
            costs[n // 2], costs[n // 3] = np.nan, -np.inf
    elif bad:
        costs[n // 2] = 210
    return costs, price.type(209)


@pytest.mark.parametrize(("dtype", "price"), KINDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_chunk_is_reduced(dtype, price, sign):
    rng = np.random.default_rng(0)
    address = costs_in(np.empty((1, 1), dtype), price, there=True).reduce
    reduce = function(address, price, "awwpppppaaaaa")
    unit, beyond = price.type, infinity(price)
    for n in SIZES:
        costs, high = some(rng, n, dtype, price)
        v, open_price = (rng.integers(-50, 50, n).astype(price) for _ in range(2))
        tau, low, free = np.zeros(n, price), np.zeros(LANES, price), np.full(LANES, beyond)
        free[0] = -10_000
        given = (unit(sign), unit(-high), high, unit(7), beyond)
        arrays = [a.ctypes.data for a in (v, open_price, tau, low, free)]
        assert reduce(costs.ctypes.data, n, 1, *given, *arrays) == 0
        signed = unit(sign) * costs.astype(price) - unit(7)
        assert np.array_equal(tau, signed - v)
        lanes = np.arange(n) % LANES
        for lane in range(LANES):
            here = lanes == lane
            assert low[lane] == (signed - v)[here].min(initial=beyond)
            smallest = (signed - open_price)[here].min(initial=beyond)
            assert free[lane] == (-10_000 if lane == 0 else smallest)
        bad = costs.copy()
        bad[:] = some(rng, n, dtype, price, bad=True)[0]
        count = int((~((sign * bad.astype(price) > -high) & (sign * bad.astype(price) <= high))).sum())
        before = tau.copy()
        if count:
            assert reduce(bad.ctypes.data, n, 1, *given, *arrays) == count
            assert np.array_equal(tau, before)
        assert reduce(bad.ctypes.data, n, 0, *given, *arrays) == 0


@pytest.mark.parametrize(("dtype", "price"), KINDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_is_judged(dtype, price, sign):
    rng = np.random.default_rng(1)
    address = costs_in(np.empty((1, 1), dtype), price, there=True).judge
    judge = function(address, price, "awppppa")
    for n in SIZES:
        for bad in (False, True):
            costs, high = some(rng, n, dtype, price, bad)
            signed = sign * costs.astype(price)
            low = np.zeros(LANES, price)
            given = price.type(sign), price.type(-high), high, infinity(price)
            wrong = ~((signed > -high) & (signed <= high))
            assert judge(costs.ctypes.data, n, *given, low.ctypes.data) == wrong.sum()
            if not bad:
                assert low[0] == signed.min()


@pytest.mark.parametrize(("dtype", "price"), KINDS)
def test_costs_are_copied(dtype, price):
    rng = np.random.default_rng(2)
    where = costs_in(np.empty((3, 5), dtype), price, there=True)
    copy = function(where.copy, price, "aawa")
    costs, _ = some(rng, 300, dtype, price)
    out = np.zeros(100, price)
    assert copy(costs.ctypes.data, 0, 100, out.ctypes.data) == 0
    assert np.array_equal(out, costs[:100].astype(price))
    places = rng.permutation(300)[:100].astype(ID)
    assert copy(costs.ctypes.data, places.ctypes.data, 100, out.ctypes.data) == 0
    assert np.array_equal(out, costs[places].astype(price))
    assert (where.item, where.stride) == (dtype.itemsize, 5 * dtype.itemsize)
    assert where.plain == (dtype == price)
    computed = costs_in(np.empty((3, 5), dtype), price, there=False)
    assert (computed.start, computed.stride) == (0, 0)
