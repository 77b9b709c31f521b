"""Batches of small arrays, each solved as in ``small_arrays``, on threads started by Python.

For a problem of an array (k, n, m), Python does nothing but create its result.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.small.search import INFEASIBLE, OPTIMAL, UNSURE, kept_of, sizes, solve_some
from bigsap.errors import quiet_thread
from bigsap.memory import peak_bytes
from bigsap.result import Result, Status
from bigsap.run.batch_problems import BatchProblems, shapes_of
from bigsap.run.small_arrays import Told, fields_of, signed_costs, suits
from bigsap.types import Array

_ADDRESS, _STRIDE, _ROWS, _COLUMNS, _FIRST_ROW, _FIRST_KEPT, _EXACTLY = range(7)
# Where the facts of a problem are, after its duals and costs.
_FACT = {"fun": 3, "gap": 4, "bound": 5}


@dataclass(frozen=True, slots=True)
class SmallAnswers:
    """Problems (k, 7) as ``engine.small.search.solve_some`` takes them, and their answers.

    shapes (k, 2): the user's n and m. integer (k,): whether costs are whole numbers. proved: see
    ``Told``. widths: the numbers of columns of the tables of rows and of columns.
    """

    problems: Array
    shapes: Array
    widths: tuple[int, int]
    integer: Array
    maximize: bool
    proved: bool
    columns: Array
    kept: Array
    statuses: Array
    seconds: float
    peak: int

    def result(self, place: int) -> Result:
        """Return the result of a problem; its fields are computed on first access."""
        n, m = self.shapes[place].tolist()
        return Result.later(_one_of, (self, place), maximize=self.maximize, shape=(n, m))

    def statuses_told(self) -> Array:
        """Return the status of each problem, empty where it is not known."""
        return np.array([Status.OPTIMAL.value, Status.INFEASIBLE.value, "", "", ""])[self.statuses]

    def numbers(self, name: str) -> Array:
        """Return ``fun``, ``bound`` or ``gap`` of each problem, NaN where there is none."""
        if name != "fun" and not self.proved:
            return np.full(len(self.problems), np.nan)
        few, many, first = (self.problems[:, k] for k in (_ROWS, _COLUMNS, _FIRST_KEPT))
        found = self.kept[first + 2 * few + many + _FACT[name]]
        if name != "gap":
            found = (-1 if self.maximize else 1) * found + 0
        solved = self.statuses == OPTIMAL
        if self.integer.all() and solved[self.statuses <= INFEASIBLE].all():
            return np.where(solved, found, 0).astype(np.int64)
        return np.where(solved, found, np.nan)

    def col4row(self) -> Array:
        """Return the column of each row (k, N), -1 where there is none."""
        return self._table(0)

    def row4col(self) -> Array:
        """Return the row of each column (k, M), -1 where there is none."""
        return self._table(1)

    def _table(self, axis: int) -> Array:
        few, solved = self.problems[:, _ROWS], self.statuses == OPTIMAL
        tall = self.shapes[:, 0] > self.shapes[:, 1]
        short = tall if axis else ~tall  # where the kernel's rows are the lines asked for
        count, width = len(few), self.widths[axis]
        if short.all() and len(self.columns) == count * width:
            table = self.columns.reshape(count, width)
            return table if solved.all() else np.where(solved[:, None], table, -1)
        table = np.full((count, width), -1, np.intp)
        problem = np.repeat(np.arange(count), few)
        line = np.arange(len(self.columns)) - np.repeat(self.problems[:, _FIRST_ROW], few)
        here = solved[problem]
        problem, line, column = problem[here], line[here], self.columns[here]
        turned = ~short[problem]
        table[problem, np.where(turned, column, line)] = np.where(turned, line, column)
        return table


def can_solve(problems: BatchProblems) -> bool:
    """Return whether all problems are arrays that can be solved here."""
    costs = problems.costs
    if not len(costs):
        return False
    if isinstance(costs, np.ndarray) and problems.rows is problems.columns is None:
        return costs.ndim == 3 and suits(costs[0])
    return all(suits(problems.cost(place)) for place in range(len(costs)))


def solve_batch(problems: BatchProblems, maximize: bool, threads: int, proved: bool = True) -> SmallAnswers:
    """Return the answers of an array (k, n, m), or of a list of matrices of any shapes that ``suits``.

    Statuses beyond INFEASIBLE are those of problems that must be solved by ``solve``: invalid costs,
    and what is not proved here. proved: see ``small_arrays.solve_small``.
    """
    costs: Any = problems.costs
    if problems.rows is not None or problems.columns is not None:
        costs = [problems.cost(place) for place in range(len(problems))]
    count, clock = len(costs), time.perf_counter()
    told = np.zeros((count, 7), np.int64)
    shapes = shapes_of(costs)
    told[:, _ROWS], told[:, _COLUMNS] = shapes.min(axis=1), shapes.max(axis=1)
    n_kept = _starts(told)
    columns, kept = np.empty(int(told[:, _ROWS].sum()), np.intp), np.empty(n_kept)
    statuses = np.full(count, UNSURE, np.int64)
    sizes = np.cumsum(shapes.prod(axis=1))
    first = 0
    while first < count:
        # Parts, which bounds the memory of their copies.
        before = int(sizes[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(sizes, before + policy.BATCH_COSTS_AT_ONCE, "right")))
        prepared = _prepared(costs[first:last], maximize)
        if prepared is not None:
            part, _owners = prepared  # keep the owners of the memory alive until all is solved
            part[:, _FIRST_ROW : _FIRST_KEPT + 1] = told[first:last, _FIRST_ROW : _FIRST_KEPT + 1]
            _run(part, columns, kept, statuses[first:last], int(sizes[last - 1]) - before, threads)
        first = last
    one = isinstance(costs, np.ndarray)
    whole = [costs.dtype.kind != "f"] * count if one else [c.dtype.kind != "f" for c in costs]
    widths = costs.shape[1:] if one else tuple(shapes.max(axis=0).tolist())
    seconds = (time.perf_counter() - clock) / count
    return SmallAnswers(
        told,
        shapes,
        widths,
        np.array(whole),
        maximize,
        proved,
        columns,
        kept,
        statuses,
        seconds,
        peak_bytes(),
    )


def _prepared(costs: Any, maximize: bool) -> tuple[Array, list[Array]] | None:
    """Return addresses, strides and shapes of the signed costs, and the arrays that own them."""
    problems = np.empty((len(costs), 7), np.int64)
    if not isinstance(costs, np.ndarray):
        kinds = {(c.dtype, c.shape) for c in costs}
        if len(kinds) == 1 and (maximize or costs[0].dtype != np.float64):
            costs = np.array(costs)
    if isinstance(costs, np.ndarray):
        prepared = signed_costs(costs, maximize)
        if prepared is None:
            return None
        signed, integers = prepared
        steps = signed.strides
        problems[:, _ADDRESS] = signed.__array_interface__["data"][0]
        problems[:, _ADDRESS] += np.arange(len(signed)) * steps[0]
        problems[:, _STRIDE] = steps[1] // 8
        problems[:, _ROWS], problems[:, _COLUMNS] = signed.shape[1:]
        problems[:, _EXACTLY] = integers
        return problems, [signed]
    each = [signed_costs(matrix, maximize) for matrix in costs]
    found = [one for one in each if one is not None]
    if len(found) < len(each):
        return None
    problems[:, :5] = [
        (matrix.__array_interface__["data"][0], matrix.strides[0] // 8, *matrix.shape, 0)
        for matrix, _ in found
    ]
    problems[:, _EXACTLY] = [integers for _, integers in found]
    return problems, [matrix for matrix, _ in found]


def _starts(problems: Array) -> int:
    """Set where each problem's results begin; return how many numbers are stored in all."""
    rows = problems[:, _ROWS]
    sizes_kept = kept_of(rows, problems[:, _COLUMNS])
    problems[0, _FIRST_ROW] = problems[0, _FIRST_KEPT] = 0
    np.cumsum(rows[:-1], out=problems[1:, _FIRST_ROW])
    np.cumsum(sizes_kept[:-1], out=problems[1:, _FIRST_KEPT])
    return int(sizes_kept.sum())


def _run(problems: Array, columns: Array, kept: Array, statuses: Array, total: int, threads: int) -> None:
    """Solve all problems, in parts that the threads take from a queue."""
    _, real, whole = sizes(int(problems[:, _ROWS].max()), int(problems[:, _COLUMNS].max()))

    def solve(first: int, last: int) -> None:
        solve_some(problems, first, last, columns, kept, statuses, np.empty(real), np.empty(whole, np.int64))

    count = len(problems)
    n_parts = max(1, min(count, 8 * threads, total // policy.BATCH_COSTS_PER_CALL))
    ends = np.linspace(0, count, n_parts + 1).astype(int).tolist()
    if min(threads, n_parts) == 1:
        for first, last in pairwise(ends):
            solve(first, last)
        return
    pool = ThreadPoolExecutor(min(threads, n_parts), "bigsap-many", quiet_thread)
    try:
        list(pool.map(solve, ends, ends[1:]))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # after an interrupt, drop the waiting parts


def _one_of(told: tuple[SmallAnswers, int]) -> dict[str, Any]:
    batch, k = told
    _, _, n, m, row, start, _ = batch.problems[k].tolist()
    return fields_of(
        Told(
            int(batch.statuses[k]),
            tuple(batch.shapes[k].tolist()),
            batch.maximize,
            bool(batch.integer[k]),
            batch.columns[row : row + n],
            batch.kept[start : start + kept_of(n, m)],
            batch.seconds,
            batch.peak,
            proved=batch.proved,
        )
    )
