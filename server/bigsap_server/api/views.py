"""JSON representations of jobs, results and arrays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bigsap_server.costs.previews import points_in
from bigsap_server.jobs.control import RESULT_ARRAYS
from bigsap_server.jobs.model import SETTLED
from bigsap_server.jobs.store import FINISHED, JobEvent, JobRow
from bigsap_server.settings import Limits
from bigsap_server.uploads.store import Meta


def stamp(seconds: float | None) -> str | None:
    """Return unix seconds as ISO 8601, UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def etag(job: JobRow) -> str:
    """Return the entity tag, which changes with every change of the job."""
    return f'"{job.version}"'


def is_over(job: JobRow) -> bool:
    """Return whether the job has ended, and was not resumed."""
    return job.state in FINISHED or not job.active


def job_path(job: JobRow, root: str) -> str:
    """Return the path of the job for clients. root: the path prefix that a proxy removes."""
    return f"{root}/v1/jobs/{job.id}"


def job_view(job: JobRow, root: str) -> dict[str, Any]:
    """Return a job, as lists show it."""
    link = job_path(job, root)
    links = {"self": link, "events": f"{link}/events", "result": f"{link}/result"}
    settled = job.result is not None and job.result.get("status") in SETTLED
    if is_over(job) and not (job.state == "succeeded" and settled):
        links["resume"] = f"{link}/resume"
    if not is_over(job):
        links["cancel"] = f"{link}/cancel"
    found = {
        "id": job.id,
        "state": job.state,
        "attempt": job.attempt,
        "created": stamp(job.created),
        "started": stamp(job.started),
        "finished": stamp(job.finished),
        "label": job.label,
        "cost": job.spec["cost"]["type"],
        "shape": job.spec.get("shape"),
        "maximize": job.spec["options"]["maximize"],
        "spread": job.spec.get("spread", False),
        "progress": job.progress,
        "cancel": job.cancel,
        "problem": job.problem,
        "links": links,
    }
    if job.result is not None:
        brief = ("status", "success", "objective", "bound", "gap")
        found["outcome"] = {name: job.result.get(name) for name in brief}
    return found


def result_view(job: JobRow, root: str) -> dict[str, Any]:
    """Return the summary of a result: status, objective, bound, gap, certificate, stats, links."""
    assert job.result is not None
    link = f"{job_path(job, root)}/result"
    links = {"self": link, "job": job_path(job, root)}
    links |= {name: f"{link}/{name}" for name in job.result.get("arrays") or RESULT_ARRAYS}
    if points_in(job.spec["cost"]) is not None:
        links["picture"] = f"{link}/picture"
    return {"job": job.id, **job.result, "links": links}


def event_view(event: JobEvent) -> dict[str, Any]:
    """Return one event of a job."""
    return {"seq": event.seq, "time": stamp(event.time), "kind": event.kind, "data": event.data}


def array_view(meta: Meta, limits: Limits, root: str) -> dict[str, Any]:
    """Return an uploaded array, and the limits for its rows."""
    link = f"{root}/v1/arrays/{meta.id}"
    return {
        "id": meta.id,
        "dtype": meta.dtype,
        "shape": meta.shape,
        "bytes": meta.nbytes,
        "created": stamp(meta.created),
        "received": meta.ranges,
        "missing": meta.missing()[:1000],
        "complete": not meta.missing(),
        "sealed": stamp(meta.sealed),
        "sha256": meta.sha256,
        "finite": meta.finite,
        "max_block_bytes": limits.block_bytes,
        "links": {"self": link, "rows": f"{link}/rows/{{start}}", "seal": f"{link}/seal"},
    }
