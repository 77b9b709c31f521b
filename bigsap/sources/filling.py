"""The compiled fill_of of a source, if it has one."""

from __future__ import annotations

from bigsap.sources.base import CostSource, Fill, Fillable


def fill_of(source: CostSource) -> Fill | None:
    """What computes parts of the source's rows inside kernels; None: nothing does."""
    return source.fill() if isinstance(source, Fillable) else None
