"""Compiled fillers that clip the costs of another filler: see ``bigsap.sources.clipped``.

One function for each pair of dtypes, named by both: ``f4_f8`` reads float32 costs as float64. Each
is defined at module level, because numba keeps on disk only functions that capture no other
compiled function.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba.np import numpy_support

from bigsap.compile.decorator import kernel
from bigsap.sources.base import Fill
from bigsap.sources.compiled import (
    call_fill,
    compile_fill,
    make_fill,
    pointer_f8,
    pointer_i8,
    pointer_to,
    pointer_u1,
    pointer_u2,
)
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
carray: Any = numpy_support.carray

_pointer_f4 = pointer_to(numba.types.float32)
_pointer_i4 = pointer_to(numba.types.int32)


def gate_fill(inner: Fill, item: np.dtype[Any], cap: Array, n_columns: int, maximize: bool) -> Fill:
    """Return a filler that writes ``min(cost, cap[row])`` (max under ``maximize``).

    inner: writes costs of dtype ``item``, which is no wider than ``cap.dtype``, the output dtype.
    Columns from ``n_columns`` on get ``cap[row]``.
    """
    kernel = _filler(f"{item.str[1:]}_{cap.dtype.str[1:]}")
    words = (inner.address, inner.context, cap, n_columns, int(maximize))
    return make_fill(kernel.address, words, (kernel, inner), in_parts=inner.in_parts)


@cache
def _filler(name: str) -> Any:
    return compile_fill(globals()[name])


@kernel(nrt=True)
def _begin(
    context: int, row: int, start: int, stop: int, out: int, size: int, full: int
) -> tuple[int, int, int, bool]:
    """Call the inner filler; return number and address of costs, the cap's address, the sense.

    Context words: the inner filler's address and context, caps, columns, maximize. Narrow costs
    (size bytes) go to the end of the space of wide ones (full bytes) and are widened from the left:
    a wide item ends before the narrow one after its own begins.
    """
    words = carray(pointer_i8(context), 5)
    n = max(0, min(stop, words[3]) - start)
    first = out + n * (full - size)
    if n > 0:
        call_fill(words[0], words[1], row, start, start + n, first)
    return n, first, words[2] + full * row, words[4] != 0


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


def f8_f8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip f8 costs as f8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 8, 8)
    cap = carray(pointer_f8(at), 1)[0]
    _clip(carray(pointer_f8(first), n), carray(pointer_f8(out), stop - start), cap, largest)


def f4_f4(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip f4 costs as f4."""
    n, first, at, largest = _begin(context, row, start, stop, out, 4, 4)
    cap = carray(_pointer_f4(at), 1)[0]
    _clip(carray(_pointer_f4(first), n), carray(_pointer_f4(out), stop - start), cap, largest)


def i8_i8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip i8 costs as i8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 8, 8)
    cap = carray(pointer_i8(at), 1)[0]
    _clip(carray(pointer_i8(first), n), carray(pointer_i8(out), stop - start), cap, largest)


def i4_i4(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip i4 costs as i4."""
    n, first, at, largest = _begin(context, row, start, stop, out, 4, 4)
    cap = carray(_pointer_i4(at), 1)[0]
    _clip(carray(_pointer_i4(first), n), carray(_pointer_i4(out), stop - start), cap, largest)


def u1_u1(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip u1 costs as u1."""
    n, first, at, largest = _begin(context, row, start, stop, out, 1, 1)
    cap = carray(pointer_u1(at), 1)[0]
    _clip(carray(pointer_u1(first), n), carray(pointer_u1(out), stop - start), cap, largest)


def u2_u2(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip u2 costs as u2."""
    n, first, at, largest = _begin(context, row, start, stop, out, 2, 2)
    cap = carray(pointer_u2(at), 1)[0]
    _clip(carray(pointer_u2(first), n), carray(pointer_u2(out), stop - start), cap, largest)


def f4_f8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip f4 costs as f8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 4, 8)
    cap = carray(pointer_f8(at), 1)[0]
    _clip(carray(_pointer_f4(first), n), carray(pointer_f8(out), stop - start), cap, largest)


def i4_i8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip i4 costs as i8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 4, 8)
    cap = carray(pointer_i8(at), 1)[0]
    _clip(carray(_pointer_i4(first), n), carray(pointer_i8(out), stop - start), cap, largest)


def i4_f8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip i4 costs as f8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 4, 8)
    cap = carray(pointer_f8(at), 1)[0]
    _clip(carray(_pointer_i4(first), n), carray(pointer_f8(out), stop - start), cap, largest)


def u1_i8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip u1 costs as i8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 1, 8)
    cap = carray(pointer_i8(at), 1)[0]
    _clip(carray(pointer_u1(first), n), carray(pointer_i8(out), stop - start), cap, largest)


def u1_f8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip u1 costs as f8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 1, 8)
    cap = carray(pointer_f8(at), 1)[0]
    _clip(carray(pointer_u1(first), n), carray(pointer_f8(out), stop - start), cap, largest)


def u2_i8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip u2 costs as i8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 2, 8)
    cap = carray(pointer_i8(at), 1)[0]
    _clip(carray(pointer_u2(first), n), carray(pointer_i8(out), stop - start), cap, largest)


def u2_f8(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Clip u2 costs as f8."""
    n, first, at, largest = _begin(context, row, start, stop, out, 2, 8)
    cap = carray(pointer_f8(at), 1)[0]
    _clip(carray(pointer_u2(first), n), carray(pointer_f8(out), stop - start), cap, largest)
