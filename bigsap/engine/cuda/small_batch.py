"""Batches of small problems on a device, each solved and proved by one block; see kernels_batch.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.engine.cuda import kernel_texts
from bigsap.engine.small.proof import SHARE
from bigsap.proof.limits import CLEAR, DOUBTFUL, HUGE
from bigsap.sources.cuda.code import DeviceCode
from bigsap.sources.cuda.device_kernels import attributes_of, compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty
from bigsap.types import Array

_NUMBERS = {"f4": "float", "f8": "double", "i4": "int", "i8": "i64"}
# Threads of a block: for few columns, for more problems than multiprocessors, for fewer.
_SIDES = (256, 512, 1024)
# Shared memory that every device has, and what the kernel takes of it for other things.
_SHARED, _OTHER = 48 << 10, 4 << 10


class DeviceBatch(NamedTuple):
    """Answers of the kernel, in device memory but for ``statuses``.

    columns, kept, statuses: see ``engine.small.batch.solve_some``; the totals and bounds among the
    facts are not set. column_of_row (k, N), row_of_column (k, M): -1 where there is none.
    """

    columns: Any
    kept: Any
    statuses: Array
    column_of_row: Any
    row_of_column: Any


def fits(few: Array, many: Array, device: int) -> Array:
    """Return which problems a block of the device has room for. few, many: their rows and columns there."""
    most = attributes_of(device).get("MaxSharedMemoryPerBlockOptin", _SHARED)
    found: Array = _shared_bytes(few, many) <= most - _OTHER
    return found


def _shared_bytes(few: Any, many: Any) -> Any:
    return 20 * few + 33 * many


def solve_on(
    device: int,
    dtype: np.dtype[Any],
    problems: Array,
    caps: Array,
    sign: float,
    room: tuple[int, int],
    widths: tuple[int, int],
    largest: tuple[int, int],
) -> DeviceBatch:
    """Solve a batch whose costs are on the device, of 4 or 8 bytes a cost, in one launch.

    problems (k, WORDS), caps: as for ``engine.small.batch.solve_some``, with addresses of the device.
    room: numbers in ``columns`` and ``kept``. widths: N and M. largest: the most rows and columns of a
    problem, as the kernel sees them. Statuses are OPTIMAL and UNSURE.
    """
    cupy = load_cupy()
    code = DeviceCode(_costs_of(dtype), (), dtype, trusted=False)
    count, shared = len(problems), _shared_bytes(*largest)
    side = _side(count, largest[1], device)
    settings = (("SIDE", side), ("INTEGERS", int(dtype.kind == "i")))
    with on(device):
        kernel = compiled(device, code, kernel_texts.BATCH, settings).get("bigsap_batch", shared)
        found = DeviceBatch(
            empty((room[0],), np.int64, "pairs"),
            empty((room[1],), np.float64, "duals"),
            statuses := empty((count,), np.int32, "statuses"),
            empty((count, widths[0]), np.int64, "pairs"),
            empty((count, widths[1]), np.int64, "pairs"),
        )
        args = (
            cupy.asarray(problems),
            cupy.asarray(caps if caps.size else np.zeros(1)),
            np.float64(sign),
            np.int32(policy.BATCH_DEVICE_ROUNDS),
            np.int64(policy.BATCH_DEVICE_PAIRS),
            found.columns,
            found.kept,
            statuses,
            found.column_of_row,
            np.int32(widths[0]),
            found.row_of_column,
            np.int32(widths[1]),
        )
        kernel((count,), (side,), args, shared_mem=shared)
        return found._replace(statuses=statuses.get().astype(np.int64))


def _side(count: int, columns: int, device: int) -> int:
    if columns <= policy.BATCH_DEVICE_FEW_COLUMNS:
        return _SIDES[0]
    return _SIDES[1 + (count <= attributes_of(device).get("MultiProcessorCount", 1))]


def _costs_of(dtype: np.dtype[Any]) -> str:
    constants = {"SHARE": SHARE, "CLEAR": CLEAR, "DOUBTFUL": DOUBTFUL, "HUGE_PAID": HUGE}
    defines = "".join(f"#define {name} {value!r}\n" for name, value in constants.items())
    return f"typedef {_NUMBERS[dtype.str[1:]]} NUMBER;\n{defines}"
