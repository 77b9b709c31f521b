"""The certificate's pass over some rows, on a worker of a cluster."""

from __future__ import annotations

import numpy as np

from bigsap.proof.row_minima import row_minima
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.sources.base import Array, Ids
from bigsap.sources.spread.on_worker import Built


class _Some:
    """Some rows of what a worker keeps."""

    def __init__(self, built: Built, rows: Array) -> None:
        self._built, self._rows = built, rows
        self.shape, self.dtype = (rows.size, built.source.shape[1]), built.source.dtype

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with the costs of ``rows[k]`` of these rows."""
        self._built.rows.read(self._rows[rows], columns, out)


def duals_of(
    built: Built, prices: Array, rows: Array, number: str, maximize: bool, matching: Array | None
) -> list[Array]:
    """Task: row duals and assigned costs of ``rows``, see ``row_minima``; the same bits.

    Errors name the rows of the whole problem.
    """
    some = _Some(built, rows)
    values = np.asarray(prices).view(np.dtype(number))
    u, matched = row_minima(some, matching, values, maximize, 1, BLOCK_BYTES, None, names=rows)
    return [u, matched]
