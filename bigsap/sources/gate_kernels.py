"""Compiled fillers that clip what another filler writes: see ``bigsap.sources.gated``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba.np import numpy_support

from bigsap.sources.base import Array, Fill
from bigsap.sources.compiled import call_fill, compile_fill, make_fill, pointer_i8, pointer_to

# numba's annotations describe the inside of its decorators, not what they return.
carray: Any = numpy_support.carray
njit: Any = numba.njit


def gate_fill(
    inner: Fill, item: np.dtype[Any], cap: Array, n_columns: int, maximize: bool
) -> Fill:
    """A filler that writes ``min(cost, cap[row])`` (max under ``maximize``).

    inner: writes costs of dtype ``item``, which is no wider than ``cap.dtype``, the
    dtype of what is written. Columns from ``n_columns`` on get ``cap[row]``.
    """
    kernel = _filler(item.name, cap.dtype.name)
    words = (inner.address, inner.context, cap, n_columns, int(maximize))
    return make_fill(kernel.address, words, (kernel, inner))


@cache
def _filler(narrow: str, wide: str) -> Any:
    """The filler for costs of one dtype read as another."""
    narrow_pointer = pointer_to(getattr(numba.types, narrow))
    wide_pointer = pointer_to(getattr(numba.types, wide))
    size, full = np.dtype(narrow).itemsize, np.dtype(wide).itemsize
    same = narrow == wide

    @njit
    def clip(context: int, row: int, start: int, stop: int, out: int) -> None:
        words = carray(pointer_i8(context), 5)
        n_columns, maximize = words[3], words[4] != 0
        cap = carray(wide_pointer(words[2] + full * row), 1)[0]
        n_inner = min(stop, n_columns) - start
        if n_inner > 0:
            costs = carray(wide_pointer(out), n_inner)
            # Narrow costs go to the end of the space and are widened from the left: a
            # wide item ends where the narrow one that it comes from begins, or earlier;
            # the last one alone overlaps its own source, which is read before.
            first = out + n_inner * (full - size)
            call_fill(words[0], words[1], row, start, start + n_inner, first)
            if not same:
                given = carray(narrow_pointer(first), n_inner)
                for k in range(n_inner):
                    costs[k] = given[k]
            # The comparisons are false for NaN, which has to survive.
            if maximize:
                for k in range(n_inner):
                    costs[k] = cap if costs[k] < cap else costs[k]
            else:
                for k in range(n_inner):
                    costs[k] = cap if costs[k] > cap else costs[k]
        n_inner = max(0, n_inner)
        rest = carray(wide_pointer(out + full * n_inner), stop - start - n_inner)
        rest[:] = cap

    def fill(context: int, row: int, start: int, stop: int, out: int) -> None:
        clip(context, row, start, stop, out)

    return compile_fill(fill)
