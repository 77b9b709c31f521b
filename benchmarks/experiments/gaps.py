"""True gaps of heuristics: `bigsap.certify` tells by how much their assignments miss the optimum."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find
from benchmarks.processes import measured
from benchmarks.records import Log
from benchmarks.tables import DASH, Block, line, seconds_text, table
from benchmarks.timing import timed
from bigsap.types import Array

NAME = "gaps"
TITLE = "True gaps of heuristics, by `bigsap.certify`"
EXACT = "bigsap"
GREEDY, BATCHES, BSP, ENTROPIC = "greedy", "mini-batches of 256", "POT ot.bsp", "POT ot.sinkhorn, rounded"
HEURISTICS = (GREEDY, BATCHES, BSP, ENTROPIC)
#: Two samples of one distribution; noise and data, as couplings of flow matching have them.
UNIFORM, MIXTURE = "uniform", "normal to mixture"
DIMENSIONS = (2, 3, 8)
_BATCH, _PLANS = 256, 64
#: Of the mean cost. Half of it takes three times the iterations.
_REGULARISATION, _ITERATIONS = 0.02, 500
#: Entropic plans need the matrix several times.
_MOST_DENSE = 20_000
_NORMALS, _SPREAD = 20, 0.2
_WARM = 2048
#: Seconds of a heuristic for all sizes with matrices, and for larger ones; loading comes on top.
_LIMIT, _LIMIT_LARGE, _LOADING = 600.0, 120.0, 20.0


def points_of(kind: str, n: int, d: int) -> tuple[Array, Array]:
    """Points (n, d) on both sides."""
    rng = np.random.default_rng([n, d])
    if kind == UNIFORM:
        return rng.random((n, d)), rng.random((n, d))
    centres = rng.normal(size=(_NORMALS, d))
    y = centres[rng.integers(_NORMALS, size=n)] + rng.normal(0, _SPREAD, (n, d))
    return rng.normal(size=(n, d)), y


def greedy(x: Array, y: Array) -> Array:
    """Take the cheapest pair whose points are both free, again and again.

    All pairs that are each other's nearest are taken at once, which is the same.
    """
    from scipy.spatial import cKDTree

    columns = np.full(len(x), -1)
    rows, free = np.arange(len(x)), np.arange(len(y))
    while rows.size:
        nearest = cKDTree(y[free]).query(x[rows])[1]
        back = cKDTree(x[rows]).query(y[free])[1]
        mutual = back[nearest] == np.arange(rows.size)
        columns[rows[mutual]] = free[nearest[mutual]]
        left = np.ones(free.size, bool)
        left[nearest[mutual]] = False
        rows, free = rows[~mutual], free[left]
    return columns


def batches(x: Array, y: Array) -> Array:
    """Solve random batches of both sides exactly, each by itself."""
    rng = np.random.default_rng(0)
    rows, others = rng.permutation(len(x)), rng.permutation(len(y))
    columns = np.empty(len(x), np.int64)
    for first in range(0, len(x), _BATCH):
        some, partners = rows[first : first + _BATCH], others[first : first + _BATCH]
        cost = ((x[some, None] - y[partners]) ** 2).sum(2)
        columns[some] = partners[bigsap.solve(cost, certify=False, threads=1).col4row]
    return columns


def bsp(x: Array, y: Array) -> Array:
    """Merge binary space partitions, as POT does."""
    from ot.bsp import compute_bspot_bijection

    return np.asarray(compute_bspot_bijection(x, y, n_plans=_PLANS, seed=0)[1])


def entropic(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the pairs of largest entries of an entropic plan, greedily, and its column prices."""
    import ot

    cost = ot.dist(x, y)
    reg = _REGULARISATION * float(cost.mean())
    uniform = np.full(len(x), 1 / len(x))
    scalings = ot.sinkhorn(
        uniform, uniform, cost, reg, numItermax=_ITERATIONS, stopThr=1e-9, log=True, warn=False
    )[1]
    prices = reg * np.log(scalings["v"])
    # Entry (i, j) is exp(-reduced / reg): the order is the same, and nothing underflows.
    cost -= reg * np.log(scalings["u"])[:, None]
    cost -= prices
    return _cheapest_first(cost), prices


def _cheapest_first(cost: Array) -> Array:
    """Take the cheapest free pair of a matrix, again and again."""
    columns = np.full(len(cost), -1)
    rows, free = np.arange(len(cost)), np.arange(cost.shape[1])
    while rows.size:
        nearest = cost.argmin(1)
        mutual = cost.argmin(0)[nearest] == np.arange(rows.size)
        columns[rows[mutual]] = free[nearest[mutual]]
        left = np.ones(free.size, bool)
        left[nearest[mutual]] = False
        rows, free = rows[~mutual], free[left]
        cost = cost[~mutual][:, left]
    return columns


def _heuristics(n: int) -> dict[str, Callable[[Array, Array], Any]]:
    """Those that are installed, and that n points allow."""
    found: dict[str, Callable[[Array, Array], Any]] = {BATCHES: batches}
    if find("scipy").installed():
        found[GREEDY] = greedy
    if find("POT emd").installed():
        found[BSP] = bsp
        if n <= _MOST_DENSE:
            found[ENTROPIC] = entropic
    return found


def class_of(kind: str, d: int) -> str:
    """Name of a distribution in d dimensions."""
    return f"{kind}, {d}-D"


def run(settings: BenchSettings, log: Log) -> None:
    """Solve each problem once; its prices prove how good every other assignment is."""
    threads = max(settings.thread_counts)
    for n in settings.gaps_sizes:
        for kind in (UNIFORM, MIXTURE):
            for d in DIMENSIONS if n <= _MOST_DENSE else DIMENSIONS[:2]:
                _measure(log, kind, n, d, threads)


def answer(name: str, kind: str, n: int, d: int) -> dict[str, Any]:
    """Seconds, pairs and, where it has them, prices of a heuristic; a small problem first, which loads it."""
    heuristic = _heuristics(n)[name]
    heuristic(*points_of(UNIFORM, _WARM, d))
    x, y = points_of(kind, n, d)
    clock = time.perf_counter()
    columns = heuristic(x, y)
    seconds = time.perf_counter() - clock
    columns, prices = columns if isinstance(columns, tuple) else (columns, None)
    return {"seconds": seconds, "columns": columns, "prices": prices}


def _measure(log: Log, kind: str, n: int, d: int, threads: int) -> None:
    key = NAME, class_of(kind, d), n, 0
    missing = log.missing((*key, name, threads) for name in (EXACT, *_heuristics(n)))
    if not missing:
        return
    bigsap.solve(bigsap.points(*points_of(UNIFORM, _WARM, d)))
    cost = bigsap.points(*points_of(kind, n, d))
    result, seconds = timed(cost, threads=threads)
    for one in missing:
        name = one[4]
        print(f"    {one[1]}, n = {n:,}, {name}", flush=True)
        if name == EXACT:
            log.add(one, seconds=seconds, fun=result.fun, bound=result.bound, status=str(result.status))
            continue
        limit = _LIMIT if n <= _MOST_DENSE else _LIMIT_LARGE
        try:
            found = measured(answer, name, kind, n, d, limit=limit + _LOADING)
        except TimeoutError:
            log.add(one, timeout=limit)
            continue
        columns, prices = found["columns"], found["prices"]
        proved = bigsap.certify(cost, columns, result.v, result.v_low, threads=threads)
        kept = {"seconds": found["seconds"], "fun": proved.fun, "bound": proved.bound, "gap": proved.gap}
        if prices is not None:
            kept["own_bound"] = bigsap.certify(cost, columns, prices, threads=threads).bound
        log.add(one, **kept)


def percent(record: dict[str, Any]) -> float:
    """Gap of a record, in per cent of the bound."""
    return 100 * float(record["gap"]) / float(record["bound"])


def _cell(record: dict[str, Any] | None) -> str:
    """Gap and seconds of a record, or that it was stopped."""
    if record is None:
        return DASH
    if "timeout" in record:
        return f"stopped ({record['timeout']:.0f})"
    gap, seconds = percent(record), seconds_text(record["seconds"])
    return f"{gap:,.0f} % ({seconds})" if gap >= 100 else f"{gap:.3g} % ({seconds})"


def render(log: Log) -> list[Block]:
    """One line a problem, one column a heuristic."""
    rows, own = [], []
    solvers = [name for name in HEURISTICS if name in log.distinct("solver", experiment=NAME)]
    for n in sorted(log.distinct("n", experiment=NAME)):
        for cls in log.distinct("cls", experiment=NAME, n=n):
            of = {r["solver"]: r for r in log.of(experiment=NAME, n=n, cls=cls)}
            exact = of[EXACT]
            cells = [_cell(of.get(name)) for name in solvers]
            rows.append(line(cls, f"{n:,}", *cells, seconds_text(exact["seconds"])))
            if plan := of.get(ENTROPIC):
                loss = 100 * (exact["fun"] - plan["own_bound"]) / exact["fun"]
                own.append(f"{loss:.3g} % ({cls})")
    count = " or ".join(str(t) for t in log.distinct("threads", experiment=NAME))
    note = (
        "How much more an assignment costs than the bound that the optimal prices prove, in per cent of"
        " it, and in brackets the seconds that it took; squared distances. The last column is the exact"
        f" solve, {EXACT} with {count} threads, proof included: gap 0. {GREEDY}: the cheapest free pair,"
        f" again and again. {BATCHES}: random batches, each solved exactly. {BSP}: {_PLANS} trees, merged."
        f" {ENTROPIC}: regularisation {_REGULARISATION} of the mean cost, at most {_ITERATIONS} iterations,"
        f" then the largest free entry, again and again; not beyond {_MOST_DENSE:,} points, since it needs"
        " matrices."
    )
    parts: list[Block] = [table(line("points", "n", *solvers, f"{EXACT}, seconds"), rows), note]
    if own:
        parts.append("The entropic plan's own prices prove a bound that much below the optimum: ")
        parts.append(own)
    return parts
