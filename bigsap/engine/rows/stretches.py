"""Stretches of a row that cannot matter to a search, at four bits each.

The survey of a root reads every cost of its row and takes minima of ``(c[i,j] - reference) - v[j]``.
Prices only fall, so these stay lower bounds for the rest of the phase. When the row is entered by a
column, the relevant costs lie below a limit that is known before any of them is read. A stretch of
the row whose minimum is not below the limit is skipped (random costs, n = 16,000: two thirds of a
row).

A row has up to sixteen stretches, in eight bytes shared by the threads: the memory of one vector of
prices. A minimum is stored as a *code*, its position on a scale of three steps per octave, and
compared with the code of the limit. Rounding and coding preserve the order; the worst case is a
needless read. A slab has one scale. Its *origin* follows the minima that surveys find; when it moves,
existing codes move with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import lowest_bit
from bigsap.engine.core.state import CODES, CodeScale
from bigsap.types import Array

# The largest code; steps per octave; bits of an octave: float32 has 2**23 values in each.
_TOP, _STEPS, _OCTAVE = CODES - 1, 3, 23
# The scale starts this many octaves below the mean of a row's minima. Per root it moves by at most
# _PACE float32 values, so that a single unusual row does not move it.
_BELOW, _PACE = 3, 1 << 21
# Masks, of eight bytes.
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_EVEN, _FOURTHS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x1111111111111111)


@intrinsic
def _bits(typing: Any, x: Any) -> Any:
    """Return the bits of ``x`` as float32, as int64: monotonic in x for x > 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        single = builder.fptrunc(args[0], ir.FloatType())
        return builder.sext(builder.bitcast(single, ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float64), emit


@kernel(forceinline=True)
def code_of(x: float, origin: int) -> int:
    """Return the position of ``x`` on the scale, 0 to CODES - 1: monotonic in x."""
    if x <= 0:
        return 0
    code = int((_bits(np.float64(x)) - origin) * _STEPS) >> _OCTAVE
    return max(0, min(_TOP, code))


@kernel
def move_scale(octaves: int, lows: Array, scale: CodeScale) -> None:
    """Move the origin up or down; all codes stay valid. O(rows)."""
    scale.origin += octaves << _OCTAVE
    steps = octaves * _STEPS
    for row in range(lows.shape[0]):
        for k in range(lows.shape[1]):
            pair = int(lows[row, k])
            low, high = pair & _TOP, pair >> 4
            # Code 0 means unknown and stays 0.
            low = max(0, min(_TOP, low - steps)) if low > 0 else 0
            high = max(0, min(_TOP, high - steps)) if high > 0 else 0
            lows[row, k] = low | high << 4


@kernel(forceinline=True)
def _least(values: Array, first: int, end: int) -> float:
    low = values[first]
    for k in range(first + 1, end):
        low = values[k] if values[k] < low else low
    return np.float64(low)


@kernel
def note_lows(row: int, group_min: Array, full: int, width: int, lows: Array, scale: CodeScale) -> None:
    """Record the minima of a root's stretches, each of ``width`` groups of LANES columns.

    group_min: P, of the slab's ``full`` groups and more. lows: uint8 (n_rows, bytes), the
    slab's; two codes a byte, 0 if unknown; no bytes if there is no room for them. O(full), or
    O(rows) if the scale has to move.
    """
    if lows.shape[1] == 0:
        return
    n_stretches = (full + width - 1) // width
    total, count = 0.0, 0
    for k in range(n_stretches):
        low = _least(group_min, k * width, min((k + 1) * width, full))
        if low > 0 and low < 1e37:
            total += low
            count += 1
    if count > 0:
        target = _bits(total / count) - (_BELOW << _OCTAVE)
        if scale.begun == 0:
            scale.origin, scale.centre, scale.begun = target, target, 1
        scale.centre += max(-_PACE, min(_PACE, target - scale.centre))
        octaves = (scale.centre - scale.origin) >> _OCTAVE
        if octaves < -1 or octaves > 0:
            move_scale(octaves, lows, scale)
    if scale.begun == 0:
        return
    for k in range(lows.shape[1]):
        lows[row, k] = 0
    for k in range(n_stretches):
        low = _least(group_min, k * width, min((k + 1) * width, full))
        lows[row, k >> 1] |= code_of(low, scale.origin) << (4 * (k & 1))


@kernel(forceinline=True)
def plan(row: int, code: int, full: int, width: int, lows: Array, runs: Array, at: int) -> int:
    """List the parts of a row to read: runs of groups whose stretches' code is at most ``code``.

    Writes the first group and the end of each run to ``runs`` from index ``at`` on; returns the
    end index.
    """
    word = np.uint64(0)
    for k in range(lows.shape[1]):
        word |= np.uint64(lows[row, k]) << np.uint64(8 * k)
    # One byte per code; its top bit says that the code exceeds the limit.
    room = _ONES * np.uint64(127 - code)
    even = ((word & _EVEN) + room) & _TOPS
    odd = (((word >> np.uint64(4)) & _EVEN) + room) & _TOPS
    skipped = (even >> np.uint64(7)) | (odd >> np.uint64(3))
    read = skipped ^ _FOURTHS
    k = 0
    while k < CODES:
        left = read >> np.uint64(4 * k)
        if left == 0:
            break
        k += lowest_bit(left) >> 2
        first = k * width
        if first >= full:
            break
        left = skipped >> np.uint64(4 * k)
        k = k + (lowest_bit(left) >> 2) if left != 0 else CODES
        runs[at] = first
        runs[at + 1] = min(k * width, full)
        at += 2
    return at


@kernel(forceinline=True)
def step(group: int, k: int, end: int, runs: Array) -> tuple[int, int]:
    """Advance from a group in the run at index ``k`` to the next; stay at the last group."""
    if group + 1 < runs[k + 1]:
        return group + 1, k
    if k + 2 < end:
        return runs[k + 2], k + 2
    return group, k
