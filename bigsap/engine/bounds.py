"""Lower bounds of ``c - v`` over blocks of columns, without looking at the columns.

A source that is *separable* (see ``sources.base``) gives each column a point of few
coordinates. Over a block of columns the prices are majorised by an affine function of
that point, ``v[j] <= offset + slope . y[j]`` (least-squares slope, offset the largest
residual; it stays valid as prices fall). The smallest ``c - offset - slope . y`` over the
block's bounding box then has a closed form, coordinate by coordinate, whose error is of
second order in the size of the box. Subtracting merely the block's largest price would be
too weak where matched pairs lie far apart: there the slopes of cost and price cancel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bigsap.sources.base import Array, Separable

#: Columns per block.
BLOCK = 128
#: More coordinates than this, and boxes bound hardly anything.
MOST_COORDINATES = 6

SQUARE, ABSOLUTE, PRODUCT, ROOT, LARGEST = range(5)
KINDS = {
    "square": SQUARE,
    "absolute": ABSOLUTE,
    "product": PRODUCT,
    "root": ROOT,
    "largest": LARGEST,
}


class Blocks(NamedTuple):
    """Boxes and majorants. Empty arrays when the source has no bounds.

    x: float64 (n_rows, d). low, high: (d, n_blocks) boxes. weight: (d,).
    slope: (d, n_blocks), offset: (n_blocks,). kind: one of KINDS. margin: float64 (1,),
    how much a bound is lowered against rounding.
    """

    x: Array
    low: Array
    high: Array
    weight: Array
    slope: Array
    offset: Array
    margin: Array
    kind: int


def no_blocks() -> Blocks:
    """Blocks of a source without bounds."""
    flat, row = np.empty((0, 0)), np.empty(0)
    return Blocks(flat, flat, flat, row, flat, row, np.zeros(1), 0)


def blocks_of(source: Any) -> Blocks:
    """The blocks of a separable source, with majorants still to be fitted."""
    if not isinstance(source, Separable):
        return no_blocks()
    terms = source.separable()
    if terms is None or terms.y.shape[0] > MOST_COORDINATES or terms.y.shape[1] < 2 * BLOCK:
        return no_blocks()
    d, m = terms.y.shape
    n_blocks = -(-m // BLOCK)
    starts = np.arange(n_blocks) * BLOCK
    low = np.minimum.reduceat(terms.y, starts, axis=1)
    high = np.maximum.reduceat(terms.y, starts, axis=1)
    return Blocks(
        x=np.ascontiguousarray(terms.x, np.float64),
        low=low,
        high=high,
        weight=np.ascontiguousarray(terms.weight, np.float64),
        slope=np.zeros((d, n_blocks)),
        offset=np.zeros(n_blocks),
        margin=np.zeros(1),
        kind=KINDS[terms.kind],
    )


def separated_columns(source: Separable) -> Array:
    """The column points (d, m) of a source that has blocks."""
    terms = source.separable()
    return np.empty((0, 0)) if terms is None else terms.y


def fit(blocks: Blocks, y: Array, v: Array) -> None:
    """Fit the majorants to the present prices. y: (d, m) as in the source. O(m d**2)."""
    _fit(y, v, blocks.slope, blocks.offset, blocks.kind)
    reach = np.maximum(np.abs(blocks.low), np.abs(blocks.high)).max(axis=1)
    far = reach + np.abs(blocks.x).max(axis=0)
    w = blocks.weight
    cost = {
        SQUARE: (w * far**2).sum(),
        ABSOLUTE: (w * far).sum(),
        PRODUCT: (w * far**2).sum(),
        ROOT: np.sqrt((w * far**2).sum()),
        LARGEST: (w * far).max(),
    }[blocks.kind]
    size = cost + (np.abs(blocks.slope).max(axis=1) * far).sum() + np.abs(blocks.offset).max()
    blocks.margin[0] = 128 * np.finfo(np.float64).eps * size


@njit(nogil=True, cache=True)
def _fit(y: Array, v: Array, slope: Array, offset: Array, kind: int) -> None:
    d, m = y.shape
    normal = np.empty((d, d))
    right = np.empty(d)
    mean = np.empty(d)
    for block in range(offset.size):
        start, stop = block * BLOCK, min((block + 1) * BLOCK, m)
        count = stop - start
        if kind in (SQUARE, ABSOLUTE, PRODUCT):
            price = 0.0
            for j in range(start, stop):
                price += v[j]
            price /= count
            for a in range(d):
                mean[a] = 0.0
                for j in range(start, stop):
                    mean[a] += y[a, j]
                mean[a] /= count
            for a in range(d):
                right[a] = 0.0
                for j in range(start, stop):
                    right[a] += (y[a, j] - mean[a]) * (v[j] - price)
                for b in range(d):
                    normal[a, b] = 0.0
                    for j in range(start, stop):
                        normal[a, b] += (y[a, j] - mean[a]) * (y[b, j] - mean[b])
            # A ridge keeps blocks of few distinct points solvable; any slope is valid.
            ridge = 1e-300
            for a in range(d):
                ridge += 1e-9 * normal[a, a]
            for a in range(d):
                normal[a, a] += ridge
            for a in range(d):
                pivot = normal[a, a]
                for b in range(a + 1, d):
                    factor = normal[b, a] / pivot
                    for c in range(a, d):
                        normal[b, c] -= factor * normal[a, c]
                    right[b] -= factor * right[a]
            for a in range(d - 1, -1, -1):
                total = right[a]
                for c in range(a + 1, d):
                    total -= normal[a, c] * slope[c, block]
                total /= normal[a, a]
                slope[a, block] = total if abs(total) < 1e150 else 0.0
        else:
            for a in range(d):
                slope[a, block] = 0.0
        largest = -np.inf
        for j in range(start, stop):
            rest = v[j]
            for a in range(d):
                rest -= slope[a, block] * y[a, j]
            largest = max(largest, rest)
        offset[block] = largest


@njit(nogil=True, cache=True)
def bound_row(row: int, b: Blocks, out: Array) -> None:
    """out[J] = a lower bound of ``c[row, j] - v[j]`` over the columns of block J."""
    d, n_blocks = b.low.shape
    kind, margin = b.kind, b.margin[0]
    for block in range(n_blocks):
        out[block] = 0.0
    for a in range(d):
        x, w = b.x[row, a], b.weight[a]
        low, high, slope = b.low[a], b.high[a], b.slope[a]
        if kind == SQUARE:
            half = 0.5 / w
            for block in range(n_blocks):
                g = slope[block]
                y = x + g * half
                y = low[block] if y < low[block] else y
                y = high[block] if y > high[block] else y
                out[block] += w * (x - y) * (x - y) - g * y
        elif kind == ABSOLUTE:
            for block in range(n_blocks):
                g, p, q = slope[block], low[block], high[block]
                y = p if x < p else x
                y = q if y > q else y
                best = w * abs(x - y) - g * y
                other = w * abs(x - p) - g * p
                best = other if other < best else best
                other = w * abs(x - q) - g * q
                out[block] += other if other < best else best
        elif kind == PRODUCT:
            for block in range(n_blocks):
                t = w * x - slope[block]
                p, q = t * low[block], t * high[block]
                out[block] += p if p < q else q
        else:
            for block in range(n_blocks):
                y = low[block] if x < low[block] else x
                y = high[block] if y > high[block] else y
                if kind == ROOT:
                    out[block] += w * (x - y) * (x - y)
                else:
                    t = w * abs(x - y)
                    out[block] = t if t > out[block] else out[block]
    offset = b.offset
    if kind == ROOT:
        for block in range(n_blocks):
            out[block] = np.sqrt(out[block]) - offset[block] - margin
    else:
        for block in range(n_blocks):
            out[block] = out[block] - offset[block] - margin
