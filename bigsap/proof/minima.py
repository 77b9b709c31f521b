"""Row duals of the certificate: by bounds if that is less work, else by the pass."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bigsap import policy
from bigsap.errors import CertificateError, OverflowRiskError
from bigsap.proof import scan
from bigsap.proof.descending import descended
from bigsap.proof.geometry import MOST_COORDINATES, boundable, geometry
from bigsap.proof.listed import clipped_costs, listed_minima
from bigsap.proof.multiplied import is_product, multiplied
from bigsap.proof.refusals import reach
from bigsap.proof.row_minima import (
    Prices,
    RowMinima,
    bounded_minima,
    least_differences,
    margins_of,
    row_minima,
    sample_of,
    some_parts,
    whole,
)
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.proof.scan import fold
from bigsap.proof.tighten import largest
from bigsap.sources.base import CostSource, Fill, Minimised, Resident, Sparse
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.filling import fill_of
from bigsap.types import Array, Tick

_PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Looked:
    """Method and work by which row duals were found.

    by: "bounds" or "pairs". pairs: how many costs were read, also in failed attempts. bounds: how
    many bounds of boxes were computed.
    """

    by: str
    pairs: int
    bounds: int = 0


def minima(
    source: CostSource,
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Tick | None = None,
    *,
    every_pair: bool = False,
    width: float | None = None,
    if_few: bool = False,
) -> tuple[RowMinima, Looked]:
    """Compute ``row_minima`` of (n, m) costs, the same bits, with fewer pairs if bounds allow it.

    every_pair: always make the pass. if_few: near pairs are welcome, but bounds record them only if a
    sample of rows has few. Other arguments and errors as for ``row_minima``, n and m at
    least 1. Time O(n m) at worst; O((n + m) log m) if prices follow the points. Memory
    O((n + m) d) besides the pass's.
    """
    listed = source.source if isinstance(source, ClippedCosts) else source
    if isinstance(listed, Sparse):
        every = Looked("pairs", listed.entries().columns.size)
        if isinstance(source, ClippedCosts):
            return _clipped_entries(source, listed, matching, prices, tick, width), every
        return listed_minima(listed, source.shape, matching, prices, maximize, tick, width=width), every
    pairs = bounds = 0
    if not every_pair and not isinstance(source, Minimised):
        found = by_bounds(source, matching, prices, maximize, threads, tick, width=width, if_few=if_few)
        if isinstance(found, Looked):
            pairs, bounds = found.pairs, found.bounds
        elif found is not None:
            return found
    if not every_pair and width is None:
        bounded = bounded_minima(source, matching, prices, maximize, tick)
        if bounded is not None:
            return bounded[0], Looked("bounds", bounded[1], math.prod(source.shape))
    every = Looked("pairs", pairs + math.prod(source.shape), bounds)
    if isinstance(source, ClippedCosts) and _lies_as_it_is(source):
        with suppress(OverflowRiskError):  # the pass over clipped costs then reports the error
            return _clipped(source, matching, prices, threads, block_bytes, tick, width), every
    every_row = row_minima(source, matching, prices, maximize, threads, block_bytes, tick, width=width)
    return every_row, every


def _lies_as_it_is(gate: ClippedCosts) -> bool:
    """Check whether the costs before clipping lie in memory, of the same type."""
    given = gate.given
    here = isinstance(given, Resident) and given.resident() is not None
    return here and given.dtype == gate.dtype and gate.n_columns > 0


def _clipped(
    gate: ClippedCosts,
    matching: Array | None,
    prices: Prices,
    threads: int,
    block_bytes: int,
    tick: Tick | None,
    width: float | None,
) -> RowMinima:
    """Compute ``row_minima`` of clipped costs from the original ones, without copies of blocks."""
    m, maximize = gate.n_columns, gate.maximize
    inner = Prices(prices.high[:m], None if prices.low is None else prices.low[:m])
    given = row_minima(gate.given, None, inner, maximize, threads, block_bytes, tick, width=width)
    matched = given.matched
    if matching is not None:
        (rows,) = np.nonzero(matching >= 0)
        matched[rows] = gate.cap[rows]
        rows = rows[matching[rows] < m]
        assert isinstance(gate.given, Resident)
        matrix = gate.given.resident()
        assert matrix is not None
        clip = np.maximum if maximize else np.minimum
        matched[rows] = clip(matrix[rows, matching[rows]], gate.cap[rows])
        if not np.isfinite(matched).all():
            raise OverflowRiskError("a forbidden pair: the pass says which")
    return capped(given, gate, prices)


def _clipped_entries(
    gate: ClippedCosts,
    listed: Sparse,
    matching: Array | None,
    prices: Prices,
    tick: Tick | None,
    width: float | None,
) -> RowMinima:
    """Compute ``row_minima`` of clipped sparse costs: pairs that are not listed cost the cap."""
    m, maximize = gate.n_columns, gate.maximize
    inner = Prices(prices.high[:m], None if prices.low is None else prices.low[:m])
    given = listed_minima(listed, (gate.shape[0], m), None, inner, maximize, tick, width=width)
    if matching is not None:
        matched = clipped_costs(listed, matching, gate.cap, maximize, m)
        forbidden = np.flatnonzero(~np.isfinite(matched))
        if forbidden.size:
            row = int(forbidden[0])
            raise CertificateError(f"the assignment uses the forbidden pair ({row}, {matching[row]})")
        given = replace(given, matched=matched)
    return capped(given, gate, prices)


def capped(given: RowMinima, gate: ClippedCosts, prices: Prices) -> RowMinima:
    """Return the minima of clipped costs from those of the original costs.

    min(c, cap) - v is the smaller of both differences; that of the cap is least at the largest price.
    """
    free = np.flatnonzero(np.isfinite(gate.prices))
    cap = (-1 if gate.maximize else 1) * gate.cap[free].astype(prices.high.dtype)
    if prices.integer:
        if max(reach(cap), reach(prices.high)) >= 1 << 62:
            raise OverflowRiskError("a difference may leave int64")
        high = given.high.copy()
        high[free] = np.minimum(high[free], cap - prices.high.max())
        return replace(given, high=high)
    top = largest(prices)
    n = given.high.size
    found = scan.Minima(*(x.copy() for x in whole(given)))
    with np.errstate(over="ignore", invalid="ignore"):
        fold(free, np.zeros(free.size, np.int64), cap, np.array([top[0]]), np.array([top[1]]), found)
    caps = np.full(n, np.inf)
    caps[free] = cap
    return replace(given, high=found.high, mid=found.mid, low=found.low, cap=caps)


def by_bounds(
    source: CostSource,
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    threads: int = 1,
    tick: Tick | None = None,
    *,
    at_any_size: bool = False,
    width: float | None = None,
    if_few: bool = False,
) -> tuple[RowMinima, Looked] | Looked | None:
    """Compute ``minima`` by bounds alone; None if the source or its size does not suit them.

    Returns only the wasted work if bounds exclude too little, or if a fully read sample of rows
    disagrees.
    """
    n, m = source.shape
    pair = boundable(source)
    if pair is None or prices.integer:
        return None
    inner, gate = pair
    points = geometry(inner) if at_any_size or _large(source) else None
    products = at_any_size or n * m >= policy.PROOF_PRODUCT_PAIRS
    if points is None and (not products or not is_product(inner)):
        return None
    fill = fill_of(source)
    if fill is None:
        return None
    matched = _assigned_costs(fill, matching, n, tick)
    if matched is None:
        return None  # the pass reports which one is forbidden
    best = scan.no_minima(n)
    looked = 0
    if matching is not None:
        rows = np.flatnonzero(matching >= 0)
        looked = rows.size
        signed = -matched[rows] if maximize else matched[rows]
        fold(rows, matching[rows], signed, prices.high, prices.below(), best)
    found = RowMinima(best.high, best.mid, best.low, matched)
    if gate is not None:
        # The additional columns are included.
        found = capped(found, gate, prices)
    done, bounds = None, 0
    with np.errstate(over="ignore"):
        if points is not None:
            given = (inner, points, whole(found), matching, prices, maximize, threads, tick, width)
            done = descended(*given, if_few=if_few)
        if products and (done is None or not done.finished):
            if done is not None:
                looked, bounds = looked + done.pairs, done.bounds
            near = None if if_few else width
            own = prices.of_first(inner.shape[1])
            again = multiplied(inner, whole(found), own, maximize, threads, tick, near)
            done = done if again is None else again
    if done is None:
        return None
    bounds += done.bounds
    if not done.finished:
        return Looked("pairs", looked + done.pairs, bounds)
    if not np.isfinite(done.minima.high).all():
        return None  # the pass reports the overflow
    sample = sample_of(n)
    looked += done.pairs + sample.size * m
    margins = _as_read(source, sample, prices, maximize, done.minima)
    if margins is None:
        return Looked("pairs", looked, bounds)
    minima = RowMinima(*some_parts(done.minima), matched, done.near, margins, found.cap)
    return minima, Looked("bounds", looked, bounds)


def _assigned_costs(fill: Fill, matching: Array | None, n: int, tick: Tick | None) -> Array | None:
    """Return (n,) costs of the assigned pairs, 0 for other rows; None if one is forbidden."""
    from bigsap.sources.compiled import read_pairs

    matched = np.zeros(n)
    rows = np.flatnonzero(matching >= 0) if matching is not None else np.empty(0, np.intp)
    for start in range(0, rows.size, _PAIRS_AT_ONCE):
        assert matching is not None
        some = rows[start : start + _PAIRS_AT_ONCE]
        costs = np.empty(some.size)
        read_pairs(fill, some, matching[some], costs)
        matched[some] = costs
        if tick is not None:
            tick(0)
    return matched if np.isfinite(matched).all() else None


def _large(source: CostSource) -> bool:
    """Return whether bounds of boxes may pay."""
    n, m = source.shape
    return n >= policy.PROOF_BOUNDS_ROWS and n * m >= policy.PROOF_BOUNDS_PAIRS


def may_bound(source: CostSource) -> bool:
    """Check whether a source and its size suit bounds of boxes."""
    pair = None if isinstance(source, Minimised) or not _large(source) else boundable(source)
    formula = pair is not None and isinstance(pair[0], ExpressionSource)
    return pair is not None and not formula and not is_product(pair[0], MOST_COORDINATES + 1)


def seconds_by_bounds(source: CostSource) -> float:
    """Estimate the longest time of a proof by bounds, for prices near a solve's.

    Infinite if the source or its size does not suit bounds.
    """
    return policy.PROOF_BOUNDS_ROW_SECONDS * sum(source.shape) if may_bound(source) else math.inf


def _as_read(
    source: CostSource, rows: Array, prices: Prices, maximize: bool, found: scan.Minima
) -> Array | None:
    """Return margins of rows whose minima agree with their costs, read as in the pass.

    None if they do not agree.
    """
    n_columns = source.shape[1]
    costs = np.empty((1, n_columns), source.dtype)
    smallest = []
    for row in rows.tolist():
        source.read(np.array([row]), slice(0, n_columns), costs)
        own = scan.no_minima(1)
        line = costs[0].astype(np.float64)
        scan.scan_rows(
            line.ctypes.data,
            n_columns,
            1,
            n_columns,
            -1.0 if maximize else 1.0,
            prices.high,
            prices.below(),
            0,
            0,
            0.0,
            own,
            scan.no_near(0),
        )
        if any(a[0] != b[row] for a, b in zip(own, found, strict=True)):
            return None
        smallest.append(least_differences(-line if maximize else line, prices.high, prices.low))
    return margins_of(np.array(smallest))
