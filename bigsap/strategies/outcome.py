"""Outcome of a strategy: what its ``attempt`` returns unless it declines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.types import Array


@dataclass(frozen=True)
class Outcome:
    """Matching and prices of the signed, oriented problem.

    column_of_row: (n_rows,), negative = unassigned; None when none is known.
    v: (n_columns,) prices, minimising sense. violator: rows whose allowed columns are too few, empty
    unless infeasible. phases: one record each. seconds: by stage. v_low: low parts of the prices. hidden: by
    how much pairs that an initial matching kept lack tightness, in sum.
    """

    column_of_row: Array | None
    v: Array
    violator: Array = field(default_factory=lambda: np.empty(0, np.intp))
    phases: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    v_low: Array | None = None
    hidden: float = 0.0


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
