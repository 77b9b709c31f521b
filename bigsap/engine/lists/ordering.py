"""Orders that keep nearby points close together: the leaves of a k-d tree in sequence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.sources.convert import read_only
from bigsap.types import Array

#: Points per leaf. Every aligned range of LEAF * 2**k consecutive points is a node of the tree.
LEAF = 4
#: Numbers processed between two polls.
_SLICE = 1 << 24


def compact_order(points: Array, look: Callable[[], None] | None = None) -> Array:
    """Order points so that aligned ranges of them fill small boxes.

    points: float64 (n, d), finite. Splits the points along their widest extent until LEAF are
    left. The left part always has LEAF * 2**k of them, so that a range of that length at a
    multiple of its length is one node. Deterministic. Compared with the Morton curve, whose
    ranges jump, this halved the pairs that bounded evaluations open.
    look: called about every tenth of a second; its exceptions pass through.
    Returns intp (n,). O(n d log n).
    """
    points = np.ascontiguousarray(points, np.float64)
    n, d = points.shape
    order = np.arange(n, dtype=np.intp)
    if n > LEAF and d:
        # At most one right part per level waits on the stack.
        stack, key = np.empty(128, np.intp), np.empty(n)
        stack[:2], n_stack = (0, n), 2
        while n_stack := _part(read_only(points), order, key, stack, n_stack, _SLICE):
            if look is not None:
                look()
    return order


@kernel(nrt=True)
def _part(points: Array, order: Array, key: Array, stack: Array, n_stack: int, budget: int) -> int:
    """Split the ranges on the stack, two entries each, within a budget of numbers.

    Returns the number of entries left on the stack.
    """
    d = points.shape[1]
    while n_stack > 0:
        n_stack -= 2
        low, high = stack[n_stack], stack[n_stack + 1]
        while high - low > LEAF:
            if budget <= 0:
                stack[n_stack], stack[n_stack + 1] = low, high
                return n_stack + 2
            budget -= (high - low) * (d + 4)
            axis, widest = 0, -1.0
            for a in range(d):
                least = most = points[order[low], a]
                for k in range(low + 1, high):
                    value = points[order[k], a]
                    least = min(least, value)
                    most = max(most, value)
                if most - least > widest:
                    axis, widest = a, most - least
            left = LEAF
            while 2 * left < high - low:
                left *= 2
            split = low + left
            for k in range(low, high):
                key[k] = points[order[k], axis]
            _select(key, order, low, high - 1, split)
            stack[n_stack], stack[n_stack + 1] = split, high
            n_stack += 2
            high = split
    return 0


@kernel(nrt=True)
def _select(key: Array, order: Array, low: int, high: int, place: int) -> None:
    """Partition low to high around ``place`` (Hoare's selection)."""
    while low < high:
        # The median of three handles sorted keys; swapping equal keys halves runs.
        middle = (low + high) // 2
        a, b, c = key[low], key[middle], key[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while key[i] < pivot:
                i += 1
            while key[j] > pivot:
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            return
