"""Rows of an uploaded array on their way to the disk."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
from bigsap_server.problems import Problem, from_error, is_disk_full


class Block:
    """Rows from ``start`` to ``stop`` on their way to the disk. Used by one thread at a time.

    Only ``supersede`` may be called by another: when it returns, nothing more is written.
    """

    def __init__(
        self, shape: list[int], dtype: str, start: int, stop: int, offset: int, file: BinaryIO
    ) -> None:
        self.start, self.stop = start, stop
        self._width = math.prod(shape[1:])
        self._file = file
        self._writing, self._over = threading.Lock(), False
        self._dtype = np.dtype(dtype)
        self._row_bytes = self._width * self._dtype.itemsize
        self._room = (stop - start) * self._row_bytes
        self._size = 0
        self._rest = b""  # the beginning of an item whose end has not come yet
        file.seek(offset + start * self._row_bytes)

    def write(self, chunk: bytes) -> None:
        """The next bytes. Raises Problem for NaN, too many rows, a full disk, a later block."""
        self._size += len(chunk)
        if self._size > self._room:
            raise Problem("invalid-spec", "the body has more rows than the array has from here on")
        self._check(chunk)
        view = memoryview(chunk)
        with self._writing, disk():
            if self._over:
                raise superseded()
            while view:
                view = view[self._file.write(view) :]

    def supersede(self) -> None:
        """Another block has these rows from now on."""
        with self._writing:
            self._over = True

    def _check(self, chunk: bytes) -> None:
        """No NaN passes: nothing can be done with it later."""
        if self._dtype.kind != "f":
            return
        data, size = self._rest + chunk, self._dtype.itemsize
        whole = len(data) - len(data) % size
        first = (self._size - len(chunk) - len(self._rest)) // size
        self._rest = data[whole:]
        values = np.frombuffer(data[:whole], self._dtype)
        if np.isnan(values).any():
            item = first + int(np.isnan(values).argmax())
            width = max(1, self._width)
            row, column = self.start + item // width, item % width
            raise Problem("invalid-cost", f"entry [{row}, {column}] is NaN", row=row, column=column)

    def finish(self) -> int:
        """The number of rows, all on the disk now. Raises Problem unless whole."""
        if self._size == 0 or self._size % self._row_bytes:
            raise Problem(
                "invalid-spec", f"the body has {self._size} bytes, which are no whole rows of"
                f" {self._row_bytes} bytes",
            )  # fmt: skip
        with disk():
            os.fsync(self._file.fileno())
        return self._size // self._row_bytes

    def close(self) -> None:
        """Let the file go; what was not finished counts as not received."""
        self._file.close()


def superseded() -> Problem:
    """What a block is told that a later one has overtaken."""
    return Problem("block-superseded", "another block of the same rows has begun after this one")


@contextmanager
def disk() -> Iterator[None]:
    """A full disk as a Problem."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise from_error(error) from error
        raise
