"""Sparse costs from arrays: only listed pairs are allowed, and an explicit zero is a cost."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InputError, InvalidCostError, OverflowRiskError, ShapeError
from bigsap.notebook import Shown
from bigsap.sources.arrays.mapped import MapGuard
from bigsap.sources.base import Entries, intact_throughout
from bigsap.sources.convert import (
    FINGERPRINT_BYTES,
    check_rows,
    convert,
    cost_dtype,
    cost_shape,
    read_only,
    refuse_long_sides,
)
from bigsap.sources.missing import parted
from bigsap.sources.sparse.entries import (
    DESCENDING,
    OUTSIDE,
    SOUND,
    by_columns,
    first_wrong,
    order_by_rows,
    special_costs,
    spread_row,
    starts,
)
from bigsap.sources.sparse.neighbours import vectors_of, vectors_of_lists
from bigsap.types import Array, Ids

#: Integers up to this size are exact in float64.
_EXACT = 2**53
#: Formats of scipy.sparse whose arrays are read as they are; others are converted by ``tocsr``.
_BY_ROWS = "csr"


class _Files:
    """Mapped files in which arrays lie."""

    def __init__(self, *arrays: Any) -> None:
        found = map(MapGuard.of, arrays)
        self._guards = [guard for guard in found if guard is not None]

    def intact(self) -> None:
        """Raise StoreError if one was truncated: what was read may be zeros."""
        for guard in self._guards:
            guard.check()


class SparseCosts(Shown):
    """Costs of which only the listed pairs are allowed.

    As rows they are float64 with the infinity that forbids at the other pairs; integers beyond
    2**53 then are an error. ``entries`` has them in their own dtype. Memory: the arrays given, and
    8 bytes a row. Made by ``sparse``.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, shape: tuple[int, int], entries: Entries, *, forbidden: float = np.inf) -> None:
        self.shape = shape
        self._entries = entries
        self.forbidden = forbidden
        self._files = _Files(*entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SparseCosts, forbidden=self.forbidden), (self.shape, self._entries)

    def __repr__(self) -> str:
        size, dtype = self._entries.columns.size, self._entries.costs.dtype
        return f"SparseCosts(shape={self.shape}, entries={size}, dtype={dtype})"

    def entries(self) -> Entries:
        """Return the allowed pairs."""
        return self._entries

    def intact(self) -> None:
        """Raise StoreError if a mapped file of the entries was truncated: they may be zeros then."""
        self._files.intact()

    def in_sense(self, maximize: bool) -> SparseCosts:
        """Return the same costs, with the infinity that forbids under this sense in its rows."""
        wanted = -np.inf if maximize else np.inf
        if wanted == self.forbidden:
            return self
        return SparseCosts(self.shape, self._entries, forbidden=wanted)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with the costs of ``rows[k]``, infinite where a pair is not listed."""
        check_rows(rows, self.shape[0])
        start, ids, costs = self._entries
        out[...] = self.forbidden
        for k, row in enumerate(np.asarray(rows).tolist()):
            some = slice(int(start[row]), int(start[row + 1]))
            _refuse_inexact(costs[some], row, ids[some])
            spread_row(ids[some], costs[some], columns.start, out[k])
        self.intact()

    def transposed(self) -> SparseCosts:
        """Return the transpose, a copy. O(entries)."""
        start, ids, costs = self._entries
        n, m = self.shape
        turned = starts(np.bincount(ids, minlength=m))
        rows, values = np.empty(ids.size, np.int32), np.empty(ids.size, costs.dtype)
        by_columns(start, ids, costs, turned[:-1].copy(), rows, values)
        found = Entries(read_only(turned), read_only(rows), read_only(values))
        self.intact()
        return SparseCosts((m, n), found, forbidden=self.forbidden)

    def cost_range(self) -> tuple[float, float] | None:
        """Return the smallest and the largest finite cost; None without entries."""
        costs = self._entries.costs
        if not costs.size:
            return None
        low, high = costs.min(), costs.max()
        if costs.dtype.kind == "f" and not np.isfinite(low - high):
            finite = costs[np.isfinite(costs)]
            return (float(finite.min()), float(finite.max())) if finite.size else None
        below = np.nextafter(float(low), -np.inf) if int(low) < -_EXACT else float(low)
        above = np.nextafter(float(high), np.inf) if int(high) > _EXACT else float(high)
        return float(below), float(above)

    def as_dtype(self, dtype: np.dtype[Any]) -> SparseCosts:
        start, ids, costs = self._entries
        if costs.dtype == dtype:
            return self
        found = Entries(start, ids, read_only(_as_dtype(costs, dtype, self._pair)))
        self.intact()
        return SparseCosts(self.shape, found, forbidden=self.forbidden)

    def fingerprint(self) -> str:
        """Return a digest of shape, dtype and entries; of samples if these are many."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{self.shape},{self._entries.costs.dtype.str}".encode())
        start, columns, costs = self._entries
        for part, kind in ((start, np.int64), (columns, np.int64), (costs, costs.dtype)):
            step = max(1, 8 * part.size // FINGERPRINT_BYTES)
            digest.update(np.append(part[::step], part[-1:]).astype(kind).tobytes())
        self.intact()
        return digest.hexdigest()

    def _pair(self, k: int) -> tuple[int, int]:
        row = int(np.searchsorted(self._entries.start, k, side="right")) - 1
        return row, int(self._entries.columns[k])


def sparse(entries: Any, shape: Sequence[int] | None = None) -> SparseCosts:
    """Return costs of which only the listed pairs are allowed; every other pair is forbidden.

    entries: a ``scipy.sparse`` array or matrix of any format, or any other object with ``tocsr``; or
        three vectors ``(rows, columns, costs)`` of one length, in any order. An explicit zero is a
        cost, as is every entry of a stored diagonal (DIA) inside the shape, or of a stored block
        (BSR). ``inf`` (``-inf`` under ``maximize``) forbids a pair as if it were not listed.
        Or what a search for neighbours returns: two arrays ``(columns, costs)``, both (n_rows, k),
        where a cost of ``inf`` is an empty place, whatever its column (costs may come first unless
        both are integers); records with the fields i, j and v; a dict of costs by (row, column).
    shape: (n_rows, n_columns); of vectors one more than the largest row and column by default,
        otherwise checked.

    Costs are of any real dtype; integers are exact. CSR arrays are used as they are, mapped files
    too; other formats and vectors are copied. Raises ``InvalidCostError`` for NaN and for a pair
    that is listed twice (``scipy.sparse`` adds such costs up; here it is a mistake), ``ShapeError``
    or plain ``InputError`` for indices outside the shape, each naming the pair. O(entries).
    """
    return listed_pairs(entries, shape)


def listed_pairs(entries: Any, shape: Sequence[int] | None = None, *, forbid: bool = False) -> SparseCosts:
    """Return ``sparse(entries, shape)``. forbid: pairs whose cost is missing, or NaN, are left out."""
    if isinstance(entries, (tuple, list)) and len(entries) == 3:
        return _from_vectors(entries, shape, forbid)
    if isinstance(entries, (tuple, list)) and len(entries) == 2:
        with intact_throughout(_Files(*entries)):
            return _by_rows(*vectors_of_lists(entries, shape), forbid)
    if not looks_sparse(entries):
        vectors = vectors_of(entries)
        if vectors is not None:
            return _from_vectors(vectors, shape, forbid)
        file = isinstance(entries, (str, os.PathLike))
        raise InputError(
            f"{type(entries).__name__} is not sparse costs: pass a scipy.sparse array or"
            f" (rows, columns, costs){'; bigsap.as_source opens a file' if file else ''}"
        )
    size = sparse_shape(entries.shape, "the sparse array")
    if shape is not None and cost_shape(shape, "shape=") != size:
        raise ShapeError(f"shape={tuple(shape)} contradicts the costs, which have {size}")
    if getattr(entries, "format", None) == _BY_ROWS:
        return from_csr(entries.indptr, entries.indices, entries.data, size, forbid=forbid)
    if getattr(entries, "format", None) == "csc":
        parts = entries.indptr, entries.indices, entries.data
        return from_csr(*parts, size[::-1], turned=True, forbid=forbid).transposed()
    return _from_coordinates(entries, size, forbid)


def sparse_shape(shape: Any, what: str) -> tuple[int, int]:
    """Return the shape of sparse costs as two ints, or raise ``ShapeError``.

    Sides that no problem may have are refused first: vectors are made of these lengths.
    """
    size = cost_shape(shape, what)
    refuse_long_sides(size)
    return size


def looks_sparse(cost: Any) -> bool:
    """Return whether an object is sparse costs, by what it offers: no library is imported."""
    # Of the class first: a property of an array in a closed file raises errors of its own.
    if not any(callable(getattr(type(cost), name, None)) for name in ("tocoo", "tocsr")):
        return False
    return all(hasattr(cost, name) for name in ("shape", "dtype", "nnz"))


def from_csr(
    start: Any,
    columns: Any,
    costs: Any,
    shape: tuple[int, int],
    *,
    turned: bool = False,
    forbid: bool = False,
    names: tuple[str, str] = ("indptr", "indices"),
) -> SparseCosts:
    """Return sparse costs from CSR arrays, used as they are where their types allow it.

    turned: they are CSC arrays of the transpose, so that errors name (column, row) as (row, column).
    forbid: see ``listed_pairs``. names: of the first two arrays, for errors.
    """
    with intact_throughout(_Files(start, columns, costs)):
        return _from_lines(start, columns, costs, shape, turned, forbid, names)


def _from_lines(
    start: Any,
    columns: Any,
    costs: Any,
    shape: tuple[int, int],
    turned: bool,
    forbid: bool,
    names: tuple[str, str],
) -> SparseCosts:
    start, given = (_whole(part, name) for part, name in zip((start, columns), names, strict=True))

    def pair(k: int) -> tuple[int, int]:
        return _named((int(np.searchsorted(start, k, side="right")) - 1, int(given[k])), turned)

    if start.shape != (shape[0] + 1,):
        raise ShapeError(
            f"{names[0]} has shape {start.shape}, not ({shape[0] + 1},): one number a"
            f" {'column' if turned else 'row'} and the end"
        )
    if given.ndim != 1:
        raise ShapeError(f"{names[1]} has shape {given.shape}: one number for each listed pair is needed")
    costs, absent = _costs(costs, given.size, pair, forbid)
    columns = given if given.dtype in (np.int32, np.int64) else given.astype(np.int64)
    found = Entries(
        read_only(np.ascontiguousarray(start, np.int64)),
        read_only(np.ascontiguousarray(columns)),
        read_only(np.ascontiguousarray(costs)),
    )
    _check(found, shape, turned, given, absent is not None, names[0])
    return SparseCosts(shape, found if absent is None else _without(found, absent))


def sparse_of_spec(
    columns: Any, costs: Any, rows: Any, start: Any, shape: tuple[int, int] | None
) -> SparseCosts:
    """Return the sparse costs of a cost spec, which has either ``rows`` or ``start``.

    rows: the row of each listed pair. start: int (n_rows + 1,), where each row's pairs begin, and the
    end; then ``shape`` is needed. Raises as ``sparse``.
    """
    if (rows is None) == (start is None):
        raise InputError("sparse costs need either rows, or start: where each row's pairs begin")
    if start is None:
        return sparse((rows, columns, costs), shape=shape)
    if shape is None:
        raise ShapeError("sparse costs by start need the shape [n_rows, n_columns]")
    return from_csr(start, columns, costs, sparse_shape(shape, "shape"), names=("start", "columns"))


def _from_coordinates(given: Any, size: tuple[int, int], forbid: bool) -> SparseCosts:
    """Return sparse costs of another format. Conversions to CSR would add duplicates up."""
    if getattr(given, "format", None) == "dia":
        return _from_vectors(_of_diagonals(given, size), size, forbid)
    coo = given.tocoo() if callable(getattr(given, "tocoo", None)) else given.tocsr().tocoo()
    rows, columns = getattr(coo, "coords", None) or (coo.row, coo.col)
    return _from_vectors((rows, columns, coo.data), size, forbid)


def _of_diagonals(given: Any, size: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Return rows, columns and costs of all that the stored diagonals have inside the shape.

    scipy's own conversion drops zeros, explicit ones too.
    """
    costs, columns = given.data, np.arange(given.data.shape[1])
    rows = columns - np.asarray(given.offsets, np.int64)[:, None]
    inside = (rows >= 0) & (rows < size[0]) & (columns < size[1])
    return rows[inside], np.broadcast_to(columns, rows.shape)[inside], costs[inside]


def _from_vectors(vectors: Any, shape: Sequence[int] | None, forbid: bool) -> SparseCosts:
    with intact_throughout(_Files(*vectors)):
        return _by_rows(vectors, shape, forbid)


def _by_rows(vectors: Any, shape: Sequence[int] | None, forbid: bool) -> SparseCosts:
    rows, columns = (_whole(x, name) for x, name in zip(vectors, ("rows", "columns"), strict=False))
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise ShapeError(
            f"rows and columns have shapes {rows.shape} and {columns.shape}: give two vectors of one length"
        )
    if shape is None:
        size = tuple(max(0, int(x.max()) + 1) if x.size else 0 for x in (rows, columns))
        n, m = sparse_shape(size, "the costs")
    else:
        n, m = sparse_shape(shape, "shape=")
    outside = np.flatnonzero((rows < 0) | (rows >= n) | (columns < 0) | (columns >= m))
    if outside.size:
        k = int(outside[0])
        raise ShapeError(f"the pair ({rows[k]}, {columns[k]}) is outside the shape {(n, m)}")
    costs, absent = _costs(vectors[2], rows.size, lambda k: (int(rows[k]), int(columns[k])), forbid)
    rows, columns = (x if x.dtype.kind == "i" else x.astype(np.int64) for x in (rows, columns))
    start = starts(np.bincount(rows, minlength=n))
    # With missing costs the places are ordered, which both the costs and the marks then follow.
    ordered = costs if absent is None else np.arange(rows.size)
    ids, values = np.empty(rows.size, np.int32), np.empty(rows.size, ordered.dtype)
    order_by_rows(read_only(rows), read_only(columns), read_only(ordered), start[:-1].copy(), ids, values)
    if absent is not None:
        values, absent = costs[values], absent[values]
    found = Entries(read_only(start), read_only(ids), read_only(values))
    _check(found, (n, m), False, ids, absent is not None)
    return SparseCosts((n, m), found if absent is None else _without(found, absent))


def _without(found: Entries, absent: Array) -> Entries:
    """Return the entries that are not marked in ``absent``."""
    kept = ~absent
    start = np.concatenate(([0], np.cumsum(kept)))[found.start]
    return Entries(read_only(start), read_only(found.columns[kept]), read_only(found.costs[kept]))


def _whole(values: Any, name: str) -> Array:
    """Return indices as an array of integers in this machine's byte order, which kernels do not look at.

    Missing ones are an error: numpy would read under a mask.
    """
    array, missing = parted(values, name)
    if missing is not None and missing.any():
        k = int(missing.argmax())
        raise InputError(f"{name}[{k}] is missing (masked, None or NA); list pairs of known rows and columns")
    if array.dtype.kind not in "iu" and array.size:
        raise DtypeError(f"{name} has dtype {array.dtype}; indices must be integers")
    return array.astype(array.dtype.newbyteorder("=") if array.size else np.int64, copy=False)


def _costs(
    values: Any, size: int, pair: Callable[[int], tuple[int, int]], forbid: bool
) -> tuple[Array, Array | None]:
    """Return the costs of entries, of a scannable dtype, and marks of those to be left out, or None.

    pair: names the pair of an entry, for errors. forbid: a missing cost, or NaN, is no error but marked.
    """
    array, missing = parted(values, "the costs")
    if array.shape != (size,):
        raise ShapeError(f"the costs have shape {array.shape}, not ({size},): one for each listed pair")
    target = cost_dtype(array.dtype, "the vector of costs")
    if missing is not None:
        if missing.any() and not forbid:
            row, column = pair(int(missing.argmax()))
            raise InvalidCostError(
                f"cost[{row}, {column}] is missing (masked, None or NA); fill in what it costs, or leave the"
                " pair out, which forbids it",
                row,
                column,
            )
        array = np.where(missing, np.zeros((), array.dtype), array)
    costs = _as_dtype(array, target, pair)
    absent = np.zeros(size, np.bool_) if missing is None else missing
    if forbid and costs.dtype.kind == "f":
        absent = absent | np.isnan(costs)
    return costs, absent if forbid and absent.any() else None


def _as_dtype(costs: Array, dtype: np.dtype[Any], pair: Callable[[int], tuple[int, int]]) -> Array:
    """Return costs of entries as another dtype. A cost that it cannot hold is an error naming its pair."""
    if costs.dtype == dtype:
        return costs
    values = np.empty(costs.size, dtype)
    try:
        convert(costs[None], values[None], np.zeros(1, np.int64), 0)
    except InvalidCostError as error:
        k = error.column or 0
        row, column = pair(k)
        text = f"cost[{row}, {column}] = {costs[k]!s} cannot be held by {dtype}"
        if costs.dtype == np.uint64 and dtype == np.int64:
            text += "; give the costs as floats, costs.astype(float)"
        raise type(error)(text, row, column) from None
    return values


def _check(
    found: Entries, shape: tuple[int, int], turned: bool, given: Array, may_be_nan: bool, name: str = "indptr"
) -> None:
    """Raise an error that names the first pair outside the shape, listed twice, or of cost NaN.

    given: the columns as they were given, for errors: unsigned ones beyond int64 are negative in ``found``.
    may_be_nan: NaN is no error. name: of ``found.start``.
    """
    wrong, row, k = first_wrong(found.start, found.columns, np.zeros(shape[1], np.int32))
    if wrong == DESCENDING:
        raise InputError(
            f"{name} does not ascend from 0 to the number of entries, {found.columns.size}, at row {row}"
        )
    if wrong != SOUND:
        pair = _named((row, int(given[k])), turned)
        if wrong == OUTSIDE:
            raise ShapeError(f"the pair {pair} is outside the shape {_named(shape, turned)}")
        raise InvalidCostError(
            f"the pair {pair} is listed twice; list each pair once (scipy's sum_duplicates adds"
            " their costs up)",
            *pair,
        )
    if found.costs.dtype.kind != "f" or may_be_nan:
        return
    special = np.full(3, -1, np.int64)
    special_costs(found.costs, special)
    if special[0] >= 0:
        k = int(special[0])
        row = int(np.searchsorted(found.start, k, side="right")) - 1
        pair = _named((row, int(found.columns[k])), turned)
        raise InvalidCostError(
            f"matrix contains invalid numeric entries: cost[{pair[0]}, {pair[1]}] is nan", *pair
        )


def _named(pair: tuple[int, int], turned: bool) -> tuple[int, int]:
    return (pair[1], pair[0]) if turned else pair


def _refuse_inexact(costs: Array, row: int, columns: Array) -> None:
    """Raise an error for an integer that a float cannot hold exactly."""
    if costs.dtype.kind == "f" or costs.dtype.itemsize < 8 or not costs.size:
        return
    large = np.flatnonzero((costs > _EXACT) | (costs < -_EXACT))
    if large.size:
        k = int(large[0])
        raise OverflowRiskError(
            f"cost[{row}, {columns[k]}] is {costs[k]}: rows of sparse costs are float64, which does"
            ' not hold it; solve them with method="auto"',
            row,
            int(columns[k]),
        )
