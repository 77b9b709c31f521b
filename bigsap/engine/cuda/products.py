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

from bigsap.sources.cuda.code import ProductForm
from bigsap.sources.cuda.device_kernels import load_cupy
from bigsap.sources.cuda.device_memory import copy_of
from bigsap.types import Array

#: Bytes of inner products of one batch.
_BYTES = 1 << 30
#: Rows of one batch: a block of threads each in the grid's second dimension.
_ROWS = 60_000
_UNIT = 2.0**-53
#: Largest squared norm: sums of a few stay finite.
_LARGEST = 1e300


class Products:
    """Inner products of the rows' points with all columns' points, in device memory.

    Memory: a copy of both sets, and one batch of products.
    """

    def __init__(self, form: ProductForm, rows: Array, columns: Array) -> None:
        """Copy moved points, rows (n, d) and columns (m, d), to the current device."""
        cupy = load_cupy()
        self.phi, d = form.phi, rows.shape[1]
        self.gamma = (8 * d + 64) * _UNIT
        row_norms, column_norms = ((part * part).sum(axis=1) for part in (rows, columns))
        self._row_norms, self._most = row_norms, float(column_norms.max(initial=0.0))
        self.row_norms, self.column_norms = cupy.asarray(row_norms), cupy.asarray(column_norms)
        self._rows = copy_of(np.ascontiguousarray(rows), "the points")
        self._columns = copy_of(np.ascontiguousarray(columns.T), "the points")

    def rows_at_once(self) -> int:
        """Return the most rows of a batch."""
        return max(1, min(_ROWS, _BYTES // (8 * self._columns.shape[1])))

    def of(self, places: Any) -> Any:
        """Return the inner products of rows with all columns, (rows, m), on the device."""
        return self._rows[places] @ self._columns

    def slack(self, rows: Array, reference: Array, v: Array) -> Array:
        """Return how far a bound of a row's least reduced cost may lie below it; (rows,)."""
        sums = self._row_norms[rows] + self._most
        error = self.gamma * sums + 1e-290
        if self.phi == 1:
            width, highest = np.sqrt(2.0 * error), np.sqrt(2.0 * sums)
        else:
            width, highest = 2.0 * error, 2.0 * sums
        finite = np.abs(v[np.isfinite(v)])
        sizes = highest + np.abs(reference) + float(finite.max(initial=0.0))
        return np.asarray(1.01 * width + 2.0**-48 * sizes)


def products_of(form: ProductForm | None) -> Products | None:
    """Return the products of a source on the current device; None where bounds may overflow."""
    if form is None:
        return None
    scale = np.sqrt(form.weights)
    with np.errstate(over="ignore", invalid="ignore"):
        middle = 0.5 * (form.rows.mean(axis=0) + form.columns.mean(axis=1))
        rows, columns = (form.rows - middle) * scale, (form.columns.T - middle) * scale
        largest = max((part * part).sum(axis=1).max(initial=0.0) for part in (rows, columns))
    if not largest < _LARGEST:
        return None
    return Products(form, rows, columns)
