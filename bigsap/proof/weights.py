"""Exact sums of prices that count several times: once for each pair that a column or row may have."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from bigsap.errors import OverflowRiskError
from bigsap.proof.exact import down, exact_sum, expansion, two_sum, up
from bigsap.proof.row_minima import Prices
from bigsap.types import Array

_LOW_BITS = np.uint64((1 << 27) - 1)


def weighted(values: Array, counts: Array) -> list[Array]:
    """Return vectors of float64 whose sum is exactly ``sum(values * counts)``.

    values: float64. counts: whole numbers from 0 to 2**31. A number is split into 26 and 27 bits, a
    count into 16 and 15, so that no product has more than 43 bits: none is rounded.
    """
    if not counts.size or counts.max() <= 1:
        return [np.where(counts > 0, values, 0.0)]
    high = (np.ascontiguousarray(values, np.float64).view(np.uint64) & ~_LOW_BITS).view(np.float64)
    low = values - high
    counts = counts.astype(np.int64)
    less, more = (counts & 0xFFFF).astype(np.float64), (counts >> 16 << 16).astype(np.float64)
    return [part * count for part in (high, low) for count in (less, more) if count.any()]


def exact_weighted_sum(values: Array, counts: Array) -> int:
    """Return ``sum(values * counts)`` of whole numbers."""
    return sum(int(v) * c for v, c in zip(values.tolist(), padded(counts, values.size).tolist(), strict=True))


def padded(counts: Array, size: int) -> Array:
    """Return counts with ones added for further prices."""
    return counts if counts.size == size else np.concatenate((counts, np.ones(size - counts.size, np.int64)))


def shifted_weighted(prices: Prices, counts: Array, n: int) -> Prices:
    """Shift prices so that those of columns with room left are 0, and none is above.

    counts: (m,) rows that each column may take. With as many places as rows the largest price
    becomes 0. Prices of columns that take none are capped at 0.
    """
    high, low = prices.high, prices.low
    open_columns = np.flatnonzero(counts > 0)
    if not open_columns.size:
        return Prices(np.minimum(high, 0))
    given = np.zeros(high.size) if low is None else low
    order = open_columns[np.lexsort((given[open_columns], high[open_columns]))]
    total = np.cumsum(counts[order])
    at = order[-1] if total[-1] <= n else order[np.searchsorted(total, max(n, 1))]
    if low is None:
        return Prices(np.minimum(high - high[at], 0))
    moved, rest = two_sum(high, -high[at])
    rest, _ = two_sum(rest, low - low[at])
    moved, rest = two_sum(moved, rest)
    above = moved + rest > 0
    return Prices(np.where(above, 0.0, moved), np.where(above, 0.0, rest))


def duals_total(dual: Array, low: Array | None, counts: Array | None) -> list[Any]:
    """Return the vectors whose sum is that of a dual, each number as often as ``counts`` says."""
    parts = [dual] if low is None else [dual, low]
    if counts is None:
        return list(parts)
    counts = padded(counts, dual.size)
    return [vector for part in parts for vector in weighted(part.astype(np.float64), counts)]


def closer(
    fun: float | None, bound: float, gap: float | None, changes: list[Array], duals: list[Array]
) -> tuple[float, float | None]:
    """Return bound and gap, minimising, after changes of duals: the better of two ways.

    The changes are added to the former bound and gap, which were rounded at the size of the former duals.
    Where that was much larger, the sum of the present duals is closer. changes: what was added to the
    duals. duals: all of them now, as often as they count; NaN where unknown.
    """
    better = down(expansion([bound], *changes))
    total = _total(duals)
    better = better if total is None else max(better, down(total))
    if gap is None or fun is None or not math.isfinite(gap):
        return better, gap
    half = math.ulp(fun) / 2  # fun was rounded, the gap was not: it is the exact cost less the exact bound
    gap = up(expansion([gap], *(-change for change in changes)))
    if total is not None:
        gap = min(gap, up(expansion([fun, half], [-x for x in total])))
    gap = max(0.0, gap)
    return max(better, down(expansion([fun, -half, -gap]))), gap


def exact_total(duals: list[Array]) -> Fraction:
    """Return the exact sum of duals, of integers or floats."""
    total = Fraction(0)
    for part in duals:
        floats = part.dtype.kind == "f"
        total += sum(map(Fraction, expansion(part)), Fraction(0)) if floats else int(exact_sum(part))
    return total


def _total(duals: list[Array]) -> list[float] | None:
    """Return the exact sum of duals; None if some are unknown, or the sum leaves float64."""
    if any(np.isnan(part).any() for part in duals):
        return None
    try:
        return expansion(*duals)
    except OverflowRiskError:
        return None
