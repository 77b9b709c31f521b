"""Kernels that give a stopped search's rows a column each, and read what that costs."""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.capacity.columns import Columns, Reader, read_line, read_part
from bigsap.types import Array


@kernel
def place_rows(rows: Array, first: int, last: int, column: Array, room: Array, c: Columns, r: Reader) -> int:
    """Give each of ``rows[first:last]`` the cheapest column with room.

    column: int32 (n,), room: (m,), changed. Returns how many rows found one; the first that did not
    ends it.
    """
    line, raw = c.line[0], c.raw[0]
    for at in range(first, last):
        row = rows[at]
        read_line(row, r, raw, line)
        least, best = np.inf, -1
        for k in range(line.size):
            if room[k] > 0 and line[k] < least:
                least, best = line[k], k
        if best < 0:
            return at - first
        column[row] = best
        room[best] -= 1
    return last - first


@kernel
def read_own(column: Array, costs: Array, c: Columns, r: Reader) -> None:
    """Write the signed cost of each row's column to ``costs``, (n,)."""
    one, raw = c.line[0], c.raw[0]
    for row in range(column.size):
        if column[row] < r.n_columns:
            read_part(row, column[row], 1, r, raw, one)
            costs[row] = one[0]
        else:
            costs[row] = r.price[row]
