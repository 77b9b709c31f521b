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
from bigsap.engine.small.search import INFEASIBLE, kept_of, sizes, solve_some
from bigsap.errors import quiet_thread
from bigsap.memory import peak_bytes
from bigsap.result import Result
from bigsap.run.small_arrays import Told, fields_of, signed_costs, suits
from bigsap.types import Array

_ADDRESS, _STRIDE, _ROWS, _COLUMNS, _FIRST_ROW, _FIRST_KEPT, _EXACTLY = range(7)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Problems (k, 7) as ``engine.small.search.solve_some`` takes them, and their results.

    shapes: the user's (n, m), of each or of all; integer: likewise. proved: see ``Told``.
    """

    problems: Array
    shapes: list[tuple[int, int]]
    integer: list[bool]
    maximize: bool
    proved: bool
    columns: Array
    kept: Array
    statuses: Array
    seconds: float
    peak: int


def solve_batch(costs: Any, maximize: bool, threads: int, proved: bool = True) -> list[Result | None] | None:
    """Return the results of an array (k, n, m), or of a list of matrices of any shapes.

    None in place of a result that is not proved (invalid costs too); None for the whole batch if not
    all problems can be solved here. For a problem of an array, Python only creates its result, which
    is filled on first access; for one of a list it inspects the array too. proved: see
    ``small_arrays.solve_small``.
    """
    count = len(costs)
    if isinstance(costs, np.ndarray):
        if costs.ndim != 3 or not count or not suits(costs[0]):
            return None
        total = costs.size
    else:
        if not count or not all(map(suits, costs)):
            return None
        total = sum([matrix.size for matrix in costs])
    if total > policy.BATCH_COSTS_AT_ONCE and count > 1:
        half = solve_batch(costs[: count // 2], maximize, threads, proved)
        if half is None:
            return None
        other = solve_batch(costs[count // 2 :], maximize, threads, proved)
        return None if other is None else half + other
    clock = time.perf_counter()
    prepared = _prepared(costs, maximize)
    if prepared is None:
        return None
    problems, _owners = prepared  # keep the owners of the memory alive until all is solved
    n_kept = _starts(problems)
    columns, kept = np.empty(int(problems[:, _ROWS].sum()), np.intp), np.empty(n_kept)
    statuses = np.empty(count, np.int64)
    _run(problems, columns, kept, statuses, total, threads)
    if isinstance(costs, np.ndarray):
        shapes, integer = [costs.shape[1:]] * count, [costs.dtype.kind != "f"] * count
    else:
        shapes, integer = [c.shape for c in costs], [c.dtype.kind != "f" for c in costs]
    seconds = (time.perf_counter() - clock) / count
    batch = _Batch(
        problems, shapes, integer, maximize, proved, columns, kept, statuses, seconds, peak_bytes()
    )
    return [
        Result.later(_one_of, (batch, k), maximize=maximize, shape=shape) if status <= INFEASIBLE else None
        for k, (status, shape) in enumerate(zip(statuses.tolist(), shapes, strict=True))
    ]


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


def _one_of(told: tuple[_Batch, int]) -> dict[str, Any]:
    batch, k = told
    _, _, n, m, row, start, _ = batch.problems[k].tolist()
    return fields_of(
        Told(
            int(batch.statuses[k]),
            batch.shapes[k],
            batch.maximize,
            batch.integer[k],
            batch.columns[row : row + n],
            batch.kept[start : start + kept_of(n, m)],
            batch.seconds,
            batch.peak,
            proved=batch.proved,
        )
    )
