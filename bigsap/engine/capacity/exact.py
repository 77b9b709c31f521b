"""Prices to twice the precision of floats, for an assignment whose prices carry too much rounding."""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.capacity.columns import DONE, Columns, Reader, read_line
from bigsap.proof.scan import two_sum
from bigsap.types import Array


@kernel
def exact_rises(
    thread: int, n_threads: int, columns: Array, c: Columns, r: Reader, high: Array, low: Array, row: Array
) -> int:
    """Compute the least rise from each of the columns to every other, exactly: the sum of two floats.

    high, low: (m, m), row: int32 (m, m), set for these columns. Each thread takes every so-manieth.
    """
    line, raw = c.line[thread], c.raw[thread]
    for some in range(thread, columns.size, n_threads):
        j = columns[some]
        for k in range(line.size):
            high[j, k], low[j, k], row[j, k] = np.inf, 0.0, -1
        for at in range(c.begin[j], c.begin[j] + c.load[j]):
            read_line(c.member[at], r, raw, line)
            own = line[j]
            for k in range(line.size):
                if k == j or line[k] == np.inf or line[k] - own > high[j, k]:
                    continue
                rise, rest = two_sum(line[k], -own)
                if rise < high[j, k] or (rise == high[j, k] and rest < low[j, k]):
                    high[j, k], low[j, k], row[j, k] = rise, rest, c.member[at]
    return DONE


@kernel
def lower_price(k: int, j: int, rise: float, rest: float, v: Array, v_low: Array, small: float) -> bool:
    """Lower the price of k to that of j and the rise, if that is lower by more than ``small``."""
    high, low = two_sum(v[j], rise)
    high, low = two_sum(high, low + (v_low[j] + rest))
    if (high - v[k]) + (low - v_low[k]) < -small:
        v[k], v_low[k] = high, low
        return True
    return False


@kernel
def lower_prices(
    c: Columns, high: Array, low: Array, v: Array, v_low: Array, before: Array, small: float
) -> int:
    """Lower all prices that exceed what an arc allows, once (Bellman 1958); return how many times.

    v, v_low: (m + 1,), in/out. before: int32 (m + 1,), the other end of the arc that lowered each.
    """
    m = high.shape[0]
    changed = 0
    for j in range(m):
        for k in range(m):
            if high[j, k] < np.inf and lower_price(k, j, high[j, k], low[j, k], v, v_low, small):
                before[k] = j
                changed += 1
        if c.kept[j] < c.capacity[j] and lower_price(m, j, 0.0, 0.0, v, v_low, small):
            before[m] = j
            changed += 1
    for k in range(m):
        if c.kept[k] > 0 and lower_price(k, m, 0.0, 0.0, v, v_low, small):
            before[k] = m
            changed += 1
    return changed
