"""Evaluation of one whole row: its k smallest ``c - v``, without sorting the row.

A panel of the row gives ``c - v`` and the minima of groups of 16 columns. The (k+1)-th
smallest of those bounds the (k+1)-th smallest of all, so that hardly more than k columns
are processed individually.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.selection import bracket, extremes, gather, n_within, thin
from bigsap.engine.core.state import LANES
from bigsap.engine.lists.bounds import BLOCK, Blocks
from bigsap.engine.lists.layout import CHUNK, PANEL, PRICE_BYTES, Lists, Scratch
from bigsap.engine.lists.reading import Costs, copied
from bigsap.sources.compiled import address_of, call, call_fill
from bigsap.types import Array


class Evaluator(NamedTuple):
    """Parameters and workspace for the evaluation of rows by a thread.

    costs: location of the costs in memory or, with ``from_fill``, only functions that read them.
    longest: entries of a list that searches can scan. seed: see ``offset_of``.
    """

    costs: Costs
    from_fill: bool
    terms: Terms
    blocks: Blocks
    seed: int
    scratch: Scratch
    longest: int


@kernel
def _round_down(x: float, infinity: float) -> np.float32:
    """Return a float32 at most x; infinity stays infinity."""
    if x >= infinity:
        return np.float32(np.inf)
    y = min(float(x), 3e38)
    return np.float32(y - abs(y) * 1.2e-7 - 1e-37)


@kernel
def smallest(values: Array, infinity: float) -> np.float32:
    """Return the smallest value, rounded down to float32. Eight running minima hide the latency."""
    a = b = c = d = infinity
    e = f = g = h = infinity
    full = values.size // 8 * 8
    for j in range(0, full, 8):
        a, b = min(a, values[j]), min(b, values[j + 1])
        c, d = min(c, values[j + 2]), min(d, values[j + 3])
        e, f = min(e, values[j + 4]), min(f, values[j + 5])
        g, h = min(g, values[j + 6]), min(h, values[j + 7])
    for j in range(full, values.size):
        a = min(a, values[j])
    return _round_down(min(min(min(a, b), min(c, d)), min(min(e, f), min(g, h))), infinity)


@kernel
def evaluate(
    row: int, whole: int, v: Array, open_price: Array, offset: int, e: Evaluator, lists: Lists
) -> int:
    """Evaluate one whole row under the prices v into its list of at most its width, k entries.

    whole: the address of the row's costs, unless ``from_fill``. open_price: v for free columns, the
    blocked price for matched ones; the best free column is always in the list.
    offset: column to start from; ties at the boundary go to the first columns visited, so
    a pseudo-random offset spreads them. Returns the pairs evaluated, -1 on an invalid cost
    (possible at any time for a row in place, since its owner may write to it).

    The (k+1)-th smallest of the groups' minima bounds the (k+1)-th smallest of all, so
    that hardly more than k candidates are processed individually. O(n_columns).
    """
    terms, from_fill, scratch, k = e.terms, e.from_fill, e.scratch, lists.width[row]
    m = terms.n_columns
    infinity, sign = terms.infinity, terms.sign
    tau, free, group_low, lanes = scratch.tau, scratch.free, scratch.group_low, scratch.lanes
    costs, raw_at, item = e.costs, address_of(scratch.raw), e.costs.item
    v_at, open_at, tau_at = address_of(v), address_of(open_price), address_of(tau)
    low_at, free_at = address_of(group_low), address_of(free)
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    if not from_fill and lists.theta[row] == -infinity:  # its first evaluation
        if call(costs.judge, (whole, m, sign, terms.lowest, terms.highest, infinity, free_at)):
            return -1
        if free[0] < infinity and free[0] > -infinity:
            lists.reference[row] = free[0]
    reference = lists.reference[row]
    low, order = lists.low, lists.order
    n_best = 0
    cap = infinity
    outside = infinity
    free_tau, free_cost, free_id = infinity, infinity, -1
    # A row of one panel is read from column 0, and only its candidates are gathered from the
    # offset on.
    following, turn = (0, offset) if m <= PANEL else (offset, 0)
    left = m
    while left > 0:
        column = following
        width = min(PANEL, m - column, left)
        left -= width
        following = 0 if column + width == m else column + width
        # The cost of column j is at origin + j * item.
        origin = raw_at - column * item if from_fill else whole
        # Blocks of columns from all over the row need the whole row's tau.
        at = column if order.size else 0
        for j in range(LANES):
            free[j] = infinity
        n_groups = 0
        for place in range(0, width, CHUNK):
            part, first = min(CHUNK, width - place), column + place
            if from_fill:  # here, while the chunk stays in the first-level cache
                call_fill(
                    terms.fill_address, terms.fill_context, row, first, first + part, origin + first * item
                )
            if call(
                costs.reduce,
                (
                    origin + first * item,
                    part,
                    from_fill,
                    sign,
                    terms.lowest,
                    terms.highest,
                    reference,
                    infinity,
                    v_at + first * PRICE_BYTES,
                    open_at + first * PRICE_BYTES,
                    tau_at + (at + place) * PRICE_BYTES,
                    low_at + n_groups * PRICE_BYTES,
                    free_at,
                ),
            ):
                return -1
            n_groups += LANES
        if low.shape[1] > 0 and order.size == 0:
            note_panel(row, column, width, tau, infinity, low)
        # With hardly more groups than entries, nearly every column would be within the groups' limit.
        if width == m and n_groups <= k + k // 8:
            cap = _limit_of_row(tau, m, group_low, n_groups, k, infinity, lanes)
        elif n_groups > k and n_within(group_low, n_groups, cap) > k:
            least, most = extremes(group_low, n_groups, -infinity, infinity, lanes)
            if least < infinity and n_within(group_low, n_groups, most) > k:
                bound = bracket(group_low, n_groups, k + 1, least, most)[1]
                cap = bound if bound < cap else cap
        smallest_free = extremes(free, LANES, -infinity, infinity, lanes)[0]
        if smallest_free < free_tau:
            lane = 0
            while free[lane] != smallest_free:
                lane += 1
            for j in range(lane, width, LANES):
                if tau[at + j] == smallest_free and open_price[column + j] == v[column + j]:
                    free_tau, free_id = smallest_free, column + j
                    # There is always room for one entry beyond the candidates.
                    best_id[n_best] = free_id
                    if not copied(origin, n_best, n_best + 1, reference, costs, terms, scratch):
                        return -1
                    free_cost = best_cost[n_best]
                    break
        for lo, hi in ((turn, width), (0, turn)):
            for first in range(lo - lo % CHUNK, hi, CHUNK):
                if n_within(group_low[first // 16 :], LANES, cap) == 0:
                    continue
                place, end = max(first, lo), min(first + CHUNK, hi)
                known = n_best
                n_best = gather(
                    tau[at + place : at + end], cap, infinity, column + place, best_tau, best_id, n_best
                )
                if n_best < 0 or not copied(origin, known, n_best, reference, costs, terms, scratch):
                    return -1
                if n_best > best_tau.size - CHUNK - 1:
                    n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity, lanes)
                    outside = min(outside, rest)
                    cap = min(cap, rest)
        if n_best > k + k // 2 and left > 0:
            n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity, lanes)
            outside = min(outside, rest)
            cap = min(cap, rest)
    if low.shape[1] > 0 and order.size:
        note_row(row, m, tau, infinity, group_low, lists)
    store(row, n_best, outside, free_tau, free_cost, free_id, infinity, scratch, lists)
    return m


@kernel
def _limit_of_row(
    tau: Array, m: int, group_low: Array, n_groups: int, k: int, infinity: float, lanes: Array
) -> float:
    """Return a value that a few more than k of a row's ``tau`` are within, infinity if no more are finite.

    For rows with so few groups that a limit of the groups' minima would exclude little.
    """
    least, most = extremes(group_low, n_groups, -infinity, infinity, lanes)
    if least < infinity and n_within(tau, m, most) <= k:
        most = extremes(tau, m, -infinity, infinity, lanes)[1]
    if not least < infinity or n_within(tau, m, most) <= k:
        return infinity
    return bracket(tau, m, k + 1, least, most)[1]


@kernel
def note_panel(row: int, column: int, width: int, tau: Array, infinity: float, low: Array) -> None:
    """Write the minima of a panel's blocks, neighbouring columns each."""
    for first in range(0, width, BLOCK):
        end = min(first + BLOCK, width)
        low[row, (column + first) // BLOCK] = smallest(tau[first:end], infinity)


@kernel
def note_row(row: int, m: int, tau: Array, infinity: float, group_low: Array, lists: Lists) -> None:
    """Write the minima of a row's blocks, which are columns of ``lists.order``."""
    for block in range(lists.low.shape[1]):
        places = lists.order[block * BLOCK : min((block + 1) * BLOCK, m)]
        for j in range(places.size):
            group_low[j] = tau[places[j]]
        lists.low[row, block] = smallest(group_low[: places.size], infinity)


@kernel
def store(
    row: int,
    n_best: int,
    outside: float,
    free_tau: float,
    free_cost: float,
    free_id: int,
    infinity: float,
    scratch: Scratch,
    lists: Lists,
) -> None:
    """Write the k best candidates, k its width, as the row's list and set its threshold.

    outside: a lower bound on ``c - v`` of all columns that are not candidates.
    """
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    lanes, k = scratch.lanes, lists.width[row]
    theta = outside
    if n_best > k:
        n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity, lanes)
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
