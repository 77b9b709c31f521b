"""Mapped files that may shrink, and more files than can be mapped at a time.

Touching a page beyond the end of a file would end the process (SIGBUS). ``shrinking`` turns that
into zeros; this module checks, from the file's size and from missing pages, whether the values that
were read are valid.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any, Protocol

import numpy as np

from bigsap.errors import StoreError
from bigsap.sources.arrays.shrinking import watch
from bigsap.types import Array

#: Most files mapped at a time by one source. Each map holds a file handle of the usual 1024.
MOST_MAPS = 64


class MapGuard:
    """Detects that the file behind a ``numpy.memmap`` has become shorter than the map."""

    def __init__(self, array: Any, what: str) -> None:
        self._map = array._mmap
        start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
        self._needed = start + len(self._map)
        self._what = what
        self._watch = watch(self, self._map)

    @classmethod
    def of(cls, array: Any, what: str | None = None) -> MapGuard | None:
        """Return the guard of an array; None unless it lies in a map of a file.

        what: what errors call it; by default the file.
        """
        found: Any = array
        while found is not None and not isinstance(found, np.memmap):
            found = getattr(found, "base", None)
        mapped = isinstance(getattr(found, "_mmap", None), mmap.mmap)
        if not mapped:
            return None
        name = os.fspath(getattr(found, "filename", None) or "")
        return cls(found, f"the file {name!r}" if what is None else what)

    def check(self) -> None:
        """Raise StoreError if the file was truncated; values read before may be zeros."""
        found = self._map.size()
        if found < self._needed or self._watch.lost:
            raise StoreError(
                f"{self._what} was truncated while in use: it has {found} bytes left of {self._needed}"
            )


def place_of(array: Array) -> tuple[str, int, int, np.dtype[Any], tuple[int, ...], tuple[int, ...]] | None:
    """Return file, first byte, number of bytes, dtype, shape and strides of a mapped array.

    None if the file has no name, or the map holds changes that the file does not.
    """
    found: Any = array
    while found is not None and not isinstance(found, np.memmap):
        found = getattr(found, "base", None)
    if found is None or found.filename is None or found.mode == "c" or not array.size:
        return None
    reach = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=True)]
    first = int(array.__array_interface__["data"][0])
    low = first + sum(min(0, step) for step in reach)
    high = first + sum(max(0, step) for step in reach) + array.itemsize
    # The ``offset`` of a slice of a map is that of the whole map.
    whole: Any = found
    begin = np.frombuffer(whole._mmap, np.uint8).__array_interface__["data"][0]
    offset = found.offset - found.offset % mmap.ALLOCATIONGRANULARITY + low - begin
    file = os.path.abspath(found.filename)
    return file, offset, high - low, array.dtype, array.shape, array.strides


class OpenFile(Protocol):
    """A file being read: its size in bytes, and its content."""

    size: int

    def take(self, begin: int, count: int) -> bytes:
        """Return ``count`` bytes from ``begin`` on, fewer at the end of the file."""

    def fill(self, begin: int, out: Array) -> bool:
        """Read all of ``out`` (contiguous); return False if the file is too short."""


class _Read:
    """A file accessed by reading, for a single use."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def take(self, begin: int, count: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(count) or b""

    def fill(self, begin: int, out: Array) -> bool:
        wanted: Any = out.view(np.uint8)
        self._file.seek(begin)
        done = 0
        while done < wanted.size:
            got = self._file.readinto(wanted[done:])
            if not got:
                return False
            done += got
        return True


class _Mapped:
    """A file accessed by a map, for repeated use."""

    def __init__(self, map_: _Map) -> None:
        self._map, self._file = map_, map_.file
        # The mapped part, or the rest of it after truncation.
        self.size = min(self._file.size(), len(self._file))

    def take(self, begin: int, count: int) -> bytes:
        found = self._file[begin : min(begin + count, self.size)]
        return b"" if self._map.watch.lost else found

    def fill(self, begin: int, out: Array) -> bool:
        if begin + out.nbytes > self.size:
            return False
        out[...] = np.frombuffer(self._file, out.dtype, out.size, begin)
        return not self._map.watch.lost


class _Map:
    """A map of a whole file, watched for truncation while it is read."""

    def __init__(self, file: mmap.mmap) -> None:
        self.file = file
        self.watch = watch(self, file)


class Files:
    """Opens files for reading; maps up to ``most`` that were opened before.

    Copying from a map takes half the time of opening and reading, but mapping a file for one row
    takes twice that time. So a file is mapped if it is opened again while it is among the last
    ``most`` that were not mapped; the least recently used map is dropped for it. A file replaced
    under its name is still read in its old version while it is mapped.
    """

    def __init__(self, most: int = MOST_MAPS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._maps: OrderedDict[str, _Map] = OrderedDict()
        self._asked: OrderedDict[str, None] = OrderedDict()

    @contextmanager
    def open(self, path: str) -> Iterator[OpenFile]:
        """Open the file at ``path``, for any number of threads. Raises OSError."""
        found = self._map(path)
        if found is not None:
            # Dropped maps are not closed: another thread may be copying from one.
            yield _Mapped(found)
            return
        with FileIO(path) as file:
            yield _Read(file)

    def _map(self, path: str) -> _Map | None:
        with self._lock:
            found = self._maps.get(path)
            if found is not None and (found.file.size() != len(found.file) or found.watch.lost):
                # The file has changed: open its new version, which is then checked.
                del self._maps[path]
                found = None
            elif found is not None:
                self._maps.move_to_end(path)
                return found
            if path not in self._asked:
                self._asked[path] = None
                if len(self._asked) > self._most:
                    self._asked.popitem(last=False)
                return None
            with FileIO(path) as file:
                if os.fstat(file.fileno()).st_size == 0:
                    return None  # an empty file cannot be mapped
                found = _Map(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            del self._asked[path]
            self._maps[path] = found
            if len(self._maps) > self._most:
                self._maps.popitem(last=False)
            return found
