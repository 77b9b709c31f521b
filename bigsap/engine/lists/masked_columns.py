"""Evaluation of rows during a search without the columns that it has settled.

A long search, say to another cluster of points, settles all columns near its rows. Prices do not
change until it ends, so the k best columns of such a row are settled ones. To reach others, its
list would have to hold them all. Instead the row is evaluated as if they had the blocked price. Its
list and threshold then describe only the other columns. The *slack*, recorded before, bounds the
settled ones: it gives the valid threshold when the search has ended.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.row_access import Terms
from bigsap.engine.lists.bounds import BLOCK
from bigsap.engine.lists.layout import Lists
from bigsap.engine.lists.workspace import Frontier
from bigsap.types import Array

#: Bound on the roundings between a slack and the ``c - v`` it bounds.
_ROUNDINGS = 16


@kernel
def leave_out(column: int, label: float, blocked: float, f: Frontier) -> None:
    """Exclude a settled column from this search's evaluations."""
    f.shown[column] = blocked
    f.label_of[column] = label
    f.left[column // BLOCK] -= 1


@kernel
def hide(row: int, v: Array, terms: Terms, f: Frontier, lists: Lists) -> bool:
    """Record that the row will be evaluated without the settled columns.

    Returns False and records nothing if less than half of its list is settled, as when columns tie
    at the threshold; but a row recorded before always returns True.

    Afterwards ``slack[row] <= (c - v) - label`` for every settled column: by the list for those
    in it, by the threshold for the rest, and by the earlier slack for those excluded before.
    """
    at, dist, shown, blocked = f.at, f.dist, f.shown, terms.blocked
    start, size = lists.start[row], lists.size[row]
    slack = f.slack[row]
    if slack == terms.infinity:
        n_known = 0
        for k in range(start, start + size):
            n_known += 1 if dist[lists.ids[k]] == blocked else 0
        if 2 * n_known < size:
            return False
        if at.n_hidden == 0:
            for j in range(v.size):
                shown[j] = v[j]
            for block in range(f.left.size):
                f.left[block] = min(BLOCK, v.size - block * BLOCK)
            for k in range(f.search.n_settled):
                leave_out(f.settled[k], f.settled_dist[k], blocked, f)
        f.hidden[at.n_hidden] = row
        at.n_hidden += 1
    # No settled column's label is larger than the search's.
    slack = min(slack, lists.theta[row] - f.search.label)
    for k in range(start, start + size):
        j = lists.ids[k]
        if dist[j] == blocked:
            slack = min(slack, (lists.costs[k] - v[j]) - f.label_of[j])
    f.slack[row] = slack
    return True


@kernel
def reveal(
    n_settled: int, label: float, infinity: float, unit: float, v: Array, f: Frontier, lists: Lists
) -> None:
    """Make the thresholds of the rows of ``hide`` valid for all columns again.

    Call it before the prices of the settled columns fall to ``v - (label - theirs)``
    or lower, when ``c - v`` of each is at least its row's slack + label. unit: the
    rounding of P, 0 if its sums are exact.
    """
    at = f.at
    largest = abs(label)
    for k in range(n_settled):
        largest = max(largest, abs(v[f.settled[k]]), abs(f.settled_dist[k]))
    for k in range(at.n_hidden):
        row = f.hidden[k]
        slack = f.slack[row]
        f.slack[row] = infinity
        f.delay[row] = label - label
        bound = (slack + label) - _ROUNDINGS * unit * (largest + abs(slack))
        lists.theta[row] = min(lists.theta[row], bound)
    at.n_hidden = 0


@kernel
def smallest_label(n_settled: int, f: Frontier) -> float:
    """Return the smallest label of the settled columns: ``reveal`` needs it if no price falls."""
    label = f.settled_dist[0]
    for k in range(1, n_settled):
        label = min(label, f.settled_dist[k])
    return label
