"""``solve_k_best``: the k best assignments in exact order."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bigsap.engine.core.team import check_threads
from bigsap.engine.k_best.enumerate import DONE, FULL, GUESS, TOO_LARGE, enumerate_best
from bigsap.engine.k_best.numbers import BITS, LIMIT, MASK
from bigsap.engine.k_best.state import (
    ANSWERS,
    CAP,
    CAP_LOW,
    GUESSED,
    NODES,
    ROWS,
    SCANS,
    SEARCHES,
    TURNS,
    Queue,
    grown,
    grown_queue,
    new_nodes,
    new_queue,
    new_work,
)
from bigsap.errors import CertificateError, OptionError, OverflowRiskError, bound_call, flag, quiet, whole
from bigsap.memory import usable_memory
from bigsap.notebook import html_table
from bigsap.option_table import REFUSED_BY_K_BEST
from bigsap.progress import Callback, Monitor, Progress, Stopped
from bigsap.proof.k_best import prove_duals, prove_order
from bigsap.result import Result, Status
from bigsap.row_cache import RowCache
from bigsap.solve import solve, solve_and
from bigsap.sources import as_source
from bigsap.sources.base import CostSource, in_sense, intact_throughout
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies.k_best_found import Found, Known, doubt, sure
from bigsap.strategies.k_best_lists import PAIR_BYTES, Listed, Task, listed, too_much
from bigsap.types import Array

# Pairs listed for each agent at first, and the factor if they do not suffice; and how many more pairs in
# all a doubling of k takes: a few agents have more changes to choose from.
_PER_ROW, _MORE = 4, 4
_PER_DOUBLING = 16
# Assignments enumerated first; the factor to the next stage, whose last cost is guessed with a margin.
_FEW, _STAGE, _MARGIN = 16, 4, 1.03
# Assignments beyond the k-th that are compared if costs were rounded.
_BEYOND = 64
_STOPPED = (Status.TIME_LIMIT, Status.CANCELLED)
# Pairs listed of all subspaces that are solved between two calls of ``check``, and the most subspaces.
_PAIRS, _TURNS = 1 << 22, 1024


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
    for name, reason in REFUSED_BY_K_BEST.items():
        if name in options:
            raise OptionError(f"solve_k_best takes no {name}=: {reason}")
    bound_call("solve_k_best", solve, None, **options)
    check_threads(threads)
    maximize = flag(maximize, "maximize")
    source = in_sense(as_source(cost, shape=shape, args=args, dtype=dtype), maximize)
    limit = options.get("memory_limit")

    def rank(result: Result, monitor: Monitor) -> Assignments:
        return _after(result, source, count, unassigned_cost, threads, monitor, limit)

    given = {"maximize": maximize, "unassigned_cost": unassigned_cost, "threads": threads, **options}
    with intact_throughout(source):
        return solve_and(rank, source, **given)


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
) -> Assignments:
    """Return the k best assignments of a problem, from the proved result of its solve.

    cost, unassigned_cost, dtype, threads: of the solve. memory_limit: bytes for the lists of pairs.
    time_limit, callback, cancel: of the ranking, as for ``solve_k_best``; progress: where it begins. For
    callers that solve, and keep checkpoints, themselves: ``solve_k_best`` does both. None are returned
    without an assignment, and of a solve that was stopped. Raises CertificateError where the costs have
    changed since.
    """
    source = in_sense(as_source(cost, dtype=dtype), result.maximize)
    begun = Progress() if progress is None else replace(progress)
    monitor = Monitor(time_limit=time_limit, callback=callback, cancel=cancel, progress=begun)
    with intact_throughout(source):
        found = _after(result, source, k, unassigned_cost, threads, monitor, memory_limit)
    begun.stage = "done"
    monitor.conclude()
    return found


def _after(
    result: Result,
    source: CostSource,
    k: int,
    unassigned_cost: npt.ArrayLike | None,
    threads: int | None,
    monitor: Monitor,
    memory_limit: int | str | None,
) -> Assignments:
    """Return the ranking; if it is stopped, what is proved."""
    progress = monitor.progress
    if result.status in _STOPPED:
        return _none(source, result)
    progress.stage, progress.ranked, progress.to_rank = "rank", 0, k
    known = Known(k, progress)
    n, m = (int(size) for size in source.shape)
    if result.fun is None:
        return _none(source, result)
    sign = -1 if result.maximize else 1
    costs, prices = source, None
    if unassigned_cost is not None:
        gated = ClippedCosts(source, unassigned_cost, maximize=result.maximize)
        costs, prices = gated.source, gated.prices
    if n == 0 or m == 0:
        progress.ranked = 1
        return _only(result)
    u, v = sign * result.u, sign * result.v
    memory = RowCache(memory_limit).budget(usable_memory())
    task = Task(costs, sign, result.col4row, u, v, prices, check_threads(threads), monitor.tick, memory)
    try:
        monitor.tick(report=True)
        found = _enumerated(task, k, known if monitor.can_stop else None)
    except Stopped as stop:
        if known.found is None:
            return replace(_none(source, result), status=Status(stop.reason))
        found = _assignments(known.found, known.count, task, complete=False, status=Status(stop.reason))
    progress.ranked = len(found)
    _compare(found, result)
    return found


def _compare(found: Assignments, result: Result) -> None:
    """Raise CertificateError if the best assignment costs what the solve has ruled out."""
    unknown = math.inf if result.maximize else -math.inf
    limits = [unknown if result.bound is None else result.bound]
    limits += [] if result.fun is None else [result.fun]
    if not min(limits) <= next(iter(found.costs.tolist()), math.nan) <= max(limits):
        raise CertificateError("the costs are not those of the solve: they have changed since")


def _none(source: CostSource, result: Result) -> Assignments:
    """Return the ranking of a solve that was stopped, or found that there is no assignment."""
    n, m = (int(size) for size in source.shape)
    kind = np.int64 if source.dtype.kind in "iu" else np.float64
    costs, none = np.empty(0, kind), result.status == Status.INFEASIBLE
    return Assignments(
        costs, np.empty((0, n), np.intp), result.maximize, (n, m), none, status=Status(result.status)
    )


def _only(result: Result) -> Assignments:
    """Return the one assignment of a problem that has no pairs."""
    kind = np.int64 if isinstance(result.fun, int) else np.float64
    costs = np.array([result.fun], kind)
    return Assignments(costs, result.col4row[None], result.maximize, result.shape, complete=True)


def _enumerated(task: Task, count: int, known: Known | None) -> Assignments:
    """Return the ``count`` best assignments, and whether there are others. known: if it may be stopped."""
    search = _searched(task, count, known)
    complete = len(search.answers) <= count and (
        search.exhausted or (not search.others and len(_searched(task, count + 1, known).answers) <= count)
    )
    return _assignments(search.found(), count, task, complete=complete)


def _assignments(
    found: Found, count: int, task: Task, *, complete: bool, status: Status = Status.OPTIMAL
) -> Assignments:
    n, m = task.source.shape
    costs, col4row = found.ranked(count, task)
    stats = {**found.stats, "pairs": len(found.lists.rows), "all_pairs": n * m}
    return Assignments(costs, col4row, task.sign < 0, (int(n), int(m)), complete, stats, status)


def _searched(task: Task, count: int, known: Known | None) -> _Search:
    """List pairs and enumerate, with longer lists until the last answer needs no other pair.

    The last cost, once it is known or guessed, says which pairs any better assignment can use, and limits
    the next enumeration.
    """
    n, m = task.source.shape
    count = min(count, 1 + _most(task, count))
    per_row = max(_PER_ROW, math.ceil(_PER_DOUBLING * math.log2(count + 1) / max(1, min(n, m))))
    lists, cap, by_cost = listed(task, per_row), None, False
    while True:
        found = _found(lists, count, task, cap, known)
        wanted = found.wanted
        if lists.beyond is None or (wanted is not None and wanted < lists.beyond):
            return found
        by_cost = wanted is not None and not by_cost
        if wanted is not None and by_cost:
            shorter = lists
            lists = listed(task, limit=shorter.limit_for(wanted))
            cap = lists.cost_in(shorter, wanted)
        else:
            per_row *= _MORE
            lists, cap = listed(task, per_row), None


def _most(task: Task, enough: int) -> int:
    """Return a number that the assignments do not exceed, or one from ``enough`` on."""
    n, m = task.source.shape
    choices = max(n, m) + (task.prices is not None)  # each row or column of the shorter side
    found, left = 1, min(n, m) if task.prices is None else n
    while left > 0 and found < enough:
        found, left = found * choices, left - 1
    return found


def _found(lists: Listed, count: int, task: Task, cap: int | None, known: Known | None) -> _Search:
    """Enumerate ``count`` assignments; with rounded numbers as many more as may change places.

    cap: a cost in the graph that so many have at most, if one is known.
    """
    search = _Search(lists, count, task, cap, known)
    more = count
    while lists.rounded and len(search.answers) == more:
        if search.cost_of(-1) - search.cost_of(count - 1) > doubt(lists):
            break
        if more >= 4 * count + _BEYOND:
            raise OverflowRiskError(
                "costs differ by too many orders of magnitude for the exact order of ties; round them"
            )
        more += _BEYOND
        search = _Search(lists, more, task, known=known)
    return search


class _Search:
    """One enumeration on lists.

    answers: nodes of the best assignments, in order. exhausted: whether there are fewer than asked for.
    others: whether assignments besides the answers were found. wanted: pairs that assignments of this cost
    can use must be listed: the last cost, or a guess of it before the enumeration of all. known: gets what
    is proved at each pause.
    """

    def __init__(
        self, lists: Listed, count: int, task: Task, cap: int | None = None, known: Known | None = None
    ) -> None:
        self.known = known
        self.lists, self.exhausted, self.check, self.memory = lists, False, task.check, task.memory
        self.wanted: int | None = None
        self.proved = 0  # subspaces whose duals are checked
        self.answers = _room(count)
        few, margin = count if cap is not None else _stage(count, 1), _MARGIN
        status = self._run(few, cap)
        while status == GUESS or (status == DONE and len(self.answers) == few < count):
            # So many assignments cost no more than this.
            n_found, first = len(self.answers), self.cost_of(0)
            more = (self._cap() if status == GUESS else self.cost_of(-1)) - first
            few = _stage(count, n_found)
            growth = (math.log(few) / math.log(max(2, n_found))) ** 2
            ties = None if status == GUESS else first
            margin = 2 * margin if status == GUESS else _MARGIN  # a gap in the costs is soon crossed
            cap = first + math.ceil(margin * growth * more) if more else ties
            if few == count and cap is not None and lists.beyond is not None and cap >= lists.beyond:
                self.wanted = cap
                return
            status = self._run(few, cap)
        if status != DONE:
            raise OverflowRiskError("costs and prices are too far apart for exact sums of this problem")
        self.exhausted = len(self.answers) < count
        if not self.exhausted:
            self.wanted = self.cost_of(-1)
        self._prove()

    def _prove(self) -> None:
        """Check every answer, and what was solved besides, by code of its own."""
        self._prove_new(self.check)
        self._prove_order()

    def _prove_order(self) -> None:
        left = np.ones(self.work.counts[NODES], np.bool_)
        left[self.answers] = False
        self.others = bool(left.any())
        prove_order(self.nodes, self.answers, np.flatnonzero(left))

    def _prove_new(self, check: Callable[[], None] | None = None) -> None:
        """Check the subspaces that were solved since the last time."""
        n_nodes = int(self.work.counts[NODES])
        prove_duals(self.lists.graph, self.nodes, np.arange(self.proved, n_nodes), check)
        self.proved = n_nodes

    def _run(self, count: int, cap: int | None) -> int:
        """Enumerate so many, with a guessed cap of the costs if there is one; return the last status."""
        graph = self.lists.graph
        self.work = work = new_work(graph)
        self.nodes, self.proved = new_nodes(64, len(graph.first) - 1, count), 0
        work.at[:] = self.lists.at
        if cap is not None and cap >> BITS < LIMIT:
            work.counts[GUESSED] = 1
            work.scalar[[CAP, CAP_LOW]] = cap >> BITS, cap & MASK
        answers = _room(count)
        self.answers = answers[:0]
        try:
            status = self._enumerate(answers, new_queue(len(self.nodes.offset), count))
        except Stopped:
            self._keep()
            raise
        if status != TOO_LARGE:
            self._keep()
        return status

    def _enumerate(self, answers: Array, queue: Queue) -> int:
        """Fill ``answers``; return the last status."""
        graph, work, known = self.lists.graph, self.work, self.known
        turns = 0 if self.check is None else 2 + min(_TURNS, _PAIRS // (len(graph.slot) + 1))
        status = FULL
        while status == FULL:
            if self.check is not None:
                self.check()
            work.counts[TURNS] = turns
            status = enumerate_best(graph, self.nodes, queue, work, answers)
            self.answers = answers[: work.counts[ANSWERS]]
            if known is not None and status != TOO_LARGE:
                self._prove_new()
                known.see(self._sure())
            if status == FULL:
                self._need_room()
                self.nodes = grown(self.nodes, work)
                queue = grown_queue(queue, len(self.nodes.offset))
        return int(status)

    def _sure(self) -> int:
        return sure(self.lists, len(self.answers), self.cost_of)

    def _keep(self) -> None:
        """Let a stop return what is proved."""
        if self.known is not None:
            self._prove_order()
            self.known.keep(self._sure(), self.found)

    def found(self) -> Found:
        """Return the answers."""
        costs = [self.cost_of(place) for place in range(len(self.answers))]
        return Found(self.lists, costs, self.nodes.slot_of[self.answers], self.stats)

    def _need_room(self) -> None:
        """Raise OptionError where memory does not hold the subspaces twice, as it must while they grow."""
        nodes, (n_nodes, n_rows) = self.nodes, self.work.counts[[NODES, ROWS]].tolist()
        if n_nodes < len(nodes.offset) and n_rows + len(self.work.at) <= len(nodes.rows):
            return  # a pause
        taken = sum(array[:1].nbytes * n_nodes for array in nodes[:-1]) + nodes.rows[:1].nbytes * n_rows
        if self.memory is not None and 2 * taken + PAIR_BYTES * len(self.lists.rows) > self.memory:
            raise too_much(f"ranking keeps subspaces, {n_nodes} so far", self.memory)

    def _cap(self) -> int:
        high, low = self.work.scalar[[CAP, CAP_LOW]].tolist()
        return int((high << BITS) + low)

    def cost_of(self, place: int) -> int:
        """Return the cost of an answer in the graph."""
        node = self.answers[place]
        return (int(self.nodes.cost[node]) << BITS) + int(self.nodes.cost_low[node])

    @property
    def stats(self) -> dict[str, int]:
        counts = self.work.counts
        return {
            "searches": int(counts[SEARCHES]),
            "scans": int(counts[SCANS]),
            "subspaces": int(counts[NODES]),
        }


def _stage(count: int, n_found: int) -> int:
    """Return how many of ``count`` assignments are enumerated next, when so many are known."""
    few = _FEW
    while few <= n_found:
        few *= _STAGE
    return few if 2 * few <= count else count


def _room(count: int) -> Array:
    """Return room for the answers; OptionError where memory has none."""
    try:
        return np.empty(count, np.int64)
    except (MemoryError, ValueError):
        raise OptionError(f"k={count} assignments do not fit into memory") from None
