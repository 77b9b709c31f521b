"""Scanning a row in a search: skip what cannot matter, at a quarter of the work.

A row scanned after the root improves few labels below that of the nearest free column. With
``free`` the smallest label of a free column and ``sieve[j] = v[j] + min(dist[j], free)``, a
column can matter only if ``c[i,j] - sieve[j] < (entry cost - entry price) - label``: two loads
and two operations for a pair in place of six and ten. A group of LANES columns in which none
can matter keeps its smallest label; the others are relaxed as ``scan.relax_row`` would.

Labels at or above that of a free column end no search and settle no column, so leaving them
stale changes nothing. ``free`` only falls, which leaves older sieves too large: that lets
through too much, never too little; so the sieve is float32, rounded up, which halves what
competes with the row for the caches. Rounding is covered by a margin (``Terms.margin``), and
with exact arithmetic by one unit, so that equal labels still come through.

Most searches end at their root. Its labels are therefore only surveyed, and written when the
search goes on. Rows out of cache begin slowly; the next row is nearly always that of the
second smallest label, and its beginning is asked for while the end of a row is sifted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigsap.engine.atomics import prefetch
from bigsap.engine.scan import LINE, fold, hear_next
from bigsap.engine.state import BLOCK, LANES
from bigsap.sources.base import Array

# Bytes that a row is asked for ahead of its use, and the next row's beginning before a row's
# end. Rows of 128 kB out of cache: 3.9 us a row with 4 KiB, 3.4 with 8, 3.2 with 16; 2.5 with
# 8 and the sieve in float32.
AHEAD = 8192


@njit(nogil=True, cache=True, _nrt=False)
def rounded_up(x: float) -> np.float32:
    """``x`` as float32 from above; no smaller than -3e38, also where x is."""
    y = np.float64(x)
    z = y + abs(y) * 2.0**-22 + 1e-44
    return np.float32(z if z > -3e38 else -3e38)


@njit(nogil=True, cache=True, _nrt=False)
def survey_free(
    v: Array, dist: Array, row_of_column: Array, start: int, stop: int, lanes: Array,
    infinity: float, blocked: float, zero: float,
) -> tuple[float, float]:  # fmt: skip
    """The smallest label of a free column, and the largest magnitude of a price.

    lanes: workspace (3 * LANES,).
    """
    low, high = lanes[:LANES], lanes[LANES : 2 * LANES]
    for k in range(LANES):
        low[k] = infinity
        high[k] = zero
    full = (stop - start) // LANES
    for group in range(full):
        p = start + group * LANES
        d, w, r = dist[p : p + LANES], v[p : p + LANES], row_of_column[p : p + LANES]
        for k in range(LANES):
            x = d[k] if r[k] < 0 else infinity
            y = low[k]
            low[k] = x if x < y else y
            size = abs(w[k]) if w[k] > blocked else zero
            top = high[k]
            high[k] = size if size > top else top
    free = infinity
    reach = zero
    for k in range(LANES):
        free = min(free, low[k])
        reach = max(reach, high[k])
    for j in range(start + full * LANES, stop):
        if row_of_column[j] < 0:
            free = min(free, dist[j])
        if v[j] > blocked:
            reach = max(reach, abs(v[j]))
    return free, reach


@njit(nogil=True, cache=True, _nrt=False)
def survey_root(
    cost: Array, sign: float, row: int, reference: float, v: Array, dist: Array, pred: Array,
    row_of_column: Array, start: int, stop: int, lanes: Array, block_min: Array,
    infinity: float, following: int,
) -> tuple[float, float]:  # fmt: skip
    """What most searches end with: the smallest labels of the root, all and of free columns.

    Labels and predecessors are written in those blocks alone whose minimum is the slab's.
    following: address of the slab's costs in the row that will probably be scanned next,
    or 0.
    """
    lane, spare = lanes[:LANES], lanes[LANES : 2 * LANES]
    for k in range(LANES):
        lane[k] = infinity
        spare[k] = infinity
    end = cost.ctypes.data + stop * cost.itemsize
    leap = following - end if following != 0 else 0
    best, free = infinity, infinity
    n_blocks = (stop - start + BLOCK - 1) // BLOCK
    for block in range(n_blocks):
        o = start + block * BLOCK
        e = min(o + BLOCK, stop)
        full = (e - o) // LANES
        for b in range(full):
            p = o + b * LANES
            ahead = cost.ctypes.data + p * cost.itemsize + AHEAD
            ahead += leap if ahead >= end else 0
            for line in range(cost.itemsize * LANES // LINE):
                prefetch(ahead + line * LINE)
            c, w, r = cost[p : p + LANES], v[p : p + LANES], row_of_column[p : p + LANES]
            for k in range(LANES):
                g = (sign * c[k] - reference) - w[k]
                a = lane[k]
                lane[k] = g if g < a else a
                x = g if r[k] < 0 else infinity
                a = spare[k]
                spare[k] = x if x < a else a
        for j in range(o + full * LANES, e):
            g = (sign * cost[j] - reference) - v[j]
            lane[0] = min(lane[0], g)
            if row_of_column[j] < 0:
                free = min(free, g)
        low = fold(lane, infinity)
        block_min[block] = low
        best = low if low < best else best
    for block in range(n_blocks):
        if block_min[block] == best:
            o = start + block * BLOCK
            for j in range(o, min(o + BLOCK, stop)):
                dist[j] = (sign * cost[j] - reference) - v[j]
                pred[j] = row
    return best, min(free, fold(spare, infinity))


@njit(nogil=True, cache=True, _nrt=False)
def open_sifted(
    cost: Array, sign: float, row: int, reference: float, free: float, v: Array, dist: Array,
    pred: Array, sieve: Array, start: int, stop: int, lanes: Array, group_min: Array,
    infinity: float, zero: float,
) -> float:  # fmt: skip
    """Open a search that goes on: labels, predecessors, sieve and group minima of the root.

    As ``relax_root`` and ``prepare_sieve`` together. Returns the largest magnitude of a price.
    """
    tag = np.int32(row)
    lane, high = lanes[:LANES], lanes[LANES : 2 * LANES]
    for k in range(LANES):
        high[k] = zero
    full = (stop - start) // LANES
    for group in range(full):
        p = start + group * LANES
        c, w, s = cost[p : p + LANES], v[p : p + LANES], sieve[p : p + LANES]
        d, q = dist[p : p + LANES], pred[p : p + LANES]
        for k in range(LANES):
            g = (sign * c[k] - reference) - w[k]
            d[k] = g
            q[k] = tag
            s[k] = rounded_up(w[k] + (g if g < free else free))
            lane[k] = g
            size, top = abs(w[k]), high[k]
            high[k] = size if size > top else top
        group_min[group] = fold(lane, infinity)
    reach = zero
    for k in range(LANES):
        reach = max(reach, high[k])
    if start + full * LANES < stop:
        low = infinity
        for j in range(start + full * LANES, stop):
            g = (sign * cost[j] - reference) - v[j]
            dist[j] = g
            pred[j] = row
            sieve[j] = rounded_up(v[j] + (g if g < free else free))
            low = min(low, g)
            reach = max(reach, abs(v[j]))
        group_min[full] = low
    return reach


@njit(nogil=True, cache=True, _nrt=False)
def prepare_sieve(
    free: float, v: Array, dist: Array, sieve: Array, start: int, stop: int, lanes: Array,
    group_min: Array, infinity: float,
) -> None:  # fmt: skip
    """Sieve and group minima of the slab, from its prices and labels."""
    lane = lanes[:LANES]
    full = (stop - start) // LANES
    for group in range(full):
        p = start + group * LANES
        d, w, s = dist[p : p + LANES], v[p : p + LANES], sieve[p : p + LANES]
        for k in range(LANES):
            x = d[k]
            s[k] = rounded_up(w[k] + (x if x < free else free))
            lane[k] = x
        group_min[group] = fold(lane, infinity)
    if start + full * LANES < stop:
        low = infinity
        for j in range(start + full * LANES, stop):
            x = dist[j]
            sieve[j] = rounded_up(v[j] + (x if x < free else free))
            low = min(low, x)
        group_min[full] = low


@njit(nogil=True, cache=True, _nrt=False)
def settle_in_group(
    column: int, dist: Array, start: int, stop: int, lanes: Array, group_min: Array,
    infinity: float,
) -> None:  # fmt: skip
    """The minimum of a group one of whose columns has just been settled."""
    group = (column - start) // LANES
    o = start + group * LANES
    if o + LANES <= stop:
        d, lane = dist[o : o + LANES], lanes[:LANES]
        for k in range(LANES):
            lane[k] = d[k]
        group_min[group] = fold(lane, infinity)
        return
    low = infinity
    for j in range(o, stop):
        low = min(low, dist[j])
    group_min[group] = low


@njit(nogil=True, cache=True, _nrt=False)
def _relax_tail(
    cost: Array, sign: float, row: int, entry_cost: float, entry_price: float, label: float,
    free: float, unit: float, v: Array, dist: Array, pred: Array, sieve: Array,
    row_of_column: Array, start: int, stop: int, infinity: float,
) -> tuple[float, float]:  # fmt: skip
    """As ``_relax_group``, for the columns that fill no group."""
    low, lowest_free = infinity, free
    tag = np.int32(row)
    for j in range(start, stop):
        g = (sign * cost[j] - entry_cost) - (v[j] - entry_price) + label
        old = dist[j]
        better = g < old
        x = g if better else old
        dist[j] = x
        pred[j] = tag if better else pred[j]
        low = x if x < low else low
        y = x if row_of_column[j] < 0 else infinity
        lowest_free = y if y < lowest_free else lowest_free
    top = lowest_free + unit
    for j in range(start, stop):
        x = dist[j]
        sieve[j] = rounded_up(v[j] + (x if x < top else top))
    return low, lowest_free


@njit(nogil=True, cache=True, _nrt=False)
def _relax_group(
    cost: Array, sign: float, row: int, entry_cost: float, entry_price: float, label: float,
    free: float, unit: float, v: Array, dist: Array, pred: Array, sieve: Array,
    row_of_column: Array, lanes: Array,
) -> tuple[float, float]:  # fmt: skip
    """As ``relax_row`` does it, for the LANES columns of a group: its smallest label, and the
    smallest label of a free column so far."""
    tag = np.int32(row)
    top = free + unit
    n_free = 0
    for k in range(LANES):
        g = (sign * cost[k] - entry_cost) - (v[k] - entry_price) + label
        old = dist[k]
        better = g < old
        x = g if better else old
        dist[k] = x
        pred[k] = tag if better else pred[k]
        sieve[k] = rounded_up(v[k] + (x if x < top else top))
        lanes[k] = x
        n_free += 1 if (row_of_column[k] < 0) & (x < free) else 0
    if n_free > 0:
        for k in range(LANES):
            if row_of_column[k] < 0 and dist[k] < free:
                free = dist[k]
    width = LANES // 2
    while width >= 8:
        for k in range(width):
            a, b = lanes[k], lanes[k + width]
            lanes[k] = b if b < a else a
        width //= 2
    low = lanes[0]
    for k in range(1, 8):
        x = lanes[k]
        low = x if x < low else low
    return low, free


@njit(nogil=True, cache=True, _nrt=False)
def _sift_groups(
    cost: Array, sign: float, row: int, entry_cost: float, entry_price: float, label: float,
    limit: float, best: float, free: float, unit: float, v: Array, dist: Array, pred: Array,
    sieve: Array, row_of_column: Array, start: int, first: int, last: int, ahead: int,
    lanes: Array, group_min: Array,
) -> tuple[float, float]:  # fmt: skip
    """Groups ``first`` to ``last`` of the slab, asking for what lies ``ahead`` bytes off."""
    for group in range(first, last):
        p = start + group * LANES
        for line in range(cost.itemsize * LANES // LINE):
            prefetch(cost.ctypes.data + p * cost.itemsize + ahead + line * LINE)
        c, s = cost[p : p + LANES], sieve[p : p + LANES]
        n_hits = 0
        for k in range(LANES):
            n_hits += 1 if sign * c[k] - s[k] < limit else 0
        if n_hits > 0:
            low, free = _relax_group(
                c, sign, row, entry_cost, entry_price, label, free, unit, v[p : p + LANES],
                dist[p : p + LANES], pred[p : p + LANES], s, row_of_column[p : p + LANES], lanes,
            )  # fmt: skip
            group_min[group] = low
            best = low if low < best else best
    return best, free


@njit(nogil=True, cache=True, _nrt=False)
def relax_sifted(
    cost: Array, sign: float, row: int, entry_cost: float, entry_price: float, label: float,
    margin: float, best: float, free: float, unit: float, v: Array, dist: Array, pred: Array,
    sieve: Array, row_of_column: Array, start: int, stop: int, lanes: Array, group_min: Array,
    infinity: float, n_threads: int, hint_value: Array, hint_row: Array, slots: Array,
    slot_of_row: Array,
) -> tuple[float, float]:  # fmt: skip
    """Relax one matched row where it can matter; the slab's smallest label, and the
    smallest label of a free column so far.

    best: the slab's smallest label before. hint_value, hint_row: see ``hear_next``; while
    the end of the row is sifted, the beginning of the next comes from memory.
    """
    limit = np.float64(((entry_cost - entry_price) - label) + margin)
    # Costs of 64-bit integers are rounded when they are compared with the sieve.
    limit += abs(limit) * 2.0**-50
    full = (stop - start) // LANES
    turn = max(0, full - AHEAD // (cost.itemsize * LANES))
    best, free = _sift_groups(
        cost, sign, row, entry_cost, entry_price, label, limit, best, free, unit, v, dist,
        pred, sieve, row_of_column, start, 0, turn, AHEAD, lanes, group_min,
    )  # fmt: skip
    ahead = AHEAD
    following = hear_next(n_threads, hint_value, hint_row)
    slot = slot_of_row[following] if following >= 0 else -1
    if slot >= 0:
        here = cost.ctypes.data + turn * LANES * cost.itemsize
        ahead = slots[slot].ctypes.data - here
    best, free = _sift_groups(
        cost, sign, row, entry_cost, entry_price, label, limit, best, free, unit, v, dist,
        pred, sieve, row_of_column, start, turn, full, ahead, lanes, group_min,
    )  # fmt: skip
    if start + full * LANES < stop:
        low, free = _relax_tail(
            cost, sign, row, entry_cost, entry_price, label, free, unit, v, dist, pred,
            sieve, row_of_column, start + full * LANES, stop, infinity,
        )  # fmt: skip
        group_min[full] = low
        best = low if low < best else best
    return best, free
