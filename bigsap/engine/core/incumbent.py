"""Best known assignment and proved lower bound of a solve in progress.

The initial sweeps yield both at no extra cost, so that a solve stopped early has an answer with
a proved gap, however slow its costs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.state import FREE
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.certificate import Certificate
from bigsap.proof.exact import exact_sum
from bigsap.proof.tightness import UNIT
from bigsap.sources.base import Separable, Separation, range_of
from bigsap.types import Array

_AT_ONCE = 512


def _size(a: Array) -> float:
    """Return the sum of magnitudes, without a temporary vector."""
    parts = (a[k : k + _AT_ONCE] for k in range(0, a.size, _AT_ONCE))
    return float(sum(np.abs(part).sum() for part in parts))


class Incumbent:
    """Best assignment and bound so far: signed costs, minimising, in the solve's orientation.

    column_of_row, cost: the cheapest complete assignment with a known cost. exact: whether that is the
    sum of its pairs' costs, and not of costs that were rounded on the way, by ``error`` at most. complete:
    the matching of the last complete phase, usually better, its cost unknown. bound, u, v: no
    assignment costs less than ``bound``; duals that prove it, normalised as in a
    ``Certificate``, and their low parts. None where unknown.

    active: whether to keep the arrays. A solve that cannot be stopped does not need them, and
    they take four vectors; then only the bounds are kept.
    """

    def __init__(self, problem: Problem, infinity: Any, *, active: bool) -> None:
        self._problem, self._infinity = problem, infinity
        self.active = active
        self.column_of_row: Array | None = None
        self.cost: Any = None
        self.exact, self.error = True, 0.0
        self.complete: Array | None = None
        self.bound: Any = None
        self.u: Array | None = None
        self.v: Array | None = None
        self.u_low: Array | None = None
        self.v_low: Array | None = None
        #: Cost and bound of the search before it was interrupted, without what its end proved. Only
        #: ``between`` looks at them.
        self.before: tuple[Any, Any] = (None, None)

    def between(self) -> float | None:
        """Return the gap between what the search itself has found; None if unknown."""
        cost, bound = self.found()
        return None if cost is None or bound is None else float(cost - bound)

    def found(self) -> tuple[Any, Any]:
        """Return the least cost and the largest bound of the search, also before an interruption."""
        costs = [cost for cost in (self.cost, self.before[0]) if cost is not None]
        bounds = [bound for bound in (self.bound, self.before[1]) if bound is not None]
        return min(costs, default=None), max(bounds, default=None)

    def add_picks(self, pick: Array, pick_cost: Array, *, exact: bool = True, error: float = 0.0) -> None:
        """Add an assignment found by a sweep, -1 for an unassigned row. O(n).

        error: most that the sum of its costs is wrong, if they are not exact.
        """
        matched = pick >= 0
        count = int(np.count_nonzero(matched))
        if count < min(self._problem.shape):
            return
        cost = self._exact(pick_cost if count == pick.size else pick_cost[matched])
        if self.cost is None or cost < self.cost:
            self.cost, self.exact, self.error = cost, exact, error
            if self.active:
                self.column_of_row = np.where(matched, pick, FREE).astype(np.intp)

    def add_duals(self, low: Array, v: Array) -> None:
        """Add the bound of row minima ``low[i] = min_j c[i,j] - v[j]`` at the prices v. O(n + m).

        Any prices prove a bound (see ``bigsap.proof.certificate``). The largest possible rounding
        error is subtracted.
        """
        n, m = self._problem.shape
        if not n or not m:
            return
        worst = low.max() if n <= m else np.partition(low, m - 1)[m - 1]
        if worst >= self._infinity:
            return
        if n <= m:
            t = np.partition(v, n - 1)[n - 1] if n < m else v.max()
            u, prices = (low + t, np.minimum(v - t, 0)) if n < m else (low, v)
        else:
            t = np.partition(low, m - 1)[m - 1]
            u, prices = np.minimum(low - t, 0), v + t
        if u.max(initial=0) >= self._infinity:
            return
        bound = exact_sum(u) + exact_sum(prices)
        if v.dtype.kind == "f":
            reach = float(max(v.max(), -v.min())) + abs(float(t))
            size = _size(u) + _size(prices) + (n + m) * reach
            bound = float(bound) - 4 * UNIT * size
            if self._problem.integer and math.isfinite(bound):
                bound = math.ceil(bound)
        if self.bound is None or bound > self.bound:
            self.bound = bound
            if self.active:
                if n == m:
                    # Additional columns, of rows that may stay unassigned, rely on it.
                    u, prices = u + t, v - t
                # The minima were rounded, and so were these sums.
                less = 4 * UNIT * (np.abs(u) + reach) if v.dtype.kind == "f" else 0
                self.u, self.v = u - less, prices.copy()
                self.u_low = self.v_low = None

    def add_floor(self) -> None:
        """Add a bound from the range of the costs, without reading any. O(n d + m d).

        For unsigned integers, the ends of their range; for a separable source, the bounding box of
        all column points, and of many coordinates that of all row points too; otherwise the
        source's own range of costs. Weak, but better than none.
        """
        low = row_floors(self._problem)
        if low is not None:
            self.add_duals(low, np.zeros(self._problem.shape[1], low.dtype))

    def see_phase(self, column_of_row: Array, cost: Any, *, exact: bool = True, error: float = 0.0) -> None:
        """Add the matching at the end of a phase and its cost, if known.

        Virtual places count as unassigned. error: see ``add_picks``.
        """
        if self.active:
            self.complete = np.maximum(column_of_row, FREE).astype(np.intp)
        if cost is not None and (self.cost is None or cost < self.cost):
            self.column_of_row, self.cost, self.exact, self.error = self.complete, cost, exact, error

    def add_certificate(self, certificate: Certificate, column_of_row: Array | None) -> None:
        """Add the cost and the bound that a pass over all costs has proved for these pairs and prices."""
        sign = self._problem.sign
        if certificate.fun is not None and column_of_row is not None:
            cost = sign * certificate.fun
            if self.cost is None or cost < self.cost + self.error:
                self.cost, self.exact, self.error = cost, True, 0.0
                if self.active:
                    self.column_of_row = column_of_row.astype(np.intp)
        bound = sign * certificate.bound
        if self.bound is None or bound > self.bound:
            self.bound = bound
            if self.active:
                self.u, self.v = sign * certificate.u, sign * certificate.v
                self.u_low, self.v_low = certificate.u_low, certificate.v_low
                if sign < 0:
                    self.u_low, self.v_low = _minus(self.u_low), _minus(self.v_low)

    def add(self, other: Incumbent) -> None:
        """Add what is known from another attempt at the same problem."""
        if other.cost is not None and (self.cost is None or other.cost < self.cost):
            self.cost, self.column_of_row = other.cost, other.column_of_row
            self.exact, self.error = other.exact, other.error
        if other.bound is not None and (self.bound is None or other.bound > self.bound):
            self.bound, self.u, self.v = other.bound, other.u, other.v
            self.u_low, self.v_low = other.u_low, other.v_low

    def _exact(self, costs: Array) -> Any:
        if costs.dtype.kind == "f" and self._problem.integer:
            return sum(int(c) for c in costs.tolist())
        return exact_sum(costs)

    def tell(self, monitor: Monitor) -> None:
        """Report the bounds to the monitor, unless they belong to a part of the problem."""
        progress = monitor.progress
        if self._problem.shape == (progress.n_rows, progress.n_columns):
            monitor.update_bounds(*self.enclosure())

    def enclosure(self) -> tuple[Any, Any]:
        """Return the lower and upper bound of the optimum, in the user's sense."""
        low, high = self.bound, self.cost
        if high is not None and not self.exact:
            high = high + self.error
        if self._problem.maximize:
            low, high = (None if x is None else -x for x in (high, low))
        return low, high


def _minus(low: Array | None) -> Array | None:
    return None if low is None else -low


def row_floors(problem: Problem) -> Array | None:
    """Return (n,) lower bounds of each row's signed costs, without reading any; None where unknown."""
    source = problem.source
    n, m = problem.shape
    if source.dtype.kind == "u":
        whole = -int(np.iinfo(source.dtype).max) if problem.maximize else 0
        return np.full(n, whole, np.int64)
    if not n or not m:
        return None
    ends = range_of(source)
    least = -math.inf
    if ends is not None:
        least = -ends[1] if problem.maximize else ends[0]
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is not None and not (problem.maximize and terms.kind == "chord"):
        # float64, so that differences from float32 points are float64 too.
        low, high = terms.y.min(axis=1).astype(np.float64), terms.y.max(axis=1).astype(np.float64)
        if low.size > policy.BOX_COORDINATES and m > policy.FLOOR_COLUMNS:
            # A box of many columns in many dimensions says little of any row: one for all rows will do.
            box = np.stack((terms.x.min(axis=0), terms.x.max(axis=0))).astype(np.float64)
            weak = _row_floors(replace(terms, x=box[:1]), low, high, problem.maximize, box[1:])
            return np.maximum(np.full(n, weak[0]), least)
        floors = np.empty(n)
        for first in range(0, n, _AT_ONCE):  # temporaries of a block stay in a cache
            rows = slice(first, first + _AT_ONCE)
            floors[rows] = _row_floors(replace(terms, x=terms.x[rows]), low, high, problem.maximize)
        return np.maximum(floors, least)
    return np.full(n, least) if math.isfinite(least) else None


def _row_floors(
    terms: Separation, low: Array, high: Array, maximize: bool, upper: Array | None = None
) -> Array:
    """Return (n,) lower bounds of each row's signed costs, see ``bounds.bound_row``.

    low, high: (d,) the box of all columns. upper: (n, d) if each row stands for all points between its own
    and this.
    """
    x, w = terms.x, terms.scale
    top = x if upper is None else upper
    ends = np.maximum(np.abs(top - low), np.abs(x - high))
    reach = ends if maximize else np.maximum(np.maximum(low - top, x - high), 0)
    if terms.kind == "product":
        corners = [w * end * side for end in ((x,) if upper is None else (x, upper)) for side in (low, high)]
        least, most = reduce(np.minimum, corners), reduce(np.maximum, corners)
        floors = -most.sum(axis=1) if maximize else least.sum(axis=1)
        size = np.maximum(np.abs(least), np.abs(most)).sum(axis=1)
    elif terms.kind == "largest":
        floors, size = (w * reach).max(axis=1), (w * ends).max(axis=1)
    else:
        power = 1 if terms.kind == "absolute" else 2
        floors, size = (w * reach**power).sum(axis=1), (w * ends**power).sum(axis=1)
        if terms.kind in ("root", "chord"):
            floors, size = np.sqrt(floors), np.sqrt(size)
        if terms.kind == "chord":  # the points are rounded
            size = size + np.sqrt((w * x**2).sum(axis=1))
    if maximize and terms.kind != "product":
        floors = -floors
    # Of sums in any order, over all coordinates.
    return floors - (128 + 2 * x.shape[1]) * np.finfo(np.float64).eps * size - terms.hidden()
