"""Successive shortest paths on compressed rows: the step beyond Algorithm 1015.

Every row is kept as its k best columns and a threshold that stays valid because prices
only fall (``engine.lists``); the exact search runs on lists and evaluates a row anew
only when it reaches the threshold (``engine.list_search``). Phases and stopping rule are
those of A1015, section 3.4, with epsilon taken from the lists.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bigsap.engine import frontier as F
from bigsap.engine import state as S
from bigsap.engine.bounds import BLOCK, GROUP, MOST_COORDINATES
from bigsap.engine.compressed import ListEngine
from bigsap.engine.gpu_lists import list_engine_for
from bigsap.engine.held import Listed
from bigsap.engine.list_snapshot import continued, kept
from bigsap.engine.lists import ENTRY_BYTES
from bigsap.engine.ordering import compact_order
from bigsap.engine.precision import Arithmetic
from bigsap.methods import list_warm
from bigsap.methods.coarse import SHARE, Counts, coarse_prices, estimated_prices, probe
from bigsap.methods.course import DONE, MATCH, OPEN, REFRESH, SURVEY, Course, Setting, Solved
from bigsap.methods.locality import settle
from bigsap.methods.outcome import Outcome
from bigsap.methods.tight import TightStart, hand_over, tight_start
from bigsap.methods.warm import LOOSE_SHARE, LOOSE_SHARE_OF_PICKS, Warm
from bigsap.monitor import Part
from bigsap.problem import Problem
from bigsap.sources.base import Array, Selectable, Separable

#: Entries a list starts with; with many rows, whose searches go further, some more.
LIST_SIZE = 128
LONG_LIST_SIZE = 160
#: However little memory there is: shorter lists are used up all the time.
LEAST_LIST_SIZE = 16
_LONG = 10_000
#: Eighths of the memory allowed that lists and minima may take in the end. Cached rows have two.
_POOL_PART = 5
#: First epsilon, in mean greedy gaps of the lists; its divisor from phase to phase; and
#: how many epsilons a row prices may still have moved in a phase for the next to be the
#: last.
_FIRST = 1.0
_DIVIDE = 5.0
_GUARD = 20.0
#: A phase of at most this many scans a row leaves prices from which the last is as short.
_EASY = 8.0
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
    Memory: about 12 k bytes a row and fifteen vectors.

    Kept in checkpoints: everything from the first prices on. Until these are known (some
    n/2 evaluations at most) a solve that is continued begins anew.
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
    if snapshot:
        found = _continue(inner, setting, solved, snapshot, phases)
    elif warm is not None:
        found = _solve_warm(inner, setting, solved, warm, phases)
    else:
        found = _solve(inner, setting, solved, phases, top=True)
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
    columns = compact_order(np.ascontiguousarray(terms.y.T), BLOCK, GROUP)
    return compact_order(np.ascontiguousarray(terms.x), BLOCK, GROUP), columns


def _solve(
    problem: Problem, setting: Setting, solved: Solved, phases: list[dict[str, Any]], *,
    top: bool = False,
) -> Outcome:  # fmt: skip
    """Solve one level; only the topmost is kept in checkpoints."""
    clock = time.perf_counter()
    counts, arithmetic, monitor = solved.counts, setting.arithmetic, setting.monitor
    epsilon, seed = setting.epsilon, setting.seed
    if top and epsilon:
        start = tight_start(problem, setting.team, monitor, arithmetic, seed, counts)
        if start is not None:
            return _solve_tight(problem, setting, solved, start, phases, clock)
    solved.first_prices = probe(problem, monitor, seed, counts) if epsilon else "none"
    prices, plain = None, not epsilon or _plain(problem)
    if solved.first_prices == "estimate":
        prices, solution, plain = estimated_prices(
            problem, setting.team, monitor, arithmetic.price, counts
        )
        if solution is not None:
            seconds = {"start": time.perf_counter() - clock, "search": 0.0}
            return Outcome(solution, prices, seconds=seconds)
    elif solved.first_prices == "coarse":
        below = Part(monitor, problem.shape[0] // SHARE)

        def solve_part(part: Problem, inner: Arithmetic) -> tuple[Outcome, Array | None]:
            level, deeper = (
                Solved(),
                replace(
                    setting, monitor=below, arithmetic=inner, epsilon=True, seed=seed + 1,
                    enough=None, hold=False,
                ),
            )  # fmt: skip
            outcome = _solve(part, deeper, level, [])
            counts.add(level.totals())
            # Without an engine the estimator solved the part, but not the whole's probe.
            return outcome, None if level.engine is None else level.engine.list_minima()

        prices = coarse_prices(
            problem, setting.team, below, arithmetic.price, seed, counts, solve_part
        )
        below.close()
    engine = _engine(problem, setting, solved)
    if prices is not None:
        prices = prices - prices.max()
        if arithmetic.grid and arithmetic.grid < 1:
            prices = np.floor(prices / arithmetic.grid) * arithmetic.grid
        engine.v[:] = prices
    engine.open_price[:] = engine.v
    engine.fit_bounds()
    settle(engine, engine.k, setting.seed, solved.counts)
    course = Course(_row_order(problem, setting), plain)
    if not top:
        return _run(engine, course, setting, phases, clock)
    monitor.reached(counts.scans, counts.rows)
    with monitor.saving(lambda: _kept(solved, engine, course)):
        return _run(engine, course, setting, phases, clock)


def _solve_tight(
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
    course = Course(start.left, True, stage=MATCH)
    with setting.monitor.saving(lambda: _kept(solved, engine, course)):
        return _run(engine, course, setting, phases, clock)


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
    settle(engine, engine.k, setting.seed, solved.counts)
    course = Course(
        _row_order(problem, setting), not setting.epsilon, pairs,
        "prices" if warm.column_of_row is None else "pairs",
    )  # fmt: skip
    with setting.monitor.saving(lambda: _kept(solved, engine, course)):
        return _run(engine, course, setting, phases, clock)


def _plain(problem: Problem) -> bool:
    """Whether one phase with epsilon 0 is best: where rows hardly compete for columns."""
    n, m = problem.shape
    return n >= 4 * m or 2 * n <= m


def _sigma(n: int) -> float:
    return SIGMA if n < _LONG else _LONG_SIGMA


def _row_order(problem: Problem, setting: Setting) -> Array:
    order: Array = np.random.default_rng(setting.seed).permutation(problem.shape[0])
    return order.astype(S.ID)


def _engine(problem: Problem, setting: Setting, solved: Solved) -> ListEngine:
    n = problem.shape[0]
    usual = LIST_SIZE if n < _LONG else LONG_LIST_SIZE
    if setting.memory is not None:
        # Half of it to begin with; lists that doubled have some room on top. Shorter ones are
        # evaluated more often.
        usual = max(LEAST_LIST_SIZE, min(usual, setting.memory // (2 * ENTRY_BYTES * max(1, n))))
    price, k = setting.arithmetic.price, setting.k or usual
    engine = list_engine_for(problem, setting.team, setting.monitor, price, k, setting.seed)
    if setting.memory is not None:
        engine.limit_memory(_POOL_PART * setting.memory // 8)
    if setting.hold and (engine.from_fill or not engine.immediate):
        engine.listed = Listed(problem.source.dtype, problem.sign)
    solved.engine = engine
    return engine


def _kept(solved: Solved, engine: ListEngine, course: Course) -> dict[str, Any]:
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
    with setting.monitor.saving(lambda: _kept(solved, engine, course)):
        return _run(engine, course, setting, phases, clock)


def _run(
    engine: ListEngine, course: Course, setting: Setting, phases: list[dict[str, Any]],
    clock: float,
) -> Outcome:  # fmt: skip
    """Evaluate all rows, then match them phase by phase, from where the course stands."""
    n, m = engine.problem.shape
    monitor = engine.monitor
    grid, enough = setting.arithmetic.grid, setting.enough
    phases += course.phases
    seconds = {"start": 0.0, "search": 0.0}
    if course.stage == SURVEY:
        monitor.save_phase()
        _evaluate(engine, course.order)
        engine.set_reach()
        course.stage = OPEN
        if not (course.warm and _few_left(engine, course)) and not course.plain:
            course.epsilon = _FIRST * engine.greedy_gap(course.order) / max(1, n)
            course.lowest = course.epsilon / (16 * max(1, n))
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
        _next_epsilon(course, record, n, m)
        if last:
            course.stage = DONE
    monitor.save_now()
    matching = np.maximum(engine.column_of_row, S.FREE)
    return Outcome(matching, engine.v, phases=phases, seconds=seconds)


def _few_left(engine: ListEngine, course: Course) -> bool:
    """Begin the last phase at once with what the warm start leaves tight, unless many rows
    are loose: then phases from the old prices are cheaper than plain searches from them."""
    n = engine.problem.shape[0]
    left = list_warm.adopt(engine, course.pairs, course.order)
    few = LOOSE_SHARE if course.warm == "pairs" else LOOSE_SHARE_OF_PICKS
    if not course.plain and left.size > few * n:
        return False
    course.scanned, course.evaluated = engine.rows_scanned, engine.rows_evaluated
    course.order, course.stage = left, MATCH
    course.clock = time.perf_counter()
    return True


def _next_epsilon(course: Course, record: dict[str, Any], n: int, m: int) -> None:
    """End the phase of this record: epsilon and stage of the next."""
    course.phases.append(record)
    course.stage = DONE if course.epsilon == 0 else OPEN
    drops, epsilon_drops = record["drops"], record["epsilon_drops"]
    few = drops <= _GUARD * n * course.epsilon
    least = 1 if n <= m else 2  # the first phase of a tall problem is short
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
    n_drops = int(f.words[F.N_DROPS])
    return {
        "epsilon": epsilon,
        "rows_scanned": engine.rows_scanned - course.scanned,
        "rows_evaluated": engine.rows_evaluated - course.evaluated,
        "prices_moved": n_drops,
        "drops": float(f.values[F.DROPS]),
        "epsilon_drops": epsilon * n_drops,
        "seconds": course.seconds,
    }, feasible
