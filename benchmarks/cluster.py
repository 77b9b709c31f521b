"""How much faster W workers are, with a cost of some microseconds a pair.

    python -m benchmarks.cluster                  # W = 1, 2, 4, 8, 12; some four minutes
    python -m benchmarks.cluster --n 500 --workers 1 2
    python -m benchmarks.cluster --asleep         # what is lost to waiting, on few cores

Each pair takes its time of a processor, not of the clock: workers that share a core gain
nothing. ``kept``: all rows fit the memory of the search and are brought whole, compared with the
same solve in this process by one thread. ``lists``: they do not, and lists of them are brought,
compared with one worker. Clusters are started, and kernels loaded, before the clock runs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import bigsap
from bigsap.engine.core.team import available_threads
from bigsap.sources.cluster.workers import Workers
from bigsap.types import Array

WORKERS = (1, 2, 4, 8, 12)
#: Rows that the search may keep where it is to be sent lists.
_KEPT = 64
_KINDS = ("kept", "lists")


def row(i: int, x: Array, y: Array, seconds: float, asleep: bool) -> Array:
    """Squared distances of one point to all others, for so long a pair: at work, or asleep."""
    clock = time.perf_counter if asleep else time.thread_time
    until = clock() + seconds * len(y)
    costs: Array = ((x[i] - y) ** 2).sum(axis=1)
    if asleep:
        time.sleep(max(0.0, until - clock()))
    while clock() < until:
        pass
    return costs


def costs_of(n: int, seconds: float, asleep: bool = False) -> Any:
    """n x n costs of points in the plane, evaluated by Python."""
    generator = np.random.default_rng(n)
    x, y = generator.random((n, 2)), generator.random((n, 2))
    return bigsap.from_function(row, (n, n), (x, y, seconds, asleep), kind="row", compiled=False)


def solved(kind: str, cost: Any, cluster: Any = None) -> tuple[float, bigsap.Result]:
    """Seconds of one solve, and its result."""
    cache = None if kind == "kept" else _KEPT * 8 * cost.shape[1]
    clock = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bigsap.solve(cost, method="compressed", threads=1, cluster=cluster, cache=cache)
    return time.perf_counter() - clock, result


@contextmanager
def workers(count: int, n: int) -> Iterator[Any]:
    """A client of so many processes of one thread, with the kernels of ``n`` rows loaded."""
    with Workers("local", count) as crew:
        crew.client.wait_for_workers(count, timeout=120)
        for kind in _KINDS:
            solved(kind, costs_of(n, 0.0), crew.client)
        yield crew.client


def bits(result: bigsap.Result) -> str:
    """What two equal results have in common."""
    parts = (result.col4row, result.u, result.v)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def _each(told: dict[str, Any], name: str) -> int:
    """Bytes of these a row."""
    return int(told[f"{name}_bytes"] / max(1, told["rows"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where results differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=1500)
    parser.add_argument("--micro", type=float, default=20.0, help="microseconds a pair")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    parser.add_argument("--asleep", action="store_true", help="rows sleep, they need no core")
    chosen = parser.parse_args(arguments)
    n, seconds = chosen.n, chosen.micro * 1e-6
    print(f"n = {n:,}, {chosen.micro:g} us a pair, {available_threads()} cores", flush=True)
    for kind in _KINDS:
        solved(kind, costs_of(80, 0.0))
    cost = costs_of(n, seconds, chosen.asleep)
    base: dict[str, float] = {}
    seen: dict[str, set[str]] = {kind: set() for kind in chosen.kinds}
    if "kept" in chosen.kinds:
        base["kept"], result = solved("kept", cost)
        seen["kept"].add(bits(result))
        print(f"kept   one machine   {base['kept']:8.2f} s", flush=True)
    for count in sorted(chosen.workers):
        with workers(count, n) as client:
            for kind in chosen.kinds:
                took, result = solved(kind, cost, client)
                seen[kind].add(bits(result))
                base.setdefault(kind, took * count)
                told = result.stats["cluster"]
                faster = base[kind] / took
                print(
                    f"{kind:6} {count:2} workers    {took:8.2f} s  {faster:5.2f} times faster"
                    f" ({faster / count:4.2f} W)  busy {told['busy']:.1f} s, idle"
                    f" {told['idle']:.1f} s in {told['waves']} waves, {told['rows']:,} rows,"
                    f" {told['rows_asked']:,} asked, {_each(told, 'list')} B a list,"
                    f" {_each(told, 'sent')} B sent for it,"
                    f" search {result.stats['seconds']['search']:.2f} s",
                    flush=True,
                )
    same = all(len(found) == 1 for found in seen.values())
    print("the same bits everywhere" if same else "RESULTS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
