"""The report's pictures, in the shapes of the paper's figures; they need matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import cached, decay, paths, table1, versus
from benchmarks.growth import Curves
from benchmarks.paper import TABLE1, TABLE1_PLAIN
from benchmarks.records import Log
from benchmarks.report import middle

_STYLE: dict[Any, Any] = {"svg.hashsalt": "bigsap", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


def draw(log: Log, folder: Path) -> dict[str, str]:
    """Draw what the log has data for into ``folder``; the caption of each file.

    Without matplotlib nothing is drawn, and a note says so.
    """
    if importlib.util.find_spec("matplotlib") is None:
        print("no pictures: they need matplotlib (pip install matplotlib)")
        return {}
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    found = {}
    for name, figure_of in _FIGURES.items():
        with rc_context(_STYLE):
            figure = Figure(figsize=(9, 4), layout="constrained")
            FigureCanvasSVG(figure)
            caption = figure_of(log, figure)
            if caption is not None:
                figure.savefig(folder / name, metadata={"Date": None})
                found[name] = caption
    return found


def _figure1(log: Log, figure: Any) -> str | None:
    records = list(log.of(experiment=paths.NAME))
    if not records:
        return None
    axes = figure.subplots(2, len(records), sharex=True, sharey="row", squeeze=False)
    figure.set_figheight(5.5)
    for k, record in enumerate(records):
        axes[0, k].set_title(f"{record['solver']}: {record['total']:,} rows scanned")
        for axis, field in zip(axes[:, k], ("paths", "scans"), strict=True):
            for phase, epsilon in enumerate(record["epsilons"], 1):
                chosen = [step for step in record[field] if step[0] == phase]
                axis.plot(
                    [step[1] for step in chosen],
                    [step[2] for step in chosen],
                    ".",
                    markersize=3,
                    label=f"epsilon {epsilon:.2g}",
                )
            axis.set_yscale("log")
        axes[1, k].set_xlabel("rows assigned before")
        axes[1, k].legend(fontsize=7)
    axes[0, 0].set_ylabel("path length")
    axes[1, 0].set_ylabel("rows scanned")
    size = records[0]["n"]
    return f"Figure 1: path lengths and rows scanned by augmentation, random costs, n = {size:,}."


def _figure3(log: Log, figure: Any) -> str | None:
    classes = [
        cls
        for cls in log.distinct("cls", experiment=decay.NAME)
        if any(log.values("steps", experiment=decay.NAME, cls=cls))
    ]
    if not classes:
        return None
    sizes = sorted(log.distinct("n", experiment=decay.NAME))
    axes = figure.subplots(1, len(classes), sharey=True, squeeze=False)[0]
    for axis, cls in zip(axes, classes, strict=True):
        for k, n in enumerate(sizes):
            for record in log.of(experiment=decay.NAME, cls=cls, n=n):
                steps = [step for step in record["steps"] if min(step) > 0]
                axis.loglog(
                    [step[0] for step in steps],
                    [step[1] for step in steps],
                    "o-",
                    markersize=3,
                    color="tab:blue",
                    alpha=(k + 1) / len(sizes),
                    label=f"{n:,}",
                )
        axis.plot(axis.get_xlim(), axis.get_xlim(), ":", color="grey")
        axis.xaxis.set_minor_formatter("")
        axis.invert_xaxis()
        axis.set(title=cls, xlabel="epsilon")
    axes[0].set_ylabel("mean distance to the final prices")
    axes[0].legend(fontsize=7, title="n")
    return "Figure 3: epsilon of a phase against the distance of its prices from the final ones."


def _curves(axis: Any, found: Curves, **style: Any) -> None:
    for k, (cls, values) in enumerate(found.items()):
        points = {n: value for n, value in values.items() if value > 0}
        if points:
            axis.loglog(
                list(points),
                list(points.values()),
                color=f"C{k % 10}",
                **{
                    "marker": "o",
                    "markersize": 3,
                    "linestyle": "--" if k > 9 else "-",
                    "label": cls,
                    **style,
                },
            )


def _halves(log: Log, figure: Any, field: str, label: str) -> bool:
    """Without epsilon phases on the left, with them on the right."""
    halves = {
        "plain": table1.curves(log, table1.PLAIN, field),
        "epsilon pricing": table1.curves(log, table1.SOLVER, field),
    }
    if not all(halves.values()):
        return False
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (title, found) in zip(axes, halves.items(), strict=True):
        _curves(axis, found)
        axis.set(title=title, xlabel="n")
    axes[0].set_ylabel(label)
    axes[1].legend(fontsize=7)
    return True


def _figure4(log: Log, figure: Any) -> str | None:
    if not _halves(log, figure, "rows_scanned", "rows scanned"):
        return None
    for axis, paper, solver in zip(
        figure.axes, (TABLE1_PLAIN, TABLE1), (table1.PLAIN, table1.SOLVER), strict=True
    ):
        # The same classes in the same colours, at the sizes measured: the paper's, dotted.
        theirs: Curves = {
            cls: {n: float(paper[n][cls]) for n in values if n in paper}
            for cls, values in table1.curves(log, solver).items()
        }
        _curves(axis, theirs, linestyle=":", marker="", label="_")
    return "Figure 4: rows scanned, by size (dotted: the paper's Table 1)."


def _figure5(log: Log, figure: Any) -> str | None:
    if not _halves(log, figure, "seconds", "seconds"):
        return None
    return "Figure 5: seconds of `ssp` by size, one thread, without and with epsilon phases."


def _figure6(log: Log, figure: Any) -> str | None:
    classes = log.distinct("cls", experiment=cached.NAME)
    if not classes:
        return None
    shares = log.distinct("solver", experiment=cached.NAME)
    counts = sorted(log.distinct("threads", experiment=cached.NAME))
    axes = figure.subplots(1, len(classes), sharey=True, squeeze=False)[0]
    for axis, cls in zip(axes, classes, strict=True):
        for k, share in enumerate(shares):
            for line, threads in zip(("-", "--", ":", "-.") * len(counts), counts, strict=False):
                here = {"experiment": cached.NAME, "cls": cls, "solver": share, "threads": threads}
                sizes = sorted(log.distinct("n", **here))
                axis.loglog(
                    sizes,
                    [middle(log.values("seconds", **here, n=n)) for n in sizes],
                    line,
                    color=f"C{k}",
                    marker="o",
                    markersize=3,
                    label=f"{share}, {threads} thread{'s' if threads > 1 else ''}",
                )
        axis.set(title=cls, xlabel="n")
    axes[0].set_ylabel("seconds")
    axes[-1].legend(fontsize=6)
    return "Figure 6: seconds by size, share of the rows in the cache, and threads."


def _table2(log: Log, figure: Any) -> str | None:
    own = versus.own_solvers(log)
    if len(log.distinct("n", experiment=versus.NAME)) < 2 or not own:
        return None
    axes = figure.subplots(1, len(own), sharey=True, squeeze=False)[0]
    for axis, (solver, threads) in zip(axes, own, strict=True):
        _curves(axis, versus.curves(log, solver, threads))
        axis.set(title=f"{solver}, {threads} thread{'s' if threads > 1 else ''}", xlabel="n")
    axes[0].set_ylabel("seconds")
    axes[-1].legend(fontsize=6)
    return "Table 2 as a picture: seconds of BigSAP's methods by size, matrix in memory."


_FIGURES: dict[str, Callable[[Log, Any], str | None]] = {
    "figure1.svg": _figure1,
    "figure3.svg": _figure3,
    "figure4.svg": _figure4,
    "figure5.svg": _figure5,
    "figure6.svg": _figure6,
    "table2.svg": _table2,
}
