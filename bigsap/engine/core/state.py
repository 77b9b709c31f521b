"""State of one solve: prices, matching, workspace, and records shared by threads and Python.

Every array is allocated here, once; kernels allocate no memory. Beyond the costs the state takes
seven vectors of 8 n bytes, which the initial sweeps also use; a phase of a square problem takes
one more (``queue``).
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bigsap.engine.core.atomics import new_barrier
from bigsap.engine.core.record import record, records
from bigsap.types import Array

#: Row and column ids. Problems of 2**31 rows or columns are rejected.
ID = np.int32

#: In ``row_of_column`` and ``column_of_row``: not matched.
FREE = -1
#: In ``column_of_row``: row takes place ``place`` of the virtual column group; the
#: entry is ``GROUPED - place``.
GROUPED = -2

#: Lanes over which kernels keep running minima: a fixed inner loop of this length is
#: what LLVM turns into vector instructions without assuming away NaN or infinities.
LANES = 64
#: Sizes for one row, all slabs together: bytes and codes by which stretches are skipped, and words
#: that list the parts read of two rows: see ``stretches``.
ROOM, CODES, RUNS = 8, 16, 34
#: Columns per block; its minimum is kept to locate the minimum's column later.
BLOCK = 512


class Exit(IntEnum):
    """Reason why a kernel returned, in all engines; kernels use the constants below."""

    DONE = 0
    NEED_ROW = 1  # a row that only Python can read
    YIELD = 2  # the time slice is over; call again
    INFEASIBLE = 3
    INVALID = 4  # a cost is NaN or out of range
    CHANGED = 5  # costs in place have changed
    POOL_FULL = 6  # lists need more room in the pool
    PAUSE = 7  # enough rows are requested that only Python can read
    REFIT = 8  # after many evaluations, majorants should be fitted again
    EVENT = 9  # lists of rows of the forest are exhausted
    LIMIT = 10  # too much work for too few matches


DONE, NEED_ROW, YIELD, INFEASIBLE, INVALID, CHANGED = (Exit(k).value for k in range(6))
POOL_FULL, PAUSE, REFIT, EVENT, LIMIT = (Exit(k).value for k in range(6, 11))


class Standing:
    """Progress of a phase or sweep between two calls of its kernel: ``State.at``.

    Thread 0 writes it, between two barriers that separate the writes from all reads.
    """

    position: int  # next place in the row order
    stage: int  # stage at which the kernel continues
    row: int  # row being scanned or swept
    root: int  # row whose search this is
    entered_by: int  # column by which the search entered ``row``; AT_ROOT or BY_GROUP
    n_settled: int  # columns settled by this search
    # Virtual rows: free columns at the cap beyond those they need; never negative.
    surplus: int
    virtual_by: int  # virtual rows: column by which they were entered, -1 before
    virtual_took: int  # virtual rows: column they took in the last augmentation
    group_settled: int  # virtual columns: 1 once settled in this search
    group_pred: int  # virtual columns: row by which they were reached
    group_cursor: int  # virtual columns: next member row to scan
    # Virtual columns: places taken. Each place of State.group below it holds a row.
    group_size: int
    wanted: int  # the absent row, with NEED_ROW; the invalid row, with INVALID or CHANGED
    rows_scanned: int
    rows_filled: int  # rows computed inside a kernel
    n_drops: int  # price drops by epsilon, counted by column
    virtual_scans: int
    label: float  # running maximum of the settled labels: never falls within a search
    entry_price: float  # price of the column by which ``row`` was entered
    # Virtual rows: the common price of the columns they hold; no price lies above it.
    cap: float
    virtual_label: float  # virtual rows: label at which they were settled
    group_price: float  # virtual columns: their common price
    group_label: float  # virtual columns: their label in the current search
    drops: float  # total of ordinary price drops


class Walk(Standing):
    """A thread's own copy of the current search in an unbalanced problem: ``State.walks``.

    It is the same in all threads.
    """

    sink: int  # the free column that the search ends with, or TO_GROUP


# Standing.entered_by of a root, and of a row reached through the virtual columns.
AT_ROOT, BY_GROUP = -1, -2


class Report:
    """Data published by a thread, in unbalanced problems and sweeps: ``State.reports``.

    The fields that decide the next step are on the first cache line.
    """

    column: int  # at ``label``; in sweeps the cheapest not taken; NOWHERE if it is not found again
    free: int  # 1: that column is free
    at_cap: int  # virtual rows: free columns of the slab at the cap
    n_bad: int  # invalid costs of a row just computed; written in the first set only
    sound: int  # thread 0: 0 for a path without an end
    label: float  # the smallest
    price: float  # of ``column``
    to_group: float  # thread 0: label at which the row reaches the virtual columns
    # Of sweeps: the two smallest ``c - v``, the smallest over columns not taken, costs.
    n_invalid: int  # not ``n_bad``, which the next row may overwrite while this is read
    low: float
    second: float
    best: float
    pick_cost: float
    probed_cost: float


class Foreseen:
    """Thread 0's prediction for the next absent row: ``State.foreseen``."""

    slot: int
    evicted: int  # the row to be evicted from it, ABSENT for none


class Note:
    """A thread's published summary of its slab before a row, on one cache line: ``State.notes``.

    For the first column of its queue (at the root only the smallest label): label, price, column, its
    matched row and, if all rows are resident, the cost at which that row is entered. For its best
    free column: label and column. The beat is written last: it tells other threads that the rest is
    complete.
    """

    column: int
    row: int
    free_column: int
    beat: int
    label: float
    price: float
    entry_cost: float
    free_label: float


class Hint:
    """A thread's prediction, and a cost that only it has computed: ``State.hints``.

    row, column: to be scanned next and entered by, -1 for none, at ``label``. Others read them while
    they are written, so only prefetching may depend on them. cost: a cost of its slab, valid once its
    beat is published.
    """

    row: int
    column: int
    beat: int
    label: float
    cost: float


class CodeScale:
    """Range of a slab's codes of stretches (``stretches``), as bits of float32."""

    origin: int
    centre: int  # where the origin should be
    begun: int  # whether a survey has set the others


class Front:
    """A thread's own record of the current search in a square problem: ``State.fronts``.

    The first part is the same in all threads; the second belongs to their slab.
    """

    position: int
    row: int  # next or currently scanned
    root: int
    next_root: int  # of the search after this one, -1 for none
    entered_by: int  # column by which the row is entered, or AT_ROOT
    entry_known: int  # 1: entry_cost is that of the row and column
    n_settled: int
    sink: int  # the free column that the search ends with, or NOWHERE
    turn: int  # which of the two sets of notes is written next
    beat: int
    n_filled: int  # rows computed since the kernel was called
    # Of this thread's slab.
    valid: int  # 0: a cost of the row is invalid
    queued: int  # columns in the queue
    touched: int  # columns with a label
    free_column: int  # the best of the slab, NOWHERE before there is one
    skipped: int  # groups of LANES columns that were not read, in all searches of the phase
    label: float  # running maximum of the settled labels: never falls
    best: float  # label of the sink
    entry_cost: float
    entry_price: float
    at_root: float  # the root's smallest label, infinity at other rows
    fall: float  # ordinary price drops if the search ended at ``label``
    # Of this thread's slab.
    free_label: float  # of free_column
    known_free: float  # label of the best known free column of all slabs; larger ones are ignored
    sieve_base: float  # no smaller than known_free; infinity without a sieve
    top_price: float  # the largest magnitude of a price


class State(NamedTuple):
    """Arrays of one solve. P is float64, or int64 on the exact integer path.

    Throughout, costs are *signed*: negated under ``maximize``, so that smaller is
    better. ``infinity`` of P marks labels not yet reached. In unbalanced problems a
    settled column has the price -infinity and the label infinity until its search ends, so
    that no scan can relax or choose it without a test. In square ones ``place`` marks it.
    """

    # For every row i matched to column s: v only ever falls, and in a phase with
    # epsilon 0, c[i,s] - v[s] = min_j (c[i,j] - v[j]) after every augmentation.
    v: Array  # P (n_columns,)
    dist: Array  # P (n_columns,) labels of the current search
    pred: Array  # ID (n_columns,) row from which the label came
    # Inverse of each other: row_of_column[column_of_row[i]] == i for every row i with a real
    # column, and FREE else. Rows of the virtual columns have GROUPED - place, see ``group``.
    column_of_row: Array  # ID (n_rows,)
    row_of_column: Array  # ID (n_columns,)
    # Subtracted from all costs of a row where a search starts from it: its smallest
    # cost, so that a row of huge costs does not absorb the prices.
    reference: Array  # P (n_rows,)
    ids: Array  # ID (2 * n_columns,) buffer of which pred and settled are halves
    # The settled columns of the current search, in order: id, label, price before.
    settled: Array  # ID (n_columns,)
    settled_dist: Array  # P (n_columns,); in square problems its memory belongs to ``front``
    settled_price: Array  # P (n_columns,), likewise
    # The front of a search in a square problem (see ``queue``); empty outside phases.
    sieve: Array  # float32 (n_columns,) see ``sieve``
    heap: Array  # ID (n_columns,) each slab's queue, from the slab's first position
    place: Array  # ID (n_columns,) in the queue, or OUTSIDE, or SETTLED
    touched: Array  # ID (n_columns,) columns reached by the search, from each slab's first position
    fronts: Array  # Front (n_threads,)
    found: Array  # int64 (n_threads, 2 * groups of LANES columns of a slab)
    # Parts of rows to skip, and parts to read: see ``stretches``.
    lows: Array  # uint8 (n_threads, n_columns, a thread's share of ROOM)
    scales: Array  # CodeScale (n_threads,)
    runs: Array  # int64 (n_threads, RUNS)
    # column_of_row[group[k]] == GROUPED - k for k < at.group_size.
    group: Array  # ID (n_virtual_columns,) rows holding the virtual columns
    at: Standing
    # Per thread: lanes (3 * LANES) and block minima; data published to other threads.
    lanes: Array  # P (n_threads, 3 * LANES)
    block_min: Array  # P (n_threads, groups of LANES columns of a slab, or fewer blocks)
    reports: Array  # Report (2 * n_threads,), two sets used in turn
    walks: Array  # Walk (n_threads,)
    # Thread 0's prediction of the next miss, two sets used in turn: see ``row_access``.
    foreseen: Array  # Foreseen (2,)
    notes: Array  # Note (2 * n_threads,), two sets used in turn
    hints: Array  # Hint (n_threads,)
    barrier: Array  # int64, of ``new_barrier``
    bounds: Array  # int64 (n_threads + 1,) the threads' column slabs


def infinity(price: np.dtype[Any]) -> Any:
    """Return the label of an unreached column.

    For int64 it is 2**60: magnitudes of costs, prices and labels are below 2**59 (checked
    before the solve), so neither it nor the price -2**62 of a settled column can be mistaken
    for a real value, or overflow with one.
    """
    return np.float64(np.inf) if price.kind == "f" else np.int64(1 << 60)


def blocked_price(price: np.dtype[Any]) -> Any:
    """Return the price of a settled column: relaxing it gives a label above ``infinity``."""
    return np.float64(-np.inf) if price.kind == "f" else np.int64(-(1 << 62))


def slabs(n_columns: int, n_threads: int) -> Array:
    """Return contiguous column slabs, one per thread, cut at multiples of LANES."""
    cuts = [(n_columns * t // n_threads) // LANES * LANES for t in range(n_threads)]
    return np.array([*cuts, n_columns], np.int64)


def front(room: Array, more: Array, n_threads: int, price: np.dtype[Any]) -> dict[str, Any]:
    """Return the arrays of a search's front: one new vector, and the memory of two others.

    room, more: ``settled_price`` and ``settled_dist``. In square problems the prices of settled
    columns stay in place until a search ends, and their labels in ``dist``.
    """
    n_columns = room.size
    heap, touched = room.view(ID).reshape(2, n_columns)
    groups = int(np.diff(slabs(n_columns, n_threads)).max(initial=0)) // LANES + 1
    share = ROOM // max(1, n_threads)
    lows = more.view(np.uint8)[: n_threads * n_columns * share].reshape(n_threads, n_columns, share)
    return {
        "sieve": np.empty(n_columns, np.float32),
        "heap": heap,
        "place": np.empty(n_columns, ID),
        "touched": touched,
        "fronts": records(Front, price, n_threads),
        "found": np.empty((n_threads, 2 * groups), np.int64),
        "lows": lows,
        "scales": records(CodeScale, price, n_threads),
        "runs": np.empty((n_threads, RUNS), np.int64),
    }


@cache
def no_front(price: np.dtype[Any]) -> dict[str, Any]:
    """Return an empty front, of no columns and no threads, for use outside phases."""
    none = np.empty(0, price)
    return front(none, none, 0, price)


def released(state: State) -> State:
    """Return the state without its arrays, except for prices and counters."""
    kept = {"v", "at", "barrier", "bounds"}
    empty = {name: a[..., :0].copy() for name, a in state._asdict().items() if name not in kept}
    return state._replace(**empty)


def shares(n_columns: int, n_threads: int, price: np.dtype[Any]) -> dict[str, Any]:
    """Return the arrays that belong to single threads, and those they communicate by."""
    bounds = slabs(n_columns, n_threads)
    return {
        "lanes": np.empty((n_threads, 3 * LANES), price),
        "block_min": np.empty((n_threads, int(np.diff(bounds).max()) // LANES + 1), price),
        "reports": records(Report, price, 2 * n_threads),
        "walks": records(Walk, price, n_threads),
        "notes": records(Note, price, 2 * n_threads),
        "hints": records(Hint, price, n_threads),
        "barrier": new_barrier(),
        "bounds": bounds,
    }


def allocate(
    n_rows: int, n_columns: int, price: np.dtype[Any], n_threads: int, n_virtual_columns: int
) -> State:
    """Allocate a state: prices 0, nothing matched."""
    m = n_columns
    ids = np.empty(2 * m, ID)
    return State(
        v=np.zeros(m, price),
        dist=np.empty(m, price),
        pred=ids[:m],
        column_of_row=np.full(n_rows, FREE, ID),
        row_of_column=np.full(m, FREE, ID),
        reference=np.zeros(n_rows, price),
        settled=ids[m:],
        ids=ids,
        settled_dist=np.empty(m, price),
        settled_price=np.empty(m, price),
        **no_front(price),
        group=np.full(n_virtual_columns, FREE, ID),
        at=record(Standing, price),
        foreseen=records(Foreseen, price, 2),
        **shares(m, n_threads, price),
    )
