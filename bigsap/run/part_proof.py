"""Certificate pass over some rows, on a worker of a cluster."""

from __future__ import annotations

import numpy as np

from bigsap.proof.row_minima import Prices, row_minima, whole
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.sources.cluster.on_worker import Built
from bigsap.types import Array, Ids


class _Some:
    """Source of some rows that a worker keeps."""

    def __init__(self, built: Built, rows: Array) -> None:
        self._built, self._rows = built, rows
        self.shape, self.dtype = (rows.size, built.source.shape[1]), built.source.dtype

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with the costs of ``rows[k]`` of these rows."""
        self._built.rows.read(self._rows[rows], columns, out)


def duals_of(
    built: Built, prices: Array, rows: Array, number: str, maximize: bool, matching: Array | None
) -> list[Array]:
    """Return row duals and assigned costs of ``rows``, with the same bits as ``row_minima``.

    A task of the cluster. prices: (m,), or (2 m,) with the low parts appended. Returns the parts of
    the minima, one of integers and three of floats, and the costs. Errors name rows of the whole
    problem.
    """
    some = _Some(built, rows)
    values = np.asarray(prices).view(np.dtype(number))
    m = some.shape[1]
    given = Prices(values[:m], values[m:] if values.size > m else None)
    found = row_minima(some, matching, given, maximize, 1, BLOCK_BYTES, None, names=rows)
    parts = [found.high] if given.integer else list(whole(found))
    return [*parts, found.matched]
