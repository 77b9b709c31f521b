"""Small tables in HTML, which notebooks show in place of results and sources."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def html_table(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """Return a table with a heading, a line for each label and value, all of it escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(label)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for label, value in lines
    )
    return f"<table><caption><b>{html.escape(title)}</b></caption><tbody>{rows}</tbody></table>"


class Shown:
    """A source of costs that a notebook shows as a table."""

    shape: tuple[int, int]
    dtype: Any

    def _repr_html_(self) -> str:
        n, m = self.shape
        dense = n * m * self.dtype.itemsize
        lines = [("rows x columns", f"{n:,} x {m:,}"), ("number type", str(self.dtype))]
        lines += [("as a matrix", _bytes(dense)), ("source", repr(self))]
        return html_table("bigsap costs", lines)


def _bytes(size: int) -> str:
    step = min(len(_SIZES) - 1, int(math.log2(size) // 10)) if size > 0 else 0
    return f"{size / 1024**step:,.{0 if step == 0 else 1}f} {_SIZES[step]}"
