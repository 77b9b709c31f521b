"""Prices of columns that take no row, and of rows that take no column: the best that the duals allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bigsap.errors import OverflowRiskError
from bigsap.proof.exact import two_sum
from bigsap.result import Result
from bigsap.sources.base import CostSource, Sparse, read_rows
from bigsap.types import Array

# Costs read at a time.
_BLOCK = 1 << 20
# Differences of two numbers below this stay within int64.
_SAFE = 1 << 62
# Whole numbers up to this are floats, too.
_EXACT = 1 << 53
_LARGEST = 2**63 - 1
# Ranges of columns read at most, and columns between two of them at least.
_RANGES, _FAR = 16, 256


def dual_of_closed(result: Result, source: CostSource) -> Result:
    """Return the result with a feasible dual for each column of capacity 0, or row of demand 0.

    They count nothing in the bound, but ``u[i] + v[j] <= cost[i, j]`` holds for all pairs. Reads the
    costs from the first to the last of these columns, each once, or those of these rows.
    """
    counts = result.capacity if result.demand is None else result.demand
    assert counts is not None
    closed = np.flatnonzero(counts == 0)
    by_rows = result.demand is not None
    other, low = (result.v, result.v_low) if by_rows else (result.u, result.u_low)
    if not closed.size or (other.dtype.kind == "f" and np.isnan(other).any()):
        return result
    name, own_low = ("u", result.u_low) if by_rows else ("v", result.v_low)
    dual = getattr(result, name).copy()
    sign = -1 if result.maximize else 1
    whole = dual.dtype.kind == "i" or other.dtype.kind == "i"
    make = _least_whole if whole else _least
    pieces = _pieces(source, closed, by_rows)
    least = make(pieces, closed.size, sign, sign * other, low is not None)
    if not by_rows:
        least = np.minimum(least, 0)
    elif result.unassigned_cost is not None:
        prices = sign * result.unassigned_cost[closed].astype(object)
        least = np.minimum(least, prices if whole else _floats_below(prices))
    if whole:
        least = _within_int64(least, closed, by_rows)
    dual[closed] = sign * (_floats_below(least) if whole and dual.dtype.kind == "f" else least)
    if own_low is not None:
        own_low = own_low.copy()
        own_low[closed] = 0.0
    return replace(result, **{name: dual + 0, f"{name}_low": own_low})


class _Piece(NamedTuple):
    """Some costs of closed lines, one line after the other.

    lines (k,): their places among the closed ones. starts (k,): where the costs of each begin, one at
    least. costs: of pairs with ``others``, rows or columns.
    """

    lines: Array
    starts: Array
    costs: Array
    others: Array


def _pieces(source: CostSource, closed: Array, by_rows: bool) -> Iterator[_Piece]:
    """Yield all costs of closed rows or columns; of sparse costs those that are listed."""
    n, m = (int(size) for size in source.shape)
    if isinstance(source, Sparse):
        listed = _listed(source, closed, n if by_rows else m, by_rows)
        if listed.costs.size:
            yield listed
        return
    if n == 0 or m == 0:
        return
    rows = closed if by_rows else np.arange(n)
    for places in [np.arange(m)] if by_rows else _near(closed):
        ends = (0, m) if by_rows else (int(closed[places[0]]), int(closed[places[-1]]) + 1)
        step = max(1, _BLOCK // (ends[1] - ends[0]))
        for start in range(0, rows.size, step):
            some = rows[start : start + step]
            block = np.empty((some.size, ends[1] - ends[0]), source.dtype)
            read_rows(source, some, slice(*ends), block)
            lines, others = np.arange(start, start + some.size), np.arange(m)
            if not by_rows:
                block, lines, others = block[:, closed[places] - ends[0]].T, places, some
            starts = np.arange(lines.size) * others.size
            yield _Piece(lines, starts, block.ravel(), np.tile(others, lines.size))


def _near(closed: Array) -> list[Array]:
    """Return the places of closed columns, those that are far from each other apart: few ranges are read."""
    gaps = np.diff(closed)
    wide = np.argsort(gaps)[-(_RANGES - 1) :]
    return np.split(np.arange(closed.size), np.sort(wide[gaps[wide] > _FAR]) + 1)


def _listed(source: Sparse, closed: Array, size: int, by_rows: bool) -> _Piece:
    """Return the listed costs of some of ``size`` rows or columns."""
    entries = source.entries()
    own, others = (entries.rows(), entries.columns) if by_rows else (entries.columns, entries.rows())
    place = np.full(size, -1)
    place[closed] = np.arange(closed.size)
    of = place[own]
    (at,) = np.nonzero(of >= 0)
    at = at[np.argsort(of[at], kind="stable")]
    lines, starts = np.unique(of[at], return_index=True)
    costs = entries.costs[at]
    if costs.dtype.kind == "f" or not costs.size or -_EXACT <= costs.min() <= costs.max() <= _EXACT:
        costs = costs.astype(np.float64)
    return _Piece(lines, starts, costs, others[at])


def _least_whole(pieces: Iterator[_Piece], size: int, sign: int, other: Array, _: bool) -> Array:
    """Return the smallest ``sign * cost - other`` of each line, of whole costs; 0 without any."""
    if other.size and max(int(other.max()), -int(other.min())) >= _SAFE:
        other = np.array([math.ceil(x) for x in other.tolist()], object)
    elif other.dtype.kind == "f":
        other = np.ceil(other).astype(np.int64)
    found, known = np.zeros(size, object), np.zeros(size, np.bool_)
    for lines, starts, costs, others in pieces:
        fits = int(costs.min()) > -_SAFE and int(costs.max()) < _SAFE
        signed = sign * costs.astype(np.int64 if fits else object)
        least = np.minimum.reduceat(signed - other[others], starts).astype(object)
        found[lines] = np.where(known[lines], np.minimum(found[lines], least), least)
        known[lines] = True
    return found


def _within_int64(least: Array, closed: Array, by_rows: bool) -> Array:
    """Return whole duals (object) that int64 holds, lower where they need not be so large."""
    beyond = np.flatnonzero(least < -_LARGEST)
    if beyond.size:
        raise OverflowRiskError(
            f"the dual of {'row' if by_rows else 'column'} {closed[beyond[0]]}, which takes nothing, leaves"
            " int64: the integer costs are too large; scale them down, or convert them to float64"
        )
    return np.minimum(least, _LARGEST)


def _floats_below(whole: Array) -> Array:
    """Return the largest floats that are not above numbers (object)."""
    near = whole.astype(np.float64)
    above = near.astype(object) > whole
    return np.where(above, np.nextafter(near, -np.inf), near)


def _least(pieces: Iterator[_Piece], size: int, sign: int, other: Array, two_parts: bool) -> Array:
    """Return a float just below every ``sign * cost - other`` of each line; 0 without any."""
    least, largest, rounded = np.full(size, np.inf), np.zeros(size), np.zeros(size, np.bool_)
    for lines, starts, costs, others in pieces:
        given = sign * costs.astype(np.float64)
        with np.errstate(invalid="ignore"):
            high, rest = two_sum(given, -other[others])
        finite = np.isfinite(high)
        least[lines] = np.minimum(least[lines], np.minimum.reduceat(np.where(finite, high, np.inf), starts))
        largest[lines] = np.maximum(
            largest[lines], np.maximum.reduceat(np.where(finite, np.abs(given), 0.0), starts)
        )
        inexact = (finite & (rest != 0)) | (two_parts or given.dtype != costs.dtype)
        rounded[lines] |= np.logical_or.reduceat(inexact, starts)
    # Rounded parts are below a unit in the last place of the largest number.
    largest = np.maximum(largest, np.abs(other).max(initial=0.0))
    known = np.isfinite(least)
    below = np.nextafter(least[known] - 2 * np.spacing(largest[known]), -np.inf)
    least[known] = np.where(rounded[known], below, least[known])
    return np.where(known, least, 0.0)
