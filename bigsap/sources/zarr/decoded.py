"""Zarr arrays whose chunks zarr must decode: compressed, remote, reordered.

The unit of work is a row of chunks: decoding it gives all its rows, which ``rows_together`` reports
to the engine, and the next one is decoded ahead of time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.errors import StoreError
from bigsap.notebook import Shown
from bigsap.sources.base import Waiting
from bigsap.sources.convert import FINGERPRINT_BYTES, check_rows, convert, cost_dtype, fingerprint_of
from bigsap.sources.zarr.chunk_layout import Layout
from bigsap.sources.zarr.readahead import ReadAhead
from bigsap.types import Array, Ids

#: Most bytes of a group of decoded rows: with chunks that split columns, a single row of chunks can
#: be as large as the matrix. Such chunks are then decoded repeatedly.
GROUP_BYTES = 256 << 20

#: Neighbouring groups of one read are decoded by one call up to this size.
CALL_BYTES = 8 << 20


class _Loader:
    """Decodes row ranges. Separate from the source, which the I/O thread must not keep alive."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def __call__(self, start: int, stop: int) -> Array:
        layout = self._layout
        try:
            values = np.asarray(layout.array[start:stop, :])
        except Exception as error:
            # Codecs may raise any exception on damaged bytes.
            raise self._culprit(start, stop, error) from error
        if values.shape != (stop - start, layout.shape[1]):
            raise StoreError(f"{layout.name} gave shape {values.shape} for rows {start} to {stop - 1}")
        if not layout.may_be_absent:
            self._refuse_missing(values, start, stop)
        return values

    def _chunks(self, start: int, stop: int) -> list[tuple[int, int]]:
        height = self._layout.chunk[0]
        return [
            (down, across)
            for down in range(start // height, (stop - 1) // height + 1)
            for across in range(self._layout.columns_split)
        ]

    def _culprit(self, start: int, stop: int, error: Exception) -> StoreError:
        """Return the error, naming the first chunk that cannot be decoded alone either."""
        height, width = self._layout.chunk
        for down, across in self._chunks(start, stop):
            try:
                self._layout.array[down * height : (down + 1) * height, across * width : (across + 1) * width]
            except Exception as own:  # noqa: BLE001
                return self._layout.damaged((down, across), f"{type(own).__name__}: {own}")
        return StoreError(
            f"{self._layout.name}: rows {start} to {stop - 1} cannot be read: {type(error).__name__}: {error}"
        )

    def _refuse_missing(self, values: Array, start: int, stop: int) -> None:
        """Raise an error for missing chunks, which zarr silently replaces by the fill value.

        Only a chunk whose values all equal it can be missing, so the store is queried only then.
        """
        height, width = self._layout.chunk
        for down, across in self._chunks(start, stop):
            top = max(down * height - start, 0)
            block = values[top : (down + 1) * height - start, across * width : (across + 1) * width]
            if self._looks_filled(block) and self._layout.is_missing((down, across)):
                raise self._layout.missing((down, across))

    def _looks_filled(self, block: Array) -> bool:
        fill = self._layout.fill
        if fill is None:  # zarr v2 null: the values that zarr gives are undefined
            return True
        if fill != fill:
            return bool(block[0, 0] != block[0, 0]) and bool(np.isnan(block).all())
        return bool(block[0, 0] == fill) and bool((block == fill).all())


class DecodedZarrSource(Shown):
    """Rows of a zarr array, decoded by zarr, a row of chunks at a time.

    Memory: two groups of rows, each at most ``GROUP_BYTES`` (one chunk high), and zarr's memory to
    decode one more. All decoding happens on one daemon thread. Raises ``StoreError`` naming chunk
    and rows if one is missing or damaged.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.shape = layout.shape
        self.dtype = cost_dtype(layout.stored, layout.name)
        self._row_bytes = max(1, layout.shape[1] * layout.stored.itemsize)
        self._group = min(layout.chunk[0], max(1, GROUP_BYTES // self._row_bytes))
        self._ahead = ReadAhead(_Loader(layout))
        self._waiting = Waiting()

    def __repr__(self) -> str:
        return f"DecodedZarrSource({self._layout.name}, shape={self.shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return DecodedZarrSource, (self._layout,)

    def rows_together(self, row: int) -> tuple[int, int]:
        height = self._layout.chunk[0]
        top = row - row % height
        start = row - (row - top) % self._group
        return start, min(start + self._group, top + height, self.shape[0])

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called while a read of this thread waits for a chunk."""
        self._waiting.check = check

    def prefetch(self, row: int) -> None:
        """Decode the rows around ``row`` in the background. Returns at once."""
        if 0 <= row < self.shape[0]:
            self._ahead.prefetch(*self.rows_together(row))

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        check_rows(rows, self.shape[0])
        if not len(rows) or columns.start == columns.stop:
            return
        order = np.argsort(rows, kind="stable")
        ascending = rows[order].astype(np.int64)
        done = 0
        while done < len(order):
            first, values = self._values(ascending, done)
            end = int(np.searchsorted(ascending, first + len(values)))
            for k in order[done:end]:
                row = int(rows[k])
                part = values[row - first : row - first + 1, columns]
                convert(part, out[k : k + 1], rows[k : k + 1], columns.start)
            done = end

    def _values(self, ascending: Ids, done: int) -> tuple[int, Array]:
        """Return decoded rows from ``ascending[done]`` on, neighbouring groups together."""
        row = int(ascending[done])
        start, stop = self.rows_together(row)
        while stop < self.shape[0]:
            following, end = self.rows_together(stop)
            at = int(np.searchsorted(ascending, following))
            if (
                at == len(ascending)
                or ascending[at] >= end
                or (end - start) * self._row_bytes > CALL_BYTES
                or self._ahead.holds(following)
            ):
                break
            stop = end
        return self._ahead.rows(row, start, stop, self._waiting.look)

    def fingerprint(self) -> str:
        """Return a hex digest of shape, dtype and the rows of a few groups."""
        count = min(64, max(4, 16 * FINGERPRINT_BYTES // (self._group * self._row_bytes)))
        groups = np.unique(np.linspace(0, self.shape[0] - 1, count).astype(np.int64))
        share = max(1, FINGERPRINT_BYTES // count // self._row_bytes)
        rows: list[int] = []
        for row in groups:
            start, stop = self.rows_together(int(row))
            rows.extend(range(start, min(stop, start + share)))
        return fingerprint_of(self, np.unique(np.array(rows, np.int64)))
