"""LLVM code of vectors, for intrinsics: load, broadcast, minima, loops over items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic
_DOUBLE, _LONG, _WORD = ir.DoubleType(), ir.IntType(64), ir.IntType(32)


def vector_at(builder: Any, address: Any, row: Any) -> Any:
    """Load a vector of type ``row`` from an int64 address of aligned items."""
    return _load(builder, builder.inttoptr(address, row.as_pointer()), row.element)


def number_at(builder: Any, address: Any, k: Any, item: Any) -> Any:
    """Load the k-th number of type ``item`` from an int64 address of aligned items."""
    return _load(builder, builder.gep(builder.inttoptr(address, item.as_pointer()), [k]), item)


def _load(builder: Any, place: Any, item: Any) -> Any:
    found = builder.load(place)
    found.align = item_bytes(item)
    return found


def store_at(builder: Any, value: Any, address: Any) -> None:
    """Store a vector at an int64 address of aligned items."""
    made = builder.store(value, builder.inttoptr(address, value.type.as_pointer()))
    made.align = item_bytes(value.type.element)


def item_bytes(item: Any) -> int:
    """Return the size of a floating-point type."""
    return 8 if isinstance(item, ir.DoubleType) else 4


def broadcast(builder: Any, value: Any, lanes: int) -> Any:
    """Return a vector whose lanes all hold a number."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(nothing, value, _WORD(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_WORD, lanes), [0] * lanes))


def place_at(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    """Return a pointer to ``kind`` at item ``index``, of 8 bytes each, from an int64 address."""
    at = builder.add(address, builder.shl(index, _LONG(3)))
    return builder.inttoptr(at, kind.as_pointer())


def load(builder: Any, address: Any, index: Any, width: int, item: Any = _DOUBLE) -> Any:
    """Return items of 8 bytes from position ``index`` on."""
    items = builder.load(place_at(builder, address, index, ir.VectorType(item, width)))
    items.align = 8
    return items


def smaller(builder: Any, a: Any, b: Any) -> Any:
    """Return the smaller item of each lane; b where a is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def halves(builder: Any, items: Any) -> tuple[Any, Any]:
    """Return the two halves of a vector."""
    width = items.type.count // 2
    nothing = ir.Constant(items.type, ir.Undefined)

    def half(lanes: range) -> Any:
        lanes_of = ir.Constant(ir.VectorType(_WORD, width), list(lanes))
        return builder.shuffle_vector(items, nothing, lanes_of)

    return half(range(width)), half(range(width, 2 * width))


def first_item(builder: Any, items: Any) -> Any:
    """Return the first item of a vector."""
    return builder.extract_element(items, _WORD(0))


def smallest(builder: Any, items: Any, *, real: bool = True) -> Any:
    """Return the smallest item of a vector of floats, or of signed integers."""
    while items.type.count > 1:
        a, b = halves(builder, items)
        below = builder.fcmp_ordered("<", a, b) if real else builder.icmp_signed("<", a, b)
        items = builder.select(below, a, b)
    return first_item(builder, items)


def sweep(builder: Any, count: Any, widths: tuple[int, ...], body: Callable[[Any, int], None]) -> None:
    """Emit ``body(first, width)`` over all ``count`` items, in widths from the largest to 1."""
    start: Any = _LONG(0)
    for width in widths:
        stop = builder.and_(count, _LONG(-width))
        with cgutils.for_range_slice(builder, start, stop, _LONG(width), _LONG) as (first, _):
            body(first, width)
        start = stop


def _item(typing: Any, address: Any, index: Any) -> Any:
    """Return the float64 at ``index`` from an address."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(place_at(builder, args[0], args[1], _DOUBLE))

    return types.float64(types.int64, types.int64), emit


item = intrinsic(_item)
