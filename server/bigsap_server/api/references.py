"""Checks that a job's references exist, serialised with deletions.

``JobStore.submit`` and ``resume`` call ``check_references`` in their transaction; arrays and jobs are
deleted under the same lock, and only while no active job refers to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap_server.api.context import Service
from bigsap_server.costs.build import invalid
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
        raise invalid(f"{job_id} has no result", START)
    if shape is not None and job.result["shape"] != shape:
        raise invalid(f"{job_id} has shape {job.result['shape']}", START)
    try:
        v = np.load(service.store.result_file(job, "v"), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise invalid(f"{job_id} has no result any more", START) from None
    if not np.isfinite(v).all():
        raise invalid(f"{job_id} has no prices to start from: it is {job.result['status']}", START)


def check_references(
    service: Service, spec: dict[str, Any], owner: str | None, job_id: str | None = None
) -> None:
    """Raise HttpProblem when something that ``spec`` names does not exist, or not for this owner.

    owner: whose arrays and jobs may be named; None: anybody's. job_id: of a job to be resumed. Once
    started, it does not need the job that it started from.
    """
    folder = None if job_id is None else Folder(service.store.folder(job_id))
    begun = folder is not None and (folder.start.exists() or folder.checkpoint.exists())
    for thing, pointer in references(spec).items():
        if pointer == START:
            if not begun:
                _job(service, thing, owner)
            continue
        try:
            service.arrays.get(thing, owner)
            service.arrays.touch(thing)
        except HttpProblem:
            raise invalid(f"there is no array {thing}", pointer) from None


def _job(service: Service, job_id: str, owner: str | None) -> JobRow:
    try:
        return service.store.get(job_id, owner)
    except UnknownJob:
        raise invalid(f"there is no job {job_id}", START) from None
