"""Bounds of the whole that a level of it proves: what listeners hear before there are lists.

A level's optimum says nothing of the whole's: it is of other rows and columns. But its duals
give prices to all columns, any prices prove a bound, and where bounds of boxes spare most pairs
the rows' minima at these prices take O((n + m) log m), as in the proof at the end.
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
from bigsap.sources.base import Array


class LevelBounds:
    """Tells what levels prove, for a small share of the time; nothing where nobody listens.

    What it looks at is not counted: no count may depend on listeners, nor on the clock.
    """

    def __init__(self, problem: Problem, team: Team, monitor: Monitor) -> None:
        self.problem, self.team, self.monitor = problem, team, monitor
        self._spent, self._takes = 0.0, seconds_by_bounds(problem.source) / policy.PROOF_BOUNDS_GENEROUS

    @property
    def due(self) -> bool:
        """Whether there is somebody to tell, and time for it."""
        if not self.monitor.has_listeners or not math.isfinite(self._takes):
            return False
        return self._spent + self._takes <= policy.LEVEL_BOUNDS_SHARE * self.monitor.seconds

    def tell(self, v: Array, since: float) -> None:
        """Prove a bound by the prices v (m,) of the whole, float64, which were begun at
        ``since``, and pass it on."""
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
