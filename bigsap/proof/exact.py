"""Exact arithmetic on float64: sums of two and three numbers, and of whole vectors.

``two_sum`` is Knuth's error-free sum, ``accumulate`` the growing expansion of Shewchuk (1997). An
*expansion* is a list of floats whose exact sum is the represented number. Additions of floats never
underflow, so the results hold for denormal numbers too; sums beyond float64 are an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.errors import OverflowRiskError
from bigsap.types import Array

#: Room for the terms of an expansion. A compact one has at most 42 (2,098 bits of
#: float64, 53 a term); during additions, many terms may have few bits.
_TERMS = 64
_BEYOND = "the sum of the costs leaves float64"
#: Shorter sums are computed by Python.
_FEW = 256


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return ``a + b`` rounded, and the rounding error; their sum is exact."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def three_sum(a: Any, b: Any, c: Any) -> tuple[Array, Array, Array]:
    """Return ``a + b + c`` exactly, as three floats, each the remainder rounded to nearest.

    So the order of two sums is the lexicographic order of their parts.
    """
    high, rest = two_sum(a, b)
    mid, low = two_sum(rest, c)
    high, mid = two_sum(high, mid)
    mid, low = two_sum(mid, low)
    high, mid = two_sum(high, mid)
    mid, low = two_sum(mid, low)
    # Halfway between two floats: the third part decides.
    doubled = mid + mid
    above = high + doubled
    wrong = (low != 0) & ((mid < 0) == (low < 0)) & (above - high == doubled) & (mid != 0)
    high = np.where(wrong, above, high)
    mid = np.where(wrong, -mid, mid)
    mid, low = two_sum(mid, low)
    return high, mid, low


@kernel
def compact(partials: Array, count: int) -> int:
    """Compress the sum to as few floats as possible (Shewchuk 1997, "compress"); return their number."""
    at = count - 1
    x = partials[at]
    for k in range(count - 2, -1, -1):
        high = x + partials[k]
        part = high - x
        low = (x - (high - part)) + (partials[k] - part)
        x = high
        if low != 0.0:
            partials[at] = high
            at -= 1
            x = low
    partials[at] = x
    kept = 0
    for k in range(at + 1, count):
        high = partials[k] + x
        low = x - (high - partials[k])
        if low != 0.0:
            partials[kept] = low
            kept += 1
        x = high
    partials[kept] = x
    return kept + 1


@kernel
def add(partials: Array, count: int, x: float) -> int:
    """Add a number to a sum; return the new count of its parts, at most one more.

    The sum is stored as ``count`` floats without common digits, largest last.
    """
    kept = 0
    for k in range(count):
        y = partials[k]
        if abs(x) < abs(y):
            x, y = y, x
        high = x + y
        low = y - (high - x)
        if low != 0.0:
            partials[kept] = low
            kept += 1
        x = high
    partials[kept] = x
    return kept + 1


@kernel
def accumulate(partials: Array, count: int, values: Array) -> int:
    """Add values to a sum, see ``add``; NaN if a value or the sum is not finite."""
    for i in range(values.size):
        if values[i] == 0.0:
            continue
        if count + 1 >= partials.size:
            count = compact(partials, count)
            if count + 1 >= partials.size:  # not finite
                partials[0] = np.nan
                return 1
        count = add(partials, count, values[i])
    return count


def expansion(*vectors: Array | Iterable[float]) -> list[float]:
    """Return the exact sum of all numbers of float64 vectors, as an expansion of few terms.

    Raises OverflowRiskError when a sum leaves float64. O(size).
    """
    partials = np.zeros(_TERMS)
    count = 0
    for vector in vectors:
        values = np.ascontiguousarray(vector if isinstance(vector, np.ndarray) else list(vector), np.float64)
        if values.size <= _FEW:
            found = [*partials[:count].tolist(), *values.ravel().tolist()]
            partials[:] = 0.0
            few = _few(found)
            count = len(few)
            partials[:count] = few
        else:
            count = accumulate(partials, count, values.ravel())
        if not np.isfinite(partials[:count]).all():
            raise OverflowRiskError(_BEYOND)
    return [x for x in partials[:count].tolist() if x]


def _few(values: list[float]) -> list[float]:
    """Return the expansion of a short list, smallest term first."""
    found: list[float] = []
    while True:
        term = _sum([*values, *(-x for x in found)])
        if term == 0.0:
            return found[::-1]
        found.append(term)


def exact_sum(a: Array) -> Any:
    """Return the exact sum: an int for integers, the correctly rounded sum for floats."""
    if a.dtype == object:
        return sum(a.tolist())
    if a.dtype.kind == "i":
        # In halves: the sum of n int64 numbers may exceed int64.
        return (int((a >> 32).sum()) << 32) + int((a & 0xFFFFFFFF).sum())
    return nearest(expansion(a))


def nearest(terms: list[float]) -> float:
    """Return the float nearest to an expansion's sum, ties to even."""
    return _sum(terms)


def down(terms: list[float]) -> float:
    """Return the largest float that is not above an expansion's sum.

    Raises OverflowRiskError when the sum is below all floats.
    """
    total = _sum(terms)
    if _sum([*terms, -total]) < 0:
        total = math.nextafter(total, -math.inf)
        if math.isinf(total):
            raise OverflowRiskError(_BEYOND)
    return total


def up(terms: list[float]) -> float:
    """Return the smallest float that is not below an expansion's sum. Raises as ``down``."""
    return -down([-x for x in terms])


def ceiling(terms: list[float]) -> int:
    """Return the least integer that is not below an expansion's sum."""
    return math.ceil(sum(map(Fraction, terms), Fraction(0)))


def _sum(values: list[float]) -> float:
    try:
        total = math.fsum(values)
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise OverflowRiskError(_BEYOND)
    return total
