"""The engine for compressed rows: owns lists and search workspace, evaluates, searches.

Sources that kernels can read by themselves (a matrix in place, compiled rows) are
evaluated inside the search when an event asks for it. From any other source rows come
through Python: the search sets roots aside whose searches need a fresh row, and all rows
asked for are then read together, in order.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap.engine import list_search as F
from bigsap.engine import lists as L
from bigsap.engine import state as S
from bigsap.engine.bounds import blocks_of, fit, no_blocks, separated_columns
from bigsap.engine.fetch import Terms
from bigsap.engine.precision import INT64_LIMIT, USUAL, refuse_large
from bigsap.engine.team import Team
from bigsap.errors import ShapeError
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.sources.base import Array, Fillable, Resident, Separable, read_while

_SLICE_SECONDS = 0.1
_FIRST_SLICE_SCANS = 2000
#: Bytes of rows read from Python at a time.
_READ_BYTES = 32 << 20


class ListEngine:
    """Lists, prices and matching of one solve by compressed rows.

    k: entries a list starts with. Memory: 12 k bytes a row, and about twelve vectors.
    """

    def __init__(
        self, problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], k: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.problem, self.team, self.monitor, self.price = problem, team, monitor, price
        self.seed = seed
        n, m = problem.shape
        infinity, blocked = S.infinity(price), S.blocked_price(price)
        self.infinity, self.blocked = infinity, blocked
        source = problem.source
        matrix = source.resident() if isinstance(source, Resident) else None
        fill = source.fill() if matrix is None and isinstance(source, Fillable) else None
        self._fill = fill
        self.immediate = matrix is not None or fill is not None
        self.from_fill = fill is not None
        self.slots = np.empty((1, 1), source.dtype) if matrix is None else matrix
        exact = price.kind == "i"
        # See precision.choose: 64-bit costs in float64 prices count as 32-bit ones.
        usual = not exact and problem.integer and source.dtype.itemsize == 8
        limit = USUAL if usual else INT64_LIMIT // (4 * (min(n, m) + 2))
        self.limit = limit
        self.bounded_costs = usual or exact
        self.terms = Terms(
            sign=price.type(problem.sign), infinity=infinity, blocked=blocked,
            lowest=price.type(-limit - 1) if exact or usual else -infinity,
            highest=price.type(limit) if exact or usual else infinity,
            fill_address=fill.address if fill else 0, fill_context=fill.context if fill else 0,
            n_columns=m,
        )  # fmt: skip
        self.v = np.zeros(m, price)
        self.open_price = np.zeros(m, price)
        self.column_of_row = np.full(n, S.FREE, S.ID)
        self.row_of_column = np.full(m, S.FREE, S.ID)
        self.match_cost = np.zeros(n, price)
        self.group = np.full(problem.n_virtual_columns, S.FREE, S.ID)
        self.k = k = max(1, min(k, m))
        pool = n * k + max(4096, n * k // 8)
        self.lists = L.Lists(
            ids=np.zeros(pool, np.int32), costs=np.zeros(pool, price),
            start=np.arange(n, dtype=np.int64) * k, width=np.full(n, k, np.int32),
            size=np.zeros(n, np.int32), theta=np.full(n, -infinity, price),
            reference=np.zeros(n, price),
            counters=np.zeros(L.COUNTER_WORDS, np.int64),
        )  # fmt: skip
        self.lists.counters[L.POOL_USED] = n * k
        capacity = 2 * (m + n) + 16
        self.frontier = F.Frontier(
            dist=np.full(m, infinity, price), pred=np.zeros(m, S.ID), pred_cost=np.zeros(m, price),
            heap_key=np.zeros(capacity, price), heap_item=np.zeros(capacity, S.ID),
            touched=np.zeros(m, S.ID), settled=np.zeros(m, S.ID), settled_dist=np.zeros(m, price),
            h=np.zeros(n, price), reached=np.zeros(2 * k, price), requests=np.zeros(n, S.ID),
            requested=np.zeros(n, np.uint8), abandoned=np.zeros(n, S.ID),
            words=np.zeros(F.WORD_COUNT, np.int64), values=np.zeros(F.VALUE_COUNT, price),
        )  # fmt: skip
        self.blocks, self._y = no_blocks(), np.empty((0, m))
        if self.from_fill and not problem.maximize:
            self.blocks = blocks_of(source)
            if self.blocks.offset.size:
                assert isinstance(source, Separable)
                self._y = separated_columns(source)
        self._make_scratch(2 * k)
        self._budget = _FIRST_SLICE_SCANS
        self._batch = 2 * team.n_threads
        self.seconds_per_row = 0.0

    def _make_scratch(self, k: int) -> None:
        t, room = self.team.n_threads, L.room_for(k)
        price = self.price
        self.scratches = L.Scratch(
            near=np.empty((t, L.PANEL), self.problem.source.dtype),
            tau=np.empty((t, L.PANEL), price), free=np.empty((t, S.LANES), price),
            group_low=np.empty((t, L.PANEL // 16), price),
            best_tau=np.empty((t, room), price), best_cost=np.empty((t, room), price),
            best_id=np.empty((t, room), np.int32),
            bound=np.empty((t, self.blocks.offset.size)),
            opened=np.empty((t, self.blocks.offset.size), S.ID),
        )  # fmt: skip
        self.scratch = L.Scratch(*(a[0] for a in self.scratches))

    def _grow(self) -> None:
        """More room in the pool, and for lists twice as wide."""
        lists, f = self.lists, self.frontier
        width = 2 * int(lists.width.max())
        pool = max(lists.ids.size * 5 // 4, int(lists.counters[L.POOL_USED]) + 4 * width)
        ids, costs = np.zeros(pool, np.int32), np.zeros(pool, self.price)
        used = int(lists.counters[L.POOL_USED])
        ids[:used], costs[:used] = lists.ids[:used], lists.costs[:used]
        self.lists = lists._replace(ids=ids, costs=costs)
        if f.reached.size < width:
            self.frontier = f._replace(reached=np.zeros(width, self.price))
            self._make_scratch(width)

    def fit_bounds(self) -> None:
        """Fit the blocks' price majorants anew: they loosen as prices fall."""
        if self.blocks.offset.size:
            fit(self.blocks, self._y, self.v)

    # -- evaluation -----------------------------------------------------------------

    def evaluate(self, rows: Array) -> None:
        """Evaluate many rows under the present prices, with the whole team."""
        if not rows.size:
            return
        rows = np.sort(rows).astype(S.ID)
        m = self.terms.n_columns
        most = max(1, _READ_BYTES // max(1, m * self.slots.itemsize))
        start = 0
        while start < rows.size:
            # As many rows as were done in a slice's time before, at most twice as many
            # as last time: a source may be slower than anything seen so far.
            part = rows[start : start + (self._batch if self.immediate else min(self._batch, most))]
            clock = time.perf_counter()
            self._evaluate_batch(part)
            seconds = max(time.perf_counter() - clock, 1e-6)
            start += part.size
            fitting = int(part.size * _SLICE_SECONDS / seconds)
            self._batch = max(1, min(2 * self._batch, fitting))
            self.seconds_per_row = seconds / part.size
            self._tick()

    def _evaluate_batch(self, rows: Array) -> None:
        m = self.terms.n_columns
        slots = self.slots
        if not self.immediate:
            slots = np.empty((rows.size, m), self.slots.dtype)
            read_while(self.problem.source, self.monitor.tick, rows, slice(0, m), slots)
            limit = self.limit if self.bounded_costs else None
            for row, costs in zip(rows.tolist(), slots, strict=True):
                self.problem.check_row(row, costs)
                self.check_size(row, costs, limit)
        counters = self.lists.counters
        counters[L.NEXT_ITEM] = 0
        counters[L.BAD_ROW] = -1
        self.team.run(
            L.run_evaluations, rows, not self.immediate, slots, self.from_fill, self.terms,
            self.v, self.open_price, self.blocks, self.seed, self.scratches, self.lists,
        )  # fmt: skip
        counters[L.EVALUATIONS] += rows.size
        if counters[L.BAD_ROW] >= 0:
            self._complain(int(counters[L.BAD_ROW]))

    def check_size(self, row: int, costs: Array, limit: int | None) -> None:
        """Raise for an integer cost that exact arithmetic cannot take."""
        if limit is None or not costs.size:
            return
        refuse_large(self.problem, row, costs, limit, usual=self.price.kind == "f")

    def _complain(self, row: int) -> None:
        costs = np.empty((1, self.terms.n_columns), self.problem.source.dtype)
        self.problem.source.read(np.array([row]), slice(0, self.terms.n_columns), costs)
        self.problem.check_row(row, costs[0])
        self.check_size(row, costs[0], self.limit if self.bounded_costs else None)
        raise ShapeError(f"row {row} had an invalid cost that it no longer has when read again")

    def list_minima(self) -> Array:
        """P (n_rows,) smallest ``c - v`` in each list, infinity for an empty one."""
        lists = self.lists
        return lists.reference + self._relative_minima()

    def _relative_minima(self) -> Array:
        lists = self.lists
        return L.list_minima(lists.ids, lists.costs, lists.start, lists.size, self.v, self.infinity)

    def stale_rows(self) -> Array:
        """Rows whose threshold no longer lies above the best of their list."""
        return np.flatnonzero(self.lists.theta <= self._relative_minima())

    def greedy_gap(self, order: Array) -> float:
        """How much a greedy matching on the lists costs beyond the rows' minima."""
        lists = self.lists
        taken = np.zeros(self.terms.n_columns, np.uint8)
        gap, _ = L.greedy(
            lists.ids, lists.costs, lists.start, lists.size, lists.theta, self.v, order, taken,
            self.infinity,
        )  # fmt: skip
        return float(gap)

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
            reach = np.ceil(low[-1] + 4 * (low[-1] - low[0]) + 4 * abs(width) + 1)
            self.group_reach = self.price.type(
                min(reach, 1e300, float(self.limit)) if self.problem.integer else min(reach, 1e300)
            )

    # -- search ---------------------------------------------------------------------

    def begin_phase(self) -> None:
        """Empty the matching; every column is free."""
        self.column_of_row[:] = S.FREE
        self.row_of_column[:] = S.FREE
        self.group[:] = S.FREE
        self.open_price[:] = self.v
        words, values = self.frontier.words, self.frontier.values
        words[F.GROUP_SIZE] = 0
        words[F.N_DROPS] = 0
        values[F.DROPS] = 0
        if self.group.size:
            spread = self.v.max() - self.v.min() if self.v.size else 0
            values[F.GROUP_PRICE] = self.v.min() - spread - self.group_reach

    #: See ``Engine.group_reach``.
    group_reach: Any = 0

    def phase(
        self, order: Array, *, backward: bool, epsilon: float, postpone: float, cut: int
    ) -> bool:
        """Match all rows of ``order``; False when one of them cannot be matched."""
        if backward:
            order = order[::-1].copy()
        # Majorants are fitted anew after fixed numbers of searches, never by the clock:
        # the lists must not depend on the machine's speed.
        step = max(256, order.size // 16) if self.blocks.offset.size else max(1, order.size)
        for start in range(0, order.size, step):
            self.fit_bounds()
            if not self._match(order[start : start + step], epsilon, postpone, cut):
                return False
        return True

    def _match(self, order: Array, epsilon: float, postpone: float, cut: int) -> bool:
        while order.size:
            self.frontier.words[F.N_ABANDONED] = 0
            self.frontier.words[F.N_REQUESTS] = 0
            if not self._drive(order, False, epsilon, postpone, cut):
                return False
            f = self.frontier
            requests = f.requests[: f.words[F.N_REQUESTS]].copy()
            order = f.abandoned[: f.words[F.N_ABANDONED]].copy()
            f.requested[requests] = 0
            self._evaluate_requests(requests)
        return True

    def _evaluate_requests(self, rows: Array) -> None:
        before = self.lists.theta[rows].copy()
        self.evaluate(rows)
        stuck = rows[self.lists.theta[rows] <= before]
        if stuck.size:
            self._widen(stuck)
            self.evaluate(stuck)

    def _widen(self, rows: Array) -> None:
        """Twice the entries for rows whose threshold did not grow (ties)."""
        for row in rows.tolist():
            width = min(2 * int(self.lists.width[row]), self.terms.n_columns)
            lists = self.lists
            while (
                lists.counters[L.POOL_USED] + width > lists.ids.size
                or width > self.frontier.reached.size
            ):
                self._grow()
                lists = self.lists
            lists.start[row] = lists.counters[L.POOL_USED]
            lists.width[row] = width
            lists.counters[L.POOL_USED] += width
            lists.counters[L.DOUBLED] += 1

    def _drive(
        self, order: Array, backward: bool, epsilon: float, postpone: float, cut: int
    ) -> bool:
        kind = self.price.type
        self.frontier.words[F.POSITION] = 0
        while True:
            started = time.perf_counter()
            status = F.run_searches(
                self.v, self.open_price, self.column_of_row, self.row_of_column, self.match_cost,
                self.group, self.frontier, self.lists, self.blocks, order, backward, kind(epsilon),
                kind(postpone), self.immediate, self.slots, self.from_fill, self.terms, self.seed,
                self.scratch, cut, self._budget,
            )  # fmt: skip
            if status == F.POOL_FULL:
                self._grow()
            elif status == F.BAD_COST:
                self._complain(int(self.frontier.words[F.ROOT]))
            elif status == F.YIELD:
                ratio = _SLICE_SECONDS / max(time.perf_counter() - started, 1e-6)
                self._budget = max(10, int(self._budget * min(4.0, max(0.05, ratio))))
            else:
                return status == F.DONE
            self._tick()

    def tree(self) -> Array:
        """Rows of the last, failed search: together they may use too few columns."""
        f = self.frontier
        settled = f.settled[: f.words[F.N_SETTLED]]
        members = self.group[self.group >= 0]
        rows = np.concatenate([self.row_of_column[settled], members, [f.words[F.ROOT]]])
        return np.unique(rows[rows >= 0]).astype(np.intp)

    def _tick(self) -> None:
        progress = self.monitor.progress
        progress.assigned = int(self.frontier.words[F.POSITION])
        progress.rows_scanned = self.rows_scanned
        progress.rows_evaluated = self.rows_evaluated
        self.monitor.tick()

    @property
    def rows_scanned(self) -> int:
        return int(self.frontier.words[F.SCANS])

    @property
    def pairs_evaluated(self) -> int:
        return int(self.lists.counters[L.PAIRS])

    @property
    def rows_evaluated(self) -> int:
        return int(self.lists.counters[L.EVALUATIONS])
