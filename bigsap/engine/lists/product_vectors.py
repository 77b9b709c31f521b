"""Vector code of lower bounds from inner products, sixteen columns at a time.

LLVM does not find it by itself: the smallest of neighbouring columns is a chain of comparisons whose order
it may not change.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types

from bigsap.compile.vector_code import broadcast, item_bytes, smallest, store_at, vector_at

intrinsic: Any = extending.intrinsic

#: Columns of a group.
GROUP = 16
_LONG = ir.IntType(64)


def _item(kind: Any) -> Any:
    return ir.DoubleType() if kind == types.float64 else ir.FloatType()


@intrinsic
def plain_bounds(typing: Any, at: Any, column: Any, error: Any, size: Any) -> Any:
    """Replace 16 numbers t at an address by ``(t + column) - size * error``; return the smallest.

    at, column, error: int64 addresses of numbers of the type of ``size``, float32 or float64.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = ir.VectorType(_item(signature.args[3]), GROUP)
        t, a, e = (vector_at(builder, address, row) for address in args[:3])
        found = builder.fsub(builder.fadd(t, a), builder.fmul(broadcast(builder, args[3], GROUP), e))
        store_at(builder, found, args[0])
        return smallest(builder, found)

    return size(types.int64, types.int64, types.int64, size), emit


@intrinsic
def root_bounds(typing: Any, at: Any, column: Any, error: Any, price: Any, size: Any, term: Any) -> Any:
    """Replace 16 numbers by ``sqrt(max(0, t + column + term - size * error)) - price``; return the least."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(signature.args[4])
        row = ir.VectorType(item, GROUP)
        t, a, e, v = (vector_at(builder, address, row) for address in args[:4])
        x = builder.fadd(builder.fadd(t, a), broadcast(builder, args[5], GROUP))
        x = builder.fsub(x, builder.fmul(broadcast(builder, args[4], GROUP), e))
        zero = ir.Constant(x.type, [0.0] * GROUP)
        x = builder.select(builder.fcmp_ordered(">", x, zero), x, zero)
        name = f"llvm.sqrt.v{GROUP}{'f64' if isinstance(item, ir.DoubleType) else 'f32'}"
        root = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(x.type, [x.type]))
        found = builder.fsub(builder.call(root, [x]), v)
        store_at(builder, found, args[0])
        return smallest(builder, found)

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
        some.align = item_bytes(item)
        limits = broadcast(builder, args[2], 64)
        return builder.bitcast(builder.fcmp_unordered("<=", some, limits), _LONG)

    return types.uint64(values, types.int64, values.dtype), emit
