"""The front of a search: what it has reached and not settled, a queue for each slab.

A queue is a binary heap of columns, ordered by label and then by column, that knows the
place of each: a column whose label falls moves up, so that a queue never holds more than its
slab has columns. Between searches no column is reached; a search notes what it touches,
and forgetting that costs as little as it touched.

Free columns are in no queue: of a slab's only the best matters, and nothing beyond it.
"""

from __future__ import annotations

import numpy as np

from bigsap.engine.core.state import RECORD, State
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array

# In ``State.place``: in no queue, and settled.
OUTSIDE, SETTLED = -1, -2

# Words of a slab's front (``State.front_id``) and its values (``State.front``).
QUEUED, TOUCHED, FREE_COLUMN, SKIPPED = 0, 1, 2, 3
FREE_LABEL, KNOWN_FREE, BASE, FALL = 0, 1, 2, 3


@kernel(forceinline=True)
def rounded_up(x: float) -> np.float32:
    """``x`` as float32 from above; no smaller than -3e38, also where x is."""
    y = np.float64(x)
    z = y + abs(y) * 2.0**-22 + 1e-44
    return np.float32(z if z > -3e38 else -3e38)


@kernel
def clear_front(st: State, infinity: float) -> None:
    """Make the front of all slabs empty, before a phase: O(m)."""
    for j in range(st.v.size):
        st.dist[j] = infinity
        st.place[j] = OUTSIDE
        st.sieve[j] = rounded_up(st.v[j])
    for thread in range(st.front.shape[0]):
        st.front_id[thread, :] = 0
        st.lows[thread, :, :] = 0
        st.scale[thread, :] = 0
        st.front[thread, :] = infinity


@kernel
def largest_price(v: Array, start: int, stop: int, zero: float) -> float:
    """The largest magnitude of the slab's prices."""
    reach = zero
    for j in range(start, stop):
        size = abs(v[j])
        reach = size if size > reach else reach
    return reach


@kernel(forceinline=True)
def rise(heap: Array, place: Array, dist: Array, start: int, k: int, column: int) -> None:
    """Put a column at its place, no lower in the queue than ``k``."""
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
    """Drop the first of a queue of ``size`` columns; the new size."""
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
def reach(
    j: int, label: float, row: int, base: float, v: Array, dist: Array, pred: Array,
    sieve: Array, row_of_column: Array, place: Array, heap: Array, touched: Array, start: int,
    front: Array, words: Array, infinity: float,
) -> None:  # fmt: skip
    """Column ``j`` of the slab is reached at ``label`` from ``row``: note it where it matters.

    It does where the label is smaller than the column's own and than that of the best free
    column. A free column also counts at that same label, if it comes before the slab's best.
    base: of the sieve, which is not kept where that is infinite.
    """
    old, limit = dist[j], front[KNOWN_FREE]
    if not (label < old and label <= limit):
        return
    k = place[j]
    if k == SETTLED:
        return
    if row_of_column[j] < 0:
        best = front[FREE_LABEL]
        if not (label < best or (label == best and j < words[FREE_COLUMN])):
            return
        front[FREE_LABEL] = label
        front[KNOWN_FREE] = label
        words[FREE_COLUMN] = j
    elif label == limit:
        return
    dist[j] = label
    pred[j] = row
    if base < infinity:
        below = label - base
        sieve[j] = rounded_up(v[j] + (below if below < 0 else 0))
    if old == infinity:
        touched[start + words[TOUCHED]] = j
        words[TOUCHED] += 1
    if row_of_column[j] >= 0:
        if k == OUTSIDE:
            k = words[QUEUED]
            words[QUEUED] += 1
        rise(heap, place, dist, start, k, j)


@kernel(forceinline=True)
def set_sieve(
    base: float, v: Array, dist: Array, sieve: Array, place: Array, touched: Array, start: int,
    n_touched: int,
) -> None:  # fmt: skip
    """The sieve of what the slab has touched, against a new base: see ``sift``."""
    for k in range(start, start + n_touched):
        j = touched[k]
        if place[j] != SETTLED:
            below = dist[j] - base
            sieve[j] = rounded_up(v[j] + (below if below < 0 else 0))


@kernel(forceinline=True)
def forget(
    v: Array, dist: Array, sieve: Array, place: Array, touched: Array, start: int,
    n_touched: int, top: float, infinity: float,
) -> float:  # fmt: skip
    """Empty the slab's front after a search, the prices being the new ones.

    top: the largest magnitude of the slab's prices before; returns that after.
    """
    for k in range(start, start + n_touched):
        j = touched[k]
        x = v[j]
        dist[j] = infinity
        place[j] = OUTSIDE
        sieve[j] = rounded_up(x)
        x = abs(x)
        top = x if x > top else top
    return top


@kernel(forceinline=True)
def tell_next(
    thread: int, n_threads: int, next_root: int, dist: Array, row_of_column: Array, heap: Array,
    start: int, front: Array, words: Array, hint: Array,
) -> None:  # fmt: skip
    """Say which row would be scanned next, as far as this slab knows: ``next_root`` where the
    search would end.

    hint: the records, behind which each thread has a line for it: label, row and, but for a
    root, the column by which the row would be entered.
    """
    label, row, column = front[KNOWN_FREE], next_root, -1
    if words[QUEUED] > 0 and dist[heap[start]] < label:
        column = heap[start]
        label, row = dist[column], row_of_column[column]
    here = (2 * n_threads + thread) * RECORD
    hint[here] = label
    hint[here + 1] = row
    hint[here + 2] = column


@kernel(forceinline=True)
def hear_next(n_threads: int, hint: Array) -> tuple[int, int]:
    """The row that will probably be scanned next and the column it is entered by, or -1.

    Other threads may be writing what is read here: it decides only what is prefetched.
    """
    here = 2 * n_threads * RECORD
    best = here
    for k in range(1, n_threads):
        if hint[here + k * RECORD] < hint[best]:
            best = here + k * RECORD
    return int(hint[best + 1]), int(hint[best + 2])
