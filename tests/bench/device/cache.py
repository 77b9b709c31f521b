"""What the row cache in device memory saves: a host matrix that the device may not hold whole.

``python cache.py [n]``: 16,384 x 16,384 float64 costs (2 GiB) on the host. ``memory_limit`` of
a quarter and of half of them, with slots and without (a cache of one row), and no limit.
``python cache.py n rows``: the same rows through Python, twice, and nothing else.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import figures
import numpy as np

import bigsap


def report(name: str, cost: Any, **options: Any) -> None:
    try:
        result = bigsap.solve(cost, device="cuda", **options)
    except Exception as error:  # noqa: BLE001 - the next figure is still wanted
        figures.line(name, "FAILED", type(error).__name__, str(error)[:300])
        return
    stats, seconds = result.stats, result.stats["seconds"]
    figures.line(
        f"{name}: start {seconds['start']:.3f} search {seconds['search']:.3f} cert"
        f" {seconds['certificate']:.3f} total {seconds['total']:.3f} | copied"
        f" {stats['copied_bytes'] / 2**30:.3f} GiB hits {stats['cache_hits']} misses"
        f" {stats['cache_misses']} slots {stats['cache_slots']} {stats['cache_policy']} |"
        f" rows {stats['rows_evaluated']} scans {stats['rows_scanned']} {stats['method']}"
        f" {result.status} fun {result.fun!r}"
    )


def family(kind: str, n: int) -> np.ndarray:
    import cupy

    if kind != "disjoint":
        costs = figures.family(kind, n, cupy).get()
    else:
        g = cupy.random.default_rng(1)
        x, y = g.random((n, 2)), g.random((n, 2))
        x[n // 2 :] += 1
        y[: n // 2, 1] += 1
        y[n // 2 :, 0] += 1
        there = (x[:, 0, None] - y[None, :, 0]) ** 2
        there += (x[:, 1, None] - y[None, :, 1]) ** 2
        costs = there.get()
    cupy.get_default_memory_pool().free_all_blocks()
    found: np.ndarray = costs
    return found


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 16384
    clock = time.perf_counter()
    small = family("geometric", min(n, 2500))
    by_rows = bigsap.from_function(lambda i: small[i], small.shape, kind="row")
    report("first use", by_rows, memory_limit=small.nbytes // 2)
    if sys.argv[2:] == ["rows"]:
        costs = family("geometric", n)
        figures.line(f"compiled in {time.perf_counter() - clock:.0f} s")
        for _ in range(2):
            through_python("geometric", costs)
        return
    # Everything compiled before: lists whole, streamed and through slots, whole rows.
    for options in ({"method": "compressed"}, {"memory_limit": small.nbytes // 2}, {"method": "ssp"}):
        report("first use", small, **options)
    figures.line(f"compiled in {time.perf_counter() - clock:.0f} s")
    for kind in ("geometric", "disjoint", "random"):
        costs = family(kind, n)
        for name, limit in (("quarter", costs.nbytes // 4), ("half", costs.nbytes // 2)):
            report(f"{kind} {name}", costs, memory_limit=limit)
            report(f"{kind} {name}, no slots", costs, memory_limit=limit, cache=8 * n)
        report(f"{kind} no limit, compressed", costs, method="compressed")
        report(f"{kind} no limit", costs)
        if kind == "geometric":
            through_python(kind, costs)
        figures.line(f"{time.perf_counter() - clock:.0f} s")


def through_python(kind: str, costs: np.ndarray) -> None:
    read = bigsap.from_function(lambda i: costs[i], costs.shape, kind="row")
    for name, cache in (("", None), (", no slots", costs.nbytes // len(costs))):
        limit = costs.nbytes // 2
        report(f"{kind} half, rows by Python{name}", read, memory_limit=limit, cache=cache)


if __name__ == "__main__":
    main()
