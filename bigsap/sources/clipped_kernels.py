"""Compiled fillers that clip the costs of another filler: see ``bigsap.sources.clipped``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np import numpy_support

from bigsap.compile.decorator import kernel
from bigsap.sources.base import Fill
from bigsap.sources.compiled import address_in, call_fill, compile_fill, make_fill, pointer_i8, pointer_like
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
carray: Any = numpy_support.carray


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
