"""A few numbers that exceed all others by far: prices, sizes, and rows or columns of a matrix.

One huge cost, such as that of a pair meant to be forbidden, becomes the first price of its column.
Shifting prices so that the largest is 0 would then round the digits of all others away. Any prices
are a legal start, so those few can be lowered: only their own columns begin worse.
"""

from __future__ import annotations

import numpy as np

from bigsap import policy
from bigsap.types import Array


def lower_outliers(v: Array) -> None:
    """Lower the few prices (m,) that exceed the others by ``policy.OUTLYING`` times their range, in place.

    The range is that of nine tenths of the prices. Integers, which are never rounded, stay, and so do
    prices of which one is not finite. O(m).
    """
    if v.dtype.kind != "f" or v.size < policy.OUTLIERS_AMONG or not np.isfinite(v).all():
        return
    few = v.size // policy.FEW_OUTLIERS
    ordered = np.partition(v, (few, v.size - 1 - few))
    most = ordered[v.size - 1 - few]
    extent = most - ordered[few]
    if extent > 0:
        np.minimum(v, most + policy.OUTLYING * extent, out=v)


def usual(sizes: Array) -> Array:
    """Return sizes (n,) with outliers reduced to the others' maximum, times ``policy.OUTLYING``. O(n)."""
    if sizes.size < policy.OUTLIERS_AMONG:
        return sizes
    place = sizes.size - 1 - sizes.size // policy.FEW_OUTLIERS
    most = np.partition(sizes, place)[place]
    return np.minimum(sizes, policy.OUTLYING * most) if most > 0 else sizes


def without_forced(excess: Array) -> Array:
    """Return what picks (n,) cost beyond their rows' minima, as if no row were forced. O(n).

    A forced row that picked too late has a huge excess: it counts as the largest of the others. The same
    array without any such row.
    """
    if excess.size < policy.OUTLIERS_AMONG:
        return excess
    place = excess.size - 1 - excess.size // policy.FEW_OUTLIERS
    most = np.partition(excess, place)[place]
    forced = excess > policy.FORCED * most
    return np.where(forced, most, excess) if most > 0 and forced.any() else excess


def no_ids() -> Array:
    """Return an empty array of ids."""
    return np.empty(0, np.intp)


def middles(features: Array) -> Array:
    """Return the upper median of each line's costs. features: (lines, k). O(lines * k).

    ``numpy.median`` makes eighty calls, which a solve of a hundred rows would feel.
    """
    half = features.shape[1] // 2
    return np.partition(features, half, axis=1)[:, half]


def low_middle_high(sizes: Array, share: float) -> tuple[Array, Array, Array]:
    """Return the sizes (n,) between which all but ``share`` at each end lie, and the upper median. O(n).

    The median comes second.
    """
    few, half = int(share * sizes.size), sizes.size // 2
    last = sizes.size - 1 - few
    ordered = np.partition(sizes, (few, half, last))
    return ordered[few], ordered[half], ordered[last]


def outlying_lines(features: Array, times: float) -> Array:
    """Return the ids, ascending, of the few lines whose costs are far from those of all others.

    features (lines, k): some costs of each row, or column. A line counts by the median of its costs, since
    other lines may be outlying, too. times: how many times the range of nine tenths it must be away. Empty
    where a cost is not finite. O(lines * k).
    """
    if len(features) < policy.OUTLIERS_AMONG or not np.isfinite(features).all():
        return no_ids()
    middle = middles(features)
    low, usual_one, high = low_middle_high(middle, 1 / policy.FEW_OUTLIERS)
    extent = high - low
    if not extent > 0:
        return no_ids()
    far = np.flatnonzero(np.abs(middle - usual_one) > times * extent)
    return far if far.size <= min(policy.MOST_FAR_POINTS, len(features) // policy.FEW_OUTLIERS) else no_ids()
