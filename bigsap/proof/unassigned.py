"""Optional rows: from the clipped problem back to the user's, and proof.

The problem: choose pairs, each row and column at most once, and pay ``price[i]`` for each row
left out. Its dual, when minimising: the largest ``sum(u) + sum(v)`` with ``u[i] + v[j] <=
c[i, j]``, ``u[i] <= price[i]`` and ``v[j] <= 0``. ``bigsap.sources.clipped`` turns it into
a plain assignment problem, whose duals are duals of this one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bigsap.errors import CertificateError
from bigsap.proof import scan
from bigsap.proof.certificate import (
    Certificate,
    capped_at_zero,
    certificate_of,
    checked_prices,
    columns_in_range,
)
from bigsap.proof.claim import Claim
from bigsap.proof.conclusion import conclude
from bigsap.proof.listed import take_pairs
from bigsap.proof.minima import Looked, minima
from bigsap.proof.pair_costs import read_pair_costs
from bigsap.proof.row_minima import Prices, RowMinima, whole
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.proof.verify import check_consistency, check_duals, check_values, unknown, verify_infeasible
from bigsap.proof.weights import closer
from bigsap.sources.base import CostSource, Resident, Sparse
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.missing import shape_of
from bigsap.types import Array, Tick

_Claim = TypeVar("_Claim", bound=Claim)
#: A thousand times the possible change by rounding, relative to the largest numbers.
_MARGIN = 1e-9
# Bits of a whole price without which float64 holds the others.
_REST = (1 << 11) - 1


def extend_warm_start(warm_start: Any, gated: ClippedCosts) -> Any:
    """Convert a ``warm_start`` of the user's problem to one of the clipped problem.

    warm_start: None, a ``Result``, column prices (m,), or a pair of prices and ``col4row``.
    Only a problem with more rows than columns has additional columns, which start at 0. An invalid
    value is passed on unchanged; the usual check reports it.
    """
    n, m = gated.given.shape
    if warm_start is None or gated.shape[1] == m:
        return warm_start
    if hasattr(warm_start, "col4row"):
        if warm_start.shape != (n, m) or warm_start.maximize != gated.maximize:
            return warm_start
        pairs = one_to_one(warm_start)
        warm_start = warm_start.v if pairs is None else (warm_start.v, pairs)
    if isinstance(warm_start, tuple) and len(warm_start) == 2:
        return (_widened(warm_start[0], gated), warm_start[1])
    return _widened(warm_start, gated)


def one_to_one(result: Any) -> Array | None:
    """Return the column of each row of a result; None where one side may take several."""
    pairs: Array | None = None if result.row4col is None else result.col4row
    return pairs


def _widened(prices: Any, gated: ClippedCosts) -> Any:
    if shape_of(prices) != (gated.n_columns,):
        return prices
    return np.concatenate((prices, np.zeros(gated.shape[1] - gated.n_columns)))


def drop_clipped_pairs(result: _Claim, gated: ClippedCosts) -> _Claim:
    """Convert the result of ``gated`` to one of the user's problem.

    Rows with a clipped pair, or one of the additional columns, become unassigned; a pair that costs
    exactly its row's price stays. ``fun`` and ``gap`` are kept, ``bound`` too unless the remaining
    duals prove a better one. Reads one cost for each row whose duals do not show that its pair is
    cheaper than its price: O(n), and few.
    """
    m = gated.given.shape[1]
    col4row = result.col4row.copy()
    col4row[col4row >= m] = -1
    rows = _doubtful(result, gated, col4row)
    col4row[rows[~_worth_it(gated, rows, col4row[rows])]] = -1
    return without_pairs(result, col4row, gated.prices, m)


def without_pairs(result: _Claim, col4row: Array, prices: Array, m: int) -> _Claim:
    """Return a result of clipped costs with the pairs of ``col4row`` alone.

    prices: of the rows. m: the user's columns; the duals of additional ones are dropped.
    """
    n = len(col4row)
    (row_ind,) = np.nonzero(col4row >= 0)
    row4col = np.full(m, -1, np.intp)
    row4col[col4row[row_ind]] = row_ind
    bound, gap = _better_bound(result, m)
    low = None if result.v_low is None else result.v_low[:m].copy()
    stats = dict(result.stats)
    if result.fun is not None:
        stats["unassigned_rows"] = n - len(row_ind)
    return replace(
        result,
        row_ind=row_ind,
        col_ind=col4row[row_ind],
        col4row=col4row,
        row4col=row4col,
        v=result.v[:m].copy(),
        v_low=low,
        bound=bound,
        gap=gap,
        shape=(int(n), int(m)),
        stats=stats,
        unassigned_cost=prices,
        costs=None if result.costs is None else result.costs[np.isin(result.row_ind, row_ind)],
    )


def _doubtful(result: Claim, gated: ClippedCosts, col4row: Array) -> Array:
    """Return the rows whose pair may have been clipped: all of them if reading them is cheap."""
    (rows,) = np.nonzero(col4row >= 0)
    here = isinstance(gated.source, Resident) and gated.source.resident() is not None
    cheap = here or isinstance(gated.source, Sparse)
    if cheap or result.fun is None or np.isnan(result.u).any() or np.isnan(result.v).any():
        return rows
    sign = -1 if result.maximize else 1
    # Without a certificate u comes from the pairs' costs, see ``bigsap.run.without_proof``.
    gap = 0 if result.gap is None else result.gap
    if gated.dtype.kind in "iu":
        gap += 1  # the gap of integers is rounded down
    u, v, prices = result.u[rows], result.v[col4row[rows]], sign * gated.prices[rows]
    # An assigned pair costs at most u + v + gap: the parts of the gap add up to it. The margin
    # exceeds rounding, so a few rows are read needlessly. Rounding errors may be relative to
    # numbers larger than these, since prices are differences.
    finite = prices[np.isfinite(prices)]
    size = max((float(np.abs(x).max()) for x in (u, v, finite) if x.size), default=0.0)
    return rows[~(sign * (u + v) + gap + _MARGIN * size < prices)]


def _worth_it(gated: ClippedCosts, rows: Array, columns: Array) -> Array:
    """Check that these pairs are allowed and cost no more than their row's price."""
    if isinstance(gated.source, Sparse):
        return _listed_and_worth_it(gated, gated.source, rows, columns)
    costs = read_pair_costs(gated.source, rows, columns)
    cap = gated.cap[rows]
    worth: Array = np.isfinite(costs) & (costs >= cap if gated.maximize else costs <= cap)
    return worth


def _listed_and_worth_it(gated: ClippedCosts, source: Sparse, rows: Array, columns: Array) -> Array:
    """Check that pairs are listed and cost no more than their row's price."""
    entries, n = source.entries(), gated.shape[0]
    matching = np.full(n, -1, np.intp)
    matching[rows] = columns
    costs = np.zeros(n, entries.costs.dtype if entries.costs.dtype.kind == "f" else np.int64)
    found = np.zeros(n, np.uint8)
    take_pairs(*entries, matching, costs, found)
    cost, cap = costs[rows], gated.cap[rows]
    worth: Array = (found[rows] > 0) & np.isfinite(cost) & (cost >= cap if gated.maximize else cost <= cap)
    return worth


def _better_bound(result: Claim, m: int) -> tuple[Any, Any]:
    """Return bound and gap with the duals of the additional columns, all <= 0, set to 0.

    ``u[i] <= price[i]`` still holds, since the largest of all v is 0, and the change is free:
    the columns are not in the user's problem. At an optimum they are 0 anyway.
    """
    bound, gap = result.bound, result.gap
    extra = [result.v[m:]] if result.v_low is None else [result.v[m:], result.v_low[m:]]
    if bound is None or np.isnan(result.v).any() or not any(part.any() for part in extra):
        return bound, gap
    sign = -1 if result.maximize else 1
    if isinstance(bound, int):
        gain = -sign * sum(Fraction(x) for part in extra for x in part.tolist())
        whole = sign * (sign * bound + math.floor(gain))
        return whole, None if result.fun is None else abs(result.fun - whole)
    kept = [result.u, result.v[:m]]
    kept += [] if result.u_low is None else [result.u_low]
    kept += [] if result.v_low is None else [result.v_low[:m]]
    changes, duals = ([sign * part.astype(np.float64) for part in parts] for parts in (extra, kept))
    fun = None if result.fun is None else sign * result.fun
    better, gap = closer(fun, sign * bound, gap, [-part for part in changes], duals)
    return sign * better + 0.0, gap


def certify_gated(
    gated: ClippedCosts,
    col4row: npt.ArrayLike | None,
    v: npt.ArrayLike,
    v_low: npt.ArrayLike | None = None,
    *,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    pairs: bool = False,
    capacity: Array | None = None,
    tick: Tick | None = None,
) -> Certificate:
    """Prove how far a partial assignment can be from the optimum, in one pass.

    The clipped costs are not used: each cost is read as the user gave it.

    col4row: (n,), -1 = unassigned; None: prove the bound alone. v: (m,) any finite
        prices in the minimising sense, capped at 0. v_low, pairs: see ``bigsap.certify``.
    capacity: (m,) rows that each column may take; None: one.
    Returns and raises as ``bigsap.certify``; ``fun`` and ``bound`` include the prices
    of the rows left out; ``u[i] <= price[i]``. O(n m).
    """
    n, m = gated.given.shape
    integer = gated.dtype.kind in "iu"
    prices = capped_at_zero(checked_prices(v, m, integer, v_low))
    if m == 0 and integer:
        prices = Prices(prices.high.astype(np.int64))
    matching = None if col4row is None else partial_matching(col4row, n, m, capacity)
    if n == 0:
        zero = 0 if integer else 0.0
        fun, gap = (None, None) if matching is None else (zero, zero)
        return Certificate(
            fun, zero, gap, np.zeros(0), np.zeros(m), -1, 0.0, 0, integer, matching is not None
        )
    if m:
        found, looked = minima(
            gated.source, matching, prices, gated.maximize, threads, block_bytes, tick, every_pair=pairs
        )
    else:
        worst = np.iinfo(np.int64).max if prices.integer else np.inf
        matched = np.zeros(n, np.int64 if integer else np.float64)
        found = RowMinima(np.full(n, worst), None, None, matched)
        looked = Looked("pairs", 0)
    found = at_most_prices(found, gated)
    wide = None
    if matching is not None:
        # Row i left out = assigned to a private column m + i of dual 0 at its price.
        rows = np.flatnonzero(matching < 0)
        must = rows[np.isinf(gated.prices[rows])]
        if must.size:
            raise CertificateError(f"row {must[0]} must be assigned, but is not")
        found.matched[rows] = gated.prices[rows].astype(found.matched.dtype)
        wide = matching.copy()
        wide[rows] = m + rows
    low = None if prices.low is None else np.concatenate((prices.low, np.zeros(n)))
    v_wide = Prices(np.concatenate((prices.high, np.zeros(n, prices.high.dtype))), low)
    claimed = conclude(n, m + n, wide, found, v_wide, gated.maximize, integer, False, capacity)
    certificate = certificate_of(claimed, looked)
    short = None if certificate.v_low is None else certificate.v_low[:m]
    return replace(certificate, v=certificate.v[:m], v_low=short)


def at_most_prices(found: RowMinima, gated: ClippedCosts) -> RowMinima:
    """Return row minima if each row has a private column, of dual 0, at its price."""
    free = np.flatnonzero(np.isfinite(gated.prices))
    caps = (-gated.prices if gated.maximize else gated.prices)[free]
    if found.high.dtype.kind == "i":
        high = found.high.copy()
        high[free] = np.minimum(high[free], caps.astype(np.int64))
        return replace(found, high=high)
    parts = scan.Minima(*(part.copy() for part in whole(found)))
    # Of whole prices floats hold two parts.
    rest = caps & _REST if caps.dtype.kind == "i" else np.zeros_like(caps)
    prices = -rest.astype(np.float64)
    scan.fold(free, np.arange(free.size), (caps - rest).astype(np.float64), prices, np.empty(0), parts)
    return replace(found, high=parts.high, mid=parts.mid, low=parts.low)


def partial_matching(col4row: npt.ArrayLike, n: int, m: int, capacity: Array | None = None) -> Array:
    """Return the columns (n,) of a partial assignment; raises CertificateError for anything else.

    capacity: (m,) rows that each column may take; None: one.
    """
    matching = columns_in_range(col4row, n, m)
    counts = np.bincount(matching[matching >= 0], minlength=m)
    most = 1 if capacity is None else capacity
    if (counts > most).any():
        column = int(np.argmax(counts > most))
        rows = np.flatnonzero(matching == column)
        if capacity is not None:
            raise CertificateError(
                f"column {column} is assigned to {rows.size} rows, but takes {capacity[column]}"
            )
        raise CertificateError(f"column {column} is assigned to rows {rows[0]} and {rows[1]}")
    return matching


def verify_gated(
    result: Claim, source: CostSource, prices: npt.ArrayLike, threads: int = 1, *, pairs: bool = False
) -> Certificate:
    """Verify the result of a problem whose rows may stay unassigned at ``prices``."""
    if tuple(source.shape) != tuple(result.shape):
        raise CertificateError(f"the result is for costs of shape {result.shape}, not {tuple(source.shape)}")
    gated = ClippedCosts(source, prices, maximize=result.maximize)
    check_prices(result, gated)
    check_consistency(result)
    if result.status == "infeasible":
        found = verify_infeasible(result, gated, threads)
        return replace(found, v=found.v[: result.shape[1]])
    n, m = result.shape
    sign = -1 if result.maximize else 1
    bounded = not unknown(result.v) and not unknown(result.u)
    certificate = certify_gated(
        gated,
        None if result.fun is None else result.col4row,
        sign * result.v if bounded else np.zeros(m),
        sign * result.v_low if bounded and result.v_low is not None else None,
        threads=threads,
        pairs=pairs,
    )
    # The checks see a problem with more columns than rows, where v <= 0 as well.
    v = np.concatenate((result.v, np.zeros(n, result.v.dtype)))
    low = None if result.v_low is None else np.concatenate((result.v_low, np.zeros(n)))
    wide = replace(result, shape=(n, m + n), v=v, v_low=low)
    if bounded:
        check_duals(wide, certificate, sign)
    check_values(wide, certificate, sign, bounded=bounded)
    return certificate


def check_prices(result: Claim, gated: ClippedCosts) -> None:
    """Check that the result's prices are those of ``gated``; raises CertificateError."""
    recorded = result.unassigned_cost
    if recorded is None:
        return
    if recorded.shape != gated.prices.shape:
        raise CertificateError(f"unassigned_cost of the result has shape {recorded.shape}")
    other = np.flatnonzero(recorded != gated.prices)
    if other.size:
        row = int(other[0])
        raise CertificateError(
            f"the result left rows unassigned at other prices: {recorded[row]} for row {row},"
            f" not {gated.prices[row]}"
        )
