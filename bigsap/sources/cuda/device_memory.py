"""Device memory: its free size, allocation, and copies of rows to it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigsap.errors import DeviceMemoryError
from bigsap.sources.base import CostSource, read_while
from bigsap.sources.cuda.device_kernels import load_cupy, on
from bigsap.types import Array

#: Bytes of rows that are copied to the device at a time, from pinned memory.
PANEL_BYTES = 64 << 20
#: Bytes worth the wait for the device that giving them back takes.
_MUCH = 1 << 30
#: Share of the free device memory that costs and lists may take.
_SHARE = 0.92


def free_bytes(device: int) -> int:
    """Return the bytes that a solve may take on the device: most of the free memory."""
    cupy = load_cupy()
    with on(device):
        free, _ = cupy.cuda.Device(device).mem_info
        return int((free + cupy.get_default_memory_pool().free_bytes()) * _SHARE)


def empty(shape: tuple[int, ...], dtype: Any, what: str) -> Any:
    """Allocate an array on the current device; DeviceMemoryError naming the bytes if it is full."""
    cupy = load_cupy()
    try:
        return cupy.empty(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise no_room(what, math.prod(shape) * np.dtype(dtype).itemsize) from error


def give_back(n_bytes: int) -> None:
    """Let the current device have the memory that CuPy keeps, where at least so much was freed just now.

    Else freed pieces stay next to larger arrays that do not fit into any of them.
    """
    if n_bytes >= _MUCH:
        load_cupy().get_default_memory_pool().free_all_blocks()


def pinned(n_bytes: int) -> Array:
    """Allocate bytes of the host which the device copies to while the host works."""
    return np.frombuffer(load_cupy().cuda.alloc_pinned_memory(n_bytes), np.uint8, n_bytes)


def copy_of(array: Any, what: str) -> Any:
    """Return the array on the current device, without a copy if it is there already.

    A large one is copied in parts: CuPy takes and keeps as much pinned memory as one copy has.
    """
    cupy = load_cupy()
    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.nbytes > PANEL_BYTES:
        there = empty(array.shape, array.dtype, what)
        step = max(1, PANEL_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            bring(there[start : start + step], array[start : start + step])
        return there
    try:
        return cupy.asarray(array)
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise no_room(what, int(array.nbytes)) from error


def moved(part: Any, here: int, device: int, what: str) -> Any:
    """Return part of an array of the device ``here``, contiguous: in place, or copied to another."""
    cupy = load_cupy()
    try:
        with on(here):
            part = cupy.ascontiguousarray(part)
            cupy.cuda.get_current_stream().synchronize()
        if device != here:
            with on(device):
                part = cupy.asarray(part)
                cupy.cuda.get_current_stream().synchronize()
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise no_room(what, int(part.nbytes)) from error
    return part


def bring(array: Any, costs: Array) -> None:
    """Copy costs of the host, of the same shape and dtype, to ``array``.

    The copy has ended when this returns: CuPy only queues copies from pinned memory, and panels are
    reused at once.
    """
    array.set(costs)
    load_cupy().cuda.get_current_stream().synchronize()


def no_room(what: str, nbytes: int) -> DeviceMemoryError:
    """Return the error with the number of bytes."""
    return DeviceMemoryError(f"the device has no room for {what}: {nbytes} bytes needed", nbytes)


@contextmanager
def naming_bytes() -> Iterator[None]:
    """Turn CuPy's out-of-memory errors into DeviceMemoryError with the number of bytes."""
    try:
        yield
    except MemoryError as error:
        wanted = re.search(r"Out of memory allocating ([\d,]+) bytes", str(error))
        if isinstance(error, DeviceMemoryError) or wanted is None:
            raise
        raise no_room("the solve's work", int(wanted[1].replace(",", ""))) from error


def panels(
    source: CostSource, rows: Array, tick: Callable[[], None], nbytes: int | None = None
) -> Iterator[tuple[int, Array]]:
    """Yield (start, panel) for all ``rows``: blocks of whole rows in pinned host memory.

    The panel is reused for the next block. nbytes: of a panel at most; at least one row.
    """
    m, dtype = source.shape[1], source.dtype
    most = PANEL_BYTES if nbytes is None else nbytes
    height = max(1, min(len(rows), most // max(1, m * dtype.itemsize)))
    panel = pinned(max(1, height * m) * dtype.itemsize).view(dtype)[: height * m].reshape(height, m)
    for start in range(0, len(rows), height):
        part = rows[start : start + height]
        read_while(source, tick, part, slice(0, m), panel[: part.size])
        yield start, panel[: part.size]
        tick()
