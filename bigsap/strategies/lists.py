"""Successive shortest paths on compressed rows: an extension of Algorithm 1015.

Every row is stored as its k best columns and a threshold that stays valid because prices
only fall (``engine.lists.layout``). The exact search runs on lists and evaluates a row again
only when it reaches the threshold (``engine.lists.search``), phase by phase
(``list_phases``). This module chooses the first prices, starts a solve and continues it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.lists.bounds import BLOCK, MOST_COORDINATES
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.listed import Listed
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.engine.lists.snapshot import continued, kept
from bigsap.engine.rows.row_engine import Engine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.row_cache import Rows
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Selectable, Separable
from bigsap.sources.cuda.placed import many_coordinates_there
from bigsap.strategies import whole_rows
from bigsap.strategies.bounds_choice import choose_bounds
from bigsap.strategies.first_prices import choose_first_prices, estimated_prices
from bigsap.strategies.levels import Ladder
from bigsap.strategies.list_phases import run_course
from bigsap.strategies.list_run import DONE, MATCH, ListRun, ListSettings, ListSolve
from bigsap.strategies.list_sizes import list_size
from bigsap.strategies.outcome import Outcome
from bigsap.strategies.placement import list_engine_for
from bigsap.strategies.start import list_warm
from bigsap.strategies.start.samples import Counts, all_costs
from bigsap.strategies.start.strata import strata_of
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.tight_pairs import TightStart, hand_over, tight_start
from bigsap.types import Array

#: Eighths of the allowed memory that lists and minima may take in the end. Cached rows have two.
_POOL_PART = 5


def solve_compressed(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    snapshot: dict[str, Any] | None = None,
    phases: list[dict[str, Any]] | None = None,
    warm: Warm | None = None,
) -> None:
    """Solve by compressed rows into ``solved``.

    Separable sources are solved with their rows and columns in compact order, and the
    answer is put back into the original order. snapshot: continue from it, if not empty. phases:
    receives the records of the phases. warm: where to start, instead of a probe.
    Memory: about 12 bytes an entry of the lists, and fifteen vectors.

    Stored in checkpoints: each solved level, then the full state from the first prices on.
    """
    if snapshot:
        rows, columns = snapshot["row_order"], snapshot["column_order"]
    else:
        rows, columns = _orders(problem, setting.monitor)
    inner = problem
    if rows is not None and columns is not None and isinstance(problem.source, Selectable):
        ordered = problem.source.select(rows, columns)
        if ordered is not None:
            solved.rows, solved.columns = rows, columns
            inner = Problem(ordered, problem.maximize, problem.transposed)
    phases = [] if phases is None else phases
    if snapshot and "ladder_level" not in snapshot:
        found = _continue(inner, setting, solved, snapshot, phases)
    elif warm is not None and not snapshot:
        found = _solve_warm(inner, setting, solved, warm, phases)
    else:
        found = _solve(inner, setting, solved, phases, snapshot or {})
    violator, matching, v = found.violator, found.column_of_row, found.v
    if solved.rows is not None:
        violator = np.sort(solved.rows[violator])
    if matching is not None:
        matching, v = solved.restored(matching, v)
    solved.outcome = replace(found, column_of_row=matching, v=v, violator=violator)


def _orders(problem: Problem, monitor: Monitor) -> tuple[Array | None, Array | None]:
    source = problem.source
    if not isinstance(source, Separable) or not isinstance(source, Selectable):
        return None, None
    terms = source.separable()
    if terms is None or terms.y.shape[0] > MOST_COORDINATES or terms.y.shape[1] < 2 * BLOCK:
        return None, None
    columns = compact_order(terms.y.T, monitor.tick)
    return compact_order(terms.x, monitor.tick), columns


def _solve(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    phases: list[dict[str, Any]],
    saved: dict[str, Any],
) -> Outcome:
    """Solve from first prices. saved: a checkpoint within the levels, or empty."""
    clock = time.perf_counter()
    arithmetic, monitor = setting.arithmetic, setting.monitor
    if setting.epsilon and setting.start == "auto" and not saved:
        start = tight_start(problem, setting.team, monitor, arithmetic, setting.seed, solved.counts)
        if start is not None:
            return solve_tight(problem, setting, solved, start, phases, clock)
    first = first_prices(problem, setting, solved, saved)
    if first.solution is not None:
        assert first.v is not None
        seconds = {"start": time.perf_counter() - clock, "search": 0.0}
        return Outcome(first.solution, first.v, seconds=seconds)
    engine, course = _begin(problem, setting, solved, first)
    solved.guide = engine.v.copy() if first.guided else None
    monitor.reached(solved.counts.scans, solved.counts.rows)
    with monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)


@dataclass(frozen=True)
class FirstPrices:
    """First prices of a solve.

    v: P (n_columns,) or None for zeros. solution: (n_rows,) columns, where the estimator
    proved one. plain: one phase with epsilon 0 is to follow. guided: v comes from levels. far:
    outlying points, whose prices are kept.
    """

    v: Array | None
    solution: Array | None = None
    plain: bool = False
    guided: bool = False
    far: bool = False


def first_prices(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    saved: dict[str, Any],
    *,
    own: str | None = None,
) -> FirstPrices:
    """Return first prices as the setting says, or as a sample of the costs decides.

    ``solved`` records the choice and its work. saved: a checkpoint within the levels, or empty.
    own: where levels do not pay, the method has first prices of its own, and this is their name.
    """
    monitor, seed, counts = setting.monitor, setting.seed, solved.counts
    plain = not setting.epsilon or _plain(problem)
    kind, strata = setting.start, None
    if saved:
        kind = "levels"
        counts.add(Counts(**saved["counts"]))
    elif not setting.epsilon:
        kind = "none"
    elif kind == "auto":
        kind, strata = choose_first_prices(problem, monitor, seed, counts)
    if own is not None and kind != "levels":
        solved.first_prices = own
        return FirstPrices(None)
    solved.first_prices = kind
    if kind == "estimate":
        return FirstPrices(
            *estimated_prices(problem, setting.team, monitor, setting.arithmetic.price, counts)
        )
    if kind == "none":
        return FirstPrices(None, plain=plain)
    if strata is None:
        # For a continued solve the landmarks were counted before.
        strata = strata_of(problem, monitor, seed, Counts() if saved else counts)
    ladder = Ladder(problem, strata, setting.team, monitor, setting.arithmetic.price, seed, counts, saved)

    def solve_level(
        part: Problem, inner: Arithmetic, prices: Array, below: Monitor, seed: int
    ) -> tuple[Outcome, Array | None]:
        level = ListSolve()
        deeper = replace(
            setting,
            monitor=below,
            arithmetic=inner,
            epsilon=True,
            seed=seed,
            enough=None,
            hold=False,
            on_trial=False,
        )
        engine, course = _begin(part, deeper, level, FirstPrices(prices, guided=True))
        try:
            outcome = run_course(engine, course, deeper, [], time.perf_counter())
        except ListsExhausted:
            counts.add(level.totals())
            return scan_whole_rows(part, deeper, prices)
        counts.add(level.totals())
        return outcome, engine.row_duals()

    def scan_whole_rows(part: Problem, deeper: ListSettings, prices: Array) -> tuple[Outcome, Array | None]:
        costs = all_costs(part, deeper.monitor)
        dense = Problem(ArraySource(costs), part.maximize)
        price, grid = deeper.arithmetic.price, deeper.arithmetic.grid
        engine = Engine(dense, Rows.in_place(costs), deeper.team, deeper.monitor, price)
        warm = Warm(prices, guided=True)
        outcome = whole_rows.run(engine, epsilon=True, seed=deeper.seed, grid=grid, warm=warm)
        counts.scans += engine.rows_scanned
        counts.pairs += costs.size
        low: Array = (part.sign * costs.astype(price) - outcome.v).min(axis=1)
        return outcome, low

    def kept() -> dict[str, Any]:
        own = {
            "counts": vars(counts),
            "row_order": solved.rows,
            "column_order": solved.columns,
            "done": False,
        }
        below = ladder.kept()
        return {**own, **below} if below else {}

    with monitor.saving(kept):
        v = ladder.climb(solve_level)
    if v is None:
        solved.first_prices = own or "none"
    far = v is not None and ladder.far is not None
    return FirstPrices(v, plain=plain and v is None, guided=v is not None, far=far)


def _begin(
    problem: Problem, setting: ListSettings, solved: ListSolve, first: FirstPrices
) -> tuple[ListEngine, ListRun]:
    """Return an engine with these prices, and the run before its first evaluation."""
    engine = _engine(problem, setting, solved)
    if first.v is not None:
        # Prices of outlying columns are relative to the others' largest price, which is 0.
        top = first.v.dtype.type(0) if first.far else first.v.max()
        prices, grid = first.v - top, setting.arithmetic.grid
        if grid and grid < 1:
            prices = np.floor(prices / grid) * grid
        engine.v[:] = prices
    if engine.n_virtual and first.guided:
        engine.lower_to_cap(engine.v)  # as a phase would: the last may begin at once
    engine.open_price[:] = engine.v
    engine.fit_bounds()
    choose_bounds(engine, engine.k, setting.seed, solved.counts)
    return engine, ListRun(_row_order(problem, setting), plain=first.plain, guided=first.guided)


def solve_tight(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    start: TightStart,
    phases: list[dict[str, Any]],
    clock: float,
) -> Outcome:
    """Search for the few rows that tight pairs leave, if any."""
    solved.first_prices = "tight"
    if not start.left.size:
        seconds = {"start": time.perf_counter() - clock, "search": 0.0}
        return Outcome(start.matching.column_of_row, start.v, seconds=seconds)
    engine = _engine(problem, setting, solved)
    hand_over(start, engine, solved.counts)
    course = ListRun(start.left, plain=True, stage=MATCH)
    with setting.monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)


def _solve_warm(
    problem: Problem, setting: ListSettings, solved: ListSolve, warm: Warm, phases: list[dict[str, Any]]
) -> Outcome:
    """Solve from old prices."""
    clock = time.perf_counter()
    solved.first_prices = "warm"
    engine = _engine(problem, setting, solved)
    grid = setting.arithmetic.grid
    pairs = list_warm.begin(engine, warm, solved.rows, solved.columns, grid)
    engine.open_price[:] = engine.v
    engine.fit_bounds()
    choose_bounds(engine, engine.k, setting.seed, solved.counts)
    course = ListRun(
        _row_order(problem, setting),
        plain=not setting.epsilon,
        pairs=pairs,
        warm="prices" if warm.column_of_row is None else "pairs",
    )
    with setting.monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)


def _plain(problem: Problem) -> bool:
    """Return whether one phase with epsilon 0 is best: where rows hardly compete for columns."""
    n, m = problem.shape
    return n >= policy.TALL_ON_LISTS * m or policy.SKINNY * n <= m


def _row_order(problem: Problem, setting: ListSettings) -> Array:
    order: Array = np.random.default_rng(setting.seed).permutation(problem.shape[0])
    return order.astype(S.ID)


def _engine(problem: Problem, setting: ListSettings, solved: ListSolve) -> ListEngine:
    n, m = problem.shape
    price, k = setting.arithmetic.price, setting.k or list_size(problem, setting.memory, many=setting.many)
    engine = list_engine_for(problem, setting.team, setting.monitor, price, k, setting.seed)
    if setting.memory is not None:
        engine.limit_memory(_POOL_PART * setting.memory // 8)
    if setting.exhausted:
        more = policy.EXHAUSTED_MORE if n != m else 0
        engine.most_pairs = (setting.exhausted + more) * n * m
        engine.weighed = setting.impatient
    if setting.hold and (engine.from_fill or not engine.immediate):
        engine.listed = Listed(problem.source.dtype, problem.sign)
    engine.offload = setting.offload
    if setting.many and n >= policy.REFRESHED_ROWS:
        there = many_coordinates_there(problem.source)
        engine.refresh_scans = policy.DEVICE_REFRESH_SCANS if there else policy.REFRESH_SCANS
    if engine.products is not None:
        engine.products.keep(setting.products)
    solved.engine = engine
    return engine


def kept_course(solved: ListSolve, engine: ListEngine, course: ListRun) -> dict[str, Any]:
    """Return the state to continue the run from; empty when the state is not consistent."""
    own = {
        **course.kept(),
        "first_prices": solved.first_prices,
        "counts": vars(solved.counts),
        "row_order": solved.rows,
        "column_order": solved.columns,
        "guide": solved.guide,
        "done": course.stage == DONE,
    }
    if course.stage == DONE:
        matching = np.maximum(engine.column_of_row, S.FREE)
        return {**own, "counts": vars(solved.totals()), "column_of_row": matching, "v": engine.v}
    whole = kept(engine)
    return {**own, **whole} if whole else whole


def _continue(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    snapshot: dict[str, Any],
    phases: list[dict[str, Any]],
) -> Outcome:
    """Continue from the state saved by ``kept_course``."""
    clock = time.perf_counter()
    course = ListRun.continued(snapshot)
    solved.first_prices, solved.guide = snapshot["first_prices"], snapshot.get("guide")
    solved.counts.add(Counts(**snapshot["counts"]))
    setting.monitor.progress.phase = len(course.phases)
    setting.monitor.reached(solved.counts.scans, solved.counts.rows)
    if course.stage == DONE:
        phases += course.phases
        return Outcome(snapshot["column_of_row"], snapshot["v"], phases=phases, hidden=course.hidden)
    engine = _engine(problem, setting, solved)
    continued(engine, snapshot)
    with setting.monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)
