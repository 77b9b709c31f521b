"""``Result.verify``: check every claim of a result against the costs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from bigsap.errors import CertificateError
from bigsap.proof.certificate import Certificate, certify, certify_infeasible
from bigsap.proof.claim import Claim
from bigsap.proof.conclusion import SHARE
from bigsap.proof.exact import exact_sum, expansion, three_sum, two_sum
from bigsap.proof.tightness import UNIT
from bigsap.proof.weights import duals_total, exact_weighted_sum, padded
from bigsap.sources.base import CostSource
from bigsap.types import Array

#: Relative error allowed in the duals of a search, as a share of the largest.
_SEARCH = 2.0**-40
#: A factor with which sums of sizes stay finite.
_SMALLER = 2.0**-64


def verify(result: Claim, source: CostSource, threads: int = 1, *, pairs: bool = False) -> Certificate:
    """Verify a result, see ``Result.verify``; ``source`` presents the costs of the problem."""
    if tuple(source.shape) != tuple(result.shape):
        raise CertificateError(f"the result is for costs of shape {result.shape}, not {tuple(source.shape)}")
    check_consistency(result)
    if result.status == "infeasible":
        return verify_infeasible(result, source, threads)
    sign = -1 if result.maximize else 1
    no_prices = unknown(result.v)
    prices = np.zeros(result.shape[1]) if no_prices else sign * result.v
    certificate = certify(
        source,
        None if result.fun is None else result.col4row,
        prices,
        None if no_prices or result.v_low is None else sign * result.v_low,
        maximize=result.maximize,
        threads=threads,
        # Without a bound the prices are not claimed to be exact.
        normalise=no_prices or result.bound is None,
        pairs=pairs,
    )
    if not no_prices and not unknown(result.u):
        check_duals(result, certificate, sign)
    check_values(result, certificate, sign, bounded=not no_prices)
    return certificate


def verify_infeasible(result: Claim, source: CostSource, threads: int, **counts: Any) -> Certificate:
    """Verify that there is no assignment, and that the result claims none. counts: capacity, demand."""
    ways: dict[str, Any] = {"maximize": result.maximize, "threads": threads, **counts}
    found = certify_infeasible(source, result.violator, **ways)
    if (result.fun, result.bound, result.gap) != (None, None, None):
        raise CertificateError("an infeasible problem has no fun, bound or gap, but the result claims one")
    return found


def unknown(dual: Array) -> bool:
    """Check whether duals were not computed: all are NaN."""
    return dual.size > 0 and bool(np.isnan(dual).all())


def refuse_nan(result: Claim) -> None:
    """Raise CertificateError where cost, bound or gap is NaN, which no comparison finds."""
    for name in ("fun", "bound", "gap"):
        value = getattr(result, name)
        if isinstance(value, float) and math.isnan(value):
            raise CertificateError(f"{name} is NaN")


def check_consistency(result: Claim) -> None:
    """Check that the fields are consistent, without reading costs."""
    n, m = result.shape
    refuse_nan(result)
    if result.col4row is None or result.row4col is None:
        raise CertificateError("col4row or row4col is missing, but rows and columns take one partner each")
    if result.col4row.shape != (n,) or result.row4col.shape != (m,):
        raise CertificateError("col4row or row4col does not have the length of its side")
    if result.u.shape != (n,) or result.v.shape != (m,):
        raise CertificateError("u or v does not have the length of its side")
    for name, dual in (("u", result.u), ("v", result.v)):
        if np.isnan(dual).any() and not unknown(dual):
            raise CertificateError(f"{name}[{int(np.argmax(np.isnan(dual)))}] is NaN")
    (rows,) = np.nonzero(result.col4row >= 0)
    if not (np.array_equal(result.row_ind, rows) and np.array_equal(result.col_ind, result.col4row[rows])):
        raise CertificateError("row_ind and col_ind disagree with col4row")
    (columns,) = np.nonzero(result.row4col >= 0)
    owners = result.row4col[columns]
    if (
        len(columns) != len(rows)
        or (owners >= n).any()
        or not np.array_equal(result.col4row[owners], columns)
    ):
        raise CertificateError("row4col disagrees with col4row")
    if result.success != (result.status in ("optimal", "gap_reached")):
        raise CertificateError(f"success is {result.success} but status is {result.status}")
    if result.fun is None and (len(rows) or result.success):
        raise CertificateError("the result has no fun although it claims an assignment")
    expected = None
    if result.fun is not None and result.bound is not None:
        expected = abs(result.fun - result.bound)
    if (expected is None) != (result.gap is None):
        raise CertificateError("the gap is known exactly when fun and bound are")


def check_duals(result: Claim, certificate: Certificate, sign: int) -> None:
    """Compare the claimed u with the largest feasible one, and check the sign of the longer side."""
    if result.bound is None:
        _check_search_duals(result, certificate, sign)
        return
    n, m = result.shape
    tolerance = other_costs(result, certificate)
    above = _exceeds(sign * result.u, result.u_low, sign * certificate.u, certificate.u_low, sign, tolerance)
    if above.any():
        row = int(np.argmax(above))
        raise CertificateError(f"u[{row}] = {result.u[row]} is no feasible dual: a pair violates it")
    longer, low, name = (result.v, result.v_low, "v") if n < m else (result.u, result.u_low, "u")
    if n != m:
        wrong = _exceeds(sign * longer, low, np.zeros(longer.size), None, sign, tolerance)
        if wrong.any():
            where = int(np.argmax(wrong))
            raise CertificateError(f"{name}[{where}] has the wrong sign for a side left over")


def _check_search_duals(result: Claim, certificate: Certificate, sign: int) -> None:
    """Check duals that claim no bound: those of a search.

    They are rounded, and perhaps shifted against the certificate's.
    """
    u, v = sign * result.u, sign * result.v[: certificate.v.size]
    if not u.size or not v.size:
        return
    size = max(float(np.abs(dual.astype(np.float64)).max()) for dual in (u, v))
    shift = (sign * certificate.v - v).max()
    # Unassigned rows have 0, whatever the shift.
    known = certificate.u != 0 if result.shape[0] > result.shape[1] else np.ones(u.size, bool)
    above = known & (u > sign * certificate.u + shift + _SEARCH * size)
    if above.any():
        row = int(np.argmax(above))
        raise CertificateError(f"u[{row}] = {result.u[row]} is no feasible dual: a pair violates it")


def _exceeds(
    a: Array, a_low: Array | None, b: Array, b_low: Array | None, sign: int, tolerance: float
) -> Array:
    """Return where ``a + a_low`` exceeds ``b + b_low`` by more than the tolerance, exactly.

    Low parts are in the user's sense.
    """
    if a.dtype != np.float64 or b.dtype != np.float64:
        parts = [(a, a_low), (b, b_low)]
        exact = [_as_fractions(dual, low, sign) for dual, low in parts]
        return np.array([x > y + Fraction(tolerance) for x, y in zip(*exact, strict=True)], bool)
    with np.errstate(invalid="ignore"):
        high, rest = two_sum(a, -b)
        low = np.zeros(a.size) if a_low is None else sign * a_low
        high, mid, least = three_sum(high, rest, low)
        if b_low is not None:
            mid, error = two_sum(mid, -sign * b_low)
            high, mid = two_sum(high, mid)
            least = least + error
        more = (high > tolerance) | ((high == tolerance) & ((mid > 0) | ((mid == 0) & (least > 0))))
    # Rows without an allowed column have the dual inf, which nothing exceeds.
    found: Array = np.where(np.isfinite(a) & np.isfinite(b), more, ~(a <= b))
    return found


def _as_fractions(dual: Array, low: Array | None, sign: int) -> list[Fraction]:
    """Return duals in the minimising sense plus their low parts in the user's sense."""
    exact = [Fraction(x) for x in dual.tolist()]
    if low is None:
        return exact
    return [x + sign * Fraction(y) for x, y in zip(exact, low.tolist(), strict=True)]


def other_costs(result: Claim, certificate: Certificate) -> float:
    """Return the tolerance for costs of another code path, which may differ in their last bits.

    A few units in the last place of the assigned costs; 0 for integers.
    """
    if result.fun is None or isinstance(certificate.fun, int):
        return 0.0
    return SHARE * certificate.size


def check_values(
    result: Claim,
    certificate: Certificate,
    sign: int,
    *,
    bounded: bool,
    counts: tuple[Array | None, Array | None] = (None, None),
) -> None:
    """Check cost, bound and gap as claimed, and optimality if the result claims it.

    bounded: the duals are known. counts: how often each row's and each column's dual counts; None: once.
    """
    tolerance = other_costs(result, certificate)
    _agree("fun", result.fun, certificate.fun, tolerance)
    if result.bound is not None and bounded:
        # A weaker bound than the duals prove is a true claim, a stronger one is false.
        # (The difference first: a float tolerance would round huge integers.)
        if sign * (result.bound - certificate.bound) > tolerance:
            raise CertificateError(
                f"bound {result.bound} is not proved by the duals, only {certificate.bound}"
            )
        _check_sum(result, certificate, tolerance, counts)
    if result.fun is not None and result.bound is not None and result.gap is not None:
        difference = sign * (result.fun - result.bound)
        # The gap was rounded up, by the last place of a denormal at least.
        ulps = 2 * UNIT * (abs(result.fun) + abs(result.bound)) + math.ulp(0.0)
        whole = isinstance(result.gap, int)
        _agree("gap", result.gap, difference, 0 if whole else tolerance + ulps)
    if result.status == "optimal" and result.gap and isinstance(certificate.bound, int):
        raise CertificateError(f"status is optimal, but the result claims a gap of {result.gap}")
    if result.status == "optimal" and result.fun is not None and not certificate.optimal:
        if not bounded:
            raise CertificateError(
                "the result has no duals, as a solve without its certificate may leave it: its"
                f" cost {result.fun} is right, but whether that is optimal cannot be told from it;"
                " solve with certify=True"
            )
        if certificate.gap is None or certificate.gap > 2 * tolerance:
            raise CertificateError(
                f"status is optimal, but the duals leave a gap of {certificate.gap}: "
                f"row {certificate.worst_row} is {certificate.worst_violation} from tight"
            )


def _check_sum(
    result: Claim, certificate: Certificate, tolerance: float, counts: tuple[Array | None, Array | None]
) -> None:
    """Compare the duals' sum with the bound, up to the precision of their two parts.

    For integers the bound may be the next whole number. Each dual may be rounded by a denormal number.
    """
    duals, lows, bound = [result.u, result.v], [result.u_low, result.v_low], result.bound
    if bound is None:
        return
    if not all(np.isfinite(dual).all() for dual in duals):
        total = float(sum(dual.sum() for dual in duals))  # no assignment is allowed
        if total != bound:
            raise CertificateError(f"the duals sum to {total}, the bound is {bound}")
        return
    short, size, least = -Fraction(bound), 0.0, 0.0
    for dual, low, times in zip(duals, lows, counts, strict=True):
        often = 1 if times is None else np.maximum(padded(times, dual.size), 1)
        size += float((np.abs(_SMALLER * dual.astype(np.float64)) * often).sum())
        least += math.ulp(0.0) * float(np.sum(np.broadcast_to(often, dual.shape)))
        if dual.dtype == np.float64:
            short += sum(map(Fraction, expansion(*duals_total(dual, low, times))), Fraction(0))
        else:
            short += int(exact_sum(dual) if times is None else exact_weighted_sum(dual, times))
            if low is not None:
                short += sum(map(Fraction, expansion(*duals_total(low, None, times))), Fraction(0))
    lost = Fraction(2.0**-98 / _SMALLER * size)
    if isinstance(certificate.bound, int) and isinstance(bound, int):
        good = abs(short) < 1 + (lost if short.denominator > 1 else 0)
    else:
        good = abs(short) <= lost + Fraction(8 * UNIT * abs(bound) + tolerance + least)
    if not good:
        raise CertificateError(f"the duals sum to {float(short + Fraction(bound))}, the bound is {bound}")


def _agree(name: str, claimed: Any, found: Any, tolerance: float) -> None:
    if (claimed is None) != (found is None):
        raise CertificateError(f"{name} is {claimed}, but {found} was found")
    if claimed is not None and not abs(claimed - found) <= tolerance:
        raise CertificateError(f"{name} is {claimed}, but {found} was found")
