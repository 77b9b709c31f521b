"""Rows that may stay unassigned: the answer from the few pairs that are worth it."""

from __future__ import annotations

import time

from bigsap.progress import Stopped
from bigsap.run.call import SolveCall
from bigsap.sources.base import Resident
from bigsap.sources.clipped import Gated
from bigsap.strategies import Outcome
from bigsap.strategies.list_run import Setting, Solved
from bigsap.strategies.optional_rows import bounded, sparse_gate
from bigsap.strategies.placement import device_name
from bigsap.strategies.start.warm import Warm


def before_keeping(call: SolveCall) -> bool:
    """Whether the source itself is to be read: a matrix, or points of which most pairs are spared.
    Rows that are dearer are kept first, see ``keeping``."""
    source = call.problem.source
    if not isinstance(source, Gated):
        return False
    given = source.given
    return bounded(source) or (isinstance(given, Resident) and given.resident() is not None)


def gated_outcome(call: SolveCall, solved: Solved, setting: Setting, warm: Warm | None) -> Outcome | None:
    """The outcome of ``methods.sparse_gate``; None where it is not for this problem.

    Not for rows that Python delivers: with a cluster, workers evaluate these as the lists ask for
    them, and the answer is to have the same bits. solved: takes note of what was done. A stop
    finds the matching at hand.
    """
    source, problem = call.problem.source, call.reading
    if not isinstance(source, Gated) or device_name(source) != "cpu":
        return None
    if not before_keeping(call) and source.fill() is None:
        return None
    clock = time.perf_counter()
    gate = None
    try:
        gate = sparse_gate(source, problem.source, setting, solved, warm)
        call.seconds["start"] += time.perf_counter() - clock
        if gate is None:
            return None
        clock = time.perf_counter()
        done = gate.run()
    except Stopped:
        if gate is not None:
            call.standing = gate.column_of_row(), gate.pairs.v
        raise
    finally:
        if gate is not None:
            solved.counts.scans += gate.scans
    seconds = time.perf_counter() - clock
    call.seconds["search"] += seconds
    if not done:
        return None
    solved.first_prices = "none"
    call.phases.append({"epsilon": 0.0, "rows_scanned": gate.scans, "seconds": seconds})
    return Outcome(gate.column_of_row(), gate.pairs.v)
