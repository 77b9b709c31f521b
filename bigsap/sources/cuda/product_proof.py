"""The certificate's pass on a device over points or factors, most pairs excluded by matrix products.

With both sets moved so that their common mean is 0, the squared distance of two points is ``a + b - 2 p``:
their squared norms and their inner product. An error bound of that excludes pairs whose reduced cost cannot
be a row's least; the costs' own code computes the others, so that the minima have the bits of the pass over
all pairs. Shares no code with the engine's products.

The bound: with ``u = 2**-53`` and d coordinates, the computed norms and products err by at most
``d u / (1 - d u)`` times the sums of their terms' sizes (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.1), in any order of the terms; together at most ``2 d u (a + b)``. A point that
is moved and weighed has relative errors of 3 u, which change a squared distance by at most
``12 u (a + b)``; the costs' own sums err by ``(d + 3) u`` of at most ``2 (a + b)``. All of it is below
``(8 d + 128) u (a + b)``.

Costs that are inner products plus terms err, in the same way, by less than
``(8 d + 128) u (d X Y + R + S)``: X and Y the largest sizes of a factor of a row and of a column, R and S of
the terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.sources.cuda.code import ProductForm
from bigsap.sources.cuda.device_kernels import PRODUCT_PROOF, compiled, load_cupy
from bigsap.sources.cuda.device_memory import empty
from bigsap.types import Array, Tick

#: Bytes of inner products of one batch, and the most rows of one.
_BYTES, _ROWS = 1 << 30, 1 << 16
#: Rows of a batch are a multiple of this, where they are more: cuBLAS computes tiles of so many.
_TILE = 128
#: Threads of a row: few rows must fill a device.
_SIDE = 1024
#: Terms between two looks at the clock: some tenths of a second.
_TERMS = 1 << 42
#: Coordinates that are squared at a time.
_SQUARED = 1 << 25
#: Largest squared norm or cost: sums of a few stay finite.
_LARGEST = 1e300
#: What products that underflow may lose.
_LOST = 1e-290


def pays(form: ProductForm | None, shape: tuple[int, int], prices: Array) -> bool:
    """Return whether matrix products take less time than the costs of all pairs."""
    if form is None or prices.dtype.kind != "f":
        return False
    return shape[0] * shape[1] * form.weights.size >= policy.PRODUCT_PROOF_TERMS


def minima_by_products(
    source: Any,
    columns: Array | None,
    prices: Array,
    maximize: bool,
    tick: Tick,
    meanwhile: Callable[[], None],
) -> tuple[Array, Array, Array, int] | None:
    """Return the least ``c - v`` of each row, in two parts, assigned costs, and how many were computed.

    None where a bound may overflow, or bounds exclude too little. Raises DeviceMemoryError. Arguments as of
    ``device_proof._minima``; the source's code has a product form, and its device is the current one.
    O(n m d). Device memory: a float64 copy of the columns' points, and 1.5 GiB.
    """
    cupy, code = load_cupy(), source.code()
    n, m = source.shape
    form: ProductForm = code.product
    settings = (("PHI", form.phi), ("PRICE_IS_INT", 0), ("SIGN", -1 if maximize else 1))
    given = source.points()
    d = form.weights.size
    gamma, lost = np.float64((8 * d + 128) * 2.0**-53), np.float64(_LOST)
    move: Callable[[Any], Any]
    if form.inner:
        move, y = _half_negated, given[1][:]
        a, b = source.product_terms()
        sizes = [_largest_size(side) for side in (*given, a, b)]
        reach = d * sizes[0] * sizes[1] + sizes[2] + sizes[3]
        if any(0.0 < size < _LOST for size in sizes[:2]):
            return None  # bits of halves may be lost
        gamma, lost = np.float64(0.0), gamma * reach + lost
    else:
        move, y = _about_their_mean(form, *given)
        a, b = _squared_norms(given[0], move), _squared_norms(y)
        reach = max(float(a.max()), float(b.max()))
    if not reach < _LARGEST:
        return None
    kernel = compiled(source.device, code, PRODUCT_PROOF, settings).get("bigsap_product_proof")
    own_prices = cupy.asarray(prices)
    matching = np.intp(0) if columns is None else cupy.asarray(columns)
    found = [empty((n,), np.float64, "row duals") for _ in range(3)]
    computed = empty((n,), np.int32, "row duals")
    step = max(1, min(n, _ROWS, _BYTES // (8 * m)))
    if step > _TILE:
        step -= step % _TILE
    since = 0
    for first in range(0, n, step):
        count = min(step, n - first)
        inner = products(move(given[0][first : first + count]), y)
        words = (source.words(), inner, np.int32(m), np.int32(first), a, b, gamma, lost)
        kernel((count,), (_SIDE,), (*words, own_prices, matching, *found, computed))
        del inner, words  # free its memory for the next batch
        since += count * m * d
        meanwhile()
        if first == 0 and int(computed[:count].sum()) > policy.PRODUCT_PROOF_LEFT * count * m:
            return None
        if since >= _TERMS:
            cupy.cuda.get_current_stream().synchronize()
            tick(first + count)
            since = 0
    u, rest, costs = (part.get() for part in found)
    n_computed = int(computed.get().sum(dtype=np.int64))
    tick(n)
    return u, rest, costs, n_computed


def products(x: Any, y: Any) -> Any:
    """Return the inner products of points x (k, d) and y (m, d), (k, m)."""
    return x @ y.T


def _half_negated(factors: Any) -> Any:
    """Return factors (k, d) times -1/2, so that costs are ``a + b - 2 p`` here too."""
    return -0.5 * factors


def _largest_size(numbers: Any) -> float:
    """Return the largest size of numbers (k,) or (k, d), some at a time, 0 without any."""
    step = max(1, _SQUARED // (numbers.shape[1] if len(numbers.shape) > 1 else 1))
    parts = (numbers[start : start + step] for start in range(0, numbers.shape[0], step))
    return max((float(abs(part).max()) for part in parts), default=0.0)


def _squared_norms(points: Any, move: Callable[[Any], Any] = lambda points: points) -> Any:
    """Return the squared norms of points (k, d) once they are moved, some at a time."""
    k, d = points.shape
    norms = empty((k,), np.float64, "the points")
    step = max(1, _SQUARED // d)
    for start in range(0, k, step):
        part = move(points[start : start + step])
        norms[start : start + step] = (part * part).sum(axis=1)
    return norms


def _about_their_mean(form: ProductForm, x: Any, y: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return a function that moves and weighs points (k, d), and those of all columns, moved."""
    middle = 0.5 * (x.mean() + y.mean())
    scale = load_cupy().asarray(np.sqrt(form.weights))
    columns = empty(y.shape, np.float64, "the points")
    step = max(1, _SQUARED // y.shape[1])
    for start in range(0, y.shape[0], step):
        some = slice(start, start + step)
        columns[some] = (y[some] - middle) * scale
    return lambda points: (points - middle) * scale, columns
