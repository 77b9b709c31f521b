"""Bids of the forward auction, one row at a time (Bertsekas, Ann. Oper. Res. 14, 1988)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.engine.core.record import record
from bigsap.engine.core.state import DONE, FREE, ID, LIMIT, YIELD
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array


class AuctionStanding:
    """Where the bidding stands: ``Auction.at``."""

    head: int  # place of the first free row in the queue, which goes around
    count: int  # free rows
    bids: int


class Auction(NamedTuple):
    """queue: ID (n_rows,) at.count free rows from place at.head on, around.
    column_of_row, row_of_column: ID; v: P (n_columns,) prices, which bids lower."""

    queue: Array
    column_of_row: Array
    row_of_column: Array
    v: Array
    at: AuctionStanding


def auction(n: int, m: int, v: Array) -> Auction:
    """All rows free, at these prices."""
    at = record(AuctionStanding, v.dtype)
    at.count = n
    return Auction(np.arange(n, dtype=ID), np.full(n, FREE, ID), np.full(m, FREE, ID), v, at)


@kernel
def run_bids(
    costs: Array, sign: float, infinity: float, spread: float, epsilon: float, floor: float,
    most: int, budget: int, a: Auction,
) -> int:  # fmt: skip
    """Let free rows bid until none is left (DONE); each bid O(n_columns).

    YIELD: the budget is spent; LIMIT: prices below ``floor``, or ``most`` bids.

    A row takes its best column and lowers its price by what the second best is worse, plus
    epsilon; spread takes the place of that where there is no second. Every bid lowers a
    price by epsilon or more, and of a feasible problem none falls below ``floor``: so it ends.
    """
    n, m = a.queue.size, a.v.size
    at, v = a.at, a.v
    while at.count > 0:
        if at.bids >= most:
            return LIMIT
        if budget <= 0:
            return YIELD
        budget -= 1
        row = a.queue[at.head]
        at.head = at.head + 1 if at.head + 1 < n else 0
        at.count -= 1
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
            return LIMIT
        at.bids += 1
        v[choice] -= (second - best if second < infinity else spread) + epsilon
        before = a.row_of_column[choice]
        a.row_of_column[choice] = row
        a.column_of_row[row] = choice
        if before != FREE:
            a.column_of_row[before] = FREE
            place = at.head + at.count
            a.queue[place if place < n else place - n] = before
            at.count += 1
        if v[choice] < floor:
            return LIMIT
    return DONE
