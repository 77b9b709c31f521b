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
    unless infeasible. phases: one record each. seconds: by stage. v_low: low parts of the prices.
    """

    column_of_row: Array | None
    v: Array
    violator: Array = field(default_factory=lambda: np.empty(0, np.intp))
    phases: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    v_low: Array | None = None
