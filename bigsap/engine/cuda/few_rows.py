"""Device memory for evaluations of the few rows that a search asks for.

Their kernels take some 0.1 ms; allocations and copies of arrays one by one would take several times
as long. So all arrays are kept, and what the host sends goes in one copy from pinned memory, as does
what it fetches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.cuda.batch import Batch, Entries
from bigsap.sources.cuda.device_memory import empty, pinned
from bigsap.types import Array

#: Most rows of an evaluation. A product reads all columns once, whether for one row or for so many.
TOGETHER = 64


class FewRows:
    """Arrays of evaluations of up to ``TOGETHER`` rows, on the current device.

    Memory there: ``TOGETHER`` inner products a column, two prices a column, and the group minima.

    n_columns, n_groups, n_chunks: of a row. most: the longest list. price, inner: dtypes of prices and of
    inner products.
    """

    def __init__(
        self,
        n_columns: int,
        n_groups: int,
        n_chunks: int,
        most: int,
        price: np.dtype[np.float64],
        inner: np.dtype[Any],
    ) -> None:
        self._m, self._price = n_columns, price
        words = 3 * TOGETHER + 2 * n_columns
        self._sent = pinned(8 * words).view(price)
        self._there = empty((words,), price, "prices")
        self._lows = empty((TOGETHER, n_groups), np.float32, "group minima")
        self._free_low = empty((TOGETHER, n_chunks), price, "group minima")
        self._free_at = empty((TOGETHER, n_chunks), np.int32, "group minima")
        self._inner = empty((TOGETHER, n_columns), inner, "inner products")
        self._found = empty((Entries.n_bytes(TOGETHER, most),), np.uint8, "lists")
        self._fetched = pinned(Entries.n_bytes(TOGETHER, most))

    def send(
        self, rows: Array, reference: Array, slack: Array, v: Array, offered: Array | None, k: int
    ) -> Batch:
        """Send what an evaluation of rows needs; return its arrays there.

        offered: prices of free columns, None if they are those of all.
        """
        n, m, here, there = rows.size, self._m, self._sent, self._there
        here[:n], here[TOGETHER : TOGETHER + n] = reference, slack
        ids = here[2 * TOGETHER : 3 * TOGETHER].view(np.int32)
        ids[:n] = ids[TOGETHER : TOGETHER + n] = rows
        stop = 3 * TOGETHER + m
        here[3 * TOGETHER : stop] = v
        if offered is not None:
            here[stop:] = offered
            stop += m
        there[:stop].set(here[:stop])
        return Batch(
            ids=there[2 * TOGETHER : 3 * TOGETHER].view(np.int32).reshape(2, TOGETHER),
            reference=there[:TOGETHER],
            slack=there[TOGETHER : 2 * TOGETHER],
            v=there[3 * TOGETHER : 3 * TOGETHER + m],
            offered=there[stop - m : stop],
            lows=self._lows,
            free_low=self._free_low,
            free_at=self._free_at,
            inner=self._inner,
            found=self._found[: Entries.n_bytes(n, k)],
        )

    def fetch(self, batch: Batch, n_rows: int, k: int) -> Entries:
        """Wait for an evaluation; return its lists, which the next overwrites."""
        data = batch.found.get(out=self._fetched[: Entries.n_bytes(n_rows, k)])
        return Entries.in_bytes(data, n_rows, k, self._price)
