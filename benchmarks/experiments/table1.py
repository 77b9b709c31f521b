"""Rows scanned against the paper's Table 1. Counts, not times: noise does not matter."""

from __future__ import annotations

import itertools

from benchmarks import tables
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import matrix
from benchmarks.paper import TABLE1
from benchmarks.records import Curves, Log
from benchmarks.tables import Block, Table, line, table
from benchmarks.timing import SSP, stats_of, timed, warm

NAME = "table1"
TITLE = "Rows scanned, against the paper's Table 1"
BAR = 1.05
SOLVER, PLAIN = "bigsap ssp", "bigsap ssp, no epsilon"


def run(settings: BenchSettings, log: Log) -> None:
    """Count with and without epsilon phases; without only few seeds of small sizes."""
    seeds = range(settings.table1_seeds)
    for n, cls, seed in itertools.product(settings.table1_sizes, settings.paper_classes(), seeds):
        plain = n <= settings.plain_size and seed < settings.plain_seeds
        solvers = (SOLVER, PLAIN) if plain else (SOLVER,)
        missing = log.missing((NAME, cls, n, seed, solver, 1) for solver in solvers)
        if not missing:
            continue
        warm(**SSP)
        cost = matrix(cls, n, seed)
        for key in missing:
            result, seconds = timed(cost, epsilon=key[4] == SOLVER, threads=1, **SSP)
            counts = stats_of(result, "rows_scanned rows_evaluated pairs_evaluated")
            log.add(key, seconds=seconds, phases=result.nit, **counts)


def curves(log: Log, solver: str, field: str = "rows_scanned") -> Curves:
    """Means over the seeds: class -> n -> mean."""
    return log.curves(field, mean=True, experiment=NAME, solver=solver)


def render(log: Log) -> list[Block]:
    """The two halves of Table 1, then each class and size against the paper."""
    parts: list[Block] = []
    for solver, label in ((PLAIN, "Without"), (SOLVER, "With")):
        if found := curves(log, solver):
            parts += [f"{label} epsilon pricing, means:", tables.by_size(found, lambda x: f"{x:,.0f}")]
    return [*parts, "With epsilon pricing, against the paper:", _compared(log)]


def brief(log: Log) -> list[Block]:
    """The largest size, and how counts grow up to it."""
    fits = {cls: tables.fit(values) for cls, values in curves(log, SOLVER).items()}
    grown = ", ".join(f"{cls} n^{f[1]:.2f}" for cls, f in fits.items() if f)
    largest = max(log.distinct("n", experiment=NAME))
    return [_compared(log, largest), *([f"Growth: {grown}."] if grown else [])]


def _compared(log: Log, least: int = 0) -> Table:
    """Every size from ``least`` rows on against the paper."""
    rows = []
    for n in sorted(n for n in log.distinct("n", experiment=NAME) if n >= least):
        for cls in log.distinct("cls", experiment=NAME, n=n):
            here = {"experiment": NAME, "n": n, "cls": cls, "solver": SOLVER}
            counts, phases = log.values("rows_scanned", **here), log.values("phases", **here)
            if not counts:
                continue
            mean = sum(counts) / len(counts)
            paper = TABLE1.get(n, {}).get(cls)
            against = mean / paper if paper else None
            spread = f"{min(counts):,} to {max(counts):,}"
            rows.append(
                f"{cls} | {n:,} | {len(counts)} | {mean:,.0f} | {spread}"
                f" | {sum(phases) / len(phases):.1f} | "
                + line(paper and f"{paper:,.0f}", tables.ratio_text(against))
                + f" | {tables.verdict(against, BAR, at_most=True)}"
            )
    head = "class | n | seeds | rows scanned, mean | lowest to highest | phases | paper | ratio"
    return table(f"{head} | bar {BAR}", rows)
