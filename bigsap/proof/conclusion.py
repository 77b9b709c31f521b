"""Bound, cost and gap from prices and row minima, all sums exact; see ``certificate``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import CertificateError, OverflowRiskError
from bigsap.proof.exact import ceiling, down, exact_sum, expansion, nearest, three_sum, two_sum, up
from bigsap.proof.refusals import reach, too_far
from bigsap.proof.row_minima import Prices, RowMinima, whole
from bigsap.proof.weights import duals_total, exact_weighted_sum
from bigsap.types import Array

#: An optimal result's gap, as a share of the magnitudes of its costs.
SHARE = 2.0**-50
#: Rows examined at a time, so that temporaries take no memory a row.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Claimed:
    """The fields of ``Certificate`` that follow from prices and minima."""

    fun: Any
    bound: Any
    gap: Any
    u: Array
    v: Array
    u_low: Array | None
    v_low: Array | None
    worst_row: int
    worst_violation: float
    exact: bool
    optimal: bool
    size: float
    margin: float | None
    deviation: float = 0.0
    matched: Array | None = None


def conclude(
    n: int,
    m: int,
    matching: Array | None,
    minima: RowMinima,
    prices: Prices,
    maximize: bool,
    integer: bool,
    normalise: bool,
    capacity: Array | None = None,
) -> Claimed:
    """Compute bound, cost and gap. prices: in the minimising sense, those of ``minima``.

    normalise: find the shift t if n > m; otherwise it is 0. capacity: (m,) or fewer, how often each
    price counts, if every row has a column; prices beyond count once.
    """
    if capacity is not None:
        m = max(n, m)  # every row's dual counts
    if prices.integer:
        return _of_integers(n, m, matching, minima, prices.high, maximize, normalise, capacity)
    sign = -1 if maximize else 1
    parts = whole(minima)
    rows, shift = _counted(parts, n, m, normalise)
    v, v_low = prices.high, prices.low
    if any(shift):
        v, v_low = _rounded_down(v, shift, v_low)
    terms = [part[rows] for part in parts]
    terms += [np.full(len(terms[0]), -s) for s in shift if s]
    feasible = bool((terms[0] < np.inf).all())
    # Infinite minima are reported unchanged: they say why nothing can be assigned.
    u, u_low = _row_duals(parts, n > m and feasible, shift)
    duals = (sign * u + 0, sign * v + 0, _signed(u_low, sign), _signed(v_low, sign))
    margin = _median(minima.margins)
    bound: Any = math.inf
    total: list[float] = []
    if feasible:
        total = expansion(*terms, *duals_total(v, v_low, capacity))
        bound = ceiling(total) if integer else down(total)
    if matching is None:
        return Claimed(None, sign * bound, None, *duals, -1, 0.0, False, False, 0.0, margin)
    if not feasible:
        (lost,) = np.nonzero((matching >= 0) & np.isposinf(parts[0]) & np.isfinite(minima.matched))
        if lost.size:
            raise too_far(int(lost[0]), np.dtype(np.float64))
        raise CertificateError("an assigned row has no allowed pair")
    assigned = matching >= 0
    costs = minima.matched[assigned]
    worst, violation = _worst(matching, minima.matched, sign, parts, prices)
    deviation = 0.0
    if integer:
        fun: Any = exact_sum(costs)
        gap: Any = sign * fun - bound
        size = float(sum(abs(c) for c in costs.tolist()))
        optimal = gap == 0
    else:
        cost = expansion(sign * costs)
        fun = sign * nearest(cost) + 0.0
        gap = up(expansion(cost, [-x for x in total])) + 0.0
        size = nearest(expansion(np.abs(costs)))
        deviation = _deviation(costs)
        optimal = gap <= SHARE * size
    if gap < 0:
        raise CertificateError("the certificate contradicts itself: the bound exceeds the cost")
    return Claimed(
        fun,
        sign * bound + (0 if integer else 0.0),
        gap,
        *duals,
        worst,
        violation,
        integer and optimal,
        bool(optimal),
        size,
        margin,
        deviation,
        minima.matched,
    )


def _counted(parts: Any, n: int, m: int, normalise: bool) -> tuple[Array | slice, tuple[float, float, float]]:
    """Return the rows whose duals count, and the shift t to subtract from each of these duals.

    t is the m-th smallest of the rows' minima if ``normalise``, for n > m.
    """
    none = (0.0, 0.0, 0.0)
    if n <= m:
        return slice(None), none
    if not normalise:
        return np.flatnonzero(parts.high < 0), none
    order = np.lexsort((parts.low, parts.mid, parts.high))[:m]
    last = order[-1]
    if parts.high[last] == np.inf:
        return order, none
    return order, (float(parts.high[last]), float(parts.mid[last]), float(parts.low[last]))


def _rounded_down(
    high: Array, shift: tuple[float, float, float], low: Array | None
) -> tuple[Array, Array | None]:
    """Return ``high + low + shift`` in two parts, rounded down."""
    with np.errstate(invalid="ignore"):
        high, rest = two_sum(high, shift[0])
        errors = []
        for term in (shift[1], shift[2], 0.0 if low is None else low):
            rest, error = two_sum(rest, term)
            errors.append(error)
        error = errors[0] + errors[1] + errors[2]
        inexact = (errors[0] != 0) | (errors[1] != 0) | (errors[2] != 0)
        rest = np.where(inexact, np.nextafter(rest + error, -np.inf), rest)
        high, rest = two_sum(high, rest)
    return high, rest if rest.any() else None


def _row_duals(parts: Any, more_rows: bool, shift: tuple[float, float, float]) -> tuple[Array, Array | None]:
    """Return the rows' duals in two parts, rounded down; with rows left over, at most 0."""
    high, low = parts.high, parts.mid
    if parts.low.any():
        low = np.where(parts.low < 0, np.nextafter(low, -np.inf), low)
    if not more_rows:
        return high, low if low.any() else None
    if any(shift):
        negative = (-shift[0], -shift[1], -shift[2])
        high, found = _rounded_down(high, negative, low)
        low = np.zeros(high.size) if found is None else found
    with np.errstate(invalid="ignore"):
        above = ~(high + low < 0)
    high, low = np.where(above, 0.0, high), np.where(above, 0.0, low)
    return high, low if low.any() else None


def _worst(matching: Array, matched: Array, sign: int, parts: Any, prices: Prices) -> tuple[int, float]:
    """Return the assigned row farthest from tight, and its distance."""
    worst, farthest = -1, 0.0
    for first in range(0, matching.size, _AT_ONCE):
        rows = first + np.flatnonzero(matching[first : first + _AT_ONCE] >= 0)
        if not rows.size:
            continue
        columns = matching[rows]
        high, rest = two_sum(sign * matched[rows].astype(np.float64), -prices.high[columns])
        low = np.zeros(rows.size) if prices.low is None else prices.low[columns]
        high, mid, least = three_sum(high, rest, -low)
        violation = (high - parts.high[rows]) + ((mid - parts.mid[rows]) + (least - parts.low[rows]))
        at = int(np.argmax(violation))
        if worst < 0 or violation[at] > farthest:
            worst, farthest = int(rows[at]), float(violation[at])
    return worst, farthest


def _signed(low: Array | None, sign: int) -> Array | None:
    return None if low is None else sign * low + 0


def _median(margins: Array | None) -> float | None:
    """Return the median margin, of two middle ones the larger; None without margins."""
    return float(np.sort(margins)[margins.size // 2]) if margins is not None and margins.size else None


def _deviation(costs: Array) -> float:
    """Return the median absolute deviation from the median."""
    if not costs.size:
        return 0.0
    with np.errstate(over="ignore"):
        return float(np.median(np.abs(costs - np.median(costs))))


def _of_integers(
    n: int,
    m: int,
    matching: Array | None,
    minima: RowMinima,
    prices: Array,
    maximize: bool,
    normalise: bool,
    capacity: Array | None,
) -> Claimed:
    """Compute the conclusion from int64 prices and minima, in integers."""
    sign = -1 if maximize else 1
    u, matched = minima.high, minima.matched
    unreached = u == np.iinfo(np.int64).max
    infeasible = int(unreached.sum()) > max(0, n - m)
    if max(reach(u), reach(prices), reach(matched)) > 2**60:
        u, prices, matched = (a.astype(object) for a in (u, prices, matched))  # Python ints
    raw_u, raw_prices = u, prices
    threshold = 0
    if n > m:
        if normalise:
            threshold = np.sort(u)[m - 1] if u.dtype == object else np.partition(u, m - 1)[m - 1]
        u, prices = np.minimum(u - threshold, 0), prices + threshold
    duals = _as_user_has_it(u, sign), _as_user_has_it(prices, sign), None, None
    bound: Any = math.inf
    if not infeasible:
        bound = exact_sum(u) + (
            exact_sum(prices) if capacity is None else exact_weighted_sum(prices, capacity)
        )
    if matching is None:
        return Claimed(None, sign * bound, None, *duals, -1, 0.0, False, False, 0.0, None)
    if infeasible:
        raise CertificateError("an assigned row has no allowed pair")
    (rows,) = np.nonzero(matching >= 0)
    fun = exact_sum(matched[rows])
    gap = sign * fun - bound
    if gap < 0:
        raise CertificateError("the certificate contradicts itself: the bound exceeds the cost")
    worst, violation = -1, 0
    if rows.size:
        slack = sign * matched[rows] - raw_prices[matching[rows]] - raw_u[rows]
        at = int(np.argmax(slack))
        worst, violation = int(rows[at]), int(slack[at])
    size = float(sum(abs(c) for c in matched[rows].tolist()))
    optimal = gap == 0
    return Claimed(
        fun, sign * bound, gap, *duals, worst, violation, optimal, optimal, size, None, matched=minima.matched
    )


def _as_user_has_it(dual: Array, sign: int) -> Array:
    largest = reach(dual)
    if largest >= 2**63:
        raise OverflowRiskError("a dual leaves int64: the integer costs are too large")
    return (sign * dual).astype(np.float64 if largest <= 2**53 else np.int64)
