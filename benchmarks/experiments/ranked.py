"""The k best assignments, and the assignment whose largest cost is smallest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import bigsap
from benchmarks import contest
from benchmarks.bench_settings import BenchSettings
from benchmarks.contest import OURS, Case, Entrant, Problem, facts_of
from benchmarks.instances import squared_distances
from benchmarks.records import Log
from benchmarks.tables import Block, Heading
from bigsap.types import Array

NAME = "ranked"
TITLE = "The k best assignments, and the smallest largest cost"
K_MATRIX, K_POINTS = "k best, matrix, k = {:,}", "k best, points, k = {:,}"
RANDOM, PLANE, POINTS = "bottleneck, random", "bottleneck, matrix of points", "bottleneck, points"
UNPROVED = "bigsap, no certificate"
FASTLAP, SCIPY, FASTLAP_LARGEST = "fastlap k best", "scipy, thresholds", "fastlap bottleneck"
WARM = 100
K_BARS = {20: 0.02, 100: 0.05, 500: 0.15, 2000: 2.0, 10_000: 3.0}
BARS = {(RANDOM, 4000): 0.25, (PLANE, 4000): 0.25, (POINTS, 20_000): 1.0, (POINTS, 100_000): 10.0}


def cases(settings: BenchSettings) -> list[Case]:
    """Sizes and k of the settings; the bottleneck of points also without a certificate."""
    found = [Case(K_MATRIX.format(k), n, (OURS, FASTLAP)) for n, k in settings.best_matrices]
    found += [Case(K_POINTS.format(k), n, (OURS,)) for n, k in settings.best_points]
    for n in settings.bottleneck_matrices:
        found += [Case(kind, n, (OURS, SCIPY, FASTLAP_LARGEST)) for kind in (RANDOM, PLANE)]
    for n in settings.bottleneck_points:
        found.append(Case(POINTS, n, (OURS, UNPROVED, SCIPY)))
    return found


def _points(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(n)
    return rng.random((n, 2)), rng.random((n, 2))


def make(cls: str, n: int) -> Problem:
    """A matrix, or points on both sides; and k, 0 for a bottleneck."""
    k = int(cls.rsplit("= ")[1].replace(",", "")) if "=" in cls else 0
    if "matrix" not in cls and cls != RANDOM:
        x, y = _points(n)
        return {"x": x, "y": y, "k": k}
    plane = cls == PLANE
    return {
        "matrix": squared_distances(*_points(n)) if plane else np.random.default_rng(n).random((n, n)),
        "k": k,
    }


def judge(problem: Problem, answer: Any) -> dict[str, Any]:
    """Sum of the k costs, None if an answer is none or comes twice; or the largest cost."""
    facts: dict[str, Any] = {}
    if isinstance(answer, bigsap.Result):
        facts, answer = facts_of(answer), answer.col4row
    columns = np.atleast_2d(np.asarray(answer))
    n = columns.shape[1]
    rows = np.arange(n)
    complete = (np.sort(columns, axis=1) == rows).all() and len(np.unique(columns, axis=0)) == len(columns)
    if not complete or len(columns) != max(1, problem["k"]):
        return facts | {"cost": None}
    if "matrix" in problem:
        each = problem["matrix"][rows, columns]
    else:
        each = ((problem["x"] - problem["y"][columns]) ** 2).sum(-1)
    return facts | {"cost": math.fsum(each.ravel()) if problem["k"] else float(each.max())}


# -- solvers ------------------------------------------------------------------------------


def _costs(problem: Problem) -> Any:
    return problem["matrix"] if "matrix" in problem else bigsap.points(problem["x"], problem["y"])


def _ours(problem: Problem, *, certify: bool = True) -> Any:
    if k := int(problem["k"]):
        return lambda: bigsap.solve_k_best(_costs(problem), k, threads=1).col4row
    options: dict[str, Any] = {"objective": "bottleneck", "certify": certify, "threads": 1}
    return lambda: bigsap.solve(_costs(problem), **options)


def _unproved(problem: Problem) -> Any:
    return _ours(problem, certify=False)


def _fastlap(problem: Problem) -> Any:
    import fastlap

    matrix, k = problem["matrix"], int(problem["k"])
    return lambda: [columns for _, columns, _ in fastlap.solve_lap_kbest(matrix, k)]


def _fastlap_largest(problem: Problem) -> Any:
    import fastlap

    return lambda: fastlap.solve_lbap(problem["matrix"])[1]


def _listed(matrix: Array) -> Iterator[tuple[Array, ...]]:
    """Rows, columns and costs of the cheapest pairs, more and more of them."""
    count = 8 * len(matrix)
    while True:
        count = min(2 * count, matrix.size)
        limit = np.partition(matrix, count - 1, axis=None)[count - 1]
        rows, columns = np.nonzero(matrix <= limit)
        yield rows, columns, matrix[rows, columns]


def _near(x: Array, y: Array) -> Iterator[tuple[Array, ...]]:
    """The same of points, by their distance."""
    from scipy.spatial import cKDTree

    here, there = cKDTree(x), cKDTree(y)
    radius = 2 * len(x) ** -0.5
    while True:
        radius *= 2**0.5
        found = here.sparse_distance_matrix(there, radius, output_type="ndarray")
        rows, columns = found["i"], found["j"]
        yield rows, columns, ((x[rows] - y[columns]) ** 2).sum(1)


def _thresholds(problem: Problem) -> Any:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    matrix = problem.get("matrix")
    n = len(problem["x"] if matrix is None else matrix)

    def columns_within(limit: float, listed: tuple[Array, ...]) -> Array | None:
        kept = listed[2] <= limit
        graph = coo_array((np.ones(kept.sum(), np.int8), (listed[0][kept], listed[1][kept])), shape=(n, n))
        found: Array = maximum_bipartite_matching(graph.tocsr(), perm_type="column")
        return found if (found >= 0).all() else None

    def solve() -> Array | None:
        best = None
        for listed in _near(problem["x"], problem["y"]) if matrix is None else _listed(matrix):
            if (best := columns_within(math.inf, listed)) is not None:
                break
        limits = np.unique(listed[2])
        low, high = 0, len(limits) - 1
        while low < high:
            middle = (low + high) // 2
            found = columns_within(limits[middle], listed)
            low, high, best = (middle + 1, high, best) if found is None else (low, middle, found)
        return best

    return solve


SOLVERS = {
    OURS: Entrant("bigsap", _ours),
    UNPROVED: Entrant("bigsap", _unproved),
    FASTLAP: Entrant("fastlap", _fastlap),
    SCIPY: Entrant("scipy", _thresholds),
    FASTLAP_LARGEST: Entrant("fastlap", _fastlap_largest),
}


def run(settings: BenchSettings, log: Log) -> None:
    """Every problem by every solver that takes it."""
    contest.run(settings, log, __name__, cases(settings))


def render(log: Log) -> list[Block]:
    """A table of the k best, and one of bottlenecks."""
    parts: list[Block] = []
    kinds = log.distinct("cls", experiment=NAME)
    for title in ("k best", "bottleneck"):
        some = [kind for kind in kinds if kind.startswith(title)]
        bars = BARS | {(kind, n): bar for kind in some if "=" in kind for n, bar in K_BARS.items()}
        if found := contest.contest(log, NAME, SOLVERS, some, bars):
            parts += [Heading(title), found]
    note = (
        "random and matrix: independent uniform costs; points: uniform in the square, squared distances."
        f" k best: the sum of all k costs is compared, and the answers differ. {SCIPY}: the cheapest pairs,"
        " more of them until all rows have a column, then halving, by maximum matchings; it and fastlap do"
        " not look for the least sum within the threshold."
    )
    return [*parts, note, contest.LEGEND]
