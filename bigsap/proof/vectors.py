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

from bigsap.compile.vector_code import broadcast, load, smaller, smallest, sweep

#: Items processed at a time, widest first.
WIDTHS = (32, 8, 1)
_DOUBLE, _LONG = ir.DoubleType(), ir.IntType(64)
_INFINITY = ir.Constant(_DOUBLE, math.inf)


def _difference(builder: Any, given: Any, first: Any, width: int) -> Any:
    """Compute ``sign * cost - price - low`` of items, rounded after each step.

    given: the addresses of cost, price and low, 0 for a missing one, and the sign.
    """
    cost, price, low, sign = given
    c = builder.fmul(load(builder, cost, first, width), broadcast(builder, sign, width))
    x = builder.fsub(c, load(builder, price, first, width))
    return x if low is None else builder.fsub(x, load(builder, low, first, width))


def _least_of(paired: bool) -> Callable[..., Any]:
    def least(typing: Any, cost: Any, price: Any, low: Any, count: Any, sign: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = (args[0], args[1], args[2] if paired else None, args[4])
            rooms = {w: cgutils.alloca_once(builder, ir.VectorType(_DOUBLE, w)) for w in WIDTHS}
            for width, room in rooms.items():
                builder.store(broadcast(builder, _INFINITY, width), room)
            wrong = cgutils.alloca_once_value(builder, ir.Constant(_LONG, 0))

            def body(first: Any, width: int) -> None:
                x = _difference(builder, given, first, width)
                builder.store(smaller(builder, x, builder.load(rooms[width])), rooms[width])
                bits = builder.bitcast(builder.fcmp_unordered("uno", x, x), ir.IntType(width))
                bits = builder.zext(bits, _LONG)
                builder.store(builder.or_(builder.load(wrong), bits), wrong)

            sweep(builder, args[3], WIDTHS, body)
            parts = [smallest(builder, builder.load(rooms[width])) for width in WIDTHS]
            found = smaller(builder, parts[0], smaller(builder, parts[1], parts[2]))
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
            hits = builder.fcmp_ordered("<=", x, broadcast(builder, args[5], width))
            return builder.zext(builder.bitcast(hits, ir.IntType(width)), _LONG)

        return types.int64(*[types.int64] * 4, types.float64, types.float64), emit

    within.__doc__ = "Which of 32 differences from ``first`` on are at most ``limit``, as bits."
    return intrinsic(within)


#: Differences are ``sign * cost - price``; the others, of pairs of floats, also subtract ``low``.
least_difference, least_of_pairs = _least_of(False), _least_of(True)
any_within, any_of_pairs = _within_of(False), _within_of(True)
