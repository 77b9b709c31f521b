"""Boxes of columns: a balanced k-d tree with majorants of the prices.

Nodes are numbered as in a heap: the children of k are 2k + 1 and 2k + 2. Each holds a
range of the columns in the tree's order; their bounding box, whose ends are coordinates of
columns (nothing is rounded); their largest price; and an affine majorant of the prices,
``v[j] <= offset + slope . (y[j] - centre)``, valid for any slope: least squares choose it,
``offset`` is the largest residual plus a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.types import Array

#: Limit of columns in a leaf.
LEAF = 16
# Limit of columns to which a slope is fitted.
_FITTED = 256


class Tree(NamedTuple):
    """The tree's arrays.

    first, last: int64 (nodes,), ranges of columns. low, high, centre, slope: (nodes, d).
    top, offset: (nodes,). leaves: their number, a power of two; they are the last nodes.
    """

    first: Array
    last: Array
    low: Array
    high: Array
    centre: Array
    slope: Array
    top: Array
    offset: Array
    leaves: int


def planted(y: Array, weight: Array, look: Callable[[], None]) -> tuple[Array, Array, Array, int]:
    """Return the order of the columns (m,), the range of each node, and the number of leaves. O(m log m).

    y: (m, d); weight: (d,), scale factors that make widths of different coordinates comparable.
    look: called after each level of the tree; its exceptions end the work.
    """
    leaves = 1
    while leaves * LEAF < y.shape[0]:
        leaves *= 2
    order = np.arange(y.shape[0])
    first, last = np.zeros((2, 2 * leaves - 1), np.int64)
    last[0] = y.shape[0]
    for level in range(leaves.bit_length() - 1):
        _split(y, weight, order, first, last, (1 << level) - 1, (2 << level) - 1)
        look()
    return order, first, last, leaves


def grown(y: Array, v: Array, first: Array, last: Array, leaves: int, look: Callable[[], None]) -> Tree:
    """Compute boxes and majorants. y: (m, d), v: (m,), both in the tree's order. O(m d log m).

    look: see ``planted``.
    """
    shape = (first.size, y.shape[1])
    low, high, centre, slope = (np.zeros(shape) for _ in range(4))
    top, offset = np.zeros(first.size), np.zeros(first.size)
    tree = Tree(first, last, low, high, centre, slope, top, offset, leaves)
    for level in range(leaves.bit_length()):
        _fit(y, v, tree, (1 << level) - 1, (2 << level) - 1)
        look()
    return tree


@kernel(nrt=True)
def _split(y: Array, weight: Array, order: Array, first: Array, last: Array, begin: int, end: int) -> None:
    m, d = y.shape
    key = np.empty(m)
    for node in range(begin, end):
        start, stop = first[node], last[node]
        middle = (start + stop) // 2
        axis, widest = 0, -1.0
        for k in range(d):
            low = high = y[order[start], k]
            for i in range(start, stop):
                at = y[order[i], k]
                low = at if at < low else low
                high = at if at > high else high
            if weight[k] * (high - low) > widest:
                axis, widest = k, weight[k] * (high - low)
        for i in range(start, stop):
            key[i] = y[order[i], axis]
        _select(key, order, start, stop - 1, middle)
        first[2 * node + 1], last[2 * node + 1] = start, middle
        first[2 * node + 2], last[2 * node + 2] = middle, stop


@kernel(nrt=True)
def _select(key: Array, order: Array, left: int, right: int, wanted: int) -> None:
    """Partition so that key[wanted] is in its sorted position (Hoare's selection)."""
    state = np.uint64(88172645463325252)
    while left < right:
        # A random pivot, so that no order of the points is a worst case.
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        pivot = key[left + np.int64(state % np.uint64(right - left + 1))]
        i, j = left, right
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
        if wanted <= j:
            right = j
        elif wanted >= i:
            left = i
        else:
            return


@kernel(nrt=True)
def _fit(y: Array, v: Array, t: Tree, begin: int, end: int) -> None:
    d = y.shape[1]
    normal, right, mean = np.empty((d, d)), np.empty(d), np.empty(d)
    for node in range(begin, end):
        start, stop = t.first[node], t.last[node]
        low, high, centre, slope = t.low[node], t.high[node], t.centre[node], t.slope[node]
        top = v[start]
        for k in range(d):
            low[k] = high[k] = y[start, k]
        for j in range(start, stop):
            top = v[j] if v[j] > top else top
            for k in range(d):
                low[k] = y[j, k] if y[j, k] < low[k] else low[k]
                high[k] = y[j, k] if y[j, k] > high[k] else high[k]
        t.top[node] = top
        for k in range(d):
            centre[k] = 0.5 * low[k] + 0.5 * high[k]
        _slope(y, v, start, stop, centre, normal, right, mean, slope)
        largest, size = -np.inf, 0.0
        for j in range(start, stop):
            rest, parts = v[j], abs(v[j])
            for k in range(d):
                part = slope[k] * (y[j, k] - centre[k])
                rest -= part
                parts += abs(part)
            largest = rest if rest > largest else largest
            size = parts if parts > size else size
        # A residual is a sum of d + 1 terms of at most two roundings each. Its error is less than
        # (d + 4) units of the sum of their magnitudes, in any order of summation; more than twice
        # that is added. The errors of underflowing products are less than 1e-300 in total.
        t.offset[node] = largest + (4 * d + 32) * 2.0**-53 * size + 1e-300


@kernel(nrt=True)
def _slope(
    y: Array,
    v: Array,
    start: int,
    stop: int,
    centre: Array,
    normal: Array,
    right: Array,
    mean: Array,
    slope: Array,
) -> None:
    """Fit by least squares with a ridge. Any slope is valid: no bound depends on its accuracy."""
    d = y.shape[1]
    step = 1 + (stop - start - 1) // _FITTED
    count, price = 0, 0.0
    mean[:] = 0.0
    for j in range(start, stop, step):
        count += 1
        price += v[j]
        for k in range(d):
            mean[k] += y[j, k] - centre[k]
    price /= count
    for k in range(d):
        mean[k] = centre[k] + mean[k] / count
        slope[k] = 0.0
    normal[:] = 0.0
    right[:] = 0.0
    for j in range(start, stop, step):
        for a in range(d):
            at = y[j, a] - mean[a]
            right[a] += at * (v[j] - price)
            for b in range(a + 1):
                normal[a, b] += at * (y[j, b] - mean[b])
    ridge = 0.0
    for a in range(d):
        ridge += normal[a, a]
        for b in range(a):
            normal[b, a] = normal[a, b]
    if not (1e-280 < ridge < 1e280):
        return
    for a in range(d):
        normal[a, a] += 1e-9 * ridge
    for a in range(d):
        for b in range(a + 1, d):
            factor = normal[b, a] / normal[a, a]
            for c in range(a, d):
                normal[b, c] -= factor * normal[a, c]
            right[b] -= factor * right[a]
    for a in range(d - 1, -1, -1):
        total = right[a]
        for c in range(a + 1, d):
            total -= normal[a, c] * slope[c]
        slope[a] = total / normal[a, a]
    for a in range(d):
        if not abs(slope[a]) < 1e150:
            slope[:] = 0.0
            return
