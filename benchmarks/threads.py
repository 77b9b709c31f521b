"""One thread against two: costs computed when needed, and the same matrix in memory."""

from __future__ import annotations

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import points_of, squared_distances
from benchmarks.machine import enough_memory
from benchmarks.measure import WARM_SIZE, timed
from benchmarks.records import Log
from benchmarks.report import DASH, middle, ratio_text, seconds_text, table, verdict

NAME = "threads"
TITLE = "Threads: points (sqeuclidean), computed when needed and in memory"
BAR = 1.5
CLASS = "geometric"
FLY, MEMORY = "on the fly", "in memory"
_CACHED_ROWS = 16


def run(settings: BenchSettings, log: Log) -> None:
    """Numbers of threads in turn and in reverse, on the same instances."""
    n, counts = settings.threads_size, settings.thread_counts
    kinds = [FLY, *([MEMORY] if enough_memory(8.0 * n * n) else [])]
    warmed = False
    for seed in range(settings.threads_seeds):
        missing = [
            (kind, count)
            for kind in kinds
            for count in counts
            if not log.has(NAME, CLASS, n, seed, kind, count)
        ]
        if not missing:
            continue
        x, y = points_of(CLASS, n, seed)
        if not warmed:
            _solve(x[:WARM_SIZE], y[:WARM_SIZE], FLY, counts[-1])
            _solve(x[:WARM_SIZE], y[:WARM_SIZE], MEMORY, counts[-1])
            warmed = True
        cost = squared_distances(x, y) if any(kind == MEMORY for kind, _ in missing) else None
        # A B, then B A: a machine that drifts favours neither.
        for kind, count in missing[::-1] if seed % 2 else missing:
            result, seconds = _solve(x, y, kind, count, cost)
            log.add(
                NAME,
                CLASS,
                n,
                seed,
                kind,
                count,
                seconds=seconds,
                search_seconds=result.stats["seconds"]["search"],
                rows_scanned=result.stats["rows_scanned"],
                fun=result.fun,
            )


def _solve(
    x: np.ndarray, y: np.ndarray, kind: str, count: int, cost: np.ndarray | None = None
) -> tuple[bigsap.Result, float]:
    n = len(x)
    if kind == MEMORY:
        source = squared_distances(x, y) if cost is None else cost
        return timed(source, method="ssp", threads=count, certify=False)
    cache = bigsap.RowCache(bytes=_CACHED_ROWS * 8 * n)
    return timed(bigsap.points(x, y), method="ssp", threads=count, certify=False, cache=cache)


def render(settings: BenchSettings, log: Log) -> str:
    """Medians and speed-up."""
    rows = []
    counts = log.distinct("threads", experiment=NAME)
    for n in log.distinct("n", experiment=NAME):
        for kind in log.distinct("solver", experiment=NAME, n=n):
            here = {"experiment": NAME, "n": n, "solver": kind}
            times = {c: middle(log.values("seconds", **here, threads=c)) for c in counts}
            scans = {
                tuple(log.values("rows_scanned", **here, threads=c, seed=s))
                for s in log.distinct("seed", **here)
                for c in counts
            }
            same = len(scans) == len(log.distinct("seed", **here))
            # Of each seed by itself: instances differ more than the numbers of threads do.
            ratio = middle(
                [
                    one / most
                    for seed in log.distinct("seed", **here)
                    for one in log.values("seconds", **here, threads=counts[0], seed=seed)
                    for most in log.values("seconds", **here, threads=counts[-1], seed=seed)
                    if len(counts) > 1
                ]
            )
            bar = verdict(ratio, BAR, at_most=False, judged=log.judged) if kind == FLY else DASH
            rows.append(
                [
                    kind,
                    f"{n:,}",
                    str(len(log.distinct("seed", **here))),
                    *(seconds_text(times[c]) for c in counts),
                    ratio_text(ratio),
                    bar,
                    "yes" if same else "NO",
                ]
            )
    head = [
        "costs",
        "n",
        "seeds",
        *(f"{c} thread{'s' if c > 1 else ''}, s" for c in counts),
        "speed-up",
        f"bar {BAR}",
        "same scans",
    ]
    note = (
        "Medians (of the speed-up too, seed by seed), run in turn;"
        f" a cache of {_CACHED_ROWS} rows when computed on the fly."
    )
    return f"{table(head, rows)}\n\n{note}"
