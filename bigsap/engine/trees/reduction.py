"""Initial column prices: the minimum of each column after subtracting the rows' minima.

The initial reduction of the Hungarian method (Date and Nagi 2016, algorithm 1) without changing
the costs: they are read once; each row is used twice while it is in the near caches.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core import state as S
from bigsap.engine.core.atomics import fetch_add, prefetch
from bigsap.engine.core.scan import AHEAD, LINE, fold
from bigsap.engine.core.state import LANES
from bigsap.engine.core.team import Team
from bigsap.problem import Problem
from bigsap.sources.base import Resident
from bigsap.sources.cuda.placed import OnDevice
from bigsap.types import Array, Tick

#: Rows that a thread claims at a time, and pairs of the first slice; seconds of later ones.
_CLAIM = 4
_FIRST_PAIRS = 1 << 22
_SLICE_SECONDS = 0.1


@kernel
def run_reduction(
    thread: int,
    n_threads: int,
    first: int,
    last: int,
    slots: Array,
    sign: float,
    infinity: float,
    lanes: Array,
    prices: Array,
    item: Array,
) -> int:
    """Lower ``prices[thread]`` (n_columns,) to ``c - min c`` of the rows claimed by this thread.

    lanes: P (n_threads, LANES). Rows without a finite minimum are skipped.
    """
    low, v = lanes[thread], prices[thread]
    m = v.size
    full = m // LANES
    while True:
        begin = first + fetch_add(item, 0, _CLAIM)
        if begin >= last:
            return 0
        for row in range(begin, min(begin + _CLAIM, last)):
            cost = slots[row]
            for k in range(LANES):
                low[k] = infinity
            for b in range(full):
                p = b * LANES
                for line in range(cost.itemsize * LANES // LINE):
                    prefetch(cost.ctypes.data + p * cost.itemsize + AHEAD + line * LINE)
                c = cost[p : p + LANES]
                for k in range(LANES):
                    x = sign * c[k]
                    z = low[k]
                    low[k] = x if x < z else z
            for j in range(full * LANES, m):
                low[0] = min(low[0], sign * cost[j])
            least = fold(low, infinity)
            if not (least < infinity and least > -infinity):
                continue
            for j in range(m):
                g = sign * cost[j] - least
                w = v[j]
                v[j] = g if g < w else w


def column_minima(problem: Problem, team: Team, price: np.dtype[Any], reached: Tick) -> Array | None:
    """Return P (n_columns,): ``v[j] = min over rows of c[i, j] - min_k c[i, k]``.

    The value is 0 for a column that is forbidden to all rows. Returns None if the costs are not a
    matrix in memory. ``reached`` is called after each slice with its number of rows. The result
    does not depend on the number of threads, since minima do not. Costs are not checked.
    """
    n, m = problem.shape
    source = problem.source
    infinity = S.infinity(price)
    if isinstance(source, OnDevice):
        return None
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is None:
        return None
    prices = np.full((team.n_threads, m), infinity, price)
    lanes = np.empty((team.n_threads, LANES), price)
    item = np.zeros(1, np.int64)
    batch, start = max(1, _FIRST_PAIRS // m), 0
    while start < n:
        stop = min(n, start + batch)
        item[0] = 0
        clock = time.perf_counter()
        team.run(run_reduction, start, stop, matrix, price.type(problem.sign), infinity, lanes, prices, item)
        seconds = max(time.perf_counter() - clock, 1e-6)
        reached(stop - start)
        batch = max(1, min(4 * batch, int((stop - start) * _SLICE_SECONDS / seconds)))
        start = stop
    v: Array = prices.min(axis=0)
    v[~(v < infinity)] = 0
    return v
