"""Small arrays that fit a cache, and easy large ones, solved by the dense kernel: one call, one thread.

``solve`` and ``linear_sum_assignment`` use it for small problems, ``small_batches`` for many of
them. Results are the same as those that ``certify`` proves. Where the kernel is not certain of a
result (an overflow, integers beyond float64, problems that are hard for their size), None leaves
the problem to the general method.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.small.search import (
    FACTS,
    INFEASIBLE,
    INVALID,
    LOOSE,
    OPTIMAL,
    SPARE,
    UNSURE,
    sizes,
    solve_dense,
    solve_matrix,
)
from bigsap.errors import InfeasibleError, InvalidCostError
from bigsap.memory import peak_bytes
from bigsap.problem import Problem
from bigsap.result import MESSAGES, Result, Status, views_of
from bigsap.run.small_search import Start, few_row_prices, solved_closely
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies.orientation import inverse
from bigsap.strategies.work import on_whole_rows
from bigsap.types import Array

# float64 represents integers exactly below the first; sums stay within this many costs a row, as in
# ``precision``.
_EXACT, _TERMS_PER_ROW = 1 << 53, 4

# Squares of 64-bit integers that are certainly proved: a row and column fewer than 2**7 of them, each below
# 2**40, so that 2**-50 of their sum is less than 1, and all sums are exact.
_SQUARES = 2.0**80
# What a quick call would otherwise look up or add.
_FLOAT64 = np.dtype(np.float64)
_EXTRA = FACTS + SPARE

# Costs converted at a time, so that they stay in a core's own cache: 256 KiB.
_AT_ONCE = 1 << 15

WHY, WHY_POINTS = "a small matrix in memory", "few points, whose costs take less time than a search"
WHY_EASY = "a matrix in memory whose rows hardly compete"

#: What a solve reports that keeps all its costs in memory and makes no lists.
WITHOUT_LISTS: dict[str, Any] = {
    "pairs_skipped": 0,
    "cache_policy": "in place",
    "cache_slots": 0,
    "cache_bytes": 0,
    "cache_hits": 0,
    "cache_misses": 0,
    "copied_bytes": 0,
    "list_bytes": 0,
    "lists_doubled": 0,
    "list_growth_refused": 0,
    "cluster": None,
    "refined": 0,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Kernel output for one problem with rows no longer than columns.

    shape: as the user has it. kept: see ``engine.small.search``. seconds: the mean in a batch.
    v_low: low parts of the stored prices. warm: whether the search began from a given start.
    proved: False to omit the proof from the result. prices: of rows that may stay unassigned.
    points: the type of points whose costs these are, None for a matrix. device: where it was found.
    """

    status: int
    shape: tuple[int, int]
    maximize: bool
    integer: bool
    column_of_row: Array
    kept: Array
    seconds: float
    peak: int | None = None
    v_low: Array | None = None
    warm: bool = False
    proved: bool = True
    prices: Array | None = None
    points: str | None = None
    device: str = "cpu"

    @property
    def sizes(self) -> tuple[int, int]:
        """The kernel's rows and columns."""
        n, m = self.shape
        return (min(n, m), max(n, m)) if self.prices is None else (n, m)

    @property
    def turned(self) -> bool:
        """Whether the kernel's rows are the user's columns."""
        return self.sizes[0] != self.shape[0]


def suits(costs: Any, *, easy: bool = False) -> bool:
    """Return whether an object is an array that can be solved here directly, without options.

    easy: whether a large one counts, which is minimised, if its rows hardly compete.
    """
    return (
        type(costs) is np.ndarray
        and costs.ndim == 2
        and costs.dtype.kind in "biuf"
        and costs.dtype.itemsize <= 8
        and (0 < costs.size <= policy.MOST_SMALL_COSTS or (easy and _is_easy(costs)))
    )


def _is_easy(costs: Array) -> bool:
    """Return whether rows hardly compete: prices that a few rows give leave others a column each.

    Then one bid a row assigns nearly all. For square float64 matrices, which need no copy. O(n sqrt(n)).
    """
    n, m = costs.shape
    if n != m or costs.dtype is not _FLOAT64 or not 0 < costs.size <= policy.MOST_EASY_COSTS:
        return False
    rows, v = costs[1 :: max(1, int(n**0.5) // policy.EASY_ROWS)], few_row_prices(costs)
    # A few first: where all rows want the same columns, these already show it.
    wanted = ((some - v).argmin(axis=1) for some in (rows[: policy.EASY_FIRST], rows))
    return all(best.size - np.unique(best).size <= len(rows) // policy.EASY_SHARE for best in wanted)


def quick_assignment(costs: Array, maximize: bool = False) -> tuple[Array, Array] | None:
    """Return ``(row_ind, col_ind)`` of a matrix, or None.

    For matrices of few rows, where the call takes longer than the search. None for all that is not
    solved at once: large matrices, but float64 ones as the kernel is compiled for, and what
    ``assignment`` raises for.
    """
    n, m = costs.shape
    turned = n > m
    matrix: Array | None = costs
    # carray: contiguous, aligned and writable, as the kernel is compiled for.
    if maximize or turned or costs.dtype is not _FLOAT64 or not costs.flags.carray:
        matrix = _copied(costs, maximize, turned)
        if turned:
            n, m = m, n
    if matrix is None or n == 0 or n * m > policy.MOST_SMALL_COSTS:
        return None
    pairs = np.empty((2, n), np.intp)
    if solve_matrix(matrix, pairs, np.empty(7 * n + 9 * m + _EXTRA)) != OPTIMAL:
        return None
    if turned:
        order = pairs[1].argsort()
        return pairs[1][order], order
    return pairs[0], pairs[1]


def _copied(costs: Array, maximize: bool, turned: bool) -> Array | None:
    """Return few costs signed, as float64, with no more rows than columns; None for others.

    Also None for integers so large that the proof of float64, a gap of at most 2**-50 of the sum, might not
    prove theirs, a gap below 1.
    """
    dtype = costs.dtype
    if costs.size > policy.MOST_COPIED_COSTS or dtype.kind not in "biuf" or dtype.itemsize > 8:
        return None
    given = costs.T if turned else costs
    if maximize:
        copy = np.negative(given, dtype=np.float64, order="C")
    else:
        copy = np.array(given, np.float64, order="C")
    if dtype.itemsize == 8 and dtype.kind != "f":
        flat = copy.reshape(-1)
        if not flat.dot(flat) < _SQUARES:
            return None
    return copy


def assignment(costs: Array, maximize: bool) -> tuple[Array, Array] | None:
    """Return ``(row_ind, col_ind)`` of costs that ``suits`` accepts, or None.

    Raises InvalidCostError and InfeasibleError as ``linear_sum_assignment``.
    """
    prepared = signed_costs(costs, maximize)
    if prepared is None:
        return None
    status, column_of_row, kept, _ = solved_closely(*prepared)
    n, m = costs.shape
    if status == OPTIMAL:
        if n <= m:
            return np.arange(n), column_of_row
        order = column_of_row.argsort()
        return column_of_row[order], order
    if status == INVALID:
        _complain(costs, maximize)
    if status == INFEASIBLE:
        violator = _violator(Answer(status, (n, m), maximize, False, column_of_row, kept, 0.0))
        raise InfeasibleError("cost matrix is infeasible", violator.tolist())
    return None


def solve_small(
    costs: Array,
    maximize: bool,
    *,
    gated: bool = False,
    start: Start | None = None,
    proved: bool = True,
    points: str | None = None,
) -> Result | None:
    """Return the result for costs that ``suits`` accepts, or None.

    Raises InvalidCostError as ``solve``. gated: some columns may stay free, so no price may be above
    0. start: for square costs; a start that does not lead to a proof is dropped. proved: False for a
    result without its proof. The proof is computed nevertheless, by the same call, and shows whether
    rounding decided the assignment. points: see ``Answer``.
    """
    clock = time.perf_counter()
    prepared = signed_costs(costs, maximize)
    if prepared is None:
        return None
    status, column_of_row, kept, v_low = solved_closely(*prepared, start, gated=gated)
    if status == INVALID:
        _complain(costs, maximize)
    if status in (UNSURE, LOOSE):
        if start is None:
            return None
        return solve_small(costs, maximize, gated=gated, proved=proved, points=points)
    integer = costs.dtype.kind != "f"
    seconds = time.perf_counter() - clock
    n, m = costs.shape
    answer = Answer(
        status,
        (n, m),
        maximize,
        integer,
        column_of_row,
        kept,
        seconds,
        v_low=v_low,
        warm=start is not None,
        proved=proved,
        points=points,
    )
    return Result.later(fields_of, answer, maximize=maximize, shape=(n, m))


def solve_priced(costs: Array, gated: ClippedCosts, proved: bool, points: str | None = None) -> Result | None:
    """Return the result for costs that ``suits`` accepts, whose rows may stay unassigned.

    gated: the same costs with the rows' prices. proved, points: see ``solve_small``. None if it is not proved
    here, or a cost is invalid.
    """
    clock = time.perf_counter()
    (n, m), maximize = costs.shape, gated.maximize
    sign = -1.0 if maximize else 1.0
    integers = costs.dtype.kind != "f"
    # As the clipped costs: fractions, and rows that must be assigned, make integers floats.
    exact = integers and gated.dtype.kind != "f"
    caps = sign * gated.prices.astype(np.float64)
    if integers:
        largest = max(float(costs.max()), -float(costs.min()))
        if exact and n:
            largest = (
                _TERMS_PER_ROW * (n + 2) * max(largest, float(np.abs(caps[np.isfinite(caps)]).max(initial=0)))
            )
        if not largest < _EXACT:
            return None
    matrix = costs
    steps, flags = costs.strides, costs.flags
    if (
        costs.dtype != np.float64
        or maximize
        or not flags.aligned
        or steps[1] != 8
        or steps[0] % 8
        or steps[0] < 0
    ):
        matrix = np.multiply(costs, sign, dtype=np.float64, order="C")
    keep, n_real, n_whole = sizes(n, m)
    column_of_row, kept = np.empty(n, np.intp), np.empty(keep)
    status = solve_dense(
        matrix.__array_interface__["data"][0],
        matrix.strides[0] // 8,
        n,
        m,
        exact,
        False,
        False,
        np.inf,
        caps,
        column_of_row,
        kept,
        np.empty(n_real),
        np.empty(n_whole, np.int64),
    )
    if status not in (OPTIMAL, INFEASIBLE):
        return None
    seconds = time.perf_counter() - clock
    answer = Answer(
        status,
        (n, m),
        maximize,
        exact,
        column_of_row,
        kept,
        seconds,
        proved=proved,
        prices=gated.prices.copy(),
        points=points,
    )
    return Result.later(fields_of, answer, maximize=maximize, shape=(n, m))


def signed_costs(costs: Array, maximize: bool) -> tuple[Array, bool] | None:
    """Return costs (..., n, m) as the kernel takes them, and whether they are integers with exact sums.

    None if they cannot be converted. No copy where they are float64, minimised, and rows are
    contiguous and no longer than columns.
    """
    n, m = costs.shape[-2:]
    matrix = costs if n <= m else costs.swapaxes(-1, -2)
    if costs.dtype == np.float64 and not maximize:
        rows, columns = matrix.strides[-2:]
        flags = matrix.flags
        if flags.c_contiguous and flags.aligned:
            return matrix, False
        if columns == 8 and rows % 8 == 0 and rows > 0 and flags.aligned and matrix.ndim == 2:
            return matrix, False
        return np.array(matrix, np.float64, order="C"), False
    signed = np.empty(matrix.shape)
    integers, largest = costs.dtype.kind != "f", 0.0
    step = max(1, len(matrix) * _AT_ONCE // matrix.size)
    for first in range(0, len(matrix), step):
        part = signed[first : first + step]
        part[...] = matrix[first : first + step]
        if integers:
            largest = max(largest, float(part.max()), -float(part.min()))
        if maximize:
            np.negative(part, out=part)
    exact = _TERMS_PER_ROW * (min(n, m) + 2) * largest < _EXACT
    return (signed, integers) if exact or not integers else None


def _complain(costs: Array, maximize: bool) -> None:
    """Raise InvalidCostError for the first invalid pair."""
    bad = np.isnan(costs) | (costs == (np.inf if maximize else -np.inf))
    row, column = divmod(int(bad.argmax()), costs.shape[1])
    if bad[row, column]:
        Problem(ArraySource(costs), maximize).complain(row, column, costs[row, column])
    raise InvalidCostError("the costs changed while they were read")


def _violator(answer: Answer) -> Array:
    """Return the user's rows that have too few allowed columns, in order."""
    few, many = answer.sizes
    if not answer.turned:
        return answer.column_of_row[: int(answer.kept[2 * few + many + 2])]
    # The violator consists of columns. The rows that allow none of them have too few columns themselves.
    return np.flatnonzero(answer.kept[2 * few : 2 * few + many] == 0)


def fields_of(answer: Answer) -> dict[str, Any]:
    """Return the fields of a result, equal to those of ``certify`` and ``Result.from_assignment``."""
    n, m = answer.shape
    few, many = answer.sizes
    kept = answer.kept
    facts = kept[2 * few + many : 2 * few + many + FACTS]
    _, scans, _, total, gap, bound = facts.tolist()
    rest = kept[2 * few + many + FACTS :]
    phase = {
        "epsilon": 0.0,
        "rows_scanned": int(scans),
        "prices_moved": 0,
        "drops": 0.0,
        "epsilon_drops": 0.0,
        "seconds": answer.seconds,
    }
    stats = _stats(answer, int(scans), phase)
    if answer.status == INFEASIBLE:
        from bigsap.run.conclude import explain

        violator = _violator(answer)
        return vars(
            Result.from_assignment(
                None,
                shape=answer.shape,
                status=Status.INFEASIBLE,
                message=explain(violator),
                maximize=answer.maximize,
                stats=stats,
                nit=1,
                violator=violator,
            )
        ) | {"unassigned_cost": answer.prices}
    sign = -1 if answer.maximize else 1
    matching = inverse(answer.column_of_row, n) if answer.turned else answer.column_of_row.copy()
    row_ind, col_ind, row4col = views_of(matching, m)
    if answer.prices is not None:
        stats["unassigned_rows"] = n - len(row_ind)
    # Adding 0 turns -0.0 into 0.0.
    u, v = sign * kept[:few] + 0, sign * kept[2 * few : 2 * few + many] + 0
    u_low = sign * rest + 0 if rest.any() else None
    v_low = None if answer.v_low is None else sign * answer.v_low + 0
    fun: Any = sign * total + 0
    bound = sign * bound + 0
    if answer.integer:
        fun, bound, gap = int(fun), int(bound), int(gap)
    if answer.proved:
        low, high = (fun, bound) if answer.maximize else (bound, fun)
        enclosed = {"gap": gap, "lower_bound": low, "upper_bound": high}
        stats["gaps"] = [{"seconds": answer.seconds, **enclosed}]
    return {
        "row_ind": row_ind,
        "col_ind": col_ind,
        "fun": fun,
        "u": v if answer.turned else u,
        "v": u if answer.turned else v,
        "u_low": v_low if answer.turned else u_low,
        "v_low": u_low if answer.turned else v_low,
        "bound": bound if answer.proved else None,
        "gap": gap if answer.proved else None,
        "status": Status.OPTIMAL,
        "success": True,
        "message": MESSAGES[Status.OPTIMAL],
        "nit": 1,
        "stats": stats,
        "col4row": matching,
        "row4col": row4col,
        "violator": np.empty(0, np.intp),
        "maximize": answer.maximize,
        "shape": answer.shape,
        "unassigned_cost": answer.prices,
        "costs": _costs(answer, matching, row_ind),
        "capacity": None,
        "demand": None,
    }


def _costs(answer: Answer, col4row: Array, row_ind: Array) -> Array:
    """Return the costs of the pairs in the user's sense."""
    few, _ = answer.sizes
    matched = (-1 if answer.maximize else 1) * answer.kept[few : 2 * few] + 0
    costs = matched[col4row[row_ind]] if answer.turned else matched[row_ind]
    return costs.astype(np.int64) if answer.integer else costs


def _stats(answer: Answer, scans: int, phase: dict[str, Any]) -> dict[str, Any]:
    """Return the same fields as ``stats.solve_stats``."""
    n, m = answer.shape
    rows, _ = answer.sizes
    seconds = answer.seconds
    proved = answer.proved and answer.status == OPTIMAL
    return {
        "method": "dense",
        "why": WHY_EASY if n * m > policy.MOST_SMALL_COSTS else WHY if answer.points is None else WHY_POINTS,
        "threads": 1,
        "device": answer.device,
        "source": "ClippedCosts" if answer.prices is not None else answer.points or "ArraySource",
        "evaluated_by": None,
        "transposed": answer.turned,
        "price": "float64",
        "resumed": 0,
        "warm_started": answer.warm,
        "rows_evaluated": rows,
        "pairs_evaluated": n * m,
        "certificate_pairs": n * m if proved else 0,
        "proof": "pairs" if proved else None,
        "proof_bounds": 0,
        "rows_scanned": scans,
        "expected": on_whole_rows(answer.sizes).counts(),
        **WITHOUT_LISTS,
        "cache_slots": rows,
        "cache_hits": scans,
        "trees": {},
        "auction": {},
        "first_prices": None,
        "phases": [phase],
        "gaps": [],
        # The search and the proof are one call.
        "seconds": {"start": 0.0, "search": seconds, "certificate": 0.0, "total": seconds},
        "peak_bytes": answer.peak if answer.peak is not None else peak_bytes(),
    }
