"""Markdown: tables, numbers, and whether a bar was met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

DASH = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def seconds_text(seconds: float | None) -> str:
    """Two or three digits: more would be noise."""
    if seconds is None:
        return DASH
    if seconds < 0.1:
        return f"{seconds:.4f}"
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"


def ratio_text(ratio: float | None) -> str:
    """Two digits, a dash for None."""
    return DASH if ratio is None else f"{ratio:.2f}"


def middle(values: Sequence[float]) -> float | None:
    """The median, None of nothing."""
    return float(median(values)) if values else None


def verdict(value: float | None, bar: float, *, at_most: bool, judged: bool = True) -> str:
    """``met`` or ``MISSED``; a dash where nothing was measured, or not ``judged``."""
    if value is None or not judged:
        return DASH
    met = value <= bar if at_most else value >= bar
    return "met" if met else "MISSED"
