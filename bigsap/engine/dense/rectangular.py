"""Search and augmentation in one phase of an unbalanced problem (A1015, algorithms 2, 3).

Square ones have their own (``square``). One kernel, run by every thread of the team on its
own slab of columns. All threads follow the same control flow on the same values, so they
take the same decisions and meet at the same barriers: one a scanned row, one more an
augmentation. The kernel returns when a row is wanted, when its budget is spent, or at the
end, with all that is needed to continue in the state; it is then simply called again.

*Virtual rows* (n < m) are one group: they hold free columns at the common price
``cap``. While more columns lie at the cap than there are virtual rows (``surplus``),
those columns are sinks like any free column; afterwards they are held, and
settling one of them scans the whole group at once.

*Virtual columns* (n > m) are one group with a common price: a sink while places are
left; once full, settling it scans every member row.
"""

from __future__ import annotations

from bigsap.engine.core.atomics import cross
from bigsap.engine.core.fetch import BAD_COSTS, Terms, foresee, obtain
from bigsap.engine.core.scan import NOWHERE, locate, relax_root, relax_row, relax_virtual
from bigsap.engine.core.state import (
    AT_ROOT,
    BY_GROUP,
    CHANGED,
    DONE,
    FREE,
    INFEASIBLE,
    INVALID,
    NEED_ROW,
    RECORD,
    YIELD,
    State,
)
from bigsap.engine.dense.augment import TO_GROUP, augment, lower_cap, lower_prices
from bigsap.native.kernel import kernel
from bigsap.rows import HITS, N_USED, POLICY, RESIDENT, RowTable
from bigsap.sources.base import Array

# Stages (at.stage).
NEXT_ROW, SCAN = 0, 1
# Columns of a path that are not settled: its sink, and what virtual rows and columns pass on.
_DETOURS = 4


@kernel
def _reduce(
    thread: int, n_threads: int, turn: int, best: float, price_limit: float, infinity: float,
    dist: Array, v: Array, row_of_column: Array, start: int, stop: int, block_min: Array,
    record_value: Array, record_id: Array, barrier: Array,
) -> int:  # fmt: skip
    """Agree on the smallest label, free columns first, then the lowest column.

    Returns the place of the winning record. Records alternate between two sets (turn),
    so one barrier a reduction is enough.
    """
    base = (turn * n_threads + thread) * RECORD
    record_value[base] = best
    if best < infinity:
        column, free = locate(best, dist, v, row_of_column, price_limit, start, stop, block_min)
        if column < NOWHERE:
            record_value[base + 1] = v[column]
        record_id[base] = column
        record_id[base + 1] = 1 if free else 0
    cross(barrier, n_threads)
    winner = turn * n_threads * RECORD
    for k in range(1, n_threads):
        other = (turn * n_threads + k) * RECORD
        x, y = record_value[winner], record_value[other]
        if y < x or (y == x and y < infinity and record_id[other + 1] > record_id[winner + 1]):
            winner = other
    return winner


@kernel
def run_phase(
    thread: int, n_threads: int, st: State, t: RowTable, terms: Terms, order: Array,
    backward: bool, epsilon: float, n_virtual: int, budget: int,
) -> int:  # fmt: skip
    """Match every row of ``order`` that is still ahead; see the module's docstring.

    order: ID (k,), visited from the end when ``backward``. n_virtual: virtual rows.
    budget: pairs to scan before returning YIELD. Returns DONE, NEED_ROW (at.wanted),
    YIELD, INFEASIBLE (no free column can be reached from at.root; the settled
    columns are those its tree can use), INVALID (at.wanted has a bad cost) or CHANGED
    (costs in place are no longer what they were; at.wanted is the row scanned last).
    Worst case O(n m) a search, each scan O(m / n_threads) plus a barrier.
    """
    n_rows = st.column_of_row.size
    n_group = st.group.size
    virtual_row = n_rows
    start, stop = st.bounds[thread], st.bounds[thread + 1]
    lanes, block_min = st.lanes[thread], st.block_min[thread]
    infinity, blocked, sign = terms.infinity, terms.blocked, terms.sign
    zero = sign - sign

    # Arrays are taken out of the state once: every access to a field of a tuple costs
    # reference counting, which adds up to more than the scan of a short row.
    at = st.at
    v, dist, pred, row_of_column = st.v, st.dist, st.pred, st.row_of_column
    reference = st.reference
    settled, settled_dist, settled_price = st.settled, st.settled_dist, st.settled_price
    record_value, record_id, barrier = st.record_value, st.record_id, st.barrier
    slots, slot_of_row, head = t.slots, t.slot_of_row, t.head
    position, stage = at.position, at.stage
    row, root, entered_by = at.row, at.root, at.entered_by
    n_settled, surplus, virtual_by = at.n_settled, at.surplus, at.virtual_by
    group_settled, group_pred = at.group_settled, at.group_pred
    group_cursor, group_size = at.group_cursor, at.group_size
    label, entry_price, cap = at.label, at.entry_price, at.cap
    virtual_label, group_price = at.virtual_label, at.group_price
    group_label = at.group_label
    # Read before the barrier: past it, thread 0 may claim a slot for the row that was missing.
    always_resident = head[POLICY] == RESIDENT and head[N_USED] == slot_of_row.size
    if thread == 0:
        foresee(0, st, t)
    # No thread may change the record before every thread has read them.
    cross(st.barrier, n_threads)

    turn = row_turn = 0
    spent = 0
    while True:
        if stage == NEXT_ROW:
            if position == order.size:
                status = DONE
                break
            root = order[order.size - 1 - position] if backward else order[position]
            row, entered_by = root, AT_ROOT
            n_settled, virtual_by, group_settled = 0, -1, 0
            label, group_label = -infinity, infinity
            stage = SCAN
        if spent >= budget:
            status = YIELD
            break

        if row == virtual_row:
            best = relax_virtual(
                cap, label, row, v, dist, pred, row_of_column,
                start, stop, block_min, infinity, blocked,
            )  # fmt: skip
            if thread == 0:
                at.virtual_scans += 1
        else:
            slot = slot_of_row[row]
            if slot >= 0 and always_resident:
                if thread == 0:
                    head[HITS] += 1
            else:
                slot = obtain(thread, n_threads, row, False, row_turn, st, t, terms)
                row_turn = 1 - row_turn
            if slot < 0:
                status = INVALID if slot == BAD_COSTS else NEED_ROW
                break
            cost = slots[slot]
            if entered_by == AT_ROOT:
                best = relax_root(
                    cost, sign, row, reference[row], v, dist, pred,
                    start, stop, lanes, block_min, infinity,
                )  # fmt: skip
                to_group = (zero - reference[row]) - group_price
            else:
                entry_cost = zero
                if entered_by == BY_GROUP:
                    entry_price = group_price
                else:
                    entry_cost = sign * cost[entered_by]
                best = relax_row(
                    cost, sign, row, entry_cost, entry_price, label, v, dist, pred,
                    start, stop, lanes, block_min, infinity,
                )  # fmt: skip
                to_group = (zero - entry_cost) - (group_price - entry_price) + label
            if thread == 0:
                record_value[turn * n_threads * RECORD + 5] = to_group
                at.rows_scanned += 1
        spent += terms.n_columns
        if group_settled != 0 and group_cursor < group_size:
            row = st.group[group_cursor]
            group_cursor += 1
            entered_by = BY_GROUP
            if not always_resident:
                cross(barrier, n_threads)  # between two calls of ``obtain``
            continue

        price_limit = cap if n_virtual > 0 and surplus == 0 else infinity
        record = _reduce(
            thread, n_threads, turn, best, price_limit, infinity, dist, v, row_of_column,
            start, stop, block_min, record_value, record_id, barrier,
        )  # fmt: skip
        # Thread 0's number for all: it rests on a cost that another thread may find changed.
        if n_group > 0 and group_settled == 0:
            to_group = record_value[turn * n_threads * RECORD + 5]
            if to_group < group_label:
                group_label = to_group
                group_pred = row
        turn = 1 - turn
        best = record_value[record]
        column, free = record_id[record], record_id[record + 1] != 0
        column_price = record_value[record + 1]

        sink = FREE
        if (
            n_group > 0
            and group_settled == 0
            and group_label < infinity
            and (group_label < best or (group_label == best and not free))
        ):
            label = max(label, group_label)
            if group_size == n_group:
                group_settled = 1
                group_cursor = 1
                row = st.group[0]
                entered_by = BY_GROUP
                continue
            sink = TO_GROUP
            group_size += 1
        elif best >= infinity:
            status = INFEASIBLE
            break
        elif (
            column == NOWHERE
            or n_settled == settled.size
            or (n_virtual == 0 and not free and row_of_column[column] < 0)
        ):
            status = CHANGED
            break
        else:
            label = max(label, best)
            if not free and row_of_column[column] < 0:
                virtual_by = column
                virtual_label = label
                row = virtual_row
                continue
            if thread == 0:
                settled[n_settled] = column
                settled_dist[n_settled] = best
                settled_price[n_settled] = column_price
            if start <= column and column < stop:
                v[column] = blocked
                dist[column] = infinity
            n_settled += 1
            if not free:
                row = row_of_column[column]
                entered_by = column
                entry_price = column_price
                continue
            sink = column

        if thread == 0:
            at.virtual_by = virtual_by
            at.virtual_took = -1
            at.group_pred = group_pred
            sound = augment(st, root, sink, virtual_row, n_settled + _DETOURS)
            record_id[5] = 1 if sound else 0
            at.n_drops += n_settled
            for k in range(n_settled):
                at.drops += label - settled_dist[k]
            if virtual_by >= 0:
                at.n_drops += n_virtual
                at.drops += n_virtual * (label - virtual_label)
            if group_settled != 0:
                at.group_price -= (label - group_label) + epsilon
        cross(barrier, n_threads)
        if record_id[5] == 0:
            status = CHANGED
            break
        lower_prices(
            n_settled, label, epsilon, v, settled, settled_dist, settled_price, start, stop
        )
        group_price = at.group_price
        if virtual_by >= 0:
            cap -= (label - virtual_label) + epsilon
            at_cap = lower_cap(thread, cap, blocked, st)
            record_id[thread * RECORD + 3] = at_cap
            cross(barrier, n_threads)
            surplus = -n_virtual
            for k in range(n_threads):
                surplus += record_id[k * RECORD + 3]
        elif n_virtual > 0 and sink >= 0 and column_price == cap:
            surplus -= 1
        position += 1
        stage = NEXT_ROW

    # Every thread has left the loop for the same reason before the record changes.
    cross(st.barrier, n_threads)
    if thread == 0:
        if status == CHANGED:
            at.wanted = root if row == virtual_row else row
        at.position, at.stage = position, stage
        at.row, at.root, at.entered_by = row, root, entered_by
        at.n_settled, at.surplus, at.virtual_by = n_settled, surplus, virtual_by
        at.group_settled, at.group_pred = group_settled, group_pred
        at.group_cursor = group_cursor
        at.label, at.entry_price, at.cap = label, entry_price, cap
        at.virtual_label, at.group_label = virtual_label, group_label
    return status
