"""A better assignment and prices, from the near pairs that a pass has recorded.

The reduced costs ``c - u - v`` are a problem of their own (``sources.residual``). There, the present
assignment costs its gap, so a better one has no pair with a larger reduced cost. If all pairs
with reduced costs of at most the gap are known, and few, they are the whole problem. Rows with a
tight pair keep it. The others are matched along shortest paths, which end soon, since their own
pairs have small reduced costs. Prices only fall, by no more than the gap in total. So no other pair
gets below its row's minimum except by rounding, which the proof with the new prices accounts for.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.proof.exact import two_sum
from bigsap.proof.row_minima import Prices, RowMinima, whole
from bigsap.proof.tighten import excesses
from bigsap.types import Array

#: Limit of pairs read, per near pair, before the searches are abandoned.
_STEPS = 256


@kernel
def match_again(
    begin: Array,
    columns: Array,
    left: Array,
    column_of_row: Array,
    row_of_column: Array,
    waiting: Array,
    u: Array,
    w: Array,
    label: Array,
    before: Array,
    settled: Array,
    key: Array,
    place: Array,
    steps: int,
) -> bool:
    """Match the rows of ``waiting`` along shortest paths; return False if that takes too long.

    begin (n + 1,), columns, left (k,): the pairs of each row, and their reduced costs. column_of_row,
    row_of_column: int64, in/out, -1 = free. u, w (n,): duals of the pairs, in/out, feasible and
    tight for matched ones. label (n,): infinite, before, settled (n,), key, place (k,): workspace.
    """
    for p in range(waiting.size):
        row = waiting[p]
        n_settled, size = 0, 0
        base, end = 0.0, -1
        while end < 0:
            steps -= begin[row + 1] - begin[row]
            if steps < 0:
                return False
            for k in range(begin[row], begin[row + 1]):
                column = columns[k]
                more = left[k] - u[row] - w[column]
                reached = base + (more if more > 0.0 else 0.0)
                if reached < label[column]:
                    label[column] = reached
                    before[column] = row
                    # Push onto the heap; older entries of the column stay.
                    if size == key.size:
                        return False
                    child = size
                    size += 1
                    while child > 0:
                        parent = (child - 1) // 2
                        if key[parent] <= reached:
                            break
                        key[child], place[child] = key[parent], place[parent]
                        child = parent
                    key[child], place[child] = reached, column
            # The nearest column whose entry is not stale.
            nearest = -1
            while size > 0 and nearest < 0:
                at, column = key[0], place[0]
                size -= 1
                last, its = key[size], place[size]
                parent, child = 0, 1
                while child < size:
                    if child + 1 < size and key[child + 1] < key[child]:
                        child += 1
                    if key[child] >= last:
                        break
                    key[parent], place[parent] = key[child], place[child]
                    parent, child = child, 2 * child + 1
                key[parent], place[parent] = last, its
                if at == label[column]:
                    nearest = column
            if nearest < 0:
                return False
            base = label[nearest]
            settled[n_settled] = nearest
            n_settled += 1
            if row_of_column[nearest] < 0:
                end = nearest
            else:
                row = row_of_column[nearest]
            if n_settled == label.size and end < 0:
                return False
        for k in range(n_settled):
            column = settled[k]
            owner = row_of_column[column]
            if owner >= 0:
                fall = base - label[column]
                w[column] -= fall
                u[owner] += fall
        u[waiting[p]] += base
        # Reset the labels of columns only reached, too.
        for k in range(n_settled):
            owner = row_of_column[settled[k]]
            label[settled[k]] = np.inf
            if owner >= 0:
                for q in range(begin[owner], begin[owner + 1]):
                    label[columns[q]] = np.inf
        for q in range(begin[waiting[p]], begin[waiting[p] + 1]):
            label[columns[q]] = np.inf
        column = end
        while True:
            owner = before[column]
            following = column_of_row[owner]
            column_of_row[owner] = column
            row_of_column[column] = owner
            if owner == waiting[p]:
                break
            column = following
    return True


def matched_again(
    minima: RowMinima, matching: Array, signed: Array, prices: Prices
) -> tuple[Array, Prices] | None:
    """Return a square problem's assignment and prices from near pairs, those within the gap.

    None if they do not suffice. signed: (n,) costs of the assigned pairs in the minimising sense.
    O(k log k) or so, k pairs.
    """
    near = minima.near
    if near is None or not near.rows.size:
        return None
    n = matching.size
    order = np.arange(n)
    rows = np.concatenate([near.rows, order])
    columns = np.concatenate([near.columns, matching])
    costs = np.concatenate([near.costs, signed])
    left = np.empty(rows.size)
    excesses(rows, columns, costs, prices.high, prices.below(), whole(minima), left)
    own = left[near.rows.size :].copy()
    by_row = np.lexsort((columns, rows))
    begin = np.searchsorted(rows[by_row], np.arange(n + 1))
    column_of_row = np.where(own > 0.0, -1, matching).astype(np.int64)
    row_of_column = np.full(n, -1, np.int64)
    kept = np.flatnonzero(column_of_row >= 0)
    row_of_column[column_of_row[kept]] = kept
    w = np.zeros(n)
    # Each of a column's pairs may push it once in a search.
    found = match_again(
        begin,
        columns[by_row].astype(np.int64),
        np.maximum(left[by_row], 0.0),
        column_of_row,
        row_of_column,
        np.flatnonzero(own > 0.0),
        np.zeros(n),
        w,
        np.full(n, np.inf),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.empty(rows.size),
        np.empty(rows.size, np.int64),
        _STEPS * rows.size,
    )
    if not found:
        return None
    high, low = two_sum(prices.high, w)
    if prices.low is not None:
        high, low = two_sum(high, low + prices.low)
    return column_of_row.astype(np.intp), Prices(high, low)
