"""Figures of the Hungarian method on a device: python trees.py bars|classical|proof|crossings|...

Prints what it measures; nothing is judged. The costs are made on the device.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from typing import Any

import cupy
import numpy as np

import bigsap

SHARES = (0.1, 1, 10)
SIZES = (4096, 8192, 16384, 32768)


def costs(n: int, share: float, seed: int = 1, dtype: Any = np.int32) -> Any:
    return cupy.random.RandomState(seed).randint(0, int(share * n) + 1, (n, n)).astype(dtype)


def milliseconds(cost: Any, count: int = 5, **options: Any) -> tuple[dict[str, float], Any]:
    """Least of so many calls: in all, start and search, certificate."""
    best: dict[str, float] = {}
    for _ in range(count):
        cupy.cuda.get_current_stream().synchronize()
        clock = time.perf_counter()
        result = bigsap.solve(cost, device="cuda", **options)
        spent = {"call": time.perf_counter() - clock}
        seconds = result.stats["seconds"]
        spent["solve"] = seconds["start"] + seconds["search"]
        spent["proof"] = seconds["certificate"]
        for name, value in spent.items():
            best[name] = round(min(best.get(name, 1e9), 1000 * value), 2)
    return best, result


def bars() -> None:
    for n in SIZES:
        for share in SHARES:
            cost = costs(n, share)
            bare, _ = milliseconds(cost, method="hungarian", certify=False)
            proved, result = milliseconds(cost, 3, method="hungarian")
            clock = time.perf_counter()
            for _ in range(10):
                cost.min()
            cupy.cuda.get_current_stream().synchronize()
            reading = round(100 * (time.perf_counter() - clock), 2)
            print(
                n,
                share,
                "bare",
                bare,
                "proved",
                proved,
                "a reading",
                reading,
                result.stats["trees"],
                result.gap,
                flush=True,
            )
            del cost
    profile = cProfile.Profile()
    cost = costs(4096, 0.1)
    profile.enable()
    for _ in range(5):
        bigsap.solve(cost, device="cuda", method="hungarian", certify=False)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(14)


def classical() -> None:
    """The classical method, beside the host's with two threads where that takes seconds."""
    for n in (1000, *SIZES[:3]):
        for share in SHARES:
            cost = costs(n, share)
            told = {"method": "hungarian", "variant": "classical", "certify": False}
            found, result = milliseconds(cost, 3, **told)
            here = None
            if n <= 4096:
                clock = time.perf_counter()
                same = bigsap.solve(cost.get(), threads=2, **told)
                here = round(1000 * (time.perf_counter() - clock))
                assert same.stats["trees"] == result.stats["trees"]
            print("classical", n, share, found, "host", here, result.stats["trees"], flush=True)


def proof() -> None:
    """Milliseconds of the certificate, and what they go into."""
    from bigsap.proof.certificate import certify
    from bigsap.sources.cuda.placed import device_array

    for n in SIZES:
        cost = costs(n, 1)
        source = device_array(cost)
        result = bigsap.solve(cost, device="cuda", method="hungarian")
        best: dict[str, float] = {}
        v = result.v.astype(np.int64)
        for _ in range(20):
            timed(best, "certify", certify, source, result.col4row, v)
            timed(best, "reading", cost.min)
        print("proof", n, best, flush=True)
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(20):
            certify(source, result.col4row, v)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(16)


def timed(best: dict[str, float], name: str, call: Any, *args: Any) -> Any:
    clock = time.perf_counter()
    found = call(*args)
    cupy.cuda.get_current_stream().synchronize()
    spent = 1000 * (time.perf_counter() - clock)
    best[name] = round(min(best.get(name, 1e9), spent), 3)
    return found


def parts() -> None:
    """Milliseconds of each part of the device's work."""
    from bigsap.engine.cuda import device_forest
    from bigsap.problem import Problem
    from bigsap.sources.cuda.placed import device_array

    def nothing(*_: Any) -> None:
        pass

    for n in SIZES:
        for share in SHARES:
            source = device_array(costs(n, share))
            best: dict[str, float] = {}
            told = None
            for _ in range(4):
                trees = device_forest.DeviceForest(Problem(source))
                (reading,) = trees.readings
                timed(best, "ends", reading.find_ends, True)
                timed(best, "prices", reading.lower_prices)
                timed(best, "lists", reading.make_lists)
                given = (reading.lists, reading.v, 1 << 15, nothing, nothing)
                told = timed(best, "trees", trees._trees, *given)[2]
            print("parts", n, share, best, told, flush=True)


def crossings() -> None:
    """What auto takes, and what each method takes, ms."""
    g = cupy.random.RandomState(3)
    for n in (2048, 4096, 8192):
        x, y, a, b = g.rand(n, 2), g.rand(n, 2), g.rand(n, 2), g.rand(2, n)
        far = ((x[:, None] - y[None]) ** 2).sum(2)
        kinds = {f"U 0..{s}n": costs(n, s) for s in (0.01, 0.1, 1, 10, 100, 1000, 10000)}
        kinds["U 0..n float64"] = costs(n, 1, dtype=np.float64)
        kinds["U[0,1)"] = g.rand(n, n)
        kinds |= {f"geometric to {s}": (s * far).astype(np.int32) for s in (100, 10000)}
        kinds |= {f"rank 2 to {s}": (s * (a @ b)).astype(np.int32) for s in (100, 10000)}
        for name, cost in kinds.items():
            told: dict[str, Any] = {}
            for method in ("auto", "hungarian", "compressed", "ssp"):
                options = {"time_limit": 0.6} if method != "auto" else {}
                found, result = milliseconds(cost, 2, method=method, certify=False, **options)
                told[method] = found["call"] if result.status == "optimal" else None
                if method == "auto":
                    told["takes"] = result.stats["method"]
            print(n, name, told, flush=True)


def host() -> None:
    """The CPU, two threads: U{0..n}, by what auto takes and by lists, ms."""
    for n in (1000, 16384):
        cost = costs(n, 1).get()
        for method in ("hungarian", "compressed", "hungarian", "compressed"):
            clock = time.perf_counter()
            result = bigsap.solve(cost, method=method, threads=2, certify=False)
            spent = time.perf_counter() - clock
            seconds = result.stats["seconds"]
            solve = seconds["start"] + seconds["search"]
            print("host", n, method, round(1000 * spent), round(1000 * solve), flush=True)


def messages() -> None:
    """Rows on two devices; and a message between them, by way of the host and directly."""
    for n in (8192, 16384, 32768):
        for share in SHARES:
            cost = costs(n, share)
            for devices in ("cuda:0", "cuda:0,1"):
                best: dict[str, float] = {}
                for _ in range(3):
                    clock = time.perf_counter()
                    result = bigsap.solve(cost, device=devices, method="hungarian", certify=False)
                    best["call"] = min(best.get("call", 1e9), time.perf_counter() - clock)
                    seconds = result.stats["seconds"]
                    spent = seconds["start"] + seconds["search"]
                    best["solve"] = min(best.get("solve", 1e9), spent)
                print(
                    n,
                    share,
                    devices,
                    {k: round(1000 * v, 2) for k, v in best.items()},
                    result.fun,
                    result.stats["trees"],
                    flush=True,
                )
    for size in (1, 1 << 16, 1 << 20, 1 << 26):
        with cupy.cuda.Device(0):
            here = cupy.zeros(size, np.uint8)
        with cupy.cuda.Device(1):
            best: dict[str, float] = {}
            for _ in range(20):
                timed(best, "direct", cupy.asarray, here)
                timed(best, "by the host", lambda given: cupy.asarray(given.get()), here)
        print("message", size, best, "ms", flush=True)


if __name__ == "__main__":
    {
        "bars": bars,
        "parts": parts,
        "crossings": crossings,
        "messages": messages,
        "host": host,
        "classical": classical,
        "proof": proof,
    }[sys.argv[1]]()
