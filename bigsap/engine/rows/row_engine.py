"""CPU engine: runs kernels on a team, reads rows for them, and counts work.

Only here do a running kernel and Python interact. A kernel that needs a row, or has used up its
slice, returns. The engine then reads the row, reports progress, and calls the kernel again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.atomics import LEAVE
from bigsap.engine.core.changed import changed, refuse_wild
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.pair_costs import cheap_total
from bigsap.engine.core.precision import largest_cost
from bigsap.engine.core.record import numbers, set_numbers
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.team import Team
from bigsap.engine.rows.queue import clear_front
from bigsap.engine.rows.rectangular import NEXT_ROW, run_phase
from bigsap.engine.rows.row_reader import RowReader
from bigsap.engine.rows.square import run_square
from bigsap.engine.rows.sweep import Survey, run_sweep, run_undercut
from bigsap.errors import CheckpointError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.row_cache import Rows
from bigsap.sources.base import Fillable
from bigsap.types import Array

# Length of a kernel's slice: long enough to make the start negligible, short enough to handle
# an interrupt at once.
_SLICE_SECONDS = 0.1
_FIRST_SLICE_PAIRS = 1 << 21
# Pairs of a slice while it is unknown whether threads have to wait for cores.
_UNSURE_PAIRS = 1 << 18
# Pairs of the first slice if a pair may take any time to compute; and the limit of a slice in case
# every scanned row has to be computed.
_FIRST_SLICE_FILLED = 1 << 14
_LONGEST_SLICE_SECONDS = 0.5


class Engine:
    """State, rows and team of one solve of one problem.

    price: float64, or int64 for exact integer arithmetic. Memory: ``state`` (about
    eight vectors) besides the rows.
    """

    def __init__(
        self, problem: Problem, rows: Rows, team: Team, monitor: Monitor, price: np.dtype[Any]
    ) -> None:
        self.problem = problem
        self.rows = rows
        self.team = team
        self.monitor = monitor
        self.price = price
        n, m = problem.shape
        self.contention = team.contention
        self.state = S.allocate(n, m, price, self.contention.width, problem.n_virtual_columns)
        fill = None
        if rows.policy != "in place" and isinstance(problem.source, Fillable):
            fill = problem.source.fill()
        self._fill = fill
        infinity = S.infinity(price)
        self.infinity = infinity
        limit, usual = largest_cost(problem, price)
        self.limit, bounded = limit, usual or price.kind == "i"
        self.terms = Terms(
            sign=price.type(problem.sign),
            infinity=infinity,
            blocked=S.blocked_price(price),
            lowest=price.type(-limit - 1) if bounded else -infinity,
            highest=price.type(limit) if bounded else infinity,
            fill_address=fill.address if fill else 0,
            fill_context=fill.context if fill else 0,
            n_columns=m,
            margin=price.type(0 if problem.integer else 2.0**-46),
            unit=price.type(problem.integer),
            fill_in_parts=bool(fill and fill.in_parts),
        )
        most = limit if bounded else None
        self.reader = RowReader(problem, rows, most, usual, infinity, monitor.tick)
        self._budget = _FIRST_SLICE_FILLED if fill else _FIRST_SLICE_PAIRS
        self.known = Incumbent(problem, infinity, active=monitor.can_stop)
        #: Gap of the sweep that adopted a warm start, and whether a row is forced: see
        #: ``strategies.start.warm.mean_gap``.
        self.picks_gap, self.picks_forced = 0.0, False
        self._count = monitor.counter()
        #: Rows matched before the current phase; its position does not count them.
        self.n_kept = 0
        #: ``rows_scanned`` at which a phase is abandoned (None: no limit); and whether one was.
        self.most_scans: int | None = None
        self.left_open = False
        #: Pairs of scanned rows that were skipped in stretches (``stretches``).
        self.pairs_skipped = 0
        self._order: Array = np.empty(0, S.ID)
        #: Whether a sweep is in progress: the matching's arrays then hold the sweep's results.
        self.sweeping = False

    # -- operations for the methods -------------------------------------------------

    def sweep(self, survey: Survey, order: Array, *, backward: bool, first: bool) -> None:
        """Run ``run_sweep`` over ``order`` at the current prices."""
        survey.open_price[:] = self.state.v
        if first:
            survey.least[:] = self.infinity
            survey.runner_up[:] = self.infinity
        self._order, self.sweeping = (order[::-1] if backward else order), True
        self.state.at.position = 0
        self._drive(run_sweep, survey, order, backward, first)
        self._order = np.empty(0, S.ID)
        self.known.add_duals(survey.low, self.state.v)
        self.known.add_picks(survey.pick, survey.pick_cost)
        self._report()

    def undercut(self, pick: Array, rank_of_column: Array, order: Array) -> None:
        """Run ``run_undercut``, which lowers prices."""
        self._order, self.sweeping = order[::-1], True
        self.state.at.position = 0
        self._drive(run_undercut, pick, rank_of_column, order)
        self._order = np.empty(0, S.ID)

    def adopt(self, column_of_row: Array, v: Array) -> None:
        """Set a matching, complete or not, and prices from elsewhere."""
        st = self.state
        st.v[:] = v
        st.column_of_row[:] = column_of_row
        st.row_of_column[:] = S.FREE
        rows = np.flatnonzero(column_of_row >= 0)
        st.row_of_column[column_of_row[rows]] = rows

    def begin_phase(self) -> None:
        """Clear the matching; adjust the free columns' prices.

        Virtual rows: v is capped at its (m - n)-th largest value, which only lowers
        prices; the columns at the cap can serve the virtual rows. Virtual columns:
        their price starts so low that the real columns fill up first.
        """
        st, problem = self.state, self.problem
        self.sweeping = False
        st.column_of_row[:] = S.FREE
        st.row_of_column[:] = S.FREE
        st.group[:] = S.FREE
        at = st.at
        at.position, at.stage = 0, NEXT_ROW
        at.group_size = at.surplus = 0
        self.n_kept = 0
        n_virtual = problem.n_virtual_rows
        if n_virtual:
            m = st.v.size
            cap = np.partition(st.v, m - n_virtual)[m - n_virtual]
            np.minimum(st.v, cap, out=st.v)
            at.cap = cap
            at.surplus = int((st.v == cap).sum()) - n_virtual
        if problem.n_virtual_columns:
            at.group_price = self.group_price_start()

    def group_price_start(self) -> Any:
        """Return a price of the virtual columns below all that the real columns offer."""
        v = self.state.v
        spread = v.max() - v.min() if v.size else self.price.type(0)
        return v.min() - spread - self.group_reach

    #: Distance below the real columns at which the virtual ones start; set from the first sweep
    #: (the costs' range). Any value is correct; a small one costs extra scans.
    group_reach: Any = 0

    def phase(self, order: Array, *, backward: bool, epsilon: float) -> bool:
        """Match all rows of ``order``; return False if one of them cannot be matched.

        ``tree()`` then explains why. Also returns True if ``most_scans`` ended it: see ``left_open``.
        """
        refuse_wild(self.state.v, self.infinity)
        self._order, self.sweeping = (order[::-1] if backward else order), False
        epsilon = self.price.type(epsilon)
        n_virtual = self.problem.n_virtual_rows
        if not self.problem.is_square:
            status = self._drive(run_phase, order, backward, epsilon, n_virtual)
        else:
            # An abandoned search has lost its front: it starts again.
            if self.state.at.stage != NEXT_ROW:
                self.unsettle()
            self._open_front()
            try:
                status = self._drive(run_square, order, backward, epsilon)
            finally:
                self._close_front()
        st = self.state
        if status == S.INFEASIBLE:
            self.unsettle()
            return False
        self.left_open = status == S.YIELD
        if self.left_open:
            self.unsettle()
            return True
        cost = cheap_total(self.problem, self.rows, st.column_of_row, self.monitor.tick)
        self.known.see_phase(st.column_of_row, cost)
        self.known.tell(self.monitor)
        return True

    def _open_front(self) -> None:
        st = self.state
        front = S.front(st.settled_price, st.settled_dist, self.contention.width, self.price)
        self.state = st._replace(**front)
        clear_front(self.state, self.infinity)

    def _close_front(self) -> None:
        self.pairs_skipped += int(self.state.fronts["skipped"].sum()) * S.LANES
        self.state = self.state._replace(**S.no_front(self.price))

    def matching(self) -> Array:
        """Return a copy of the column of each row, intp; FREE if it has none."""
        if self.sweeping:
            return np.full(self.problem.shape[0], S.FREE, np.intp)
        # Places in the group of virtual columns count as unassigned.
        return np.maximum(self.state.column_of_row, S.FREE).astype(np.intp)

    def release(self) -> None:
        """Free the workspace after the search. Prices and counts stay."""
        self.state = S.released(self.state)
        self._order = np.empty(0, S.ID)
        self.reader.release()

    def renew(self) -> None:
        """Allocate a new workspace for another search, prices 0; counts stay."""
        n, m = self.problem.shape
        at = self.state.at
        self.state = S.allocate(n, m, self.price, self.contention.width, self.problem.n_virtual_columns)
        self.state = self.state._replace(at=at)

    def prices(self) -> Array:
        """Return a copy of v, with the prices of columns settled by an unfinished search restored."""
        st = self.state
        v = st.v.copy()
        # In square problems they never change during a search.
        if st.at.stage != NEXT_ROW and not self.problem.is_square:
            n_settled = int(st.at.n_settled)
            v[st.settled[:n_settled]] = st.settled_price[:n_settled]
            v[v == self.terms.blocked] = st.at.cap
        return v

    def unsettle(self) -> None:
        """Undo an unfinished search."""
        self.state.v[:] = self.prices()
        self.state.at.stage = NEXT_ROW

    def tree(self) -> Array:
        """Return the rows of the last, failed search: together they can use too few columns."""
        st = self.state
        settled = st.settled[: st.at.n_settled]
        members = st.group[st.group >= 0] if st.at.group_settled else st.group[:0]
        rows = np.concatenate([st.row_of_column[settled], members, [st.at.root]])
        return np.unique(rows[rows >= 0]).astype(np.intp)

    @property
    def rows_evaluated(self) -> int:
        """Rows produced by the source; a matrix in place counts as produced once."""
        if self.rows.policy == "in place":
            return self.problem.shape[0]
        return self.reader.rows_read + int(self.state.at.rows_filled)

    @property
    def rows_scanned(self) -> int:
        return int(self.state.at.rows_scanned)

    # -- running kernels ------------------------------------------------------------

    def _drive(self, kernel: Callable[..., int], *args: Any) -> int:
        at = self.state.at
        at.wanted = -1
        while True:
            self._fit_crowd()
            started, filled = time.perf_counter(), int(at.rows_filled)
            used = min(self._budget, _UNSURE_PAIRS) if self.contention.unsure else self._budget
            if self.most_scans is not None:
                # Exactly up to the limit, whatever the slice length.
                ahead = max(1, self.most_scans - int(at.rows_scanned))
                used = min(used, ahead * max(1, self.terms.n_columns))
            width = self.state.bounds.size - 1
            waited = self.team.waits(width)
            status = self.team.run_some(width, kernel, self.state, self.rows.table, self.terms, *args, used)
            seconds = max(time.perf_counter() - started, 1e-6)
            if width == self.contention.width:
                now = self.team.waits(width)
                self.contention.judge([b - a for a, b in zip(waited, now, strict=False)], seconds)
            if status == S.NEED_ROW:
                self.reader.fetch(int(at.wanted), self.state, self._order, sweeping=self.sweeping)
            elif status == S.INVALID:
                self.reader.complain(int(at.wanted))
            elif status == S.CHANGED:
                raise changed(f"noticed at row {at.wanted}")
            elif status == S.YIELD:
                if self.most_scans is not None and int(at.rows_scanned) >= self.most_scans:
                    return status
                if not self.state.barrier[LEAVE] or at.stage != NEXT_ROW:
                    ratio = _SLICE_SECONDS / seconds
                    self._budget = max(1, int(used * min(4.0, max(0.05, ratio))))
                    self._limit_slice(seconds, int(at.rows_filled) - filled, used)
            else:
                return status
            self._report()
            self.monitor.tick()

    def _fit_crowd(self) -> None:
        """Use as many threads as ``contention`` advises, once no search is in progress.

        Changes the slabs' bounds and the threads' own data, and nothing else.
        """
        st, width = self.state, self.contention.width
        searching = not self.sweeping and st.at.stage != NEXT_ROW
        other = width != st.bounds.size - 1
        st.barrier[LEAVE] = other and searching
        if not other or searching:
            return
        if width < st.bounds.size - 1:
            # The wider team did more per slice.
            share = width / (st.bounds.size - 1)
            self._budget = max(1, int(self._budget * share))
            self.reader.seconds_per_row /= share
        in_front = st.fronts.size > 0
        if in_front:
            self._close_front()
        self.state = self.state._replace(**S.shares(st.v.size, width, self.price))
        if in_front:
            self._open_front()

    def _limit_slice(self, seconds: float, n_filled: int, used: int) -> None:
        """Keep a slice short even if every row is missing from the cache and slow to compute.

        The budget counts scanned pairs. After a stretch of rows found in the cache it may have grown
        to an amount that takes minutes to compute.
        """
        if not self._fill or not n_filled:
            return
        m = max(1, self.terms.n_columns)
        if 2 * n_filled * m >= used:
            self.reader.took(seconds, n_filled)
        slowest = self.reader.seconds_per_row
        if self.rows.n_slots < self.problem.shape[0] and slowest:
            rows = _LONGEST_SLICE_SECONDS / slowest
            self._budget = max(1, min(self._budget, int(rows * m)))

    def _report(self) -> None:
        progress, at = self.monitor.progress, self.state.at
        progress.assigned = 0 if self.sweeping else int(at.position) + self.n_kept
        self.known.tell(self.monitor)
        self._count(self.rows_scanned, self.rows_evaluated)
        hits, misses = self.rows.hits, self.rows.misses
        progress.cache_hit = hits / max(1, hits + misses)


def kept(engine: Engine) -> dict[str, Any]:
    """Return copies of the data needed to continue a phase, between two of its slices.

    An unfinished search is undone. Matching and counts change only at the end of a search, so the
    restored engine repeats it, bit for bit. The rows themselves are not saved.
    """
    st = engine.state
    at = copy(st.at)
    at.stage = NEXT_ROW
    return {
        **numbers(at, S.Standing),
        "v": engine.prices(),
        "reference": st.reference.copy(),
        "column_of_row": st.column_of_row.copy(),
        "group": st.group.copy(),
        "group_reach": np.array(engine.group_reach, engine.price),
        "rows_read": engine.reader.rows_read,
        "pairs_skipped": engine.pairs_skipped + int(st.fronts["skipped"].sum()) * S.LANES,
        "n_kept": engine.n_kept,
    }


def continued(engine: Engine, snapshot: dict[str, Any]) -> None:
    """Restore a snapshot of a solve of the same problem, with any threads and cache."""
    st = engine.state
    arrays = ("v", "reference", "column_of_row", "group")
    fixed = {name: getattr(st, name) for name in arrays} | numbers(st.at, S.Standing)
    for name, here in fixed.items():
        saved = snapshot[name]
        if saved.shape != here.shape or saved.dtype != here.dtype:
            raise CheckpointError(
                f"the checkpoint holds {name} as {saved.dtype} of shape {saved.shape},"
                f" this solve has {here.dtype} of shape {here.shape}"
            )
        here[:] = saved
    set_numbers(st.at, S.Standing, snapshot)
    st.row_of_column[:] = S.FREE
    rows = np.flatnonzero(st.column_of_row >= 0)
    st.row_of_column[st.column_of_row[rows]] = rows
    engine.group_reach = engine.price.type(snapshot["group_reach"][()])
    engine.reader.rows_read = int(snapshot["rows_read"])
    # Missing in checkpoints of older versions, which read all of every row.
    engine.pairs_skipped = int(snapshot.get("pairs_skipped", 0))
    engine.n_kept = int(snapshot["n_kept"])
