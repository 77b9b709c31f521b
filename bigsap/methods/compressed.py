"""Successive shortest paths on compressed rows: the step beyond Algorithm 1015.

Every row is kept as its k best columns and a threshold that stays valid because prices
only fall (``engine.lists``); the exact search runs on lists and evaluates a row anew
only when it reaches the threshold (``engine.list_search``). Phases and stopping rule are
those of A1015, section 3.4, with epsilon taken from the lists.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap.engine import list_search as F
from bigsap.engine import state as S
from bigsap.engine.bounds import BLOCK, MOST_COORDINATES
from bigsap.engine.compressed import ListEngine
from bigsap.engine.cpu import Engine
from bigsap.engine.ordering import compact_order
from bigsap.engine.precision import Arithmetic, choose
from bigsap.engine.team import Team
from bigsap.methods import ssp
from bigsap.methods.coarse import SHARE, Counts, bounded_transform, part_of, probe, transform
from bigsap.methods.outcome import Outcome
from bigsap.methods.start import estimate
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.rows import RowCache, Rows
from bigsap.sources.arrays import ArraySource
from bigsap.sources.base import Array, Resident, Selectable, Separable

#: Entries a list starts with.
LIST_SIZE = 128
#: Sub-problems of at most this many rows are solved densely.
_DENSE = 2500
#: First epsilon, in mean greedy gaps of the lists; its divisor from phase to phase; and
#: how many epsilons a row prices may still have moved in a phase for the next to be the
#: last. Events are postponed by SIGMA epsilons in phases with epsilon > 0.
_FIRST = 3.0
_DIVIDE = 5.0
_GUARD = 20.0
SIGMA = 8.0


class Solved:
    """A solve by compressed rows, while it runs and after.

    outcome: set at the end. engine: of the whole problem, once it exists. rows,
    columns: the order in which that engine has them, None for the problem's own.
    """

    outcome: Outcome

    def __init__(self) -> None:
        self.engine: ListEngine | None = None
        self.rows: Array | None = None
        self.columns: Array | None = None
        self.counts = Counts()
        self.first_prices = "none"

    def known(self) -> tuple[Array, Array] | None:
        """Matching (complete or not) and prices of the moment; None before there are any."""
        engine = self.engine
        if engine is None:
            return None
        return self.restored(np.maximum(engine.column_of_row, S.FREE), engine.v)

    def restored(self, matching: Array, v: Array) -> tuple[Array, Array]:
        """Matching and prices in the problem's own order."""
        if self.rows is None or self.columns is None:
            return matching, v
        prices = np.empty_like(v)
        prices[self.columns] = v
        original = np.full(self.rows.size, S.FREE, np.intp)
        original[self.rows] = np.where(matching >= 0, self.columns[np.maximum(matching, 0)], S.FREE)
        return original, prices


def solve_compressed(
    problem: Problem, team: Team, monitor: Monitor, arithmetic: Arithmetic, solved: Solved, *,
    epsilon: bool, seed: int, k: int | None = None,
) -> None:  # fmt: skip
    """Solve by compressed rows into ``solved``; ``epsilon=False``: one phase from prices 0.

    Separable sources are solved with their rows and columns in compact order, and the
    answer is put back. Memory: about 12 k bytes a row and fifteen vectors.
    """
    rows, columns = _orders(problem)
    inner = problem
    if rows is not None and columns is not None and isinstance(problem.source, Selectable):
        ordered = problem.source.select(rows, columns)
        if ordered is not None:
            solved.rows, solved.columns = rows, columns
            inner = Problem(ordered, problem.maximize, problem.transposed)
    found = _solve(inner, team, monitor, arithmetic, epsilon, seed, k, solved)
    violator, matching, v = found.violator, found.column_of_row, found.v
    if solved.rows is not None:
        violator = np.sort(solved.rows[violator])
    if matching is not None:
        matching, v = solved.restored(matching, v)
    solved.outcome = Outcome(matching, v, violator, found.phases, found.seconds)


def _orders(problem: Problem) -> tuple[Array | None, Array | None]:
    source = problem.source
    if not isinstance(source, Separable) or not isinstance(source, Selectable):
        return None, None
    terms = source.separable()
    if terms is None or terms.y.shape[0] > MOST_COORDINATES or terms.y.shape[1] < 2 * BLOCK:
        return None, None
    columns = compact_order(np.ascontiguousarray(terms.y.T), BLOCK)
    return compact_order(np.ascontiguousarray(terms.x), BLOCK), columns


def _solve(
    problem: Problem, team: Team, monitor: Monitor, arithmetic: Arithmetic, epsilon: bool,
    seed: int, k: int | None, solved: Solved,
) -> Outcome:  # fmt: skip
    clock = time.perf_counter()
    counts = solved.counts
    n, m = problem.shape
    first = probe(problem, monitor, seed, counts) if epsilon else "none"
    solved.first_prices = first
    prices, plain = None, not epsilon or n != m
    if first == "estimate":
        prices, solution, plain = _estimated(problem, team, monitor, arithmetic, counts)
        if solution is not None:
            seconds = {"start": time.perf_counter() - clock, "search": 0.0}
            return Outcome(solution, prices, seconds=seconds)
    elif first == "coarse":
        prices = _coarse(problem, team, monitor, arithmetic, seed, k, counts)
    engine = ListEngine(problem, team, monitor, arithmetic.price, k or LIST_SIZE, seed)
    solved.engine = engine
    if prices is not None:
        prices = prices - prices.max()
        if arithmetic.grid and arithmetic.grid < 1:
            prices = np.floor(prices / arithmetic.grid) * arithmetic.grid
        engine.v[:] = prices
    try:
        return _phases(engine, plain=plain, seed=seed, grid=arithmetic.grid, clock=clock)
    finally:
        counts.rows += engine.rows_evaluated
        counts.pairs += engine.pairs_evaluated
        counts.scans += engine.rows_scanned


def _estimated(
    problem: Problem, team: Team, monitor: Monitor, arithmetic: Arithmetic, counts: Counts
) -> tuple[Array, Array | None, bool]:
    """Prices of A1015's estimator, an assignment if it proved one optimal, and whether
    one plain phase is to follow."""
    matrix = problem.source.resident() if isinstance(problem.source, Resident) else None
    if matrix is not None:
        rows = Rows.in_place(matrix)
    else:
        budget = 64 * problem.shape[1] * problem.source.dtype.itemsize
        rows = Rows.cached(problem.shape, problem.source.dtype, RowCache(), budget)
    engine = Engine(problem, rows, team, monitor, arithmetic.price)
    start = estimate(engine)
    visits = rows.hits + rows.misses
    counts.rows += visits
    counts.pairs += visits * problem.shape[1]
    return engine.state.v.copy(), start.solution, start.epsilon == 0


def _coarse(
    problem: Problem, team: Team, monitor: Monitor, arithmetic: Arithmetic, seed: int,
    k: int | None, counts: Counts,
) -> Array | None:  # fmt: skip
    """Prices from an exact sub-problem on a quarter of the rows and columns."""
    n, m = problem.shape
    generator = np.random.default_rng([seed, n])
    rows = np.sort(generator.permutation(n)[: n // SHARE])
    columns = np.sort(generator.permutation(m)[: n // SHARE])
    part = part_of(problem, rows, columns, monitor, counts)
    inner = choose(part, large=arithmetic.price.kind == "i")
    if rows.size <= _DENSE:
        costs = np.empty(part.shape, part.source.dtype)
        part.source.read(np.arange(rows.size), slice(0, columns.size), costs)
        dense = Problem(ArraySource(costs), problem.maximize)
        engine = Engine(dense, Rows.in_place(costs), team, monitor, inner.price)
        outcome = ssp.run(engine, epsilon=True, seed=seed, grid=inner.grid)
        signed = problem.sign * costs.astype(inner.price) - outcome.v
        u = signed.min(axis=1)
    else:
        level = Solved()
        outcome = _solve(part, team, monitor, inner, True, seed + 1, k, level)
        counts.add(level.counts)
        if level.engine is None:
            return None  # the estimator solved the part, but not the whole's probe
        u = level.engine.list_minima()
    if outcome.violator.size or not np.isfinite(u).all():
        return None
    v = bounded_transform(problem, rows, u, team, monitor, counts)
    return transform(problem, team, monitor, rows, u, counts, arithmetic.price) if v is None else v


def _phases(engine: ListEngine, *, plain: bool, seed: int, grid: float, clock: float) -> Outcome:
    """Evaluate all rows, then match them phase by phase."""
    n, m = engine.problem.shape
    monitor = engine.monitor
    order = np.random.default_rng(seed).permutation(n).astype(S.ID)
    engine.open_price[:] = engine.v
    engine.fit_bounds()
    engine.evaluate(order)
    engine.set_reach()
    epsilon = 0.0 if plain else _FIRST * engine.greedy_gap(order) / max(1, n)
    lowest = epsilon / (16 * max(1, n))
    seconds = {"start": time.perf_counter() - clock, "search": 0.0}
    phases: list[dict[str, Any]] = []
    clock = time.perf_counter()
    while True:
        if grid:
            epsilon = float(np.floor(epsilon / grid) * grid)
        record, feasible = _phase(engine, order, epsilon, len(phases))
        phases.append(record)
        seconds["search"] = time.perf_counter() - clock
        if not feasible:
            return Outcome(None, engine.v, engine.tree(), phases, seconds)
        if epsilon == 0:
            matching = np.maximum(engine.column_of_row, S.FREE)
            return Outcome(matching, engine.v, phases=phases, seconds=seconds)
        monitor.tick()
        drops, epsilon_drops = record["drops"], record["epsilon_drops"]
        settled = len(phases) > 1 and drops > epsilon_drops and drops <= _GUARD * n * epsilon
        epsilon = 0.0 if settled else min(epsilon / _DIVIDE, epsilon_drops / (8 * m))
        if epsilon < lowest:
            epsilon = 0.0


def _phase(
    engine: ListEngine, order: Array, epsilon: float, number: int
) -> tuple[dict[str, Any], bool]:
    """Match every row at one epsilon; the phase's record, and whether all could be."""
    clock = time.perf_counter()
    progress = engine.monitor.progress
    progress.stage = "search"
    progress.phase += 1
    progress.epsilon = epsilon
    engine.monitor.tick(report=True)
    scans, evaluations = engine.rows_scanned, engine.rows_evaluated
    engine.begin_phase()
    if number:
        engine.fit_bounds()
        engine.evaluate(engine.stale_rows())
    feasible = engine.phase(
        order, backward=number % 2 == 1, epsilon=epsilon, postpone=SIGMA * epsilon, cut=0
    )
    f = engine.frontier
    n_drops = int(f.words[F.N_DROPS])
    return {
        "epsilon": epsilon,
        "rows_scanned": engine.rows_scanned - scans,
        "rows_evaluated": engine.rows_evaluated - evaluations,
        "prices_moved": n_drops,
        "drops": float(f.values[F.DROPS]),
        "epsilon_drops": epsilon * n_drops,
        "seconds": time.perf_counter() - clock,
    }, feasible
