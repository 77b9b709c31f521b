"""Successive shortest paths on complete lists.

From prices at which every pair is tight each row left is matched along a shortest path, found by
Dijkstra's method with a heap.

A row that may stay unassigned has a private column besides, at the price of leaving it out; no other
row can take it. A path may end in the private column of any row it reaches, so no search goes farther
than its root's own price (Volgenant 1996, "Linear and semi-assignment problems: a core oriented
approach", with a complete core). From prices at which each free column costs 0, a column that was
matched once stays matched.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import FREE
from bigsap.engine.lists.workspace import clear, compact, pop, push
from bigsap.engine.sparse.pairs import PRIVATE, Labels, Matching, Pairs, own_price, signed

#: Results of ``search``.
DONE, YIELD, STUCK = 0, 1, 2
#: Scans of a search without a limit.
NEVER = 1 << 62


@kernel
def _flip(root: int, row: int, column: int, cost: float, s: Matching, f: Labels) -> None:
    """Flip the path that ends with this row and column."""
    while True:
        old = s.column_of_row[row]
        s.column_of_row[row] = column
        if column >= 0:
            s.row_of_column[column] = row
            s.match_cost[row] = cost
        if row == root:
            return
        column, cost, row = old, f.pred_cost[old], f.pred[old]


@kernel
def _search(root: int, p: Pairs, s: Matching, f: Labels, blocked: float, most_scans: int, last: int) -> int:
    """Augment the row by a shortest path. O(entries of the rows scanned, times log).

    YIELD: unfinished after so many scans, or ``last`` entries, in all; STUCK: no path exists. Nothing has
    changed then.
    """
    at, dist, v, infinity = s.at, f.dist, s.v, p.infinity
    zero = p.base - p.base
    n_heap = n_touched = n_settled = 0
    row, h, label = root, zero, -infinity
    best, sink, sink_row, sink_cost = infinity, FREE, root, zero
    if at.underway != 0:
        n_heap, n_touched, n_settled = at.n_heap, at.n_touched, at.n_settled
        row, h, label = at.row, at.h, at.label
        best, sink, sink_row, sink_cost = at.best, at.sink, at.sink_row, at.sink_cost
    while row >= 0:
        if at.entries >= last or at.scans >= most_scans:
            at.n_heap, at.n_touched, at.n_settled = n_heap, n_touched, n_settled
            at.row, at.h, at.label = row, h, label
            at.best, at.sink, at.sink_row, at.sink_cost = best, sink, sink_row, sink_cost
            at.underway = 1
            return YIELD
        at.scans += 1
        at.entries += p.start[row + 1] - p.start[row] + 1
        own = own_price(p, row)
        if own < infinity and h + own < best:
            best, sink, sink_row = h + own, PRIVATE, row
        for k in range(p.start[row], p.start[row + 1]):
            j = p.ids[k]
            cost = signed(p, k)
            g = h + (cost - v[j])
            if g >= best or g >= dist[j]:
                continue
            if s.row_of_column[j] < 0:
                best, sink, sink_row, sink_cost = g, j, row, cost
                continue
            if dist[j] == infinity:
                f.touched[n_touched] = j
                n_touched += 1
            dist[j], f.pred[j], f.pred_cost[j] = g, row, cost
            if n_heap == f.heap_key.size:
                n_heap = compact(f.heap_key, f.heap_item, n_heap, dist)
            n_heap = push(f.heap_key, f.heap_item, n_heap, g, j)
        row = FREE
        while n_heap > 0 and row < 0 and f.heap_key[0] < best:
            key, j = f.heap_key[0], f.heap_item[0]
            n_heap = pop(f.heap_key, f.heap_item, n_heap)
            if dist[j] == key:
                dist[j] = blocked
                label = max(label, key)
                f.settled[n_settled], f.settled_dist[n_settled] = j, key
                n_settled += 1
                row = s.row_of_column[j]
                h = label - (s.match_cost[row] - v[j])
    clear(n_touched, f.touched, dist, infinity)
    at.underway = 0
    at.n_settled = n_settled
    if sink == FREE:
        return STUCK
    # The running maximum, so that rounding cannot raise a price.
    label = max(label, best)
    for k in range(n_settled):
        v[f.settled[k]] -= label - f.settled_dist[k]
    _flip(root, sink_row, sink, sink_cost, s, f)
    return DONE


@kernel
def search(p: Pairs, s: Matching, f: Labels, blocked: float, most_scans: int, budget: int) -> int:
    """Search from the remaining rows of the queue; DONE if no row is left.

    Returns YIELD at ``most_scans`` scans in all and after ``budget`` entries, possibly within a search,
    and STUCK where a row has no path: it is the queue's next, and the last ``n_settled`` columns show
    why. Prices only fall; at each return they are feasible, and pairs are tight.
    """
    at = s.at
    last = at.entries + budget
    while at.position < at.n_queue:
        if at.underway == 0:
            at.begun = at.scans
        done = _search(s.queue[at.position], p, s, f, blocked, most_scans, last)
        if done != DONE:
            return done
        at.position += 1
    return DONE
