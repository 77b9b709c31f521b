"""A SIGBUS handler that turns lost pages of mapped files into zeros.

The system sends SIGBUS for a page beyond the end of a file, and checking the file's size before
each access leaves a race. While maps are *watched*, a handler maps zero pages in place of the
missing ones and records it; readers of the map test ``lost`` afterwards and discard the values that
they read. A fault at any other address goes to the previous handler.

The fault is sent to the accessing thread, at that instruction: in numpy's copying or in a kernel,
which hold no locks of the interpreter, so the handler may be Python. On Linux, for 64-bit
processors. Elsewhere nothing is watched: Windows does not let a mapped file shrink, and on macOS only
the check of the size before each access finds it.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import threading
import weakref
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_SIGINFO = 4  # SA_SIGINFO
_FAILED = ctypes.c_void_p(-1).value
# Offset of the address in struct siginfo_t, 64-bit Linux.
_ADDRESS = 16
if sys.platform == "linux":
    _SIGBUS = int(signal.SIGBUS)
    _READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
    _ZEROS_HERE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
else:
    _SIGBUS = _READ_WRITE = _ZEROS_HERE = 0
_WATCHABLE = sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """struct sigaction of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class FileWatch:
    """One map: addresses from ``start`` up to ``stop``. lost: pages of it were missing."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.lost = False


class _Watcher:
    """The only handler of the process, installed while there is a watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced, never changed in place: the handler reads it without the lock.
        self._watches: tuple[FileWatch, ...] = ()
        self._before = _Action()
        self._handler: Any = None
        self._libc: Any = None

    def add(self, watch: FileWatch) -> None:
        with self._lock:
            if not self._watches:
                self._install()
            self._watches += (watch,)

    def remove(self, watch: FileWatch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches = tuple(w for w in self._watches if w is not watch)
                if not self._watches:
                    self._uninstall()

    def _install(self) -> None:
        if self._libc is None:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = (
                ctypes.c_void_p,
                ctypes.c_size_t,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_longlong,
            )
            self._libc = libc
            self._handler = _Handler(self._fault)
        wanted = _Action(ctypes.cast(self._handler, ctypes.c_void_p).value, flags=_SIGINFO)
        self._libc.sigaction(_SIGBUS, ctypes.byref(wanted), ctypes.byref(self._before))

    def _uninstall(self) -> None:
        now = _Action()
        self._libc.sigaction(_SIGBUS, None, ctypes.byref(now))
        # Keep a handler that other code has installed since.
        if now.handler == ctypes.cast(self._handler, ctypes.c_void_p).value:
            self._libc.sigaction(_SIGBUS, ctypes.byref(self._before), None)

    def _fault(self, number: int, info: int, context: int) -> None:
        address = ctypes.c_size_t.from_address(info + _ADDRESS).value
        hit = [w for w in self._watches if w.start <= address < w.stop]
        if hit:
            for watch in hit:
                watch.lost = True
            page = address - address % _PAGE
            # To the end: all pages behind a missing one are missing too.
            size = max(w.stop for w in hit) - page
            if self._libc.mmap(page, size, _READ_WRITE, _ZEROS_HERE, -1, 0) != _FAILED:
                return
        # Not a watched map: on return the instruction runs again, under the former handler.
        self._libc.sigaction(_SIGBUS, ctypes.byref(self._before), None)


_watcher = _Watcher()


def watch(owner: object, file: mmap.mmap) -> FileWatch:
    """Watch a file's map as long as ``owner``, which must hold the map, exists."""
    start = np.frombuffer(file, np.uint8).ctypes.data
    found = FileWatch(start, start + len(file))
    if _WATCHABLE:
        _watcher.add(found)
        weakref.finalize(owner, _watcher.remove, found)
    return found
