"""Points of which only near pairs are allowed, as sparse costs: all pairs within the limit, read once.

Boxes of points exclude most of the others. A metric without boxes of its own is bounded by another one
that it is an increasing function of, or at least: distances on a sphere by chords in space, Minkowski
distances by their largest coordinate.
"""

from __future__ import annotations

import math

import numpy as np

from bigsap import policy
from bigsap.sources.base import CostSource, Entries, Separable, Separation, limit_of, sound_scales
from bigsap.sources.convert import read_only
from bigsap.sources.kept_bounds import Kept, without_forbidden
from bigsap.sources.metrics import PointSource, in_space
from bigsap.sources.products import is_multiplied
from bigsap.sources.sparse.sparse_costs import SparseCosts
from bigsap.strategies.cheap_pairs import TooMany, point_pairs
from bigsap.strategies.list_run import ListSettings
from bigsap.strategies.start.samples import Counts
from bigsap.types import Array

_UNIT = 2.0**-53
#: Powers below this may have lost bits.
_HIDDEN = 2.0**-1000


def is_near(source: CostSource) -> bool:
    """Return whether pairs beyond a limit are forbidden, and kernels can read the costs."""
    return math.isfinite(limit_of(source)) and source.dtype == np.float64 and 0 not in source.shape


def near_pairs(source: CostSource, setting: ListSettings, counts: Counts) -> SparseCosts | None:
    """Return all allowed pairs of costs with a limit; None where they are many, or slow to find.

    Memory: 12 bytes for each pair, twice that while they are collected.
    """
    limit = limit_of(source)
    if isinstance(source, Kept):
        source = source.with_infinity(math.inf)  # in either sense, far pairs are above the limit
    terms, edge = _bounds(source, limit)
    if terms is not None and terms.y.shape[0] > policy.BOX_COORDINATES:
        terms = None
    if terms is None and is_multiplied(source):
        return None  # lists by matrix products are faster than one pass over all pairs
    rows = point_pairs(source, terms, 1, setting)
    if rows is None:
        return None
    n, m = source.shape
    below = np.full(n, np.nextafter(limit, np.inf))
    try:
        many = policy.OPTIONAL_MANY if terms is None else policy.NEAR_MANY
        size, ids, costs = rows.below(below, setting, counts, np.full(n, edge), many)
    except TooMany:
        return None
    start = np.concatenate(([0], np.cumsum(size)))
    found = Entries(read_only(start), read_only(ids), read_only(costs))
    return SparseCosts((n, m), found)


def _bounds(source: CostSource, limit: float) -> tuple[Separation | None, float]:
    """Return points whose function excludes a pair of costs where it is at least the returned number.

    No points, where none are known: then every pair is read.
    """
    above = math.nextafter(limit, math.inf)
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is not None and terms.kind != "chord":
        return terms, above
    plain = without_forbidden(source)
    if not isinstance(plain, PointSource) or 0 in plain.shape:
        return None, above
    name, x, y, weights, parameter = plain.prepared()
    if name == "minkowski":
        # No sum of powers is below its largest term; a power and a root are within 64 units, unless it
        # underflows.
        scale = weights ** (1.0 / parameter)
        hidden = (_HIDDEN * max(1.0, float(weights.max()))) ** (1.0 / parameter)
        return (Separation(x, y, scale, "largest") if sound_scales(scale) else None), max(above, hidden)
    return _chords(x, y, limit, parameter) if name == "haversine" else (None, above)


def _chords(x: Array, y: Array, limit: float, radius: float) -> tuple[Separation | None, float]:
    """Return the points in space of angles, and a chord beyond which distances are above the limit.

    The cost is ``2 r asin(sqrt(h))``, h the square of half the chord. The source computes h from
    differences of angles with an error of at most ``8 u (1 + largest difference)``, coordinates in
    space have errors of 2 u; the edge is raised by many times as much.
    """
    half = math.nextafter(limit, math.inf) / (2.0 * radius)  # a denormal cost may be rounded down
    if not half < 1.5 or max(np.abs(x[:, 0]).max(), np.abs(y[0]).max()) > np.pi / 2:
        return None, math.inf
    widest = max(np.abs(x).max(), np.abs(y).max())
    h = math.sin(half * (1.0 + 2.0**-40)) ** 2 + _UNIT * (256.0 + 64.0 * float(widest))
    edge = 2.0 * math.sqrt(h) * (1.0 + 2.0**-40) + 2.0**-45
    return Separation(in_space(x[:, 0], x[:, 1]).T.copy(), in_space(y[0], y[1]), np.ones(3), "root"), edge
