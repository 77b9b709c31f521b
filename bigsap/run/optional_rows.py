"""Strategy for rows that may stay unassigned: a search on the few pairs below the rows' prices."""

from __future__ import annotations

import time

from bigsap.progress import Stopped
from bigsap.run.kept_rows import keep_rows
from bigsap.run.on_lists import setting_of
from bigsap.run.run import Run
from bigsap.sources.base import CostSource, Resident
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import Outcome, work
from bigsap.strategies.optional_rows import bounded, sparse_gate
from bigsap.strategies.placement import device_name
from bigsap.strategies.work import Work


class OptionalRows:
    """Strategy of ``strategies.optional_rows``.

    Rows evaluated by Python are excluded: with a cluster, workers evaluate them as the lists request
    them, and the answer must have the same bits.
    """

    def expects(self, run: Run) -> Work | None:
        """Return None unless rows may stay unassigned and no other strategy was requested."""
        source = run.problem.source
        if not isinstance(source, ClippedCosts) or run.is_continued or run.is_way_named:
            return None
        return work.on_lists(run.problem.shape, bounded=bounded(source), kept=True)

    def attempt(self, run: Run) -> Outcome | None:
        """Solve, or return None where most pairs cost less than the price.

        If the solve is stopped, the current matching is available.
        """
        source, solved = run.problem.source, run.short_way()
        first = reads_source(source)
        if not first:
            keep_rows(run)
        if not isinstance(source, ClippedCosts) or device_name(source) != "cpu":
            return None
        if not first and source.fill() is None:
            return None
        clock, gate = time.perf_counter(), None
        try:
            gate = sparse_gate(source, run.reading.source, setting_of(run), solved, run.warm())
            run.seconds["start"] += time.perf_counter() - clock
            if gate is None:
                return None
            clock = time.perf_counter()
            done = gate.run()
        except Stopped:
            if gate is not None:
                run.standing = gate.column_of_row(), gate.prices
            raise
        finally:
            if gate is not None:
                solved.counts.scans += gate.scans
        seconds = time.perf_counter() - clock
        run.seconds["search"] += seconds
        if not done:
            return None
        solved.first_prices = "none"
        run.phases.append(gate.phase(seconds))
        return Outcome(gate.column_of_row(), gate.prices, hidden=gate.hidden)


def reads_source(source: CostSource) -> bool:
    """Return whether the source itself is read: a matrix, or points most of whose pairs are excluded.

    Rows that are slower to evaluate are cached first.
    """
    if not isinstance(source, ClippedCosts):
        return False
    given = source.given
    return bounded(source) or (isinstance(given, Resident) and given.resident() is not None)
