"""All rows' lists of one problem, under one set of prices, and their evaluation.

Rows that kernels can read themselves (a matrix in place, compiled rows) are evaluated by
kernels, by the whole team or within a search. Rows of any other source come through Python,
many at a time and in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.changed import changed
from bigsap.engine.core.precision import largest_cost, refuse_large
from bigsap.engine.core.record import record
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.team import Team
from bigsap.engine.lists import layout as L
from bigsap.engine.lists.bounded_evaluation import run_evaluations
from bigsap.engine.lists.bounds import BLOCK, blocks_of, fit, no_blocks, separated_columns
from bigsap.engine.lists.evaluation import Evaluator
from bigsap.engine.lists.listed import Listed
from bigsap.engine.lists.pool import (
    COPIED,
    NO_GROWTH,
    NO_ROOM,
    UNLIMITED,
    ListsExhausted,
    first_pool,
    moved,
    pool_bytes,
    widen,
)
from bigsap.engine.lists.products import Products, useful_products
from bigsap.engine.lists.reading import costs_in
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.base import Fillable, Resident, Separable, read_while
from bigsap.types import Array

#: Bytes of rows read from Python at a time.
_READ_BYTES = 32 << 20
_NOWHERE = np.empty(0, S.ID)


@dataclass
class Wave:
    """An evaluation of many rows in progress, and the data to continue it.

    rows: ID (k,) ascending. before: P (k,) their previous thresholds, if rows whose
    threshold does not grow are to be widened and evaluated once more; else empty.
    done: the number of rows evaluated; and the number in progress.
    """

    rows: Array
    before: Array
    done: tuple[int, int] = (0, 0)


class ListStore:
    """Every row's list and threshold, under prices v that only fall.

    k: initial entries of a list. open_price: P (n_columns,) v where a column is free.
    longest: entries of a list that a search can scan. Memory: 12 k bytes a row, plus that of
    doubled lists.
    """

    #: Approximate time between polls of the clock and the user.
    slice_seconds = 0.1

    def __init__(
        self, problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], k: int, seed: int
    ) -> None:
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
        limit, usual = largest_cost(problem, price)
        self.limit = limit
        self.bounded_costs = usual or price.kind == "i"
        self.terms = Terms(
            sign=price.type(problem.sign),
            infinity=infinity,
            blocked=blocked,
            lowest=price.type(-limit - 1) if self.bounded_costs else -infinity,
            highest=price.type(limit) if self.bounded_costs else infinity,
            fill_address=fill.address if fill else 0,
            fill_context=fill.context if fill else 0,
            n_columns=m,
        )
        self.v = np.zeros(m, price)
        self.open_price = np.zeros(m, price)
        self.k = k = max(1, min(k, m))
        lists = L.Lists(
            ids=np.empty(0, np.int32),
            costs=np.empty(0, price),
            start=np.arange(n, dtype=np.int64) * k,
            width=np.full(n, k, np.int32),
            size=np.zeros(n, np.int32),
            theta=np.full(n, -infinity, price),
            reference=np.zeros(n, price),
            low=np.empty((n, 0), np.float32),
            order=np.empty(0, S.ID),
            counts=record(L.ListCounts, price),
            freed=np.zeros(L.FREED_KINDS, np.int64),
        )
        self.lists = first_pool(lists, k, None, m)
        self.longest = 2 * k
        self.blocks, self._y = no_blocks(), np.empty((0, m))
        if self.from_fill and not problem.maximize:
            self.blocks = blocks_of(source)
            if self.blocks.offset.size:
                assert isinstance(source, Separable)
                self._y = separated_columns(source)
        #: Evaluates rows by matrix products, where the source is made of these and has no bounds.
        self.products: Products | None = None
        if self.from_fill and price.kind == "f":
            self.products = useful_products(source, self.terms, seed, team)
        self._make_scratch(2 * k)
        #: Fewest rows that are evaluated at a time.
        self._least_batch = self.products.height * team.n_threads if self.products else 1
        self._batch = max(2 * team.n_threads, self._least_batch)
        self.seconds_per_row = 0.0
        self.wave: Wave | None = None
        #: Records rows evaluated through Python, if requested.
        self.listed: Listed | None = None
        #: Whether the state is half updated, and unfit for a checkpoint.
        self.torn = False

    def _make_scratch(self, k: int) -> None:
        t, room = self.team.n_threads, L.room_for(k)
        price = self.price
        whole = self.lists.order.size  # blocks from all over a row need all of it at once
        n_bounds = max(self.blocks.offset.size, self.lists.low.shape[1])
        n_blocks = max(self.blocks.n_blocks, self.lists.low.shape[1])
        self.scratches = L.Scratch(
            raw=np.empty((t, L.PANEL * self.slots.itemsize), np.uint8),
            near=np.empty((t, BLOCK), price),
            tau=np.empty((t, max(L.PANEL, whole)), price),
            free=np.empty((t, S.LANES), price),
            lanes=np.empty((t, 2 * S.LANES), price),
            group_low=np.empty((t, L.PANEL // 16), price),
            best_tau=np.empty((t, room), price),
            best_cost=np.empty((t, room), price),
            best_id=np.empty((t, room), np.int32),
            bound=np.empty((t, n_bounds)),
            block=np.empty((t, n_blocks), S.ID),
            opened=np.empty((t, n_blocks), S.ID),
        )
        self.scratch = L.Scratch(*(a[0] for a in self.scratches))

    def limit_memory(self, share: int) -> None:
        """Limit the memory of the lists in bytes; call it before anything is evaluated.

        A row whose list then cannot double is scanned as a whole by the searches that reach its
        threshold; if kernels cannot read rows, ``ListsExhausted`` is raised.
        """
        m = self.terms.n_columns
        self.lists = first_pool(self.lists, self.k, share, m)
        self.make_reach(m)

    @property
    def limited(self) -> bool:
        return bool(self.lists.counts.pool_limit < UNLIMITED)

    def affords(self, n_bytes: int) -> bool:
        """Check that this many bytes beside the lists stay within their share."""
        counts = self.lists.counts
        room = int(counts.pool_limit - counts.pool_used)
        return not self.limited or n_bytes <= L.ENTRY_BYTES * room

    @property
    def list_bytes(self) -> int:
        """Bytes that lists and minima have taken so far."""
        return pool_bytes(self.lists, self.terms.n_columns)

    def _grow(self) -> None:
        """Make room for lists twice as wide, and in the pool if it is full."""
        width = 2 * int(self.lists.width.max())
        counts = self.lists.counts
        size, used = int(counts.pool_size), int(counts.pool_used)
        if not self.limited and used + width > size:
            size = max(size * 5 // 4, used + 4 * width)
        self.make_room(size, width)

    def make_room(self, pool: int, longest: int) -> None:
        """Make room for ``pool`` entries in total and ``longest`` in a list; never shrinks."""
        if pool > self.lists.counts.pool_size:  # more than was reserved
            self.move_pool(pool, int(self.lists.counts.pool_used))
        if longest > self.longest:
            self.longest = longest
            self._make_scratch(longest)

    def move_pool(self, size: int, kept: int) -> None:
        """Move to another pool of ``size`` entries, with the first ``kept`` of this one."""
        beyond = self.terms.n_columns if self.limited else 0
        self.lists = moved(self.lists, size, kept, beyond, self.monitor.look)

    def make_reach(self, n_entries: int) -> None:
        """Prepare searches to scan up to ``n_entries`` at a time."""

    def drop_bounds(self) -> None:
        """Evaluate whole rows from now on; earlier evaluations by bounds stay valid."""
        self.blocks = no_blocks()
        self._make_scratch(self.longest)

    def keep_minima(self, order: Array) -> None:
        """Keep each row's smallest ``c - v`` per block of columns, as bounds of later ones.

        order: ID (n_columns,) the order of the columns in the blocks, for a matrix in
        place only; empty: the natural order. Memory: 4 bytes a row and block.
        """
        n, m = self.problem.shape
        low = np.full((n, -(-m // BLOCK)), -np.inf, np.float32)
        self.lists = self.lists._replace(low=low, order=order)
        if self.limited:  # within the lists' share, see ``affords``
            counts = self.lists.counts
            counts.pool_limit -= -(-low.nbytes // L.ENTRY_BYTES)
            counts.pool_size = counts.pool_limit
        self._make_scratch(self.longest)

    def fit_bounds(self) -> None:
        """Fit the blocks' price majorants again: they loosen as prices fall."""
        if self.blocks.offset.size:
            fit(self.blocks, self._y, self.v, self.team)

    def evaluate(self, rows: Array, *, widen: bool = False) -> None:
        """Evaluate many rows under the present prices, with the whole team.

        widen: give rows whose threshold does not grow longer lists, and evaluate them again.
        """
        if rows.size:
            rows = np.sort(rows).astype(S.ID)
            self.wave = Wave(rows, self.lists.theta[rows] if widen else self.lists.theta[:0])
            self.finish_wave()

    def finish_wave(self) -> None:
        """Finish the evaluation in progress."""
        while self.wave is not None:
            self.go_through(self.wave)
            self.wave = self._stuck(self.wave)

    def go_through(self, wave: Wave) -> None:
        """Evaluate the remaining rows of a wave."""
        self.evaluate_here(wave, wave.rows.size)

    def evaluate_here(self, wave: Wave, stop: int, leave: Callable[[], bool] = bool) -> None:
        """Evaluate its rows up to index ``stop``, or until ``leave`` returns True between batches."""
        m = self.terms.n_columns
        most = max(1, _READ_BYTES // max(1, m * self.slots.itemsize))
        while wave.done[0] < stop and not leave():
            start = wave.done[0]
            # As many rows as fitted a slice before, at most twice as many as last time: a source
            # may be slower than before.
            size = min(self._batch, stop - start)
            size = size if self.immediate else min(size, most)
            clock = time.perf_counter()
            size = self._evaluate_batch(wave, wave.rows[start : start + size])
            seconds = max(time.perf_counter() - clock, 1e-6)
            fitting = int(size * self.slice_seconds / seconds)
            self._batch = max(self._least_batch, min(2 * self._batch, fitting))
            self.seconds_per_row = seconds / size
            self._tick()

    def _stuck(self, wave: Wave) -> Wave | None:
        """Return the next wave: rows whose threshold did not grow, with longer lists."""
        if not wave.before.size:
            return None
        stuck = wave.rows[self.lists.theta[wave.rows] <= wave.before]
        if not stuck.size:
            return None
        self.torn = True
        self._widen(stuck)
        self.wave = Wave(stuck, self.lists.theta[:0])
        self.torn = False
        return self.wave

    def _evaluate_batch(self, wave: Wave, rows: Array) -> int:
        """Evaluate the wave's next rows; return how many."""
        start = wave.done[0]
        self.lists.counts.next_item = 0
        slots, bad = self.read_and_evaluate(rows, lambda: setattr(wave, "done", (start, rows.size)))
        if bad >= 0:
            self.complain(bad)
        if self.listed is not None and not self.immediate:
            self.listed.see(rows, slots, self.lists)
        wave.done = (start + rows.size, 0)
        return int(rows.size)

    def read_and_evaluate(self, rows: Array, begin: Callable[[], None] | None = None) -> tuple[Array, int]:
        """Evaluate rows; return the costs of those read for it, and the first invalid row or -1.

        begin: called when they are read. Raises for an invalid cost of these rows.
        """
        m = self.terms.n_columns
        slots = self.slots
        if not self.immediate:
            slots = np.empty((rows.size, m), self.slots.dtype)
            read_while(self.problem.source, self.monitor.tick, rows, slice(0, m), slots)
            limit = self.limit if self.bounded_costs else None
            for row, costs in zip(rows.tolist(), slots, strict=True):
                self.problem.check_row(row, costs)
                self.check_size(row, costs, limit)
        counts = self.lists.counts
        counts.next_item = 0
        counts.bad_row = -1
        if begin is not None:
            begin()
        if self.by_products:
            return slots, self.evaluate_by_products(rows, self.v)
        self.team.run_claims(run_evaluations, *self._evaluation_arguments(rows, slots))
        counts.evaluations += rows.size
        return slots, int(counts.bad_row)

    @property
    def by_products(self) -> bool:
        """Whether rows are evaluated by matrix products."""
        return self.products is not None and not self.blocks.offset.size

    def evaluate_by_products(self, rows: Array, v: Array) -> int:
        """Evaluate rows under prices v; return one with an invalid cost, -1 if there is none."""
        assert self.products is not None
        self.lists.counts.evaluations += rows.size
        self.lists.counts.pairs += rows.size * self.terms.n_columns
        return self.products.evaluate(rows, v, self.open_price, self.lists)

    def _evaluation_arguments(self, rows: Array, slots: Array) -> tuple[Any, ...]:
        evaluator = self.evaluator(slots, self.scratches)
        return rows, not self.immediate, self.v, self.open_price, evaluator, self.lists

    def evaluator(self, slots: Array, scratch: L.Scratch) -> Evaluator:
        """Return the evaluator of rows in ``slots``."""
        costs = costs_in(slots, self.price, there=not self.from_fill)
        return Evaluator(costs, self.from_fill, self.terms, self.blocks, self.seed, scratch, self.longest)

    def check_size(self, row: int, costs: Array, limit: int | None) -> None:
        """Raise for an integer cost beyond the range of exact arithmetic."""
        if limit is None or not costs.size:
            return
        refuse_large(self.problem, row, costs, limit, usual=self.price.kind == "f")

    def complain(self, row: int) -> None:
        """Raise for a row with an invalid cost."""
        costs = np.empty((1, self.terms.n_columns), self.problem.source.dtype)
        self.problem.source.read(np.array([row]), slice(0, self.terms.n_columns), costs)
        self.problem.check_row(row, costs[0])
        self.check_size(row, costs[0], self.limit if self.bounded_costs else None)
        raise changed(f"row {row} had an invalid cost that it no longer has when read again")

    def _widen(self, rows: Array) -> None:
        """Double the lists of rows whose threshold did not grow (ties)."""
        copied = 0
        for row in rows.tolist():
            copied += int(self.lists.size[row])
            if copied > COPIED:
                copied = 0
                self.monitor.look()
            while (done := widen(row, self.terms.n_columns, self.longest, self.lists)) == NO_ROOM:
                self._grow()
            if done == NO_GROWTH:
                raise ListsExhausted

    def list_minima(self) -> Array:
        """Return P (n_rows,) the smallest ``c - v`` in each list, infinity for an empty one."""
        lists = self.lists
        return lists.reference + self.relative_minima()

    def relative_minima(self, near: Array = _NOWHERE) -> Array:
        """Return the minima of the stored costs, less their references. near: see ``run_list_minima``."""
        lists, low = self.lists, np.empty(self.lists.start.size, self.price)
        given = lists.ids, lists.costs, lists.start, lists.size, self.v, self.infinity, low, near
        self.team.share(low.size, L.run_list_minima, *given)
        return low

    def list_maxima(self) -> Array:
        """Return P (n_rows,) the largest ``c - v`` in each list, -infinity for an empty one."""
        lists = self.lists
        high: Array = np.full(lists.start.size, -self.infinity, self.price)
        for k in range(int(lists.size.max(initial=0))):
            rows = np.flatnonzero(lists.size > k)
            at = lists.start[rows] + k
            high[rows] = np.maximum(high[rows], lists.costs[at] - self.v[lists.ids[at]])
        return lists.reference + high

    def list_widths(self) -> Array:
        """Return P (n_rows,) the distance of each threshold above the best of the list.

        Infinity for lists of whole rows.
        """
        theta = self.lists.theta
        widths: Array = np.full_like(theta, self.infinity)
        np.subtract(theta, self.relative_minima(), out=widths, where=theta < self.infinity)
        return widths

    def stale_rows(self) -> Array:
        """Return the rows whose threshold no longer lies above the best of their list."""
        return np.flatnonzero(self.lists.theta <= self.relative_minima())

    def greedy_gap(self, order: Array, before: Array) -> float:
        """Return the cost of a greedy matching on the lists beyond the rows' minima.

        before: rows that choose before those of ``order``, and do not count.
        """
        lists, taken = self.lists, np.zeros(self.terms.n_columns, np.uint8)
        near = np.empty(lists.start.size, S.ID)
        low = self.relative_minima(near)
        gap = 0.0
        for rows in (before, order):
            gap, _ = L.run_greedy(
                lists.ids,
                lists.costs,
                lists.start,
                lists.size,
                lists.theta,
                self.v,
                rows,
                taken,
                self.infinity,
                low,
                near,
            )
        return float(gap)

    def _tick(self) -> None:
        """Check the clock, limits and user requests."""
        self.monitor.tick()

    @property
    def pairs_evaluated(self) -> int:
        return int(self.lists.counts.pairs)

    @property
    def rows_evaluated(self) -> int:
        return int(self.lists.counts.evaluations)
