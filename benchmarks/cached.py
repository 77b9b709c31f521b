"""The paper's out-of-core setting: rows computed when needed, and a cache for a share of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bigsap
from benchmarks.bench_settings import BenchSettings, share_text
from benchmarks.costs import factors
from benchmarks.instances import points_of
from benchmarks.measure import WARM_SIZE, timed
from benchmarks.records import Log
from benchmarks.report import DASH, middle, seconds_text, table

NAME = "cached"
TITLE = "Out of core: rows computed when needed, by the share that the cache holds"
METHOD = "ssp"
# What can be computed from its place: the others are matrices from the outset.
SOURCES: dict[str, Callable[[int, int], Any]] = {
    "geometric": lambda n, seed: bigsap.points(*points_of("geometric", n, seed)),
    "disjoint": lambda n, seed: bigsap.points(*points_of("disjoint", n, seed)),
    "rank2": lambda n, seed: bigsap.lowrank(*factors(2, n, seed)),
    "rank8": lambda n, seed: bigsap.lowrank(*factors(8, n, seed)),
}


def run(settings: BenchSettings, log: Log) -> None:
    """Each share of the cache and each number of threads, in turn and in reverse."""
    warmed: set[tuple[str, int, int]] = set()
    for n in settings.cached_sizes:
        for cls in (name for name in settings.classes if name in SOURCES):
            for seed in range(settings.cached_seeds):
                missing = [
                    (share, count)
                    for share in settings.shares
                    for count in settings.thread_counts
                    if not log.has(NAME, cls, n, seed, share_text(share), count)
                ]
                for share, count in missing[::-1] if seed % 2 else missing:
                    if (cls, share, count) not in warmed:
                        _solve(cls, WARM_SIZE, 0, share, count)
                        warmed.add((cls, share, count))
                    result, seconds = _solve(cls, n, seed, share, count)
                    kept = (
                        "rows_scanned",
                        "rows_evaluated",
                        "pairs_evaluated",
                        "cache_hits",
                        "cache_misses",
                        "cache_slots",
                        "cache_policy",
                    )
                    log.add(
                        NAME,
                        cls,
                        n,
                        seed,
                        share_text(share),
                        count,
                        seconds=seconds,
                        fun=result.fun,
                        **{name: result.stats[name] for name in kept},
                    )


def _solve(cls: str, n: int, seed: int, share: int, count: int) -> tuple[bigsap.Result, float]:
    cache = bigsap.RowCache(bytes=max(1, n // share if share else 1) * 8 * n)
    return timed(SOURCES[cls](n, seed), method=METHOD, threads=count, cache=cache, certify=False)


def brief(settings: BenchSettings, log: Log) -> str:
    """The largest size alone."""
    return render(settings, log, max(log.distinct("n", experiment=NAME)))


def render(settings: BenchSettings, log: Log, least: int = 0) -> str:
    """One line an instance and cache, threads beside each other, from ``least`` rows on."""
    counts = sorted(log.distinct("threads", experiment=NAME))
    rows = []
    for cls in log.distinct("cls", experiment=NAME):
        for n in sorted(n for n in log.distinct("n", experiment=NAME, cls=cls) if n >= least):
            for share in log.distinct("solver", experiment=NAME, cls=cls, n=n):
                here = {"experiment": NAME, "cls": cls, "n": n, "solver": share}
                times = [middle(log.values("seconds", **here, threads=c)) for c in counts]
                first = next(log.of(**here))
                lookups = first["cache_hits"] + first["cache_misses"]
                same = {
                    (r["seed"], r["fun"], r["rows_scanned"]) for r in log.of(experiment=NAME, cls=cls, n=n)
                }
                rate = 100 * first["cache_hits"] / lookups if lookups else None
                rows.append(
                    [
                        cls,
                        f"{n:,}",
                        share,
                        f"{first['cache_slots']:,} ({first['cache_policy']})",
                        f"{first['rows_scanned'] / n:.1f}",
                        f"{first['rows_evaluated'] / n:.1f}",
                        f"{first['pairs_evaluated'] / n**2:.1f}",
                        DASH if rate is None else f"{rate:.1f} %",
                        *map(seconds_text, times),
                        "yes" if len(same) == len({seed for seed, *_ in same}) else "NO",
                    ]
                )
    head = [
        "class",
        "n",
        "cache",
        "slots",
        "scans / n",
        "rows evaluated / n",
        "pairs / n^2",
        "hit rate",
        *(f"{c} thread{'s' if c > 1 else ''}, s" for c in counts),
        "same answer",
    ]
    return f'{table(head, rows)}\n\n`method="{METHOD}"`, solve only. Figure 6 shows the seconds.'
