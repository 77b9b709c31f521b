"""Freeze what solves give and what they count, to compare a refactoring with.

``python tests/support/frozen.py write FILE`` solves 1,000 small seeded problems of many families by one
thread and writes what each gave; ``python tests/support/frozen.py compare FILE`` solves them again, prints
which families changed in what, and exits 1 if a result changed. Processor times of a few fixed
problems are printed as ratios; they decide nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap.types import Array

COUNT = 1000
#: Of stats, what a machine decides: its memory, its clock.
MACHINE = ("peak_bytes", "seconds", "gaps", "why")
#: How much a fixed problem is repeated; the least time counts.
REPEATS = 5
# Two streams of numbers a problem: what it is, and its costs.
_CHOICES, _COSTS = 41, 42

# Only sums and products of random numbers: their bits are the same on every machine.
KINDS: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "uniform": lambda r, n, m: r.random((n, m)),
    "power": lambda r, n, m: r.random((n, m)) ** 2 * r.random((n, m)) ** 2,
    "whole": lambda r, n, m: r.integers(0, 10 ** int(r.integers(1, 7)), (n, m)),
    "few": lambda r, n, m: r.integers(0, 4, (n, m)),
    "negative": lambda r, n, m: r.integers(-(n * m), n * m, (n, m)),
    "terms": lambda r, n, m: r.random((n, m)) + 5 * r.random((n, 1)) + 5 * r.random((1, m)),
    "plane": lambda r, n, m: squares(r.random((n, 2)), r.random((m, 2))),
    "apart": lambda r, n, m: squares(r.random((n, 2)), r.random((m, 2)) + 1),
    "clusters": lambda r, n, m: squares(gathered(r, n, 5), gathered(r, m, 5)),
    "lattice": lambda r, n, m: squares(r.integers(0, 9, (n, 2)), r.integers(0, 9, (m, 2))),
    "curve": lambda r, n, m: squares(curved(r, n), curved(r, m)),
    "noisy": lambda r, n, m: squares(curved(r, n), curved(r, m)) + 1e-2 * r.random((n, m)),
    "rank1": lambda r, n, m: r.random((n, 1)) * r.random((1, m)),
    "rank2": lambda r, n, m: r.random((n, 1)) * r.random((1, m)) + r.random((n, 1)) * r.random(m),
    "table": lambda r, n, m: r.random((9, 9))[np.ix_(r.integers(0, 9, n), r.integers(0, 9, m))],
    "offset": lambda r, n, m: 2.0**30 + r.random((n, m)),
}
METHODS = ("auto", "ssp", "compressed", "hungarian", "auction")
SHAPES = {"square": (1.0, 1.0), "wide": (0.7, 1.3), "tall": (1.3, 0.7)}
DTYPES = ("float64", "float64", "float32", "int64")
SOURCES = ("matrix",) * 5 + ("points", "lowrank", "function", "rows")
STARTS = ("auto", "auto", "auto", "none", "estimate", "levels")


def squares(x: Array, y: Array) -> Array:
    """(n, m) squared distances."""
    return sum((x[:, None, k] - y[None, :, k]) ** 2 for k in range(x.shape[1]))


def gathered(rng: np.random.Generator, n: int, d: int) -> Array:
    """(n, d) points in eight clusters that all draws share."""
    centres = np.random.default_rng(1).random((8, d))
    return centres[rng.integers(0, 8, n)] + rng.random((n, d)) / 64


def curved(rng: np.random.Generator, n: int) -> Array:
    """(n, 3) points on a cubic curve."""
    t = 2 * rng.random((n, 1)) - 1
    return np.hstack([t, t * t, t * t * t])


def difference(i: Array, j: Array) -> Array:
    """Costs of a Python function: whole numbers without an order of their own."""
    return (i * 7919 + j * 104729 + i * j) % 1009


class Rows:
    """Costs that only Python reads."""

    def __init__(self, costs: Array) -> None:
        self.costs, self.shape, self.dtype = costs, costs.shape, costs.dtype

    def read(self, rows: Array, columns: slice, out: Array) -> None:
        """Copy the rows."""
        out[:] = self.costs[rows, columns]


def costs_of(source: str, kind: str, dtype: str, n: int, m: int, seed: int) -> Any:
    """The costs of one problem, of any source."""
    rng = np.random.default_rng([seed, _COSTS])
    if source == "points":
        return bigsap.points(gathered(rng, n, 2), rng.random((m, 2)))
    if source == "lowrank":
        return bigsap.lowrank(rng.random((n, 3)), rng.random((m, 3)))
    if source == "function":
        return bigsap.from_function(difference, (n, m))
    cost = KINDS[kind](rng, n, m)
    if dtype == "int64" and cost.dtype.kind == "f":
        cost = np.floor(cost * 4096)
    cost = cost.astype(dtype)
    return Rows(cost) if source == "rows" else cost


def problems() -> Iterator[tuple[str, Any, dict[str, Any], bool]]:
    """Name, costs, options, and whether the solve is stopped once; a name begins with a family."""
    for seed in range(COUNT):
        rng = np.random.default_rng([seed, _CHOICES])
        kind, method = list(KINDS)[seed % len(KINDS)], METHODS[seed // len(KINDS) % len(METHODS)]
        shape, source = str(rng.choice(list(SHAPES))), str(rng.choice(SOURCES))
        dtype = str(rng.choice(DTYPES))
        size = int(np.rint(4 * 100 ** rng.random()))
        n, m = (max(1, int(size * share)) for share in SHAPES[shape])
        cost = costs_of(source, kind, dtype, n, m, seed)
        options: dict[str, Any] = {"method": method, "maximize": bool(rng.random() < 0.25)}
        if rng.random() < 0.2:
            options["certify"] = False
        start = str(rng.choice(STARTS))
        if start != "auto" and method in ("auto", "ssp", "compressed"):
            options["start"] = start
        if rng.random() < 0.15:
            options["unassigned_cost"] = 40 if dtype == "int64" or source == "function" else 0.25
        elif isinstance(cost, np.ndarray) and cost.dtype.kind == "f" and rng.random() < 0.2:
            share = 1 - 0.5 ** (1 + 5 * rng.random())
            cost[rng.random(cost.shape) < share] = np.inf * (-1 if options["maximize"] else 1)
        elif rng.random() < 0.1:
            options["warm_start"] = rng.random(cost.shape[1])
        stopped = seed % 25 == seed // 80
        family = f"{method} {kind if source in ('matrix', 'rows') else source}"
        yield f"{family} #{seed} {source} {shape} {dtype} {size}", cost, options, stopped


def told(solve: Callable[[], bigsap.Result]) -> dict[str, Any]:
    """What one solve gave: ``result`` and ``counts``; or its error."""
    try:
        found = solve()
    except bigsap.BigsapError as error:
        return {"result": f"{type(error).__name__}: {error}", "counts": {}}
    digest = hashlib.blake2b(digest_size=12)
    for values in (found.col4row, found.u, found.v, found.u_low, found.v_low):
        digest.update(b"-" if values is None else np.ascontiguousarray(values).tobytes())
    fun = found.fun.hex() if isinstance(found.fun, float) else str(found.fun)
    result = {"digest": digest.hexdigest(), "fun": fun, "status": str(found.status)}
    return {"result": result, "counts": dict(counts({**found.stats}))}


def counts(stats: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Whole numbers and words of stats, by their path."""
    if isinstance(stats, (dict, list)):
        for key, value in stats.items() if isinstance(stats, dict) else enumerate(stats):
            if key not in MACHINE:
                yield from counts(value, f"{name}.{key}" if name else str(key))
    elif isinstance(stats, (int, str)):
        yield name, stats


def solve_stopped(cost: Any, options: dict[str, Any]) -> bigsap.Result:
    """Solve, stop in the first phase or later, and resume."""

    def stop(state: bigsap.Progress) -> None:
        if state.phase > 0:
            raise StopIteration

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        first = bigsap.solve(cost, checkpoint=path, callback=stop, callback_rows=8, **options)
        if str(first.status) != "cancelled" or not path.exists():
            return first
        given = {k: v for k, v in options.items() if k not in ("method", "maximize", "start")}
        return bigsap.resume(path, cost, **given)


def timed() -> Iterator[tuple[str, Callable[[], bigsap.Result]]]:
    """A few larger problems, by what takes their time."""
    for name, kind, n, m, method in (
        ("whole rows", "uniform", 900, 900, "ssp"),
        ("whole rows, wide", "power", 700, 900, "ssp"),
        ("lists", "apart", 1600, 1600, "compressed"),
        ("lists, wide", "rank2", 900, 1300, "compressed"),
        ("tight pairs", "few", 1600, 1600, "auto"),
        ("noisy curve", "noisy", 1600, 1600, "auto"),
        ("trees", "whole", 1600, 1600, "hungarian"),
        ("small", "uniform", 200, 200, "auto"),
    ):
        cost = costs_of("matrix", kind, "float64", n, m, 0)
        yield name, lambda c=cost, how=method: bigsap.solve(c, method=how, threads=1)
    x, y = np.random.default_rng(0).random((2, 12000, 2))
    source = bigsap.points(x, y + np.array([1, 0]))
    yield "points", lambda: bigsap.solve(source, threads=1)


def measure() -> dict[str, Any]:
    """What ``write`` writes."""
    cases = {}
    for name, cost, options, stopped in problems():
        if options["method"] != "auto" or len(name) % 2:  # as a plain call, or with an option
            options["threads"] = 1
        cases[name] = told(
            lambda c=cost, o=options, s=stopped: solve_stopped(c, o) if s else bigsap.solve(c, **o)
        )
        if stopped:
            cases[name]["counts"] = {}  # where it stops the clock decides
    times = {}
    for name, solve in timed():
        cases[f"large {name} #"] = told(solve)
        took = []
        for _ in range(REPEATS):
            clock = time.process_time()
            solve()
            took.append(time.process_time() - clock)
        times[name] = min(took)
    return {"cases": cases, "times": times}


def compare(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Print what differs; whether any result does."""
    table: dict[str, list[list[str]]] = {}
    for name in {**before["cases"], **now["cases"]}:
        old, new = (part["cases"].get(name, {"result": None, "counts": {}}) for part in (before, now))
        results, numbers = table.setdefault(name.split(" #")[0], [[], []])
        if old["result"] != new["result"]:
            results.append(f"{name}: {old['result']} -> {new['result']}")
        keys = {**old["counts"], **new["counts"]}
        moved = [k for k in keys if old["counts"].get(k) != new["counts"].get(k)]
        numbers.extend(f"{k} {old['counts'].get(k)} -> {new['counts'].get(k)}" for k in moved[:3])
    for family, (results, numbers) in sorted(table.items()):
        if results or numbers:
            print(f"{family:24} {len(results)} results, {len(numbers)} counts", *numbers[:3], sep="; ")
            print(*results[:3], sep="\n", end="\n" if results else "")
    for name, seconds in now["times"].items():
        print(f"{name:20} {seconds:8.4f} s, ratio {seconds / before['times'].get(name, seconds):.3f}")
    changed = sum(len(results) for results, _ in table.values())
    print(
        f"{len(now['cases'])} solves, {changed} results changed, "
        f"{sum(bool(n) for _, n in table.values())} families with other counts"
    )
    return changed > 0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    if chosen.what == "write":
        chosen.file.write_text(json.dumps(measure(), indent=1))
    elif compare(json.loads(chosen.file.read_text()), measure()):
        sys.exit(1)


if __name__ == "__main__":
    main()
