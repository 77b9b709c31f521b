"""Certification of a solve's outcome, and refinement of outcomes whose gap is too large."""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np

from bigsap.engine.core.precision import TERMS_PER_ROW
from bigsap.errors import CertificateError, OverflowRiskError
from bigsap.progress import Stopped
from bigsap.proof.certificate import Certificate, certify, certify_infeasible
from bigsap.proof.geometry import boundable
from bigsap.proof.row_pass import stream
from bigsap.result import Status
from bigsap.run.deadline import Deadline
from bigsap.run.interrupted import Conclusion
from bigsap.run.kept_rows import KeptRows
from bigsap.run.proof_on_workers import in_memory, proof_elsewhere
from bigsap.run.refine import Solve, refined, settled
from bigsap.run.run import Run
from bigsap.sources.base import CostSource, Crewed
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import Outcome, whole_rows
from bigsap.strategies.start.warm import Warm
from bigsap.types import Array

_TOO_LARGE = "the prices leave float64: the costs are too large; scale them down"


def prove_now(
    run: Run,
    column_of_row: Array | None,
    v: Array,
    v_low: Array | None = None,
    deadline: Deadline | None = None,
) -> Certificate:
    """Certify an assignment with code that is independent of the engine.

    deadline: of the answer of a stopped solve. A pass that a time limit meets goes on for the grace period:
    another pass would begin anew. Raises OverflowRiskError for prices that are not finite.
    """
    if not np.isfinite(v).all():
        raise OverflowRiskError(_TOO_LARGE)
    clock = time.perf_counter()
    progress = run.monitor.progress
    stage, progress.stage = progress.stage, "certificate"
    n_read = 0
    certificate: Certificate | None = None
    gated = run.gated is not None or isinstance(run.given.source, ClippedCosts)

    def tick(n_done: int) -> None:
        nonlocal n_read
        n_read = n_done
        if deadline is not None:
            deadline.tick()
            return
        try:
            run.monitor.tick()
        except Stopped as stop:
            done = n_done / run.problem.shape[0]
            if stop.reason != Status.TIME_LIMIT or not _goes_on(run, done, time.perf_counter() - clock):
                raise

    try:
        source = proof_elsewhere(run, looked_at(run))
        certificate = certify(
            source,
            column_of_row,
            v,
            v_low,
            maximize=run.problem.maximize,
            threads=run.n_threads,
            block_bytes=run.block_bytes(),
            tick=tick,
            pairs=run.options.certify == "pairs",
            not_above_zero=gated,
        )
    finally:
        run.seconds["certificate"] += time.perf_counter() - clock
        progress.stage = stage
        # An interrupted pass over rows has read these rows. An interrupted proof by bounds reports no
        # count.
        whole_rows = n_read * run.problem.shape[1]
        looked = 0 if certificate is None else certificate.pairs + certificate.bounds
        run.certificate_pairs += whole_rows if certificate is None else looked
    if 0 not in run.problem.shape:
        run.known.add_certificate(certificate, column_of_row)
        run.known.tell(run.monitor)
    return certificate


def _goes_on(run: Run, done: float, seconds: float) -> bool:
    """Return whether a pass goes on that the time limit has met: while half of the grace period is left.

    The other half is for the answer. done: share of the pass done in so many seconds; one that would not end
    in time is given up at once.
    """
    if run.late is None:
        run.late = Deadline(run.monitor.grace(), lambda: run.monitor.cancelled)
        if done > 0 and seconds * (1 - done) / done > run.late.seconds / 2:
            return False
    return run.late.left > run.late.seconds / 2


def looked_at(run: Run) -> CostSource:
    """Return the source that a proof reads: the kept rows where there are any."""
    source = run.reading.source
    if not isinstance(source, KeptRows):
        return source
    elsewhere = isinstance(source.source, Crewed) and not source.complete
    return source.source if elsewhere else source.looking()


def within_gap(run: Run, certificate: Certificate) -> None:
    """End the solve with this certificate if its gap is within the requested one."""
    gap = run.options.gap
    if gap > 0 and certificate.gap is not None and certificate.gap <= gap:
        run.stopped, run.proved = Status.GAP_REACHED, certificate


def certified(run: Run, outcome: Outcome, solve: Solve) -> Conclusion:
    """Prove the outcome, and refine it where its gap is too large.

    solve: solves a residual problem, see ``refine``.
    """
    certificate = run.proved or prove_now(run, outcome.column_of_row, outcome.v, outcome.v_low)
    within_gap(run, certificate)
    column_of_row = outcome.column_of_row
    if run.proved is not None or column_of_row is None:
        return Conclusion(column_of_row, certificate=certificate)
    if not settled(run, certificate):
        # Refinement is not checkpointed: the checkpoint holds the end of the search, and a resumed solve
        # refines again.
        run.monitor.save = None
        _refuse_changed(run, outcome, certificate)
        column_of_row, certificate = refined(run, column_of_row, certificate, solve, partial(prove_now, run))
        within_gap(run, certificate)
    elif isinstance(certificate.fun, int) and (certificate.gap or 0) > run.options.gap:
        return _searched_again(run, outcome, certificate)
    return Conclusion(column_of_row, certificate=certificate)


def _searched_again(run: Run, outcome: Outcome, certificate: Certificate) -> Conclusion:
    """Solve again by scans of whole rows, for integer costs whose outcome is not optimal.

    Rounding cannot explain such a gap. The first search begins from the outcome's prices, the
    second from none.
    """
    run.monitor.save = None
    assert outcome.column_of_row is not None
    warm: Warm | None = Warm(outcome.v - outcome.v.max(), outcome.column_of_row, exact=True)
    for _ in range(2):
        outcome = whole_rows.run(
            run.renewed(),
            epsilon=warm is None and run.options.epsilon,
            seed=run.options.seed,
            grid=run.arithmetic.grid,
            warm=warm,
            phases=run.phases,
        )
        certificate = prove_now(run, outcome.column_of_row, outcome.v)
        if certificate.gap == 0:
            break
        warm = None
    return Conclusion(outcome.column_of_row, certificate=certificate)


def _refuse_changed(run: Run, outcome: Outcome, certificate: Certificate) -> None:
    """Raise CertificateError if costs of assigned pairs differ when they are read again.

    Unless the costs change, only rounding can leave a gap at the optimum. Costs of points and of low rank
    cannot change, and those of a matrix in memory only if the caller writes to it: they are not read again.
    """
    if boundable(run.reading.source) is not None or in_memory(run.reading.source):
        return
    again = prove_now(run, outcome.column_of_row, outcome.v, outcome.v_low)
    same = again.fun == certificate.fun and np.array_equal(again.u, certificate.u)
    if not same:
        (rows,) = np.nonzero(again.u != certificate.u)
        where = f", of row {rows[0]} among others" if rows.size else ""
        raise CertificateError(
            f"the costs change from one reading to the next{where}: the assignment costs"
            f" {certificate.fun}, then {again.fun}"
        )


def confirmed(run: Run, outcome: Outcome) -> Outcome:
    """Return the infeasible outcome once Hall's theorem proves it, else the dense engine's outcome.

    Without a certificate, too, where costs are real numbers: sums of huge ones look like forbidden pairs.
    """
    dense = run.lists is None
    while run.options.certify or not run.problem.integer:
        try:
            certify_infeasible(
                looked_at(run),
                outcome.violator,
                maximize=run.problem.maximize,
                threads=run.n_threads,
                block_bytes=run.block_bytes(),
                tick=lambda _: run.monitor.tick(),
            )
            break
        except CertificateError:
            if dense:
                _refuse_huge(run, outcome)
                raise
        dense, run.monitor.save = True, None
        outcome = whole_rows.run(
            run.renewed(),
            epsilon=run.options.epsilon,
            seed=run.options.seed,
            grid=run.arithmetic.grid,
            phases=run.phases,
        )
        if not outcome.violator.size:
            break
    return outcome


def _refuse_huge(run: Run, outcome: Outcome) -> None:
    """Raise OverflowRiskError if sums of prices, and of costs of the violating rows, may leave float64."""
    sizes = [outcome.v]

    def work(start: int, first: int, block: Array) -> None:
        sizes.append(block[np.isfinite(block)])

    stream(looked_at(run), lambda: work, rows=outcome.violator, block_bytes=run.block_bytes())
    size = max(float(np.abs(some).max(initial=0)) for some in sizes)
    if not run.problem.integer and not size * TERMS_PER_ROW * (min(run.problem.shape) + 2) < math.inf:
        raise OverflowRiskError(_TOO_LARGE)
