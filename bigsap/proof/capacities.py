"""Proof where columns take several rows, or rows several columns.

Stated for minimising. With capacities ``k[j]`` every row has one column, and a column at most ``k[j]``
rows: whatever the prices v, an assignment costs at least ``sum(u) + sum(k[j] v[j])`` with ``u[i] =
min_j (c[i, j] - v[j])``, if ``v[j] <= 0`` for columns with room left. With demands ``d[i]`` a row has
``d[i]`` distinct columns, and a column at most one row: at least ``sum(d[i] u[i]) + sum(v)``, v <= 0.
Where each of a row's places may stay open at a price, that holds if ``u[i]`` is not above the price.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bigsap.errors import CertificateError
from bigsap.proof.certificate import Certificate, certificate_of, checked_prices
from bigsap.proof.claim import Claim
from bigsap.proof.conclusion import conclude
from bigsap.proof.minima import Looked, minima
from bigsap.proof.pair_costs import listed_costs, read_pair_costs
from bigsap.proof.row_minima import Prices, RowMinima, whole
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.proof.unassigned import at_most_prices, certify_gated, check_prices, partial_matching
from bigsap.proof.verify import check_duals, check_values, refuse_nan, unknown, verify_infeasible
from bigsap.proof.weights import shifted_weighted
from bigsap.sources.base import CostSource, Sparse, integral
from bigsap.sources.clipped import ClippedCosts
from bigsap.types import Array, Tick


def certify_capacities(
    source: CostSource,
    capacity: Array,
    col4row: npt.ArrayLike | None,
    v: npt.ArrayLike,
    v_low: npt.ArrayLike | None = None,
    *,
    maximize: bool = False,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Tick | None = None,
    normalise: bool = True,
    pairs: bool = False,
) -> Certificate:
    """Prove how far an assignment of every row can be from the optimum, in one pass.

    capacity: (m,) rows that each column may take. Other arguments, errors and result as for
    ``certificate.certify``. Time O(n m), or less with bounds.
    """
    n, m = source.shape
    integer = integral(source)
    matching = None if col4row is None else every_row(partial_matching(col4row, n, m, capacity))
    prices = checked_prices(v, m, integer, v_low)
    places = int(capacity.sum())
    if normalise:
        prices = shifted_weighted(prices, capacity, n)
    elif places > n:
        prices = _capped(prices)
    found, looked = _row_minima(source, matching, prices, maximize, threads, block_bytes, tick, pairs)
    return certificate_of(conclude(n, m, matching, found, prices, maximize, integer, False, capacity), looked)


def every_row(matching: Array) -> Array:
    """Return the columns (n,) if every row has one, else raise CertificateError."""
    if (matching < 0).any():
        row = int(np.argmax(matching < 0))
        raise CertificateError(f"the assignment is incomplete: row {row} has no column")
    return matching


def _capped(prices: Prices) -> Prices:
    if prices.low is None:
        return Prices(np.minimum(prices.high, 0))
    above = prices.high + prices.low > 0
    return Prices(np.where(above, 0.0, prices.high), np.where(above, 0.0, prices.low))


def _row_minima(
    source: CostSource,
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    threads: int,
    block_bytes: int,
    tick: Tick | None,
    pairs: bool,
) -> tuple[RowMinima, Looked]:
    """Return the rows' minima; of no column, or no row, as well."""
    n, m = source.shape
    if n and m:
        return minima(source, matching, prices, maximize, threads, block_bytes, tick, every_pair=pairs)
    worst = np.iinfo(np.int64).max if prices.integer else np.inf
    matched = np.zeros(n, np.int64 if integral(source) else np.float64)
    return RowMinima(np.full(n, worst), None, None, matched), Looked("pairs", 0)


def certify_demand(
    source: CostSource,
    demand: Array,
    row_ind: Array | None,
    col_ind: Array | None,
    v: npt.ArrayLike,
    v_low: npt.ArrayLike | None = None,
    *,
    maximize: bool = False,
    threads: int = 1,
    tick: Tick | None = None,
    normalise: bool = True,
    pairs: bool = False,
    gated: ClippedCosts | None = None,
) -> Certificate:
    """Prove how far pairs, ``demand[i]`` of each row i, can be from the optimum, in one pass.

    row_ind, col_ind: (k,) the pairs, sorted by row; None: prove the bound alone. In the certificate,
    ``matched`` holds the costs of the pairs. It is that of the problem in which row i is repeated
    ``demand[i]`` times. gated: the prices at which places may stay open; there are then fewer pairs, and
    v is capped at 0. Raises CertificateError.
    """
    n, m = source.shape
    source = source if gated is None else gated.source
    integer = integral(source if gated is None else gated)
    prices = checked_prices(v, m, integer, v_low)
    wanted = int(demand.sum())
    columns = None if col_ind is None or row_ind is None else _demanded(row_ind, col_ind, demand, m, gated)
    if gated is not None:
        prices = _capped(prices)
    elif normalise:
        prices = shifted_weighted(prices, np.ones(m, np.int64), wanted)
    elif wanted < m:
        prices = _capped(prices)
    seeds = _first_pairs(columns, demand, m)
    found, looked = _row_minima(source, seeds, prices, maximize, threads, BLOCK_BYTES, tick, pairs)
    owner = np.repeat(np.arange(n), demand)
    costs = np.zeros(wanted, found.matched.dtype)
    if gated is not None:
        found = at_most_prices(found, gated)
        costs[:] = np.where(np.isfinite(gated.prices), gated.prices, 0)[owner]
        prices = _with_private(prices, wanted)
    if columns is not None:
        _read_pairs(source, owner, columns, costs)
    parts = [None if part is None else part[owner] for part in (found.mid, found.low)]
    copies = replace(found, high=found.high[owner], mid=parts[0], low=parts[1], matched=costs)
    ones = np.ones(m, np.int64)
    claimed = conclude(wanted, prices.high.size, columns, copies, prices, maximize, integer, False, ones)
    sign = -1 if maximize else 1
    # A row that takes no column has any dual, if no pair bounds it.
    unbounded = np.iinfo(np.int64).max if prices.integer else np.inf
    none = (demand == 0) & (found.high == unbounded)
    u, u_low = _row_duals(replace(found, high=np.where(none, 0, found.high)), sign)
    certificate = replace(certificate_of(claimed, looked), u=u, u_low=u_low)
    if gated is None:
        return certificate
    short = None if certificate.v_low is None else certificate.v_low[:m]
    taken = None if columns is None else costs[columns < m]
    return replace(certificate, v=certificate.v[:m], v_low=short, matched=taken)


def _with_private(prices: Prices, count: int) -> Prices:
    """Return the prices with those of so many private columns, 0: of places that stay open."""
    low = None if prices.low is None else np.concatenate((prices.low, np.zeros(count)))
    return Prices(np.concatenate((prices.high, np.zeros(count, prices.high.dtype))), low)


def _row_duals(found: RowMinima, sign: int) -> tuple[Array, Array | None]:
    """Return the rows' duals in the user's sense, rounded down in the minimising one."""
    if found.high.dtype.kind == "i":
        wide = found.high.size and int(np.abs(found.high).max()) > 2**53
        return (sign * found.high).astype(np.int64 if wide else np.float64), None
    parts = whole(found)
    low = np.where(parts.low < 0, np.nextafter(parts.mid, -np.inf), parts.mid)
    return sign * parts.high + 0, sign * low + 0 if low.any() else None


def _demanded(
    row_ind: Array, col_ind: Array, demand: Array, m: int, gated: ClippedCosts | None = None
) -> Array:
    """Return the columns of pairs that are as many a row as it demands, and distinct.

    Where places may stay open there may be fewer; an open place has a column of its own, m or beyond.
    """
    rows, columns = np.asarray(row_ind, np.intp), np.asarray(col_ind, np.intp)
    n = demand.size
    if rows.shape != columns.shape or rows.ndim != 1:
        raise CertificateError("row_ind and col_ind must be two vectors of one length")
    if rows.size and not (0 <= rows.min() <= rows.max() < n and 0 <= columns.min() <= columns.max() < m):
        raise CertificateError("a pair names a row or column outside the matrix")
    if (np.diff(rows) < 0).any():
        raise CertificateError("the pairs must be sorted by row")
    taken = np.bincount(rows, minlength=n)
    must = np.ones(n, bool) if gated is None else np.isinf(gated.prices)
    wrong = np.where(must, taken != demand, taken > demand)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CertificateError(f"row {row} has {taken[row]} columns, but demands {demand[row]}")
    counts = np.bincount(columns, minlength=1)
    if counts.max(initial=0) > 1:
        raise CertificateError(f"column {int(np.argmax(counts > 1))} is assigned {counts.max()} times")
    if gated is None:
        return columns
    places = m + np.arange(int(demand.sum()))
    rank = np.arange(rows.size) - np.repeat(np.cumsum(taken) - taken, taken)
    places[np.repeat(np.cumsum(demand) - demand, taken) + rank] = columns
    return places


def _read_pairs(source: CostSource, rows: Array, columns: Array, costs: Array) -> None:
    """Read the costs of pairs of the source's columns. Raises CertificateError for a forbidden one."""
    at = np.flatnonzero(columns < source.shape[1])
    rows, columns = rows[at], columns[at]
    if isinstance(source, Sparse):
        found, listed = listed_costs(source.entries(), rows, columns)
        wrong = np.flatnonzero(~listed | ~np.isfinite(found))
    else:
        found = read_pair_costs(source, rows, columns)
        wrong = np.flatnonzero(~np.isfinite(found))
    if wrong.size:
        pair = int(rows[wrong[0]]), int(columns[wrong[0]])
        raise CertificateError(f"the assignment uses the forbidden pair {pair}")
    costs[at] = found


def _first_pairs(columns: Array | None, demand: Array, m: int) -> Array | None:
    """Return a column of each row, -1 for none: its minimum cannot be above that pair's."""
    if columns is None or not columns.size:
        return None
    first = columns[np.minimum(np.cumsum(demand) - demand, columns.size - 1)]
    found: Array = np.where((demand > 0) & (first < m), first, -1)
    return found


def verify_weighted(
    result: Claim, source: CostSource, unassigned_cost: Any, threads: int = 1, *, pairs: bool = False
) -> Certificate:
    """Verify the result of a problem with capacities or demands."""
    if tuple(source.shape) != tuple(result.shape):
        raise CertificateError(f"the result is for costs of shape {result.shape}, not {tuple(source.shape)}")
    ways: dict[str, Any] = {"maximize": result.maximize, "threads": threads}
    gated = (
        None if unassigned_cost is None else ClippedCosts(source, unassigned_cost, maximize=result.maximize)
    )
    _check_fields(result)
    if gated is not None:
        check_prices(result, gated)
    if result.status == "infeasible":
        found = verify_infeasible(result, source, threads, capacity=result.capacity, demand=result.demand)
        if gated is not None and np.isfinite(gated.prices[result.violator]).any():
            raise CertificateError("the violating set holds a row that need not be assigned")
        return found
    sign = -1 if result.maximize else 1
    known = not unknown(result.v)
    v = sign * result.v if known else np.zeros(result.shape[1])
    low = sign * result.v_low if known and result.v_low is not None else None
    nothing = result.fun is None
    ways |= {"pairs": pairs, "normalise": not known or result.bound is None}
    if result.demand is not None:
        rows, columns = (None, None) if nothing else (result.row_ind, result.col_ind)
        found = certify_demand(source, result.demand, rows, columns, v, low, gated=gated, **ways)
    elif gated is not None:
        col4row = None if nothing else result.col4row
        found = certify_gated(gated, col4row, v, low, threads=threads, pairs=pairs, capacity=result.capacity)
    else:
        assert result.capacity is not None
        col4row = None if nothing else result.col4row
        found = certify_capacities(source, result.capacity, col4row, v, low, **ways)
    _check_claims(result, found, sign, known)
    return found


def _check_claims(result: Claim, found: Certificate, sign: int, known: bool) -> None:
    """Compare duals, cost, bound and gap with those of the certificate."""
    n, m = result.shape
    # As with copies of the columns or rows: more columns than rows, unless all are taken.
    places = m if result.capacity is None else int(result.capacity.sum())
    rows = n if result.demand is None else int(result.demand.sum())
    if result.unassigned_cost is not None:
        places = rows + 1
    wide = replace(result, shape=(rows, max(places, rows)))
    if known and not unknown(result.u):
        check_duals(wide, found, sign)
    check_values(wide, found, sign, bounded=known, counts=(result.demand, result.capacity))


def _check_fields(result: Claim) -> None:
    """Check that the fields are consistent, without reading costs."""
    n, m = result.shape
    for name, counts, size in (("capacity", result.capacity, m), ("demand", result.demand, n)):
        if counts is not None and (counts.shape != (size,) or (counts < 0).any()):
            raise CertificateError(f"{name} of the result is not {size} whole numbers")
    if result.u.shape != (n,) or result.v.shape != (m,):
        raise CertificateError("u or v does not have the length of its side")
    refuse_nan(result)
    side = "col4row" if result.demand is None else "row4col"
    if getattr(result, side) is None:
        raise CertificateError(f"{side} is missing")
    if result.demand is None:
        (rows,) = np.nonzero(result.col4row >= 0)
        if not (
            np.array_equal(result.row_ind, rows) and np.array_equal(result.col_ind, result.col4row[rows])
        ):
            raise CertificateError("row_ind and col_ind disagree with col4row")
    else:
        (columns,) = np.nonzero(result.row4col >= 0)
        order = np.argsort(result.row4col[columns], kind="stable")
        if not (
            np.array_equal(result.col_ind, columns[order])
            and np.array_equal(result.row_ind, result.row4col[columns[order]])
        ):
            raise CertificateError("row_ind and col_ind disagree with row4col")
    if result.success != (result.status in ("optimal", "gap_reached")):
        raise CertificateError(f"success is {result.success} but status is {result.status}")
    if result.fun is None and (len(result.row_ind) or result.success):
        raise CertificateError("the result has no fun although it claims an assignment")
