"""Passes over costs on cluster workers, used where they are faster than local kernels."""

from __future__ import annotations

import math
import statistics
import time

import numpy as np

from bigsap import policy
from bigsap.proof.minima import seconds_by_bounds
from bigsap.proof.row_pass import gives_parts
from bigsap.run.run import Run
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Crewed

#: Bytes per row: the dual in three parts, and the cost of its pair.
_DUAL_BYTES = 32


def seconds_of_pass(source: CostSource, n_threads: int) -> float:
    """Return the approximate seconds that this many local threads take to read all costs."""
    n, m = source.shape
    width = min(m, policy.WORKERS_TIMED_PAIRS) if gives_parts(source) else m
    out = np.empty((1, width), source.dtype)
    took = []
    for row in np.linspace(0, n - 1, policy.WORKERS_TIMED_ROWS).astype(np.int64):
        clock = time.perf_counter()
        source.read(np.array([row]), slice(0, width), out)
        took.append(time.perf_counter() - clock)
    return statistics.median(took) * n * (m / width) / n_threads


def proof_elsewhere(run: Run, source: CostSource) -> CostSource:
    """Return ``source``, or its copy on the workers if these should make the certificate pass."""
    if run.offload is None or isinstance(source, Crewed) or in_memory(source):
        return source
    if math.prod(source.shape) < policy.QUICK_PAIRS or seconds_by_bounds(source) < math.inf:
        return source
    return _where_faster(run, source, _DUAL_BYTES)


def rows_elsewhere(run: Run, source: CostSource) -> CostSource:
    """Return ``source``, or its copy on the workers if these should evaluate all rows."""
    if run.offload is None or isinstance(source, Crewed):
        return source
    return _where_faster(run, source, source.shape[1] * source.dtype.itemsize)


def in_memory(source: CostSource) -> bool:
    """Return whether the source is a matrix in this process's memory."""
    return isinstance(source, ArraySource) and not source.mapped


def _where_faster(run: Run, source: CostSource, answer_bytes: int) -> CostSource:
    assert run.offload is not None
    seconds = seconds_of_pass(source, run.n_threads)
    if not run.offload.pays(source.shape[0], seconds, run.n_threads, answer_bytes):
        return source
    found = run.offload.of(source)
    return source if found is None else found
