"""Vector code of lower bounds from inner products, sixteen columns at a time.

LLVM does not find it by itself: the smallest of neighbouring columns is a chain of comparisons whose order
it may not change.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types

intrinsic: Any = extending.intrinsic

#: Columns of a group.
GROUP = 16
_WORD, _LONG = ir.IntType(32), ir.IntType(64)


def _item(kind: Any) -> Any:
    return ir.DoubleType() if kind == types.float64 else ir.FloatType()


def _pointer(builder: Any, address: Any, item: Any) -> Any:
    return builder.inttoptr(address, ir.VectorType(item, GROUP).as_pointer())


def _load(builder: Any, address: Any, item: Any) -> Any:
    found = builder.load(_pointer(builder, address, item))
    found.align = 8 if isinstance(item, ir.DoubleType) else 4
    return found


def _spread(builder: Any, value: Any) -> Any:
    """Broadcast a number to all lanes."""
    row = ir.VectorType(value.type, GROUP)
    nothing = ir.Constant(row, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(_WORD, GROUP), [0] * GROUP)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _WORD(0)), nothing, lanes)


def _least(builder: Any, items: Any) -> Any:
    """Return the smallest item of a vector."""
    while items.type.count > 1:
        half = items.type.count // 2
        nothing = ir.Constant(items.type, ir.Undefined)
        a, b = (
            builder.shuffle_vector(items, nothing, ir.Constant(ir.VectorType(_WORD, half), list(lanes)))
            for lanes in (range(half), range(half, 2 * half))
        )
        items = builder.select(builder.fcmp_ordered("<", a, b), a, b)
    return builder.extract_element(items, _WORD(0))


def _store(builder: Any, address: Any, items: Any) -> None:
    made = builder.store(items, _pointer(builder, address, items.type.element))
    made.align = 8 if isinstance(items.type.element, ir.DoubleType) else 4


@intrinsic
def plain_bounds(typing: Any, at: Any, column: Any, error: Any, size: Any) -> Any:
    """Replace 16 numbers t at an address by ``(t + column) - size * error``; return the smallest.

    at, column, error: int64 addresses of numbers of the type of ``size``, float32 or float64.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(signature.args[3])
        t, a, e = (_load(builder, address, item) for address in args[:3])
        found = builder.fsub(builder.fadd(t, a), builder.fmul(_spread(builder, args[3]), e))
        _store(builder, args[0], found)
        return _least(builder, found)

    return size(types.int64, types.int64, types.int64, size), emit


@intrinsic
def root_bounds(typing: Any, at: Any, column: Any, error: Any, price: Any, size: Any, term: Any) -> Any:
    """Replace 16 numbers by ``sqrt(max(0, t + column + term - size * error)) - price``; return the least."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(signature.args[4])
        t, a, e, v = (_load(builder, address, item) for address in args[:4])
        x = builder.fadd(builder.fadd(t, a), _spread(builder, args[5]))
        x = builder.fsub(x, builder.fmul(_spread(builder, args[4]), e))
        zero = ir.Constant(x.type, [0.0] * GROUP)
        x = builder.select(builder.fcmp_ordered(">", x, zero), x, zero)
        name = f"llvm.sqrt.v{GROUP}{'f64' if isinstance(item, ir.DoubleType) else 'f32'}"
        root = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(x.type, [x.type]))
        found = builder.fsub(builder.call(root, [x]), v)
        _store(builder, args[0], found)
        return _least(builder, found)

    return size(*[types.int64] * 4, size, size), emit


@intrinsic
def at_most_bits(typing: Any, values: Any, first: Any, limit: Any) -> Any:
    """Return a bit for each of 64 values from position ``first``: set unless it is above the limit.

    values: float32 or float64, contiguous.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        item = _item(signature.args[0].dtype)
        row = ir.VectorType(item, 64)
        some = builder.load(builder.bitcast(builder.gep(view.data, [args[1]]), row.as_pointer()))
        some.align = 8 if isinstance(item, ir.DoubleType) else 4
        nothing, lanes = ir.Constant(row, ir.Undefined), ir.Constant(ir.VectorType(_WORD, 64), [0] * 64)
        limits = builder.shuffle_vector(builder.insert_element(nothing, args[2], _WORD(0)), nothing, lanes)
        return builder.bitcast(builder.fcmp_unordered("<=", some, limits), _LONG)

    return types.uint64(values, types.int64, values.dtype), emit
