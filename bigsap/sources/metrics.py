"""Costs that are distances between two sets of points, computed on demand."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import DtypeError, InvalidCostError, OptionError, ShapeError, number
from bigsap.notebook import Shown
from bigsap.sources.base import Fill, Separation, sound_scales
from bigsap.sources.filled import Filled
from bigsap.sources.kept_bounds import NearPoints
from bigsap.sources.missing import parted
from bigsap.sources.products import Chosen, Product, Vectors, Widened
from bigsap.sources.whole_numbers import as_floats, plain_number
from bigsap.types import Array, Ids

METRICS = ("sqeuclidean", "euclidean", "cityblock", "chebyshev", "minkowski", "cosine", "haversine")
#: Of bounds on a sphere: angles up to two turns, and radii whose squares are floats.
_WIDEST_ANGLE, _RADII = 4.0 * np.pi, (1e-100, 1e100)
#: Numbers of float32 vectors that are widened at a time.
_NUMBERS = 1 << 20


def points(
    x: Any,
    y: Any,
    metric: str = "sqeuclidean",
    *,
    p: float | None = None,
    w: Any = None,
    radius: float | None = None,
    max_distance: float | None = None,
) -> PointSource | NearPoints:
    """Return costs ``cost[i, j]`` = distance from ``x[i]`` to ``y[j]``, never stored.

    x, y: (n, d) and (m, d), real numbers (1-D means d = 1); computed in float64. float32 and
        float16 points of more than 16 dimensions are kept as float32, under "sqeuclidean" and "euclidean",
        and, without weights and beyond 512 MiB as float64, under "cosine". They are copied, except that
        x, and a y that is kept as float32, are used in place if they are arrays in C order of the type
        in which they are kept, own their memory and are read-only (``x.flags.writeable = False``): they
        must not change later.
    metric: with ``w`` (d,), weights >= 0, all 1 if not given:

    ============= ====================================================================
    sqeuclidean   sum of w (x - y)^2, the direct formula: nothing cancels
    euclidean     root of that
    cityblock     sum of w abs(x - y)
    chebyshev     largest abs(x - y) over the dimensions with w > 0
    minkowski     (sum of w abs(x - y)^p)^(1/p), 1 <= p < inf, 2 if not given
    cosine        1 - x.y / (abs(x) abs(y)), products weighted by w; computed as half
                  the squared distance of the unit vectors, exact for equal vectors
    haversine     great-circle distance; d = 2, (latitude, longitude) in radians;
                  ``radius`` (1 if not given) sets the unit; takes no ``w``
    ============= ====================================================================

    The first six are those of ``scipy.spatial.distance.cdist``, the last that of
    scikit-learn. Costs are float64, the same bits for any part of a row and for the
    transpose. Squares and powers of differences that are below float64 are 0, as in scipy: of
    distances below 1e-162, under minkowski below 1e-323 ** (1 / p). Scale such points up.

    max_distance: pairs that are farther apart are forbidden; pairs exactly so far apart are allowed.
        It is a distance of the metric, and for "sqeuclidean" the euclidean one, not its square: a
        pair is allowed if its cost is at most ``max_distance * max_distance``. ``inf`` forbids no
        pair. ``solve`` reads few of the forbidden pairs where bounds of boxes of points tell. The
        result then is ``forbid_above(points(x, y, ...), limit)``, for either sense of a problem.

    Memory O((n + m) d), y twice where rows are read on the host; a row costs O(m d).
    Raises ShapeError, DtypeError, OptionError; InvalidCostError for NaN and infinite
    coordinates, integers that float64 would round (times in nanoseconds: subtract the first), zero
    vectors under cosine, or distances beyond float64.
    """
    source = PointSource(x, y, metric, p=p, w=w, radius=radius)
    reach = None if max_distance is None else _reach(max_distance)
    if reach is None or reach == math.inf:
        return source
    limit = reach * reach if metric == "sqeuclidean" else reach
    return NearPoints(source, min(limit, np.finfo(np.float64).max), max_distance=reach)


class PointSource(Filled, Shown):
    """Distances between two point sets. See ``points``.

    x: (n, d), y: (m, d), float64 or both float32 (``points``), read-only; metric, p, w, radius: as given.
    """

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, x: Any, y: Any, metric: str, *, p: float | None, w: Any, radius: float | None) -> None:
        if not isinstance(metric, str) or metric not in METRICS:
            raise OptionError(f"metric={metric!r} is unknown; choose one of {', '.join(METRICS)}")
        super().__init__()
        self.metric = metric
        x, y = whole_array(x, "x"), whole_array(y, "y")
        kept = _kept_dtype(metric, x, y, w)
        self.x, self.y = coordinates(x, "x", kept), coordinates(y, "y", kept)
        n, d = self.x.shape
        if self.y.shape[1] != d:
            raise ShapeError(f"x has {d} coordinates a point, y has {self.y.shape[1]}; they must agree")
        self.shape = (n, self.y.shape[0])
        self.p = _exponent(p, metric)
        self.radius = _radius(radius, metric)
        self.w = _dimension_weights(w, d, metric)
        self.single = kept == np.float32
        self._y_by_dimension = self.y.T
        if not self.single:
            # Stored by dimension, so that the loop over columns reads consecutive memory.
            self._y_by_dimension = np.ascontiguousarray(self.y.T)
            self._y_by_dimension.flags.writeable = False
            self.y = self._y_by_dimension.T
        self._prepare()
        self._check_reach()
        self._fill: Fill | None = None
        self._product: Product | None = None
        self._chords: Separation | None = None

    def __repr__(self) -> str:
        n, m = self.shape
        return f"points({n} x {m}, d={self.x.shape[1]}, metric={self.metric!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PointSource, p=self.p, w=self.w, radius=self.radius), (self.x, self.y, self.metric)

    def _prepare(self) -> None:
        """Set the arrays that the kernel reads: name, x (n, d), y (d, m), weights (d,).

        float32 points are contiguous by point, others by dimension.
        """
        #: See ``divisors``.
        self._divisors: tuple[Array, Array] | None = None
        self._kernel, self._x, self._y = self.metric, self.x, self._y_by_dimension
        self._weights = np.ones(self.x.shape[1]) if self.w is None else self.w
        self._parameter = self.p if self.p is not None else (self.radius or 0.0)
        if not self._weights.all():
            self._drop_unweighted()
        if self.metric == "chebyshev":
            self._weights = np.sign(self._weights)
        elif self.metric == "minkowski":
            # The same distances without calls of pow().
            self._kernel = {1.0: "cityblock", 2.0: "euclidean"}.get(self._parameter, "minkowski")
        elif self.metric == "cosine" and self.single:
            self._divisors = _divisors_of(self.x, "x"), _divisors_of(self.y, "y")
        elif self.metric == "cosine":
            self._x = _unit_vectors(self._x, self._weights, "x")
            self._y = np.ascontiguousarray(_unit_vectors(self._y.T, self._weights, "y").T)
            self._weights = np.ones_like(self._weights)
        elif self.metric == "haversine":
            self._x = _with_cosine(self.x, "x")
            self._y = np.ascontiguousarray(_with_cosine(self.y, "y").T)

    def _drop_unweighted(self) -> None:
        """Remove dimensions of weight 0: 0 times an overflow would be NaN."""
        used = self._weights > 0
        self._x = np.ascontiguousarray(self._x[:, used])
        self._y = np.ascontiguousarray(self._y[used])
        self._weights = self._weights[used]
        if not used.any():
            n, m = self.shape
            self._x, self._y, self._weights = np.zeros((n, 1)), np.zeros((1, m)), np.zeros(1)

    def _check_reach(self) -> None:
        """Raise an error if a distance may overflow: an infinite cost would forbid its pair."""
        if 0 in self.shape or self.metric in ("cosine", "haversine"):
            return
        x, y = self._x, self._y
        power = {"cityblock": 1.0, "chebyshev": 1.0, "minkowski": self._parameter}
        with np.errstate(over="ignore", under="ignore"):
            least = [a.min(axis=k).astype(np.float64) for k, a in enumerate((x, y))]
            most = [a.max(axis=k).astype(np.float64) for k, a in enumerate((x, y))]
            reach = np.maximum(most[0] - least[1], most[1] - least[0])
            largest = (self._weights * reach ** power.get(self._kernel, 2.0)).sum()
        # A factor of 2, because the kernel sums in another order.
        if not largest <= np.finfo(np.float64).max / 2:
            raise InvalidCostError(
                f"{self.metric} distances of these points exceed float64 (coordinates differ by"
                f" up to {reach.max():g}); scale them down"
            )

    def prepared(self) -> tuple[str, Array, Array, Array, float]:
        """Return the kernel's input: metric, x (n, d), y (d, m), weights (d,), parameter.

        x and y are float64, or both float32 (``single``): arithmetic must widen them first, and divide them
        by their ``divisors``.
        """
        return self._kernel, self._x, self._y, self._weights, float(self._parameter)

    @property
    def divisors(self) -> tuple[Array, Array] | None:
        """Divisors that make float32 vectors unit vectors under cosine; None otherwise.

        (n, 2) and (m, 2): each vector is divided by its largest coordinate, then by the length of that.
        """
        return self._divisors

    def vectors(self) -> tuple[Vectors, Vectors]:
        """Return x (n, d) and y (m, d) as the metric computes with them."""
        if self._divisors is None:
            return self._x, self._y.T
        return Widened(self.x, self._divisors[0]), Widened(self.y, self._divisors[1])

    def fill(self) -> Fill:
        if self._fill is None:
            from bigsap.sources.compiled import make_fill
            from bigsap.sources.kernels import filler

            words: tuple[Any, ...]
            if self.single:
                kernel = filler(f"{self._kernel}_single")
                copied = self._y.nbytes <= policy.PRODUCT_COPY_BYTES and self._divisors is None
                by_dimension = np.ascontiguousarray(self._y) if copied else 0
                words = (
                    self._x,
                    self.y,
                    self._weights,
                    *self._y.shape,
                    by_dimension,
                    *(self._divisors or ()),
                )
            else:
                kernel = filler(self._kernel)
                words = (self._x, self._y, self._weights, *self._y.shape, self._parameter)
            self._fill = make_fill(
                kernel.address,
                words,
                (kernel,),
                in_parts=True,
                many=self._many(),
                several=policy.SINGLE_ROWS if self.single else 2,
            )
        return self._fill

    def _many(self) -> Callable[[Array, int, int, Array], None] | None:
        """Return the filler of many rows at once; None for metrics and dimensions that have none."""
        from bigsap.sources import sums_of_rows as S

        made = {"sqeuclidean": S.PLAIN, "euclidean": S.ROOT, "cosine": S.HALF}
        if self._kernel not in made or self._x.shape[1] < policy.PRODUCT_COORDINATES:
            return None
        sums = S.SQUARES if (self._weights == 1).all() else S.WEIGHTED
        kinds = sums, made[self._kernel]
        if self.single:
            return S.filler_of_single(self.x, self.y, self._weights, self._divisors, kinds)
        return S.filler_of_rows(self._x, self._y, self._weights, None, kinds)

    def transposed(self) -> PointSource:
        """Return ``points(y, x)``: the same costs, bit for bit. float32 points are shared."""
        return PointSource(self.y, self.x, self.metric, p=self.p, w=self.w, radius=self.radius)

    def select(self, rows: Ids, columns: Ids) -> PointSource:
        return PointSource(self.x[rows], self.y[columns], self.metric, p=self.p, w=self.w, radius=self.radius)

    def separable(self) -> Separation | None:
        """Return the points, for metrics that a box of points bounds coordinate by coordinate.

        float32 only with more coordinates than boxes have.
        """
        kinds = {"sqeuclidean": "square", "cityblock": "absolute", "euclidean": "root"}
        kinds["chebyshev"] = "largest"
        if self.metric == "haversine":
            return self._separated_on_sphere()
        if self._kernel not in kinds or not sound_scales(self._weights):
            return None
        return Separation(self._x, self._y, self._weights, kinds[self._kernel])

    def _separated_on_sphere(self) -> Separation | None:
        """Return the points in space, where angles are no larger than people write them.

        The costs' own rounding grows with the longitudes.
        """
        radius = float(self._parameter)
        if 0 in self.shape or not _RADII[0] < radius < _RADII[1]:
            return None
        if max(np.abs(self.x).max(), np.abs(self.y).max()) > _WIDEST_ANGLE:
            return None
        if max(np.abs(self.x[:, 0]).max(), np.abs(self.y[:, 0]).max()) > np.pi / 2:
            return None
        if self._chords is None:
            x, y = (in_space(*points.T) for points in (self.x, self.y))
            self._chords = Separation(np.ascontiguousarray(x.T), y, np.full(3, radius**2), "chord")
        return self._chords

    def product(self) -> Product | None:
        """Return the points, for metrics that are squared lengths of differences or roots of these."""
        kinds = {"sqeuclidean": ("square", 1.0), "euclidean": ("root", 1.0), "cosine": ("square", 0.5)}
        if self._kernel not in kinds or not self._weights.all():
            return None
        if self._product is not None:
            return self._product
        from bigsap.sources.compiled import make_fill
        from bigsap.sources.kernels import filler

        kind, scale = kinds[self._kernel]
        x, y = self.vectors()
        if isinstance(y, np.ndarray):
            y = np.ascontiguousarray(y)
        points = self.y if self.single else y
        assert isinstance(points, np.ndarray)
        words = (self._x, points, self._weights, y.shape[1], y.shape[0], *(self._divisors or ()))
        if self._divisors is None:
            kernel = filler(f"chosen_{self._kernel}", given=points.dtype)
        else:
            kernel = filler("chosen_cosine_single")
        made = make_fill(kernel.address, words, (kernel,))
        chosen = Chosen(made.address, made.context, made.keep)
        none = np.zeros(self.shape[0]), np.zeros(self.shape[1])
        self._product = Product(kind, x, y, self._weights, scale, *none, chosen)
        return self._product

    def cost_range(self) -> tuple[float, float]:
        """Return the range of distances: at least 0; bounded on a sphere and between directions."""
        most = {"cosine": 2.001, "haversine": 3.15 * (self.radius or 0.0)}
        return 0.0, most.get(self.metric, math.inf)

    def fingerprint(self) -> str:
        """Return a digest of all coordinates, and the metric with its parameters."""
        # Version of the costs' bits: under cosine, y was scaled in another order before.
        version = ("2",) if self.metric == "cosine" else ()
        facts = (self.shape, self.x.shape[1], self.metric, self.p, self.radius, *version)
        columns = self.y if self.single else self._y_by_dimension
        arrays = (self.x, columns, *(() if self.w is None else (self.w,)))
        return digest(repr(facts), arrays)


def in_space(latitude: Array, longitude: Array) -> Array:
    """Return points of the unit sphere, (3, n), from angles in radians."""
    across = np.cos(latitude)
    return np.array((across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)))


def _kept_dtype(metric: str, x: Array, y: Array, w: Any) -> np.dtype[Any]:
    """Return the type in which points are kept: float32 if they are no wider and boxes do not bound them."""
    used = are_single(x, y) and metric in ("sqeuclidean", "euclidean", "cosine")
    if used and metric == "cosine":
        # Unit vectors of few are kept: to make them again and again takes longer.
        used = w is None and max(x.size, y.size) > policy.UNIT_VECTORS
    if used and w is not None:
        used = bool(np.all(real_array(w, "w") > 0))
    return np.dtype(np.float32 if used else np.float64)


def are_single(x: Array, y: Array) -> bool:
    """Return whether both are no wider than float32, and have more coordinates than boxes."""
    narrow = all(a.dtype.kind == "f" and a.dtype.itemsize <= 4 for a in (x, y))
    return narrow and all(a.ndim == 2 and a.shape[1] > policy.BOX_COORDINATES for a in (x, y))


def coordinates(values: Any, name: str, dtype: Any = np.float64) -> Array:
    """Return points as a read-only (n, d) array of this type, see ``real_array``; all are finite."""
    array = real_array(values, name, dtype, in_place=True)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ShapeError(f"{name} has {array.ndim} dimensions, shape {array.shape}; needs (n, d)")
    if array.shape[1] == 0:
        raise ShapeError(f"{name} has no coordinates: shape {array.shape}")
    check_finite(array, f"{name}[{{}}, {{}}]", "coordinates must be finite numbers")
    array.flags.writeable = False
    return array


def real_array(values: Any, name: str, dtype: Any = np.float64, *, in_place: bool = False) -> Array:
    """Return a C-contiguous copy of real numbers, or raise ShapeError, DtypeError, InvalidCostError.

    in_place: a view of an array of this type in C order that is read-only and owns its memory will do.
    """
    array = whole_array(values, name)
    if array.dtype.kind not in "biuf" and array.size:
        raise DtypeError(f"{name} has dtype {array.dtype}; needs real numbers")
    if in_place and array.dtype == dtype and _is_fixed(array):
        return array.view(np.ndarray)
    with np.errstate(over="ignore"):
        made: Array = np.array(array, dtype=dtype, order="C", copy=True, subok=False)
    if array.dtype.kind == "f" and array.dtype.itemsize > made.dtype.itemsize:  # long doubles
        lost = np.isinf(made) & np.isfinite(array)
        if lost.any():
            where = [int(k) for k in np.argwhere(lost)[0]]
            value = f"{name}{where or ''} is {array[tuple(where)]!s}"
            raise InvalidCostError(f"{value}, which {made.dtype} cannot hold")
    _, rounded = as_floats(array)
    if rounded is not None and rounded.any():
        where = [int(k) for k in np.argwhere(rounded)[0]]
        raise InvalidCostError(
            f"{name}{where or ''} is {array[tuple(where)]!s}, which float64 would round; subtract what all"
            " have in common, or give them as floats"
        )
    return made


def _is_fixed(array: Array) -> bool:
    """Return whether an array in C order, and all that it is a view of, are read-only memory of numpy.

    A frame's values are a read-only view of what the frame may change, a mapped file may shrink, and of
    memory of others nothing is known.
    """
    if not (array.flags.c_contiguous and array.flags.aligned):
        return False
    part: Any = array
    while isinstance(part, np.ndarray):
        if part.flags.writeable:
            return False
        part = part.base
    return part is None


def whole_array(values: Any, name: str) -> Array:
    """Return a user's values as an array without missing values; else raise InvalidCostError."""
    try:
        array, missing = parted(values, name)
    except ShapeError as error:
        raise ShapeError(f"{name} is no rectangular array: {error}") from error
    if missing is not None:
        where = ", ".join(str(int(k)) for k in np.argwhere(missing)[0])
        raise InvalidCostError(
            f"{name}{f'[{where}]' if where else ''} is missing (masked, None or NA); leave it out,"
            " or say what it is"
        )
    return array


def check_finite(array: Array, place: str, what: str) -> None:
    """Raise InvalidCostError naming the first NaN or infinity of an array."""
    if array.size == 0:  # of any number of rows
        return
    step = max(1, _NUMBERS // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), step):
        some = array[start : start + step]
        if np.isfinite(some).all():
            continue
        row, *rest = (int(k) for k in np.argwhere(~np.isfinite(some))[0])
        raise InvalidCostError(f"{place.format(start + row, *rest)} is {some[row, *rest]}; {what}")


def digest(text: str, arrays: Iterable[Array]) -> str:
    """Return the blake2b of a text and whole arrays, about 1 s a GB."""
    state = hashlib.blake2b(text.encode(), digest_size=16)
    for array in arrays:
        state.update(str((array.shape, array.dtype.str)).encode())
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()


def _number(value: Any, name: str) -> float:
    found = None if isinstance(value, (bool, np.bool_)) else number(value)
    if found is None:
        raise OptionError(f"{name} must be a number, got {value!r}")
    held = plain_number(found)
    if isinstance(held, int):
        raise OptionError(f"{name} must be a number that float64 holds, got {value!r}")
    return held


def _reach(max_distance: Any) -> float:
    found = _number(max_distance, "max_distance")
    if not found >= 0.0:
        raise OptionError(f"max_distance must be a number >= 0, got {max_distance!r}")
    return found


def _exponent(p: Any, metric: str) -> float | None:
    if metric != "minkowski":
        if p is not None:
            raise OptionError(f'p belongs to metric="minkowski", not to {metric!r}')
        return None
    number = 2.0 if p is None else _number(p, "p")
    if not 1.0 <= number < np.inf:
        hint = '; that is metric="chebyshev"' if number == np.inf else ""
        raise OptionError(f"p must lie in [1, inf), got {p}{hint}")
    return number


def _radius(radius: Any, metric: str) -> float | None:
    if metric != "haversine":
        if radius is not None:
            raise OptionError(f'radius belongs to metric="haversine", not to {metric!r}')
        return None
    number = 1.0 if radius is None else _number(radius, "radius")
    if not 0.0 < number < np.inf:
        raise OptionError(f"radius must be positive and finite, got {radius}")
    if number > np.finfo(np.float64).max / 4:  # the largest distance is pi times the radius
        raise InvalidCostError(f"haversine distances exceed float64 with radius={radius}; scale it down")
    return number


def _dimension_weights(w: Any, d: int, metric: str) -> Array | None:
    if w is None:
        return None
    if metric == "haversine":
        raise OptionError("haversine takes no weights w")
    weights = real_array(w, "w")
    if weights.shape != (d,):
        raise ShapeError(f"w has shape {weights.shape}; needs one weight a coordinate, ({d},)")
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        k = int(wrong.argmax())
        raise OptionError(f"w[{k}] is {weights[k]}; weights must be finite and >= 0")
    weights.flags.writeable = False
    return weights


def _unit_vectors(vectors: Array, weights: Array, name: str) -> Array:
    """Return rows times the weights' roots, scaled to length 1."""
    # By vector, so that sums add in one order, whatever the order given.
    scaled = np.array(vectors, order="C")
    scaled *= np.sqrt(weights / max(weights.max(), np.finfo(np.float64).tiny))
    largest, length = _sizes(scaled, 0, name).T
    scaled /= largest[:, None]
    scaled /= length[:, None]
    return scaled


def _divisors_of(vectors: Array, name: str) -> Array:
    """Return (n, 2) the sizes by which ``_unit_vectors`` divides float32 rows."""
    divisors = np.empty((vectors.shape[0], 2))
    step = max(1, _NUMBERS // vectors.shape[1])
    for start in range(0, vectors.shape[0], step):
        some = slice(start, start + step)
        divisors[some] = _sizes(vectors[some].astype(np.float64), start, name)
    return divisors


def _sizes(vectors: Array, first: int, name: str) -> Array:
    """Return (k, 2) rows' largest entries, and their lengths once divided by these.

    first: number of the first row.
    """
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    zero = largest == 0
    if zero.any():
        raise InvalidCostError(
            f"{name}[{first + int(zero.argmax())}] is a zero vector (where w > 0), which has no direction:"
            " the cosine metric does not define its distances"
        )
    # Scale entries to at most 1 first: squares of the raw ones may overflow or vanish.
    scaled = vectors / largest[:, None]
    return np.column_stack((largest, np.sqrt((scaled * scaled).sum(axis=1))))


def _with_cosine(angles: Array, name: str) -> Array:
    """Return (latitude, longitude, cosine of the latitude)."""
    if angles.shape[1] != 2:
        raise ShapeError(f"haversine needs (latitude, longitude); {name} has shape {angles.shape}")
    latitude = angles[:, 0]
    # A float32 pi / 2 exceeds the float64 one.
    wrong = np.abs(latitude) > np.pi / 2 + 1e-6
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidCostError(
            f"{name}[{i}, 0] is {latitude[i]}; latitudes are in radians, -pi/2 to pi/2"
            " (numpy.radians converts degrees)"
        )
    return np.column_stack([angles, np.cos(latitude)])
