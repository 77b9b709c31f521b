"""Bounds of the whole problem from levels, reported to listeners before lists exist.

A level's optimum does not bound the whole problem, since it has other rows and columns. But its
duals give prices to all columns, any prices prove a bound, and where bounds of boxes exclude most
pairs the rows' minima at these prices take O((n + m) log m), as in the final proof.
"""

from __future__ import annotations

import math
import time

import numpy as np

from bigsap import policy
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.team import Team
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.minima import Looked, by_bounds, seconds_by_bounds
from bigsap.proof.row_minima import Prices
from bigsap.types import Array


class LevelBounds:
    """Reporter of bounds from levels, limited to a small share of the time.

    Inactive without listeners. Its work is not counted, because counts must not depend on listeners or
    on the clock.
    """

    def __init__(self, problem: Problem, team: Team, monitor: Monitor) -> None:
        self.problem, self.team, self.monitor = problem, team, monitor
        self._spent, self._takes = 0.0, seconds_by_bounds(problem.source) / policy.PROOF_BOUNDS_GENEROUS

    @property
    def due(self) -> bool:
        """Whether there are listeners, and time for a bound."""
        if not self.monitor.has_listeners or not math.isfinite(self._takes):
            return False
        return self._spent + self._takes <= policy.LEVEL_BOUNDS_SHARE * self.monitor.seconds

    def tell(self, v: Array, since: float) -> None:
        """Prove a bound by the prices v (m,) of the whole, float64, and report it.

        since: when the computation of the prices began.
        """
        problem, monitor = self.problem, self.monitor
        found = by_bounds(
            problem.source, None, Prices(v), problem.maximize, self.team.n_threads, lambda _: monitor.tick()
        )
        if found is not None and not isinstance(found, Looked):
            known = Incumbent(problem, np.inf, active=False)
            known.add_duals(found[0].high, v)
            known.tell(monitor)
            self._takes = time.perf_counter() - since
        else:
            self._takes = math.inf  # bounds exclude too little
        self._spent += time.perf_counter() - since
