"""Costs that kernels read here, and workers elsewhere that may make rows of them as well.

Apart from ``base``, on which every kernel's name depends.
"""

from __future__ import annotations

from typing import Protocol

from bigsap.sources.base import CostSource, Crewed, Resident
from bigsap.sources.filling import fill_of


class Beside(Protocol):
    """Workers elsewhere beside costs that kernels read here: asked where that is faster."""

    def pays(self, n_rows: int, seconds: float, n_threads: int, answer_bytes: int) -> bool:
        """Whether workers make these rows sooner than so many threads here, which take so many
        seconds for them. answer_bytes: what comes back of a row."""
        ...

    def of(self, source: CostSource) -> Crewed | None:
        """The source as workers have it; None for costs that cannot be sent."""
        ...


def read_by_kernels(source: CostSource) -> bool:
    """Whether kernels read the costs: a matrix in memory or in a mapped file, or compiled code."""
    if isinstance(source, Resident) and source.resident() is not None:
        return True
    return fill_of(source) is not None
