"""Row ranges loaded by one background thread into a small buffer.

Decoding a compressed chunk takes longer than scanning it, so the next one is decoded while the
engine works on the current one. One thread does all loading: zarr has its own event loop and pools,
and is called from this thread only.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from bigsap.errors import SourceError
from bigsap.types import Array

# Seconds between two checks of a waiting reader.
_WAIT_SECONDS = 0.05


class ChunkLoad:
    """Rows ``start`` to ``stop``: queued, loading, loaded or failed."""

    __slots__ = ("done", "error", "start", "stop", "used", "values")

    def __init__(self, start: int, stop: int, used: bool) -> None:
        self.start = start
        self.stop = stop
        self.used = used
        self.done = threading.Event()
        self.values: Array | None = None
        self.error: BaseException | None = None


def _work(queue: SimpleQueue[ChunkLoad | None], load: Callable[[int, int], Array]) -> None:
    """Run the thread. It holds no reference to ``ReadAhead``, which can thus be collected."""
    while (ticket := queue.get()) is not None:
        try:
            ticket.values = load(ticket.start, ticket.stop)
        except BaseException as error:  # noqa: BLE001  raised in the waiting thread
            ticket.error = error
        ticket.done.set()
        # The local name would keep the last block alive while the thread is idle.
        del ticket


class ReadAhead:
    """At most ``entries`` row ranges, loaded on one daemon thread.

    load: ``load(start, stop)`` returns the rows, shape (stop - start, n_columns); it must not refer
    to this object. The thread starts with the first load and ends with this object; as a daemon it
    never keeps the interpreter alive.
    """

    def __init__(self, load: Callable[[int, int], Array], entries: int = 2) -> None:
        self._load = load
        self._entries = entries
        # Guards the bookkeeping only: never load, or wait for a load, while holding it.
        self._lock = threading.Lock()
        self._held: list[ChunkLoad] = []
        self._latest: ChunkLoad | None = None
        # A finalizer may call its put() at any place, unlike a Condition's methods.
        self._queue: SimpleQueue[ChunkLoad | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        weakref.finalize(self, self._queue.put, None)

    def holds(self, row: int) -> bool:
        """Return whether ``row`` is loaded or being loaded."""
        with self._lock:
            return self._find(row) is not None

    def rows(
        self, row: int, start: int, stop: int, look: Callable[[], None] = lambda: None
    ) -> tuple[int, Array]:
        """Return the rows that include ``row``: the first one's id, and the values.

        ``start`` to ``stop`` are loaded unless ``row`` is held already. Waits; raises the error of
        the loading, and drops it, so that the next call tries again. look: called many times a
        second while waiting; an exception that it raises ends the wait, not the loading.
        """
        if os.getpid() != self._pid:
            raise SourceError(
                "this source was opened before the process was forked, and its reading thread "
                "did not survive that; open the source in the new process"
            )
        with self._lock:
            ticket = self._find(row)
            if ticket is None:
                self._make_room(demanded=True)
                ticket = self._add(start, stop, used=True)
            ticket.used = True
            self._latest = ticket
        while not ticket.done.wait(_WAIT_SECONDS):
            look()
        if ticket.error is not None:
            with self._lock:
                if ticket in self._held:
                    self._held.remove(ticket)
            raise self._own_copy(ticket.error)
        assert ticket.values is not None
        return ticket.start, ticket.values

    def prefetch(self, start: int, stop: int) -> None:
        """Load these rows in the background if there is room. Returns at once.

        Only an entry that was read from, except the latest such, is replaced: rows loaded ahead and
        not yet read, and rows being read, are kept.
        """
        if os.getpid() != self._pid:
            return
        # If a thread cannot be started, the next read reports it, not a prediction.
        with self._lock, contextlib.suppress(RuntimeError):
            if self._find(start) is None and self._make_room(demanded=False):
                self._add(start, stop, used=False)

    def _find(self, row: int) -> ChunkLoad | None:
        return next((t for t in self._held if t.start <= row < t.stop), None)

    def _make_room(self, demanded: bool) -> bool:
        if len(self._held) < self._entries:
            return True
        victim = next((t for t in self._held if t.used and t is not self._latest), None)
        if victim is None and demanded:
            # The rows loaded ahead were not read: a wrong prediction must not stay for ever.
            victim = next((t for t in self._held if t is not self._latest), self._held[0])
        if victim is None:
            return False
        self._held.remove(victim)
        return True

    def _add(self, start: int, stop: int, used: bool) -> ChunkLoad:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._queue, self._load), name="bigsap-read", daemon=True
            )
            self._thread.start()
        ticket = ChunkLoad(start, stop, used)
        self._held.append(ticket)
        self._queue.put(ticket)
        return ticket

    @staticmethod
    def _own_copy(error: BaseException) -> BaseException:
        """Return a new exception for each waiting reader: tracebacks must not mix."""
        known = isinstance(error, SourceError)
        copy = type(error)(*error.args) if known else SourceError(f"{type(error).__name__}: {error}")
        copy.__cause__ = error
        return copy
