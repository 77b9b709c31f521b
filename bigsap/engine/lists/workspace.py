"""Workspace of searches on lists: labels, queue, and progress of a phase."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core import state as S
from bigsap.engine.core.record import record
from bigsap.engine.core.state import ID
from bigsap.engine.lists.bounds import BLOCK
from bigsap.engine.lists.layout import Lists
from bigsap.types import Array


class SearchStanding:
    """Progress of the searches of a phase: ``Frontier.at``.

    Before its end, a search changes only fields that say so.
    """

    position: int  # next index in the order
    n_settled: int  # of the last search, if it failed
    scans: int  # counted at once
    n_drops: int
    n_requests: int  # rows waiting for an evaluation that only Python can do; counted at once
    n_abandoned: int  # roots to be searched again after those evaluations
    root: int  # whose search was abandoned; the row, with INVALID
    group_size: int  # virtual columns: places taken
    surplus: int  # virtual rows: free columns at the cap beyond those they hold
    n_hidden: int  # rows of the current search whose lists exclude its settled columns
    stop: int  # 1: abandon the current search, with nothing changed
    guessed: int  # rows evaluated by searches since they might be next
    met: int  # those of them whose event came in that search
    drops: float
    group_price: float
    cap: float  # virtual rows: the price of the free columns they hold, the largest there is


class Search:
    """The current search: ``Frontier.search``. Only ``entries`` and ``owed`` outlive the search."""

    root: int
    row: int  # next or currently scanned
    n_heap: int
    n_touched: int  # columns with a label
    n_settled: int
    sink: int  # the best free column, -1 if none is known; GROUPED, the virtual columns
    sink_row: int  # by which it was reached
    first_scan: int  # scans made before the search
    abandoned: int  # 1: it waits for a row that only Python can read
    last_scan: int  # if abandoned, the number of scans at which it ends
    guessed: int  # of this search, see SearchStanding
    met: int
    whole: int  # 1: ``row`` lies as a list of all columns at the pool's end
    underway: int  # 1: the kernel has returned within it and will continue
    renewing: int  # 1: between ``row``'s evaluations
    entries: int  # of lists and columns, processed since the kernel was called
    pairs_end: int  # total pairs evaluated at which the kernel returns
    owed: int  # 1: the kernel has returned within a search, and must return at its end too
    # Virtual columns: the row that reached them; 1 once they are settled; next member to scan.
    group_row: int
    group_settled: int
    member: int
    # Virtual rows: the row and column by which they were reached; 1 once they are settled.
    held_row: int
    held_by: int
    held_settled: int
    h: float  # of ``row``, see ``Frontier.h``
    before: float  # its threshold before it is renewed
    label: float  # running maximum of the settled labels: never falls
    best_free: float  # label of the sink; labels not below it are not recorded
    sink_cost: float
    group_label: float
    group_at: float  # label at which virtual columns were settled
    held_label: float
    held_cost: float
    held_at: float


class Pairs(NamedTuple):
    """Prices and matching. P is the price type.

    v: P (n_columns,) prices, which only fall. open_price: P (n_columns,) v where a column is free,
    else the blocked price. column_of_row, row_of_column: ID, inverse of each other, FREE if
    unmatched (rows of the virtual columns: see ``group`` of ``State``). match_cost:
    P (n_rows,) signed cost of each row's pair. group: ID (n_virtual_columns,) rows that hold the
    virtual columns.
    """

    v: Array
    open_price: Array
    column_of_row: Array
    row_of_column: Array
    match_cost: Array
    group: Array


class Frontier(NamedTuple):
    """Search workspace. P is the price type.

    dist: P (n_columns,) label; infinity if unreached, the blocked price if
    settled. pred, pred_cost: row the label came from and its signed cost there.
    heap_key, heap_item: the queue; item >= 0 a column, < 0 the event of row -1 - item.
    Entries whose key is no longer the column's label are stale and skipped.
    h: P (n_rows,) for scanned rows, the number that makes ``c - v`` a label.
    shown, label_of: P (n_columns,), valid while at.n_hidden > 0: v, with the
    blocked price if settled, and the labels of those. hidden: ID (n_rows,) see
    ``hide``; slack: P (n_rows,) infinity for the other rows; delay: P (n_rows,) additional
    postponement of their events, 0 for the other rows. left: int32, unsettled columns of each
    block of neighbours, while at.n_hidden > 0.
    """

    dist: Array
    pred: Array
    pred_cost: Array
    heap_key: Array
    heap_item: Array
    touched: Array
    settled: Array
    settled_dist: Array
    h: Array
    reached: Array  # P (CHUNK or more,) labels of one list
    requests: Array  # ID (n_rows,)
    requested: Array  # uint8 (n_rows,)
    abandoned: Array  # ID (n_rows,)
    shown: Array
    label_of: Array
    hidden: Array
    slack: Array
    delay: Array
    left: Array
    at: SearchStanding
    search: Search


def frontier(n: int, m: int, k: int, price: np.dtype[Any]) -> Frontier:
    """Allocate a workspace for n rows with lists of k entries, of m columns."""
    capacity = 2 * (m + n) + 16
    return Frontier(
        dist=np.full(m, S.infinity(price), price),
        pred=np.zeros(m, ID),
        pred_cost=np.zeros(m, price),
        heap_key=np.zeros(capacity, price),
        heap_item=np.zeros(capacity, ID),
        touched=np.zeros(m, ID),
        settled=np.zeros(m, ID),
        settled_dist=np.zeros(m, price),
        h=np.zeros(n, price),
        reached=np.zeros(2 * k, price),
        requests=np.zeros(n, ID),
        requested=np.zeros(n, np.uint8),
        abandoned=np.zeros(n, ID),
        shown=np.zeros(m, price),
        label_of=np.zeros(m, price),
        hidden=np.zeros(n, ID),
        slack=np.full(n, S.infinity(price), price),
        delay=np.zeros(n, price),
        left=np.zeros(-(-m // BLOCK), np.int32),
        at=record(SearchStanding, price),
        search=record(Search, price),
    )


@kernel(forceinline=True)
def is_due(s: Search, lists: Lists, most_entries: int) -> bool:
    """Check whether the kernel has done its work before the next poll in Python."""
    return s.entries >= most_entries or lists.counts.pairs >= s.pairs_end


@kernel
def push(keys: Array, items: Array, n: int, key: float, item: int) -> int:
    """Queue an item; among equal keys columns come before events. Return the new size."""
    place = n
    while place > 0:
        parent = (place - 1) // 2
        above = keys[parent]
        if above < key or (above == key and not (items[parent] < 0 and item >= 0)):
            break
        keys[place] = above
        items[place] = items[parent]
        place = parent
    keys[place] = key
    items[place] = item
    return n + 1


@kernel
def pop(keys: Array, items: Array, n: int) -> int:
    """Remove the first item of a queue of n; return the new size."""
    n -= 1
    key, item = keys[n], items[n]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        right = child + 1
        if right < n and (
            keys[right] < keys[child]
            or (keys[right] == keys[child] and items[right] >= 0 and items[child] < 0)
        ):
            child = right
        if key < keys[child] or (key == keys[child] and not (items[child] >= 0 and item < 0)):
            break
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    if n > 0:
        keys[place] = key
        items[place] = item
    return n


@kernel
def compact(keys: Array, items: Array, n: int, dist: Array) -> int:
    """Rebuild the queue without its stale entries; return the new size."""
    kept = 0
    for place in range(n):
        item = items[place]
        if item < 0 or dist[item] == keys[place]:
            kept = push(keys, items, kept, keys[place], item)
    return kept


@kernel
def clear(n_touched: int, touched: Array, dist: Array, infinity: float) -> None:
    """Reset the labels of the touched columns."""
    for k in range(n_touched):
        dist[touched[k]] = infinity
