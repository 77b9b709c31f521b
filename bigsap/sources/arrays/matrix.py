"""Costs that lie in memory, in a mapped file, or behind ``__getitem__``.

An ndarray that kernels can scan is used in place; other arrays are converted row by row as they are
read, so a second copy of the matrix never exists.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bigsap.errors import DtypeError, ShapeError, SourceError, StoreError
from bigsap.notebook import Shown
from bigsap.sources.arrays.mapped import MapGuard, place_of
from bigsap.sources.base import Waiting
from bigsap.sources.convert import (
    CONVERSION_BYTES,
    check_rows,
    convert,
    cost_dtype,
    cost_shape,
    fingerprint_of,
)
from bigsap.sources.missing import mask_of, parted, refuse_in, under_mask
from bigsap.types import Array, Ids

_LARGEST = np.iinfo(np.int64).max
_WIDE = (np.dtype("<u8"), np.dtype(">u8"))


class ArraySource(Shown):
    """Rows of a numpy array (or memmap), scanned in place if possible.

    array: (n_rows, n_columns), any real dtype. swapped: it is the transpose of what the user gave, whose
    rows and columns errors name. float64, float32, int64, int32, uint8 and uint16 of
    native byte order are never copied, bool is seen as uint8; other dtypes are converted as rows
    are read (see ``base.scannable``); uint64 beyond int64 becomes float64 if that rounds none, else
    OverflowRiskError when it is read. Raises ``ShapeError`` unless 2-D, ``DtypeError`` unless real,
    InvalidCostError for a masked array that holds masked values. A read costs O(k p); no memory
    beyond about 1 MiB of conversion.
    """

    def __init__(self, array: Array, what: str = "the cost matrix", swapped: bool = False) -> None:
        mask = mask_of(array)
        if mask is not None:
            # The values under the mask would become costs of missing values.
            if mask.any():
                cost_shape(array.shape, what)
                refuse_in(mask, 0, 0, "masked")
            array = under_mask(array)
        self._what = what
        self._swapped = swapped
        self._guard = MapGuard.of(array, what)
        self.shape = cost_shape(array.shape, what)
        self.dtype = cost_dtype(array.dtype, what)
        wide = array.dtype in _WIDE and array.size and self._guard is None
        if wide and array.max() > _LARGEST and _are_floats(array):
            self.dtype = np.dtype(np.float64)
        # A plain view: np.matrix would keep rows 2-D, memmap would slow indexing.
        self.array: Array = array.view(np.ndarray)
        if self.array.dtype == np.bool_:
            self.array = self.array.view(np.uint8)

    def __repr__(self) -> str:
        return f"ArraySource(shape={self.shape}, dtype={self.array.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a mapped file by its path, to be mapped again; other arrays with their data."""
        place = None if self._guard is None else place_of(self.array)
        if place is None:
            return ArraySource, (self.array, self._what, self._swapped)
        return mapped_again, (*place, self._what, self._swapped)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        check_rows(rows, self.shape[0])
        if self.array.dtype == self.dtype:
            # One row at a time: ``array[rows]`` would build a temporary as big as out.
            for k, row in enumerate(rows):
                self.intact()
                out[k] = self.array[row, columns]
            self.intact()
            return
        width = max(columns.stop - columns.start, 1)
        step = max(1, CONVERSION_BYTES // (width * self.array.itemsize))
        for k in range(0, len(rows), step):
            some = rows[k : k + step]
            self.intact()
            values = self.array[some, columns]
            convert(values, out[k : k + step], some, columns.start, swapped=self._swapped)
        self.intact()

    def intact(self) -> None:
        """Raise StoreError if the mapped file was truncated; see ``mapped``."""
        if self._guard is not None:
            self._guard.check()

    def resident(self) -> Array | None:
        """Return the matrix for kernels, in place; None if it must be copied or converted.

        Equally spaced rows (``big[:, 3:9]``, ``big[::2]``) are returned as a wider C-contiguous
        view, whose surplus columns are other data.
        """
        array = self.array
        if array.dtype != self.dtype or not array.flags.aligned:
            return None
        if array.flags.c_contiguous:
            return array
        n_rows, n_columns = self.shape
        row_stride, column_stride = array.strides
        size = array.itemsize
        if column_stride != size and n_columns > 1:
            return None
        if n_rows == 1:
            row_stride = n_columns * size
        if row_stride % size or row_stride < n_columns * size:
            return None
        return self._widened(row_stride // size)

    def _widened(self, width: int) -> Array:
        """Return a C-contiguous (n_rows, width) view of the same memory."""
        size = self.array.itemsize
        # The last row's surplus may lie beyond the buffer. The view is legal as long as the surplus
        # is not accessed, which the contract of ``Resident`` forbids.
        return np.lib.stride_tricks.as_strided(self.array, (self.shape[0], width), (width * size, size))

    def transposed(self) -> ArraySource | None:
        """Return the transpose if its rows are contiguous (Fortran order), else None.

        Columns of a C-ordered matrix cost a cache line an item: None for them.
        """
        if self.array.size and abs(self.array.strides[0]) > abs(self.array.strides[1]):
            return None
        return self.across()

    @property
    def mapped(self) -> bool:
        """Whether the matrix lies in a mapped file."""
        return self._guard is not None

    def across(self) -> ArraySource:
        """Return the transpose for any layout of its rows: one may cost a cache line an item."""
        other = ArraySource(self.array.T, self._what, not self._swapped)
        other._guard = self._guard
        return other

    def fingerprint(self) -> str:
        return fingerprint_of(self)


class SliceableSource(Shown):
    """Rows of any object with ``shape``, ``dtype`` and ``__getitem__`` (h5py, ...).

    Consecutive rows are read together, as ``obj[first:last, start:stop]``, one call at a time: few
    such objects are thread-safe. given: the dtype of the returned arrays, if not the object's
    ``dtype``. forbid: masked values become NaN, for ``packed.WithoutMissing``, and costs are
    floats; otherwise they are an error. Raises ``SourceError`` naming the rows, chained from the
    object's error.
    """

    def __init__(self, obj: Any, what: str | None = None, *, given: Any = None, forbid: bool = False) -> None:
        self._what = what or f"the {type(obj).__module__}.{type(obj).__qualname__}"
        self._obj = obj
        self.shape = cost_shape(obj.shape, self._what)
        self._given = np.dtype(obj.dtype if given is None else given)
        self.dtype = cost_dtype(self._given, self._what)
        self._forbid = forbid
        if forbid and self.dtype.kind != "f":
            self.dtype = np.dtype(np.float64)
        self._lock = threading.Lock()
        self._waiting = Waiting()

    def __repr__(self) -> str:
        return f"SliceableSource({self._what}, shape={self.shape}, dtype={self._given})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        check_rows(rows, self.shape[0])
        width = columns.stop - columns.start
        if not width or not len(rows):
            return
        step = max(1, CONVERSION_BYTES // (width * self._given.itemsize))
        k = 0
        while k < len(rows):
            self._waiting.look()
            stop = k + 1
            while stop < len(rows) and stop - k < step and rows[stop] == rows[stop - 1] + 1:
                stop += 1
            self._read_run(int(rows[k]), columns, out[k:stop])
            k = stop

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called between the calls of a read of this thread."""
        self._waiting.check = check

    def _read_run(self, row: int, columns: slice, out: Array) -> None:
        where = slice(row, row + len(out))
        try:
            with self._lock:
                values, missing = parted(self._obj[where, columns], self._what)
        except Exception as error:
            raise SourceError(
                f"{self._what} failed on rows {row} to {row + len(out) - 1}: "
                f"{type(error).__name__}: {error}{_closed(self._obj)}"
            ) from error
        if values.shape != out.shape:
            raise ShapeError(
                f"{self._what} gave shape {values.shape} for rows {row} to "
                f"{row + len(out) - 1}, columns {columns.start} to {columns.stop - 1}; "
                f"expected {out.shape}"
            )
        if missing is not None and not self._forbid:
            refuse_in(missing, row, columns.start, f"masked by {self._what}")
        if _native(values.dtype) != _native(self._given):
            raise DtypeError(
                f"{self._what} gave dtype {values.dtype} for row {row}; it promised"
                f" {self._given}; pass an array of what it gives, or an object that tells its dtype"
            )
        convert(values, out, np.arange(row, row + len(out)), columns.start)
        if missing is not None:
            out[missing] = np.nan

    def fingerprint(self) -> str:
        return fingerprint_of(self)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=") if dtype.kind in "biuf" else dtype


def _closed(obj: Any) -> str:
    """Return advice for an HDF5 or netCDF object whose file is closed."""
    if type(obj).__module__.partition(".")[0] not in ("h5py", "h5netcdf", "netCDF4"):
        return ""
    return "; keep its file open until the solve is done, or pass a copy, dataset[:]"


def mapped_again(
    file: str,
    offset: int,
    n_bytes: int,
    dtype: np.dtype[Any],
    shape: tuple[int, int],
    strides: tuple[int, int],
    what: str,
    swapped: bool,
) -> ArraySource:
    """Return the source of a matrix in a mapped file, see ``mapped.place_of``."""
    if not Path(file).is_file() or Path(file).stat().st_size < offset + n_bytes:
        raise StoreError(f"{what} is not there, or shorter: {file}")
    flat = np.memmap(file, np.uint8, "r", offset, (n_bytes,))
    # With negative strides the first item is not the lowest.
    first = sum(-step * (size - 1) for step, size in zip(strides, shape, strict=True) if step < 0)
    return ArraySource(np.ndarray(shape, dtype, flat, first, strides), what, swapped)


def from_npy(path: str | os.PathLike[str]) -> ArraySource:
    """Return costs in a ``.npy`` file, mapped read-only: nothing is loaded until scanned.

    path: file of a 2-D array of real numbers, C or Fortran order, any byte order. Raises
    ``StoreError`` naming the file if it is missing, truncated, longer than its header states or not
    a ``.npy`` file; ``ShapeError`` and ``DtypeError`` as for arrays. Pickled objects are never
    loaded. Opening is O(1).

    A file that is truncated while in use raises ``StoreError`` at the next check of its size:
    before each read, and every tenth of a second while kernels scan it in place. If kernels touch
    the missing part within that time, the system ends the process; pass ``numpy.load(path)``, a
    copy, to exclude that.
    """
    file = Path(path)
    what = f"the file {os.fspath(file)!r}"
    shape, fortran, dtype, offset = _npy_header(file, what)
    cost_dtype(dtype, what)
    cost_shape(shape, what)
    expected = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
    found = file.stat().st_size
    if found != expected:
        state = "truncated" if found < expected else "longer than its header says"
        raise StoreError(f"{what} is {state}: {found} bytes, but shape {shape} of {dtype} needs {expected}")
    order: Literal["C", "F"] = "F" if fortran else "C"
    if 0 in shape:
        # An empty range cannot be mapped.
        return ArraySource(np.empty(shape, dtype, order), what)
    mapped = np.memmap(file, dtype, "r", offset, shape, order)
    return ArraySource(mapped, what)


def _npy_header(file: Path, what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and the offset of the data; ``StoreError`` if damaged."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
        # As 2.0, except for the encoding of field names, which a matrix does not have.
        (3, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        with file.open("rb") as f:
            version = np.lib.format.read_magic(f)
            if version not in readers:
                raise ValueError(f"format version {version} is not supported")
            shape, fortran, dtype = readers[version](f)
            return shape, fortran, dtype, f.tell()
    except FileNotFoundError:
        raise StoreError(f"{what} does not exist") from None
    except Exception as error:
        # numpy passes on errors of the tokenizer, the parser and the decoder for damaged headers,
        # so no narrower list is safe.
        raise StoreError(f"{what} is not a readable .npy file: {error}") from error


def _are_floats(array: Array) -> bool:
    """Return whether float64 holds all of these integers exactly."""
    step = max(1, CONVERSION_BYTES // max(1, 8 * array.shape[1]))
    for first in range(0, array.shape[0], step):
        block = array[first : first + step]
        rounded = block.astype(np.float64)
        # 2.0**64 does not fit uint64.
        if (rounded >= 2.0**64).any() or (rounded.astype(np.uint64) != block).any():
            return False
    return True
