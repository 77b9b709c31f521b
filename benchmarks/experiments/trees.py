"""The Hungarian method as papers measured it: first stars, passes, paths and steps by range.

Counts are of the CPU's twin, which are a device's. Published ones stand beside them, never as
bars: Date and Nagi 2016; Kawtikwar, Cravens and Yang, table III (n is not said, 4096 by a figure).
"""

from __future__ import annotations

import itertools

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import integers
from benchmarks.records import Log
from benchmarks.tables import Block, line, table

NAME = "trees"
TITLE = "The Hungarian method: first stars, passes, paths and steps by range"
#: Ranges of costs, in n.
FACTORS = (0.1, 1.0, 10.0, 100.0)
# Dual updates of the classical method are many where ties are few.
_CLASSICAL = {0.1: 2000, 1.0: 1000, 10.0: 500}

#: Range in n -> stages, dual updates as published (table III).
PUBLISHED_STEPS = {0.1: (11, 0), 1.0: (79, 10), 10.0: (199, 82), 100.0: (618, 844)}
#: n, range in n -> percent of rows matched by the first stars, as published.
PUBLISHED_STARS = {(1000, 1.0): 86.6, (20_000, 10.0): 81.3}


def run(settings: BenchSettings, log: Log) -> None:
    """One matrix of each size and range."""
    for n, factor in itertools.product(settings.trees_sizes, FACTORS):
        variants = ("tree", "classical") if n <= _CLASSICAL.get(factor, 0) else ("tree",)
        for key in log.missing((NAME, f"int{factor:g}n", n, 1, name, 1) for name in variants):
            cost = integers(n, 1, factor)
            result = bigsap.solve(cost, method="hungarian", variant=key[4], threads=1)
            log.add(key, factor=factor, **result.stats["trees"])


def brief(log: Log) -> list[Block]:
    """The largest matrices alone."""
    return render(log, max(log.distinct("n", experiment=NAME)))


def render(log: Log, least: int = 0) -> list[Block]:
    """Counts of matrices of at least so many rows."""
    rows = []
    for r in log.of(experiment=NAME):
        n, factor = r["n"], r["factor"]
        if n < least:
            continue
        stages, updates = PUBLISHED_STEPS.get(factor, (None, None))
        begun = f"{r['cls']} {r['solver']} | {n:,} | {100 * (1 - r['roots'] / n):.1f}"
        counts = line(begun, PUBLISHED_STARS.get((n, factor)), r["stages"], stages)
        counts += f" | {r['paths'] / max(1, r['stages']):.1f}"
        steps = line(counts, r["levels"], r["clock_steps"], updates)
        rows.append(f"{steps} | {r['expansions'] / n:.1f}")
    head = (
        "costs | n | first stars, % | published | stages | published | paths a stage | levels"
        " | dual updates | published | expansions a row"
    )
    return [table(head, rows)]
