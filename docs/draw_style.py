"""How the drawn pictures look: SVG without a ground, whose text follows the page, light or dark."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

#: Replaced by the colour of the page's text.
INK = "#010203"
#: Colours with a contrast of at least 3 to white and to the dark page.
BLUE, ORANGE, GREEN, RED, GREY = "#3b82d6", "#d9730d", "#2e9e5b", "#e0352b", "#7a8594"
_TEXT = "svg{color:#24292f}@media(prefers-color-scheme:dark){svg{color:#cfd6dd}}"

STYLE: dict[Any, Any] = {
    # The same picture, byte for byte, whenever it is drawn.
    "svg.hashsalt": "bigsap",
    "font.size": 9,
    "figure.figsize": (7, 3.2),
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, RED, GREY]),
    "legend.frameon": False,
    "legend.fontsize": 7,
} | dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
)
mpl.rcParams.update(STYLE)


def save(figure: plt.Figure, file: Path) -> None:
    """Write a figure as SVG and close it."""
    if figure.get_layout_engine() is None:
        figure.tight_layout()
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    plt.close(figure)
    svg = text.getvalue().replace(INK, "currentColor")
    svg = svg.replace('<style type="text/css">', f'<style type="text/css">{_TEXT}')
    file.write_text(re.sub(r"<!--.*?-->\n?", "", svg))
