"""Many small problems in one call: rectangular, ragged, and with a price each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap
from benchmarks import contest
from benchmarks.bench_settings import BenchSettings
from benchmarks.contest import OURS, Case, Entrant, Problem
from benchmarks.records import Log
from benchmarks.tables import Block
from bigsap.types import Array

NAME = "batches"
TITLE = "Batches: many small problems in one call of `solve_many`"
RAGGED, PRICED = "100 to 300 x 300 to 900", "5 to 60 x 5 to 60, a price each"
#: Problems of a full run, and their rows and columns, least and most.
SHAPES: dict[str, tuple[int, tuple[int, int], tuple[int, int]]] = {
    "300 x 900": (64, (300, 300), (900, 900)),
    "300 x 900, float32": (64, (300, 300), (900, 900)),
    RAGGED: (64, (100, 300), (300, 900)),
    "900 x 300": (64, (900, 900), (300, 300)),
    "20 x 30": (10_000, (20, 20), (30, 30)),
    "100 x 100": (2_000, (100, 100), (100, 100)),
    PRICED: (1_000, (5, 60), (5, 60)),
}
SCIPY, LAPX, LAPXR, LAPRUST = "scipy, loop", "lapx lapjvx", "lapx lapjvr", "laprust"
WARM = 3
BARS = {(PRICED, 1_000): 0.006}


def cases(settings: BenchSettings) -> list[Case]:
    """Every shape by all; lapjvr knows no limit."""
    share = settings.batches_share
    return [
        Case(cls, math.ceil(share * count), (OURS, SCIPY, LAPX, *([LAPXR] * (cls != PRICED)), LAPRUST))
        for cls, (count, _, _) in SHAPES.items()
    ]


def make(cls: str, n: int) -> Problem:
    """n matrices, padded, with their rows and columns, and prices (0: every row needs a column)."""
    rng = np.random.default_rng(n)
    _, rows, columns = SHAPES[cls]
    sizes = np.stack([rng.integers(low, high, n, endpoint=True) for low, high in (rows, columns)])
    costs = rng.random((n, rows[1], columns[1]), np.float32 if "float32" in cls else np.float64)
    return {"costs": costs, "sizes": sizes, "price": rng.uniform(0.02, 0.1, n) * (cls == PRICED)}


def _matrices(problem: Problem) -> list[Array]:
    """Each without its padding."""
    pairs = zip(problem["costs"], *problem["sizes"], strict=True)
    return [np.ascontiguousarray(cost[:n, :m]) for cost, n, m in pairs]


def judge(problem: Problem, answer: Any) -> dict[str, Any]:
    """Sum over the problems; None if a pair is taken twice, or too few are."""
    if isinstance(answer, bigsap.Batch):
        answer = [(np.flatnonzero(found >= 0), found[found >= 0]) for found in answer.col4row]
    total = []
    for cost, (rows, columns), price in zip(_matrices(problem), answer, problem["price"], strict=True):
        rows, columns = np.asarray(rows), np.asarray(columns)
        kept = (columns >= 0) & (not price or cost[rows, columns] < price)
        rows, columns = rows[kept], columns[kept]
        twice = min(np.unique(rows).size, np.unique(columns).size) < len(rows)
        if twice or (not price and len(rows) < min(cost.shape)):
            return {"cost": None}
        total += [*cost[rows, columns].astype(float), price * (len(cost) - len(rows))]
    return {"cost": math.fsum(total)}


# -- solvers ------------------------------------------------------------------------------


def _whole(problem: Problem) -> bool:
    """Whether nothing is padded: one array will do."""
    n, m = problem["costs"].shape[1:]
    return bool((problem["sizes"] == np.array([[n], [m]])).all())


def _ours(problem: Problem) -> Any:
    costs = problem["costs"] if _whole(problem) else _matrices(problem)
    priced = {"unassigned_cost": problem["price"]} if problem["price"].any() else {}
    return lambda: bigsap.solve_many(costs, threads=1, **priced)


def _loop(problem: Problem, solve: Callable[[Array, float], Any]) -> Any:
    """One call a matrix; the second argument is its price, inf without one."""
    given = [(c, p or math.inf) for c, p in zip(_matrices(problem), problem["price"], strict=True)]
    return lambda: [solve(cost, price) for cost, price in given]


def _scipy(problem: Problem) -> Any:
    from scipy.optimize import linear_sum_assignment

    return _loop(
        problem, lambda cost, price: linear_sum_assignment(np.minimum(cost, price) if price < 1 else cost)
    )


def _batch(problem: Problem, batch: Any) -> Any:
    """A batch solver on the array of all matrices: rows and columns of each."""
    costs = problem["costs"]
    rest: dict[str, Any] = {"extend_cost": True, "return_cost": False, "n_threads": 1}
    return lambda: list(zip(*batch(costs, **rest), strict=True))


def _lapx(problem: Problem) -> Any:
    import lap

    if _whole(problem):
        return _batch(problem, lap.lapjvx_batch)
    rest: dict[str, Any] = {"extend_cost": True, "return_cost": False}
    return _loop(problem, lambda cost, price: lap.lapjvx(cost, cost_limit=price, **rest))


def _lapxr(problem: Problem) -> Any:
    import lap

    if _whole(problem):
        return _batch(problem, lap.lapjvr_batch)
    return _loop(problem, lambda cost, _: lap.lapjvr(cost, extend_cost=True, return_cost=False))


def _laprust(problem: Problem) -> Any:
    import laprust

    if _whole(problem):
        return _batch(problem, laprust.lapjv_batch)
    rest: dict[str, Any] = {"extend_cost": True, "return_cost": False}
    return _loop(problem, lambda cost, price: laprust.lapjv(cost, cost_limit=price, **rest))


SOLVERS = {
    OURS: Entrant("bigsap", _ours),
    SCIPY: Entrant("scipy", _scipy),
    LAPX: Entrant("lap", _lapx),
    LAPXR: Entrant("lap", _lapxr),
    LAPRUST: Entrant("laprust", _laprust),
}


def run(settings: BenchSettings, log: Log) -> None:
    """Every batch by every solver."""
    contest.run(settings, log, __name__, cases(settings))


def render(log: Log) -> list[Block]:
    """A line a batch."""
    found = contest.contest(log, NAME, SOLVERS, SHAPES, BARS)
    note = (
        "n is that of matrices; independent uniform costs. lapx and laprust by their batch functions where"
        " all have one shape, else by a call for each matrix. A price each: a row may stay out at it;"
        f" {SCIPY} is given clipped costs then, lapx and laprust `cost_limit=`. The answers are compared by"
        " the sum over all matrices."
    )
    return [*([found] if found else []), note, contest.LEGEND]
