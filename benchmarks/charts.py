"""The log's charts, drawn by matplotlib as SVG that stands in light and in dark pages.

Grounds are transparent, texts and axes have the page's colour, and lines have colours that can be
seen on both.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullLocator

from benchmarks import standings
from benchmarks.experiments import cached, curve, decay, paths, table1
from benchmarks.paper import TABLE1, TABLE1_PLAIN, TABLE2
from benchmarks.records import Curves, Log
from benchmarks.standings import is_own
from benchmarks.tables import threads_text

# Contrast of at least 3 to white and to the dark page's ground.
_COLOURS = (
    "#3b82d6",
    "#0f9aa8",
    "#d9730d",
    "#a45bd6",
    "#2e9e5b",
    "#d6458b",
    "#9a8412",
    "#7a8594",
    "#b0663a",
    "#6b74e0",
)
_MARKERS, _GLYPHS = "osDv^P", "\u25cf\u25a0\u25c6\u25bc\u25b2\u271a"
_LOSS = "#e0352b"
# Replaced by the colour of the page's text.
_INK = "#010203"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "bigsap",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
} | dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _INK
)


@dataclass(frozen=True)
class Line:
    """y by x. k: which colour and mark. own: drawn thick. dotted: to compare with, no marks.

    dots: marks alone. lost: x where a ring says that it is a loss. stopped: y by x of what was
    given up there.
    """

    name: str
    k: int
    points: Mapping[float, float]
    own: bool = False
    dotted: bool = False
    dots: bool = False
    lost: Collection[float] = ()
    stopped: Mapping[float, float] = field(default_factory=dict)

    @property
    def colour(self) -> str:
        """Of line and marks."""
        return _COLOURS[self.k % len(_COLOURS)]

    @property
    def glyph(self) -> str:
        """The mark as a character, for the legend."""
        return "\u2508" if self.dotted else _GLYPHS[self.k % len(_GLYPHS)]

    def draw(self, axes: Any) -> None:
        """Draw it into matplotlib's axes."""
        mark = "" if self.dotted else _MARKERS[self.k % len(_MARKERS)]
        axes.plot(
            list(self.points),
            list(self.points.values()),
            linestyle="" if self.dots else ":" if self.dotted else "-",
            marker="." if self.dots else mark,
            markersize=4,
            linewidth=2.4 if self.own else 1.2,
            color=self.colour,
            rasterized=self.dots,
        )
        rings = [(x, self.points[x]) for x in self.lost]
        if rings:
            axes.plot(*zip(*rings, strict=True), "o", ms=10, mfc="none", mec=_LOSS, mew=1.8)
        for x, y in self.stopped.items():
            axes.plot([x], [y], marker="$\u2191$", ms=9, color=self.colour)


@dataclass(frozen=True)
class Gallery:
    """Charts, as captions and drawings, that share a legend: (colour, mark, name)."""

    title: str
    note: str
    charts: list[tuple[str, str]]
    legend: list[tuple[str, str, str]]


def gallery(title: str, note: str, found: Iterator[tuple[str, str, str, list[Line]]]) -> Gallery:
    """From captions, names of both axes, and lines; charts without a point are left out."""
    charts: list[tuple[str, str]] = []
    shown: dict[str, tuple[str, str, str]] = {}
    for caption, x_label, y_label, lines in found:
        lines = [line for line in lines if line.points or line.stopped]
        if any(not line.dotted for line in lines):
            charts.append((caption, _svg(x_label, y_label, lines)))
            shown |= {line.name: (line.colour, line.glyph, line.name) for line in lines}
    return Gallery(title, note, charts, list(shown.values()))


def _svg(x_label: str, y_label: str, lines: list[Line]) -> str:
    with rc_context(_STYLE):
        figure = Figure(figsize=(4.2, 3.1), layout="constrained", dpi=150)
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlabel=x_label, ylabel=y_label)
        for line in sorted(lines, key=lambda line: line.own):
            line.draw(axes)
        if x_label == "n":
            sizes = sorted({x for line in lines for x in (*line.points, *line.stopped)})
            few = sizes[:: -(-len(sizes) // 6)]
            axes.set_xticks(few)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(EngFormatter(sep="", places=None))
        if x_label == "rows assigned before":
            axes.set_xscale("linear")
        if x_label == "epsilon":
            axes.invert_xaxis()
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    # Comments, and names that would occur in every drawing of the page.
    text = re.sub(r'<!--.*?-->| id="\w+_\d+"', "", text)
    return re.sub(r"\n\s*", "\n", text)


def galleries(log: Log) -> list[Gallery]:
    """All that the log has points for."""
    threads = sorted({count for _, count in standings.own_solvers(log)}, reverse=True)
    note = "A red ring: another solver is faster. An arrow: stopped there."
    found = [
        *(gallery(f"Seconds by class and size, {threads_text(t)}", note, _by_class(log, t)) for t in threads),
        gallery("Points without a matrix", "Dotted: the paper's, and the matrix.", _points(log)),
        gallery(
            "Rows scanned and seconds of `ssp`, against the paper (figures 4 and 5)",
            "Dotted: the paper's Table 1.",
            _against_the_paper(log),
        ),
        gallery("Rows computed when needed, by cache (figure 6)", "", _by_cache(log)),
        gallery("Augmentation by augmentation (figure 1)", "Random costs.", _paths(log)),
        gallery(
            "Epsilon of a phase, and how far its prices are from the final ones (figure 3)",
            "Dotted: both equal.",
            _decay(log),
        ),
    ]
    return [one for one in found if one.charts]


_Found = Iterator[tuple[str, str, str, list[Line]]]


def _by_class(log: Log, threads: int) -> _Found:
    at = {n: standings.standings(log, n, threads) for n in standings.sizes_with_peers(log)}
    names = dict.fromkeys(name for of in at.values() for cells in of.values() for name in cells)
    order = sorted(names, key=lambda name: (not is_own(name), name))
    for cls in dict.fromkeys(cls for of in at.values() for cls in of):
        here = {n: of[cls] for n, of in at.items() if cls in of}
        lines, left_out = [], set()
        for k, name in enumerate(order):
            points, stopped, lost = {}, {}, []
            for n, cells in here.items():
                text, seconds = cells.get(name, ("", None))
                _, rival = standings.best_other(cells)
                if seconds is not None:
                    points[float(n)] = seconds
                    if is_own(name) and rival is not None and rival < seconds:
                        lost.append(float(n))
                elif text.startswith(">"):
                    stopped[float(n)] = float(text[1:]) or 0.5
                elif text in ("WRONG", "failed"):
                    left_out.add(f"{name} {text}")
            lines.append(Line(name, k, points, is_own(name), lost=lost, stopped=stopped))
        caption = f"{cls} (not shown: {', '.join(sorted(left_out))})" if left_out else cls
        yield caption, "n", "seconds", lines


def _points(log: Log) -> _Found:
    classes = log.distinct("cls", experiment=curve.NAME)
    fields = {"seconds": ("Seconds, with the proof", 1.0)}
    fields["peak_bytes"] = ("Largest resident memory, MiB", float(2**20))
    for name, (caption, unit) in fields.items():
        lines, sizes = [], set()
        for k, cls in enumerate(classes):
            for solver, style in ((curve.SOLVER, k), (curve.LAZY, 2 + k)):
                of = log.of(experiment=curve.NAME, cls=cls, solver=solver)
                points = {float(r["n"]): r[name] / unit for r in of if name in r}
                sizes |= set(points)
                own = solver == curve.SOLVER
                lines.append(Line(f"{solver}, {cls}", style, dict(sorted(points.items())), own))
        if name == "seconds":
            for k, cls in enumerate(classes):
                known = {float(n): of[cls] for n, of in TABLE2.items() if n <= max(sizes, default=0)}
                known = {n: s for n, s in known.items() if n >= min(sizes)}
                lines.append(Line(f"paper, {cls}, 32 threads, a matrix", 4 + k, known, dotted=True))
        else:
            matrix = {n: 8 * n * n / unit for n in sorted(sizes)}
            lines.append(Line("the matrix, float64", 7, matrix, dotted=True))
        yield caption, "n", caption.split(",")[-1].strip() if unit > 1 else "seconds", lines


def _lines(found: Curves, **style: Any) -> list[Line]:
    return [
        Line(cls, k, {float(n): y for n, y in values.items() if y > 0}, **style)
        for k, (cls, values) in enumerate(found.items())
    ]


def _against_the_paper(log: Log) -> _Found:
    halves = ((table1.PLAIN, "without epsilon", TABLE1_PLAIN), (table1.SOLVER, "epsilon", TABLE1))
    for solver, name, paper in halves:
        ours = table1.curves(log, solver)
        theirs = {cls: {n: paper[n][cls] for n in values if n in paper} for cls, values in ours.items()}
        lines = _lines(ours) + _lines(theirs, dotted=True)
        # One legend entry a class: the marked line's.
        yield f"rows scanned, {name}", "n", "rows scanned", lines[::-1]
    for solver, name, _ in halves:
        yield f"seconds, {name}", "n", "seconds", _lines(table1.curves(log, solver, "seconds"))


def _by_cache(log: Log) -> _Found:
    here: dict[str, Any] = {"experiment": cached.NAME}
    here["threads"] = max(log.distinct("threads", **here), default=1)
    shares = log.distinct("solver", **here)
    of = {share: log.curves("seconds", **here, solver=share) for share in shares}
    for cls in log.distinct("cls", **here):
        lines = _lines({share: found.get(cls, {}) for share, found in of.items()})
        yield f"{cls}, {threads_text(here['threads'])}", "n", "seconds", lines


def _paths(log: Log) -> _Found:
    for r in log.of(experiment=paths.NAME):
        for name, y_label in (("paths", "path length"), ("scans", "rows scanned")):
            lines = [
                Line(
                    f"epsilon {epsilon:.2g}",
                    phase,
                    {float(at): float(y) for p, at, y in r[name] if p == phase},
                    dots=True,
                )
                for phase, epsilon in enumerate(r["epsilons"], 1)
            ]
            caption = f"{r['solver']}, n = {r['n']:,}: {r['total']:,} rows scanned"
            yield caption, "rows assigned before", y_label, lines


def _decay(log: Log) -> _Found:
    sizes = sorted(log.distinct("n", experiment=decay.NAME))
    for cls in log.distinct("cls", experiment=decay.NAME):
        lines = []
        for k, n in enumerate(sizes):
            for steps in log.values("steps", experiment=decay.NAME, cls=cls, n=n):
                points = {float(x): float(y) for x, y in steps if min(x, y) > 0}
                lines.append(Line(f"n = {n:,}", k, points))
        known = sorted({x for line in lines for x in line.points})
        lines.append(Line("both equal", 7, {x: x for x in known}, dotted=True))
        yield cls, "epsilon", "mean distance", lines
