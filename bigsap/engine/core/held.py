"""Costs of assigned pairs that a search came across, so that nobody asks for them again.

Where rows come from Python a single pair may cost as much as its whole row. What is kept
here has the very bits that the source gave: what cannot be told for sure counts as unknown.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bigsap.row_cache import ABSENT, N_SLOTS, N_USED, RowTable, next_slot
from bigsap.sources.base import Array

NONE = -1


class Held(Protocol):
    """Some costs of an assignment."""

    def costs(self, column_of_row: Array) -> tuple[Array, Array]:
        """Costs (n,) of the source's dtype, in the user's sense, and bool (n,) which are known."""
        ...


class Resting:
    """Rows of a row cache, and of those that left it the cost of the pair they had then.

    Memory: 4 bytes a row and one cost. O(1) a row that leaves.
    """

    def __init__(self, table: RowTable) -> None:
        n = table.slot_of_row.size
        self._table = table
        self._column = np.full(n, NONE, np.int32)
        self._cost = np.zeros(n, table.slots.dtype)

    def before_claim(self, column_of_row: Array) -> None:
        """To be called before each ``claim``, with the matching of the moment."""
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
        """See ``Held``. O(n)."""
        table, wanted = self._table, column_of_row >= 0
        here = wanted & (table.slot_of_row != ABSENT)
        left = wanted & ~here & (self._column == column_of_row)
        costs = np.where(left, self._cost, self._cost.dtype.type(0))
        costs[here] = table.slots[table.slot_of_row[here], column_of_row[here]]
        return costs, here | left
