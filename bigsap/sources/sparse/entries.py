"""Kernels on the entries of sparse costs: checks, rows with infinities, the transpose."""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.types import Array

#: Results of ``first_wrong``.
SOUND, DESCENDING, OUTSIDE, TWICE = 0, 1, 2, 3


@kernel
def first_wrong(start: Array, columns: Array, seen: Array) -> tuple[int, int, int]:
    """Return what is wrong with the structure, and where: the row, and the entry.

    seen: int32 (n_columns,), zero: the last row, plus 1, that has an entry in a column. O(entries).
    """
    m, size = seen.size, columns.size
    if start[0] != 0 or start[start.size - 1] != size:
        return DESCENDING, 0, 0
    for row in range(start.size - 1):
        if start[row + 1] < start[row]:
            return DESCENDING, row, 0
    for row in range(start.size - 1):
        for k in range(start[row], start[row + 1]):
            j = columns[k]
            if j < 0 or j >= m:
                return OUTSIDE, row, k
            if seen[j] == row + 1:
                return TWICE, row, k
            seen[j] = row + 1
    return SOUND, 0, 0


@kernel
def special_costs(costs: Array, found: Array) -> None:
    """Find the first NaN, +inf and -inf: their places in ``found`` (3,), which holds -1 before."""
    for k in range(costs.size):
        c = costs[k]
        if c - c == 0.0:
            continue
        kind = 0 if c != c else 1 if c > 0 else 2
        if found[kind] < 0:
            found[kind] = k


@kernel
def spread_row(columns: Array, costs: Array, first: int, out: Array) -> None:
    """Write the costs of one row's entries into ``out``, which begins at column ``first``."""
    stop = first + out.size
    for k in range(columns.size):
        j = columns[k]
        if j >= first and j < stop:
            out[j - first] = costs[k]


@kernel
def by_columns(start: Array, columns: Array, costs: Array, place: Array, rows: Array, turned: Array) -> None:
    """Write the transposed entries, rows ascending. place: int64 (n_columns,), each one's first place."""
    for row in range(start.size - 1):
        for k in range(start[row], start[row + 1]):
            at = place[columns[k]]
            place[columns[k]] = at + 1
            rows[at], turned[at] = row, costs[k]


@kernel
def order_by_rows(
    rows: Array, columns: Array, costs: Array, place: Array, ids: Array, sorted_: Array
) -> None:
    """Order entries by rows, stable. place: int64 (n_rows,), each one's first place."""
    for k in range(rows.size):
        at = place[rows[k]]
        place[rows[k]] = at + 1
        ids[at], sorted_[at] = columns[k], costs[k]


def starts(counts: Array) -> Array:
    """Return int64 (n + 1,): where each row's entries begin, and the end."""
    start = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    return start
