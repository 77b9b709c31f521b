"""Matchings to begin with, read off lists that were just evaluated under the present prices."""

from __future__ import annotations

from bigsap.native.kernel import kernel
from bigsap.sources.base import Array


@kernel(nrt=True)
def keep_tight(
    ids: Array, costs: Array, start: Array, size: Array, v: Array, wanted: Array, excess: Array,
    column_of_row: Array, row_of_column: Array, match_cost: Array, infinity: float,
) -> None:  # fmt: skip
    """Match rows to their old columns where these are in the list and nearly its best.

    wanted: (n_rows,) old columns, negative = none, no column twice. excess: P (n_rows,) how
    far above the smallest ``c - v`` a pair may lie. O(entries).
    """
    for row in range(start.size):
        wish = wanted[row]
        if wish < 0:
            continue
        low, reduced, place = infinity, infinity, -1
        for k in range(start[row], start[row] + size[row]):
            j = ids[k]
            g = costs[k] - v[j]
            low = min(low, g)
            if j == wish:
                reduced, place = g, k
        if place >= 0 and reduced < infinity and reduced - low <= excess[row]:
            column_of_row[row] = wish
            row_of_column[wish] = row
            match_cost[row] = costs[place]


@kernel(nrt=True)
def pick_tight(
    ids: Array, costs: Array, start: Array, size: Array, v: Array, order: Array,
    column_of_row: Array, row_of_column: Array, match_cost: Array, infinity: float,
) -> None:  # fmt: skip
    """Match open rows, in order, to free columns of smallest ``c - v``. O(entries)."""
    for p in range(order.size):
        row = order[p]
        if column_of_row[row] != -1:
            continue
        low, place = infinity, -1
        for k in range(start[row], start[row] + size[row]):
            j = ids[k]
            g = costs[k] - v[j]
            if g < low:
                low, place = g, -1
            if g == low and g < infinity and place < 0 and row_of_column[j] < 0:
                place = k
        if place >= 0:
            j = ids[place]
            column_of_row[row] = j
            row_of_column[j] = row
            match_cost[row] = costs[place]
