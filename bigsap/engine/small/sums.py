"""Sums of floats, see ``proof.exact.add``, that are rounded once, like ``math.fsum``."""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.proof.exact import add
from bigsap.types import Array


@kernel
def rounded(partials: Array, count: int) -> float:
    """Return the float nearest to such a sum of ``count`` parts, ties to even."""
    if count == 0:
        return 0.0
    k = count - 1
    high, low = partials[k], 0.0
    while k > 0:
        k -= 1
        x, y = high, partials[k]
        high = x + y
        low = y - (high - x)
        if low != 0.0:
            break
    # Halfway between two floats: the remaining digits decide.
    if k > 0 and ((low < 0.0) == (partials[k - 1] < 0.0)) and low != 0.0:
        y = low * 2.0
        x = high + y
        if x - high == y:
            high = x
    return high


@kernel
def rounded_to(partials: Array, count: int, side: float) -> tuple[float, int]:
    """Return such a sum rounded down (side -1.0) or up (1.0), and its new count of numbers."""
    total = rounded(partials, count)
    count = add(partials, count, -total)
    left = 0.0
    for k in range(count - 1, -1, -1):
        if partials[k] != 0.0:
            left = partials[k]
            break
    count = add(partials, count, total)
    if left * side > 0.0:
        total = np.nextafter(total, side * np.inf)
    return total, count
