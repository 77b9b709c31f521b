"""The charts of the report's page: seconds by class and size, points, the paper's counts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from benchmarks import cached, curve, table1, versus
from benchmarks.charts import LOST, SOLVED, STOPPED, Point, Series, chart, key
from benchmarks.paper import TABLE1, TABLE2
from benchmarks.records import Log
from benchmarks.report import middle, seconds_text

#: Colours and shapes of solvers that are not ours begin here (``page.css``).
_OTHERS = 2
_STYLES = 12


def figure(drawing: str, caption: str, note: str = "") -> str:
    """A chart with its title above and a line below it; empty without a chart."""
    if not drawing:
        return ""
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{drawing}{below}</figure>"


def legend(series: Iterable[Series]) -> str:
    """Each name once, with its line."""
    names = {one.name: one for one in series}
    items = (
        f"<li>{key(one.style, own=one.own, dotted=one.dotted)}{escape(name)}</li>"
        for name, one in names.items()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _grid(figures: Iterable[str]) -> str:
    return f'<div class="grid-of-charts">{"".join(figures)}</div>'


# -- against the others -----------------------------------------------------------------


def thread_counts(log: Log) -> list[int]:
    """Numbers of threads that solvers ran against each other with."""
    return sorted({r["threads"] for r in log.of(experiment=versus.NAME) if r["solver"] != versus.CERTIFIED})


def by_class(log: Log, threads: int) -> str:
    """A legend and a chart a class: seconds of every solver by size."""
    found = {n: versus.standings(log, n, threads) for n in sorted(log.distinct("n", experiment=versus.NAME))}
    own = list(dict.fromkeys(name for name, _ in versus.own_solvers(log)))
    names = {name for cells in found.values() for of in cells.values() for name in of}
    order = own + sorted(names - set(own))
    styles = {
        name: own.index(name) if name in own else _OTHERS + (k - len(own)) % (_STYLES - _OTHERS)
        for k, name in enumerate(order)
    }
    classes = list(dict.fromkeys(cls for cells in found.values() for cls in cells))
    times = [s for cells in found.values() for of in cells.values() for _, s in of.values() if s]
    if not times:
        return ""
    figures: list[str] = []
    shown: dict[str, Series] = {}
    for cls in classes:
        at = {n: cells[cls] for n, cells in found.items() if cls in cells}
        series = [_line(cls, name, at, styles[name], name in own) for name in order]
        shown |= {one.name: one for one in series if one.points}
        left = sorted(
            {
                f"{name} {cells[name][0]}"
                for cells in at.values()
                for name in cells
                if cells[name][0] in ("WRONG", "failed")
            }
        )
        drawing = chart(
            series,
            name=f"Seconds by size, {cls}",
            x_label="n",
            y_label="seconds",
            y_range=(min(times), max(times)),
        )
        figures.append(figure(drawing, cls, f"Not shown: {', '.join(left)}." if left else ""))
    return legend(shown.values()) + _grid(figures)


def _line(
    cls: str, name: str, at: dict[int, dict[str, tuple[str, float | None]]], style: int, own: bool
) -> Series:
    """The points of a solver on a class."""
    points = []
    for n, cells in at.items():
        text, seconds = cells.get(name, ("", None))
        if seconds is not None:
            rivals = [s for other, (_, s) in cells.items() if s is not None and other != name]
            # Ours is marked where somebody else's is faster: rings are losses.
            beaten = own and any(
                s < seconds for other, (_, s) in cells.items() if s is not None and not versus.is_own(other)
            )
            rest = f", best other {seconds_text(min(rivals))} s" if rivals and own else ""
            points.append(
                Point(
                    n,
                    seconds,
                    f"{name}, n = {n:,}: {seconds_text(seconds)} s{rest}",
                    LOST if beaten else SOLVED,
                )
            )
        elif text.startswith(">"):
            limit = float(text[1:]) or 0.5
            points.append(Point(n, limit, f"{name}, n = {n:,}: stopped after {text[1:]} s", STOPPED))
    return Series(name, style, points, own=own)


# -- points without a matrix ------------------------------------------------------------


def points_by_size(log: Log) -> str:
    """Seconds and memory of points as n grows, beside the paper's seconds and the matrix."""
    times: list[Series] = []
    memory: list[Series] = []
    biggest = [0]
    classes = log.distinct("cls", experiment=curve.NAME)
    for k, cls in enumerate(classes):
        for solver, style in ((curve.SOLVER, k), (curve.LAZY, _OTHERS + k)):
            records = sorted(
                (r for r in log.of(experiment=curve.NAME, cls=cls, solver=solver) if "seconds" in r),
                key=lambda r: int(r["n"]),
            )
            biggest += [r["n"] for r in records]
            name = f"{solver}, {cls}"
            own = solver == curve.SOLVER
            for kind, field, scale, unit in (
                (times, "seconds", 1.0, "s"),
                (memory, "peak_bytes", 2**20, "MiB"),
            ):
                values = {r["n"]: r[field] / scale for r in records}
                points = [
                    Point(n, value, f"{name}, n = {n:,}: {value:,.3g} {unit}") for n, value in values.items()
                ]
                kind.append(Series(name, style, points, own=own))
    if not any(one.points for one in times):
        return ""
    sizes = [n for n in sorted(TABLE2) if n <= max(biggest)]
    paper = [
        Series(
            f"paper, {cls}, 32 threads, with a matrix",
            6 + k,
            [Point(n, TABLE2[n][cls], "") for n in sizes if n >= min(biggest[1:])],
            dotted=True,
        )
        for k, cls in enumerate(classes)
        if cls in TABLE2[1000]
    ]
    matrix = Series(
        "the matrix, float64",
        8,
        [Point(n, 8 * n * n / 2**20, "") for n in sorted(set(biggest[1:]))],
        dotted=True,
    )
    shown = [one for one in [*times, *paper, matrix] if one.points]
    return legend(shown) + _grid(
        [
            figure(
                chart(times + paper, name="Seconds by number of points", x_label="n", y_label="seconds"),
                "Seconds, with the proof",
            ),
            figure(
                chart([*memory, matrix], name="Memory by number of points", x_label="n", y_label="MiB"),
                "Largest resident memory",
            ),
        ]
    )


# -- the paper's counts, and its caches --------------------------------------------------


def against_the_paper(log: Log) -> str:
    """Rows scanned as multiples of the paper's; rings where the bar is missed."""
    found = table1.curves(log, table1.SOLVER)
    series, sizes = [], set()
    for k, (cls, values) in enumerate(found.items()):
        points = []
        for n, mean in values.items():
            theirs = TABLE1.get(n, {}).get(cls)
            if theirs and mean:
                ratio = mean / theirs
                mark = LOST if ratio > table1.BAR else SOLVED
                points.append(Point(n, ratio, f"{cls}, n = {n:,}: {ratio:.2f} of the paper's", mark))
                sizes.add(n)
        series.append(Series(cls, k, points))
    if len(sizes) < 2:
        return ""
    bar = Series(f"bar, {table1.BAR}", 8, [Point(n, table1.BAR, "") for n in sorted(sizes)], dotted=True)
    shown = [*(one for one in series if one.points), bar]
    drawing = chart(
        shown, name="Rows scanned as multiples of the paper's", x_label="n", y_label="of the paper's"
    )
    return legend(shown) + _grid([figure(drawing, "Rows scanned / the paper's")])


def by_cache(log: Log) -> str:
    """Seconds by size for each share of the rows that the cache holds, most threads."""
    threads = max(log.distinct("threads", experiment=cached.NAME), default=1)
    figures: list[str] = []
    shown: dict[str, Series] = {}
    for cls in log.distinct("cls", experiment=cached.NAME):
        series = []
        for k, share in enumerate(log.distinct("solver", experiment=cached.NAME)):
            here = {"experiment": cached.NAME, "cls": cls, "solver": share, "threads": threads}
            points = [
                Point(n, s, f"{share}, n = {n:,}: {seconds_text(s)} s")
                for n in sorted(log.distinct("n", **here))
                if (s := middle(log.values("seconds", **here, n=n)))
            ]
            series.append(Series(share, k, points))
            shown[share] = series[-1]
        drawing = chart(series, name=f"Seconds by size and cache, {cls}", x_label="n", y_label="seconds")
        figures.append(figure(drawing, f"{cls}, {threads} thread{'s' if threads > 1 else ''}"))
    return legend(shown.values()) + _grid(figures) if figures else ""
