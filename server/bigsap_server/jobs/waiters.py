"""Notification of long polls and event streams about changes of a job."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Up to this many waiters answer a change at once; more are spread over time.
_FEW = 8
_EACH_S = 0.004
_LONGEST_S = 0.5


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
