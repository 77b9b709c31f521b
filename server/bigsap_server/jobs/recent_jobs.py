"""In-memory cache of recently changed jobs, for readers that must not wait for the disk.

The server is the only writer of the job table, so the state it has just committed is that of the
table. Hundreds of clients that watch the same few jobs then need no query, and no switch to a
thread, for each of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from bigsap_server.jobs.model import JobEvent, JobRow

# Limited by number, because a job's request may contain megabytes of numbers.
_JOBS = 64
_EVENTS = 64


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
