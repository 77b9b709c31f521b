"""Sweeps over all rows in order: bounds, first prices, greedy picks (A1015, 3.4).

Run by the whole team like the search kernel, one barrier a row. A sweep claims rows
in *sweeping* mode, so that it cannot flush the row cache.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from bigsap.engine.atomics import cross, prefetch
from bigsap.engine.fetch import BAD_COSTS, Terms, obtain
from bigsap.engine.scan import AHEAD, LINE, fold, n_invalid
from bigsap.engine.state import (
    BLOCK,
    DONE,
    INVALID,
    LANES,
    NEED_ROW,
    POSITION,
    RECORD,
    WANTED,
    YIELD,
    State,
)
from bigsap.rows import RowTable
from bigsap.sources.base import Array

_NOWHERE = 1 << 40


class Survey(NamedTuple):
    """What a sweep learns; the column arrays lie in workspace of the search.

    low: P (n_rows,) smallest ``c - v`` of the row. second: P (n_rows,) the second
    smallest, in the first sweep the signed cost at the column that ``probe`` names
    instead, infinity where it names none. probe: ID (n_rows,), set by the caller; the
    diagonal by default. pick: ID (n_rows,) the
    cheapest column not yet taken, FREE when there is none. pick_cost: P (n_rows,)
    its signed cost, infinity when there is none.
    open_price: P (n_columns,) v, or the blocked price where the column is taken.
    least, runner_up: P (n_columns,) smallest and second smallest ``c - low`` of the
    column (first sweep only).
    """

    low: Array
    second: Array
    pick: Array
    pick_cost: Array
    open_price: Array
    least: Array
    runner_up: Array
    probe: Array


@njit(nogil=True, cache=True)
def _survey_row(
    cost: Array, sign: float, v: Array, open_price: Array, start: int, stop: int,
    lanes: Array, block_min: Array, infinity: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Smallest and second smallest ``c - v``, and smallest over the columns not taken."""
    low, second, best = lanes[:LANES], lanes[LANES : 2 * LANES], lanes[2 * LANES :]
    for k in range(LANES):
        low[k] = second[k] = best[k] = infinity
    overall = infinity
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        e = min(o + BLOCK, stop)
        full = (e - o) // LANES
        for b in range(full):
            p = o + b * LANES
            for line in range(cost.itemsize * LANES // LINE):
                prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
            c, w, f = cost[p : p + LANES], v[p : p + LANES], open_price[p : p + LANES]
            for k in range(LANES):
                x = sign * c[k]
                g = x - w[k]
                h = x - f[k]
                a, s, z = low[k], second[k], best[k]
                larger = g if g > a else a
                second[k] = larger if larger < s else s
                low[k] = g if g < a else a
                best[k] = h if h < z else z
        for j in range(o + full * LANES, e):
            g = sign * cost[j] - v[j]
            second[0] = min(second[0], max(low[0], g))
            low[0] = min(low[0], g)
            best[0] = min(best[0], sign * cost[j] - open_price[j])
        block_min[block] = fold(best, infinity)
        overall = min(overall, block_min[block])
    smallest, runner_up = infinity, infinity
    for k in range(LANES):
        runner_up = min(runner_up, max(smallest, low[k]))
        smallest = min(smallest, low[k])
        runner_up = min(runner_up, second[k])
    return smallest, runner_up, overall


@njit(nogil=True, cache=True)
def _find(
    best: float, cost: Array, sign: float, open_price: Array, start: int, stop: int,
    block_min: Array,
) -> int:  # fmt: skip
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        if block_min[block] == best:
            found = _NOWHERE
            for j in range(o, min(o + BLOCK, stop)):
                candidate = j if sign * cost[j] - open_price[j] == best else _NOWHERE
                found = candidate if candidate < found else found
            return found
    return _NOWHERE


@njit(nogil=True, cache=True)
def _column_minima(
    cost: Array, sign: float, low: float, least: Array, runner_up: Array, start: int, stop: int
) -> None:
    for j in range(start, stop):
        g = sign * cost[j] - low
        a, s = least[j], runner_up[j]
        larger = g if g > a else a
        runner_up[j] = larger if larger < s else s
        least[j] = g if g < a else a


@njit(nogil=True, cache=True)
def run_sweep(
    thread: int, n_threads: int, st: State, t: RowTable, terms: Terms, survey: Survey,
    order: Array, backward: bool, first: bool, budget: int,
) -> int:  # fmt: skip
    """Survey every row of ``order``; in the first sweep also judge each cost.

    The caller has set ``survey.open_price`` to v. Picks are greedy in the order of
    the visit. Returns DONE, NEED_ROW, YIELD or INVALID (words[WANTED] is the row).
    O(n_rows * n_columns / n_threads).
    """
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    lanes, block_min = st.lanes[thread], st.block_min[thread]
    infinity, sign = terms.infinity, terms.sign
    position = st.words[POSITION]
    cross(st.barrier, n_threads)
    turn = 0
    spent = 0
    status = DONE
    while position < order.size:
        if spent >= budget:
            status = YIELD
            break
        row = order[order.size - 1 - position] if backward else order[position]
        slot = obtain(thread, n_threads, row, True, st, t, terms)
        if slot < 0:
            status = INVALID if slot == BAD_COSTS else NEED_ROW
            break
        cost = t.slots[slot]
        low, second, best = _survey_row(
            cost, sign, st.v, survey.open_price, start, stop, lanes, block_min, infinity
        )
        base = (turn * n_threads + thread) * RECORD
        st.record_value[base] = low
        st.record_value[base + 1] = second
        st.record_value[base + 2] = best
        st.record_id[base + 1] = 0
        if first:
            st.record_id[base + 1] = n_invalid(cost, sign, terms.lowest, terms.highest, start, stop)
        if best < infinity:
            st.record_id[base] = _find(best, cost, sign, survey.open_price, start, stop, block_min)
        cross(st.barrier, n_threads)
        low, second, best, winner = infinity, infinity, infinity, -1
        bad = 0
        for k in range(n_threads):
            r = (turn * n_threads + k) * RECORD
            second = min(second, min(st.record_value[r + 1], max(low, st.record_value[r])))
            low = min(low, st.record_value[r])
            if st.record_value[r + 2] < best:
                best, winner = st.record_value[r + 2], k
            bad += st.record_id[r + 1]
        if bad != 0:
            cross(st.barrier, n_threads)
            if thread == 0:
                st.words[WANTED] = row
            status = INVALID
            break
        column = st.record_id[(turn * n_threads + winner) * RECORD] if winner >= 0 else -1
        turn = 1 - turn
        if first and low < infinity:
            _column_minima(cost, sign, low, survey.least, survey.runner_up, start, stop)
        if start <= column and column < stop:
            survey.open_price[column] = terms.blocked
        if thread == 0:
            survey.low[row] = low
            survey.second[row] = second
            if first:
                probed = survey.probe[row]
                here = probed >= 0 and probed < terms.n_columns
                survey.second[row] = sign * cost[probed] if here else infinity
            survey.pick[row] = column
            survey.pick_cost[row] = sign * cost[column] if column >= 0 else infinity
        position += 1
        spent += terms.n_columns
    cross(st.barrier, n_threads)
    if thread == 0:
        st.words[POSITION] = position
    return status


@njit(nogil=True, cache=True)
def run_undercut(
    thread: int, n_threads: int, st: State, t: RowTable, terms: Terms, pick: Array,
    rank_of_column: Array, order: Array, budget: int,
) -> int:  # fmt: skip
    """Backwards through the picks, stop earlier picks from undercutting later ones.

    For the rows of ``order`` from the last to the first: lower the price of every
    column picked earlier wherever ``c - v`` there is below that of the row's own pick
    (whose price is final by then: only rows picked later lower it).
    rank_of_column: ID (n_columns,) place in the order of the row that picked it, -1
    when nobody did. Returns as ``run_sweep``.
    """
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    sign = terms.sign
    position = st.words[POSITION]
    cross(st.barrier, n_threads)
    spent = 0
    status = DONE
    while position < order.size:
        if spent >= budget:
            status = YIELD
            break
        rank = order.size - 1 - position
        row = order[rank]
        own = pick[row]
        if own >= 0:
            slot = obtain(thread, n_threads, row, True, st, t, terms)
            if slot < 0:
                status = INVALID if slot == BAD_COSTS else NEED_ROW
                break
            cost = t.slots[slot]
            # The price of the own pick is final here, but its slab's thread may
            # still be lowering it for the row before.
            cross(st.barrier, n_threads)
            reduced = sign * cost[own] - st.v[own]
            for j in range(start, stop):
                limit = sign * cost[j] - reduced
                v = st.v[j]
                taken = rank_of_column[j]
                lower = taken >= 0 and taken < rank and limit < v
                st.v[j] = limit if lower else v
            spent += terms.n_columns
        position += 1
    cross(st.barrier, n_threads)
    if thread == 0:
        st.words[POSITION] = position
    return status
