"""One solve from its state to its result: climb the ladder, prove, conclude."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from traceback import clear_frames

import numpy as np

from bigsap.blas import one_thread
from bigsap.engine.core.held import Resting
from bigsap.engine.core.team import Team
from bigsap.problem import Problem
from bigsap.progress import PartMonitor, Stopped
from bigsap.proof.certificate import Certificate
from bigsap.proof.minima import seconds_by_bounds
from bigsap.result import Result, Status
from bigsap.run.certify import certified, confirmed, prove_now
from bigsap.run.checkpoints import open_checkpoint, save_bounds
from bigsap.run.conclude import conclude, stands_for_whole
from bigsap.run.deadline import Deadline, Late
from bigsap.run.interrupted import Conclusion, answer
from bigsap.run.ladder import climb, climb_short
from bigsap.run.refine import settled, signed_duals
from bigsap.run.run import Run
from bigsap.run.stats import first_bounds
from bigsap.run.warm_start import GivenStart
from bigsap.run.without_far_lines import give_back, given_outcome
from bigsap.run.without_proof import pair_costs, unproved, unproved_pair
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.functions.callbacks import FunctionSource
from bigsap.strategies import Outcome
from bigsap.strategies.orientation import orient
from bigsap.types import Array


def execute(run: Run, *, large: bool = False) -> Result:
    """Solve, prove, and return the result. large: see ``Run``."""
    result = _executed(run, climb, large=large)
    assert result is not None  # the ladder's last strategy never declines
    return result


def execute_short(run: Run) -> Result | None:
    """Return the result of strategies that need no search; None if all decline, for another run."""
    return _executed(run, climb_short, large=False)


def _executed(run: Run, way: Callable[[Run], Outcome | None], *, large: bool) -> Result | None:
    open_checkpoint(run, large=large)
    n, m = run.problem.shape
    if n == 0 or m == 0:
        empty = np.full(n, -1, np.intp)
        return conclude(run, Conclusion(empty, certificate=prove_now(run, empty, np.zeros(m))))
    with Team(run.n_threads) as team, _products_alone(run):
        run.team = team
        if not run.options.certify and run.rows.policy != "in place":
            run.resting = Resting(run.rows.table)
        if run.near is not None:
            run.monitor.as_given = run.near.bounds
        if run.method == "ssp":
            run.dense()  # costs shared by several devices are copied there first
        first_bounds(run)
        found: Array | None = None
        try:
            outcome = way(run)
            if outcome is None:
                return None
            outcome = given_outcome(run, outcome)
            if outcome.violator.size:
                outcome = confirmed(run, outcome)
            if outcome.violator.size:
                return conclude(run, Conclusion(None), outcome.violator)
            found = outcome.column_of_row
            for engine in (run.engine, None if run.lists is None else run.lists.engine):
                if engine is not None:
                    engine.release()
            if run.options.certify:
                return conclude(run, certified(run, outcome, partial(_residual, run)))
            return conclude(run, _uncertified(run, outcome))
        except Stopped as stop:
            # The frames of the traceback and the exception form a reference cycle. Without clearing, arrays
            # of the search would stay in memory during the proof, and until Python's garbage collector runs.
            clear_frames(stop.__traceback__)
            conclusion = _stopped(run, stop, found)
            save_bounds(run, conclusion)
            return conclude(run, conclusion)


def _products_alone(run: Run) -> AbstractContextManager[None]:
    """Return a context in which products in a user's function take one thread, where the solve has one."""
    source = run.given.source.given if isinstance(run.given.source, ClippedCosts) else run.given.source
    return one_thread() if run.n_threads == 1 and isinstance(source, FunctionSource) else nullcontext()


def _uncertified(run: Run, outcome: Outcome) -> Conclusion:
    """Return the outcome without a certificate, with costs and duals from the search."""
    found = outcome.column_of_row
    if found is None:
        return Conclusion(None)
    held = [holder for holder in (run.resting, run.lists) if holder is not None]
    costs = pair_costs(run.problem, run.rows, held, found, run.monitor.tick)
    whole = stands_for_whole(run.given.source if run.gated is None else run.gated)
    unchecked = (
        unproved(run.problem, found, costs, outcome.v, run.reach, outcome.hidden, whole=whole)
        if outcome.v_low is None
        else unproved_pair(
            run.problem, found, costs, (outcome.v, outcome.v_low), run.reach, outcome.hidden, whole=whole
        )
    )
    if unchecked.doubtful:
        # The prices are so large that rounding may have decided the assignment.
        proved = certified(run, outcome, partial(_residual, run))
        certificate = proved.certificate
        if certificate is not None and (whole or not settled(run, certificate)):
            return proved
        if certificate is not None:
            u, u_low, v, v_low = signed_duals(run, certificate)
            fun, known = certificate.fun, certificate.matched
            return Conclusion(proved.column_of_row, fun, u=u, v=v, u_low=u_low, v_low=v_low, costs=known)
    return Conclusion(
        found,
        unchecked.fun,
        u=unchecked.u,
        v=unchecked.v,
        u_low=unchecked.u_low,
        v_low=unchecked.v_low,
        costs=costs,
    )


def _residual(run: Run, problem: Problem, column_of_row: Array | None) -> Outcome | None:
    """Solve a residual problem (see ``refine``), from zero prices and an assignment if one is given."""
    options = replace(
        run.options,
        maximize=problem.maximize,
        method="auto",
        epsilon=True,
        dtype=None,
        device="cpu",
        gap=0.0,
        checkpoint=None,
        certify=False,
        start="auto",
        variant="auto",
    )
    start = None
    if column_of_row is not None:
        start = GivenStart(np.zeros(problem.shape[1]), None, column_of_row)
    monitor = PartMonitor(run.monitor, problem.shape[0], 0)
    inner = Run(problem, orient(problem), monitor, options, run.n_threads, start, None)
    inner.keeps = True  # its costs are computed from rows that the outer solve keeps
    try:
        with Team(run.n_threads) as team:
            inner.team = team
            outcome = climb(inner)
            if inner.engine is not None:
                inner.engine.release()
    finally:
        monitor.close()
    run.phases += inner.phases
    return None if inner.problem.transposed else outcome


def _stopped(run: Run, stop: Stopped, found: Array | None) -> Conclusion:
    """Return the best known assignment and bound, see ``interrupted``."""
    met = run.late is not None and run.near is None  # what was to be proved, the time limit met in its proof
    give_back(run)
    run.stopped = Status(stop.reason)
    deadline = run.late
    if deadline is None or run.monitor.cancelled:
        deadline = Deadline(run.monitor.grace(), lambda: run.monitor.cancelled)

    def proof(column_of_row: Array | None, v: Array) -> Certificate:
        if not run.options.certify or met:
            raise Late
        return prove_now(run, column_of_row, v, deadline=deadline)

    costs = None
    if run.lists is not None and found is None and not run.whole_rows:
        run.seconds_per_row = run.lists.seconds_per_row()
        costs = run.lists.pair_costs()
    every = run.options.certify == "pairs"
    quick = math.inf if every else seconds_by_bounds(run.problem.source)
    closing = answer(run, deadline, proof, found, costs, quick)
    if run.options.certify:
        return closing
    return replace(closing, bound=None, u=None, v=None, u_low=None, v_low=None)
