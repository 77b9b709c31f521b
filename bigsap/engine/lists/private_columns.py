"""Successive shortest paths with a private column for each row and few listed pairs.

A row may always take its private column, at the price of leaving it unassigned; no other row can.
So a path may end in the private column of any row it reaches, and no search goes farther than its
root's own price. This is Dijkstra on the sparse graph of all pairs that are cheaper
(Volgenant 1996, "Linear and semi-assignment problems: a core oriented approach", with a complete
core), from prices at which each free column costs 0: a column that was matched once stays matched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core import state as S
from bigsap.engine.core.record import record
from bigsap.engine.core.state import FREE, ID
from bigsap.engine.lists.workspace import clear, compact, pop, push
from bigsap.types import Array

#: Column index of the row's private column.
PRIVATE = -2


class PrivateStanding:
    """Progress of the searches, and the search in progress."""

    position: int  # next index in the order
    scans: int
    entries: int  # processed by scans
    underway: int  # 1: the following fields belong to a search in progress
    row: int  # scanned next
    n_heap: int
    n_touched: int
    n_settled: int
    sink: int  # the end of the shortest path so far, the row before it, the cost of this pair
    sink_row: int
    h: float  # of ``row``: the base of its labels
    label: float  # running maximum of the settled labels
    best: float  # the label of the sink
    sink_cost: float


class PrivatePairs(NamedTuple):
    """Costs, prices and matching. P is the price type; costs are signed, minus a number per row.

    start: int64 (n_rows + 1,) row i has the entries start[i] to start[i + 1] - 1 of ids, int32, and
    costs, P. own: P (n_rows,) the cost of the private column, whose price is 0. v: P
    (n_columns,) <= 0, and 0 where free. column_of_row, row_of_column: ID, inverse of each other;
    FREE, or PRIVATE. match_cost: P (n_rows,) of the pair, if there is one.
    """

    start: Array
    ids: Array
    costs: Array
    own: Array
    v: Array
    column_of_row: Array
    row_of_column: Array
    match_cost: Array


class PrivateFrontier(NamedTuple):
    """Workspace of a search, as in ``workspace.Frontier``. at: see ``PrivateStanding``."""

    dist: Array
    pred: Array
    pred_cost: Array
    heap_key: Array
    heap_item: Array
    touched: Array
    settled: Array
    settled_dist: Array
    at: PrivateStanding


def private_frontier(n_columns: int, price: np.dtype[Any]) -> PrivateFrontier:
    """Allocate a workspace."""
    m, room = n_columns, 2 * n_columns + 16
    return PrivateFrontier(
        dist=np.full(m, S.infinity(price), price),
        pred=np.zeros(m, ID),
        pred_cost=np.zeros(m, price),
        heap_key=np.zeros(room, price),
        heap_item=np.zeros(room, ID),
        touched=np.zeros(m, ID),
        settled=np.zeros(m, ID),
        settled_dist=np.zeros(m, price),
        at=record(PrivateStanding, price),
    )


@kernel
def _flip(root: int, row: int, column: int, cost: float, p: PrivatePairs, f: PrivateFrontier) -> None:
    """Flip the path that ends with this row and column."""
    while True:
        old = p.column_of_row[row]
        p.column_of_row[row] = column
        if column >= 0:
            p.row_of_column[column] = row
            p.match_cost[row] = cost
        if row == root:
            return
        column, cost, row = old, f.pred_cost[old], f.pred[old]


@kernel
def _search(
    root: int, p: PrivatePairs, f: PrivateFrontier, infinity: float, blocked: float, last: int
) -> bool:
    """Augment the row by a shortest path; return False if the search needs another call.

    That is, if it is unfinished after ``last`` entries; nothing has changed then. O(entries of the
    rows scanned, times log).
    """
    at, dist, v = f.at, f.dist, p.v
    zero = p.own[root] - p.own[root]
    n_heap = n_touched = n_settled = 0
    row, h, label = root, zero, -infinity
    best, sink, sink_row, sink_cost = infinity, PRIVATE, root, zero
    if at.underway != 0:
        n_heap, n_touched, n_settled = at.n_heap, at.n_touched, at.n_settled
        row, h, label = at.row, at.h, at.label
        best, sink, sink_row, sink_cost = at.best, at.sink, at.sink_row, at.sink_cost
    while row >= 0:
        if at.entries >= last:
            at.n_heap, at.n_touched, at.n_settled = n_heap, n_touched, n_settled
            at.row, at.h, at.label = row, h, label
            at.best, at.sink, at.sink_row, at.sink_cost = best, sink, sink_row, sink_cost
            at.underway = 1
            return False
        at.scans += 1
        at.entries += p.start[row + 1] - p.start[row]
        if h + p.own[row] < best:
            best, sink, sink_row = h + p.own[row], PRIVATE, row
        for k in range(p.start[row], p.start[row + 1]):
            j = p.ids[k]
            g = h + (p.costs[k] - v[j])
            if g >= best or g >= dist[j]:
                continue
            if p.row_of_column[j] < 0:
                best, sink, sink_row, sink_cost = g, j, row, p.costs[k]
                continue
            if dist[j] == infinity:
                f.touched[n_touched] = j
                n_touched += 1
            dist[j], f.pred[j], f.pred_cost[j] = g, row, p.costs[k]
            if n_heap == f.heap_key.size:
                n_heap = compact(f.heap_key, f.heap_item, n_heap, dist)
            n_heap = push(f.heap_key, f.heap_item, n_heap, g, j)
        row = -1
        while n_heap > 0 and row < 0 and f.heap_key[0] < best:
            key, j = f.heap_key[0], f.heap_item[0]
            n_heap = pop(f.heap_key, f.heap_item, n_heap)
            if dist[j] == key:
                dist[j] = blocked
                label = max(label, key)
                f.settled[n_settled], f.settled_dist[n_settled] = j, key
                n_settled += 1
                row = p.row_of_column[j]
                h = label - (p.match_cost[row] - v[j])
    clear(n_touched, f.touched, dist, infinity)
    # The running maximum, so that rounding cannot raise a price.
    label = max(label, best)
    for k in range(n_settled):
        v[f.settled[k]] -= label - f.settled_dist[k]
    _flip(root, sink_row, sink, sink_cost, p, f)
    at.underway = 0
    return True


@kernel
def run_private(
    order: Array, p: PrivatePairs, f: PrivateFrontier, infinity: float, blocked: float, budget: int
) -> int:
    """Search from the remaining rows of ``order``; return 1 if no row is left.

    Returns earlier after ``budget`` entries, possibly within a search. Prices only fall; at each
    return they are dual feasible with ``min(own, c - v)``, and pairs are tight.
    """
    at = f.at
    last = at.entries + budget
    while at.position < order.size:
        if not _search(order[at.position], p, f, infinity, blocked, last):
            return 0
        at.position += 1
    return 1


@kernel
def take_best(p: PrivatePairs) -> None:
    """Match rows to their best columns, and set free columns' prices to 0.

    Under prices <= 0; only rows without a pair whose best column is free. O(entries).
    """
    v = p.v
    for row in range(p.own.size):
        if p.column_of_row[row] < 0:
            best, at = p.own[row], -1
            for k in range(p.start[row], p.start[row + 1]):
                if p.costs[k] - v[p.ids[k]] < best:
                    best, at = p.costs[k] - v[p.ids[k]], k
            if at >= 0 and p.row_of_column[p.ids[at]] < 0:
                p.column_of_row[row], p.row_of_column[p.ids[at]] = p.ids[at], row
                p.match_cost[row] = p.costs[at]
    for j in range(v.size):
        if p.row_of_column[j] < 0:
            v[j] = 0


@kernel
def free_loose(p: PrivatePairs, rounding: float) -> int:
    """Remove the pairs that are not tight; return how many. O(entries).

    The price of a freed column rises to 0, which may make other rows' pairs loose: all are tight
    if none was removed. rounding: allowed distance from tightness, relative to the pair's numbers
    and the span of the prices now: those of a warm start may have been far larger.
    """
    v, freed = p.v, 0
    span = 0.0
    for j in range(v.size):
        span = max(span, -v[j])
    for row in range(p.own.size):
        column = p.column_of_row[row]
        if column < 0:
            continue
        low = p.own[row]
        for k in range(p.start[row], p.start[row + 1]):
            low = min(low, p.costs[k] - v[p.ids[k]])
        pair = p.match_cost[row] - v[column]
        if pair - low > rounding * (abs(pair) + abs(low) + span):
            p.column_of_row[row] = p.row_of_column[column] = FREE
            v[column] = 0
            freed += 1
    return freed
