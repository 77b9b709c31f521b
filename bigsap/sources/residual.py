"""Residual costs: costs less prices, the problem that refinement solves.

``d[i, j] = c[i, j] - u[i] - v[j]`` with prices in two parts, computed exactly and rounded once. All
d are >= 0 and nearly tight pairs are near 0, however large costs and prices are, so prices of d
have none of their rounding. The current assignment has a gap. A pair with a larger d is not part of
a better assignment, so d is capped at twice the gap, and prices of d stay within that size. A power
of two scales the cap to about 1.

With more columns than rows, or more rows, the problem is made square: added rows have ``-v[j]``,
added columns ``-u[i]``. With many more columns, or few listed pairs, it keeps its shape: ``-v[j]``, capped
too, is what column j costs when it is free, so it is subtracted from the costs of its pairs.
"""

from __future__ import annotations

import math

import numpy as np

from bigsap.sources.base import CostSource, Entries, Fill, Fillable, Reading
from bigsap.sources.convert import check_rows
from bigsap.types import Array, Ids


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return ``a + b`` rounded, and the rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _capped(left: Array, cap: float) -> Array:
    """Return residual costs within 0 and the cap; NaN, of numbers that left float64, is the cap."""
    found: Array = np.where(left < cap, np.maximum(left, 0.0), cap)
    return found


class Residual(Reading):
    """Costs left by duals of ``source``, which holds real costs.

    square: whether they are (N, N), N the larger side; otherwise there are at least as many columns as rows.

    u, u_low (n,), v, v_low (m,): float64 duals in two parts, in the minimising sense, feasible.
    gap: of some assignment, or more. scale: costs are d times this. Memory: four vectors. Time: the
    source's own and some nanoseconds a pair.
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        source: CostSource,
        duals: tuple[Array, Array, Array, Array],
        gap: float,
        *,
        maximize: bool,
        square: bool = True,
    ) -> None:
        self.source = source
        self.sign = -1.0 if maximize else 1.0
        u, u_low, v, v_low = (np.ascontiguousarray(part, np.float64) for part in duals)
        self._duals = u, u_low, v, v_low
        cap = min(2.0 * gap, 2.0**1023)
        # Neither so large that a product could overflow, nor so small that it loses digits.
        self.scale = math.ldexp(1.0, min(1000, max(-1000, 1 - math.frexp(cap)[1])))
        self._limits = np.array([cap, self.scale])
        side = max(source.shape)
        self.square = square
        self.shape = (side, side) if square else source.shape
        self._fill: Fill | None = None
        self._free: Array | None = None  # what columns cost when they are free, for ``read``

    def __repr__(self) -> str:
        return f"Residual({self.source!r})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with the residual costs of ``rows[k]``."""
        from bigsap.sources.wrapped_kernels import subtract_rows

        check_rows(rows, self.shape[0])
        n, m = self.source.shape
        u, u_low, v, v_low = self._duals
        cap, scale = self._limits.tolist()
        start, stop = columns.start, min(columns.stop, m)
        (real,) = np.nonzero(np.asarray(rows) < n)
        if stop > start and real.size:
            ids = np.asarray(rows)[real]
            given = np.empty((real.size, stop - start), self.source.dtype)
            self.source.read(ids, slice(start, stop), given)
            costs = given.astype(np.float64)
            subtract_rows(costs, self.sign, ids.astype(np.int64), start, u, u_low, v, v_low, cap, scale)
            if not self.square:
                if self._free is None:
                    self._free = self.of_free_columns()[0]
                costs -= self._free[start:stop]
            out[real, : stop - start] = costs
        if not self.square:
            return
        if n < m:
            virtual = np.asarray(rows) >= n
            left: Array = np.clip(-(v[start:stop] + v_low[start:stop]), 0.0, cap) * scale
            out[virtual] = left
        elif columns.stop > m:
            ids = np.asarray(rows)
            more: Array = np.clip(-(u[ids] + u_low[ids]), 0.0, cap) * scale
            out[:, max(0, m - start) :] = more[:, None]

    def of_entries(self, entries: Entries) -> Array:
        """Return the residual costs of a sparse source's entries; forbidden ones stay forbidden."""
        u, u_low, v, v_low = self._duals
        cap, scale = self._limits.tolist()
        rows, columns = entries.rows(), entries.columns
        given = self.sign * entries.costs.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            high, low = _two_sum(given, -u[rows])
            high, rest = _two_sum(high, -v[columns])
            left = high + (rest + (low - u_low[rows] - v_low[columns]))
        found: Array = np.where(np.isinf(given), np.inf, _capped(left, cap) * scale)
        return found if self.square else found - self.of_free_columns()[0][columns]

    def of_free_columns(self) -> tuple[Array, Array]:
        """Return what each column costs when it is free, minus its price, and where that is not capped."""
        _, _, v, v_low = self._duals
        cap, scale = self._limits.tolist()
        size = -(v + v_low)
        return np.clip(size, 0.0, cap) * scale, size <= cap

    def of_unassigned(self, prices: Array) -> Array:
        """Return the residual costs of rows that stay unassigned at prices in the user's sense."""
        u, u_low, _, _ = self._duals
        cap, scale = self._limits.tolist()
        given = self.sign * prices.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            high, low = _two_sum(given, -u)
            left = high + (low - u_low)
        found: Array = np.where(np.isinf(given), np.inf, _capped(left, cap) * scale)
        return found

    def fill(self) -> Fill | None:
        """Return a compiled filler around the source's own; None unless the problem is square."""
        if self._fill is None and self.square and self.source.shape == self.shape:
            inner = self.source.fill() if isinstance(self.source, Fillable) else None
            if inner is not None and self.source.dtype.kind == "f":
                from bigsap.sources.wrapped_kernels import residual_fill

                u, u_low, v, v_low = self._duals
                self._fill = residual_fill(
                    inner, self.source.dtype, self.sign, u, u_low, v, v_low, self._limits
                )
        return self._fill
