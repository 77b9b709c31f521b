"""Initial matchings from lists just evaluated under the present prices."""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.types import Array


class Entries(NamedTuple):
    """The arrays of ``Lists`` that initial matchings use."""

    ids: Array
    costs: Array
    start: Array
    size: Array


class FirstPairs(NamedTuple):
    """A matching, FREE if unmatched, and the costs of its pairs by row."""

    column_of_row: Array
    row_of_column: Array
    match_cost: Array


@kernel(nrt=True)
def keep_tight(
    lists: Entries, v: Array, wanted: Array, excess: Array, pairs: FirstPairs, infinity: float
) -> None:
    """Match rows to their old columns if these are in the list and nearly its best.

    wanted: (n_rows,) old columns, negative = none, no column twice. excess: P (n_rows,) allowed
    distance of a pair above the smallest ``c - v``. O(entries).
    """
    for row in range(lists.start.size):
        wish = wanted[row]
        if wish < 0:
            continue
        low, reduced, place = infinity, infinity, -1
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            j = lists.ids[k]
            g = lists.costs[k] - v[j]
            low = min(low, g)
            if j == wish:
                reduced, place = g, k
        if place >= 0 and reduced < infinity and reduced - low <= excess[row]:
            pairs.column_of_row[row] = wish
            pairs.row_of_column[wish] = row
            pairs.match_cost[row] = lists.costs[place]


@kernel(nrt=True)
def pick_tight(
    lists: Entries, v: Array, order: Array, excess: Array, pairs: FirstPairs, infinity: float
) -> None:
    """Match open rows, in order, to their best free column if it is nearly tight.

    Its ``c - v`` may be at most ``excess[row]`` above the row's smallest. O(entries).
    """
    for p in range(order.size):
        row = order[p]
        if pairs.column_of_row[row] != -1:
            continue
        low, best, place = infinity, infinity, -1
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            j = lists.ids[k]
            g = lists.costs[k] - v[j]
            low = min(low, g)
            if g < best and pairs.row_of_column[j] < 0:
                best, place = g, k
        if place >= 0 and best - low <= excess[row]:
            j = lists.ids[place]
            pairs.column_of_row[row] = j
            pairs.row_of_column[j] = row
            pairs.match_cost[row] = lists.costs[place]
