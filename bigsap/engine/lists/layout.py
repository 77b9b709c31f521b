"""Compressed rows: each row as its k best columns and one threshold.

Prices only fall. If row i was evaluated at some time, and the list L of its k best columns
was kept with theta, the smallest ``c - v`` outside L at that time, then from then on
``c[i,j] - v[j] >= theta`` for every j outside L. The list and the threshold represent the row
until a search reaches the threshold. Then the row is evaluated again. The method is exact
at every moment.

This module defines the arrays; ``evaluation`` and ``bounded_evaluation`` fill them, ``search`` searches.
"""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import LANES
from bigsap.types import Array

#: Bytes of a list entry.
ENTRY_BYTES = 12
#: Bytes of a price.
PRICE_BYTES = 8
#: Columns evaluated at a time: their costs and reduced costs stay in the near caches.
PANEL = 8192
#: Columns whose smallest ``c - v`` are kept lane by lane: LANES groups of 16 columns.
CHUNK = 16 * LANES
#: Candidates are kept up to this many times k, plus a panel, before they are reduced.
_ROOM = 4


#: How often a list may be doubled, plus 1.
FREED_KINDS = 33


class ListCounts:
    """Counters of all rows' lists. Threads that evaluate all add to next_item and pairs."""

    pool_used: int  # entries of the pool used by rows now or earlier; <= pool_size
    evaluations: int
    pairs: int
    doubled: int
    next_item: int  # index of the next row for a free thread
    bad_row: int  # a row with an invalid cost, -1
    pool_size: int  # entries that lists may use; <= pool_limit
    pool_limit: int  # largest allowed pool_size
    refused: int  # how often a list could not be doubled
    first_width: int  # initial entries of a list


class Lists(NamedTuple):
    """All rows' lists in one pool. P is the price type, see ``State``.

    ids: int32 (pool,) columns; costs: P (pool,) their signed costs; see ``pool``. Row i owns
    ``start[i] : start[i] + width[i]``, of which the first ``size[i]`` are in use.
    theta: P (n_rows,) no column outside the list has ``c - v`` below it.
    reference: P (n_rows,) subtracted from all costs of the row: its smallest
    cost, so that a row of huge costs does not absorb the prices; 0 for computed rows.
    low: float32 (n_rows, n_blocks) the smallest ``c - v`` of each block of columns at its
    last visit, rounded down; as prices fall it stays a lower bound. Without
    columns if not kept. order: ID (m,) the column at each position of the blocks;
    empty: the natural order.
    counts: see ``ListCounts``. freed: int64 (FREED_KINDS,) 1 plus the first of the places left
    by lists that were doubled that often, see ``pool``; 0 if there is none.
    """

    ids: Array
    costs: Array
    start: Array
    width: Array
    size: Array
    theta: Array
    reference: Array
    low: Array
    order: Array
    counts: ListCounts
    freed: Array


class Scratch(NamedTuple):
    """One thread's workspace for an evaluation.

    raw: uint8, costs of PANEL columns as they are computed. near: P (BLOCK,) costs of a block. tau:
    P (PANEL,) ``c - v``, or of the whole row. free: P (LANES,).
    lanes: P (2 * LANES,), see ``selection.extremes``.
    group_low: P (PANEL / 16,) smallest ``c - v`` of each group.
    bound: float64 (n_all,), see ``bounds.Blocks``; block: ID (n_blocks,) the blocks with
    computed bounds; opened: ID (n_blocks,) indices in them, in order of bound.
    best_tau, best_cost: P (room,), best_id: int32 (room,) candidates.
    """

    raw: Array
    near: Array
    tau: Array
    free: Array
    lanes: Array
    group_low: Array
    best_tau: Array
    best_cost: Array
    best_id: Array
    bound: Array
    block: Array
    opened: Array


def room_for(k: int) -> int:
    """Return the number of candidates a scratch must hold for lists of k entries."""
    return _ROOM * (k + 1) + CHUNK


@kernel
def run_list_minima(
    thread: int,
    n_threads: int,
    ids: Array,
    costs: Array,
    start: Array,
    size: Array,
    v: Array,
    infinity: float,
    out: Array,
    near: Array,
) -> int:
    """Compute the smallest ``c - v`` of each row's list under the present prices.

    out: P (n_rows,) the minima. near: ID (n_rows,) the first column that has it, -1 without one; or empty.
    """
    n = start.size
    for row in range(n * thread // n_threads, n * (thread + 1) // n_threads):
        a = b = c = d = infinity  # four running minima hide the latency
        k, stop = start[row], start[row] + size[row]
        while k + 4 <= stop:
            a, b = min(a, costs[k] - v[ids[k]]), min(b, costs[k + 1] - v[ids[k + 1]])
            c, d = min(c, costs[k + 2] - v[ids[k + 2]]), min(d, costs[k + 3] - v[ids[k + 3]])
            k += 4
        for j in range(k, stop):
            a = min(a, costs[j] - v[ids[j]])
        low = min(min(a, b), min(c, d))
        out[row] = low
        if near.size:
            k = start[row]
            while k < stop and costs[k] - v[ids[k]] != low:
                k += 1
            near[row] = ids[k] if k < stop and low < infinity else -1
    return 0


@kernel(nrt=True)
def run_greedy(
    ids: Array,
    costs: Array,
    start: Array,
    size: Array,
    theta: Array,
    v: Array,
    order: Array,
    taken: Array,
    infinity: float,
    lowest: Array,
    near: Array,
) -> tuple[float, int]:
    """Match greedily on the lists in the given order; return the gap and the number of matched rows.

    The gap sums ``c - v`` of the pick minus the row's smallest; rows whose
    whole list is taken count with their threshold. taken: uint8 (n_columns,), zero.
    lowest, near: see ``run_list_minima``; if the nearest column is free, the list is not read.
    """
    gap = 0.0
    matched = 0
    for p in range(order.size):
        row = order[p]
        low, best, pick = lowest[row], infinity, -1
        if near[row] >= 0 and taken[near[row]] == 0:
            best, pick = low, near[row]
        else:
            for k in range(start[row], start[row] + size[row]):
                j = ids[k]
                g = costs[k] - v[j]
                if g < best and taken[j] == 0:
                    best, pick = g, j
        if pick >= 0 and best <= theta[row]:
            taken[pick] = 1
            matched += 1
            gap += best - low
        elif low < infinity:
            if pick >= 0:
                taken[pick] = 1
                matched += 1
            gap += max(theta[row], low) - low if theta[row] < infinity else 0.0
    return gap, matched


@kernel(nrt=True)
def run_transform(
    thread: int, n_threads: int, slots: Array, places: Array, u: Array, sign: float, v: Array
) -> int:
    """Apply ``v[j] = min(v[j], sign * slots[places[k], j] - u[k])`` over k, each thread a slab."""
    m = v.size
    start, stop = m * thread // n_threads, m * (thread + 1) // n_threads
    for k in range(places.size):
        cost = slots[places[k]]
        low = u[k]
        for j in range(start, stop):
            g = sign * cost[j] - low
            w = v[j]
            v[j] = g if g < w else w
    return 0
