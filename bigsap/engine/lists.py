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
from bigsap.engine.fetch import Terms
from bigsap.engine.scan import AHEAD, LINE, n_invalid
from bigsap.engine.state import LANES
from bigsap.sources.base import Array
from bigsap.sources.compiled import call_fill

#: Columns taken from a row at a time: their costs and reduced costs stay in the
#: nearest caches.
CHUNK = 1024
#: Candidates are kept up to this many times k before they are thinned out.
_ROOM = 4


class Lists(NamedTuple):
    """All rows' lists in one pool. P is the price type, see ``State``.

    ids: int32 (pool,) columns; costs: P (pool,) their signed costs. Row i owns
    ``start[i] : start[i] + width[i]``, of which the first ``size[i]`` are in use.
    theta: P (n_rows,) no column outside the list has ``c - v`` below it.
    counters: int64, see the constants below.
    """

    ids: Array
    costs: Array
    start: Array
    width: Array
    size: Array
    theta: Array
    counters: Array


# Places in Lists.counters.
POOL_USED, EVALUATIONS, PAIRS, DOUBLED, NEXT_ITEM, BAD_ROW, COUNTER_WORDS = range(7)


class Scratch(NamedTuple):
    """One thread's room for an evaluation.

    near, tau: (CHUNK,) costs as they come and ``c - v``. lanes: P (2 * LANES,).
    best_tau, best_cost: P (room,), best_id: int32 (room,) candidates.
    """

    near: Array
    tau: Array
    lanes: Array
    best_tau: Array
    best_cost: Array
    best_id: Array


@njit(nogil=True, cache=True)
def _swap(tau: Array, cost: Array, ids: Array, a: int, b: int) -> None:
    tau[a], tau[b] = tau[b], tau[a]
    cost[a], cost[b] = cost[b], cost[a]
    ids[a], ids[b] = ids[b], ids[a]


@njit(nogil=True, cache=True)
def select(tau: Array, cost: Array, ids: Array, n: int, k: int) -> None:
    """Reorder the first n candidates so that the k smallest ``tau`` come first and
    ``tau[k]`` is the next smallest (k < n). Hoare's selection, O(n) on average."""
    low, high = 0, n - 1
    while low < high:
        # Median of three keeps sorted input from being the worst case.
        middle = (low + high) // 2
        if tau[middle] < tau[low]:
            _swap(tau, cost, ids, middle, low)
        if tau[high] < tau[low]:
            _swap(tau, cost, ids, high, low)
        if tau[high] < tau[middle]:
            _swap(tau, cost, ids, high, middle)
        pivot = tau[middle]
        i, j = low, high
        while i <= j:
            while tau[i] < pivot:
                i += 1
            while pivot < tau[j]:
                j -= 1
            if i <= j:
                _swap(tau, cost, ids, i, j)
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return


@njit(nogil=True, cache=True)
def _near_chunk(
    cost: Array, at: int, width: int, column: int, sign: float, v: Array, open_price: Array,
    tau: Array, lanes: Array, infinity: float,
) -> tuple[float, float]:  # fmt: skip
    """``tau = sign * cost - v`` of a chunk; the smallest of all and of free columns."""
    low, free = lanes[:LANES], lanes[LANES : 2 * LANES]
    for k in range(LANES):
        low[k] = free[k] = infinity
    full = width // LANES
    for b in range(full):
        p, q, r = at + b * LANES, column + b * LANES, b * LANES
        for line in range(cost.itemsize * LANES // LINE):
            prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
        c, w, f, t = cost[p : p + LANES], v[q : q + LANES], open_price[q : q + LANES], tau[r : r + LANES]
        for k in range(LANES):
            x = sign * c[k]
            g = x - w[k]
            h = x - f[k]
            t[k] = g
            a, z = low[k], free[k]
            low[k] = g if g < a else a
            free[k] = h if h < z else z
    for k in range(full * LANES, width):
        x = sign * cost[at + k]
        tau[k] = x - v[column + k]
        low[0] = min(low[0], tau[k])
        free[0] = min(free[0], x - open_price[column + k])
    smallest, smallest_free = infinity, infinity
    for k in range(LANES):
        smallest = low[k] if low[k] < smallest else smallest
        smallest_free = free[k] if free[k] < smallest_free else smallest_free
    return smallest, smallest_free


@njit(nogil=True, cache=True)
def evaluate(
    row: int, k: int, whole: Array, from_fill: bool, terms: Terms, v: Array, open_price: Array,
    offset: int, scratch: Scratch, lists: Lists,
) -> bool:  # fmt: skip
    """Evaluate one whole row under the prices v into its list of at most k entries.

    whole: the row's costs, unless ``from_fill``. open_price: v for free columns, the
    blocked price for matched ones; the best free column always gets a place.
    offset: column to start from; ties at the boundary go to the
    columns met first, so a pseudo-random offset spreads them. False on a bad cost.
    """
    m = terms.n_columns
    infinity = terms.infinity
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    near, tau, lanes = scratch.near, scratch.tau, scratch.lanes
    sign = terms.sign
    room = best_tau.size - CHUNK
    judge = lists.theta[row] == -infinity  # its first evaluation
    n_best = 0
    limit = infinity
    free_tau, free_cost, free_id = infinity, infinity, -1
    following = offset
    left = m
    while left > 0:
        column = following
        width = min(CHUNK, m - column, left)
        left -= width
        following = 0 if column + width == m else column + width
        if from_fill:
            call_fill(
                terms.fill_address, terms.fill_context, row, column, column + width, near.ctypes.data
            )
            bad = 0
            for j in range(width):
                x = sign * near[j]
                bad += 0 if (x > terms.lowest and x <= terms.highest) else 1
            if bad:
                return False
            smallest, smallest_free = _near_chunk(
                near, 0, width, column, sign, v, open_price, tau, lanes, infinity
            )
        else:
            if judge and n_invalid(
                whole, sign, terms.lowest, terms.highest, column, column + width
            ):
                return False
            smallest, smallest_free = _near_chunk(
                whole, column, width, column, sign, v, open_price, tau, lanes, infinity
            )
        if smallest_free < free_tau:
            for j in range(width):
                if open_price[column + j] == v[column + j] and tau[j] == smallest_free:
                    free_tau, free_id = smallest_free, column + j
                    free_cost = sign * near[j] if from_fill else sign * whole[column + j]
                    break
        if smallest < limit:
            for j in range(width):
                if tau[j] < limit:
                    best_tau[n_best] = tau[j]
                    best_id[n_best] = column + j
                    best_cost[n_best] = sign * near[j] if from_fill else sign * whole[column + j]
                    n_best += 1
            if n_best > room:
                select(best_tau, best_cost, best_id, n_best, k)
                limit = best_tau[k]
                n_best = k + 1
    store(row, k, n_best, infinity, free_tau, free_cost, free_id, v, scratch, lists)
    return True


@njit(nogil=True, cache=True)
def store(
    row: int, k: int, n_best: int, outside: float, free_tau: float, free_cost: float, free_id: int,
    v: Array, scratch: Scratch, lists: Lists,
) -> None:  # fmt: skip
    """Write the k best candidates as the row's list and set its threshold.

    outside: a lower bound on ``c - v`` of all columns that are no candidates.
    """
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    theta = outside
    if n_best > k:
        select(best_tau, best_cost, best_id, n_best, k)
        theta = min(theta, best_tau[k])
        n_best = k
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
def offset_of(row: int, seed: int, n_columns: int) -> int:
    """A pseudo-random column to start from, a multiple of LANES: a hash of row and seed."""
    x = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    places = np.uint64((n_columns + LANES - 1) // LANES)
    return np.int64(x % places) * LANES


@njit(nogil=True, cache=True)
def run_evaluations(
    thread: int, n_threads: int, rows: Array, by_place: bool, slots: Array, from_fill: bool,
    terms: Terms, v: Array, open_price: Array, seed: int, scratches: Scratch, lists: Lists,
) -> int:  # fmt: skip
    """Evaluate many rows, each by whichever thread is free; the result is the same.

    rows: ID (k,). Row rows[p] lies in ``slots[p]`` when ``by_place``, else in
    ``slots[row]``; unused with ``from_fill``. scratches: arrays with a leading axis of
    threads. counters[NEXT_ITEM] is the next place to take; returns 0, or 1 with
    counters[BAD_ROW] when a row holds a bad cost.
    """
    mine = Scratch(
        scratches.near[thread], scratches.tau[thread], scratches.lanes[thread],
        scratches.best_tau[thread], scratches.best_cost[thread], scratches.best_id[thread],
    )  # fmt: skip
    counters = lists.counters
    while True:
        place = fetch_add(counters, NEXT_ITEM, 1)
        if place >= rows.size:
            return 0
        row = rows[place]
        slot = place if by_place else row
        whole = slots[0 if from_fill else slot]
        good = evaluate(
            row, lists.width[row], whole, from_fill, terms, v, open_price,
            offset_of(row, seed, terms.n_columns), mine, lists,
        )  # fmt: skip
        if not good:
            counters[BAD_ROW] = row
            return 1


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
