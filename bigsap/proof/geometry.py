"""Geometry of a source for the proof: points, and a cost that boxes of points bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bigsap import policy
from bigsap.sources.base import CostSource, Fillable, Selectable, Separable, limit_of
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.kept_bounds import Forbidding, Scaled
from bigsap.sources.lowrank import LowRankSource
from bigsap.sources.metrics import PointSource
from bigsap.types import Array, Ids

#: Kinds of cost, see ``descent``.
SQUARE, ABSOLUTE, ROOT, LARGEST, POWER, PRODUCT, CHORD = range(7)

_METRICS = {
    "sqeuclidean": SQUARE,
    "cosine": SQUARE,
    "euclidean": ROOT,
    "cityblock": ABSOLUTE,
    "chebyshev": LARGEST,
    "minkowski": POWER,
    "haversine": CHORD,
}
_KINDS = {"square": SQUARE, "absolute": ABSOLUTE, "root": ROOT, "largest": LARGEST, "product": PRODUCT}
#: Metrics computed by operations that rounding keeps monotone, in the order used by ``descent``:
#: their bounds need no margin.
_MONOTONE = {"sqeuclidean", "cosine", "euclidean", "cityblock", "chebyshev"}
_UNIT = 2.0**-53
#: Smallest scale of multiplied costs: products with smaller ones may lose bits.
_LEAST = 1e-200
#: More than a sum of some coordinates loses by underflow.
_LOST = 2.0**-1060
#: With more coordinates, boxes of points are useless as bounds.
MOST_COORDINATES = policy.BOX_COORDINATES


@dataclass(frozen=True)
class Geometry:
    """Points and cost of a source.

    x (n, d), y (m, d): points, C-contiguous float64. scale: (d,), positive.
    kind: of the cost. factor: of a ``SQUARE`` cost, a power of two. power: of a ``POWER``
    cost; the radius of a ``CHORD``. slip: relative error by which a bound without slopes is
    lowered. blur: absolute error of any bound, cost units. limit: pairs that cost more are forbidden.
    """

    x: Array
    y: Array
    scale: Array
    kind: int
    factor: float
    power: float
    slip: float
    blur: float
    limit: float = math.inf


def boundable(source: CostSource) -> tuple[CostSource, ClippedCosts | None] | None:
    """Return the source whose costs boxes or products bound, and its clipping or None; None for none."""
    gate = source if isinstance(source, ClippedCosts) else None
    inner = source if gate is None else gate.given
    products = inner.inner_products if isinstance(inner, ExpressionSource) else None
    formula = products is not None and products.count >= policy.PRODUCT_COORDINATES
    if not (formula or isinstance(inner, Selectable)) or not isinstance(inner, Fillable):
        return None
    if gate is not None and (inner.dtype != gate.dtype or gate.fill() is None):
        return None
    known = formula or isinstance(inner, (PointSource, LowRankSource, Separable))
    return (inner, gate) if known and np.dtype(inner.dtype) == np.float64 else None


def geometry(source: CostSource) -> Geometry | None:
    """Return the points and the cost of a source; None if boxes do not bound its costs. O((n+m)d)."""
    if isinstance(source, Scaled):
        return _scaled(geometry(source.given), source.factor)
    if isinstance(source, Forbidding):
        points = geometry(source.given)
        return None if points is None else replace(points, limit=min(points.limit, limit_of(source)))
    if isinstance(source, PointSource):
        if source.single:
            return None  # more coordinates than boxes have
        name, x, y, scale, parameter = source.prepared()
        if name == "haversine":
            return _on_sphere(x, y, parameter)
        slip = 0.0 if name in _MONOTONE else _slip(y.shape[0])
        factor = 0.5 if name == "cosine" else 1.0
        return _checked(x, y, scale, _METRICS[name], factor, parameter, slip)
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is None:
        return _with_terms(source) if isinstance(source, LowRankSource) else None
    slip = 0.0 if isinstance(source, LowRankSource) else _slip(terms.y.shape[0])
    return _checked(terms.x, terms.y, terms.scale, _KINDS[terms.kind], 1.0, 0.0, slip)


def _scaled(points: Geometry | None, factor: float) -> Geometry | None:
    """Return the geometry of costs times a positive factor, which rounds once more.

    What underflows, in the costs before the factor or in the sums here, is far below the blur.
    """
    if points is None:
        return None
    x, scale, power = points.x, points.scale, points.power
    slip = points.slip + _slip(points.y.shape[1])
    lost = _LOST
    with np.errstate(over="ignore"):
        if points.kind == PRODUCT:
            x = x * factor
            lost *= max(1.0, float(np.abs(points.y).max(initial=0.0)))
        elif points.kind == CHORD:
            power = power * factor
        else:
            root = {ROOT: 2.0, POWER: power}.get(points.kind, 1.0)
            scale = scale * np.float64(factor) ** root
            lost **= 1.0 / root
    sound = np.isfinite(x).all() and np.isfinite(scale).all() and bool((scale > _LEAST).all())
    if not sound or not math.isfinite(power):
        return None
    blur = (points.blur * factor + lost * max(1.0, factor)) * (1 + 2.0**-40)
    return replace(points, x=x, scale=scale, power=power, slip=slip, blur=blur, limit=points.limit * factor)


def _slip(d: int) -> float:
    """Return more than twice the relative error of a cost of d coordinates, with powers and roots.

    A sum of d products of at most four factors is within (d + 8) units; a power is assumed to
    be within 64, which every known library satisfies by far.
    """
    return (512 + 8 * d) * _UNIT


def _checked(
    x: Array, y: Array, scale: Array, kind: int, factor: float, power: float, slip: float
) -> Geometry | None:
    d = y.shape[0]
    usable = 0 < d <= MOST_COORDINATES and bool((scale > 0).all())
    if not usable or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    # Copies: for a kernel, a read-only array has another type.
    at, there, weights = (np.array(a, np.float64, order="C") for a in (x, y.T, scale))
    return Geometry(at, there, weights, kind, factor, power, slip, 0.0)


def _with_terms(source: LowRankSource) -> Geometry | None:
    """Return the geometry with terms as two more factors, summed in another order than the source's."""
    n, m = source.shape
    if source.single:
        return None  # more coordinates than boxes have
    x = np.column_stack((source.a, source.row_terms, np.ones(n)))
    y = np.column_stack((source.b, np.ones(m), source.column_terms))
    return _checked(x, y.T, np.ones(y.shape[1]), PRODUCT, 1.0, 0.0, _slip(y.shape[1]))


def _on_sphere(x: Array, y: Array, radius: float) -> Geometry | None:
    """Map points to the unit sphere in space; the cost is an increasing function of their chord.

    With h the square of half the chord, the cost is ``2 r asin(sqrt(h))``. The source
    computes h from differences of angles, with an error of at most ``8 u (1 + largest
    difference)``; a coordinate in space has an error of 2 u, a chord 8 u. And since ``sin(a)^2 -
    sin(b)^2 = sin(a + b) sin(a - b) >= sin(a - b)^2`` for ``pi/2 >= a >= b >= 0``, an error e
    of h changes the cost by ``2 r asin(sqrt(e)) <= 2.1 r sqrt(e)``, near and far.
    """
    steepest = max(float(np.abs(a).max(initial=0.0)) for a in (x[:, 0], y[0]))
    if not steepest <= np.pi / 2:
        return None  # near or beyond a pole: rounding may make h negative
    widest = max(float(np.abs(a).max(initial=0.0)) for a in (x, y))
    error = _UNIT * (256 + 64 * widest)
    at, there = _in_space(x[:, 0], x[:, 1]), _in_space(y[0], y[1])
    blur = 4.0 * radius * float(np.sqrt(error)) + _LOST
    return Geometry(at, there, np.ones(3), CHORD, 1.0, radius, 0.0, blur)


def _in_space(latitude: Array, longitude: Array) -> Array:
    across = np.cos(latitude)
    return np.ascontiguousarray(
        np.column_stack((across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)))
    )


def select(source: CostSource, rows: Ids, columns: Ids) -> CostSource | None:
    """Return the source with its rows and columns in another order."""
    return source.select(rows, columns) if isinstance(source, Selectable) else None
