"""One solve over the workers of a cluster: a cost function of 20 us a pair, then a zarr store.

The function holds the interpreter's lock, so that threads would not help. Workers are processes of
this machine here; with the address of a scheduler (`--scheduler`) they are those of a Dask
cluster. The store is written in shards, which workers read side by side; on several
machines it lies where all of them see it. Needs `pip install "bigsap[cluster,zarr]"`.

    python examples/cluster.py                           # n = 300
    python examples/cluster.py --full --workers 12       # n = 10,000: 2,000 s of one core

Every result has the bits of the first: of the same costs without the simulation, which one machine
has in a minute at any size.

Measured on 16 cores of a server: n = 10,000 on 12 workers 182.5 s, 10.96 times as fast as the
2,000 s that the function alone takes of one thread; on 32 cores 4 workers 527.6 s, 3.79 times; on
two cores with other work beside 1 and 2 workers 2,265 and 1,259 s, 0.88 and 1.59 times. On two
quiet cores n = 4,000 on 2 workers 1.71 times;
n = 400 on 1, 2 and 4 workers 0.87, 1.42 and 1.91 times, since each worker takes half a second to
begin with; shards of 1.3 MB in all 0.2 times: what takes microseconds a row does not pay.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import zarr

import bigsap


def simulated(i: int, x: np.ndarray, y: np.ndarray, seconds: float) -> np.ndarray:
    """One row of costs: distances, and what a simulation of each pair would take of a core."""
    until = time.thread_time() + seconds * len(y)
    costs = np.sqrt(((x[i] - y) ** 2).sum(axis=1))
    while time.thread_time() < until:
        pass
    return costs


def in_shards(store: Path, x: np.ndarray, y: np.ndarray) -> Path:
    """The distances, in chunks of whole rows, eight of them in a file."""
    n = len(x)
    rows = max(1, min(n // 32, (4 << 20) // (8 * n)))
    array = zarr.create_array(store, shape=(n, n), dtype="float64", chunks=(rows, n), shards=(8 * rows, n))
    for start in range(0, n, 8 * rows):
        block = x[start : start + 8 * rows, None] - y
        array[start : start + len(block)] = np.sqrt((block**2).sum(axis=2))
    return store


def compared(seconds: float, one: float) -> str:
    """How the seconds compare: small problems take a cluster longer, since messages cost more than rows."""
    if seconds <= one:
        return f"{one / seconds:.2f} times as fast as"
    return f"too small to gain: {seconds / one:.2f} times as long as"


def told(name: str, result: bigsap.Result, seconds: float, first: bigsap.Result, one: float) -> None:
    """One line of what a cluster did. one: seconds that a thread of one machine takes."""
    same = all(
        getattr(result, part).tobytes() == getattr(first, part).tobytes() for part in ("col4row", "u", "v")
    )
    did = result.stats["cluster"]
    print(
        f"{name}: {seconds:.2f} s, {did['threads']} workers, {compared(seconds, one)} one thread,"
        f" {did['rows_asked']:,} rows evaluated,"
        f" {'the same bits' if same else 'ANOTHER RESULT'}",
        flush=True,
    )


def main(n: int, micro: float, workers: list[int], scheduler: str | None, shards: bool = True) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((n, 2)), rng.random((n, 2))

    def costs(seconds: float) -> bigsap.CostSource:
        return bigsap.from_function(simulated, (n, n), (x, y, seconds), kind="row")

    first = bigsap.solve(costs(0.0))
    one = n * n * micro * 1e-6
    by = "at least, without a search"
    if one < 60:
        first, one = timed(costs(micro * 1e-6))
        by = "measured"
    print(f"n = {n:,}, cost {first.fun:.9g}; one machine: {one:.2f} s, {by}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if shards:
            store = in_shards(Path(folder) / "costs.zarr", x, y)
            read, here = timed(store)
            print(f"the shards on one machine: {here:.2f} s", flush=True)
        for count in workers:
            with running(count, scheduler) as client:
                result, seconds = timed(costs(micro * 1e-6), cluster=client)
                told("function", result, seconds, first, one)
                if shards:
                    result, seconds = timed(store, cluster=client)
                    told("shards", result, seconds, read, here)


def timed(cost: Any, **options: Any) -> tuple[bigsap.Result, float]:
    """A result, and the seconds that it took."""
    clock = time.perf_counter()
    result = bigsap.solve(cost, **options)
    return result, time.perf_counter() - clock


def running(count: int, scheduler: str | None) -> distributed.Client:
    """The workers of a scheduler, or so many processes of this machine."""
    if scheduler is not None:
        return distributed.Client(scheduler)
    return distributed.Client(
        n_workers=count, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--micro", type=float, default=20.0, help="microseconds a pair")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--scheduler", help="use the workers of this one")
    parser.add_argument("--no-shards", action="store_true", help="the function alone")
    parser.add_argument("--full", action="store_true", help="n = 10,000: 2,000 s of one core, each time")
    chosen = parser.parse_args()
    n = 10_000 if chosen.full else chosen.n
    main(n, chosen.micro, chosen.workers, chosen.scheduler, not chosen.no_shards)
