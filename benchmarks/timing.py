"""Seconds of solves and calls in this process."""

from __future__ import annotations

import functools
import gc
import math
import time
from collections.abc import Callable
from typing import Any

import bigsap
from benchmarks.instances import matrix
from benchmarks.records import Log

WARM_SIZE = 64
#: Augmenting paths from the estimator's start, as the paper has them, without the proof.
SSP: dict[str, Any] = {"method": "ssp", "start": "estimate", "certify": False}
_LEAST_SECONDS, _LONG, _TURNS = 0.05, 1.0, 5


def timed(cost: Any, **options: Any) -> tuple[bigsap.Result, float]:
    """Result and wall seconds of ``solve``, the garbage of earlier runs collected first."""
    gc.collect()
    clock = time.perf_counter()
    result = bigsap.solve(cost, **options)
    return result, time.perf_counter() - clock


@functools.cache
def warm(cls: str = "geometric", **options: Any) -> None:
    """Compile or load the kernels that a matrix of the class needs, once."""
    bigsap.solve(matrix(cls, WARM_SIZE, 0), **options)


def stats_of(result: bigsap.Result, names: str) -> dict[str, Any]:
    """Those of the result's ``stats``; names apart by spaces."""
    return {name: result.stats[name] for name in names.split()}


def side_by_side(
    log: Log,
    name: str,
    cls: str,
    n: int,
    solvers: dict[str, Callable[..., Any]],
    make: Callable[[], tuple[Any, ...]],
) -> None:
    """Log the least seconds of each solver's call on what ``make`` gives; solvers take turns."""
    keys = log.missing([(name, cls, n, 0, solver, 1) for solver in solvers])
    if not keys:
        return
    given = make()
    best = dict.fromkeys(keys, math.inf)
    for _ in range(_TURNS):
        for key in keys:
            if not _LONG < best[key] < math.inf:  # once is enough for what takes long
                best[key] = min(best[key], _seconds(functools.partial(solvers[key[4]], *given)))
    for key, seconds in best.items():
        log.add(key, seconds=seconds)


def _seconds(call: Callable[[], Any]) -> float:
    """Of one call: the mean of as many as fit a while, after one that loads."""
    clock = time.perf_counter()
    call()
    if (first := time.perf_counter() - clock) > _LONG:
        return first
    count, clock = 0, time.perf_counter()
    while (spent := time.perf_counter() - clock) < _LEAST_SECONDS or not count:
        call()
        count += 1
    return spent / count
