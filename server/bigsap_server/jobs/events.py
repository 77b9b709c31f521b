"""Changes of jobs in memory: the latest ones, and those who wait for the next.

The server is the only writer of the job table, so the state it has just committed is that of the
table. Hundreds of clients that watch the same few jobs then need no query, and no switch to a
thread, for each of them.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bigsap_server.jobs.model import JobEvent, JobRow

# Limited by number, because a job's request may contain megabytes of numbers.
_JOBS = 64
_EVENTS = 64
# Up to this many waiters answer a change at once; more are spread over time.
_FEW, _EACH_S, _LONGEST_S = 8, 0.004, 0.5


class Changes:
    """Changes of a transaction, collected while it runs and published when it is committed."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRow | None] = {}
        self.events: list[tuple[str, JobEvent]] = []


class Recent:
    """The latest states, and the latest consecutive events, of up to 64 jobs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, tuple[JobRow, deque[JobEvent]]] = OrderedDict()

    def publish(self, changes: Changes) -> None:
        """Store committed changes. Called in the order of the commits."""
        with self._lock:
            for job_id, job in changes.jobs.items():
                known = self._jobs.pop(job_id, None)
                if job is not None:
                    events = deque[JobEvent](maxlen=_EVENTS) if known is None else known[1]
                    self._jobs[job_id] = job, events
            for job_id, event in changes.events:
                if job_id in self._jobs:
                    self._jobs[job_id][1].append(event)
            while len(self._jobs) > _JOBS:
                self._jobs.popitem(last=False)

    def job(self, job_id: str) -> JobRow | None:
        """Return the job as last committed; None: read the table."""
        with self._lock:
            known = self._jobs.get(job_id)
        return None if known is None else known[0]

    def events(self, job_id: str, after: int) -> list[JobEvent] | None:
        """Return all events with a sequence number above ``after``; None: read the table."""
        with self._lock:
            known = self._jobs.get(job_id)
            if known is None or not known[1] or after < known[1][0].seq - 1:
                return None
            return [event for event in known[1] if event.seq > after]


class Watch:
    """One waiter. ``changed`` is set by each change, and permanently when the server stops."""

    def __init__(self, notifier: Notifier, job_id: str) -> None:
        self._notifier, self._job_id = notifier, job_id
        self.changed = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """Return whether the job has changed since the last ``wait``; waits at most ``seconds``."""
        if not self._notifier.stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.changed.wait()
            if self.changed.is_set() and self._crowd > _FEW:
                # If hundreds of waiters answered at the same time, all other requests would have to wait. A
                # random delay spreads them.
                await asyncio.sleep(min(_LONGEST_S, self._crowd * _EACH_S) * random.random())
        found = self.changed.is_set()
        self.changed.clear()
        return found

    @property
    def _crowd(self) -> int:
        return self._notifier.waiters(self._job_id)


class Notifier:
    """Passes the job store's changes, from any thread, to the event loop's waiters."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watches: dict[str, set[Watch]] = {}
        self.stopping = False

    def wake(self, job_id: str) -> None:
        """Notify waiters of a change. May be called from any thread; returns at once."""
        # The loop may have ended while the store's last changes arrive.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, job_id)

    def _wake(self, job_id: str) -> None:
        for watch in self._watches.get(job_id, ()):
            watch.changed.set()

    def waiters(self, job_id: str) -> int:
        """Return the number of waiters of the job."""
        return len(self._watches.get(job_id, ()))

    def close(self) -> None:
        """End all waiting now, because the server is about to stop. May be called from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self.stopping = True
        for watches in self._watches.values():
            for watch in watches:
                watch.changed.set()

    @contextmanager
    def watching(self, job_id: str) -> Iterator[Watch]:
        """Yield a watch on one job. Read the job after entering, so that no change is missed."""
        watch = Watch(self, job_id)
        self._watches.setdefault(job_id, set()).add(watch)
        try:
            yield watch
        finally:
            others = self._watches[job_id]
            others.discard(watch)
            if not others:
                del self._watches[job_id]
