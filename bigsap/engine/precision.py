"""Which arithmetic keeps a solve exact: float64, float64 on a grid, or int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.problem import Problem
from bigsap.sources.base import Array, Resident

# Every label is a signed sum of at most about this many reduced costs per row of the
# path; see ``choose``.
_TERMS_PER_ROW = 4
_BLOCK_ROWS = 64


@dataclass(frozen=True)
class Arithmetic:
    """price: dtype of prices and labels. grid: prices and epsilons are multiples of it
    (0: no grid, costs are real numbers)."""

    price: np.dtype[Any]
    grid: float


def choose(problem: Problem) -> Arithmetic:
    """float64 for real costs. For integer costs, arithmetic without any rounding.

    Labels and prices are bounded by ``4 (min(n, m) + 2) max|c|``. When that leaves
    bits of a float64's 53 to spare, prices live on the grid of those spare bits, where
    float64 sums are exact; otherwise prices are int64 and epsilons whole numbers.
    """
    if not problem.integer:
        return Arithmetic(np.dtype(np.float64), 0.0)
    n, m = problem.shape
    largest = _largest(problem)
    if largest is not None:
        reach = _TERMS_PER_ROW * (min(n, m) + 2) * max(1, largest)
        spare = 53 - reach.bit_length()
        if spare >= 0:
            return Arithmetic(np.dtype(np.float64), 2.0 ** -min(spare, 40))
    return Arithmetic(np.dtype(np.int64), 1.0)


def _largest(problem: Problem) -> int | None:
    """A bound on max|c| known without asking the source for rows, or None."""
    source = problem.source
    if source.dtype.itemsize < 8:
        info = np.iinfo(source.dtype)
        bound = max(int(info.max), -int(info.min))
        if bound <= 1 << 16:
            return bound
    else:
        bound = None
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is None or isinstance(matrix, np.memmap):
        return bound
    return _scan(matrix[:, : problem.shape[1]])


def _scan(matrix: Array) -> int:
    low = high = 0
    for start in range(0, matrix.shape[0], _BLOCK_ROWS):
        block = matrix[start : start + _BLOCK_ROWS]
        low, high = min(low, int(block.min())), max(high, int(block.max()))
    return max(-low, high)
