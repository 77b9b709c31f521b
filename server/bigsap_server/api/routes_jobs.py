"""Routes for jobs: submit, list, get, wait, cancel, resume, delete, events."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from bigsap_server.api import schemas
from bigsap_server.api.bodies import StrictRoute
from bigsap_server.api.context import Reader, Service, Submitter, TheService
from bigsap_server.api.negotiation import accepted, matches, preferred_wait, required
from bigsap_server.api.references import check_references, check_warm_start
from bigsap_server.api.schemas import Event, Job, answer, job_path
from bigsap_server.auth import Caller
from bigsap_server.costs.build import invalid
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.specs import ID_PATTERN, Model
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.costs.validate import priced
from bigsap_server.jobs.model import Answer, JobRow, JobState, StoreUnavailable, UnknownJob, canonical, etag
from bigsap_server.jobs.webhooks import check_webhook
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import Settings

router = APIRouter(
    prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute, responses=schemas.PROBLEM_RESPONSES
)

JobId = Annotated[str, Path(pattern=ID_PATTERN, examples=["job_0123456789abcdef"])]
IfMatch = Annotated[str | None, Header(description="only if the job has one of these ETags")]
_PAGE = 500
_RETRY = {"Retry-After": "1"}


class CancelRequest(Model):
    """Way of cancelling: gracefully (keeps what is known) or at once."""

    mode: Literal["graceful", "now"] = "graceful"


@router.post(
    "",
    status_code=202,
    summary="Submit a job",
    response_model=schemas.Job,
    responses=schemas.SUBMIT_RESPONSES,
)
async def submit(
    request: Request,
    body: JobRequest,
    service: TheService,
    caller: Submitter,
    dry_run: Annotated[bool, Query(description="estimate, and accept nothing")] = False,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=255, description="the same key: the same job, the same answer"),
    ] = None,
    prefer: Annotated[str | None, Header(description="wait=N: answer when done")] = None,
) -> Response:
    """Accept a job (202), or with ``Prefer: wait=N`` its result (200) if done in N seconds.

    A key without the scope ``read`` gets the job without outcome and result.

    Where the key has no open stream left it is not waited for: 202 without Preference-Applied.

    An ``Idempotency-Key`` that has made a job is answered as it was then, while there is the job.

    ``dry_run=true`` answers 200 with the normalised spec and estimates of memory and time.
    """
    settings = service.settings
    key = idempotency_key
    if key is not None and not (key.isascii() and key.isprintable()):
        raise HttpProblem("malformed-request", "Idempotency-Key must be printable ASCII characters")
    spec = body.model_dump(mode="json")
    digest = hashlib.sha256(canonical(spec).encode()).hexdigest()
    if key is not None and not dry_run:
        # Before validation: what the body refers to may be deleted, but the answer stays the same.
        made = await run_in_threadpool(service.store.made_by, key, digest, caller.owner)
        if made is not None:
            return await _replay(service, caller, made, prefer)
    # The models have validated the form; what it means and refers to is validated here.
    spec["spread"] = workers_asked(spec, settings, caller.quotas["spread_workers"])
    workers = workers_of(spec["spread"], sum(service.supervisor.workers().values()))
    if spec["options"]["time_limit_s"] is None:
        spec["options"]["time_limit_s"] = settings.limits.time_limit_s
    devices: list[str] = list(settings.devices)
    resolver = service.resolver(caller)
    found, effort = await run_in_threadpool(
        priced, spec, resolver, devices, settings.default_threads, workers
    )
    if body.webhook is not None:
        check_webhook(body.webhook, settings)
    if body.results is not None:
        check_uri(f"{body.results.rstrip('/')}/", settings.result_uris, "/results")
    if body.warm_start is not None and body.warm_start.job is not None:
        await run_in_threadpool(check_warm_start, service, body.warm_start.job, caller.sees, found.shape)
    spec["shape"] = found.shape
    if dry_run:
        return answer(schemas.DryRun(dry_run=True, spec=spec, dtype=found.dtype, estimate=effort))
    wait = preferred_wait(prefer)
    job, created = await run_in_threadpool(
        lambda: service.store.submit(
            spec,
            owner=caller.owner,
            label=body.label,
            idempotency_key=key,
            digest=digest,
            most_active=caller.quotas["active_jobs"],
            answer=partial(_accepted, service, caller) if wait is None else None,
            check=partial(check_references, service, owner=caller.sees),
        )
    )
    if not created:
        return await _replay(service, caller, job, prefer)
    service.metrics.submitted.inc()
    if body.spread:
        service.metrics.spread.inc()
    first = await _answer(service, caller, job, wait)
    if key is not None and wait is not None:
        # The job is stored, whether or not this record is written.
        with suppress(StoreUnavailable):
            await run_in_threadpool(service.store.keep_answer, job.id, first)
    return _response(first)


def workers_asked(request: Mapping[str, Any], settings: Settings, most: int | None) -> bool | int:
    """Return ``spread`` for the job: False, True for all workers, or how many at most.

    most: the limit of the caller's key; None: no limit. Raises HttpProblem with the pointer to the
    field.
    """
    asked: bool | int = request["spread"]
    if not asked:
        return False
    if not settings.has_cluster:
        has = "runs jobs in its own process" if settings.executor == "inline" else "has one worker"
        raise invalid(f"there is no cluster to spread a job over: this service {has}", "/spread")
    if request["options"]["device"] == "cuda":
        raise invalid("a spread job is solved by the CPUs of its workers", "/spread")
    if most is None:
        return asked
    if most < 2 or (asked is not True and asked > most):
        allowed = "none" if most < 2 else f"at most {most}"
        number = "several" if asked is True else asked
        detail = f"{number} workers for one job; {allowed} are allowed"
        raise HttpProblem("over-limit", detail, pointer="/spread")
    return most if asked is True else asked


def workers_of(spread: bool | int, there: int) -> int:
    """Return how many of the existing workers such a job will have."""
    if not spread:
        return 1
    return max(1, there if spread is True else min(spread, there))


async def _replay(service: Service, caller: Caller, job: JobRow, prefer: str | None) -> Response:
    """Return the first answer to the request that made the job, or the job if there is none yet."""
    first = await run_in_threadpool(service.store.answer_of, job.id)
    if first is None:
        first = await _answer(service, caller, job, preferred_wait(prefer))
    return _response(first, {"Idempotency-Replayed": "true"})


async def _answer(service: Service, caller: Caller, job: JobRow, wait: float | None) -> Answer:
    """Return the answer to a submission: the job, or its result if the client waits for it."""
    if wait is None or not caller.may_wait:
        # The job is stored, so answer 202 even if we cannot wait.
        return _accepted(service, caller, job)
    wait = min(wait, service.settings.limits.wait_s)
    applied = {"Preference-Applied": f"wait={wait:g}"}
    # The job may be deleted meanwhile, or the table unreadable: the answer is still 202.
    with caller.waiting(), suppress(UnknownJob, StoreUnavailable):
        job = await _waited(service, job, wait, lambda job: not job.active)
    if job.active:
        return _accepted(service, caller, job, applied)
    headers = {"Location": job_path(job, service.root), **applied, "ETag": etag(job.version)}
    if job.result is not None:
        headers["Content-Location"] = job_path(job, service.root)
    return Answer(200, headers, _text(Job.of(job, service.root, whole=True, reads=caller.has("read"))))


def _accepted(
    service: Service, caller: Caller, job: JobRow, further: Mapping[str, str] | None = None
) -> Answer:
    place = {"Location": job_path(job, service.root)}
    headers = {**place, **(further or {}), **_RETRY, "ETag": etag(job.version)}
    return Answer(202, headers, _text(Job.of(job, service.root, reads=caller.has("read"))))


def _text(document: schemas.Answer) -> str:
    return bytes(answer(document).body).decode()


def _response(first: Answer, further: Mapping[str, str] | None = None) -> Response:
    return Response(first.body, first.status, {**first.headers, **(further or {})}, "application/json")


async def _waited(service: Service, job: JobRow, seconds: float, done: Callable[[JobRow], bool]) -> JobRow:
    """Return the job once ``done(job)`` is true, or at the time limit."""
    until = time.monotonic() + seconds
    with service.notifier.watching(job.id) as wait:
        while True:
            job = await run_in_threadpool(service.store.get, job.id)
            left = until - time.monotonic()
            if done(job) or left <= 0 or service.notifier.stopping:
                return job
            await wait(left)


@router.get("", summary="List jobs, newest first", response_model=schemas.JobPage)
async def list_jobs(
    service: TheService,
    caller: Reader,
    state: Annotated[JobState | None, Query(description="only this state")] = None,
    label: Annotated[str | None, Query(max_length=200, description="only this label")] = None,
    page_size: Annotated[int, Query(ge=1, description="jobs of a page")] = 50,
    page_token: Annotated[str | None, Query(max_length=100, description="of the last page")] = None,
) -> Response:
    """One page, and the token of the next: None at the end."""
    size = min(page_size, service.settings.limits.page_size)
    jobs, token = await run_in_threadpool(
        lambda: service.store.page(state=state, label=label, owner=caller.sees, size=size, token=page_token)
    )
    found = [Job.of(job, service.root) for job in jobs]
    return answer(schemas.JobPage(jobs=found, next_page_token=token))


@router.get(
    "/{job_id}",
    summary="Look at a job",
    response_model=schemas.Job,
    responses={304: {"description": "not changed"}},
)
async def get_job(
    job_id: JobId,
    service: TheService,
    caller: Reader,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False, description="seconds")] = 0.0,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The job with its ``ETag``. With ``wait`` and ``If-None-Match`` it answers on a change.

    Of a job that has ended there is nothing to wait for: 304 at once. A service whose longest wait
    is 0 answers at once, too: with Retry-After.
    """
    job, longest = await service.job(job_id, caller), service.settings.limits.wait_s
    if matches(if_none_match, etag(job.version)) and min(wait, longest) > 0 and job.active:
        with caller.waiting():
            version, seconds = job.version, min(wait, longest)
            job = await _waited(
                service, job, seconds, lambda job: job.version != version or not caller.has("read")
            )
        caller.require("read")  # the key may be gone meanwhile
    headers = {"ETag": etag(job.version)}
    if wait > 0 and longest == 0 and job.active:
        headers |= _RETRY
    if matches(if_none_match, etag(job.version)):
        return Response(status_code=304, headers=headers)
    return answer(Job.of(job, service.root), headers=headers)


@router.get("/{job_id}/spec", summary="The request of a job", response_model=JobRequest)
async def get_spec(job_id: JobId, service: TheService, caller: Reader) -> Response:
    """The request as it was understood, defaults filled in: it may be sent again as it is."""
    return JSONResponse((await service.job(job_id, caller)).spec)


@router.post(
    "/{job_id}/cancel", summary="Cancel a job", response_model=schemas.Job, responses=schemas.CANCEL_RESPONSES
)
async def cancel(
    job_id: JobId,
    service: TheService,
    caller: Submitter,
    body: CancelRequest | None = None,
    if_match: IfMatch = None,
) -> Response:
    """``graceful`` keeps the best assignment, its bound and the checkpoint; ``now`` does not."""
    await service.job(job_id, caller)
    mode = "graceful" if body is None else body.mode
    job = await run_in_threadpool(service.store.request_cancel, job_id, mode, required(if_match))
    view = Job.of(job, service.root, reads=caller.has("read"))
    return answer(view, 202 if job.active else 200, {"ETag": etag(job.version)})


@router.post(
    "/{job_id}/resume",
    summary="Resume a job",
    response_model=schemas.Job,
    status_code=202,
    responses=schemas.MATCH_RESPONSES,
)
async def resume(job_id: JobId, service: TheService, caller: Submitter, if_match: IfMatch = None) -> Response:
    """A new attempt from the checkpoint, for jobs that ended without being solved, or ranked as asked."""
    await service.job(job_id, caller)
    check = partial(check_references, service, owner=caller.sees, job_id=job_id)
    most, tags = caller.quotas["active_jobs"], required(if_match)
    job = await run_in_threadpool(service.store.resume, job_id, most, check, tags)
    view = Job.of(job, service.root, reads=caller.has("read"))
    return answer(view, 202, {"ETag": etag(job.version), **_RETRY})


@router.delete(
    "/{job_id}", summary="Delete a job and its files", status_code=204, responses=schemas.MATCH_RESPONSES
)
async def delete(job_id: JobId, service: TheService, caller: Submitter, if_match: IfMatch = None) -> Response:
    """Refused (409) while the job is active, or an unfinished job starts from it."""
    await service.job(job_id, caller)
    await run_in_threadpool(service.store.delete, job_id, tags=required(if_match))
    return Response(status_code=204)


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_model=schemas.EventPage,
    responses=schemas.EVENT_RESPONSES,
)
async def events(
    request: Request,
    job_id: JobId,
    service: TheService,
    caller: Reader,
    after: Annotated[int, Query(ge=0, lt=2**63, description="events after this one")] = 0,
    limit: Annotated[int, Query(ge=1, le=_PAGE, description="events of a JSON page")] = _PAGE,
    last_event_id: Annotated[str | None, Header(description="where a broken stream goes on")] = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Server-sent events (``id`` = sequence number), or a JSON page by ``Accept``."""
    job = await service.job(job_id, caller)
    if last_event_id is not None:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
            raise HttpProblem("malformed-request", "Last-Event-ID must be a sequence number")
        after = int(last_event_id)
    if accepted(accept, ["text/event-stream", "application/json"]) == "application/json":
        found = await run_in_threadpool(service.store.events, job_id, after, limit)
        latest = found[-1].seq if found else after
        page = [Event.of(event) for event in found]
        over = not job.active and len(page) < limit
        return answer(schemas.EventPage(events=page, next=latest, over=over))
    if not job.active and not await run_in_threadpool(service.store.events, job_id, after, 1):
        # A 204 makes a browser's EventSource stop reconnecting.
        return Response(status_code=204)
    caller.check_waiting()
    return EventSourceResponse(_stream(service, caller, job_id, after), ping=15)


async def _stream(
    service: Service, caller: Caller, job_id: str, after: int
) -> AsyncIterator[ServerSentEvent]:
    """Yield events after ``after``, as they occur, until the job has ended."""
    with (
        caller.waiting(),
        service.metrics.streams.track_inprogress(),
        service.notifier.watching(job_id) as wait,
    ):
        while True:
            try:
                # Read the job before the events, so that the events of its end are included.
                job = await service.job(job_id, caller)
                found = service.store.recent.events(job_id, after)
                if found is None:
                    found = await run_in_threadpool(service.store.events, job_id, after, _PAGE)
            except UnknownJob:
                return  # deleted meanwhile
            if not caller.has("read"):
                return  # the key is no longer valid
            for event in found:
                after = event.seq
                view = Event.of(event).document()
                yield ServerSentEvent(canonical(view), event=event.kind, id=str(event.seq), retry=1000)
            if found:
                continue
            if not job.active:
                yield ServerSentEvent(canonical({"state": job.state}), event="end")
                return
            if service.notifier.stopping:
                return
            await wait(10.0)
            await asyncio.sleep(0)
