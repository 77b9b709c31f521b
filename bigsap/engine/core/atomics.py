"""Machine instructions that numba does not provide: atomics, a barrier, prefetching.

Small intrinsics emit the LLVM instructions. The atomics act on int64 arrays. Kernels that use
them can still be cached on disk.

All kernels of the dense engine are compiled with ``_nrt=False``: they allocate no memory.
Without the option, numba counts a reference at every use of an array: hundreds of atomic
additions a scanned row, on cache lines that all threads share. The callers keep the arrays alive.
Kernels that run for every resident row of square problems have ``forceinline=True``: a call passes
seven words for each array, 0.4 us a row in all (n = 1000, one thread: 18 % of its time).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsap.compile.decorator import kernel
from bigsap.types import Array

# The barrier's array: int64; its first two words lie on different cache lines. The caller sets LEAVE
# between two runs of a kernel. The kernel then returns at the next point without a search in progress.
ARRIVED = 0
GENERATION = 8
LEAVE = 10
BARRIER_WORDS = 16

# Spins before a waiting thread sleeps, some 60 us. Running threads cross a barrier in well under a
# microsecond, and a team has started within 50 us. After that the other thread has lost its core to
# another process, or waits for this one. A thread that calls sched_yield waits for every process
# that wants its core; a thread that sleeps is scheduled before those that ran meanwhile.
SPINS = 200_000


def _address(context: Any, builder: Any, signature: Any, array: Any, index: Any) -> Any:
    """Return the address of one item of a 1-D int64 array."""
    view = context.make_array(signature.args[0])(context, builder, array)
    return builder.gep(view.data, [index])


@intrinsic
def fetch_add(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to one item of an int64 array; return its previous value."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature, args[0], args[1])
        return builder.atomic_rmw("add", address, args[2], "seq_cst")

    return types.int64(types.Array(types.int64, 1, "C"), types.int64, types.int64), emit


def adding(field: str) -> Any:
    """Return an intrinsic that adds to an integer field of a record atomically and returns its old value."""

    @intrinsic
    def add(typing: Any, kept: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            offset, word = kept.offset(field), ir.IntType(64)
            address = cgutils.get_record_member(builder, args[0], offset, word)
            return builder.atomic_rmw("add", address, args[1], "seq_cst")

        return types.int64(kept, types.int64), emit

    return add


@intrinsic
def _load(typing: Any, array: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature, args[0], args[1])
        return builder.load_atomic(address, "seq_cst", 8)

    return types.int64(types.Array(types.int64, 1, "C"), types.int64), emit


@intrinsic
def _store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature, args[0], args[1])
        builder.store_atomic(args[2], address, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.Array(types.int64, 1, "C"), types.int64, types.int64), emit


@intrinsic
def _doze(typing: Any) -> Any:
    """Sleep for as short as possible (``usleep(1)``); on Windows yield the core (``Sleep(0)``)."""
    name, least = ("Sleep", 0) if sys.platform == "win32" else ("usleep", 1)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, [word]), name)
        return builder.call(function, [word(least)])

    return types.int32(), emit


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Prefetch the cache line at an address (int64); never faults, whatever the address."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        read, keep, data = word(0), word(3), word(1)
        builder.call(function, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), emit


def new_barrier() -> Array:
    """Return the array of a barrier at which no thread has arrived."""
    return np.zeros(BARRIER_WORDS, np.int64)


@kernel
def cross(barrier: Array, n_threads: int) -> None:
    """Wait until ``n_threads`` threads have arrived; publish all earlier writes.

    barrier: from ``new_barrier``.
    """
    if n_threads == 1:
        return
    generation = _load(barrier, GENERATION)
    if fetch_add(barrier, ARRIVED, 1) == n_threads - 1:
        _store(barrier, ARRIVED, 0)
        _store(barrier, GENERATION, generation + 1)
        return
    spins = 0
    while _load(barrier, GENERATION) == generation:
        spins += 1
        if spins > SPINS:
            _doze()


def _telling(field: str) -> Any:
    """Return intrinsics that load and store an integer field of a record, sequentially consistent."""

    @intrinsic
    def load(typing: Any, kept: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(64)
            address = cgutils.get_record_member(builder, args[0], kept.offset(field), word)
            return builder.load_atomic(address, "seq_cst", 8)

        return types.int64(kept), emit

    @intrinsic
    def store(typing: Any, kept: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(64)
            address = cgutils.get_record_member(builder, args[0], kept.offset(field), word)
            builder.store_atomic(args[1], address, "seq_cst", 8)
            return context.get_dummy_value()

        return types.void(kept, types.int64), emit

    return load, store


_load_beat, _store_beat = _telling("beat")


@kernel(forceinline=True)
def meet(notes: Array, first: int, thread: int, n_threads: int, beat: int) -> None:
    """Wait until every thread has published ``beat``; publish all earlier writes.

    notes: records with a beat; thread k writes that of record ``first + k``. Like ``cross``, but the
    data of a thread may share the cache line of its beat and arrive with it: one cache line is
    transferred instead of three (170 ns instead of 280, two threads). A thread must not write its
    next beat to a record on which another may still be waiting: alternate two sets.
    """
    if n_threads == 1:
        return
    _store_beat(notes[first + thread], beat)
    spins = 0
    for k in range(n_threads):
        note = notes[first + k]
        while _load_beat(note) != beat:
            spins += 1
            if spins > SPINS:
                _doze()


@kernel(forceinline=True)
def tell(note: Any, beat: int) -> None:
    """Publish all earlier writes to the threads that wait for this ``beat`` of the record."""
    _store_beat(note, beat)


@kernel
def hear(note: Any, beat: int) -> None:
    """Wait until the thread that owns the record has published ``beat``."""
    spins = 0
    while _load_beat(note) != beat:
        spins += 1
        if spins > SPINS:
            _doze()


@intrinsic
def lowest_bit(typing: Any, word: Any) -> Any:
    """Return the position of the lowest set bit of a nonzero uint64, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


def _compared_bits(relation: str) -> Any:
    """Return an intrinsic that compares 64 values with a limit; the results are bits of a uint64."""

    @intrinsic
    def bits(typing: Any, values: Any, first: Any, limit: Any) -> Any:
        real = values.dtype == types.float64

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, args[0])
            row = ir.VectorType(ir.DoubleType() if real else ir.IntType(64), 64)
            place = builder.gep(view.data, [args[1]])
            some = builder.load(builder.bitcast(place, row.as_pointer()))
            some.align = 8
            nothing, zero = ir.Constant(row, ir.Undefined), ir.Constant(ir.IntType(32), 0)
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
            one = builder.insert_element(nothing, args[2], zero)
            limits = builder.shuffle_vector(one, nothing, lanes)
            compare = builder.fcmp_ordered if real else builder.icmp_signed
            return builder.bitcast(compare(relation, some, limits), ir.IntType(64))

        return types.uint64(values, types.int64, values.dtype), emit

    return bits


#: ``bits(values, first, limit)``: a bit for each of the 64 values from position ``first`` of a
#: contiguous array of float64 or int64: set where the value is at most, or below, the limit.
within_bits = _compared_bits("<=")
below_bits = _compared_bits("<")
