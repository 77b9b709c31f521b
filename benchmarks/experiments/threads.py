"""One thread against two: costs computed when needed, and the same matrix in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import bigsap
from benchmarks import tables
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import points_of, squared_distances
from benchmarks.machine import enough_memory
from benchmarks.records import Log
from benchmarks.tables import DASH, Block, line, table
from benchmarks.timing import WARM_SIZE, stats_of, timed
from bigsap.types import Array

NAME = "threads"
TITLE = "Threads: points (sqeuclidean), computed when needed and in memory"
BAR = 1.5
CLASS = "geometric"
FLY, MEMORY = "on the fly", "in memory"
_CACHED_ROWS = 16


def run(settings: BenchSettings, log: Log) -> None:
    """Numbers of threads in turn and in reverse, on the same instances."""
    n, counts = settings.threads_size, settings.thread_counts
    kinds = (FLY, MEMORY) if enough_memory(8.0 * n * n) else (FLY,)
    small = _costs(kinds, *points_of(CLASS, WARM_SIZE, 0))
    for seed in range(settings.threads_seeds):
        both = itertools.product(kinds, counts)
        missing = log.missing((NAME, CLASS, n, seed, kind, count) for kind, count in both)
        if not missing:
            continue
        costs = _costs([key[4] for key in missing], *points_of(CLASS, n, seed))
        # A B, then B A: a machine that drifts favours neither.
        for key in missing[::-1] if seed % 2 else missing:
            _solve(small[key[4]], key[5])
            result, seconds = _solve(costs[key[4]], key[5])
            search = {"search_seconds": result.stats["seconds"]["search"], "fun": result.fun}
            log.add(key, seconds=seconds, **search, **stats_of(result, "rows_scanned"))


def _costs(kinds: Sequence[str], x: Array, y: Array) -> dict[str, Any]:
    make: dict[str, Callable[..., Any]] = {FLY: bigsap.points, MEMORY: squared_distances}
    return {kind: make[kind](x, y) for kind in dict.fromkeys(kinds)}


def _solve(cost: Any, threads: int) -> tuple[bigsap.Result, float]:
    few_rows = bigsap.RowCache(bytes=_CACHED_ROWS * 8 * cost.shape[1])
    cache = None if isinstance(cost, np.ndarray) else few_rows
    return timed(cost, method="ssp", threads=threads, certify=False, cache=cache)


def render(log: Log) -> list[Block]:
    """Medians and speed-up."""
    rows = []
    counts = log.distinct("threads", experiment=NAME)
    for n in log.distinct("n", experiment=NAME):
        for kind in log.distinct("solver", experiment=NAME, n=n):
            here = {"experiment": NAME, "n": n, "solver": kind}
            seeds = log.distinct("seed", **here)
            times = [tables.middle(log.values("seconds", **here, threads=c)) for c in counts]
            scans = {(r["seed"], r["rows_scanned"]) for r in log.of(**here)}
            # Of each seed by itself: instances differ more than the numbers of threads do.
            gained = [
                one / most
                for seed in seeds
                for one in log.values("seconds", **here, threads=counts[0], seed=seed)
                for most in log.values("seconds", **here, threads=counts[-1], seed=seed)
            ]
            faster = tables.middle(gained) if len(counts) > 1 else None
            met = tables.verdict(faster, BAR, at_most=False, judged=log.judged) if kind == FLY else DASH
            same = "yes" if len(scans) == len(seeds) else "NO"
            begun = line(kind, f"{n:,}", len(seeds), *map(tables.seconds_text, times))
            rows.append(line(begun, tables.ratio_text(faster), met, same))
    head = line("costs | n | seeds", *(f"{tables.threads_text(c)}, s" for c in counts))
    note = (
        "Medians (of the speed-up too, seed by seed), run in turn;"
        f" a cache of {_CACHED_ROWS} rows when computed on the fly."
    )
    return [table(f"{head} | speed-up | bar {BAR} | same scans", rows), note]
