"""Bytes of costs scanned per second of search, against what the memory can deliver."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
from numba import njit

from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import matrix
from benchmarks.machine import enough_memory
from benchmarks.records import Log
from benchmarks.tables import DASH, Block, middle, table, verdict
from benchmarks.timing import SSP, timed, warm
from bigsap.types import Array

NAME = "bandwidth"
TITLE = "Scanning a matrix out of cache, against the machine's streaming read"
BAR = 80.0
CLASS = "random"
SOLVER = "bigsap ssp"


# "reassoc" lets the compiler sum in vectors: the loop must wait for memory, not for itself.
@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def _sum(values: Array) -> float:
    total = 0.0
    for k in range(values.size):
        total += values[k]
    return total


def bytes_per_second(cost: Array, threads: int, passes: int = 3) -> float:
    """The best of several passes over the matrix, each thread reading its part of the rows."""
    flat = cost.reshape(-1)
    cuts = np.linspace(0, flat.size, threads + 1).astype(int)
    parts = [flat[a:b] for a, b in itertools.pairwise(cuts)]
    _sum(flat[:8])
    best = np.inf
    for _ in range(passes):
        team = [threading.Thread(target=_sum, args=(part,)) for part in parts[1:]]
        clock = time.perf_counter()
        for thread in team:
            thread.start()
        _sum(parts[0])
        for thread in team:
            thread.join()
        best = min(best, time.perf_counter() - clock)
    return float(cost.nbytes / best)


def run(settings: BenchSettings, log: Log) -> None:
    """Each number of threads in turn; the streaming read before and after."""
    for n, seed in itertools.product(settings.bandwidth_sizes, range(settings.bandwidth_seeds)):
        keys = [(NAME, CLASS, n, seed, SOLVER, count) for count in settings.thread_counts]
        missing = log.missing(keys)
        if missing and not enough_memory(8.0 * n * n):
            print(f"{NAME}: left out, {8e-9 * n * n:.1f} GB of free memory are not there")
        elif missing:
            cost = matrix(CLASS, n, seed)
            for key in missing[::-1] if seed % 2 else missing:
                warm(CLASS, threads=key[5], **SSP)
                log.add(key, **_rates(cost, key[5]))
            del cost  # before the next one is made: each may take most of the memory


def _rates(cost: Array, threads: int) -> dict[str, float]:
    before = bytes_per_second(cost, threads)
    result, seconds = timed(cost, threads=threads, **SSP)
    after = bytes_per_second(cost, threads)
    stats = result.stats
    search, skipped = stats["seconds"]["search"], stats["pairs_skipped"] * cost.itemsize
    scanned = stats["rows_scanned"] * cost[0].nbytes
    return {
        "seconds": seconds,
        "search_seconds": search,
        "rows_scanned": stats["rows_scanned"],
        "scanned_rate": scanned / search,
        "read_rate": (scanned - skipped) / search,
        "streaming_rate": max(before, after),
    }


def render(log: Log) -> list[Block]:
    """One line a number of threads and size."""
    rows = []
    for n in log.distinct("n", experiment=NAME):
        for count in sorted(log.distinct("threads", experiment=NAME, n=n)):
            scanned, read, streamed = (
                middle(log.values(f"{kind}_rate", experiment=NAME, n=n, threads=count)) or 0.0
                for kind in ("scanned", "read", "streaming")
            )
            share = 100 * scanned / streamed if streamed else None
            met = verdict(share, BAR, at_most=False, judged=log.judged)
            rows.append(
                f"{count} | {n:,} | {8e-9 * n * n:.2f} GB | {scanned / 1e9:.1f} GB/s"
                f" | {read / 1e9:.1f} GB/s | {streamed / 1e9:.1f} GB/s"
                f" | {DASH if share is None else f'{share:.0f} %'} | {met}"
            )
    head = "threads | n | matrix | scanned in the search | of that read | streaming read | share"
    note = (
        "The search's seconds hold everything between its first and its last scan: dual updates,"
        " augmentations, calls. Scanned is every pair of the rows scanned; stretches of a row that"
        " cannot matter to its search are decided without being read. The streaming read sums the"
        " same matrix with as many threads; share: of scanned."
    )
    return [table(f"{head} | bar {BAR:.0f} %", rows), note]
