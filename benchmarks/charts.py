"""Charts with logarithmic axes as SVG text: no library, no script, colours by the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

#: Of the drawing, in its own units; the page scales it to its column.
WIDTH, HEIGHT = 340.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 10.0, 10.0, 34.0
_MOST_TICKS = 5
#: Marks of points: what was solved, beaten by another solver, or stopped.
SOLVED, LOST, STOPPED = "solved", "lost", "stopped"


@dataclass(frozen=True)
class Point:
    """x, y > 0; what is read when it is pointed at; SOLVED, LOST or STOPPED."""

    x: float
    y: float
    text: str
    mark: str = SOLVED


@dataclass(frozen=True)
class Series:
    """A line. style: 0, 1, ... its colour and shape. own: drawn thick, above the others."""

    name: str
    style: int
    points: Sequence[Point] = field(default_factory=tuple)
    own: bool = False
    dotted: bool = False


def ticks(low: float, high: float) -> list[float]:
    """Round numbers of the range: powers of ten, and those between them where these are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 1.2, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [
            number
            for power in range(first, last + 1)
            for step in steps
            if low <= (number := step * 10.0**power) * (1 + 1e-9) and number <= high * (1 + 1e-9)
        ]
        if len(found) <= _MOST_TICKS + 1:
            return found
    return found[:: math.ceil(len(found) / _MOST_TICKS)]


def number_text(value: float) -> str:
    """Short: 16k, 1M, 0.02."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def _range(values: Sequence[float], share: float) -> tuple[float, float]:
    """Smallest and largest, with room around them; at least half a decade."""
    low, high = min(values), max(values)
    room = max((high / low) ** share, 1.15)
    low, high = low / room, high * room
    if high / low < 10**0.5:
        middle = math.sqrt(low * high)
        low, high = middle / 10**0.25, middle * 10**0.25
    return low, high


def chart(
    series: Sequence[Series], *, name: str, x_label: str, y_label: str, y_range: Sequence[float] = ()
) -> str:
    """An SVG element of these lines, both axes logarithmic. name: what it shows, in words.

    y_range: values that the axis of y has to hold besides, so that charts can be compared.
    Empty where no series has a point.
    """
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    x_low, x_high = _range([point.x for point in points], 0.06)
    y_low, y_high = _range([point.y for point in points] + list(y_range), 0.08)

    def across(x: float) -> float:
        share = math.log(x / x_low) / math.log(x_high / x_low)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def up(y: float) -> float:
        share = math.log(y / y_low) / math.log(y_high / y_low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{escape(name)}">'
    ]
    for y in ticks(y_low, y_high):
        parts.append(
            f'<path class="grid" d="M{_LEFT:.1f} {up(y):.1f}H{WIDTH - _RIGHT:.1f}"/>'
            f'<text class="tick y" x="{_LEFT - 5:.1f}" y="{up(y) + 3.5:.1f}">'
            f"{number_text(y)}</text>"
        )
    for x in _sizes({point.x for point in points}, across):
        parts.append(
            f'<path class="grid" d="M{across(x):.1f} {_TOP:.1f}V{HEIGHT - _BOTTOM:.1f}"/>'
            f'<text class="tick x" x="{across(x):.1f}" y="{HEIGHT - _BOTTOM + 13:.1f}">'
            f"{number_text(x)}</text>"
        )
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2:.1f}" y="{HEIGHT - 4:.1f}">'
        f'{escape(x_label)}</text><text class="axis" transform="translate(11 {middle:.1f})'
        f' rotate(-90)">{escape(y_label)}</text>'
    )
    for one in sorted(series, key=lambda one: one.own):
        solved = [point for point in one.points if point.mark != STOPPED]
        if len(solved) > 1:
            path = "L".join(f"{across(p.x):.1f} {up(p.y):.1f}" for p in solved)
            kind = " own" if one.own else ""
            kind += " dotted" if one.dotted else ""
            parts.append(f'<path class="line s{one.style}{kind}" d="M{path}"/>')
        for point in one.points if not one.dotted else ():
            parts.append(_mark(across(point.x), up(point.y), point, one))
    return "".join([*parts, "</svg>"])


def _sizes(found: set[float], across: Callable[[float], float]) -> list[float]:
    """The sizes that were measured, as far as their names fit beside each other."""
    kept: list[float] = []
    for x in sorted(found, reverse=True):
        if not kept or across(kept[-1]) - across(x) > 36:
            kept.append(x)
    return kept


def _mark(x: float, y: float, point: Point, one: Series) -> str:
    """The shape of a point, with its text."""
    kind = f"mark s{one.style}{' own' if one.own else ''}"
    if point.mark == STOPPED:
        # An arrow: longer than this.
        shape = f'<path class="{kind} open" d="M{x:.1f} {y + 3:.1f}v-10m-3.5 3.5l3.5 -3.5l3.5 3.5"/>'
    else:
        shape = f'<path class="{kind}" d="{_shape(one.style, x, y)}"/>'
    if point.mark == LOST:
        shape += f'<circle class="lost" cx="{x:.1f}" cy="{y:.1f}" r="7.5"/>'
    return f"<g>{shape}<title>{escape(point.text)}</title></g>"


def _shape(style: int, x: float, y: float) -> str:
    """One of six outlines, so that colours need not be told apart."""
    r = 3.2
    if style % 6 == 0:
        return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    if style % 6 == 1:
        return f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z"
    if style % 6 == 2:
        return f"M{x:.1f} {y - 4.2:.1f}l4.2 4.2l-4.2 4.2l-4.2 -4.2z"
    if style % 6 == 3:
        return f"M{x - 4:.1f} {y + 3.2:.1f}h8l-4 -7.2z"
    if style % 6 == 4:
        return f"M{x - 4:.1f} {y - 3.2:.1f}h8l-4 7.2z"
    return f"M{x - 4:.1f} {y - 1.2:.1f}h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z"


def key(style: int, *, own: bool = False, dotted: bool = False) -> str:
    """A little drawing of a line, for a legend."""
    kind = (" own" if own else "") + (" dotted" if dotted else "")
    mark = "" if dotted else f'<path class="mark s{style}" d="{_shape(style, 13, 7)}"/>'
    return (
        '<svg class="key" viewBox="0 0 26 14" aria-hidden="true">'
        f'<path class="line s{style}{kind}" d="M1 7H25"/>{mark}</svg>'
    )
