"""Memory beyond a matrix in RAM, in vectors of 8 n bytes, measured in fresh processes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from benchmarks.bench_settings import BenchSettings
from benchmarks.processes import environment, python
from benchmarks.records import Log
from benchmarks.report import DASH, middle, table, verdict

NAME = "memory"
TITLE = "Peak memory beyond the matrix"
BAR = 10.0
CLASS = "random"
THREADS = 1
SOLVE, CERTIFIED = "solve", "solve and certificate"


def run(settings: BenchSettings, log: Log) -> None:
    """Peaks of processes that solve, less that of one that does not."""
    n = settings.memory_size
    _child(n, 0, "base")  # kernels on disk, pages of the libraries in memory
    for seed in range(settings.memory_seeds):
        missing = [k for k in (SOLVE, CERTIFIED) if not log.has(NAME, CLASS, n, seed, k, THREADS)]
        if not missing:
            continue
        base = _child(n, seed, "base")
        for kind in missing:
            what = "solve" if kind == SOLVE else "certified"
            resident = _child(n, seed, what)["peak_bytes"] - base["peak_bytes"]
            arrays = _child(n, seed, what, "traced")["traced_bytes"]
            log.add(
                NAME,
                CLASS,
                n,
                seed,
                kind,
                THREADS,
                base_bytes=base["peak_bytes"],
                beyond_bytes=resident,
                array_bytes=arrays,
            )


def _child(n: int, seed: int, *what: str) -> dict[str, Any]:
    command = python("benchmarks.memory_child", str(n), str(seed), *what)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def render(settings: BenchSettings, log: Log) -> str:
    """In bytes, and in vectors of the length of a row."""
    rows = []
    for n in log.distinct("n", experiment=NAME):
        for kind in log.distinct("solver", experiment=NAME, n=n):
            here = {"experiment": NAME, "n": n, "solver": kind}
            beyond = middle(log.values("beyond_bytes", **here))
            arrays = middle(log.values("array_bytes", **here))
            vectors = None if beyond is None else beyond / (8 * n)
            judged = log.judged and kind == SOLVE
            bar = verdict(vectors, BAR, at_most=True, judged=judged)
            exact = DASH if arrays is None else f"{arrays / (8 * n):.1f}"
            rows.append(
                [
                    kind,
                    f"{n:,}",
                    str(len(log.distinct("seed", **here))),
                    DASH if beyond is None else f"{beyond / 1024:,.0f} KiB",
                    DASH if vectors is None else f"{vectors:.1f}",
                    exact,
                    bar,
                ]
            )
    head = [
        "what",
        "n",
        "seeds",
        "resident beyond",
        "in vectors of 8n bytes",
        "arrays allocated, in vectors",
        f"bar {BAR:.0f}",
    ]
    note = (
        "Resident: the peak of a process that builds the matrix and solves it, less that of one"
        " that only builds it, both with the kernels loaded. Arrays: the peak of what Python"
        " allocates during the solve, which no page or allocator rounds."
    )
    return f"{table(head, rows)}\n\n{note}"
