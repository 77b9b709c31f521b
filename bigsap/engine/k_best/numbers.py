"""Integers of up to 118 bits as two int64 limbs: ``high * 2**60 + low`` with ``0 <= low < 2**60``.

Costs that fit one limb have low parts of 0. ``high`` must stay below ``LIMIT`` in size; who adds up
many numbers checks that.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel

#: Bits of the low limb, and the mask of these.
BITS = 60
MASK = (1 << BITS) - 1
#: The limit of high limbs; sums of four numbers stay within int64.
LIMIT = 1 << 60


@kernel(forceinline=True)
def plus(a: int, a_low: int, b: int, b_low: int) -> tuple[int, int]:
    """Return the sum of two numbers."""
    low = a_low + b_low
    return a + b + (low >> BITS), low & MASK


@kernel(forceinline=True)
def minus(a: int, a_low: int, b: int, b_low: int) -> tuple[int, int]:
    """Return the difference of two numbers."""
    low = a_low - b_low
    return a - b + (low >> BITS), low & MASK


@kernel(forceinline=True)
def less(a: int, a_low: int, b: int, b_low: int) -> bool:
    """Return whether the first number is smaller."""
    return a < b or (a == b and a_low < b_low)
