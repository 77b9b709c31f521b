"""Orders in which near points are near: the leaves of a k-d tree, one after the other."""

from __future__ import annotations

import numpy as np

from bigsap.native.kernel import kernel
from bigsap.sources.base import Array
from bigsap.sources.convert import read_only

#: Points of a leaf. Every aligned stretch of LEAF * 2**k consecutive points is a node of the tree.
LEAF = 4


def compact_order(points: Array) -> Array:
    """Order points so that aligned stretches of them fill small boxes.

    points: float64 (n, d), finite. Parts the points along their widest extent until LEAF are
    left; the left part always has LEAF * 2**k of them, so that a stretch of so many that
    begins at a multiple of its length is one node. Deterministic. Against the Morton curve,
    whose stretches jump, this halved the pairs that bounded evaluations open.
    Returns intp (n,). O(n d log n).
    """
    points = np.ascontiguousarray(points, np.float64)
    n, d = points.shape
    order = np.arange(n, dtype=np.intp)
    if n > LEAF and d:
        # From all points to a leaf the right parts that wait are at most one a level.
        _part(read_only(points), order, np.empty(n), np.empty(128, np.intp))
    return order


@kernel(nrt=True)
def _part(points: Array, order: Array, key: Array, stack: Array) -> None:
    n, d = points.shape
    stack[0], stack[1] = 0, n
    n_stack = 2
    while n_stack > 0:
        n_stack -= 2
        low, high = stack[n_stack], stack[n_stack + 1]
        while high - low > LEAF:
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


@kernel(nrt=True)
def _select(key: Array, order: Array, low: int, high: int, place: int) -> None:
    """Hoare's selection: what belongs before ``place`` among low to high comes to lie there."""
    while low < high:
        # The median of three against sorted keys; equal keys are swapped, which halves runs.
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
