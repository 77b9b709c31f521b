"""Reading through Python of rows that kernels cannot compute: read, check, cache.

A read also yields free extras: other rows of the same stored group, and a chance to tell the
source which rows come next.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.changed import changed
from bigsap.engine.core.held import Resting
from bigsap.engine.core.precision import refuse_large
from bigsap.problem import Problem
from bigsap.row_cache import ABSENT, MISSES, N_SLOTS, N_USED, Rows, claim
from bigsap.sources.base import Foreseeing, Grouped, Interruptible, Prefetching, read_rows, read_while
from bigsap.types import Array


class RowReader:
    """Reader of the rows of ``problem`` into ``rows``.

    limit: integer costs stay within +-limit, None for no limit; usual: see ``refuse_large``.
    infinity: the label of unreached columns. tick: called while waiting for a source.
    """

    def __init__(
        self,
        problem: Problem,
        rows: Rows,
        limit: int | None,
        usual: bool,
        infinity: float,
        tick: Callable[[], None],
    ) -> None:
        self.problem, self.rows = problem, rows
        self.limit, self.usual, self.infinity, self.tick = limit, usual, infinity, tick
        # Looked up once: a protocol check may take as long as reading a row.
        source = problem.source
        self._grouped = source if isinstance(source, Grouped) else None
        self._foreseeing = source if isinstance(source, Foreseeing) else None
        self._interruptible = isinstance(source, Interruptible)
        #: Slowest recent time per row, over one read or slice; 0 if unknown.
        self.seconds_per_row = 0.0
        self.rows_read = 0
        #: Records the rows that leave the cache, if requested.
        self.resting: Resting | None = None
        self._block: tuple[int, int, Array] | None = None
        m = problem.shape[1]
        self._one_row = np.empty((0 if rows.policy == "in place" else 1, m), source.dtype)

    def fetch(self, row: int, st: S.State, order: Array, *, sweeping: bool) -> None:
        """Make ``row`` resident, and other rows that come with it at no extra cost.

        order: the rows being visited; ``st.at.position`` is the position of the present one.
        """
        source = self.problem.source
        table = self.rows.table
        start, stop = row, row + 1
        if self._grouped is not None:
            start, stop = self._grouped.rows_together(row)
        if stop - start <= 1:
            ahead = self._foreseeing
            if ahead is not None and ahead.foresees:
                ahead.predict_slot(self._next_rows(row, ahead.foresees, st, order, sweeping))
            # Read first: a slot claimed for a row whose read fails would hold garbage.
            self._read(np.array([row]), self._one_row)
            self._before_claim(st)
            table.slots[claim(table, row, sweeping)] = self._one_row[0]
            return
        block = self._block
        if block is None or not block[0] <= row < block[1]:
            costs = np.empty((stop - start, self.problem.shape[1]), source.dtype)
            self._read(np.arange(start, stop), costs)
            block = self._block = (start, stop, costs)
            self._prefetch(int(st.at.position), order)
            # A group is decoded once: its other rows fill vacant slots, but evict nothing,
            # since none of them was requested yet.
            for other in range(start, stop):
                vacant = table.head[N_USED] + 1 < table.head[N_SLOTS]
                if other != row and vacant and table.slot_of_row[other] == ABSENT:
                    table.slots[claim(table, other, False)] = costs[other - start]
                    table.head[MISSES] -= 1
        self._before_claim(st)
        slot = claim(table, row, sweeping)
        table.slots[slot] = block[2][row - block[0]]

    def _next_rows(self, row: int, most: int, st: S.State, order: Array, sweeping: bool) -> Array:
        """Return absent rows that may be needed after ``row``.

        In a search those of the columns it has reached, nearest first; then the next ones in order.
        """
        absent = self.rows.table.slot_of_row == ABSENT
        found = np.empty(0, np.int64)
        if not sweeping:
            (reached,) = np.nonzero((st.dist < self.infinity) & (st.row_of_column >= 0))
            reached = reached[absent[st.row_of_column[reached]]]
            if reached.size > most:
                reached = reached[np.argpartition(st.dist[reached], most)[:most]]
            found = st.row_of_column[reached[np.argsort(st.dist[reached])]].astype(np.int64)
        position = int(st.at.position)
        ahead = order[position + 1 : position + 1 + 16 * most]
        found = np.concatenate([found[found != row], ahead[absent[ahead] & (ahead != row)]])
        return found[:most]

    def _before_claim(self, st: S.State) -> None:
        if self.resting is not None:
            self.resting.before_claim(st.column_of_row)

    def _read(self, rows: Array, out: Array) -> None:
        source = self.problem.source
        self.rows_read += rows.size
        clock = time.perf_counter()
        columns = slice(0, self.problem.shape[1])
        if self._interruptible:
            read_while(source, self.tick, rows, columns, out)
        else:
            read_rows(source, rows, columns, out)
        self.took(time.perf_counter() - clock, rows.size)
        for row, costs in zip(rows.tolist(), out, strict=True):
            self._check(row, costs)

    def took(self, seconds: float, n_rows: int) -> None:
        """Record the time taken to read or compute rows."""
        self.seconds_per_row = max(0.9 * self.seconds_per_row, seconds / max(1, n_rows))

    def _check(self, row: int, costs: Array) -> None:
        self.problem.check_row(row, costs)
        if self.limit is not None and costs.size:
            refuse_large(self.problem, row, costs, self.limit, usual=self.usual)

    def _prefetch(self, position: int, order: Array) -> None:
        """Announce the next root rows' group to a source that can read ahead."""
        source = self.problem.source
        if not isinstance(source, Prefetching) or self._block is None:
            return
        for row in order[position + 1 : position + 1 + 4096].tolist():
            inside = self._block[0] <= row < self._block[1]
            if not inside and self.rows.table.slot_of_row[row] == ABSENT:
                source.prefetch(row)
                return

    def complain(self, row: int) -> None:
        """Raise for a row in which a kernel found an invalid cost."""
        costs = np.empty((1, self.problem.shape[1]), self.problem.source.dtype)
        self.problem.source.read(np.array([row]), slice(0, self.problem.shape[1]), costs)
        self._check(row, costs[0])
        raise changed(f"row {row} had an invalid cost that it no longer has when read again")

    def release(self) -> None:
        """Drop the reference to the group read last."""
        self._block = None
