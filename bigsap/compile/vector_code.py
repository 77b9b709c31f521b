"""LLVM code of vectors, for intrinsics: load, broadcast."""

from __future__ import annotations

from typing import Any

from llvmlite import ir


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
    row, word = ir.VectorType(value.type, lanes), ir.IntType(32)
    nothing = ir.Constant(row, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(word, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(word, lanes), [0] * lanes))
