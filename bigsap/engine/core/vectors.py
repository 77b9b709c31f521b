"""Operations of a search on LANES consecutive columns, in vector instructions.

They use LLVM vectors of 64 items, which LLVM splits to fit the processor. Plain loops are not
enough: LLVM vectorises a minimum of floats only over independent lanes, which then have to be
folded, and a loop would find columns that pass a test one by one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigsap.compile.vector_code import broadcast, smallest
from bigsap.engine.core.state import LANES


def _row(kind: Any) -> ir.VectorType:
    """Return the LLVM vector type of LANES items of a numba number type."""
    if isinstance(kind, types.Float):
        item = ir.DoubleType() if kind.bitwidth == 64 else ir.FloatType()
    else:
        item = ir.IntType(kind.bitwidth)
    return ir.VectorType(item, LANES)


def _loaded(context: Any, builder: Any, kind: Any, array: Any, first: Any) -> Any:
    """Load items ``first`` to ``first + LANES - 1`` of a contiguous array."""
    data = context.make_array(kind)(context, builder, array).data
    row = _row(kind.dtype)
    items = builder.load(builder.bitcast(builder.gep(data, [first]), row.as_pointer()))
    items.align = 1
    return items


def _converted(builder: Any, items: Any, kind: Any, to: Any) -> Any:
    """Convert items as numba would in arithmetic with ``to`` (float64 or int64)."""
    row = _row(to)
    if items.type == row:
        return items
    if isinstance(kind, types.Float):
        return builder.fpext(items, row)
    if isinstance(to, types.Float):
        return builder.sitofp(items, row) if kind.signed else builder.uitofp(items, row)
    return builder.sext(items, row) if kind.signed else builder.zext(items, row)


@intrinsic
def root_minima(
    typing: Any, cost: Any, v: Any, row_of_column: Any, first: Any, sign: Any, reference: Any, infinity: Any
) -> Any:
    """Return the smallest ``(sign * cost - reference) - v`` of LANES columns: of all, and of free ones.

    infinity: the result if none is free.
    """
    price = v.dtype
    real = isinstance(price, types.Float)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, w, r = (_loaded(context, builder, signature.args[k], args[k], args[3]) for k in range(3))
        c = _converted(builder, c, cost.dtype, price)
        sign, reference, infinity = (broadcast(builder, args[k], LANES) for k in (4, 5, 6))
        if real:
            label = builder.fsub(builder.fsub(builder.fmul(sign, c), reference), w)
        else:
            label = builder.sub(builder.sub(builder.mul(sign, c), reference), w)
        free = builder.icmp_signed("<", r, ir.Constant(r.type, [0] * LANES))
        spare = builder.select(free, label, infinity)
        found = [smallest(builder, items, real=real) for items in (label, spare)]
        return context.make_tuple(builder, signature.return_type, found)

    result = types.UniTuple(price, 2)
    return result(cost, v, row_of_column, types.int64, price, price, price), emit


@intrinsic
def sifted(typing: Any, cost: Any, sieve: Any, first: Any, sign: Any, limit: Any) -> Any:
    """Test ``sign * cost - sieve < limit`` for LANES columns; return the bits of a uint64.

    sieve: float32; all else is converted to float64.
    """
    double = ir.DoubleType()

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, s = (_loaded(context, builder, signature.args[k], args[k], args[2]) for k in range(2))
        c = _converted(builder, c, cost.dtype, types.float64)
        s = _converted(builder, s, sieve.dtype, types.float64)
        signed = args[3] if args[3].type == double else builder.sitofp(args[3], double)
        left = builder.fsub(builder.fmul(broadcast(builder, signed, LANES), c), s)
        hits = builder.fcmp_ordered("<", left, broadcast(builder, args[4], LANES))
        return builder.bitcast(hits, ir.IntType(LANES))

    return types.uint64(cost, sieve, types.int64, sign, types.float64), emit
