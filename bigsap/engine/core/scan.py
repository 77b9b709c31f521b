"""Scan of a thread's slab of one row: relax, find the minimum, locate it.

The running minimum is kept over LANES independent lanes and folded once per BLOCK. Comparisons
with `<` then vectorise without fast-math flags, which would assume that there are no NaN or
infinities. Labels follow algorithm 3 of A1015, associated as
``(c[i,j] - c[i,s]) - (v[j] - v[s]) + label`` so that like quantities cancel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import prefetch
from bigsap.engine.core.state import BLOCK, LANES, Walk
from bigsap.types import Array

#: Returned instead of a column if a second pass over the same costs does not find a value again:
#: the costs have changed in between.
NOWHERE = 1 << 40

# The order of rows is unpredictable for the hardware, and its prefetchers restart at every
# page of a row. Prefetching costs this many bytes ahead, a cache line at a time, doubled the
# speed of scanning a matrix out of cache (2 KiB and 8 KiB were slower).
AHEAD = 4096
LINE = 64


class Part(NamedTuple):
    """A thread's part of a search in an unbalanced problem.

    Its own record, the arrays restricted to columns ``start`` to ``stop - 1``, and its workspace
    for minima.
    """

    own: Walk
    v: Array
    dist: Array
    pred: Array
    row_of_column: Array
    lanes: Array
    block_min: Array
    start: int
    stop: int
    thread: int
    n_threads: int
    infinity: float


@kernel
def fold(lanes: Array, infinity: float) -> float:
    """Return the minimum over LANES lanes; reset them to ``infinity``."""
    width = LANES // 2
    while width >= 8:
        for k in range(width):
            a, b = lanes[k], lanes[k + width]
            lanes[k] = b if b < a else a
        width //= 2
    best = lanes[0]
    for k in range(1, 8):
        x = lanes[k]
        best = x if x < best else best
    for k in range(LANES):
        lanes[k] = infinity
    return best


@kernel
def relax_root(part: Part, cost: Array, sign: float, reference: float) -> float:
    """Start a search: ``dist = (sign * cost - reference) - v``, every predecessor the root.

    Returns the slab's minimum and leaves each block's in ``block_min``.
    """
    v, dist, pred, lanes, block_min = part.v, part.dist, part.pred, part.lanes, part.block_min
    start, stop, infinity, row = part.start, part.stop, part.infinity, part.own.row
    best = infinity
    tag = np.int32(row)  # a wider integer would halve the width of the vectors
    for k in range(LANES):
        lanes[k] = infinity
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        e = min(o + BLOCK, stop)
        full = (e - o) // LANES
        for b in range(full):
            p = o + b * LANES
            for line in range(cost.itemsize * LANES // LINE):
                prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
            c, w = cost[p : p + LANES], v[p : p + LANES]
            d, q = dist[p : p + LANES], pred[p : p + LANES]
            for k in range(LANES):
                g = (sign * c[k] - reference) - w[k]
                d[k] = g
                q[k] = tag
                a = lanes[k]
                lanes[k] = g if g < a else a
        for j in range(o + full * LANES, e):
            g = (sign * cost[j] - reference) - v[j]
            dist[j] = g
            pred[j] = row
            lanes[0] = min(lanes[0], g)
        low = fold(lanes, infinity)
        block_min[block] = low
        best = low if low < best else best
    return best


@kernel
def relax_row(part: Part, cost: Array, sign: float, entry_cost: float) -> float:
    """Relax one matched row, entered at ``label`` by its column, into the labels.

    One fused pass: new labels, predecessors, minimum of each block. Settled columns have price
    -infinity and label infinity, so the arithmetic leaves them unchanged.
    """
    v, dist, pred, lanes, block_min = part.v, part.dist, part.pred, part.lanes, part.block_min
    start, stop, infinity, row = part.start, part.stop, part.infinity, part.own.row
    entry_price, label = part.own.entry_price, part.own.label
    best = infinity
    tag = np.int32(row)  # a wider integer would halve the width of the vectors
    for k in range(LANES):
        lanes[k] = infinity
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        e = min(o + BLOCK, stop)
        full = (e - o) // LANES
        for b in range(full):
            p = o + b * LANES
            for line in range(cost.itemsize * LANES // LINE):
                prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
            c, w = cost[p : p + LANES], v[p : p + LANES]
            d, q = dist[p : p + LANES], pred[p : p + LANES]
            for k in range(LANES):
                g = (sign * c[k] - entry_cost) - (w[k] - entry_price) + label
                old = d[k]
                better = g < old
                x = g if better else old
                d[k] = x
                q[k] = tag if better else q[k]
                a = lanes[k]
                lanes[k] = x if x < a else a
        for j in range(o + full * LANES, e):
            g = (sign * cost[j] - entry_cost) - (v[j] - entry_price) + label
            if g < dist[j]:
                dist[j] = g
                pred[j] = row
            lanes[0] = min(lanes[0], dist[j])
        low = fold(lanes, infinity)
        block_min[block] = low
        best = low if low < best else best
    return best


@kernel
def relax_virtual(part: Part, blocked: float) -> float:
    """Scan the group of virtual rows (cost 0, holding the free columns at the cap).

    All their columns are settled at once at ``label``: an exchange among virtual rows changes
    nothing, but their prices move together. Every other column is relaxed at ``label + cap - v``.
    """
    v, dist, pred, block_min = part.v, part.dist, part.pred, part.block_min
    start, stop, infinity, row_of_column = part.start, part.stop, part.infinity, part.row_of_column
    cap, label, row = part.own.cap, part.own.label, part.own.row
    best = infinity
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        low = infinity
        for j in range(o, min(o + BLOCK, stop)):
            if row_of_column[j] < 0 and v[j] == cap:
                v[j] = blocked
                dist[j] = infinity
                continue
            g = label + (cap - v[j])
            if g < dist[j]:
                dist[j] = g
                pred[j] = row
            low = min(low, dist[j])
        block_min[block] = low
        best = min(best, low)
    return best


@kernel
def locate(
    best: float,
    dist: Array,
    v: Array,
    row_of_column: Array,
    price_limit: float,
    start: int,
    stop: int,
    block_min: Array,
) -> tuple[int, bool]:
    """Return the first free column at label ``best``, else the first column, and whether it is free.

    Free: unmatched and cheaper than ``price_limit`` (the cap, when all columns at the
    cap are held by virtual rows; infinity otherwise).
    NOWHERE when no column has that label.
    """
    first = NOWHERE
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        if block_min[block] == best:
            # Nearly always one column alone has the label; a sum then finds it.
            n_hits = 0
            place = 0
            for j in range(o, min(o + BLOCK, stop)):
                hit = 1 if dist[j] == best else 0
                n_hits += hit
                place += hit * j
            if n_hits == 1:
                if row_of_column[place] < 0 and v[place] < price_limit:
                    return place, True
                first = min(first, place)
                continue
            free = NOWHERE
            taken = NOWHERE
            for j in range(o, min(o + BLOCK, stop)):
                hit = dist[j] == best
                candidate = j if hit else NOWHERE
                taken = candidate if candidate < taken else taken
                sink = hit and row_of_column[j] < 0 and v[j] < price_limit
                candidate = j if sink else NOWHERE
                free = candidate if candidate < free else free
            if free < NOWHERE:
                return free, True
            first = min(first, taken)
    return first, False


@kernel
def n_invalid(cost: Array, sign: float, lowest: float, highest: float, start: int, stop: int) -> int:
    """Count the signed costs of the slab that are NaN or outside (lowest, highest]."""
    good = 0
    slab = cost[start:stop]
    for j in range(slab.size):
        x = sign * slab[j]
        # "and" would be a branch, and seven times as slow.
        good += 1 if (x > lowest) & (x <= highest) else 0
    return slab.size - good
