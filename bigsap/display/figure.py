"""The figure of a solve that ``Result.plot`` draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bigsap.display.text import gap_text
from bigsap.errors import optional
from bigsap.proof.claim import Claim

_INK, _BLUE, _ORANGE, _GREEN, _GREY = "#333333", "#1f5fa8", "#d9822b", "#2e8b57", "#d9d9d9"
# The most phases whose bars fit their labels without overlap, and the least number of places for
# bars: a single bar should not fill the panel.
_LABELLED, _LEAST = 12, 4


def draw(result: Claim) -> Any:
    """Draw the figure of ``Result.plot``: one panel for each quantity, phases from left to right."""
    Figure = optional("matplotlib.figure", "Result.plot").Figure
    phases = list(result.stats.get("phases") or [])
    gaps = _gap_over_time(result.stats)
    panels = (_epsilon, _scans, _moves)
    n_panels = len(panels) + (gaps is not None)
    figure = Figure(figsize=(7.5, 0.9 + 1.75 * n_panels), layout="constrained")
    axes = figure.subplots(n_panels, 1)
    for panel, ax in zip(panels, axes, strict=False):
        _prepare(ax)
        panel(ax, phases, result)
        _phase_axis(ax, phases, last=panel is panels[-1])
    if gaps is not None:
        _prepare(axes[3])
        _gap(axes[3], *gaps)
    figure.suptitle(_title(result), fontsize=10, color=_INK, x=0.01, ha="left")
    figure.align_ylabels(axes)
    return figure


def _title(result: Claim) -> str:
    n, m = result.shape
    words = [f"{n:,} x {m:,}, {str(result.status).replace('_', ' ')}"]
    if result.fun is not None:
        words.append(f"cost {result.fun:.6g}")
    if result.gap is not None:
        words.append(f"gap {gap_text(result.gap, None)}")
    seconds = (result.stats.get("seconds") or {}).get("total")
    if seconds is not None:
        words.append(f"{seconds:.3g} s")
    return ", ".join(words)


def _prepare(ax: Any) -> None:
    """Draw a light grid behind the data, no box."""
    ax.set_axisbelow(True)
    ax.grid(axis="y", color=_GREY, linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#888888")
    ax.tick_params(colors=_INK, labelsize=8)
    ax.yaxis.label.set_size(9)
    ax.xaxis.label.set_size(9)


def _phase_axis(ax: Any, phases: Sequence[Mapping[str, Any]], *, last: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0.4, max(_LEAST, len(phases)) + 0.6)
    if len(phases) <= _LABELLED:
        ax.set_xticks(range(1, len(phases) + 1))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.tick_params(axis="x", labelbottom=last)
    if last:
        ax.set_xlabel("phase")
    if not phases:
        ax.set_yticks([])
        ax.text(
            0.5,
            0.5,
            "no phases recorded",
            transform=ax.transAxes,
            ha="center",
            va="center",
            color="#888888",
            fontsize=9,
        )


def _epsilon(ax: Any, phases: Sequence[Mapping[str, Any]], result: Claim) -> None:
    """Draw epsilon by phase; the last phase has epsilon 0."""
    values = [float(phase.get("epsilon", 0.0)) for phase in phases]
    ax.plot(range(1, len(values) + 1), values, "o-", color=_BLUE, linewidth=1.4, markersize=4.5)
    if values:
        _logarithmic(ax, values)
    ax.set_ylabel("epsilon\n(cost units)")


def _logarithmic(ax: Any, values: Sequence[float]) -> None:
    """Set a logarithmic y axis that also holds 0, with ticks at some of the values."""
    from matplotlib.ticker import FixedLocator, NullLocator

    highest = max(values)
    if highest <= 0:
        ax.set_ylim(-0.05, 1)
        ax.set_yticks([0])
        return
    # Values more than 10 decades below the highest are drawn as 0.
    lowest = max(min(value for value in values if value > 0), highest * 1e-10)
    decades = math.log10(highest / lowest)
    ax.set_yscale("symlog", linthresh=lowest, linscale=max(0.6, decades / 4))
    ax.set_ylim(-0.2 * lowest, highest * 10 ** (0.1 * max(1.0, decades)))
    ticks = [highest]
    for value in sorted({v for v in values if lowest <= v < highest}, reverse=True):
        if ticks[-1] >= value * 10 ** max(0.45, decades / 4.5):
            ticks.append(value)
    ax.yaxis.set_major_locator(FixedLocator([0.0, *ticks]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")


def _scans(ax: Any, phases: Sequence[Mapping[str, Any]], result: Claim) -> None:
    """Draw scans per augmentation; every phase augments each row of the searched side once."""
    n_augmented = max(1, result.shape[1 if result.stats.get("transposed") else 0])
    values = [phase.get("rows_scanned", 0) / n_augmented for phase in phases]
    _bars(ax, values, _ORANGE, "{:,.1f}")
    ax.set_ylabel("rows scanned\nper augmentation")


def _moves(ax: Any, phases: Sequence[Mapping[str, Any]], result: Claim) -> None:
    _bars(ax, [phase.get("prices_moved") or 0 for phase in phases], _GREEN, "{:,.0f}")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_ylabel("prices moved\n(count)")


def _bars(ax: Any, values: Sequence[float], colour: str, text: str) -> None:
    bars = ax.bar(range(1, len(values) + 1), values, width=0.62, color=colour)
    if 0 < len(values) <= _LABELLED:
        ax.bar_label(bars, [text.format(v) for v in values], fontsize=7, color=_INK, padding=1.5)
    # Leave room for the numbers above the bars.
    ax.set_ylim(0, 1.18 * max([*values, 0]) or 1)


def _gap_over_time(stats: Mapping[str, Any]) -> tuple[list[float], list[float]] | None:
    """Return seconds and gaps (cost units) of ``stats["gaps"]``, for records with both numbers."""
    records = [r for r in stats.get("gaps") or [] if r.get("gap") is not None]
    if not records:
        return None
    return [float(r["seconds"]) for r in records], [float(r["gap"]) for r in records]


def _gap(ax: Any, seconds: Sequence[float], gaps: Sequence[float]) -> None:
    ax.step(seconds, gaps, where="post", color=_BLUE, linewidth=1.4)
    ax.plot(seconds, gaps, "o", color=_BLUE, markersize=3.5)
    _logarithmic(ax, gaps)
    ax.set_xlim(left=0)
    ax.set(xlabel="time (s)", ylabel="gap\n(cost units)")
