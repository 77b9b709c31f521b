"""Prices by bids: rows bid for their best column until each has one, or a tight one.

An auction in the order of a stack (Bertsekas 1988): a row takes its best column and lowers its price
so that the row is indifferent to its second best, less epsilon; the row that held the column bids
in its place. Every pair then is within epsilon of its row's best. ``reduce`` is the same without epsilon,
the augmenting row reduction of Jonker and Volgenant (1987): pairs stay exactly tight, so a row that
finds its best column held and its second best as good is put off.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import prefetch
from bigsap.engine.core.scan import LINE
from bigsap.engine.core.state import FREE
from bigsap.engine.sparse.pairs import PRIVATE, Matching, Pairs, own_price, signed
from bigsap.types import Array

# Rows that bid in turn, and how many turns before a row's own its entries and then their prices are fetched.
_RING, _FETCH_ENTRIES, _FETCH_PRICES = 8, 5, 2


@kernel
def column_minima(p: Pairs, s: Matching) -> None:
    """Set every price to its column's least cost, 0 for a column without one. O(entries)."""
    v, infinity = s.v, p.infinity
    for j in range(v.size):
        v[j] = infinity
    for k in range(p.ids.size):
        cost = signed(p, k)
        if cost < v[p.ids[k]]:
            v[p.ids[k]] = cost
    for j in range(v.size):
        if not v[j] < infinity:
            v[j] = p.base - p.base


@kernel
def mean_regret(p: Pairs, s: Matching) -> float:
    """Return the mean regret: how far a row's second least ``cost - v`` is from its least. O(entries)."""
    total, count = 0.0, 0
    for row in range(p.start.size - 1):
        low, second = own_price(p, row), p.infinity
        for k in range(p.start[row], p.start[row + 1]):
            tau = signed(p, k) - s.v[p.ids[k]]
            if tau < second:
                if tau < low:
                    low, second = tau, low
                else:
                    second = tau
        if second < p.infinity:
            total += np.float64(second - low)
            count += 1
    return total / max(1, count)


@kernel(forceinline=True)
def _spread(n: int) -> int:
    """Return a number near 0.618 n without a common factor: its multiples modulo n are spread evenly."""
    step = max(1, int(n * 0.6180339887498949))
    a, b = n, step
    while b:
        a, b = b, a % b
    while a > 1:
        step += 1
        a, b = n, step
        while b:
            a, b = b, a % b
    return step


@kernel
def unmatch(s: Matching) -> None:
    """Remove every pair and queue all rows, spread evenly over their numbers. O(n + m).

    Neighbours in space often have neighbouring numbers: one after the other, each would pay for the
    crowd around it before the next region is looked at, and the auction would seem to take too long.
    """
    n = s.column_of_row.size
    for j in range(s.row_of_column.size):
        s.row_of_column[j] = FREE
    step = _spread(n)
    row = 0
    for k in range(n):
        s.column_of_row[k] = FREE
        s.queue[k] = row
        row += step
        if row >= n:
            row -= n
    s.at.n_queue = n
    s.at.position = 0


@kernel(forceinline=True)
def _later(turn: int, turns: int, count: int) -> int:
    """Return the place in a ring so many turns later; -1 if the ring has fewer rows."""
    if turns >= count:
        return -1
    return turn + turns if turn + turns < count else turn + turns - count


@kernel(forceinline=True)
def _fetch(ring: Array, turn: int, count: int, p: Pairs, s: Matching) -> None:
    """Prefetch entries of one row of the ring, and the prices of those of another."""
    place = _later(turn, _FETCH_ENTRIES, count)
    if place >= 0:
        begin, end = p.start[ring[place]], p.start[ring[place] + 1]
        ids, costs = p.ids.ctypes.data, p.costs.ctypes.data
        for offset in range(begin * p.ids.itemsize, end * p.ids.itemsize, LINE):
            prefetch(ids + offset)
        for offset in range(begin * p.costs.itemsize, end * p.costs.itemsize, LINE):
            prefetch(costs + offset)
    place = _later(turn, _FETCH_PRICES, count)
    if place >= 0:
        for k in range(p.start[ring[place]], p.start[ring[place] + 1]):
            prefetch(s.v.ctypes.data + p.ids[k] * s.v.itemsize)


@kernel
def bid(p: Pairs, s: Matching, epsilon: float, most_scans: int, budget: int) -> bool:
    """Let the rows of the queue, last first, bid until all are assigned; return whether they are.

    A few rows form a ring and bid in turn, so that what a scan reads is fetched during the scans before
    it. A row that loses its column takes the place of the row that won it. Returns earlier, between two
    rows, at ``most_scans`` scans in all and after ``budget`` entries. Every row has an entry,
    and none has a price of its own.
    """
    at, v, queue, ring = s.at, s.v, s.queue, s.late
    infinity = p.infinity
    top = at.n_queue
    last = at.entries + budget
    scans, entries = at.scans, at.entries
    turn = count = 0
    while count < _RING and top > 0:
        top -= 1
        ring[count] = queue[top]
        count += 1
    while count > 0 and entries < last and scans < most_scans:
        _fetch(ring, turn, count, p, s)
        row = ring[turn]
        begin, end = p.start[row], p.start[row + 1]
        scans += 1
        entries += end - begin
        low, second, best, column = infinity, infinity, begin, FREE
        for k in range(begin, end):
            # No branches: every third would be mispredicted, half of the time of a scan.
            j = p.ids[k]
            tau = signed(p, k) - v[j]
            less = tau < low
            other = low if less else tau
            second = other if other < second else second
            low = tau if less else low
            best = k if less else best
            column = j if less else column
        after = FREE
        if column >= 0:
            if second < infinity:
                v[column] -= (second - low) + epsilon
            else:
                v[column] -= p.wall
            after = s.row_of_column[column]
            s.row_of_column[column], s.column_of_row[row] = row, column
            s.match_cost[row] = signed(p, best)
        if after >= 0:
            s.column_of_row[after] = FREE
        elif top > 0:
            top -= 1
            after = queue[top]
        if after >= 0:
            ring[turn] = after
            prefetch(p.start.ctypes.data + after * p.start.itemsize)
            turn += 1
        else:
            count -= 1
            for k in range(turn, count):
                ring[k] = ring[k + 1]
        if turn >= count:
            turn = 0
    # The next to bid comes back on top: later calls go on with the same ring, however often they return.
    for k in range(count - 1, -1, -1):
        queue[top] = ring[turn + k if turn + k < count else turn + k - count]
        top += 1
    at.n_queue, at.scans, at.entries = top, scans, entries
    return top == 0


@kernel
def take_tight(p: Pairs, s: Matching) -> None:
    """Match rows with their best columns as far as these are free, from no pairs; queue the others.

    All prices stay. O(entries).
    """
    v, infinity = s.v, p.infinity
    n = s.column_of_row.size
    for j in range(s.row_of_column.size):
        s.row_of_column[j] = FREE
    count = 0
    for row in range(n):
        low, best, column = infinity, 0, FREE
        if own_price(p, row) < infinity:
            low, column = p.own[row], PRIVATE
        for k in range(p.start[row], p.start[row + 1]):
            j = p.ids[k]
            tau = signed(p, k) - v[j]
            if tau < low or (tau == low and column >= 0 and s.row_of_column[column] >= 0):
                low, best, column = tau, k, j
        if column == PRIVATE:
            s.column_of_row[row] = PRIVATE
        elif column >= 0 and s.row_of_column[column] < 0:
            s.row_of_column[column], s.column_of_row[row] = row, column
            s.match_cost[row] = signed(p, best)
        else:
            s.column_of_row[row] = FREE
            s.queue[count] = row
            count += 1
    s.at.n_queue, s.at.position, s.at.n_late, s.at.row = count, 0, 0, FREE
    s.at.scans += n
    s.at.entries += p.ids.size


@kernel
def reduce(p: Pairs, s: Matching, most_scans: int, budget: int) -> bool:
    """Let the rows of the queue bid without epsilon; return whether the round is over.

    Rows that are put off are the next queue. From ``most_scans`` scans on, in all, rows that lose their
    column are put off too. Returns earlier after ``budget`` entries, between two rows.
    """
    at, v = s.at, s.v
    infinity = p.infinity
    last = at.entries + budget
    while at.row >= 0 or at.position < at.n_queue:
        if at.entries >= last:
            return False
        row = at.row
        if row < 0:
            row = s.queue[at.position]
            at.position += 1
        at.row = FREE
        begin, end = p.start[row], p.start[row + 1]
        at.scans += 1
        at.entries += end - begin
        low, second, best, other, column, next_column = infinity, infinity, begin, begin, FREE, FREE
        if own_price(p, row) < infinity:
            low, column = p.own[row], PRIVATE
        for k in range(begin, end):
            j = p.ids[k]
            tau = signed(p, k) - v[j]
            if tau < second:
                if tau < low:
                    second, other, next_column = low, best, column
                    low, best, column = tau, k, j
                else:
                    second, other, next_column = tau, k, j
        if column == FREE:
            s.late[at.n_late] = row
            at.n_late += 1
            continue
        if column != PRIVATE:
            lower = second < infinity and low < second
            if lower:
                v[column] -= second - low
            elif second < infinity and s.row_of_column[column] >= 0:
                # Equally good: perhaps it is free.
                best, column = other, next_column
            old = s.row_of_column[column] if column >= 0 else FREE
            if column >= 0 and old >= 0 and not lower:
                s.late[at.n_late] = row
                at.n_late += 1
                continue
            if column >= 0:
                s.row_of_column[column] = row
                s.match_cost[row] = signed(p, best)
            if old >= 0:
                s.column_of_row[old] = FREE
                if at.scans < most_scans:
                    at.row = old
                else:
                    s.late[at.n_late] = old
                    at.n_late += 1
        s.column_of_row[row] = column
    for k in range(at.n_late):
        s.queue[k] = s.late[k]
    at.n_queue, at.position, at.n_late = at.n_late, 0, 0
    return True
