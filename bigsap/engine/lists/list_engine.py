"""Engine for compressed rows: matching, phases and searches over the lists.

If kernels can read the rows, a search evaluates those it needs itself. If rows come through
Python, roots whose searches need a fresh row are set aside, and all requested rows are then
read together, in order.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.blas import one_thread
from bigsap.engine.core import state as S
from bigsap.engine.core.changed import refuse_wild
from bigsap.engine.core.team import Team
from bigsap.engine.core.virtual import hold_at_cap
from bigsap.engine.lists import workspace as F
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.engine.lists.on_workers import SentPrices, evaluate_afar, put_off
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.engine.lists.search import Rules, run_searches
from bigsap.engine.lists.store import ListStore, Wave
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.tightness import UNIT
from bigsap.sources.base import Crewed
from bigsap.sources.offloadable import Offloading
from bigsap.types import Array

_SLICE_SECONDS = 0.1
#: Of the first slice of searches: entries processed and pairs evaluated. A pair may be expensive.
_FIRST_ENTRIES, _FIRST_PAIRS = 1 << 18, 1 << 14
_LEAST_WORK, _MOST_WORK = 1 << 10, 1 << 40
#: Additional seconds for a search in progress when the solve is stopped.
_PATIENCE = 2 * _SLICE_SECONDS
#: Limit of rows read through Python at a time: more rows mean fewer reads, but each search that
#: waits for one starts again after it.
MOST_REQUESTS = 32
#: Majorants are fitted again after evaluations in searches of this share of the rows.
_FIT_SHARE = 16
_FIT_LEAST = 512
_NEVER = int(np.iinfo(np.int64).max)
#: Scans for which a waiting search continues, to request rows it may need next.
_GATHER = 32


class ListEngine(ListStore):
    """Lists, prices and matching of one solve by compressed rows.

    Memory: that of the lists, and about sixteen vectors.
    """

    def __init__(
        self, problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], k: int, seed: int
    ) -> None:
        super().__init__(problem, team, monitor, price, k, seed)
        n, m = problem.shape
        self.column_of_row = np.full(n, S.FREE, S.ID)
        self.row_of_column = np.full(m, S.FREE, S.ID)
        self.match_cost = np.zeros(n, price)
        self.group = np.full(problem.n_virtual_columns, S.FREE, S.ID)
        self.n_virtual = problem.n_virtual_rows
        self._count = monitor.counter()
        self.frontier = F.frontier(n, m, self.k, price)
        self.slice_seconds = _SLICE_SECONDS
        self._most_entries, self._most_pairs = _FIRST_ENTRIES, _FIRST_PAIRS
        #: Exceptions that end the solve, raised within a search; to be raised again at the next tick.
        self._left: list[BaseException] = []
        #: See ``Rules``: useful if rows are not evaluated one by one.
        self.gather = 0 if self.immediate else _GATHER
        #: The roots of this round of searches, empty before the first; and the number of rows of the
        #: phase.
        self.roots = np.empty(0, S.ID)
        self._visited = 0

    #: Scans a row after which stale rows are evaluated within phases, 0: never; and the number of scans at
    #: which that is due.
    refresh_scans = 0.0
    _refresh_at = _NEVER
    #: Rows that are evaluated together by a matrix product within a search: one alone takes as long as
    #: several. And how many that are not asked for are allowed for each that a search then came to: of
    #: points in 768 dimensions hardly one is of use, and two evaluations of three were useless; in 50 nearly
    #: all are.
    together, guesses = 16, 3
    #: Whether a row costs far less time in a wave than alone, when a search asks for it.
    waves_are_cheap = False
    #: The prices that workers have, if these evaluate rows.
    _sent: SentPrices | None = None
    #: Workers for rows that kernels here can also read.
    offload: Offloading | None = None

    def release(self) -> None:
        """Free what only evaluations need, at the end of the search. Lists, prices and counts stay."""

    def go_through(self, wave: Wave) -> None:
        source = self.problem.source
        if self.immediate and self.offload is not None:
            self._share(wave, self.offload)
        elif self.immediate or not isinstance(source, Crewed):
            super().go_through(wave)
        else:
            self._sent = self._sent or SentPrices(source, self.blocked)
            evaluate_afar(self, wave, self._sent, self._tick)
            self._tick()

    def _share(self, wave: Wave, offload: Offloading) -> None:
        """Start here; hand over the remaining rows as soon as that pays."""
        clock = time.perf_counter()

        def pays() -> bool:
            left = wave.rows.size - wave.done[0]
            late = time.perf_counter() - clock > self.slice_seconds / 2
            seconds = left * self.seconds_per_row
            size = ENTRY_BYTES * self.k
            return late and offload.pays(left, seconds, self.team.n_threads, size)

        self.evaluate_here(wave, wave.rows.size, pays)
        if wave.done[0] == wave.rows.size:
            return
        source = offload.of(self.problem.source)
        if source is None:
            self.offload = None
            super().go_through(wave)
            return
        if self._sent is None or self._sent.source is not source:
            self._sent = SentPrices(source, self.blocked)
        rows, before = wave.rows, wave.before
        stop = put_off(self, wave)
        self.evaluate_here(wave, stop)
        evaluate_afar(self, wave, self._sent, self._tick)
        wave.rows, wave.before = rows, before
        self._tick()

    #: Pairs evaluated at which ``ListsExhausted`` is raised; None for no limit.
    most_pairs: int | None = None

    #: Whether the limit applies only if evaluations have cost more than scans of whole rows would have:
    #: an evaluation takes about as long as ``policy.EVALUATION_SCANS`` scans of the whole row, and a
    #: search would scan as many whole rows as it scans lists.
    weighed = False

    def judge_pairs(self) -> None:
        if self.most_pairs is None or self.pairs_evaluated <= self.most_pairs:
            return
        n, m = self.problem.shape
        weight, patience = policy.EVALUATION_SCANS, policy.EXHAUSTED_ANYWAY
        if n != m:
            weight, patience = policy.EVALUATION_SCANS_RECTANGULAR, policy.EXHAUSTED_ANYWAY_RECTANGULAR
        dear = weight * self.pairs_evaluated > self.rows_scanned * m
        if dear or not self.weighed or self.pairs_evaluated > patience * self.most_pairs:
            raise ListsExhausted

    def make_room(self, pool: int, longest: int) -> None:
        super().make_room(pool, longest)
        self.make_reach(self.longest)

    def make_reach(self, n_entries: int) -> None:
        if n_entries > self.frontier.reached.size:
            self.frontier = self.frontier._replace(reached=np.zeros(n_entries, self.price))

    def set_reach(self) -> None:
        """Set how far below the real columns the virtual ones (n > m) start; see ``Engine``."""
        if not self.group.size:
            return
        m = self.terms.n_columns
        low = np.sort(self.list_minima())[: m + 1].astype(np.float64)
        low = low[low < self.infinity]
        if low.size:
            theta = self.lists.theta[self.lists.theta < self.infinity]
            width = float(np.median(theta)) if theta.size else 0.0
            reach = low[-1] + 4 * (low[-1] - low[0]) + 4 * abs(width)
            if self.problem.integer:
                reach = min(np.ceil(reach + 1), float(self.limit))
            self.group_reach = self.price.type(min(reach, 1e300))

    def row_duals(self) -> Array:
        """Return P (n_rows,) u of each row under the present prices and matching.

        At the end of a phase with epsilon 0 it is each row's smallest ``c - v``, over virtual columns
        too. A list alone may lack it: one made during a search excludes the columns settled by then,
        usually including the row's own column, whose ``c - v`` is the smallest.
        """
        u = self.list_minima()
        column, group_price = self.column_of_row, self.frontier.at.group_price
        v = np.where(column >= 0, self.v[np.maximum(column, 0)], group_price)
        matched = self.lists.reference + (self.match_cost - v)
        return np.minimum(u, matched, out=u, where=column != S.FREE)

    def begin_phase(self, below: float | None = None) -> None:
        """Clear the matching; every column is free.

        below: how far below their balanced price the virtual columns (n > m) start. At that price they
        are as good as real ones for the rows that must have them. None: see ``open_group``.
        """
        self.column_of_row[:] = S.FREE
        self.row_of_column[:] = S.FREE
        at = self.frontier.at
        if self.n_virtual:
            self.lower_to_cap(self.v)
            self.hold_at_cap()
        self.open_price[:] = self.v
        at.n_drops = 0
        at.drops = 0
        at.position = at.n_abandoned = at.n_requests = 0
        self.roots, self._visited = np.empty(0, S.ID), 0
        self.open_group(None if below is None else self.parting_price(below))

    def lower_to_cap(self, free: Array) -> None:
        """Cap all prices at those of the virtual rows' columns, the most expensive free ones.

        free: prices of the columns that may be free. Only lowers prices.
        """
        place = free.size - self.n_virtual
        np.minimum(self.v, np.partition(free, place)[place], out=self.v)

    def hold_at_cap(self) -> None:
        """Start a phase: the virtual rows hold free columns at the largest price.

        Matched columns at that price are freed if they are needed.
        """
        at = self.frontier.at
        at.cap, at.surplus = hold_at_cap(self.v, self.column_of_row, self.row_of_column, self.n_virtual)

    def parting_price(self, below: float) -> Any:
        """Return the price that separates rows for virtual columns from the others, minus ``below``.

        Virtual columns have room for the former. None if the lists do not show that price.
        """
        place = self.v.size - 1
        if not self.group.size:
            return None
        low = np.partition(self.list_minima(), place)[place]
        return None if low >= self.infinity else -low - self.price.type(below)

    def open_group(self, price: Any = None, rows: Array | None = None) -> None:
        """Set the price of the virtual columns and the rows that hold them.

        By default no rows, and a price so low that the real columns fill up first.
        """
        self.group[:] = S.FREE
        at = self.frontier.at
        at.group_size = 0
        if not self.group.size:
            return
        if price is None:
            spread = self.v.max() - self.v.min() if self.v.size else 0
            price = self.v.min() - spread - self.group_reach
        at.group_price = price
        if rows is not None:
            self.group[: rows.size] = rows
            self.column_of_row[rows] = S.GROUPED - np.arange(rows.size)
            self.match_cost[rows] = -self.lists.reference[rows]
            at.group_size = rows.size

    #: See ``Engine.group_reach``.
    group_reach: Any = 0
    #: Rows matched before the current phase.
    n_kept = 0

    def phase(self, order: Array, *, backward: bool, epsilon: float, postpone: float) -> bool:
        """Match all rows of ``order``; return False if one of them cannot be matched.

        Continues an interrupted phase that ``begin_phase`` started.
        """
        refuse_wild(self.v, self.infinity)
        with one_thread() if self.by_products else nullcontext():
            return self._phase(order[::-1].copy() if backward else order, epsilon, postpone)

    def _phase(self, order: Array, epsilon: float, postpone: float) -> bool:
        self._visited = order.size
        at = self.frontier.at
        while True:
            if not self.roots.size:
                # Some may be matched, from before a restart.
                self.roots = order[self.column_of_row[order] == S.FREE]
                if not self.roots.size:
                    return True
                self.fit_bounds()
            if self.wave is not None:
                self.finish_wave()
            else:
                if not self._drive(epsilon, postpone):
                    return False
                # Some searches need a row that only Python can read.
                rows = self.frontier.requests[: at.n_requests]
                if at.scans >= self._refresh_at and at.position < self.roots.size:
                    rows = np.union1d(rows, self.stale_rows())
                self.evaluate(rows, widen=True)
            self.judge_pairs()
            self.torn = True
            ahead = self.roots[at.position :]
            self.roots = np.concatenate([self._abandoned(), ahead])
            self.frontier.requested[:] = 0
            at.position = at.n_abandoned = at.n_requests = 0
            self.torn = False

    def _abandoned(self) -> Array:
        return self.frontier.abandoned[: self.frontier.at.n_abandoned]

    def _drive(self, epsilon: float, postpone: float) -> bool:
        """Search from the remaining roots; return False if one cannot be matched."""
        while True:
            status = self._search(epsilon, postpone)
            if status == S.POOL_FULL:
                self._grow()
            elif status == S.INVALID:
                self.complain(int(self.frontier.at.root))
            elif status == S.REFIT:
                if self.frontier.at.scans >= self._refresh_at:
                    return True
                # By counts, never by the clock, so that any number of threads hands over here. Before any
                # checkpoint, so that a resumed solve fits at the same moments.
                self.judge_pairs()
                self.fit_bounds()
            elif status != S.YIELD:
                return status != S.INFEASIBLE
            self._tick()

    def _search(self, epsilon: float, postpone: float) -> int:
        """Run a slice of searches, and the rest of the last search in slices of its own.

        Within a search the clock is checked, but nothing is saved. After a stop within a search, the
        search gets some more time: at its end a resumed solve continues unchanged. Otherwise it is
        abandoned, and a resumed solve begins it again with the lists as they are.
        """
        self._refresh_at = self._next_refresh()
        args = self._search_arguments(epsilon, postpone)
        status, search, ends = int(S.YIELD), self.frontier.search, 0.0
        raised: BaseException | None = None
        try:
            while True:
                try:
                    status = self._slice(args)
                    if search.underway and raised is None:
                        self._count(self.rows_scanned, self.rows_evaluated)
                        self.monitor.look()
                except BaseException as error:  # noqa: BLE001 - raised again below
                    raised = error
                if not search.underway:
                    break
                if raised is not None:
                    ends = ends or time.perf_counter() + _PATIENCE
                    if time.perf_counter() >= ends:
                        self._give_up(args)
                        break
                # The same rules, so that majorants are fitted at the same moments.
                pace = {"most_entries": self._most_entries, "most_pairs": self._most_pairs}
                args = (*args[:-1], args[-1]._replace(**pace))
            if raised is None:
                return status
            if status not in (S.REFIT, S.PAUSE):
                raise raised
            self._left.append(raised)  # raised after the pending work
            return status
        finally:
            del raised  # breaks the cycle frame -> error -> traceback -> frame

    def _give_up(self, args: tuple[Any, ...]) -> None:
        """Abandon the search in progress; only lists have changed."""
        self.frontier.at.stop = 1
        run_searches(*args)
        self.frontier.at.stop = 0

    def _slice(self, args: tuple[Any, ...]) -> int:
        """Call the kernel once; set the next call's budget from the time it took."""
        before, started = self.pairs_evaluated, time.perf_counter()
        status = run_searches(*args)
        if status == S.NEED_ROW:
            self._evaluate_together()
        if status == S.YIELD:
            self._pace(time.perf_counter() - started, self.pairs_evaluated - before)
        return status

    def _evaluate_together(self) -> None:
        """Evaluate the rows that a search has asked for; its settled columns are masked for some of them."""
        at, f = self.frontier.at, self.frontier
        rows = f.requests[: at.n_requests]
        at.n_requests = 0
        masked = f.slack[rows] < self.infinity
        for some, v in ((rows[~masked], self.v), (rows[masked], f.shown)):
            if some.size and self.evaluate_by_products(some, v) >= 0:
                self.complain(int(some[0]))

    def _pace(self, seconds: float, n_pairs: int) -> None:
        """Set the budgets of the next slice, after one that has used up its own."""
        faster = min(4.0, max(0.05, self.slice_seconds / max(seconds, 1e-6)))

        def paced(budget: int) -> int:
            return int(min(max(_LEAST_WORK, budget * faster), _MOST_WORK))

        if self.frontier.search.entries >= self._most_entries:
            self._most_entries = paced(self._most_entries)
        if n_pairs >= self._most_pairs:
            self._most_pairs = paced(self._most_pairs)

    def _search_arguments(self, epsilon: float, postpone: float) -> tuple[Any, ...]:
        kind = self.price.type
        unit = kind(0 if self.problem.integer else UNIT)
        pairs = F.Pairs(
            self.v, self.open_price, self.column_of_row, self.row_of_column, self.match_cost, self.group
        )
        rules = Rules(
            kind(epsilon),
            kind(postpone),
            self.immediate,
            self.gather,
            MOST_REQUESTS,
            unit,
            self._next_fit(),
            self._refresh_at,
            self._most_entries,
            self._most_pairs,
            self.together if self.by_products else 0,
            self.guesses,
        )
        evaluator = self.evaluator(self.slots, self.scratch)
        return self.roots, pairs, self.frontier, self.lists, evaluator, rules

    def _next_fit(self) -> int:
        """Return the number of evaluations at which majorants are fitted again.

        They loosen as prices fall, most if searches are long. At multiples, so that no state is needed.
        """
        if not self.immediate or not (self.blocks.offset.size or self.most_pairs is not None):
            return _NEVER
        step = max(_FIT_LEAST, self.column_of_row.size // _FIT_SHARE)
        return int((self.lists.counts.evaluations // step + 1) * step)

    def _next_refresh(self) -> int:
        """Return the number of scans at which stale rows are evaluated next.

        At multiples, so that no state is needed: a resumed solve does it at the same scans.
        """
        if not self.refresh_scans:
            return _NEVER
        step = int(self.refresh_scans * self.column_of_row.size)
        return int((self.frontier.at.scans // step + 1) * step)

    def tree(self) -> Array:
        """Return the rows of the last, failed search: together they can use too few columns."""
        f = self.frontier
        settled = f.settled[: f.at.n_settled]
        members = self.group[self.group >= 0]
        rows = np.concatenate([self.row_of_column[settled], members, [f.at.root]])
        return np.unique(rows[rows >= 0]).astype(np.intp)

    def _tick(self) -> None:
        if self._left:
            raise self._left.pop()
        progress = self.monitor.progress
        at = self.frontier.at
        ahead = self.roots.size - at.position + at.n_abandoned
        progress.assigned = self.n_kept + self._visited - int(ahead)
        self._count(self.rows_scanned, self.rows_evaluated)
        self.monitor.tick()

    @property
    def rows_scanned(self) -> int:
        return int(self.frontier.at.scans)


def row_bounds(engine: ListEngine) -> Array | None:
    """Return P (n_rows,) lower bounds of each row's smallest ``c - v``, without a pass over the costs.

    The smallest of a row's list and its threshold are one at any time: thresholds stay valid as prices fall.
    Infinity if every column is forbidden. None before all rows were evaluated. O(entries).
    """
    lists, infinity = engine.lists, engine.infinity
    if not lists.theta.size or lists.theta.min() <= -infinity:
        return None
    low = np.minimum(engine.list_minima(), lists.reference + lists.theta)
    if low.dtype.kind == "f" and not engine.problem.integer:
        # Costs minus their row's reference were rounded, and these sums are rounded again.
        size = np.abs(low) + np.abs(lists.reference) + float(np.abs(engine.v).max(initial=0))
        low = np.subtract(low, 4 * UNIT * size, out=low, where=low < infinity)
    return low


def pair_costs(engine: ListEngine) -> Array:
    """Return P (n_rows,) signed costs of the present pairs, 0 for rows without a column.

    Correct to one rounding; exact for integers and for computed costs.
    """
    costs = engine.match_cost + engine.lists.reference
    return np.where(engine.column_of_row >= 0, costs, costs.dtype.type(0))
