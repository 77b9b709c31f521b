"""Known costs of assigned pairs, so that the source need not be asked again.

If rows come from Python, a single pair may take as long as its whole row. The kept costs have
the exact bits that the source returned; a pair without certainty counts as unknown.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bigsap.row_cache import ABSENT, N_SLOTS, N_USED, RowTable, next_slot
from bigsap.types import Array

NONE = -1


class Held(Protocol):
    """Provider of some costs of an assignment."""

    def costs(self, column_of_row: Array) -> tuple[Array, Array]:
        """Return costs (n,) of the source's dtype, in the user's sense, and bool (n,): which are known."""
        ...


class Resting:
    """The rows of a row cache, and for each evicted row the cost of the pair it had then.

    Memory: 4 bytes a row and one cost. O(1) per evicted row.
    """

    def __init__(self, table: RowTable) -> None:
        n = table.slot_of_row.size
        self._table = table
        self._column = np.full(n, NONE, np.int32)
        self._cost = np.zeros(n, table.slots.dtype)

    def before_claim(self, column_of_row: Array) -> None:
        """Save the pair cost of the next row to be evicted; call before each ``claim``."""
        table = self._table
        if table.head[N_USED] < table.head[N_SLOTS]:
            return
        slot = next_slot.py_func(table)
        if slot < 0:
            return
        row = table.row_of_slot[slot]
        column = int(column_of_row[row])
        if 0 <= column < table.slots.shape[1]:
            self._column[row], self._cost[row] = column, table.slots[slot, column]

    def costs(self, column_of_row: Array) -> tuple[Array, Array]:
        """Return the known costs, see ``Held``. O(n)."""
        table, wanted = self._table, column_of_row >= 0
        here = wanted & (table.slot_of_row != ABSENT)
        left = wanted & ~here & (self._column == column_of_row)
        costs = np.where(left, self._cost, self._cost.dtype.type(0))
        costs[here] = table.slots[table.slot_of_row[here], column_of_row[here]]
        return costs, here | left
