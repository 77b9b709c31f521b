"""Draw seconds against n from the benchmark's log: ``python docs/draw_benchmark.py [--out FILE]``."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import draw_style as style
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "benchmarks" / "seconds.svg"
LOG = ROOT / "tests" / "bench" / "runs.jsonl"
#: Solvers of the log, as the picture names them; those that find the optimum of this class.
OTHERS = {
    "scipy": "scipy",
    "lapx lapjvr": "lapx lapjvr",
    "POT emd": "POT emd",
    "ortools": "OR-tools",
    "A1015 C++": "Algorithm 1015, C++",
}
CLASS = "geometric"

Points = dict[str, list[tuple[int, float]]]


def measured() -> tuple[Points, Points]:
    """(n, seconds) of each solver that ended, and (n, limit) where it was stopped."""
    ended: Points = defaultdict(list)
    stopped: Points = defaultdict(list)
    for line in LOG.read_text().splitlines():
        run = json.loads(line)
        if run.get("cls") != CLASS:
            continue
        if run["experiment"] == "peers" and run["threads"] == 1:
            name = run["solver"]
        elif run["experiment"] == "curve" and run["solver"] == "bigsap auto":
            name = "curve"
        else:
            continue
        if "seconds" in run:
            ended[name].append((run["n"], run["seconds"]))
        elif "timeout" in run:
            stopped[name].append((run["n"], run["timeout"]))
    return ended, stopped


def draw(file: Path) -> None:
    ended, stopped = measured()
    figure, axis = plt.subplots(figsize=(7.5, 4.2))
    markers = iter("sD^vPX")
    for name, shown in OTHERS.items():
        points = sorted(ended[name])
        if not points:  # not in this run
            continue
        (line,) = axis.plot(*zip(*points, strict=True), marker=next(markers), lw=1, label=shown)
        for n, limit in sorted(stopped[name])[:1]:
            last = points[-1]
            axis.plot([last[0], n], [last[1], limit], ":", color=line.get_color(), lw=1)
            axis.plot(n, limit, "x", color=line.get_color())
    axis.plot(
        *zip(*sorted(ended["bigsap auto"]), strict=True),
        "o-",
        lw=2,
        color=style.INK,
        label="BigSAP, matrix in memory",
    )
    label = "BigSAP, no matrix, two threads, proof included"
    axis.plot(
        *zip(*sorted(ended["curve"]), strict=True), "o--", lw=2, color=style.INK, mfc="none", label=label
    )
    axis.set(xscale="log", yscale="log", xlabel="n (points in a square, squared distances)", ylabel="seconds")
    axis.set_title(
        "one thread, matrix in memory, unless said otherwise; x: stopped after 4 s", fontsize=8, loc="right"
    )
    axis.legend(fontsize=7)
    style.save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE)
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
