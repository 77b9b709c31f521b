"""A solve whose largest cost counts first: the threshold, then the sum within it, and their proofs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigsap import checkpoint, policy
from bigsap.checkpoint import Saved
from bigsap.engine.core.team import check_threads
from bigsap.errors import OptionError
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.progress import Monitor, Progress, Stopped
from bigsap.proof.bottleneck import prove_entries, prove_threshold
from bigsap.proof.exact import exact_sum
from bigsap.result import MESSAGES, Result, Status
from bigsap.run.deadline import Deadline
from bigsap.run.fingerprint import identity_with_counts
from bigsap.run.unsearched import unsearched
from bigsap.sources.base import CostSource
from bigsap.sources.sparse.sparse_costs import SparseCosts, sparse
from bigsap.strategies.bottleneck import Threshold, threshold
from bigsap.types import Array, Tick

#: Options that have no meaning here, and the reason.
_REFUSED = {
    "unassigned_cost": "with every row left out the largest cost would be nothing",
    "cluster": "the costs are listed by this process",
}


#: Options of the sum's solve of a stopped search for the threshold, which checkpoints begin anew.
_AT_ONCE: dict[str, Any] = {"shape": None, "args": (), "dtype": None, "checkpoint": None, "progress": False}


def refuse_options(asked: dict[str, Any], options: Options) -> None:
    """Raise OptionError for options that do not go with this objective."""
    for name, reason in _REFUSED.items():
        if asked[name] is not None:
            raise OptionError(f'{name} is not valid with objective="bottleneck": {reason}')
    if options.gap:
        raise OptionError('gap is not valid with objective="bottleneck": the largest cost is exact')
    if options.device not in ("cpu", "auto"):
        raise OptionError('device is not valid with objective="bottleneck": leave it "cpu"')


def solve_bottleneck(
    source: CostSource,
    asked: dict[str, Any],
    options: Options,
    monitor: Monitor,
    solve_sum: Callable[[Any, dict[str, Any], Saved | None], Result],
    saved: Saved | None,
) -> Result:
    """Return the assignment of least sum among those whose largest cost is smallest.

    source: as the user has it. asked: every option of ``solve``. solve_sum: solves the costs given by
    the sum, with options by name. saved: the checkpoint to continue; a search for the threshold begins anew.
    """
    n, m = (int(size) for size in source.shape)
    plain = {**asked, "objective": "sum", "device": "cpu", "monitor": monitor}
    if options.checkpoint is not None or saved is not None:
        plain["stands_for"], saved = _open_checkpoint(source, options, saved)
    if n == 0 or m == 0:
        return solve_sum(source, {**plain, "shape": None, "args": ()}, saved)
    problem = Problem(source, options.maximize)
    monitor.progress.n_rows, monitor.progress.n_columns = sorted((n, m))
    threads = min(check_threads(options.threads), max(1, m // policy.COLUMNS_PER_THREAD))
    known: deque[tuple[Array, Array]] = deque(maxlen=1)
    stopped: Status | None = None
    try:
        found = threshold(problem, threads, monitor.tick, known.append)
    except Stopped as stop:
        stopped = Status(stop.reason)
    if stopped is not None:
        apart = _apart(monitor, stopped)
        at_once = partial(solve_sum, source, {**plain, **_AT_ONCE, "monitor": apart}, None)
        result = _stopped(stopped, problem, known, options.method, monitor, at_once)
        _report_end(monitor)
        return result
    inner = {**plain, "shape": None, "args": (), "dtype": None}
    if found is None:  # infeasible; the sum's way names the rows
        return solve_sum(source, inner, saved)
    entries = sparse((found.rows, found.columns, found.costs), (n, m))
    searched = monitor.seconds
    monitor.ends = False
    result = solve_sum(entries, inner, saved)
    monitor.ends = True
    if result.fun is None and known and result.status != Status.INFEASIBLE:  # stopped early
        duals = {name: getattr(result, name) for name in ("u", "v", "u_low", "v_low", "stats", "nit")}
        result = replace(_last(known, result.status, problem, result.bound), **duals)
    return _proved(result, problem, found, entries, options, threads, searched, monitor)


def _stopped(
    status: Status,
    problem: Problem,
    known: Sequence[tuple[Array, Array]],
    method: str,
    monitor: Monitor,
    solve_sum: Callable[[], Result],
) -> Result:
    """Return the assignment of a search for the threshold that was stopped, without a bound.

    The last one known, else that of a stopped solve of the sum, which is cheap.
    """
    searched = monitor.seconds
    if known:
        result = _last(known, status, problem)
        stats = unsearched(problem.source, method, "stopped in the search for the threshold", monitor)
    else:
        result = solve_sum()
        stats = dict(result.stats)
        if result.status != Status.INFEASIBLE:
            result = replace(result, status=status, message=MESSAGES[status], success=False)
            result = replace(result, bound=None, gap=None)
    stats["gaps"] = []
    stats["seconds"] = {**stats["seconds"], "threshold": searched, "total": monitor.seconds}
    return replace(result, stats=stats)


def _apart(monitor: Monitor, status: Status) -> Monitor:
    """Return a monitor that has stopped and makes no reports: the sum's bounds are of another problem."""
    apart = replace(
        monitor,
        callback=None,
        listeners=[],
        progress=Progress(),
        save=None,
        gaps=[],
        guards=[*monitor.guards],
        bounds=None,
    )
    apart.end(status)
    return apart


def _last(
    known: Sequence[tuple[Array, Array]], status: Status, problem: Problem, bound: float | None = None
) -> Result:
    """Return the last assignment known as that of a stopped solve."""
    col4row, costs = known[-1]
    costs = problem.sign * costs
    return Result.from_assignment(
        col4row,
        shape=problem.shape,
        status=status,
        maximize=problem.maximize,
        fun=exact_sum(costs[col4row >= 0]),
        bound=bound,
        costs=costs,
    )


def _open_checkpoint(
    source: CostSource, options: Options, saved: Saved | None
) -> tuple[dict[str, Any], Saved | None]:
    """Return what identifies the problem in checkpoints of the sum, and the one of these to continue.

    Refuses a checkpoint of another problem; without one, writes the first.
    """
    known = identity_with_counts(source, options, None, None)
    facts = {name: fact for name, fact in known.items() if fact is not None}
    own = {name: getattr(options, name) for name in ("maximize", "method", "epsilon", "start", "variant")}
    own["seed"] = int(options.seed)
    of_sum = saved is not None and "asked_method" in saved.facts
    if saved is not None:
        saved.refuse_unless(saved.facts | facts | ({} if of_sum else own))
    if options.checkpoint is not None:
        checkpoint.begin(options.checkpoint, facts | own, saved)
    return facts, saved if of_sum else None


def _report_end(monitor: Monitor) -> None:
    monitor.progress.stage = "done"
    monitor.conclude()


def _until_late(monitor: Monitor) -> Tick:
    """Return a tick that a cancel ends at once, and a time limit after the grace period."""
    late: Deadline | None = None

    def tick(_: int) -> None:
        nonlocal late
        try:
            monitor.tick()
        except Stopped as stop:
            late = late or Deadline(monitor.grace(), lambda: monitor.cancelled)
            if stop.reason != Status.TIME_LIMIT or late.left <= 0:
                raise

    return tick


def _proved(
    result: Result,
    problem: Problem,
    found: Threshold,
    entries: SparseCosts,
    options: Options,
    threads: int,
    searched: float,
    monitor: Monitor,
) -> Result:
    """Return the result with its threshold, once that is proved unless ``certify=False``.

    A proof that a limit or a cancel ends leaves the assignment, without a bound.
    """
    n, m = problem.shape
    value = found.value * problem.sign
    stats = dict(result.stats)
    stats["bottleneck"] = int(value) if problem.integer else float(value) + 0.0
    seconds = {**stats["seconds"], "threshold": searched}
    clock = time.perf_counter()
    if not options.certify:  # a proof of the sum alone, where rounding may have decided it
        result = replace(result, bound=None, gap=None)
        stats["proof"] = None
    if options.certify and result.status in (Status.OPTIMAL, Status.IMPRECISE):
        listed = entries.entries()
        monitor.progress.stage = "certificate"
        try:
            by, pairs = prove_entries(
                problem.source,
                value,
                listed,
                threads=threads,
                maximize=problem.maximize,
                bounds=options.certify != "pairs",
                tick=_until_late(monitor),
            )
            prove_threshold(listed, (n, m), value, found.violator, maximize=problem.maximize)
            stats["certificate_pairs"] += pairs
            stats["proof"] = by
        except Stopped as stop:
            status = Status(stop.reason)
            result = replace(result, status=status, message=MESSAGES[status], success=False)
            result = replace(result, bound=None, gap=None)
            stats |= {"gaps": [], "proof": None}
        seconds["certificate"] += time.perf_counter() - clock
    seconds["total"] = monitor.seconds
    _report_end(monitor)
    stats["seconds"] = seconds
    stats["source"] = type(problem.source).__name__
    violator = np.sort(found.violator).astype(np.intp)
    return replace(result, stats=stats, violator=violator)
