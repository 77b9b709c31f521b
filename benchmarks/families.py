"""Random families of problems: classes that nobody tuned for, raced against other solvers.

``python -m benchmarks.families --seconds 3600 --out races.jsonl`` draws one problem after
another, solves it by ``auto``, by both methods and by the peers that are installed, one
thread each, and writes a line of JSON for each problem; ``--report races.jsonl`` prints the worst.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.peers import PEERS
from bigsap.types import Array

#: Families draw at most as many rows; the fewest.
MOST, LEAST = 4000, 1000
_METRICS = ("sqeuclidean", "euclidean", "cityblock", "chebyshev", "power", "cosine")
_PLACES = ("uniform", "normal", "clusters", "lognormal", "curve", "lattice", "shells")
_WORST = 20


def draw(seed: int, most: int = MOST) -> tuple[dict[str, Any], Array]:
    """What a problem is, in words and numbers, and its costs (n, m). Deterministic."""
    rng = np.random.default_rng([seed, 77])
    n = int(math.exp(rng.uniform(math.log(LEAST), math.log(most)))) if most > LEAST else most
    m = n if rng.random() < 0.8 else int(n * rng.uniform(0.7, 1.4))
    kind = rng.choice(["points", "points", "points", "rank", "random", "table"])
    facts: dict[str, Any] = {"seed": seed, "n": n, "m": m, "kind": str(kind)}
    make: dict[str, Callable[..., Array]] = {
        "points": _points,
        "rank": _rank,
        "random": _random,
        "table": _table,
    }
    cost = make[str(kind)](rng, n, m, facts)
    spread = float(cost.std()) or 1.0
    if rng.random() < 0.2:
        facts["noise"] = float(10 ** rng.uniform(-4, 0))
        cost += facts["noise"] * spread * rng.random(cost.shape)
    if rng.random() < 0.15:
        facts["levels"] = int(10 ** rng.uniform(1, 5))
        cost = np.rint(cost * (facts["levels"] / (np.abs(cost).max() or 1.0)))
    if rng.random() < 0.15:
        facts["offset"] = float(10 ** rng.uniform(0, 7))
        cost += facts["offset"] * spread
    if rng.random() < 0.1:
        facts["forbidden"] = float(rng.uniform(0.05, 0.7))
        cost[rng.random(cost.shape) < facts["forbidden"]] = np.inf
    return facts, np.ascontiguousarray(cost)


def _place(rng: np.random.Generator, how: str, n: int, d: int) -> Array:
    if how == "uniform":
        return rng.random((n, d))
    if how == "normal":
        return rng.standard_normal((n, d))
    if how == "clusters":
        centres = rng.random((int(rng.integers(2, 40)), d))
        return centres[rng.integers(0, len(centres), n)] + 10 ** rng.uniform(-3, -1) * rng.standard_normal(
            (n, d)
        )
    if how == "lognormal":
        return rng.lognormal(0, rng.uniform(0.5, 3), (n, d))
    if how == "curve":
        t = rng.random(n) * 2 * math.pi
        waves = rng.integers(1, 4, d)
        return np.sin(t[:, None] * waves + rng.random(d)) + 1e-3 * rng.standard_normal((n, d))
    if how == "lattice":
        return rng.integers(0, int(rng.integers(5, 60)), (n, d)).astype(float)
    x = rng.standard_normal((n, d))
    shells: Array = x / np.linalg.norm(x, axis=1, keepdims=True) * rng.integers(1, 4, (n, 1))
    return shells


def _points(rng: np.random.Generator, n: int, m: int, facts: dict[str, Any]) -> Array:
    d = int(rng.choice([1, 2, 2, 3, 3, 5, 8, 32]))
    how, metric = str(rng.choice(_PLACES)), str(rng.choice(_METRICS))
    # Both sides from one drawing: the same clusters, curves and scales.
    both = rng.permutation(_place(rng, how, n + m, d))
    x, y = both[:n], both[n:]
    facts |= {"place": how, "metric": metric, "d": d}
    if rng.random() < 0.4:
        facts["shift"] = float(rng.uniform(0, 2))
        y = y + facts["shift"] * x.std(axis=0)
    cost = np.empty((n, m))
    for i in range(n):
        gap = np.abs(y - x[i])
        if metric == "cosine":
            size = np.linalg.norm(y, axis=1) * np.linalg.norm(x[i]) + 1e-300
            cost[i] = 1 - (y @ x[i]) / size
        elif metric == "cityblock":
            cost[i] = gap.sum(axis=1)
        elif metric == "chebyshev":
            cost[i] = gap.max(axis=1)
        else:
            square = (gap**2).sum(axis=1)
            power = {"sqeuclidean": 1.0, "euclidean": 0.5}.get(metric)
            cost[i] = square ** (power or 0.2 + 2 * (facts["seed"] % 7) / 7)
    return cost


def _rank(rng: np.random.Generator, n: int, m: int, facts: dict[str, Any]) -> Array:
    k = int(rng.choice([1, 2, 3, 4, 8, 16, 64]))
    sign = bool(rng.random() < 0.5)
    facts |= {"rank": k, "signed": sign}
    a, b = (rng.standard_normal((size, k)) if sign else rng.random((size, k)) for size in (n, m))
    if rng.random() < 0.3:
        facts["scale"] = "lognormal"
        a, b = a * rng.lognormal(0, 2, (n, 1)), b * rng.lognormal(0, 2, (m, 1))
    found: Array = a @ b.T
    return found


def _random(rng: np.random.Generator, n: int, m: int, facts: dict[str, Any]) -> Array:
    how = str(rng.choice(["uniform", "exponential", "lognormal", "integers", "terms"]))
    facts["how"] = how
    if how == "integers":
        return rng.integers(0, int(10 ** rng.uniform(0.5, 7)), (n, m)).astype(float)
    if how == "terms":
        return rng.random((n, m)) + 5 * rng.random((n, 1)) + 5 * rng.random((1, m))
    if how == "uniform":
        return rng.random((n, m))
    return rng.exponential(1, (n, m)) if how == "exponential" else rng.lognormal(0, 2, (n, m))


def _table(rng: np.random.Generator, n: int, m: int, facts: dict[str, Any]) -> Array:
    k = int(rng.integers(2, 200))
    facts["classes"] = k
    values: Array = rng.random((k, k))[np.ix_(rng.integers(0, k, n), rng.integers(0, k, m))]
    return values


def race(seed: int, peers: tuple[str, ...], most: int = MOST) -> dict[str, Any]:
    """Solve one problem by all; seconds, counts of ``auto``, and who gave another optimum."""
    record, cost = draw(seed, most)
    largest = float(np.abs(cost[np.isfinite(cost)]).max())
    seconds: dict[str, float] = {}
    value: Any = None
    for name in ("auto", "compressed", "ssp"):
        clock = time.perf_counter()
        result = bigsap.solve(cost, threads=1, certify=False, method=name)
        seconds[name] = time.perf_counter() - clock
        if name == "auto":
            value, stats = result.fun, result.stats
            record |= {
                "status": str(result.status),
                "method": stats["method"],
                "first_prices": stats["first_prices"],
                "scans": stats["rows_scanned"] / record["n"],
                "evaluations": stats["rows_evaluated"] / record["n"],
                "pairs": stats["pairs_evaluated"] / cost.size,
            }
        elif value is not None and not math.isclose(
            float(result.fun or 0), value, rel_tol=1e-9, abs_tol=1e-9 * largest
        ):
            record["differs"] = name
    square = cost.shape[0] == cost.shape[1] and bool(np.isfinite(cost).all())
    for name in peers if square else ():
        solve = PEERS[name].load(1)
        prepared = PEERS[name].prepare(cost)
        clock = time.perf_counter()
        solve(prepared)
        seconds[name] = time.perf_counter() - clock
    return {**record, "seconds": {name: round(value, 4) for name, value in seconds.items()}}


def worst(records: list[dict[str, Any]], count: int = _WORST) -> list[tuple[float, dict[str, Any]]]:
    """Those where ``auto`` took longest in multiples of the best of all others."""
    found = []
    for record in records:
        times = dict(record["seconds"])
        own = times.pop("auto")
        found.append((own / min(times.values()), record))
    return sorted(found, key=lambda pair: -pair[0])[:count]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--step", type=int, default=1, help="between seeds")
    parser.add_argument("--most", type=int, default=MOST, help="rows")
    parser.add_argument("--peers", default="A1015 C++", help="names, separated by commas")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path, nargs="*")
    chosen = parser.parse_args()
    if chosen.report:
        lines = [line for file in chosen.report for line in file.read_text().splitlines()]
        for ratio, record in worst([json.loads(line) for line in lines]):
            print(f"{ratio:6.2f}  {json.dumps(record)}")
        return
    peers = tuple(p for p in chosen.peers.split(",") if p and PEERS[p].installed())
    race(10**9, (), LEAST)  # kernels
    end, seed = time.perf_counter() + chosen.seconds, chosen.first
    while time.perf_counter() < end:
        line = json.dumps(race(seed, peers, chosen.most))
        if chosen.out is None:
            print(line, flush=True)
        else:
            with chosen.out.open("a") as file:
                file.write(line + "\n")
        seed += chosen.step


if __name__ == "__main__":
    main()
