"""Phases on compressed rows: all rows are evaluated, then matched at falling epsilons.

Phases and stopping rule are those of A1015, section 3.4, with epsilon taken from the lists.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.sources.base import Resident
from bigsap.strategies.list_run import DONE, EVALUATE, MATCH, OPEN, REFRESH, ListRun, ListSettings
from bigsap.strategies.outcome import Outcome, hidden_by_others
from bigsap.strategies.start import list_warm
from bigsap.types import Array

#: First epsilon, in mean greedy gaps of the lists; its divisor from phase to phase; and the largest price
#: change of a phase, in epsilons per row, after which the next phase is the last. The same from prices of
#: levels, which usually change less, but where they change, change further.
_FIRST, _GUIDED_FIRST = 1.0, 0.3
_DIVIDE = 5.0
_GUARD, _GUIDED_GUARD = 20.0, 60.0
#: For short lists, which show less of the gap: with 48 entries the first epsilon is 0.7 of that with 160.
_SHORT_GUARD = 90.0
#: The last phase follows a phase of at most _EASY scans a row, because it will be as short. Exception: paths
#: have lowered prices by less than _EASY_DROPS of what epsilon has. Then the phase was far too coarse for
#: most rows, as where costs pile up at the smallest (fourth powers of uniform costs).
_EASY, _EASY_DROPS = 8.0, 0.5
#: How many epsilons the virtual columns begin below the price that separates assigned from unassigned rows,
#: so that the real ones fill up first; and in the last phase, in epsilons of the one before it.
_BELOW = 20.0
_LAST_BELOW = 2.0
#: Events are postponed by this many epsilons in phases with epsilon > 0: larger values mean fewer
#: evaluations and more scans, which large problems can afford.
SIGMA, _LONG_SIGMA = 20.0, 32.0


def run_course(
    engine: ListEngine, course: ListRun, setting: ListSettings, phases: list[dict[str, Any]], clock: float
) -> Outcome:
    """Evaluate all rows, then match them phase by phase, from the run's current stage."""
    n, m = engine.problem.shape
    monitor = engine.monitor
    grid, enough = setting.arithmetic.grid, setting.enough
    phases += course.phases
    seconds = {"start": 0.0, "search": 0.0}
    if course.stage == EVALUATE:
        first = _GUIDED_FIRST if course.guided else _FIRST
        impatient = setting.impatient and n <= m and not course.plain and not course.warm
        if impatient:
            _probe_widths(engine, course.order[: policy.NARROW_SAMPLE], first)
        monitor.save_phase()
        _evaluate(engine, course.order)
        engine.set_reach()
        course.stage = OPEN
        has_prices = course.warm or (course.guided and not course.plain)
        epsilon = 0.0
        if not course.plain:
            order, forced = _outliers_first(course.order, engine)
            epsilon = first * engine.greedy_gap(order, forced) / max(1, n)
        course.sigma = _sigma(n)
        # Not where a device makes waves: rows that a search asks for take the host hundreds of times as long.
        if engine.refresh_scans and not engine.waves_are_cheap and epsilon > 0 and not has_prices:
            reach = policy.REACHES * _usual(engine.list_widths(), engine.infinity)
            course.sigma = min(course.sigma, reach / epsilon)
        # With prices of levels, a wide problem's small epsilon has other causes than narrow lists.
        epsilon_tells = n == m or not course.guided
        reach = policy.NARROW if n == m else policy.NARROW_RECTANGULAR
        if impatient and epsilon_tells and _too_narrow(engine.list_widths(), epsilon, reach):
            raise ListsExhausted
        if setting.on_trial and not course.warm and _uneven(engine.list_widths(), engine.infinity):
            raise ListsExhausted
        if not (has_prices and _few_left(engine, course)):
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
        short = _SHORT_GUARD if engine.k < policy.LIST_SIZE else _GUIDED_GUARD
        _next_epsilon(course, record, n, m, short if course.guided else _GUARD)
        if last:
            course.stage = DONE
    matching = np.maximum(engine.column_of_row, S.FREE)
    course.hidden += hidden_by_others(engine.problem, matching, engine.lists.reference)
    monitor.save_now()
    return Outcome(matching, engine.v, phases=phases, seconds=seconds, hidden=course.hidden)


def _outliers_first(order: Array, engine: ListEngine) -> tuple[Array, Array]:
    """Return the order without forced rows, rows of an unusual size first, and the forced rows.

    An unusual row's reduced costs for another column carry no information about other rows. A forced row
    has a few columns that are far better for it than all others; what these cost would become epsilon.
    """
    widths = engine.list_widths()[order]
    forced = _far(np.where(widths < engine.infinity, widths, 0), policy.FORCED_REACH)
    before, order = order[forced], order[~forced]
    far = _far(np.abs(engine.list_minima()[order]), policy.OUTLYING)
    return np.concatenate([order[far], order[~far]]) if far.any() else order, before


def _far(sizes: Array, times: float) -> Array:
    """Return bool (n,): which of these sizes exceed so many times that of most."""
    if sizes.size < policy.OUTLIERS_AMONG:
        return np.zeros(sizes.size, np.bool_)
    place = sizes.size - 1 - sizes.size // policy.FEW_OUTLIERS
    usual = np.partition(sizes, place)[place]
    far: Array = (sizes > times * usual) & (usual > 0)
    return far


def _too_narrow(widths: Array, epsilon: float, reach: float) -> bool:
    """Return whether half of the lists reach so few epsilons that a phase would exhaust them.

    The reach is measured beyond the best entry. Causes are ties, or prices that have far to fall.
    """
    return float(np.median(widths)) <= reach * epsilon


def _usual(widths: Array, infinity: Any) -> float:
    """Return the median width of the lists that end, infinity if none does."""
    ended = widths[widths < infinity]
    return float(np.median(ended)) if ended.size else np.inf


def _uneven(widths: Array, infinity: Any) -> bool:
    """Return whether some lists end much sooner than others, by the quartiles of their widths."""
    ended = widths[widths < infinity]
    if 2 * ended.size < widths.size:
        return False
    near, far = np.quantile(ended.astype(np.float64), (0.25, 0.75))
    return bool(far > policy.UNEVEN * near)


def _probe_widths(engine: ListEngine, rows: Array, first: float) -> None:
    """Raise ``ListsExhausted`` where a few rows of a matrix show that all lists would be too narrow.

    Mostly because of ties. Few rows hardly compete, so epsilon seems smaller than it is.
    """
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
    if np.isfinite(gap) and _too_narrow(widths, first * gap / rows.size, policy.NARROW):
        raise ListsExhausted


def _few_left(engine: ListEngine, course: ListRun) -> bool:
    """Begin the last phase at once where few rows are loose at the prices given; return whether it did.

    The prices are old ones or those of levels; tight pairs stay. Where many rows are loose, phases from
    these prices are cheaper than plain searches.
    """
    n = engine.problem.shape[0]
    pairs = course.pairs if course.warm else np.full(n, S.FREE, S.ID)
    left, hidden = list_warm.adopt(engine, pairs, course.order)
    few = policy.LOOSE_SHARE if course.warm == "pairs" else policy.LOOSE_SHARE_OF_PICKS
    if not course.plain and left.size > few * n:
        return False
    course.scanned, course.evaluated = engine.rows_scanned, engine.rows_evaluated
    course.order, course.stage, course.hidden = left, MATCH, hidden
    course.clock = time.perf_counter()
    return True


def _next_epsilon(course: ListRun, record: dict[str, Any], n: int, m: int, guard: float) -> None:
    """End the phase of this record: set epsilon and stage of the next. guard: see ``_GUARD``."""
    course.phases.append(record)
    course.stage = DONE if course.epsilon == 0 else OPEN
    drops, epsilon_drops = record["drops"], record["epsilon_drops"]
    few = drops <= guard * n * course.epsilon
    # The first phase of a tall problem is short, and tells nothing.
    least = 0 if course.guided else 1 if n <= m else 2
    settled = len(course.phases) > least and drops > epsilon_drops and few
    short = record["rows_scanned"] <= _EASY * n and drops > _EASY_DROPS * epsilon_drops
    easy = len(course.phases) > 2 and short
    course.epsilon = 0.0 if settled or easy else min(course.epsilon / _DIVIDE, epsilon_drops / (8 * m))
    if course.epsilon < course.lowest:
        course.epsilon = 0.0


def _evaluate(engine: ListEngine, rows: Array) -> None:
    """Evaluate these rows, or continue an evaluation that is under way."""
    if engine.wave is None:
        engine.evaluate(rows)
    else:
        engine.finish_wave()


def _phase(engine: ListEngine, course: ListRun) -> tuple[dict[str, Any], bool]:
    """Match every row at one epsilon; return the phase's record, and whether all were matched."""
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
    postpone = course.sigma * epsilon
    feasible = engine.phase(course.order, backward=number % 2 == 1, epsilon=epsilon, postpone=postpone)
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


def _sigma(n: int) -> float:
    return SIGMA if n < policy.LONG_LIST_ROWS else _LONG_SIGMA
