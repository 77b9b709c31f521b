"""How seconds, evaluations and memory grow with n: points, no matrix anywhere."""

from __future__ import annotations

import math
import time
from typing import Any

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import matrix, points_of
from benchmarks.peers import find
from benchmarks.processes import measured, own_peak
from benchmarks.records import Log
from benchmarks.tables import Block, line, seconds_text, table
from benchmarks.timing import stats_of

NAME = "curve"
TITLE = "Points without a matrix, by size: seconds, evaluations and memory"
CLASSES = ("disjoint", "geometric")
SOLVER = "bigsap auto"
LAZY = "POT emd2_lazy"
_LIMIT = 3600.0
# Of processes that have a short limit: what starts and loads is not counted.
_LOADING = 10.0
# Large enough for coarse first prices, which have kernels of their own.
_WARM = 2048


def run(settings: BenchSettings, log: Log) -> None:
    """Each size in a process of its own, kernels loaded before the clock starts."""
    threads = max(settings.thread_counts)
    beside = "POT emd" in settings.peers and find("POT emd").installed()
    for n in settings.curve_sizes:
        for cls in (name for name in CLASSES if name in settings.classes):
            _measure(log, cls, n, SOLVER, threads, _LIMIT)
            if beside and n in settings.lazy_sizes:
                ours = log.get((NAME, cls, n, 0, SOLVER, threads)) or {}
                _measure(log, cls, n, LAZY, 1, settings.limit_of(ours.get("seconds")))


def _measure(log: Log, cls: str, n: int, solver: str, threads: int, limit: float) -> None:
    for key in log.missing([(NAME, cls, n, 0, solver, threads)]):
        print(f"    {cls}, n = {n:,}, {solver}", flush=True)
        of = lazy if solver == LAZY else ours
        try:
            found = measured(of, cls, n, threads, limit=limit + _LOADING)
        except TimeoutError:
            found = {"timeout": limit}
        log.add(key, **found)


def lazy(cls: str, n: int, threads: int) -> dict[str, Any]:
    """What POT takes, with one thread; a small problem first, which loads it."""
    import ot

    options = {"numItermax": 100_000_000, "log": True, "return_matrix": False}
    for size in (64, n):
        x, y = points_of(cls, size, 0)
        clock = time.perf_counter()
        loss, facts = ot.lp.emd2_lazy(x, y, metric="sqeuclidean", **options)
        seconds = time.perf_counter() - clock
    if facts.get("warning"):
        raise RuntimeError(f"POT: {facts['warning']}")
    return {"seconds": seconds, "peak_bytes": own_peak(), "fun": float(loss) * n}


def ours(cls: str, n: int, threads: int) -> dict[str, Any]:
    """What BigSAP takes, certificate included."""
    bigsap.solve(bigsap.points(*points_of(cls, _WARM, 0)), threads=threads)
    bigsap.solve(matrix("random", 64, 0), threads=threads)
    x, y = points_of(cls, n, 0)
    clock = time.perf_counter()
    result = bigsap.solve(bigsap.points(x, y), threads=threads)
    seconds = time.perf_counter() - clock
    counts = "method rows_evaluated pairs_evaluated rows_scanned certificate_pairs expected"
    return {
        "seconds": seconds,
        "stages": result.stats["seconds"],
        "peak_bytes": own_peak(),
        "fun": result.fun,
        "gap": result.gap,
        "status": str(result.status),
        **stats_of(result, counts),
    }


def render(log: Log) -> list[Block]:
    """One line a size."""
    rows = []
    for cls in log.distinct("cls", experiment=NAME):
        found = log.of(experiment=NAME, cls=cls, solver=SOLVER)
        for r in sorted(found, key=lambda r: int(r["n"])):
            n = r["n"]
            if "timeout" in r:
                rows.append(line(cls, f"{n:,}", f">{r['timeout']:.0f}", *[None] * 9))
                continue
            stages = [seconds_text(r["stages"][s]) for s in ("start", "search", "certificate")]
            rows.append(
                line(cls, f"{n:,}", seconds_text(r["seconds"]), *stages)
                + f" | {r['rows_evaluated'] / n:.2f} | {r['pairs_evaluated'] / n**2:.3f}"
                f" | {r['rows_scanned'] / n:.0f} | {r['peak_bytes'] / 2**20:,.0f}"
                f" | {r['gap'] / abs(r['fun']):.1e} | {r['status']}"
            )
    head = (
        "class | n | seconds | start | search | certificate | rows evaluated / n"
        " | pairs / n^2 | scans / n | peak MiB | gap / cost | status"
    )
    count = ", ".join(str(c) for c in log.distinct("threads", experiment=NAME, solver=SOLVER))
    note = (
        f"`bigsap.solve(bigsap.points(x, y))` with {count} threads, certificate included, one"
        " matrix a size, each in a process of its own. Rows evaluated count every evaluation,"
        " whole or partial, on every level; a block bound counts as one pair. The certificate's"
        " pass over the costs is not among the pairs."
    )
    return [table(head, rows), note, *_lazy(log)]


def _lazy(log: Log) -> list[Block]:
    """POT's solver that computes costs as well, beside ours."""
    rows = []
    for r in log.of(experiment=NAME, solver=LAZY):
        (own,) = log.of(experiment=NAME, cls=r["cls"], n=r["n"], solver=SOLVER)
        begun = line(r["cls"], f"{r['n']:,}", seconds_text(own.get("seconds")))
        if "timeout" in r:
            rows.append(line(begun, f">{r['timeout']:.0f}", None, None))
            continue
        same = "fun" in own and math.isclose(r["fun"], own["fun"], rel_tol=1e-9)
        peak = f"{r['peak_bytes'] / 2**20:,.0f}"
        rows.append(line(begun, seconds_text(r["seconds"]), peak, "same" if same else "ANOTHER"))
    if not rows:
        return []
    note = f"{LAZY} (one thread) computes costs when it needs them and stores no matrix either."
    return [table(f"class | n | {SOLVER} | {LAZY} | peak MiB of {LAZY} | cost", rows), note]
