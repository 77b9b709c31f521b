"""The instances: the classes of ``tests/instances.py`` as the benchmarks want them."""

from __future__ import annotations

import numpy as np

from benchmarks.instances import CLASSES, MORE, integers
from bigsap.sources.base import Array


def matrix(cls: str, n: int, seed: int) -> Array:
    """(n, n) costs of the class: float64, or int32 for the integer classes."""
    if cls.startswith("int"):
        return integers(n, seed, float(cls[3:-1]), np.int32)
    if cls in MORE:
        return np.ascontiguousarray(MORE[cls](n, seed))
    return np.ascontiguousarray(CLASSES[cls](n, seed))


def total(cost: Array, columns: Array) -> float | None:
    """The cost of the assignment, None when ``columns`` is no permutation."""
    n = cost.shape[0]
    columns = np.asarray(columns)
    if columns.shape != (n,) or not np.array_equal(np.sort(columns), np.arange(n)):
        return None
    picked = cost[np.arange(n), columns.astype(np.intp)]
    return float(picked.sum(dtype=np.int64 if picked.dtype.kind in "iu" else np.float64))


def factors(rank: int, n: int, seed: int) -> tuple[Array, Array]:
    """(n, rank) factors of ``rank 2``, ``rank 8``, ...: costs are ``a @ a.T``."""
    a = np.random.default_rng(seed).random((n, rank))
    return a, a
