"""A benchmark's log with a win, a loss, a draw by default, a wrong answer and a missed bar."""

from __future__ import annotations

from pathlib import Path

from benchmarks.records import Log

HEADER = {
    "cpu": "Some <b>CPU</b>",
    "cores": 4,
    "threads": 2,
    "memory_bytes": 2**34,
    "python": "3.11",
    "numpy": "2",
    "numba": "0.6",
    "bigsap": "0.1",
    "peers": {"scipy": "1", "lapx lapjv": None},
    "code": "abc",
    "scale": "full",
}
COUNTS = {"rows_scanned": 10, "rows_evaluated": 10, "pairs_evaluated": 10}


def mixed(folder: Path) -> Log:
    """Two classes at two sizes with one and two threads; points; scans of which some are many."""
    log = Log(folder / "runs.jsonl", HEADER)

    def race(cls: str, n: int, solver: str, threads: int, seconds: float, cost: float = 1.0) -> None:
        log.add(("peers", cls, n, 0, solver, threads), seconds=seconds, cost=cost, **COUNTS)

    for threads in (1, 2):
        for n in (1000, 4000):
            race("random", n, "bigsap auto", threads, 0.02 * n / 1000)
            race("rank1", n, "bigsap auto", threads, 0.5 * n / 1000)
            race("sanity", n, "bigsap auto", threads, 0.1)
    for n in (1000, 4000):
        race("random", n, "scipy", 1, 0.1 * n / 1000)  # 5 times slower than ours
        race("rank1", n, "scipy", 1, 0.2 * n / 1000)  # 2.5 times faster
        race("random", n, "wrong & fast", 1, 0.001, cost=2.0)
        log.add(("peers", "sanity", n, 0, "scipy", 1), timeout=4.0)
    for n, seconds in ((8000, 1.0), (16000, 3.0)):
        log.add(
            ("curve", "disjoint", n, 0, "bigsap auto", 2),
            seconds=seconds,
            stages={"start": 0.1, "search": 0.5, "certificate": 0.2},
            peak_bytes=5e8,
            gap=0.0,
            fun=1.0,
            status="optimal",
            **COUNTS,
        )
    for n, scans in ((1000, 12_000), (2000, 90_000)):  # the paper has 12,824 and 29,606
        log.add(("table1", "random", n, 0, "bigsap ssp", 1), phases=3, rows_scanned=scans)
    return log
