"""The certificate's pass over sparse costs: row duals and assigned costs from the listed pairs.

Pairs that are not listed are forbidden and bound nothing. All differences are exact, as in
``row_minima``.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.errors import CertificateError, InvalidCostError, OverflowRiskError
from bigsap.proof import scan
from bigsap.proof.refusals import reach
from bigsap.proof.row_minima import (
    NearPairs,
    Prices,
    RowMinima,
    least_differences,
    margins_of,
    parts_of,
    sample_of,
    some_parts,
)
from bigsap.sources.base import CostSource, Entries, Sparse
from bigsap.types import Array, Tick

#: Entries of a slice, after which the clock is looked at.
_SLICE = 1 << 21
#: Near pairs recorded at most: this many a row, and a constant.
_NEAR_A_ROW, _NEAR = 4, 1 << 12
_WORST = np.int64(np.iinfo(np.int64).max)
#: Flags of ``scan_entries``.
INVALID = 1


@kernel
def scan_entries(
    start: Array,
    columns: Array,
    costs: Array,
    first: int,
    stop: int,
    sign: float,
    prices: Array,
    below: Array,
    found: scan.Minima,
) -> int:
    """Find the exact least ``sign * cost - price`` of some rows; return INVALID for a NaN or -inf."""
    flags = 0
    paired = below.size > 0
    for row in range(first, stop):
        best, mid, low = np.inf, 0.0, 0.0
        for k in range(start[row], start[row + 1]):
            c, j = sign * costs[k], columns[k]
            if not c > -np.inf:
                flags |= INVALID
            if not c < np.inf:
                continue
            a, b, d = scan.exact_difference(c, prices[j], below[j] if paired else 0.0)
            if scan.is_less(a, b, d, best, mid, low):
                best, mid, low = a, b, d
        found.high[row], found.mid[row], found.low[row] = best, mid, low
    return flags


@kernel
def near_entries(
    start: Array,
    columns: Array,
    costs: Array,
    first: int,
    stop: int,
    sign: float,
    prices: Array,
    below: Array,
    width: float,
    found: scan.Minima,
    near: scan.Near,
) -> None:
    """Record the pairs of some rows within ``width`` of their row's least difference."""
    paired = below.size > 0
    for row in range(first, stop):
        if found.high[row] == np.inf:
            continue
        for k in range(start[row], start[row + 1]):
            c, j = sign * costs[k], columns[k]
            if not c < np.inf:
                continue
            a, b, _ = scan.exact_difference(c, prices[j], below[j] if paired else 0.0)
            excess = (a - found.high[row]) + (b - found.mid[row])
            if excess <= width + 2.0**-49 * abs(found.high[row]):
                scan.note(near, row, j, c)


@kernel
def scan_whole(
    start: Array, columns: Array, costs: Array, first: int, stop: int, sign: int, prices: Array, least: Array
) -> None:
    """Find the least ``sign * cost - price`` of some rows, in int64, where no difference leaves it."""
    for row in range(first, stop):
        best = least[row]
        for k in range(start[row], start[row + 1]):
            best = min(best, sign * np.int64(costs[k]) - prices[columns[k]])
        least[row] = best


@kernel
def take_pairs(
    start: Array, columns: Array, costs: Array, matching: Array, matched: Array, found: Array
) -> None:
    """Copy the costs of assigned pairs that are listed, and say which are: found, uint8 (n,)."""
    for row in range(matching.size):
        column = matching[row]
        if column < 0:
            continue
        for k in range(start[row], start[row + 1]):
            if columns[k] == column:
                matched[row] = costs[k]
                found[row] = 1
                break


def listed_minima(
    source: Sparse,
    shape: tuple[int, int],
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    tick: Tick | None,
    *,
    width: float | None = None,
) -> RowMinima:
    """Compute ``row_minima`` of sparse costs from their entries.

    Time O(entries), memory the three parts of the minima; with ``width`` 24 bytes for each near pair.
    """
    entries, n = source.entries(), shape[0]
    integer = entries.costs.dtype.kind in "iu"
    matched = np.zeros(n, np.int64 if integer else np.float64)
    if matching is not None:
        there = np.zeros(n, np.uint8)
        take_pairs(*entries, matching, matched, there)
        wrong = np.flatnonzero((matching >= 0) & ((there == 0) | ~np.isfinite(matched)))
        if wrong.size:
            row = int(wrong[0])
            raise CertificateError(f"the assignment uses the forbidden pair ({row}, {matching[row]})")
    if prices.integer:
        return RowMinima(_whole_minima(entries, n, prices.high, maximize, tick), None, None, matched)
    if integer and reach(entries.costs) > 2**53:
        return replace(_by_fractions(entries, n, prices, maximize), matched=matched)
    return _real_minima(entries, n, prices, maximize, tick, width, matched)


def _slices(entries: Entries, n: int) -> list[tuple[int, int]]:
    """Return ranges of rows of about as many entries each."""
    ends = np.searchsorted(entries.start, np.arange(0, entries.columns.size + _SLICE, _SLICE), side="left")
    places = np.unique(np.concatenate(([0], np.minimum(ends, n), [n])))
    return list(zip(places[:-1].tolist(), places[1:].tolist(), strict=True))


def _real_minima(
    entries: Entries,
    n: int,
    prices: Prices,
    maximize: bool,
    tick: Tick | None,
    width: float | None,
    matched: Array,
) -> RowMinima:
    found = scan.no_minima(n)
    near = scan.no_near(0 if width is None else _NEAR_A_ROW * n + _NEAR)
    sign = -1.0 if maximize else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for first, stop in _slices(entries, n):
            flags = scan_entries(*entries, first, stop, sign, prices.high, prices.below(), found)
            if flags & INVALID:
                refuse_entry(entries, maximize)
            if width is not None:
                near_entries(*entries, first, stop, sign, prices.high, prices.below(), width, found, near)
            if tick is not None:
                tick(stop)
    none = found.high == np.inf  # no entry is allowed, or all differences leave float64
    lost = none.any() and np.isfinite(entries.costs[np.repeat(none, np.diff(entries.start))]).any()
    if lost or not (found.high > -np.inf).all() or np.isnan(found.high).any():
        raise OverflowRiskError("a row's dual leaves float64")
    pairs = None
    if width is not None and not near.counts[1]:
        size = near.counts[0]
        pairs = NearPairs(width, *(part[:size].copy() for part in near[:3]))
    return RowMinima(*some_parts(found), matched, pairs, _margins(entries, n, prices, sign))


def refuse_entry(entries: Entries, maximize: bool) -> None:
    """Raise InvalidCostError for the first NaN or infinity that does not mean forbidden."""
    wrong = np.inf if maximize else -np.inf
    bad = np.isnan(entries.costs) | (entries.costs == wrong)
    if not bad.any():
        return
    k = int(bad.argmax())
    row, column = int(np.searchsorted(entries.start, k, side="right")) - 1, int(entries.columns[k])
    allowed = "-inf (forbidden)" if maximize else "+inf (forbidden)"
    raise InvalidCostError(
        f"matrix contains invalid numeric entries: cost[{row}, {column}] is {entries.costs[k]};"
        f" costs must be finite or {allowed}",
        row,
        column,
    )


def _margins(entries: Entries, n: int, prices: Prices, sign: float) -> Array:
    rows = sample_of(n)
    smallest = []
    for row in rows.tolist():
        some = slice(int(entries.start[row]), int(entries.start[row + 1]))
        own = np.full(8, np.inf)
        if some.stop > some.start:
            ids = entries.columns[some]
            low = None if prices.low is None else prices.low[ids]
            least = least_differences(sign * entries.costs[some].astype(np.float64), prices.high[ids], low)
            own[: least.size] = least
        smallest.append(own)
    return margins_of(np.array(smallest).reshape(-1, 8))


def _whole_minima(entries: Entries, n: int, prices: Array, maximize: bool, tick: Tick | None) -> Array:
    """Return int64 minima, exact also where differences leave int64."""
    least = np.full(n, _WORST)
    if not entries.columns.size:
        return least
    low, high = int(entries.costs.min()), int(entries.costs.max())
    size = max(-low, high) + reach(prices)
    sign = -1 if maximize else 1
    if size < 2**63 - 1:
        for first, stop in _slices(entries, n):
            scan_whole(*entries, first, stop, sign, prices, least)
            if tick is not None:
                tick(stop)
        return least
    for row in range(n):
        some = slice(int(entries.start[row]), int(entries.start[row + 1]))
        costs, ids = entries.costs[some].tolist(), entries.columns[some]
        each = [sign * c - v for c, v in zip(costs, prices[ids].tolist(), strict=True)]
        if not each:
            continue
        best = min(each)
        if not -(2**63) < best < int(_WORST):
            raise OverflowRiskError("a row dual leaves int64: the integer costs are too large")
        least[row] = best
    return least


def _by_fractions(entries: Entries, n: int, prices: Prices, maximize: bool) -> RowMinima:
    """Compute minima of integers beyond float64's precision, at real prices."""
    found = scan.no_minima(n)
    sign = -1 if maximize else 1
    below = np.zeros(prices.high.size) if prices.low is None else prices.low
    for row in range(n):
        some = slice(int(entries.start[row]), int(entries.start[row + 1]))
        ids = entries.columns[some]
        each = [
            sign * c - Fraction(a) - Fraction(b)
            for c, a, b in zip(
                entries.costs[some].tolist(), prices.high[ids].tolist(), below[ids].tolist(), strict=True
            )
        ]
        if each:
            found.high[row], found.mid[row], found.low[row] = parts_of(min(each))
    return RowMinima(*some_parts(found), np.zeros(n, np.int64))


def clipped_costs(source: Sparse, matching: Array, cap: Array, maximize: bool, n_columns: int) -> Array:
    """Return the assigned pairs' costs where costs are clipped at each row's cap.

    A pair that is not listed, or a column beyond the costs, costs the cap.
    """
    entries = source.entries()
    # Any value that clips: the cap itself, in the wider type.
    matched = cap.astype(np.int64 if entries.costs.dtype.kind in "iu" else np.float64)
    listed = np.zeros(matching.size, np.uint8)
    take_pairs(*entries, np.where(matching < n_columns, matching, -1), matched, listed)
    matched = np.maximum(matched, cap) if maximize else np.minimum(matched, cap)
    found: Array = np.where(matching < 0, 0, matched)
    return found


def listed_columns(source: CostSource, rows: Array, maximize: bool) -> Array:
    """Return the columns that some row of ``rows`` allows."""
    assert isinstance(source, Sparse)
    entries = source.entries()
    allowed = np.zeros(source.shape[1], bool)
    chosen = np.zeros(source.shape[0], bool)
    chosen[rows] = True
    some = np.repeat(chosen, np.diff(entries.start))
    costs, ids = entries.costs[some], entries.columns[some]
    if costs.dtype.kind == "f":
        refuse_entry(entries, maximize)
        ids = ids[np.isfinite(costs)]
    allowed[ids] = True
    found: Array = np.flatnonzero(allowed)
    return found
