"""Row duals by matrix products: lower bounds of all ``c - v``, and exact costs where these do not exclude.

The least ``c - v`` of a row is at most that of its assigned pair, and at good prices nearly no other
pair comes near it. A float32 product of the points gives ``c - v`` of every pair within a margin; pairs
that this does not put above the least value known are read from the source and compared exactly. The
margin is derived in docs/product_bounds.md. No code is shared with the solver's products.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.blas import one_thread
from bigsap.proof import scan
from bigsap.proof.descending import Descended
from bigsap.proof.exclusion import GROUP, INVALID, Filler, Panel, exclude
from bigsap.proof.row_minima import Prices, joined
from bigsap.proof.threads import share_out
from bigsap.sources.base import CostSource, sound_scales
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.filling import fill_of
from bigsap.sources.kept_bounds import Kept, Scaled
from bigsap.sources.lowrank import LowRankSource
from bigsap.sources.metrics import PointSource
from bigsap.types import Array, Tick

# Rows that a thread claims at a time, columns multiplied at a time, and points converted at a time.
_ROWS, _COLUMNS, _CONVERTED = 128, 2048, 4096
#: Limit of near pairs recorded by each thread: this many a row plus a constant.
_NEAR_A_ROW, _NEAR = 8, 1 << 12
#: Rounding of float32 and of float64; the smallest float32 that is not denormal.
_SINGLE, _DOUBLE, _TINY = 2.0**-24, 2.0**-53, 2.0**-126
#: Points of which no square leaves the range of float64, or is lost in it.
_LEAST, _LARGEST = 1e-70, 1e70
#: Weights that lift no square that was lost.
_LARGEST_WEIGHT = 1e100
#: Most coordinates: with more, roundings of float32 may add up to a hundredth.
_MOST_COORDINATES = 100_000
_METRICS = ("sqeuclidean", "euclidean", "cosine")


@dataclass(frozen=True)
class Vectors:
    """``c = f(a_i + b_j + factor <x_i, y_j>)``; f is the identity or, with ``root``, the square root.

    x (n, d), y (m, d): as the source computes with them. middle: (d,), subtracted from both; weights: (d,)
    of the products. own, other: (n,), (m,) additional terms; squared: whether a_i and b_j are the squared
    lengths too. scale: of the costs, a power of two. exponent: of the power of two by which vectors are
    multiplied, so that none is longer than 1.
    """

    x: Any
    y: Any
    middle: Array
    weights: Array
    own: Array
    other: Array
    squared: bool
    root: bool
    scale: float
    exponent: int

    def side(self, rows: bool, part: slice | Array) -> tuple[Array, Array]:
        """Return some of the vectors, float64, centred, weighted and multiplied, and their terms."""
        vectors = (self.x if rows else self.y)[part] - self.middle
        vectors *= np.ldexp(np.sqrt(self.weights), self.exponent)
        terms = np.ldexp((self.own if rows else self.other)[part], 2 * self.exponent)
        if self.squared:
            terms = terms + self.scale * (vectors * vectors).sum(axis=1)
        return vectors, terms


def is_product(source: CostSource, least: int | None = None) -> bool:
    """Return whether a source's costs are made of inner products of many coordinates.

    least: so many, ``policy.PRODUCT_COORDINATES`` if None.
    """
    least = policy.PRODUCT_COORDINATES if least is None else least
    while isinstance(source, Kept):
        source = source.given
    if isinstance(source, LowRankSource):
        d = source.a.shape[1]
    elif isinstance(source, PointSource):
        name, x, *_ = source.prepared()
        d = x.shape[1] if name in _METRICS else 0
    elif isinstance(source, ExpressionSource):
        d = source.inner_products.count if source.inner_products is not None else 0
    else:
        return False
    return least <= d <= _MOST_COORDINATES


def vectors_of(source: CostSource) -> Vectors | None:
    """Return the vectors of a source; None if it is not such, or too large or small. O((n + m) d)."""
    n, m = source.shape
    plain = _plain_vectors(source) if is_product(source) else None
    if plain is None:
        return None
    terms = np.concatenate((plain.own, plain.other, plain.middle))
    with np.errstate(over="ignore", invalid="ignore"):
        size = max(_longest(plain, True, n), _longest(plain, False, m))
    if not (np.isfinite(terms).all() and _LEAST < size < _LARGEST and np.abs(terms).max() < _LARGEST):
        return None
    if not float(plain.weights.max()) * plain.scale < _LARGEST_WEIGHT:
        return None
    return replace(plain, exponent=-int(np.frexp(size)[1]))


def _plain_vectors(source: CostSource) -> Vectors | None:
    n, m = source.shape
    if isinstance(source, Scaled):
        inner = _plain_vectors(source.given)
        return None if inner is None else _multiplied(inner, source.factor)
    if isinstance(source, Kept):
        return _plain_vectors(source.given)
    if isinstance(source, LowRankSource):
        x, y = source.a, source.b
        terms = source.row_terms, source.column_terms
        return Vectors(x, y, np.zeros(x.shape[1]), np.ones(x.shape[1]), *terms, False, False, 1.0, 0)
    if isinstance(source, PointSource):
        name, _, _, weights, _ = source.prepared()
        sides = source.vectors()
        middle = (_sum(sides[0]) + _sum(sides[1])) / (n + m)
        none, scale = (np.zeros(n), np.zeros(m)), 0.5 if name == "cosine" else 1.0
        return Vectors(*sides, middle, weights, *none, True, name == "euclidean", scale, 0)
    if isinstance(source, ExpressionSource) and source.inner_products is not None:
        found, (x, y) = source.inner_products, source.vectors()
        middle, ones = np.zeros(found.count), np.ones(found.count)
        if found.kind == "product":
            return Vectors(x, y, middle, ones, *source.terms(), False, False, 1.0, 0)
        middle = (_sum(x) + _sum(y)) / (n + m)
        none = np.zeros(n), np.zeros(m)
        plain = Vectors(x, y, middle, ones, *none, True, found.kind == "root", 1.0, 0)
        return _multiplied(plain, found.factor)
    return None


def _sum(side: Any) -> Array:
    """Return the sum of vectors (k, d), whose parts are float64 or float32."""
    total = np.zeros(side.shape[1])
    for start in range(0, side.shape[0], _CONVERTED):
        total += side[start : start + _CONVERTED].sum(axis=0, dtype=np.float64)
    return total


def _multiplied(vectors: Vectors, factor: float) -> Vectors | None:
    """Return the vectors of costs times a positive factor, whose roundings are small against the margins';
    None if they are not."""
    if vectors.squared:
        weights = vectors.weights * (factor * factor if vectors.root else factor)
        return replace(vectors, weights=weights) if sound_scales(weights) else None
    return replace(
        vectors,
        x=np.asarray(vectors.x, np.float64) * factor,
        own=vectors.own * factor,
        other=vectors.other * factor,
    )


def _longest(vectors: Vectors, rows: bool, count: int) -> float:
    longest = 0.0
    for start in range(0, count, _CONVERTED):
        some, _ = vectors.side(rows, slice(start, start + _CONVERTED))
        longest = max(longest, float(np.sqrt((some * some).sum(axis=1).max())))
    return longest


class _Columns:
    """All columns as the bounds need them. Memory 4 m d bytes."""

    def __init__(self, vectors: Vectors, prices: Prices, sign: float) -> None:
        m, d = vectors.y.shape
        self.vectors, self.sign = vectors, sign
        self.unit = float(np.ldexp(1.0, (1 if vectors.root else 2) * vectors.exponent))
        self.reach = 0.0 if prices.low is None else float(np.abs(prices.low).max())
        roundings = (d + 64) * _SINGLE
        #: Relative error of an inner product, of its vectors and of the sums that follow.
        self.error = roundings / (1 - roundings) + (8 * d + 64) * _DOUBLE
        #: Relative error of terms, in float32 and in float64; what underflows.
        self.single, self.double = 48 * _SINGLE + (8 * d + 64) * _DOUBLE, (8 * d + 64) * _DOUBLE
        self.lost = 256.0 * d * _TINY
        self.inner = np.empty((m, d), np.float32)
        self.spread = np.empty(m, np.float32)
        terms = np.empty(m)
        for start in range(0, m, _CONVERTED):
            part = slice(start, start + _CONVERTED)
            some, terms[part] = vectors.side(False, part)
            self.inner[part] = some
            size = np.sqrt((some * some).sum(axis=1))
            self.spread[part] = size * self.error + self.lost
        most = prices.high if prices.low is None else np.nextafter(prices.high + prices.low, np.inf)
        raised = most * self.unit
        raised = raised + (self.single * np.abs(raised) + self.lost)
        lowered = sign * terms - (self.single * np.abs(terms) + self.lost)
        self.root = self._as_single(raised, np.inf) if vectors.root else np.empty(0, np.float32)
        self.column = self._as_single(lowered if vectors.root else lowered - raised, -np.inf)

    @staticmethod
    def _as_single(values: Array, beyond: float) -> Array:
        """Return float32; where these do not reach, a bound that excludes nothing."""
        with np.errstate(over="ignore"):
            return np.where(np.abs(values) < 1e37, values, beyond).astype(np.float32)

    def rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return vectors (k, d) and lengths of rows, float32, and their terms, float64."""
        vectors = self.vectors
        some, terms = vectors.side(True, rows)
        factor = self.sign * (-2.0 * vectors.scale if vectors.squared else 1.0)
        size = np.sqrt((some * some).sum(axis=1)) * abs(factor)
        margin = (self.single if vectors.root else self.double) * np.abs(terms)
        return (
            (some * factor).astype(np.float32),
            (size * 1.000001).astype(np.float32),
            self.sign * terms - margin,
        )


def multiplied(
    source: CostSource,
    best: scan.Minima,
    prices: Prices,
    maximize: bool,
    threads: int,
    tick: Tick | None,
    width: float | None,
) -> Descended | None:
    """Compute each row's least ``c - v`` by matrix products; None if the source has no such form.

    best: (n,) of the rows, values of ``c - v`` or inf; changed. Not finished where products exclude
    too little.
    """
    n, m = source.shape
    fill, vectors = fill_of(source), vectors_of(source)
    if fill is None or vectors is None or (vectors.root and maximize):
        return None
    sign = -1.0 if maximize else 1.0
    columns = _Columns(vectors, prices, sign)
    work = _Work(columns, Filler(fill.address, fill.context, sign), best, prices, width, n, m)

    def look() -> None:
        if tick is not None:
            tick(0)

    with one_thread():
        finished = share_out(n, _ROWS, threads, look, work.rows)
    near = None if width is None else joined([room.near for room in work.rooms.values()], width)
    return Descended(best, near, work.pairs, n * m, finished)


class _Room:
    """A thread's workspace."""

    def __init__(self, near: scan.Near) -> None:
        self.near = near
        self.tile = np.empty(_ROWS * _COLUMNS, np.float32)
        self.some, self.cost = np.empty(GROUP + 1, np.float32), np.empty(1)
        self.counts = np.zeros(1, np.int64)


class _Work:
    """The pass, shared by its threads."""

    def __init__(
        self,
        columns: _Columns,
        fill: Filler,
        best: scan.Minima,
        prices: Prices,
        width: float | None,
        n: int,
        m: int,
    ) -> None:
        self.columns, self.fill, self.best, self.prices, self.width = columns, fill, best, prices, width
        self.n, self.m = n, m
        self.rooms: dict[int, _Room] = {}
        self.lock = threading.Lock()
        self.done = self.pairs = 0

    def _room(self) -> _Room:
        with self.lock:
            key = threading.get_ident()
            if key not in self.rooms:
                near = scan.no_near(0 if self.width is None else _NEAR_A_ROW * self.n + _NEAR)
                self.rooms[key] = _Room(near)
            return self.rooms[key]

    def rows(self, start: int, stop: int, pause: Callable[[], None]) -> bool:
        """Process these rows; return False if too many pairs were read."""
        room, columns = self._room(), self.columns
        inner, size, own = columns.rows(np.arange(start, stop))
        single = own.astype(np.float32)
        room.counts[0] = 0
        below = self.prices.below()
        for first in range(0, self.m, _COLUMNS):
            last = min(first + _COLUMNS, self.m)
            tile = room.tile[: inner.shape[0] * (last - first)].reshape(inner.shape[0], last - first)
            np.matmul(inner, columns.inner[first:last].T, out=tile)
            panel = Panel(
                tile, columns.column, columns.spread, size, columns.root, own, columns.unit, start, first
            )
            margins = max(0.0, self.width or 0.0), columns.reach
            flags = exclude(
                panel,
                self.fill,
                single,
                self.prices.high,
                below,
                *margins,
                self.best,
                room.near,
                room.some,
                room.cost,
                room.counts,
            )
            if flags == INVALID:
                return False  # the pass says which cost it is
            pause()
        with self.lock:
            self.done += stop - start
            self.pairs += int(room.counts[0])
            # The first rows may have known no pair before.
            few = self.done * (self.m // policy.PROOF_PRODUCT_SHARE + GROUP)
            return self.pairs <= few
