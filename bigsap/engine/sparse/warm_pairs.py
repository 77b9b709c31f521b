"""Pairs that are tight at the prices of a warm start, where every row may stay unassigned."""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import FREE
from bigsap.engine.sparse.pairs import Matching, Pairs, signed


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
