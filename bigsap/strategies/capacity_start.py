"""Capacities of samples, and prices to begin with."""

from __future__ import annotations

import numpy as np

from bigsap.types import Array


def share(capacity: Array, n: int, size: int) -> Array:
    """Return capacities for a sample of ``size`` of n rows: in proportion, at least so many in all."""
    exact = np.minimum(capacity, n) * (size / n)
    found = np.floor(exact).astype(np.int64)
    missing = max(0, int(np.ceil(exact.sum())) - int(found.sum()), size - int(found.sum()))
    order = np.argsort(found - exact, kind="stable")[: min(missing, capacity.size)]
    found[order] += 1
    short = size - int(found.sum())
    if short > 0:
        found[np.argmax(found)] += short
    return found


def shifted(v: Array, capacity: Array, n: int) -> Array:
    """Return prices at most 0, and 0 for columns that may have room left."""
    order = np.argsort(v, kind="stable")
    total = np.cumsum(capacity[order])
    at = order[min(int(np.searchsorted(total, n)), v.size - 1)]
    found: Array = np.minimum(v - v[at], 0.0)
    return found
