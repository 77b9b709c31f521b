"""Search for rows that may stay unassigned at a price, on the few pairs that cost less.

The clipped problem (``sources.clipped``) limits a pair's cost to its row's price. Here only the pairs
below the price are stored, each row's in one complete list, and the row gets a private column that
costs the price (``engine.lists.private_columns``). With prices ``v <= 0``, 0 where a column is
free, a dual solution of that sparse problem is one of the clipped problem: ``u[i] <= price[i]``
holds, and so ``u[i] + v[j] <= price[i]`` for every pair that was left out. Rows that end in their
private columns take any free columns in the end, where a clipped pair costs exactly the price. So
all later steps, the proof in particular, treat the answer as an ordinary one of the clipped problem.

There are no phases: a search ends at its row's price, so it reaches about as far as pairs below
the price do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import largest_cost
from bigsap.engine.lists.below_price import Found, RowReader, run_below
from bigsap.engine.lists.bounds import blocks_of, fit, no_blocks, separated_columns
from bigsap.engine.lists.layout import ENTRY_BYTES, PANEL
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.lists.private_columns import (
    PRIVATE,
    PrivatePairs,
    free_loose,
    private_frontier,
    run_private,
    take_best,
)
from bigsap.engine.lists.reading import costs_in
from bigsap.problem import Problem
from bigsap.proof.tightness import UNIT, allowance
from bigsap.sources.base import CostSource, Resident, Selectable, Separable
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.filling import fill_of
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.warm import Warm
from bigsap.types import Array

#: Entries that a thread collects at a time, in addition to one row's.
_ROOM = 1 << 16
#: Memory factor of entries while they are collected.
_COPIES = 2
_SLICE_SECONDS = 0.05
#: Entries that the first slice examines.
_FIRST_ENTRIES = 1 << 17


class _TooMany(Exception):
    """Too many pairs cost less than their row's price."""


def bounded(gated: ClippedCosts) -> bool:
    """Return whether bounds of the costs exclude most pairs."""
    given = gated.given
    terms = given.separable() if isinstance(given, Separable) else None
    return terms is not None and terms.y.shape[0] <= policy.FEW_COORDINATES and not gated.maximize


def sparse_gate(
    gated: ClippedCosts, source: CostSource, setting: ListSettings, solved: ListSolve, warm: Warm | None
) -> SparseGate | None:
    """Return the search of a clipped problem on the pairs that cost less than their row's price.

    source: the source to read, ``gated`` itself or a matrix of its costs. Returns None where these
    pairs are many, where a row must be assigned, or where kernels cannot read the rows; then only the
    counts have changed. Invalid costs are reported by later strategies.

    Each pair is read once; for points, only pairs that bounds leave open. Memory: 12 bytes for each
    pair below its price, twice that while they are collected, and about eight vectors.
    """
    price = setting.arithmetic.price
    limit, _ = largest_cost(Problem(gated, gated.maximize), price)
    whole = gated.dtype.kind in "iu"
    cap = (-1 if gated.maximize else 1) * gated.cap.astype(price)
    if not np.isfinite(gated.prices).all() or (whole and np.abs(cap).max() > limit):
        return None
    rows = _rows(gated, source, setting)
    if rows is None:
        return None
    try:
        size, ids, costs = rows.below(cap, setting, solved.counts)
    except _TooMany:
        return None
    if not np.isfinite(costs).all() or (whole and costs.size and costs.min() < -limit):
        return None
    start = np.concatenate(([0], np.cumsum(size)))
    # Costs less their row's smallest, so that huge costs do not absorb the prices.
    least = cap.copy()
    some = np.flatnonzero(size)
    if some.size:
        least[some] = np.minimum.reduceat(costs, start[some])
    with np.errstate(over="ignore"):
        costs -= np.repeat(least, size)
        own = cap - least
    if not np.isfinite(own).all():
        return None
    pairs = PrivatePairs(
        start,
        ids,
        costs,
        own,
        v=np.zeros(gated.shape[1], price),
        column_of_row=np.full(size.size, S.FREE, S.ID),
        row_of_column=np.full(gated.shape[1], S.FREE, S.ID),
        match_cost=np.zeros(size.size, price),
    )
    if warm is not None:
        _adopt(pairs, warm, whole, setting.monitor.tick)
    return SparseGate(pairs, setting)


class SparseGate:
    """The search and its answer. pairs: those below their row's price, perhaps partly matched."""

    def __init__(self, pairs: PrivatePairs, setting: ListSettings) -> None:
        self.pairs = pairs
        self._monitor, self._price = setting.monitor, setting.arithmetic.price
        self._frontier = private_frontier(pairs.v.size, self._price)
        # Rows without pairs need no search.
        pairs.column_of_row[pairs.start[1:] == pairs.start[:-1]] = PRIVATE
        self.order = np.flatnonzero(pairs.column_of_row == S.FREE).astype(S.ID)

    @property
    def scans(self) -> int:
        return int(self._frontier.at.scans)

    def run(self) -> bool:
        """Match every row; return False when the limit of work is reached.

        The monitor may stop it at any point: an unfinished search has changed nothing.
        """
        f, monitor, pairs = self._frontier, self._monitor, self.pairs
        price, at = self._price, self._frontier.at
        n, m = pairs.own.size, pairs.v.size
        progress, count = monitor.progress, monitor.counter()
        progress.stage, progress.phase, progress.epsilon = "search", 1, 0.0
        budget, done = _FIRST_ENTRIES, False
        while not done:
            clock = time.perf_counter()
            done = bool(run_private(self.order, pairs, f, S.infinity(price), S.blocked_price(price), budget))
            seconds = max(time.perf_counter() - clock, 1e-6)
            budget = max(1, min(4 * budget, int(budget * _SLICE_SECONDS / seconds)))
            if at.entries > policy.OPTIONAL_PATIENCE * n * m:
                return done
            progress.assigned = n - int(self.order.size - at.position)
            count(self.scans, 0)
            monitor.tick()
        return True

    def column_of_row(self) -> Array:
        """(n,) the current matching of the clipped problem.

        Rows in private columns, and rows not searched yet, have arbitrary free columns.
        """
        matching = self.pairs.column_of_row.astype(np.intp)
        (left,) = np.nonzero(matching < 0)
        # From the end: the columns that a tall problem was extended by are last, and show directly that the
        # row is unassigned.
        free = np.flatnonzero(self.pairs.row_of_column < 0)[::-1]
        matching[left] = free[: left.size]
        return matching


def _adopt(p: PrivatePairs, warm: Warm, whole: bool, look: Callable[[], None]) -> None:
    """Begin with the pairs that are tight at a warm start's prices; its own pairs come first."""
    n, m = p.own.size, p.v.size
    v = np.minimum(np.floor(warm.v) if whole else warm.v, 0)
    if whole and v.min(initial=0) < -(1 << 59):
        return
    p.v[:] = v
    if warm.column_of_row is not None:
        row_of_entry = np.repeat(np.arange(n), np.diff(p.start))
        given = np.flatnonzero(p.ids == np.asarray(warm.column_of_row)[row_of_entry])
        rows, columns = row_of_entry[given], p.ids[given]
        p.column_of_row[rows], p.row_of_column[columns] = columns, rows
        p.match_cost[rows] = p.costs[given]
    rounding = 0.0 if whole else 0.75 * float(allowance(max(n, m), UNIT))
    span = take_best(p)
    for _ in range(policy.OPTIONAL_WARM_ROUNDS):
        look()
        if free_loose(p, rounding, span) == 0:
            return
    p.v[:] = 0
    p.column_of_row[:] = S.FREE
    p.row_of_column[:] = S.FREE


@dataclass(frozen=True)
class _Rows:
    """Rows as kernels read them.

    columns: the column at each place, None for the source's order. keep: objects that must outlive the
    addresses that kernels have.
    """

    reader: RowReader
    columns: Array | None
    dtype: np.dtype[Any]
    keep: tuple[object, ...]

    def below(self, cap: Array, setting: ListSettings, counts: Counts) -> tuple[Array, Array, Array]:
        """Return all pairs below the rows' prices: counts per row, columns, and signed costs, by row.

        Raises _TooMany, and Stopped.
        """
        n, m = cap.size, self.reader.n_columns
        allowed = max(policy.OPTIONAL_FEW, min(m // policy.OPTIONAL_SHARE, policy.OPTIONAL_MANY))
        most = n * allowed
        if n > 2 * policy.OPTIONAL_SAMPLE:
            some = np.random.default_rng([setting.seed, n, 17]).permutation(n)[: policy.OPTIONAL_SAMPLE]
            found = self._below(some, cap, setting, counts, policy.OPTIONAL_SAMPLE * allowed)[0].mean()
            most = min(most, int(policy.OPTIONAL_SURPRISE * n * max(found, 1.0)))
        if setting.memory is not None:
            most = min(most, setting.memory // (_COPIES * ENTRY_BYTES))
        return self._below(np.arange(n), cap, setting, counts, most)

    def _below(
        self, rows: Array, cap: Array, setting: ListSettings, counts: Counts, most: int
    ) -> tuple[Array, Array, Array]:
        reader, team, monitor = self.reader, setting.team, setting.monitor
        m, price = reader.n_columns, setting.arithmetic.price
        width = 1 if rows.size * m < policy.TEAM_PAIRS else team.n_threads
        room = m + _ROOM  # only the part that is written takes memory
        f = Found(
            ids=np.empty((width, room), np.int32),
            costs=np.empty((width, room), price),
            taken=np.zeros(width, np.int64),
            done=np.zeros(width, np.int64),
            pairs=np.zeros(width, np.int64),
            raw=np.empty((width, PANEL * self.dtype.itemsize), np.uint8),
            near=np.empty((width, PANEL), price),
            bound=np.empty((width, max(1, reader.blocks.offset.size))),
        )
        size = np.zeros(rows.size, np.int64)
        of_ids: list[Array] = []
        of_costs: list[Array] = []
        start, batch, total = 0, width, 0
        while start < rows.size:
            part = rows[start : start + batch]
            f.done[:] = 0
            of_thread: list[list[tuple[Array, Array]]] = [[] for _ in range(width)]
            clock = time.perf_counter()
            while int(f.done.sum()) < part.size:
                team.run_some(width, run_below, part, cap, size[start : start + part.size], reader, f)
                for thread, taken in enumerate(f.taken.tolist()):
                    of_thread[thread].append((f.ids[thread, :taken].copy(), f.costs[thread, :taken].copy()))
                total += int(f.taken.sum())
                if total > most:
                    self._count(counts, start + int(f.done.sum()), f)
                    raise _TooMany
                monitor.tick()
            for piece in (piece for pieces in of_thread for piece in pieces):
                of_ids.append(piece[0])
                of_costs.append(piece[1])
            seconds = max(time.perf_counter() - clock, 1e-6)
            start += part.size
            batch = max(width, min(4 * batch, int(part.size * _SLICE_SECONDS / seconds)))
            monitor.reached(0, counts.rows + start)
        self._count(counts, rows.size, f)
        ids = np.concatenate(of_ids)
        of_ids.clear()
        if self.columns is not None:
            ids = self.columns[ids]
        return size, ids, np.concatenate(of_costs)

    @staticmethod
    def _count(counts: Counts, rows: int, f: Found) -> None:
        counts.rows += rows
        counts.pairs += int(f.pairs.sum())


def _rows(gated: ClippedCosts, source: CostSource, setting: ListSettings) -> _Rows | None:
    """Return how rows are read: points by blocks of neighbours, a matrix in place."""
    given, price, columns = gated.given, setting.arithmetic.price, None
    blocks, fill, like = no_blocks(), None, None
    m = gated.n_columns
    if source is not gated:
        like = source.resident() if isinstance(source, Resident) else None
    elif bounded(gated) and isinstance(given, Selectable):
        assert isinstance(given, Separable)
        terms = given.separable()
        assert terms is not None
        columns = compact_order(terms.y.T, setting.monitor.tick).astype(np.int32)
        ordered = given.select(np.arange(gated.shape[0]), columns)
        if ordered is None:
            return None
        fill, blocks = fill_of(ordered), blocks_of(ordered)
        if blocks.offset.size:
            assert isinstance(ordered, Separable)
            fit(blocks, separated_columns(ordered), np.zeros(m), setting.team)
    else:
        like = given.resident() if isinstance(given, Resident) else None
        fill = fill_of(given) if like is None else None
    if like is None and fill is None:
        return None
    dtype = given.dtype if source is gated else source.dtype
    if dtype == np.int64 and gated.dtype.kind == "f" and source is gated:
        return None  # perhaps too large for floats: see ``ClippedCosts``
    slots = np.empty((1, 1), dtype) if like is None else like
    costs = costs_in(slots, price, there=like is not None)
    reader = RowReader(
        costs,
        fill.address if fill else 0,
        fill.context if fill else 0,
        price.type(-1 if gated.maximize else 1),
        m,
        blocks,
    )
    return _Rows(reader, columns, np.dtype(dtype), (slots, fill))
