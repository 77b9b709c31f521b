"""Rows scanned against the paper's Table 1. Counts, not times: noise does not matter."""

from __future__ import annotations

from bench.costs import matrix
from bench.measure import timed
from bench.records import Log
from bench.report import DASH, ratio_text, table, verdict
from bench.settings import Settings

NAME = "table1"
TITLE = "Rows scanned, against the paper's Table 1"
BAR = 1.05
SOLVER = "bigsap ssp"

# Guthe and Thuerck 2021, Table 1, epsilon pricing, mean of 5 matrices.
PAPER = {
    1000: {
        "sanity": 1_000, "random": 12_824, "geometric": 19_998, "disjoint": 28_229,
        "rank1": 3_503, "rank2": 28_969, "rank4": 25_239, "rank8": 22_989,
    },
    4000: {
        "sanity": 4_000, "random": 65_389, "geometric": 125_907, "disjoint": 190_391,
        "rank1": 16_519, "rank2": 185_804, "rank4": 142_926, "rank8": 120_681,
    },
    16000: {
        "sanity": 16_000, "random": 368_018, "geometric": 754_908, "disjoint": 1_324_769,
        "rank1": 74_643, "rank2": 1_113_684, "rank4": 736_156, "rank8": 658_319,
    },
    32000: {
        "sanity": 32_000, "random": 824_494, "geometric": 1_966_770, "disjoint": 3_343_990,
        "rank1": 152_379, "rank2": 2_886_527, "rank4": 1_774_836, "rank8": 1_548_766,
    },
}  # fmt: skip


def run(settings: Settings, log: Log) -> None:
    for n in settings.table1_sizes:
        for cls in settings.paper_classes():
            for seed in range(settings.table1_seeds):
                if log.has(NAME, cls, n, seed, SOLVER, 1):
                    continue
                result, seconds = timed(
                    matrix(cls, n, seed), method="ssp", threads=1, certify=False
                )
                kept = ("rows_scanned", "rows_evaluated")
                log.add(
                    NAME, cls, n, seed, SOLVER, 1, seconds=seconds, phases=result.nit,
                    **{name: result.stats[name] for name in kept},
                )  # fmt: skip


def render(settings: Settings, log: Log) -> str:
    rows = []
    for n in log.distinct("n", experiment=NAME):
        for cls in log.distinct("cls", experiment=NAME, n=n):
            counts = log.values("rows_scanned", experiment=NAME, n=n, cls=cls)
            phases = log.values("phases", experiment=NAME, n=n, cls=cls)
            mean = sum(counts) / len(counts)
            paper = PAPER.get(n, {}).get(cls)
            ratio = mean / paper if paper else None
            rows.append([
                cls, f"{n:,}", str(len(counts)), f"{mean:,.0f}",
                f"{min(counts):,} to {max(counts):,}", f"{sum(phases) / len(phases):.1f}",
                f"{paper:,}" if paper else DASH, ratio_text(ratio),
                verdict(ratio, BAR, at_most=True),
            ])  # fmt: skip
    head = [
        "class", "n", "seeds", "rows scanned, mean", "lowest to highest", "phases", "paper",
        "ratio", f"bar {BAR}",
    ]  # fmt: skip
    return table(head, rows)
