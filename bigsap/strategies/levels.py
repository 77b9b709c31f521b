"""First prices from levels: exact solutions of ever larger samples that mirror the whole.

Level k has one of every 4**k rows and columns, as strata of the next finer level (``strata``). The
coarsest is solved densely. The duals u of a level's rows give prices to the columns of the next
finer one, ``v[j] = min over the rows of (c[i, j] - u[i])``, from which that is solved by
compressed rows, and so on. The last prices are those of the whole problem.

In more than two dimensions many columns lie at the edge, where a sample is least accurate. Prices
only fall: short searches lower a price that is too high, but if one is too low all others have to
fall, by searches that reach most of the problem. So such problems begin at higher prices, from the
``_RAISED``-th smallest ``c - u``, which lies farther above the smallest where rows are few.

Rectangular problems keep their proportions. With n < m the free columns of a level have the
largest price, its *cap*, which bounds the prices of the finer level too; with n > m the
unassigned rows have the largest u of any assigned row.

Invariants: any prices are a legal start, so levels do not affect the answer's optimality; all
results follow from the seed; a solved level is represented by its rows' u, which is all that a
checkpoint stores. Listeners receive a bound of the whole problem at the end of a level, see
``LevelBounds``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.precision import Arithmetic, choose
from bigsap.engine.core.team import Team
from bigsap.engine.lists import layout as L
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.rows.row_engine import Engine
from bigsap.errors import InvalidCostError
from bigsap.problem import Problem
from bigsap.progress import Monitor, PartMonitor
from bigsap.proof.minima import Looked, by_bounds, seconds_by_bounds
from bigsap.proof.row_minima import Prices
from bigsap.row_cache import Rows
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Resident, Selectable, Separable
from bigsap.sources.cuda.placed import OnDevice
from bigsap.strategies import whole_rows
from bigsap.strategies.outcome import Outcome
from bigsap.strategies.outlying import outlying, without, worth
from bigsap.strategies.placement import prices_on_device
from bigsap.strategies.start.samples import Counts, all_costs, part_of, read_gently
from bigsap.strategies.start.strata import Strata, one_of_each
from bigsap.types import Array

#: A level has one in SHARE of the rows and columns of the next finer one.
SHARE = 4
# Rank of the smallest ``c - u`` from which prices are raised, see the module docstring.
_RAISED = SHARE
# Price, for whole numbers, of a column that no row may have.
_UNREACHED = 1 << 59
# Pairs processed between two checks of the clock.
_AT_ONCE = 1 << 26

#: Solves a level from prices: its outcome, and the smallest ``c - v`` in each list or None.
SolveLevel = Callable[[Problem, Arithmetic, Array, Monitor, int], tuple[Outcome, Array | None]]


class Ladder:
    """Levels of one problem, and how many of them are solved.

    strata: of the problem. kept: a checkpoint of a ladder of the same problem and seed, see ``kept``;
    empty for a new ladder.
    """

    def __init__(
        self,
        problem: Problem,
        strata: Strata,
        team: Team,
        monitor: Monitor,
        price: np.dtype[Any],
        seed: int,
        counts: Counts,
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.problem, self.team, self.monitor, self.price = problem, team, monitor, price
        self.seed, self.counts = seed, counts
        n, m = problem.shape
        generator = np.random.default_rng([seed, n, m])
        rows, columns = strata.rows, strata.columns
        #: Points excluded from levels, or None.
        self.far = outlying(problem, strata)
        if self.far is not None:
            left = n - max(self.far.rows.size, self.far.columns.size)
            rows = without(rows, self.far.rows, left)
            columns = without(columns, self.far.columns, left)
        #: Ids in the whole problem of the rows and columns of each level, ascending.
        self.members: list[tuple[Array, Array]] = [(np.arange(n), np.arange(m))]
        while min(rows.size, columns.size) > (policy.COARSEST_LEVEL if len(self.members) > 1 else 0):
            rows = one_of_each(rows, SHARE, generator)
            columns = one_of_each(columns, SHARE, generator)
            if min(rows.size, columns.size) < policy.LEAST_LEVEL:
                break
            self.members.append((np.sort(rows), np.sort(columns)))
        #: The finest solved level, its rows' u and its cap; initially none.
        self.level = len(self.members)
        self.u, self.cap = np.empty(0, price), np.empty(0, price)
        if kept:
            self.level = int(kept["ladder_level"])
            self.u, self.cap = kept["ladder_u"], kept["ladder_cap"]

    def kept(self) -> dict[str, Any]:
        """Return the state to continue from; empty before the first level is solved."""
        if self.level == len(self.members):
            return {}
        return {"ladder_level": self.level, "ladder_u": self.u, "ladder_cap": self.cap}

    def climb(self, solve_level: SolveLevel) -> Array | None:
        """Return prices (m,) of the whole problem, or None where a level has no solution."""
        if len(self.members) == 1:
            return None
        parts = self._parts()
        bounds = LevelBounds(self.problem, self.team, self.monitor)
        while self.level > 1:
            level = self.level - 1
            part, below = (parts[level], PartMonitor(self.monitor, self.members[level][0].size, level))
            try:
                fine = self._solve(part, level, below, solve_level)
            except InvalidCostError as error:
                raise self._named(error, level) from None
            finally:
                below.close()
            if not fine:
                return None
            self.monitor.save_now()
            if level > 1 and bounds.due:
                self._tell(level, bounds)
        clock = time.perf_counter()
        nearest, v = self._transform(self.problem, 0, self.price, self.monitor)
        if self.far is not None:
            nearest = v = worth(self.problem, v, self.far, self.team, self.monitor, self.counts)
        if bounds.due:
            bounds.tell(nearest, clock)
        return v

    def _tell(self, level: int, bounds: LevelBounds) -> None:
        """Report a bound of the whole problem from the duals of a level other than the finest."""
        clock = time.perf_counter()
        rows = self.members[level][0]
        v = bounded_transform(self.problem, rows, self.u, self.team, self.monitor, Counts())
        if v is not None:
            bounds.tell(reached(v[0]), clock)

    def _parts(self) -> dict[int, Problem]:
        """Return the problems of the levels still to be solved, each a part of the next finer one."""
        parts = {0: self.problem}
        for level in range(1, self.level):
            upper, ids = self.members[level - 1], self.members[level]
            rows, columns = (np.searchsorted(u, i) for u, i in zip(upper, ids, strict=True))
            below = PartMonitor(self.monitor, rows.size, level)
            counts = self.counts if level == 1 else Counts()
            parts[level] = part_of(parts[level - 1], rows, columns, below, counts)
            if counts is not self.counts and not isinstance(parts[level].source, ArraySource):
                self.counts.add(counts)
        return parts

    def _solve(self, part: Problem, level: int, below: PartMonitor, solve_level: SolveLevel) -> bool:
        """Solve one level; return False where it has no solution, or none in finite numbers."""
        inner = choose(part, large=self.price.kind == "i")
        u: Array | None
        if self.level == len(self.members):
            costs = all_costs(part, below)
            dense = Problem(ArraySource(costs), part.maximize)
            engine = Engine(dense, Rows.in_place(costs), self.team, below, inner.price)
            # With few rows, replacing a last phase (``policy.LAST_PHASE_SCANS``) costs more than it saves.
            outcome = whole_rows.run(engine, epsilon=True, seed=self.seed, grid=inner.grid, published=True)
            self.counts.scans += engine.rows_scanned
            self.counts.pairs += costs.size
            u = (part.sign * costs.astype(inner.price) - outcome.v).min(axis=1)
        else:
            _, prices = self._transform(part, level, inner.price, below)
            outcome, u = solve_level(part, inner, prices, below, self.seed + level)
        if u is None or outcome.violator.size or not np.isfinite(u).all():
            return False
        n, m = part.shape
        if u.max() >= (1 << 58 if inner.price.kind == "i" else np.inf):
            return False
        if n > m:
            u = np.minimum(u, np.partition(u, m - 1)[m - 1])
        cap = outcome.v[:0] if n >= m else outcome.v.max(keepdims=True)
        self.level, self.u, self.cap = level, u, cap
        return True

    def _transform(
        self, problem: Problem, level: int, price: np.dtype[Any], monitor: Monitor
    ) -> tuple[Array, Array]:
        """Return prices of a level's columns from the u of the next coarser level, and its start prices."""
        rows = np.searchsorted(self.members[level][0], self.members[level + 1][0])
        found = bounded_transform(problem, rows, self.u, self.team, monitor, self.counts)
        if found is None:
            counts = self.counts if level == 0 else None
            v = transform(problem, self.team, monitor, rows, self.u, counts, price)
            found = v, v
        nearest, raised = (self._capped(reached(v)) for v in found)
        return nearest, raised

    def _capped(self, v: Array) -> Array:
        return np.minimum(v, self.cap) if self.cap.size else v

    def _named(self, error: InvalidCostError, level: int) -> Exception:
        """Return the error about a part with the ids of the whole problem."""
        rows = self.members[level][0]
        row = error.column if self.problem.transposed else error.row
        if row is not None and 0 <= row < rows.size:
            costs = np.empty((1, self.problem.shape[1]), self.problem.source.dtype)
            self.problem.source.read(rows[[row]], slice(0, costs.shape[1]), costs)
            try:
                self.problem.check_row(int(rows[row]), costs[0])
            except InvalidCostError as named:
                return named
        return error


def reached(v: Array) -> Array:
    """Return the prices, with prices of unreachable columns set to the largest of the others.

    A column is unreachable if no row of the sample may have it. The price is 0 if all are.
    """
    known = np.isfinite(v) if v.dtype.kind == "f" else v < _UNREACHED
    if known.all():
        return v
    return np.where(known, v, v[known].max() if known.any() else 0)


def transform(
    problem: Problem,
    team: Team,
    monitor: Monitor,
    rows: Array,
    u: Array,
    counts: Counts | None,
    price: np.dtype[Any],
) -> Array:
    """Return ``v[j] = min over rows of (c[i, j] - u[i])``: prices from some rows' duals. P (m,).

    counts: None for a part that is in memory already, or whose ids are not the problem's.
    """
    source = problem.source
    m = problem.shape[1]
    v = np.full(m, np.inf if price.kind == "f" else _UNREACHED, price)
    if counts is not None:
        counts.rows += rows.size
        counts.pairs += rows.size * m
    there = prices_on_device(problem, rows, u, price)
    if there is not None:
        return there
    matrix = source.resident() if isinstance(source, Resident) else None
    sign = price.type(problem.sign)
    if matrix is not None:
        step = max(1, _AT_ONCE // max(1, m))
        for start in range(0, rows.size, step):
            part = slice(start, start + step)
            team.run(L.run_transform, matrix, rows[part], u[part].astype(price), sign, v)
            monitor.tick()
    else:
        for start, block in read_gently(problem, monitor, rows, counts):
            duals = u[start : start + len(block)].astype(price)
            team.run(L.run_transform, block, np.arange(len(block)), duals, sign, v)
    return v


def bounded_transform(
    problem: Problem, rows: Array, u: Array, team: Team, monitor: Monitor, counts: Counts
) -> tuple[Array, Array] | None:
    """Return ``transform`` computed as row minima of the transpose, and the start prices.

    Bounds then reduce the pairs evaluated. The start prices may be higher. None without bounds.
    """
    source = problem.source
    if not isinstance(source, Selectable) or isinstance(source, OnDevice):
        return None
    selected = source.select(rows, np.arange(problem.shape[1]))
    turned = None if selected is None else Problem(selected, problem.maximize).transpose()
    if turned is None:
        return None
    n_nearest = _RAISED if _coordinates(source) >= policy.RAISED_COORDINATES else 1
    engine = ListEngine(turned, team, monitor, np.dtype(np.float64), n_nearest, 0)
    if not engine.blocks.offset.size or engine.blocks.low.shape[0] > policy.FEW_COORDINATES:
        return None
    engine.v[:] = u
    engine.open_price[:] = u
    engine.fit_bounds()
    engine.evaluate(np.arange(turned.shape[0]))
    # Rows of the problem, each counted once: rows of the transposed engine are columns here.
    counts.rows += rows.size
    counts.pairs += engine.pairs_evaluated
    nearest = engine.list_minima()
    # With few columns of the transposed problem, lists of rows without allowed pairs are empty.
    return nearest, nearest if n_nearest == 1 else np.maximum(nearest, engine.list_maxima())


def _coordinates(source: CostSource) -> int:
    """Return the number of coordinates of a column; 0 where it has none."""
    terms = source.separable() if isinstance(source, Separable) else None
    return 0 if terms is None else int(terms.y.shape[0])


class LevelBounds:
    """Reporter of bounds of the whole problem, before lists exist, limited to a small share of the time.

    A level's optimum is none, since it has other rows and columns. But its duals give prices to all
    columns, any prices prove a bound, and where bounds of boxes exclude most pairs the rows' minima at
    these prices take O((n + m) log m), as in the final proof.

    Inactive without listeners. Its work is not counted, because counts must not depend on listeners or
    on the clock.
    """

    def __init__(self, problem: Problem, team: Team, monitor: Monitor) -> None:
        self.problem, self.team, self.monitor = problem, team, monitor
        self._spent, self._takes = 0.0, seconds_by_bounds(problem.source) / policy.PROOF_BOUNDS_GENEROUS

    @property
    def due(self) -> bool:
        """Whether there are listeners, and time for a bound."""
        if not self.monitor.has_listeners or not math.isfinite(self._takes):
            return False
        return self._spent + self._takes <= policy.LEVEL_BOUNDS_SHARE * self.monitor.seconds

    def tell(self, v: Array, since: float) -> None:
        """Prove a bound by the prices v (m,) of the whole, float64, and report it.

        since: when the computation of the prices began.
        """
        problem, monitor = self.problem, self.monitor
        found = by_bounds(
            problem.source, None, Prices(v), problem.maximize, self.team.n_threads, lambda _: monitor.tick()
        )
        if found is not None and not isinstance(found, Looked):
            known = Incumbent(problem, np.inf, active=False)
            known.add_duals(found[0].high, v)
            known.tell(monitor)
            self._takes = time.perf_counter() - since
        else:
            self._takes = math.inf  # bounds exclude too little
        self._spent += time.perf_counter() - since
