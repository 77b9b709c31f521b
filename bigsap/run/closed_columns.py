"""Prices of columns that take no row, and of rows that take no column: the best that the duals allow."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bigsap.errors import OverflowRiskError
from bigsap.proof.exact import two_sum
from bigsap.result import Result
from bigsap.sources.base import CostSource, read_rows
from bigsap.sources.sparse.sparse_costs import SparseCosts
from bigsap.types import Array

_BLOCK = 1 << 20
_LARGEST, _EXACT = 2**63 - 1, 2.0**53


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
    size = float(np.abs(other).max(initial=0.0))
    if isinstance(source, SparseCosts) and not by_rows:
        source = source.transposed()  # once: a pass over all rows for each column would take long
    for k in closed.tolist():
        costs, those = _line(source, k, by_rows, n, m)
        if dual.dtype.kind == "i" or other.dtype.kind == "i":
            least = _least_whole(sign * costs.astype(object), sign * other[those].astype(object), by_rows)
            if least < -_LARGEST:
                raise OverflowRiskError(
                    f"the dual of {'row' if by_rows else 'column'} {k}, which takes nothing, leaves int64:"
                    " the integer costs are too large; scale them down, or convert them to float64"
                )
            dual[k] = sign * min(least, _LARGEST)
        else:
            dual[k] = sign * _least(costs, sign, sign * other[those], size, low is not None, by_rows)
        if by_rows and result.unassigned_cost is not None:
            cap = result.unassigned_cost[k]
            dual[k] = max(dual[k], cap) if result.maximize else min(dual[k], cap)
    if own_low is not None:
        own_low = own_low.copy()
        own_low[closed] = 0.0
    return replace(result, **{name: dual + 0, f"{name}_low": own_low})


def _line(source: CostSource, k: int, by_rows: bool, n: int, m: int) -> tuple[Array, Array]:
    """Return the allowed costs of one row, or of one column, and their columns, or rows.

    Sparse costs have the line as a row; integers that floats do not hold are in their own type.
    """
    if isinstance(source, SparseCosts):
        start, ids, listed = source.entries()
        some = slice(int(start[k]), int(start[k + 1]))
        line, those = listed[some], ids[some]
        floats = line.astype(source.dtype)
        if line.dtype.kind == "f" or np.abs(floats).max(initial=0.0) <= _EXACT:
            line = floats
    elif by_rows:
        row = np.empty((1, m), source.dtype)
        read_rows(source, np.array([k]), slice(0, m), row)
        line, those = row[0], np.arange(m)
    else:
        column = np.empty((n, 1), source.dtype)
        for first in range(0, n, _BLOCK):
            rows = np.arange(first, min(n, first + _BLOCK))
            read_rows(source, rows, slice(k, k + 1), column[first : first + _BLOCK])
        line, those = column[:, 0], np.arange(n)
    allowed = np.isfinite(line)
    return line[allowed], those[allowed]


def _least_whole(costs: Array, other: Array, by_rows: bool) -> int:
    """Return the smallest ``costs - other`` of Python's numbers; of a column at most 0."""
    least = min((int(c) - math.floor(o) for c, o in zip(costs, other, strict=True)), default=0)
    return least if by_rows else min(least, 0)


def _least(costs: Array, sign: int, other: Array, size: float, two_parts: bool, by_rows: bool) -> float:
    """Return a float just below every ``sign * costs - other``; of a column at most 0.

    size: of the largest dual, not only of these.
    """
    given = sign * costs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        high, rest = two_sum(given, -other)
    finite = np.isfinite(high)
    if not finite.any():
        return 0.0
    least = float(high[finite].min())
    if rest[finite].any() or two_parts or given.dtype != costs.dtype:
        # Rounded parts are below a unit in the last place of the largest number.
        size = max(float(np.abs(given[finite]).max()), size)
        least = math.nextafter(least - 2 * math.ulp(size), -math.inf)
    return least if by_rows else min(least, 0.0)
