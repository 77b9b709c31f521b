"""Compiled fillers around the filler of another source: see ``bigsap.sources.kept_bounds``.

All costs are float64. Each function computes what ``bigsap.sources.rules`` does, with the same bits.
"""

from __future__ import annotations

from typing import Any

from numba.np import numpy_support

from bigsap.compile.decorator import kernel
from bigsap.sources.base import Fill
from bigsap.sources.compiled import (
    call_fill,
    compile_fill,
    make_fill,
    pointer_f8,
    pointer_i4,
    pointer_i8,
    pointer_u1,
)
from bigsap.sources.products import Chosen

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
