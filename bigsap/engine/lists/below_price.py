"""Search for all pairs that cost less than leaving their row unassigned, row by row.

In a problem with optional rows most pairs cost more and never matter again. Bounds of blocks of
columns (``bounds``) avoid reading most of them.
"""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.engine.lists.bounds import BLOCK, GROUP, Blocks, bound_row
from bigsap.engine.lists.layout import PANEL
from bigsap.engine.lists.reading import Costs
from bigsap.sources.compiled import address_of, call, call_fill
from bigsap.types import Array

#: Costs compared as a batch before single ones are tested.
_STRETCH = 64


class RowReader(NamedTuple):
    """Access of kernels to the signed costs of whole rows.

    costs: location of the costs, or functions that read computed ones. fill_address, fill_context:
    of the ``Fill`` that computes them, 0 if they are in memory. sign: of the problem, in
    the type of prices. blocks: bounds of ``c`` for blocks of columns, fitted to prices 0, or none.
    """

    costs: Costs
    fill_address: int
    fill_context: int
    sign: float
    n_columns: int
    blocks: Blocks


class Found(NamedTuple):
    """Results of each thread: its own buffers, with a leading axis of threads.

    ids: int32 (threads, room), costs: P (threads, room), room for at least one whole row. taken:
    int64 (threads,) pairs stored. done: int64 (threads,) finished rows of the thread's part, and
    pairs: int64 (threads,) pairs examined; the bound of a block counts as one.
    raw: uint8, near: P (threads, PANEL), bound: float64 (threads, n_all), for one row's costs.
    """

    ids: Array
    costs: Array
    taken: Array
    done: Array
    pairs: Array
    raw: Array
    near: Array
    bound: Array


@kernel
def _look(
    row: int, column: int, width: int, limit: float, r: RowReader, f: Found, thread: int, used: int
) -> int:
    """Append the pairs below the limit to the thread's ``used`` others; return the new number.

    width: columns to examine, at most PANEL.
    """
    near, ids, costs = f.near[thread], f.ids[thread], f.costs[thread]
    near_at, at = address_of(near), r.costs.start + row * r.costs.stride + column * r.costs.item
    if r.fill_address:
        at = near_at if r.costs.plain else address_of(f.raw[thread])
        call_fill(r.fill_address, r.fill_context, row, column, column + width, at)
    if at != near_at:
        call(r.costs.copy, (at, 0, width, near_at))
    for first in range(0, width, _STRETCH):
        last = min(first + _STRETCH, width)
        below = 0
        for j in range(first, last):
            # Includes NaN, which the receiver of the pairs reports.
            below += 0 if r.sign * near[j] >= limit else 1
        if below > 0:
            for j in range(first, last):
                x = r.sign * near[j]
                if not x >= limit:
                    ids[used] = column + j
                    costs[used] = x
                    used += 1
    return used


@kernel
def _look_within(
    row: int, limit: float, edge: float, r: RowReader, f: Found, thread: int, used: int
) -> tuple[int, int]:
    """Call ``_look`` over the whole row, except blocks whose bound is ``edge`` or more.

    Also return the number of pairs examined.
    """
    b, bound = r.blocks, f.bound[thread]
    n_groups = b.offset.size - b.n_blocks
    looked = n_groups
    limits = bound[b.n_blocks :]
    bound_row(row, b, b.n_blocks, b.offset.size, limits)
    for group in range(n_groups):
        if limits[group] >= edge:
            continue
        first, last = group * GROUP, min((group + 1) * GROUP, b.n_blocks)
        bound_row(row, b, first, last, bound[first:])
        looked += last - first
        for block in range(first, last):
            if bound[block] >= edge:
                continue
            column = block * BLOCK
            width = min(BLOCK, r.n_columns - column)
            used = _look(row, column, width, limit, r, f, thread, used)
            looked += width
    return used, looked


@kernel
def run_below(
    thread: int, n_threads: int, rows: Array, limit: Array, edge: Array, size: Array, r: RowReader, f: Found
) -> int:
    """Find the pairs of ``rows`` that cost less than ``limit``, until the thread's buffer is full.

    limit: P (n_rows,). edge: P (n_rows,): blocks whose bound is not below it are not read. size: int64
    (k,), the number of pairs of each row. Each thread has its own part.
    """
    begin, end = rows.size * thread // n_threads, rows.size * (thread + 1) // n_threads
    place, used, m = begin + f.done[thread], 0, r.n_columns
    while place < end and used + m <= f.ids.shape[1]:
        row, before = rows[place], used
        if r.blocks.offset.size:
            used, looked = _look_within(row, limit[row], edge[row], r, f, thread, used)
        else:
            looked = m
            for column in range(0, m, PANEL):
                width = min(PANEL, m - column)
                used = _look(row, column, width, limit[row], r, f, thread, used)
        f.pairs[thread] += looked
        size[place] = used - before
        place += 1
    f.done[thread], f.taken[thread] = place - begin, used
    return 0
