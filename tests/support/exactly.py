"""What a proof must say, by rational numbers. Imports nothing from bigsap."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def down(x):
    """The largest float that is not above a rational number."""
    found = float(x)
    return found if Fraction(found) <= x else math.nextafter(found, -math.inf)


def up(x):
    """The smallest float that is not below it."""
    return -down(-x)


def fractions_of(*parts):
    """The exact sums of vectors of numbers, item by item; None counts as 0."""
    given = [np.asarray(part).ravel().tolist() for part in parts if part is not None]
    return [sum(map(Fraction, items), Fraction(0)) for items in zip(*given, strict=True)]


def signed(cost, maximize):
    """Costs to minimise, as rows of Fractions; None where a pair is forbidden."""
    sign = -1 if maximize else 1
    return [[None if math.isinf(c) else sign * Fraction(c) for c in row] for row in cost.tolist()]


def row_minima(cost, prices, maximize=False):
    """Each row's least ``c - v`` in the minimising sense; None for a row that has none.

    cost: (n, m) numbers. prices: (m,) Fractions, minimising sense.
    """
    found = []
    for row in signed(cost, maximize):
        left = [c - v for c, v in zip(row, prices, strict=True) if c is not None]
        found.append(min(left) if left else None)
    return found


def bound_of(cost, prices, maximize=False):
    """The lower bound in the minimising sense that prices prove, see ``certificate``: prices of a
    shape with columns left over are not above 0, and rows left over have 0."""
    n, m = cost.shape
    least = row_minima(cost, prices, maximize)
    if n > m:
        least = [Fraction(0) if x is None else min(x, Fraction(0)) for x in least]
    return sum(least, Fraction(0)) + sum(prices, Fraction(0))


def cost_of_pairs(cost, col4row, maximize=False):
    """The exact cost of an assignment in the minimising sense, and the sum of its costs' sizes."""
    sign = -1 if maximize else 1
    pairs = [Fraction(cost[i, j].item()) for i, j in enumerate(col4row) if j >= 0]
    return sign * sum(pairs, Fraction(0)), sum(map(abs, pairs), Fraction(0))


def check_claims(claim, cost, maximize=False):
    """Fail unless u, v, bound, fun and gap of a certificate or result are exactly what its duals
    say of these costs. claim: square or with one side left over, complete.

    Duals are feasible for every pair as real numbers, and of the right sign. The bound is theirs,
    rounded to the safe side, or to the next integer; of problems with rows left over up to 1e-30.
    """
    n, m = cost.shape
    sign = -1 if maximize else 1
    whole = cost.dtype.kind in "iu"
    u = [sign * x for x in fractions_of(claim.u, claim.u_low)]
    v = [sign * x for x in fractions_of(claim.v, claim.v_low)]
    for i, row in enumerate(signed(cost, maximize)):
        assert all(c is None or u[i] + v[j] <= c for j, c in enumerate(row))
    if n < m:
        assert max(v) <= 0
    if n > m:
        assert max(u) <= 0
    proved = bound_of(cost, v, maximize)
    bound = sign * Fraction(claim.bound)
    size = sum(map(abs, u), Fraction(0)) + sum(map(abs, v), Fraction(0))
    room = size / 2**98
    assert proved - room <= sum(u) + sum(v) <= proved
    if whole:
        assert math.ceil(proved - room) <= bound <= math.ceil(proved)
    elif n > m:
        assert down(proved - room) <= bound <= down(proved)
    else:
        assert bound == Fraction(down(proved))
    if claim.fun is None:
        return proved
    return proved, room


def check_gap(claim, cost, col4row, maximize=False):
    """``check_claims``, and cost and gap of the assignment, exactly."""
    n, m = cost.shape
    sign = -1 if maximize else 1
    proved, room = check_claims(claim, cost, maximize)
    fun, size = cost_of_pairs(cost, col4row, maximize)
    if cost.dtype.kind in "iu":
        assert claim.fun == sign * fun
        assert claim.gap == fun - sign * claim.bound
        return fun, size
    assert claim.fun == float(sign * fun)
    if n > m:
        assert up(fun - proved) <= claim.gap <= up(fun - proved + room)
    else:
        assert claim.gap == up(fun - proved)
    return fun, size
