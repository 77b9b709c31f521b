"""Matrices of which a few rows and columns are far larger or smaller than all others.

A price as large as a far column's costs loses the digits of all others. Subtracting one number from
each far row and column changes no optimal assignment, and no price but those columns' own. The
numbers are chosen so that no difference is rounded: multiples of the last place of the line's largest
cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bigsap import policy
from bigsap.problem import Problem
from bigsap.proof.exact import down, expansion, two_sum, up
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.strategies.start.outliers import low_middle_high, middles, outlying_lines
from bigsap.types import Array

#: Costs of far lines that are looked at together.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class NearCosts:
    """A square matrix whose costs are all of one size, in place of the given one.

    problem: of these costs, float64 by rows. given: of the costs given. of_rows, of_columns: (n,) what was
    subtracted from the signed costs of each row and column.
    """

    problem: Problem
    given: Problem
    of_rows: Array
    of_columns: Array

    def prices(self, v: Array) -> Array:
        """Return prices (m,) for this problem from some of the given one, or of costs without far lines.

        Of a far column's two possible prices the one nearer to the others: both are valid starts.
        """
        near = v - self.of_columns
        others = self.of_columns == 0
        usual = float(np.median(v[others])) if others.any() else 0.0
        return np.where(np.abs(near - usual) < np.abs(v - usual), near, v)

    def bounds(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """Return bounds of the given optimum from those of this problem's, in the user's sense. O(n).

        Costs of assignments are rounded to nearest: one step away from the optimum covers that.
        """
        sign = self.given.sign
        total = expansion(sign * self.of_rows, sign * self.of_columns)
        return (
            None if low is None or not math.isfinite(low) else down([*total, math.nextafter(low, -math.inf)]),
            None if high is None or not math.isfinite(high) else up([*total, math.nextafter(high, math.inf)]),
        )


@np.errstate(over="ignore", invalid="ignore")
def near_costs(problem: Problem, over: Callable[[], object] = lambda: None) -> NearCosts | None:
    """Return the costs of a square matrix less those of its far columns and rows.

    None without far columns, where a difference would be rounded, where what is left of them would still
    be far from all others, and once ``over`` is true. O(n) without far columns, else a copy.
    """
    given = _square(problem, mapped=True)
    if given is None or 8 * given.size > policy.FAR_COPY_BYTES:
        return None
    n = len(given)
    some = np.linspace(0, n - 1, policy.FAR_SAMPLE).astype(np.intp)
    columns = _far(given[some].T)
    if not columns.size:
        return None
    rows = _far(given[:, some])  # only now: in a mapped file each row is another page
    step = max(1, _AT_ONCE // n)
    costs = np.empty((n, n))
    for start in range(0, n, step):
        if over():
            return None
        costs[start : start + step] = given[start : start + step]
    usual = float(np.median(costs[some]))
    crossing = np.ix_(rows, columns)
    crossed = costs[crossing]
    extent = np.median(np.abs(costs[some] - usual))
    shifts = []
    for lines, others, turned in ((rows, columns, costs), (columns, rows, costs.T)):
        by = np.empty(lines.size)
        # The pairs of far rows with far columns have a number of their own.
        near = np.ones(n, bool)
        near[others] = False
        like = np.setdiff1d(np.linspace(0, n - 1, policy.FAR_ALIKE).astype(np.intp), lines)
        least = float(np.median(turned[like][:, near].min(axis=1)))
        for start in range(0, lines.size, step):
            if over():
                return None
            some_lines = lines[start : start + step]
            part = turned[some_lines]
            found = _common(part[:, near], least)
            if found is None:
                return None
            by[start : start + step], less = found
            if (np.median(np.abs(less - usual), axis=1) > policy.OUTLYING * extent).any():
                return None
            part[:, near] = less
            turned[some_lines] = part
        shifts.append(by)
    left = _left(crossed, *shifts)
    if left is None or (left.size and np.abs(left - usual).max() > policy.OUTLYING * extent):
        return None
    costs[crossing] = left
    of_rows, of_columns = np.zeros(n), np.zeros(n)
    of_rows[rows], of_columns[columns] = problem.sign * shifts[0], problem.sign * shifts[1]
    return NearCosts(replace(problem, source=ArraySource(costs)), problem, of_rows, of_columns)


def with_far_rows(problem: Problem) -> Problem:
    """Return a square matrix in memory transposed, in a copy, if a few columns are far from all others.

    For columns whose costs also differ by so much: the dual of a row is computed from its costs, exactly.
    Judged by some rows; not if rows are far, too, and not in a mapped file.
    """
    matrix = _square(problem, mapped=False)
    if matrix is None or matrix.nbytes > policy.FAR_COPY_BYTES:
        return problem
    some = np.linspace(0, len(matrix) - 1, policy.FAR_SAMPLE).astype(np.intp)
    far = policy.FAR_COLUMN
    if not outlying_lines(matrix[some].T, far).size or outlying_lines(matrix[:, some], far).size:
        return problem
    return Problem(ArraySource(np.ascontiguousarray(matrix.T)), problem.maximize, not problem.transposed)


def _square(problem: Problem, *, mapped: bool) -> Array | None:
    """Return the costs of a square matrix of floats that is large enough; else None.

    mapped: whether it may lie in a mapped file.
    """
    source, (n, m) = problem.source, problem.shape
    if (
        not isinstance(source, ArraySource)
        or (source.mapped and not mapped)
        or n != m
        or source.dtype.kind != "f"
    ):
        return None
    return source.array if n >= policy.OUTLIERS_AMONG else None


def _far(features: Array) -> Array:
    """Return the ids of lines that are far from at least three quarters of all. features: (lines, k)."""
    if not np.isfinite(features).all():
        return np.empty(0, np.intp)
    middle = middles(features)
    low, usual, high = low_middle_high(middle, 0.25)
    if not high > low:
        return np.empty(0, np.intp)
    far = np.flatnonzero(np.abs(middle - usual) > policy.OUTLYING * (high - low))
    return far if 4 * far.size < middle.size else np.empty(0, np.intp)


def _common(lines: Array, least: float) -> tuple[Array, Array] | None:
    """Return a number for each line (k, l), and what is left without rounding; None where it rounds.

    The smallest of what is left is ``least``, where that is exact: rows compete for the smallest costs, and a
    line whose medians are like the others' may be far better, or worse, there. Else, if all costs of a line
    have one sign, the number is at most the smallest of them.
    """
    sizes = np.abs(lines)
    if not np.isfinite(sizes).all():
        return None
    unit = np.spacing(sizes.max(axis=1, initial=abs(least)))
    first = np.round((lines.min(axis=1) - least) / unit) * unit
    smallest = np.floor(sizes.min(axis=1, initial=np.inf) / unit) * unit
    smallest = np.where((lines > 0).all(axis=1), smallest, np.where((lines < 0).all(axis=1), -smallest, 0.0))
    less, error = two_sum(lines, -first[:, None])
    rounded = error.any(axis=1)
    by = np.where(rounded, smallest, first)
    less[rounded], error = two_sum(lines[rounded], -by[rounded, None])
    return None if error.any() or not by.all() else (by, less)


def _left(costs: Array, of_rows: Array, of_columns: Array) -> Array | None:
    """Return the costs less a number of each row and column; None where a result is rounded."""
    less, first = two_sum(costs, -of_rows[:, None])
    less, second = two_sum(less, -of_columns)
    rest, third = two_sum(first, second)
    left, fourth = two_sum(less, rest)
    return None if third.any() or fourth.any() else left
