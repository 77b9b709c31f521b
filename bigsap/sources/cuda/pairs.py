"""Costs of single pairs on a device, all in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.sources.cuda.device_kernels import PAIRS, compiled, load_cupy, on
from bigsap.sources.cuda.placed import MatrixOnDevice, OnDevice
from bigsap.sources.cuda.row_blocks import RowsOnDevices
from bigsap.sources.cuda.slabs import SlabsOnDevices
from bigsap.types import Array

_BLOCK = 256
_MOST_BLOCKS = 4096


def device_pairs(source: Any, rows: Array, columns: Array) -> Array | None:
    """Return ``cost[rows[k], columns[k]]`` (k,) of the source's dtype; None for costs on the host."""
    if isinstance(source, SlabsOnDevices):
        costs = np.zeros(rows.size, source.dtype)
        for slab in source.slabs():
            here = (columns >= slab.start) & (columns < slab.stop)
            costs[here] = device_pairs(slab.source, rows[here], columns[here] - slab.start)
        return costs
    if isinstance(source, RowsOnDevices):
        costs = np.zeros(rows.size, source.dtype)
        for block, start in source.blocks():
            here = (rows >= start) & (rows < start + block.shape[0])
            costs[here] = device_pairs(block, rows[here] - start, columns[here])
        return costs
    if not isinstance(source, OnDevice):
        return None
    cupy = load_cupy()
    with on(source.device):
        if isinstance(source, MatrixOnDevice) and source.array.flags.c_contiguous:
            # Nothing to compile, and one number a pair to send.
            places = rows.astype(np.int64) * source.array.shape[1] + columns
            return np.asarray(source.array.reshape(-1).take(cupy.asarray(places)).get())
        i, j = (cupy.asarray(np.ascontiguousarray(ids, np.int32)) for ids in (rows, columns))
        code = source.code()
        there = cupy.zeros(rows.size, code.dtype)
        if rows.size:
            kernel = compiled(source.device, code, PAIRS, ()).get("bigsap_pairs")
            grid = min(_MOST_BLOCKS, -(-rows.size // _BLOCK))
            kernel((grid,), (_BLOCK,), (source.words(), i, j, np.int32(rows.size), there))
        return np.asarray(there.get())
