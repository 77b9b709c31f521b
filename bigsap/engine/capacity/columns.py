"""State of a search from column to column, where few columns take many rows each.

Every row lies in a column. From column j to column k leads the row of j whose cost rises least, by
``c[i, k] - c[i, j]``: only that row matters, so that a shortest path is one among columns. For each
pair of columns some of these rows are listed, the least last; no other row of j is below a threshold.

A node of its own, ``m``, holds the places that stay free: an arc leads to it from a column with room
left, and from it to a column that takes rows, both of cost 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.lists.reading import Costs
from bigsap.sources.compiled import address_of, call, call_fill
from bigsap.types import Array

#: Results of kernels.
DONE, YIELD, STUCK, INVALID, NOWHERE = range(5)
#: Places of ``counts``.
SEARCHES, SETTLED, LISTED, READ, ROW, WRONG = range(6)


class Reader(NamedTuple):
    """Access to the signed costs of whole rows and of single pairs.

    costs: location of the costs, or functions that read computed ones. fill_address, fill_context: of the
    ``Fill`` that computes them, 0 if they are in memory. sign: of the problem. n_columns: of the costs.
    price: (n,) signed costs of one more column, or (0,).
    """

    costs: Costs
    fill_address: int
    fill_context: int
    sign: float
    n_columns: int
    price: Array


class Columns(NamedTuple):
    """Columns, their rows, and what leads from one to another; m columns, n rows.

    v: (m + 1,) prices, minimising sense. capacity, kept: (m + 1,) int64 rows that a column may take, and
    those that count as taken; excess: (m + 1,) int64 rows it has beyond that, negative if it lacks some.
    begin: (m + 1,) int64 the first place of each column in member and own; load: (m,) int64. member:
    int32 rows, own: float64 their costs there. column, place: (n,) int32 of each row.
    top: (m, m) the least rise, top_row: int32 the row. limit: (m, m), the threshold. size: (m, m) int32
    listed rows; rise, row: (m, m, width). dist, key, goal, before, rise_before, settled,
    seen: (m + 1,) of one search; lanes: (16,).
    line: (threads, m), raw: uint8 (threads, 8 m). counts: int64 (threads, 8). least: (n,) each row's least
    ``c - v`` when it was last assigned; or (0,).
    """

    v: Array
    capacity: Array
    kept: Array
    excess: Array
    begin: Array
    load: Array
    member: Array
    own: Array
    column: Array
    place: Array
    top: Array
    top_row: Array
    limit: Array
    size: Array
    rise: Array
    row: Array
    dist: Array
    key: Array
    goal: Array
    lanes: Array
    before: Array
    rise_before: Array
    settled: Array
    seen: Array
    line: Array
    raw: Array
    counts: Array
    largest: Array
    least: Array


@kernel
def read_part(row: int, first: int, width: int, r: Reader, raw: Array, out: Array) -> None:
    """Write the signed costs of consecutive columns of a row to ``out[:width]``."""
    out_at = address_of(out)
    at = r.costs.start + row * r.costs.stride + first * r.costs.item
    if r.fill_address:
        at = out_at if r.costs.plain else address_of(raw)
        call_fill(r.fill_address, r.fill_context, row, first, first + width, at)
    if at != out_at:
        call(r.costs.copy, (at, 0, width, out_at))
    if r.sign < 0.0:
        for k in range(width):
            out[k] = -out[k]


@kernel
def read_line(row: int, r: Reader, raw: Array, out: Array) -> None:
    """Write the signed costs of a row to ``out``, with that of the further column."""
    read_part(row, 0, r.n_columns, r, raw, out)
    if r.price.size:
        out[r.n_columns] = r.price[row]


@kernel
def assign(thread: int, n_threads: int, rows: Array, first: int, last: int, c: Columns, r: Reader) -> int:
    """Give each of ``rows[first:last]`` a column of least ``c - v``.

    Each thread has its own part, which it ends at a row with an invalid cost (WRONG in ``counts`` becomes
    INVALID) or without an allowed column (NOWHERE).
    """
    line, raw, counts = c.line[thread], c.raw[thread], c.counts[thread]
    m = line.size
    size = last - first
    largest = c.largest[thread]
    for at in range(first + size * thread // n_threads, first + size * (thread + 1) // n_threads):
        row = rows[at]
        read_line(row, r, raw, line)
        least = np.inf
        bad = 0
        top = 0.0
        for k in range(m):
            x = line[k]
            bad += 0 if x > -np.inf else 1
            size_of = abs(x) if x < np.inf else 0.0
            top = size_of if size_of > top else top
            y = x - c.v[k]
            least = y if y < least else least
        if bad > 0 or least == np.inf:
            counts[ROW], counts[WRONG] = row, INVALID if bad > 0 else NOWHERE
            return DONE
        # Of several, the next one from a place that differs from row to row.
        best = row % m
        while line[best] - c.v[best] != least:
            best = best + 1 if best + 1 < m else 0
        c.column[row] = best
        if c.least.size:
            c.least[row] = least
        largest = top if top > largest else largest
    c.largest[thread] = largest
    counts[READ] += size * m // n_threads
    return DONE


@kernel
def settle(rows: Array, c: Columns) -> None:
    """Put the rows into the lists of their columns; ``begin`` is known, ``load`` is counted anew."""
    c.load[:] = 0
    for at in range(rows.size):
        row = rows[at]
        j = c.column[row]
        c.place[row] = c.load[j]
        c.member[c.begin[j] + c.load[j]] = row
        c.load[j] += 1


@kernel
def insert(j: int, k: int, row: int, rise: float, c: Columns) -> None:
    """List a row of j for k; its rise is below the limit."""
    rises, rows = c.rise[j, k], c.row[j, k]
    size, width = c.size[j, k], rises.size
    if size == width:
        # The first one has the largest rise: it leaves.
        if rise >= rises[0]:
            c.limit[j, k] = min(c.limit[j, k], rise)
            return
        c.limit[j, k] = min(c.limit[j, k], rises[0])
        at = 0
        while at + 1 < width and rises[at + 1] > rise:
            rises[at], rows[at] = rises[at + 1], rows[at + 1]
            at += 1
        rises[at], rows[at] = rise, row
        return
    at = size
    while at > 0 and rises[at - 1] < rise:
        rises[at], rows[at] = rises[at - 1], rows[at - 1]
        at -= 1
    rises[at], rows[at] = rise, row
    c.size[j, k] = size + 1


@kernel
def set_top(j: int, k: int, c: Columns) -> None:
    """Set the least rise from j to k to that of the last listed row."""
    size = c.size[j, k]
    if size > 0:
        c.top[j, k], c.top_row[j, k] = c.rise[j, k, size - 1], c.row[j, k, size - 1]
    else:
        c.top[j, k], c.top_row[j, k] = np.inf, -1


@kernel
def list_column(j: int, c: Columns, r: Reader, thread: int) -> None:
    """List the rows of a column for all others."""
    line, raw = c.line[thread], c.raw[thread]
    m = line.size
    for k in range(m):
        c.limit[j, k], c.size[j, k] = np.inf, 0
    limit = c.limit[j]
    for at in range(c.begin[j], c.begin[j] + c.load[j]):
        row = c.member[at]
        read_line(row, r, raw, line)
        own = line[j]
        c.own[at] = own
        for k in range(m):
            if line[k] - own < limit[k] and k != j:
                insert(j, k, row, line[k] - own, c)
                if c.size[j, k] == c.rise.shape[2]:
                    limit[k] = c.rise[j, k, 0]
    for k in range(m):
        set_top(j, k, c)
    c.counts[thread, READ] += c.load[j] * m


@kernel
def list_columns(thread: int, n_threads: int, first: int, last: int, c: Columns, r: Reader) -> int:
    """List the rows of the columns ``first`` to ``last - 1``, each thread of every so-manieth."""
    for j in range(first + thread, last, n_threads):
        list_column(j, c, r, thread)
    return DONE


@kernel
def list_again(j: int, k: int, c: Columns, r: Reader) -> None:
    """List the rows of j for k anew, after all listed ones have left."""
    cost, raw = c.line[0], c.raw[0]
    width = c.rise.shape[2]
    limit = np.inf
    c.size[j, k] = 0
    for at in range(c.begin[j], c.begin[j] + c.load[j]):
        row = c.member[at]
        if k < r.n_columns:
            read_part(row, k, 1, r, raw, cost)
        else:
            cost[0] = r.price[row]
        rise = cost[0] - c.own[at]
        if rise < limit:
            insert(j, k, row, rise, c)
            if c.size[j, k] == width:
                limit = c.rise[j, k, 0]
    c.limit[j, k] = limit
    c.counts[0, LISTED] += 1
    c.counts[0, READ] += c.load[j]


@kernel
def place_rows(rows: Array, first: int, last: int, column: Array, room: Array, c: Columns, r: Reader) -> int:
    """Give each of ``rows[first:last]`` the cheapest column with room.

    column: int32 (n,), room: (m,), changed. Returns how many rows found one; the first that did not
    ends it.
    """
    line, raw = c.line[0], c.raw[0]
    for at in range(first, last):
        row = rows[at]
        read_line(row, r, raw, line)
        least, best = np.inf, -1
        for k in range(line.size):
            if room[k] > 0 and line[k] < least:
                least, best = line[k], k
        if best < 0:
            return at - first
        column[row] = best
        room[best] -= 1
    return last - first


@kernel
def read_own(column: Array, costs: Array, c: Columns, r: Reader) -> None:
    """Write the signed cost of each row's column to ``costs``, (n,)."""
    one, raw = c.line[0], c.raw[0]
    for row in range(column.size):
        if column[row] < r.n_columns:
            read_part(row, column[row], 1, r, raw, one)
            costs[row] = one[0]
        else:
            costs[row] = r.price[row]
