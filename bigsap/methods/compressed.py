"""Successive shortest paths on compressed rows: the step beyond Algorithm 1015.

Every row is kept as its k best columns and a threshold that stays valid because prices
only fall (``engine.lists.layout``); the exact search runs on lists and evaluates a row anew
only when it reaches the threshold (``engine.lists.search``). Phases and stopping rule are
those of A1015, section 3.4, with epsilon taken from the lists.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.dense.dense_engine import Engine
from bigsap.engine.lists.bounds import BLOCK, FEW_COORDINATES, MOST_COORDINATES
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.listed import Listed
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.engine.lists.snapshot import continued, kept
from bigsap.methods import list_warm, ssp
from bigsap.methods.bounds_choice import choose_bounds
from bigsap.methods.course import DONE, EVALUATE, MATCH, OPEN, REFRESH, Course, Setting, Solved
from bigsap.methods.first_prices import choose_first_prices, estimated_prices
from bigsap.methods.levels import Ladder
from bigsap.methods.outcome import Outcome
from bigsap.methods.parts import Counts, all_costs
from bigsap.methods.placement import list_engine_for
from bigsap.methods.strata import strata_of
from bigsap.methods.tight_start import TightStart, hand_over, tight_start
from bigsap.methods.warm import LOOSE_SHARE, LOOSE_SHARE_OF_PICKS, Warm
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.rows import Rows
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Array, Resident, Selectable, Separable

#: Entries a list starts with; with many rows, whose searches go further, some more.
LIST_SIZE = 128
LONG_LIST_SIZE = 160
#: The same where bounds make an evaluation cheap: shorter lists are evaluated more often, but scans
#: of them take less, and so does memory.
CLOSE_LIST_SIZE = 48
LONG_CLOSE_LIST_SIZE = 64
#: Costs whose bounds affine majorants make so tight; of few coordinates.
_CLOSE = ("square", "product")
#: However little memory there is: shorter lists are used up all the time.
LEAST_LIST_SIZE = 16
_LONG, _LONG_CLOSE = 10_000, 100_000
#: Eighths of the memory allowed that lists and minima may take in the end. Cached rows have two.
_POOL_PART = 5
#: First epsilon, in mean greedy gaps of the lists; its divisor from phase to phase; and
#: how many epsilons a row prices may still have moved in a phase for the next to be the
#: last. The same from prices of levels, which need moving less, but further where at all.
_FIRST, _GUIDED_FIRST = 1.0, 0.3
_DIVIDE = 5.0
_GUARD, _GUIDED_GUARD = 20.0, 60.0
#: From short lists, which show less of the gap: with 48 entries the first epsilon is 0.7 of
#: what it is with 160.
_SHORT_GUARD = 90.0
#: A phase of at most this many scans a row leaves prices from which the last is as short.
_EASY = 8.0
#: Lists that reach fewer first epsilons are exhausted within a phase or two; those of wide
#: problems, whose rows hardly compete, reach further with as many.
_NARROW, _NARROW_WIDE = 3.0, 1.5
#: Rows that tell so before all others are evaluated.
_PROBED = 64
#: How many epsilons the virtual columns begin below the price that parts the rows, so that the
#: real ones fill up first; and in the last phase, in epsilons of the one before it.
_BELOW = 20.0
_LAST_BELOW = 2.0
#: Events are postponed by so many epsilons in phases with epsilon > 0: more of them means
#: fewer evaluations and more scans, which large problems can afford.
SIGMA, _LONG_SIGMA = 20.0, 32.0


def solve_compressed(
    problem: Problem, setting: Setting, solved: Solved, snapshot: dict[str, Any] | None = None,
    phases: list[dict[str, Any]] | None = None, warm: Warm | None = None,
) -> None:  # fmt: skip
    """Solve by compressed rows into ``solved``.

    Separable sources are solved with their rows and columns in compact order, and the
    answer is put back. snapshot: continue from there, when not empty. phases: where the
    records of the phases are kept. warm: where to start, in place of a probe.
    Memory: about 12 bytes an entry of the lists, and fifteen vectors.

    Kept in checkpoints: each level that is solved, then everything from the first prices on.
    """
    if snapshot:
        rows, columns = snapshot["row_order"], snapshot["column_order"]
    else:
        rows, columns = _orders(problem)
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
    solved.outcome = Outcome(matching, v, violator, found.phases, found.seconds)


def _orders(problem: Problem) -> tuple[Array | None, Array | None]:
    source = problem.source
    if not isinstance(source, Separable) or not isinstance(source, Selectable):
        return None, None
    terms = source.separable()
    if terms is None or terms.y.shape[0] > MOST_COORDINATES or terms.y.shape[1] < 2 * BLOCK:
        return None, None
    columns = compact_order(terms.y.T)
    return compact_order(terms.x), columns


def _solve(
    problem: Problem, setting: Setting, solved: Solved, phases: list[dict[str, Any]],
    saved: dict[str, Any],
) -> Outcome:  # fmt: skip
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
    """v: P (n_columns,) or None for zeros. solution: (n_rows,) columns, where the estimator
    proved one. plain: one phase with epsilon 0 is to follow. guided: v is of levels."""

    v: Array | None
    solution: Array | None = None
    plain: bool = False
    guided: bool = False


def first_prices(
    problem: Problem, setting: Setting, solved: Solved, saved: dict[str, Any], *,
    own_estimate: bool = False,
) -> FirstPrices:  # fmt: skip
    """First prices as the setting says, or as a sample of the costs decides.

    ``solved`` hears which they are, and what they took. saved: a checkpoint within the levels,
    or empty. own_estimate: where levels do not pay, the method has an estimate of its own.
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
    if own_estimate and kind != "levels":
        solved.first_prices = "estimate"
        return FirstPrices(None)
    solved.first_prices = kind
    if kind == "estimate":
        return FirstPrices(*estimated_prices(
            problem, setting.team, monitor, setting.arithmetic.price, counts
        ))  # fmt: skip
    if kind == "none":
        return FirstPrices(None, plain=plain)
    if strata is None:
        # Of a continued solve the landmarks were counted before.
        strata = strata_of(problem, monitor, seed, Counts() if saved else counts)
    ladder = Ladder(
        problem, strata, setting.team, monitor, setting.arithmetic.price, seed, counts, saved
    )

    def solve_level(
        part: Problem, inner: Arithmetic, prices: Array, below: Monitor, seed: int
    ) -> tuple[Outcome, Array | None]:
        level = Solved()
        deeper = replace(
            setting,
            monitor=below,
            arithmetic=inner,
            epsilon=True,
            seed=seed,
            enough=None,
            hold=False,
        )
        engine, course = _begin(part, deeper, level, FirstPrices(prices, guided=True))
        try:
            outcome = run_course(engine, course, deeper, [], time.perf_counter())
        except ListsExhausted:
            counts.add(level.totals())
            return scan_whole_rows(part, deeper, prices)
        counts.add(level.totals())
        return outcome, engine.list_minima()

    def scan_whole_rows(
        part: Problem, deeper: Setting, prices: Array
    ) -> tuple[Outcome, Array | None]:
        costs = all_costs(part, deeper.monitor)
        dense = Problem(ArraySource(costs), part.maximize)
        price, grid = deeper.arithmetic.price, deeper.arithmetic.grid
        engine = Engine(dense, Rows.in_place(costs), deeper.team, deeper.monitor, price)
        warm = Warm(prices, guided=True)
        outcome = ssp.run(engine, epsilon=True, seed=deeper.seed, grid=grid, warm=warm)
        counts.scans += engine.rows_scanned
        counts.pairs += costs.size
        low: Array = (part.sign * costs.astype(price) - outcome.v).min(axis=1)
        return outcome, low

    def kept() -> dict[str, Any]:
        own = {
            "counts": vars(counts), "row_order": solved.rows, "column_order": solved.columns,
            "done": False,
        }  # fmt: skip
        below = ladder.kept()
        return {**own, **below} if below else {}

    with monitor.saving(kept):
        v = ladder.climb(solve_level)
    if v is None:
        solved.first_prices = "estimate" if own_estimate else "none"
    return FirstPrices(v, plain=plain and v is None, guided=v is not None)


def _begin(
    problem: Problem, setting: Setting, solved: Solved, first: FirstPrices
) -> tuple[ListEngine, Course]:
    """An engine with these prices, and the course before its first evaluation."""
    engine = _engine(problem, setting, solved)
    if first.v is not None:
        prices, grid = first.v - first.v.max(), setting.arithmetic.grid
        if grid and grid < 1:
            prices = np.floor(prices / grid) * grid
        engine.v[:] = prices
    if engine.n_virtual and first.guided:
        engine.lower_to_cap(engine.v)  # as a phase would: the last may begin at once
    engine.open_price[:] = engine.v
    engine.fit_bounds()
    choose_bounds(engine, engine.k, setting.seed, solved.counts)
    return engine, Course(_row_order(problem, setting), plain=first.plain, guided=first.guided)


def solve_tight(
    problem: Problem, setting: Setting, solved: Solved, start: TightStart,
    phases: list[dict[str, Any]], clock: float,
) -> Outcome:  # fmt: skip
    """Search for the few rows that tight pairs leave, if any."""
    solved.first_prices = "tight"
    if not start.left.size:
        seconds = {"start": time.perf_counter() - clock, "search": 0.0}
        return Outcome(start.matching.column_of_row, start.v, seconds=seconds)
    engine = _engine(problem, setting, solved)
    hand_over(start, engine, solved.counts)
    course = Course(start.left, plain=True, stage=MATCH)
    with setting.monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)


def _solve_warm(
    problem: Problem, setting: Setting, solved: Solved, warm: Warm, phases: list[dict[str, Any]]
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
    course = Course(
        _row_order(problem, setting), plain=not setting.epsilon, pairs=pairs,
        warm="prices" if warm.column_of_row is None else "pairs",
    )  # fmt: skip
    with setting.monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)


def _plain(problem: Problem) -> bool:
    """Whether one phase with epsilon 0 is best: where rows hardly compete for columns."""
    n, m = problem.shape
    return n >= 4 * m or 2 * n <= m


def _sigma(n: int) -> float:
    return SIGMA if n < _LONG else _LONG_SIGMA


def _row_order(problem: Problem, setting: Setting) -> Array:
    order: Array = np.random.default_rng(setting.seed).permutation(problem.shape[0])
    return order.astype(S.ID)


def _list_size(problem: Problem) -> int:
    """Entries that lists start with where memory does not limit them."""
    n, source = problem.shape[0], problem.source
    if isinstance(source, Separable) and not problem.maximize:
        terms = source.separable()
        if terms is not None and terms.kind in _CLOSE and terms.y.shape[0] <= FEW_COORDINATES:
            return CLOSE_LIST_SIZE if n < _LONG_CLOSE else LONG_CLOSE_LIST_SIZE
    return LIST_SIZE if n < _LONG else LONG_LIST_SIZE


def _engine(problem: Problem, setting: Setting, solved: Solved) -> ListEngine:
    n, m = problem.shape
    usual = _list_size(problem)
    if setting.memory is not None:
        # Half of it to begin with; lists that doubled have some room on top. Shorter ones are
        # evaluated more often.
        usual = max(LEAST_LIST_SIZE, min(usual, setting.memory // (2 * ENTRY_BYTES * max(1, n))))
    price, k = setting.arithmetic.price, setting.k or usual
    engine = list_engine_for(problem, setting.team, setting.monitor, price, k, setting.seed)
    if setting.memory is not None:
        engine.limit_memory(_POOL_PART * setting.memory // 8)
    if setting.exhausted:
        # Once more where whole rows would take three times as long to scan.
        engine.most_pairs = (setting.exhausted + (n != m)) * n * m
        engine.weighed = setting.impatient
    if setting.hold and (engine.from_fill or not engine.immediate):
        engine.listed = Listed(problem.source.dtype, problem.sign)
    engine.beside = setting.beside
    solved.engine = engine
    return engine


def kept_course(solved: Solved, engine: ListEngine, course: Course) -> dict[str, Any]:
    """All that continues the run; empty at a moment when nothing does."""
    own = {
        **course.kept(),
        "first_prices": solved.first_prices,
        "counts": vars(solved.counts),
        "row_order": solved.rows,
        "column_order": solved.columns,
        "done": course.stage == DONE,
    }
    if course.stage == DONE:
        matching = np.maximum(engine.column_of_row, S.FREE)
        return {**own, "counts": vars(solved.totals()), "column_of_row": matching, "v": engine.v}
    whole = kept(engine)
    return {**own, **whole} if whole else whole


def _continue(
    problem: Problem, setting: Setting, solved: Solved, snapshot: dict[str, Any],
    phases: list[dict[str, Any]],
) -> Outcome:  # fmt: skip
    """Go on from what was ``_kept``."""
    clock = time.perf_counter()
    course = Course.continued(snapshot)
    solved.first_prices = snapshot["first_prices"]
    solved.counts.add(Counts(**snapshot["counts"]))
    setting.monitor.progress.phase = len(course.phases)
    setting.monitor.reached(solved.counts.scans, solved.counts.rows)
    if course.stage == DONE:
        phases += course.phases
        return Outcome(snapshot["column_of_row"], snapshot["v"], phases=phases)
    engine = _engine(problem, setting, solved)
    continued(engine, snapshot)
    with setting.monitor.saving(lambda: kept_course(solved, engine, course)):
        return run_course(engine, course, setting, phases, clock)


def run_course(
    engine: ListEngine, course: Course, setting: Setting, phases: list[dict[str, Any]],
    clock: float,
) -> Outcome:  # fmt: skip
    """Evaluate all rows, then match them phase by phase, from where the course stands."""
    n, m = engine.problem.shape
    monitor = engine.monitor
    grid, enough = setting.arithmetic.grid, setting.enough
    phases += course.phases
    seconds = {"start": 0.0, "search": 0.0}
    if course.stage == EVALUATE:
        first = _GUIDED_FIRST if course.guided else _FIRST
        impatient = setting.impatient and n <= m and not course.plain and not course.warm
        if impatient:
            _probe_widths(engine, course.order[:_PROBED], first)
        monitor.save_phase()
        _evaluate(engine, course.order)
        engine.set_reach()
        course.stage = OPEN
        told = course.warm or (course.guided and not course.plain)
        epsilon = 0.0
        if not course.plain:
            epsilon = first * engine.greedy_gap(course.order) / max(1, n)
        # Prices of levels leave a wide problem's short epsilon to other causes.
        told_little = n == m or not course.guided
        reach = _NARROW if n == m else _NARROW_WIDE
        if impatient and told_little and _too_narrow(engine.list_widths(), epsilon, reach):
            raise ListsExhausted
        if not (told and _few_left(engine, course)):
            course.epsilon, course.lowest = epsilon, epsilon / (16 * max(1, n))
    seconds["start"] = time.perf_counter() - clock
    clock = time.perf_counter()
    while course.stage != DONE:
        if grid:
            course.epsilon = float(np.floor(course.epsilon / grid) * grid)
        record, feasible = _phase(engine, course)
        phases.append(record)
        seconds["search"] = time.perf_counter() - clock
        if not feasible:
            return Outcome(None, engine.v, engine.tree(), phases, seconds)
        last = enough is not None and enough()
        short = _SHORT_GUARD if engine.k < LIST_SIZE else _GUIDED_GUARD
        _next_epsilon(course, record, n, m, short if course.guided else _GUARD)
        if last:
            course.stage = DONE
    monitor.save_now()
    matching = np.maximum(engine.column_of_row, S.FREE)
    return Outcome(matching, engine.v, phases=phases, seconds=seconds)


def _too_narrow(widths: Array, epsilon: float, reach: float) -> bool:
    """Whether half of the lists reach so few epsilons beyond their best entry that a phase
    would exhaust them: ties, or prices that have far to go."""
    return float(np.median(widths)) <= reach * epsilon


def _probe_widths(engine: ListEngine, rows: Array, first: float) -> None:
    """Raise ``ListsExhausted`` where a few rows of a matrix show that all lists would be too
    narrow, of ties mostly: few rows hardly compete, so that epsilon seems smaller than it is."""
    source = engine.problem.source
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is None or engine.k >= engine.v.size:
        return
    reduced = engine.problem.sign * matrix[rows].astype(np.float64) - engine.v
    nearest = np.partition(reduced, engine.k, axis=1)
    low = nearest[:, : engine.k].min(axis=1)
    taken = np.zeros(engine.v.size, bool)
    gap = 0.0
    for costs, least in zip(reduced, low, strict=True):
        column = int(np.argmin(np.where(taken, np.inf, costs)))
        taken[column] = True
        gap += costs[column] - least
    widths = nearest[:, engine.k] - low
    if np.isfinite(gap) and _too_narrow(widths, first * gap / rows.size, _NARROW):
        raise ListsExhausted


def _few_left(engine: ListEngine, course: Course) -> bool:
    """Begin the last phase at once with what old prices, or those of levels, leave tight, unless
    many rows are loose: then phases from these prices are cheaper than plain searches."""
    n = engine.problem.shape[0]
    pairs = course.pairs if course.warm else np.full(n, S.FREE, S.ID)
    left = list_warm.adopt(engine, pairs, course.order)
    few = LOOSE_SHARE if course.warm == "pairs" else LOOSE_SHARE_OF_PICKS
    if not course.plain and left.size > few * n:
        return False
    course.scanned, course.evaluated = engine.rows_scanned, engine.rows_evaluated
    course.order, course.stage = left, MATCH
    course.clock = time.perf_counter()
    return True


def _next_epsilon(course: Course, record: dict[str, Any], n: int, m: int, guard: float) -> None:
    """End the phase of this record: epsilon and stage of the next. guard: see ``_GUARD``."""
    course.phases.append(record)
    course.stage = DONE if course.epsilon == 0 else OPEN
    drops, epsilon_drops = record["drops"], record["epsilon_drops"]
    few = drops <= guard * n * course.epsilon
    # The first phase of a tall problem is short.
    least = 0 if course.guided else 1 if n <= m else 2
    settled = len(course.phases) > least and drops > epsilon_drops and few
    easy = len(course.phases) > 2 and record["rows_scanned"] <= _EASY * n
    course.epsilon = (
        0.0 if settled or easy else min(course.epsilon / _DIVIDE, epsilon_drops / (8 * m))
    )
    if course.epsilon < course.lowest:
        course.epsilon = 0.0


def _evaluate(engine: ListEngine, rows: Array) -> None:
    """Evaluate these rows, or go on with an evaluation that is under way."""
    if engine.wave is None:
        engine.evaluate(rows)
    else:
        engine.finish_wave()


def _phase(engine: ListEngine, course: Course) -> tuple[dict[str, Any], bool]:
    """Match every row at one epsilon; the phase's record, and whether all could be."""
    if course.stage == OPEN:
        course.scanned, course.evaluated = engine.rows_scanned, engine.rows_evaluated
        course.spent, course.clock = 0.0, time.perf_counter()
        below = None
        if not course.plain:
            last = course.phases[-1]["epsilon"] if course.phases else 0.0
            below = _BELOW * course.epsilon if course.epsilon > 0 else _LAST_BELOW * last
        engine.begin_phase(below)
        course.stage = REFRESH
    engine.n_kept = engine.problem.shape[0] - course.order.size
    number, epsilon = len(course.phases), course.epsilon
    monitor = engine.monitor
    progress = monitor.progress
    progress.stage = "search"
    progress.phase = number + 1
    progress.epsilon = epsilon
    monitor.save_phase()
    monitor.tick(report=True)
    if course.stage == REFRESH:
        if number:
            if engine.wave is None:
                engine.fit_bounds()
            _evaluate(engine, engine.stale_rows())
        course.stage = MATCH
    postpone = _sigma(engine.problem.shape[0]) * epsilon
    feasible = engine.phase(
        course.order, backward=number % 2 == 1, epsilon=epsilon, postpone=postpone
    )
    f = engine.frontier
    n_drops = int(f.at.n_drops)
    return {
        "epsilon": epsilon,
        "rows_scanned": engine.rows_scanned - course.scanned,
        "rows_evaluated": engine.rows_evaluated - course.evaluated,
        "prices_moved": n_drops,
        "drops": float(f.at.drops),
        "epsilon_drops": epsilon * n_drops,
        "seconds": course.seconds,
    }, feasible
