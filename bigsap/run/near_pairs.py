"""Strategy for points of which only near pairs are allowed: sparse searches on these pairs."""

from __future__ import annotations

import time

from bigsap.problem import Problem
from bigsap.run.on_lists import setting_of
from bigsap.run.on_sparse import searched
from bigsap.run.run import Run
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import Outcome, work
from bigsap.strategies.near_pairs import is_near, near_pairs
from bigsap.strategies.placement import device_name
from bigsap.strategies.work import Work


class NearPairs:
    """Strategy of ``strategies.near_pairs`` and ``strategies.sparse``.

    A continued solve collects the pairs again; they are the same. The proof reads the points.
    """

    def expects(self, run: Run) -> Work | None:
        """Return None unless pairs beyond a limit are forbidden and no other strategy was requested."""
        if run.is_way_named or run.asked != "auto" or (run.is_continued and not _kept(run)):
            return None
        source, (n, m) = run.problem.source, run.problem.shape
        if isinstance(source, ClippedCosts) or device_name(source) != "cpu" or n > m or not is_near(source):
            return None
        return work.on_lists((n, m), bounded=True, kept=True)

    def attempt(self, run: Run) -> Outcome | None:
        """Solve, or return None where many pairs are allowed.

        If the solve is stopped, the current matching is available.
        """
        problem, counts, clock = run.problem, run.short_way().counts, time.perf_counter()
        try:
            pairs = near_pairs(problem.source, setting_of(run), counts)
        finally:
            run.seconds["start"] += time.perf_counter() - clock
        if pairs is None:
            return None
        sparse = Problem(pairs.in_sense(problem.maximize), problem.maximize, problem.transposed)
        before = counts.scans

        def count(scans: int) -> None:
            counts.scans = before + scans

        outcome = searched(run, sparse, time.perf_counter(), count)
        run.short_way().first_prices = "none"
        run.why = "few pairs are within the limit"
        return outcome


def _kept(run: Run) -> bool:
    """Return whether the checkpoint is of this strategy."""
    return "sparse_stage" in run.snapshot
