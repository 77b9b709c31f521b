"""Figure 3: epsilon of a phase, and how far its prices are from the final ones."""

from __future__ import annotations

import itertools

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import matrix
from benchmarks.records import Log
from benchmarks.tables import Block, line, table
from bigsap.types import Array

NAME = "decay"
TITLE = "Epsilon and the distance to the final prices (figure 3)"
SOLVER = "bigsap ssp"


def run(settings: BenchSettings, log: Log) -> None:
    """One matrix of each class of the paper and size."""
    both = itertools.product(settings.decay_sizes, settings.paper_classes())
    for key in log.missing((NAME, cls, n, 0, SOLVER, 1) for n, cls in both):
        log.add(key, steps=distances(matrix(key[1], key[2], 0)))


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


def render(log: Log) -> list[Block]:
    """Geometric mean of distance over epsilon: about 1 wherever epsilon phases are needed."""
    rows = []
    for r in log.of(experiment=NAME):
        steps = np.array([step for step in r["steps"] if min(step) > 0]).reshape(-1, 2)
        mean = f"{np.exp(np.log(steps[:, 1] / steps[:, 0]).mean()):.2f}" if len(steps) else None
        rows.append(line(r["cls"], f"{r['n']:,}", len(r["steps"]), mean))
    return [table("class | n | phases with epsilon | distance / epsilon, geometric mean", rows)]
