"""Columns that take several rows, and rows that take several columns."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

import bigsap
from benchmarks import contest
from benchmarks.bench_settings import BenchSettings
from benchmarks.contest import OURS, Case, Entrant, Problem, facts_of
from benchmarks.records import Log
from benchmarks.tables import Block
from bigsap.types import Array

NAME = "capacities"
TITLE = "Capacities: a column takes several rows"
PLANE, HIGH, SLACK = "2-D, 400 rows a column", "16-D, 400 rows a column", "2-D, 20 % slack"
MANY, LARGE = "2-D, 1,000 rows a column", "2-D, 100 columns"
UNITS, TEAMS = "2-D, capacities 1 to 3", "2-D, two columns a row"
KINDS = (PLANE, HIGH, SLACK, MANY, LARGE, UNITS, TEAMS)
FLOW, POT, STEP = "OR-tools flow", "POT emd", "k-means-constrained"
HIGHS, SCIPY = "scipy HiGHS", "scipy, repeated"
WARM = 200
# Floats become integers of so many bits for solvers that take no others.
_BITS = 32
BARS = {
    **dict.fromkeys([(PLANE, 20_000), (HIGH, 20_000), (SLACK, 20_000)], 0.2),
    (MANY, 100_000): 2.0,
    (LARGE, 1_000_000): 25.0,
    (UNITS, 5_000): 0.12,
    (TEAMS, 2_000): 0.10,
}


def cases(settings: BenchSettings) -> list[Case]:
    """Few columns by all, arcs permitting; the largest alone."""
    few, many, most = settings.capacity_sizes
    matrices = (OURS, SCIPY)
    return [
        *(Case(kind, few // 10, (OURS, FLOW, POT, HIGHS)) for kind in (PLANE, HIGH)),
        *(Case(kind, few, (OURS, FLOW, POT, STEP)) for kind in (PLANE, HIGH)),
        Case(SLACK, few, (OURS, FLOW, STEP)),
        Case(MANY, many, (OURS, FLOW, POT)),
        Case(LARGE, most, (OURS,)),
        Case(UNITS, few // 20, (*matrices, FLOW)),
        Case(UNITS, few // 4, matrices),
        Case(TEAMS, few // 50, (*matrices, FLOW)),
        Case(TEAMS, few // 10, matrices),
    ]


def make(cls: str, n: int) -> Problem:
    """Points on both sides, the places of each column, and how many columns a row takes."""
    rng = np.random.default_rng(n)
    d = 16 if cls == HIGH else 2
    shares = {MANY: 1000, LARGE: max(1, n // 100), UNITS: 1}
    m = 10 * n if cls == TEAMS else max(2, n // shares.get(cls, 400))
    places = np.full(m, -(-n // m))
    if cls == SLACK:
        places = np.full(m, math.ceil(1.2 * n / m))
    elif cls == UNITS:
        places = rng.integers(1, 4, m)
    elif cls == TEAMS:
        places = np.ones(m, np.int64)
    return {"x": rng.random((n, d)), "y": rng.random((m, d)), "places": places, "demand": 1 + (cls == TEAMS)}


def judge(problem: Problem, answer: Any) -> dict[str, Any]:
    """Cost of the pairs; None if a row takes too few or a column too many."""
    facts: dict[str, Any] = {"columns": len(problem["y"])}
    if isinstance(answer, bigsap.Result):
        facts |= facts_of(answer)
        pairs = answer.pairs()
        rows, columns = pairs[:, 0], pairs[:, 1]
    else:
        rows, columns = answer
    n, m = len(problem["x"]), len(problem["y"])
    once = np.unique(rows.astype(np.int64) * m + columns).size == rows.size
    served = (np.bincount(rows, minlength=n) == problem["demand"]).all()
    fits = (np.bincount(columns, minlength=m) <= problem["places"]).all()
    each = ((problem["x"][rows] - problem["y"][columns]) ** 2).sum(1)
    # No distance of points in the unit cube is larger.
    facts["largest"] = float(problem["x"].shape[1] * n)
    return facts | {"cost": math.fsum(each) if once and served and fits else None}


# -- solvers ------------------------------------------------------------------------------


def _ours(problem: Problem) -> Any:
    demand = int(problem["demand"])
    several = {"demand": demand} if demand > 1 else {"capacity": problem["places"]}
    return lambda: bigsap.solve(bigsap.points(problem["x"], problem["y"]), threads=1, **several)


def _matrix(problem: Problem) -> Array:
    from scipy.spatial.distance import cdist

    found: Array = cdist(problem["x"], problem["y"], "sqeuclidean")
    return found


def _flow(problem: Problem) -> Any:
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    costs = np.rint(_matrix(problem) * (2.0**_BITS / problem["x"].shape[1])).astype(np.int64)
    n, m = costs.shape
    rows, columns = (part.ravel().astype(np.int32) for part in np.indices((n, m)))
    solver = SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(rows, columns + n, np.ones(n * m, np.int64), costs.ravel())
    ends = np.arange(n, n + m, dtype=np.int32)
    nothing = np.zeros(m, np.int64)
    solver.add_arcs_with_capacity_and_unit_cost(ends, np.full(m, n + m, np.int32), problem["places"], nothing)
    demands = np.full(n, problem["demand"], np.int64)
    supplies = np.concatenate([demands, nothing, [-demands.sum()]])
    solver.set_nodes_supplies(np.arange(n + m + 1, dtype=np.int32), supplies)

    def solve() -> tuple[Array, Array]:
        status = solver.solve()
        if status != solver.OPTIMAL:
            raise RuntimeError(f"status {status}")
        used = np.flatnonzero(solver.flows(np.arange(n * m, dtype=np.int32)))
        return rows[used], columns[used]

    return solve


def _pot(problem: Problem) -> Any:
    import ot

    costs, n = _matrix(problem), len(problem["x"])

    def solve() -> tuple[Array, Array]:
        plan = ot.emd(np.ones(n), problem["places"].astype(float), costs, numItermax=100_000_000)
        return np.arange(n), plan.argmax(axis=1)

    return solve


def _step(problem: Problem) -> Any:
    lib = importlib.import_module("k_means_constrained.k_means_constrained_")
    x, y, most = problem["x"], problem["y"], int(problem["places"].max())
    return lambda: (np.arange(len(x)), lib._labels_constrained(x, y, 0, most, np.empty(len(x)))[0])


def _highs(problem: Problem) -> Any:
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, kron

    costs = _matrix(problem)
    n, m = costs.shape
    served = kron(eye_array(n), csr_array(np.ones((1, m))))
    used = kron(csr_array(np.ones((1, n))), eye_array(m))

    def solve() -> tuple[Array, Array]:
        demands = np.full(n, float(problem["demand"]))
        found = linprog(costs.ravel(), used, problem["places"], served, demands, bounds=(0, 1))
        return np.arange(n), found.x.reshape(n, m).argmax(axis=1)

    return solve


def _repeated(problem: Problem) -> Any:
    from scipy.optimize import linear_sum_assignment

    n, m = len(problem["x"]), len(problem["y"])
    rows, columns = np.repeat(np.arange(n), problem["demand"]), np.repeat(np.arange(m), problem["places"])
    costs = _matrix({"x": problem["x"][rows], "y": problem["y"][columns]})

    def solve() -> tuple[Array, Array]:
        taken = linear_sum_assignment(costs)
        return rows[taken[0]], columns[taken[1]]

    return solve


SOLVERS = {
    OURS: Entrant("bigsap", _ours),
    FLOW: Entrant("ortools", _flow, rounding=2.0**-_BITS),
    POT: Entrant("ot", _pot),
    SCIPY: Entrant("scipy", _repeated),
    HIGHS: Entrant("scipy", _highs),
    STEP: Entrant("k_means_constrained", _step),
}


def run(settings: BenchSettings, log: Log) -> None:
    """Every problem by every solver that takes it."""
    contest.run(settings, log, __name__, cases(settings))


def render(log: Log) -> list[Block]:
    """A line a problem."""
    found = contest.contest(log, NAME, SOLVERS, KINDS, BARS)
    note = (
        "n is that of rows; uniform points, squared distances. Places are just enough where nothing else is"
        " said; capacities 1 to 3: as many columns as rows; two columns a row: ten columns a row, `demand`."
        f" {OURS} is given points, the others their matrix. {SCIPY}: a row or column for each place;"
        f" {FLOW}: costs as integers of {_BITS} bits; {STEP}: one step of its k-means, distances and plain"
        " rounded costs included, which is another problem; hence the gap."
    )
    return [*([found] if found else []), note, contest.LEGEND]
