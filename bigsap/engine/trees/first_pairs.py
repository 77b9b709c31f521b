"""Initial pairs: free rows and free columns at the rows' smallest ``c - v``.

These pairs are tight before any tree grows; the rows left over become the roots.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import lowest_bit
from bigsap.engine.core.state import FREE, ID
from bigsap.engine.lists.layout import Lists
from bigsap.engine.trees.zeros import Zeros
from bigsap.types import Array

#: Entries processed between two polls, about.
_SLICE = 1 << 25
# Indices of ``at`` in ``run_stars``: waiting rows, whether only those with a single choice bid now, and
# rows matched.
_WAITING, _SINGLE, _MATCHED = range(3)


def star(
    lists: Lists,
    v: Array,
    column_of_row: Array,
    row_of_column: Array,
    match_cost: Array,
    infinity: float,
    look: Callable[[], None],
) -> int:
    """Match free rows to free columns of their lists' smallest ``c - v``; return how many.

    Works in rounds. Every free row proposes to its first such column, starting from a column that
    depends on its number, and a column takes the smallest row (Lopes et al. 2019, algorithm 1,
    where the first to come is taken). Rows with a single choice go first (Karp and Sipser 1981).
    Terminates, since each round but the last matches a row. look: called about every tenth of a
    second; its exceptions pass through, with some rows matched.
    """
    n, m = column_of_row.size, row_of_column.size
    offer, low, at = np.full(m, n, ID), np.empty(n, v.dtype), np.zeros(3, np.int64)
    waiting, wish = np.empty(n, ID), np.empty(n, np.int64)
    pairs = column_of_row, row_of_column, match_cost
    at[_WAITING], at[_SINGLE] = _nearest(lists, v, column_of_row, low, waiting, infinity), 1
    look()
    while not run_stars(lists, v, *pairs, offer, low, waiting, wish, at, _SLICE):
        look()
    return int(at[_MATCHED])


@kernel
def _nearest(
    lists: Lists, v: Array, column_of_row: Array, low: Array, waiting: Array, infinity: float
) -> int:
    """Store the smallest ``c - v`` of free rows' lists; collect the rows that have one; return how many."""
    n_waiting = 0
    for row in range(column_of_row.size):
        if column_of_row[row] >= 0:
            continue
        least = infinity
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            least = min(least, lists.costs[k] - v[lists.ids[k]])
        low[row] = least
        if least < infinity and least <= lists.theta[row]:
            waiting[n_waiting] = row
            n_waiting += 1
    return n_waiting


@kernel
def run_stars(
    lists: Lists,
    v: Array,
    column_of_row: Array,
    row_of_column: Array,
    match_cost: Array,
    offer: Array,
    low: Array,
    waiting: Array,
    wish: Array,
    at: Array,
    budget: int,
) -> bool:
    """Run rounds until no row has a choice left (True) or the budget is spent (False)."""
    n, m = column_of_row.size, row_of_column.size
    n_waiting, matched, single = at[_WAITING], at[_MATCHED], at[_SINGLE] != 0
    while budget > 0:
        kept = 0
        offers = 0
        for p in range(n_waiting):
            row = waiting[p]
            start, size = lists.start[row], lists.size[row]
            budget -= size + 8
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
                at[_MATCHED] = matched
                return True
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
    at[_WAITING], at[_MATCHED], at[_SINGLE] = n_waiting, matched, 1 if single else 0
    return False


@kernel
def free_rows(column_of_row: Array, z: Zeros) -> int:
    """Collect the rows with which ``star_bits`` starts; return how many."""
    count = 0
    for row in range(column_of_row.size):
        if column_of_row[row] == FREE:
            z.rows[count] = row
            count += 1
    return count


@kernel
def star_bits(column_of_row: Array, row_of_column: Array, z: Zeros, at: Array, budget: int) -> bool:
    """Match initial pairs in rounds, a column to its smallest row (Lopes et al. 2019, algorithm 1).

    A row proposes to its first free zero, starting from a word that depends on its number. From
    word 0, all rows of a constant matrix would bid for one column. Every round matches a row.

    at: int64 (3,) the rows left, how many of them have proposed in this round, and how many of
    these have a choice. Returns False when the budget of zeros and words is spent.
    """
    n, width = z.bits.shape
    count = at[0]
    while count:
        kept = at[2]
        for p in range(at[1], count):
            if budget <= 0:
                at[0], at[1], at[2] = count, p, kept
                return False
            row = z.rows[p]
            spread = np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
            begin = int(np.int64((spread >> np.uint64(33)) % np.uint64(width)))
            choice = -1
            for turn in range(width):
                word = begin + turn
                word -= width if word >= width else 0
                bits = z.bits[row, word]
                budget -= 1
                while bits != 0 and choice < 0:
                    budget -= 1
                    j = 64 * word + lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    if row_of_column[j] == FREE:
                        choice = j
                if choice >= 0:
                    break
            if choice >= 0:
                z.claim[choice] = min(z.claim[choice], row)
                z.root[row] = choice
                z.rows[kept] = row
                kept += 1
        at[1] = at[2] = count = 0
        for p in range(kept):
            row = z.rows[p]
            j = z.root[row]
            if row_of_column[j] == FREE and z.claim[j] == row:
                column_of_row[row] = j
                row_of_column[j] = row
            else:
                z.rows[count] = row
                count += 1
        for j in range(row_of_column.size):
            z.claim[j] = n
        budget -= kept + row_of_column.size // 8
    return True
