"""Batches of small arrays, each solved as in ``small_arrays``, on threads started by Python.

Costs are read where they lie; for a problem of an array (k, n, m), Python does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.small.batch import (
    ADDRESS,
    CAP,
    COLUMN_STEP,
    COLUMNS,
    EXACT,
    FIRST_KEPT,
    FIRST_ROW,
    KIND,
    ROW_STEP,
    ROWS,
    WORDS,
    addresses,
    solve_some,
    tabulate,
)
from bigsap.engine.small.loading import DTYPES
from bigsap.engine.small.search import INFEASIBLE, OPTIMAL, UNSURE, kept_of, sizes
from bigsap.errors import quiet_thread
from bigsap.memory import peak_bytes
from bigsap.result import Result, Status
from bigsap.run.batch_problems import BatchProblems, RowPrices
from bigsap.run.small_arrays import Answer, fields_of
from bigsap.types import Array

# Where the facts of a problem are, after its duals and costs.
_FACT = {"fun": 3, "gap": 4, "bound": 5}
_OTHER = (0, 0, 0, -1)
_KINDS = {dtype: place for place, dtype in enumerate(DTYPES)}
# What other number types are read as; unsigned integers of 64 bits: see ``_readable``.
_READ_AS = {"b": "i4", "i": "i4", "u": "i4", "f": "f4", "u4": "i8", "i8": "i8", "f8": "f8"}
# The kernel leaves integers of this size to ``solve``: float64 may round them.
_NOT_EXACT = np.uint64(2**53)


@dataclass(frozen=True)
class SmallAnswers:
    """Problems as ``engine.small.batch.solve_some`` takes them, and their answers.

    prices: of rows, None if all must be assigned. columns, kept, statuses: see ``solve_some``.
    proved: see ``Answer``. solve_empty: returns the result of a problem without rows or columns.
    device: where they were solved.
    """

    problems: Array
    prices: RowPrices | None
    maximize: bool
    proved: bool
    columns: Array
    kept: Array
    statuses: Array
    seconds: float
    solve_empty: Callable[[int], Result] | None
    device: str = "cpu"

    @cached_property
    def peak(self) -> int:
        """The largest size of this process when a result was first looked at, in bytes."""
        return peak_bytes()

    @property
    def shapes(self) -> Array:
        """(k, 2), the sizes of the problems."""
        return self.problems[:, ROWS : COLUMNS + 1]

    def result(self, place: int) -> Result:
        """Return the result of a problem; its fields are computed on first access."""
        n, m = self.shapes[place].tolist()
        if self.solve_empty is not None and not n * m:
            return self.solve_empty(place)
        return Result.later(_fields, (self, place), maximize=self.maximize, shape=(n, m))

    def statuses_told(self) -> Array:
        """Return the status of each problem, empty where it is not known."""
        return np.array([Status.OPTIMAL.value, Status.INFEASIBLE.value, "", "", ""])[self.statuses]

    def numbers(self, name: str) -> Array:
        """Return ``fun``, ``bound`` or ``gap`` of each problem, NaN where there is none."""
        few, many = self._sizes()
        found = self.kept[self.problems[:, FIRST_KEPT] + 2 * few + many + _FACT[name]]
        if name != "gap":
            found = (-1 if self.maximize else 1) * found + 0
        solved, whole = self.statuses == OPTIMAL, self.problems[:, EXACT] != 0
        if name != "fun" and not self.proved:
            solved &= few == 0  # proved without a look at costs, as by ``solve``
        if whole.all() and (solved | (self.statuses > INFEASIBLE)).all():
            return np.where(solved, found, 0).astype(np.int64)
        return np.where(solved, found, np.nan)

    def table(self, axis: int, width: int) -> Array:
        """Return ``col4row`` (axis 0) or ``row4col`` (axis 1), (k, width), -1 where there is none."""
        table = np.empty((len(self.problems), width), np.intp)
        gated = self.prices is not None
        tabulate(self.problems, self.columns, self.statuses, axis == 1, gated, table)
        return table

    def write(self, table: Array, place: int, line: Array) -> None:
        """Set a line of such a table."""
        table[place, : len(line)] = line

    def _sizes(self) -> tuple[Array, Array]:
        return kernel_sizes(self.problems, self.prices is not None)


def solve_batch(
    problems: BatchProblems,
    maximize: bool,
    threads: Callable[[], int],
    proved: bool,
    solve_empty: Callable[[int], Result] | None = None,
) -> SmallAnswers | None:
    """Return the answers of an array (k, n, m), or of a list of matrices of any shapes.

    Statuses beyond INFEASIBLE are those of problems that must be solved by ``solve``: no arrays, or
    large ones; invalid costs; what is not proved here. None if no problem can be solved here.
    threads: asked where there is work for several. proved: see ``small_arrays.solve_small``.
    """
    clock = time.perf_counter()
    words, parts = _described(problems)
    prices = problems.row_prices(words[:, ROWS], maximize)
    if prices is not None:
        price_problems(words, prices)
    count = len(words)
    if not count or words[:, KIND].max() < 0:
        return None
    n_rows, n_kept = places_of(words, prices is not None)
    columns, kept, statuses = np.empty(n_rows, np.intp), np.empty(n_kept), np.empty(count, np.int64)
    caps = np.empty(0) if prices is None else prices.caps
    for first, last in pairwise(parts):
        _owners = _addressed(words, problems, first, last)  # keep the memory alive until all is solved
        _run((words, caps, columns, kept, statuses), first, last, -1.0 if maximize else 1.0, threads)
    empty = solve_empty if (words[:, ROWS : COLUMNS + 1] == 0).any() else None
    seconds = (time.perf_counter() - clock) / count
    return SmallAnswers(words, prices, maximize, proved, columns, kept, statuses, seconds, empty)


def _described(problems: BatchProblems) -> tuple[Array, list[int]]:
    """Return words with sizes, and -1 as kind where a problem is not solved here; and the ends of parts.

    Costs of other number types than the kernel reads are converted part by part, which bounds the
    memory of their copies.
    """
    costs: Any = problems.costs
    count = len(costs)
    words = np.zeros((count, WORDS), np.int64)
    if isinstance(costs, np.ndarray):
        fits = type(costs) is np.ndarray and costs.ndim == 3 and _is_number(costs.dtype)
        if not fits:
            words[:, KIND] = -1
            return words, [0, count]
        words[:, ROWS], words[:, COLUMNS] = costs.shape[1:]
        words[:, EXACT], words[:, KIND] = number_code(costs.dtype)
        read = bool((words[:, KIND] < len(DTYPES)).all())
    else:
        layouts = [
            (*cost.shape, *number_code(cost.dtype)) if type(cost) is np.ndarray and cost.ndim == 2 else _OTHER
            for cost in costs
        ]
        words[:, [ROWS, COLUMNS, EXACT, KIND]] = np.array(layouts, np.int64).reshape(-1, 4)
        read = all(one[3] < len(DTYPES) for one in layouts)
    for place, sizes_ in ((ROWS, problems.rows), (COLUMNS, problems.columns)):
        if sizes_ is not None:
            words[:, place] = sizes_
    amounts = words[:, ROWS] * words[:, COLUMNS]
    words[amounts > policy.MOST_SMALL_COSTS, KIND] = -1
    if read or not count:
        return words, [0, count]
    ends, total = [0], np.cumsum(amounts)
    while ends[-1] < count:
        before = int(total[ends[-1] - 1]) if ends[-1] else 0
        last = int(np.searchsorted(total, before + policy.BATCH_COSTS_AT_ONCE, "right"))
        ends.append(max(ends[-1] + 1, last))
    return words, ends


@cache
def number_code(dtype: np.dtype[Any]) -> tuple[bool, int]:
    """Return whether a number type is of integers, and its place in ``DTYPES``, or one beyond if it is read
    as another type; -1 for one that is not solved here.
    """
    if not _is_number(dtype):
        return False, -1
    return dtype.kind != "f", _KINDS.get(dtype, len(DTYPES))


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _is_read(costs: Array) -> bool:
    """Return whether the kernel reads an array where it lies."""
    return costs.dtype in _KINDS and costs.flags.aligned


def _readable(costs: Array) -> Array:
    """Return costs as the kernel reads them: a copy if it does not read them where they lie."""
    if _is_read(costs):
        return costs
    kind, size = costs.dtype.kind, costs.dtype.itemsize
    if (kind, size) == ("u", 8):  # as int64, whose size the kernel checks for any prices
        return np.minimum(costs, _NOT_EXACT, dtype=np.uint64).view(np.int64)
    return np.array(costs, _READ_AS.get(f"{kind}{size}", _READ_AS[kind]))


def _addressed(words: Array, problems: BatchProblems, first: int, last: int) -> list[Array]:
    """Set where problems lie, and their number types; return the arrays that own the memory."""
    costs = problems.costs[first:last]
    part = words[first:last]
    if isinstance(costs, np.ndarray):
        costs = _readable(costs)
        step, *steps = costs.strides
        part[:, ADDRESS] = costs.__array_interface__["data"][0] + step * np.arange(len(costs))
        part[:, ROW_STEP], part[:, COLUMN_STEP] = steps
        part[part[:, KIND] >= 0, KIND] = _KINDS[costs.dtype]
        return [costs]
    places = np.flatnonzero(part[:, KIND] >= 0)
    owners = [_readable(costs[place]) for place in places.tolist()]
    if owners:
        part[places, ADDRESS] = addresses(owners)
        layouts = [(*one.strides, _KINDS[one.dtype]) for one in owners]
        part[places[:, None], [ROW_STEP, COLUMN_STEP, KIND]] = layouts
    return owners


def price_problems(words: Array, prices: RowPrices) -> None:
    """Set where the prices of problems begin, and leave to ``solve`` what it does not solve here either."""
    n, m = words[:, ROWS], words[:, COLUMNS]
    words[:, CAP] = prices.first
    large = n * np.maximum(n, m) > policy.MOST_SMALL_GATED_COSTS
    words[large | prices.wrong | (m == 0), KIND] = -1
    # As ``sources.clipped`` chooses the number type of clipped costs.
    words[:, EXACT] &= prices.whole & ((n <= m) | prices.finite)


def kernel_sizes(words: Array, gated: bool) -> tuple[Array, Array]:
    """Return the kernel's rows and columns of each problem."""
    n, m = words[:, ROWS], words[:, COLUMNS]
    return (n, m) if gated else (np.minimum(n, m), np.maximum(n, m))


def places_of(words: Array, gated: bool) -> tuple[int, int]:
    """Set where each problem's results begin; return how many rows and numbers are stored in all."""
    if not gated:
        words[:, CAP] = -1
    few, many = kernel_sizes(words, gated)
    here = words[:, KIND] >= 0
    rows, kept = few * here, kept_of(few, many) * here
    words[:, FIRST_ROW], words[:, FIRST_KEPT] = np.cumsum(rows) - rows, np.cumsum(kept) - kept
    # A place for the facts of problems that are not solved here, which are read and dropped.
    words[~here, FIRST_KEPT] = 0
    return int(rows.sum()), int(max(kept.sum(), kept_of(few, many).max()))


def _run(arrays: tuple[Array, ...], first: int, last: int, sign: float, given: Callable[[], int]) -> None:
    """Solve problems, in parts that the threads take from a queue."""
    words, caps, columns, kept, statuses = arrays
    part = words[first:last]
    part = part[part[:, KIND] >= 0]
    if not len(part):
        statuses[first:last] = UNSURE
        return
    few, many = kernel_sizes(part, part[0, CAP] >= 0)
    _, real, whole = sizes(int(few.max()), int(many.max()))
    copied = max((few * (many + 16)).tolist())
    total = int((few * many).sum())

    def room() -> tuple[Array, Array, Array]:
        return np.empty(real), np.empty(whole, np.int64), np.empty(copied)

    def solve(start: int, stop: int, mine: tuple[Array, Array, Array] | None = None) -> None:
        mine = mine or room()
        solve_some(words, start, stop, sign, caps, columns, kept, statuses, *mine)

    n_parts = max(1, min(last - first, total // policy.BATCH_COSTS_PER_CALL))
    threads = 1 if n_parts == 1 else given()
    if threads > 1:
        n_parts = min(n_parts, 8 * threads)
    ends = np.linspace(first, last, n_parts + 1).astype(int).tolist()
    if min(threads, n_parts) == 1:
        once = room()
        for start, stop in pairwise(ends):  # Ctrl-C is heard between parts
            solve(start, stop, once)
        return
    pool = ThreadPoolExecutor(min(threads, n_parts), "bigsap-many", quiet_thread)
    try:
        list(pool.map(solve, ends, ends[1:]))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # after an interrupt, drop the waiting parts


def _fields(answer: tuple[SmallAnswers, int]) -> dict[str, Any]:
    batch, k = answer
    words = batch.problems[k]
    n, m, row, start = (int(words[w]) for w in (ROWS, COLUMNS, FIRST_ROW, FIRST_KEPT))
    prices = batch.prices
    few, many = (n, m) if prices is not None else (min(n, m), max(n, m))
    return fields_of(
        Answer(
            int(batch.statuses[k]),
            (n, m),
            batch.maximize,
            bool(words[EXACT]),
            batch.columns[row : row + few],
            batch.kept[start : start + kept_of(few, many)],
            batch.seconds,
            batch.peak,
            proved=batch.proved,
            device=batch.device,
            prices=None if prices is None else prices.of(k),
        )
    )
