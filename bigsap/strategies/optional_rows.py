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

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import largest_cost
from bigsap.engine.lists.private_columns import (
    PRIVATE,
    PrivatePairs,
    free_loose,
    private_frontier,
    run_private,
    take_best,
)
from bigsap.problem import Problem
from bigsap.proof.tightness import UNIT, allowance
from bigsap.sources.base import CostSource, Resident, Separable, limit_of
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies.cheap_pairs import CheapPairs, TooMany, matrix_pairs, point_pairs
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.start.warm import Warm
from bigsap.types import Array

_SLICE_SECONDS = 0.05
#: Entries that the first slice examines.
_FIRST_ENTRIES = 1 << 17


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
        size, ids, costs = rows.below(_limits(gated, cap), setting, solved.counts)
    except TooMany:
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


def _limits(gated: ClippedCosts, cap: Array) -> Array:
    """Return the signed costs below which pairs are wanted: the caps, and no pair that is forbidden."""
    limit = limit_of(gated.given)
    if gated.maximize or not np.isfinite(limit):
        return cap
    return np.minimum(cap, np.nextafter(limit, np.inf))


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
        budget, done, most = _FIRST_ENTRIES, False, policy.OPTIONAL_PATIENCE * n * m
        while not done:
            clock = time.perf_counter()
            some = min(budget, most + 1 - at.entries)  # counts decide when it ends, whatever a slice is
            done = bool(run_private(self.order, pairs, f, S.infinity(price), S.blocked_price(price), some))
            seconds = max(time.perf_counter() - clock, 1e-6)
            budget = max(1, min(4 * budget, int(budget * _SLICE_SECONDS / seconds), most))
            if at.entries > most:
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
    take_best(p)
    for _ in range(policy.OPTIONAL_WARM_ROUNDS):
        look()
        if free_loose(p, rounding) == 0:
            return
    p.v[:] = 0
    p.column_of_row[:] = S.FREE
    p.row_of_column[:] = S.FREE


def _rows(gated: ClippedCosts, source: CostSource, setting: ListSettings) -> CheapPairs | None:
    """Return how rows are read: points by blocks of neighbours, a matrix in place."""
    given, sign = gated.given, -1 if gated.maximize else 1
    if source is not gated:
        matrix = source.resident() if isinstance(source, Resident) else None
        return None if matrix is None else matrix_pairs(matrix, gated.n_columns, sign, setting)
    if given.dtype == np.int64 and gated.dtype.kind == "f":
        return None  # perhaps too large for floats: see ``ClippedCosts``
    matrix = given.resident() if isinstance(given, Resident) else None
    if matrix is not None:
        return matrix_pairs(matrix, gated.n_columns, sign, setting)
    terms = given.separable() if bounded(gated) and isinstance(given, Separable) else None
    return point_pairs(given, terms, sign, setting)
