"""The compiled filler of a source, if it has one."""

from __future__ import annotations

from bigsap.sources.base import CostSource, Fill, Fillable


def fill_of(source: CostSource) -> Fill | None:
    """Return the source's filler for use inside kernels; None if it has none."""
    return source.fill() if isinstance(source, Fillable) else None
