"""Compiled inner loop of the certificate's pass: exact row minima of ``c - v``.

A price is a float64, or a pair of them, ``v + below``. A first scan of a row finds the least
rounded difference. Rounding is monotone, and for pairs the error is some units of the result. So
only columns whose rounded difference is about that small are computed exactly
(``exact.three_sum``, the same steps).

The same scan records every *near* pair: those within ``width`` of the row's least. From them
``tighten`` can correct prices by up to that amount, without another pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.proof.vectors import any_of_pairs, any_within, item, least_difference, least_of_pairs
from bigsap.types import Array

#: Results of a scan, as bits: a NaN or a difference of -inf was found; a row has no finite
#: difference.
INVALID, UNREACHED = 1, 2


class Minima(NamedTuple):
    """The rows' least differences so far, (n,) each: the exact value is the sum of the parts."""

    high: Array
    mid: Array
    low: Array


class Near(NamedTuple):
    """Near pairs: rows, columns (k,) int64, costs (k,) float64 in the minimising sense.

    counts (2,) int64: how many are stored, and how many did not fit.
    """

    rows: Array
    columns: Array
    costs: Array
    counts: Array


@kernel(forceinline=True)
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return ``a + b`` rounded, and the rounding error, as ``exact.two_sum``."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel(forceinline=True)
def exact_difference(cost: float, price: float, below: float) -> tuple[float, float, float]:
    """Return ``cost - price - below`` in three parts, as ``exact.three_sum``."""
    high, rest = two_sum(cost, -price)
    if below == 0.0:
        return high, rest, 0.0
    mid, low = two_sum(rest, -below)
    high, mid = two_sum(high, mid)
    mid, low = two_sum(mid, low)
    high, mid = two_sum(high, mid)
    mid, low = two_sum(mid, low)
    doubled = mid + mid
    above = high + doubled
    if low != 0.0 and mid != 0.0 and (mid < 0.0) == (low < 0.0) and above - high == doubled:
        high, mid = above, -mid
        mid, low = two_sum(mid, low)
    return high, mid, low


@kernel(forceinline=True)
def is_less(a: float, b: float, c: float, high: float, mid: float, low: float) -> bool:
    """Compare two sums of three parts, each as of ``exact_difference``."""
    return a < high or (a == high and (b < mid or (b == mid and c < low)))


@kernel(forceinline=True)
def note(near: Near, row: int, column: int, cost: float) -> None:
    """Record a near pair, or count it if there is no room."""
    at = near.counts[0]
    if at < near.rows.size:
        near.rows[at], near.columns[at], near.costs[at] = row, column, cost
        near.counts[0] = at + 1
    else:
        near.counts[1] += 1


@kernel(forceinline=True)
def margin_of(base: float, width: float, reach: float) -> float:
    """Return how far above the least rounded difference to search for exact minima.

    Within that distance of ``base`` lie the exact least (width 0), or all within ``width`` of it.
    reach: the largest low part of a price, 0 without any.
    """
    if width == 0.0 and reach == 0.0:
        return 0.0
    return width + 2.0**-49 * abs(base) + 2.0**-50 * reach


@kernel
def scan_rows(
    cost: int,
    stride: int,
    n_rows: int,
    n_columns: int,
    sign: float,
    prices: Array,
    below: Array,
    first_row: int,
    first_column: int,
    width: float,
    found: Minima,
    near: Near,
) -> int:
    """Lower the rows' minima to those of a block of costs; return the bits INVALID and UNREACHED.

    cost: address of the block, stride: items from one row to the next. sign: -1.0 to maximise.
    prices (m,), below (m,) or (0,): prices of all columns and their low parts. Row k of the block
    is row ``first_row + k`` of ``found`` and ``near``, its columns begin at ``first_column``.
    width >= 0: record pairs within this distance of the row's least so far in ``near``.
    """
    flags = 0
    paired = below.size > 0
    reach = 0.0
    if paired:
        for j in range(first_column, first_column + n_columns):
            reach = max(reach, abs(below[j]))
    at = np.int64(prices.ctypes.data) + 8 * first_column
    low_at = np.int64(below.ctypes.data) + 8 * first_column
    for k in range(n_rows):
        row = cost + 8 * k * stride
        if paired:
            least, bad = least_of_pairs(row, at, low_at, n_columns, sign)
        else:
            least, bad = least_difference(row, at, 0, n_columns, sign)
        if bad != 0.0 or least == -np.inf:
            flags |= INVALID
            continue
        if least == np.inf:
            flags |= UNREACHED
            continue
        r = first_row + k
        best, mid, low = found.high[r], found.mid[r], found.low[r]
        base = least if least < best else best
        limit = base + margin_of(base, width, reach)
        j = 0
        while j < n_columns:
            if j + 32 <= n_columns:
                if paired:
                    hits = any_of_pairs(row, at, low_at, j, sign, limit)
                else:
                    hits = any_within(row, at, 0, j, sign, limit)
                if hits == 0:
                    j += 32
                    continue
                stop = j + 32
            else:
                stop = n_columns
            for p in range(j, stop):
                c = sign * item(row, p)
                q = first_column + p
                low_part = below[q] if paired else 0.0
                if not ((c - prices[q]) - low_part <= limit):
                    continue
                a, b, d = exact_difference(c, prices[q], low_part)
                if is_less(a, b, d, best, mid, low):
                    best, mid, low = a, b, d
                note(near, r, q, c)
            j = stop
        found.high[r], found.mid[r], found.low[r] = best, mid, low
    return flags


@kernel
def fold(rows: Array, columns: Array, costs: Array, prices: Array, below: Array, found: Minima) -> None:
    """Lower the rows' minima to the differences of listed pairs. below: (m,) or (0,)."""
    for k in range(rows.size):
        r, q = rows[k], columns[k]
        a, b, d = exact_difference(costs[k], prices[q], below[q] if below.size > 0 else 0.0)
        if is_less(a, b, d, found.high[r], found.mid[r], found.low[r]):
            found.high[r], found.mid[r], found.low[r] = a, b, d


def no_minima(n: int) -> Minima:
    """Return initial minima, of rows without any known pair."""
    return Minima(np.full(n, math.inf), np.zeros(n), np.zeros(n))


def no_near(room: int) -> Near:
    """Allocate room for near pairs; the system provides memory as they are written."""
    rows, columns = np.empty((2, room), np.int64)
    return Near(rows, columns, np.empty(room), np.zeros(2, np.int64))
