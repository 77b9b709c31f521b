"""Figure 3: epsilon of a phase, and how far its prices are from the final ones."""

from __future__ import annotations

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.costs import matrix
from benchmarks.records import Log
from benchmarks.report import DASH, table
from bigsap.sources.base import Array

NAME = "decay"
TITLE = "Epsilon and the distance to the final prices (figure 3)"
SOLVER = "bigsap ssp"


def run(settings: BenchSettings, log: Log) -> None:
    """One matrix of each class of the paper and size."""
    for n in settings.decay_sizes:
        for cls in settings.paper_classes():
            if not log.has(NAME, cls, n, 0, SOLVER, 1):
                log.add(NAME, cls, n, 0, SOLVER, 1, steps=distances(matrix(cls, n, 0)))


def distances(cost: Array) -> list[list[float]]:
    """Epsilon and mean distance of the prices from the final ones, of each phase but the last.

    A solve stopped when phase p + 1 begins shows the prices at the end of phase p. Prices are
    free in one constant: the smallest difference counts as 0.
    """
    final = bigsap.solve(cost, method="ssp", start="estimate", threads=1)
    found = []
    for phase in range(1, final.nit):

        def stop(progress: bigsap.Progress, phase: int = phase) -> None:
            if progress.phase > phase:
                raise StopIteration

        part = bigsap.solve(cost, method="ssp", start="estimate", threads=1, callback=stop)
        above = part.v - final.v
        epsilon = final.stats["phases"][phase - 1]["epsilon"]
        found.append([epsilon, float((above - above.min()).mean())])
    return found


def brief(settings: BenchSettings, log: Log) -> str:
    """The largest size alone."""
    return render(settings, log, max(log.distinct("n", experiment=NAME)))


def render(settings: BenchSettings, log: Log, least: int = 0) -> str:
    """Geometric mean of distance over epsilon: about 1 wherever epsilon phases are needed."""
    rows = []
    for record in log.of(experiment=NAME):
        if record["n"] < least:
            continue
        steps = np.array([step for step in record["steps"] if min(step) > 0]).reshape(-1, 2)
        ratio = np.exp(np.log(steps[:, 1] / steps[:, 0]).mean()) if len(steps) else None
        rows.append(
            [
                record["cls"],
                f"{record['n']:,}",
                str(len(record["steps"])),
                DASH if ratio is None else f"{ratio:.2f}",
            ]
        )
    head = ["class", "n", "phases with epsilon", "distance / epsilon, geometric mean"]
    return table(head, rows)
