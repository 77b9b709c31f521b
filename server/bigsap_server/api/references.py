"""Checks that a job's references exist, serialised with deletions.

``JobStore.submit`` and ``resume`` call ``check_references`` in their transaction; arrays and jobs are
deleted under the same lock, and only while no active job refers to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap_server.api.context import Service
from bigsap_server.jobs.control import Folder
from bigsap_server.jobs.model import JobRow, UnknownJob
from bigsap_server.jobs.references import START, references
from bigsap_server.problems import HttpProblem


def check_warm_start(service: Service, job_id: str, owner: str | None, shape: list[int] | None) -> None:
    """Raise HttpProblem unless a job of this shape can start from the result of job ``job_id``.

    owner: whose job it must be; None: anybody's.
    """
    job = _job(service, job_id, owner)
    if job.result is None:
        raise _bad(f"{job_id} has no result")
    if shape is not None and job.result["shape"] != shape:
        raise _bad(f"{job_id} has shape {job.result['shape']}")
    try:
        v = np.load(service.store.result_file(job, "v"), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise _bad(f"{job_id} has no result any more") from None
    if not np.isfinite(v).all():
        raise _bad(f"{job_id} has no prices to start from: it is {job.result['status']}")


def check_references(
    service: Service, spec: dict[str, Any], owner: str | None, job_id: str | None = None
) -> None:
    """Raise HttpProblem when something that ``spec`` names does not exist, or not for this owner.

    owner: whose arrays and jobs may be named; None: anybody's. job_id: of a job to be resumed. Once
    started, it does not need the job that it started from.
    """
    begun = None if job_id is None else Folder(service.store.folder(job_id))
    for thing, pointer in references(spec).items():
        if pointer != START:
            _check_array(service, thing, owner, pointer)
        elif begun is None or not (begun.start.exists() or begun.checkpoint.exists()):
            _job(service, thing, owner)


def _job(service: Service, job_id: str, owner: str | None) -> JobRow:
    try:
        return service.store.get(job_id, owner)
    except UnknownJob:
        raise _bad(f"there is no job {job_id}") from None


def _check_array(service: Service, array_id: str, owner: str | None, pointer: str) -> None:
    try:
        service.arrays.get(array_id, owner)
        service.arrays.touch(array_id)
    except HttpProblem:
        raise HttpProblem("invalid-spec", f"there is no array {array_id}", pointer=pointer) from None


def _bad(detail: str) -> HttpProblem:
    return HttpProblem("invalid-spec", detail, pointer=START)
