"""Tight pairs of every row under given prices, and a maximum matching on them.

A pair is *tight* if its ``c - v`` is the smallest of its row. A perfect matching on tight
pairs is optimal, whatever the prices: these and the rows' minima are duals that prove it. One
pass over the rows finds the pairs, each row on the next free thread, without barriers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core import state as S
from bigsap.engine.core.atomics import fetch_add, lowest_bit, prefetch
from bigsap.engine.core.precision import largest_cost
from bigsap.engine.core.record import record
from bigsap.engine.core.scan import AHEAD, LINE, fold, n_invalid
from bigsap.engine.core.state import BLOCK, FREE, ID, LANES
from bigsap.problem import Problem
from bigsap.types import Array

#: Limit of tight pairs kept of a row, and of one block of its columns. With more ties, pairs
#: from all over the row are more useful than neighbours, which other rows have too.
ROOM = 32
PER_BLOCK = 8
#: Rows that a thread claims at a time; adjacent, which suits the hardware prefetcher.
_CLAIM = 8
_STEP = 4 * LANES
#: Marks of a block's columns, eight to a word.
_WORDS = BLOCK // 8
#: Limit of open rows in ``match``: _FEW plus one per _SHARE rows.
_FEW, _SHARE = 12, 32
# Value of ``Matching.seen``: no free column can be reached from this one, now or later.
_DEAD = -1


class Tight(NamedTuple):
    """Arrays of the pass. P is the price type.

    ids: ID (n_rows, ROOM) columns of tight pairs, the diagonal first; size: ID (n_rows,) their
    number, -1 for a row with an invalid cost. low: P (n_rows,) the smallest ``c - v``.
    above: P (n_rows,) no column outside the list has ``c - v`` below it. item: int64 (1,)
    the next row to take. lanes, block_min, words, marks: a thread's workspace.
    """

    ids: Array
    size: Array
    low: Array
    above: Array
    item: Array
    lanes: Array
    block_min: Array
    words: Array
    marks: Array


class MatchingStanding:
    """Progress of ``match``: ``Matching.at``."""

    n_rows: int  # processed
    n_open: int  # of these, unmatched
    n_searches: int
    work: int  # columns visited by searches, and rows


class Matching(NamedTuple):
    """A matching and its workspace.

    column_of_row, row_of_column: FREE if unmatched. seen: ID (n_columns,) the last search that
    visited the column. rows, places, visited: the path of a search and all its columns.
    """

    column_of_row: Array
    row_of_column: Array
    seen: Array
    rows: Array
    places: Array
    visited: Array
    at: MatchingStanding


def tight_pairs(n: int, m: int, price: np.dtype[Any], n_threads: int) -> Tight:
    """Allocate the tight pairs of n rows. 4 * ROOM bytes a row and two vectors."""
    words = np.zeros((n_threads, _WORDS), np.uint64)
    return Tight(
        ids=np.empty((n, ROOM), ID),
        size=np.zeros(n, ID),
        low=np.empty(n, price),
        above=np.empty(n, price),
        item=np.zeros(1, np.int64),
        lanes=np.empty((n_threads, 2 * LANES), price),
        block_min=np.empty((n_threads, -(-m // BLOCK)), price),
        words=words,
        marks=words.view(np.uint8),
    )


def empty_matching(n: int, m: int) -> Matching:
    """Return a matching without pairs."""
    return Matching(
        np.full(n, FREE, ID),
        np.full(m, FREE, ID),
        np.zeros(m, ID),
        np.empty(n + 1, ID),
        np.empty(n + 1, ID),
        np.empty(m, ID),
        record(MatchingStanding, np.dtype(np.int64)),
    )


@kernel
def _minimum(
    cost: Array, sign: float, v: Array, n: int, lanes: Array, block_min: Array, infinity: float
) -> tuple[float, bool]:
    """Return the smallest ``c - v`` of n columns, each block's in block_min; and whether a cost is NaN.

    NaN shows in the sums of the lanes, at one addition a cost; finite costs beyond 1e307
    may also look like NaN.
    """
    low, total = lanes[:LANES], lanes[LANES:]
    for k in range(LANES):
        low[k] = infinity
        total[k] = 0
    overall = infinity
    for block in range((n + BLOCK - 1) // BLOCK):
        o = block * BLOCK
        e = min(o + BLOCK, n)
        # Four columns of a lane at a time: a quarter of the loads and stores of the minima.
        full = (e - o) // _STEP
        for b in range(full):
            p = o + b * _STEP
            for line in range(cost.itemsize * _STEP // LINE):
                prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
            c, w = cost[p : p + _STEP], v[p : p + _STEP]
            for k in range(LANES):
                x0, x1 = sign * c[k], sign * c[k + LANES]
                x2, x3 = sign * c[k + 2 * LANES], sign * c[k + 3 * LANES]
                total[k] += (x0 + x1) + (x2 + x3)
                g0, g1 = x0 - w[k], x1 - w[k + LANES]
                g2, g3 = x2 - w[k + 2 * LANES], x3 - w[k + 3 * LANES]
                a = g0 if g0 < g1 else g1
                z = g2 if g2 < g3 else g3
                a = a if a < z else z
                z = low[k]
                low[k] = a if a < z else z
        for b in range(4 * full, (e - o) // LANES):
            p = o + b * LANES
            c, w = cost[p : p + LANES], v[p : p + LANES]
            for k in range(LANES):
                x = sign * c[k]
                total[k] += x
                g = x - w[k]
                z = low[k]
                low[k] = g if g < z else z
        for j in range(o + (e - o) // LANES * LANES, e):
            x = sign * cost[j]
            total[0] += x
            low[0] = min(low[0], x - v[j])
        block_min[block] = fold(low, infinity)
        overall = min(overall, block_min[block])
    bad = False
    for k in range(LANES):
        bad = bad or total[k] != total[k]
    return overall, bad


@kernel
def _gather(
    tight: Tight, thread: int, row: int, cost: Array, sign: float, v: Array, low: float, infinity: float
) -> tuple[int, float]:
    """Collect tight columns of a row from a pseudo-random one on; return how many and a bound of the rest."""
    lanes, block_min = tight.lanes[thread], tight.block_min[thread]
    words, marks, ids = tight.words[thread], tight.marks[thread], tight.ids[row]
    n, size = v.size, 0
    if row < n and sign * cost[row] - v[row] == low:
        ids[0] = row
        size = 1
    above = infinity
    n_blocks = (n + BLOCK - 1) // BLOCK
    spread = np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
    begin = int(np.int64((spread >> np.uint64(33)) % np.uint64(n_blocks)))
    for turn in range(n_blocks):
        block = begin + turn
        block -= n_blocks if block >= n_blocks else 0
        if block_min[block] != low:
            above = min(above, block_min[block])
            continue
        if size == ROOM:
            return size, low
        o = block * BLOCK
        e = min(o + BLOCK, n)
        for k in range(_WORDS):
            words[k] = 0
        for k in range(LANES):
            lanes[k] = infinity
        for b in range((e - o) // LANES):
            p = o + b * LANES
            c, w, t = cost[p : p + LANES], v[p : p + LANES], marks[b * LANES : (b + 1) * LANES]
            for k in range(LANES):
                g = sign * c[k] - w[k]
                t[k] = 1 if g == low else 0
                z = lanes[k]
                g = g if g > low else infinity
                lanes[k] = g if g < z else z
        for j in range(o + (e - o) // LANES * LANES, e):
            g = sign * cost[j] - v[j]
            marks[j - o] = 1 if g == low else 0
            if g > low:
                lanes[0] = min(lanes[0], g)
        above = min(above, fold(lanes, infinity))
        room = min(ROOM - size, PER_BLOCK)
        first = int(np.int64((spread >> np.uint64(20 + (block & 7))) & np.uint64(_WORDS - 1)))
        for k in range(_WORDS):
            place = (first + k) & (_WORDS - 1)
            word = words[place]
            while word != 0:
                bit = lowest_bit(word) >> 3
                word &= word - np.uint64(1)
                j = o + 8 * place + bit
                if j == row:
                    continue
                if room == 0:
                    above = low
                    break
                ids[size] = j
                size += 1
                room -= 1
            if word != 0:
                break
    return size, above


@kernel
def run_tight(
    thread: int,
    n_threads: int,
    rows: Array,
    slots: Array,
    sign: float,
    lowest: float,
    highest: float,
    infinity: float,
    v: Array,
    tight: Tight,
) -> int:
    """Find the tight pairs of ``rows`` (ID (k,)), which lie in ``slots[row]``. O(k m).

    Valid signed costs lie in (lowest, highest]. Returns the number of rows with an invalid cost
    found by this thread.
    """
    n = v.size
    lanes, block_min = tight.lanes[thread], tight.block_min[thread]
    bad = 0
    while True:
        first = fetch_add(tight.item, 0, _CLAIM)
        if first >= rows.size:
            return bad
        for p in range(first, min(first + _CLAIM, rows.size)):
            row = rows[p]
            cost = slots[row]
            low, wrong = _minimum(cost, sign, v, n, lanes, block_min, infinity)
            wrong = wrong or low <= -infinity
            if lowest > -infinity:
                wrong = wrong or n_invalid(cost, sign, lowest, highest, 0, n) != 0
            size, above = -1, low
            if wrong:
                bad += 1
            elif low < infinity:
                size, above = _gather(tight, thread, row, cost, sign, v, low, infinity)
            else:
                size = 0
            tight.low[row] = low
            tight.size[row] = size
            tight.above[row] = above


@kernel
def note_listed(rows: Array, ids: Array, size: Array, found: Array) -> int:
    """Mark the columns of these rows' tight pairs in ``found`` (n_columns,); return the number of pairs."""
    count = 0
    for p in range(rows.size):
        row = rows[p]
        for k in range(size[row]):
            found[ids[row, k]] = True
        count += size[row]
    return count


@kernel
def _search(root: int, ids: Array, size: Array, m: Matching) -> bool:
    """Match a row along an alternating path of tight pairs, depth first; return False if there is none."""
    column_of_row, row_of_column, seen = m.column_of_row, m.row_of_column, m.seen
    rows, places, visited = m.rows, m.places, m.visited
    m.at.n_searches += 1
    m.at.work += 1
    stamp = m.at.n_searches
    n_visited = 0
    depth = 0
    rows[0], places[0] = root, 0
    while depth >= 0:
        row = rows[depth]
        if places[depth] == 0:
            for k in range(size[row]):
                j = ids[row, k]
                if row_of_column[j] < 0:
                    while depth >= 0:
                        row = rows[depth]
                        left = column_of_row[row]
                        column_of_row[row] = j
                        row_of_column[j] = row
                        j = left
                        depth -= 1
                    return True
        deeper = False
        while places[depth] < size[row]:
            j = ids[row, places[depth]]
            places[depth] += 1
            if seen[j] != stamp and seen[j] != _DEAD:
                seen[j] = stamp
                m.at.work += 1
                visited[n_visited] = j
                n_visited += 1
                depth += 1
                rows[depth], places[depth] = row_of_column[j], 0
                deeper = True
                break
        if not deeper:
            depth -= 1
    # No free column can be reached from these now, nor after any other augmentation.
    for k in range(n_visited):
        seen[visited[k]] = _DEAD
    return False


@kernel
def match(rows: Array, first: int, ids: Array, size: Array, m: Matching, budget: int) -> int:
    """Match as many of these rows as possible, from index ``first`` on.

    Returns the index to continue from when the budget is spent or all are done, -1 if too many
    cannot be matched. That is decided row by row, so that the result does not depend on the size
    of the batches.
    """
    at = m.at
    last = at.work + budget
    for p in range(first, rows.size):
        if at.work >= last:
            return p
        at.n_rows += 1
        if not _search(rows[p], ids, size, m):
            at.n_open += 1
            if at.n_open > _FEW + at.n_rows // _SHARE:
                return -1
    return rows.size


@kernel
def raise_prices(
    columns: Array, slots: Array, places: Array, sign: float, infinity: float, v: Array, tight: Tight
) -> None:
    """Raise the price of each of these columns until one of its pairs is tight.

    slots: costs (n_rows, at least k), those of ``columns[p]`` at ``places[p]``. Only for exact
    arithmetic: the rows' minima must stay the same. Lists and bounds stay valid.
    O(n_rows) scattered costs a column.
    """
    low, above, ids, size = tight.low, tight.above, tight.ids, tight.size
    for p in range(columns.size):
        j, place = columns[p], places[p]
        least = infinity
        for i in range(low.size):
            # Never tight for a forbidden row; its minimum is infinite too.
            g = sign * slots[i, place] - v[j]
            g = g - low[i] if g < infinity else infinity
            least = g if g < least else least
        if not (least > 0 and least < infinity):
            continue
        v[j] += least
        for i in range(low.size):
            g = sign * slots[i, place] - v[j]
            if g == low[i] and size[i] < ROOM:
                ids[i, size[i]] = j
                size[i] += 1
            elif g < above[i]:
                above[i] = g


@kernel
def match_open(first: int, ids: Array, size: Array, m: Matching, budget: int) -> int:
    """Try the open rows again, with the new pairs, from row ``first`` on.

    Returns the row to continue from when the budget is spent or all are done.
    """
    if first == 0:
        for j in range(m.seen.size):
            m.seen[j] = 0
        m.at.n_searches = 0
    last = m.at.work + budget
    for row in range(first, m.column_of_row.size):
        if m.at.work >= last:
            return row
        if m.column_of_row[row] < 0:
            _search(row, ids, size, m)
    return m.column_of_row.size


def valid_costs(problem: Problem, price: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the interval of valid signed costs; see ``row_access.Terms``."""
    limit, usual = largest_cost(problem, price)
    if price.kind == "f" and not usual:
        return -S.infinity(price), S.infinity(price)
    return price.type(-limit - 1), price.type(limit)
