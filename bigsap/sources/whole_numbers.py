"""Integers in float64: exact tests of representability and of thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bigsap.types import Array

#: Integers up to this size are exact in float64.
EXACT = 2**53


def plain_number(value: float) -> int | float:
    """Return ``value`` as a float if float64 holds it, else as a Python integer."""
    if not isinstance(value, (int, np.integer)):
        return float(value)
    whole = int(value)
    try:
        rounded = float(whole)
    except OverflowError:
        return whole
    return rounded if rounded == whole else whole


def is_whole(number: float) -> bool:
    """Return whether a finite number is an integer."""
    return isinstance(number, int) or number.is_integer()


def as_floats(values: Array) -> tuple[Array, Array | None]:
    """Return the values as float64, and where integers were rounded; None: nowhere."""
    floats = values.astype(np.float64, copy=False)
    if values.dtype.itemsize < 8 or values.dtype.kind not in "iu" or not _beyond(values):
        return floats, None
    return floats, _odd_part(values) > EXACT


def integer_sum(blocks: Sequence[Array]) -> tuple[Array, Array | None]:
    """Return the sum of integer arrays as float64, and where it was rounded.

    The intermediate sums are exact: halves of 32 bits, of up to 2**31 blocks.
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
    """Return where the float64 ``total`` is not a + b exactly (TwoSum); never for infinities."""
    with np.errstate(invalid="ignore", over="ignore"):
        part = total - a
        error = (a - (total - part)) + (b - part)
    return np.isfinite(error) & (error != 0)


def rounded_product(values: Array, factor: float) -> Array | None:
    """Return where a product of whole numbers and a whole factor does not fit float64; None: nowhere.

    values: float64 or integers.
    """
    size = abs(int(factor))
    if size == 0 or not _beyond(values, EXACT // size):
        return None
    odd = size // (size & -size)
    found: Array = _odd_part(values) > EXACT // odd
    return found


def above(values: Array, limit: float) -> Array:
    """Return where costs are above a finite limit, compared as real numbers."""
    found: Array
    if values.dtype.kind in "iu":
        range_of, whole = np.iinfo(values.dtype), math.floor(limit)
        if not range_of.min <= whole <= range_of.max:
            return np.full(values.shape, whole < range_of.min)
        found = values > whole
        return found
    if isinstance(limit, int):
        # A float is above the limit if it is above the next float below the limit.
        try:
            near = float(limit)
        except OverflowError:
            return np.full(values.shape, limit < 0)
        limit = near if near <= limit else math.nextafter(near, -math.inf)
    found = values > limit
    return found


def _beyond(values: Array, size: int = EXACT) -> bool:
    """Return whether one of the values is larger than ``size``; infinite ones count."""
    if values.dtype.kind in "iu" and np.iinfo(values.dtype).max <= size:
        return False
    return bool((values > size).any() or (values < -size).any())


def _odd_part(values: Array) -> Array:
    """Return absolute whole numbers without their factors of two; 0 for 0 and infinities."""
    if values.dtype.kind == "f":
        mantissa, _ = np.frexp(np.where(np.isfinite(values), values, 0.0))
        values = (np.abs(mantissa) * float(EXACT)).astype(np.int64)
    values = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64, copy=False)
    twos = values & -values  # -2**63 stays itself; unsigned numbers wrap
    return np.abs(values // np.where(twos == 0, 1, twos))


def rounded_among(values: object, array: Array) -> int | None:
    """Return the first integer that was rounded in an array made of these values; None if none was.

    values: nested lists, tuples and arrays; or an iterator of such, not read unless it may matter.
    """
    # 2**53 may be 2**53 + 1, rounded.
    return _rounded(values) if array.dtype == np.float64 and _beyond(array, EXACT - 1) else None


def _rounded(values: object) -> int | None:
    if hasattr(values, "__array__"):  # an array, a column, a number of numpy
        array = np.asarray(values)
        values = array.tolist() if array.dtype.kind in "iu" else None
    if isinstance(values, (list, tuple, Iterator)):
        return next((value for value in map(_rounded, values) if value is not None), None)
    if isinstance(values, int) and not isinstance(plain_number(values), float):
        return values
    return None
