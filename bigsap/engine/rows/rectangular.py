"""Search and augmentation in one phase of an unbalanced problem (A1015, algorithms 2, 3).

Square problems have their own kernel (``square``). One kernel, run by every thread of the team on
its own slab of columns. All threads follow the same control flow on the same values, so they make
the same decisions and wait at the same barriers: one per scanned row, one more per augmentation.
The kernel returns when a row is missing, when its budget is spent, or at the end. The state then
holds everything needed to continue with another call.

*Virtual rows* (n < m) form one group that holds free columns at the common price ``cap``. While
more columns lie at the cap than there are virtual rows (``surplus``), those columns are sinks like
any free column. After that they are held, and settling one of them scans the whole group at once.

*Virtual columns* (n > m) form one group with a common price: a sink while it has free places; when
it is full, settling it scans every member row.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import LEAVE, cross
from bigsap.engine.core.row_access import BAD_COSTS, Terms, load_row, predict_slot
from bigsap.engine.core.scan import NOWHERE, Part, locate, relax_root, relax_row, relax_virtual
from bigsap.engine.core.state import (
    AT_ROOT,
    BY_GROUP,
    CHANGED,
    DONE,
    INFEASIBLE,
    INVALID,
    NEED_ROW,
    YIELD,
    Report,
    State,
)
from bigsap.engine.rows.augment import TO_GROUP, augment, lower_cap, lower_prices
from bigsap.row_cache import HITS, N_USED, POLICY, RESIDENT, RowTable
from bigsap.types import Array

# Stages (at.stage).
NEXT_ROW, SCAN = 0, 1
# Unsettled columns that a path may have: its sink, and those exchanged by virtual rows and columns.
_DETOURS = 4
# Results of a step, besides reasons to return: a row is to be scanned; the search has a sink.
_ROW, _SINK = -1, -2


@kernel(forceinline=True)
def _take_up(part: Part, st: State) -> None:
    """Read the progress of the phase; only between barriers at which it does not change."""
    own, at = part.own, st.at
    own.position, own.row, own.root, own.entered_by = at.position, at.row, at.root, at.entered_by
    own.n_settled, own.surplus, own.virtual_by = at.n_settled, at.surplus, at.virtual_by
    own.group_settled, own.group_pred = at.group_settled, at.group_pred
    own.group_cursor, own.group_size = at.group_cursor, at.group_size
    own.label, own.entry_price, own.cap = at.label, at.entry_price, at.cap
    own.virtual_label, own.group_price, own.group_label = (at.virtual_label, at.group_price, at.group_label)


@kernel(forceinline=True)
def _put_down(part: Part, st: State, stage: int) -> None:
    """Write the progress of the phase, except for values that augmentations have written."""
    own, at = part.own, st.at
    at.position, at.stage = own.position, stage
    at.row, at.root, at.entered_by = own.row, own.root, own.entered_by
    at.n_settled, at.surplus, at.virtual_by = own.n_settled, own.surplus, own.virtual_by
    at.group_settled, at.group_pred = own.group_settled, own.group_pred
    at.group_cursor = own.group_cursor
    at.label, at.entry_price, at.cap = own.label, own.entry_price, own.cap
    at.virtual_label, at.group_label = own.virtual_label, own.group_label


@kernel(forceinline=True)
def _open(part: Part, order: Array, backward: bool) -> None:
    """Start the search from the next root."""
    own = part.own
    own.root = order[order.size - 1 - own.position] if backward else order[own.position]
    own.row, own.entered_by = own.root, AT_ROOT
    own.n_settled, own.virtual_by, own.group_settled = 0, -1, 0
    own.label, own.group_label = -part.infinity, part.infinity


@kernel(forceinline=True)
def _scan(part: Part, st: State, cost: Array, sign: float, report: Report) -> float:
    """Relax a row's labels; return the slab's minimum. Thread 0 publishes that of the virtual columns."""
    own, zero = part.own, sign - sign
    if own.entered_by == AT_ROOT:
        reference = st.reference[own.row]
        best = relax_root(part, cost, sign, reference)
        to_group = (zero - reference) - own.group_price
    else:
        entry_cost = zero
        if own.entered_by == BY_GROUP:
            own.entry_price = own.group_price
        else:
            entry_cost = sign * cost[own.entered_by]
        best = relax_row(part, cost, sign, entry_cost)
        to_group = (zero - entry_cost) - (own.group_price - own.entry_price) + own.label
    if part.thread == 0:
        report.to_group = to_group
        st.at.rows_scanned += 1
    return best


@kernel
def _reduce(part: Part, turn: int, best: float, price_limit: float, reports: Array, barrier: Array) -> int:
    """Agree on the smallest label, free columns first, then the lowest column.

    Returns the index of the chosen thread's record. Two sets of records are used in turn, so one
    barrier per reduction is enough.
    """
    own, n_threads = reports[turn * part.n_threads + part.thread], part.n_threads
    own.label = best
    if best < part.infinity:
        column, free = locate(
            best, part.dist, part.v, part.row_of_column, price_limit, part.start, part.stop, part.block_min
        )
        if column < NOWHERE:
            own.price = part.v[column]
        own.column = column
        own.free = 1 if free else 0
    cross(barrier, n_threads)
    winner = turn * n_threads
    for k in range(winner + 1, (turn + 1) * n_threads):
        x, y = reports[winner].label, reports[k].label
        if y < x or (y == x and y < part.infinity and reports[k].free > reports[winner].free):
            winner = k
    return winner


@kernel(forceinline=True)
def _next_column(
    part: Part, st: State, report: Report, to_group: float, blocked: float, n_virtual: int
) -> int:
    """Settle the smallest label: virtual rows, virtual columns, or a column.

    report: from the thread with a column of the smallest label. to_group: label of the virtual
    columns from the row just scanned. All threads use thread 0's value, since it depends on a cost
    that may have changed by the time another thread reads it.
    """
    own, infinity, n_group = part.own, part.infinity, st.group.size
    if n_group > 0 and own.group_settled == 0 and to_group < own.group_label:
        own.group_label, own.group_pred = to_group, own.row
    best, column, free = report.label, report.column, report.free != 0
    if (
        n_group > 0
        and own.group_settled == 0
        and own.group_label < infinity
        and (own.group_label < best or (own.group_label == best and not free))
    ):
        own.label = max(own.label, own.group_label)
        if own.group_size == n_group:
            own.group_settled = own.group_cursor = 1
            own.row, own.entered_by = st.group[0], BY_GROUP
            return _ROW
        own.sink = TO_GROUP
        own.group_size += 1
        return _SINK
    if best >= infinity:
        return INFEASIBLE
    if (
        column == NOWHERE
        or own.n_settled == st.settled.size
        or (n_virtual == 0 and not free and part.row_of_column[column] < 0)
    ):
        return CHANGED
    own.label = max(own.label, best)
    if not free and part.row_of_column[column] < 0:
        own.virtual_by, own.virtual_label = column, own.label
        own.row = st.column_of_row.size
        return _ROW
    if part.thread == 0:
        st.settled[own.n_settled] = column
        st.settled_dist[own.n_settled] = best
        st.settled_price[own.n_settled] = report.price
    if part.start <= column and column < part.stop:
        part.v[column] = blocked
        part.dist[column] = infinity
    own.n_settled += 1
    own.entry_price = report.price
    if free:
        own.sink = column
        return _SINK
    own.row, own.entered_by = part.row_of_column[column], column
    return _ROW


@kernel(forceinline=True)
def _commit(part: Part, st: State, epsilon: float, blocked: float, n_virtual: int) -> bool:
    """Flip the path to the sink and lower the prices; return False for an endless path."""
    own, at, thread, n_threads = part.own, st.at, part.thread, part.n_threads
    sink, label, n_settled = own.sink, own.label, own.n_settled
    if thread == 0:
        at.virtual_by, at.virtual_took, at.group_pred = own.virtual_by, -1, own.group_pred
        sound = augment(st, own.root, sink, st.column_of_row.size, n_settled + _DETOURS)
        st.reports[0].sound = 1 if sound else 0
        at.n_drops += n_settled
        for k in range(n_settled):
            at.drops += label - st.settled_dist[k]
        if own.virtual_by >= 0:
            at.n_drops += n_virtual
            at.drops += n_virtual * (label - own.virtual_label)
        if own.group_settled != 0:
            at.group_price -= (label - own.group_label) + epsilon
    cross(st.barrier, n_threads)
    if st.reports[0].sound == 0:
        return False
    lower_prices(
        n_settled,
        label,
        epsilon,
        part.v,
        st.settled,
        st.settled_dist,
        st.settled_price,
        part.start,
        part.stop,
    )
    own.group_price = at.group_price
    if own.virtual_by >= 0:
        own.cap -= (label - own.virtual_label) + epsilon
        st.reports[thread].at_cap = lower_cap(thread, own.cap, blocked, st)
        cross(st.barrier, n_threads)
        own.surplus = -n_virtual
        for k in range(n_threads):
            own.surplus += st.reports[k].at_cap
    elif n_virtual > 0 and sink >= 0 and own.entry_price == own.cap:
        own.surplus -= 1
    own.position += 1
    return True


@kernel
def run_phase(
    thread: int,
    n_threads: int,
    st: State,
    t: RowTable,
    terms: Terms,
    order: Array,
    backward: bool,
    epsilon: float,
    n_virtual: int,
    budget: int,
) -> int:
    """Match every remaining row of ``order``; see the module's docstring.

    order: ID (k,), visited from the end if ``backward``. n_virtual: virtual rows.
    budget: pairs to scan before returning YIELD. Returns DONE, NEED_ROW (at.wanted),
    YIELD, INFEASIBLE (no free column can be reached from at.root; the settled
    columns are those its tree can use), INVALID (at.wanted has an invalid cost) or CHANGED
    (costs in place have changed; at.wanted is the row scanned last).
    Worst case O(n m) a search, each scan O(m / n_threads) plus a barrier.
    """
    virtual_row = st.column_of_row.size
    part = Part(
        st.walks[thread],
        st.v,
        st.dist,
        st.pred,
        st.row_of_column,
        st.lanes[thread],
        st.block_min[thread],
        st.bounds[thread],
        st.bounds[thread + 1],
        thread,
        n_threads,
        terms.infinity,
    )
    own, reports, barrier = part.own, st.reports, st.barrier
    slots, slot_of_row, head = t.slots, t.slot_of_row, t.head
    _take_up(part, st)
    stage = st.at.stage
    # Read before the barrier: after it, thread 0 may claim a slot for the missing row.
    always_resident = head[POLICY] == RESIDENT and head[N_USED] == slot_of_row.size
    if thread == 0:
        predict_slot(0, st, t)
    # No thread may change the record before every thread has read it.
    cross(barrier, n_threads)

    turn = row_turn = spent = 0
    while True:
        if stage == NEXT_ROW:
            if own.position == order.size:
                status = DONE
                break
            if barrier[LEAVE] != 0:
                status = YIELD
                break
            _open(part, order, backward)
            stage = SCAN
        if spent >= budget:
            status = YIELD
            break
        if own.row == virtual_row:
            best = relax_virtual(part, terms.blocked)
            if thread == 0:
                st.at.virtual_scans += 1
        else:
            slot = slot_of_row[own.row]
            if slot >= 0 and always_resident:
                if thread == 0:
                    head[HITS] += 1
            else:
                slot = load_row(thread, n_threads, own.row, False, row_turn, st, t, terms)
                row_turn = 1 - row_turn
            if slot < 0:
                status = INVALID if slot == BAD_COSTS else NEED_ROW
                break
            best = _scan(part, st, slots[slot], terms.sign, reports[turn * n_threads])
        spent += terms.n_columns
        if own.group_settled != 0 and own.group_cursor < own.group_size:
            own.row, own.entered_by = st.group[own.group_cursor], BY_GROUP
            own.group_cursor += 1
            if not always_resident:
                cross(barrier, n_threads)  # between two calls of ``load_row``
            continue
        price_limit = own.cap if n_virtual > 0 and own.surplus == 0 else terms.infinity
        winner = _reduce(part, turn, best, price_limit, reports, barrier)
        to_group = reports[turn * n_threads].to_group
        turn = 1 - turn
        status = _next_column(part, st, reports[winner], to_group, terms.blocked, n_virtual)
        if status == _ROW:
            continue
        if status != _SINK:
            break
        if not _commit(part, st, epsilon, terms.blocked, n_virtual):
            status = CHANGED
            break
        stage = NEXT_ROW

    # All threads have left the loop for the same reason before the record changes.
    cross(barrier, n_threads)
    if thread == 0:
        if status == CHANGED:
            st.at.wanted = own.root if own.row == virtual_row else own.row
        _put_down(part, st, stage)
    return status
