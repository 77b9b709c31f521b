"""Answers: the models that routes return and the OpenAPI document shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from bigsap.summary import RESULT_ARRAYS
from bigsap_server.costs.previews import points_in
from bigsap_server.jobs.model import JobEvent, JobRow, JobState, settled
from bigsap_server.problems import PROBLEMS
from bigsap_server.settings import Limits
from bigsap_server.uploads.blocks import Meta

Status = Literal["optimal", "imprecise", "gap_reached", "time_limit", "cancelled", "infeasible"]
Number = int | float


def answer(body: Answer, status: int = 200, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return a model as JSON. Members that were not given are left out."""
    return JSONResponse(body.document(), status, headers)


class Answer(BaseModel):
    """An answer of the service, which may get more members in later versions."""

    model_config = ConfigDict(extra="allow")

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


class ProblemDocument(Answer):
    """RFC 9457."""

    type: str = Field(examples=["urn:bigsap:problem:invalid-spec"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    request: str | None = Field(None, description="id of the request, as in X-Request-Id and the log")
    pointer: str | None = Field(None, description="JSON pointer to the offending field")
    errors: list[dict[str, Any]] = Field(default_factory=list, description="further fields")


class Progress(Answer):
    """Where a solve stands."""

    stage: str | None = None
    phase: int | None = None
    level: int | None = None
    epsilon: Number | None = None
    assigned: int | None = None
    rows: int | None = None
    columns: int | None = None
    rows_evaluated: int | None = None
    rows_scanned: int | None = None
    cache_hit: Number | None = None
    lower_bound: Number | None = None
    upper_bound: Number | None = None
    gap: Number | None = None
    seconds: Number | None = None
    eta_s: Number | None = None
    workers: dict[str, int] | None = Field(None, description="of a spread job: rows by worker")
    ranked: int | None = Field(None, description="stage rank, of a job with k_best: assignments so far")
    to_rank: int | None = Field(None, description="how many were asked for")


class Outcome(Answer):
    """The outcome in brief. A job has succeeded when it ended by itself; its result has when
    what was asked for is proved: ``imprecise`` and ``infeasible`` results have not."""

    status: Status = Field(
        description="imprecise: an assignment whose optimality is proved only to within gap"
    )
    success: bool = Field(description="whether the result is proved to be what was asked for")
    objective: Number | None
    bound: Number | None
    gap: Number | None


class Certificate(Answer):
    """The proof of the bound: a pass over all pairs, bounds of them, or the search alone."""

    certified: bool
    bound: Number | None
    bound_from: Literal["certificate", "search"] | None
    gap: Number | None
    by: str | None
    pairs: int = Field(description="pairs that the proof looked at")


class ArrayForm(Answer):
    """Form of an array of a result."""

    dtype: str
    shape: list[int]


class Ranking(Answer):
    """The best assignments in exact order."""

    count: int = Field(description="assignments that were ranked")
    complete: bool = Field(description="whether it is proved that there are no others")
    status: Literal["optimal", "infeasible", "time_limit", "cancelled"] = Field(
        "optimal", description="time_limit, cancelled: stopped; these are the best ones, in order"
    )
    costs: list[Number] = Field(description="of the first ten")


class ResultSummary(Outcome):
    """The outcome of a solve."""

    job: str
    attempt: int
    message: str
    maximize: bool
    shape: list[int]
    n_assigned: int
    phases: int
    certificate: Certificate
    stats: dict[str, Any]
    arrays: dict[str, ArrayForm]
    k_best: Ranking | None = Field(
        None,
        description="of a job with k_best, unless it was stopped before the first was known; its arrays are"
        " k_costs, k_col4row",
    )
    stored: dict[str, Any] | None = Field(
        None, description="of a job with results: uri, bytes and sha256 of the file written, or a problem"
    )
    links: dict[str, str]

    @classmethod
    def of(cls, job: JobRow, root: str) -> ResultSummary:
        assert job.result is not None
        link = f"{job_path(job, root)}/result"
        links = {"self": link, "job": job_path(job, root)}
        links |= {name: f"{link}/{name}" for name in job.result.get("arrays") or RESULT_ARRAYS}
        if points_in(job.spec["cost"]) is not None:
            links["picture"] = f"{link}/picture"
        return cls(job=job.id, **job.result, links=links)


class Job(Answer):
    """A job."""

    id: str = Field(examples=["job_0123456789abcdef"])
    state: JobState = Field(description="interrupted: will be tried again; given up is failed")
    attempt: int
    created: str
    started: str | None
    finished: str | None
    label: str | None
    cost: str = Field(description="type of the cost spec")
    shape: list[int] | None
    maximize: bool
    assignment: bool = Field(description="proves a given assignment in place of a solve")
    k_best: int | None = Field(None, description="assignments to rank after the solve")
    spread: bool | int = Field(description="over several workers; a number: at most so many")
    priority: int = Field(description="among the jobs of the same key: higher first")
    progress: Progress | None
    cancel: Literal["graceful", "now"] | None
    problem: ProblemDocument | None
    outcome: Outcome | None = Field(None, description="of a job with a result")
    result: ResultSummary | None = Field(None, description="where it was waited for")
    links: dict[str, str]

    @classmethod
    def of(cls, job: JobRow, root: str, *, whole: bool = False, reads: bool = True) -> Job:
        """Return a job, as lists show it; ``whole``: with its result, if it has one.

        reads: False for a caller that may not see what the solve finds.
        """
        link = job_path(job, root)
        links = {"self": link, "events": f"{link}/events", "result": f"{link}/result"}
        if not job.active and not (job.state == "succeeded" and settled(job.result, job.spec)):
            links["resume"] = f"{link}/resume"
        if job.active:
            links["cancel"] = f"{link}/cancel"
        more: dict[str, Any] = {}
        if job.result is not None and reads:
            more["outcome"] = {name: job.result.get(name) for name in Outcome.model_fields}
            if whole:
                more["result"] = ResultSummary.of(job, root)
        same = ("id", "state", "attempt", "label", "cancel", "problem")
        return cls(
            progress=job.progress if reads else None,
            **{name: getattr(job, name) for name in same},
            created=stamp(job.created) or "",
            started=stamp(job.started),
            finished=stamp(job.finished),
            cost=job.spec["cost"]["type"],
            shape=job.spec.get("shape"),
            maximize=job.spec["options"]["maximize"],
            assignment=job.spec.get("assignment") is not None,
            k_best=job.spec.get("k_best"),
            spread=job.spec.get("spread", False),
            priority=job.spec.get("priority", 0),
            links=links,
            **more,
        )


class JobPage(Answer):
    """Jobs, newest first."""

    jobs: list[Job]
    next_page_token: str | None


class DryRun(Answer):
    """A job as it would be, with estimates; nothing was accepted."""

    dry_run: Literal[True]
    spec: dict[str, Any] = Field(description="the request with all defaults")
    dtype: str
    estimate: dict[str, Any]


class Event(Answer):
    """One event."""

    seq: int
    time: str
    kind: Literal["state", "progress", "log"]
    data: dict[str, Any]

    @classmethod
    def of(cls, event: JobEvent) -> Event:
        kind: Any = event.kind
        return cls(seq=event.seq, time=stamp(event.time) or "", kind=kind, data=event.data)


class EventPage(Answer):
    """Events in order; ``next`` is what to ask for next as ``after``."""

    events: list[Event]
    next: int
    over: bool = Field(description="the job has ended, and no event follows these")


class ArrayInfo(Answer):
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

    @classmethod
    def of(cls, meta: Meta, limits: Limits, root: str) -> ArrayInfo:
        """Return an uploaded array, and the limits for its rows."""
        link = f"{root}/v1/arrays/{meta.id}"
        missing = meta.missing()
        return cls(
            **{name: getattr(meta, name) for name in ("id", "dtype", "shape", "sha256", "finite")},
            bytes=meta.nbytes,
            created=stamp(meta.created) or "",
            received=meta.ranges,
            missing=missing[:1000],
            complete=not missing,
            sealed=stamp(meta.sealed),
            max_block_bytes=limits.block_bytes,
            links={"self": link, "rows": f"{link}/rows/{{start}}", "seal": f"{link}/seal"},
        )


class ArrayList(Answer):
    """Arrays of the caller, newest first, and the token of the next page."""

    arrays: list[ArrayInfo]
    next_page_token: str | None


class ValuePage(Answer):
    """Part of a result array; null stands for an unknown number. Of k_col4row: a list for each rank."""

    name: str
    offset: int
    total: int
    values: list[Number | list[int] | None]
    next: int | None


class Picture(Answer):
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


class CostTypes(Answer):
    """Types of cost specs with JSON Schema and example; ``kernels`` is their former name."""

    cost_types: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    plugins: list[dict[str, Any]]


class Check(Answer):
    """A cost spec that can be used; with ``sample``, what some of its costs are."""

    ok: Literal[True]
    shape: list[int] | None
    dtype: str
    sample: dict[str, Any] | None = None
    infinite: dict[str, Any] | None = None
    pair_ns: Number | None = None
    open_s: Number | None = None
    compile_s: Number | None = None


class OptionWords(Answer):
    """An option of a job: how a form asks for it."""

    name: str
    label: str
    help: str
    kind: str
    choices: list[str]
    default: Any = None


class Capabilities(Answer):
    """Abilities of this service and limits of the caller."""

    api: str
    versions: dict[str, str | None]
    auth: bool
    caller: dict[str, Any]
    devices: list[str]
    workers: int | None
    threads_per_job: int
    spread: bool
    methods: list[str]
    options: list[OptionWords]
    costs: list[str]
    dtypes: list[str]
    stores: list[str]
    plugins: list[str]
    remote: dict[str, bool]
    limits: dict[str, Any]
    checkpoint_s: Number
    attempts: int


class Health(Answer):
    """Whether the service lives, or is ready."""

    status: Literal["ok", "ready"]
    checks: dict[str, bool] | None = None


def stamp(seconds: float | None) -> str | None:
    """Return unix seconds as ISO 8601, UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def job_path(job: JobRow, root: str) -> str:
    """Return the path of the job for clients. root: the path prefix that a proxy removes."""
    return f"{root}/v1/jobs/{job.id}"


_PROBLEM = {
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
}


def problem_response(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of an error."""
    return {"description": description, **_PROBLEM}


def range_responses(kind: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a file's answers besides the whole file. kind: its media type."""
    part: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
    return {
        206: {
            "description": "A range of the file, or several",
            "content": {kind: part, "multipart/byteranges": part},
        },
        304: {"description": "not changed"},
        416: problem_response("The range lies outside"),
    }


_ANYWHERE = (
    *("malformed-request", "unauthorized", "forbidden", "not-found", "not-acceptable", "request-timeout"),
    *("wrong-state", "body-too-large", "unsupported-media-type", "invalid-spec", "too-many-requests"),
    *("unavailable", "disk-full"),
)
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: problem_response(title) for status, title in (PROBLEMS[slug] for slug in _ANYWHERE)
}
SUBMIT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Finished within Prefer: wait, or a dry run", "model": Job | DryRun},
    202: {"description": "Accepted; Location names the job"},
}
MATCH_RESPONSES: dict[int | str, dict[str, Any]] = {412: problem_response("The job has another ETag")}
CANCEL_RESPONSES: dict[int | str, dict[str, Any]] = {
    **MATCH_RESPONSES,
    200: {"description": "The job is over"},
    202: {"description": "The job will end soon", "model": Job},
}
EVENT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events"},
    204: {"description": "The job is over, and there are no more events"},
}
