"""Inner products of a few rows with all columns: what a search asks for.

Libraries of matrix products copy the columns first, which for a few rows takes longer than the products.
Here they were copied once: tiles of 16 columns, each dimension's numbers side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from bigsap.compile.decorator import kernel
from bigsap.compile.vector_code import broadcast, number_at, store_at, vector_at
from bigsap.engine.lists.product_vectors import GROUP
from bigsap.sources.compiled import address_of
from bigsap.types import Array

intrinsic: Any = extending.intrinsic

#: Sums that are under way together, of 16 columns each: as many as hide an addition's time.
_TOGETHER = 4
#: Columns of four tiles.
WIDTH = _TOGETHER * GROUP
#: Most rows for which this is faster than a library.
FEW = 16

_WORD = ir.IntType(64)
_NUMBER = ir.FloatType()
_VECTOR = ir.VectorType(_NUMBER, GROUP)


def _word(number: int) -> Any:
    return ir.Constant(_WORD, number)


def _emitter(n_rows: int) -> Any:
    """Return the code of n_rows rows and 4 / n_rows tiles."""
    n_tiles = _TOGETHER // n_rows

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows, row_bytes, tiles, d, out, out_bytes = args
        fma = builder.module.declare_intrinsic(
            f"llvm.fma.v{GROUP}f32", fnty=ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        )
        each = [builder.add(rows, builder.mul(row_bytes, _word(r))) for r in range(n_rows)]
        tile_bytes = builder.mul(d, _word(4 * GROUP))
        columns = [builder.add(tiles, builder.mul(tile_bytes, _word(t))) for t in range(n_tiles)]
        pairs = [(r, t) for r in range(n_rows) for t in range(n_tiles)]
        before, loop = builder.block, builder.append_basic_block("multiply")
        after = builder.append_basic_block("multiplied")
        builder.branch(loop)
        nothing = ir.Constant(_VECTOR, [0.0] * GROUP)
        with builder.goto_block(loop):
            k = builder.phi(_WORD)
            sums = [builder.phi(_VECTOR) for _ in pairs]
            place = builder.mul(k, _word(4 * GROUP))
            y = [vector_at(builder, builder.add(at, place), _VECTOR) for at in columns]
            x = [broadcast(builder, number_at(builder, at, k, _NUMBER), GROUP) for at in each]
            grown = [
                builder.call(fma, [x[r], y[t], total]) for (r, t), total in zip(pairs, sums, strict=True)
            ]
            following = builder.add(k, _word(1))
            k.add_incoming(_word(0), before)
            k.add_incoming(following, loop)
            for total, next_total in zip(sums, grown, strict=True):
                total.add_incoming(nothing, before)
                total.add_incoming(next_total, loop)
            builder.cbranch(builder.icmp_signed("<", following, d), loop, after)
        builder.position_at_end(after)
        for (r, t), total in zip(pairs, grown, strict=True):
            at = builder.add(out, builder.add(builder.mul(out_bytes, _word(r)), _word(4 * GROUP * t)))
            store_at(builder, total, at)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


@intrinsic
def _one_row(typing: Any, rows: Any, row_bytes: Any, tiles: Any, d: Any, out: Any, out_bytes: Any) -> Any:
    """Write the products of a row and four tiles. All are int64, addresses but the bytes and d >= 1."""
    return _emitter(1)


@intrinsic
def _two_rows(typing: Any, rows: Any, row_bytes: Any, tiles: Any, d: Any, out: Any, out_bytes: Any) -> Any:
    return _emitter(2)


@intrinsic
def _four_rows(typing: Any, rows: Any, row_bytes: Any, tiles: Any, d: Any, out: Any, out_bytes: Any) -> Any:
    return _emitter(4)


def _tiles_of(m: int) -> int:
    """Return the number of tiles of m columns, of which four are multiplied at a time."""
    return -(-m // WIDTH) * _TOGETHER


@kernel
def copy_tiles(columns: Array, tiles: Array) -> None:
    """Copy columns (m, d) to tiles (count, d, 16); what is missing is 0."""
    m, d = columns.shape
    for tile in range(tiles.shape[0]):
        for t in range(GROUP):
            j = GROUP * tile + t
            for k in range(d):
                tiles[tile, k, t] = columns[j, k] if j < m else 0.0


@kernel(forceinline=True)
def _four_tiles(rows: Array, side: int, to: int, out_bytes: int) -> None:
    """Write the products of all rows with four tiles to an address."""
    r, d = rows.shape
    row_bytes, tile_bytes = 4 * d, 4 * GROUP * d
    for q in range(0, r, _TOGETHER):
        left, x, at = r - q, address_of(rows) + row_bytes * q, to + out_bytes * q
        if left >= 4:
            for t in range(_TOGETHER):
                _four_rows(x, row_bytes, side + tile_bytes * t, d, at + 4 * GROUP * t, out_bytes)
        else:
            if left >= 2:
                for t in range(0, _TOGETHER, 2):
                    _two_rows(x, row_bytes, side + tile_bytes * t, d, at + 4 * GROUP * t, out_bytes)
            if left % 2:
                last = left - 1
                _one_row(x + row_bytes * last, row_bytes, side, d, at + out_bytes * last, out_bytes)


@kernel
def multiply_few(rows: Array, tiles: Array, out: Array, edge: Array) -> None:
    """Write the inner products of rows (r, d) with all columns to out (r, m). O(r m d).

    edge: (FEW, 64), workspace.
    """
    r, m = out.shape
    for first in range(0, m, WIDTH):
        side = address_of(tiles[first // GROUP])
        if first + WIDTH <= m:
            _four_tiles(rows, side, address_of(out) + 4 * first, 4 * m)
        else:
            _four_tiles(rows, side, address_of(edge), 4 * WIDTH)
            for q in range(r):
                for t in range(m - first):
                    out[q, first + t] = edge[q, t]


def tiled(columns: Array) -> Array:
    """Return float32 columns (m, d) as tiles."""
    m, d = columns.shape
    tiles = np.empty((_tiles_of(m), d, GROUP), np.float32)
    copy_tiles(columns, tiles)
    return tiles
