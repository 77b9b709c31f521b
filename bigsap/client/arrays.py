"""Transfer of arrays to and from a service: uploads by row blocks, downloads by ranges."""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsap.client.http import Patience, ServiceError, Transport, UploadError, path_of
from bigsap.client.job_request import RowBlocks
from bigsap.errors import DtypeError, InvalidCostError, ShapeError
from bigsap.result import Result, Status
from bigsap.sources.missing import mask_of, parted
from bigsap.summary import RANKING_ARRAYS, result_of
from bigsap.types import Array

if TYPE_CHECKING:
    import httpx

    from bigsap.k_best import Assignments

# Larger arrays are uploaded. JSON has float64 and int64: other dtypes are always uploaded.
_INLINE = 1000
_CHECKED_BYTES = 16 << 20
# Larger arrays are not read twice to find out whether the service has them.
_HASHED_BYTES = 1 << 30
# A slow disk: how long an answer may take that reads an array.
_READ_BYTES_PER_S = 50 << 20
_DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")


def inline(
    spec: Any, upload: Callable[[Array | RowBlocks], str], path: str = "", place: tuple[int, ...] = ()
) -> Any:
    """Return ``spec`` in JSON types; numpy arrays in it become lists or uploaded arrays.

    Raises InvalidCostError for NaN, naming its place, before its array is sent. path, place: of
    this part of the whole.
    """
    if isinstance(spec, Mapping):
        below = {key: f"{path}.{key}" if path else str(key) for key in spec}
        return {str(key): inline(value, upload, below[key]) for key, value in spec.items()}
    mask = mask_of(spec)
    if mask is not None and mask.any():
        raise _missing(path, (*place, *(int(k) for k in np.argwhere(mask)[0])))
    if isinstance(spec, RowBlocks) or (isinstance(spec, np.ndarray) and spec.ndim):
        if isinstance(spec, np.ndarray) and _is_small(spec):
            return inline(spec.tolist(), upload, path, place)
        refuse_nan(spec, path)
        return {"array": upload(spec)}
    if isinstance(spec, (list, tuple)):
        return [inline(value, upload, path, (*place, k)) for k, value in enumerate(spec)]
    if isinstance(spec, (np.generic, np.ndarray)):
        return inline(spec.item(), upload, path, place)
    if isinstance(spec, float) and math.isinf(spec):
        return "Infinity" if spec > 0 else "-Infinity"  # JSON has no infinities
    if isinstance(spec, float) and math.isnan(spec):
        raise _not_a_number(path, place)
    return spec


def _is_small(array: Array) -> bool:
    """Return whether an array is sent within the spec.

    Nested lists lack the dtype, and the width without rows.
    """
    fits = array.size <= _INLINE and 0 < len(array) <= _INLINE and array.ndim <= 2
    return fits and array.dtype in (np.float64, np.int64)


def refuse_nan(array: Array | RowBlocks, path: str) -> None:
    """Raise InvalidCostError for NaN, reading by blocks of rows: the array may lie in a file."""
    if array.dtype.kind != "f":
        return
    height = max(1, _CHECKED_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), height):
        nan = np.isnan(array[start : start + height])
        if nan.any():
            first = tuple(int(k) for k in np.argwhere(nan)[0])
            raise _not_a_number(path, (start + first[0], *first[1:]))


def _not_a_number(path: str, place: tuple[int, ...]) -> InvalidCostError:
    subscript = str(list(place)) if place else ""
    row, column = (*place, None, None)[:2]
    return InvalidCostError(f"{path}{subscript} is nan", row, column)


def _missing(path: str, place: tuple[int, ...]) -> InvalidCostError:
    row, column = (*place, None, None)[:2]
    text = f"{path or 'the value'}{list(place) if place else ''} is missing (masked, None or NA)"
    return InvalidCostError(f"{text}; fill it in before it is sent", row, column)


def upload(
    transport: Transport,
    array: Array | RowBlocks,
    *,
    array_id: str | None,
    block_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> str:
    """Upload an array, see ``Client.upload``. Memory: one block."""
    if not isinstance(array, RowBlocks):
        array, missing = parted(array, "the array")
        if missing is not None:
            raise _missing("the array", tuple(int(k) for k in np.argwhere(missing)[0]))
    wire = array.dtype.newbyteorder("<")
    kind = wire.str[1:]
    if kind not in _DTYPES:
        raise DtypeError(f"an array of {array.dtype} cannot be uploaded, only real numbers")
    if array.ndim not in (1, 2):
        raise ShapeError(f"an array of shape {array.shape} cannot be uploaded, only (n,) or (n, k)")
    there: dict[str, Any]
    if array_id is not None:
        there = transport.call("GET", path_of("arrays", array_id)).json()
    else:
        wanted: dict[str, Any] = {"dtype": kind, "shape": list(array.shape)}
        if isinstance(array, np.ndarray) and array.nbytes <= _HASHED_BYTES:
            # The service may have it already.
            wanted["sha256"] = hashlib.sha256(np.ascontiguousarray(array, wire).data).hexdigest()
        there = transport.call("POST", "/v1/arrays", json=wanted, again=False).json()
        array_id = str(there["id"])
    if tuple(there["shape"]) != array.shape or np.dtype(there["dtype"]) != wire:
        raise _mismatch(
            f"{array_id} is {there['dtype']} of shape {tuple(there['shape'])},"
            f" not {wire.str} of shape {array.shape}"
        )
    try:
        digest, there = _send(transport, array, wire, there, block_bytes, progress)
    except ServiceError as error:
        raise UploadError(error, array_id) from error
    if there.get("sha256") != digest:
        raise _mismatch(f"{array_id} holds other data than was sent: its digest differs")
    return array_id


def _send(
    transport: Transport,
    array: Array | RowBlocks,
    wire: np.dtype[Any],
    there: dict[str, Any],
    block_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[str, dict[str, Any]]:
    """Send the rows that the service lacks, seal the array; return their digest and the service's record.

    there: that record before.
    """
    path = path_of("arrays", str(there["id"]))
    n_rows = len(array)
    row_bytes = max(1, array[:1].nbytes)
    # Older services do not report the size of block that they accept.
    height = max(1, min(block_bytes, there.get("max_block_bytes", block_bytes)) // row_bytes)
    received = [(int(start), int(stop)) for start, stop in there.get("received") or []]
    digest = hashlib.sha256()
    for start in range(0, n_rows, height):
        stop = min(start + height, n_rows)
        block = np.ascontiguousarray(array[start:stop], wire).tobytes()
        digest.update(block)
        if not there.get("sealed") and not any(a <= start and stop <= b for a, b in received):
            transport.call(
                "PUT",
                f"{path}/rows/{start}",
                content=block,
                headers={"Content-Type": "application/octet-stream"},
            )
        if progress is not None:
            progress(stop, n_rows)
    if not there.get("sealed"):
        # The service reads the whole array before it answers.
        reading = n_rows * row_bytes / _READ_BYTES_PER_S
        there = transport.call("POST", f"{path}/seal", wait=reading).json()
    return digest.hexdigest(), there


def _mismatch(detail: str) -> ServiceError:
    return ServiceError({"type": "about:blank", "title": "Upload", "detail": detail})


def fetch(transport: Transport, job_id: str, summary: Mapping[str, Any]) -> Result:
    """Return the result with this summary, and download its arrays."""
    return result_of(summary, lambda name: download(transport, f"{path_of('jobs', job_id)}/result/{name}"))


def fetch_ranking(transport: Transport, job_id: str, summary: Mapping[str, Any]) -> Assignments:
    """Return the ranking of the result with this summary. Raises ServiceError if it has none."""
    from bigsap.k_best import Assignments

    place = f"{path_of('jobs', job_id)}/result"
    costs, col4row = (download(transport, f"{place}/{name}") for name in RANKING_ARRAYS)
    n, m = (int(size) for size in summary["shape"])
    found = summary["k_best"]
    given = {"complete": found["complete"], "status": Status(found["status"])}
    return Assignments(costs, col4row.astype(np.intp, copy=False), summary["maximize"], (n, m), **given)


def fetch_ranked_costs(
    transport: Transport, job_id: str, summary: Mapping[str, Any]
) -> tuple[Array, bool, Status] | None:
    """Return costs, ``complete`` and ``status`` of the ranking of the result with this summary."""
    if (ranking := summary.get("k_best")) is None:
        return None
    costs = download(transport, f"{path_of('jobs', job_id)}/result/{RANKING_ARRAYS[0]}")
    return costs, ranking["complete"], Status(ranking["status"])


def download(transport: Transport, path: str) -> Array:
    """Return one ``.npy`` array; a broken download continues where it ended."""
    body = bytearray()
    patience = Patience(transport.patience, time.monotonic())

    def receive() -> httpx.Response:
        headers = {"Accept": "application/x-npy"}
        if body:
            headers["Range"] = f"bytes={len(body)}-"
        with transport.http.stream("GET", path, headers=headers) as answer:
            if answer.status_code >= 300:
                answer.read()
                return answer
            if answer.status_code != 206:
                body.clear()
            for piece in answer.iter_bytes():
                body.extend(piece)
                patience.renew()
            return answer

    transport.persist(receive, patience=patience)
    return np.asarray(np.load(io.BytesIO(body), allow_pickle=False))
