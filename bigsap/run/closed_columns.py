"""Prices of columns that take no row, and of rows that take no column: the best that the duals allow."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bigsap.proof.exact import two_sum
from bigsap.result import Result
from bigsap.sources.base import CostSource, read_rows
from bigsap.types import Array

_BLOCK = 1 << 20


def dual_of_closed(result: Result, source: CostSource) -> Result:
    """Return the result with a feasible dual for each column of capacity 0, or row of demand 0.

    They count nothing in the bound, but ``u[i] + v[j] <= cost[i, j]`` holds for all pairs. Reads the
    costs of these columns or rows.
    """
    n, m = result.shape
    counts = result.capacity if result.demand is None else result.demand
    assert counts is not None
    closed = np.flatnonzero(counts == 0)
    by_rows = result.demand is not None
    other, low = (result.v, result.v_low) if by_rows else (result.u, result.u_low)
    if not closed.size or (other.dtype.kind == "f" and np.isnan(other).any()):
        return result
    name, own_low = ("u", result.u_low) if by_rows else ("v", result.v_low)
    dual = getattr(result, name).copy()
    sign = -1 if result.maximize else 1
    for k in closed.tolist():
        costs = _line(source, k, by_rows, n, m)
        if dual.dtype.kind == "i" or other.dtype.kind == "i":
            dual[k] = sign * _least_whole(sign * costs.astype(object), sign * other.astype(object), by_rows)
        else:
            dual[k] = sign * _least(costs, sign, sign * other, low is not None, by_rows)
        if by_rows and result.unassigned_cost is not None:
            cap = result.unassigned_cost[k]
            dual[k] = max(dual[k], cap) if result.maximize else min(dual[k], cap)
    if own_low is not None:
        own_low = own_low.copy()
        own_low[closed] = 0.0
    return replace(result, **{name: dual + 0, f"{name}_low": own_low})


def _line(source: CostSource, k: int, by_rows: bool, n: int, m: int) -> Array:
    if by_rows:
        row = np.empty((1, m), source.dtype)
        read_rows(source, np.array([k]), slice(0, m), row)
        line: Array = row[0]
        return line
    column = np.empty((n, 1), source.dtype)
    for start in range(0, n, _BLOCK):
        rows = np.arange(start, min(n, start + _BLOCK))
        read_rows(source, rows, slice(k, k + 1), column[start : start + _BLOCK])
    only: Array = column[:, 0]
    return only


def _least_whole(costs: Array, other: Array, by_rows: bool) -> int:
    """Return the smallest ``costs - other`` of Python's numbers; of a column at most 0."""
    least = min((int(c) - math.floor(o) for c, o in zip(costs, other, strict=True)), default=0)
    return least if by_rows else min(least, 0)


def _least(costs: Array, sign: int, other: Array, two_parts: bool, by_rows: bool) -> float:
    """Return a float just below every ``sign * costs - other``; of a column at most 0."""
    given = sign * costs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        high, rest = two_sum(given, -other)
    finite = np.isfinite(high)
    if not finite.any():
        return 0.0
    least = float(high[finite].min())
    if rest[finite].any() or two_parts or given.dtype != costs.dtype:
        # Rounded parts are below a unit in the last place of the largest number.
        size = max(float(np.abs(given[finite]).max()), float(np.abs(other).max()))
        least = math.nextafter(least - 2 * math.ulp(size), -math.inf)
    return least if by_rows else min(least, 0.0)
