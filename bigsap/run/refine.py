"""Iterative refinement: prices as pairs of doubles, from solutions of residual problems.

A forced pair of a huge cost, or an outlier, drives prices to its own size, and all other costs
lose their low digits. As in iterative refinement of linear systems, the *residual* problem
(``bigsap.sources.residual``) has no such sizes: its solution is a better assignment, and its
prices, added to the old ones as pairs of doubles, prove it.

Where the gap is so small that each row has few pairs with so small a reduced cost, these pairs
are the whole residual problem. One more pass collects them (``bigsap.proof.near_matching``).

Where bounds of the costs avoid most evaluations they must be preserved. There, costs too large for
any optimal assignment are clipped first, which leaves the bounds valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bigsap import policy
from bigsap.errors import CertificateError
from bigsap.problem import Problem
from bigsap.proof.certificate import Certificate
from bigsap.proof.exact import two_sum
from bigsap.proof.geometry import boundable
from bigsap.proof.minima import minima
from bigsap.proof.near_matching import matched_again
from bigsap.proof.row_minima import Prices
from bigsap.proof.tightness import UNIT
from bigsap.row_cache import parse_bytes
from bigsap.run.run import Run
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.residual import Residual
from bigsap.sources.sparse.sparse_costs import from_csr
from bigsap.strategies import Outcome
from bigsap.strategies.sparse_pairs import sparse_part
from bigsap.types import Array

#: Maximum number of rounds; each at least halves the gap.
ROUNDS = 24
_AT_ONCE = 1 << 20

Prove = Callable[[Array, Array, Array | None], Certificate]
Solve = Callable[[Problem, Array | None], Outcome | None]


def settled(run: Run, certificate: Certificate) -> bool:
    """Return whether a certificate needs no refinement.

    For integers: the gap is within the requested one. Otherwise: the assignment is optimal and the
    certificate is clear.
    """
    if certificate.gap is None or isinstance(certificate.fun, int):
        return True
    if 0 < certificate.gap <= run.options.gap:
        return True
    return certificate.optimal and certificate.clear


def refined(
    run: Run, column_of_row: Array, certificate: Certificate, solve: Solve, prove: Prove
) -> tuple[Array, Certificate]:
    """Return a better assignment and certificate, as far as residual problems lead to them.

    solve: solves such a problem, from zero prices and the current assignment if that is given; None
    when it is infeasible. prove: certifies an assignment by prices in two parts.
    """
    if certificate.size == 0 and not settled(run, certificate):
        # Each pair costs 0, and only a gap of 0 is small: prices of 0 have it unless a cost is negative.
        free = prove(column_of_row, np.zeros(certificate.v.size), None)
        if settled(run, free):
            return column_of_row, free
    few = True
    for _ in range(ROUNDS):
        if settled(run, certificate):
            break
        found = _by_near_pairs(run, column_of_row, certificate) if few else None
        few = found is not None
        clips = not few and _clips(run, certificate)
        if found is None:
            found = _next(run, column_of_row, certificate, solve)
        if found is None:
            break
        run.refined += 1
        before, gap = certificate.gap or 0.0, math.inf
        try:
            better = prove(*found)
        except CertificateError:
            pass  # rounded or clipped costs let it use a forbidden pair: it is not better
        else:
            gap = math.inf if better.gap is None else better.gap
            if gap < before:
                column_of_row, certificate = found[0], better
        if gap > before / 2:
            if not few and not clips:
                break
            few = False
    return column_of_row, certificate


def _by_near_pairs(
    run: Run, column_of_row: Array, certificate: Certificate
) -> tuple[Array, Array, Array | None] | None:
    """Return the next assignment and prices of a square problem from pairs with small reduced costs.

    A pair is included if its reduced cost is at most the gap. None where these pairs are not few.
    """
    source, gap, margin = run.reading.source, certificate.gap or 0.0, certificate.margin
    n, m = source.shape
    if n != m or isinstance(source, ClippedCosts) or not margin or gap > policy.NEAR_MARGINS * margin:
        return None
    _, _, v, v_low = signed_duals(run, certificate)
    prices = Prices(v, v_low if v_low.any() else None)
    found, looked = minima(
        source,
        column_of_row,
        prices,
        run.problem.maximize,
        run.n_threads,
        run.block_bytes(),
        lambda _: run.monitor.tick(),
        width=(1.0 + 2.0**-20) * gap,
    )
    run.certificate_pairs += looked.pairs + looked.bounds
    signed = run.problem.sign * found.matched.astype(np.float64)
    better = matched_again(found, column_of_row, signed, prices)
    return None if better is None else (better[0], better[1].high, better[1].low)


def _next(
    run: Run, column_of_row: Array, certificate: Certificate, solve: Solve
) -> tuple[Array, Array, Array | None] | None:
    """Return the next assignment, and prices in two parts; None if no method applies."""
    source = run.reading.source
    n, m = source.shape
    if sparse_part(source) is not None:
        return _next_of_entries(run, column_of_row, certificate, solve)
    if _clips(run, certificate):
        clipped = clipped_costs(run, certificate)
        outcome = None if clipped is None else solve(clipped, None)
        if outcome is not None and outcome.column_of_row is not None:
            return unpadded(outcome.column_of_row, n, m), outcome.v, None
    square = max(n, m) ** 2 <= policy.MOST_SQUARED * n * m
    if n > m and not square:
        return None
    duals, gap = signed_duals(run, certificate), certificate.gap or 0.0
    residual = Residual(source, duals, gap, maximize=run.problem.maximize, square=square)
    start = None if _is_far(certificate) or not square else padded(column_of_row, max(n, m))
    outcome = solve(Problem(in_memory(run, residual)), start)
    if outcome is None or outcome.column_of_row is None or outcome.violator.size:
        return None
    if not square:
        return outcome.column_of_row, *_raised_from_zero(duals, residual, outcome.v)
    return unpadded(outcome.column_of_row, n, m), *raised(run, certificate, outcome.v / residual.scale)


def _is_far(certificate: Certificate) -> bool:
    """Return whether the gap exceeds rounding, so that another assignment is optimal."""
    return (certificate.gap or 0.0) > policy.ROUNDING_GAP * certificate.size


def _clips(run: Run, certificate: Certificate) -> bool:
    """Return whether the next round is one of clipped costs: the first, unless there are more rows."""
    source = run.reading.source
    n, m = source.shape
    if run.refined or not _is_far(certificate) or sparse_part(source) is not None:
        return False
    return n <= m and (n < m or boundable(source) is not None)


def _next_of_entries(
    run: Run, column_of_row: Array, certificate: Certificate, solve: Solve
) -> tuple[Array, Array, Array | None] | None:
    """Return the next assignment and prices of sparse costs: their residual is sparse, too."""
    source, maximize = run.reading.source, run.problem.maximize
    listed = sparse_part(source)
    assert listed is not None
    n, m = source.shape
    duals, gap = signed_duals(run, certificate), certificate.gap or 0.0
    square = n == m and not isinstance(source, ClippedCosts)
    residual = Residual(source, duals, gap, maximize=maximize, square=square)
    entries = listed.entries()
    shape = (n, source.n_columns if isinstance(source, ClippedCosts) else m)
    left: CostSource = from_csr(entries.start, entries.columns, residual.of_entries(entries), shape)
    if isinstance(source, ClippedCosts):
        left = ClippedCosts(left, residual.of_unassigned(source.cap))
    outcome = solve(Problem(left), column_of_row if square else None)
    if outcome is None or outcome.column_of_row is None or outcome.violator.size:
        return None
    if not square:
        return outcome.column_of_row, *_raised_from_zero(duals, residual, outcome.v)
    return outcome.column_of_row, *raised(run, certificate, outcome.v / residual.scale)


def clipped_costs(run: Run, certificate: Certificate) -> Problem | None:
    """Return the problem with costs clipped that no optimal assignment uses; n <= m.

    The current assignment exceeds the sum of the rows' minima by some amount. A pair that exceeds its
    row's minimum by as much is in no better assignment. Bounds of the source are preserved.
    """
    problem, source = run.problem, run.reading.source
    found, _ = minima(
        source,
        None,
        Prices(np.zeros(source.shape[1])),
        problem.maximize,
        run.n_threads,
        run.block_bytes(),
        lambda _: run.monitor.tick(),
    )
    low, n = found.high, source.shape[0]
    if certificate.fun is None or not np.isfinite(low).all():
        return None
    cost = problem.sign * certificate.fun
    # Generous, so that rounding never clips a cost that an optimal assignment uses. Never 0: an assignment
    # of the rows' minima would cost as much as one of clipped pairs, which may be forbidden.
    excess = max(0.0, cost - float(low.sum())) + 2 * n * UNIT * float(np.abs(low).sum())
    caps = problem.sign * (low + 2.0 * (excess or certificate.gap or 1.0) + np.abs(low))
    given = source
    if isinstance(source, ClippedCosts):
        tighter = np.maximum if problem.maximize else np.minimum
        given, caps = source.given, tighter(caps, source.prices)
    if given.shape != source.shape:
        return None
    return Problem(ClippedCosts(given, caps, maximize=problem.maximize), problem.maximize)


def signed_duals(run: Run, certificate: Certificate) -> tuple[Array, Array, Array, Array]:
    """Return u, u_low, v, v_low: duals and their low parts in the minimising sense."""
    sign = run.problem.sign
    parts = []
    for dual, low in ((certificate.u, certificate.u_low), (certificate.v, certificate.v_low)):
        parts += [sign * dual, np.zeros(dual.size) if low is None else sign * low]
    return parts[0], parts[1], parts[2], parts[3]


def in_memory(run: Run, residual: Residual) -> CostSource:
    """Return the residual costs as a matrix, where there is memory for it."""
    n, m = residual.shape
    limit = run.options.memory_limit
    room = policy.RESIDUAL_BYTES if limit is None else parse_bytes(limit, "memory_limit") // 4
    if 8 * n * m > room:
        return residual
    matrix = np.empty((n, m))
    step = max(1, _AT_ONCE // m)
    for first in range(0, n, step):
        run.monitor.tick()
        rows = np.arange(first, min(n, first + step))
        residual.read(rows, slice(0, m), matrix[first : first + rows.size])
    return ArraySource(matrix)


def padded(column_of_row: Array, side: int) -> Array:
    """Return a rectangular assignment padded to a square: unassigned rows and columns paired in order."""
    found = np.full(side, -1, np.intp)
    found[: column_of_row.size] = column_of_row
    free = np.ones(side, bool)
    free[found[found >= 0]] = False
    found[found < 0] = np.flatnonzero(free)
    return found


def unpadded(column_of_row: Array, n: int, m: int) -> Array:
    """Return the rectangular part of a square assignment."""
    found = column_of_row[:n].astype(np.intp)
    found[found >= m] = -1
    return found


def raised(run: Run, certificate: Certificate, w: Array) -> tuple[Array, Array]:
    """Return the certificate's prices plus those of its residual problem, in two parts.

    In square problems most prices are shifted close to 0, so that their low parts are small.
    """
    _, _, v, v_low = signed_duals(run, certificate)
    high, low = two_sum(v, w[: v.size])
    high, low = two_sum(high, low + v_low)
    if certificate.u.size == v.size:
        high, rest = two_sum(high, -float(np.median(high)))
        high, low = two_sum(high, rest + low)
    return high, low


def _raised_from_zero(
    duals: tuple[Array, Array, Array, Array], residual: Residual, w: Array
) -> tuple[Array, Array]:
    """Return the prices of a problem whose free columns have price 0, in two parts.

    w: those of its residual problem, which left nothing of most old prices, and all but the cap of others.
    """
    free, whole = residual.of_free_columns()
    high, low = two_sum(np.where(whole, 0.0, duals[2]), np.where(whole, w, free + w) / residual.scale)
    return two_sum(high, low + np.where(whole, 0.0, duals[3]))
