"""Sparse costs, prices, matching and progress, as the kernels of this package see them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core import state as S
from bigsap.engine.core.record import record
from bigsap.engine.core.state import FREE, ID
from bigsap.types import Array

#: Column of a row that stays unassigned at its own price.
PRIVATE = -2


class Standing:
    """Progress of the current stage, and the search in progress."""

    position: int  # next index in the queue
    n_queue: int  # rows in the queue
    n_late: int  # rows put off to the next round of a reduction
    row: int  # scanned next; -1 for none
    scans: int  # rows scanned
    entries: int  # entries of these rows
    n_heap: int
    n_touched: int
    n_settled: int  # of the last search, if it failed
    underway: int  # 1: a search is in progress
    begun: int  # scans before it
    sink: int  # the end of the shortest path so far, the row before it, the cost of this pair
    sink_row: int
    h: float  # of ``row``: the base of its labels
    label: float  # running maximum of the settled labels
    best: float  # the label of the sink
    sink_cost: float


class Pairs(NamedTuple):
    """The allowed pairs. P is the price type.

    start: int64 (n_rows + 1,) row i has the entries start[i] to start[i + 1] - 1 of ids and costs, in
    any order, no column twice. The signed cost of entry k is ``sign * costs[k] - base``; infinite
    for a forbidden pair. own: P (n_rows,) what leaving a row unassigned costs, less base; (0,) if
    every row must be assigned. wall: P, more than all prices may differ by one entry.
    """

    start: Array
    ids: Array
    costs: Array
    own: Array
    sign: Any
    base: Any
    wall: Any
    infinity: Any


class Matching(NamedTuple):
    """Prices and the current matching.

    v: P (n_columns,). column_of_row, row_of_column: ID, inverse of each other; FREE, or PRIVATE.
    match_cost: P (n_rows,) signed cost of the row's pair, where it is assigned. queue, late: ID
    (n_rows,), rows to be matched; during an auction ``late`` is the ring of rows that bid in turn.
    """

    v: Array
    column_of_row: Array
    row_of_column: Array
    match_cost: Array
    queue: Array
    late: Array
    at: Standing


class Labels(NamedTuple):
    """Workspace of a search, as in ``engine.lists.workspace.Frontier``."""

    dist: Array
    pred: Array
    pred_cost: Array
    heap_key: Array
    heap_item: Array
    touched: Array
    settled: Array
    settled_dist: Array


def matching(n_rows: int, n_columns: int, price: np.dtype[Any]) -> Matching:
    """Allocate a matching without pairs, at prices 0."""
    return Matching(
        v=np.zeros(n_columns, price),
        column_of_row=np.full(n_rows, FREE, ID),
        row_of_column=np.full(n_columns, FREE, ID),
        match_cost=np.zeros(n_rows, price),
        queue=np.zeros(n_rows, ID),
        late=np.zeros(n_rows, ID),
        at=record(Standing, price),
    )


def labels(n_columns: int, price: np.dtype[Any]) -> Labels:
    """Allocate a workspace for searches."""
    m, room = n_columns, 2 * n_columns + 16
    return Labels(
        dist=np.full(m, S.infinity(price), price),
        pred=np.empty(m, ID),
        pred_cost=np.empty(m, price),
        heap_key=np.empty(room, price),
        heap_item=np.empty(room, ID),
        touched=np.empty(m, ID),
        settled=np.empty(m, ID),
        settled_dist=np.empty(m, price),
    )


@kernel(forceinline=True)
def signed(p: Pairs, k: int) -> Any:
    """Return the signed cost of an entry."""
    return p.sign * p.costs[k] - p.base


@kernel(forceinline=True)
def own_price(p: Pairs, row: int) -> Any:
    """Return what leaving the row unassigned costs; infinity if it must be assigned."""
    return p.own[row] if p.own.size > 0 else p.infinity


@kernel
def take_best(p: Pairs, s: Matching) -> None:
    """Match rows to their best columns, and set free columns' prices to 0.

    Under prices <= 0; only rows without a pair whose best column is free. O(entries).
    """
    v = s.v
    for row in range(p.own.size):
        if s.column_of_row[row] < 0:
            best, at = p.own[row], -1
            for k in range(p.start[row], p.start[row + 1]):
                if signed(p, k) - v[p.ids[k]] < best:
                    best, at = signed(p, k) - v[p.ids[k]], k
            if at >= 0 and s.row_of_column[p.ids[at]] < 0:
                s.column_of_row[row], s.row_of_column[p.ids[at]] = p.ids[at], row
                s.match_cost[row] = signed(p, at)
    for j in range(v.size):
        if s.row_of_column[j] < 0:
            v[j] = 0


@kernel
def free_loose(p: Pairs, s: Matching, rounding: float) -> int:
    """Remove the pairs that are not tight; return how many. O(entries).

    The price of a freed column rises to 0, which may make other rows' pairs loose: all are tight
    if none was removed. rounding: allowed distance from tightness, relative to the pair's numbers
    and the span of the prices now: those of a warm start may have been far larger.
    """
    v, freed = s.v, 0
    span = 0.0
    for j in range(v.size):
        span = max(span, -v[j])
    for row in range(p.own.size):
        column = s.column_of_row[row]
        if column < 0:
            continue
        low = p.own[row]
        for k in range(p.start[row], p.start[row + 1]):
            low = min(low, signed(p, k) - v[p.ids[k]])
        pair = s.match_cost[row] - v[column]
        if pair - low > rounding * (abs(pair) + abs(low) + span):
            s.column_of_row[row] = s.row_of_column[column] = FREE
            v[column] = 0
            freed += 1
    return freed
