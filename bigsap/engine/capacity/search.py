"""Shortest paths from a column with too many rows to one that lacks some, and the moves along them."""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.capacity.columns import (
    DONE,
    LISTED,
    SEARCHES,
    SETTLED,
    STUCK,
    YIELD,
    Columns,
    Reader,
    insert,
    list_again,
    read_line,
    set_top,
)
from bigsap.types import Array

#: Distances compared at a time.
LANES = 16
#: In place of a row that has left its column: the rise is a lower bound.
LEFT = -2
#: A list made anew counts as so many settled columns.
LISTING = 4


@kernel
def relax(j: int, base: float, c: Columns) -> None:
    """Shorten the distances of all nodes by way of j, which lies at ``base``.

    Settled nodes have the goal -inf: no way there is short. So no loop branches on them.
    """
    m = c.line.shape[1]
    key, before, goal = c.key, c.before, c.goal
    own = c.v[j]
    if j < m:
        top = c.top[j]
        for k in range(m):
            rise = top[k] + (own - goal[k])
            to = base + (rise if rise > 0.0 else 0.0)
            old, way = key[k], before[k]
            key[k] = to if to < old else old
            before[k] = j if to < old else way
        if c.kept[j] < c.capacity[j]:
            rise = own - goal[m]
            to = base + (rise if rise > 0.0 else 0.0)
            if to < key[m]:
                key[m], before[m] = to, j
        return
    for k in range(m):
        if c.kept[k] > 0:
            rise = own - goal[k]
            to = base + (rise if rise > 0.0 else 0.0)
            if to < key[k]:
                key[k], before[k] = to, j


@kernel
def nearest_of(c: Columns) -> int:
    """Return the node of least distance that is not settled, of several one that lacks rows; -1 if none."""
    key, lanes = c.key, c.lanes
    size, full = key.size, key.size // LANES * LANES
    for lane in range(LANES):
        lanes[lane] = np.inf
    for first in range(0, full, LANES):
        part = key[first : first + LANES]
        for lane in range(LANES):
            x, y = part[lane], lanes[lane]
            lanes[lane] = x if x < y else y
    for k in range(full, size):
        lanes[0] = min(lanes[0], key[k])
    least = lanes[0]
    for lane in range(1, LANES):
        least = min(least, lanes[lane])
    if least == np.inf:
        return -1
    found = -1
    for k in range(size):
        if key[k] == least:
            if c.excess[k] < 0:
                return k
            if found < 0:
                found = k
    return found


@kernel
def reach_again(k: int, n_settled: int, c: Columns) -> None:
    """Compute the distance of a column anew from all settled nodes, after a rise has grown."""
    m = c.line.shape[1]
    v = c.v
    least = np.inf
    for at in range(n_settled):
        j = c.settled[at]
        if j == m and c.kept[k] <= 0:
            continue
        rise = v[j] - v[k] if j == m else c.top[j, k] + (v[j] - v[k])
        to = c.dist[j] + (rise if rise > 0.0 else 0.0)
        if to < least:
            least, c.before[k] = to, j
    c.key[k] = least


@kernel
def shortest(start: int, c: Columns, r: Reader) -> int:
    """Find a shortest path (Dijkstra 1959) to the nearest column that lacks rows, and adapt prices.

    Returns that column, -1 if there is none; ``before`` has the path. The settled columns' prices fall by
    what they are nearer, so that no arc's rise is below the difference of its prices. A rise whose row has
    left is a lower bound, which is looked up only where a path would take it.
    """
    m = c.line.shape[1]
    dist, key, before, v = c.dist, c.key, c.before, c.v
    for k in range(m + 1):
        key[k], c.goal[k], before[k], c.seen[k] = np.inf, v[k], -1, 0
    key[start] = 0.0
    j, n_settled, end = start, 0, -1
    while j >= 0:
        base = key[j]
        dist[j], key[j], c.goal[j], c.seen[j] = base, np.inf, -np.inf, 1
        c.settled[n_settled] = j
        n_settled += 1
        if c.excess[j] < 0:
            end = j
            break
        relax(j, base, c)
        j = nearest_of(c)
        while 0 <= j < m and before[j] < m and c.top_row[before[j], j] == LEFT:
            look_up(before[j], j, c, r)
            reach_again(j, n_settled, c)
            j = nearest_of(c)
    c.counts[0, SEARCHES] += 1
    c.counts[0, SETTLED] += n_settled
    if end < 0:
        return -1
    for at in range(n_settled):
        k = c.settled[at]
        if dist[k] < dist[end]:
            v[k] += dist[k] - dist[end]
    return end


@kernel
def look_up(j: int, k: int, c: Columns, r: Reader) -> None:
    """Find the least rise from j to k, after its row has left."""
    size = c.size[j, k]
    while size > 0 and c.column[c.row[j, k, size - 1]] != j:
        size -= 1
    c.size[j, k] = size
    if size == 0 and c.limit[j, k] < np.inf:
        list_again(j, k, c, r)
    set_top(j, k, c)


@kernel
def leave(j: int, row: int, c: Columns) -> None:
    """Mark the rises from j that were those of the row, which has left."""
    rows = c.top_row[j]
    for k in range(rows.size):
        if rows[k] == row:
            rows[k] = LEFT


@kernel
def enter(j: int, row: int, c: Columns, r: Reader) -> None:
    """List the row, which has come into j."""
    line = c.line[0]
    read_line(row, r, c.raw[0], line)
    own = line[j]
    c.own[c.begin[j] + c.place[row]] = own
    for k in range(line.size):
        rise = line[k] - own
        if rise < c.limit[j, k] and k != j:
            insert(j, k, row, rise, c)
            if rise < c.top[j, k]:
                c.top[j, k], c.top_row[j, k] = rise, row


@kernel
def move(start: int, end: int, moved: Array, c: Columns, r: Reader) -> None:
    """Move one row along each arc of the path to ``end``; from ``start`` to itself, along a cycle.

    moved: int32 (2, m + 1), workspace.
    """
    m = c.line.shape[1]
    n_moved = n_steps = 0
    k, hole = end, -1
    while k != start or n_steps == 0:
        n_steps += 1
        j = c.before[k]
        if j == m:  # a place that was taken is free
            c.kept[k] -= 1
            if hole >= 0:
                close(k, hole, c)
            hole = -1
        elif k == m:  # a free place is taken
            c.kept[j] += 1
            hole = -1
        else:
            row = c.top_row[j, k]
            left = c.place[row]
            if hole < 0:
                hole = c.load[k]
                c.load[k] += 1
            c.member[c.begin[k] + hole] = row
            c.place[row], c.column[row] = hole, k
            moved[0, n_moved], moved[1, n_moved] = row, j
            n_moved += 1
            hole = left
        k = j
    if hole >= 0:
        close(start, hole, c)
    c.excess[start] -= 1
    c.excess[end] += 1
    # First all costs of the rows that have come, which lists made anew may need.
    for at in range(n_moved):
        enter(c.column[moved[0, at]], moved[0, at], c, r)
    for at in range(n_moved):
        leave(moved[1, at], moved[0, at], c)


@kernel
def close(j: int, hole: int, c: Columns) -> None:
    """Fill a place of j that became free by its last row."""
    last = c.load[j] - 1
    c.load[j] = last
    if hole == last:
        return
    at = c.begin[j]
    row = c.member[at + last]
    c.member[at + hole], c.own[at + hole] = row, c.own[at + last]
    c.place[row] = hole


@kernel
def still_short(start: int, end: int, c: Columns, r: Reader) -> bool:
    """Check whether the path to ``end`` is as short as before its last move, and needed again."""
    if c.excess[start] <= 0 or c.excess[end] >= 0:
        return False
    m = c.line.shape[1]
    k = end
    while k != start:
        j = c.before[k]
        if j == m:
            if c.kept[k] <= 0:
                return False
        elif k == m:
            if c.kept[j] >= c.capacity[j]:
                return False
        else:
            if c.top_row[j, k] == LEFT:
                look_up(j, k, c, r)
            if c.top[j, k] > c.rise_before[k]:
                return False
        k = j
    return True


@kernel
def balance(budget: int, moved: Array, c: Columns, r: Reader) -> int:
    """Search from columns with too many rows until there is none, or ``budget`` is spent.

    budget: columns settled, or lists made anew. Returns DONE, YIELD, or STUCK: ``seen`` then marks
    columns that have more rows than places, with no arc to others.
    """
    m = c.line.shape[1]
    counts = c.counts[0]
    stop = counts[SETTLED] + LISTING * counts[LISTED] + budget
    for j in range(m + 1):
        while c.excess[j] > 0:
            if counts[SETTLED] + LISTING * counts[LISTED] >= stop:
                return YIELD
            end = shortest(j, c, r)
            if end < 0:
                return STUCK
            k = end
            while k != j:
                if k < m and c.before[k] < m:
                    c.rise_before[k] = c.top[c.before[k], k]
                k = c.before[k]
            move(j, end, moved, c, r)
            while still_short(j, end, c, r):
                counts[SETTLED] += 1
                if counts[SETTLED] + LISTING * counts[LISTED] >= stop:
                    return YIELD
                move(j, end, moved, c, r)
    return DONE
