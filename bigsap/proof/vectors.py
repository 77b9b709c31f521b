"""Vectorised loops over one row of costs, for the certificate's pass.

Arrays of float64 are given by the addresses of their first items. Minima are kept over
independent lanes, in widths of 32 and 8 items, and singly at the end. An ordered ``<`` never
selects a NaN; NaNs are reported instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Items processed at a time, widest first.
WIDTHS = (32, 8, 1)
_DOUBLE, _LONG, _WORD = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_INFINITY = ir.Constant(_DOUBLE, math.inf)


def _spread(builder: Any, item: Any, width: int) -> Any:
    """Broadcast an item to all lanes."""
    nothing = ir.Constant(ir.VectorType(item.type, width), ir.Undefined)
    one = builder.insert_element(nothing, item, _WORD(0))
    lanes = ir.Constant(ir.VectorType(_WORD, width), [0] * width)
    return builder.shuffle_vector(one, nothing, lanes)


def _load(builder: Any, address: Any, index: Any, width: int) -> Any:
    at = builder.add(address, builder.shl(index, _LONG(3)))
    pointer = builder.inttoptr(at, ir.VectorType(_DOUBLE, width).as_pointer())
    items = builder.load(pointer)
    items.align = 8
    return items


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    """Return the smaller item of each lane; b where a is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _least(builder: Any, items: Any) -> Any:
    """Return the smallest item of a vector."""
    while items.type.count > 1:
        half = items.type.count // 2
        nothing = ir.Constant(items.type, ir.Undefined)
        ends = [
            builder.shuffle_vector(items, nothing, ir.Constant(ir.VectorType(_WORD, half), list(lanes)))
            for lanes in (range(half), range(half, 2 * half))
        ]
        items = _smaller(builder, *ends)
    return builder.extract_element(items, _WORD(0))


def _sweep(builder: Any, count: Any, body: Callable[[Any, int], None]) -> None:
    """Emit ``body(first, width)`` over all ``count`` items."""
    start: Any = _LONG(0)
    for width in WIDTHS:
        stop = builder.and_(count, _LONG(-width))
        with cgutils.for_range_slice(builder, start, stop, _LONG(width), _LONG) as (first, _):
            body(first, width)
        start = stop


def _difference(builder: Any, given: Any, first: Any, width: int) -> Any:
    """Compute ``sign * cost - price - low`` of items, rounded after each step.

    given: the addresses of cost, price and low, 0 for a missing one, and the sign.
    """
    cost, price, low, sign = given
    c = builder.fmul(_load(builder, cost, first, width), _spread(builder, sign, width))
    x = builder.fsub(c, _load(builder, price, first, width))
    return x if low is None else builder.fsub(x, _load(builder, low, first, width))


def _least_of(paired: bool) -> Callable[..., Any]:
    def least(typing: Any, cost: Any, price: Any, low: Any, count: Any, sign: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = (args[0], args[1], args[2] if paired else None, args[4])
            rooms = {w: cgutils.alloca_once(builder, ir.VectorType(_DOUBLE, w)) for w in WIDTHS}
            for width, room in rooms.items():
                builder.store(_spread(builder, _INFINITY, width), room)
            wrong = cgutils.alloca_once_value(builder, ir.Constant(_LONG, 0))

            def body(first: Any, width: int) -> None:
                x = _difference(builder, given, first, width)
                builder.store(_smaller(builder, x, builder.load(rooms[width])), rooms[width])
                bits = builder.bitcast(builder.fcmp_unordered("uno", x, x), ir.IntType(width))
                bits = builder.zext(bits, _LONG)
                builder.store(builder.or_(builder.load(wrong), bits), wrong)

            _sweep(builder, args[3], body)
            parts = [_least(builder, builder.load(rooms[width])) for width in WIDTHS]
            found = _smaller(builder, parts[0], _smaller(builder, parts[1], parts[2]))
            bad = builder.icmp_unsigned("!=", builder.load(wrong), _LONG(0))
            tell = [found, builder.uitofp(bad, _DOUBLE)]
            return context.make_tuple(builder, signature.return_type, tell)

        result = types.UniTuple(types.float64, 2)
        return result(*[types.int64] * 4, types.float64), emit

    least.__doc__ = "The smallest difference, and 1.0 if one of them is NaN, else 0.0."
    return intrinsic(least)


def _within_of(paired: bool) -> Callable[..., Any]:
    def within(typing: Any, cost: Any, price: Any, low: Any, first: Any, sign: Any, limit: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = WIDTHS[0]
            given = (args[0], args[1], args[2] if paired else None, args[4])
            x = _difference(builder, given, args[3], width)
            hits = builder.fcmp_ordered("<=", x, _spread(builder, args[5], width))
            return builder.zext(builder.bitcast(hits, ir.IntType(width)), _LONG)

        return types.int64(*[types.int64] * 4, types.float64, types.float64), emit

    within.__doc__ = "Which of 32 differences from ``first`` on are at most ``limit``, as bits."
    return intrinsic(within)


#: Differences are ``sign * cost - price``; the others, of pairs of floats, also subtract ``low``.
least_difference, least_of_pairs = _least_of(False), _least_of(True)
any_within, any_of_pairs = _within_of(False), _within_of(True)


@intrinsic
def item(typing: Any, address: Any, index: Any) -> Any:
    """Return the float64 at ``index``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(_load(builder, args[0], args[1], 1), _WORD(0))

    return types.float64(types.int64, types.int64), emit
