"""Bytes of costs scanned per second of search, against what the memory can deliver."""

from __future__ import annotations

from benchmarks.bench_settings import BenchSettings
from benchmarks.costs import matrix
from benchmarks.machine import enough_memory
from benchmarks.measure import timed, warm
from benchmarks.records import Log
from benchmarks.report import middle, table, verdict
from benchmarks.streaming import bytes_per_second

NAME = "bandwidth"
TITLE = "Scanning a matrix out of cache, against the machine's streaming read"
BAR = 80.0
CLASS = "random"
SOLVER = "bigsap ssp"


def run(settings: BenchSettings, log: Log) -> None:
    """Each number of threads in turn; the streaming read before and after."""
    counts = settings.thread_counts
    for n in settings.bandwidth_sizes:
        if not enough_memory(8.0 * n * n):
            print(f"{NAME}: left out, {8e-9 * n * n:.1f} GB of free memory are not there")
            continue
        for seed in range(settings.bandwidth_seeds):
            missing = [c for c in counts if not log.has(NAME, CLASS, n, seed, SOLVER, c)]
            if not missing:
                continue
            warm(CLASS, counts, method="ssp", start="estimate", certify=False)
            cost = matrix(CLASS, n, seed)
            for count in missing[::-1] if seed % 2 else missing:
                before = bytes_per_second(cost, count)
                result, seconds = timed(cost, method="ssp", start="estimate", threads=count, certify=False)
                after = bytes_per_second(cost, count)
                search = result.stats["seconds"]["search"]
                scanned = result.stats["rows_scanned"] * n * cost.itemsize
                skipped = result.stats["pairs_skipped"] * cost.itemsize
                log.add(
                    NAME,
                    CLASS,
                    n,
                    seed,
                    SOLVER,
                    count,
                    seconds=seconds,
                    search_seconds=search,
                    rows_scanned=result.stats["rows_scanned"],
                    scanned_rate=scanned / search,
                    read_rate=(scanned - skipped) / search,
                    streaming_rate=max(before, after),
                )
            del cost  # before the next one is made: each may take most of the memory


def render(settings: BenchSettings, log: Log) -> str:
    """One line a number of threads and size."""
    rows = []
    for n in log.distinct("n", experiment=NAME):
        for count in sorted(log.distinct("threads", experiment=NAME, n=n)):
            here = {"experiment": NAME, "n": n, "threads": count}
            scanned = middle(log.values("scanned_rate", **here)) or 0.0
            streamed = middle(log.values("streaming_rate", **here)) or 0.0
            read = middle(log.values("read_rate", **here)) or 0.0
            share = 100 * scanned / streamed if streamed else None
            rows.append(
                [
                    str(count),
                    f"{n:,}",
                    f"{8e-9 * n * n:.2f} GB",
                    f"{scanned / 1e9:.1f} GB/s",
                    f"{read / 1e9:.1f} GB/s",
                    f"{streamed / 1e9:.1f} GB/s",
                    "-" if share is None else f"{share:.0f} %",
                    verdict(share, BAR, at_most=False, judged=log.judged),
                ]
            )
    head = [
        "threads",
        "n",
        "matrix",
        "scanned in the search",
        "of that read",
        "streaming read",
        "share",
        f"bar {BAR:.0f} %",
    ]
    note = (
        "The search's seconds hold everything between its first and its last scan: dual updates,"
        " augmentations, calls. Scanned is every pair of the rows scanned; stretches of a row that"
        " cannot matter to its search are decided without being read. The streaming read sums the"
        " same matrix with as many threads; share: of scanned."
    )
    return f"{table(head, rows)}\n\n{note}"
