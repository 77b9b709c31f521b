"""What kernels read of a source, if anything."""

from __future__ import annotations

from bigsap.sources.base import CostSource, Fill, Fillable, Resident


def fill_of(source: CostSource) -> Fill | None:
    """What computes parts of the source's rows inside kernels; None: nothing does."""
    return source.fill() if isinstance(source, Fillable) else None


def read_by_kernels(source: CostSource) -> bool:
    """Whether kernels read the costs: a matrix in memory or in a mapped file, or compiled code."""
    if isinstance(source, Resident) and source.resident() is not None:
        return True
    return fill_of(source) is not None
