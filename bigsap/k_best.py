"""``solve_k_best``: the k best assignments in exact order."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bigsap.checkpoint import Saved, read
from bigsap.engine.core.team import check_threads
from bigsap.errors import (
    CertificateError,
    CheckpointError,
    OptionError,
    bound_call,
    check_path,
    flag,
    quiet,
    whole,
)
from bigsap.memory import usable_memory
from bigsap.notebook import html_table
from bigsap.option_table import REFUSED_BY_K_BEST
from bigsap.progress import Callback, Monitor, Progress, Stopped
from bigsap.result import Result, Status
from bigsap.row_cache import RowCache
from bigsap.run.fingerprint import identity_of_ranking
from bigsap.solve import asked_again, solve, solve_and
from bigsap.sources import as_source
from bigsap.sources.base import CostSource, in_sense, intact_throughout, integral
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies.k_best_found import Found, Known
from bigsap.strategies.k_best_lists import Task
from bigsap.strategies.k_best_saved import Kept, Solved, begin, of_same, solved_in
from bigsap.strategies.k_best_search import searched
from bigsap.types import Array

_STOPPED = (Status.TIME_LIMIT, Status.CANCELLED)


class Ranked(NamedTuple):
    """One assignment: its cost, and the column of each row, -1 = unassigned."""

    cost: Any
    col4row: Array

    @property
    def row_ind(self) -> Array:
        """The assigned rows, in order."""
        return np.flatnonzero(self.col4row >= 0)

    @property
    def col_ind(self) -> Array:
        """Their columns."""
        return self.col4row[self.row_ind]


@dataclass(frozen=True, eq=False, repr=False)
class Assignments:
    """The k best assignments, the best first; a sequence of named tuples ``(cost, col4row)``.

    Each tuple also has ``row_ind`` and ``col_ind``, its pairs as scipy gives them.

    costs: (k,), in the user's sense, each the double nearest to the exact sum; int64 for integer
        costs (object if int64 does not hold one). With ``unassigned_cost`` prices are included.
    col4row: (k, n) intp, the column of each row, -1 = unassigned.
    maximize, shape: the problem's sense and ``(n, m)``.
    complete: whether it is proved that there are no other assignments.
    stats: ``searches`` and ``scans``, augmenting searches and lists scanned by these; ``subspaces``
        solved; ``pairs`` listed of ``all_pairs``.
    status: ``optimal``; ``infeasible`` if there are none; ``time_limit`` or ``cancelled`` if it was
        stopped: then these are the best ones all the same, in order, but there may be fewer than k.
    """

    costs: Array
    col4row: Array
    maximize: bool
    shape: tuple[int, int]
    complete: bool
    stats: dict[str, Any] = field(default_factory=dict)
    status: Status = Status.OPTIMAL

    def __len__(self) -> int:
        return len(self.costs)

    @overload
    def __getitem__(self, place: int) -> Ranked: ...
    @overload
    def __getitem__(self, place: slice) -> list[Ranked]: ...

    def __getitem__(self, place: int | slice) -> Ranked | list[Ranked]:
        if isinstance(place, slice):
            return [self[p] for p in range(len(self))[place]]
        return Ranked(self.costs[place], self.col4row[place])

    def __iter__(self) -> Iterator[Ranked]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        n, m = self.shape
        ends = f", costs {self.costs[0]!s} to {self.costs[-1]!s}" if len(self) else ""
        stopped = f", {self.status}" if self.status in _STOPPED else ""
        return f"<bigsap.Assignments {len(self)} of {n} x {m}{ends}{stopped}>"

    def _repr_html_(self) -> str:
        n, m = self.shape
        lines = [("rows x columns", f"{n:,} x {m:,}"), ("assignments", f"{len(self):,}")]
        lines.append(("all that there are", "yes" if self.complete else "no"))
        lines += [("status", str(self.status))] if self.status in _STOPPED else []
        if len(self):
            lines += [("best cost", str(self.costs[0])), ("last cost", str(self.costs[-1]))]
        return html_table("bigsap.Assignments", lines)


@quiet
def solve_k_best(
    cost: Any,
    k: int,
    *,
    shape: Sequence[int] | None = None,
    args: Sequence[Any] = (),
    maximize: bool = False,
    unassigned_cost: npt.ArrayLike | None = None,
    dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
    **options: Any,
) -> Assignments:
    """Return the k best assignments in exact order; fewer where there are no more.

    cost, shape, args, maximize, unassigned_cost, dtype: the problem, as for ``solve``. All
        assignments of min(n, m) pairs count, with ``unassigned_cost`` of any number of pairs, also
        pairs that cost more than leaving their row out.
    k: at least 1.
    threads, options: of ``solve``, for the first assignment and the passes over the costs; the
        enumeration takes one thread. ``time_limit``, ``cancel``, ``callback`` and ``progress`` are those of
        the whole: ``Progress.stage`` is ``rank`` after the solve, and ``ranked`` counts the assignments.

    *Stopped early* by a limit, an event or StopIteration, it returns those assignments that are already
    proved to be the best ones, in order: ``status`` says so, and ``complete`` is False. There are none if
    the solve or the pass over the costs after it was stopped; ``solve`` itself returns what it has then.
    With ``checkpoint``, a file, ``resume_k_best`` continues it, also after the process has died.

    The order is that of the exact sums; of equal ones the columns of the rows decide, from row 0 on,
    the smaller first and -1 before all. An infeasible problem has none, and ``len`` is 0.

    Method: Murty's partition (1968), each part solved by one augmenting search from the duals of the
    one that it was taken from (Miller, Stone and Cox 1997), by stages of more and more answers, on lists
    of the pairs of small slack, with sums in exact integers. What is proved: docs/k_best.md.

    Raises OptionError for k below 1 and options that have no meaning here, errors of ``solve`` for
    bad costs, and OverflowRiskError where real costs differ by so many orders of magnitude that
    neither exact integers of 120 bits nor the exact sums of the first assignments decide the order.

    Time: a solve, one or two passes over the costs, and some searches an assignment. Memory: 60 bytes
    a row and column for each of some k subspaces, and 300 bytes a listed pair; where many assignments
    cost the same, subspaces are many times k. OptionError where these need more than ``memory_limit`` or
    the machine has.
    """
    count = count_of(k)
    options = {**options, "maximize": flag(maximize, "maximize"), "unassigned_cost": unassigned_cost}
    options |= {"threads": threads, "dtype": dtype}
    _refuse_options(options)
    source = as_source(cost, shape=shape, args=args, dtype=dtype)
    asked = bound_call("solve_k_best", solve, None, **options)
    asked.apply_defaults()
    return _ranked(source, count, asked.arguments, None)


@quiet
def resume_k_best(
    path: str | os.PathLike[str], cost: Any, *, k: int | None = None, **options: Any
) -> Assignments:
    """Continue the ranking whose checkpoint is at ``path``: the same bits as without the interruption.

    cost: the same costs as before; those that have a fingerprint are compared. k: None, or that of the
    checkpoint. options: of ``solve_k_best``. ``shape``, ``maximize``, ``dtype`` and the choices of the
    solve are those of the checkpoint; ``unassigned_cost`` is part of the problem and must be given again;
    threads and limits may differ, and limits count from now. Once the solve has ended, its choices have no
    effect. Further checkpoints are written to ``path`` unless ``checkpoint`` names another file.

    The solve continues as ``resume`` continues it. Beyond it the costs are read again, shorter
    enumerations before the interrupted one are repeated, and all subspaces are proved again. Raises
    FileNotFoundError, and CheckpointError if the file is damaged, foreign, of another version, of another
    problem, or of a solve alone.
    """
    check_path(path, "path")
    saved = read(path)
    begun = saved.facts.get("ranking")
    if begun is None:
        raise CheckpointError(f"{saved.path}: the checkpoint is of a solve, which bigsap.resume continues")
    if k is not None and count_of(k) != begun:
        raise CheckpointError(f"{saved.path}: the checkpoint is of a ranking of k = {begun}, not {k}")
    _refuse_options(options)
    asked = asked_again("resume_k_best", saved, cost, options)
    given = {name: asked[name] for name in ("shape", "args", "dtype")}
    source = as_source(asked.pop("cost"), **given)
    return _ranked(source, int(begun), asked, saved)


def _refuse_options(options: dict[str, Any]) -> None:
    for name, reason in REFUSED_BY_K_BEST.items():
        if name in options:
            raise OptionError(f"solve_k_best takes no {name}=: {reason}")


def _ranked(source: CostSource, k: int, asked: dict[str, Any], saved: Saved | None) -> Assignments:
    """Solve, and rank. asked: every option of ``solve`` by name. saved: the checkpoint to continue."""
    maximize = flag(asked["maximize"], "maximize")
    given = _Given(
        in_sense(source, maximize),
        k,
        maximize,
        asked["unassigned_cost"],
        asked["dtype"],
        check_threads(asked["threads"]),
        asked["memory_limit"],
    )
    solved = None if saved is None else solved_in(saved)

    def rank(result: Result | None, monitor: Monitor) -> Assignments:
        known = solved if result is None else Solved.of(result)
        assert known is not None  # the solve is left out only where it is known
        if saved is not None and result is None:
            saved.refuse_unless(given.facts)
        return _after(known, given, monitor, asked["checkpoint"], None if solved is None else saved)

    plain = {**asked, "shape": None, "args": (), "stands_for": {"ranking": k}}
    with intact_throughout(given.source):
        return solve_and(rank, given.source, plain, saved, solved=solved is not None)


def count_of(k: Any) -> int:
    """Return the number of assignments asked for. Raises OptionError."""
    count = whole(k)
    if count is None or count < 1:
        raise OptionError(f"k must be an integer of at least 1, got {k!r}")
    return count


def best_after(
    result: Result,
    cost: Any,
    k: int,
    *,
    unassigned_cost: npt.ArrayLike | None = None,
    dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    time_limit: float | None = None,
    callback: Callback | None = None,
    cancel: threading.Event | None = None,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
) -> Assignments:
    """Return the k best assignments of a problem, from the proved result of its solve.

    cost, unassigned_cost, dtype, threads: of the solve. memory_limit: bytes for the lists of pairs.
    time_limit, callback, cancel: of the ranking, as for ``solve_k_best``; progress: where it begins.
    checkpoint: the ranking continues from this file if it is of the same ranking after the same result, and
    writes it. For callers that solve themselves. None are returned without an assignment, and of a solve
    that was stopped. Raises CertificateError where the costs have changed since.
    """
    source = in_sense(as_source(cost, dtype=dtype), result.maximize)
    given = _Given(source, k, result.maximize, unassigned_cost, dtype, check_threads(threads), memory_limit)
    begun = Progress() if progress is None else replace(progress)
    monitor = Monitor(
        time_limit=time_limit, callback=callback, cancel=cancel, progress=begun, save_every=checkpoint_every
    )
    solved, saved = Solved.of(result), None
    with intact_throughout(source):
        if checkpoint is not None:
            saved = of_same(checkpoint, given.facts, solved)
        found = _after(solved, given, monitor, checkpoint, saved)
    begun.stage = "done"
    monitor.conclude()
    return found


@dataclass(frozen=True)
class _Given:
    """Problem and options of a ranking. source: in the user's sense. k, ...: of ``solve_k_best``."""

    source: CostSource
    k: int
    maximize: bool
    unassigned_cost: npt.ArrayLike | None
    dtype: npt.DTypeLike | None
    threads: int
    memory_limit: int | str | None

    @cached_property
    def gated(self) -> ClippedCosts | None:
        """The costs where rows may stay unassigned."""
        price = self.unassigned_cost
        return None if price is None else ClippedCosts(self.source, price, maximize=self.maximize)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return what identifies the ranking in a checkpoint."""
        return identity_of_ranking(self.source, self.gated, self.k, maximize=self.maximize, dtype=self.dtype)

    def task(self, solved: Solved, check: Callable[[], None]) -> Task:
        """Return the problem of the enumeration. check: called now and then."""
        sign = -1 if self.maximize else 1
        costs, prices = self.source, None
        if self.gated is not None:
            costs, prices = self.gated.source, self.gated.prices
        memory = RowCache(self.memory_limit).budget(usable_memory())
        u, v = sign * solved.u, sign * solved.v
        return Task(costs, sign, solved.col4row, u, v, prices, self.threads, check, memory)


def _after(
    solved: Solved, given: _Given, monitor: Monitor, path: str | os.PathLike[str] | None, saved: Saved | None
) -> Assignments:
    """Return the ranking; if it is stopped, what is proved.

    path: of the checkpoints, None for none. saved: that to continue, of this ranking and solve.
    """
    progress, k = monitor.progress, given.k
    if solved.status in _STOPPED:
        return _none(given, solved.status)
    progress.stage, progress.ranked, progress.to_rank = "rank", 0, k
    if solved.fun is None:
        return _none(given, solved.status)
    if 0 in given.source.shape:
        progress.ranked = 1
        return _only(given, solved)
    if not progress.n_rows:  # the solve was not in this call
        _report_solved(monitor, given, solved)
    known = Known(k, progress, Kept(monitor, saved) if path is not None or saved is not None else None)
    task = given.task(solved, monitor.tick)
    try:
        if saved is None:
            # The answer of a solve that was stopped may be optimal, but has not the bits of the others: its
            # own checkpoint stays.
            monitor.tick(report=True)
        if path is not None:
            begin(monitor, path, given.facts, solved, saved)
        if saved is not None:
            monitor.tick(report=True)
        found = _enumerated(task, k, known if monitor.can_stop or known.kept is not None else None)
    except Stopped as stop:
        if known.found is None:
            return _none(given, Status(stop.reason))
        found = _assignments(known.found, known.count, task, complete=False, status=Status(stop.reason))
    progress.ranked = len(found)
    _compare(found, solved, maximize=given.maximize)
    return found


def _report_solved(monitor: Monitor, given: _Given, solved: Solved) -> None:
    """Report what the solve has reported at its end."""
    progress, costs = monitor.progress, given.source if given.gated is None else given.gated
    progress.n_rows, progress.n_columns = sorted(int(size) for size in costs.shape)
    progress.assigned = progress.n_rows
    low, high = (solved.fun, solved.bound) if given.maximize else (solved.bound, solved.fun)
    monitor.update_bounds(low, high)


def _compare(found: Assignments, solved: Solved, *, maximize: bool) -> None:
    """Raise CertificateError if the best assignment costs what the solve has ruled out."""
    limits = [(math.inf if maximize else -math.inf) if solved.bound is None else solved.bound, solved.fun]
    if not min(limits) <= next(iter(found.costs.tolist()), math.nan) <= max(limits):
        raise CertificateError("the costs are not those of the solve: they have changed since")


def _none(given: _Given, status: Status) -> Assignments:
    """Return the ranking of a solve that was stopped, or found that there is no assignment."""
    n, m = (int(size) for size in given.source.shape)
    whole_costs = integral(given.source if given.gated is None else given.gated)
    costs = np.empty(0, np.int64 if whole_costs else np.float64)
    none = status == Status.INFEASIBLE
    return Assignments(costs, np.empty((0, n), np.intp), given.maximize, (n, m), none, status=status)


def _only(given: _Given, solved: Solved) -> Assignments:
    """Return the one assignment of a problem that has no pairs."""
    n, m = (int(size) for size in given.source.shape)
    costs = np.array([solved.fun], np.int64 if isinstance(solved.fun, int) else np.float64)
    return Assignments(costs, solved.col4row[None], given.maximize, (n, m), complete=True)


def _enumerated(task: Task, count: int, known: Known | None) -> Assignments:
    """Return the ``count`` best assignments, and whether there are others. known: if it may be stopped."""
    search = searched(task, count, known)
    complete = len(search.answers) <= count and (
        search.exhausted or (not search.others and len(searched(task, count + 1, known).answers) <= count)
    )
    return _assignments(search.found(), count, task, complete=complete)


def _assignments(
    found: Found, count: int, task: Task, *, complete: bool, status: Status = Status.OPTIMAL
) -> Assignments:
    n, m = task.source.shape
    costs, col4row = found.ranked(count, task)
    stats = {**found.stats, "pairs": len(found.lists.rows), "all_pairs": n * m}
    return Assignments(costs, col4row, task.sign < 0, (int(n), int(m)), complete, stats, status)
