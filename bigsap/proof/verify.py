"""``Result.verify``: every claim of a result, checked against the costs again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bigsap.errors import CertificateError
from bigsap.proof.certificate import (
    Certificate,
    certify,
    certify_infeasible,
    exact_sum,
)
from bigsap.proof.claim import Claim
from bigsap.proof.tightness import UNIT, allowance
from bigsap.sources.base import Array, CostSource


def verify(
    result: Claim, source: CostSource, threads: int = 1, *, pairs: bool = False
) -> Certificate:
    """See ``Result.verify``; ``source`` presents the costs of the problem."""
    if tuple(source.shape) != tuple(result.shape):
        raise CertificateError(
            f"the result is for costs of shape {result.shape}, not {tuple(source.shape)}"
        )
    check_consistency(result)
    if result.status == "infeasible":
        return certify_infeasible(
            source, result.violator, maximize=result.maximize, threads=threads
        )
    sign = -1 if result.maximize else 1
    no_prices = unknown(result.v)
    prices = np.zeros(result.shape[1]) if no_prices else sign * result.v
    certificate = certify(
        source,
        None if result.fun is None else result.col4row,
        prices,
        maximize=result.maximize,
        threads=threads,
        normalise=no_prices,
        magnitude=magnitude_of(result),
        pairs=pairs,
    )
    if not no_prices and not unknown(result.u):
        check_duals(result, certificate, sign)
    check_values(result, certificate, sign, bounded=not no_prices)
    return certificate


def magnitude_of(result: Claim) -> float:
    """How large the numbers were whose rounding the duals carry, as the result says.

    Believed up to a million times the size of its duals: the gap that a forged record could
    hide stays below what users of float64 would notice, and is in the certificate anyway.
    """
    said = result.stats.get("magnitude", 0.0)
    if not isinstance(said, (int, float)) or not said > 0:
        return 0.0
    # Unknown duals are NaN, which excuses nothing.
    seen = max(
        (float(np.nan_to_num(np.abs(a)).max()) for a in (result.u, result.v) if a.size), default=0.0
    )
    return float(min(said, 2.0**20 * seen))


def unknown(dual: Array) -> bool:
    """Duals nobody computed are NaN throughout."""
    return dual.size > 0 and bool(np.isnan(dual).all())


def check_consistency(result: Claim) -> None:
    """What can be judged without the costs: the fields must tell the same story."""
    n, m = result.shape
    if result.col4row.shape != (n,) or result.row4col.shape != (m,):
        raise CertificateError("col4row or row4col does not have the length of its side")
    if result.u.shape != (n,) or result.v.shape != (m,):
        raise CertificateError("u or v does not have the length of its side")
    for name, dual in (("u", result.u), ("v", result.v)):
        if np.isnan(dual).any() and not unknown(dual):
            raise CertificateError(f"{name}[{int(np.argmax(np.isnan(dual)))}] is NaN")
    (rows,) = np.nonzero(result.col4row >= 0)
    if not (
        np.array_equal(result.row_ind, rows)
        and np.array_equal(result.col_ind, result.col4row[rows])
    ):
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
    """The claimed u against the largest feasible one, and the sign of the longer side."""
    n, m = result.shape
    claimed, most = sign * result.u, sign * certificate.u
    # Rows without an allowed column have the dual inf, which must not excuse the others'.
    reach = max(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in (claimed, result.v))
    reach += magnitude_of(result)  # of numbers that these are differences of
    tolerance = allowance(max(n, m), UNIT * reach) if certificate.rounding else 0
    above = np.flatnonzero(~(claimed <= most + tolerance))
    if above.size:
        row = int(above[0])
        raise CertificateError(
            f"u[{row}] = {result.u[row]} is no feasible dual: a pair violates it"
        )
    longer, name = (sign * result.v, "v") if n < m else (claimed, "u")
    if n != m and (longer > tolerance).any():
        where = int(np.argmax(longer > tolerance))
        raise CertificateError(f"{name}[{where}] has the wrong sign for a side left over")


def check_values(result: Claim, certificate: Certificate, sign: int, *, bounded: bool) -> None:
    """Cost, bound and gap as claimed, and whether the result is optimal if it says so.

    bounded: the duals are known.
    """
    tolerance = 8 * certificate.rounding
    _agree("fun", result.fun, certificate.fun, tolerance)
    if result.bound is not None and bounded:
        # A weaker bound than the duals prove is no false claim, a stronger one is.
        # (The difference first: a float tolerance would round huge integers.)
        if sign * (result.bound - certificate.bound) > tolerance:
            raise CertificateError(
                f"bound {result.bound} is not proved by the duals, only {certificate.bound}"
            )
        duals, rounded = _sum_of_duals(result, certificate)
        short = 0 if duals == result.bound else sign * (duals - result.bound)
        if not -(tolerance + rounded) <= short <= max(tolerance, rounded - tolerance):
            raise CertificateError(f"the duals sum to {duals}, the bound is {result.bound}")
    if result.fun is not None and result.bound is not None and result.gap is not None:
        _agree("gap", result.gap, abs(result.fun - result.bound), tolerance)
    if result.status == "optimal" and result.gap and isinstance(certificate.bound, int):
        raise CertificateError(f"status is optimal, but the result claims a gap of {result.gap}")
    if result.status == "optimal" and result.fun is not None and not certificate.optimal:
        if not bounded:
            raise CertificateError(
                "the result has no duals, as a solve without its certificate may leave it: its"
                f" cost {result.fun} is right, but whether that is optimal cannot be told from it;"
                " solve with certify=True"
            )
        raise CertificateError(
            f"status is optimal, but the duals leave a gap of {certificate.gap}: "
            f"row {certificate.worst_row} is {certificate.worst_violation} from tight"
        )


def _sum_of_duals(result: Claim, certificate: Certificate) -> tuple[Any, int]:
    """sum(u) + sum(v), and below what rounding changes the bound where it is an integer: it is
    rounded up, but down with rows left over at a price (``unassigned._better_bound``)."""
    if math.isinf(certificate.bound):
        # No assignment is allowed, and some u are infinite.
        return float(np.sum(result.u)), 0
    if certificate.rounding or not isinstance(certificate.bound, int):
        return exact_sum(result.u) + exact_sum(result.v), int(isinstance(certificate.bound, int))
    if any((dual != np.rint(dual)).any() for dual in (result.u, result.v)):
        raise CertificateError("the duals of an exact integer result are not all integers")
    return sum(exact_sum(dual.astype(np.int64)) for dual in (result.u, result.v)), 0


def _agree(name: str, claimed: Any, found: Any, tolerance: float) -> None:
    if (claimed is None) != (found is None):
        raise CertificateError(f"{name} is {claimed}, but {found} was found")
    if claimed is not None and not abs(claimed - found) <= tolerance:
        raise CertificateError(f"{name} is {claimed}, but {found} was found")
