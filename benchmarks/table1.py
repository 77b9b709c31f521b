"""Rows scanned against the paper's Table 1. Counts, not times: noise does not matter."""

from __future__ import annotations

from benchmarks.bench_settings import BenchSettings
from benchmarks.costs import matrix
from benchmarks.growth import Curves, by_size, fit
from benchmarks.measure import timed, warm
from benchmarks.paper import TABLE1
from benchmarks.records import Log
from benchmarks.report import DASH, ratio_text, table, verdict

NAME = "table1"
TITLE = "Rows scanned, against the paper's Table 1"
BAR = 1.05
SOLVER, PLAIN = "bigsap ssp", "bigsap ssp, no epsilon"


def run(settings: BenchSettings, log: Log) -> None:
    """Count with and without epsilon phases; without only few seeds of small sizes."""
    warmed = False
    for n in settings.table1_sizes:
        for cls in settings.paper_classes():
            for seed in range(settings.table1_seeds):
                missing = [
                    solver
                    for solver in (SOLVER, PLAIN)
                    if not log.has(NAME, cls, n, seed, solver, 1)
                    and (solver == SOLVER or (n <= settings.plain_size and seed < settings.plain_seeds))
                ]
                if missing and not warmed:
                    warm(method="ssp", start="estimate", certify=False)
                    warmed = True
                cost = matrix(cls, n, seed) if missing else None
                for solver in missing:
                    result, seconds = timed(
                        cost,
                        method="ssp",
                        start="estimate",
                        epsilon=solver == SOLVER,
                        threads=1,
                        certify=False,
                    )
                    kept = ("rows_scanned", "rows_evaluated", "pairs_evaluated")
                    log.add(
                        NAME,
                        cls,
                        n,
                        seed,
                        solver,
                        1,
                        seconds=seconds,
                        phases=result.nit,
                        **{name: result.stats[name] for name in kept},
                    )


def curves(log: Log, solver: str, field: str = "rows_scanned") -> Curves:
    """Means over the seeds: class -> n -> mean."""
    found: Curves = {}
    here = {"experiment": NAME, "solver": solver}
    for cls in log.distinct("cls", **here):
        for n in sorted(log.distinct("n", **here, cls=cls)):
            values = log.values(field, **here, cls=cls, n=n)
            found.setdefault(cls, {})[n] = sum(values) / len(values)
    return found


def render(settings: BenchSettings, log: Log) -> str:
    """The two halves of Table 1, then each class and size against the paper."""
    parts = []
    for solver, label in ((PLAIN, "Without"), (SOLVER, "With")):
        if found := curves(log, solver):
            parts += [f"{label} epsilon pricing, means:", by_size(found, lambda x: f"{x:,.0f}")]
    return "\n\n".join([*parts, "With epsilon pricing, against the paper:", _compared(log)])


def brief(settings: BenchSettings, log: Log) -> str:
    """The largest size, and how counts grow up to it."""
    largest = max(log.distinct("n", experiment=NAME))
    fits = {cls: fit(values) for cls, values in curves(log, SOLVER).items()}
    grown = ", ".join(f"{cls} n^{f[1]:.2f}" for cls, f in fits.items() if f)
    return "\n\n".join([_compared(log, largest), *([f"Growth: {grown}."] if grown else [])])


def _compared(log: Log, least: int = 0) -> str:
    """Every size from ``least`` rows on against the paper."""
    rows = []
    for n in sorted(n for n in log.distinct("n", experiment=NAME) if n >= least):
        for cls in log.distinct("cls", experiment=NAME, n=n):
            here = {"experiment": NAME, "n": n, "cls": cls, "solver": SOLVER}
            counts = log.values("rows_scanned", **here)
            if not counts:
                continue
            phases = log.values("phases", **here)
            mean = sum(counts) / len(counts)
            paper = TABLE1.get(n, {}).get(cls)
            ratio = mean / paper if paper else None
            rows.append(
                [
                    cls,
                    f"{n:,}",
                    str(len(counts)),
                    f"{mean:,.0f}",
                    f"{min(counts):,} to {max(counts):,}",
                    f"{sum(phases) / len(phases):.1f}",
                    f"{paper:,}" if paper else DASH,
                    ratio_text(ratio),
                    verdict(ratio, BAR, at_most=True),
                ]
            )
    head = [
        "class",
        "n",
        "seeds",
        "rows scanned, mean",
        "lowest to highest",
        "phases",
        "paper",
        "ratio",
        f"bar {BAR}",
    ]
    return table(head, rows)
