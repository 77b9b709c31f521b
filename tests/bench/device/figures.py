"""Figures of the device methods, one line each, the most wanted first.

``python figures.py matrices`` on a host with a GPU, ``two`` on one with several,
``points disjoint N`` for the curve of large point sets, ``threads`` for those of the host,
``beside`` for the device and the CPU of its host in turn, with what ``auto`` takes on each,
``methods`` for the two methods on the device and the CPU in turn.
Costs are on the device and the better of two runs counts;
"solve" is start + search without the certificate.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap


def line(*words: object) -> None:
    print(*words, flush=True)


def attempt(name: str, run: Callable[[], bigsap.Result], times: int = 2) -> bigsap.Result | None:
    """The better of some runs, told in a line; what goes wrong is told too."""
    best, best_seconds, result = np.inf, {}, None
    for _ in range(times):
        try:
            found = run()
        except Exception as error:  # noqa: BLE001 - the next figure is still wanted
            line(name, "FAILED", type(error).__name__, str(error)[:300])
            return None
        seconds = found.stats["seconds"]
        solve = seconds["start"] + seconds["search"]
        if solve < best:
            best, best_seconds, result = solve, seconds, found
    assert result is not None
    stats = result.stats
    scans = max(1, stats["rows_scanned"])
    line(
        f"{name}: solve {best:.3f} (start {best_seconds['start']:.3f}) total"
        f" {best_seconds['total']:.3f} cert {best_seconds['certificate']:.3f} scans {scans}"
        f" us/scan {1e6 * best_seconds['search'] / scans:.2f} {stats['method']} {stats['device']}"
        f" {result.status} fun {result.fun!r} gap {result.gap}"
    )
    return result


def family(kind: str, n: int, xp: Any) -> Any:
    """Costs made by numpy or CuPy."""
    g = xp.random.default_rng(1)
    if kind == "random":
        return g.random((n, n))
    if kind == "geometric":
        x, y = g.random((n, 2)), g.random((n, 2))
        out = (x[:, 0, None] - y[None, :, 0]) ** 2
        out += (x[:, 1, None] - y[None, :, 1]) ** 2
        return out
    if kind == "disjoint":
        x, y = g.random((n, 2)), g.random((n, 2))
        half = n // 2
        x[half:] += 1
        y[:half, 1] += 1
        y[half:, 0] += 1
        out = (x[:, 0, None] - y[None, :, 0]) ** 2
        out += (x[:, 1, None] - y[None, :, 1]) ** 2
        return out
    if kind == "clusters":
        middles = g.random((12, 5))
        x, y = (middles[xp.arange(n) % 12] + 0.03 * g.standard_normal((n, 5)) for _ in range(2))
        return (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    if kind == "rank2":
        return g.random((n, 2)) @ g.random((2, n))
    if kind.startswith("int"):
        high = round(float(kind[3:]) * n)
        if xp is np:
            return g.integers(0, high + 1, (n, n), dtype=np.int32)
        return xp.random.randint(0, high + 1, (n, n), dtype=np.int32)
    raise ValueError(kind)


def disjoint(n: int) -> Any:
    return plane("disjoint", n)


def plane(kind: str, n: int) -> Any:
    """Points of the plane, squared distances."""
    g = np.random.default_rng(1)
    x, y = g.random((n, 2)), g.random((n, 2))
    if kind == "disjoint":
        half = n // 2
        x[half:] += 1
        y[:half, 1] += 1
        y[half:, 0] += 1
    return bigsap.points(x, y)


def matrices(cupy: Any) -> None:
    """What auto takes for real costs and integers of a large range, and slabs of one device."""
    n = 16384
    for kind in ("geometric", "random", "int1000"):
        there = family(kind, n, cupy)
        attempt(f"{kind} {n}", lambda c=there: bigsap.solve(c, device="cuda"), 3)
        attempt(f"{kind} {n} bare", lambda c=there: bigsap.solve(c, device="cuda", certify=False), 2)
    there = family("random", n, cupy)
    for device in ("cuda", "cuda:0,0"):
        attempt(f"U {n} {device} ssp", lambda d=device: bigsap.solve(there, device=d, method="ssp"))


def points(kind: str, n: int) -> None:
    """Lists evaluated and proved on the device, searched by the host; a small one goes first."""
    bigsap.solve(plane(kind, 20_000), device="cuda")
    given = plane(kind, n)
    clock = time.perf_counter()
    result = attempt(f"{kind} {n}", lambda: bigsap.solve(given, device="cuda"), 1)
    if result is not None:
        stats = result.stats
        line(
            f"  all included {time.perf_counter() - clock:.2f} s, evaluations a row"
            f" {stats['rows_evaluated'] / n:.2f}, scans a row {stats['rows_scanned'] / n:.1f}",
            stats["seconds"],
        )


def threads() -> None:
    """Threads of the host: points, clusters and random numbers in memory."""
    g = np.random.default_rng(1)
    n = 16_000
    middles = g.random((12, 5))
    x = middles[g.integers(0, 12, n)] + 0.03 * g.standard_normal((n, 5))
    y = middles[g.integers(0, 12, n)] + 0.03 * g.standard_normal((n, 5))
    clusters = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    given = {
        "disjoint points 64000": disjoint(64_000),
        "clusters 16000": clusters,
        "random 16000": g.random((n, n)),
    }
    for name, cost in given.items():
        for count in (1, 2, 4, 8, 16):
            attempt(f"{name} threads {count}", lambda c=cost, t=count: bigsap.solve(c, threads=t), 1)


def through_host(cupy: Any, device: str, n: int) -> None:
    """The exchange by way of host memory."""
    from bigsap.engine.cuda import device_engine as gpu
    from bigsap.engine.cuda import shares as gpu_parts

    usual = gpu.Exchange

    class Through(gpu_parts.Exchange):
        def __init__(self, parts: list[Any], way: str | None = None) -> None:
            super().__init__(parts, "host" if len(parts) > 1 else None)

    gpu.Exchange = Through  # type: ignore[misc]
    there = family("random", n, cupy)
    attempt(f"U {n} {device} host memory", lambda: bigsap.solve(there, device=device, method="ssp"), 1)
    gpu.Exchange = usual  # type: ignore[misc]


def two(cupy: Any) -> None:
    count = cupy.cuda.runtime.getDeviceCount()
    reach = [
        [cupy.cuda.runtime.deviceCanAccessPeer(a, b) for b in range(count) if b != a] for a in range(count)
    ]
    line("devices", count, "peers", reach)
    for n in (16384, 32768, 65536):
        there = family("random", n, cupy)
        for device in ("cuda:0,1", "cuda"):
            attempt(
                f"U {n} {device}",
                lambda c=there, d=device: bigsap.solve(c, device=d, method="ssp"),
                2 if n < 65536 else 1,
            )
        del there
        cupy.get_default_memory_pool().free_all_blocks()


def beside(cupy: Any) -> None:
    kinds = ("int0.1", "int1", "random", "geometric", "int1000", "int10", "disjoint", "rank2")
    for size in (8192, 16384):
        for kind in kinds:
            there = family(kind, size, cupy)
            here = there.get()
            for turn in range(2):
                times = 3 if size == 8192 or kind == "int0.1" else 2 - turn
                attempt(f"{kind} {size} device", lambda c=there: bigsap.solve(c, device="cuda"), times)
                attempt(f"{kind} {size} cpu", lambda c=here: bigsap.solve(c, device="cpu"), times)
            if kind == "int0.1":
                profile(lambda c=there: bigsap.solve(c, device="cuda"))
            del there, here
            cupy.get_default_memory_pool().free_all_blocks()


def methods(cupy: Any) -> None:
    """Where lists searched by the host's core beat whole rows scanned on the device."""
    for size in (8192, 16384, 32768):
        for kind in ("geometric", "disjoint", "rank2", "clusters", "random", "int1000"):
            there = family(kind, size, cupy)
            for method in ("compressed", "ssp", "compressed", "ssp"):
                attempt(
                    f"{kind} {size} device {method}",
                    lambda c=there, m=method: bigsap.solve(c, device="cuda", method=m),
                    1,
                )
            del there
            cupy.get_default_memory_pool().free_all_blocks()


def profile(run: Callable[[], object]) -> None:
    """Where the host's time goes."""
    taken = cProfile.Profile()
    taken.runcall(run)
    pstats.Stats(taken, stream=sys.stdout).sort_stats("tottime").print_stats(14)
    sys.stdout.flush()


def main() -> None:
    import cupy

    clock = time.perf_counter()
    if sys.argv[1] == "points":
        points(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "threads":
        threads()
    else:
        parts = (matrices, two, beside, methods)
        {part.__name__: part for part in parts}[sys.argv[1]](cupy)
    line(f"{sys.argv[1]} took {time.perf_counter() - clock:.0f} s")


if __name__ == "__main__":
    main()
