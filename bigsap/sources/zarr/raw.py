"""Uncompressed zarr arrays on a local disk, read without zarr.

Rows are copied directly to their destination, in pieces that are contiguous in their files, from
maps or by reading (see ``mapped.Files``): no decoding, no temporaries. Measured a row of 32 kB,
files in the page cache: 4 to 6 us from a map, 9 to 16 us by reading, 40 us if the file must be
mapped first, as would be the case nearly each time for random rows of a thousand chunks. An array
that is one single file is mapped as a whole (``from_zarr``), because then kernels scan it in place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.notebook import Shown
from bigsap.sources.arrays.mapped import Files, OpenFile
from bigsap.sources.convert import CONVERSION_BYTES, check_rows, convert, cost_dtype, fingerprint_of
from bigsap.sources.zarr.chunk_layout import Layout, is_absent
from bigsap.types import Array, Ids


class RawZarrSource(Shown):
    """Rows of a local zarr array whose chunks have no codec.

    Holds up to 64 files mapped. Raises ``StoreError`` for a missing chunk (unless the fill value is
    inf), a chunk file of the wrong size, at any time, and a damaged shard.
    """

    def __init__(self, layout: Layout) -> None:
        assert layout.root is not None
        self._layout = layout
        self._root: Path = layout.root
        self.shape = layout.shape
        self.dtype = cost_dtype(layout.stored, layout.name)
        self._chunk_bytes = layout.chunk[0] * layout.chunk[1] * layout.stored.itemsize
        self._files = Files()
        # Shard key -> index. 16 bytes for each inner chunk, so it is never emptied.
        self._indexes: dict[str, Array] = {}

    def __repr__(self) -> str:
        return f"RawZarrSource({self._layout.name}, shape={self.shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RawZarrSource, (self._layout,)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        check_rows(rows, self.shape[0])
        width = columns.stop - columns.start
        stored = self._layout.stored
        if stored == self.dtype:
            self._read(rows, columns, out)
            return
        step = max(1, CONVERSION_BYTES // max(1, width * stored.itemsize))
        for k in range(0, len(rows), step):
            some = rows[k : k + step]
            values = np.empty((len(some), width), stored)
            self._read(some, columns, values)
            convert(values, out[k : k + step], some, columns.start)

    def _read(self, rows: Ids, columns: slice, out: Array) -> None:
        chunk_width = self._layout.chunk[1]
        for first, last in self._runs(rows):
            row = int(rows[first])
            start = columns.start
            while start < columns.stop:
                across = start // chunk_width
                stop = min(columns.stop, (across + 1) * chunk_width)
                place = out[first:last, start - columns.start : stop - columns.start]
                self._read_piece(row, across, start - across * chunk_width, place)
                start = stop

    def _runs(self, rows: Ids) -> Iterator[tuple[int, int]]:
        """Yield ranges of ``rows`` that are consecutive within one row of chunks."""
        height = self._layout.chunk[0]
        first = 0
        for k in range(1, len(rows) + 1):
            if k == len(rows) or rows[k] != rows[k - 1] + 1 or rows[k] % height == 0:
                yield first, k
                first = k

    def _read_piece(self, row: int, across: int, column: int, out: Array) -> None:
        """Fill ``out`` (k, p) from ``k`` rows of one chunk, from its ``column`` on."""
        height, width = self._layout.chunk
        chunk = (row // height, across)
        path = self._root / self._layout.key(chunk)
        try:
            with self._files.open(os.fspath(path)) as file:
                begin = self._begin(file, chunk)
                if begin is not None:
                    size = out.itemsize
                    begin += ((row % height) * width + column) * size
                    if out.shape[1] == width and out.flags.c_contiguous:
                        self._fill(file, begin, out.reshape(-1), chunk)
                    else:
                        for k in range(len(out)):
                            self._fill(file, begin + k * width * size, out[k], chunk)
                    return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._layout.damaged(chunk, error) from error
        if not self._layout.may_be_absent:
            raise self._layout.missing(chunk)
        out[...] = self._layout.fill

    def _begin(self, file: OpenFile, chunk: tuple[int, int]) -> int | None:
        """Return where the chunk's values begin in its file; None if it was never written."""
        size = file.size
        if self._layout.shards is None:
            if size != self._chunk_bytes:
                raise self._layout.damaged(chunk, f"the file has {size} bytes instead of {self._chunk_bytes}")
            return 0
        entry = self._index(file, chunk)[self._layout.inner(chunk)]
        if is_absent(entry):
            return None
        offset, length = int(entry[0]), int(entry[1])
        if length != self._chunk_bytes or offset + length > size:
            raise self._layout.damaged(
                chunk,
                f"the shard's index places it at bytes {offset} to {offset + length} "
                f"of {size}, and it should have {self._chunk_bytes}",
            )
        return offset

    def _index(self, file: OpenFile, chunk: tuple[int, int]) -> Array:
        key = self._layout.key(chunk)
        index = self._indexes.get(key)
        if index is None:
            shards = self._layout.shards
            assert shards is not None
            begin = 0 if shards.index_first else max(0, file.size - shards.index_bytes)
            index = self._layout.parse_index(file.take(begin, shards.index_bytes), chunk)
            self._indexes[key] = index
        return index

    def _fill(self, file: OpenFile, begin: int, out: Array, chunk: tuple[int, int]) -> None:
        """Read exactly ``out`` (contiguous) from byte ``begin`` on."""
        if not file.fill(begin, out):
            raise self._layout.damaged(chunk, "its file is truncated")

    def fingerprint(self) -> str:
        return fingerprint_of(self)
