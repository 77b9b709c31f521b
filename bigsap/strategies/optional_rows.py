"""Search for rows that may stay unassigned at a price, on the few pairs that cost less.

The clipped problem (``sources.clipped``) limits a pair's cost to its row's price. Here only the pairs
below the price are stored, each row's in one complete list, and the row gets a private column that
costs the price (``engine.sparse.search``). With prices ``v <= 0``, 0 where a column is
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
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import largest_cost
from bigsap.engine.sparse.pairs import PRIVATE, Matching, Pairs, free_loose, labels, matching, take_best
from bigsap.engine.sparse.search import DONE, NEVER, search
from bigsap.problem import Problem
from bigsap.proof.tightness import UNIT, allowance
from bigsap.sources.base import CostSource, Resident, Separable, limit_of
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies.cheap_pairs import CheapPairs, TooMany, matrix_pairs, point_pairs
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.outcome import moved, phase_record
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
    one, none = price.type(1), price.type(0)
    pairs = Pairs(start, ids, costs, own, one, none, one, price.type(S.infinity(price)))
    state = matching(size.size, gated.shape[1], price)
    hidden = 0.0 if warm is None else _adopt(pairs, state, warm, whole, setting.monitor.tick)
    return SparseGate(pairs, state, setting, hidden)


def _limits(gated: ClippedCosts, cap: Array) -> Array:
    """Return the signed costs below which pairs are wanted: the caps, and no pair that is forbidden."""
    limit = limit_of(gated.given)
    if gated.maximize or not np.isfinite(limit):
        return cap
    return np.minimum(cap, np.nextafter(limit, np.inf))


class SparseGate:
    """The search and its answer. pairs: those below their row's price. state: perhaps partly matched.

    hidden: see ``Outcome``.
    """

    def __init__(self, pairs: Pairs, state: Matching, setting: ListSettings, hidden: float) -> None:
        self.pairs, self.state, self._begun, self.hidden = pairs, state, state.v.copy(), hidden
        self._monitor, self._price = setting.monitor, setting.arithmetic.price
        self._labels = labels(state.v.size, self._price)
        # Rows without pairs need no search.
        state.column_of_row[pairs.start[1:] == pairs.start[:-1]] = PRIVATE
        (left,) = np.nonzero(state.column_of_row == S.FREE)
        state.queue[: left.size], state.at.n_queue = left, left.size

    @property
    def scans(self) -> int:
        return int(self.state.at.scans)

    @property
    def prices(self) -> Array:
        """(m,) prices of the columns."""
        return self.state.v

    def phase(self, seconds: float) -> dict[str, Any]:
        """Return the record of the search."""
        count = moved(self._begun, self.prices)
        return phase_record(0.0, seconds, rows_scanned=self.scans, prices_moved=count)

    def run(self) -> bool:
        """Match every row; return False when the limit of work is reached.

        The monitor may stop it at any point: an unfinished search has changed nothing.
        """
        pairs, state, monitor, at = self.pairs, self.state, self._monitor, self.state.at
        n, m, blocked = pairs.own.size, state.v.size, S.blocked_price(self._price)
        progress, count = monitor.progress, monitor.counter()
        progress.stage, progress.phase, progress.epsilon = "search", 1, 0.0
        budget, done, most = _FIRST_ENTRIES, False, policy.OPTIONAL_PATIENCE * n * m
        while not done:
            clock = time.perf_counter()
            some = min(budget, most + 1 - at.entries)  # counts decide when it ends, whatever a slice is
            done = bool(search(pairs, state, self._labels, blocked, NEVER, some) == DONE)
            seconds = max(time.perf_counter() - clock, 1e-6)
            budget = max(1, min(4 * budget, int(budget * _SLICE_SECONDS / seconds), most))
            if at.entries > most:
                return done
            progress.assigned = n - int(at.n_queue - at.position)
            count(self.scans, 0)
            monitor.tick()
        return True

    def column_of_row(self) -> Array:
        """(n,) the current matching of the clipped problem.

        Rows in private columns, and rows not searched yet, have arbitrary free columns.
        """
        found = self.state.column_of_row.astype(np.intp)
        (left,) = np.nonzero(found < 0)
        # From the end: the columns that a tall problem was extended by are last, and show directly that the
        # row is unassigned.
        free = np.flatnonzero(self.state.row_of_column < 0)[::-1]
        found[left] = free[: left.size]
        return found


def _adopt(p: Pairs, state: Matching, warm: Warm, whole: bool, look: Callable[[], None]) -> float:
    """Begin with the pairs that are tight at a warm start's prices; its own pairs come first.

    Returns by how much they lack tightness, in sum.
    """
    n, m = p.own.size, state.v.size
    v = np.minimum(np.floor(warm.v) if whole else warm.v, 0)
    if whole and v.min(initial=0) < -(1 << 59):
        return 0.0
    state.v[:] = v
    if warm.column_of_row is not None:
        row_of_entry = np.repeat(np.arange(n), np.diff(p.start))
        given = np.flatnonzero(p.ids == np.asarray(warm.column_of_row)[row_of_entry])
        rows, columns = row_of_entry[given], p.ids[given]
        state.column_of_row[rows], state.row_of_column[columns] = columns, rows
        state.match_cost[rows] = p.costs[given]
    rounding = 0.0 if whole else 0.75 * float(allowance(max(n, m), UNIT))
    take_best(p, state)
    for _ in range(policy.OPTIONAL_WARM_ROUNDS):
        look()
        if free_loose(p, state, rounding) == 0:
            return 0.0 if whole else _lacking(p, state)
    state.v[:] = 0
    state.column_of_row[:] = S.FREE
    state.row_of_column[:] = S.FREE
    return 0.0


def _lacking(p: Pairs, state: Matching) -> float:
    """Return by how much the matched pairs lack tightness, in sum. O(entries)."""
    low, (some,) = p.own.copy(), np.nonzero(np.diff(p.start))
    if some.size:
        low[some] = np.minimum(low[some], np.minimum.reduceat(p.costs - state.v[p.ids], p.start[some]))
    (rows,) = np.nonzero(state.column_of_row >= 0)
    reduced = state.match_cost[rows] - state.v[state.column_of_row[rows]]
    return float(np.maximum(reduced - low[rows], 0).sum())


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
