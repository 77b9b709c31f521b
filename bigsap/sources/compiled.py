"""Shared machinery of compiled cost functions: addresses, context blocks, calling.

A compiled cost function is a C function (see ``base.Fill``) whose data are passed in a *context
block*, an int64 array of addresses, sizes and scalars. None of the data is compiled into machine
code, so kernels that call such functions stay cacheable on disk, and arrays that change in place
are read correctly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils as numba_cgutils

from bigsap.compile.decorator import callback, kernel
from bigsap.sources.base import Fill
from bigsap.sources.convert import check_rows
from bigsap.types import Array, Ids

# numba's annotations describe the inside of its decorators, not their results.
types: Any = numba.types
intrinsic: Any = extending.intrinsic
cgutils: Any = numba_cgutils

#: Arguments (context, row, start, stop, out), no result.
FILL_SIGNATURE = types.void(*[types.int64] * 5)

#: Most pairs computed in one call; interrupts are served between calls.
PAIRS_PER_CALL = 1 << 20
# Pairs of the first call. The others should take at most ``_CALL_SECONDS``.
_FIRST_PAIRS = 1 << 10
# A later read starts with one in _REMEMBERED of the pairs that fitted before: costs of pairs differ.
_REMEMBERED = 4
_MOST_REMEMBERED = 1 << 16
_CALL_SECONDS = 0.1
# Seconds of a call itself: nearly all of the time of a single pair.
_CALLING_SECONDS = 2e-5


@intrinsic
def call_fill(typing: Any, address: Any, context: Any, row: Any, start: Any, stop: Any, out: Any) -> Any:
    """Call the ``Fill`` at an address: ``call_fill(address, context, row, start, stop, out)``.

    All six are int64 (narrower integers widen); ``out`` is the address of ``cost[row, start]``. For
    kernels: the address is an ordinary number there, so they can be cached.
    """

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word] * 5)
        builder.call(builder.inttoptr(args[0], function.as_pointer()), list(args[1:]))
        return ctx.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """Return the address of an array as int64.

    ``ctypes.data`` is unsigned, and numba converts a signed and an unsigned operand to float64.
    """

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = ctx.make_array(array)(ctx, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), emit


@intrinsic
def call(typing: Any, address: Any, arguments: Any) -> Any:
    """Call ``int64 f(...)`` at an address with a tuple of numbers: int64, or float64."""
    wide = [types.float64 if isinstance(a, types.Float) else types.int64 for a in arguments]

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = [builder.extract_value(args[1], k) for k in range(len(wide))]
        function = ir.FunctionType(ir.IntType(64), [value.type for value in given])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), given)

    return types.int64(types.int64, types.Tuple(wide)), emit


@intrinsic
def call_recover(typing: Any, address: Any, row: Any, start: Any, stop: Any, out: Any) -> Any:
    """Call ``void (int64 row, int64 start, int64 stop, int64 out)`` at an address."""

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word] * 4)
        builder.call(builder.inttoptr(args[0], function.as_pointer()), list(args[1:]))
        return ctx.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


@cache
def pointer_to(item: Any) -> Any:
    """Return an intrinsic that turns an int64 address into a typed pointer for ``carray``."""

    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], ctx.get_value_type(signature.return_type))

        return types.CPointer(item)(types.int64), emit

    return pointer


@intrinsic
def address_in(typing: Any, pointer: Any) -> Any:
    """Return a typed pointer as an int64 address."""

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), emit


@intrinsic
def pointer_like(typing: Any, pointer: Any, address: Any) -> Any:
    """Return an int64 address as a pointer of another one's type."""

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], ctx.get_value_type(pointer))

    return pointer(pointer, types.int64), emit


#: Convert an address to a pointer, for ``numba.carray(pointer_f8(address), shape)``.
pointer_f8 = pointer_to(types.float64)
pointer_i8 = pointer_to(types.int64)
pointer_f4 = pointer_to(types.float32)
pointer_i4 = pointer_to(types.int32)
pointer_u1 = pointer_to(types.uint8)
pointer_u2 = pointer_to(types.uint16)
pointer_u4 = pointer_to(types.uint32)
pointer_u8 = pointer_to(types.uint64)


@intrinsic
def attempt(typing: Any, function: Any, arguments: Any) -> Any:
    """Return (True, f(a, b)) for ``attempt(f, (a, b))``, or (False, zeros) if that raises.

    f: a compiled function. The exception is dropped; nothing is printed. (numba's own ``try`` loses
    exceptions raised in the first pass of a loop that also returns.)
    """
    call = function.get_call_type(typing, tuple(arguments), {})
    if call is None:
        return None

    def emit(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        result = function.dispatcher.get_compile_result(call)
        ctx.active_code_library.add_linking_library(result.library)
        given = [
            ctx.cast(builder, builder.extract_value(args[1], k), kind, wanted)
            for k, (kind, wanted) in enumerate(zip(arguments, call.args, strict=True))
        ]
        status, value = ctx.call_internal_no_propagate(builder, result.fndesc, call, given)
        kept = cgutils.alloca_once(builder, ctx.get_value_type(call.return_type), zfill=True)
        with builder.if_then(status.is_ok, likely=True):
            builder.store(value, kept)
        return ctx.make_tuple(builder, signature.return_type, (status.is_ok, builder.load(kept)))

    return types.Tuple((types.boolean, call.return_type))(function, arguments), emit


@kernel(nrt=True)
def _fill_rows(address: int, context: int, rows: Array, start: int, stop: int, out: int, stride: int) -> None:
    for k in range(rows.size):
        call_fill(address, context, rows[k], start, stop, out + k * stride)


@kernel(nrt=True)
def _fill_pairs(address: int, context: int, rows: Array, columns: Array, out: int, item: int) -> None:
    for k in range(rows.size):
        call_fill(address, context, rows[k], columns[k], columns[k] + 1, out + k * item)


def read_pairs(fill: Fill, rows: Ids, columns: Ids, out: Array) -> None:
    """Compute ``out[k] = cost[rows[k], columns[k]]``; out (k,), of the source's dtype.

    The ids are not checked. Releases the interpreter; pass at most a few thousand pairs at a time.
    """
    _fill_pairs(
        fill.address,
        fill.context,
        np.ascontiguousarray(rows, np.int64),
        np.ascontiguousarray(columns, np.int64),
        out.ctypes.data,
        out.itemsize,
    )


def read_by_fill(
    fill: Fill,
    shape: tuple[int, int],
    rows: Ids,
    columns: slice,
    out: Array,
    *,
    by_row: bool = False,
    look: Callable[[], None] | None = None,
) -> None:
    """Implement a source's ``read`` with its filler, so that both give the same bits.

    Releases the interpreter, but not for long. Arguments as in ``CostSource.read``. by_row: a part
    costs the filler as much as its row, so rows are not cut into parts. look: called several times
    a second, unless a single row or pair takes longer.
    """
    check_rows(rows, shape[0])
    start, stop = columns.start, columns.stop
    if start >= stop or rows.size == 0:
        return
    ids = np.ascontiguousarray(rows, np.int64)
    item, stride = out.dtype.itemsize, out.strides[0]
    # The cost of a pair is unknown: begin with few, or with some of those that fitted before.
    fitted = int(fill.pace[0])
    pairs = max(1, min(_MOST_REMEMBERED, fitted // _REMEMBERED)) if fitted else _FIRST_PAIRS
    if fitted and fill.many is not None:
        pairs = fitted  # all its pairs take the same time
    pairs = min(PAIRS_PER_CALL, pairs)
    k, left = 0, start
    while k < ids.size:
        if look is not None:
            look()
        clock = time.perf_counter()
        right = stop if by_row else min(stop, left + pairs)
        # Several rows in one call only if they are whole.
        count = max(1, pairs // (stop - start)) if (left, right) == (start, stop) else 1
        some = ids[k : k + count]
        if fill.many is not None and some.size >= fill.several:
            fill.many(some, left, right, out[k : k + count])
        else:
            place = out.ctypes.data + k * stride + (left - start) * item
            _fill_rows(fill.address, fill.context, some, left, right, place, stride)
        seconds = time.perf_counter() - clock
        done = min(count, ids.size - k) * (right - left)
        k, left = (k + count, start) if right == stop else (k, right)
        # Few pairs can show that the pace is too slow, but not that many more would fit.
        seconds = max(seconds - _CALLING_SECONDS, 1e-9)
        fitting = max(1, min(PAIRS_PER_CALL, int(done * _CALL_SECONDS / seconds)))
        if 2 * done >= pairs:
            pairs = fitted = min(4 * pairs, fitting)
        else:
            pairs, fitted = min(pairs, fitting), min(fitted, fitting)
    fill.pace[0] = fitted


def make_fill(
    address: int,
    words: Sequence[int | float | Array],
    keep: Sequence[Any] = (),
    *,
    in_parts: bool = False,
    many: Callable[[Array, int, int, Array], None] | None = None,
    several: int = 2,
) -> Fill:
    """Return a ``Fill`` whose context block holds ``words``.

    An int is stored as itself, a float as its bits, an array as its address (and is kept alive).
    Other objects that must stay alive go into ``keep``.
    """
    block = np.zeros(max(1, len(words)), np.int64)
    for k, word in enumerate(words):
        if isinstance(word, np.ndarray):
            block[k] = word.ctypes.data
        elif isinstance(word, float):
            block.view(np.float64)[k] = word
        else:
            block[k] = word
    return Fill(address, block.ctypes.data, (block, tuple(words), *keep), in_parts, many, several)


@cache
def compile_fill(function: Any, *, given: Any = None, out: Any = None) -> Any:
    """Return the cfunc of a module's own fill function, compiled now or loaded from disk.

    A ``Fill`` takes its ``.address``; keep the object alive. No fast-math and no fused
    multiply-add: every path must give the same bits. given, out: dtypes; the context, and the costs, are
    then pointers to such numbers, by which one function serves several dtypes.
    """
    first, last = (types.int64 if d is None else types.CPointer(numba.from_dtype(d)) for d in (given, out))
    return callback(types.void(first, *[types.int64] * 3, last), function)
