"""What a job is: its record, its states, its events, and what can go wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

STATES = ("queued", "starting", "running", "succeeded", "failed", "cancelled", "cancelling", "interrupted")
#: A worker has the job, or is being given it.
RUNNING = ("starting", "running", "cancelling")
#: Nothing more happens to the job unless it is resumed.
FINISHED = ("succeeded", "failed", "cancelled")
#: Statuses of results that another attempt would not change: nothing is left to resume.
SETTLED = ("optimal", "infeasible", "imprecise")


class JobStoreError(Exception):
    """Base of what a ``JobStore`` raises on purpose."""


class UnknownJob(JobStoreError):
    """There is no such job, or it belongs to another owner."""


class WrongState(JobStoreError):
    """The job's state does not allow this; ``state`` is the one it has."""

    def __init__(self, message: str, state: str) -> None:
        super().__init__(message)
        self.state = state


class StaleAttempt(JobStoreError):
    """A write on behalf of an attempt that is over."""


class IdempotencyConflict(JobStoreError):
    """The idempotency key was used with another body; ``job_id`` is the job it made."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the idempotency key was used for {job_id} with another body")
        self.job_id = job_id


class QuotaExceeded(JobStoreError):
    """The owner has as many active jobs as allowed."""


class ArrayInUse(JobStoreError):
    """An active job refers to the array that was to be deleted."""


class JobInUse(JobStoreError):
    """An active job starts from the job that was to be deleted."""


class BadPageToken(JobStoreError):
    """A page token that no page of this list gave out."""


class DirectoryBusy(JobStoreError):
    """Another server process owns the data directory."""


class StoreUnavailable(JobStoreError):
    """The database cannot be written: disk full, or an input/output error."""


@dataclass(frozen=True)
class JobRow:
    """A job as it stood when read. Times are unix seconds.

    spec: the normalised request. progress: the latest, with the keys of ``Progress`` that
    the service publishes. result: the summary; ``result["attempt"]`` names the attempt
    whose arrays belong to it. problem: why it failed or was interrupted, a problem document.
    cancel: ``graceful`` or ``now`` once requested. retry_at: when an interrupted job will
    be tried again. failures: attempts lost in a row. spent: seconds of earlier attempts.
    version grows with every change.
    """

    id: str
    owner: str
    state: str
    attempt: int
    created: float
    started: float | None
    finished: float | None
    label: str | None
    spec: dict[str, Any]
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    cancel: str | None
    version: int
    retry_at: float | None = None
    failures: int = 0
    heartbeat: float | None = None
    spent: float = 0.0

    @property
    def active(self) -> bool:
        """Whether something may still happen to the job by itself."""
        return is_active(self.state, self.retry_at)


@dataclass(frozen=True)
class Answer:
    """What a submission was answered with: status, the headers of its own, JSON text."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job. kind: ``state``, ``progress`` or ``log``."""

    seq: int
    time: float
    kind: str
    data: dict[str, Any]


def canonical(spec: Any) -> str:
    """JSON text that is the same for equal documents."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)


def is_active(state: str, retry_at: float | None) -> bool:
    """Whether a job may still change by itself."""
    return state in ("queued", *RUNNING) or (state == "interrupted" and retry_at is not None)
