"""Rows that may stay unassigned: the answer from the few pairs that are worth it."""

from __future__ import annotations

import time

from bigsap.progress import Stopped
from bigsap.run.kept_rows import keep_rows
from bigsap.run.on_lists import setting_of
from bigsap.run.run import Run
from bigsap.sources.base import Resident
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import Outcome
from bigsap.strategies.optional_rows import bounded, sparse_gate
from bigsap.strategies.placement import device_name


class OptionalRows:
    """The strategy of ``strategies.optional_rows``.

    Not for rows that Python delivers: with a cluster, workers evaluate these as the lists ask for
    them, and the answer is to have the same bits.
    """

    def fits(self, run: Run) -> bool:
        """Whether rows may stay unassigned, and no other way was asked for."""
        return isinstance(run.problem.source, ClippedCosts) and not run.is_continued and not run.is_way_named

    def attempt(self, run: Run) -> Outcome | None:
        """None where most pairs are worth it. A stop finds the matching at hand."""
        source, first, solved = run.problem.source, _reads_source(run), run.short_way()
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
                run.standing = gate.column_of_row(), gate.pairs.v
            raise
        finally:
            if gate is not None:
                solved.counts.scans += gate.scans
        seconds = time.perf_counter() - clock
        run.seconds["search"] += seconds
        if not done:
            return None
        solved.first_prices = "none"
        run.phases.append({"epsilon": 0.0, "rows_scanned": gate.scans, "seconds": seconds})
        return Outcome(gate.column_of_row(), gate.pairs.v)


def _reads_source(run: Run) -> bool:
    """Whether the source itself is to be read: a matrix, or points of which most pairs are spared.
    Rows that are slower to evaluate are kept first."""
    source = run.problem.source
    if not isinstance(source, ClippedCosts):
        return False
    given = source.given
    return bounded(source) or (isinstance(given, Resident) and given.resident() is not None)
