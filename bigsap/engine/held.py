"""Costs of assigned pairs that a search came across, so that nobody asks for them again.

Where rows come from Python a single pair may cost as much as its whole row. What is kept
here has the very bits that the source gave: what cannot be told for sure counts as unknown.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from bigsap.engine.lists import Lists
from bigsap.rows import ABSENT, N_SLOTS, N_USED, RowTable, next_slot
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


class Listed:
    """Costs in lists of rows that were read from Python.

    Lists hold costs less their row's reference, which rounds. Hardly ever two costs of the
    source's dtype lead to the same entry; these entries are noted as they come.
    """

    def __init__(self, dtype: np.dtype[Any], sign: int) -> None:
        self._dtype, self._sign = dtype, sign
        self._noted: dict[int, tuple[Array, Array]] = {}

    def see(self, rows: Array, slots: Array, lists: Lists) -> None:
        """``rows`` were evaluated from ``slots``, (k, m). O(entries)."""
        if self._dtype.kind != "f":
            return
        size = lists.size[rows].astype(np.intp)
        owner = np.repeat(np.arange(rows.size), size)
        first = lists.start[rows] - (np.cumsum(size) - size)
        places = np.arange(owner.size) + first[owner]
        entries = lists.costs[places]
        doubtful = np.flatnonzero(~self._restored(entries, lists.reference[rows][owner])[1])
        if not doubtful.size:
            return
        owner, columns = owner[doubtful], lists.ids[places[doubtful]]
        costs = slots[owner, columns]
        cuts = np.flatnonzero(np.diff(owner)) + 1
        parts = (np.split(part, cuts) for part in (owner, columns, costs))
        for some, ids, values in zip(*parts, strict=True):
            row = int(rows[some[0]])
            # A pair may be that of an earlier evaluation.
            old = self._noted.get(row, (ids[:0], values[:0]))
            self._noted[row] = np.concatenate((old[0], ids)), np.concatenate((old[1], values))

    def costs(
        self, column_of_row: Array, match_cost: Array, reference: Array
    ) -> tuple[Array, Array]:
        """As ``Held.costs``, of a matching whose entries of lists are ``match_cost``. O(n)."""
        costs, known = self._restored(match_cost, reference)
        wanted = column_of_row >= 0
        for row in np.flatnonzero(wanted & ~known).tolist():
            ids, values = self._noted.get(row, (np.empty(0, np.int32), costs[:0]))
            (place,) = np.nonzero(ids == column_of_row[row])
            if place.size:
                costs[row], known[row] = values[place[0]], True
        return np.where(wanted, costs, self._dtype.type(0)), wanted & known

    def _restored(self, entries: Array, reference: Array) -> tuple[Array, Array]:
        """The costs that led to these entries, and of which no others can have."""
        with np.errstate(over="ignore", invalid="ignore"):
            costs = (self._sign * (entries + reference)).astype(self._dtype)
            if self._dtype.kind != "f":
                return costs, np.ones(costs.size, bool)
            known = self._entry(costs, reference) == entries
            for end in (-np.inf, np.inf):
                other = np.nextafter(costs, self._dtype.type(end))
                known &= self._entry(other, reference) != entries
        return costs, known

    def _entry(self, costs: Array, reference: Array) -> Array:
        """What lists hold of these costs."""
        return self._sign * costs.astype(reference.dtype) - reference
