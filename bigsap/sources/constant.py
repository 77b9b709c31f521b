"""Reasons for infinite costs: forbidden on purpose, or beyond float64."""

from __future__ import annotations

import numpy as np

from bigsap.sources.base import CostSource
from bigsap.sources.expression.formula import ExpressionSource

#: Rows and columns of a sample.
_ROWS = 4
_COLUMNS = 1024


def why_infinite(source: object) -> str | None:
    """Return a reason for infinite costs that the user did not request; None if none is known.

    All sources but expressions refuse data that could make costs infinite.
    """
    if isinstance(source, ExpressionSource):
        return source.why_infinite()
    inner = [getattr(source, name, None) for name in ("_source", "source", "host")]
    for below in (*inner, *getattr(source, "_sources", ())):
        found = None if below is None else why_infinite(below)
        if found is not None:
            return found
    return None


def infinities(source: CostSource, rows: list[int]) -> str:
    """Return a sentence about infinite costs in some of these rows; "" if there are none.

    Reads up to four rows.
    """
    m = source.shape[1]
    some = np.array(rows[:_ROWS], np.intp)
    width = min(m, _COLUMNS)
    if source.dtype.kind != "f" or not width or not some.size:
        return ""
    costs = np.empty((some.size, width), source.dtype)
    source.read(some, slice(0, width), costs)
    count = int(np.isinf(costs).sum())
    if not count:
        return ""
    why = why_infinite(source)
    text = f"Of {costs.size:,} of their costs {count:,} are infinite"
    return f"{text}{'' if why is None else f': {why}'}."
