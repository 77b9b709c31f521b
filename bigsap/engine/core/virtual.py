"""Virtual rows and columns of an initial matching, for all engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.core.state import FREE
from bigsap.types import Array


def hold_at_cap(v: Array, column_of_row: Array, row_of_column: Array, n_virtual: int) -> tuple[Any, int]:
    """Let the virtual rows hold free columns at the largest price, the cap. Return cap and surplus.

    Matched columns at the cap are freed if the virtual rows need them. The surplus is the number
    of free columns at the cap beyond that need.
    """
    cap = v.max()
    surplus = int(((row_of_column < 0) & (v == cap)).sum()) - n_virtual
    if surplus < 0:
        columns = np.flatnonzero((row_of_column >= 0) & (v == cap))[surplus:]
        column_of_row[row_of_column[columns]] = FREE
        row_of_column[columns] = FREE
    return cap, max(0, surplus)


def rows_for_group(
    low: Array, threshold: Any, slop: Any, column_of_row: Array, row_of_column: Array, room: int
) -> Array:
    """Return the rows that take virtual columns at the price ``-threshold``, at most ``room``.

    low: (n_rows,) smallest ``c - v``. Rows beyond the threshold lose their real columns. slop:
    tolerance for rounding in the comparison with the threshold.
    """
    above = low - threshold
    matched = np.flatnonzero(column_of_row >= 0)
    dear = matched[above[matched] > slop]
    row_of_column[column_of_row[dear]] = FREE
    column_of_row[dear] = FREE
    rest = np.flatnonzero((column_of_row == FREE) & (above >= -slop))
    return rest[np.argsort(-low[rest], kind="stable")][:room]
