"""Write the figures of README.md and docs/benchmarks/index.md from the benchmarks' log.

``python docs/figures.py``; the log is made by ``make results``.
"""

from __future__ import annotations

import re
import statistics
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.experiments import curve
from benchmarks.records import Log
from benchmarks.standings import Match, best_other, matches, standings
from benchmarks.tables import seconds_text

LOG = ROOT / "tests" / "bench" / "runs.jsonl"
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks" / "index.md")
#: The size of the comparison, and those of which losses are shown.
SIZE, SIZES = 4000, (2000, 4000, 8000)
#: Solvers and classes of the log, as people call them.
SOLVERS = {
    "bigsap auto": "BigSAP `auto`",
    "A1015 C++": "Algorithm 1015, C++",
    "lapx lapjvr": "lapx `lapjvr`",
    "lapx lapjv": "lapx `lapjv`",
    "POT emd": "POT `emd`",
    "scipy": "scipy",
}
SHOWN = tuple(name for name in SOLVERS if name != "lapx lapjv")
CLASSES = {
    "random": "random",
    "geometric": "points, one square",
    "disjoint": "points, two regions",
    "rank1": "rank 1",
    "rank2": "rank 2",
    "int10n": "integers to 10 n",
    "int0.1n": "integers to n / 10",
    "sanity": "identity is optimal",
    "clusters": "12 tight clusters, 5-D",
    "lognormal": "heavy tails",
    "cosine 64-D": "64-D cosine",
    "half forbidden": "half forbidden",
}
_BLOCK = re.compile(r"(?<=<!-- figures: )(\w+) -->\n.*?(?=<!-- to here -->)", re.S)


def compared(log: Log) -> str:
    """The seconds of all solvers: a class a line."""
    found = standings(log, SIZE, 1)
    own, *others = [name for name in SHOWN if name in next(iter(found.values()))]
    lines = [
        "| costs | " + " | ".join([SOLVERS[own], "best other", *map(SOLVERS.__getitem__, others)]) + " |",
        "| --- | ---: | ---" + " | ---:" * len(others) + " |",
    ]
    for cls, name in CLASSES.items():
        cells = found[cls]
        rival, seconds = best_other(cells)
        best = f"{seconds_text(seconds)}, {_called(rival)}" if rival else "none in time"
        texts = [cells[solver][0] for solver in others]
        lines.append("| " + " | ".join([name, cells[own][0], best, *texts]) + " |")
    return "\n".join(lines)


def lost(log: Log) -> str:
    """Where another solver is faster, of all classes and sizes."""
    lines = [f"| costs | rows | {SOLVERS['bigsap auto']} | faster | |", "| --- | ---: | ---: | --- | ---: |"]
    for match in _of(log, SIZES):
        if match.lost:
            assert match.rival_seconds is not None
            times = match.seconds / match.rival_seconds
            lines.append(
                f"| {CLASSES.get(match.cls, match.cls)} | {match.n:,} | {seconds_text(match.seconds)}"
                f" | {seconds_text(match.rival_seconds)}, {_called(match.rival)} | {times:.2f} times |"
            )
    return "\n".join(lines)


def losses(log: Log) -> str:
    """The same in words: by how much, class by class."""
    parts = []
    for n in SIZES:
        found = [match for match in _of(log, (n,)) if match.lost]
        worst = sorted(found, key=lambda match: match.lead or 0.0)
        names = [f'"{CLASSES.get(m.cls, m.cls)}" ({1 / m.lead:.2f} times)' for m in worst if m.lead]
        parts.append(f"at {n:,} rows in " + (", ".join(names) or "none"))
    text = f"Of twenty classes, on one thread, another solver is faster {'; '.join(parts)}."
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def leads(log: Log) -> str:
    """How many times faster than the best other solver, by size."""
    lines = [
        "| rows | classes | faster than the best other in | times faster: least, median, most |",
        "| ---: | ---: | ---: | --- |",
    ]
    for n in SIZES:
        found = _of(log, (n,))
        times = [match.lead for match in found if match.lead is not None and match.rival]
        won = sum(not match.lost for match in found)
        spread = (min(times), statistics.median(times), max(times))
        lines.append(f"| {n:,} | {len(found)} | {won} | {', '.join(f'{x:.3g}' for x in spread)} |")
    return "\n".join(lines)


def largest(log: Log) -> str:
    """The largest sets of points."""
    n = max(log.distinct("n", experiment=curve.NAME))
    lines = ["| points | rows | seconds, two threads | MiB | gap |", "| --- | ---: | ---: | ---: | ---: |"]
    for record in log.of(experiment=curve.NAME, n=n, solver=curve.SOLVER):
        cells = (
            CLASSES[record["cls"]].removeprefix("points, "),
            f"{n:,}",
            seconds_text(record["seconds"]),
            f"{record['peak_bytes'] / 2**20:,.0f}",
            f"{record['gap']:.1e}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(log: Log, sizes: tuple[int, ...]) -> list[Match]:
    return [match for match in matches(log) if match.n in sizes and match.threads == 1]


def _called(solver: str | None) -> str:
    name = SOLVERS.get(solver or "", solver or "")
    return name.removesuffix(", C++")


BLOCKS: dict[str, Callable[[Log], str]] = {
    "compared": compared,
    "lost": lost,
    "losses": losses,
    "leads": leads,
    "largest": largest,
}


def written(page: str, log: Log) -> str:
    """The page with its marked blocks from this log."""
    return _BLOCK.sub(lambda found: f"{found[1]} -->\n\n{BLOCKS[found[1]](log)}\n\n", page)


def main() -> None:
    """Write both pages."""
    log = Log.read(LOG)
    for page in PAGES:
        page.write_text(written(page.read_text(), log))


if __name__ == "__main__":
    main()
