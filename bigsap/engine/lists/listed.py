"""Costs of assigned pairs restored from lists, for rows read from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.lists.layout import Lists
from bigsap.types import Array


class Listed:
    """Costs in lists of rows that were read from Python.

    Lists hold costs minus their row's reference, which rounds. Two costs of the source's dtype
    hardly ever lead to the same entry; the costs of such entries are recorded.
    """

    def __init__(self, dtype: np.dtype[Any], sign: int) -> None:
        self._dtype, self._sign = dtype, sign
        self._noted: dict[int, tuple[Array, Array]] = {}

    def see(self, rows: Array, slots: Array, lists: Lists) -> None:
        """Record the ambiguous entries of ``rows``, evaluated from ``slots``, (k, m). O(entries)."""
        self.note(rows, *self.doubtful(rows, slots, lists))

    def doubtful(self, rows: Array, slots: Array, lists: Lists) -> tuple[Array, Array, Array]:
        """Return the ambiguous entries, which other costs could also produce.

        Returns indices in ``rows``, columns, costs.
        """
        if self._dtype.kind != "f":
            return np.empty(0, np.intp), np.empty(0, np.int32), np.empty(0, self._dtype)
        size = lists.size[rows].astype(np.intp)
        owner = np.repeat(np.arange(rows.size), size)
        first = lists.start[rows] - (np.cumsum(size) - size)
        places = np.arange(owner.size) + first[owner]
        entries = lists.costs[places]
        doubtful = np.flatnonzero(~self._restored(entries, lists.reference[rows][owner])[1])
        owner, columns = owner[doubtful], lists.ids[places[doubtful]]
        return owner, columns, slots[owner, columns]

    def note(self, rows: Array, owner: Array, columns: Array, costs: Array) -> None:
        """Record the ``doubtful`` entries of these rows."""
        if not owner.size:
            return
        cuts = np.flatnonzero(np.diff(owner)) + 1
        parts = (np.split(part, cuts) for part in (owner, columns, costs))
        for some, ids, values in zip(*parts, strict=True):
            row = int(rows[some[0]])
            # A pair may come from an earlier evaluation.
            old = self._noted.get(row, (ids[:0], values[:0]))
            self._noted[row] = np.concatenate((old[0], ids)), np.concatenate((old[1], values))

    def costs(self, column_of_row: Array, match_cost: Array, reference: Array) -> tuple[Array, Array]:
        """Return costs like ``Held.costs``, of a matching with the list entries ``match_cost``. O(n)."""
        costs, known = self._restored(match_cost, reference)
        wanted = column_of_row >= 0
        for row in np.flatnonzero(wanted & ~known).tolist():
            ids, values = self._noted.get(row, (np.empty(0, np.int32), costs[:0]))
            (place,) = np.nonzero(ids == column_of_row[row])
            if place.size:
                costs[row], known[row] = values[place[0]], True
        return np.where(wanted, costs, self._dtype.type(0)), wanted & known

    def _restored(self, entries: Array, reference: Array) -> tuple[Array, Array]:
        """Return the costs that produced these entries, and which of them are unique."""
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
        """Return the list entries of these costs."""
        return self._sign * costs.astype(reference.dtype) - reference
