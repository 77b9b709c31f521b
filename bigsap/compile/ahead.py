"""Compilation of kernels in another process, before they are needed.

``request`` names kernels, the slowest to compile first. A separate process compiles one after
another and saves them on disk, where ``kernel_cache`` finds them. A caller that needs a kernel that
is being compiled waits for it; a kernel that is not started yet is compiled by the caller.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from numba.core import serialize as numba_serialize

from bigsap.compile import cpu_levels, kernel_cache, kernel_files
from bigsap.compile.decorator import Kernel, compile_record
from bigsap.compile.digest import content

serialize: Any = numba_serialize

#: Set to False in processes that compile anyway, as many as there are cores.
allowed = True
#: Limit of waiting: a kernel takes a few seconds, but the process may be stopped or swapped out.
_PATIENCE = 60.0
#: The process ends after this many seconds without a request.
_IDLE = 5.0
_COMPILED = b"\n"

Record = tuple[str, str, bytes]


class _Process:
    """The other process and its queue of kernels."""

    def __init__(self) -> None:
        # After a fork, the child has this object, but neither the thread nor the process.
        self.owner = os.getpid()
        self._changed = threading.Condition()
        self._asked: dict[str, Record] = {}
        self._at: str | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._serving = False

    def ask(self, found: dict[str, Record]) -> None:
        with self._changed:
            self._asked.update(found)
            if self._asked and not self._serving:
                self._serving = True
                threading.Thread(target=self._serve, name="bigsap-ahead", daemon=True).start()
            self._changed.notify_all()

    def awaited(self, name: str) -> bool:
        """Wait if the other process is compiling this kernel; return whether it was.

        If it has not started the kernel, the request is removed.
        """
        with self._changed:
            if self._asked.pop(name, None) is not None or self._at != name:
                return False
            if not self._changed.wait_for(lambda: self._at != name, _PATIENCE):
                self._kill()
            return True

    def close(self) -> None:
        """Drop all requests and stop the current compilation."""
        if self.owner == os.getpid():
            with self._changed:
                self._asked.clear()
                self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.kill()

    def _serve(self) -> None:
        try:
            child = self._child = _start()
        except OSError:  # no memory for another process: kernels are compiled where needed
            child = None
        while child is not None:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._asked), _IDLE)
                if not self._asked:
                    break
                name = next(iter(self._asked))
                self._at, record = name, self._asked.pop(name)
            done = _compile_there(child, record)
            with self._changed:
                self._at = None
                self._changed.notify_all()
            if not done:
                break
        with self._changed:
            # This process compiles the remaining kernels.
            self._asked.clear()
            self._serving, self._at, self._child = False, None, None
            self._changed.notify_all()
        if child is not None:
            for stream in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            child.wait()


def _compile_there(child: subprocess.Popen[bytes], record: Record) -> bool:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        pickle.dump(record, child.stdin)
        child.stdin.flush()
        return child.stdout.read(len(_COMPILED)) == _COMPILED
    except (OSError, ValueError):
        return False


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(kernel_files.PACKAGE.parent), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # an interrupt must only reach the waiting process
    )


_process: _Process | None = None
_starting = threading.Lock()
_known: set[str] = set()


def request(kernels: Sequence[tuple[Kernel, tuple[Any, ...]]]) -> None:
    """Request the compilation of kernels that are not on disk yet.

    kernels: each with arguments of the types that it will be called with.
    """
    if not possible():
        return
    found: dict[str, Record] = {}
    for kernel, arguments in kernels:
        signature = tuple(kernel.typeof_pyval(argument) for argument in arguments)
        if not isinstance(kernel, Kernel) or signature in kernel.overloads:
            continue
        function = kernel.py_func
        name = kernel_cache.name_of(function, signature, cpu_levels.own_level())
        if name is None or name in _known or kernel_cache.on_disk(function, signature):
            continue
        _known.add(name)
        module, qualified = function.__module__, function.__qualname__
        if content(module) is not None:
            found[name] = module, qualified, serialize.dumps(signature)
    if found:
        _other().ask(found)


def possible() -> bool:
    """Check whether this process may use another one to compile."""
    frozen = getattr(sys, "frozen", False) or not sys.executable
    usual = (
        kernel_cache.target is None and kernel_cache.records is None and kernel_files.kept_in() is not None
    )
    return allowed and usual and not frozen and hasattr(os, "fork")


def _other() -> _Process:
    global _process
    with _starting:
        if _process is None or _process.owner != os.getpid():
            _process = _Process()
            kernel_cache.awaited = _process.awaited
            atexit.register(_process.close)
        return _process


def main() -> None:
    """Compile the records from standard input until it ends."""
    read, answer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not be taken for an answer
    while True:
        try:
            record = pickle.load(read)
        except EOFError:
            return
        # The caller that needs the kernel gets the error when it compiles it.
        with contextlib.suppress(Exception):
            compile_record(record)
        try:
            answer.write(_COMPILED)
            answer.flush()
        except OSError:
            return


if __name__ == "__main__":
    main()
