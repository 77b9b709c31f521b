"""The search and augmentation of one phase of a square problem (A1015, algorithms 2 and 3).

As ``rectangular.run_phase``, which knows virtual rows and columns, and with the same results, but
with less to do between two rows: a search keeps a queue of what it has reached (``front``),
and rows are sifted by what may matter (``sift``). One kernel, run by every thread of the team
on its own slab of columns, with one barrier a scanned row, one more where a search goes on
beyond its root, and one an augmentation.
"""

from __future__ import annotations

from bigsap.engine.core.atomics import cross, meet
from bigsap.engine.core.fetch import Terms, fill_own, find, foresee
from bigsap.engine.core.scan import NOWHERE
from bigsap.engine.core.state import (
    AT_ROOT,
    CHANGED,
    DONE,
    INFEASIBLE,
    INVALID,
    LANES,
    NEED_ROW,
    RECORD,
    YIELD,
    State,
)
from bigsap.engine.dense.augment import augment
from bigsap.engine.dense.queue import (
    BASE,
    FALL,
    FREE_COLUMN,
    FREE_LABEL,
    KNOWN_FREE,
    QUEUED,
    SETTLED,
    TOUCHED,
    forget,
    largest_price,
    pop,
    rounded_up,
    set_sieve,
    tell_next,
)
from bigsap.engine.dense.rectangular import NEXT_ROW, SCAN
from bigsap.engine.dense.sieve import free_at_root, open_root, relax_all, relax_sifted, survey_root
from bigsap.engine.dense.stretches import note_lows
from bigsap.native.kernel import kernel
from bigsap.rows import HITS, N_USED, POLICY, RESIDENT, RowTable
from bigsap.sources.base import Array

# Records, one a thread, all words on one cache line: the first of the queue (at the root only
# the smallest label), what is known of the row that it would be left by, the best free column,
# and last the beat by which the others know that the record is complete (``record_word``). All
# but that are in the unit of prices, in which columns, rows and NOWHERE are exact.
_FIRST, _FIRST_PRICE, _FIRST_COLUMN, _FIRST_ROW, _ENTRY_COST, _FREE, _FREE_COLUMN, _BEAT = range(8)
_SOUND = 5  # of ``record_id``, whose word 2 is that of ``fetch.obtain``


@kernel(forceinline=True)
def _best(place: int, turn: int, n_threads: int, record_value: Array) -> int:
    """The beginning of the record with the smallest value at ``place``; of equals the first."""
    winner = turn * n_threads * RECORD
    for k in range(1, n_threads):
        other = (turn * n_threads + k) * RECORD
        if record_value[other + place] < record_value[winner + place]:
            winner = other
    return winner


@kernel
def run_square(
    thread: int, n_threads: int, st: State, t: RowTable, terms: Terms, order: Array,
    backward: bool, epsilon: float, budget: int,
) -> int:  # fmt: skip
    """Match every row of ``order`` that is still ahead, after ``clear_front``.

    Parameters and results as for ``rectangular.run_phase``. Worst case O(m^2) pairs a search, and
    O(log m) for each label that falls below that of the best free column.
    """
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    group_min = st.block_min[thread]
    infinity, sign = terms.infinity, terms.sign
    zero = sign - sign
    at = st.at
    v, dist, pred, row_of_column = st.v, st.dist, st.pred, st.row_of_column
    sieve, place, heap, touched = st.sieve, st.place, st.heap, st.touched
    front, own, found = st.front[thread], st.front_id[thread], st.found[thread]
    settled, lows, scale, runs = st.settled, st.lows[thread], st.scale[thread], st.runs[thread]
    record_value, record_word, record_id = st.record_value, st.record_word, st.record_id
    barrier = st.barrier
    slots, slot_of_row, head = t.slots, t.slot_of_row, t.head
    position, stage = at.position, at.stage
    row, root, entered_by = at.row, at.root, at.entered_by
    n_settled = at.n_settled
    label, entry_price = at.label, at.entry_price
    top_price = largest_price(v, start, stop, zero)
    full = (stop - start) // LANES
    # Groups of a stretch; all in one where there is no room to tell stretches apart.
    n_codes = max(1, 2 * lows.shape[1])
    width = max(1, (full + n_codes - 1) // n_codes)
    # Read before the barrier: past it, thread 0 may claim a slot for the row that was missing.
    always_resident = head[POLICY] == RESIDENT and head[N_USED] == slot_of_row.size
    if thread == 0:
        foresee(0, st, t)
    for part in range(3):
        record_word[(part * n_threads + thread) * RECORD + _BEAT] = 0
    # No thread may change the record before every thread has read them.
    cross(barrier, n_threads)

    turn = row_turn = beat = n_filled = 0
    entry_cost, entry_known = zero, False
    spent = 0
    next_root = -1
    while True:
        if stage == NEXT_ROW:
            if position == order.size:
                status = DONE
                break
            root = order[order.size - 1 - position] if backward else order[position]
            next_root = -1
            if position + 1 < order.size:
                next_root = order[order.size - 2 - position] if backward else order[position + 1]
            row, entered_by = root, AT_ROOT
            n_settled, label = 0, -infinity
            front[FREE_LABEL] = front[KNOWN_FREE] = front[BASE] = infinity
            front[FALL] = zero
            own[QUEUED] = own[TOUCHED] = 0
            own[FREE_COLUMN] = NOWHERE
            stage = SCAN
        if spent >= budget:
            status = YIELD
            break
        slot, absent = slot_of_row[row], False
        if slot >= 0 and always_resident:
            if thread == 0:
                head[HITS] += 1
        else:
            slot, absent = find(thread, row, False, row_turn, st, t, terms)
            row_turn = 1 - row_turn
        if slot < 0:
            status = NEED_ROW
            break
        cost = slots[slot]
        valid = True
        if absent:
            n_filled += 1
            valid, entry_cost = fill_own(
                thread, n_threads, row, entered_by, n_filled, st, cost, terms
            )
            entry_known = True
        spent += terms.n_columns
        if thread == 0:
            at.rows_scanned += 1

        here = (turn * n_threads + thread) * RECORD
        sink, at_root = NOWHERE, infinity
        if entered_by == AT_ROOT:
            following = 0
            # Read once: thread 0 may be replacing a row.
            slot = slot_of_row[next_root] if next_root >= 0 else -1
            if slot >= 0:
                following = slots[slot].ctypes.data + start * cost.itemsize
            reference = st.reference[row]
            low, free = survey_root(
                cost, sign, reference, v, row_of_column, start, stop, group_min, infinity,
                following,
            )  # fmt: skip
            note_lows(row, group_min, full, width, lows, scale)
            column = NOWHERE
            if free == low and low < infinity:
                column = free_at_root(
                    low, cost, sign, reference, v, row_of_column, start, stop, group_min
                )
                if column < NOWHERE:
                    pred[column] = row
            record_value[here + _FIRST] = low if valid else -infinity
            record_value[here + _FREE] = free
            record_value[here + _FREE_COLUMN] = column
            beat += 1
            meet(record_word, thread, n_threads, turn * n_threads * RECORD + _BEAT, RECORD, beat)
            at_root = record_value[_best(_FIRST, turn, n_threads, record_value) + _FIRST]
            winner = _best(_FREE, turn, n_threads, record_value)
            turn = 1 - turn
            best = record_value[winner + _FREE]
            if at_root <= -infinity:
                status = INVALID
                break
            if at_root == infinity:
                status = INFEASIBLE
                break
            if best <= at_root:
                sink = int(record_value[winner + _FREE_COLUMN])
                if sink == NOWHERE:
                    status = CHANGED
                    break
            else:
                front[KNOWN_FREE] = best
                front[BASE] = best + terms.unit if best < infinity else infinity
                open_root(
                    cost, sign, row, reference, front[BASE], v, dist, pred, sieve, row_of_column,
                    place, heap, touched, start, stop, group_min, front, own, infinity,
                )  # fmt: skip
        else:
            if not entry_known:
                entry_cost = sign * cost[entered_by]
            known = front[KNOWN_FREE]
            if known < infinity and known + terms.unit < front[BASE]:
                front[BASE] = known + terms.unit
                set_sieve(front[BASE], v, dist, sieve, place, touched, start, own[TOUCHED])
            base = front[BASE]
            if base < infinity:
                tell_next(
                    thread, n_threads, next_root, dist, row_of_column, heap, start, front, own,
                    record_value,
                )  # fmt: skip
                reference = st.reference[row]
                size = top_price + abs(base) + abs(entry_cost) + abs(entry_price) + abs(label)
                margin = terms.margin * (size + abs(reference))
                relax_sifted(
                    cost, sign, row, reference, entry_cost, entry_price, label,
                    margin + terms.margin * terms.margin, base, v, dist, pred, sieve,
                    row_of_column, place, heap, touched, start, stop, front, own, found, infinity,
                    thread, n_threads, next_root, record_value, slots, slot_of_row, lows, scale,
                    width, runs,
                )  # fmt: skip
            else:
                relax_all(
                    cost, sign, row, entry_cost, entry_price, label, v, dist, pred, sieve,
                    row_of_column, place, heap, touched, start, stop, front, own, infinity,
                )  # fmt: skip

        if sink == NOWHERE:
            # The smallest label of all slabs: of a free column, or the first of a queue.
            here = (turn * n_threads + thread) * RECORD
            record_value[here + _FIRST] = infinity if valid else -infinity
            if own[QUEUED] > 0 and valid:
                column = heap[start]
                record_value[here + _FIRST] = dist[column]
                record_value[here + _FIRST_PRICE] = v[column]
                record_value[here + _FIRST_COLUMN] = column
                following = row_of_column[column]
                record_value[here + _FIRST_ROW] = following
                if always_resident:
                    record_value[here + _ENTRY_COST] = sign * slots[slot_of_row[following], column]
            record_value[here + _FREE] = front[FREE_LABEL]
            record_value[here + _FREE_COLUMN] = own[FREE_COLUMN]
            beat += 1
            meet(record_word, thread, n_threads, turn * n_threads * RECORD + _BEAT, RECORD, beat)
            winner = _best(_FREE, turn, n_threads, record_value)
            other = _best(_FIRST, turn, n_threads, record_value)
            turn = 1 - turn
            free, best = record_value[winner + _FREE], record_value[other + _FIRST]
            front[KNOWN_FREE] = min(front[KNOWN_FREE], free)
            if best <= -infinity:
                status = INVALID
                break
            if at_root < infinity and best != at_root:
                status = CHANGED
                break
            if free == infinity and best == infinity:
                # Labels at those of a free column are not noted, and such a one is known.
                status = INFEASIBLE if front[KNOWN_FREE] == infinity else CHANGED
                break
            if best < free:
                column = int(record_value[other + _FIRST_COLUMN])
                entry_price = record_value[other + _FIRST_PRICE]
                row, entered_by = int(record_value[other + _FIRST_ROW]), column
                entry_cost, entry_known = record_value[other + _ENTRY_COST], always_resident
                if best > label:
                    front[FALL] += n_settled * (best - label) if n_settled > 0 else zero
                    label = best
                else:
                    front[FALL] += label - best
                if thread == 0:
                    settled[n_settled] = column
                if start <= column and column < stop:
                    own[QUEUED] = pop(heap, place, dist, start, own[QUEUED])
                    place[column] = SETTLED
                    sieve[column] = rounded_up(terms.blocked)
                n_settled += 1
                continue
            best = free
            sink = int(record_value[winner + _FREE_COLUMN])

        if best > label:
            front[FALL] += n_settled * (best - label) if n_settled > 0 else zero
            label = best
        else:
            front[FALL] += label - best
        n_settled += 1
        if thread == 0:
            settled[n_settled - 1] = sink
            at.virtual_by = -1
            record_id[_SOUND] = 1 if augment(st, root, sink, -1, n_settled) else 0
            at.n_drops += n_settled
            at.drops += front[FALL]
        cross(barrier, n_threads)
        if record_id[_SOUND] == 0:
            status = CHANGED
            break
        # A1015, algorithm 3, line 17; label is the running maximum, so no price rises.
        for k in range(n_settled - 1):
            j = settled[k]
            if start <= j and j < stop:
                v[j] -= (label - dist[j]) + epsilon
        if start <= sink and sink < stop:
            v[sink] -= (label - best) + epsilon
            sieve[sink] = rounded_up(v[sink])
            top_price = max(top_price, abs(v[sink]))
        top_price = forget(v, dist, sieve, place, touched, start, own[TOUCHED], top_price, infinity)
        own[QUEUED] = own[TOUCHED] = 0
        position += 1
        stage = NEXT_ROW

    # Every thread has left the loop for the same reason before the record changes.
    cross(barrier, n_threads)
    if thread == 0:
        if status in (CHANGED, INVALID):
            at.wanted = row
        at.position, at.stage = position, stage
        at.row, at.root, at.entered_by = row, root, entered_by
        at.n_settled = n_settled
        at.label, at.entry_price = label, entry_price
    return status
