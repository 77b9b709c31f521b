"""Evaluation of the relevant part of a row, and of many rows by the team.

Blocks of columns are opened in the order of a lower bound of their ``c - v``: the
source's own (``bounds``), or the minimum seen at the last visit (``Lists.low``).
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import adding
from bigsap.engine.core.scan import n_invalid
from bigsap.engine.core.selection import cheapest_blocks, gather, thin
from bigsap.engine.lists.bounds import BLOCK, GROUP, Blocks, bound_row
from bigsap.engine.lists.evaluation import Evaluator, evaluate, smallest, store
from bigsap.engine.lists.layout import Lists, Scratch
from bigsap.engine.lists.masked_columns import hide
from bigsap.engine.lists.pool import NO_GROWTH, WIDENED, widen
from bigsap.engine.lists.workspace import Frontier, Pairs, is_due
from bigsap.sources.compiled import address_of, call, call_fill
from bigsap.types import Array

add_item, add_pairs = adding("next_item"), adding("pairs")
#: Bound of a block about which nothing is known.
_NOTHING = -1.7e308
#: With this many groups and a row without a limit, the nearest groups are opened first: the bounds
#: of all blocks would take longer than the relevant columns. Starts with _FIRST_GROUPS, then
#: four times as many.
_MANY_GROUPS, _FIRST_GROUPS = 32, 4
# Results of ``renew``, besides NO_ROOM and NO_GROWTH.
RENEWED, BAD_ROW_COST, UNFINISHED, AWAITED = WIDENED, NO_GROWTH + 1, NO_GROWTH + 2, NO_GROWTH + 3
# Values of ``Search.renewing``: to be evaluated next, or by Python before the next call.
_NEXT, _ASKED = 1, 2


@kernel
def _bounds(
    row: int, cap: float, blocks: Blocks, lists: Lists, infinity: float, left: Array, bound: Array, ids: Array
) -> tuple[int, int, float]:
    """Collect the blocks that can hold a ``c - v`` of at most cap, with their bounds.

    The bounds come from the source if it has any, else from earlier visits. Returns the number of
    blocks, the number of bounds computed, and a lower bound of all ``c - v`` in the other blocks.
    left: (n_blocks,) columns of each block whose prices are not blocked; or empty.
    """
    total, looked, outside = 0, 0, infinity
    # An unknown bound (a block never visited, an overflow) must not be -infinity or
    # NaN: blocks are taken in the order of bounds *above* those taken before.
    if blocks.offset.size == 0:
        low = lists.low[row]
        for block in range(low.size):
            if left.size and left[block] == 0:
                continue
            if low[block] <= cap:
                bound[total] = max(low[block], _NOTHING)
                ids[total] = block
                total += 1
            elif low[block] < outside:
                outside = min(outside, low[block])
        return total, low.size, outside
    n_groups = blocks.offset.size - blocks.n_blocks
    limits = bound[blocks.n_blocks :]
    if cap < infinity:
        bound_row(row, blocks, blocks.n_blocks, blocks.offset.size, limits)
        looked += n_groups
    for group in range(n_groups):
        if _n_left(group, blocks.n_blocks, left) == 0:
            continue
        if cap < infinity and limits[group] > cap:
            outside = min(outside, limits[group])
            continue
        total, more = _bounds_within(row, group, blocks, left, bound, ids, total)
        looked += more
    return total, looked, outside


@kernel(forceinline=True)
def _n_left(group: int, n_blocks: int, left: Array) -> int:
    """Return how many columns of a group have prices that are not blocked; 1 if ``left`` is empty."""
    if not left.size:
        return 1
    n_left = 0
    for block in range(group * GROUP, min((group + 1) * GROUP, n_blocks)):
        n_left += left[block]
    return n_left


@kernel(forceinline=True)
def _bounds_within(
    row: int, group: int, blocks: Blocks, left: Array, bound: Array, ids: Array, total: int
) -> tuple[int, int]:
    """Append the bounds of a group's blocks to ``total`` others; return the new number, and the computed."""
    first, last = group * GROUP, min((group + 1) * GROUP, blocks.n_blocks)
    bound_row(row, blocks, first, last, bound[total:])
    place = total
    for block in range(first, last):
        value = bound[place]
        place += 1
        if left.size and left[block] == 0:
            continue
        bound[total] = value if value >= _NOTHING else _NOTHING
        ids[total] = block
        total += 1
    return total, last - first


@kernel
def _group_limits(row: int, blocks: Blocks, infinity: float, left: Array, limits: Array) -> int:
    """Compute bounds of all groups of blocks; -inf for groups without a relevant column."""
    n_groups = limits.size
    bound_row(row, blocks, blocks.n_blocks, blocks.offset.size, limits)
    for group in range(n_groups):
        x = limits[group]
        if x >= infinity or _n_left(group, blocks.n_blocks, left) == 0:
            limits[group] = -np.inf
        elif not x >= _NOTHING:
            limits[group] = _NOTHING
    return n_groups


@kernel
def _nearest_groups(
    row: int,
    cap: float,
    beyond: float,
    count: int,
    blocks: Blocks,
    left: Array,
    bound: Array,
    ids: Array,
    opened: Array,
) -> tuple[int, int, float]:
    """Collect the blocks of about ``count`` groups, the nearest with limits above ``beyond``.

    Returns the number of blocks, the number of bounds computed, and the largest limit taken:
    infinite if no group is left within the cap.
    """
    limits = bound[blocks.n_blocks :]
    n_taken, reached = cheapest_blocks(limits, limits.size, beyond, count, opened)
    total, looked = 0, 0
    for p in range(n_taken):
        group = opened[p]
        if limits[group] > cap:
            return total, looked, np.inf
        total, more = _bounds_within(row, group, blocks, left, bound, ids, total)
        looked += more
    return total, looked, reached if n_taken else np.inf


@kernel(forceinline=True)
def _limit(row: int, k: int, v: Array, infinity: float, lists: Lists) -> float:
    """Return an upper bound of the k-th smallest ``c - v`` from the row's list, infinity if that is short."""
    if lists.size[row] < k:
        return infinity
    cap, start = -infinity, lists.start[row]
    for j in range(start, start + lists.size[row]):
        cap = max(cap, lists.costs[j] - v[lists.ids[j]])
    return cap


@kernel
def evaluate_bounded(
    row: int, whole: int, v: Array, open_price: Array, e: Evaluator, lists: Lists, left: Array
) -> int:
    """Evaluate a row like ``evaluate``, but open only blocks whose bounds let them matter.

    Blocks are opened in the order of their bounds until one lies above the (k+1)-th
    smallest ``c - v`` found so far; the threshold is no larger than the first bound left.
    If the present list already limits that value, blocks beyond it are excluded first; without
    a limit, blocks of the nearest groups come first. Returns the pairs evaluated; the bound of a
    block or a group counts as one.

    left: empty; or (n_blocks,) the number of unblocked columns of each block, if some columns have
    the blocked price temporarily. Minima found then are not kept as bounds.
    """
    terms, from_fill, scratch, k = e.terms, e.from_fill, e.scratch, lists.width[row]
    m, infinity, sign = terms.n_columns, terms.infinity, terms.sign
    near, tau, lanes, costs = scratch.near, scratch.tau, scratch.lanes, e.costs
    near_at = address_of(near)
    # Costs of the price type need no copy.
    raw_at = near_at if costs.plain else address_of(scratch.raw)
    best_tau, best_cost, best_id = scratch.best_tau, scratch.best_cost, scratch.best_id
    bound, ids, opened = scratch.bound, scratch.block, scratch.opened
    low, order, reference = lists.low, lists.order, lists.reference[row]
    keep = low.shape[1] > 0 and left.size == 0
    n_best = 0
    limited = cap = _limit(row, k, v, infinity, lists)
    some = left[:0] if order.size else left
    beyond, n_groups = np.inf, _FIRST_GROUPS
    total, outside = 0, infinity
    if cap == infinity and e.blocks.offset.size - e.blocks.n_blocks >= _MANY_GROUPS:
        beyond = -np.inf
        pairs = _group_limits(row, e.blocks, infinity, some, bound[e.blocks.n_blocks :])
    else:
        total, pairs, outside = _bounds(row, cap, e.blocks, lists, infinity, some, bound, ids)
    free_tau, free_cost, free_id = infinity, infinity, -1
    while True:
        if beyond < np.inf:
            # Everything above the cap is bounded already, by candidates that were dropped.
            total, more, beyond = _nearest_groups(
                row, cap, beyond, n_groups, e.blocks, some, bound, ids, opened
            )
            n_groups *= 4
            pairs += more
        above, count, done = -infinity, 24, False
        while not done:
            n_opened, reached = cheapest_blocks(bound, total, above, count, opened)
            if n_opened == 0:
                break
            for p in range(n_opened):
                if bound[opened[p]] > cap:
                    outside = min(outside, bound[opened[p]])
                    done = True
                    break
                block = ids[opened[p]]
                column = block * BLOCK
                width = min(BLOCK, m - column)
                pairs += width
                low_free = infinity
                if order.size:
                    places = order[column : column + width]
                    call(costs.copy, (whole, address_of(places), width, near_at))
                    for j in range(width):
                        x = sign * near[j] - reference
                        tau[j] = x - v[places[j]]
                        low_free = min(low_free, x - open_price[places[j]])
                else:
                    if from_fill:
                        call_fill(terms.fill_address, terms.fill_context, row, column, column + width, raw_at)
                        if not costs.plain:
                            call(costs.copy, (raw_at, 0, width, near_at))
                        if n_invalid(near, sign, terms.lowest, terms.highest, 0, width):
                            return -1
                    else:
                        call(costs.copy, (whole + column * costs.item, 0, width, near_at))
                    for j in range(width):
                        x = sign * near[j] - reference
                        tau[j] = x - v[column + j]
                        z = x - open_price[column + j]
                        low_free = z if z < low_free else low_free
                if low_free < free_tau:
                    for j in range(width):
                        id_ = order[column + j] if order.size else column + j
                        if tau[j] == low_free and open_price[id_] == v[id_]:
                            x = sign * near[j]
                            if not (x > terms.lowest and x <= terms.highest):
                                return -1
                            free_tau, free_id, free_cost = low_free, id_, x - reference
                            break
                if keep:
                    low[row, block] = smallest(tau[:width], infinity)
                first = n_best
                n_best = gather(tau[:width], cap, infinity, column, best_tau, best_id, n_best)
                if n_best < 0:
                    return -1
                for j in range(first, n_best):
                    place = best_id[j]
                    x = sign * near[place - column]
                    if not (x > terms.lowest and x <= terms.highest):
                        return -1
                    best_cost[j] = x - reference
                    if order.size:
                        best_id[j] = order[place]
                if n_best > best_tau.size - BLOCK - 1 or (n_best > k and p % 4 == 3):
                    n_best, rest = thin(best_tau, best_cost, best_id, n_best, k, infinity, lanes)
                    outside = min(outside, rest)
                    cap = min(cap, rest)
            above = reached
            count *= 2
        if not beyond < np.inf:
            break
    # Candidates beyond the cap were left out: they are not below the cap.
    outside = min(outside, limited)
    store(row, n_best, outside, free_tau, free_cost, free_id, infinity, scratch, lists)
    return pairs


@kernel
def offset_of(row: int, seed: int, n_columns: int) -> int:
    """Return a pseudo-random start column, a multiple of a block: a hash of row and seed."""
    x = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    places = np.uint64((n_columns + BLOCK - 1) // BLOCK)
    return int(np.int64(x % places)) * BLOCK


@kernel
def evaluate_row(
    row: int, whole: int, v: Array, open_price: Array, e: Evaluator, lists: Lists, left: Array
) -> int:
    """Call ``evaluate_bounded`` if there are bounds or minima of blocks, else ``evaluate``."""
    seen = lists.low.shape[1] > 0 and lists.theta[row] > -e.terms.infinity
    if e.blocks.offset.size or seen:
        return evaluate_bounded(row, whole, v, open_price, e, lists, left)
    offset = offset_of(row, e.seed, e.terms.n_columns)
    return evaluate(row, whole, v, open_price, offset, e, lists)


@kernel
def renew(
    row: int, p: Pairs, f: Frontier, lists: Lists, e: Evaluator, most_entries: int, by_python: bool
) -> int:
    """Evaluate a row, for a search, until its threshold grows.

    If it does not grow, the list is full of columns that the search has settled, or of columns
    that tie at the threshold. Settled columns are excluded (``hide``), so that a long search does
    not fill lists with columns it has passed; for ties the list is doubled.
    Returns RENEWED, BAD_ROW_COST, NO_ROOM for a longer list at present, or NO_GROWTH if there
    will be none; UNFINISHED, to be called again, if the budget ends between two evaluations;
    by_python: AWAITED, to be called again after an evaluation.
    """
    s, counts = f.search, lists.counts
    hidden = f.slack[row] < e.terms.infinity
    if s.renewing == 0:
        s.before = lists.theta[row]
        if hidden:
            hidden = hide(row, p.v, e.terms, f, lists)
    asked = s.renewing == _ASKED
    s.renewing = 0
    while True:
        if by_python and not asked:
            s.renewing = _ASKED
            return AWAITED
        if not by_python:
            counts.evaluations += 1
            pairs = evaluate_row(
                row,
                e.costs.start + row * e.costs.stride,
                f.shown if hidden else p.v,
                p.open_price,
                e,
                lists,
                f.left if hidden else f.left[:0],
            )
            if pairs < 0:
                return BAD_ROW_COST
            counts.pairs += pairs
        asked = False
        if lists.theta[row] > s.before:
            return RENEWED
        fresh = False
        if not hidden and s.n_settled > 0:
            fresh = hidden = hide(row, p.v, e.terms, f, lists)
        if not fresh:
            widened = widen(row, e.terms.n_columns, e.longest, lists)
            if widened != WIDENED:
                return widened
        if is_due(s, lists, most_entries):
            s.renewing = _NEXT
            return UNFINISHED


@kernel
def run_evaluations(
    thread: int,
    n_threads: int,
    rows: Array,
    by_place: bool,
    v: Array,
    open_price: Array,
    e: Evaluator,
    lists: Lists,
) -> int:
    """Evaluate many rows, each on the next free thread; the result does not depend on the thread.

    rows: ID (k,). Row rows[p] is the p-th of ``e.costs`` if ``by_place``, else row rows[p].
    e: its scratch has arrays with a leading axis of threads. counts.next_item is the next index to
    take. Returns 0, or 1 with counts.bad_row if a row has an invalid cost.
    """
    scratches = e.scratch
    scratch = Scratch(
        scratches.raw[thread],
        scratches.near[thread],
        scratches.tau[thread],
        scratches.free[thread],
        scratches.lanes[thread],
        scratches.group_low[thread],
        scratches.best_tau[thread],
        scratches.best_cost[thread],
        scratches.best_id[thread],
        scratches.bound[thread],
        scratches.block[thread],
        scratches.opened[thread],
    )
    mine = Evaluator(e.costs, e.from_fill, e.terms, e.blocks, e.seed, scratch, e.longest)
    counts = lists.counts
    while True:
        place = add_item(counts, 1)
        if place >= rows.size:
            return 0
        row = rows[place]
        slot = place if by_place else row
        whole = e.costs.start + slot * e.costs.stride
        pairs = evaluate_row(row, whole, v, open_price, mine, lists, lists.order[:0])
        if pairs < 0:
            counts.bad_row = row
            return 1
        add_pairs(counts, pairs)
