"""Routes for uploads: create an array, send its rows in blocks, seal it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import anyio
import numpy as np
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from bigsap_server.api import schemas
from bigsap_server.api.bodies import StrictRoute, check_length, limited
from bigsap_server.api.context import Reader, ReaderOrSubmitter, Service, Submitter, TheService
from bigsap_server.api.downloads import Download
from bigsap_server.api.negotiation import matches
from bigsap_server.api.schemas import ArrayInfo, answer
from bigsap_server.costs.specs import DTYPES, ID_PATTERN, Model
from bigsap_server.problems import HttpProblem
from bigsap_server.uploads.blocks import Meta

router = APIRouter(
    prefix="/v1/arrays", tags=["arrays"], route_class=StrictRoute, responses=schemas.PROBLEM_RESPONSES
)

ArrayId = Annotated[str, Path(pattern=ID_PATTERN, examples=["arr_0123456789abcdef"])]
#: Bytes written to the disk at a time: fewer thread switches than with chunks of the network.
_WRITE_BYTES = 1 << 20
_RAW = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


_SHA256 = r"^[0-9a-fA-F]{64}$"
_KINDS = [np.dtype(name).newbyteorder("<") for name in DTYPES]
#: Types by name, in the form of ``.npy`` files, and in short.
Dtype: TypeAlias = Literal[*(k.name for k in _KINDS), *(k.str for k in _KINDS), *DTYPES]  # type: ignore[valid-type]


class NewArray(Model):
    """A matrix (n, m) or points (n, d), or one number a row (n)."""

    dtype: Dtype = Field(examples=["float32"])
    shape: list[Annotated[int, Field(ge=0, lt=2**53)]] = Field(
        min_length=1, max_length=2, examples=[[250000, 50]]
    )
    sha256: str | None = Field(
        None, pattern=_SHA256, description="of the data: an equal sealed array of the key is answered instead"
    )


class Seal(Model):
    """Digest that the data must have, if the client gives one."""

    sha256: str | None = Field(None, pattern=_SHA256)


@router.post(
    "",
    status_code=201,
    summary="Create an array",
    response_model=ArrayInfo,
    responses={200: {"description": "There is one with this digest", "model": ArrayInfo}},
)
async def create(body: NewArray, service: TheService, caller: Submitter) -> Response:
    """An empty array, to be filled by row blocks of at most ``max_block_bytes``."""
    limits = service.settings.limits
    dtype = np.dtype(body.dtype).newbyteorder("<")
    nbytes = math.prod(body.shape) * dtype.itemsize
    if nbytes > limits.array_bytes:
        raise HttpProblem(
            "over-limit", f"{nbytes} bytes; at most {limits.array_bytes} are allowed", pointer="/shape"
        )
    status, meta = 201, None
    if body.sha256 is not None:
        wanted = (dtype.str, body.shape, body.sha256.lower())
        if (meta := await run_in_threadpool(service.arrays.find, caller.owner, *wanted)) is not None:
            status = 200
    if meta is None:
        quota = (limits.arrays, caller.quotas["stored_bytes"])
        meta = await run_in_threadpool(service.arrays.create, caller.owner, dtype.str, body.shape, quota)
    return _shown(service, meta, status, {"Location": f"{service.root}/v1/arrays/{meta.id}"})


def _shown(
    service: Service, meta: Meta, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return answer(ArrayInfo.of(meta, service.settings.limits, service.root), status, headers)


@router.get("", summary="List arrays, newest first", response_model=schemas.ArrayList)
async def list_arrays(
    service: TheService,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, description="arrays of a page")] = 100,
    page_token: Annotated[str | None, Query(max_length=200, description="of the last page")] = None,
) -> Response:
    """One page of the caller's arrays, and the token of the next: None at the end."""
    size = min(limit, service.settings.limits.page_size)
    found, token = await run_in_threadpool(service.arrays.page, caller.sees, size, page_token)
    arrays = [ArrayInfo.of(meta, service.settings.limits, service.root) for meta in found]
    return answer(schemas.ArrayList(arrays=arrays, next_page_token=token))


@router.get("/{array_id}", summary="Look at an array", response_model=ArrayInfo)
async def look(array_id: ArrayId, service: TheService, caller: ReaderOrSubmitter) -> Response:
    """Rows that have been received: where an upload goes on."""
    meta = service.arrays.get(array_id, caller.sees)
    return _shown(service, meta)


@router.get(
    "/{array_id}/data",
    summary="Download a sealed array",
    responses={200: {"content": {"application/x-npy": {}}}, **schemas.range_responses("application/x-npy")},
    response_class=Response,
)
async def data(
    array_id: ArrayId,
    service: TheService,
    caller: Reader,
    if_none_match: Annotated[str | None, Header()] = None,
    # Only for the OpenAPI document: ``Download`` reads the header.
    range_: Annotated[str | None, Header(alias="Range", description="of the npy file")] = None,
) -> Response:
    """The ``.npy`` file, with Range."""
    meta = service.arrays.get(array_id, caller.sees)
    if meta.sealed is None:
        raise HttpProblem("array-incomplete", "the array is not sealed")
    file = service.arrays.file(meta)
    headers = {"ETag": f'"{meta.sha256}"'}
    if matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return await run_in_threadpool(Download, file, "application/x-npy", f"{meta.id}.npy", headers)


@router.put(
    "/{array_id}/rows/{start}", summary="Send a block of rows", response_model=ArrayInfo, openapi_extra=_RAW
)
async def put_rows(
    request: Request,
    array_id: ArrayId,
    start: Annotated[int, Path(ge=0, lt=2**53, description="number of the first row")],
    service: TheService,
    caller: Submitter,
) -> Response:
    """Rows from ``start`` on, as raw little-endian numbers in C order. May be repeated.

    A block counts when it has been received whole and is on the disk. One that is refused (wrong
    number of bytes, NaN) or cut off changes nothing of what had arrived. One that another block
    of the same rows overtakes is refused (409). Without a Content-Length it is taken to have all
    rows from ``start`` on.
    """
    meta = service.arrays.get(array_id, caller.sees)
    kind = request.headers.get("content-type", "application/octet-stream")
    if kind.partition(";")[0].strip().lower() not in ("application/octet-stream", ""):
        raise HttpProblem("unsupported-media-type", "send application/octet-stream")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        detail = "send the rows without a content encoding"
        raise HttpProblem("unsupported-media-type", detail, headers={"Accept-Encoding": "identity"})
    length = request.headers.get("content-length", "")
    size = int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None
    with caller.waiting():
        return await _receive(request, service, meta, start, size)


async def _receive(request: Request, service: Service, meta: Meta, start: int, size: int | None) -> Response:
    # Before the block is opened, because opening it supersedes other blocks of the same rows.
    check_length(request, service.settings.limits.block_bytes)
    block = await run_in_threadpool(service.arrays.open_block, meta, start, size)
    n_bytes = 0
    try:
        waiting = bytearray()
        async for chunk in limited(request, service.settings.limits.block_bytes):
            waiting += chunk
            if len(waiting) >= _WRITE_BYTES:
                await run_in_threadpool(block.write, bytes(waiting))
                n_bytes += len(waiting)
                waiting.clear()
        if waiting:
            await run_in_threadpool(block.write, bytes(waiting))
            n_bytes += len(waiting)
    except Exception:
        # Before the answer, so that the array is already restored when the client receives it.
        await run_in_threadpool(service.arrays.close_block, meta, block, False)
        raise
    except BaseException:
        # A task that is being cancelled must not wait for a thread; closing is quick.
        service.arrays.close_block(meta, block, whole=False)
        raise
    meta = await run_in_threadpool(service.arrays.close_block, meta, block, True)
    service.metrics.uploaded.inc(n_bytes)
    return _shown(service, meta)


@router.post("/{array_id}/seal", summary="Seal an array", response_model=ArrayInfo)
async def seal(
    array_id: ArrayId, service: TheService, caller: Submitter, body: Seal | None = None
) -> Response:
    """Close the array for good; answers with the sha256 of its raw little-endian data."""
    service.arrays.get(array_id, caller.sees)
    expected = None if body is None else body.sha256
    # One at a time of an array, and few in all: those that wait take no thread from other requests.
    async with service.seals.setdefault(array_id, asyncio.Lock()):
        work, few = service.arrays.seal, service.sealing
        meta = await anyio.to_thread.run_sync(work, array_id, expected, limiter=few)
    return _shown(service, meta)


@router.delete("/{array_id}", status_code=204, summary="Delete an array")
async def delete(array_id: ArrayId, service: TheService, caller: Submitter) -> Response:
    """Refused (409) while an unfinished job uses it."""
    service.arrays.get(array_id, caller.sees)
    await run_in_threadpool(service.arrays.delete, array_id, service.store.unused)
    return Response(status_code=204)
