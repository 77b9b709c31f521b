"""Work, not time: counts of the classes that ``versus`` measured, expected and used, and limits."""

from __future__ import annotations

import math
from typing import Any

from benchmarks import standings
from benchmarks.bench_settings import PAPER_CLASSES, BenchSettings
from benchmarks.instances import MORE
from benchmarks.records import Log
from benchmarks.tables import Block, line, middle, table

NAME = "work"
TITLE = "Work, not time: costs looked at and rows scanned, against the least possible"
#: The experiment whose records this one renders.
READS = standings.NAME
SOLVER = "bigsap auto"
#: A larger multiple of the least work wants a reason.
FAR = 5.0
#: Counts in multiples of the least, and the power of n that this is.
_GROWING = (("pairs", 2), ("scans", 1))
_PHASES = (
    "independent costs: each phase assigns all rows anew, from the prices of the one before, and scans a row"
    " some times; a scan reads the row's list, not the row"
)
_POINTS = (
    "rows that are alike want the same columns, so a search passes many rows before it finds a free column;"
    " levels and phases share these scans among them"
)
_COPIES = "equal rows and columns: a search passes all copies at no distance before it ends"
REASONS = {
    **dict.fromkeys([*PAPER_CLASSES, *MORE], _POINTS),
    **dict.fromkeys(["random", "lognormal", "half forbidden"], _PHASES),
    **{f"int{k}n": _PHASES for k in ("0.1", "1", "10", "1000")},
    "duplicates": _COPIES,
}


def run(settings: BenchSettings, log: Log) -> None:
    """Nothing: all records are those of another experiment."""


def counts(log: Log, cls: str) -> list[dict[str, Any]]:
    """A line a size: the method, and medians of pairs, scans and bytes, over the least."""
    found = []
    here = {"experiment": READS, "cls": cls, "solver": SOLVER}
    for n in sorted(log.distinct("n", **here)):
        threads = min(log.distinct("threads", **here, n=n))
        records = [r for r in log.of(**here, n=n, threads=threads) if "pairs_evaluated" in r]
        if records:
            pairs = middle([r["pairs_evaluated"] for r in records]) or 0.0
            scans = middle([r["rows_scanned"] for r in records]) or 0.0
            size = 4 if cls.startswith("int") else 8
            facts = {"n": n, "method": records[0]["method"], "bytes": size * pairs}
            # What is expected depends on the size and the method alone.
            expected = records[0].get("expected") or {"pairs": None, "scans": None}
            facts |= {f"expected {name}": over(expected[name], n**power) for name, power in _GROWING}
            found.append(facts | {"pairs": pairs / n**2, "scans": scans / n})
    return found


def over(count: float | None, least: float) -> float | None:
    """The count in multiples of the least; None without one."""
    return None if count is None else count / least


def growth(sizes: list[dict[str, Any]], name: str, power: int) -> str | None:
    """The exponent of a count in n, between the first and last size of the last one's method."""
    same = [size for size in sizes if size["method"] == sizes[-1]["method"]]
    first, last = same[0], same[-1]
    if first["n"] == last["n"] or not first[name] or not last[name]:
        return None
    exponent = power + math.log(last[name] / first[name]) / math.log(last["n"] / first["n"])
    return f"n^{exponent:.2f}"


def shown(value: float | None, digits: int) -> str | None:
    """The number with so many digits after the point; None without one."""
    return None if value is None else f"{value:.{digits}f}"


def render(log: Log) -> list[Block]:
    """Counts of all classes at all sizes, growth, and why some are far from the least."""
    rows, far = [], []
    for cls in log.distinct("cls", experiment=READS, solver=SOLVER):
        sizes = counts(log, cls)
        for size in sizes:
            last = size is sizes[-1]
            rows.append(
                line(
                    *(cls, f"{size['n']:,}", size["method"]),
                    *(shown(size["expected pairs"], 2), f"{size['pairs']:.2f}"),
                    *(shown(size["expected scans"], 1), f"{size['scans']:.1f}"),
                    f"{size['bytes'] / 2**20:,.0f}",
                    *(growth(sizes, name, power) if last else None for name, power in _GROWING),
                )
            )
        most = max((size[name] for size in sizes for name in ("pairs", "scans")), default=0.0)
        if most > FAR:
            far.append(f"{cls}, up to {most:.1f} times: {REASONS.get(cls, _POINTS)}.")
    head = (
        "class | n | method | pairs / n^2, expected | pairs / n^2 | scans / n, expected | scans / n"
        " | costs read, MiB | pairs grow as | scans grow as"
    )
    note = (
        "A pair is a cost looked at; n^2 are one read of the matrix, below which no proof for any matrix"
        " comes. A scan goes through a row, or its list; at least one a row is needed where rows compete,"
        " none where a first assignment is optimal, nor for integers of a small range (`hungarian`, which"
        " counts none). Expected (`Result.stats`) is what size, method and kind of costs say before the"
        " solve begins. Growth is that between the smallest and the largest size with the method of the"
        " largest. One thread, or the least that ran; the proof is not included."
    )
    parts: list[Block] = [table(head, rows), note]
    if far:
        parts += [f"More than {FAR:g} times the least:", far]
    return parts
