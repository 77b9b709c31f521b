"""Bids of the forward auction, one row at a time (Bertsekas, Ann. Oper. Res. 14, 1988)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from bigsap.engine.core.state import FREE, ID
from bigsap.sources.base import Array

# What ``run_bids`` returns. GIVEN_UP: prices below ``floor``, or ``most`` bids.
MATCHED, PAUSED, GIVEN_UP = range(3)

# Words of Auction.words.
HEAD, COUNT, BIDS, WORD_COUNT = range(4)


class Auction(NamedTuple):
    """queue: ID (n_rows,) free rows from place words[HEAD] on, around; words[COUNT] of them.
    column_of_row, row_of_column: ID; v: P (n_columns,) prices, which bids lower."""

    queue: Array
    column_of_row: Array
    row_of_column: Array
    v: Array
    words: Array


def auction(n: int, m: int, v: Array) -> Auction:
    """All rows free, at these prices."""
    words = np.zeros(WORD_COUNT, np.int64)
    words[COUNT] = n
    return Auction(np.arange(n, dtype=ID), np.full(n, FREE, ID), np.full(m, FREE, ID), v, words)


@njit(nogil=True, cache=True, _nrt=False)
def run_bids(
    costs: Array, sign: float, infinity: float, spread: float, epsilon: float, floor: float,
    most: int, budget: int, a: Auction,
) -> int:  # fmt: skip
    """Let free rows bid until none is left; each bid O(n_columns).

    A row takes its best column and lowers its price by what the second best is worse, plus
    epsilon; spread takes the place of that where there is no second. Every bid lowers a
    price by epsilon or more, and of a feasible problem none falls below ``floor``: so it ends.
    """
    n, m = a.queue.size, a.v.size
    words, v = a.words, a.v
    while words[COUNT] > 0:
        if words[BIDS] >= most:
            return GIVEN_UP
        if budget <= 0:
            return PAUSED
        budget -= 1
        row = a.queue[words[HEAD]]
        words[HEAD] = words[HEAD] + 1 if words[HEAD] + 1 < n else 0
        words[COUNT] -= 1
        cost = costs[row]
        best, second, choice = infinity, infinity, -1
        for j in range(m):
            g = sign * cost[j] - v[j]
            if g < second:
                if g < best:
                    best, second, choice = g, best, j
                else:
                    second = g
        if choice < 0:
            return GIVEN_UP
        words[BIDS] += 1
        v[choice] -= (second - best if second < infinity else spread) + epsilon
        before = a.row_of_column[choice]
        a.row_of_column[choice] = row
        a.column_of_row[row] = choice
        if before != FREE:
            a.column_of_row[before] = FREE
            place = words[HEAD] + words[COUNT]
            a.queue[place if place < n else place - n] = before
            words[COUNT] += 1
        if v[choice] < floor:
            return GIVEN_UP
    return MATCHED
