"""A pool of daemon threads that runs several requests at a time, and fetches rows ahead.

Plain threads instead of an executor, because an executor's are joined when the interpreter ends,
and one may hang on a provider until its timeout.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

import numpy as np

from bigsap.errors import SourceError
from bigsap.types import Array

Request = Callable[[threading.Event], Any]

_POLL_SECONDS = 0.05


class Ticket:
    """One request: queued, running, answered or failed."""

    __slots__ = ("ahead", "done", "error", "ids", "request", "stop", "value")

    def __init__(self, request: Request, ids: Array, ahead: bool) -> None:
        self.request = request
        self.ids = ids  # int64, sorted, distinct; empty for a request without rows
        self.ahead = ahead
        self.stop = threading.Event()  # set if the answer is no longer needed
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None


class Fetcher:
    """Runs requests on at most ``in_flight`` threads, demanded ones before predicted ones.

    fetch: ``fetch(ids, stop)`` returns the rows. finish: called once, by the last thread or caller,
    after ``close``. At most ``capacity`` = in_flight * block_rows rows fetched ahead are unclaimed.
    """

    def __init__(
        self, fetch: Callable[[Array, threading.Event], Array], finish: Callable[[], None], in_flight: int
    ) -> None:
        self._fetch = fetch
        self._finish = finish
        self.in_flight = in_flight
        self.block_rows = 1
        # One token for each event that may mean work. A SimpleQueue, because a finalizer may put
        # into it at any place in any thread, where a Condition could deadlock.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._demanded: deque[Ticket] = deque()
        self._hints: dict[int, None] = {}
        self._held: dict[int, Ticket] = {}  # row -> the ticket that has it, or will
        self._running: set[Ticket] = set()
        self._threads: list[threading.Thread] = []
        self._n_idle = 0
        self._n_alive = 0
        self._closed = False
        self._pid = os.getpid()
        self.n_rows = 0

    @property
    def capacity(self) -> int:
        return self.in_flight * self.block_rows

    @property
    def n_ahead(self) -> int:
        """Number of rows held or to be fetched ahead."""
        return len(self._held) + len(self._hints)

    # -- requests ----------------------------------------------------------------------

    def demand(self, request: Request) -> Ticket:
        """Queue a request of any kind; the caller waits for it."""
        return self._ask(Ticket(request, np.empty(0, np.int64), False))

    def demand_rows(self, ids: Array) -> Ticket:
        """Queue a request of rows (int64, sorted, distinct); the caller waits for them."""
        return self._ask(Ticket(lambda stop: self._fetch(ids, stop), ids, False))

    def _ask(self, ticket: Ticket) -> Ticket:
        if os.getpid() != self._pid:
            raise SourceError(
                "this source was opened before the process was forked, and its connections "
                "cannot be shared; open the source in the new process"
            )
        with self._lock:
            if self._closed:
                raise SourceError("this source is closed")
            self._demanded.append(ticket)
            self._start_thread()
        self._tokens.put(True)
        return ticket

    def claim(self, ids: Array) -> tuple[list[tuple[Ticket, list[int]]], Array]:
        """Return the held rows among ``ids``, by ticket, and the others. The caller owns claimed rows."""
        found: dict[Ticket, list[int]] = {}
        missing: list[int] = []
        with self._lock:
            for row in ids.tolist():
                ticket = self._held.pop(row, None)
                if ticket is not None:
                    found.setdefault(ticket, []).append(row)
                else:
                    self._hints.pop(row, None)
                    missing.append(row)
            if missing and self.n_ahead >= self.capacity:
                # Full of rows that are not needed: the predictions were wrong.
                self._hints.clear()
                self._held = {r: t for r, t in self._held.items() if not t.done.is_set()}
        return list(found.items()), np.array(missing, np.int64)

    def hint(self, rows: Iterable[int]) -> None:
        """Queue rows to be fetched when a thread is idle. Returns at once."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            for row in rows:
                if self.n_ahead >= self.capacity:
                    break
                if row not in self._held:
                    self._hints[row] = None
            n_blocks = min(self.in_flight, self._n_blocks())
            # If a thread cannot be started, the next read reports it, not a prediction.
            with contextlib.suppress(RuntimeError):
                for _ in range(n_blocks):
                    self._start_thread()
        for _ in range(n_blocks):
            self._tokens.put(True)

    def forget_hints(self) -> None:
        """Drop the predicted rows that no thread has started."""
        with self._lock:
            self._hints.clear()

    def abandon(self, tickets: Iterable[Ticket]) -> None:
        """Abandon requests that are no longer needed, and all predicted rows."""
        with self._lock:
            self._hints.clear()
            for ticket in (*tickets, *self._held.values()):
                ticket.stop.set()
            self._held.clear()
            self._demanded = deque(t for t in self._demanded if not t.stop.is_set())

    def wait(self, ticket: Ticket, seconds: float, check: Callable[[], None] | None) -> bool:
        """Wait until ``ticket`` is done; return False if that takes longer than ``seconds``.

        In short waits, so that signals reach the main thread and ``check`` is called; an exception
        of either ends the wait.
        """
        end = time.monotonic() + seconds
        while not ticket.done.wait(_POLL_SECONDS):
            if self._closed:
                raise SourceError("this source is closed")
            if check is not None:
                check()
            if time.monotonic() > end:
                return False
        return True

    # -- threads -----------------------------------------------------------------------

    def _start_thread(self) -> None:
        """Start a thread, unless one is idle or there are enough. Call with the lock held."""
        if self._n_idle < len(self._demanded) + self._n_blocks() and self._n_alive < self.in_flight:
            thread = threading.Thread(target=self._work, name="bigsap-http", daemon=True)
            thread.start()
            self._threads.append(thread)
            self._n_alive += 1
            self._n_idle += 1

    def _n_blocks(self) -> int:
        return -(-len(self._hints) // self.block_rows)

    def _work(self) -> None:
        while self._tokens.get() and not self._closed:
            while (ticket := self._next()) is not None:
                try:
                    ticket.value = ticket.request(ticket.stop)
                except BaseException as error:  # noqa: BLE001  raised in the waiting thread
                    ticket.error = error
                self._settle(ticket)
            # The local name would keep the last block alive while the thread is idle.
            del ticket
        with self._lock:
            self._n_idle -= 1
            self._n_alive -= 1
            last = self._n_alive == 0
        if last:
            self._finish()

    def _next(self) -> Ticket | None:
        with self._lock:
            ticket = None
            if self._closed:
                return None
            if self._demanded:
                ticket = self._demanded.popleft()
            elif self._hints:
                rows = [row for row, _ in zip(self._hints, range(self.block_rows), strict=False)]
                for row in rows:
                    del self._hints[row]
                ids = np.array(sorted(rows), np.int64)
                ticket = Ticket(lambda stop: self._fetch(ids, stop), ids, True)
                self._held.update(dict.fromkeys(rows, ticket))
            if ticket is not None:
                self._running.add(ticket)
                self._n_idle -= 1
            return ticket

    def _settle(self, ticket: Ticket) -> None:
        with self._lock:
            self._running.discard(ticket)
            self._n_idle += 1
            if ticket.error is None:
                self.n_rows += ticket.ids.size
            elif ticket.ahead:
                # A failed prediction is not reported: a reader requests the row itself.
                for row in ticket.ids.tolist():
                    if self._held.get(row) is ticket:
                        del self._held[row]
        ticket.done.set()

    # -- closing -----------------------------------------------------------------------

    def shut(self) -> None:
        """Refuse new requests; threads end by themselves. Safe in a finalizer: no lock."""
        self._closed = True
        for ticket in list(self._running):
            ticket.stop.set()
        for _ in range(self.in_flight):
            self._tokens.put(False)

    def close(self, seconds: float = 1.0) -> None:
        """Call ``shut``, then wait up to ``seconds`` for the threads."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            first = not self._closed
            self._closed = True
            waiting = [*self._demanded, *self._held.values()]
            nobody = self._n_alive == 0
        self.shut()
        for ticket in waiting:
            ticket.stop.set()
            if not ticket.done.is_set() and ticket not in self._running:
                ticket.error = SourceError("this source is closed")
                ticket.done.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if first and nobody:
            self._finish()
