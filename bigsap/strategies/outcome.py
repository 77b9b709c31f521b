"""Outcome of a strategy: what its ``attempt`` returns unless it declines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.problem import Problem
from bigsap.types import Array


@dataclass(frozen=True)
class Outcome:
    """Matching and prices of the signed, oriented problem.

    column_of_row: (n_rows,), negative = unassigned; None when none is known.
    v: (n_columns,) prices, minimising sense. violator: rows whose allowed columns are too few, empty
    unless infeasible. phases: one record each. seconds: by stage. v_low: low parts of the prices. hidden:
    how much of the sum may be lost beyond the rounding of the prices: by how much pairs that an initial
    matching kept lack tightness, and ``hidden_by_others``.
    """

    column_of_row: Array | None
    v: Array
    violator: Array = field(default_factory=lambda: np.empty(0, np.intp))
    phases: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    v_low: Array | None = None
    hidden: float = 0.0


def hidden_by_others(problem: Problem, column_of_row: Array, low: Array) -> float:
    """Return how much of the pairs' sum the rounding of unassigned rows' numbers may hide; 0 for integers.

    low: (n_rows,) the rows' references, about as large as their smallest ``c - v``. An unassigned row may
    have been assigned before, at prices as precise as its own costs, which may be far larger. O(n).
    """
    n, m = problem.shape
    if n <= m or problem.integer or low.dtype.kind != "f":
        return 0.0
    left = np.abs(low[column_of_row < 0])
    return rounding(n, float(left.max(initial=0.0, where=np.isfinite(left))))


def rounding(n: int, size: float) -> float:
    """Return how much is lost by one rounding of each of 2 n numbers of a size."""
    return n * 2.0**-52 * size


def phase_record(
    epsilon: float, seconds: float, *, rows_scanned: int, prices_moved: int | None, **own: int
) -> dict[str, Any]:
    """Return a record of ``Result.stats["phases"]``.

    prices_moved: None where a device does not count them. own: what the method counts besides.
    """
    return {
        "epsilon": epsilon,
        "rows_scanned": rows_scanned,
        "prices_moved": prices_moved,
        **own,
        "seconds": seconds,
    }


def moved(before: Array, after: Array) -> int:
    """Return how many of the prices differ."""
    return int(np.count_nonzero(before != after))
