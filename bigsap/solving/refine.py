"""Refinement: prices as pairs of doubles, found by solving what they leave of the costs.

A forced pair of a huge cost, or an outlier, drives prices to its own size, and all other costs
lose the digits below. As in iterative refinement of linear systems, the *residual* problem
(``bigsap.sources.residual``) has none of these sizes: its solution tells a better assignment, and
its prices, added to the old ones as pairs of doubles, prove it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bigsap.methods import Outcome
from bigsap.problem import Problem
from bigsap.proof.certificate import Certificate
from bigsap.proof.exact import two_sum
from bigsap.rows import parse_bytes
from bigsap.solving.call import SolveCall
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Array, CostSource
from bigsap.sources.residual import Residual

#: Rounds at most; each at least halves the gap.
ROUNDS = 6
#: Residual costs of so many bytes are computed once, as a matrix, without a ``memory_limit``.
_BYTES = 1 << 30
_AT_ONCE = 1 << 20
#: A square residual problem of a rectangle has at most so many times its pairs.
_MOST_SQUARE = 64

Prove = Callable[[Array, Array, Array], Certificate]
Solve = Callable[[Problem, Array], Outcome | None]


def settled(call: SolveCall, certificate: Certificate) -> bool:
    """Whether a certificate needs no refinement: for integers, where it is within the gap asked
    for, or where it is optimal and clear."""
    if certificate.gap is None or isinstance(certificate.fun, int):
        return True
    if 0 < certificate.gap <= call.options.gap:
        return True
    return certificate.optimal and certificate.clear


def refined(
    call: SolveCall, column_of_row: Array, certificate: Certificate, solve: Solve, prove: Prove
) -> tuple[Array, Certificate]:
    """A better assignment and certificate, as far as residual problems lead to them.

    solve: the residual problem, from zero prices and the assignment at hand; None when that is
    infeasible. prove: an assignment by prices in two parts.
    """
    source = call.reading.source
    for _ in range(ROUNDS):
        if settled(call, certificate):
            break
        if max(source.shape) ** 2 > _MOST_SQUARE * source.shape[0] * source.shape[1]:
            break
        residual = Residual(
            source, signed_duals(call, certificate), certificate.gap or 0.0,
            maximize=call.problem.maximize,
        )  # fmt: skip
        whole = padded(column_of_row, residual.shape[0])
        outcome = solve(Problem(in_memory(call, residual)), whole)
        if outcome is None or outcome.column_of_row is None or outcome.violator.size:
            break
        call.refined += 1
        found = unpadded(outcome.column_of_row, *source.shape)
        better = prove(found, *raised(call, certificate, outcome.v))
        if better.gap is None or certificate.gap is None or better.gap > certificate.gap / 2:
            if better.gap is not None and better.gap < (certificate.gap or 0.0):
                column_of_row, certificate = found, better
            break
        column_of_row, certificate = found, better
    return column_of_row, certificate


def signed_duals(call: SolveCall, certificate: Certificate) -> tuple[Array, Array, Array, Array]:
    """u, v and their low parts, all in the minimising sense: u, u_low, v, v_low."""
    sign = call.problem.sign
    parts = []
    for dual, low in ((certificate.u, certificate.u_low), (certificate.v, certificate.v_low)):
        parts += [sign * dual, np.zeros(dual.size) if low is None else sign * low]
    return parts[0], parts[1], parts[2], parts[3]


def in_memory(call: SolveCall, residual: Residual) -> CostSource:
    """The residual costs as a matrix, where there is room."""
    n, m = residual.shape
    limit = call.options.memory_limit
    room = _BYTES if limit is None else parse_bytes(limit, "memory_limit") // 4
    if 8 * n * m > room:
        return residual
    matrix = np.empty((n, m))
    step = max(1, _AT_ONCE // m)
    for first in range(0, n, step):
        call.monitor.tick()
        rows = np.arange(first, min(n, first + step))
        residual.read(rows, slice(0, m), matrix[first : first + rows.size])
    return ArraySource(matrix)


def padded(column_of_row: Array, side: int) -> Array:
    """An assignment of a rectangle as one of the square: rows and columns left over in order."""
    found = np.full(side, -1, np.intp)
    found[: column_of_row.size] = column_of_row
    free = np.ones(side, bool)
    free[found[found >= 0]] = False
    found[found < 0] = np.flatnonzero(free)
    return found


def unpadded(column_of_row: Array, n: int, m: int) -> Array:
    """The rectangle's part of an assignment of the square."""
    found = column_of_row[:n].astype(np.intp)
    found[found >= m] = -1
    return found


def raised(call: SolveCall, certificate: Certificate, w: Array) -> tuple[Array, Array]:
    """The certificate's prices and those of its residual problem, in two parts.

    In square problems most of them are brought near 0, so that their low parts are small.
    """
    _, _, v, v_low = signed_duals(call, certificate)
    high, low = two_sum(v, w[: v.size])
    high, low = two_sum(high, low + v_low)
    if certificate.u.size == v.size:
        high, rest = two_sum(high, -float(np.median(high)))
        high, low = two_sum(high, rest + low)
    return high, low
