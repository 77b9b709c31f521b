"""Row scans in square problems that skip columns which cannot matter.

A row scanned after the root improves few labels below that of the nearest free column. Let
``free`` be the smallest label of a free column and ``sieve[j] = v[j] + min(dist[j] - base, 0)``
with ``base >= free``. A column can then matter only if
``c[i,j] - sieve[j] < (entry cost - entry price) - label + base``: two loads and two operations
a pair instead of six and ten. Only those columns are processed individually.

The sieve of an untouched column is its price: the sieve lives as long as the phase, and a search
updates only the columns it touches. Labels at or above that of a free column end no search and
settle no column, so they are not recorded. ``free`` falls during a search; ``base`` and the sieve
of touched columns are updated before the next row. Too large a sieve lets through too many columns,
never too few. So it is float32, rounded up, which halves its share of the caches. A margin
(``Terms.margin``) covers rounding; with exact arithmetic it is one unit, so that equal labels
still pass.

Most searches end at their root. So its labels are only surveyed first, and processed if the search
goes on.
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
from bigsap.types import Array

# Distance in bytes of prefetching within a row, and from a row's end into the next row.
# Rows of 128 kB out of cache: 3.9 us a row with 4 KiB, 3.4 with 8, 3.2 with 16; 2.5 with
# 8 and the sieve in float32.
AHEAD = 8192


@kernel(forceinline=True)
def survey_root(
    slab: Slab, cost: Array, sign: float, reference: float, following: int
) -> tuple[float, float]:
    """Return the root's smallest labels, over all and over free columns, with which most searches end.

    group_min: set to the minimum of each LANES columns. If columns are left over, the last entry
    is the minimum of the slab's last LANES columns, if it has as many. following: address of the
    slab's costs in the row that is probably scanned next, or 0.
    """
    v, row_of_column, group_min = slab.v, slab.row_of_column, slab.group_min
    start, stop, infinity = slab.start, slab.stop, slab.infinity
    end = cost.ctypes.data + stop * cost.itemsize
    # Another thread writes beyond the slab's end: do not even prefetch there.
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
            # Some of these for the second time, which does not change a minimum.
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
    """Return the first free column of the slab with the root's label ``best``, or NOWHERE."""
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
    """Continue a search beyond its root: reach the columns nearer than any free one.

    own.known_free: the root's smallest label of a free column, over all slabs. own.sieve_base: if
    infinite, there is no sieve.
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

    found: workspace for the groups of columns that pass. They are recorded without a branch and
    processed when all of the row except its end has been sifted: a mispredicted branch would
    discard work already started for later groups. hints: see ``tell_next``. While the end of the
    row is sifted, the beginning of the next row is loaded; before this row, every second
    prediction is wrong, at its end hardly any (random costs, n = 16,000). reference: subtracted by
    the survey of the row; lows, runs: see ``stretches``.
    """
    own, v, sieve, found, runs = slab.own, slab.v, slab.sieve, slab.found, slab.runs
    start, stop, width, lows = slab.start, slab.stop, slab.width, slab.lows
    row, entry_cost, entry_price, label = own.row, own.entry_cost, own.entry_price, own.label
    base = own.sieve_base
    below = (((entry_cost - entry_price) - label) + margin) + base
    code = code_of(below - reference, slab.scale.origin)
    limit = np.float64(below)
    # Costs of 64-bit integers are rounded in the comparison with the sieve.
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
    # The current group and the group to prefetch, each with the index of its run.
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
                # The last LANES columns, of which the first are done already.
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
            # Otherwise prefetch this row's beginning: another thread's slab follows its end.
            runs[own_end], runs[own_end + 1] = 0, full
            end = own_end + 2
            if slot >= 0:
                address = slots[slot].ctypes.data
                if column >= 0:
                    prefetch(address + column * cost.itemsize)
                    # Its limit is unknown yet; consecutive rows have similar limits.
                    end = plan(following, code, full, width, lows, runs, own_end)
                address += start * cost.itemsize
            asked, asked_at = runs[own_end], own_end
            first, last = turn, count
