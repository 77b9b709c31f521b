"""What a solve knows before it is done: the best assignment priced so far, and a bound.

Both fall out of the start's sweeps at no extra cost, so that a solve that is stopped,
however slow its costs, has an answer with a proved gap.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bigsap.certificate import UNIT, Certificate, exact_sum
from bigsap.engine.state import FREE
from bigsap.problem import Problem
from bigsap.sources.base import Array


class Known:
    """Signed, minimising, in the solve's orientation.

    column_of_row, cost: the cheapest complete assignment whose cost is known. complete:
    the matching of the last whole phase, usually better, its cost not known. bound, u, v: no
    assignment costs less than ``bound``; duals that prove it, normalised as a
    ``Certificate`` has them. None where unknown.
    """

    def __init__(self, problem: Problem, infinity: Any) -> None:
        self._problem, self._infinity = problem, infinity
        self.column_of_row: Array | None = None
        self.cost: Any = None
        self.complete: Array | None = None
        self.bound: Any = None
        self.u: Array | None = None
        self.v: Array | None = None

    def see_picks(self, pick: Array, pick_cost: Array) -> None:
        """An assignment found by a sweep, -1 where a row has none. O(n)."""
        matched = pick >= 0
        if int(matched.sum()) < min(self._problem.shape):
            return
        cost = self._exact(pick_cost[matched])
        if self.cost is None or cost < self.cost:
            self.column_of_row, self.cost = np.where(matched, pick, FREE).astype(np.intp), cost

    def see_duals(self, low: Array, v: Array) -> None:
        """Row minima ``low[i] = min_j c[i,j] - v[j]`` at the prices v. O(n + m).

        Any prices prove a bound (see ``bigsap.certificate``); what rounding may have
        added is taken off again.
        """
        n, m = self._problem.shape
        if (np.partition(low, min(n, m) - 1)[min(n, m) - 1]) >= self._infinity:
            return
        if n <= m:
            t = np.partition(v, n - 1)[n - 1] if n < m else v.dtype.type(0)
            u, prices = low + t, (np.minimum(v - t, 0) if n < m else v.copy())
        else:
            t = np.partition(low, m - 1)[m - 1]
            u, prices = np.minimum(low - t, 0), v + t
        if u.max(initial=0) >= self._infinity:
            return
        bound = exact_sum(u) + exact_sum(prices)
        if v.dtype.kind == "f":
            reach = float(np.abs(v).max()) + abs(float(t))
            size = float(np.abs(u).sum() + np.abs(prices).sum()) + (n + m) * reach
            bound = float(bound) - 2 * UNIT * size
            if self._problem.integer and math.isfinite(bound):
                bound = math.ceil(bound)
        if self.bound is None or bound > self.bound:
            self.bound, self.u, self.v = bound, u, prices

    def see_certificate(self, certificate: Certificate, column_of_row: Array | None) -> None:
        """What a pass over the costs has proved about these pairs and prices."""
        sign = self._problem.sign
        if certificate.fun is not None and column_of_row is not None:
            cost = sign * certificate.fun
            if self.cost is None or cost < self.cost:
                self.column_of_row, self.cost = column_of_row.astype(np.intp), cost
        bound = sign * certificate.bound
        if self.bound is None or bound > self.bound:
            self.bound, self.u, self.v = bound, sign * certificate.u, sign * certificate.v

    def _exact(self, costs: Array) -> Any:
        if costs.dtype.kind == "f" and self._problem.integer:
            return sum(int(c) for c in costs.tolist())
        return exact_sum(costs)

    def enclosure(self) -> tuple[Any, Any]:
        """Lower and upper bound of the optimum, in the user's sense."""
        low, high = self.bound, self.cost
        if self._problem.maximize:
            low, high = (None if x is None else -x for x in (high, low))
        return low, high
