"""Models of answers, for the OpenAPI document. ``views`` creates the answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal[
    "queued", "starting", "running", "succeeded", "failed", "cancelled", "cancelling", "interrupted"
]


class Closed(BaseModel):
    """A small body: strict, without unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ProblemDocument(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:bigsap:problem:invalid-spec"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    pointer: str | None = Field(None, description="JSON pointer to the offending field")
    errors: list[dict[str, Any]] = Field(default_factory=list, description="further fields")


class Progress(BaseModel):
    """Where a solve stands."""

    model_config = ConfigDict(extra="allow")

    phase: int | None = None
    epsilon: float | None = None
    assigned: int | None = None
    rows_evaluated: int | None = None
    rows_scanned: int | None = None
    cache_hit: float | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    gap: float | None = None
    seconds: float | None = None
    eta_s: float | None = None
    workers: dict[str, int] | None = Field(None, description="of a spread job: rows by worker")


Status = Literal["optimal", "imprecise", "gap_reached", "time_limit", "cancelled", "infeasible"]


class Outcome(BaseModel):
    """The outcome in brief. A job has succeeded when it ended by itself; its result has when
    what was asked for is proved: ``imprecise`` and ``infeasible`` results have not."""

    status: Status
    success: bool = Field(description="whether the result is proved to be what was asked for")
    objective: float | int | None
    bound: float | int | None
    gap: float | int | None


class Job(BaseModel):
    """A job."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(examples=["job_0123456789abcdef"])
    state: State = Field(description="interrupted: will be tried again; given up is failed")
    attempt: int
    created: str
    started: str | None
    finished: str | None
    label: str | None
    cost: str = Field(description="type of the cost spec")
    shape: list[int] | None
    spread: bool | int = Field(False, description="over several workers; a number: at most so many")
    progress: Progress | None
    cancel: Literal["graceful", "now"] | None
    problem: ProblemDocument | None
    outcome: Outcome | None = Field(None, description="of a job with a result")
    links: dict[str, str]


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[Job]
    next_page_token: str | None


class Event(BaseModel):
    """One event."""

    seq: int
    time: str
    kind: Literal["state", "progress", "log"]
    data: dict[str, Any]


class EventPage(BaseModel):
    """Events in order; ``next`` is what to ask for next as ``after``."""

    events: list[Event]
    next: int
    over: bool


class ResultSummary(BaseModel):
    """The outcome of a solve."""

    model_config = ConfigDict(extra="allow")

    job: str
    status: Status = Field(
        description="imprecise: an assignment whose optimality is proved only to within gap"
    )
    success: bool = Field(description="true for optimal and gap_reached")
    objective: float | None
    bound: float | None
    gap: float | None
    certificate: dict[str, Any] | None = None
    stats: dict[str, Any] | None = None
    links: dict[str, str]


class ArrayInfo(BaseModel):
    """An uploaded array; rows are half-open ranges."""

    id: str
    dtype: str
    shape: list[int]
    bytes: int
    created: str
    received: list[list[int]]
    missing: list[list[int]]
    complete: bool
    sealed: str | None
    sha256: str | None
    finite: bool
    max_block_bytes: int = Field(description="largest block of rows that is taken")
    links: dict[str, str]


class ArrayList(BaseModel):
    """Arrays of the caller, newest first, and the token of the next page."""

    arrays: list[ArrayInfo]
    next_page_token: str | None


class ValuePage(BaseModel):
    """Part of a result array; null stands for an unknown number."""

    name: str
    offset: int
    total: int
    values: list[float | int | None]
    next: int | None


class Picture(BaseModel):
    """Points in the plane and their links, evenly chosen where there are many.

    Coordinates are whole numbers from 0 to 65,535 along the longer side of the box between ``low``
    and ``high``, to the right and upwards.
    """

    shape: list[int] = Field(description="points of both sets")
    assigned: int = Field(description="links in all")
    low: list[float]
    high: list[float]
    x: list[list[int]] = Field(description="points of the first set")
    y: list[list[int]] = Field(description="points of the second set")
    links: list[list[int]] = Field(description="from and to, four numbers each")


_PROBLEM = {
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
}


def problem_response(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of an error."""
    return {"description": description, **_PROBLEM}


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: problem_response("The request cannot be read"),
    401: problem_response("A key is needed"),
    403: problem_response("The key does not allow this"),
    404: problem_response("There is no such thing"),
    406: problem_response("None of the accepted types can be given"),
    408: problem_response("The body does not come"),
    409: problem_response("The state does not allow this"),
    413: problem_response("The body is too large"),
    415: problem_response("The body must be of another type"),
    422: problem_response("The request is not valid"),
    429: problem_response("Too many requests; see Retry-After"),
    503: problem_response("The service is not ready"),
    507: problem_response("The disk is full"),
}
SUBMIT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Finished within Prefer: wait, or a dry run"},
    202: {"description": "Accepted; Location names the job"},
}
CANCEL_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The job is over"},
    202: {"description": "The job will end soon", "model": Job},
}
EVENT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events"},
    204: {"description": "The job is over, and there are no more events"},
}
