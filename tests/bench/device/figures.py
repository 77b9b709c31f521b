"""Figures of the device methods, one line each, the most wanted first.

``python figures.py one`` on a host with a GPU, ``two`` on one with several, ``points N`` for
the curve of large point sets,
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
    if kind == "rank2":
        return g.random((n, 2)) @ g.random((2, n))
    if kind.startswith("int"):
        high = round(float(kind[3:]) * n)
        if xp is np:
            return g.integers(0, high + 1, (n, n), dtype=np.int32)
        return xp.random.randint(0, high + 1, (n, n), dtype=np.int32)
    raise ValueError(kind)


def disjoint(n: int) -> Any:
    g = np.random.default_rng(1)
    half = n // 2
    x, y = g.random((n, 2)), g.random((n, 2))
    x[half:] += 1
    y[:half, 1] += 1
    y[half:, 0] += 1
    return bigsap.points(x, y)


def whole_rows(costs: Any, device: str = "cuda") -> bigsap.Result:
    return bigsap.solve(costs, device=device, method="ssp")


def one(cupy: Any) -> None:
    n = 16384
    for device in ("cuda", "cuda:0,0"):
        there = family("random", n, cupy)
        attempt(
            f"U {n} {device}", lambda c=there, d=device: bigsap.solve(c, device=d, method="ssp")
        )
    del there
    for size in (8192, 16384):
        for kind in ("int0.1", "int1", "int4"):
            there = family(kind, size, cupy)
            here = there.get()
            attempt(f"{kind} {size} device", lambda c=there: bigsap.solve(c, device="cuda"), 3)
            if size == 8192:
                attempt(f"{kind} {size} device, from host",
                        lambda c=here: bigsap.solve(c, device="cuda"))  # fmt: skip
                attempt(f"{kind} {size} device ssp", lambda c=there: whole_rows(c), 1)
            attempt(f"{kind} {size} cpu", lambda c=here: bigsap.solve(c), 3 if size == 8192 else 2)
    for kind in ("geometric", "int1000"):
        there = family(kind, n, cupy)
        attempt(f"{kind} {n}", lambda c=there: bigsap.solve(c, device="cuda", method="ssp"))
    del there, here
    through_host(cupy, "cuda:0,0", 8192)


def through_host(cupy: Any, device: str, n: int) -> None:
    """The exchange by way of host memory."""
    from bigsap.engine.gpu import device_engine as gpu
    from bigsap.engine.gpu import shares as gpu_parts

    usual = gpu.Exchange

    class Through(gpu_parts.Exchange):
        def __init__(self, parts: list[Any], way: str | None = None) -> None:
            super().__init__(parts, "host" if len(parts) > 1 else None)

    gpu.Exchange = Through  # type: ignore[misc]
    there = family("random", n, cupy)
    attempt(f"U {n} {device} host memory",
            lambda: bigsap.solve(there, device=device, method="ssp"), 1)  # fmt: skip
    gpu.Exchange = usual  # type: ignore[misc]


def two(cupy: Any) -> None:
    count = cupy.cuda.runtime.getDeviceCount()
    reach = [[cupy.cuda.runtime.deviceCanAccessPeer(a, b) for b in range(count) if b != a]
             for a in range(count)]  # fmt: skip
    line("devices", count, "peers", reach)
    for n in (16384, 32768, 65536):
        there = family("random", n, cupy)
        for device in ("cuda:0,1", "cuda"):
            attempt(f"U {n} {device}",
                    lambda c=there, d=device: bigsap.solve(c, device=d, method="ssp"),
                    2 if n < 65536 else 1)  # fmt: skip
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
                attempt(f"{kind} {size} device", lambda c=there: bigsap.solve(c, device="cuda"),
                        times)  # fmt: skip
                attempt(f"{kind} {size} cpu", lambda c=here: bigsap.solve(c, device="cpu"),
                        times)  # fmt: skip
            if kind == "int0.1":
                profile(lambda c=there: bigsap.solve(c, device="cuda"))
            del there, here
            cupy.get_default_memory_pool().free_all_blocks()


def methods(cupy: Any) -> None:
    """Where lists searched by the host's core beat whole rows scanned on the device."""
    for size in (8192, 16384):
        for kind in ("random", "int1000", "int10"):
            there = family(kind, size, cupy)
            here = there.get()
            for turn in range(2):
                for method in ("auto", "compressed", "ssp"):
                    attempt(f"{kind} {size} device {method}",
                            lambda c=there, m=method: bigsap.solve(c, device="cuda", method=m),
                            3 - turn)  # fmt: skip
                attempt(f"{kind} {size} cpu", lambda c=here: bigsap.solve(c, device="cpu"),
                        3 - turn)  # fmt: skip


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
        n = int(sys.argv[2])
        result = attempt(f"disjoint {n}", lambda: bigsap.solve(disjoint(n), device="cuda"), 1)
        if result is not None:
            line("  rows evaluated / n", result.stats["rows_evaluated"] / n,
                 "scans / n", result.stats["rows_scanned"] / n)  # fmt: skip
    else:
        parts = (one, two, beside, methods)
        {part.__name__: part for part in parts}[sys.argv[1]](cupy)
    line(f"{sys.argv[1]} took {time.perf_counter() - clock:.0f} s")


if __name__ == "__main__":
    main()
