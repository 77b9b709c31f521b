"""The paper's out-of-core setting: rows computed when needed, and a cache for a share of them."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import bigsap
from benchmarks.bench_settings import BenchSettings, share_text
from benchmarks.instances import factors, points_of
from benchmarks.records import Log
from benchmarks.tables import DASH, Block, line, middle, seconds_text, table, threads_text
from benchmarks.timing import WARM_SIZE, stats_of, timed

NAME = "cached"
TITLE = "Out of core: rows computed when needed, by the share that the cache holds"
METHOD = "ssp"
#: What can be computed from its place: the others are matrices from the outset.
CLASSES = ("geometric", "disjoint", "rank2", "rank8")
_KEPT = "rows_scanned rows_evaluated pairs_evaluated cache_hits cache_misses cache_slots"


def run(settings: BenchSettings, log: Log) -> None:
    """Each share of the cache and each number of threads, in turn and in reverse."""
    classes = [name for name in settings.classes if name in CLASSES]
    seeds = range(settings.cached_seeds)
    shares = {share_text(share): share for share in settings.shares}
    for n, cls, seed in itertools.product(settings.cached_sizes, classes, seeds):
        ways = itertools.product(shares, settings.thread_counts)
        missing = log.missing((NAME, cls, n, seed, share, count) for share, count in ways)
        for key in missing[::-1] if seed % 2 else missing:
            _warm(cls, shares[key[4]], key[5])
            result, seconds = _solve(cls, n, seed, shares[key[4]], key[5])
            counts = stats_of(result, f"{_KEPT} cache_policy")
            log.add(key, seconds=seconds, fun=result.fun, **counts)


@functools.cache
def _warm(cls: str, share: int, count: int) -> None:
    _solve(cls, WARM_SIZE, 0, share, count)


def _solve(cls: str, n: int, seed: int, share: int, count: int) -> tuple[bigsap.Result, float]:
    cost: Any
    if cls.startswith("rank"):
        cost = bigsap.lowrank(*factors(int(cls[4:]), n, seed))
    else:
        cost = bigsap.points(*points_of(cls, n, seed))
    cache = bigsap.RowCache(bytes=max(1, n // share if share else 1) * 8 * n)
    return timed(cost, method=METHOD, threads=count, cache=cache, certify=False)


def render(log: Log) -> list[Block]:
    """One line an instance and cache, threads beside each other."""
    counts = sorted(log.distinct("threads", experiment=NAME))
    rows = []
    for cls in log.distinct("cls", experiment=NAME):
        for n in sorted(log.distinct("n", experiment=NAME, cls=cls)):
            of_all = list(log.of(experiment=NAME, cls=cls, n=n))
            answers = {(r["seed"], r["fun"], r["rows_scanned"]) for r in of_all}
            same = "yes" if len(answers) == len({r["seed"] for r in of_all}) else "NO"
            for share in dict.fromkeys(r["solver"] for r in of_all):
                here = {"experiment": NAME, "cls": cls, "n": n, "solver": share}
                times = [middle(log.values("seconds", **here, threads=c)) for c in counts]
                r = next(log.of(**here))
                lookups = r["cache_hits"] + r["cache_misses"]
                rate = f"{100 * r['cache_hits'] / lookups:.1f} %" if lookups else DASH
                rows.append(
                    f"{cls} | {n:,} | {share} | {r['cache_slots']:,} ({r['cache_policy']})"
                    f" | {r['rows_scanned'] / n:.1f} | {r['rows_evaluated'] / n:.1f}"
                    f" | {r['pairs_evaluated'] / n**2:.1f} | " + line(rate, *map(seconds_text, times), same)
                )
    head = "class | n | cache | slots | scans / n | rows evaluated / n | pairs / n^2 | hit rate"
    head = line(head, *(f"{threads_text(c)}, s" for c in counts), "same answer")
    return [table(head, rows), f'`method="{METHOD}"`, solve only.']
