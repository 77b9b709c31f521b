"""Report that kernels are being compiled: once on a machine, for up to a minute.

numba emits events for compilations, not for loads from its cache. A thread watches these events:
after some seconds of compiling it writes one line, and it updates progress bars continuously.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba.core import event

#: Seconds of compiling before it is reported.
PATIENCE = 2.0
#: Seconds between two checks.
_LOOK = 0.2
TEXT = (
    "bigsap: compiling kernels for costs of this kind. That takes up to a minute or so, once:"
    " they are kept on the disk."
)

#: Called a few times a second with the seconds spent compiling; with None when it is over.
Tell = Callable[[float | None], None]


class _Listener(event.Listener):  # type: ignore[misc]
    """Measures the total time of compilation; nested compilations count once.

    The reporting thread starts with the first compilation: most solves compile nothing.
    """

    def __init__(self, say: Callable[[str], None] | None, tell: Tell | None) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._since = 0.0
        self._spent = 0.0
        self._say, self._tell = say, tell
        self.watch: _Ticker | None = None

    def on_start(self, event: Any) -> None:
        with self._lock:
            if self._depth == 0:
                self._since = time.perf_counter()
            self._depth += 1
            if self.watch is None:
                self.watch = _Ticker(self, self._say, self._tell)
                self.watch.start()

    def on_end(self, event: Any) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._spent += time.perf_counter() - self._since

    @property
    def busy(self) -> bool:
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Seconds of compiling so far."""
        with self._lock:
            now = time.perf_counter() - self._since if self._depth else 0.0
            return self._spent + now


class _Ticker(threading.Thread):
    """Thread that reports compilations, from the first one to the end of the context."""

    def __init__(self, listener: _Listener, say: Callable[[str], None] | None, tell: Tell | None) -> None:
        super().__init__(name="bigsap-compilation", daemon=True)
        self._listener, self._say, self._tell = listener, say, tell
        self._over = threading.Event()

    def run(self) -> None:
        reported = False
        while not self._over.wait(_LOOK):
            if self._say is not None and self._listener.seconds > PATIENCE:
                self._say(TEXT)
                self._say = None
            if self._tell is not None and (reported or self._listener.busy):
                reported = self._listener.busy
                self._tell(self._listener.seconds if reported else None)

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def report_compilation(say: Callable[[str], None] | None = None, tell: Tell | None = None) -> Iterator[None]:
    """Call ``say`` with one line when compiling takes longer than two seconds in total.

    say: None writes to stderr if it is a terminal, unless ``BIGSAP_QUIET=1``. tell: receives the
    seconds continuously. A separate thread calls both. Compilations by other threads count too.
    """
    if say is None and _may_write():
        say = _write
    if say is None and tell is None:
        yield
        return
    listener = _Listener(say, tell)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)
        if listener.watch is not None:
            listener.watch.end()


def _may_write() -> bool:
    if os.environ.get("BIGSAP_QUIET", "") not in ("", "0"):
        return False
    try:
        # A notebook is not a terminal, but its reader waits too.
        return sys.stderr is not None and (sys.stderr.isatty() or _in_notebook(sys.stderr))
    except (AttributeError, ValueError):  # closed, or not a file
        return False


def _in_notebook(stream: object) -> bool:
    return type(stream).__module__.partition(".")[0] == "ipykernel"


def _write(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
