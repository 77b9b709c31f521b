"""Mapped files that may shrink, and more files than can be mapped at a time.

Touching a page beyond the end of a file would end the process (SIGBUS). ``shrinking``
turns that into zeros; here what was read is judged by the file's size and by whether
pages were missing.
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
from bigsap.sources.base import Array

#: Files mapped at a time by one source. Each map holds a file handle of the usual 1024.
MOST_MAPS = 64


class MapGuard:
    """Tells when the file behind a ``numpy.memmap`` has become shorter than the map."""

    def __init__(self, array: Any, what: str) -> None:
        self._map = array._mmap
        start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
        self._needed = start + len(self._map)
        self._what = what
        self._watch = watch(self, self._map)

    @classmethod
    def of(cls, array: Array, what: str) -> MapGuard | None:
        """The guard of an array; None unless it lies in a map of a file."""
        found: Any = array
        while found is not None and not isinstance(found, np.memmap):
            found = getattr(found, "base", None)
        mapped = isinstance(getattr(found, "_mmap", None), mmap.mmap)
        return cls(found, what) if mapped else None

    def check(self) -> None:
        """Raise StoreError when the file was truncated; what was read before may be zeros."""
        found = self._map.size()
        if found < self._needed or self._watch.lost:
            raise StoreError(
                f"{self._what} was truncated while in use: it has {found} bytes left of {self._needed}"
            )


def place_of(array: Array) -> tuple[str, int, int, np.dtype[Any], tuple[int, ...], tuple[int, ...]] | None:
    """File, first byte, number of bytes, dtype, shape and strides of a mapped array.

    None where the file has no name, or the map holds changes that the file does not.
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
    # Of a slice of a map ``offset`` is that of the whole.
    whole: Any = found
    begin = np.frombuffer(whole._mmap, np.uint8).__array_interface__["data"][0]
    offset = found.offset - found.offset % mmap.ALLOCATIONGRANULARITY + low - begin
    file = os.path.abspath(found.filename)
    return file, offset, high - low, array.dtype, array.shape, array.strides


class OpenFile(Protocol):
    """A file being read: its size in bytes, and its content."""

    size: int

    def take(self, begin: int, count: int) -> bytes:
        """``count`` bytes from ``begin`` on, fewer at the end of the file."""

    def fill(self, begin: int, out: Array) -> bool:
        """Read all of ``out`` (contiguous); False when the file ends before."""


class _Read:
    """By reading, for a file that is asked for once."""

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
    """By a map, for a file that is asked for again and again."""

    def __init__(self, map_: _Map) -> None:
        self._map, self._file = map_, map_.file
        # The part that is mapped, or what is left of it.
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
    """A map of a whole file, watched as long as somebody reads from it."""

    def __init__(self, file: mmap.mmap) -> None:
        self.file = file
        self.watch = watch(self, file)


class Files:
    """Opens files for reading; maps up to ``most`` that it was asked for before.

    Copying from a map takes half the time of opening and reading, but mapping a file anew
    for one row twice that time. So a file is mapped when it is asked for again while it
    is among the last ``most`` that were not mapped; the map used least recently makes
    room. A file replaced under its name goes on being read as it was while it is mapped.
    """

    def __init__(self, most: int = MOST_MAPS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._maps: OrderedDict[str, _Map] = OrderedDict()
        self._asked: OrderedDict[str, None] = OrderedDict()

    @contextmanager
    def open(self, path: str) -> Iterator[OpenFile]:
        """The file at ``path``, for any number of threads. Raises OSError."""
        found = self._map(path)
        if found is not None:
            # Not closed when it has to make room: another thread may be copying from it.
            yield _Mapped(found)
            return
        with FileIO(path) as file:
            yield _Read(file)

    def _map(self, path: str) -> _Map | None:
        with self._lock:
            found = self._maps.get(path)
            if found is not None and (found.file.size() != len(found.file) or found.watch.lost):
                # Changed: read anew, to be judged by what it is now.
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
                    return None  # nothing can be mapped
                found = _Map(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            del self._asked[path]
            self._maps[path] = found
            if len(self._maps) > self._most:
                self._maps.popitem(last=False)
            return found
