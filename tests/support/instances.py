"""The cost classes of the paper and a few more: those of the benchmarks."""

from __future__ import annotations

from benchmarks.instances import (
    CLASSES,
    disjoint,
    geometric,
    integers,
    low_rank,
    points_of,
    random,
    sanity,
    squared_distances,
)

__all__ = [
    "CLASSES",
    "disjoint",
    "geometric",
    "integers",
    "low_rank",
    "points_of",
    "random",
    "sanity",
    "squared_distances",
]
