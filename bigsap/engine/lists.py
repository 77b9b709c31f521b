"""Compressed rows: each row as its k best columns and one threshold.

Prices only fall. So if row i was evaluated at some time and the list L of its k best
columns was kept with theta, the smallest ``c - v`` outside L at that time, then ever
after ``c[i,j] - v[j] >= theta`` for every j outside L. The list and the threshold
stand in for the row until a search reaches the threshold; then the row is evaluated
anew. The method is exact at every moment.

This module holds the store and the evaluation; ``list_search`` the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from bigsap.engine.atomics import fetch_add, prefetch
from bigsap.engine.bounds import BLOCK as BOUND_BLOCK
from bigsap.engine.bounds import Blocks, bound_row
from bigsap.engine.fetch import Terms
from bigsap.engine.scan import AHEAD, LINE, n_invalid
from bigsap.engine.selection import bracket, cheapest_blocks, extremes, n_within, thin
from bigsap.engine.state import LANES
from bigsap.sources.base import Array
from bigsap.sources.compiled import call_fill

#: Columns evaluated at a time: their costs and reduced costs stay in the near caches.
PANEL = 8192
#: Columns whose smallest ``c - v`` are kept lane by lane: LANES groups of 16 columns.
CHUNK = 16 * LANES
#: Candidates are kept up to this many times k, and a panel, before they are thinned out.
_ROOM = 4
#: Groups of a chunk that pass from which on the whole chunk is filtered.
_MANY = 12


class Lists(NamedTuple):
    """All rows' lists in one pool. P is the price type, see ``State``.

    ids: int32 (pool,) columns; costs: P (pool,) their signed costs. Row i owns
    ``start[i] : start[i] + width[i]``, of which the first ``size[i]`` are in use.
    theta: P (n_rows,) no column outside the list has ``c - v`` below it.
    reference: P (n_rows,) what was subtracted from all costs of the row: its smallest
    cost, so that a row of huge costs does not absorb the prices; 0 for computed rows.
    counters: int64, see the constants below.
    """

    ids: Array
    costs: Array
    start: Array
    width: Array
    size: Array
    theta: Array
    reference: Array
    counters: Array


# Places in Lists.counters.
POOL_USED, EVALUATIONS, PAIRS, DOUBLED, NEXT_ITEM, BAD_ROW, COUNTER_WORDS = range(7)


class Scratch(NamedTuple):
    """One thread's room for an evaluation.

    near, tau: (PANEL,) costs as they come and ``c - v``. free: P (LANES,).
    group_low: P (PANEL / 16,) smallest ``c - v`` of each group.
    bound: float64 (n_blocks,); opened: ID (n_blocks,) blocks in order of bound.
    best_tau, best_cost: P (room,), best_id: int32 (room,) candidates.
    """

    near: Array
    tau: Array
    free: Array
    group_low: Array
    best_tau: Array
    best_cost: Array
    best_id: Array
    bound: Array
    opened: Array


@njit(nogil=True, cache=True)
def _reduce_chunk(
    cost: Array, at: int, width: int, column: int, place: int, sign: float, reference: float,
    v: Array, open_price: Array, tau: Array, low: Array, free: Array, infinity: float,
) -> None:  # fmt: skip
    """``tau[place:] = (sign * cost[at:] - reference) - v[column:]``, ``width`` columns.

    low: (LANES,) set to the smallest of each group, which is one lane of the chunk.
    free: (LANES,) lowered to the smallest over free columns.
    """
    for k in range(LANES):
        low[k] = infinity
    full = width // LANES
    for b in range(full):
        p, q, r = at + b * LANES, column + b * LANES, place + b * LANES
        for line in range(cost.itemsize * LANES // LINE):
            prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
        c, w = cost[p : p + LANES], v[q : q + LANES]
        f, t = open_price[q : q + LANES], tau[r : r + LANES]
        for k in range(LANES):
            x = sign * c[k] - reference
            g = x - w[k]
            h = x - f[k]
            t[k] = g
            a, z = low[k], free[k]
            low[k] = g if g < a else a
            free[k] = h if h < z else z
    for k in range(full * LANES, width):
        x = sign * cost[at + k] - reference
        g = x - v[column + k]
        tau[place + k] = g
        low[k % LANES] = min(low[k % LANES], g)
        free[k % LANES] = min(free[k % LANES], x - open_price[column + k])


@njit(nogil=True, cache=True)
def evaluate(
    row: int, k: int, whole: Array, from_fill: bool, terms: Terms, v: Array, open_price: Array,
    offset: int, scratch: Scratch, lists: Lists,
) -> int:  # fmt: skip
    """Evaluate one whole row under the prices v into its list of at most k entries.

    whole: the row's costs, unless ``from_fill``. open_price: v for free columns, the
    blocked price for matched ones; the best free column always gets a place.
    offset: column to start from; ties at the boundary go to the columns met first, so
    a pseudo-random offset spreads them. Returns the pairs evaluated, -1 on a bad cost.

    The (k+1)-th smallest of the groups' minima bounds the (k+1)-th smallest of all, so
    that hardly more than k candidates are ever looked at one by one. O(n_columns).
    """
    m = terms.n_columns
    infinity, sign = terms.infinity, terms.sign
    near, tau, free = scratch.near, scratch.tau, scratch.free
    group_low = scratch.group_low
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    judge = from_fill or lists.theta[row] == -infinity  # its first evaluation
    if judge and not from_fill:
        low = infinity
        for j in range(m):
            x = sign * whole[j]
            low = x if x < low else low
        if low < infinity and low > -infinity:
            lists.reference[row] = low
    reference = lists.reference[row]
    n_best = 0
    cap = infinity
    outside = infinity
    free_tau, free_cost, free_id = infinity, infinity, -1
    following = offset
    left = m
    while left > 0:
        column = following
        width = min(PANEL, m - column, left)
        left -= width
        following = 0 if column + width == m else column + width
        cost = near if from_fill else whole
        base = 0 if from_fill else column
        if from_fill:
            call_fill(
                terms.fill_address, terms.fill_context, row, column, column + width,
                near.ctypes.data,
            )  # fmt: skip
        if judge and n_invalid(cost, sign, terms.lowest, terms.highest, base, base + width):
            return -1
        for j in range(LANES):
            free[j] = infinity
        n_groups = 0
        for place in range(0, width, CHUNK):
            _reduce_chunk(
                cost, base + place, min(CHUNK, width - place), column + place, place, sign,
                reference, v, open_price, tau, group_low[n_groups : n_groups + LANES], free,
                infinity,
            )  # fmt: skip
            n_groups += LANES
        if n_groups > k:
            least, most = extremes(group_low, n_groups, infinity)
            if least < infinity and n_within(group_low, n_groups, most) > k:
                bound = bracket(group_low, n_groups, k + 1, least, most)[1]
                cap = bound if bound < cap else cap
        smallest_free = infinity
        for j in range(LANES):
            smallest_free = min(smallest_free, free[j])
        if smallest_free < free_tau:
            lane = 0
            while free[lane] != smallest_free:
                lane += 1
            for j in range(lane, width, LANES):
                if tau[j] == smallest_free and open_price[column + j] == v[column + j]:
                    free_tau, free_id = smallest_free, column + j
                    free_cost = sign * cost[base + j] - reference
                    break
        for first in range(0, n_groups, LANES):
            lows = group_low[first : first + LANES]
            passing = n_within(lows, LANES, cap)
            if passing == 0:
                continue
            place = first // LANES * CHUNK
            end = min(place + CHUNK, width)
            if passing > _MANY:
                for j in range(place, end):
                    best_tau[n_best] = tau[j]
                    best_id[n_best] = column + j
                    best_cost[n_best] = sign * cost[base + j] - reference
                    n_best += 1 if tau[j] <= cap and tau[j] < infinity else 0
            else:
                for lane in range(LANES):
                    if lows[lane] <= cap and lows[lane] < infinity:
                        for j in range(place + lane, end, LANES):
                            if tau[j] <= cap and tau[j] < infinity:
                                best_tau[n_best] = tau[j]
                                best_id[n_best] = column + j
                                best_cost[n_best] = sign * cost[base + j] - reference
                                n_best += 1
            if n_best > best_tau.size - CHUNK - 1:
                n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity)
                outside = min(outside, rest)
                cap = min(cap, rest)
        if n_best > k and left > 0:
            n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity)
            outside = min(outside, rest)
            cap = min(cap, rest)
    store(row, k, n_best, outside, free_tau, free_cost, free_id, infinity, scratch, lists)
    return m


@njit(nogil=True, cache=True)
def store(
    row: int, k: int, n_best: int, outside: float, free_tau: float, free_cost: float, free_id: int,
    infinity: float, scratch: Scratch, lists: Lists,
) -> None:  # fmt: skip
    """Write the k best candidates as the row's list and set its threshold.

    outside: a lower bound on ``c - v`` of all columns that are no candidates.
    """
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    theta = outside
    if n_best > k:
        n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity)
        theta = min(theta, rest)
    if free_id >= 0 and n_best > 0:
        listed = False
        worst = 0
        for j in range(n_best):
            listed = listed or best_id[j] == free_id
            if best_tau[j] > best_tau[worst]:
                worst = j
        if not listed:
            theta = min(theta, best_tau[worst])
            best_tau[worst] = free_tau
            best_cost[worst] = free_cost
            best_id[worst] = free_id
    start = lists.start[row]
    for j in range(n_best):
        lists.ids[start + j] = best_id[j]
        lists.costs[start + j] = best_cost[j]
    lists.size[row] = n_best
    lists.theta[row] = theta


@njit(nogil=True, cache=True)
def evaluate_bounded(
    row: int, k: int, terms: Terms, v: Array, open_price: Array, blocks: Blocks, scratch: Scratch,
    lists: Lists,
) -> int:  # fmt: skip
    """As ``evaluate``, opening only blocks of columns whose bounds let them matter.

    Blocks are opened in the order of their bounds until one lies above the (k+1)-th
    smallest ``c - v`` found so far; the threshold is no larger than the first bound left.
    Returns the pairs evaluated; a block's bound counts as one.
    """
    m = terms.n_columns
    infinity = terms.infinity
    sign = terms.sign
    near, tau = scratch.near, scratch.tau
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    bound, opened = scratch.bound, scratch.opened
    bound_row(row, blocks, bound)
    pairs = bound.size
    n_best = 0
    cap = infinity
    if lists.size[row] >= k:
        # The list's own columns bound the k-th smallest.
        cap = -infinity
        start = lists.start[row]
        for j in range(start, start + lists.size[row]):
            cap = max(cap, lists.costs[j] - v[lists.ids[j]])
    outside = infinity
    free_tau, free_cost, free_id = infinity, infinity, -1
    above = -infinity
    count = 24
    done = False
    while not done:
        n_opened, reached = cheapest_blocks(bound, above, count, opened)
        if n_opened == 0:
            break
        for p in range(n_opened):
            block = opened[p]
            if bound[block] > cap:
                outside = min(outside, bound[block])
                done = True
                break
            column = block * BOUND_BLOCK
            width = min(BOUND_BLOCK, m - column)
            call_fill(
                terms.fill_address, terms.fill_context, row, column, column + width,
                near.ctypes.data,
            )  # fmt: skip
            pairs += width
            if n_invalid(near, sign, terms.lowest, terms.highest, 0, width):
                return -1
            low_free = infinity
            for j in range(width):
                x = sign * near[j]
                tau[j] = x - v[column + j]
                z = x - open_price[column + j]
                low_free = z if z < low_free else low_free
            if low_free < free_tau:
                for j in range(width):
                    if tau[j] == low_free and open_price[column + j] == v[column + j]:
                        free_tau, free_id, free_cost = low_free, column + j, sign * near[j]
                        break
            for j in range(width):
                best_tau[n_best] = tau[j]
                best_id[n_best] = column + j
                best_cost[n_best] = sign * near[j]
                n_best += 1 if tau[j] <= cap and tau[j] < infinity else 0
            if n_best > best_tau.size - BOUND_BLOCK - 1 or (n_best > k and p % 4 == 3):
                n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity)
                outside = min(outside, rest)
                cap = min(cap, rest)
        above = reached
        count *= 2
    # Candidates beyond the cap were left out: they are no nearer than the cap.
    outside = min(outside, cap) if lists.size[row] >= k else outside
    store(row, k, n_best, outside, free_tau, free_cost, free_id, infinity, scratch, lists)
    return pairs


@njit(nogil=True, cache=True)
def offset_of(row: int, seed: int, n_columns: int) -> int:
    """A pseudo-random column to start from, a multiple of LANES: a hash of row and seed."""
    x = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    places = np.uint64((n_columns + LANES - 1) // LANES)
    return int(np.int64(x % places)) * LANES


@njit(nogil=True, cache=True)
def evaluate_row(
    row: int, k: int, whole: Array, from_fill: bool, terms: Terms, v: Array, open_price: Array,
    blocks: Blocks, offset: int, scratch: Scratch, lists: Lists,
) -> int:  # fmt: skip
    """``evaluate_bounded`` where there are bounds, else ``evaluate``."""
    if blocks.offset.size:
        return evaluate_bounded(row, k, terms, v, open_price, blocks, scratch, lists)
    return evaluate(row, k, whole, from_fill, terms, v, open_price, offset, scratch, lists)


@njit(nogil=True, cache=True)
def run_evaluations(
    thread: int, n_threads: int, rows: Array, by_place: bool, slots: Array, from_fill: bool,
    terms: Terms, v: Array, open_price: Array, blocks: Blocks, seed: int, scratches: Scratch,
    lists: Lists,
) -> int:  # fmt: skip
    """Evaluate many rows, each by whichever thread is free; the result is the same.

    rows: ID (k,). Row rows[p] lies in ``slots[p]`` when ``by_place``, else in
    ``slots[row]``; unused with ``from_fill``. scratches: arrays with a leading axis of
    threads. counters[NEXT_ITEM] is the next place to take; returns 0, or 1 with
    counters[BAD_ROW] when a row holds a bad cost.
    """
    mine = Scratch(
        scratches.near[thread], scratches.tau[thread], scratches.free[thread],
        scratches.group_low[thread], scratches.best_tau[thread], scratches.best_cost[thread],
        scratches.best_id[thread],
        scratches.bound[thread], scratches.opened[thread],
    )  # fmt: skip
    counters = lists.counters
    while True:
        place = fetch_add(counters, NEXT_ITEM, 1)
        if place >= rows.size:
            return 0
        row = rows[place]
        slot = place if by_place else row
        whole = slots[0 if from_fill else slot]
        pairs = evaluate_row(
            row, lists.width[row], whole, from_fill, terms, v, open_price, blocks,
            offset_of(row, seed, terms.n_columns), mine, lists,
        )  # fmt: skip
        if pairs < 0:
            counters[BAD_ROW] = row
            return 1
        fetch_add(counters, PAIRS, pairs)


def room_for(k: int) -> int:
    """Candidates a scratch must hold for lists of k entries."""
    return _ROOM * (k + 1) + CHUNK


@njit(nogil=True, cache=True)
def list_minima(
    ids: Array, costs: Array, start: Array, size: Array, v: Array, infinity: float
) -> Array:
    """P (n_rows,) the smallest ``c - v`` of each row's list under the present prices."""
    out = np.empty(start.size, v.dtype)
    for row in range(start.size):
        low = infinity
        for k in range(start[row], start[row] + size[row]):
            low = min(low, costs[k] - v[ids[k]])
        out[row] = low
    return out


@njit(nogil=True, cache=True)
def greedy(
    ids: Array, costs: Array, start: Array, size: Array, theta: Array, v: Array, order: Array,
    taken: Array, infinity: float,
) -> tuple[float, int]:  # fmt: skip
    """Greedy matching on the lists in the given order: its gap, and how many rows got
    a column. The gap sums ``c - v`` of the pick less the row's smallest; rows whose
    whole list is taken count with their threshold. taken: uint8 (n_columns,), zero.
    """
    gap = 0.0
    matched = 0
    for p in range(order.size):
        row = order[p]
        low, best, pick = infinity, infinity, -1
        for k in range(start[row], start[row] + size[row]):
            j = ids[k]
            g = costs[k] - v[j]
            low = min(low, g)
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


@njit(nogil=True, cache=True)
def run_transform(
    thread: int, n_threads: int, slots: Array, places: Array, u: Array, sign: float, v: Array
) -> int:
    """``v[j] = min(v[j], sign * slots[places[k], j] - u[k])`` over k, each thread a slab."""
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
