"""Scanning a row in a search of a square problem: skip what cannot matter.

A row scanned after the root improves few labels below that of the nearest free column. With
``free`` the smallest label of a free column and ``sieve[j] = v[j] + min(dist[j] - base, 0)``,
where ``base >= free``, a column can matter only if
``c[i,j] - sieve[j] < (entry cost - entry price) - label + base``: two loads and two operations
for a pair in place of six and ten. Only those columns are looked at singly.

The sieve of a column that the search has not touched is its price: the sieve lives as long as
the phase, and a search pays for what it touches. Labels at or above that of a free
column end no search and settle no column, so they are not even noted. ``free`` falls; ``base`` and
the sieve of what is touched follow before the next row. Too large a sieve lets through too
much, never too little; so it is float32, rounded up, which halves what competes with the row
for the caches. Rounding is covered by a margin (``Terms.margin``), and with exact arithmetic
by one unit, so that equal labels still come through.

Most searches end at their root. Its labels are therefore only surveyed, and looked at again
when the search goes on.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import lowest_bit, prefetch
from bigsap.engine.core.scan import LINE, NOWHERE
from bigsap.engine.core.state import LANES
from bigsap.engine.core.vectors import root_minima, sifted
from bigsap.engine.rows.queue import Slab, hear_next, reach, tell_next
from bigsap.engine.rows.stretches import code_of, plan, step
from bigsap.sources.base import Array

# Bytes that a row is asked for ahead of its use, and the next row's beginning before a row's
# end. Rows of 128 kB out of cache: 3.9 us a row with 4 KiB, 3.4 with 8, 3.2 with 16; 2.5 with
# 8 and the sieve in float32.
AHEAD = 8192


@kernel(forceinline=True)
def survey_root(
    slab: Slab, cost: Array, sign: float, reference: float, following: int
) -> tuple[float, float]:
    """What most searches end with: the smallest labels of the root, all and of free columns.

    group_min: set to the smallest of each LANES columns; where columns are left over, the last
    is that of the slab's last LANES columns, if it has as many. following: address of the slab's
    costs in the row that will probably be scanned next, or 0.
    """
    v, row_of_column, group_min = slab.v, slab.row_of_column, slab.group_min
    start, stop, infinity = slab.start, slab.stop, slab.infinity
    end = cost.ctypes.data + stop * cost.itemsize
    # Past the slab's end lies what another thread writes: not even to be asked for.
    leap = (following if following != 0 else cost.ctypes.data + start * cost.itemsize) - end
    best, free = infinity, infinity
    full = (stop - start) // LANES
    for group in range(full):
        p = start + group * LANES
        ahead = cost.ctypes.data + p * cost.itemsize + AHEAD
        ahead += leap if ahead >= end else 0
        for line in range(cost.itemsize * LANES // LINE):
            prefetch(ahead + line * LINE)
        low, spare = root_minima(cost, v, row_of_column, p, sign, reference, infinity)
        group_min[group] = low
        best = low if low < best else best
        free = spare if spare < free else free
    if start + full * LANES < stop:
        low, spare = infinity, infinity
        if full > 0:
            # Some of these for the second time: of the smallest that makes no difference.
            low, spare = root_minima(cost, v, row_of_column, stop - LANES, sign, reference, infinity)
        else:
            for j in range(start, stop):
                g = (sign * cost[j] - reference) - v[j]
                low = g if g < low else low
                if row_of_column[j] < 0:
                    spare = g if g < spare else spare
        group_min[full] = low
        best = low if low < best else best
        free = spare if spare < free else free
    return best, free


@kernel
def free_at_root(slab: Slab, best: float, cost: Array, sign: float, reference: float) -> int:
    """The first free column of the slab with the root's label ``best``, or NOWHERE."""
    v, row_of_column, start, stop = slab.v, slab.row_of_column, slab.start, slab.stop
    for group in range((stop - start + LANES - 1) // LANES):
        if slab.group_min[group] == best:
            o = start + group * LANES
            for j in range(o, min(o + LANES, stop)):
                if (sign * cost[j] - reference) - v[j] == best and row_of_column[j] < 0:
                    return j
    return NOWHERE


@kernel
def open_root(slab: Slab, cost: Array, sign: float, reference: float) -> None:
    """Begin a search that goes on: reach what lies nearer to the root than any free column.

    own.known_free: the smallest root's label of a free column, of all slabs; own.sieve_base: where
    it is infinite, the sieve is not kept.
    """
    v, start, stop, row, known = slab.v, slab.start, slab.stop, slab.own.row, slab.own.known_free
    for group in range((stop - start + LANES - 1) // LANES):
        low = slab.group_min[group]
        if not low <= known or low == slab.infinity:
            continue
        o = start + group * LANES
        for j in range(o, min(o + LANES, stop)):
            g = (sign * cost[j] - reference) - v[j]
            if g <= known:
                reach(slab, j, g, row)


@kernel
def relax_all(slab: Slab, cost: Array, sign: float) -> None:
    """Relax one matched row while no free column is reached, so that any label matters."""
    own, v, dist = slab.own, slab.v, slab.dist
    row, entry_cost, entry_price, label = own.row, own.entry_cost, own.entry_price, own.label
    for p in range(slab.start, slab.stop, LANES):
        q = min(p + LANES, slab.stop)
        n_hits = 0
        for j in range(p, q):
            g = (sign * cost[j] - entry_cost) - (v[j] - entry_price) + label
            n_hits += 1 if g < dist[j] else 0
        if n_hits == 0:
            continue
        for j in range(p, q):
            g = (sign * cost[j] - entry_cost) - (v[j] - entry_price) + label
            if g < dist[j]:
                reach(slab, j, g, row)


@kernel(forceinline=True)
def relax_sifted(
    slab: Slab,
    cost: Array,
    sign: float,
    reference: float,
    margin: float,
    hints: Array,
    slots: Array,
    slot_of_row: Array,
) -> None:
    """Relax one matched row, entered at ``label`` by its column, where it can matter.

    found: room for the groups of columns let through. They are noted without a branch and looked
    at when the row, all but its end, has been sifted: a wrong guess of the processor's would
    throw away what it already does for the groups that follow. hints: see
    ``tell_next``; while the end of the row is sifted, the beginning of the next comes from
    memory. Before the row at hand every second guess is wrong, at its end hardly one (random
    costs, n = 16,000). reference: what the survey of the row subtracted; lows, runs: see
    ``stretches``.
    """
    own, v, sieve, found, runs = slab.own, slab.v, slab.sieve, slab.found, slab.runs
    start, stop, width, lows = slab.start, slab.stop, slab.width, slab.lows
    row, entry_cost, entry_price, label = own.row, own.entry_cost, own.entry_price, own.label
    base = own.sieve_base
    below = (((entry_cost - entry_price) - label) + margin) + base
    code = code_of(below - reference, slab.scale.origin)
    limit = np.float64(below)
    # Costs of 64-bit integers are rounded when they are compared with the sieve.
    limit += abs(limit) * 2.0**-50
    full = (stop - start) // LANES
    rest = stop - start - full * LANES
    size = LANES * cost.itemsize
    lead = AHEAD // size
    own_end = end = plan(row, code, full, width, lows, runs, 0)
    count = 0
    for k in range(0, own_end, 2):
        count += runs[k + 1] - runs[k]
    own.skipped += full - count
    turn = max(0, count - lead)
    # The group at hand and that to be asked for, each with the place of its run.
    group, at = runs[0], 0
    asked_at, left = 0, lead
    while asked_at < own_end and left >= runs[asked_at + 1] - runs[asked_at]:
        left -= runs[asked_at + 1] - runs[asked_at]
        asked_at += 2
    asked = runs[asked_at] + left
    address = cost.ctypes.data + start * cost.itemsize
    first, last = 0, turn
    for part in range(2):
        n_found = 0
        for _ in range(first, last):
            for line in range(size // LINE):
                prefetch(address + asked * size + line * LINE)
            asked, asked_at = step(asked, asked_at, end, runs)
            p = start + group * LANES
            group, at = step(group, at, own_end, runs)
            hits = sifted(cost, sieve, p, sign, limit)
            found[n_found] = p
            found[n_found + 1] = np.int64(hits)
            n_found += 2 if hits != 0 else 0
        if part == 1 and rest > 0:
            if full > 0:
                # The last LANES columns, of which the first have had their turn.
                hits = sifted(cost, sieve, stop - LANES, sign, limit) >> np.uint64(LANES - rest)
            else:
                hits = np.uint64(0)
                for j in range(start, stop):
                    if np.float64(sign * cost[j]) - np.float64(sieve[j]) < limit:
                        hits |= np.uint64(1) << np.uint64(j - start)
            found[n_found] = stop - rest
            found[n_found + 1] = np.int64(hits)
            n_found += 2 if hits != 0 else 0
        for k in range(0, n_found, 2):
            p, hits = found[k], np.uint64(found[k + 1])
            while hits != 0:
                j = p + lowest_bit(hits)
                hits &= hits - np.uint64(1)
                g = (sign * cost[j] - entry_cost) - (v[j] - entry_price) + label
                reach(slab, j, g, row)
        if part == 0:
            tell_next(slab, hints[slab.thread])
            following, column = hear_next(hints)
            slot = slot_of_row[following] if following >= 0 else -1
            # Else this row's beginning: what follows its end is another thread's.
            runs[own_end], runs[own_end + 1] = 0, full
            end = own_end + 2
            if slot >= 0:
                address = slots[slot].ctypes.data
                if column >= 0:
                    prefetch(address + column * cost.itemsize)
                    # Its limit is not known yet; those of rows scanned one after the other
                    # are much the same.
                    end = plan(following, code, full, width, lows, runs, own_end)
                address += start * cost.itemsize
            asked, asked_at = runs[own_end], own_end
            first, last = turn, count
