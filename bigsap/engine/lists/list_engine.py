"""The engine for compressed rows: matching, phases and searches over the lists.

A search evaluates the rows it needs by itself where kernels can read them. Where rows come
through Python, roots are set aside whose searches need a fresh row, and all rows
asked for are then read together, in order.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap import policy
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
from bigsap.sources.base import Array, Crewed
from bigsap.sources.offloadable import Beside

_SLICE_SECONDS = 0.1
#: Of a slice of searches: entries gone through, and pairs evaluated, each of which may be dear.
_FIRST_ENTRIES, _FIRST_PAIRS = 1 << 18, 1 << 14
_LEAST_WORK, _MOST_WORK = 1 << 10, 1 << 40
#: So many slices more has a search in whose midst the solve is stopped.
_PATIENCE_SLICES = 2
#: Rows through Python are read this many at a time, at most: the more, the fewer readings;
#: but each search that waits for one is begun again after it.
MOST_REQUESTS = 32
#: Majorants are fitted anew after as many evaluations in searches as this share of the rows.
_FIT_SHARE = 16
_FIT_LEAST = 512
#: Scans for which a search that waits goes on, for the rows it may ask for next.
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
        #: What has ended the solve in the midst of a search, to be raised at the next tick.
        self._left: list[BaseException] = []
        #: See ``Rules``: worth while where rows are not evaluated one by one.
        self.gather = 0 if self.immediate else _GATHER
        #: The rows that this round of the phase's searches is about, empty before the first; and
        #: how many the phase visits.
        self.roots = np.empty(0, S.ID)
        self._visited = 0

    #: The prices that workers elsewhere have, where these evaluate rows.
    _sent: SentPrices | None = None
    #: Workers for rows that kernels here can read too.
    beside: Beside | None = None

    def go_through(self, wave: Wave) -> None:
        source = self.problem.source
        if self.immediate and self.beside is not None:
            self._share(wave, self.beside)
        elif self.immediate or not isinstance(source, Crewed):
            super().go_through(wave)
        else:
            self._sent = self._sent or SentPrices(source, self.blocked)
            evaluate_afar(self, wave, self._sent, self._tick)
            self._tick()

    def _share(self, wave: Wave, beside: Beside) -> None:
        """Begin here; hand over what is left as soon as that pays."""
        clock = time.perf_counter()

        def pays() -> bool:
            left = wave.rows.size - wave.done[0]
            told = time.perf_counter() - clock > self.slice_seconds / 2
            seconds = left * self.seconds_per_row
            size = ENTRY_BYTES * self.k
            return told and beside.pays(left, seconds, self.team.n_threads, size)

        self.evaluate_here(wave, wave.rows.size, pays)
        if wave.done[0] == wave.rows.size:
            return
        source = beside.of(self.problem.source)
        if source is None:
            self.beside = None
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

    #: Pairs evaluated from which on ``ListsExhausted`` is raised; None for no such limit.
    most_pairs: int | None = None

    #: Whether that is only beside scans: an evaluation takes about as long as ``policy.EVALUATION_SCANS``
    #: scans of the whole row, of which the search would take as many as of lists.
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
        """How far below the real columns the virtual ones (n > m) start; see ``Engine``."""
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
        """P (n_rows,) u of each row under the present prices and matching: at the end of a phase
        with epsilon 0 each row's smallest ``c - v``, of virtual columns too.

        A list alone may not tell it: one that was made in the midst of a search leaves out what
        that has settled, the row's own column mostly, whose ``c - v`` is the smallest.
        """
        u = self.list_minima()
        column, group_price = self.column_of_row, self.frontier.at.group_price
        v = np.where(column >= 0, self.v[np.maximum(column, 0)], group_price)
        matched = self.lists.reference + (self.match_cost - v)
        return np.minimum(u, matched, out=u, where=column != S.FREE)

    def begin_phase(self, below: float | None = None) -> None:
        """Empty the matching; every column is free.

        below: the virtual columns (n > m) begin so far below the price at which they are
        as good as real ones for the rows that must have them; None: see ``open_group``.
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
        """Virtual rows: no price above that of the columns they hold, the dearest free ones.

        free: prices of the columns that may be free. Only lowers prices.
        """
        place = free.size - self.n_virtual
        np.minimum(self.v, np.partition(free, place)[place], out=self.v)

    def hold_at_cap(self) -> None:
        """Begin a phase: the virtual rows hold free columns at the largest price. Matched
        ones there are freed as far as they need them."""
        at = self.frontier.at
        at.cap, at.surplus = hold_at_cap(self.v, self.column_of_row, self.row_of_column, self.n_virtual)

    def parting_price(self, below: float) -> Any:
        """What parts the rows that virtual columns have room for from the others, as far as
        lists tell, less ``below``; None where they do not."""
        place = self.v.size - 1
        if not self.group.size:
            return None
        low = np.partition(self.list_minima(), place)[place]
        return None if low >= self.infinity else -low - self.price.type(below)

    def open_group(self, price: Any = None, rows: Array | None = None) -> None:
        """The virtual columns, at this price and held by these rows; by default by none and
        so cheap that the real columns fill up first."""
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
    #: Rows matched before the phase at hand.
    n_kept = 0

    def phase(self, order: Array, *, backward: bool, epsilon: float, postpone: float) -> bool:
        """Match all rows of ``order``; False when one of them cannot be matched.

        Goes on where a phase was left that ``begin_phase`` began.
        """
        refuse_wild(self.v, self.infinity)
        if backward:
            order = order[::-1].copy()
        self._visited = order.size
        at = self.frontier.at
        while True:
            if not self.roots.size:
                # Some may be matched: before a restart.
                self.roots = order[self.column_of_row[order] == S.FREE]
                if not self.roots.size:
                    return True
                self.fit_bounds()
            if self.wave is not None:
                self.finish_wave()
            else:
                if not self._drive(epsilon, postpone):
                    return False
                # A row that only Python can read was missing for some searches.
                self.evaluate(self.frontier.requests[: at.n_requests], widen=True)
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
        """Search from the roots that are ahead; False when one cannot be matched."""
        while True:
            status = self._search(epsilon, postpone)
            if status == S.POOL_FULL:
                self._grow()
            elif status == S.INVALID:
                self.complain(int(self.frontier.at.root))
            elif status == S.REFIT:
                # By counts, never by the clock: any number of threads hands over here. Before any
                # checkpoint: a resumed solve fits at the same moments.
                self.judge_pairs()
                self.fit_bounds()
            elif status != S.YIELD:
                return status != S.INFEASIBLE
            self._tick()

    def _search(self, epsilon: float, postpone: float) -> int:
        """A slice of searches, and the rest of the last of them, in slices of its own: in its
        midst the clock is looked at, but nothing is saved.

        After a stop in its midst it has some slices more: at its end a resumed solve goes on as if
        nothing had been. Else it is given up.
        """
        args = self._search_arguments(epsilon, postpone)
        status, search, patience = int(S.YIELD), self.frontier.search, _PATIENCE_SLICES
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
                    if not patience:
                        self._give_up(args)
                        break
                    patience -= 1
                # The same rules, or else majorants would be fitted at other moments.
                pace = {"most_entries": self._most_entries, "most_pairs": self._most_pairs}
                args = (*args[:-1], args[-1]._replace(**pace))
            if raised is None:
                return status
            if status not in (S.REFIT, S.PAUSE):
                raise raised
            self._left.append(raised)  # to be raised once what is due has been done
            return status
        finally:
            del raised  # a frame that holds its own error waits for the collector, with all it has

    def _give_up(self, args: tuple[Any, ...]) -> None:
        """Leave the search that is under way, with nothing changed but lists."""
        self.frontier.at.stop = 1
        run_searches(*args)
        self.frontier.at.stop = 0

    def _slice(self, args: tuple[Any, ...]) -> int:
        """One call of the kernel; how much the next one does follows from what it took."""
        before, started = self.pairs_evaluated, time.perf_counter()
        status = run_searches(*args)
        if status == S.YIELD:
            self._pace(time.perf_counter() - started, self.pairs_evaluated - before)
        return status

    def _pace(self, seconds: float, n_pairs: int) -> None:
        """Budgets of the next slice, after one that has ended by its own."""
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
            self._most_entries,
            self._most_pairs,
        )
        evaluator = self.evaluator(self.slots, self.scratch)
        return self.roots, pairs, self.frontier, self.lists, evaluator, rules

    def _next_fit(self) -> int:
        """The number of evaluations at which majorants are fitted anew: they loosen as prices
        fall, most where searches are long. At multiples, so that nothing needs to be kept."""
        if not self.immediate or not (self.blocks.offset.size or self.most_pairs is not None):
            return np.iinfo(np.int64).max
        step = max(_FIT_LEAST, self.column_of_row.size // _FIT_SHARE)
        return int((self.lists.counts.evaluations // step + 1) * step)

    def tree(self) -> Array:
        """Rows of the last, failed search: together they may use too few columns."""
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
