"""One solve from its state to its result: climb the ladder, prove, conclude."""

from __future__ import annotations

import math
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
from bigsap.proof.exact import two_sum
from bigsap.proof.minima import seconds_by_bounds
from bigsap.result import Result, Status
from bigsap.run.certify import certified, confirmed, prove_now
from bigsap.run.checkpoints import open_checkpoint, save_bounds
from bigsap.run.conclude import conclude
from bigsap.run.interrupted import Conclusion, Deadline, Late, answer
from bigsap.run.ladder import climb
from bigsap.run.refine import settled, signed_duals
from bigsap.run.run import Run
from bigsap.run.stats import first_bounds, solve_stats
from bigsap.run.warm_start import GivenStart
from bigsap.run.without_proof import pair_costs, unproved
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.functions.callbacks import FunctionSource
from bigsap.strategies import Outcome
from bigsap.strategies.far_lines import NearCosts
from bigsap.strategies.orientation import orient
from bigsap.types import Array


def execute(run: Run, *, large: bool = False) -> Result:
    """Solve, prove, and return the result. large: see ``Run``."""
    open_checkpoint(run, large=large)
    n, m = run.problem.shape
    if n == 0 or m == 0:
        empty = np.full(n, -1, np.intp)
        return conclude(run, Conclusion(empty, certificate=prove_now(run, empty, np.zeros(m))))
    with Team(run.n_threads) as team, _products_alone(run):
        run.team = team
        if not run.options.certify and run.rows.policy != "in place":
            run.resting = Resting(run.rows.table)
        if run.method == "ssp":
            run.dense()  # costs shared by several devices are copied there first
        first_bounds(run)
        found: Array | None = None
        try:
            outcome = climb(run) if run.near is None else _near(run, run.near)
            if outcome.violator.size:
                outcome = confirmed(run, outcome)
            if outcome.violator.size:
                return conclude(run, Conclusion(None), outcome.violator)
            found = outcome.column_of_row
            if run.engine is not None:
                run.engine.release()
            if run.options.certify:
                return conclude(run, certified(run, outcome, partial(_residual, run)))
            return conclude(run, _uncertified(run, outcome))
        except Stopped as stop:
            try:
                conclusion = _stopped(run, stop, found)
                save_bounds(run, conclusion)
                return conclude(run, conclusion)
            finally:
                # The frames of the traceback and the exception form a reference cycle. Without clearing, a
                # stopped solve's arrays would stay in memory until Python's garbage collector runs.
                clear_frames(stop.__traceback__)


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
    unchecked = unproved(run.problem, found, costs, outcome.v, run.reach)
    if unchecked.doubtful:
        # The prices are so large that rounding may have decided the assignment.
        proved = certified(run, outcome, partial(_residual, run))
        certificate = proved.certificate
        if certificate is not None and not settled(run, certificate):
            return proved
        if run.refined and certificate is not None:
            u, u_low, v, v_low = signed_duals(run, certificate)
            return Conclusion(proved.column_of_row, certificate.fun, u=u, v=v, u_low=u_low, v_low=v_low)
    return Conclusion(found, unchecked.fun, u=unchecked.u, v=unchecked.v, costs=costs)


def _residual(run: Run, problem: Problem, column_of_row: Array | None) -> Outcome | None:
    """Solve a residual problem (see ``refine``), from zero prices and an assignment if one is given."""
    start = None
    if column_of_row is not None:
        start = GivenStart(np.zeros(problem.shape[1]), None, column_of_row)
    inner = _inner(run, problem, orient(problem), start)
    inner.keeps = True  # its costs are computed from rows that the outer solve keeps
    outcome = _climbed(run, inner)
    return None if inner.problem.transposed else outcome


def _near(run: Run, near: NearCosts) -> Outcome:
    """Solve the same problem without the sizes of far lines; the given costs prove the result.

    Its counts are the solve's. Not for a solve that can be stopped.
    """
    problem = near.take()
    inner = _inner(run, problem, problem, None)
    run.method = inner.method
    solved = run.short_way()
    outcome = _climbed(run, inner)
    stats, counts = solve_stats(inner), solved.counts
    counts.scans += stats["rows_scanned"]
    counts.rows += stats["rows_evaluated"]
    counts.pairs += stats["pairs_evaluated"]
    counts.list_bytes, counts.doubled = stats["list_bytes"], stats["lists_doubled"]
    counts.refused, solved.trees = stats["list_growth_refused"], stats["trees"]
    solved.first_prices = stats["first_prices"] or "none"
    for stage, seconds in inner.seconds.items():
        run.seconds[stage] += seconds
    run.why = f"a few columns are far from all others: without their sizes {inner.why}"
    v, v_low = two_sum(outcome.v, near.shift)
    return replace(outcome, v=v, v_low=v_low)


def _inner(run: Run, given: Problem, problem: Problem, start: GivenStart | None) -> Run:
    """Return the state of a solve that is part of this one. problem: ``given`` as it is searched."""
    options = replace(
        run.options,
        maximize=given.maximize,
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
    monitor = PartMonitor(run.monitor, given.shape[0], 0)
    return Run(given, problem, monitor, options, run.n_threads, start, None)


def _climbed(run: Run, inner: Run) -> Outcome:
    """Return the outcome of a solve that is part of this one."""
    try:
        with Team(inner.n_threads) as team:
            inner.team = team
            outcome = climb(inner)
            if inner.engine is not None:
                inner.engine.release()
    finally:
        assert isinstance(inner.monitor, PartMonitor)
        inner.monitor.close()
    run.phases += inner.phases
    return outcome


def _stopped(run: Run, stop: Stopped, found: Array | None) -> Conclusion:
    """Return the best known assignment and bound, see ``interrupted``."""
    run.stopped = Status(stop.reason)
    deadline = Deadline(run.monitor.grace(), lambda: run.monitor.cancelled)

    def proof(column_of_row: Array | None, v: Array) -> Certificate:
        if not run.options.certify:
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
