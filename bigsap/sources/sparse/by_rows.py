"""Sparse costs as rows alone, for methods that search rows."""

from __future__ import annotations

import numpy as np

from bigsap.sources.base import integral
from bigsap.sources.sparse.sparse_costs import SparseCosts
from bigsap.types import Array, Ids


class ByRows:
    """The rows of sparse costs, float64, with the infinity that forbids where a pair is not listed.

    It hides the entries, so that every method takes it for a matrix.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, source: SparseCosts, *, maximize: bool = False) -> None:
        self.source = source.in_sense(maximize)
        self.shape = source.shape
        #: Whether the listed costs are integers.
        self.of_whole = integral(self.source)

    def __repr__(self) -> str:
        return f"ByRows({self.source!r})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        self.source.read(rows, columns, out)

    def intact(self) -> None:
        """Raise StoreError if a mapped file was truncated."""
        self.source.intact()

    def fingerprint(self) -> str:
        return self.source.fingerprint()
