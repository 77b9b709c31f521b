"""Records of uploaded arrays, and blocks of rows while they are written to the disk."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from bigsap_server.problems import HttpProblem, from_error, is_disk_full


@dataclass(frozen=True)
class Meta:
    """Metadata of an uploaded array.

    dtype: numpy's little-endian name. ranges: received rows, half-open, ascending, disjoint; all of
    them from the start where a row has no bytes.
    finite: whether every entry is finite, once sealed; True before. sha256: of the raw
    little-endian data in C order, once sealed. Times are unix seconds.
    """

    id: str
    owner: str
    dtype: str
    shape: list[int]
    created: float
    ranges: list[list[int]] = field(default_factory=list)
    finite: bool = True
    sealed: float | None = None
    sha256: str | None = None
    offset: int = 0

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.row_bytes

    def missing(self) -> list[list[int]]:
        """Return the rows not received, as ranges."""
        edges = [0, *(edge for pair in self.ranges for edge in pair), self.shape[0]]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [[start, stop] for start, stop in pairs if start < stop]


class Block:
    """Rows from ``start`` to ``stop`` being written to the disk. Used by one thread at a time.

    file: the array's. aside: whether the rows exist already: then the block is written to a file of its
    own, which ``move`` copies over them, so that a block that is refused or interrupted changes nothing.
    Only ``supersede`` may be called by another thread: when it returns, nothing more is written.
    """

    def __init__(self, meta: Meta, file: Path, start: int, stop: int, *, aside: bool) -> None:
        self.start, self.stop, self.aside, self._meta = start, stop, aside, meta
        self._writing, self._over = threading.Lock(), False
        self._room = (stop - start) * meta.row_bytes
        self._size = 0
        self._rest = b""  # first bytes of an incomplete item
        self._target, self._begin = file, meta.offset + start * meta.row_bytes
        if aside:
            own = tempfile.TemporaryFile(dir=file.parent, buffering=0)  # noqa: SIM115 - see close
            self._file = cast(BinaryIO, own)
        else:
            self._file = file.open("r+b", buffering=0)
            self._file.seek(self._begin)

    def write(self, chunk: bytes) -> None:
        """Write the next bytes. Raises HttpProblem for NaN, too many rows, a full disk, a later block."""
        self._size += len(chunk)
        if self._size > self._room:
            raise too_long()
        self._check(chunk)
        view = memoryview(chunk)
        with self._writing, disk():
            if self._over:
                raise superseded()
            while view:
                view = view[self._file.write(view) :]

    def supersede(self) -> None:
        """Mark the block as replaced by a later block of the same rows."""
        with self._writing:
            self._over = True

    def _check(self, chunk: bytes) -> None:
        """Raise for NaN, which no later step can handle."""
        dtype = np.dtype(self._meta.dtype)
        if dtype.kind != "f":
            return
        data, size = self._rest + chunk, dtype.itemsize
        whole = len(data) - len(data) % size
        first = (self._size - len(chunk) - len(self._rest)) // size
        self._rest = data[whole:]
        values = np.frombuffer(data[:whole], dtype)
        if np.isnan(values).any():
            item = first + int(np.isnan(values).argmax())
            width = max(1, self._meta.row_bytes // size)
            row, column = self.start + item // width, item % width
            raise HttpProblem("invalid-cost", f"entry [{row}, {column}] is NaN", row=row, column=column)

    def finish(self) -> int:
        """Return the number of rows on the disk or in the separate file. Raises HttpProblem unless whole."""
        rows = whole_rows(self._size, self.stop - self.start, self._meta.row_bytes)
        if not self.aside:
            with disk():
                os.fsync(self._file.fileno())
        return rows

    def claim(self) -> None:
        """Reserve disk space for what ``move`` copies. Raises HttpProblem if there is too little."""
        with disk(), self._target.open("r+b", buffering=0) as target:
            if not hasattr(os, "posix_fallocate"):  # macOS, Windows: the copy itself finds out
                return
            try:
                os.posix_fallocate(target.fileno(), self._begin, self._size)
            except OSError as error:  # nor on every file system
                if is_disk_full(error):
                    raise

    def move(self) -> None:
        """Copy a block from its separate file over the existing rows."""
        self._file.seek(0)
        with disk(), self._target.open("r+b") as target:
            target.seek(self._begin)
            shutil.copyfileobj(self._file, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())

    def close(self) -> None:
        """Close the file; an unfinished block counts as not received."""
        self._file.close()


def whole_rows(nbytes: int, rows: int, row_bytes: int) -> int:
    """Return how many rows a body has, from 1 to ``rows``; all of them where a row has no bytes.

    Raises HttpProblem for any other body.
    """
    if nbytes > rows * row_bytes:
        raise too_long()
    if row_bytes == 0:
        return rows
    if nbytes == 0 or nbytes % row_bytes:
        raise HttpProblem(
            "invalid-spec", f"the body has {nbytes} bytes, which are no whole rows of {row_bytes} bytes"
        )
    return nbytes // row_bytes


def too_long() -> HttpProblem:
    """Return the error for a block that extends beyond the array."""
    return HttpProblem("invalid-spec", "the body has more rows than the array has from here on")


def superseded() -> HttpProblem:
    """Return the error for a block that a later one has replaced."""
    return HttpProblem("block-superseded", "another block of the same rows has begun after this one")


@contextmanager
def disk() -> Iterator[None]:
    """Convert a full disk to an HttpProblem."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise from_error(error) from error
        raise
