"""Memory beyond a matrix in RAM, in vectors of 8 n bytes, measured in fresh processes."""

from __future__ import annotations

import tracemalloc

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import random
from benchmarks.processes import measured, own_peak
from benchmarks.records import Log
from benchmarks.tables import DASH, Block, middle, table, verdict
from benchmarks.timing import SSP, WARM_SIZE

NAME = "memory"
TITLE = "Peak memory beyond the matrix"
BAR = 10.0
CLASS = "random"
SOLVE, CERTIFIED = "solve", "solve and certificate"
_WHAT = {SOLVE: "solve", CERTIFIED: "certified"}


def run(settings: BenchSettings, log: Log) -> None:
    """Peaks of processes that solve, less that of one that does not."""
    n = settings.memory_size
    measured(peaks, n, 0, "base")  # kernels on disk, pages of the libraries in memory
    for seed in range(settings.memory_seeds):
        missing = log.missing((NAME, CLASS, n, seed, kind, 1) for kind in _WHAT)
        base = measured(peaks, n, seed, "base")["peak_bytes"] if missing else 0
        for key in missing:
            what = _WHAT[key[4]]
            beyond = measured(peaks, n, seed, what)["peak_bytes"] - base
            arrays = measured(peaks, n, seed, what, True)["traced_bytes"]
            log.add(key, base_bytes=base, beyond_bytes=beyond, array_bytes=arrays)


def peaks(n: int, seed: int, what: str, traced: bool = False) -> dict[str, int]:
    """The peak of this process, and of what Python allocated for the solve if ``traced``."""
    options = {**SSP, "threads": 1}
    for certify in (False, True):
        bigsap.solve(random(WARM_SIZE, seed), **{**options, "certify": certify})
    # After everything else: what was freed before must not hide what the solve takes.
    cost = random(n, seed)
    if traced:
        tracemalloc.start()
    if what != "base":
        bigsap.solve(cost, **{**options, "certify": what == "certified"})
    more = {"traced_bytes": tracemalloc.get_traced_memory()[1]} if traced else {}
    return {"peak_bytes": own_peak(), **more}


def render(log: Log) -> list[Block]:
    """In bytes, and in vectors of the length of a row."""
    rows = []
    for n in log.distinct("n", experiment=NAME):
        for kind in log.distinct("solver", experiment=NAME, n=n):
            here = {"experiment": NAME, "n": n, "solver": kind}
            beyond = middle(log.values("beyond_bytes", **here))
            arrays = middle(log.values("array_bytes", **here))
            vectors = None if beyond is None else beyond / (8 * n)
            judged = log.judged and kind == SOLVE
            rows.append(
                f"{kind} | {n:,} | {len(log.distinct('seed', **here))}"
                f" | {DASH if beyond is None else f'{beyond / 1024:,.0f} KiB'}"
                f" | {DASH if vectors is None else f'{vectors:.1f}'}"
                f" | {DASH if arrays is None else f'{arrays / (8 * n):.1f}'}"
                f" | {verdict(vectors, BAR, at_most=True, judged=judged)}"
            )
    head = "what | n | seeds | resident beyond | in vectors of 8n bytes"
    note = (
        "Resident: the peak of a process that builds the matrix and solves it, less that of one"
        " that only builds it, both with the kernels loaded. Arrays: the peak of what Python"
        " allocates during the solve, which no page or allocator rounds."
    )
    return [table(f"{head} | arrays allocated, in vectors | bar {BAR:.0f}", rows), note]
