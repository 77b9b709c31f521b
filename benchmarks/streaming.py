"""How fast this machine can read a matrix from memory: the measure for scanning it."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
from numba import njit


# "reassoc" lets the compiler sum in vectors: the loop must wait for memory, not for itself.
@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def _sum(values: np.ndarray) -> float:
    total = 0.0
    for k in range(values.size):
        total += values[k]
    return total


def bytes_per_second(matrix: np.ndarray, threads: int, passes: int = 3) -> float:
    """The best of several passes over the matrix, each thread reading its part of the rows."""
    flat = matrix.reshape(-1)
    cuts = np.linspace(0, flat.size, threads + 1).astype(int)
    parts = [flat[a:b] for a, b in itertools.pairwise(cuts)]
    _sum(flat[:8])
    best = np.inf
    for _ in range(passes):
        team = [threading.Thread(target=_sum, args=(part,)) for part in parts[1:]]
        clock = time.perf_counter()
        for thread in team:
            thread.start()
        _sum(parts[0])
        for thread in team:
            thread.join()
        best = min(best, time.perf_counter() - clock)
    return float(matrix.nbytes / best)
