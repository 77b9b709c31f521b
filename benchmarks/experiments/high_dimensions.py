"""Points of many dimensions, without a matrix: against solvers that need it, and against one product."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import bigsap
from benchmarks import contest
from benchmarks.bench_settings import BenchSettings
from benchmarks.contest import OURS, Case, Entrant, Problem, facts_of
from benchmarks.records import Log
from benchmarks.tables import Block, line, ratio, ratio_text, seconds_text, table, verdict
from bigsap.types import Array

NAME = "high_dimensions"
TITLE = "Points of many dimensions, without a matrix"
COSINE, SPHERE, LISTS = "cosine, 768-D, float32", "great circles", "mixture, 50-D, 1 GiB"
OWN_MATRIX, TWO = "bigsap, matrix", "bigsap, 2 threads"
LAPX, POT = "lapx lapjvr, matrix", "POT emd, matrix"
WARM = 1500
_NORMALS, _NOISE, _RADIUS = 20, 0.2, 6371.0
_BLOCK = 2048
BARS = {(LISTS, 30_000): 8.0, (COSINE, 20_000): 40.0, (SPHERE, 30_000): 4.0}
#: At least so many times faster than the best other, on one thread.
LEAD = 8.0
#: At most so many times the seconds of a matrix and its solve.
BESIDE = 1.2


def mixture(d: int) -> str:
    """The class in d dimensions."""
    return f"mixture, {d}-D"


def cases(settings: BenchSettings) -> list[Case]:
    """Those with others, and larger ones alone on two threads."""
    found = [
        Case(mixture(d), n, (OURS, OWN_MATRIX, LAPX, POT))
        for n in settings.high_sizes
        for d in settings.high_dimensions
    ]
    return found + [Case(cls, n, (TWO,)) for cls, n in settings.high_large]


def make(cls: str, n: int) -> Problem:
    """Points on both sides: two samples of a mixture of normals, the second with noise; or of a sphere."""
    rng = np.random.default_rng(n)
    if cls == SPHERE:  # latitudes and longitudes in radians, uniform on the sphere
        x, y = (np.stack([np.arcsin(t), np.pi * s], axis=1) for t, s in rng.uniform(-1, 1, (2, 2, n)))
        return {"x": x, "y": y, "metric": "haversine", "limit": ""}
    d = int(cls.split(", ")[1].removesuffix("-D"))
    centres = rng.normal(size=(_NORMALS, d))
    x, y = (centres[rng.integers(_NORMALS, size=n)] + rng.normal(size=(n, d)) for _ in range(2))
    y += rng.normal(0, _NOISE, (n, d))
    if cls == COSINE:
        return {"x": x.astype(np.float32), "y": y.astype(np.float32), "metric": "cosine", "limit": ""}
    return {"x": x, "y": y, "metric": "sqeuclidean", "limit": "1GiB" if cls == LISTS else ""}


def judge(problem: Problem, answer: Any) -> dict[str, Any]:
    """Cost, by squared distances of the pairs where others take part; and one product of the points."""
    facts: dict[str, Any] = {}
    columns = answer
    if isinstance(answer, bigsap.Result):
        facts = facts_of(answer) | {"product_seconds": _product(problem["x"], problem["y"])}
        columns = answer.col4row
        if problem["metric"] != "sqeuclidean":
            return facts | {"cost": answer.fun}
    elif isinstance(answer, tuple):
        columns, facts["matrix_seconds"] = answer
    x, y = problem["x"], problem["y"]
    if not np.array_equal(np.sort(columns), np.arange(len(x))):
        return facts | {"cost": None}
    return facts | {"cost": math.fsum(((x - y[columns]) ** 2).sum(1))}


def _product(x: Array, y: Array) -> float:
    """Wall seconds of one product of the point sets, block by block."""
    clock = time.perf_counter()
    for start in range(0, len(x), _BLOCK):
        x[start : start + _BLOCK] @ y.T
    return time.perf_counter() - clock


# -- solvers ------------------------------------------------------------------------------


def _start(problem: Problem, threads: int) -> Any:
    options: dict[str, Any] = {"memory_limit": str(problem["limit"])} if problem["limit"] else {}
    radius = _RADIUS if problem["metric"] == "haversine" else None

    def solve() -> bigsap.Result:
        costs = bigsap.points(problem["x"], problem["y"], str(problem["metric"]), radius=radius)
        return bigsap.solve(costs, threads=threads, **options)

    return solve


def _ours(problem: Problem) -> Any:
    return _start(problem, 1)


def _two(problem: Problem) -> Any:
    return _start(problem, 2)


def _matrix(problem: Problem) -> tuple[Array, float]:
    """Squared distances by one product, and the processor seconds that they took."""
    clock = time.process_time()
    x, y = problem["x"], problem["y"]
    found = x @ y.T
    found *= -2
    found += (x**2).sum(1)[:, None]
    found += (y**2).sum(1)
    np.maximum(found, 0, out=found)
    return found, time.process_time() - clock


def _own_matrix(problem: Problem) -> Any:
    def solve() -> tuple[Array, float]:
        matrix, seconds = _matrix(problem)
        return bigsap.solve(matrix, threads=1).col4row, seconds

    return solve


def _lapx(problem: Problem) -> Any:
    import lap

    def solve() -> tuple[Array, float]:
        matrix, seconds = _matrix(problem)
        rows, columns = lap.lapjvr(matrix, return_cost=False)
        return np.asarray(columns)[np.argsort(rows)], seconds

    return solve


def _pot(problem: Problem) -> Any:
    import ot

    def solve() -> tuple[Array, float]:
        matrix, seconds = _matrix(problem)
        return ot.emd([], [], matrix, numItermax=100_000_000).argmax(axis=1), seconds

    return solve


SOLVERS = {
    OURS: Entrant("bigsap", _ours),
    TWO: Entrant("bigsap", _two, threads=2),
    OWN_MATRIX: Entrant("bigsap", _own_matrix),
    LAPX: Entrant("lap", _lapx),
    POT: Entrant("ot", _pot),
}


def run(settings: BenchSettings, log: Log) -> None:
    """Every problem by every solver that takes it."""
    contest.run(settings, log, __name__, cases(settings))


def render(log: Log) -> list[Block]:
    """Seconds; of them the matrix; and the work against one product."""
    classes = log.distinct("cls", experiment=NAME)
    found = contest.contest(log, NAME, SOLVERS, classes, BARS)
    here = list(log.of(experiment=NAME))
    matrices = [
        line(
            r["cls"],
            f"{r['n']:,}",
            r["solver"],
            seconds_text(r["matrix_seconds"]),
            seconds_text(r["seconds"]),
        )
        for r in here
        if "matrix_seconds" in r
    ]
    work = [_work(r) for r in here if "product_seconds" in r]
    parts: list[Block] = [found] if found else []
    if matrices:
        parts.append(table("points | n | solver | matrix, s | with the solve, s", matrices))
    if work:
        head = (
            "points | n | pairs / n^2 | of the proof | scans / n | solve, wall s | one product, s | quotient"
        )
        parts.append(table(head, work))
    if judged := [row for cls in classes for row in _judged(log, cls)]:
        head = f"points | n | best other / {OURS} | bar {LEAD:g} | {OURS} / {OWN_MATRIX} | bar {BESIDE:g}"
        parts.append(table(head, judged))
    note = (
        f"mixture: two samples of {_NORMALS} normals of spread 1 around normal centres, the second with noise"
        f" of {_NOISE}; squared distances. Solvers that need a matrix get it by one product of the points,"
        " which counts. The quotient is to one product of the two point sets, in blocks,"
        " the least that a look at every pair takes. Two threads: seconds of the wall."
    )
    return [*parts, note, contest.LEGEND]


def _judged(log: Log, cls: str) -> list[str]:
    """Of each size of the class: how far ahead of others, and of the same with a matrix."""
    found = []
    for n in sorted(log.distinct("n", experiment=NAME, cls=cls)):
        of = {r["solver"]: r for r in log.of(experiment=NAME, cls=cls, n=n) if "seconds" in r}
        if OURS not in of or OWN_MATRIX not in of:
            continue
        own = of[OURS]["seconds"]
        others = [r["seconds"] for s, r in of.items() if s in (LAPX, POT) and contest.exact(log, r)]
        lead, times = min(others, default=math.nan) / own, own / of[OWN_MATRIX]["seconds"]
        ahead = verdict(lead, LEAD, at_most=False, judged=log.judged and bool(others))
        close = verdict(times, BESIDE, at_most=True, judged=log.judged)
        found.append(line(cls, f"{n:,}", f"{lead:.2f}", ahead, f"{times:.2f}", close))
    return found


def _work(record: dict[str, Any]) -> str:
    n, product = record["n"], record["product_seconds"]
    shares = [ratio_text(record[name] / n**2) for name in ("pairs_evaluated", "certificate_pairs")]
    quotient = ratio_text(ratio(record["wall"], product))
    scans = f"{record['rows_scanned'] / n:.1f}"
    return line(
        record["cls"], f"{n:,}", *shares, scans, seconds_text(record["wall"]), seconds_text(product), quotient
    )
