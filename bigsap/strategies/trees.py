"""Hungarian method on compressed rows: trees from all free rows at once.

With whole-number costs of a small range, many columns become tight at a time and many
paths are found in one stage, where row-by-row searches find one at a time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.changed import changed, refuse_wild
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.listed import Listed
from bigsap.engine.lists.snapshot import continued, kept
from bigsap.engine.trees import device_result as gpu
from bigsap.engine.trees import first_pairs, grow, reduction
from bigsap.engine.trees import forest as T
from bigsap.problem import Problem
from bigsap.strategies import list_phases, lists
from bigsap.strategies.baselines.classical import solve_classical
from bigsap.strategies.list_run import MATCH, ListRun, ListSettings, ListSolve
from bigsap.strategies.outcome import Outcome, moved, phase_record
from bigsap.strategies.placement import device_forest, list_engine_for
from bigsap.strategies.start import list_warm
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.tight_pairs import tight_start
from bigsap.types import Array

#: Values of ``variant``.
VARIANTS = ("auto", "classical", "tree")

_SLICE_SECONDS = 0.1
_FIRST_WORK, _LEAST_WORK = 1 << 18, 1 << 12

#: Counts in ``Result.stats["trees"]``: rows left by the first stars, stages of augmentation, paths,
#: breadth-first levels, steps of the clock, rows expanded, lists that ended.
COUNTS = ("roots", "stages", "paths", "levels", "clock_steps", "expansions", "list_events")

# Stages of a solve: lists to be evaluated; trees growing. What is left is searched row by row.
SURVEY, TREES = range(2)


@dataclass
class Growth:
    """State of a solve's forest; part of ``stats``.

    variant: as requested. hopeless: trees were abandoned on a device. pairs: those to keep after a
    warm start, see ``list_warm``. hidden: see ``Outcome``.
    """

    variant: str
    forest: T.Forest
    stage: int = SURVEY
    hopeless: bool = False
    first_prices: str = "none"
    pairs: Array = field(default_factory=lambda: np.empty(0, S.ID))
    hidden: float = 0.0

    def counts(self) -> dict[str, int]:
        """Return counts for ``Result.stats``."""
        return {name: int(getattr(self.forest.at, name)) for name in COUNTS}


def solve_hungarian(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    variant: str,
    snapshot: dict[str, Any] | None = None,
    phases: list[dict[str, Any]] | None = None,
    warm: Warm | None = None,
) -> None:
    """Solve by the Hungarian method into ``solved``.

    variant: "auto" tries tight pairs first and leaves what is hard for trees to row-by-row searches;
    "tree" uses searches only where memory keeps lists short. Other arguments: as ``solve_compressed``.
    Memory: 12 bytes an entry of the lists, and some thirty vectors.
    """
    phases = [] if phases is None else phases
    if variant == "classical":
        engine = list_engine_for(
            problem, setting.team, setting.monitor, setting.arithmetic.price, 1, setting.seed
        )
        solved.engine = engine
        solved.outcome = solve_classical(problem, setting, solved, engine, snapshot or {}, phases, warm)
        return
    if snapshot and "forest_words" not in snapshot:
        # Rows left by tight pairs or trees are searched row by row; the first record has the counts of
        # trees.
        lists.solve_compressed(problem, setting, solved, snapshot, phases)
        solved.trees = {name: phases[0][name] for name in COUNTS if phases and name in phases[0]}
        return
    found = _solve(problem, setting, solved, variant, snapshot or {}, phases, warm)
    if found is None:
        lists.solve_compressed(problem, setting, solved, None, phases)
    else:
        solved.outcome = found


def _solve(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    variant: str,
    saved: dict[str, Any],
    phases: list[dict[str, Any]],
    warm: Warm | None,
) -> Outcome | None:
    """Solve; None where trees on a device show that lists with their own prices are better."""
    clock = time.perf_counter()
    n, m = problem.shape
    price, monitor = setting.arithmetic.price, setting.monitor
    there = device_forest(problem) if warm is None and not saved else None
    grown = None
    if there is not None:
        grown = _grow_there(there, problem, setting, solved, variant)
        if grown is not None and grown.status == gpu.DONE:
            solved.first_prices = "columns" if n == m else "none"
            seconds = {"start": 0.0, "search": time.perf_counter() - clock}
            phases.append(_phase(solved.trees, seconds["search"], None))
            return Outcome(grown.column_of_row, grown.real(grown.v, price), phases=phases, seconds=seconds)
        if grown is not None and variant == "auto" and _in_vain(grown):
            return None
    elif variant == "auto" and warm is None and not saved:
        start = tight_start(problem, setting.team, monitor, setting.arithmetic, setting.seed, solved.counts)
        if start is not None:
            return lists.solve_tight(problem, setting, solved, start, phases, clock)
    engine = _engine(problem, setting, solved, None if grown is None else gpu.KEEP)
    growth = Growth(variant, T.forest(n, m, price))
    if saved:
        _continued(engine, growth, saved)
        solved.counts.add(Counts(**saved["counts"]))
    elif grown is not None:
        _take_over(engine, growth, grown)
        growth.first_prices = "columns" if n == m else "none"
    elif warm is not None:
        growth.first_prices = "warm"
        growth.pairs = list_warm.begin(engine, warm, None, None, setting.arithmetic.grid)
    elif n == m:

        def reached(count: int) -> None:
            solved.counts.add(Counts(count, count * m))
            monitor.reached(0, solved.counts.rows)
            monitor.tick()

        v = reduction.column_minima(problem, setting.team, price, reached)
        if v is not None:
            engine.v[:] = v
            growth.first_prices = "columns"
    solved.first_prices = growth.first_prices
    solved.prices = lambda: T.true_prices(engine.v, growth.forest)
    with monitor.saving(lambda: _kept(engine, growth, solved)):
        return _run(engine, growth, setting, solved, phases, clock)


def _grow_there(
    there: gpu.Grower, problem: Problem, setting: ListSettings, solved: ListSolve, variant: str
) -> gpu.Grown | None:
    """Grow trees on the device; None for a range of costs that is too large for it."""
    n, m = problem.shape
    monitor = setting.monitor
    progress = monitor.progress
    progress.stage, progress.phase, progress.epsilon = "search", 1, 0.0

    def assigned(count: int) -> None:
        progress.assigned = count

    enough = policy.TREE_LEVELS_ON_DEVICE if variant == "auto" else np.iinfo(np.int64).max
    grown = there.grow(enough, monitor.look, assigned)
    if grown is None:
        return None
    if grown.status == gpu.BROKEN:
        raise changed("an augmenting path had no end")
    # Three readings of square costs, one of which is for the lists.
    passes = 2 if n == m else 1
    solved.counts.add(Counts(passes * n, passes * n * m))
    solved.trees = grown.counts
    if grown.status == gpu.DONE:
        solved.counts.add(Counts(n, n * m))
    monitor.reached(0, solved.counts.rows)
    return grown


def _in_vain(grown: gpu.Grown) -> bool:
    """Return whether trees have ended with most of their roots left.

    This happens with distances and products, whose lists end at once, and hardly with unrelated costs.
    """
    left = int(np.count_nonzero(grown.column_of_row < 0))
    return grown.status != gpu.INFEASIBLE and left > policy.TREES_IN_VAIN * grown.counts["roots"]


def _take_over(engine: ListEngine, growth: Growth, grown: gpu.Grown) -> None:
    """Continue from a device's final state, with its lists, prices and matching."""
    there = grown.lists
    assert there is not None
    n, m = engine.problem.shape
    lists, k, price = engine.lists, engine.k, engine.price
    lists.ids[: n * k] = there.ids[:, :k].ravel()
    lists.costs[: n * k] = grown.real(there.costs[:, :k].ravel(), price)
    lists.size[:] = there.sizes
    whole = there.theta == np.iinfo(np.int32).max
    lists.theta[:] = np.where(whole, engine.infinity, grown.real(there.theta, price))
    lists.reference[:] = grown.real(there.low, price)
    lists.counts.evaluations += n
    lists.counts.pairs += n * m
    engine.v[:] = grown.real(grown.v, price)
    matched = np.flatnonzero(grown.column_of_row >= 0)
    columns = grown.column_of_row[matched]
    engine.column_of_row[:], engine.row_of_column[columns] = grown.column_of_row, matched
    listed = there.ids[matched] == columns[:, None]
    listed &= np.arange(there.ids.shape[1]) < there.sizes[matched, None]
    engine.match_cost[matched] = grown.real(there.costs[matched, listed.argmax(1)], price)
    f = growth.forest
    T.arrange(lists, np.arange(n, dtype=S.ID), engine.v, f, engine.infinity)
    T.plant(lists, engine.v, engine.column_of_row, f, engine.infinity)
    for name, count in grown.counts.items():
        setattr(f.at, name, count)
    growth.stage, growth.hopeless = TREES, grown.status == gpu.LIMIT


def _engine(problem: Problem, setting: ListSettings, solved: ListSolve, k: int | None) -> ListEngine:
    """Return the engine. k: entries of lists that exist already."""
    n = problem.shape[0]
    k = k or policy.TREE_LIST_SIZE
    if setting.memory is not None:
        k = max(policy.LEAST_TREE_LIST_SIZE, min(k, setting.memory // (2 * ENTRY_BYTES * max(1, n))))
    price = setting.arithmetic.price
    engine = list_engine_for(problem, setting.team, setting.monitor, price, setting.k or k, setting.seed)
    if setting.memory is not None:
        engine.limit_memory(setting.memory // 2)
    if setting.exhausted:
        engine.most_pairs = setting.exhausted * n * problem.shape[1]
    if setting.hold and (engine.from_fill or not engine.immediate):
        engine.listed = Listed(problem.source.dtype, problem.sign)
    engine.drop_bounds()
    solved.engine = engine
    return engine


def _run(
    engine: ListEngine,
    growth: Growth,
    setting: ListSettings,
    solved: ListSolve,
    phases: list[dict[str, Any]],
    clock: float,
) -> Outcome:
    """Evaluate lists, find first stars, grow trees, and search for the remaining rows."""
    monitor, f = engine.monitor, growth.forest
    n = engine.problem.shape[0]
    seconds = {"start": 0.0, "search": 0.0}
    warm = bool(growth.pairs.size)
    if growth.stage == SURVEY:
        monitor.save_phase()
        # All columns count as free, so that lists contain only their best columns.
        engine.open_price[:] = engine.v
        if engine.wave is None:
            engine.evaluate(np.arange(n, dtype=S.ID))
        else:
            engine.finish_wave()
        # A resumed solve arranges the lists and finds stars once more.
        engine.torn = True
        T.arrange_all(engine.lists, engine.v, f, engine.infinity, monitor.look)
        lists, pairs = engine.lists, (engine.column_of_row, engine.row_of_column, engine.match_cost)
        if warm:
            _, growth.hidden = list_warm.adopt(engine, growth.pairs, np.arange(n, dtype=S.ID))
        else:
            first_pairs.star(lists, engine.v, *pairs, engine.infinity, monitor.look)
        T.plant(lists, engine.v, engine.column_of_row, f, engine.infinity)
        growth.stage, engine.torn = TREES, False
    seconds["start"] = time.perf_counter() - clock
    clock = time.perf_counter()
    progress = monitor.progress
    progress.stage, progress.phase, progress.epsilon = "search", 1, 0.0
    monitor.save_phase()
    solved.trees, begun = growth.counts(), T.true_prices(engine.v, f)
    if growth.hopeless or (warm and engine.n_virtual):
        # Free columns may lie below the others' price: trees do not raise prices.
        status = S.LIMIT
    else:
        status = _grow(engine, growth, solved)
    seconds["search"] = time.perf_counter() - clock
    phases.append(_phase(growth.counts(), seconds["search"], moved(begun, T.true_prices(engine.v, f))))
    if status == S.INFEASIBLE:
        rows = np.sort(f.rows[: f.at.n_rows]).astype(np.intp)
        return Outcome(None, engine.v, rows, phases, seconds)
    if status == S.LIMIT:
        return _search_rows(engine, growth, setting, solved, phases, seconds)
    monitor.save_now()
    found = engine.column_of_row.copy()
    return Outcome(found, engine.v, phases=phases, seconds=seconds, hidden=growth.hidden)


def _grow(engine: ListEngine, growth: Growth, solved: ListSolve) -> int:
    """Grow trees until all rows are matched, cannot be, or it takes too long."""
    f, n = growth.forest, engine.problem.shape[0]
    enough = np.iinfo(np.int64).max
    if growth.variant == "auto":
        enough = policy.TREE_PATIENCE * max(1, n) * policy.TREE_LIST_SIZE
    budget = _FIRST_WORK
    while True:
        clock = time.perf_counter()
        if f.at.step == T.EVALUATE:
            _evaluate_ended(engine, f)
            if engine.lists.counts.evaluations > policy.TREE_EVALUATIONS * n:
                return int(S.LIMIT)
        status = grow.run_forest(
            engine.lists,
            engine.v,
            engine.column_of_row,
            engine.row_of_column,
            engine.match_cost,
            f,
            engine.infinity,
            enough,
            budget,
        )
        engine.monitor.progress.assigned = int(n - f.at.left)
        solved.trees = growth.counts()
        if status in (S.YIELD, S.EVENT):
            if status == S.YIELD:
                ratio = _SLICE_SECONDS / max(time.perf_counter() - clock, 1e-6)
                budget = max(_LEAST_WORK, int(budget * min(4.0, max(0.05, ratio))))
            engine.monitor.tick()
            continue
        if status == S.CHANGED:
            raise changed("an augmenting path had no end")
        if status == S.DONE:
            engine.torn = True
            T.uproot(engine.v, f, engine.infinity)
            engine.torn = False
        return int(status)


def _evaluate_ended(engine: ListEngine, f: T.Forest) -> None:
    """Evaluate the frontier's rows until no list ends now.

    Under the same prices a threshold either grows to a pair's true value, or stays and the
    list is doubled: a row is evaluated at most as often as the logarithm of the number of columns.
    """
    T.rebase(engine.v, f)
    refuse_wild(engine.v, engine.infinity)
    engine.open_price[:] = engine.v
    if engine.wave is not None:
        rows = engine.wave.rows
        engine.finish_wave()
        T.arrange(engine.lists, rows, engine.v, f, engine.infinity)
    while True:
        ended = T.judge(engine.lists, f, engine.infinity)
        if not ended:
            break
        engine.evaluate(f.frontier[:ended].copy(), widen=True)
        T.arrange(engine.lists, f.frontier[:ended], engine.v, f, engine.infinity)
        engine.judge_pairs()
    f.at.step, f.at.position = T.EXPAND, 0


def _phase(counts: dict[str, int], seconds: float, prices_moved: int | None) -> dict[str, Any]:
    """Return the record of the trees: they expand rows, and scan none."""
    return phase_record(0.0, seconds, rows_scanned=0, prices_moved=prices_moved, **counts)


def _search_rows(
    engine: ListEngine,
    growth: Growth,
    setting: ListSettings,
    solved: ListSolve,
    phases: list[dict[str, Any]],
    seconds: dict[str, float],
) -> Outcome:
    """Match the remaining rows by shortest paths, row by row, on the same lists."""
    T.uproot(engine.v, growth.forest, engine.infinity)
    if engine.n_virtual:
        engine.hold_at_cap()
    engine.open_price[:] = np.where(engine.row_of_column < 0, engine.v, engine.blocked)
    left = np.flatnonzero(engine.column_of_row < 0).astype(S.ID)
    course = ListRun(left, plain=True, stage=MATCH, phases=list(phases), hidden=growth.hidden)
    phases.clear()
    with setting.monitor.saving(lambda: lists.kept_course(solved, engine, course)):
        outcome = list_phases.run_course(engine, course, setting, phases, time.perf_counter())
    for stage, spent in outcome.seconds.items():
        seconds[stage] += spent
    return replace(outcome, phases=phases, seconds=seconds)


def _kept(engine: ListEngine, growth: Growth, solved: ListSolve) -> dict[str, Any]:
    """Return the state to continue from; empty while lists are inconsistent."""
    whole = kept(engine)
    if not whole:
        return whole
    own = {f"forest_{name}": array for name, array in T.kept(growth.forest).items()}
    return {
        **whole,
        **own,
        "growth_stage": growth.stage,
        "pairs": growth.pairs,
        "hidden": growth.hidden,
        "first_prices": growth.first_prices,
        "counts": vars(solved.counts),
    }


def _continued(engine: ListEngine, growth: Growth, saved: dict[str, Any]) -> None:
    """Continue from the state saved by ``_kept``."""
    continued(engine, saved)
    own = {name: saved[f"forest_{name}"] for name in T.kept(growth.forest)}
    T.continued(growth.forest, own)
    growth.stage, growth.first_prices = int(saved["growth_stage"]), saved["first_prices"]
    growth.pairs, growth.hidden = saved["pairs"], saved.get("hidden", 0.0)
