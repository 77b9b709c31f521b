"""Routes for results: the summary, and the arrays as npy, CSV or JSON pages."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

import bigsap
from bigsap.summary import FURTHER_ARRAYS, RANKING_ARRAYS, RESULT_ARRAYS, result_of
from bigsap_server.api import schemas
from bigsap_server.api.bodies import StrictRoute
from bigsap_server.api.context import Reader, Service, TheService
from bigsap_server.api.downloads import Download, drop
from bigsap_server.api.negotiation import accepted, matches
from bigsap_server.api.routes_jobs import JobId
from bigsap_server.api.schemas import answer
from bigsap_server.auth import Caller
from bigsap_server.costs.previews import picture
from bigsap_server.files import RESULT_COPY, scratch
from bigsap_server.jobs.model import JobRow, etag
from bigsap_server.problems import HttpProblem
from bigsap_server.uploads.blocks import disk

router = APIRouter(
    prefix="/v1/jobs/{job_id}/result",
    tags=["results"],
    route_class=StrictRoute,
    responses=schemas.PROBLEM_RESPONSES,
)

NPY, CSV, JSON, NPZ = "application/x-npy", "text/csv", "application/json", "application/x-npz"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
ArrayName: TypeAlias = Literal[*RESULT_ARRAYS, *FURTHER_ARRAYS, *RANKING_ARRAYS]  # type: ignore[valid-type]
# Of arrays with two dimensions: numbers.
_ROWS_AT_A_TIME = 8192
_MOST_ROWS = 100_000
_UNRANKED = "the job was not asked to rank assignments (k_best), or was stopped before any was known"
_ABSENT = {
    "u_low": "u is exact as it is",
    "v_low": "v is exact as it is",
    "unassigned_cost": "no row could be left unassigned",
    "capacity": "each column takes one row",
    "demand": "each row takes one column",
    "row4col": "columns take several rows; col4row names their columns",
    "col4row": "rows take several columns; row4col names their rows",
    **dict.fromkeys(RANKING_ARRAYS, _UNRANKED),
}


async def _with_result(job_id: str, service: Service, caller: Caller) -> JobRow:
    job = await service.job(job_id, caller)
    if job.result is None:
        over = not job.active
        ended = {"failed": "has failed", "cancelled": "was cancelled"}
        detail = f"the job {ended.get(job.state, f'is {job.state}')}"
        detail += " and has no result" if over else "; wait for it"
        raise HttpProblem("no-result", detail, state=job.state, headers={} if over else {"Retry-After": "1"})
    return job


@router.get(
    "",
    summary="The outcome of a job",
    response_model=schemas.ResultSummary,
    responses={200: {"content": {NPZ: _BINARY}}, **schemas.range_responses(NPZ)},
)
async def summary(
    job_id: JobId,
    service: TheService,
    caller: Reader,
    accept: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
    # Only for the OpenAPI document: ``Download`` reads the header.
    range_: Annotated[str | None, Header(alias="Range", description="of the npz file")] = None,
) -> Response:
    """By ``Accept``: status, objective, bound, gap, certificate, stats and links to the arrays; or all of
    it in one file (with Range), as ``bigsap.Result.save`` writes it."""
    job = await _with_result(job_id, service, caller)
    kind = accepted(accept, [JSON, NPZ])
    # Another version may write another file of the same result.
    attempt = job.result["attempt"] if job.result else 0
    tag = etag(job.version) if kind == JSON else f'"{job.id}-{attempt}-npz-{bigsap.__version__}"'
    headers = {"ETag": tag, "Vary": "Accept"}
    if matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    if kind == JSON:
        return answer(schemas.ResultSummary.of(job, service.root), headers=headers)
    return await run_in_threadpool(_whole, job, service, headers)


@router.get(
    "/picture",
    summary="What to draw of the matching",
    response_model=schemas.Picture,
    responses={204: {"description": "There is no link, or no points in the plane"}},
)
async def drawn(job_id: JobId, service: TheService, caller: Reader) -> Response:
    """A sample of the points and links of a matching in the plane."""
    job = await _with_result(job_id, service, caller)
    # Rows of a job with demands have several columns, of which each has one row.
    several = "demand" in (job.result or {}).get("arrays", {})
    name, by = ("row4col", "columns") if several else ("col4row", "rows")
    file = service.store.result_file(job, name)
    resolver = service.resolver(caller)
    try:
        found = await run_in_threadpool(lambda: picture(job.spec["cost"], resolver, _open(file), by))
    except HttpProblem as problem:
        raise HttpProblem("not-found", f"the points cannot be read: {problem.detail}") from problem
    return Response(status_code=204) if found is None else answer(schemas.Picture(**found))


@router.get(
    "/{name}",
    summary="An array of the result",
    response_model=schemas.ValuePage,
    responses={
        200: {"description": "The array", "content": {NPY: _BINARY, CSV: {"schema": {"type": "string"}}}},
        **schemas.range_responses(NPY),
    },
)
async def array(
    job_id: JobId,
    name: Annotated[ArrayName, Path()],
    service: TheService,
    caller: Reader,
    offset: Annotated[int, Query(ge=0, lt=2**63, description="first row, or rank (CSV, JSON)")] = 0,
    limit: Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="rows, or ranks; JSON: at most 100,000 numbers")
    ] = None,
    accept: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
    # Only for the OpenAPI document: ``Download`` reads the header.
    range_: Annotated[str | None, Header(alias="Range", description="of the npy file")] = None,
) -> Response:
    """By ``Accept``: the whole ``.npy`` file (with Range), CSV, or a JSON page.

    404 for ``u_low`` and ``v_low`` (what the duals are beyond ``u`` and ``v``) where they are 0,
    for ``unassigned_cost`` where no row could be left out, for ``capacity`` and ``demand`` where they
    were not asked for, for ``row4col`` with capacities and ``col4row`` with demands, for ``k_costs``
    and ``k_col4row`` where nothing was ranked. CSV of ``k_col4row`` has a line for each rank, with
    the column of each row.
    """
    job = await _with_result(job_id, service, caller)
    if name in _ABSENT and name not in (job.result or {}).get("arrays", {}):
        raise HttpProblem("not-found", f"the result has no {name}: {_ABSENT[name]}")
    file = service.store.result_file(job, name)
    kind = accepted(accept, [NPY, CSV, JSON])
    # One tag for each representation: a strong tag promises identical bytes.
    part = {NPY: "npy", CSV: f"csv-{offset}-{limit}", JSON: f"json-{offset}-{limit}"}[kind]
    tag = f'"{job.id}-{job.result["attempt"] if job.result else 0}-{name}-{part}"'
    headers = {"ETag": tag, "Vary": "Accept"}
    if matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    if kind == NPY:
        return await run_in_threadpool(Download, file, NPY, f"{name}.npy", headers)
    values = await run_in_threadpool(_open, file)
    stop = len(values) if limit is None else min(len(values), offset + limit)
    if kind == CSV:
        headers["Content-Disposition"] = f'attachment; filename="{job.id}-{name}.csv"'
        return StreamingResponse(_csv(values, name, offset, stop), media_type=CSV, headers=headers)
    stop = min(stop, offset + _rows_of(values, _MOST_ROWS), len(values))
    return answer(await run_in_threadpool(_page, values, name, offset, stop), headers=headers)


def _whole(job: JobRow, service: Service, headers: dict[str, str]) -> Response:
    """Return the whole result in one new file."""
    assert job.result is not None
    result = result_of(job.result, lambda name: _open(service.store.result_file(job, name)))
    with disk():
        file = scratch(service.settings.data) / RESULT_COPY.format(f"{job.id}-{secrets.token_hex(4)}")
        try:
            result.save(file)
            # The same time for the same bytes: clients compare it before they ask for a range.
            os.utime(file, (job.finished or 0.0,) * 2)
            return Download(file, NPZ, f"{job.id}.npz", headers, passing=True)
        except BaseException:
            drop(file)
            raise


def _open(file: FilePath) -> np.ndarray[Any, Any]:
    try:
        values: np.ndarray[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise HttpProblem("not-found", "the array is not there (any more)") from error
    return values


def _rows_of(values: np.ndarray[Any, Any], numbers: int) -> int:
    """Return how many rows of an array have about so many numbers, at least 1."""
    return numbers if values.ndim == 1 else max(1, numbers // max(1, values.shape[1]))


def _csv(values: np.ndarray[Any, Any], name: str, start: int, stop: int) -> Iterator[str]:
    side = "column" if name in ("row4col", "v", "v_low", "capacity") else "row"
    side = "rank" if name in RANKING_ARRAYS else side
    heads = [name] if values.ndim == 1 else map(str, range(values.shape[1]))
    yield f"{','.join((side, *heads))}\r\n"
    step = _rows_of(values, _ROWS_AT_A_TIME)
    for first in range(start, stop, step):
        block = values[first : min(first + step, stop)].tolist()
        # repr: the shortest text that parses to the same number.
        if values.ndim == 1:
            yield "".join(f"{first + k},{value!r}\r\n" for k, value in enumerate(block))
        else:
            yield "".join(f"{','.join(map(repr, (first + k, *row)))}\r\n" for k, row in enumerate(block))


def _page(values: np.ndarray[Any, Any], name: str, start: int, stop: int) -> schemas.ValuePage:
    found = values[start:stop].tolist() if start < stop else []
    return schemas.ValuePage(
        name=name,
        offset=start,
        total=len(values),
        values=[None if isinstance(v, float) and not math.isfinite(v) else v for v in found],
        next=stop if start < stop < len(values) else None,
    )
