"""Job records, states, events and exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bigsap_server.problems import HttpProblem

Row = dict[str, Any]

JobState = Literal[
    "queued", "starting", "running", "cancelling", "interrupted", "succeeded", "failed", "cancelled"
]


@dataclass(frozen=True)
class State:
    """A state of a job. kind: who has the job; next: the states that may follow."""

    meaning: str
    kind: Literal["waiting", "running", "finished"]
    next: tuple[JobState, ...]


#: Every state. The store refuses other steps; docs/service.md shows this table.
STATES: Mapping[JobState, State] = {
    "queued": State("waits for a worker", "waiting", ("starting", "cancelled")),
    "starting": State(
        "is given to a worker",
        "running",
        ("running", "cancelling", "interrupted", "succeeded", "failed", "cancelled"),
    ),
    "running": State(
        "a worker solves it", "running", ("cancelling", "interrupted", "succeeded", "failed", "cancelled")
    ),
    "cancelling": State(
        "its worker has been asked to stop", "running", ("cancelled", "succeeded", "failed", "interrupted")
    ),
    "interrupted": State(
        "lost its worker; a new attempt starts at `retry_at`", "waiting", ("starting", "queued", "cancelled")
    ),
    "succeeded": State("ended by itself, with a result of any status", "finished", ("queued",)),
    "failed": State("has no result: its problem says why", "finished", ("queued",)),
    "cancelled": State("stopped on request, perhaps with a result", "finished", ("queued",)),
}
#: States in which a worker has the job, or is being assigned it; and those that only a resumption ends.
RUNNING, FINISHED = (
    tuple(name for name, state in STATES.items() if state.kind == kind) for kind in ("running", "finished")
)
#: States of jobs that may still change without a request.
ACTIVE = tuple(name for name in STATES if name not in FINISHED)
# Statuses of results that another attempt would not change.
_SETTLED = ("optimal", "infeasible", "imprecise")


def settled(result: Mapping[str, Any] | None, spec: Mapping[str, Any]) -> bool:
    """Return whether another attempt would find the same as this summary of a result.

    Such a job cannot be resumed, unless it was cancelled. A ranking that was stopped may go further.
    """
    if result is None or result.get("status") not in _SETTLED:
        return False
    if spec.get("k_best") is None:
        return True
    ranking = result.get("k_best")
    return ranking is not None and ranking.get("status") not in ("time_limit", "cancelled")


class UnknownJob(HttpProblem):
    """The job does not exist, or belongs to another owner."""

    def __init__(self, detail: str) -> None:
        super().__init__("not-found", detail)


class StoreUnavailable(HttpProblem):
    """The database cannot be read or written: disk full, an input/output error, or a damaged file."""

    def __init__(self, detail: str) -> None:
        super().__init__("unavailable", detail, headers={"Retry-After": "5"})


class StaleAttempt(Exception):
    """A write on behalf of an attempt that has ended."""


@dataclass(frozen=True)
class JobRow:
    """A job at the time of reading. Times are unix seconds.

    spec: the normalised request. progress: the latest, with the keys of ``Progress`` that
    the service publishes. result: the summary; ``result["attempt"]`` names the attempt
    whose arrays belong to it. problem: why it failed or was interrupted, a problem document.
    cancel: ``graceful`` or ``now`` once requested. failures: attempts lost in a row. spent: seconds
    of earlier attempts. version grows with every change.
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
    failures: int = 0
    spent: float = 0.0

    @property
    def active(self) -> bool:
        """Whether the job may still change without a request."""
        return self.state in ACTIVE


@dataclass(frozen=True)
class UnderWay:
    """A job that a worker has, as the supervisor sees it. result_of: the attempt of its result."""

    id: str
    attempt: int
    state: str
    cancel: str | None
    failures: int
    result_of: int | None


@dataclass(frozen=True)
class Answer:
    """The answer to a submission: status, its specific headers, JSON text."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True)
class JobEvent:
    """An event of a job. kind: ``state``, ``progress`` or ``log``."""

    seq: int
    time: float
    kind: str
    data: dict[str, Any]


def etag(version: int) -> str:
    """Return the entity tag of a job, which changes with every change of it."""
    return f'"{version}"'


def canonical(spec: Any) -> str:
    """Return JSON text that is the same for equal documents."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
