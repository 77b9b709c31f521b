"""Compiled inner loop of the proof by matrix products: which pairs may hold a row's least ``c - v``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.proof.scan import Minima, Near, exact_difference, is_less, margin_of, note
from bigsap.sources.compiled import address_of, call_fill
from bigsap.types import Array

#: Columns of which all or none are looked at singly.
GROUP = 64
# Results of ``exclude``.
DONE, INVALID = 0, 1


class Panel(NamedTuple):
    """Inner products of some rows with some columns, float32 or float64, and what makes bounds of them.

    inner: (rows, width). column: (m,) what is added to those of a column. spread: (m,), size: (rows,): the
    product of both is taken off. root: (m,) prices, taken off the root of the sum; empty without roots.
    own: float64 (rows,) of the row, added last, within roots. unit: by which the costs are multiplied.
    first_row, first_column: of the panel.
    """

    inner: Array
    column: Array
    spread: Array
    size: Array
    root: Array
    own: Array
    unit: float
    first_row: int
    first_column: int


class Filler(NamedTuple):
    """The source's compiled costs; sign: -1.0 to maximise."""

    address: int
    context: int
    sign: float


@kernel
def _limit(limit: float, own: float, unit: float, rooted: bool) -> float:
    """Return the largest sum of inner product and column terms of a pair within the limit, and some more."""
    if limit == np.inf:
        return np.inf
    x = limit * unit
    if rooted:
        return x + (4e-7 * abs(x) + 1e-36)
    return (x - own) + (4e-7 * abs(x - own) + 1e-15 * (abs(x) + abs(own)) + 1e-36)


@kernel
def _bounds(p: Panel, r: int, first: int, n: int, own: float, out: Array) -> None:
    """Compute the bounds of n columns from ``first`` of the panel; own: of the dtype of the products."""
    t, size, at = p.inner[r], p.size[r], p.first_column + first
    for q in range(n):
        out[q] = (t[first + q] + p.column[at + q]) - size * p.spread[at + q]
    if p.root.size:
        for q in range(n):
            x = out[q] + own
            out[q] = np.sqrt(x if x > 0 else x - x) - p.root[at + q]


@kernel
def exclude(
    p: Panel,
    fill: Filler,
    own: Array,
    prices: Array,
    below: Array,
    width: float,
    reach: float,
    found: Minima,
    near: Near,
    some: Array,
    cost: Array,
    counts: Array,
) -> int:
    """Lower the rows' minima to those of a panel's pairs; read only pairs that bounds do not exclude.

    own: ``p.own`` in the dtype of the products, with roots. prices, below, width, found, near: as for
    ``scan.scan_rows``. reach: the largest low part of a price. some: (GROUP + 1,) of the
    products' dtype, cost: float64 (1,), workspace. counts: (1,) int64, raised by the pairs read.
    Returns INVALID for a NaN or a difference of -inf.
    """
    rows, columns = p.inner.shape
    rooted = p.root.size > 0
    for k in range(rows):
        r = p.first_row + k
        for first in range(0, columns, GROUP):
            n = min(GROUP, columns - first)
            _bounds(p, k, first, n, own[k], some)
            base = found.high[r]
            limit = np.inf if base == np.inf else base + margin_of(base, width, reach)
            most = _limit(limit, p.own[k], p.unit, rooted)
            some[GROUP] = most
            excluded = 0
            for q in range(n):
                excluded += 1 if some[q] > some[GROUP] else 0
            if excluded == n:
                continue
            for q in range(n):
                if some[q] > some[GROUP]:
                    continue
                j = p.first_column + first + q
                call_fill(fill.address, fill.context, r, j, j + 1, address_of(cost))
                counts[0] += 1
                c = fill.sign * cost[0]
                low_part = below[j] if below.size > 0 else 0.0
                rounded = (c - prices[j]) - low_part
                if not rounded > -np.inf:
                    return INVALID
                base = found.high[r]
                if rounded == np.inf or (base < np.inf and rounded > base + margin_of(base, width, reach)):
                    continue
                a, b, d = exact_difference(c, prices[j], low_part)
                if is_less(a, b, d, base, found.mid[r], found.low[r]):
                    found.high[r], found.mid[r], found.low[r] = a, b, d
                    # Fewer of the others remain.
                    some[GROUP] = _limit(a + margin_of(a, width, reach), p.own[k], p.unit, rooted)
                note(near, r, j, c)
    return DONE
