"""Calls of a user's cost function from Python: rows, parts, blocks, single values."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.errors import CallbackError, DtypeError, InvalidCostError, ShapeError
from bigsap.sources.base import Waiting, scannable
from bigsap.sources.convert import convert
from bigsap.sources.functions.probing import checked_row, checked_value, describe, name_of, row_dtype
from bigsap.sources.room import room
from bigsap.types import Array, Ids

#: A block function fills at most about this many costs, and this many rows, at once.
_BLOCK_PAIRS, _BLOCK_ROWS = 1 << 22, 256
# A call of a block function should take about so long; slower ones get a fourth, a sixteenth, ... of the
# rows, so that the clock seldom decides how many: products of matrices may be rounded by their sizes.
_BLOCK_SECONDS = 0.2
# Values computed between two checks for a stop: at first, at most, and the seconds they should take.
_FIRST_VALUES = 64
_VALUES_AT_ONCE = 4096
_VALUES_SECONDS = 0.05

#: Types of values that numpy converts to float64 correctly, many at a time.
_PLAIN_NUMBERS = {float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_}


class PythonCalls:
    """The part of ``FunctionSource`` that needs no compiler; its fields are described there."""

    shape: tuple[int, int]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kind: str
    swapped: bool
    dtype: np.dtype[Any]
    _declared: bool
    # The function that Python calls: the given one, or the original of a compiled one.
    _python: Callable[..., Any]
    _waiting: Waiting
    # The first exception during a compiled filler's calls of Python, by thread.
    _failed: threading.local
    # Ctrl-C or the like during such a call.
    _interrupt: BaseException | None
    # What a row of a block function took in the slowest block, a tenth less for each block since.
    _seconds_per_row = 0.0
    _values_at_once = _FIRST_VALUES

    @property
    def rows_a_call(self) -> int:
        """Number of rows that one call of the function computes at best."""
        return max(1, min(_BLOCK_ROWS, _BLOCK_PAIRS // max(1, self.shape[1]))) if self.kind == "block" else 1

    def probe(self, *, inferred: bool) -> None:
        """Call ``f`` for row 0, to find errors at once and the dtype of its rows.

        inferred: the kind was inferred, so an unexpected result means that the kind is unclear.
        """
        m = self.shape[1]
        if 0 in self.shape:
            return
        if self.kind in ("row", "part") and not self._declared:
            part = (0, m) if self.kind == "part" else ()
            self.dtype = row_dtype(self._call(0, *part), self.kind, self.function, inferred)
            return
        width = m if self.kind in ("row", "block") else 1
        self._call_rows(np.zeros(1, np.int64), 0, width, np.empty((1, width), self.dtype))

    def _call(self, *ids: int) -> Any:
        """Call ``f``; turn an exception into a CallbackError."""
        try:
            return self._python(*ids, *self.args)
        except Exception as error:
            called = ", ".join(str(k) for k in ids)
            raise CallbackError(
                f"{name_of(self.function)}({called}) raised {describe(error)} for row {ids[0]}", ids[0]
            ) from error

    def _call_rows(self, rows: Ids, start: int, stop: int, out: Array) -> None:
        if self.kind != "block":
            for row, part in zip(rows.tolist(), out, strict=True):
                self._waiting.look()
                self._call_row(row, start, stop, part)
            return
        k = 0
        while k < len(rows):
            self._waiting.look()
            step = self.rows_a_call
            while step > 1 and step * self._seconds_per_row > _BLOCK_SECONDS:
                step = max(1, step // 4)
            clock = time.perf_counter()
            out[k : k + step] = self._call_block(rows[k : k + step])[:, start:stop]
            seconds = (time.perf_counter() - clock) / len(rows[k : k + step])
            self._seconds_per_row = max(0.5 * self._seconds_per_row, seconds)
            k += step

    def _call_row(self, row: int, start: int, stop: int, out: Array) -> None:
        """Fill ``out`` (stop - start,) with a part of one row."""
        if self.kind == "value":
            self._call_values(row, start, stop, out)
            return
        if self.kind == "block":
            out[:] = self._call_block(np.array([row]))[0, start:stop]
            return
        if self.kind == "row":
            result = self._call(row)
            costs = self._checked(result, row, self.shape[1])[start:stop]
        else:
            result = self._call(row, start, stop)
            costs = self._checked(result, row, stop - start, start)
        convert(costs[None], out[None], np.array([row]), start)

    def _checked(self, result: Any, row: int, size: int, first: int = 0) -> Array:
        costs = checked_row(result, row, size, self.dtype, self.function, first)
        read = scannable(costs.dtype)
        narrows = costs.dtype.kind == "f" and read is not None and read.itemsize > self.dtype.itemsize
        if narrows and not self._declared and isinstance(result, np.ndarray):
            raise DtypeError(
                f"{name_of(self.function)} returned {costs.dtype} for row {row}, but {self.dtype}"
                f' for row 0; pass dtype="{read}", or make them agree'
            )
        return costs

    def _call_block(self, rows: Ids) -> Array:
        out = np.zeros((len(rows), self.shape[1]), self.dtype)
        if self.dtype.kind == "f":
            out.fill(np.nan)  # an item that f does not write is an invalid cost, not a zero
        try:
            # f gets its own copies of ids and output, which it may keep or change.
            returned = self._python(np.array(rows, np.int64), self._room(rows, out), *self.args)
        except InvalidCostError:
            raise
        except Exception as error:
            which = f"row {rows[0]}" if len(rows) == 1 else f"rows {rows.tolist()[:10]}"
            message = f"{name_of(self.function)} raised {describe(error)} for {which}"
            raise CallbackError(message, int(min(rows))) from error
        if returned is not None and self.dtype.kind == "f" and np.isnan(out).all():
            raise ShapeError(
                f"{name_of(self.function)} returned a {type(returned).__name__} for row"
                f" {rows[0]} and filled nothing; a block function writes to its second argument"
            )
        return out

    def _room(self, rows: Ids, out: Array) -> Array:
        """Return ``out`` as an array that refuses masked values, for the function to write to."""

        def lost(k: int | None, column: int | None) -> InvalidCostError:
            place = "to a copy" if k is None else f"for row {rows[k]}, column {column}"
            return InvalidCostError(
                f"{name_of(self.function)} wrote a masked value {place}; write numpy.inf"
                " (-numpy.inf under maximize) to forbid a pair",
                None if k is None else int(rows[k]),
                column,
            )

        return room(out, lost)

    def _call_values(self, row: int, start: int, stop: int, out: Array) -> None:
        first = start
        while first < stop:
            self._waiting.look()
            last = min(stop, first + self._values_at_once)
            clock = time.perf_counter()
            self._call_some_values(row, first, last, out[first - start : last - start])
            seconds = max(time.perf_counter() - clock, 1e-6)
            # Grow only after a whole batch: single pairs, read one by one, would soon raise the
            # batch to thousands, however long these take.
            grown = (2 if last - first >= self._values_at_once else 1) * self._values_at_once
            fitting = int((last - first) * _VALUES_SECONDS / seconds)
            self._values_at_once = max(1, min(_VALUES_AT_ONCE, grown, fitting))
            first = last

    def _call_some_values(self, row: int, start: int, stop: int, out: Array) -> None:
        f, args = self._python, self.args
        values: list[Any] = []
        append = values.append
        try:
            if self.swapped:
                for column in range(start, stop):
                    append(f(column, row, *args))
            else:
                for column in range(start, stop):
                    append(f(row, column, *args))
        except Exception as error:
            i, j = self._pair(row, start + len(values))
            raise CallbackError(
                f"{name_of(f)}({i}, {j}) raised {describe(error)} for row {i}, column {j}", i
            ) from error
        if self.dtype == np.float64 and set(map(type, values)) <= _PLAIN_NUMBERS:
            with contextlib.suppress(OverflowError):
                out[:] = values
                return
        for k, value in enumerate(values):
            out[k] = checked_value(value, self._pair(row, start + k), self.dtype, f)

    def _pair(self, row: int, column: int) -> tuple[int, int]:
        """Return the arguments of ``f``: the user's row and column."""
        return (column, row) if self.swapped else (row, column)

    def recover(self, row: int, start: int, stop: int, out: Array) -> None:
        """Compute in Python a part that compiled code could not, without raising.

        On failure ``out`` becomes NaN (0 for integers) and the exception is kept for ``read``, in
        the calling thread.
        """
        try:
            # Compiled code does not warn either.
            with np.errstate(all="ignore"):
                self._call_row(row, start, stop, out)
        except Exception as error:  # noqa: BLE001  (compiled code cannot pass it on)
            out[:] = np.nan if self.dtype.kind == "f" else 0
            if getattr(self._failed, "error", None) is None:
                self._failed.error = error
        except BaseException as error:  # noqa: BLE001
            out[:] = np.nan if self.dtype.kind == "f" else 0
            self._interrupt = error

    def forget(self) -> None:
        """Drop the exceptions that ``recover`` kept for ``read``; raise an interrupt that it kept."""
        self._failed.error = None
        if (interrupt := self._interrupt) is not None:
            self._interrupt = None
            raise interrupt
