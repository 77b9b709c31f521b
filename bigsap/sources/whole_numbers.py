"""Integers in float64: which of them it holds, and what is above a threshold, both exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bigsap.sources.base import Array

#: Integers up to this size are exact in float64.
EXACT = 2**53


def plain_number(value: float) -> int | float:
    """``value`` as a float where float64 holds it, else the Python integer that it is."""
    if not isinstance(value, (int, np.integer)):
        return float(value)
    whole = int(value)
    try:
        rounded = float(whole)
    except OverflowError:
        return whole
    return rounded if rounded == whole else whole


def is_whole(number: float) -> bool:
    """Whether a finite number is an integer."""
    return isinstance(number, int) or number.is_integer()


def as_floats(values: Array) -> tuple[Array, Array | None]:
    """The values as float64, and where integers had to be rounded; None: nowhere."""
    floats = values.astype(np.float64, copy=False)
    if values.dtype.itemsize < 8 or values.dtype.kind not in "iu" or not _beyond(values):
        return floats, None
    return floats, _odd_part(values) > EXACT


def integer_sum(blocks: Sequence[Array]) -> tuple[Array, Array | None]:
    """The sum of integer arrays as float64, and where that had to be rounded.

    The sums are exact in between: halves of 32 bits, of up to 2**31 blocks.
    """
    if not any(_beyond(block, EXACT // len(blocks)) for block in blocks):
        total = blocks[0].astype(np.float64)
        for block in blocks[1:]:
            total += block
        return total, None
    high, low = (np.zeros(blocks[0].shape, np.int64) for _ in range(2))
    for block in blocks:
        values = block.astype(np.int64, copy=False)
        high += values >> 32
        low += values & 0xFFFFFFFF
    high += low >> 32
    low &= 0xFFFFFFFF
    upper, lower = high.astype(np.float64) * 2.0**32, low.astype(np.float64)
    total = upper + lower
    return total, rounded_sum(upper, lower, total)


def rounded_sum(a: Array, b: Array, total: Array) -> Array:
    """Where the float64 ``total`` is not a + b exactly (TwoSum); never where one is infinite."""
    with np.errstate(invalid="ignore", over="ignore"):
        part = total - a
        error = (a - (total - part)) + (b - part)
    return np.isfinite(error) & (error != 0)


def rounded_product(values: Array, factor: float) -> Array | None:
    """Where the product of whole numbers, float64 or integers, and a whole factor has more bits
    than float64 holds; None: nowhere."""
    size = abs(int(factor))
    if size == 0 or not _beyond(values, EXACT // size):
        return None
    odd = size // (size & -size)
    found: Array = _odd_part(values) > EXACT // odd
    return found


def above(values: Array, limit: float) -> Array:
    """Where costs are above a finite limit, compared as real numbers."""
    found: Array
    if values.dtype.kind in "iu":
        range_of, whole = np.iinfo(values.dtype), math.floor(limit)
        if not range_of.min <= whole <= range_of.max:
            return np.full(values.shape, whole < range_of.min)
        found = values > whole
        return found
    if isinstance(limit, int):
        # A float is above the limit where it is above the next float below it.
        try:
            near = float(limit)
        except OverflowError:
            return np.full(values.shape, limit < 0)
        limit = near if near <= limit else math.nextafter(near, -math.inf)
    found = values > limit
    return found


def _beyond(values: Array, size: int = EXACT) -> bool:
    """Whether one of them is larger than ``size``; infinite ones count."""
    if values.dtype.kind in "iu" and np.iinfo(values.dtype).max <= size:
        return False
    return bool((values > size).any() or (values < -size).any())


def _odd_part(values: Array) -> Array:
    """Whole numbers without their factors of two, in size, int64; 0 for 0 and infinities."""
    if values.dtype.kind == "f":
        mantissa, _ = np.frexp(np.where(np.isfinite(values), values, 0.0))
        values = (np.abs(mantissa) * float(EXACT)).astype(np.int64)
    values = values.astype(np.int64, copy=False)
    twos = values & -values  # -2**63 keeps itself
    return np.abs(values // np.where(twos == 0, 1, twos))


def rounded_among(values: object, array: Array) -> int | None:
    """The first integer of nested lists that the array made of them holds rounded, if one is."""
    if array.dtype.kind != "f":
        return None
    if isinstance(values, list):
        found = (rounded_among(value, array) for value in values)
        return next((value for value in found if value is not None), None)
    if isinstance(values, int) and not isinstance(plain_number(values), float):
        return values
    return None
