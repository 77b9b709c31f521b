"""Vectorised passes over one row of costs, for the dense kernel.

Arrays are given by the addresses of their first items, all float64 except ``tree``, int64. A kernel
is then compiled once, whatever owns the memory or spaces the rows. Minima are kept over independent
lanes, in widths of 32 and 8 items, and of 4, 2 and 1 at the end. An ordered ``<`` never selects a NaN,
and nothing is assumed about infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsap.compile.decorator import kernel
from bigsap.compile.vector_code import broadcast, first_item, halves, item, load, place_at, smaller, sweep
from bigsap.engine.core.atomics import lowest_bit

# Items processed at a time, widest first.
WIDTHS = (32, 8, 4, 2, 1)
_DOUBLE, _LONG = ir.DoubleType(), ir.IntType(64)
_INFINITY = ir.Constant(_DOUBLE, math.inf)


def store(builder: Any, items: Any, address: Any, index: Any) -> None:
    """Write items of 8 bytes from position ``index`` on."""
    builder.store(items, place_at(builder, address, index, items.type)).align = 8


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), b, a)


class Minimum:
    """A running minimum for each width; LLVM keeps it in registers."""

    def __init__(self, builder: Any) -> None:
        self.rooms = {w: cgutils.alloca_once(builder, ir.VectorType(_DOUBLE, w)) for w in WIDTHS}
        for width, room in self.rooms.items():
            builder.store(broadcast(builder, _INFINITY, width), room)

    def get(self, builder: Any, width: int) -> Any:
        return builder.load(self.rooms[width])

    def put(self, builder: Any, items: Any) -> None:
        builder.store(items, self.rooms[items.type.count])

    def add(self, builder: Any, items: Any) -> None:
        self.put(builder, smaller(builder, items, self.get(builder, items.type.count)))

    def found(self, builder: Any) -> Any:
        least = self.get(builder, WIDTHS[0])
        for width in WIDTHS[1:]:
            while least.type.count > width:
                least = smaller(builder, *halves(builder, least))
            least = smaller(builder, least, self.get(builder, width))
        return first_item(builder, least)


class _TwoLeast:
    """The running smallest item and the next."""

    def __init__(self, builder: Any) -> None:
        self.low, self.next_low = Minimum(builder), Minimum(builder)

    def add(self, builder: Any, items: Any) -> None:
        low = self.low.get(builder, items.type.count)
        self.next_low.add(builder, _larger(builder, items, low))
        self.low.put(builder, smaller(builder, items, low))

    def found(self, builder: Any) -> tuple[Any, Any]:
        first, second = (part.get(builder, WIDTHS[0]) for part in (self.low, self.next_low))
        for width in WIDTHS[1:]:
            while first.type.count > width:
                (a, b), (c, d) = halves(builder, first), halves(builder, second)
                first, second = _joined(builder, (a, c), (b, d))
            other = self.low.get(builder, width), self.next_low.get(builder, width)
            first, second = _joined(builder, (first, second), other)
        return first_item(builder, first), first_item(builder, second)


def _joined(builder: Any, one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the two smallest items of two pairs, each sorted."""
    first = smaller(builder, one[0], other[0])
    second = smaller(builder, _larger(builder, one[0], other[0]), smaller(builder, one[1], other[1]))
    return first, second


@intrinsic
def judge(typing: Any, cost: Any, lows: Any, count: Any) -> Any:
    """Return the smallest cost of a row, and 1.0 if a cost is NaN; lower ``lows`` to the costs."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        least, wrong = Minimum(builder), cgutils.alloca_once_value(builder, ir.Constant(_LONG, 0))

        def body(first: Any, width: int) -> None:
            c = load(builder, args[0], first, width)
            w = load(builder, args[1], first, width)
            store(builder, smaller(builder, c, w), args[1], first)
            least.add(builder, c)
            bits = builder.bitcast(builder.fcmp_unordered("uno", c, c), ir.IntType(width))
            bits = builder.zext(bits, _LONG)
            builder.store(builder.or_(builder.load(wrong), bits), wrong)

        sweep(builder, args[2], WIDTHS, body)
        bad = builder.icmp_unsigned("!=", builder.load(wrong), _LONG(0))
        found = [least.found(builder), builder.uitofp(bad, _DOUBLE)]
        return context.make_tuple(builder, signature.return_type, found)

    result = types.UniTuple(types.float64, 2)
    return result(types.int64, types.int64, types.int64), emit


def _least_of(running: Callable[[Any], Any], result: Any) -> Callable[..., Any]:
    def found(typing: Any, cost: Any, price: Any, count: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            least = running(builder)

            def body(first: Any, width: int) -> None:
                c = load(builder, args[0], first, width)
                least.add(builder, builder.fsub(c, load(builder, args[1], first, width)))

            sweep(builder, args[2], WIDTHS, body)
            found = least.found(builder)
            return context.make_tuple(builder, result, found) if isinstance(found, tuple) else found

        return result(types.int64, types.int64, types.int64), emit

    return intrinsic(found)


#: Of (cost, price, count): the smallest ``cost - price``; and it with the next, which may be equal.
least = _least_of(Minimum, types.float64)
two_least = _least_of(_TwoLeast, types.UniTuple(types.float64, 2))


@intrinsic
def two_least_judged(typing: Any, cost: Any, price: Any, count: Any) -> Any:
    """Return what ``two_least`` returns, and 1.0 if a cost is NaN or -inf."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        least, wrong = _TwoLeast(builder), cgutils.alloca_once_value(builder, ir.Constant(_LONG, 0))
        lowest = ir.Constant(_DOUBLE, -math.inf)

        def body(first: Any, width: int) -> None:
            c = load(builder, args[0], first, width)
            least.add(builder, builder.fsub(c, load(builder, args[1], first, width)))
            # Unordered: true for a NaN, too.
            bits = builder.fcmp_unordered("<=", c, broadcast(builder, lowest, width))
            bits = builder.zext(builder.bitcast(bits, ir.IntType(width)), _LONG)
            builder.store(builder.or_(builder.load(wrong), bits), wrong)

        sweep(builder, args[2], WIDTHS, body)
        bad = builder.icmp_unsigned("!=", builder.load(wrong), _LONG(0))
        found = [*least.found(builder), builder.uitofp(bad, _DOUBLE)]
        return context.make_tuple(builder, signature.return_type, found)

    result = types.UniTuple(types.float64, 3)
    return result(types.int64, types.int64, types.int64), emit


def _relaxing(fresh: bool) -> Callable[..., Any]:
    def relaxed(
        typing: Any,
        cost: Any,
        price: Any,
        label: Any,
        tree: Any,
        spare: Any,
        count: Any,
        height: Any,
        row: Any,
    ) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            cost, price, label, tree, spare, count, height, row = args
            low, free = Minimum(builder), Minimum(builder)

            def body(first: Any, width: int) -> None:
                x = builder.fsub(load(builder, cost, first, width), load(builder, price, first, width))
                x = builder.fsub(x, broadcast(builder, height, width))
                tag = broadcast(builder, row, width)
                if not fresh:
                    d = load(builder, label, first, width)
                    better = builder.fcmp_ordered("<", x, d)
                    x = builder.select(better, x, d)
                    tag = builder.select(better, tag, load(builder, tree, first, width, _LONG))
                store(builder, x, label, first)
                store(builder, tag, tree, first)
                low.add(builder, x)
                free.add(builder, builder.fsub(x, load(builder, spare, first, width)))

            sweep(builder, count, WIDTHS, body)
            found = [low.found(builder), free.found(builder)]
            return context.make_tuple(builder, signature.return_type, found)

        result = types.UniTuple(types.float64, 2)
        return result(*[types.int64] * 6, types.float64, types.int64), emit

    relaxed.__doc__ = """Labels ``(cost - price) - height`` of a row{}.

    price: -inf where a column is settled. spare: 0 for a free column, -inf for others.
    Returns the smallest label, and that of a free column.
    """.format("" if fresh else ", where below those that are known")
    return intrinsic(relaxed)


#: ``tree`` holds the row that a label comes from.
open_labels = _relaxing(True)
relax_labels = _relaxing(False)


def _placing(width: int) -> Callable[..., Any]:
    def places(typing: Any, a: Any, b: Any, first: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x = load(builder, args[0], args[2], width)
            x = builder.fsub(x, load(builder, args[1], args[2], width))
            hits = builder.fcmp_ordered("==", x, broadcast(builder, args[3], width))
            return builder.zext(builder.bitcast(hits, ir.IntType(width)), _LONG)

        return types.int64(types.int64, types.int64, types.int64, types.float64), emit

    places.__doc__ = f"""Compare ``a - b == value`` for {width} items; return the bits."""
    return intrinsic(places)


_places_32, _places_8 = _placing(32), _placing(8)


@kernel
def find(a: int, b: int, start: int, count: int, value: float) -> int:
    """Return the first position from ``start`` on where ``a - b == value``, else ``count``."""
    j = start
    while j + 32 <= count:
        bits = _places_32(a, b, j, value)
        if bits != 0:
            return j + lowest_bit(np.uint64(bits))
        j += 32
    while j + 8 <= count:
        bits = _places_8(a, b, j, value)
        if bits != 0:
            return j + lowest_bit(np.uint64(bits))
        j += 8
    while j < count:
        if item(a, j) - item(b, j) == value:
            return j
        j += 1
    return count
