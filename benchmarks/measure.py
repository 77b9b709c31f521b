"""One timed solve in this process."""

from __future__ import annotations

import gc
import time
from typing import Any

import bigsap
from benchmarks.costs import matrix
from bigsap.result import Result

WARM_SIZE = 64


def timed(cost: Any, **options: Any) -> tuple[Result, float]:
    """Result and wall seconds of ``solve``, the garbage of earlier runs collected first."""
    gc.collect()
    clock = time.perf_counter()
    result = bigsap.solve(cost, **options)
    return result, time.perf_counter() - clock


def warm(cls: str = "geometric", threads: tuple[int, ...] = (1,), **options: Any) -> None:
    """Compile or load the kernels that a matrix of the class needs."""
    for count in threads:
        bigsap.solve(matrix(cls, WARM_SIZE, 0), threads=count, **options)
