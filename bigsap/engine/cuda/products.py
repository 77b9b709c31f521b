"""Lower bounds of costs on a device, from inner products by cuBLAS.

With both sets moved so that their common mean is 0, the squared distance of two points is
``a + b - 2 p``: their squared norms and their inner product. Rounding differs from that of the
costs' own code, so a result is a bound: with ``u = 2**-53`` and d coordinates, the computed norms
and products err by at most ``d u / (1 - d u)`` times the sums of the terms' sizes (Higham, Accuracy
and Stability of Numerical Algorithms, 2nd ed., section 3.1), at most ``(a + b)`` in all; moving the
points, weighing them and the costs' own code add a few units. All of it is below
``(8 d + 64) u (a + b)``, which is ``gamma (a + b)``.

Costs that are inner products plus a term of the row and one of the column err by less than
``(8 d + 64) u (d X Y + R + S)``: X and Y the largest sizes of a row's and a column's factor, R and S of the
terms. The rows' vectors are multiplied by -1/2, which is exact but for denormal numbers next to the largest,
so that these costs are ``a + b - 2 p`` too.

Points of many coordinates are multiplied in float16, which takes tensor cores a tenth of the time:
docs/product_bounds.md, *Half precision*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.sources.cuda.code import ProductForm
from bigsap.sources.cuda.device_kernels import load_cupy
from bigsap.sources.cuda.device_memory import empty, naming_bytes
from bigsap.sources.cuda.placed import ComputedOnDevice, PlacedPoints
from bigsap.types import Array

#: Bytes of inner products of one batch.
_BYTES = 1 << 30
#: Rows of one batch: a block of threads each in the grid's second dimension.
_ROWS = 60_000
#: Where they are more, a multiple of this: cuBLAS computes tiles of so many rows, and as many blocks are one
#: for each multiprocessor of an H100 or H200.
_TILE = 128
_UNIT = 2.0**-53
#: Coordinates that are moved at a time.
_MOVED = 1 << 25
#: Largest squared norm: sums of a few stay finite.
_LARGEST = 1e300
#: What products that underflow may lose; and halves of numbers, unless the largest is smaller.
_LOST = _SMALLEST = 1e-290
#: float16: the largest coordinate is brought below 2**_EXPONENT; smaller ones than _SUBNORMAL lose bits.
_EXPONENT, _SUBNORMAL = 15, 2.0**-14
#: Coordinates of float16 are a multiple of this, else cuBLAS takes slower kernels.
_ALIGNED = 8
#: Largest coordinates between which products of float16 stay within float32.
_HALF_LEAST, _HALF_LARGEST = 2.0**-40, 2.0**40
#: CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT, CUBLAS_OP_N and CUBLAS_OP_T of cuBLAS.
_FLOAT16, _FLOAT32, _IN_FLOAT32, _ANY, _PLAIN, _TURNED = 2, 0, 68, -1, 0, 1


class Products(ABC):
    """Inner products of the rows' vectors with all columns' vectors, in device memory.

    Memory: a copy of both sets, and one batch of products.

    row_norms, column_norms: a (n,) and b (m,), the squared norms of points, or the terms of rows and columns.
    gamma, least: bound the error of ``a + b - 2 p``, which is ``gamma (a + b) + least``. item: dtype of the
    products. half: whether they are of points in float16. sums: (n,) at least the sizes of a + b and 2 p of a
    row with any column.
    """

    row_norms: Any
    column_norms: Any
    gamma: float
    least: float
    sums: Array

    def __init__(
        self, form: ProductForm, points: tuple[PlacedPoints, PlacedPoints], *, half: bool = False
    ) -> None:
        self.phi, self.half = form.phi, half
        self.item = np.dtype(np.float32 if half else np.float64)
        self._m, self._d = points[1].shape
        self._factor = 1.0

    @property
    def n_bytes(self) -> int:
        """Bytes that the copied points take on the device."""
        return int(self._rows.nbytes + self._columns.nbytes)

    def _parts(self, points: PlacedPoints) -> list[slice]:
        step = max(1, _MOVED // self._d)
        return [slice(start, start + step) for start in range(0, points.shape[0], step)]

    def _copy(self, points: tuple[PlacedPoints, PlacedPoints]) -> None:
        """Copy both sides in the type that is multiplied."""
        kind, width = (np.float16, -(-self._d // _ALIGNED) * _ALIGNED) if self.half else (np.float64, self._d)
        copies = []
        for side, given in enumerate(points):
            copy = empty((given.shape[0], width), kind, "the points")
            copy[:, self._d :] = 0
            for some in self._parts(given):
                copy[some, : self._d] = self._moved(side, given[some]) * self._factor
            copies.append(copy)
        self._rows, self._columns = copies

    @abstractmethod
    def _moved(self, side: int, points: Any) -> Any:
        """Return float64 vectors (k, d) of the rows (side 0) or columns as they are multiplied."""

    def fits(self) -> bool:
        """Return whether no bound overflows."""
        return float(self.sums.max(initial=0.0)) < _LARGEST

    def useful(self, sign: int) -> bool:
        """Return whether rows that a search asks for take less time there than on the host."""
        enough = self._m >= policy.PRODUCT_COLUMNS and self._d >= policy.PRODUCT_COORDINATES
        return enough and not (self.phi == 1 and sign < 0)

    def rows_at_once(self) -> int:
        """Return the most rows of a batch."""
        most = max(1, min(_ROWS, _BYTES // (self.item.itemsize * self._m)))
        return most if most < _TILE else most - most % _TILE

    def of(self, places: Any) -> Any:
        """Return the inner products of rows with all columns, (rows, m), on the device."""
        out = empty((places.size, self._m), self.item, "inner products")
        self.few(places, out)
        return out

    def few(self, places: Any, out: Any) -> None:
        """Write the inner products of rows with all columns to ``out`` (rows, m)."""
        cupy = load_cupy()
        rows = cupy.take(self._rows, places, axis=0)
        if self.half:
            _half_products(rows, self._columns, self._factor**-2, out)
        else:
            cupy.dot(rows, self._columns.T, out=out)

    def slack(self, rows: Array, reference: Array, largest: float) -> Array:
        """Return how far a bound of a row's least reduced cost may lie below it; (rows,).

        largest: size of a finite price.
        """
        sums = self.sums[rows]
        error = self.gamma * sums + self.least
        if self.phi == 1:
            width, highest = np.sqrt(2.0 * error), np.sqrt(2.0 * sums)
        else:
            width, highest = 2.0 * error, 2.0 * sums
        sizes = highest + np.abs(reference) + largest
        return np.asarray(1.01 * width + 2.0**-48 * sizes)


class ProductsOfPoints(Products):
    """Those of points, both sets moved so that their common mean is 0, and weighed."""

    def __init__(
        self, form: ProductForm, points: tuple[PlacedPoints, PlacedPoints], *, half: bool = False
    ) -> None:
        super().__init__(form, points, half=half)
        cupy = load_cupy()
        rows, columns = points
        self._middle = 0.5 * (rows.mean() + columns.mean())
        self._scale = cupy.asarray(np.sqrt(form.weights))
        self.row_norms = empty((rows.shape[0],), np.float64, "the points")
        self.column_norms = empty((self._m,), np.float64, "the points")
        largest = cupy.zeros(1, np.float64)
        for side, norms in enumerate((self.row_norms, self.column_norms)):
            for some in self._parts(points[side]):
                part = self._moved(side, points[side][some])
                norms[some] = (part * part).sum(axis=1)
                largest = cupy.maximum(largest, cupy.abs(part).max())
        self._largest = float(largest[0])
        self.sums = self.row_norms.get() + float(self.column_norms.get().max(initial=0.0))
        self.gamma, self.least = (8 * self._d + 64) * _UNIT, _LOST
        if not self.fits():
            return
        if half:
            self._factor = float(2.0 ** (_EXPONENT - np.frexp(self._largest)[1]))
            error, lost = half_error(self._d)
            self.gamma, self.least = self.gamma + error, _LOST + lost / self._factor**2
        self._copy(points)

    def _moved(self, side: int, points: Any) -> Any:
        return (points - self._middle) * self._scale

    def fits(self) -> bool:
        within = self._largest == 0 or _HALF_LEAST < self._largest < _HALF_LARGEST
        return super().fits() and (within or not self.half)


class ProductsAndTerms(Products):
    """Those of factors, the rows' times -1/2, for costs that are inner products plus terms."""

    def __init__(
        self, form: ProductForm, factors: tuple[PlacedPoints, PlacedPoints], terms: tuple[Any, Any]
    ) -> None:
        super().__init__(form, factors)
        cupy = load_cupy()
        self.row_norms, self.column_norms = terms
        # At least the largest norms, whatever underflows.
        sizes = [
            max((float(cupy.abs(side[some]).max()) for some in self._parts(side)), default=0.0)
            for side in factors
        ]
        self._sizes = sizes
        of_terms = sum(float(cupy.abs(some).max()) for some in terms if some.size)
        most = self._d * sizes[0] * sizes[1] + of_terms
        self.sums = np.full(factors[0].shape[0], most)
        self.gamma, self.least = 0.0, (8 * self._d + 64) * _UNIT * most + _LOST
        if self.fits():
            self._copy(factors)

    def _moved(self, side: int, points: Any) -> Any:
        return points if side else -0.5 * points

    def fits(self) -> bool:
        return super().fits() and all(size == 0.0 or size > _SMALLEST for size in self._sizes)


def largest_price(v: Array) -> float:
    """Return the largest size of a finite price."""
    largest = max(float(v.max(initial=0.0)), -float(v.min(initial=0.0)))
    return largest if np.isfinite(largest) else float(np.abs(v[np.isfinite(v)]).max(initial=0.0))


def products_of(source: ComputedOnDevice, *, half: bool = True) -> Products | None:
    """Return the products of a source on the current device; None where bounds may overflow.

    half: whether they may be of points in float16. Raises DeviceMemoryError.
    """
    with naming_bytes():
        return _products_of(source, half)


def _products_of(source: ComputedOnDevice, half: bool) -> Products | None:
    form = source.code().product
    products: Products
    if form is None:
        return None
    if form.inner:
        products = ProductsAndTerms(form, source.points(), source.product_terms())
        return products if products.fits() else None
    # A root is steep where points nearly coincide: there the bound of its error would be large.
    if half and form.phi != 1 and form.weights.size >= policy.DEVICE_HALF_COORDINATES:
        products = ProductsOfPoints(form, source.points(), half=True)
        if products.fits():
            return products
    products = ProductsOfPoints(form, source.points())
    return products if products.fits() else None


def half_error(d: int) -> tuple[float, float]:
    """Return bounds of the error of a squared distance by products of d coordinates in float16.

    The first is relative to the sum of the squared norms, the second is absolute, for coordinates times the
    factor. See docs/product_bounds.md, *Half precision*.
    """
    lost = _SUBNORMAL * d**0.5
    usual = 2.0**10  # a size is at most half of this, and of its square over this
    return 2.0**-10 + 2.0**-22 + (d + 64) * 2.0**-22 + lost / usual, 2 * (lost * usual + d * _SUBNORMAL**2)


def _half_products(rows: Any, columns: Any, factor: float, out: Any) -> None:
    """Write factor times the inner products of float16 rows (k, d) and columns (m, d) to float32 ``out``."""
    cuda = load_cupy().cuda
    (k, d), m = rows.shape, columns.shape[0]
    scalars = np.array([factor, 0.0], np.float32)
    one, none = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    # cuBLAS stores matrices by columns: to it, these are the transposes.
    cuda.cublas.gemmEx(
        *(cuda.device.get_cublas_handle(), _TURNED, _PLAIN, m, k, d, one),
        *(columns.data.ptr, _FLOAT16, d, rows.data.ptr, _FLOAT16, d),
        *(none, out.data.ptr, _FLOAT32, m, _IN_FLOAT32, _ANY),
    )
