"""Search and augmentation of one phase of a square problem (A1015, algorithms 2 and 3).

The results are those of ``rectangular.run_phase``, which also handles virtual rows and columns, with
less work between two rows: a search keeps a queue of reached columns (``queue``) and skips
irrelevant parts of rows (``sieve``). One kernel, run by every thread of the team on its own slab of
columns, with one barrier per scanned row, one more if a search continues beyond its root, and
one per augmentation.

All threads make the same decisions, from the numbers of ``Front`` that they share. The steps are
force-inlined: a call would pass every array of the slab.
"""

from __future__ import annotations

from typing import Any

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import LEAVE, cross, meet
from bigsap.engine.core.row_access import Terms, fill_own, find, predict_slot
from bigsap.engine.core.scan import NOWHERE
from bigsap.engine.core.state import (
    AT_ROOT,
    CHANGED,
    DONE,
    INFEASIBLE,
    INVALID,
    LANES,
    NEED_ROW,
    YIELD,
    Note,
    State,
)
from bigsap.engine.rows.augment import augment
from bigsap.engine.rows.queue import (
    SETTLED,
    Slab,
    forget,
    largest_price,
    pop,
    rounded_up,
    set_sieve,
    tell_next,
)
from bigsap.engine.rows.rectangular import NEXT_ROW, SCAN
from bigsap.engine.rows.sieve import free_at_root, open_root, relax_all, relax_sifted, survey_root
from bigsap.engine.rows.stretches import note_lows
from bigsap.row_cache import HITS, N_USED, POLICY, RESIDENT, RowTable
from bigsap.types import Array

# Result of a step, besides reasons to return.
_ON = -1


@kernel(forceinline=True)
def _first(notes: Array, turn: int, n_threads: int) -> Any:
    """Return the note with the smallest label; of equals that of the first slab."""
    winner = notes[turn * n_threads]
    for k in range(turn * n_threads + 1, (turn + 1) * n_threads):
        if notes[k].label < winner.label:
            winner = notes[k]
    return winner


@kernel(forceinline=True)
def _first_free(notes: Array, turn: int, n_threads: int) -> Any:
    """Return the note with the smallest label of a free column; of equals that of the first slab."""
    winner = notes[turn * n_threads]
    for k in range(turn * n_threads + 1, (turn + 1) * n_threads):
        if notes[k].free_label < winner.free_label:
            winner = notes[k]
    return winner


@kernel(forceinline=True)
def _take_up(slab: Slab, st: State, zero: float) -> None:
    """Read the progress of the phase; only between barriers at which it does not change."""
    own, at = slab.own, st.at
    own.position, own.row, own.root, own.entered_by = at.position, at.row, at.root, at.entered_by
    own.n_settled, own.label, own.entry_price = at.n_settled, at.label, at.entry_price
    own.turn = own.beat = own.n_filled = own.entry_known = 0
    own.next_root = -1
    own.top_price = largest_price(slab.v, slab.start, slab.stop, zero)
    for part in range(2):
        st.notes[part * slab.n_threads + slab.thread].beat = 0
    st.hints[slab.thread].beat = 0


@kernel(forceinline=True)
def _put_down(slab: Slab, st: State, stage: int, status: int) -> None:
    """Write the progress of the phase; by thread 0, past a barrier after which no thread reads it."""
    own, at = slab.own, st.at
    if status in (CHANGED, INVALID):
        at.wanted = own.row
    at.position, at.stage = own.position, stage
    at.row, at.root, at.entered_by = own.row, own.root, own.entered_by
    at.n_settled, at.label, at.entry_price = own.n_settled, own.label, own.entry_price


@kernel(forceinline=True)
def _open(slab: Slab, order: Array, backward: bool, zero: float) -> None:
    """Start the search from the next root."""
    own, infinity, position = slab.own, slab.infinity, slab.own.position
    own.root = order[order.size - 1 - position] if backward else order[position]
    own.next_root = -1
    if position + 1 < order.size:
        own.next_root = order[order.size - 2 - position] if backward else order[position + 1]
    own.row, own.entered_by = own.root, AT_ROOT
    own.n_settled, own.label = 0, -infinity
    own.free_label = own.known_free = own.sieve_base = infinity
    own.fall = zero
    own.queued = own.touched = 0
    own.free_column = NOWHERE


@kernel(forceinline=True)
def _scan_root(slab: Slab, st: State, t: RowTable, terms: Terms, cost: Array) -> int:
    """Survey the root's labels, with which most searches end; if not, continue the search."""
    own, infinity, sign = slab.own, slab.infinity, terms.sign
    following = 0
    # Read once: thread 0 may be replacing a row.
    slot = t.slot_of_row[own.next_root] if own.next_root >= 0 else -1
    if slot >= 0:
        following = t.slots[slot].ctypes.data + slab.start * cost.itemsize
    reference = st.reference[own.row]
    low, free = survey_root(slab, cost, sign, reference, following)
    full = (slab.stop - slab.start) // LANES
    note_lows(own.row, slab.group_min, full, slab.width, slab.lows, slab.scale)
    column = NOWHERE
    if free == low and low < infinity:
        column = free_at_root(slab, low, cost, sign, reference)
        if column < NOWHERE:
            slab.pred[column] = own.row
    first = own.turn * slab.n_threads
    note = st.notes[first + slab.thread]
    note.label = low if own.valid != 0 else -infinity
    note.free_label, note.free_column = free, column
    own.beat += 1
    meet(st.notes, first, slab.thread, slab.n_threads, own.beat)
    own.at_root = _first(st.notes, own.turn, slab.n_threads).label
    nearest = _first_free(st.notes, own.turn, slab.n_threads)
    own.turn = 1 - own.turn
    if own.at_root <= -infinity:
        return INVALID
    if own.at_root == infinity:
        return INFEASIBLE
    own.best = nearest.free_label
    if own.best <= own.at_root:
        own.sink = nearest.free_column
        return _ON if own.sink != NOWHERE else CHANGED
    own.known_free = own.best
    own.sieve_base = own.best + terms.unit if own.best < infinity else infinity
    open_root(slab, cost, sign, reference)
    return _ON


@kernel(forceinline=True)
def _scan(slab: Slab, st: State, t: RowTable, terms: Terms, cost: Array) -> None:
    """Relax the row of a settled column where it can matter."""
    own = slab.own
    if own.entry_known == 0:
        own.entry_cost = terms.sign * cost[own.entered_by]
    if own.known_free < slab.infinity and own.known_free + terms.unit < own.sieve_base:
        set_sieve(slab, own.known_free + terms.unit)
    base = own.sieve_base
    if base == slab.infinity:
        relax_all(slab, cost, terms.sign)
        return
    tell_next(slab, st.hints[slab.thread])
    reference = st.reference[own.row]
    size = own.top_price + abs(base) + abs(own.entry_cost) + abs(own.entry_price) + abs(own.label)
    margin = terms.margin * (size + abs(reference))
    relax_sifted(
        slab,
        cost,
        terms.sign,
        reference,
        margin + terms.margin * terms.margin,
        st.hints,
        t.slots,
        t.slot_of_row,
    )


@kernel(forceinline=True)
def _raise_label(slab: Slab, best: float, zero: float) -> None:
    """Update the running maximum of labels, and the fall of prices if the search ended here."""
    own = slab.own
    if best > own.label:
        own.fall += own.n_settled * (best - own.label) if own.n_settled > 0 else zero
        own.label = best
    else:
        own.fall += own.label - best


@kernel(forceinline=True)
def _settle(slab: Slab, st: State, first: Note, terms: Terms) -> None:
    """Settle the first column of all queues; its row is scanned next."""
    own, column = slab.own, first.column
    own.row, own.entered_by = first.row, column
    own.entry_price, own.entry_cost = first.price, first.entry_cost
    _raise_label(slab, first.label, terms.sign - terms.sign)
    if slab.thread == 0:
        st.settled[own.n_settled] = column
    if slab.start <= column and column < slab.stop:
        own.queued = pop(slab.heap, slab.place, slab.dist, slab.start, own.queued)
        slab.place[column] = SETTLED
        slab.sieve[column] = rounded_up(terms.blocked)
    own.n_settled += 1


@kernel(forceinline=True)
def _next_column(slab: Slab, st: State, t: RowTable, terms: Terms, always_resident: bool) -> int:
    """Choose the smallest label of all slabs: a free column (the sink), or the first of a queue."""
    own, infinity, n_threads = slab.own, slab.infinity, slab.n_threads
    begin = own.turn * n_threads
    note = st.notes[begin + slab.thread]
    note.label = infinity if own.valid != 0 else -infinity
    if own.queued > 0 and own.valid != 0:
        column = slab.heap[slab.start]
        following = slab.row_of_column[column]
        note.label, note.price = slab.dist[column], slab.v[column]
        note.column, note.row = column, following
        if always_resident:
            note.entry_cost = terms.sign * t.slots[t.slot_of_row[following], column]
    note.free_label, note.free_column = own.free_label, own.free_column
    own.beat += 1
    meet(st.notes, begin, slab.thread, n_threads, own.beat)
    nearest = _first_free(st.notes, own.turn, n_threads)
    first = _first(st.notes, own.turn, n_threads)
    own.turn = 1 - own.turn
    own.known_free = min(own.known_free, nearest.free_label)
    if first.label <= -infinity:
        return INVALID
    if own.at_root < infinity and first.label != own.at_root:
        return CHANGED
    if nearest.free_label == infinity and first.label == infinity:
        # If a free column is known, its label should be here: only changed costs can hide it.
        return INFEASIBLE if own.known_free == infinity else CHANGED
    if first.label < nearest.free_label:
        own.entry_known = 1 if always_resident else 0
        _settle(slab, st, first, terms)
    else:
        own.best, own.sink = nearest.free_label, nearest.free_column
    return _ON


@kernel(forceinline=True)
def _commit(slab: Slab, st: State, epsilon: float, zero: float) -> int:
    """Flip the path to the sink and lower the prices. O(columns touched by the search)."""
    own, at, v, sink = slab.own, st.at, slab.v, slab.own.sink
    _raise_label(slab, own.best, zero)
    own.n_settled += 1
    if slab.thread == 0:
        st.settled[own.n_settled - 1] = sink
        at.virtual_by = -1
        st.reports[0].sound = 1 if augment(st, own.root, sink, -1, own.n_settled) else 0
        at.n_drops += own.n_settled
        at.drops += own.fall
    cross(st.barrier, slab.n_threads)
    if st.reports[0].sound == 0:
        return CHANGED
    label = own.label
    # A1015, algorithm 3, line 17; label is the running maximum, so no price rises.
    for k in range(own.n_settled - 1):
        j = st.settled[k]
        if slab.start <= j and j < slab.stop:
            v[j] -= (label - slab.dist[j]) + epsilon
    if slab.start <= sink and sink < slab.stop:
        v[sink] -= (label - own.best) + epsilon
        slab.sieve[sink] = rounded_up(v[sink])
        own.top_price = max(own.top_price, abs(v[sink]))
    forget(slab)
    own.position += 1
    return _ON


@kernel
def run_square(
    thread: int,
    n_threads: int,
    st: State,
    t: RowTable,
    terms: Terms,
    order: Array,
    backward: bool,
    epsilon: float,
    budget: int,
) -> int:
    """Match every remaining row of ``order``, after ``clear_front``.

    Parameters and results as for ``rectangular.run_phase``. Worst case O(m^2) pairs a search, and
    O(log m) for each label that falls below that of the best free column.
    """
    own, zero = st.fronts[thread], terms.sign - terms.sign
    start, stop, lows = st.bounds[thread], st.bounds[thread + 1], st.lows[thread]
    # Groups per stretch; the whole slab if there is no room for more codes.
    n_codes = max(1, 2 * lows.shape[1])
    width = max(1, ((stop - start) // LANES + n_codes - 1) // n_codes)
    slab = Slab(
        own,
        st.scales[thread],
        st.v,
        st.dist,
        st.pred,
        st.row_of_column,
        st.sieve,
        st.place,
        st.heap,
        st.touched,
        st.found[thread],
        st.block_min[thread],
        lows,
        st.runs[thread],
        start,
        stop,
        width,
        thread,
        n_threads,
        terms.infinity,
    )
    slots, slot_of_row, head = t.slots, t.slot_of_row, t.head
    _take_up(slab, st, zero)
    stage = st.at.stage
    # Read before the barrier: after it, thread 0 may claim a slot for the missing row.
    always_resident = head[POLICY] == RESIDENT and head[N_USED] == slot_of_row.size
    if thread == 0:
        predict_slot(0, st, t)
    # No thread may change the record before every thread has read it.
    cross(st.barrier, n_threads)

    row_turn = spent = 0
    while True:
        if stage == NEXT_ROW:
            if own.position == order.size:
                status = DONE
                break
            if st.barrier[LEAVE] != 0:
                status = YIELD
                break
            _open(slab, order, backward, zero)
            stage = SCAN
        if spent >= budget:
            status = YIELD
            break
        slot, absent = slot_of_row[own.row], False
        if slot >= 0 and always_resident:
            if thread == 0:
                head[HITS] += 1
        else:
            slot, absent = find(thread, own.row, False, row_turn, st, t, terms)
            row_turn = 1 - row_turn
        if slot < 0:
            status = NEED_ROW
            break
        cost = slots[slot]
        own.valid = 1
        if absent:
            own.n_filled += 1
            valid, own.entry_cost = fill_own(
                thread, n_threads, own.row, own.entered_by, own.n_filled, st, cost, terms
            )
            own.valid, own.entry_known = 1 if valid else 0, 1
        spent += terms.n_columns
        if thread == 0:
            st.at.rows_scanned += 1
        own.sink, own.at_root = NOWHERE, terms.infinity
        if own.entered_by == AT_ROOT:
            status = _scan_root(slab, st, t, terms, cost)
            if status != _ON:
                break
        else:
            _scan(slab, st, t, terms, cost)
        if own.sink == NOWHERE:
            status = _next_column(slab, st, t, terms, always_resident)
            if status != _ON:
                break
            if own.sink == NOWHERE:
                continue
        status = _commit(slab, st, epsilon, zero)
        if status != _ON:
            break
        stage = NEXT_ROW

    # All threads have left the loop for the same reason before the record changes.
    cross(st.barrier, n_threads)
    if thread == 0:
        _put_down(slab, st, stage, status)
    return status
