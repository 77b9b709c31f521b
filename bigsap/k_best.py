"""``solve_k_best``: the k best assignments in exact order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bigsap.engine.core.team import check_threads
from bigsap.engine.k_best.enumerate import DONE, FULL, GUESS, enumerate_best
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
from bigsap.proof.k_best import prove_subspaces
from bigsap.result import Result
from bigsap.row_cache import RowCache
from bigsap.solve import solve
from bigsap.sources import as_source
from bigsap.sources.base import CostSource, in_sense, intact_throughout
from bigsap.sources.clipped import ClippedCosts
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
    complete: whether there are no other assignments.
    stats: ``searches`` and ``scans``, augmenting searches and lists scanned by these; ``subspaces``
        solved; ``pairs`` listed of ``all_pairs``.
    """

    costs: Array
    col4row: Array
    maximize: bool
    shape: tuple[int, int]
    complete: bool
    stats: dict[str, Any] = field(default_factory=dict)

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
        return f"<bigsap.Assignments {len(self)} of {n} x {m}{ends}>"

    def _repr_html_(self) -> str:
        n, m = self.shape
        lines = [("rows x columns", f"{n:,} x {m:,}"), ("assignments", f"{len(self):,}")]
        lines.append(("all that there are", "yes" if self.complete else "no"))
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
        enumeration takes one thread.

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
    with intact_throughout(source):
        result = solve(source, maximize=maximize, unassigned_cost=unassigned_cost, threads=threads, **options)
        limit = options.get("memory_limit")
        return _after(result, source, count, unassigned_cost, threads, memory_limit=limit)


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
    check: Callable[[], None] | None = None,
    memory_limit: int | str | None = None,
) -> Assignments:
    """Return the k best assignments of a problem, from the proved result of its solve.

    cost, unassigned_cost, dtype, threads: of the solve. check: called now and then; what it raises ends
    the ranking. memory_limit: bytes for the lists of pairs. For callers that solve, and keep checkpoints,
    themselves: ``solve_k_best`` does both. None are returned without an assignment. Raises CertificateError
    where the costs have changed since.
    """
    source = in_sense(as_source(cost, dtype=dtype), result.maximize)
    with intact_throughout(source):
        return _after(result, source, k, unassigned_cost, threads, check, memory_limit)


def _after(
    result: Result,
    source: CostSource,
    k: int,
    unassigned_cost: npt.ArrayLike | None,
    threads: int | None,
    check: Callable[[], None] | None = None,
    memory_limit: int | str | None = None,
) -> Assignments:
    n, m = (int(size) for size in source.shape)
    maximize = result.maximize
    if result.fun is None:
        return _none(source, maximize, result.status == "infeasible")
    sign = -1 if maximize else 1
    costs, prices = source, None
    if unassigned_cost is not None:
        gated = ClippedCosts(source, unassigned_cost, maximize=maximize)
        costs, prices = gated.source, gated.prices
    if n == 0 or m == 0:
        return _only(result, maximize)
    u, v = sign * result.u, sign * result.v
    memory = RowCache(memory_limit).budget(usable_memory())
    task = Task(costs, sign, result.col4row, u, v, prices, check_threads(threads), check, memory)
    found = _enumerated(task, k, maximize)
    _compare(found, result)
    return found


def _compare(found: Assignments, result: Result) -> None:
    """Raise CertificateError if the best assignment costs what the solve has ruled out."""
    unknown = math.inf if result.maximize else -math.inf
    limits = [unknown if result.bound is None else result.bound]
    limits += [] if result.fun is None else [result.fun]
    if not min(limits) <= next(iter(found.costs.tolist()), math.nan) <= max(limits):
        raise CertificateError("the costs are not those of the solve: they have changed since")


def _none(source: CostSource, maximize: bool, complete: bool) -> Assignments:
    n, m = (int(size) for size in source.shape)
    kind = np.int64 if source.dtype.kind in "iu" else np.float64
    return Assignments(np.empty(0, kind), np.empty((0, n), np.intp), maximize, (n, m), complete)


def _only(result: Result, maximize: bool) -> Assignments:
    """Return the one assignment of a problem that has no pairs."""
    kind = np.int64 if isinstance(result.fun, int) else np.float64
    return Assignments(np.array([result.fun], kind), result.col4row[None], maximize, result.shape, True)


def _enumerated(task: Task, count: int, maximize: bool) -> Assignments:
    """Return the ``count`` best assignments, and whether there are others."""
    n, m = task.source.shape
    lists, found = _searched(task, count)
    complete = len(found.answers) <= count and (
        found.exhausted or (not found.others and len(_searched(task, count + 1)[1].answers) <= count)
    )
    costs, col4row = found.ranked(count, task)
    stats = {**found.stats, "pairs": len(lists.rows), "all_pairs": n * m}
    return Assignments(costs, col4row, maximize, (int(n), int(m)), complete, stats)


def _searched(task: Task, count: int) -> tuple[Listed, _Search]:
    """List pairs and enumerate, with longer lists until the last answer needs no other pair.

    The last cost, once it is known or guessed, says which pairs any better assignment can use, and limits
    the next enumeration.
    """
    n, m = task.source.shape
    count = min(count, 1 + _most(task, count))
    per_row = max(_PER_ROW, math.ceil(_PER_DOUBLING * math.log2(count + 1) / max(1, min(n, m))))
    lists, cap, by_cost = listed(task, per_row), None, False
    while True:
        found = _found(lists, count, task, cap)
        wanted = found.wanted
        if lists.beyond is None or (wanted is not None and wanted < lists.beyond):
            return lists, found
        by_cost = wanted is not None and not by_cost
        if wanted is not None and by_cost:
            known = lists
            lists = listed(task, limit=known.limit_for(wanted))
            cap = lists.cost_in(known, wanted)
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


def _found(lists: Listed, count: int, task: Task, cap: int | None) -> _Search:
    """Enumerate ``count`` assignments; with rounded numbers as many more as may change places.

    cap: a cost in the graph that so many have at most, if one is known.
    """
    search = _Search(lists, count, task, cap)
    more = count
    while lists.rounded and len(search.answers) == more:
        # Each of the numbers may be half a unit off.
        if search.cost_of(-1) - search.cost_of(count - 1) > 2 * (len(lists.at) + 1):
            break
        if more >= 4 * count + _BEYOND:
            raise OverflowRiskError(
                "costs differ by too many orders of magnitude for the exact order of ties; round them"
            )
        more += _BEYOND
        search = _Search(lists, more, task)
    return search


class _Search:
    """One enumeration on lists.

    answers: nodes of the best assignments, in order. exhausted: whether there are fewer than asked for.
    others: whether assignments besides the answers were found. wanted: pairs that assignments of this cost
    can use must be listed: the last cost, or a guess of it before the enumeration of all.
    """

    def __init__(self, lists: Listed, count: int, task: Task, cap: int | None = None) -> None:
        self.lists, self.exhausted, self.check, self.memory = lists, False, task.check, task.memory
        self.wanted: int | None = None
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
        left = np.ones(self.work.counts[NODES], np.bool_)
        left[self.answers] = False
        self.others = bool(left.any())
        prove_subspaces(self.lists.graph, self.nodes, self.answers, np.flatnonzero(left), self.check)

    def _run(self, count: int, cap: int | None) -> int:
        """Enumerate so many, with a guessed cap of the costs if there is one; return the last status."""
        graph = self.lists.graph
        self.work = work = new_work(graph)
        self.nodes = new_nodes(64, len(graph.first) - 1, count)
        work.at[:] = self.lists.at
        if cap is not None and cap >> BITS < LIMIT:
            work.counts[GUESSED] = 1
            work.scalar[[CAP, CAP_LOW]] = cap >> BITS, cap & MASK
        answers = _room(count)
        queue = new_queue(len(self.nodes.offset), count)
        turns = 0 if self.check is None else 2 + min(_TURNS, _PAIRS // (len(graph.slot) + 1))
        status = FULL
        while status == FULL:
            if self.check is not None:
                self.check()
            work.counts[TURNS] = turns
            status = enumerate_best(graph, self.nodes, queue, work, answers)
            if status == FULL:
                self._need_room()
                self.nodes = grown(self.nodes, work)
                queue = grown_queue(queue, len(self.nodes.offset))
        self.answers = answers[: work.counts[ANSWERS]]
        return int(status)

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

    def ranked(self, count: int, task: Task) -> tuple[Array, Array]:
        """Return costs in the user's sense, and columns of the rows."""
        lists = self.lists
        col4row = self._columns(task)
        if lists.rounded:
            return self._by_exact_sums(col4row, count, task)
        sums = [lists.base + self.cost_of(place) for place in range(len(self.answers))]
        if task.integer:
            signed: list[Any] = [task.sign * total for total in sums]
            fits = all(abs(total) < 2**63 for total in signed)
            return np.array(signed, np.int64 if fits else object), col4row
        unit = 1 << abs(lists.exponent)
        if lists.exponent >= 0:
            signed = [task.sign * _as_float(total, unit) + 0.0 for total in sums]
        else:
            signed = [task.sign * _as_float(total * unit, 1) for total in sums]
        return np.array(signed, np.float64), col4row

    def _columns(self, task: Task) -> Array:
        """Return the answers as columns of the rows."""
        slots = self.nodes.slot_of[self.answers]
        n, m = task.source.shape
        if not task.by_slots:
            return np.where(slots < m, slots, -1).astype(np.intp)
        col4row = np.full((len(slots), n), -1, np.intp)
        np.put_along_axis(col4row, slots.astype(np.intp), np.arange(m)[None, :], axis=1)
        return col4row

    def _by_exact_sums(self, col4row: Array, count: int, task: Task) -> tuple[Array, Array]:
        """Order the answers by exact sums of their costs."""
        from fractions import Fraction

        lists = self.lists
        pairs = zip(lists.rows.tolist(), lists.columns.tolist(), strict=True)
        of_pair = dict(zip(pairs, lists.costs.tolist(), strict=True))
        m = task.source.shape[1]
        sums = []
        for columns in col4row.tolist():
            places = [(i, j if j >= 0 else m + i) for i, j in enumerate(columns)]
            sums.append(sum((Fraction(of_pair[place]) for place in places if place in of_pair), Fraction(0)))
        order = sorted(range(len(sums)), key=lambda place: (sums[place], col4row[place].tolist()))[:count]
        costs = [task.sign * _as_float(*sums[place].as_integer_ratio()) + 0.0 for place in order]
        return np.array(costs), col4row[order]

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


def _as_float(numerator: int, denominator: int) -> float:
    """Return the quotient, rounded; OverflowRiskError if float64 does not hold it."""
    try:
        return numerator / denominator
    except OverflowError:
        raise OverflowRiskError("the sum of the costs leaves float64") from None
