"""Compiled kernels on the disk, and processes that write them at the same time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from numba.core.caching import IndexDataCacheFile


def one_writer(lock: AbstractContextManager[Any]) -> None:
    """From now on this process enters kernels into the index only while it holds ``lock``.

    numba reads the index of a function, picks the next free name and writes both. Two
    processes that did so at once, for two types, could be given the same file, and the one
    type would find the machine code of the other.
    """
    save = IndexDataCacheFile.save

    def alone(self: IndexDataCacheFile, key: object, data: object) -> None:
        with lock:
            save(self, key, data)

    IndexDataCacheFile.save = alone
