"""Assignment of many rows to few columns, each of which takes many rows.

Rows lie in columns; a search leads from column to column by the row whose cost rises least
(``engine.capacity``). All rows first take the column of least ``c - v``. Where that is too many for a
column, rows move along shortest paths to columns that lack some: successive shortest paths (Busacker
and Gowen 1960) among as many nodes as there are columns.

First prices come from samples of the rows, each four times the one before, with capacities in
proportion: of n rows only some ``sqrt(n m)`` then have to move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.capacity import columns as C
from bigsap.engine.capacity import exact as E
from bigsap.engine.capacity.search import LANES, balance, move
from bigsap.engine.core.team import Team
from bigsap.engine.lists.reading import costs_in
from bigsap.problem import Problem
from bigsap.progress import Snapshot
from bigsap.proof.exact import two_sum
from bigsap.sources.base import Resident
from bigsap.sources.filling import fill_of
from bigsap.types import Array

# What of the columns a checkpoint holds under this prefix: vectors, and matrices of pairs of columns.
_PREFIX = "columns_"
_NODES = ("v", "capacity", "kept", "excess", "begin", "load")
_PAIRS = ("top", "top_row", "limit", "size")
#: The first sample has at least so many rows a column; each next one this many times as many.
_FIRST_ROWS, _GROW = 8, 4
#: Rows a column by which the prices of a warm start are judged.
_PROBED_ROWS = 64
#: Rows listed for each pair of columns; of many columns fewer.
_WIDTH, _NARROW, _MANY_COLUMNS = 16, 8, 256
#: Costs read, and columns settled, between two looks at the clock.
_READ_AT_ONCE, _SETTLED_AT_ONCE = 1 << 22, 1 << 13
#: Integers up to this, times the number of columns, keep all sums exact in float64.
EXACT = 2.0**49

Tick = Callable[[], None]


class TooLarge(Exception):
    """Integer costs whose sums float64 does not hold."""


@dataclass
class Balanced:
    """Outcome: the column of each row, prices (m,), and rows that prove infeasibility, if any."""

    column: Array
    v: Array
    violator: Array


class Balance:
    """One such search, whose state outlives a stop.

    capacity: (m,) int64 rows that each column may take; with ``price`` (n,), the signed costs of a further
    column, (m + 1,). Their sum is at least n. start: (m,) prices to begin with, minimising sense; None:
    those of samples. Memory: 16 bytes a row and, for each pair of columns, 120 to 220.
    """

    def __init__(
        self,
        problem: Problem,
        capacity: Array,
        price: Array | None,
        start: Array | None,
        team: Team,
        tick: Tick,
        seed: int = 0,
    ) -> None:
        self.problem, self.capacity, self.team, self.tick, self.seed = problem, capacity, team, tick, seed
        n, m = problem.shape[0], capacity.size
        self.n_rows, self.n_columns = n, m
        self.reader = _reader(problem, price)
        width = _WIDTH if m <= _MANY_COLUMNS else _NARROW
        threads = team.n_threads
        self.levels: list[dict[str, Any]] = []
        #: Levels that are solved, and rows of the one at hand; its first prices, and counts up to it.
        self.n_solved, self.size = 0, 0
        self.first_v, self.first_counts = np.zeros(m + 1), np.zeros(8, np.int64)
        self.moved_first = -1  # rows in excess when this level's lists were made; before that -1
        self.restored = False
        #: Prices (m,) of the last pass over all rows, and how many it has passed: their minima are there.
        self.passed, self.n_passed = np.zeros(m), 0
        self.start = start
        none = np.empty(0)
        self.c = C.Columns(
            v=np.zeros(m + 1),
            capacity=np.zeros(m + 1, np.int64),
            kept=np.zeros(m + 1, np.int64),
            excess=np.zeros(m + 1, np.int64),
            begin=np.zeros(m + 1, np.int64),
            load=np.zeros(m, np.int64),
            member=none.astype(np.int32),
            own=none,
            column=np.full(n, -1, np.int32),
            place=np.zeros(n, np.int32),
            top=np.full((m, m), np.inf),
            top_row=np.full((m, m), -1, np.int32),
            limit=np.full((m, m), np.inf),
            size=np.zeros((m, m), np.int32),
            rise=np.empty((m, m, width)),
            row=np.empty((m, m, width), np.int32),
            dist=np.empty(m + 1),
            key=np.empty(m + 1),
            goal=np.empty(m + 1),
            lanes=np.empty(LANES),
            before=np.empty(m + 1, np.int32),
            rise_before=np.empty(m + 1),
            settled=np.empty(m + 1, np.int32),
            seen=np.empty(m + 1, np.uint8),
            line=np.empty((threads, m)),
            raw=np.empty((threads, 8 * m), np.uint8),
            counts=np.zeros((threads, 8), np.int64),
            largest=np.zeros(threads),
            least=np.empty(0),
        )
        self.moved = np.empty((2, m + 1), np.int32)

    def run(self, phase: Tick = lambda: None) -> Balanced:
        """Solve, and call ``phase`` after each level. Raises ``TooLarge`` for integers beyond float64."""
        n, m = self.n_rows, self.n_columns
        order = np.random.default_rng(self.seed).permutation(n).astype(np.int32)
        sizes = [n]
        while sizes[-1] > _FIRST_ROWS * _GROW * m:
            sizes.append(sizes[-1] // _GROW)
        if self.restored:
            sizes = [size for size in sizes if size >= self.size]
        elif self.start is not None:
            self.c.v[:m] = shifted(self.start, self.capacity, n)
            if self._is_near(order[: _PROBED_ROWS * m]):
                sizes = [n]
        stuck = C.DONE
        for self.size in reversed(sizes):
            stuck = self._solve(self._rows(order), share(self.capacity, n, self.size), phase)
        self.tick()
        violator = np.empty(0, np.intp)
        if stuck == C.NOWHERE:
            wrong = self.c.counts[:, C.WRONG] == C.NOWHERE
            violator = self.c.counts[wrong, C.ROW][:1].astype(np.intp)
        elif stuck == C.STUCK:
            violator = np.flatnonzero(self.c.seen[self.c.column] != 0)
        return Balanced(self.c.column, self.prices(), violator)

    def _rows(self, order: Array) -> Array:
        """Return the rows of this level, the first ones in this order."""
        return (
            np.sort(order[: self.size]) if self.size < self.n_rows else np.arange(self.size, dtype=np.int32)
        )

    def snapshot(self) -> Snapshot:
        """Return the state of the search, to go on from after ``restore``."""
        if not self.size:
            return {}
        found: Snapshot = {"size": self.size, "levels": self.levels[: self.n_solved], "v": self.first_v}
        found |= {"counts": self.first_counts, "excess": self.moved_first}
        if self.moved_first >= 0:
            order = np.random.default_rng(self.seed).permutation(self.n_rows).astype(np.int32)
            found |= {"counts_now": self.c.counts.sum(axis=0), **snapshot_of(self.c, self._rows(order))}
        return found

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot: ``run`` then returns the same bits."""
        self.restored, self.size, self.levels = True, int(snapshot["size"]), list(snapshot["levels"])
        self.first_counts[:], self.moved_first = snapshot["counts"], int(snapshot["excess"])
        self.c.v[:] = snapshot["v"]
        order = np.random.default_rng(self.seed).permutation(self.n_rows).astype(np.int32)
        self.c.counts[0] = self.first_counts
        self.c.counts[:, C.ROW :] = 0
        if self.moved_first >= 0:
            self.first_v[:], self.c.counts[0] = self.c.v, snapshot["counts_now"]
            self.c.counts[0, C.ROW :] = 0
            self.c = restored(self.c, self._rows(order), snapshot)

    def prices(self) -> Array:
        """Return the prices (m,), 0 where places stay free."""
        found: Array = self.c.v[:-1] - self.c.v[-1]
        return found

    def column_costs(self) -> tuple[Array, Array]:
        """Return the column of each row, and its signed cost there."""
        c = self.c
        own: Array = c.own[c.begin[c.column] + c.place]
        return c.column, own

    def exact_prices(self) -> tuple[Array, Array]:
        """Return prices of the assignment in two parts, after moves that only exact rises tell.

        The prices at hand are lowered until no arc's exact rise is below their difference. A cycle of arcs
        of which that can never be true leads to a better assignment: one row moves along each arc.
        """
        c, m, team = self.c, self.n_columns, self.team
        high, low, row = np.empty((m, m)), np.empty((m, m)), np.empty((m, m), np.int32)
        columns = np.arange(m)
        v, v_low = c.v.copy(), np.zeros(m + 1)
        small = 2.0**-98 * float(np.abs(v).max() + np.abs(self.column_costs()[1]).max(initial=0.0))
        before = np.full(m + 1, -1, np.int32)
        while columns.size:
            step = max(1, _READ_AT_ONCE // (m * max(1, self.n_rows // m)))
            for first in range(0, columns.size, step):
                team.run(E.exact_rises, columns[first : first + step], c, self.reader, high, low, row)
                self.tick()
            before[:] = -1
            columns = np.empty(0, np.intp)
            while E.lower_prices(c, high, low, v, v_low, before, small):
                self.tick()
                cycle = _cycle(before)
                if cycle.size:
                    columns = cycle[cycle < m]
                    c.before[:] = before
                    c.top_row[:] = row
                    start = int(columns[0])
                    move(start, start, self.moved, c, self.reader)
                    c.top_row[:] = -1  # lists are not needed any more
                    break
        shifted, rest = two_sum(v, -v[-1])
        shifted, rest = two_sum(shifted, rest + (v_low - v_low[-1]))
        return shifted[:-1], rest[:-1]

    @property
    def searching_all(self) -> bool:
        """Whether all rows lie in columns, and their costs are known."""
        return self.moved_first >= 0 and self.size == self.n_rows

    @property
    def wrong(self) -> bool:
        """Whether a row with an invalid cost, or without an allowed one, has been met."""
        return bool(self.c.counts[:, C.WRONG].any())

    def pass_over_all(self, late: Callable[[], bool]) -> None:
        """Give each row its best column, at the prices at hand, unless it is late. Ends the search."""
        self._set_prices(self.capacity, self.n_rows)
        self._assign(np.arange(self.n_rows, dtype=np.int32), late)

    def _is_near(self, sample: Array) -> bool:
        """Return whether the prices at hand leave no more rows to move than those of samples would."""
        c, m, size = self.c, self.n_columns, sample.size
        C.assign(0, 1, sample, 0, size, c, self.reader)
        if c.counts[0, C.WRONG]:
            c.counts[0, C.WRONG] = 0  # the pass over all rows tells
            return True
        load = np.bincount(c.column[sample], minlength=m)
        surplus = np.maximum(load - share(self.capacity, self.n_rows, size), 0).sum()
        return bool(surplus <= np.sqrt(m * size))

    def _solve(self, rows: Array, capacity: Array, phase: Tick) -> int:
        """Assign these rows within these capacities, from the prices at hand or as restored."""
        self.n_solved = len(self.levels)
        if self.moved_first < 0:
            self._set_prices(capacity, rows.size)
            self.first_v[:], self.first_counts[:] = self.c.v, self.c.counts.sum(axis=0)
            wrong = self._listed(rows, capacity)
            if wrong is not None:
                return wrong
        c = self.c
        while (result := balance(_SETTLED_AT_ONCE, self.moved, c, self.reader)) == C.YIELD:
            self.tick()
        phase()
        after = c.counts.sum(axis=0) - self.first_counts
        self.levels.append(
            {
                "rows": rows.size,
                "excess": self.moved_first,
                "searches": int(after[C.SEARCHES]),
                "settled": int(after[C.SETTLED]),
                "listed_again": int(after[C.LISTED]),
                "pairs": int(after[C.READ]),
            }
        )
        if rows.size < self.n_rows:
            self.moved_first = -1
        return int(result)

    def _set_prices(self, capacity: Array, n: int) -> None:
        """Shift the prices so that they prove a bound: at most 0, that of the further column 0.

        Where no place stays free, prices may be above 0.
        """
        v, m = self.c.v, self.n_columns
        tight = int(capacity.sum()) == n
        v -= v[m - 1] if tight and self.reader.price.size else v[m]
        v[m] = 0.0
        if not tight:
            np.minimum(v, 0.0, out=v)

    def _ticked(self) -> bool:
        """Let the clock tick, which may raise; go on."""
        self.tick()
        return False

    def _assign(self, rows: Array, late: Callable[[], bool]) -> None:
        """Give each row a column of least ``c - v``, until one is wrong or it is late."""
        n, self.n_passed = rows.size, 0
        self.passed = self.c.v[:-1].copy()
        step = max(1, _READ_AT_ONCE // self.n_columns) * self.team.n_threads
        for first in range(0, n, step):
            self.team.run(C.assign, rows, first, min(n, first + step), self.c, self.reader)
            if n == self.n_rows and not self.wrong:
                self.n_passed = min(n, first + step)
            if self.wrong or late():
                return

    def _listed(self, rows: Array, capacity: Array) -> int | None:
        """Give each row its best column, and list them; return what is wrong with a row, if anything."""
        c, team = self.c, self.team
        m, n = self.n_columns, rows.size
        self._assign(rows, self._ticked)
        if self.wrong:
            return self._wrong()
        if self.problem.integer and c.largest.max() * (m + 2) > EXACT:
            raise TooLarge
        c.load[:] = np.bincount(c.column[rows], minlength=m)
        c = self._prepare(capacity, n)
        C.settle(rows, c)
        for first in range(0, m, team.n_threads):
            team.run(C.list_columns, first, min(m, first + team.n_threads), c, self.reader)
            self.tick()
        self.moved_first = int(c.excess[c.excess > 0].sum())
        return None

    def _prepare(self, capacity: Array, n: int) -> C.Columns:
        """Set how many rows each column is to keep, and the rooms of its list; return the new state."""
        c, m = self.c, self.n_columns
        tight = int(capacity.sum()) == n
        c.capacity[:m] = capacity
        # A price below 0 means that the column is full; others keep what they have.
        full = np.ones(m, bool) if tight else c.v[:m] < 0
        c.kept[:m] = np.where(full, capacity, np.minimum(c.load, capacity))
        c.excess[:m] = c.load - c.kept[:m]
        c.excess[m] = c.kept[:m].sum() - n
        if tight:
            # No place stays free: nothing leads by way of the further node.
            c.kept[:m], c.capacity[:m] = 0, 0
        most = int(c.excess[c.excess > 0].sum())
        room = np.maximum(c.load, np.minimum(capacity, c.load + most)) + 1
        c.begin[1:] = np.cumsum(room)
        self.c = c._replace(member=np.empty(int(c.begin[m]), np.int32), own=np.empty(int(c.begin[m])))
        return self.c

    def _wrong(self) -> int:
        """Raise InvalidCostError for the first row with an invalid cost; else return NOWHERE."""
        source, counts = self.problem.source, self.c.counts
        for row in counts[counts[:, C.WRONG] == C.INVALID, C.ROW].tolist():
            costs = np.empty((1, source.shape[1]), source.dtype)
            source.read(np.array([row]), slice(0, source.shape[1]), costs)
            self.problem.check_row(row, costs[0])
        return C.NOWHERE


def _reader(problem: Problem, price: Array | None) -> C.Reader:
    """Return the access of kernels to the costs, in memory or by a filler."""
    source = problem.source
    matrix = source.resident() if isinstance(source, Resident) else None
    fill = None if matrix is not None else fill_of(source)
    slots = np.empty((1, 1), source.dtype) if matrix is None else matrix
    costs = costs_in(slots, np.dtype(np.float64), there=matrix is not None)
    return C.Reader(
        costs=costs,
        fill_address=0 if fill is None else fill.address,
        fill_context=0 if fill is None else fill.context,
        sign=float(problem.sign),
        n_columns=problem.shape[1],
        price=np.empty(0) if price is None else price.astype(np.float64),
    )


def _cycle(before: Array) -> Array:
    """Return the nodes of a cycle of arcs, each from ``before[k]`` to k; none if there is no cycle."""
    color = np.zeros(before.size, np.int64)
    for root in range(before.size):
        node, name = root, root + 1
        while node >= 0 and color[node] == 0:
            color[node] = name
            node = int(before[node])
        if node >= 0 and color[node] == name:
            found = [node]
            while (following := int(before[found[-1]])) != node:
                found.append(following)
            return np.array(found, np.intp)
    return np.empty(0, np.intp)


def share(capacity: Array, n: int, size: int) -> Array:
    """Return capacities for a sample of ``size`` of n rows: in proportion, at least so many in all."""
    exact = np.minimum(capacity, n) * (size / n)
    found = np.floor(exact).astype(np.int64)
    missing = max(0, int(np.ceil(exact.sum())) - int(found.sum()), size - int(found.sum()))
    order = np.argsort(found - exact, kind="stable")[: min(missing, capacity.size)]
    found[order] += 1
    short = size - int(found.sum())
    if short > 0:
        found[np.argmax(found)] += short
    return found


def shifted(v: Array, capacity: Array, n: int) -> Array:
    """Return prices at most 0, and 0 for columns that may have room left."""
    order = np.argsort(v, kind="stable")
    total = np.cumsum(capacity[order])
    at = order[min(int(np.searchsorted(total, n)), v.size - 1)]
    found: Array = np.minimum(v - v[at], 0.0)
    return found


def snapshot_of(c: C.Columns, rows: Array) -> Snapshot:
    """Return the state of a search among these rows; only the listed ones of each list are in it."""
    column, place = c.column[rows], c.place[rows]
    listed = np.arange(c.rise.shape[2]) < c.size[:, :, None]
    found = {name: getattr(c, name) for name in (*_NODES, *_PAIRS)}
    found |= {
        "column": column,
        "place": place,
        "own": c.own[c.begin[column] + place],
        "rise": c.rise[listed],
        "row": c.row[listed],
    }
    return {_PREFIX + name: part for name, part in found.items()}


def restored(c: C.Columns, rows: Array, snapshot: Snapshot) -> C.Columns:
    """Return the columns in the state of a snapshot of a search among these rows."""
    for name in (*_NODES, *_PAIRS):
        getattr(c, name)[...] = snapshot[_PREFIX + name]
    room = int(c.begin[-1])
    c = c._replace(member=np.empty(room, np.int32), own=np.empty(room))
    c.column[rows], c.place[rows] = snapshot[_PREFIX + "column"], snapshot[_PREFIX + "place"]
    at = c.begin[c.column[rows]] + c.place[rows]
    c.member[at], c.own[at] = rows, snapshot[_PREFIX + "own"]
    listed = np.arange(c.rise.shape[2]) < c.size[:, :, None]
    c.rise[listed], c.row[listed] = snapshot[_PREFIX + "rise"], snapshot[_PREFIX + "row"]
    return c
