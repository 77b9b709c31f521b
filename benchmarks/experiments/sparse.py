"""Only listed pairs are allowed: random graphs and neighbours, against the solvers that take lists."""

from __future__ import annotations

import itertools
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

NAME = "sparse"
TITLE = "Sparse costs: only listed pairs are allowed"
FLOATS, WHOLE = "floats", "whole numbers"
#: Entries a row of each kind of graph. ``moved``: a set and its moved copy; ``other``: two samples.
KINDS = {
    "random, 8": (0, 8),
    "moved 2-D, 8": (2, 8),
    "moved 2-D, 20": (2, 20),
    "moved 3-D, 20": (3, 20),
    "other 2-D, 20": (2, 20),
}
LARGE = ("random, 8", "moved 2-D, 8", "moved 3-D, 20")
#: Whole numbers of that size too; one kind, since each takes half a minute of OR-tools.
LARGE_WHOLE = ("random, 8",)
GATED, INFEASIBLE = "gated 2-D, 8", "infeasible, 20"
SCIPY, LAPMOD, FASTLAP, POT = "scipy sparse", "lapx lapmod", "fastlap lapmod", "POT emd, sparse"
ORTOOLS, FLOW = "OR-tools assignment", "OR-tools flow"
WARM = 200
#: Distances are in spacings of the points; so is what leaving a row out costs.
_MOVED, _PRICE = 1.0, 1.0
_LARGEST = 1_000_000
#: scipy was stopped after 8 and 20 seconds on 20,000 rows of neighbours.
_MOST_NEIGHBOURS = 10_000
BARS = {
    (f"other 2-D, 20, {FLOATS}", 100_000): 4.0,
    (f"{GATED}, {WHOLE}", 100_000): 0.25,
    (f"{GATED}, {WHOLE}", 1_000_000): 4.0,
    (f"{INFEASIBLE}, {WHOLE}", 10_000): 0.05,
    (f"{INFEASIBLE}, {WHOLE}", 100_000): 0.7,
}
for _kind, _bar in zip(LARGE, (10.0, 18.0, 15.0), strict=True):
    BARS |= {(f"{_kind}, {_numbers}", 1_000_000): _bar for _numbers in (FLOATS, WHOLE)}


def cases(settings: BenchSettings) -> list[Case]:
    """Small ones by all, large ones by those that end."""
    found = []
    for n, kind in itertools.product(settings.sparse_sizes, KINDS):
        ends = n <= _MOST_NEIGHBOURS or kind == "random, 8"
        found.append(Case(f"{kind}, {FLOATS}", n, (OURS, LAPMOD, FASTLAP, POT, *([SCIPY] * ends))))
        found.append(Case(f"{kind}, {WHOLE}", n, (OURS, ORTOOLS)))
    for n, kind in itertools.product(settings.sparse_large, LARGE):
        found.append(Case(f"{kind}, {FLOATS}", n, (OURS,)))
        if kind in LARGE_WHOLE:
            found.append(Case(f"{kind}, {WHOLE}", n, (OURS, ORTOOLS)))
    found += [Case(f"{GATED}, {WHOLE}", n, (OURS, FLOW)) for n in settings.sparse_sizes]
    found += [Case(f"{GATED}, {WHOLE}", n, (OURS,)) for n in settings.sparse_large]
    infeasible = (OURS, LAPMOD, FASTLAP, FLOW, SCIPY)
    return found + [Case(f"{INFEASIBLE}, {WHOLE}", n, infeasible) for n in settings.sparse_infeasible]


def make(cls: str, n: int) -> Problem:
    """CSR arrays of the listed pairs, sorted, and the price of a row without a column."""
    kind, numbers = cls.rsplit(", ", 1)
    rng = np.random.default_rng(n)
    if kind == INFEASIBLE:
        rows, columns, costs = _random(rng, n, 20)
        few = rng.permutation(n)[:41]  # rows that share one column fewer than they are
        keep = ~np.isin(rows, few)
        pairs = np.array(list(itertools.product(few, few[:-1])))
        rows, columns = (
            np.concatenate([rows[keep], pairs[:, 0]]),
            np.concatenate([columns[keep], pairs[:, 1]]),
        )
        costs = np.concatenate([costs[keep], rng.random(len(pairs))])
    elif kind.startswith("random"):
        rows, columns, costs = _random(rng, n, KINDS[kind][1])
    else:
        d, k = KINDS.get(kind, (2, 8))
        rows, columns, costs = (_two_samples if kind.startswith("other") else _moved)(rng, n, d, k)
    order = np.lexsort((columns, rows))
    costs = costs[order]
    if numbers == WHOLE:
        costs = np.rint(costs * (_LARGEST / costs.max())).astype(np.int64)
    ends = np.concatenate([[0], np.bincount(rows, minlength=n).cumsum()])
    price = np.sort(costs)[len(costs) // 4] if kind == GATED else 0
    return {"indptr": ends, "indices": columns[order].astype(np.int32), "data": costs, "price": price}


def _once(rows: Array, columns: Array, n: int) -> Array:
    """The first of each pair."""
    return np.unique(rows.astype(np.int64) * n + columns, return_index=True)[1]


def _random(rng: Any, n: int, k: int) -> tuple[Array, Array, Array]:
    """Pairs at random, and a planted assignment."""
    rows = np.tile(np.arange(n), k)
    columns = np.concatenate([rng.permutation(n), rng.integers(0, n, n * (k - 1))])
    once = _once(rows, columns, n)
    return rows[once], columns[once], rng.random(once.size)


def _neighbours(x: Array, y: Array, k: int) -> tuple[Array, Array]:
    from scipy.spatial import cKDTree

    k = min(k, len(y))
    return np.repeat(np.arange(len(x)), k), cKDTree(y).query(x, k)[1].ravel()


def _moved(rng: Any, n: int, d: int, k: int) -> tuple[Array, Array, Array]:
    """The nearest of a moved copy of the points, and the planted pairs."""
    spacing = n ** (-1 / d)
    x = rng.random((n, d))
    order = rng.permutation(n)
    y = np.empty_like(x)
    y[order] = x + rng.normal(0, _MOVED * spacing, (n, d))
    return _squared(x, y, k, order)


def _two_samples(rng: Any, n: int, d: int, k: int) -> tuple[Array, Array, Array]:
    """The nearest of another sample; and, lest none be complete, pairs of equal places on a curve."""
    x, y = rng.random((n, d)), rng.random((n, d))
    planted = np.empty(n, np.int64)
    planted[_along(x)] = _along(y)
    return _squared(x, y, k, planted)


def _along(x: Array) -> Array:
    """The order of points of the plane along a curve that visits quarters of quarters in turn."""
    where = np.zeros(len(x), np.int64)
    for bit in range(20):
        for axis, place in enumerate((x * 2**20).astype(np.int64).T):
            where |= (place >> bit & 1) << (2 * bit + axis)
    return np.argsort(where, kind="stable")


def _squared(x: Array, y: Array, k: int, planted: Array) -> tuple[Array, Array, Array]:
    """The k nearest and the planted pairs; squared distances in spacings."""
    n, d = x.shape
    rows, columns = _neighbours(x, y, k)
    rows, columns = np.concatenate([rows, np.arange(n)]), np.concatenate([columns, planted])
    once = _once(rows, columns, n)
    rows, columns = rows[once], columns[once]
    return rows, columns, ((x[rows] - y[columns]) ** 2).sum(1) * n ** (2 / d)


def judge(problem: Problem, answer: Any) -> dict[str, Any]:
    """Cost of an answer: None if a pair is not listed or taken twice; inf if it says infeasible."""
    facts: dict[str, Any] = {"entries": len(problem["data"])}
    columns = answer
    if isinstance(answer, bigsap.Result):
        facts |= facts_of(answer)
        columns = None if facts["status"] == "infeasible" else answer.col4row
        if columns is None:
            facts["named"] = len(answer.violator)
    return facts | {"cost": math.inf if columns is None else _cost(problem, np.asarray(columns))}


def _cost(problem: Problem, columns: Array) -> float | None:
    n = len(problem["indptr"]) - 1
    price = int(problem["price"])
    if columns.shape != (n,):
        return None
    rows = np.flatnonzero(columns >= 0)
    taken = columns[rows]
    if (rows.size < n and not price) or np.unique(taken).size < rows.size or taken.max(initial=0) >= n:
        return None
    listed = np.repeat(np.arange(n), np.diff(problem["indptr"])) * n + problem["indices"]
    asked = rows * n + taken
    found = np.minimum(np.searchsorted(listed, asked), listed.size - 1)
    if (listed[found] != asked).any():
        return None
    return float(math.fsum(problem["data"][found]) + price * (n - rows.size))


# -- solvers ------------------------------------------------------------------------------


def _csr(problem: Problem) -> Any:
    from scipy.sparse import csr_array

    n = len(problem["indptr"]) - 1
    return csr_array((problem["data"], problem["indices"], problem["indptr"]), shape=(n, n))


def _ours(problem: Problem) -> Any:
    costs = _csr(problem)
    price = int(problem["price"]) or None
    return lambda: bigsap.solve(costs, unassigned_cost=price, threads=1)


def _scipy(problem: Problem) -> Any:
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    costs = _csr(problem).astype(np.float64)
    costs.data += 1e-300  # it drops zeros

    def solve() -> Any:
        try:
            return min_weight_full_bipartite_matching(costs)[1]
        except ValueError:  # no full matching
            return None

    return solve


def _lapmod(problem: Problem) -> Any:
    import lap

    costs = problem["data"].astype(np.float64)
    n = len(problem["indptr"]) - 1
    return lambda: lap.lapmod(n, costs, problem["indptr"], problem["indices"], return_cost=False)[0]


def _fastlap(problem: Problem) -> Any:
    import fastlap
    from scipy.sparse import csr_matrix

    costs = csr_matrix(_csr(problem).astype(np.float64))

    def solve() -> Any:
        return [-1 if j is None else j for j in fastlap.solve_lap(costs, algorithm="lapmod")[1]]

    return solve


def _pot(problem: Problem) -> Any:
    import ot
    from scipy.sparse import coo_matrix

    costs = coo_matrix(_csr(problem).astype(np.float64))
    n = costs.shape[0]

    def solve() -> Array:
        plan = ot.emd(np.ones(n) / n, np.ones(n) / n, costs, numItermax=100_000_000).tocoo()
        kept = plan.data > 0.5 / n
        columns = np.full(n, -1)
        columns[plan.row[kept]] = plan.col[kept]
        return columns

    return solve


def _rows_of(problem: Problem) -> Array:
    n = len(problem["indptr"]) - 1
    return np.repeat(np.arange(n, dtype=np.int32), np.diff(problem["indptr"]))


def _assignment(problem: Problem) -> Any:
    from ortools.graph.python.linear_sum_assignment import SimpleLinearSumAssignment

    rows, n = _rows_of(problem), len(problem["indptr"]) - 1

    solver = SimpleLinearSumAssignment()
    solver.add_arcs_with_cost(rows, problem["indices"], problem["data"])

    def solve() -> Any:
        return [solver.right_mate(i) for i in range(n)] if _has_answer(solver) else None

    return solve


def _has_answer(solver: Any) -> bool:
    """Solve by a solver of OR-tools; return whether the problem is feasible."""
    status = solver.solve()
    if status not in (solver.OPTIMAL, solver.INFEASIBLE):
        raise RuntimeError(f"status {status}")
    return bool(status == solver.OPTIMAL)


def _flow(problem: Problem) -> Any:
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    n, price = len(problem["indptr"]) - 1, int(problem["price"])
    rows, columns, costs = _rows_of(problem), problem["indices"] + n, problem["data"]
    tails, heads = [rows, np.arange(n, 2 * n)], [columns, np.full(n, 2 * n)]
    weights, capacities = [costs, np.zeros(n, int)], [np.ones(len(costs), int), np.ones(n, int)]
    if price:
        tails, heads = [*tails, np.arange(n)], [*heads, np.full(n, 2 * n)]
        weights, capacities = [*weights, np.full(n, price)], [*capacities, np.ones(n, int)]
    arcs = [np.concatenate(part).astype(np.int32) for part in (tails, heads)]
    flows = [np.concatenate(part).astype(np.int64) for part in (capacities, weights)]
    supplies = np.concatenate([np.ones(n, int), np.zeros(n, int), [-n]])

    solver = SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(*arcs, *flows)
    solver.set_nodes_supplies(np.arange(2 * n + 1, dtype=np.int32), supplies)

    def solve() -> Any:
        if not _has_answer(solver):
            return None
        used = np.flatnonzero(solver.flows(np.arange(len(costs), dtype=np.int32)))
        found = np.full(n, -1)
        found[rows[used]] = problem["indices"][used]
        return found

    return solve


SOLVERS = {
    OURS: Entrant("bigsap", _ours),
    ORTOOLS: Entrant("ortools", _assignment),
    LAPMOD: Entrant("lap", _lapmod),
    FASTLAP: Entrant("fastlap", _fastlap),
    POT: Entrant("ot", _pot),
    FLOW: Entrant("ortools", _flow),
    SCIPY: Entrant("scipy", _scipy),
}


def run(settings: BenchSettings, log: Log) -> None:
    """Every graph by every solver that takes it; scipy makes the graphs."""
    if SOLVERS[SCIPY].installed():
        contest.run(settings, log, __name__, cases(settings))


def render(log: Log) -> list[Block]:
    """A line a graph."""
    classes = [f"{kind}, {numbers}" for kind in (*KINDS, GATED, INFEASIBLE) for numbers in (FLOATS, WHOLE)]
    found = contest.contest(log, NAME, SOLVERS, classes, BARS)
    note = (
        "The number is that of entries a row. random: a planted assignment and random pairs; moved: the"
        " nearest of a moved copy of the points, and the planted pairs; other: the nearest of another"
        " sample, and pairs of equal places on a curve, so that there is an answer; squared distances."
        " gated: a row may stay out at a price, the same for all; infeasible: 41 rows share 40 columns,"
        " and the right answer is that there is none. Whole numbers are at most 1,000,000."
        f" {SCIPY} is not tried on neighbours of more than {_MOST_NEIGHBOURS:,} rows."
    )
    return [*([found] if found else []), note, contest.LEGEND]
