"""Bids of the forward auction, in rounds (Bertsekas, Ann. Oper. Res. 14, 1988)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.record import record
from bigsap.engine.core.state import DONE, FREE, ID, LIMIT, YIELD
from bigsap.types import Array


class AuctionStanding:
    """Progress of the bidding: ``Auction.at``."""

    head: int  # rows of this round that have bid
    count: int  # free rows, except those without an allowed column
    bids: int


class Auction(NamedTuple):
    """State of the auction.

    free: ID (n_rows,) at.count free rows. wish, offer: ID, P (n_rows,) of a bid, its column and
    price. winner: ID (n_columns,) the row with the lowest price offered for a column, FREE without a
    bid. row_of_column: ID (n_columns,); v: P (n_columns,) prices, which bids lower.
    """

    free: Array
    wish: Array
    offer: Array
    winner: Array
    row_of_column: Array
    v: Array
    at: AuctionStanding


def auction(n: int, v: Array) -> Auction:
    """Return an auction with all n rows free, at these prices."""
    at = record(AuctionStanding, v.dtype)
    at.count = n
    winner, row_of_column = np.full((2, v.size), FREE, ID)
    free, wish, offer = np.arange(n, dtype=ID), np.empty(n, ID), np.empty(n, v.dtype)
    return Auction(free, wish, offer, winner, row_of_column, v, at)


@kernel
def run_bids(
    costs: Array,
    sign: float,
    infinity: float,
    spread: float,
    epsilon: float,
    floor: float,
    most: int,
    budget: int,
    a: Auction,
) -> int:
    """Let free rows bid until none is left (DONE); O(n_columns) a bid.

    YIELD: ``budget`` bids are made; LIMIT: a price would fall below ``floor``, or ``most`` bids.

    In a round every free row bids for its best column. It would lower the column's price by the
    difference to its second best, or by ``spread`` if there is no second, plus epsilon. The lowest
    price wins, of equal ones the smallest row. A round lowers a price by epsilon or more, and in a
    feasible problem none falls below ``floor``, so the bidding terminates.
    """
    at, v = a.at, a.v
    while at.count > 0:
        if at.head == 0 and at.bids >= most:
            return LIMIT
        while at.head < at.count:
            if budget <= 0:
                return YIELD
            budget -= 1
            row = a.free[at.head]
            at.head += 1
            cost = costs[row]
            best, second, choice = infinity, infinity, -1
            for j in range(v.size):
                g = sign * cost[j] - v[j]
                if g < second:
                    if g < best:
                        best, second, choice = g, best, j
                    else:
                        second = g
            a.wish[row] = choice
            if choice < 0:
                continue
            offer = v[choice] - ((second - best if second < infinity else spread) + epsilon)
            if offer < floor:
                return LIMIT
            a.offer[row] = offer
            other = a.winner[choice]
            lower = other == FREE or offer < a.offer[other]
            if lower or (offer == a.offer[other] and row < other):
                a.winner[choice] = row
        _settle(a)
    return DONE


@kernel
def _settle(a: Auction) -> None:
    """Assign columns to the winners of the round. O(bids)."""
    at = a.at
    bidders, at.count, at.head = at.count, 0, 0
    for p in range(bidders):
        row = a.free[p]
        j = a.wish[row]
        if j < 0:
            continue
        at.bids += 1
        loser = row
        if a.winner[j] == row:
            a.winner[j] = FREE  # later bidders for it lose
            a.v[j] = a.offer[row]
            loser, a.row_of_column[j] = a.row_of_column[j], row
        if loser != FREE:
            a.free[at.count] = loser  # overwrites a place already processed
            at.count += 1
