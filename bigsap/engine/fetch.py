"""How a kernel comes by a row: resident, computed on the spot, or asked for."""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from bigsap.engine.atomics import cross
from bigsap.engine.scan import n_invalid
from bigsap.engine.state import RECORD, ROWS_FILLED, WANTED, State
from bigsap.rows import ABSENT, HITS, RowTable, claim, touch
from bigsap.sources.compiled import call_fill

# Returned in place of a slot.
NOT_HERE = -2
BAD_COSTS = -3


class Terms(NamedTuple):
    """What the costs mean to a kernel: scalars in the unit of prices, and the filler.

    sign: 1, or -1 under maximize. infinity, blocked: see ``state``. Valid signed
    costs lie in (lowest, highest]. fill_address is 0 when rows come from Python.
    """

    sign: float
    infinity: float
    blocked: float
    lowest: float
    highest: float
    fill_address: int
    fill_context: int
    n_columns: int


@njit(nogil=True, cache=True)
def obtain(
    thread: int, n_threads: int, row: int, sweeping: bool, st: State, t: RowTable, terms: Terms
) -> int:
    """The slot of ``row``, resident for all threads on return; or NOT_HERE, BAD_COSTS.

    Called by the whole team for the same row. Only thread 0 moves the policy's lists.
    """
    slot = t.slot_of_row[row]
    if slot != ABSENT:
        if thread == 0:
            if st.words[WANTED] == row:
                st.words[WANTED] = -1  # the caller's fetch counted it as a miss
            elif sweeping:
                t.head[HITS] += 1
            else:
                touch(t, slot)
        return slot
    # Nobody may see the table change before everybody has seen the row absent.
    cross(st.barrier, n_threads)
    if terms.fill_address == 0:
        if thread == 0:
            st.words[WANTED] = row
        return NOT_HERE
    if thread == 0:
        claim(t, row, sweeping)
        st.words[ROWS_FILLED] += 1
    cross(st.barrier, n_threads)
    slot = t.slot_of_row[row]
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    cost = t.slots[slot]
    call_fill(
        terms.fill_address,
        terms.fill_context,
        row,
        start,
        stop,
        cost.ctypes.data + start * cost.itemsize,
    )
    st.record_id[thread * RECORD + 2] = n_invalid(
        cost, terms.sign, terms.lowest, terms.highest, start, stop
    )
    cross(st.barrier, n_threads)
    for k in range(n_threads):
        if st.record_id[k * RECORD + 2] != 0:
            if thread == 0:
                st.words[WANTED] = row
            return BAD_COSTS
    return slot
