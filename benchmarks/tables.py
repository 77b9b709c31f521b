"""Tables and texts of a report: numbers as texts, bars met or missed, growth with n."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.records import Curves

DASH = "-"


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns; the first column names its row, the others hold numbers."""

    head: list[str]
    rows: list[list[str]]


class Heading(str):
    """The title of some blocks within a section."""


#: What a section is made of: tables, headings, paragraphs, lists.
Block = Table | str | list[str]


def table(head: str, rows: Iterable[str]) -> Table:
    """A table from lines whose cells stand between bars: ``a | b | c``."""
    found = Table(head.split(" | "), [row.split(" | ") for row in rows])
    for row in found.rows:
        if len(row) != len(found.head):
            raise ValueError(f"{len(row)} cells below {len(found.head)} heads: {row}")
    return found


def line(*cells: object) -> str:
    """Cells between bars, a dash for None."""
    return " | ".join(DASH if cell is None else str(cell) for cell in cells)


def seconds_text(seconds: float | None) -> str:
    """Two or three digits: more would be noise."""
    if seconds is None:
        return DASH
    if seconds < 0.1:
        return f"{seconds:.4f}"
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"


def ratio(value: float | None, of: float | None) -> float | None:
    """Their quotient; None where one is missing or zero."""
    return value / of if value and of else None


def ratio_text(value: float | None) -> str:
    """Two digits, a dash for None."""
    return DASH if value is None else f"{value:.2f}"


def threads_text(count: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{count} thread{'s' if count > 1 else ''}"


def middle(values: Sequence[float]) -> float | None:
    """The median, None of nothing."""
    return float(median(values)) if values else None


def verdict(value: float | None, bar: float, *, at_most: bool, judged: bool = True) -> str:
    """``met`` or ``MISSED``; a dash where nothing was measured, or not ``judged``."""
    if value is None or not judged:
        return DASH
    return "met" if (value <= bar if at_most else value >= bar) else "MISSED"


def fit(values: dict[int, float]) -> tuple[float, float, float] | None:
    """x, y and error of ``x n^y``, least squares; None below three sizes.

    The error is the root mean square error as a share of the range of the values.
    """
    if len(values) < 3 or len(set(values.values())) < 2:
        return None
    n, found = np.array(list(values), float), np.array(list(values.values()), float)

    def best(y: float) -> tuple[float, float]:
        """x for this y, and the mean square error."""
        power = (n / n.max()) ** y
        x = float(power @ found / (power @ power))
        return x / n.max() ** y, float(((x * power - found) ** 2).mean())

    # The error has one valley in y for what grows; a grid, then a finer one around its best.
    grid = np.linspace(-1.0, 4.0, 501)
    for width in (0.01, 0.0001):
        y = min(grid, key=lambda y: best(y)[1])
        grid = np.linspace(y - width, y + width, 201)
    x, error = best(y)
    return x, float(y), float(np.sqrt(error) / np.ptp(found))


def by_size(curves: Curves, text: Callable[[float], str]) -> Table:
    """Rows are sizes, columns are classes; then ``x n^y`` and its error where it can be told."""
    sizes = sorted({n for values in curves.values() for n in values})
    rows = [line(f"{n:,}", *(text(of[n]) if n in of else None for of in curves.values())) for n in sizes]
    fits = [fit(values) for values in curves.values()]
    if any(fits):
        rows.append(line("x n^y", *(f and f"{f[0]:.3g} n^{f[1]:.3f}" for f in fits)))
        rows.append(line("nrmse", *(f and f"{100 * f[2]:.2f} %" for f in fits)))
    return table(line("n", *curves), rows)
