"""Write the table of docs/benchmarks/gaps.md and draw its picture from the log of the gaps.

``python docs/draw_gaps.py [--out DIR]``; the log is made by ``python -m benchmarks --only gaps``.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

import draw_style as style
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.experiments import gaps
from benchmarks.records import Log
from benchmarks.tables import Table

PAGE = ROOT / "docs" / "benchmarks" / "gaps.md"
LOG = ROOT / "tests" / "bench" / "gaps.jsonl"
#: Of the page, what the log fills in.
MADE = re.compile(r"(?<=<!-- from the log -->\n).*?(?=<!-- to here -->)", re.S)
_COLOURS = dict(zip(gaps.HEURISTICS, (style.GREY, style.BLUE, style.GREEN, style.ORANGE), strict=True))


def written(text: str, log: Log) -> str:
    """The page with the table and the notes of this log."""
    parts = []
    for block in gaps.render(log):
        if isinstance(block, Table):
            rule = ["---", *["---:"] * (len(block.head) - 1)]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in (block.head, rule, *block.rows)))
        elif isinstance(block, list):
            parts.append("\n".join(f"* {item}" for item in block))
        else:
            parts.append(_wrapped(str(block)))
    return MADE.sub(lambda _: "\n" + "\n\n".join(parts) + "\n\n", text)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def draw(file: Path, log: Log) -> None:
    """The gaps at the size that has all heuristics."""
    n = min(log.distinct("n", experiment=gaps.NAME))
    classes = log.distinct("cls", experiment=gaps.NAME, n=n)
    figure, axis = plt.subplots(figsize=(7.4, 3.6), layout="constrained")
    for k, name in enumerate(gaps.HEURISTICS):
        found = {r["cls"]: r for r in log.of(experiment=gaps.NAME, n=n, solver=name) if "gap" in r}
        places = [classes.index(cls) + (k - 1.5) * 0.2 for cls in found]
        heights = [gaps.percent(record) for record in found.values()]
        axis.bar(places, heights, 0.18, color=_COLOURS[name], label=name)
        for place, height in zip(places, heights, strict=True):
            text = f"{height:,.3g}" if height < 1000 else f"{height:,.0f}"
            axis.annotate(text, (place, height), ha="center", va="bottom", fontsize=6)
    axis.set_xticks(
        range(len(classes)), [cls.replace(" to ", "\nto ").replace(", ", "\n") for cls in classes]
    )
    axis.set(yscale="log", ylabel="per cent above the optimum")
    axis.grid(visible=False, axis="x")
    axis.legend(ncols=2)
    style.save(figure, file)


def main() -> None:
    """Write and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE.parent)
    out = parser.parse_args().out
    log = Log.read(LOG)
    (out / PAGE.name).write_text(written(PAGE.read_text(), log))
    draw(out / "gaps.svg", log)


if __name__ == "__main__":
    main()
