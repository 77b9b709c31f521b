"""Start by tight pairs: prices under which nearly all rows can have a cheapest column.

Two guesses at the prices, each tried by one pass over the rows that finds every row's tight
pairs while these are matched (``engine.lists.tight``). A perfect matching on them is optimal. If
a guess is wrong the matching fails after few rows, and the pass ends there: after some
sqrt(n) rows for i.i.d. costs.

* *Zero* is right for costs with many ties, and where rows do not compete (a point set
  against itself, hardly moved).
* The cost of each column in a few rows, less the rows' minima, is right for costs that are a
  row term plus a column term, except for a few good pairs.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.core.team import Team
from bigsap.engine.lists import tight as T
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.base import Resident
from bigsap.strategies.start.outliers import lower_outliers
from bigsap.strategies.start.samples import Counts
from bigsap.types import Array, Tick

#: A slice of a pass: pairs of the first, seconds of the later ones.
_FIRST_PAIRS = 1 << 22
_SLICE_SECONDS = 0.1
#: Costs examined one by one, each in another row, between two checks of the clock.
_SCATTERED = 1 << 20
#: Columns that searches pass between two checks.
_WALKED = 1 << 22


@dataclass(frozen=True)
class TightStart:
    """Tight pairs, and a matching on them of nearly all rows.

    v: P (n_columns,) the prices. tight, matching: see ``engine.lists.tight``. left: ID (k,) the
    rows without a tight pair left, in order.
    """

    v: Array
    tight: T.Tight
    matching: T.Matching
    left: Array


def tight_start(
    problem: Problem, team: Team, monitor: Monitor, arithmetic: Arithmetic, seed: int, counts: Counts
) -> TightStart | None:
    """Return a matching on tight pairs of all rows but a few; None where none is found quickly.

    Also None if a cost is invalid, which other strategies report. For square matrices in the
    host's memory. Evaluations are counted. The same for any number of threads.
    """
    n, m = problem.shape
    if n != m or n < policy.TIGHT_PAIRS_ROWS:
        return None
    matrix = problem.source.resident() if isinstance(problem.source, Resident) else None
    if matrix is None:
        return None
    pairs = _Passes(problem, matrix, team, arithmetic.price)
    attempt = _Attempt(problem, pairs, monitor, arithmetic, counts, team.n_threads)
    generator = np.random.default_rng([seed, n, 11])
    first = np.sort(generator.permutation(n)[: int(policy.TIGHT_FIRST * n**0.5)]).astype(S.ID)
    found = attempt.run(np.zeros(m, arithmetic.price), first)
    if found is None and not attempt.invalid:
        sampled = first[:: max(1, first.size // policy.TIGHT_SAMPLE)][: policy.TIGHT_SAMPLE]
        v = attempt.column_terms(sampled)
        found = None if v is None else attempt.run(v, first)
    return found


class _Passes:
    """Passes over the rows of a matrix in the host's memory, by all threads."""

    def __init__(self, problem: Problem, matrix: Array, team: Team, price: np.dtype[Any]) -> None:
        self.problem, self.matrix, self.team, self.price = problem, matrix, team, price
        self._batch = max(1, _FIRST_PAIRS // problem.shape[1])

    def sweep(self, rows: Array, v: Array, tight: T.Tight, reached: Tick) -> None:
        """Find the tight pairs of these rows (ID), in slices of about a tenth of a second.

        ``reached`` is called with the number of rows after each slice.
        """
        problem, price = self.problem, self.price
        sign, infinity = price.type(problem.sign), S.infinity(price)
        lowest, highest = T.valid_costs(problem, price)
        start = 0
        while start < rows.size:
            part = rows[start : start + self._batch]
            clock = time.perf_counter()
            tight.item[0] = 0
            self.team.run(T.run_tight, part, self.matrix, sign, lowest, highest, infinity, v, tight)
            reached(part.size)
            seconds = max(time.perf_counter() - clock, 1e-6)
            if part.size == self._batch:
                fitting = int(part.size * _SLICE_SECONDS / seconds)
                self._batch = max(1, min(4 * self._batch, fitting))
            start += part.size

    def columns(self, columns: Array) -> tuple[Array, Array]:
        """Return the costs of all rows, and where in it those of these columns are."""
        return self.matrix, columns

    def row(self, row: int) -> Array:
        """Return the costs of one row."""
        costs: Array = self.matrix[row, : self.problem.shape[1]]
        return costs


class _Attempt:
    """Passes over one matrix, one a guess."""

    def __init__(
        self,
        problem: Problem,
        pairs: _Passes,
        monitor: Monitor,
        arithmetic: Arithmetic,
        counts: Counts,
        n_threads: int,
    ) -> None:
        self.problem, self.passes, self.monitor = problem, pairs, monitor
        self.price, self.counts = arithmetic.price, counts
        n, m = problem.shape
        self.tight = T.tight_pairs(n, m, self.price, n_threads)
        self.invalid = False

    def run(self, v: Array, first: Array) -> TightStart | None:
        """Try these prices: ``first`` (ID, ascending), then the other rows in portions that double.

        The decision is made between portions and does not depend on the clock.
        """
        problem, tight, price = self.problem, self.tight, self.price
        n, m = problem.shape
        matching = T.empty_matching(n, m)
        others = np.ones(n, bool)
        others[first] = False
        rows = np.concatenate([first, np.flatnonzero(others).astype(S.ID)])
        lonely = n // (policy.TIGHT_LONELY_WHOLE if problem.integer else policy.TIGHT_LONELY)
        done, portion, listed, found = 0, first.size, 0, np.zeros(m, bool)
        while done < n:
            part = rows[done : done + portion]
            self.passes.sweep(part, v, tight, self._reached)
            self.invalid = bool((tight.size[part] < 0).any())
            if self.invalid or not self._match(part, matching):
                return None
            listed += T.note_listed(part, tight.ids, tight.size, found)
            done, portion = done + part.size, 2 * portion
            if _lonely(m, done, listed, int(np.count_nonzero(found))) > lonely:
                return None
        if matching.at.n_open and problem.integer:
            columns = np.flatnonzero(matching.row_of_column < 0).astype(S.ID)
            sign, infinity = price.type(problem.sign), S.infinity(price)
            step = max(1, _SCATTERED // n)
            for start in range(0, columns.size, step):
                some = columns[start : start + step]
                T.raise_prices(some, *self.passes.columns(some), sign, infinity, v, tight)
                self.monitor.tick()
            row = 0
            while row < n:
                row = T.match_open(row, tight.ids, tight.size, matching, _WALKED)
                self.monitor.tick()
        left = np.flatnonzero(matching.column_of_row < 0).astype(S.ID)
        # Costs on lists are relative to the row's minimum, which is exact at prices 0 and for integers
        # only.
        exact = problem.integer or not v.any()
        if left.size > (max(policy.TIGHT_FEW, n // policy.TIGHT_LEFT) if exact else 0):
            return None
        return TightStart(v, tight, matching, left)

    def _match(self, rows: Array, matching: T.Matching) -> bool:
        """Match these rows too; return False when too many cannot be matched."""
        place = 0
        while 0 <= place < rows.size:
            place = T.match(rows, place, self.tight.ids, self.tight.size, matching, _WALKED)
            self.monitor.tick()
        return place >= 0

    def _reached(self, n_rows: int) -> None:
        self.counts.rows += n_rows
        self.counts.pairs += n_rows * self.problem.shape[1]
        self.monitor.reached(0, self.counts.rows)
        self.monitor.tick()

    def column_terms(self, rows: Array) -> Array | None:
        """Return the second smallest ``c - row minimum`` of each column in these rows, the largest 0.

        The second, since the smallest may be one of the few good pairs. None where a pair
        is forbidden, or for a single row. O(rows * m).
        """
        if rows.size < 2:
            return None
        m = self.problem.shape[1]
        kind = self.price.type
        sign = kind(self.problem.sign)
        least: Array = np.full(m, S.infinity(self.price), self.price)
        runner_up: Array = least
        for row in rows.tolist():
            costs = sign * self.passes.row(row).astype(self.price)
            if self.price.kind == "f" and not np.isfinite(costs).all():
                return None
            costs -= costs.min()
            runner_up = np.minimum(runner_up, np.maximum(least, costs))
            least = np.minimum(least, costs)
        self.counts.rows += rows.size
        self.counts.pairs += rows.size * m
        lower_outliers(runner_up)
        runner_up -= runner_up.max()
        return runner_up


def _lonely(m: int, rows: int, pairs: int, columns: int) -> float:
    """Return how many columns are likely to have no tight pair in the end.

    pairs: tight ones of so many rows, in so many columns of m. If each pair drew its column at random,
    m exp(-pairs of a row) would be left. But if the columns of these rows repeat less often than random
    ones, correspondingly few will be left.
    """
    if columns == pairs:
        return 0.0
    usual = pairs + m * math.expm1(-pairs / m)
    return m * math.exp(-pairs / rows) * min(1.0, (pairs - columns) / usual)


def hand_over(start: TightStart, engine: ListEngine, counts: Counts) -> None:
    """Give an engine the pairs, prices and matching of a start, as its lists.

    From then on the engine counts the evaluations that produced them.
    """
    lists, tight, v = engine.lists, start.tight, start.v
    n, m = engine.problem.shape
    lists.counts.evaluations += n
    lists.counts.pairs += n * m
    counts.add(Counts(-n, -n * m))
    places = lists.start[:, None] + np.arange(min(T.ROOM, engine.k))
    listed = np.arange(places.shape[1]) < tight.size[:, None]
    ids = tight.ids[:, : places.shape[1]]
    lists.ids[places[listed]] = ids[listed]
    lists.costs[places[listed]] = v[ids[listed]]
    lists.size[:] = np.minimum(tight.size, places.shape[1])
    lists.reference[:] = np.where(tight.low < engine.infinity, tight.low, 0)
    bounds = np.where(tight.size > places.shape[1], tight.low, tight.above)
    finite = bounds < engine.infinity
    lists.theta[:] = np.where(finite, bounds - lists.reference, engine.infinity)
    engine.v[:] = v
    matching = start.matching
    engine.column_of_row[:] = matching.column_of_row
    engine.row_of_column[:] = matching.row_of_column
    engine.open_price[:] = np.where(matching.row_of_column < 0, v, engine.blocked)
    matched = matching.column_of_row >= 0
    engine.match_cost[matched] = v[matching.column_of_row[matched]]
