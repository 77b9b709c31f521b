"""Row access by kernels: look a row up, compute it, or request it from Python."""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import cross, hear, tell
from bigsap.engine.core.scan import n_invalid
from bigsap.engine.core.state import BLOCK, State
from bigsap.row_cache import ABSENT, HITS, N_SLOTS, N_USED, RowTable, claim, next_slot, touch
from bigsap.sources.compiled import call_fill
from bigsap.types import Array

# Returned in place of a slot.
NOT_HERE = -2
BAD_COSTS = -3


class Terms(NamedTuple):
    """Scalars that describe the costs to a kernel, in the unit of prices, and the fill function.

    sign: 1, or -1 under maximize. infinity, blocked: see ``state``. Valid signed
    costs lie in (lowest, highest]. fill_address is 0 if rows come from Python. fill_in_parts: a
    part of a row costs its share (see ``sources.base.Fill``). margin: bound of rounding errors,
    relative to the numbers involved; unit: smallest difference of two distinct labels; one of
    them is 0 (see ``sieve``).
    """

    sign: float
    infinity: float
    blocked: float
    lowest: float
    highest: float
    fill_address: int
    fill_context: int
    n_columns: int
    margin: float = 0.0
    unit: float = 0.0
    fill_in_parts: bool = False


@kernel
def predict_slot(turn: int, st: State, t: RowTable) -> None:
    """Predict the slot that the next miss takes and the row it evicts (thread 0).

    Others read it after the next barrier, as ``turn`` of ``find``.
    """
    slot = next_slot(t)
    full = t.head[N_USED] == t.head[N_SLOTS]
    st.foreseen[turn].slot = slot
    st.foreseen[turn].evicted = t.row_of_slot[slot] if full and slot >= 0 else ABSENT


@kernel
def find(
    thread: int, row: int, sweeping: bool, turn: int, st: State, t: RowTable, terms: Terms
) -> tuple[int, bool]:
    """Return the slot of ``row``, or NOT_HERE; and whether every thread must ``fill`` its part of it.

    The whole team calls it for the same row, with ``turn`` 0 and 1 alternately, at least one
    barrier apart; before the first call, ``predict_slot(0, ...)`` and a barrier. Only thread 0
    changes the policy's lists, possibly while others still look the row up. They see an absent
    row as ABSENT or at the predicted slot. Both mean absent, since only the row predicted to be
    evicted was there before. So neither a hit nor a miss costs a barrier here.
    """
    slot = t.slot_of_row[row]
    foreseen, evicted = st.foreseen[turn].slot, st.foreseen[turn].evicted
    if slot != ABSENT and (slot != foreseen or row == evicted):
        if thread == 0:
            if st.at.wanted == row:
                st.at.wanted = -1  # already counted as a miss by the caller's fetch
            elif sweeping:
                t.head[HITS] += 1
            else:
                touch(t, slot)
            predict_slot(1 - turn, st, t)
        return slot, False
    if terms.fill_address == 0:
        if thread == 0:
            st.at.wanted = row
        return NOT_HERE, False
    if thread == 0:
        claim(t, row, sweeping)
        st.at.rows_filled += 1
        predict_slot(1 - turn, st, t)
    return foreseen, True


@kernel
def fill(row: int, start: int, stop: int, cost: Array, terms: Terms) -> None:
    """Compute columns ``start`` to ``stop - 1`` of ``row`` into its slot ``cost``."""
    if start < stop:
        out = cost.ctypes.data + start * cost.itemsize
        call_fill(terms.fill_address, terms.fill_context, row, start, stop, out)


@kernel
def load_row(
    thread: int, n_threads: int, row: int, sweeping: bool, turn: int, st: State, t: RowTable, terms: Terms
) -> int:
    """Return the slot of ``row``, resident for all threads on return; or NOT_HERE, BAD_COSTS.

    Call it like ``find``. A miss costs one barrier; after it the row is complete.
    """
    slot, absent = find(thread, row, sweeping, turn, st, t, terms)
    if not absent:
        return slot
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    fill(row, start, stop, t.slots[slot], terms)
    st.reports[thread].n_bad = n_invalid(t.slots[slot], terms.sign, terms.lowest, terms.highest, start, stop)
    cross(st.barrier, n_threads)
    for k in range(n_threads):
        if st.reports[k].n_bad != 0:
            if thread == 0:
                st.at.wanted = row
            return BAD_COSTS
    return slot


@kernel
def fill_own(
    thread: int, n_threads: int, row: int, column: int, beat: int, st: State, cost: Array, terms: Terms
) -> tuple[bool, float]:
    """Fill this thread's part of a row; return whether it is valid, and the cost at ``column``.

    Other threads' parts may be incomplete on return, except for that one cost. The thread that
    owns the column computes the columns around it first, if that does not add work, and publishes
    the cost. column: -1 if none is wanted. beat: must differ between consecutive rows.
    """
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    pair_cost = terms.sign - terms.sign
    if n_threads == 1:
        fill(row, start, stop, cost, terms)
        if column >= 0:
            pair_cost = terms.sign * cost[column]
    elif start <= column and column < stop:
        first, end = start, stop
        if terms.fill_in_parts:
            first = start + (column - start) // BLOCK * BLOCK
            end = min(first + BLOCK, stop)
        fill(row, first, end, cost, terms)
        pair_cost = terms.sign * cost[column]
        st.hints[thread].cost = pair_cost
        tell(st.hints[thread], beat)
        fill(row, start, first, cost, terms)
        fill(row, end, stop, cost, terms)
    else:
        fill(row, start, stop, cost, terms)
    valid = n_invalid(cost, terms.sign, terms.lowest, terms.highest, start, stop) == 0
    if column >= 0 and not (start <= column and column < stop):
        other = 0
        while column >= st.bounds[other + 1]:
            other += 1
        hear(st.hints[other], beat)
        pair_cost = st.hints[other].cost
    return valid, pair_cost
