"""Costs of small problems in the form that the dense kernel reads, copied to a workspace.

The dense kernel reads signed float64 rows. Problems of a batch come as they are in the user's
memory: of another number type, with more rows than columns, with a price at which rows may stay
unassigned, or to be maximised. Their costs are copied to a workspace that stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigsap.compile.decorator import kernel
from bigsap.compile.vector_code import broadcast, load, sweep
from bigsap.engine.small.vectors import WIDTHS, Minimum, store

#: The number types that are read where they lie.
DTYPES = tuple(np.dtype(name) for name in ("f8", "f4", "i8", "i4"))
_ITEMS = ir.DoubleType(), ir.FloatType(), ir.IntType(64), ir.IntType(32)
_DOUBLE, _LONG = ir.DoubleType(), ir.IntType(64)
#: The place of int64 in ``DTYPES``.
INT64 = 2
#: Columns of a problem with more rows than columns that are read together: a cache line of its copy.
_TOGETHER = 8


def _as_doubles(builder: Any, items: Any) -> Any:
    """Convert a number, or a vector of numbers, to float64."""
    item = items.type.element if isinstance(items.type, ir.VectorType) else items.type
    if isinstance(item, ir.DoubleType):
        return items
    kind = ir.VectorType(_DOUBLE, items.type.count) if item is not items.type else _DOUBLE
    return builder.fpext(items, kind) if isinstance(item, ir.FloatType) else builder.sitofp(items, kind)


def _at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _bytes(item: Any) -> int:
    return {ir.FloatType(): 4, ir.IntType(32): 4}.get(item, 8)


def _reading(item: Any) -> Callable[..., Any]:
    """Return an intrinsic that reads one number."""

    def read(typing: Any, address: Any) -> Any:
        """Return the number at an address as float64."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _as_doubles(builder, builder.load(_at(builder, args[0], item)))

        return types.float64(types.int64), emit

    return intrinsic(read)


def _copying(item: Any) -> Callable[..., Any]:
    """Return an intrinsic that copies numbers that lie side by side."""

    def copy(typing: Any, source: Any, target: Any, count: Any, sign: Any) -> Any:
        """Copy numbers times ``sign``."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, target, count, sign = args

            def body(first: Any, width: int) -> None:
                vector = ir.VectorType(item, width)
                place = builder.add(source, builder.mul(first, _LONG(_bytes(item))))
                items = builder.load(_at(builder, place, vector))
                items.align = _bytes(item)
                x = builder.fmul(_as_doubles(builder, items), broadcast(builder, sign, width))
                store(builder, x, target, first)

            sweep(builder, count, WIDTHS, body)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.float64), emit

    return intrinsic(copy)


def _turning(item: Any) -> Callable[..., Any]:
    """Return an intrinsic that copies numbers that lie ``step`` bytes apart."""

    def turn(typing: Any, source: Any, step: Any, target: Any, sign: Any) -> Any:
        """Copy a few numbers times ``sign``, which lie ``step`` bytes apart, side by side."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, step, target, sign = args
            items: Any = ir.Constant(ir.VectorType(item, _TOGETHER), ir.Undefined)
            for k in range(_TOGETHER):
                one = builder.load(_at(builder, builder.add(source, builder.mul(step, _LONG(k))), item))
                items = builder.insert_element(items, one, ir.IntType(32)(k))
            x = builder.fmul(_as_doubles(builder, items), broadcast(builder, sign, _TOGETHER))
            store(builder, x, target, _LONG(0))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.float64), emit

    return intrinsic(turn)


_read_f8, _read_f4, read_i8, _read_i4 = map(_reading, _ITEMS)
_copy_f8, _copy_f4, _copy_i8, _copy_i4 = map(_copying, _ITEMS)
_turn_f8, _turn_f4, _turn_i8, _turn_i4 = map(_turning, _ITEMS)


@intrinsic
def _largest(typing: Any, address: Any, count: Any) -> Any:
    """Return the largest magnitude of numbers that are not NaN."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, high = Minimum(builder), Minimum(builder)

        def body(first: Any, width: int) -> None:
            x = load(builder, args[0], first, width)
            low.add(builder, x)
            high.add(builder, builder.fneg(x))

        sweep(builder, args[1], WIDTHS, body)
        smallest, largest = builder.fneg(low.found(builder)), builder.fneg(high.found(builder))
        return builder.select(builder.fcmp_ordered("<", smallest, largest), largest, smallest)

    return types.float64(types.int64, types.int64), emit


@intrinsic
def _put(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write a float64 at ``index``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store(builder, args[2], args[0], args[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), emit


class Place(NamedTuple):
    """Where a problem lies in the user's memory.

    address: of its first cost. row_step, column_step: bytes between rows and between columns.
    kind: the number type's place in ``DTYPES``. sign: -1.0 when maximising.
    """

    address: int
    row_step: int
    column_step: int
    kind: int
    sign: float


@kernel
def signed_cost(p: Place, row: int, column: int) -> float:
    """Return one cost, signed."""
    at = p.address + row * p.row_step + column * p.column_step
    if p.kind == 0:
        return p.sign * _read_f8(at)
    if p.kind == 1:
        return p.sign * _read_f4(at)
    return p.sign * (read_i8(at) if p.kind == 2 else _read_i4(at))


@kernel
def copy_rows(p: Place, n: int, m: int, target: int, stride: int, whole: bool) -> float:
    """Copy (n, m) costs to rows ``stride`` items apart at ``target``.

    Returns their largest magnitude if they are ``whole``, integers, else 0.0.
    """
    largest, side_by_side = 0.0, 8 if p.kind == 0 or p.kind == INT64 else 4
    for i in range(n):
        at, to = p.address + i * p.row_step, target + 8 * i * stride
        if p.column_step != side_by_side:
            for j in range(m):
                _put(to, j, signed_cost(p, i, j))
        elif p.kind == 0:
            _copy_f8(at, to, m, p.sign)
        elif p.kind == 1:
            _copy_f4(at, to, m, p.sign)
        elif p.kind == INT64:
            _copy_i8(at, to, m, p.sign)
        else:
            _copy_i4(at, to, m, p.sign)
        if whole:
            largest = max(largest, _largest(to, m))
    return largest


@kernel
def copy_columns(p: Place, n: int, m: int, target: int, stride: int, whole: bool) -> float:
    """Copy the transposed matrix: column j of (n, m) costs to row j. Else as ``copy_rows``."""
    largest, even = 0.0, n - n % _TOGETHER
    for i in range(0, even, _TOGETHER):
        for j in range(m):
            at, to = p.address + i * p.row_step + j * p.column_step, target + 8 * (j * stride + i)
            if p.kind == 0:
                _turn_f8(at, p.row_step, to, p.sign)
            elif p.kind == 1:
                _turn_f4(at, p.row_step, to, p.sign)
            elif p.kind == INT64:
                _turn_i8(at, p.row_step, to, p.sign)
            else:
                _turn_i4(at, p.row_step, to, p.sign)
    for i in range(even, n):
        for j in range(m):
            _put(target + 8 * j * stride, i, signed_cost(p, i, j))
    if whole:
        for j in range(m):
            largest = max(largest, _largest(target + 8 * j * stride, n))
    return largest
