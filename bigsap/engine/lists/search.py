"""Shortest augmenting paths on compressed rows, exact through threshold events.

Dijkstra over the lists. Besides columns, the queue holds *events*. A scanned row whose
threshold lies below the best free column found so far is queued at the key ``h + theta``.
When it reaches the front, the row is evaluated again and scanned again.
An unlisted column's label is never below its row's event, so no column is settled too
early: with epsilon 0 this is Dijkstra on the full graph. In phases with epsilon > 0
events may be postponed by some epsilons, since any prices are a valid start for the next
phase. Labels found late may then lie below settled ones. So all later steps use the running
maximum of the keys, and no price rises.

One thread searches; evaluations of many rows at once use the whole team.
"""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import prefetch
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.scan import LINE
from bigsap.engine.core.state import (
    DONE,
    GROUPED,
    INFEASIBLE,
    INVALID,
    NEED_ROW,
    PAUSE,
    POOL_FULL,
    REFIT,
    YIELD,
)
from bigsap.engine.lists.augment import VIRTUAL, commit
from bigsap.engine.lists.bounded_evaluation import AWAITED, RENEWED, UNFINISHED, renew
from bigsap.engine.lists.evaluation import Evaluator
from bigsap.engine.lists.layout import Lists
from bigsap.engine.lists.masked_columns import hide, leave_out, reveal, smallest_label
from bigsap.engine.lists.pool import NO_GROWTH, NO_ROOM, write_whole
from bigsap.engine.lists.workspace import Frontier, Pairs, clear, compact, is_due, pop, push
from bigsap.types import Array

# Lists of this many rows that may be next are prefetched while one is scanned.
_NEXT = 3
_MOST_AHEAD = 256
#: How far the queue is searched for rows to be evaluated together, as a multiple of their number.
_FRONT = 4
#: Guesses allowed at first, before any has come true.
_FIRST_GUESSES = 256
#: Entries that equal the fixed time of a scan.
_A_SCAN = 64
# Results of ``_next_item``, besides reasons to return: a row to scan, or nothing nearer than
# the best free column.
_ROW, _NOTHING = -1, -2


class Rules(NamedTuple):
    """Parameters of all searches of a phase.

    postpone: added to the key of every event. immediate: evaluate rows at once at their event.
    Otherwise the row joins the requests and its root the abandoned, with nothing changed, for
    another search after the evaluations; PAUSE at ``most_requests``. gather: scans for which such
    a search continues, to request rows it may need next, and as many again as it made before; 0:
    none. unit: the rounding of P. refit, refresh: total evaluations, and scans, at which to return
    REFIT between two searches. most_entries, most_pairs: entries of lists and columns processed, and pairs
    evaluated, at which to return YIELD, within a search too. together: rows that Python evaluates
    within a search, that of the event and others that may be next; 0: the kernel evaluates. guesses: how
    many of the others are allowed for each that came true.
    """

    epsilon: float
    postpone: float
    immediate: bool
    gather: int
    most_requests: int
    unit: float
    refit: int
    refresh: int
    most_entries: int
    most_pairs: int
    together: int
    guesses: int


@kernel(forceinline=True)
def _look_ahead(row_of_column: Array, f: Frontier, lists: Lists) -> None:
    """Prefetch the lists of the rows at the front of the queue.

    They lie anywhere in the pool. Saves 3 to 7 % of a phase at 128,000 rows.
    """
    keys, items, dist = f.heap_key, f.heap_item, f.dist
    ids, costs = lists.ids, lists.costs
    for place in range(min(f.search.n_heap, _NEXT)):
        item = items[place]
        if item >= 0 and dist[item] == keys[place]:
            row = row_of_column[item]
            start, size = lists.start[row], min(lists.size[row], _MOST_AHEAD)
            # Taking an address inside the loops would cost more than this saves.
            at = ids.ctypes.data + start * ids.itemsize
            for line in range(size * ids.itemsize // LINE + 1):
                prefetch(at + line * LINE)
            at = costs.ctypes.data + start * costs.itemsize
            for line in range(size * costs.itemsize // LINE + 1):
                prefetch(at + line * LINE)


@kernel(forceinline=True)
def _open(root: int, terms: Terms, f: Frontier) -> None:
    """Start a search: only its root is reached."""
    s, infinity, zero = f.search, terms.infinity, terms.sign - terms.sign
    s.root = s.row = root
    s.h = s.sink_cost = s.held_cost = zero
    s.label = -infinity
    s.best_free = s.group_label = s.group_at = s.held_label = s.held_at = infinity
    s.sink = s.sink_row = s.group_row = s.held_row = s.held_by = -1
    s.n_heap = s.n_touched = s.n_settled = s.member = 0
    s.group_settled = s.held_settled = s.abandoned = s.whole = s.renewing = 0
    s.first_scan, s.last_scan = f.at.scans, 0
    s.guessed = s.met = 0


@kernel(forceinline=True)
def _queue(key: float, item: int, f: Frontier, n_heap: int) -> int:
    """Queue a column or an event; return the new size."""
    if n_heap == f.heap_key.size:
        n_heap = compact(f.heap_key, f.heap_item, n_heap, f.dist)
    return push(f.heap_key, f.heap_item, n_heap, key, item)


@kernel(forceinline=True)
def _postponed(row: int, event: float, f: Frontier, terms: Terms, postpone: float) -> float:
    """Return the key of a row's event at a threshold's label."""
    # int64: must stay below infinity.
    return min(event + (postpone + f.delay[row]), terms.infinity - terms.sign * terms.sign)


@kernel(forceinline=True)
def _scan(p: Pairs, f: Frontier, lists: Lists, terms: Terms, postpone: float) -> None:
    """Scan the search's row at its h: relax its list, queue its event."""
    s, at = f.search, f.at
    v, row_of_column, n_group = p.v, p.row_of_column, p.group.size
    dist, pred, pred_cost, touched, reached = f.dist, f.pred, f.pred_cost, f.touched, f.reached
    ids, costs = lists.ids, lists.costs
    infinity, zero = terms.infinity, terms.sign - terms.sign
    row, h, best_free, n_heap = s.row, s.h, s.best_free, s.n_heap
    cap, held = at.cap, p.column_of_row.size < terms.n_columns and at.surplus == 0
    at.scans += 1
    f.h[row] = h
    start, size = lists.start[row], lists.size[row]
    event = h + lists.theta[row]
    if s.whole != 0:
        start, size, event = ids.size - terms.n_columns, terms.n_columns, infinity
        s.whole = 0
    s.entries += size + _A_SCAN
    _look_ahead(row_of_column, f, lists)
    for k in range(size):
        reached[k] = h + (costs[start + k] - v[ids[start + k]])
    for k in range(size):
        g = reached[k]
        if g < best_free:
            j = ids[start + k]
            old = dist[j]
            if g < old:
                if row_of_column[j] < 0:
                    if held and v[j] == cap:
                        if g < s.held_label and s.held_settled == 0:
                            s.held_label, s.held_row, s.held_by = g, row, j
                            s.held_cost = costs[start + k]
                    else:
                        best_free = g
                        s.sink, s.sink_row, s.sink_cost = j, row, costs[start + k]
                else:
                    if old == infinity:
                        touched[s.n_touched] = j
                        s.n_touched += 1
                    dist[j] = g
                    pred[j] = row
                    pred_cost[j] = costs[start + k]
                    n_heap = _queue(g, j, f, n_heap)
    if n_group > 0 and s.group_settled == 0:
        g = h + ((zero - lists.reference[row]) - at.group_price)
        if g < s.group_label:
            s.group_label, s.group_row = g, row
    # Not limited by the group's label: once the group is settled, keys beyond it
    # count again.
    if event < best_free:
        event = _postponed(row, event, f, terms, postpone)
        if event < best_free or best_free == infinity:
            n_heap = _queue(event, -1 - row, f, n_heap)
    s.best_free, s.n_heap = best_free, n_heap


@kernel
def _renew(row: int, p: Pairs, f: Frontier, lists: Lists, e: Evaluator, rules: Rules) -> int:
    """Evaluate a row at its event; return _ROW, or the reason why that is impossible now.

    NEED_ROW: Python is to evaluate it first.
    """
    s, zero = f.search, e.terms.sign - e.terms.sign
    postpone = rules.postpone
    renewed = renew(row, p, f, lists, e, rules.most_entries, rules.together > 0)
    if renewed == UNFINISHED:
        return YIELD
    if renewed == AWAITED:
        _ask(row, p, f, lists, e.terms, rules)
        return NEED_ROW
    if renewed == NO_GROWTH:
        s.whole = write_whole(row, e.from_fill, e.costs, e.terms, e.scratch.raw, lists)
        return _ROW if s.whole != 0 else INVALID
    if renewed != RENEWED:
        return POOL_FULL if renewed == NO_ROOM else INVALID
    if f.slack[row] < e.terms.infinity and postpone > zero:
        f.delay[row] = min(2 * f.delay[row] + postpone, max(s.label, postpone))
    return _ROW


@kernel
def _ask(row: int, p: Pairs, f: Frontier, lists: Lists, terms: Terms, rules: Rules) -> None:
    """Ask Python to evaluate a row at its event, and rows whose events may be next."""
    s, at = f.search, f.at
    f.requests[0] = row
    allowed = _FIRST_GUESSES + rules.guesses * (at.met + s.met) - (at.guessed + s.guessed)
    n, most = 1, min(rules.together, 1 + allowed)
    # The front of the heap holds the lowest keys, nearly in order.
    for place in range(min(s.n_heap, _FRONT * rules.together)):
        if n >= most:
            break
        item, key = f.heap_item[place], f.heap_key[place]
        if item >= 0 or key >= s.best_free:
            continue
        other = -1 - item
        if other == row or _has_grown(other, key, f, lists, terms, rules.postpone):
            continue
        if f.slack[other] < terms.infinity:
            hide(other, p.v, terms, f, lists)
        f.requests[n] = other
        n += 1
    at.n_requests = n
    s.guessed += n - 1


@kernel(forceinline=True)
def _has_grown(row: int, key: float, f: Frontier, lists: Lists, terms: Terms, postpone: float) -> bool:
    """Return whether a row's threshold has grown since its event was queued."""
    return _postponed(row, f.h[row] + lists.theta[row], f, terms, postpone) > key


@kernel
def _request(row: int, f: Frontier, gather: int) -> None:
    """Request a row that only Python can read: the search is abandoned, after some more scans."""
    s, at = f.search, f.at
    if f.requested[row] == 0:
        f.requested[row] = 1
        f.requests[at.n_requests] = row
        at.n_requests += 1
    if s.abandoned == 0:
        s.last_scan = at.scans + (gather + at.scans - s.first_scan if gather else 0)
    s.abandoned = 1


@kernel(forceinline=True)
def _next_item(p: Pairs, f: Frontier, lists: Lists, e: Evaluator, rules: Rules) -> int:
    """Settle the next column or handle the next event, and set the row to scan."""
    s, at, dist = f.search, f.at, f.dist
    keys, items = f.heap_key, f.heap_item
    blocked = e.terms.blocked
    while s.n_heap > 0:
        key, item = keys[0], items[0]
        if key >= s.best_free or (s.group_settled == 0 and key >= s.group_label):
            break
        if s.held_settled == 0 and key >= s.held_label:
            break
        s.n_heap = pop(keys, items, s.n_heap)
        if item >= 0:
            if dist[item] != key:
                continue
            s.label = max(s.label, key)
            dist[item] = blocked
            f.settled[s.n_settled] = item
            f.settled_dist[s.n_settled] = key
            s.n_settled += 1
            if at.n_hidden > 0:
                leave_out(item, key, blocked, f)
            s.row = p.row_of_column[item]
            s.h = s.label - (p.match_cost[s.row] - p.v[item])
            return _ROW
        s.row = -1 - item
        s.h = f.h[s.row]
        if rules.together > 0 and _has_grown(s.row, key, f, lists, e.terms, rules.postpone):
            s.met += 1
            return _ROW  # evaluated with another row: scanned again
        if rules.immediate:
            return _renew(s.row, p, f, lists, e, rules)
        _request(s.row, f, rules.gather)
        if at.scans >= s.last_scan:
            break
    return _NOTHING


@kernel
def _settle_virtual_rows(p: Pairs, f: Frontier, terms: Terms) -> None:
    """Settle all columns that the virtual rows hold, and relax every other column from there.

    All at once, since virtual rows are interchangeable.
    """
    s, cap, v, dist = f.search, f.at.cap, p.v, f.dist
    zero = terms.sign - terms.sign
    s.entries += terms.n_columns
    s.held_settled = 1
    s.label = max(s.label, s.held_label)
    s.held_at = s.label
    for j in range(terms.n_columns):
        g = s.label + (cap - v[j])
        if g < s.best_free and g < dist[j]:
            if p.row_of_column[j] >= 0:
                if dist[j] == terms.infinity:
                    f.touched[s.n_touched] = j
                    s.n_touched += 1
                dist[j] = g
                f.pred[j] = VIRTUAL
                f.pred_cost[j] = zero
                s.n_heap = _queue(g, j, f, s.n_heap)
            elif v[j] != cap:
                s.best_free, s.sink, s.sink_row, s.sink_cost = g, j, VIRTUAL, zero


@kernel
def _next_member(p: Pairs, f: Frontier, lists: Lists, terms: Terms) -> None:
    """Set the row to scan to the next row of the settled virtual columns."""
    s, zero = f.search, terms.sign - terms.sign
    s.row = p.group[s.member]
    # Its cost there is 0, minus its reference.
    s.h = s.label - ((zero - lists.reference[s.row]) - f.at.group_price)
    s.member += 1


@kernel(forceinline=True)
def _search(p: Pairs, f: Frontier, lists: Lists, e: Evaluator, rules: Rules) -> int:
    """Continue Dijkstra from the present state; return DONE with a sink or abandoned, or another reason.

    YIELD if the budget is spent, or to abandon the search.
    """
    s, at = f.search, f.at
    if s.renewing != 0 and at.stop == 0:
        found = _renew(s.row, p, f, lists, e, rules)
        if found >= 0:
            return found
    while True:
        if at.stop != 0 or is_due(s, lists, rules.most_entries):
            return YIELD
        _scan(p, f, lists, e.terms, rules.postpone)
        if s.group_settled != 0 and s.member < at.group_size:
            _next_member(p, f, lists, e.terms)
            continue
        while True:
            found = _next_item(p, f, lists, e, rules)
            if found >= 0:
                return found
            if s.abandoned != 0 and (found == _NOTHING or at.scans >= s.last_scan):
                return DONE
            if found == _ROW:
                break
            if s.held_settled == 0 and s.held_label < s.best_free:
                _settle_virtual_rows(p, f, e.terms)
                continue
            if s.group_settled == 0 and s.group_label < s.best_free:
                s.label = max(s.label, s.group_label)
                if at.group_size < p.group.size:
                    s.sink = GROUPED
                    return DONE
                s.group_settled, s.group_at = 1, s.label
                _next_member(p, f, lists, e.terms)
                break
            if s.sink < 0:
                return INFEASIBLE
            s.label = max(s.label, s.best_free)
            return DONE


@kernel
def run_searches(order: Array, p: Pairs, f: Frontier, lists: Lists, e: Evaluator, rules: Rules) -> int:
    """Augment every remaining row of ``order``: return DONE, or the reason for an earlier return.

    NEED_ROW: within a search, to be called again when the requests are evaluated.
    YIELD with ``Search.underway``: within a search, which continues at the next call or, with
    at.stop, is abandoned. A row whose list may not grow is scanned as a whole at its event.

    The virtual rows hold free columns at the cap. While there are more than they need
    (at.surplus), each of these is a sink. After that a search that reaches one reaches
    all of them, and from there every column at the label plus ``cap - v``.
    """
    s, at, infinity = f.search, f.at, e.terms.infinity
    s.entries, s.pairs_end = 0, lists.counts.pairs + rules.most_pairs
    while at.position < order.size:
        if s.underway == 0:
            if lists.counts.evaluations >= rules.refit or at.scans >= rules.refresh:
                return REFIT
            if s.owed != 0 or is_due(s, lists, rules.most_entries):
                s.owed = 0
                return YIELD
            _open(order[at.position], e.terms, f)
        status = _search(p, f, lists, e, rules)
        if status == NEED_ROW and at.stop == 0:
            s.underway = 1
            return NEED_ROW
        if status == YIELD and at.stop == 0:
            s.underway = s.owed = 1
            return YIELD
        s.underway = 0
        if at.n_hidden > 0:
            # An abandoned search changes no price.
            final = s.label if status == DONE else smallest_label(s.n_settled, f)
            reveal(s.n_settled, final, infinity, rules.unit, p.v, f, lists)
        clear(s.n_touched, f.touched, f.dist, infinity)
        if status != DONE:
            at.root, at.n_settled = s.row if status == INVALID else s.root, s.n_settled
            return status
        at.position += 1
        at.guessed += s.guessed
        at.met += s.met
        if s.abandoned == 0:
            commit(p, f, lists, e.terms, rules.epsilon)
            continue
        f.abandoned[at.n_abandoned] = s.root
        at.n_abandoned += 1
        # Several searches that wait for the same row: more are likely to follow.
        if at.n_requests >= rules.most_requests or at.n_abandoned > at.n_requests + 2:
            return PAUSE
    return DONE
