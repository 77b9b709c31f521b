"""Sweeps over all rows in order: bounds, initial prices, greedy picks (A1015, 3.4).

The whole team runs a sweep, with one barrier a row. It claims rows in *sweeping* mode, so that it
does not flush the row cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import cross, prefetch
from bigsap.engine.core.row_access import BAD_COSTS, Terms, load_row, predict_slot
from bigsap.engine.core.scan import AHEAD, LINE, NOWHERE, fold, n_invalid
from bigsap.engine.core.state import BLOCK, CHANGED, DONE, ID, INVALID, LANES, NEED_ROW, YIELD, State
from bigsap.row_cache import RowTable
from bigsap.types import Array

STEP = 4 * LANES


class Survey(NamedTuple):
    """Results of a sweep; the column arrays lie in workspace of the search.

    low: P (n_rows,) smallest ``c - v`` of the row. second: P (n_rows,) the second
    smallest; in the first sweep instead the signed cost at the column of ``probe``,
    infinity if that is no column. probe: ID (n_rows,), set by the caller; the
    diagonal by default. pick: ID (n_rows,) the
    cheapest column not yet taken, FREE if there is none. pick_cost: P (n_rows,)
    its signed cost, infinity if there is none.
    open_price: P (n_columns,) v, or the blocked price if the column is taken.
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


def first_survey(st: State) -> Survey:
    """Return the arrays of the first sweep, in the workspace of the search.

    low shares its memory with the rows' references, pick with the matching, pick_cost with
    the predecessors and the list of settled columns.
    """
    n, m = st.column_of_row.size, st.v.size
    fits = n <= m
    probe = st.row_of_column[:n] if fits else np.empty(n, ID)
    probe[:] = np.arange(n, dtype=ID)
    return Survey(
        low=st.reference,
        second=np.empty(n, st.v.dtype),
        pick=st.column_of_row,
        pick_cost=st.ids.view(st.v.dtype)[:n] if fits else np.empty(n, st.v.dtype),
        open_price=st.settled_dist,
        least=st.dist,
        runner_up=st.settled_price,
        probe=probe,
    )


def later_survey(survey: Survey, st: State) -> Survey:
    """Return the arrays of later sweeps.

    They reuse the column minima; the references keep the results of the first sweep.
    """
    n, m = st.column_of_row.size, st.v.size
    if n > m:
        return survey._replace(low=np.empty(n, st.v.dtype))
    return survey._replace(low=st.settled_price[:n], second=st.dist[:n])


@kernel
def _survey_row(
    cost: Array,
    sign: float,
    v: Array,
    open_price: Array,
    start: int,
    stop: int,
    lanes: Array,
    block_min: Array,
    infinity: float,
) -> tuple[float, float, float]:
    """Return the smallest and second smallest ``c - v``, and the smallest over free columns."""
    low, second, best = lanes[:LANES], lanes[LANES : 2 * LANES], lanes[2 * LANES :]
    for k in range(LANES):
        low[k] = second[k] = best[k] = infinity
    overall = infinity
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        e = min(o + BLOCK, stop)
        # Four columns of a lane at a time: a quarter of the loads and stores of the minima.
        full = (e - o) // STEP
        for b in range(full):
            p = o + b * STEP
            for line in range(cost.itemsize * STEP // LINE):
                prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
            c, w, f = cost[p : p + STEP], v[p : p + STEP], open_price[p : p + STEP]
            for k in range(LANES):
                x0, x1 = sign * c[k], sign * c[k + LANES]
                x2, x3 = sign * c[k + 2 * LANES], sign * c[k + 3 * LANES]
                g0, g1 = x0 - w[k], x1 - w[k + LANES]
                g2, g3 = x2 - w[k + 2 * LANES], x3 - w[k + 3 * LANES]
                a, b0 = (g0, g1) if g0 < g1 else (g1, g0)
                z, b1 = (g2, g3) if g2 < g3 else (g3, g2)
                least, worse = (a, z) if a < z else (z, a)
                runner = b0 if b0 < b1 else b1
                runner = worse if worse < runner else runner
                a, s = low[k], second[k]
                worse = least if least > a else a
                runner = worse if worse < runner else runner
                second[k] = runner if runner < s else s
                low[k] = least if least < a else a
                h0, h1 = x0 - f[k], x1 - f[k + LANES]
                h2, h3 = x2 - f[k + 2 * LANES], x3 - f[k + 3 * LANES]
                a = h0 if h0 < h1 else h1
                z = h2 if h2 < h3 else h3
                a = a if a < z else z
                z = best[k]
                best[k] = a if a < z else z
        for j in range(o + full * STEP, e):
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


@kernel
def _find(
    best: float, cost: Array, sign: float, open_price: Array, start: int, stop: int, block_min: Array
) -> int:
    for block in range((stop - start + BLOCK - 1) // BLOCK):
        o = start + block * BLOCK
        if block_min[block] == best:
            found = NOWHERE
            for j in range(o, min(o + BLOCK, stop)):
                candidate = j if sign * cost[j] - open_price[j] == best else NOWHERE
                found = candidate if candidate < found else found
            return found
    return NOWHERE


@kernel
def _column_minima(
    cost: Array, sign: float, low: float, least: Array, runner_up: Array, start: int, stop: int
) -> None:
    for j in range(start, stop):
        g = sign * cost[j] - low
        a, s = least[j], runner_up[j]
        larger = g if g > a else a
        runner_up[j] = larger if larger < s else s
        least[j] = g if g < a else a


@kernel
def run_sweep(
    thread: int,
    n_threads: int,
    st: State,
    t: RowTable,
    terms: Terms,
    survey: Survey,
    order: Array,
    backward: bool,
    first: bool,
    budget: int,
) -> int:
    """Survey every row of ``order``; the first sweep also checks each cost.

    The caller has set ``survey.open_price`` to v. Picks are greedy in the order of
    the visit. Returns DONE, NEED_ROW, YIELD, INVALID or CHANGED (at.wanted is
    the row).
    O(n_rows * n_columns / n_threads).
    """
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    lanes, block_min = st.lanes[thread], st.block_min[thread]
    infinity, sign = terms.infinity, terms.sign
    position = st.at.position
    if thread == 0:
        predict_slot(0, st, t)
    cross(st.barrier, n_threads)
    turn = 0
    spent = 0
    status = DONE
    while position < order.size:
        if spent >= budget:
            status = YIELD
            break
        row = order[order.size - 1 - position] if backward else order[position]
        slot = load_row(thread, n_threads, row, True, turn, st, t, terms)
        if slot < 0:
            status = INVALID if slot == BAD_COSTS else NEED_ROW
            break
        # Other threads' data from this slab must be in the records by the next barrier: after it,
        # the slab's thread may overwrite the costs with the next row.
        cost = t.slots[slot]
        low, second, best = _survey_row(
            cost, sign, st.v, survey.open_price, start, stop, lanes, block_min, infinity
        )
        report = st.reports[turn * n_threads + thread]
        report.low, report.second, report.best, report.n_invalid = low, second, best, 0
        if first:
            report.n_invalid = n_invalid(cost, sign, terms.lowest, terms.highest, start, stop)
            probed = survey.probe[row]
            here = start <= probed and probed < stop
            report.probed_cost = sign * cost[probed] if here else infinity
        if best < infinity:
            found = _find(best, cost, sign, survey.open_price, start, stop, block_min)
            report.column = found
            report.pick_cost = sign * cost[found] if found < NOWHERE else infinity
        cross(st.barrier, n_threads)
        low, second, best, winner = infinity, infinity, infinity, -1
        probed_cost = pick_cost = infinity
        bad = 0
        for k in range(n_threads):
            report = st.reports[turn * n_threads + k]
            second = min(second, min(report.second, max(low, report.low)))
            low = min(low, report.low)
            if report.best < best:
                best, winner = report.best, k
                pick_cost = report.pick_cost
            if first:
                probed_cost = min(probed_cost, report.probed_cost)
            bad += report.n_invalid
        if bad != 0:
            cross(st.barrier, n_threads)
            if thread == 0:
                st.at.wanted = row
            status = INVALID
            break
        column = st.reports[turn * n_threads + winner].column if winner >= 0 else -1
        if column == NOWHERE:
            cross(st.barrier, n_threads)
            if thread == 0:
                st.at.wanted = row
            status = CHANGED
            break
        turn = 1 - turn
        if first and low < infinity:
            _column_minima(cost, sign, low, survey.least, survey.runner_up, start, stop)
        if start <= column and column < stop:
            survey.open_price[column] = terms.blocked
        if thread == 0:
            survey.low[row] = low
            survey.second[row] = second
            if first:
                survey.second[row] = probed_cost
            survey.pick[row] = column
            survey.pick_cost[row] = pick_cost
        position += 1
        spent += terms.n_columns
    cross(st.barrier, n_threads)
    if thread == 0:
        st.at.position = position
    return status


@kernel
def run_undercut(
    thread: int,
    n_threads: int,
    st: State,
    t: RowTable,
    terms: Terms,
    pick: Array,
    rank_of_column: Array,
    order: Array,
    budget: int,
) -> int:
    """Prevent earlier picks from undercutting later ones, from the last pick to the first.

    For the rows of ``order`` from the last to the first: lower the price of every
    column picked earlier wherever ``c - v`` there is below that of the row's own pick
    (whose price is final by then: only rows picked later lower it).
    rank_of_column: ID (n_columns,) position in the order of the row that picked it, -1
    if none did. Returns as ``run_sweep``.
    """
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    sign = terms.sign
    position = st.at.position
    if thread == 0:
        predict_slot(0, st, t)
    cross(st.barrier, n_threads)
    turn = 0
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
            slot = load_row(thread, n_threads, row, True, turn, st, t, terms)
            turn = 1 - turn
            if slot < 0:
                status = INVALID if slot == BAD_COSTS else NEED_ROW
                break
            cost = t.slots[slot]
            # The price of the row's pick is final here, but its slab's thread may still be
            # lowering it for the row before.
            cross(st.barrier, n_threads)
            reduced = sign * cost[own] - st.v[own]
            # After this barrier that cost and price may change.
            cross(st.barrier, n_threads)
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
        st.at.position = position
    return status
