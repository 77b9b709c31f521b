"""Augmentation: flip the path of a search, and lower prices."""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import FREE, GROUPED, State
from bigsap.types import Array

#: Sink for a place in the group of virtual columns, instead of a column.
TO_GROUP = -2


@kernel
def _into_group(st: State, root: int, place: int) -> int:
    """Give ``place`` to the row that reached the virtual columns.

    Returns the column it leaves, -1 if it is the root and held none.
    """
    row = st.at.group_pred
    old = st.column_of_row[row]
    st.column_of_row[row] = GROUPED - place
    st.group[place] = row
    return -1 if row == root else old


@kernel
def augment(st: State, root: int, sink: int, virtual_row: int, longest: int) -> bool:
    """Flip the path that ends in ``sink`` (A1015, algorithm 2, lines 23 to 30).

    Returns False if the path has more than ``longest`` columns, the limit of any valid path. Costs
    that change during the search (64-bit integers past the checked range) could close it to a cycle.
    """
    column = sink
    if sink == TO_GROUP:
        place = st.at.group_size
        st.at.group_size = place + 1
        column = _into_group(st, root, place)
        if column < 0:
            return True
    for _ in range(longest):
        row = st.pred[column]
        if row == virtual_row:
            # The virtual rows leave the column by which they were entered and take this
            # one. The former is then free, at the cap.
            st.row_of_column[column] = FREE
            st.at.virtual_took = column
            column = st.at.virtual_by
            continue
        old = st.column_of_row[row]
        st.column_of_row[row] = column
        st.row_of_column[column] = row
        if row == root:
            return True
        column = old
        if old <= GROUPED:
            column = _into_group(st, root, GROUPED - old)
            if column < 0:
                return True
    return False


@kernel
def lower_prices(
    n_settled: int,
    label: float,
    epsilon: float,
    v: Array,
    settled: Array,
    settled_dist: Array,
    settled_price: Array,
    start: int,
    stop: int,
) -> None:
    """Apply ``v -= (label - dist) + epsilon`` to the settled columns of this slab.

    A1015, algorithm 3, line 17; label is the running maximum, so no price rises.
    """
    for k in range(n_settled):
        j = settled[k]
        if start <= j and j < stop:
            v[j] = settled_price[k] - ((label - settled_dist[k]) + epsilon)


@kernel
def lower_cap(thread: int, cap: float, blocked: float, st: State) -> int:
    """Set the new common price of the virtual rows' columns.

    The cap is the largest price of free columns, so those that rounding or epsilon left above it
    are lowered to it. Returns how many free columns of this slab are at the cap.
    """
    at_cap = 0
    took = st.at.virtual_took
    for j in range(st.bounds[thread], st.bounds[thread + 1]):
        if st.v[j] == blocked or j == took or (st.row_of_column[j] < 0 and st.v[j] > cap):
            st.v[j] = cap
        if st.row_of_column[j] < 0 and st.v[j] == cap:
            at_cap += 1
    return at_cap
