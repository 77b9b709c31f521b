"""Lower bounds of the costs of point sets on a device, from inner products by cuBLAS.

With both sets moved so that their common mean is 0, the squared distance of two points is
``a + b - 2 p``: their squared norms and their inner product. Rounding differs from that of the
costs' own code, so a result is a bound: with ``u = 2**-53`` and d coordinates, the computed norms
and products err by at most ``d u / (1 - d u)`` times the sums of the terms' sizes (Higham, Accuracy
and Stability of Numerical Algorithms, 2nd ed., section 3.1), at most ``(a + b)`` in all; moving the
points, weighing them and the costs' own code add a few units. All of it is below
``(8 d + 64) u (a + b)``, which is ``gamma (a + b)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.cuda.batch import SIDE
from bigsap.sources.cuda.code import ProductForm
from bigsap.sources.cuda.device_kernels import load_cupy
from bigsap.sources.cuda.device_memory import copy_of, empty
from bigsap.types import Array

#: Bytes of inner products of one batch.
_BYTES = 1 << 30
#: Rows of one batch: a block of threads each in the grid's second dimension.
_ROWS = 60_000
#: Where they are more, a multiple of this: cuBLAS computes tiles of so many rows, and as many blocks are one
#: for each multiprocessor of an H100 or H200.
_TILE = 128
_UNIT = 2.0**-53
#: Coordinates that are squared at a time.
_SQUARED = 1 << 25
#: Largest squared norm: sums of a few stay finite.
_LARGEST = 1e300


class Products:
    """Inner products of the rows' points with all columns' points, in device memory.

    Memory: a copy of both sets, and one batch of products.
    """

    def __init__(self, form: ProductForm) -> None:
        """Copy the points, moved and weighed, to the current device."""
        cupy = load_cupy()
        self.phi, d = form.phi, form.weights.size
        self.gamma = (8 * d + 64) * _UNIT
        rows, columns = copy_of(form.rows, "the points"), copy_of(form.columns, "the points")
        middle = 0.5 * (rows.mean(axis=0) + columns.mean(axis=1))
        scale = cupy.asarray(np.sqrt(form.weights))
        # In place: they are copies of the host's.
        rows -= middle
        rows *= scale
        columns -= middle[:, None]
        columns *= scale[:, None]
        self._rows, self._columns = rows, columns
        self.row_norms = empty((rows.shape[0],), np.float64, "the points")
        self.column_norms = empty((columns.shape[1],), np.float64, "the points")
        step = max(1, _SQUARED // d)
        for start in range(0, rows.shape[0], step):
            part = self._rows[start : start + step]
            self.row_norms[start : start + step] = (part * part).sum(axis=1)
        for start in range(0, columns.shape[1], step):
            part = self._columns[:, start : start + step]
            self.column_norms[start : start + step] = (part * part).sum(axis=0)
        self._row_norms = self.row_norms.get()
        self._most = float(self.column_norms.get().max(initial=0.0))

    def fits(self) -> bool:
        """Return whether no bound overflows."""
        return bool(max(self._row_norms.max(initial=0.0), self._most) < _LARGEST)

    def useful(self, sign: int) -> bool:
        """Return whether rows that a search asks for take less time there than on the host."""
        d, m = self._columns.shape
        enough = m >= policy.PRODUCT_COLUMNS and d >= policy.PRODUCT_COORDINATES
        return enough and not (self.phi == 1 and sign < 0)

    def rows_at_once(self) -> int:
        """Return the most rows of a batch."""
        most = max(1, min(_ROWS, _BYTES // (8 * self._columns.shape[1])))
        return most if most < _TILE else most - most % _TILE

    def of(self, places: Any) -> Any:
        """Return the inner products of rows with all columns, (rows, m), on the device."""
        return self._rows[places] @ self._columns

    def few(self, kernel: Any, places: Any, count: int, out: Any) -> None:
        """Write the inner products of few rows with all columns to ``out``. kernel: bigsap_few_products."""
        d, m = self._columns.shape
        given = (self._rows, self._columns, np.int32(d), np.int32(m), places, out)
        kernel((-(-m // (SIDE // 4)), count), (SIDE,), given)

    def slack(self, rows: Array, reference: Array, largest: float) -> Array:
        """Return how far a bound of a row's least reduced cost may lie below it; (rows,).

        largest: size of a finite price.
        """
        sums = self._row_norms[rows] + self._most
        error = self.gamma * sums + 1e-290
        if self.phi == 1:
            width, highest = np.sqrt(2.0 * error), np.sqrt(2.0 * sums)
        else:
            width, highest = 2.0 * error, 2.0 * sums
        sizes = highest + np.abs(reference) + largest
        return np.asarray(1.01 * width + 2.0**-48 * sizes)


def largest_price(v: Array) -> float:
    """Return the largest size of a finite price."""
    largest = max(float(v.max(initial=0.0)), -float(v.min(initial=0.0)))
    return largest if np.isfinite(largest) else float(np.abs(v[np.isfinite(v)]).max(initial=0.0))


def products_of(form: ProductForm | None) -> Products | None:
    """Return the products of a source on the current device; None where bounds may overflow."""
    if form is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        products = Products(form)
    return products if products.fits() else None
