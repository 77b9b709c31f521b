"""Choice of the exact arithmetic of a solve: float64, float64 on a grid, or int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import OverflowRiskError
from bigsap.problem import Problem
from bigsap.types import Array

# Every label is a signed sum of at most about this many reduced costs per row of the
# path; see ``choose``.
TERMS_PER_ROW = 4
#: Assumed limit of 64-bit integer costs until one exceeds it.
USUAL = 1 << 31


class LargeCosts(Exception):
    """Raised for a 64-bit integer cost beyond USUAL; the solve starts over in int64."""


@dataclass(frozen=True)
class Arithmetic:
    """Number type and grid of prices.

    price: dtype of prices and labels. grid: prices and epsilons are multiples of it (0: no grid,
    costs are real numbers).
    """

    price: np.dtype[Any]
    grid: float


def choose(problem: Problem, *, large: bool = False) -> Arithmetic:
    """Choose float64 for real costs, and an arithmetic without rounding for integer costs.

    Labels and prices are bounded by ``4 (min(n, m) + 2) max|c|``. If that leaves some of a
    float64's 53 bits spare, prices live on the grid of those spare bits, where float64 sums are
    exact. Otherwise prices are int64 and epsilons whole numbers.

    max|c| is taken from the dtype, not from the costs, so that the answer does not depend
    on where they are stored; 64-bit costs count as 32-bit ones unless ``large``.
    """
    if not problem.integer:
        return Arithmetic(np.dtype(np.float64), 0.0)
    if large:
        return Arithmetic(np.dtype(np.int64), 1.0)
    n, m = problem.shape
    info = np.iinfo(problem.source.dtype)
    largest = min(max(int(info.max), -int(info.min)), USUAL)
    reach = TERMS_PER_ROW * (min(n, m) + 2) * largest
    spare = 53 - reach.bit_length()
    if spare >= 0:
        return Arithmetic(np.dtype(np.float64), 2.0 ** -min(spare, 40))
    return Arithmetic(np.dtype(np.int64), 1.0)


#: On the int64 path magnitudes of labels stay below this; see state.infinity.
INT64_LIMIT = 1 << 59


def largest_cost(problem: Problem, price: np.dtype[Any]) -> tuple[int, bool]:
    """Return the largest allowed magnitude of integer costs, and whether it is only the usual one.

    It is if 64-bit costs have float64 prices: then they count as 32-bit ones (see ``choose``).
    """
    usual = price.kind == "f" and problem.integer and problem.source.dtype.itemsize == 8
    return USUAL if usual else INT64_LIMIT // (4 * (min(problem.shape) + 2)), usual


def refuse_large(problem: Problem, row: int, costs: Array, limit: int, *, usual: bool) -> None:
    """Raise if an integer cost of a row (n_columns,) lies outside +-limit.

    LargeCosts if the limit is only the usual range, else OverflowRiskError.
    """
    low, high = int(costs.min()), int(costs.max())
    if max(-low, high) <= limit:
        return
    if usual:
        raise LargeCosts
    column = int(costs.argmin() if -low > limit else costs.argmax())
    i, j = (column, row) if problem.transposed else (row, column)
    raise OverflowRiskError(
        f"cost[{i}, {j}] is {int(costs[column])}: exact sums over a problem of shape"
        f" {problem.given_shape} need integer costs within +-{limit}; scale them down, or convert"
        " them to float64",
        i,
        j,
    )
