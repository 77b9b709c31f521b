"""Evaluation of many rows by matrix products: lower bounds of all costs, exact costs of few.

A product of a tile of rows with all columns gives every inner product, rounded. Less a bound of
its error (docs/product_bounds.md) it gives a lower bound of each ``c - v``. Only columns whose bound lies
below the row's threshold get their cost from the source. So lists hold the source's costs, bit for bit,
and the exact threshold.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.blas import one_thread
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.state import ID, LANES
from bigsap.engine.core.team import Team
from bigsap.engine.lists.few_rows import FEW, WIDTH, multiply_few, tiled
from bigsap.engine.lists.layout import CHUNK, Lists
from bigsap.engine.lists.product_selection import (
    Bounds,
    Candidates,
    Chosen,
    Prices,
    copy_rows,
    free_columns,
    lower_bounds,
    price_terms,
    select_from_bounds,
    select_marked,
)
from bigsap.engine.lists.product_vectors import GROUP
from bigsap.sources.products import Multiplied, Product, Widened, mean_of, reach_of
from bigsap.types import Array

#: Rows of a tile, and columns multiplied at a time: a panel stays in the second-level cache.
TILE_ROWS, PANEL = 128, 2048
#: Bytes of a tile, for each thread.
_TILE_BYTES = 32 << 20
#: Multiplications of a thread's share: fewer take less time than a thread to wake up, 0.1 ms.
_SHARED = 4 << 20
#: Rows of vectors that are converted at a time.
_CONVERTED = 1024
#: Sizes of vectors for which no term of a bound leaves the range of float64.
_LEAST_SIZE, _LARGEST_SIZE = 1e-60, 1e60
#: Weights below this lift no squares that were lost in float64; terms times the unit stay finite below that.
_LARGEST_WEIGHT, _LARGEST_TERM = 1e100, 1e150
#: Roundings, besides those of the sum, of an inner product and of the steps to a bound; and the largest sum
#: of all, relative to the sizes, with which bounds are of use.
_ROUNDINGS, _MOST_ROUNDING = 32, 0.05
#: The same of the other terms.
_ROUNDED = 24
#: Candidates of a row for which there is room: as many times its entries, and some.
_ROOM = 3


class Scaled(NamedTuple):
    """Vectors of one side, centred, weighted and scaled, with what bounds need.

    vectors: T (k, d). sizes: float64 (k,) their lengths, rounded up. terms: float64 (k,) of the costs,
    times the unit; margin: float64 (k,) bound of the error of what the terms stand for, float64's roundings.
    """

    vectors: Array
    sizes: Array
    terms: Array
    margin: Array


class Form:
    """A source's product in the form of the bounds: ``c * unit = f(a_i + b_j + <x_i, y_j>)``.

    dtype: of the vectors, float32 or float64. See docs/product_bounds.md.
    """

    def __init__(self, product: Product, sign: float, dtype: np.dtype[Any]) -> None:
        self.product, self.sign, self.dtype = product, sign, dtype
        self.root = product.kind == "root"
        self._weights = np.sqrt(product.weights)
        n, m = product.x.shape[0], product.y.shape[0]
        d = product.x.shape[1]
        #: Rounding of T; of sums of d terms in float64; and of inner products in T, of what they are made
        #: of and what is made of them, times the sizes of the vectors.
        self.rounding = float(np.finfo(dtype).eps) / 2
        self._sum_error = 2.0 * (d + 16) * 2.0**-53
        roundings = (d + _ROUNDINGS) * self.rounding
        self.error = roundings / (1 - roundings) if roundings < _MOST_ROUNDING else np.inf
        #: Bound of what underflows in an inner product of vectors of size at most 2.
        self.underflow = 64.0 * d * float(np.finfo(dtype).tiny)
        mean_x, mean_y = mean_of(product.x), mean_of(product.y)
        if product.kind == "product":
            self._middle = mean_x, mean_y
        else:
            mean = (n * mean_x + m * mean_y) / (n + m)
            self._middle = mean, mean
        largest = [
            max((float(_lengths(self._centred(side, rows)).max()) for rows in _parts(count)), default=0.0)
            for side, count in ((0, n), (1, m))
        ]
        self.fits = all(x == 0 or _LEAST_SIZE < x < _LARGEST_SIZE for x in largest)
        self._sizes = [reach_of(v) * d**0.5 for v in (product.x, product.y)]
        self.fits = self.fits and max(self._sizes) < _LARGEST_SIZE and self.error < np.inf
        weight = float(product.weights.max(initial=0.0)) * abs(product.scale)
        self.fits = self.fits and weight < _LARGEST_WEIGHT
        self._factors = _power(largest[0]), _power(largest[1])
        if product.kind != "product":
            self._factors = (_power(max(largest)),) * 2
        self.square_unit = self._factors[0] * self._factors[1]
        self.unit = self._factors[0] if self.root else self.square_unit
        sides = product.row_terms, product.column_terms
        term = max(float(np.abs(some).max(initial=0.0)) for some in sides)
        self.fits = self.fits and term * self.square_unit < _LARGEST_TERM

    def _centred(self, side: int, rows: Any) -> Array:
        given = (self.product.x, self.product.y)[side]
        vectors = given[rows] if isinstance(given, Widened) else given[rows].astype(np.float64)
        vectors -= self._middle[side]
        if self.product.kind != "product":
            vectors *= self._weights
        return vectors

    def scaled(self, side: int, rows: Any) -> Scaled:
        """Return rows (side 0) or columns (side 1), given as a slice or ids."""
        product, sign = self.product, self.sign
        centred = self._centred(side, rows)
        centred *= self._factors[side]
        squares = np.einsum("ij,ij->i", centred, centred)
        if product.kind == "product":
            terms, margin = self._product_terms(side, rows)
            factor = sign
        else:
            terms = sign * product.scale * squares
            margin = 4 * self._sum_error * np.abs(terms)
            factor = -2.0 * product.scale * sign
        sizes = np.sqrt(squares) * (1 + self._sum_error)
        if side == 0:
            centred *= factor
            sizes *= abs(factor)
        return Scaled(centred.astype(self.dtype), sizes, terms, margin)

    def _product_terms(self, side: int, rows: Any) -> tuple[Array, Array]:
        """Return what centring takes from the products, with the terms of rows or columns; and its error."""
        product, unit = self.product, self.square_unit
        vectors = np.asarray((product.x, product.y)[side][rows], np.float64)
        own = (product.row_terms, product.column_terms)[side][rows]
        other, middle = self._middle[1 - side], self._middle[side]
        taken = vectors @ other
        if side == 0:
            taken -= middle @ other
        sizes = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        reach = (sizes + _length(middle)) * (self._sizes[1 - side] + _length(other)) + np.abs(own)
        return self.sign * unit * (taken + own), 4 * self._sum_error * unit * reach


def _length(vector: Array) -> float:
    return float(np.sqrt(vector @ vector))


def _lengths(vectors: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors))


def _power(largest: float) -> float:
    """Return the power of two that brings a size to between a half and 1."""
    return 1.0 if largest == 0 else float(2.0 ** -np.frexp(largest)[1])


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + _CONVERTED, count)) for start in range(0, count, _CONVERTED)]


class Products:
    """Evaluation of rows by matrix products.

    Memory: the columns' vectors, up to three times that much where they are not large, and a tile for each
    thread.

    form: of the bounds. seed, terms: as for other evaluations.
    """

    def __init__(self, form: Form, seed: int, terms: Terms, team: Team) -> None:
        self.form, self.seed, self.terms, self.team = form, seed, terms, team
        m, self.d = form.product.y.shape
        kind = form.dtype.type
        #: Most rows of a tile.
        self.height = min(TILE_ROWS, max(1, _TILE_BYTES // (m * form.dtype.itemsize)))
        self._columns = np.empty((m, self.d), kind)
        self._error, self._terms, self._margin = np.empty(m, kind), np.empty(m), np.empty(m)
        for part in _parts(m):
            side = form.scaled(1, part)
            self._columns[part], self._terms[part], self._margin[part] = side.vectors, side.terms, side.margin
            self._error[part] = side.sizes * (form.error * (1 + 8 * form.rounding)) + form.underflow
        #: Column terms, lowered by what they may be too large.
        self._lowered = self._terms - (
            self._margin + _ROUNDED * form.rounding * np.abs(self._terms) + form.underflow
        )
        chosen = form.product.chosen
        self._chosen = Chosen(chosen.address, chosen.context)
        self._free = np.empty(m, ID)
        n = form.product.x.shape[0]
        #: Of the rows: sizes, and terms within and outside of roots.
        self._sizes, self._inside, self._outside = np.empty(n, kind), np.empty(n, kind), np.zeros(n)
        #: Inner products of the rows that are known, if they are kept.
        self._kept: Array | None = None
        self._known = np.zeros(n, bool)
        small = max(n, m) * self.d * form.dtype.itemsize <= policy.PRODUCT_COPY_BYTES
        #: Vectors of the rows that were prepared, and the columns' for products with few rows, if kept.
        self._rows: Array | None = np.empty((n, self.d), kind) if small else None
        self._tiles: Array | None = None
        self._few = small and form.dtype == np.float32
        self._prepared = np.zeros(n, bool)
        self._room: list[_Room] = []
        self._lock = threading.Lock()

    def evaluate(self, rows: Array, v: Array, open_price: Array, lists: Lists) -> int:
        """Evaluate rows under these prices; return one with an invalid cost, -1 if there is none.

        open_price: v where a column is free.
        """
        if not rows.size:
            return -1
        n_free = free_columns(v, open_price, self._free)
        prices = Prices(v, open_price, self._free[: n_free if n_free < v.size else 0])
        width = max(1, min(self.team.n_threads, rows.size * v.size * self.d // _SHARED))
        height = max(1, min(self.height, -(-rows.size // width)))
        if self._few and rows.size <= FEW and self._tiles is None:
            self._tiles = tiled(self._columns)
        self._make_room(height, int(lists.width[rows].max()))
        wave = _Wave(rows, height, prices, self._priced_terms(v), lists)
        with one_thread():
            if width == 1:
                self._work(0, 1, wave)
            else:
                self.team.run_claims(self._work, wave)
        return wave.bad

    def _priced_terms(self, v: Array) -> Array:
        """Return T (1 or 2, m): see ``lower_bounds``. Rounded so that bounds stay bounds."""
        form = self.form
        priced = np.empty((2 if form.root else 1, v.size), form.dtype)
        most = float(np.finfo(form.dtype).max) / 4
        price_terms(v, self._lowered, form.unit, _ROUNDED * form.rounding, form.underflow, most, priced)
        return priced

    def _make_room(self, height: int, k: int) -> None:
        m = self.terms.n_columns
        for member in range(self.team.n_threads):
            if member == len(self._room):
                self._room.append(_Room.of(height, m, k, self.form.dtype))
            elif self._room[member].height < height or self._room[member].k < k:
                before = self._room[member]
                self._room[member] = _Room.of(
                    max(height, before.height), m, max(k, before.k), self.form.dtype
                )

    def _work(self, member: int, width: int, wave: _Wave) -> int:
        room = self._room[member]
        while wave.bad < 0:
            with self._lock:
                start = wave.next
                wave.next += wave.height
            rows = wave.rows[start : start + wave.height]
            if not rows.size:
                break
            bad = self._tile(rows, room, wave)
            if bad >= 0:
                wave.bad = int(rows[bad])
        return 0

    def keep(self, n_bytes: int) -> None:
        """Keep the inner products of all rows, if they take at most so many bytes."""
        n, m = self.form.product.x.shape[0], self.terms.n_columns
        if n * m * self.form.dtype.itemsize <= n_bytes:
            self._kept = np.empty((n, m), self.form.dtype)

    def _tile(self, rows: Array, room: _Room, wave: _Wave) -> int:
        """Evaluate a tile of rows; return the index of an invalid one, or -1."""
        form, m, kind = self.form, self.terms.n_columns, self.form.dtype.type
        tile, low = room.tile[: rows.size], room.low[: rows.size]
        known = self._kept is not None and bool(self._known[rows].all())
        side = None if known else self._vectors(rows)
        few = side is not None and rows.size <= FEW and self._tiles is not None
        if few:
            multiply_few(side, self._tiles, tile, room.edge)
        sizes, inside, outside = self._sizes[rows], self._inside[rows], self._outside[rows]
        step = m if few else PANEL
        for first in range(0, m, step):
            panel = tile[:, first : min(first + step, m)]
            if side is not None:
                if not few:
                    np.matmul(side, self._columns[first : first + step].T, out=panel)
                if self._kept is not None:
                    self._kept[rows, first : first + step] = panel
            elif self._kept is not None:
                copy_rows(self._kept, rows, first, panel)
            lower_bounds(panel, first, low, wave.terms, self._error, sizes, inside, kind(0))
        self._known[rows] = True
        bounds = Bounds(tile, low, outside, form.unit, room.failed, room.minima, room.lanes)
        given = rows, self.seed, wave.prices
        bad = int(select_from_bounds(*given, self._chosen, self.terms, bounds, room.candidates, wave.lists))
        if bad < 0 and room.failed[: rows.size].any():
            bad = int(select_marked(rows, room.failed, *given[1:], self.terms, room.candidates, wave.lists))
        return bad

    def _vectors(self, rows: Array) -> Array:
        """Return the rows' vectors; set what else bounds need of them."""
        if self._rows is None:
            return self._prepare(rows)
        new = rows[~self._prepared[rows]]
        if new.size:
            self._rows[new] = self._prepare(new)
            self._prepared[new] = True
        return self._rows[rows]

    def _prepare(self, rows: Array) -> Array:
        form, kind = self.form, self.form.dtype.type
        side = form.scaled(0, rows)
        own = side.terms - side.margin
        self._inside[rows] = (own - _ROUNDED * form.rounding * np.abs(own)).astype(kind)
        if not form.root:
            self._outside[rows] = own - _ROUNDED * 2.0**-53 * np.abs(own)
        self._sizes[rows] = (side.sizes * (1 + 8 * form.rounding)).astype(kind)
        return side.vectors


@dataclass
class _Wave:
    """Rows that are evaluated together. next: of the rows; bad: an invalid one, -1."""

    rows: Array
    height: int
    prices: Prices
    terms: Array
    lists: Lists
    next: int = 0
    bad: int = -1


class _Room(NamedTuple):
    """One thread's workspace for tiles of ``height`` rows with lists of up to k entries."""

    height: int
    k: int
    tile: Array
    edge: Array
    low: Array
    failed: Array
    minima: Array
    lanes: Array
    candidates: Candidates

    @classmethod
    def of(cls, height: int, m: int, k: int, dtype: np.dtype[Any]) -> _Room:
        groups = -(-m // GROUP)
        n = _ROOM * (k + 1) + 3 * CHUNK
        return cls(
            height,
            k,
            np.empty((height, m), dtype),
            np.empty((FEW, WIDTH), dtype),
            np.empty((height, groups), dtype),
            np.empty(height, np.uint8),
            np.empty(m),
            np.empty(2 * LANES),
            Candidates(
                np.empty(n, ID),
                np.empty(n),
                np.empty(n),
                np.empty(CHUNK),
                np.empty(n, ID),
                np.empty(n, ID),
                np.zeros(m, ID),
            ),
        )


def products_of(source: Any, sign: float, seed: int, terms: Terms, team: Team) -> Products | None:
    """Return the evaluation of a source's rows by matrix products; None if it has none, or none of use."""
    product = source.product() if isinstance(source, Multiplied) else None
    if product is None or 0 in (product.x.shape[0], product.y.shape[0]):
        return None
    if product.kind == "root" and sign < 0:
        return None
    form = Form(product, sign, np.dtype(np.float32))
    return Products(form, seed, terms, team) if form.fits else None


def useful_products(source: Any, terms: Terms, seed: int, team: Team) -> Products | None:
    """Return ``products_of`` a source; None too if it has few columns or coordinates.

    For few, other evaluations are as fast (``policy.PRODUCT_COLUMNS``, ``PRODUCT_COORDINATES``).
    """
    if terms.n_columns < policy.PRODUCT_COLUMNS:
        return None
    found = products_of(source, float(terms.sign), seed, terms, team)
    return found if found and found.d >= policy.PRODUCT_COORDINATES else None
