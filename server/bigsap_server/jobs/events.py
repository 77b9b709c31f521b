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
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from bigsap_server.jobs.model import JobEvent, JobRow

# Limited by number, because a job's request may contain megabytes of numbers.
_JOBS = 64
_EVENTS = 64
# Up to this many waiters answer a change at once; more are spread over time.
_FEW, _EACH_S, _LONGEST_S = 8, 0.004, 0.5


@dataclass(frozen=True)
class Changes:
    """Changes of a transaction, collected while it runs and published when it is committed."""

    jobs: dict[str, JobRow | None] = field(default_factory=dict)
    events: list[tuple[str, JobEvent]] = field(default_factory=list)


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


class Notifier:
    """Passes the job store's changes, from any thread, to the event loop's waiters."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self.stopping = False

    def wake(self, job_id: str) -> None:
        """Notify waiters of a change. May be called from any thread; returns at once."""
        # The loop may have ended while the store's last changes arrive.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, [job_id])

    def close(self) -> None:
        """End all waiting now, because the server is about to stop. May be called from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._close)

    def wake_all(self) -> None:
        """Notify all waiters. Called on the loop's thread."""
        self._wake(self._waiters)

    def _close(self) -> None:
        self.stopping = True
        self.wake_all()

    def _wake(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            for changed in self._waiters.get(job_id, ()):
                changed.set()

    @contextmanager
    def watching(self, job_id: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        """Yield a function that waits for a change of the job, at most so many seconds.

        It returns whether the job has changed since its last call. Read the job after entering, so that no
        change is missed.
        """
        changed, waiters = asyncio.Event(), self._waiters.setdefault(job_id, set())
        waiters.add(changed)

        async def wait(seconds: float) -> bool:
            if not self.stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                if changed.is_set() and len(waiters) > _FEW:
                    # If hundreds of waiters answered at the same time, all other requests would have to
                    # wait. A random delay spreads them.
                    await asyncio.sleep(min(_LONGEST_S, len(waiters) * _EACH_S) * random.random())
            found = changed.is_set()
            changed.clear()
            return found

        try:
            yield wait
        finally:
            waiters.discard(changed)
            if not waiters:
                del self._waiters[job_id]
