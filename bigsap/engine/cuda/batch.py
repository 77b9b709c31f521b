"""Arrays of one evaluation of rows on a device, and the lists it makes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Threads of a block, and distance between two columns of a group: SIDE in kernels_rows.cu.
SIDE = 256


class Entries(NamedTuple):
    """Lists of some rows: ids and costs (rows, k); sizes, thresholds, numbers of computed costs (rows,)."""

    ids: Any
    costs: Any
    sizes: Any
    theta: Any
    opened: Any

    @staticmethod
    def n_bytes(count: int, k: int) -> int:
        """Return the bytes they take together."""
        return count * (12 * k + 20)

    @classmethod
    def in_bytes(cls, data: Any, count: int, k: int, price: np.dtype[Any]) -> Entries:
        """Return their arrays in one of bytes, so that all are copied at once."""
        wide, narrow = data[: count * (8 * k + 16)], data[count * (8 * k + 16) :].view(np.int32)
        costs, theta = wide.view(price)[: count * k], wide.view(price)[count * k : count * (k + 1)]
        opened, ids, sizes = wide.view(np.uint64)[count * (k + 1) :], narrow[: count * k], narrow[count * k :]
        return cls(ids.reshape(count, k), costs.reshape(count, k), sizes, theta, opened)


class Batch(NamedTuple):
    """Device arrays of one evaluation.

    ids: int32 (2, rows), where the rows' costs are, and the rows. reference: P (rows,). slack: P (rows,), or
    a null pointer without products. v, offered: P (m,), prices, and those of free columns.
    lows: float32 (rows, groups). free_low, free_at: P and int32 (rows, chunks). inner: (rows, m)
    inner products, float32 or float64, or a null pointer. found: the bytes of ``Entries``.
    """

    ids: Any
    reference: Any
    slack: Any
    v: Any
    offered: Any
    lows: Any
    free_low: Any
    free_at: Any
    inner: Any
    found: Any
