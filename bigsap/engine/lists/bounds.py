"""Lower bounds of ``c - v`` over blocks of columns, without reading the columns.

A source that is *separable* (see ``sources.base``) gives each column a point of few
coordinates. Over a block of columns the prices are majorised by an affine function of
that point, ``v[j] <= offset + slope . y[j]`` (least-squares slope, offset the largest
residual; it stays valid as prices fall). The smallest ``c - offset - slope . y`` over the
block's bounding box then has a closed form, coordinate by coordinate, whose error is of
second order in the size of the box. Subtracting only the block's largest price would be
too weak if matched pairs lie far apart: there the slopes of cost and price cancel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.compile.decorator import kernel
from bigsap.engine.core.team import Team
from bigsap.sources.base import Separable, Separation
from bigsap.sources.convert import read_only
from bigsap.types import Array

#: Columns per block, and blocks per group: two levels, so that most blocks are excluded without
#: computing their own bound.
BLOCK = 128
GROUP = 16
#: With more coordinates, boxes are hardly useful as bounds (see ``policy.FEW_COORDINATES``).
MOST_COORDINATES = policy.BOX_COORDINATES

#: A point is an outlier if it is this many times farther from 0 than most; and if its margin is
#: this many times that of most blocks, the others get margins of their own.
_FAR, _HEAVY = 100.0, 1000.0

SQUARE, ABSOLUTE, PRODUCT, ROOT, LARGEST = range(5)
KINDS = {"square": SQUARE, "absolute": ABSOLUTE, "product": PRODUCT, "root": ROOT, "largest": LARGEST}
#: No arc is shorter than its chord. Margins exceed the rounding of points in space: they grow with the
#: points' sizes, and so contain the radius.
KINDS["chord"] = ROOT


class Blocks(NamedTuple):
    """Boxes and majorants. Empty arrays if the source has no bounds.

    x: float64 (n_rows, d). low, high: (d, n_all) boxes, of the ``n_blocks`` blocks first, then
    of the groups of GROUP blocks. scale: (d,) of the coordinates. slope: (d, n_all), offset:
    (n_all,). kind: one of KINDS. margin: float64 (1 + n_all + d,), reductions of a bound against
    rounding: for outlier rows; for the others, by block; then the largest coordinates of the
    others. hidden: part of all margins, see ``Separation``.
    """

    x: Array
    low: Array
    high: Array
    scale: Array
    slope: Array
    offset: Array
    margin: Array
    kind: int
    n_blocks: int
    hidden: float


def no_blocks() -> Blocks:
    """Return the blocks of a source without bounds."""
    flat, row = np.empty((0, 0)), np.empty(0)
    return Blocks(read_only(flat), flat, flat, read_only(row), flat, row, np.zeros(1), 0, 0, 0.0)


def blocks_of(source: Any) -> Blocks:
    """Return the blocks of a separable source, before their majorants are fitted.

    source: also the points themselves.
    """
    terms = source.separable() if isinstance(source, Separable) else source
    if not isinstance(terms, Separation):
        return no_blocks()
    if terms.y.shape[0] > MOST_COORDINATES or terms.y.shape[1] < 2 * BLOCK:
        return no_blocks()
    d, m = terms.y.shape
    n_blocks, n_groups = -(-m // BLOCK), -(-m // (BLOCK * GROUP))
    n_all = n_blocks + n_groups
    starts = [np.arange(count) * (m_ * BLOCK) for count, m_ in ((n_blocks, 1), (n_groups, GROUP))]
    low, high = (
        np.concatenate([extreme.reduceat(terms.y, s, axis=1) for s in starts], axis=1)
        for extreme in (np.minimum, np.maximum)
    )
    return Blocks(
        x=read_only(np.ascontiguousarray(terms.x, np.float64)),
        low=low,
        high=high,
        scale=read_only(np.ascontiguousarray(terms.scale, np.float64)),
        slope=np.zeros((d, n_all)),
        offset=np.zeros(n_all),
        margin=np.zeros(1 + n_all + d),
        kind=KINDS[terms.kind],
        n_blocks=n_blocks,
        hidden=terms.hidden(),
    )


def separated_columns(source: Separable) -> Array:
    """Return the column points (d, m) of a source that has blocks."""
    terms = source.separable()
    return np.empty((0, 0)) if terms is None else terms.y


def fit(blocks: Blocks, y: Array, v: Array, team: Team) -> None:
    """Fit the majorants to the present prices. y: (d, m) as in the source. O(m d**2)."""
    b = blocks
    team.share(v.size, run_fit, read_only(y), v, b.slope, b.offset, b.kind, b.n_blocks)
    reach = np.maximum(np.abs(b.low), np.abs(b.high))
    far = np.abs(b.x).max(axis=0)
    slope, offset = np.abs(b.slope), np.abs(b.offset)
    whole = _margin(b, reach.max(axis=1) + far, slope.max(axis=1), offset.max())
    limit = usual_size(b.x)
    with np.errstate(over="ignore", invalid="ignore"):
        by_block = _margin(b, reach + limit[:, None], slope, offset)
    # A single outlier must not force scans of all pairs of the others.
    heavy = whole > _HEAVY * np.median(by_block)
    b.margin[0] = whole
    b.margin[1 : 1 + offset.size] = by_block if heavy else whole
    b.margin[1 + offset.size :] = limit if heavy else np.inf


def _margin(b: Blocks, far: Array, slope: Array, offset: Array) -> Any:
    """Return the margin against rounding of numbers of these sizes; far, slope: (d,) or (d, blocks)."""
    w = b.scale if far.ndim == 1 else b.scale[:, None]
    if b.kind in (SQUARE, PRODUCT):
        cost = (w * far**2).sum(axis=0)
    elif b.kind == ABSOLUTE:
        cost = (w * far).sum(axis=0)
    elif b.kind == ROOT:
        cost = np.sqrt((w * far**2).sum(axis=0))
    else:
        cost = (w * far).max(axis=0)
    return 128 * np.finfo(np.float64).eps * (cost + (slope * far).sum(axis=0) + offset) + b.hidden


def usual_size(points: Array) -> Array:
    """Return (d,) the largest coordinates, ignoring a few outlier points."""
    sizes = np.abs(points)
    place = sizes.shape[0] * 19 // 20
    usual = float(np.partition(sizes.max(axis=1), place)[place])
    near = sizes.max(axis=1) <= _FAR * usual
    largest: Array = sizes[near].max(axis=0)
    return largest


@kernel(nrt=True)
def run_fit(
    thread: int, n_threads: int, y: Array, v: Array, slope: Array, offset: Array, kind: int, n_blocks: int
) -> int:
    """Fit every ``n_threads``-th block and group, so that each thread has its share of both."""
    d, m = y.shape
    normal = np.empty((d, d))
    right = np.empty(d)
    mean = np.empty(d)
    for block in range(thread, offset.size, n_threads):
        width = BLOCK if block < n_blocks else BLOCK * GROUP
        start = (block if block < n_blocks else block - n_blocks) * width
        stop = min(start + width, m)
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
            # A ridge regularises blocks of few distinct points; any slope is valid.
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
    return 0


@kernel(nrt=True)
def bound_row(row: int, b: Blocks, first: int, last: int, out: Array) -> None:
    """Set out[k] to a lower bound of ``c[row, j] - v[j]`` over the columns of block first + k.

    For the blocks (or groups, see ``Blocks``) first to last - 1.
    """
    d = b.low.shape[0]
    count = last - first
    kind, n_all = b.kind, b.offset.size
    usual = True
    for a in range(d):
        usual = usual and abs(b.x[row, a]) <= b.margin[1 + n_all + a]
    for k in range(count):
        out[k] = 0.0
    for a in range(d):
        x, w = b.x[row, a], b.scale[a]
        low, high = b.low[a, first:last], b.high[a, first:last]
        slope = b.slope[a, first:last]
        if kind == SQUARE:
            half = 0.5 / w
            for k in range(count):
                g = slope[k]
                y = x + g * half
                y = low[k] if y < low[k] else y
                y = high[k] if y > high[k] else y
                out[k] += w * (x - y) * (x - y) - g * y
        elif kind == ABSOLUTE:
            for k in range(count):
                g, p, q = slope[k], low[k], high[k]
                y = p if x < p else x
                y = q if y > q else y
                best = w * abs(x - y) - g * y
                other = w * abs(x - p) - g * p
                best = other if other < best else best
                other = w * abs(x - q) - g * q
                out[k] += other if other < best else best
        elif kind == PRODUCT:
            for k in range(count):
                t = w * x - slope[k]
                p, q = t * low[k], t * high[k]
                out[k] += p if p < q else q
        else:
            for k in range(count):
                y = low[k] if x < low[k] else x
                y = high[k] if y > high[k] else y
                if kind == ROOT:
                    out[k] += w * (x - y) * (x - y)
                else:
                    t = w * abs(x - y)
                    out[k] = t if t > out[k] else out[k]
    offset = b.offset[first:last]
    start = 1 + first if usual else 0
    step = 1 if usual else 0
    margin = b.margin
    if kind == ROOT:
        for k in range(count):
            out[k] = np.sqrt(out[k]) - offset[k] - margin[start + k * step]
    else:
        for k in range(count):
            out[k] = out[k] - offset[k] - margin[start + k * step]
