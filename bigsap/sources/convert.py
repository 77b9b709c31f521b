"""Checks of shapes and dtypes, conversion of costs, and hashing: shared by sources.

Conversion never changes a cost silently: a value that the target cannot hold is an error naming its
row and column. Only rounding to a float is allowed.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InvalidCostError, OverflowRiskError, ShapeError, SourceError
from bigsap.sources.base import CostSource, read_rows, scannable
from bigsap.types import Array, Ids

# Type numbers of dtypes of other packages start here.
_FIRST_FOREIGN = 256

#: Rows are converted in pieces whose temporaries take about this many bytes.
CONVERSION_BYTES = 1 << 20

#: Most rows, and most columns: their numbers are int32, and two more are needed.
LARGEST_SIDE = 2**31 - 2

#: Bytes of a matrix that go into its fingerprint, spread over sampled rows.
FINGERPRINT_BYTES = 4 << 20


def cost_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    """Return the scannable dtype that costs of ``dtype`` are read as; else raise ``DtypeError``."""
    try:
        given = np.dtype(dtype)
    except TypeError:
        raise DtypeError(f"{what} has a dtype numpy does not know: {dtype!r}") from None
    # scannable() accepts numbers only: some dtypes have no byte order.
    target = scannable(given) if given.kind in "biuf" else None
    if given.num >= _FIRST_FOREIGN and given.kind in "Vf":
        # bfloat16, float8, int4, ... of ml_dtypes, which JAX uses too.
        wider = (np.dtype(t) for t in ("i4", "f4", "f8"))
        target = next((d for d in wider if np.can_cast(given, d, "safe")), None)
    if target is None:
        raise DtypeError(f"{what} has dtype {given}; costs must be real numbers (bool, integer or float)")
    return target


def cost_shape(shape: Any, what: str) -> tuple[int, int]:
    """Return ``shape`` as two ints, or raise ``ShapeError``."""
    try:
        sizes = tuple(int(n) for n in shape)
        if any(size != n for size, n in zip(sizes, shape, strict=True)):
            raise ValueError("not whole")
    except (TypeError, ValueError, OverflowError):
        raise ShapeError(f"{what} has shape {shape!r}, not (n_rows, n_columns)") from None
    if len(sizes) != 2:
        raise ShapeError(f"{what} has {len(sizes)} dimension(s), shape {sizes}; a cost matrix has 2")
    if min(sizes) < 0:
        raise ShapeError(f"{what} has a negative size: shape {sizes}")
    return sizes[0], sizes[1]


def refuse_long_sides(shape: tuple[int, int]) -> None:
    """Raise ShapeError for a shape of more than ``LARGEST_SIDE`` rows or columns."""
    if max(shape) > LARGEST_SIDE:
        raise ShapeError(f"at most {LARGEST_SIDE} rows or columns, got shape {shape}")


def check_rows(rows: Ids, n_rows: int) -> None:
    """Raise an error for invalid row ids: numpy would silently wrap negative ones."""
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= n_rows):
        bad = next(int(row) for row in rows if not 0 <= row < n_rows)
        raise SourceError(f"row {bad} is outside 0 to {n_rows - 1}")


def pair_at(row: Any, column: Any, *, swapped: bool) -> tuple[int, int]:
    """Return the row and column as the user counts them. swapped: those given are of the transpose."""
    return (int(column), int(row)) if swapped else (int(row), int(column))


def convert(values: Array, out: Array, rows: Ids, first_column: int, *, swapped: bool = False) -> None:
    """Copy costs into ``out``, refusing values that its dtype cannot hold.

    values, out: (k, p); out of a scannable dtype. ``rows`` (k,) and ``first_column`` are their
    position, ``swapped`` whether it is one in the transpose, for errors: ``OverflowRiskError`` for an
    integer out of range, ``InvalidCostError`` for a fraction or an infinity converted to an integer, or
    a finite float that would become infinite, that is, forbidden.
    """
    if np.can_cast(values.dtype, out.dtype, "safe"):
        out[...] = values
        return
    if out.dtype.kind == "f":
        with np.errstate(over="ignore"):
            out[...] = values
        lost = np.isinf(out)
        if lost.any():
            lost &= np.isfinite(values)
    elif values.dtype.kind == "f":
        low, high = np.iinfo(out.dtype).min, np.iinfo(out.dtype).max
        # ``high + 1`` is a power of two, exact in any float; ``high`` itself is not.
        lost = ~((values >= float(low)) & (values < float(high + 1)) & (np.floor(values) == values))
        with np.errstate(invalid="ignore"):
            out[...] = values.astype(out.dtype)
    else:
        lost = _out_of_range(values, out.dtype)
        out[...] = values.astype(out.dtype)
    if lost.any():
        k, p = np.argwhere(lost)[0]
        row, column = pair_at(rows[k], first_column + p, swapped=swapped)
        kind = OverflowRiskError if values.dtype.kind in "iu" else InvalidCostError
        # By ``str``: a format would show a longdouble as the float that it does not fit.
        text = f"cost[{row}, {column}] = {values[k, p]!s} cannot be held by {out.dtype}"
        if values.dtype == np.uint64 and out.dtype == np.int64:
            text += "; give them as an array of float64 in memory, costs.astype(float)"
        raise kind(text, row, column)


def _out_of_range(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return where integers do not fit the integer ``dtype`` (numpy compares them exactly)."""
    limits = np.iinfo(dtype)
    lost = np.zeros(values.shape, np.bool_)
    if int(np.iinfo(values.dtype).max) > limits.max:
        lost |= values > limits.max
    if int(np.iinfo(values.dtype).min) < limits.min:
        lost |= values < limits.min
    return lost


def fingerprint_of(source: CostSource, rows: Ids | None = None) -> str:
    """Return the blake2b of shape, dtype and sampled rows, read with the source's ``read``.

    A matrix of up to ``FINGERPRINT_BYTES`` is hashed whole; of a larger one, about that many bytes
    of evenly spread rows (or of ``rows``), first and last included; of rows that are larger
    themselves, their two ends.
    """
    n_rows, n_columns = source.shape
    size = source.dtype.itemsize
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{n_rows},{n_columns},{source.dtype.str}".encode())
    if 0 in source.shape:
        return digest.hexdigest()
    row_bytes = n_columns * size
    if row_bytes * n_rows <= FINGERPRINT_BYTES or rows is None:
        count = min(n_rows, max(2, FINGERPRINT_BYTES // row_bytes))
        rows = np.unique(np.linspace(0, n_rows - 1, count).astype(np.int64))
    parts = [slice(0, n_columns)]
    if row_bytes > FINGERPRINT_BYTES // 2:
        part = FINGERPRINT_BYTES // 4 // size
        parts = [slice(0, part), slice(n_columns - part, n_columns)]
    for row in rows:
        for part_of_row in parts:
            out = np.empty((1, part_of_row.stop - part_of_row.start), source.dtype)
            read_rows(source, np.array([row]), part_of_row, out)
            digest.update(out.tobytes())
    return digest.hexdigest()


def read_only(array: Array) -> Array:
    """Return the same memory as an array that cannot be written.

    numba compiles a kernel separately for writable arrays, so pass arrays that are only read as
    read-only always.
    """
    view = array.view()
    view.flags.writeable = False
    return view
