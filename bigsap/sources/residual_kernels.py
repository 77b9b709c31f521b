"""Compiled residual costs: ``c - u - v`` with prices in two parts, rounded once."""

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
    pointer_i8,
    pointer_like,
)
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
carray: Any = numpy_support.carray


@kernel(forceinline=True)
def _two(a: float, b: float) -> tuple[float, float]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel(forceinline=True)
def _residual(c: float, u: float, u_low: float, v: float, v_low: float) -> float:
    """Return ``c - u - u_low - v - v_low``, not below 0; large numbers may cancel."""
    a, b = _two(c, -u)
    a, d = _two(a, -v)
    e, f = _two(b, -u_low)
    g, h = _two(d, -v_low)
    e, k = _two(e, g)
    a, b = _two(a, e)
    found = a + (b + ((f + h) + k))
    return found if found > 0.0 else 0.0


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
        found = cap if found > cap else found
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
