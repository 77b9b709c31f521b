"""Costs whose columns, or rows, are repeated: one copy for each pair that they may have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import DtypeError, InputError, InvalidCostError, OptionError, ShapeError
from bigsap.memory import usable_memory
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Reading, Resident, Selectable, range_of, read_rows
from bigsap.sources.convert import check_rows, fingerprint_of
from bigsap.sources.missing import parted
from bigsap.sources.sparse.sparse_costs import SparseCosts, sparse
from bigsap.types import Array, Ids

# Numbers beyond this are no different from "as many as there are".
_MOST = 2**31 - 2
# Vectors of 8 bytes an entry that are held while entries are repeated, at least.
_ENTRY_VECTORS = 5


def counts_of(value: Any, size: int, name: str, what: str) -> Array:
    """Return ``capacity`` or ``demand`` as (size,) int64, none negative.

    value: a whole number for all, or (size,) whole numbers. name: of the option. what: whose numbers
    they are, "column" or "row". Raises OptionError, DtypeError, ShapeError or InvalidCostError.
    """
    if isinstance(value, int) and value < 0:
        raise OptionError(f"{name} is {value}: a {what} cannot take fewer than no pairs")
    value = [_at_most(count) for count in value] if isinstance(value, (list, tuple)) else _at_most(value)
    try:
        given, missing = parted(value, name)
    except InputError as error:
        raise type(error)(f"{name} must be a whole number or one a {what}: {error}") from error
    if missing is not None:
        raise InvalidCostError(
            f"{name} holds a missing value (masked, None or NA); give every {what} a number"
        )
    if given.dtype.kind not in "iu" and given.size:
        raise DtypeError(
            f"{name} is not valid: it holds {given.dtype}, not whole numbers; round it to an integer dtype"
        )
    if given.ndim > 1 or (given.ndim == 1 and given.shape != (size,)):
        raise ShapeError(
            f"{name} must be a whole number or {size} of them, one a {what}; got shape {given.shape}"
        )
    if given.size and int(given.min()) < 0:
        where = f"[{int(given.argmin())}]" if given.ndim else ""
        raise OptionError(f"{name}{where} is {int(given.min())}: a {what} cannot take fewer than no pairs")
    found = np.empty(size, np.int64)
    found[:] = np.minimum(given.astype(np.uint64), np.uint64(_MOST))  # narrow types do not hold the limit
    return found


def total_stated(counts: Array) -> str:
    """Return the sum of counts for a message, which does not give a limited number as the user's."""
    return f"{'at least ' if (counts == _MOST).any() else ''}{int(counts.sum())}"


def _at_most(count: Any) -> Any:
    """Return a whole number of any size as one that 64 bits hold; anything else as it is."""
    whole = isinstance(count, int) and not isinstance(count, bool)
    return min(count, _MOST) if whole else count


def repeat_columns(source: CostSource, counts: Array, room: float = math.inf) -> CostSource:
    """Return the costs with each column as often as ``counts`` (m,) says, copies side by side.

    room: bytes that a copy of a matrix in memory may take; a larger one is read through its source.
    """
    if isinstance(source, SparseCosts):
        return _repeated_entries(source, counts)
    if (counts == 1).all():
        return source
    _refuse_more_than_memory(int(counts.sum()), 1, "capacity")
    columns = np.repeat(np.arange(counts.size), counts)
    if isinstance(source, Selectable):
        chosen = source.select(np.arange(source.shape[0]), columns)
        if chosen is not None:
            return chosen
    matrix = _matrix(source)
    if matrix is not None and source.shape[0] * columns.size * source.dtype.itemsize <= room:
        return ArraySource(np.ascontiguousarray(matrix[:, columns]))
    return Repeated(source, None, columns)


def repeat_rows(source: CostSource, counts: Array, room: float = math.inf) -> CostSource:
    """Return the costs with each row as often as ``counts`` (n,) says, see ``repeat_columns``."""
    if (counts == 1).all():
        return source
    _refuse_more_than_memory(int(counts.sum()), 1, "demand")
    rows = np.repeat(np.arange(counts.size), counts)
    if isinstance(source, SparseCosts):
        start, columns, costs = source.entries()
        size = np.diff(start)[rows]
        _refuse_more_than_memory(int(size.sum()), _ENTRY_VECTORS, "demand")
        new = np.concatenate(([0], np.cumsum(size)))
        at = np.arange(new[-1]) - np.repeat(new[:-1] - start[rows], size)
        given = np.repeat(np.arange(rows.size), size), columns[at], costs[at]
        return sparse(given, (rows.size, source.shape[1]))
    if isinstance(source, Selectable):
        chosen = source.select(rows, np.arange(source.shape[1]))
        if chosen is not None:
            return chosen
    matrix = _matrix(source)
    if matrix is not None and rows.size * source.shape[1] * source.dtype.itemsize <= room:
        return ArraySource(np.ascontiguousarray(matrix[rows]))
    return Repeated(source, rows, None)


def _matrix(source: CostSource) -> Array | None:
    """Return the costs in memory, without the surplus columns of a wider view; None if not there."""
    matrix = source.resident() if isinstance(source, Resident) else None
    return None if matrix is None else matrix[:, : source.shape[1]]


def no_more_than_listed(source: CostSource, capacity: Array) -> Array:
    """Return capacities of sparse costs without what no column can use, if there would be many copies.

    One more than its listed pairs stays: a column with room has a free copy, so that its price is 0.
    """
    if not isinstance(source, SparseCosts):
        return capacity
    columns = source.entries().columns
    if int(capacity.sum()) + int(capacity[columns].sum()) <= policy.LISTED_COPIES:
        return capacity
    used = np.minimum(capacity, np.bincount(columns, minlength=capacity.size) + 1)
    missing = min(source.shape[0], int(capacity.sum())) - int(used.sum())
    if missing > 0:  # methods for square problems need as many copies as rows, if none can be used
        more = np.cumsum(capacity - used)
        used += np.diff(np.minimum(more, missing), prepend=0)
    return used


def _refuse_more_than_memory(copies: int, vectors: int, name: str) -> None:
    """Raise OptionError where copies, of so many vectors of 8 bytes, do not fit into memory."""
    if copies * vectors * 8 > usable_memory():
        raise OptionError(
            f"{name} is too large for this way: it makes {copies} copies of rows, columns or listed pairs,"
            f" more than memory holds; give no {name} beyond what can be used"
        )


@contextmanager
def naming_originals(rows: Array | None, columns: Array | None) -> Iterator[None]:
    """Let errors of invalid costs name the pair of which a copy was met.

    rows, columns: how often each is repeated; None: once.
    """
    try:
        yield
    except InvalidCostError as error:
        if error.of_source or error.row is None:
            raise
        i = _original(error.row, rows)
        if error.column is None:
            text = str(error).replace(f"row {error.row}", f"row {i}")
            raise type(error)(text, i) from error.__cause__
        j = _original(error.column, columns)
        text = str(error).replace(f"cost[{error.row}, {error.column}]", f"cost[{i}, {j}]")
        raise type(error)(text, i, j) from error.__cause__


def _original(copy: int, times: Array | None) -> int:
    """Return of which row or column a copy is; times: how often each is repeated; None: once."""
    return copy if times is None else int(np.searchsorted(np.cumsum(times), copy, side="right"))


def _repeated_entries(source: SparseCosts, counts: Array) -> CostSource:
    entries = source.entries()
    times = counts[entries.columns]
    _refuse_more_than_memory(int(times.sum()), _ENTRY_VECTORS, "capacity")
    first = np.concatenate(([0], np.cumsum(counts)))
    copies = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    columns = np.repeat(first[entries.columns], times) + copies
    given = np.repeat(entries.rows(), times), columns, np.repeat(entries.costs, times)
    return sparse(given, (source.shape[0], int(first[-1])))


class Repeated(Reading):
    """Rows and columns of a source, in ascending order, some more than once.

    rows, columns: their ids; None: all of them, once.
    """

    def __init__(self, source: CostSource, rows: Array | None, columns: Array | None) -> None:
        self.source, self._rows, self._columns = source, rows, columns
        n, m = source.shape
        self.shape = (n if rows is None else rows.size, m if columns is None else columns.size)
        self.dtype = source.dtype

    def __repr__(self) -> str:
        return f"Repeated({self.source!r}, shape={self.shape})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        check_rows(rows, self.shape[0])
        given = rows if self._rows is None else self._rows[rows]
        if columns.start >= columns.stop:
            return
        try:
            if self._columns is None:
                read_rows(self.source, given, columns, out)
                return
            ids = self._columns[columns]
            first, stop = int(ids[0]), int(ids[-1]) + 1
            costs = np.empty((len(rows), stop - first), self.dtype)
            read_rows(self.source, given, slice(first, stop), costs)
        except InvalidCostError as error:
            error.of_source = True
            raise
        np.take(costs, ids - first, axis=1, out=out)

    def cost_range(self) -> tuple[float, float] | None:
        return range_of(self.source)

    def fingerprint(self) -> str:
        return fingerprint_of(self)
