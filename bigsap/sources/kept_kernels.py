"""Compiled fillers around the filler of another source: see ``bigsap.sources.kept_bounds``.

All costs are float64. Each function computes what ``bigsap.sources.rules`` does, with the same bits.
"""

from __future__ import annotations

from functools import cache
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
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
carray: Any = numpy_support.carray


@cache
def _compiled(name: str) -> Any:
    return compile_fill(globals()[name])


def limit_fill(inner: Fill, limit: float, infinity: float) -> Fill:
    """Return a filler that writes ``infinity`` where a cost is above the limit."""
    made = _compiled("limited")
    words = (inner.address, inner.context, float(limit), float(infinity))
    return make_fill(made.address, words, (made, inner), in_parts=inner.in_parts)


def scale_fill(inner: Fill, factor: float) -> Fill:
    """Return a filler that writes ``factor * cost``; infinite costs stay as they are."""
    made = _compiled("scaled")
    words = (inner.address, inner.context, float(factor))
    return make_fill(made.address, words, (made, inner), in_parts=inner.in_parts)


def mask_fill(inner: Fill, mask: Array, infinity: float, rows: Array, columns: Array) -> Fill:
    """Return a filler that writes ``infinity`` where ``mask[rows[i], columns[j]]`` is not 0.

    mask: integers, strides in any order. rows, columns: int64 (n_rows,), (n_columns,).
    """
    made = _compiled("masked")
    words = (inner.address, inner.context, *_words(mask, infinity, rows, columns))
    return make_fill(made.address, words, (made, inner), in_parts=inner.in_parts)


def limit_chosen(inner: tuple[int, int], keep: tuple[Any, ...], limit: float, infinity: float) -> Fill:
    """Return ``limit_fill`` for a function of chosen pairs, see ``products.Chosen``."""
    made = _compiled("chosen_limited")
    return make_fill(made.address, (*inner, float(limit), float(infinity)), (made, *keep))


def scale_chosen(inner: tuple[int, int], keep: tuple[Any, ...], factor: float) -> Fill:
    """Return ``scale_fill`` for a function of chosen pairs, see ``products.Chosen``."""
    made = _compiled("chosen_scaled")
    return make_fill(made.address, (*inner, float(factor)), (made, *keep))


def mask_chosen(
    inner: tuple[int, int], keep: tuple[Any, ...], mask: Array, infinity: float, rows: Array, columns: Array
) -> Fill:
    """Return ``mask_fill`` for a function of chosen pairs, see ``products.Chosen``."""
    made = _compiled("chosen_masked")
    return make_fill(made.address, (*inner, *_words(mask, infinity, rows, columns)), (made, *keep))


def _words(mask: Array, infinity: float, rows: Array, columns: Array) -> tuple[Any, ...]:
    """Return words 2 to 8 of the context: the mask's address and strides, bytes of an item, ..."""
    return mask, *mask.strides, mask.itemsize, float(infinity), rows, columns


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
    words = carray(pointer_i8(context), 2)
    call_fill(words[0], words[1], row, start, stop, out)
    _limit(context, out, stop - start)


def scaled(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``Scale`` of one source."""
    words = carray(pointer_i8(context), 2)
    call_fill(words[0], words[1], row, start, stop, out)
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
    words = carray(pointer_i8(context), 2)
    call_fill(words[0], words[1], row, ids, n, out)
    _limit(context, out, n)


def chosen_scaled(context: int, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``scaled`` for chosen columns."""
    words = carray(pointer_i8(context), 2)
    call_fill(words[0], words[1], row, ids, n, out)
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
