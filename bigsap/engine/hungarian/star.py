"""First stars: pairs of free rows and free columns at the rows' smallest ``c - v``.

They are tight before any tree grows; the rows that they leave are the roots.
"""

from __future__ import annotations

import numpy as np

from bigsap.engine.core.state import ID
from bigsap.engine.lists.layout import Lists
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array


@kernel(nrt=True)
def star(
    lists: Lists, v: Array, column_of_row: Array, row_of_column: Array, match_cost: Array,
    offer: Array, infinity: float,
) -> int:  # fmt: skip
    """Match free rows to free columns of their lists' smallest ``c - v``; how many.

    In rounds: every free row offers itself to its first such column, from a column on that
    its number decides, and a column takes the smallest row (Lopes et al. 2019, algorithm
    1, where the first to come is taken). Rows with a single choice go first (Karp and Sipser
    1981). offer: ID (n_columns,). Ends since each round but the last matches a row.
    """
    n, m = column_of_row.size, row_of_column.size
    for j in range(m):
        offer[j] = n
    low = np.empty(n, v.dtype)
    waiting = np.empty(n, ID)
    n_waiting = 0
    for row in range(n):
        if column_of_row[row] >= 0:
            continue
        least = infinity
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            least = min(least, lists.costs[k] - v[lists.ids[k]])
        low[row] = least
        if least < infinity and least <= lists.theta[row]:
            waiting[n_waiting] = row
            n_waiting += 1
    matched = 0
    single = True
    wish = np.empty(n, np.int64)
    while True:
        kept = 0
        offers = 0
        for p in range(n_waiting):
            row = waiting[p]
            start, size = lists.start[row], lists.size[row]
            spread = np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
            first = int(np.int64((spread >> np.uint64(33)) % np.uint64(m)))
            count, choice, nearest = 0, -1, m
            for k in range(start, start + size):
                j = lists.ids[k]
                if row_of_column[j] < 0 and lists.costs[k] - v[j] == low[row]:
                    count += 1
                    turn = j - first if j >= first else j - first + m
                    if turn < nearest:
                        choice, nearest = k, turn
            if count == 0:
                continue
            waiting[kept] = row
            kept += 1
            wish[row] = -1
            if not single or count == 1:
                wish[row] = choice
                offers += 1
                j = lists.ids[choice]
                offer[j] = min(offer[j], row)
        n_waiting = kept
        if offers == 0:
            if not single:
                return matched
            single = False
            continue
        kept = 0
        for p in range(n_waiting):
            row = waiting[p]
            k = wish[row]
            if k >= 0:
                j = lists.ids[k]
                if offer[j] == row:
                    column_of_row[row] = j
                    row_of_column[j] = row
                    match_cost[row] = lists.costs[k]
                    offer[j] = n
                    matched += 1
                    continue
            waiting[kept] = row
            kept += 1
        n_waiting = kept
        single = True
