"""Costs that kernels read here and that workers may evaluate as well.

A module apart from ``base``, since every kernel's cache key depends on ``base``.
"""

from __future__ import annotations

from typing import Protocol

from bigsap.sources.base import CostSource, Crewed, Resident, Sparse
from bigsap.sources.filling import fill_of


class Offloading(Protocol):
    """Workers beside costs that kernels read here; used if they are faster."""

    def pays(self, n_rows: int, seconds: float, n_threads: int, answer_bytes: int) -> bool:
        """Return whether workers make these rows sooner than the threads here.

        seconds: that ``n_threads`` threads here take for them. answer_bytes: of the answer for one
        row.
        """
        ...

    def of(self, source: CostSource) -> Crewed | None:
        """Return the source as evaluated by workers; None for costs that cannot be sent."""
        ...


def read_by_kernels(source: CostSource) -> bool:
    """Return whether kernels read the costs: compiled code, or a matrix or entries in memory or a file."""
    if isinstance(source, Sparse):
        return True
    if isinstance(source, Resident) and source.resident() is not None:
        return True
    return fill_of(source) is not None
