"""Zeros of the rows as bits, and the kernels of the classical Hungarian method on them.

A *zero* is a pair that had its row's smallest ``(c - v) - u`` when it was scanned. It is found by
comparison with that minimum, so rounding cannot hide it. Bit j & 63 of ``bits[i, j >> 6]`` stays
set while both duals move alike. Costs are never written (Date and Nagi 2016, algorithms 1 and 7,
also keep duals as vectors; Lopes et al. 2019 rewrite the matrix).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import adding, lowest_bit
from bigsap.engine.core.record import record
from bigsap.engine.core.scan import n_invalid
from bigsap.engine.core.state import FREE, ID, LANES
from bigsap.types import Array


class ZerosStanding:
    """Progress of the method: ``Zeros.at``."""

    next_item: int  # position of the next row for a free thread
    bad_row: int  # a row with an invalid cost, -1
    n_rows: int  # of the forest
    n_frontier: int
    n_found: int
    n_leaves: int
    n_reached: int
    stages: int
    paths: int
    levels: int
    clock_steps: int  # dual updates
    expansions: int
    passes: int  # rows scanned for a dual update


add_item = adding("next_item")


class Zeros(NamedTuple):
    """Arrays of the method. P is the price type.

    bits: uint64 (n_rows, words). u: P (n_rows,), v: P (n_columns,) the duals. low, arg: P, ID
    (n_rows,) a forest row's least slack over columns not reached, and its column; -1 if it has to
    be computed again. reached: uint64 (words,) bits. pred, claim: ID (n_columns,). root,
    leaf, rows, frontier, roots: ID (n_rows,), columns, found: ID (n_columns,), see ``forest``.
    lanes: P (n_threads, LANES).
    """

    bits: Array
    u: Array
    v: Array
    low: Array
    arg: Array
    reached: Array
    pred: Array
    claim: Array
    root: Array
    leaf: Array
    rows: Array
    frontier: Array
    roots: Array
    columns: Array
    found: Array
    inside: Array
    lanes: Array
    at: ZerosStanding


def zeros(n: int, m: int, price: np.dtype[Any], n_threads: int) -> Zeros:
    """Allocate without zeros, all duals 0. n * m / 8 bytes and twelve vectors."""
    width = -(-m // 64)
    return Zeros(
        bits=np.zeros((n, width), np.uint64),
        u=np.zeros(n, price),
        v=np.zeros(m, price),
        low=np.zeros(n, price),
        arg=np.full(n, -1, ID),
        reached=np.zeros(width, np.uint64),
        pred=np.zeros(m, ID),
        claim=np.full(m, n, ID),
        root=np.zeros(n, ID),
        leaf=np.full(n, m, ID),
        rows=np.zeros(n, ID),
        frontier=np.zeros(n, ID),
        roots=np.zeros(n, ID),
        columns=np.zeros(m, ID),
        found=np.zeros(m, ID),
        inside=np.zeros(n, np.uint8),
        lanes=np.empty((n_threads, LANES), price),
        at=record(ZerosStanding, price),
    )


@kernel
def run_zeros(
    thread: int,
    n_threads: int,
    rows: Array,
    by_place: bool,
    slots: Array,
    sign: float,
    lowest: float,
    highest: float,
    infinity: float,
    judge: bool,
    z: Zeros,
) -> int:
    """Compute the rows' smallest ``c - v`` as their duals, and find the zeros. O(k n_columns).

    rows: ID (k,), in ``slots[row]``, or ``slots[place]`` if ``by_place``. judge: check the
    costs, which are read for the first time; at.bad_row is then a row with an invalid cost.
    """
    v = z.v
    m = v.size
    while True:
        p = add_item(z.at, 1)
        if p >= rows.size:
            return 0
        row = rows[p]
        cost = slots[p if by_place else row]
        if judge and n_invalid(cost, sign, lowest, highest, 0, m) != 0:
            z.at.bad_row = row
            return 1
        low = infinity
        for j in range(m):
            g = sign * cost[j] - v[j]
            low = g if g < low else low
        if not low < infinity:
            z.u[row] = 0
            continue
        z.u[row] = low
        mine = z.bits[row]
        for word in range(mine.size):
            bits = np.uint64(0)
            first = 64 * word
            for k in range(min(64, m - first)):
                hit = sign * cost[first + k] - v[first + k] == low
                bits |= np.uint64(hit) << np.uint64(k)
            mine[word] = bits


@kernel
def run_slacks(
    thread: int,
    n_threads: int,
    rows: Array,
    by_place: bool,
    slots: Array,
    sign: float,
    infinity: float,
    z: Zeros,
) -> int:
    """Compute the least slack of forest rows over columns not reached, and its first column."""
    v, reached = z.v, z.reached
    m = v.size
    while True:
        p = add_item(z.at, 1)
        if p >= rows.size:
            return 0
        row = rows[p]
        cost = slots[p if by_place else row]
        u = z.u[row]
        low, arg = infinity, m
        for word in range(reached.size):
            free = ~reached[word]
            first = 64 * word
            for k in range(min(64, m - first)):
                g = (sign * cost[first + k] - v[first + k]) - u
                if g < low and (free >> np.uint64(k)) & np.uint64(1):
                    low, arg = g, first + k
        z.low[row], z.arg[row] = low, arg


@kernel
def run_tight(
    thread: int, n_threads: int, rows: Array, by_place: bool, slots: Array, sign: float, z: Zeros
) -> int:
    """Add as zeros the columns not reached that have these rows' least slack.

    Always includes the column recorded with the slack: its slack may differ by rounding if duals
    have moved since.
    """
    v, reached = z.v, z.reached
    m = v.size
    while True:
        p = add_item(z.at, 1)
        if p >= rows.size:
            return 0
        row = rows[p]
        cost = slots[p if by_place else row]
        u, low, mine = z.u[row], z.low[row], z.bits[row]
        for word in range(mine.size):
            bits = np.uint64(0)
            first = 64 * word
            for k in range(min(64, m - first)):
                hit = (sign * cost[first + k] - v[first + k]) - u <= low
                bits |= np.uint64(hit) << np.uint64(k)
            mine[word] |= bits & ~reached[word]
        j = z.arg[row]
        mine[j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@kernel
def run_forget(thread: int, n_threads: int, z: Zeros) -> int:
    """Clear the zeros of rows outside the forest in reached columns, whose prices fall."""
    n, width = z.bits.shape
    for row in range(n * thread // n_threads, n * (thread + 1) // n_threads):
        if z.inside[row] == 0:
            mine = z.bits[row]
            for word in range(width):
                mine[word] &= ~z.reached[word]
    return 0


@kernel
def plant_bits(column_of_row: Array, z: Zeros) -> int:
    """Clear the forest and make every free row a root; return the number of roots."""
    at = z.at
    count = 0
    for row in range(column_of_row.size):
        z.inside[row] = 0
        if column_of_row[row] == FREE:
            z.inside[row] = 1
            z.root[row] = row
            z.arg[row] = -1
            z.rows[count] = row
            z.frontier[count] = row
            count += 1
    for word in range(z.reached.size):
        z.reached[word] = 0
    at.n_rows = at.n_frontier = count
    at.n_reached = at.n_found = at.n_leaves = 0
    return count


@kernel
def grow_bits(row_of_column: Array, z: Zeros, place: Array, budget: int) -> bool:
    """Grow all trees breadth first along zeros until no zero leads to a new column.

    A column goes to the smallest row of the level that reaches it first. O(words and zeros)
    a row. place: int64 (1,) the position of the next row in the frontier. Returns False when the
    budget of zeros and words is spent, within a level.
    """
    at = z.at
    n, width = z.bits.shape
    m = row_of_column.size
    while at.n_frontier:
        found = at.n_found
        if place[0] == 0:
            if budget <= 0:
                return False
            found = 0
            at.levels += 1
        for p in range(place[0], at.n_frontier):
            if budget <= 0:
                place[0], at.n_found = p, found
                return False
            row = z.frontier[p]
            if z.leaf[z.root[row]] < m:
                continue  # this tree will flip
            at.expansions += 1
            for word in range(width):
                bits = z.bits[row, word] & ~z.reached[word]
                budget -= 1
                while bits != 0:
                    budget -= 1
                    j = 64 * word + lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    if z.claim[j] == n:
                        z.found[found] = j
                        found += 1
                    z.claim[j] = min(z.claim[j], row)
        place[0] = n_next = 0
        for p in range(found):
            j = z.found[p]
            z.pred[j] = z.claim[j]
            z.claim[j] = n
            z.reached[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
            z.columns[at.n_reached] = j
            at.n_reached += 1
            root = z.root[z.pred[j]]
            row = row_of_column[j]
            if row == FREE:
                if z.leaf[root] == m:
                    z.roots[at.n_leaves] = root
                    at.n_leaves += 1
                z.leaf[root] = min(z.leaf[root], j)
                continue
            z.root[row] = root
            z.inside[row] = 1
            z.arg[row] = -1
            z.rows[at.n_rows] = row
            at.n_rows += 1
            z.frontier[n_next] = row
            n_next += 1
        at.n_frontier = n_next
    return True


@kernel
def flip_bits(column_of_row: Array, row_of_column: Array, match_cost: Array, z: Zeros) -> bool:
    """Augment along a path of every tree with a free column; return False for an endless path."""
    at = z.at
    n, m = column_of_row.size, row_of_column.size
    for p in range(at.n_leaves):
        root = z.roots[p]
        j = z.leaf[root]
        z.leaf[root] = m
        steps = 0
        while True:
            row = z.pred[j]
            before = column_of_row[row]
            column_of_row[row] = j
            row_of_column[j] = row
            match_cost[row] = z.u[row] + z.v[j]
            if row == root:
                break
            j = before
            steps += 1
            if steps > n or j < 0:  # longer than any path
                return False
    at.stages += 1
    at.paths += at.n_leaves
    at.n_leaves = 0
    return True


@kernel
def stale_rows(z: Zeros) -> int:
    """Collect the forest rows whose least slack has to be computed; return how many.

    New rows, and those whose column was reached. They come first in the frontier.
    """
    count = 0
    for p in range(z.at.n_rows):
        row = z.rows[p]
        j = z.arg[row]
        if j < 0 or (j < z.v.size and (z.reached[j >> 6] >> np.uint64(j & 63)) & np.uint64(1) != 0):
            z.frontier[count] = row
            count += 1
    return count


@kernel
def tight_rows(infinity: float, z: Zeros) -> int:
    """Make the rows of the least slack the frontier; return how many, 0 if it is infinite."""
    theta = infinity
    for p in range(z.at.n_rows):
        theta = min(theta, z.low[z.rows[p]])
    count = 0
    if theta < infinity:
        for p in range(z.at.n_rows):
            row = z.rows[p]
            if z.low[row] == theta:
                z.frontier[count] = row
                count += 1
    z.at.n_frontier = count
    return count


@kernel
def update_duals(z: Zeros) -> None:
    """Move the duals of the forest by the least slack. O(forest).

    Negative values from rounding count as 0: prices never rise.
    """
    theta = z.low[z.frontier[0]]
    theta = max(theta, theta - theta)
    for p in range(z.at.n_rows):
        row = z.rows[p]
        z.u[row] += theta
        z.low[row] -= theta
    for p in range(z.at.n_reached):
        z.v[z.columns[p]] -= theta
    z.at.clock_steps += 1
