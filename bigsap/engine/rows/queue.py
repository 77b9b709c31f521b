"""Front of a search: columns reached but not settled, one queue per slab.

A queue is a binary heap of columns, ordered by label and then by column, which stores the position
of each: a column whose label falls moves up, so a queue never holds more columns than its slab has.
Between searches no column is reached. A search records the columns it touches, so resetting costs
no more than the search.

Free columns are in no queue: only the best of a slab matters, and nothing beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import CodeScale, Front, Hint, State
from bigsap.types import Array

# Values of ``State.place``: in no queue, and settled.
OUTSIDE, SETTLED = -1, -2


class Slab(NamedTuple):
    """A thread's part of a search: its own record and the arrays it works on.

    It writes labels, predecessors, prices and the rest only in its own columns, ``start`` to
    ``stop - 1``; found, group_min, lows and runs belong to it. width: groups of LANES columns per
    stretch.
    """

    own: Front
    scale: CodeScale
    v: Array
    dist: Array
    pred: Array
    row_of_column: Array
    sieve: Array
    place: Array
    heap: Array
    touched: Array
    found: Array
    group_min: Array
    lows: Array
    runs: Array
    start: int
    stop: int
    width: int
    thread: int
    n_threads: int
    infinity: float


@kernel(forceinline=True)
def rounded_up(x: float) -> np.float32:
    """Return ``x`` rounded up to float32, and at least -3e38."""
    y = np.float64(x)
    z = y + abs(y) * 2.0**-22 + 1e-44
    return np.float32(z if z > -3e38 else -3e38)


@kernel
def clear_front(st: State, infinity: float) -> None:
    """Empty the front of all slabs, before a phase. O(m)."""
    for j in range(st.v.size):
        st.dist[j] = infinity
        st.place[j] = OUTSIDE
        st.sieve[j] = rounded_up(st.v[j])
    for thread in range(st.fronts.size):
        st.fronts[thread].skipped = 0
        st.lows[thread, :, :] = 0
        st.scales[thread].begun = 0


@kernel
def largest_price(v: Array, start: int, stop: int, zero: float) -> float:
    """Return the largest magnitude of the slab's prices."""
    reach = zero
    for j in range(start, stop):
        size = abs(v[j])
        reach = size if size > reach else reach
    return reach


@kernel(forceinline=True)
def rise(heap: Array, place: Array, dist: Array, start: int, k: int, column: int) -> None:
    """Insert a column into the queue at position ``k`` or above, by its label."""
    key = dist[column]
    while k > 0:
        parent = (k - 1) >> 1
        other = heap[start + parent]
        above = dist[other]
        if above < key or (above == key and other < column):
            break
        heap[start + k] = other
        place[other] = k
        k = parent
    heap[start + k] = column
    place[column] = k


@kernel(forceinline=True)
def pop(heap: Array, place: Array, dist: Array, start: int, size: int) -> int:
    """Remove the first of a queue of ``size`` columns; return the new size."""
    size -= 1
    column = heap[start + size]
    key = dist[column]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        other = heap[start + child]
        below = dist[other]
        if child + 1 < size:
            second = heap[start + child + 1]
            x = dist[second]
            if x < below or (x == below and second < other):
                child, other, below = child + 1, second, x
        if key < below or (key == below and column < other):
            break
        heap[start + k] = other
        place[other] = k
        k = child
    if size > 0:
        heap[start + k] = column
        place[column] = k
    return size


@kernel(forceinline=True)
def reach(slab: Slab, j: int, label: float, row: int) -> None:
    """Record that ``row`` reaches column ``j`` of the slab at ``label``, if that matters.

    It matters if the label is smaller than the column's own and than that of the best free
    column. A free column with the same label as the best also counts if it has a lower index.
    """
    own, dist, place = slab.own, slab.dist, slab.place
    old, limit = dist[j], own.known_free
    if not (label < old and label <= limit):
        return
    k = place[j]
    if k == SETTLED:
        return
    matched = slab.row_of_column[j] >= 0
    if not matched:
        best = own.free_label
        if not (label < best or (label == best and j < own.free_column)):
            return
        own.free_label = label
        own.known_free = label
        own.free_column = j
    elif label == limit:
        return
    dist[j] = label
    slab.pred[j] = row
    base = own.sieve_base
    if base < slab.infinity:
        below = label - base
        slab.sieve[j] = rounded_up(slab.v[j] + (below if below < 0 else 0))
    if old == slab.infinity:
        slab.touched[slab.start + own.touched] = j
        own.touched += 1
    if matched:
        if k == OUTSIDE:
            k = own.queued
            own.queued += 1
        rise(slab.heap, place, dist, slab.start, k, j)


@kernel(forceinline=True)
def set_sieve(slab: Slab, base: float) -> None:
    """Update the sieve of the touched columns of the slab to a new base, see ``sieve``."""
    slab.own.sieve_base = base
    for k in range(slab.start, slab.start + slab.own.touched):
        j = slab.touched[k]
        if slab.place[j] != SETTLED:
            below = slab.dist[j] - base
            slab.sieve[j] = rounded_up(slab.v[j] + (below if below < 0 else 0))


@kernel(forceinline=True)
def forget(slab: Slab) -> None:
    """Reset the slab's front after a search; the prices are already the new ones."""
    own = slab.own
    top = own.top_price
    for k in range(slab.start, slab.start + own.touched):
        j = slab.touched[k]
        x = slab.v[j]
        slab.dist[j] = slab.infinity
        slab.place[j] = OUTSIDE
        slab.sieve[j] = rounded_up(x)
        x = abs(x)
        top = x if x > top else top
    own.top_price = top
    own.queued = own.touched = 0


@kernel(forceinline=True)
def tell_next(slab: Slab, hint: Hint) -> None:
    """Publish the row this slab predicts to be scanned next: the next root if the search would end."""
    own = slab.own
    label, row, column = own.known_free, own.next_root, -1
    if own.queued > 0 and slab.dist[slab.heap[slab.start]] < label:
        column = slab.heap[slab.start]
        label, row = slab.dist[column], slab.row_of_column[column]
    hint.label, hint.row, hint.column = label, row, column


@kernel(forceinline=True)
def hear_next(hints: Array) -> tuple[int, int]:
    """Return the row that is probably scanned next and the column it is entered by, or -1.

    Other threads may be writing these values: use them only for prefetching.
    """
    best = hints[0]
    for k in range(1, hints.size):
        if hints[k].label < best.label:
            best = hints[k]
    return best.row, best.column
