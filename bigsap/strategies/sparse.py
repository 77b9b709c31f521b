"""Sparse costs: bids at falling epsilons, then shortest paths, on complete lists.

A sparse row is a list without a threshold: nothing is evaluated, and every search is exact. Square
problems take first prices from column minima and an auction at a few epsilons, each from no pairs
(Bertsekas 1988). Its prices are the start of the exact part: pairs that are tight, a reduction
without epsilon, shortest paths for the rows left. Where these take long, epsilon was too large, and
one more auction comes first. Where an auction takes long, epsilon is too small, or no complete
assignment exists; a matching of largest size decides which (``engine.sparse.cardinality``).

With more columns than rows, or rows that may stay unassigned, free columns must keep the largest
price. Then all prices begin at 0, without an auction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.core.record import numbers, set_numbers
from bigsap.engine.sparse import auction, cardinality
from bigsap.engine.sparse import pairs as P
from bigsap.engine.sparse.search import NEVER, STUCK, YIELD, search
from bigsap.errors import OverflowRiskError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies.outcome import moved, phase_record
from bigsap.strategies.sparse_pairs import extent, order_of, pairs_of, reordered
from bigsap.strategies.start.warm import Warm
from bigsap.types import Array

#: Stages: first prices, an auction, tight pairs, rounds of the reduction, shortest paths, the end.
START, BID, TIGHT, REDUCE, SEARCH, DONE = range(6)
#: The first epsilon in mean regrets, its divisor, and the number of auctions before the exact part. With
#: many rows another comes first, at a larger epsilon, since some region is contested for long; and
#: another last, since shortest paths go farther.
_FIRST, _DIVIDE, _AUCTIONS, _MANY_ROWS = 1.0, 8.0, 3, 1 << 18
#: Rounds of the reduction, and scans a row of each.
_ROUNDS, _ROUND_SCANS = 2, 4
#: Scans a row of the first auction after which it is looked at: it takes too long if more than this
#: share of the columns is free, or if it takes this many times as long. Epsilon then becomes so much
#: larger, and the limit too. Points and their nearest of another sample, 100,000 and 250,000 rows, took 272
#: and 400 scans a row with 4, where epsilon became larger needlessly, and 190 and 277 with 8.
_LOOK, _FREE_SHARE, _LONG_AUCTION = 8, 1 / 64, 6
_RAISE, _LONGER = 32.0, 4
#: Where many columns are still free then, prices have far to fall: epsilon becomes this share of the range of
#: costs, though at most so many times larger, and falls by this divisor. Points and their nearest of another
#: sample, 100,000 rows, take 193 scans a row, without it 365. A few rows that go round a ring of pairs would
#: take ten times as many as with ``_RAISE``.
_WIDE_SHARE, _WIDEST, _WIDE_DIVIDE = 1 / 32, 2.0**20, 3.0
#: Layers of paths by which the first look decides whether a complete assignment exists; four times as
#: many the next time. In layered graphs hundreds are needed, and a larger epsilon is faster.
_FIRST_LAYERS = 6
# The same when an auction looks for the first time, with few rows left: they mostly decide.
_EARLY_LAYERS = 3
#: Scans a row of shortest paths after which another auction comes first; the limit doubles each time.
_LONG_SEARCH = 8
#: Epsilons below this share of the range of costs end the auctions of real costs.
_LEAST = 2.0**-40
_SLICE_SECONDS = 0.05
#: Entries of the first slice, and the most of any: many quick slices would otherwise leave int64.
_FIRST_ENTRIES, _MOST_ENTRIES = 1 << 18, 1 << 40


@dataclass
class Course:
    """Where a solve stands: what a checkpoint adds to prices and matching.

    epsilon: of the current auction. divide: by what it falls. left: auctions still to come before the
    exact part. limit: scans at which the current stage takes too long. patience: scans a row that a
    search may take. raised: how often an auction took too long. looked: whether the current one was
    looked at. feasible: whether a complete assignment is known to exist.
    """

    stage: int = START
    epsilon: float = 0.0
    divide: float = _DIVIDE
    left: int = 1
    limit: int = 0
    patience: int = _LONG_SEARCH
    raised: int = 0
    looked: bool = False
    feasible: bool = False
    rounds: int = 0
    least: float = 0.0
    scanned: int = 0


class SparseSearch:
    """The search of a sparse problem with at most as many rows as columns, and its answer.

    phases: one record each. violator: rows that cannot all be assigned, empty unless infeasible.
    room: bytes that a copy of the entries in a better order may take; None: a share of the memory.
    """

    def __init__(
        self,
        problem: Problem,
        arithmetic: Arithmetic,
        monitor: Monitor,
        *,
        plain: bool = False,
        warm: Warm | None = None,
        enough: Callable[[SparseSearch], bool] | None = None,
        room: int | None = None,
    ) -> None:
        self._problem, self._arithmetic, self._monitor = problem, arithmetic, monitor
        self._enough = enough
        n, m = problem.shape
        gated = isinstance(problem.source, ClippedCosts)
        self._auctions = not (gated or plain) and n == m
        self.pairs, self._scale = pairs_of(problem, arithmetic.price)
        self._order = order_of(self.pairs, m, room)
        if self._order is not None:
            self.pairs = reordered(self.pairs, self._order)
        self.state = P.matching(n, m, arithmetic.price)
        self.course = Course()
        self._begun = self.state.v  # prices at the start of the phase
        self._labels: P.Labels | None = None
        self.phases: list[dict[str, Any]] = []
        self.violator: Array = np.empty(0, np.intp)
        self._budget = _FIRST_ENTRIES
        self._warm = warm if n == m and not gated else None
        self._infinite = bool(self.pairs.costs.dtype.kind == "f" and np.isinf(self.pairs.costs).any())

    @property
    def scans(self) -> int:
        """Rows scanned so far."""
        return int(self.state.at.scans)

    def prices(self) -> Array:
        """Return (n_columns,) the prices, in the unit of costs."""
        v: Array = self.state.v if self._order is None else self.state.v[self._order.place]
        if self._scale == 1.0:
            return v
        n, m = self._problem.shape
        if n == m and not self.pairs.own.size:
            v = v - (v.max() / 2 + v.min() / 2)  # leaves float64 last
        v = v / self._scale
        if not np.isfinite(v).all():
            raise OverflowRiskError("the prices leave float64: the costs are too large; scale them down")
        return v

    def column_of_row(self) -> Array:
        """Return (n_rows,) the current matching; rows in private columns take any free columns."""
        matching = self.state.column_of_row.astype(np.intp)
        if isinstance(self._problem.source, ClippedCosts):
            (left,) = np.nonzero(matching < 0)
            # From the end: the columns that a tall problem was extended by show directly that a row
            # is unassigned.
            free = np.flatnonzero(self.state.row_of_column < 0)[::-1]
            matching[left] = free[: left.size]
        matching = np.maximum(matching, S.FREE)
        if self._order is None:
            return matching
        found = np.empty_like(matching)
        found[self._order.rows] = np.where(matching >= 0, self._order.columns[matching], S.FREE)
        return found

    def complete_cost(self) -> Array | None:
        """Return (n_rows,) signed costs of the current pairs, if every row has one."""
        if (self.state.column_of_row < 0).any():
            return None
        cost: Array = self.state.match_cost + self.pairs.base
        return cost if self._scale == 1.0 else cost / self._scale

    def run(self, snapshot: dict[str, Any]) -> None:
        """Match every row, or find ``violator``. The monitor may stop it at any point."""
        self._run(snapshot)
        if self._order is not None:
            self.violator = np.sort(self._order.rows[self.violator]).astype(np.intp)

    def _run(self, snapshot: dict[str, Any]) -> None:
        if "sparse_stage" in snapshot:
            self._restore(snapshot)
        elif self._is_hopeless():
            return
        with self._monitor.saving(self._kept):
            while self.course.stage != DONE and not self.violator.size:
                _STAGES[self.course.stage](self)
        self._monitor.save_now()

    # -- stages -------------------------------------------------------------------------

    def _start(self) -> None:
        course, state = self.course, self.state
        if self._warm is not None or not self._auctions:
            if self._warm is not None:
                self._take_warm(self._warm)
            course.stage = TIGHT
            return
        if self._arithmetic.price.kind == "i" and not self._is_feasible(self._problem.shape[0]):
            return  # bids of an infeasible problem would leave the range of these prices
        auction.column_minima(self.pairs, state)
        low, high = extent(self._problem)
        spread = float(high - low) * abs(self._scale)
        regret = float(auction.mean_regret(self.pairs, state))
        self._monitor.tick()
        course.least = max(self._arithmetic.grid, _LEAST * spread)
        many = self._problem.shape[0] >= _MANY_ROWS
        course.left = _AUCTIONS + 2 * many
        self._open(_FIRST * _DIVIDE**many * regret)

    def _take_warm(self, warm: Warm) -> None:
        v = np.asarray(warm.v, np.float64) * self._scale
        if self._order is not None:
            v = v[self._order.columns]
        if self._arithmetic.grid:
            reach = 2.0 ** (53 if self._arithmetic.price.kind == "f" else 57) * self._arithmetic.grid / 4
            v = np.clip(np.floor(v / self._arithmetic.grid) * self._arithmetic.grid, -reach, reach)
        self.state.v[:] = v - v.max() if not self._arithmetic.grid else v
        low, high = extent(self._problem)
        self.course.least = max(self._arithmetic.grid, _LEAST * float(high - low) * abs(self._scale))
        self.course.epsilon = float(auction.mean_regret(self.pairs, self.state))

    def _open(self, epsilon: float) -> None:
        """Begin an auction, or the exact part if epsilon is too small for one."""
        course, grid = self.course, self._arithmetic.grid
        if grid:
            epsilon = float(np.floor(epsilon / grid) * grid)
        course.epsilon = epsilon
        if not epsilon > 0 or epsilon < max(course.least, self._finest()):
            course.stage, course.epsilon = TIGHT, 0.0
            return
        auction.unmatch(self.state)
        course.stage = BID
        course.limit = self.scans + self._long(_LOOK * _LONGER**course.raised)
        course.scanned, course.looked, self._begun = self.scans, False, self.state.v.copy()

    def _finest(self) -> float:
        """Return the least epsilon that moves every price; bids of less would go on without an end."""
        v = self.state.v
        if self._arithmetic.grid or not v.size:
            return 0.0
        return 2.0 * float(np.spacing(max(float(v.max()), -float(v.min()))))

    def _long(self, scans_a_row: int) -> int:
        return scans_a_row * max(64, self._problem.shape[0])

    def _bid(self) -> None:
        course, state, price = self.course, self.state, self._arithmetic.price
        epsilon = price.type(course.epsilon)
        self._show(course.epsilon)
        clock = time.perf_counter()
        over = False
        while not over:
            over = bool(self._slice(auction.bid, self.pairs, state, epsilon, course.limit))
            if not over and self.scans >= course.limit:
                if not self._raise():
                    return
                epsilon = price.type(course.epsilon)
        course.feasible = True
        found = time.perf_counter()
        enough = self._enough is not None and self._enough(self)
        # Not before: a proof may be stopped, and the auction is then recorded once it is continued.
        self._record(course.epsilon, clock + time.perf_counter() - found)
        if enough:
            course.stage = DONE
            return
        course.left -= 1
        if course.left > 0:
            self._open(course.epsilon / course.divide)
        else:
            course.stage = TIGHT
        self._monitor.save_phase()

    def _raise(self) -> bool:
        """Raise epsilon if the auction takes too long; return False if there is no assignment."""
        course = self.course
        free = int((self.state.row_of_column == S.FREE).sum())
        look = self._long(_LOOK * _LONGER**course.raised)
        if not course.looked and free < max(2, _FREE_SHARE * self._problem.shape[1]):
            # Few rows are left, so few layers decide; an auction would go on raising prices.
            if not course.feasible and not self._is_feasible(_EARLY_LAYERS):
                return False
            course.looked, course.limit = True, self.scans + (_LONG_AUCTION - 1) * look
            return True
        if not course.feasible and not self._is_feasible(_FIRST_LAYERS * _LONGER**course.raised):
            return False
        course.raised += 1
        course.limit = self.scans + _LONGER * look
        wide = 0.0
        if not course.looked:
            low, high = extent(self._problem)
            wide = min(_WIDE_SHARE * float(high - low) * abs(self._scale), _WIDEST * course.epsilon)
            if grid := self._arithmetic.grid:
                wide = float(np.floor(wide / grid) * grid)
        if wide > _RAISE * course.epsilon:
            # The epsilon that was too small is the last: smaller ones, planned before, take longer.
            left = course.left if course.divide == _WIDE_DIVIDE else 1
            course.divide = _WIDE_DIVIDE
            course.left = left + math.ceil(math.log(wide / course.epsilon, course.divide))
            course.epsilon = wide
        else:
            course.epsilon *= _RAISE
            course.left = max(course.left, _AUCTIONS)
        course.looked = False
        return True

    def _tight(self) -> None:
        auction.take_tight(self.pairs, self.state)
        self.course.stage, self.course.rounds = REDUCE, 0
        self.course.scanned, self._begun = self.scans, self.state.v.copy()
        self.course.limit = self.scans + self._long(_ROUND_SCANS)
        self._show(0.0)

    def _reduce(self) -> None:
        course = self.course
        while not self._slice(auction.reduce, self.pairs, self.state, course.limit, then=self._end_round):
            pass

    def _end_round(self, over: bool) -> None:
        course = self.course
        if not over:
            return
        course.rounds += 1
        course.limit = self.scans + self._long(_ROUND_SCANS)
        if course.rounds == _ROUNDS:
            course.stage = SEARCH
            course.limit = self.scans + self._long(course.patience)

    def _search(self) -> None:
        course = self.course
        price = self._arithmetic.price
        if self._labels is None:
            self._labels = P.labels(self._problem.shape[1], price)
        blocked = S.blocked_price(price)
        clock = time.perf_counter()
        most = course.limit if self._auctions and course.epsilon > 0 else NEVER
        while True:
            done = self._slice(
                search, self.pairs, self.state, self._labels, blocked, most, then=self._note_stuck
            )
            if done != YIELD:
                break
            if self.scans >= most:
                self._clear()
                course.patience *= 2
                self._open(course.epsilon / _DIVIDE)
                return
        if done == STUCK:
            return
        course.feasible, course.stage = True, DONE
        self._record(0.0, clock)

    def _note_stuck(self, done: int) -> None:
        """Set ``violator`` where a row has no path."""
        if done != STUCK:
            return
        assert self._labels is not None
        at = self.state.at
        settled = self._labels.settled[: at.n_settled]
        root = self.state.queue[at.position]
        self.violator = np.sort(np.append(self.state.row_of_column[settled], root)).astype(np.intp)

    def _clear(self) -> None:
        """Abandon the search in progress."""
        assert self._labels is not None
        self._labels.dist[:] = self.pairs.infinity
        self.state.at.underway = 0

    # -- whether there is an answer -----------------------------------------------------

    def _is_hopeless(self) -> bool:
        """Find rows without pairs; or, where a column without a pair may be needed, rows too many."""
        if self.pairs.own.size:
            least = np.isfinite(self.pairs.own.astype(np.float64))
            alone = np.flatnonzero((np.diff(self.pairs.start) == 0) & ~least)
        else:
            alone = np.flatnonzero(np.diff(self.pairs.start) == 0)
        if alone.size:
            self.violator = alone
            return True
        n, m = self._problem.shape
        if n < m or self.pairs.own.size:
            return False
        used = np.zeros(m, bool)
        used[self.pairs.ids] = True
        return not used.all() and not self._is_feasible(n)

    def _is_feasible(self, most: int) -> bool:
        """Return False and set ``violator`` if no complete assignment exists.

        ``course.feasible`` says whether one is known to exist: not if ``most`` layers do not decide.
        """
        n = self._problem.shape[0]
        column_of_row, row_of_column = self.state.column_of_row.copy(), self.state.row_of_column.copy()
        depth, queue = np.empty(n, np.int32), np.empty(n, S.ID)
        place, stack = np.empty(n, np.int64), np.empty(n + 1, S.ID)
        pairs = column_of_row, row_of_column
        for _ in range(most):
            if (column_of_row >= 0).all():
                self.course.feasible = True
                break
            reached = cardinality.layers(self.pairs, self._infinite, *pairs, depth, queue)
            self._monitor.tick()
            if reached >= 0:
                self.violator = self._smallest(column_of_row, row_of_column, queue[:reached])
                return False
            cardinality.augment_layers(self.pairs, self._infinite, *pairs, depth, place, stack)
            self._monitor.tick()
        return True

    def _smallest(self, column_of_row: Array, row_of_column: Array, reached: Array) -> Array:
        """Return the rows reached from one unmatched row, which suffice."""
        others = column_of_row.copy()
        free = reached[column_of_row[reached] == S.FREE]
        # Rows that are not roots look matched: to a column of their own that no row lists.
        others[free[1:]] = P.PRIVATE
        n = column_of_row.size
        depth, queue = np.empty(n, np.int32), np.empty(n, S.ID)
        count = cardinality.layers(self.pairs, self._infinite, others, row_of_column, depth, queue)
        return np.sort(queue[:count]).astype(np.intp)

    # -- slices, reports, checkpoints ---------------------------------------------------

    def _slice(self, run: Any, *given: Any, then: Callable[[Any], None] | None = None) -> Any:
        """Run a kernel for about ``_SLICE_SECONDS``, then report and look at the limits.

        then: given what it returned, first: a stop, or a checkpoint, finds state and course of one moment.
        """
        monitor, state, course = self._monitor, self.state, self.course
        clock = time.perf_counter()
        done = run(*given, self._budget)
        if then is not None:
            then(done)
        seconds = max(time.perf_counter() - clock, 1e-6)
        most = min(4 * self._budget, _MOST_ENTRIES)
        self._budget = max(1, min(most, int(self._budget * _SLICE_SECONDS / seconds)))
        n, at = self._problem.shape[0], state.at
        waiting = at.n_queue - (0 if course.stage == BID else at.position)
        monitor.progress.assigned = int(n - waiting)
        monitor.reached(self.scans, 0)
        monitor.tick()
        return done

    def _show(self, epsilon: float) -> None:
        progress = self._monitor.progress
        progress.stage, progress.phase = "search", len(self.phases) + 1
        progress.epsilon = epsilon / abs(self._scale)
        self._monitor.tick(report=True)

    def _record(self, epsilon: float, clock: float) -> None:
        self.phases.append(
            phase_record(
                epsilon / abs(self._scale),
                time.perf_counter() - clock,
                rows_scanned=self.scans - self.course.scanned,
                prices_moved=moved(self._begun, self.state.v),
            )
        )

    def _kept(self) -> dict[str, Any]:
        """Return the state; a search in progress, or one without a path, is made again from its start.

        Rows and columns have the user's numbers: a solve elsewhere may continue in another order.
        """
        state = self.state
        found = {name: getattr(state, name) for name in ("v", "column_of_row", "match_cost", "queue", "late")}
        if self._order is not None:
            rows, columns = self._order.rows, self._order.columns
            found["v"] = state.v[self._order.place]
            found["column_of_row"], found["match_cost"] = np.empty_like(rows), np.empty_like(state.match_cost)
            found["column_of_row"][rows] = _renumbered(state.column_of_row, columns)
            found["match_cost"][rows] = state.match_cost
            found["queue"], found["late"] = rows[state.queue], rows[state.late]
        row, scans = state.at.row, state.at.scans
        if self._order is not None and row >= 0:
            state.at.row = self._order.rows[row]
        if state.at.underway != 0 or (self.course.stage == SEARCH and self.violator.size):
            state.at.scans = state.at.begun
        facts = numbers(state.at, P.Standing)
        state.at.row, state.at.scans = row, scans
        return {
            "sparse_stage": self.course.stage,
            "course": vars(self.course),
            "phases": self.phases,
            **found,
            **facts,
        }

    def _restore(self, saved: dict[str, Any]) -> None:
        state = self.state
        self.course = Course(**saved["course"])
        self.phases = list(saved["phases"])
        set_numbers(state.at, P.Standing, saved)
        if self._order is None:
            for name in ("v", "column_of_row", "match_cost", "queue", "late"):
                getattr(state, name)[:] = saved[name]
        else:
            rows, columns, place = self._order.rows, self._order.columns, np.empty_like(self._order.rows)
            place[rows] = np.arange(rows.size)
            state.v[:] = saved["v"][columns]
            state.column_of_row[:] = _renumbered(saved["column_of_row"][rows], self._order.place)
            state.match_cost[:] = saved["match_cost"][rows]
            state.queue[:], state.late[:] = place[saved["queue"]], place[saved["late"]]
            if state.at.row >= 0:
                state.at.row = place[state.at.row]
        matched = np.flatnonzero(state.column_of_row >= 0)
        state.row_of_column[state.column_of_row[matched]] = matched
        state.at.underway = 0
        self._begun = state.v.copy()


_STAGES: dict[int, Callable[[SparseSearch], None]] = {
    START: SparseSearch._start,
    BID: SparseSearch._bid,
    TIGHT: SparseSearch._tight,
    REDUCE: SparseSearch._reduce,
    SEARCH: SparseSearch._search,
}


def _renumbered(ids: Array, numbers: Array) -> Array:
    """Return ``numbers[ids]``, with negative ids as they are."""
    return np.where(ids >= 0, numbers[ids], ids)
