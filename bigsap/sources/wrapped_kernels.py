"""Compiled fillers around the filler of another source.

For costs with pairs forbidden or multiplied (``kept_bounds``): all are float64, and each function computes
what ``rules`` does, with the same bits. For costs that are clipped (``clipped``). For residual costs
(``residual``): ``c - u - v`` with prices in two parts, rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np import numpy_support

from bigsap.compile.decorator import kernel
from bigsap.sources.base import Fill
from bigsap.sources.compiled import (
    address_in,
    call_fill,
    compile_fill,
    make_fill,
    pointer_f8,
    pointer_i4,
    pointer_i8,
    pointer_like,
    pointer_u1,
)
from bigsap.sources.products import Chosen
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
carray: Any = numpy_support.carray


def kept_fill(rule: str, inner: Fill | Chosen, words: tuple[Any, ...]) -> Fill:
    """Return a filler that changes another one's costs, or a function of chosen pairs that does.

    rule: "limited", "scaled" or "masked". words: the context beyond address and context of ``inner``.
    """
    made = compile_fill(globals()[rule if isinstance(inner, Fill) else f"chosen_{rule}"])
    keep, in_parts = ((inner,), inner.in_parts) if isinstance(inner, Fill) else (inner.keep, False)
    return make_fill(made.address, (inner.address, inner.context, *words), (made, *keep), in_parts=in_parts)


@kernel(nrt=True)
def _inner(context: int, row: int, first: int, last: int, out: int) -> None:
    """Call the inner function, of a part of a row or of chosen pairs."""
    words = carray(pointer_i8(context), 2)
    call_fill(words[0], words[1], row, first, last, out)


@kernel(nrt=True)
def _limit(context: int, out: int, n: int) -> None:
    """Forbid costs above the limit. Context words: two of the inner function, limit, infinity."""
    numbers = carray(pointer_f8(context), 4)
    limit, infinity = numbers[2], numbers[3]
    costs = carray(pointer_f8(out), n)
    for k in range(n):
        c = costs[k]
        # An infinity stays what it is, and so does NaN.
        costs[k] = infinity if c > limit and c - c == 0.0 else c


@kernel(nrt=True)
def _scale(context: int, out: int, n: int) -> None:
    """Multiply finite costs by the factor. Context words: two of the inner function, the factor."""
    factor = carray(pointer_f8(context), 3)[2]
    costs = carray(pointer_f8(out), n)
    for k in range(n):
        c = costs[k]
        costs[k] = c * factor if c - c == 0.0 else c


@kernel(nrt=True)
def _is_set(at: int, size: int) -> bool:
    """Return whether one of ``size`` bytes is not 0."""
    some = carray(pointer_u1(at), size)
    for k in range(size):  # noqa: SIM110  # numba compiles no generator expressions
        if some[k] != 0:
            return True
    return False


def limited(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``Threshold`` of one source."""
    _inner(context, row, start, stop, out)
    _limit(context, out, stop - start)


def scaled(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``Scale`` of one source."""
    _inner(context, row, start, stop, out)
    _scale(context, out, stop - start)


def masked(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``Mask`` of one source.

    Context words: two of the inner function, the mask's address and strides, bytes of an item, the
    infinity, the addresses of the mask's rows and columns.
    """
    words, infinity = carray(pointer_i8(context), 9), carray(pointer_f8(context), 7)[6]
    call_fill(words[0], words[1], row, start, stop, out)
    n = stop - start
    at = words[2] + carray(pointer_i8(words[7] + 8 * row), 1)[0] * words[3]
    columns = carray(pointer_i8(words[8] + 8 * start), n)
    costs = carray(pointer_f8(out), n)
    for k in range(n):
        if _is_set(at + columns[k] * words[4], words[5]):
            costs[k] = infinity


def chosen_limited(context: int, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``limited`` for chosen columns."""
    _inner(context, row, ids, n, out)
    _limit(context, out, n)


def chosen_scaled(context: int, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``scaled`` for chosen columns."""
    _inner(context, row, ids, n, out)
    _scale(context, out, n)


def chosen_masked(context: int, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``masked`` for chosen columns."""
    words, infinity = carray(pointer_i8(context), 9), carray(pointer_f8(context), 7)[6]
    call_fill(words[0], words[1], row, ids, n, out)
    at = words[2] + carray(pointer_i8(words[7] + 8 * row), 1)[0] * words[3]
    some, costs = carray(pointer_i4(ids), n), carray(pointer_f8(out), n)
    for k in range(n):
        column = carray(pointer_i8(words[8] + 8 * some[k]), 1)[0]
        if _is_set(at + column * words[4], words[5]):
            costs[k] = infinity


def gate_fill(inner: Fill, item: np.dtype[Any], cap: Array, n_columns: int, maximize: bool) -> Fill:
    """Return a filler that writes ``min(cost, cap[row])`` (max under ``maximize``).

    inner: writes costs of dtype ``item``, which is no wider than ``cap.dtype``, the output dtype.
    Columns from ``n_columns`` on get ``cap[row]``.
    """
    kernel = compile_fill(clipped, given=item, out=cap.dtype)
    words = (inner.address, inner.context, cap, n_columns, int(maximize))
    return make_fill(kernel.address, words, (kernel, inner), in_parts=inner.in_parts)


@kernel(nrt=True)
def _clip(given: Array, costs: Array, cap: Any, maximize: bool) -> None:
    """Clip costs; both comparisons are false for NaN, which must survive."""
    n = given.size
    if maximize:
        for k in range(n):
            cost = given[k]
            costs[k] = cap if cost < cap else cost
    else:
        for k in range(n):
            cost = given[k]
            costs[k] = cap if cost > cap else cost
    costs[n:] = cap


def clipped(context: Any, row: int, start: int, stop: int, out: Any) -> None:
    """Clip costs of the context's number type as costs of the type of ``out``.

    Context words: the inner filler's address and context, caps, columns, maximize. Narrow costs
    go to the end of the space of wide ones and are widened from the left: a wide item ends before the
    narrow one after its own begins.
    """
    words = carray(pointer_i8(address_in(context)), 5)
    n = max(0, min(stop, words[3]) - start)
    size, full = carray(context, 1).itemsize, carray(out, 1).itemsize
    first = address_in(out) + n * (full - size)
    if n > 0:
        call_fill(words[0], words[1], row, start, start + n, first)
    cap = carray(pointer_like(out, words[2] + full * row), 1)[0]
    _clip(carray(pointer_like(context, first), n), carray(out, stop - start), cap, words[4] != 0)


@kernel(forceinline=True)
def _two(a: float, b: float) -> tuple[float, float]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel(forceinline=True)
def _residual(c: float, u: float, u_low: float, v: float, v_low: float) -> float:
    """Return ``c - u - u_low - v - v_low``, not below 0; large numbers may cancel. NaN beyond float64."""
    a, b = _two(c, -u)
    a, d = _two(a, -v)
    e, f = _two(b, -u_low)
    g, h = _two(d, -v_low)
    e, k = _two(e, g)
    a, b = _two(a, e)
    found = a + (b + ((f + h) + k))
    return 0.0 if found <= 0.0 else found


@kernel(nrt=True)
def subtract(
    costs: Array,
    sign: float,
    u: float,
    u_low: float,
    v: Array,
    v_low: Array,
    cap: float,
    scale: float,
    out: Array,
) -> None:
    """Write scaled residual costs of a part of a row; keep forbidden pairs. out may be costs."""
    for j in range(costs.size):
        c = sign * costs[j]
        found = _residual(c, u, u_low, v[j], v_low[j])
        found = found if found < cap else cap
        out[j] = np.inf if c == np.inf else found * scale


@kernel(nrt=True)
def subtract_rows(
    costs: Array,
    sign: float,
    rows: Array,
    start: int,
    u: Array,
    u_low: Array,
    v: Array,
    v_low: Array,
    cap: float,
    scale: float,
) -> None:
    """Write scaled residual costs of rows (k, l) from column ``start`` on, in place."""
    stop = start + costs.shape[1]
    for k in range(rows.size):
        i = rows[k]
        subtract(costs[k], sign, u[i], u_low[i], v[start:stop], v_low[start:stop], cap, scale, costs[k])


def residual_fill(
    inner: Fill,
    item: np.dtype[Any],
    sign: float,
    u: Array,
    u_low: Array,
    v: Array,
    v_low: Array,
    limits: Array,
) -> Fill:
    """Return a filler that writes residual costs, float64.

    inner: writes costs of dtype ``item``. limits (2,): the cap, and the factor of the capped costs.
    """
    body = compile_fill(residual, given=item)
    words = (inner.address, inner.context, u, u_low, v, v_low, int(sign), u.size, v.size, limits)
    return make_fill(body.address, words, (body, inner), in_parts=inner.in_parts)


def residual(context: Any, row: int, start: int, stop: int, out: int) -> None:
    """Write residual costs from costs of the context's number type.

    Narrow costs are written to the end of the space of wide ones. Context words: the inner filler's
    address and context, u, u_low, v, v_low, sign, n, m, the limits.
    """
    words = carray(pointer_i8(address_in(context)), 10)
    first = out + (stop - start) * (8 - carray(context, 1).itemsize)
    call_fill(words[0], words[1], row, start, stop, first)
    n, m = words[7], words[8]
    u, u_low = carray(pointer_f8(words[2]), n), carray(pointer_f8(words[3]), n)
    v, v_low = carray(pointer_f8(words[4]), m), carray(pointer_f8(words[5]), m)
    limits = carray(pointer_f8(words[9]), 2)
    subtract(
        carray(pointer_like(context, first), stop - start),
        float(words[6]),
        u[row],
        u_low[row],
        v[start:stop],
        v_low[start:stop],
        limits[0],
        limits[1],
        carray(pointer_f8(out), stop - start),
    )
