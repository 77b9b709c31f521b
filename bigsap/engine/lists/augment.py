"""Augmentation after a search on lists: lower prices and flip the path to the sink.

The virtual rows hold free columns at the cap: the columns and the surplus are computed again.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.state import GROUPED
from bigsap.engine.lists.layout import Lists
from bigsap.engine.lists.workspace import Frontier, Pairs

#: Row index of the virtual rows (n_rows < n_columns).
VIRTUAL = -2


@kernel
def _lower_cap(old: float, cap: float, n_virtual: int, p: Pairs) -> int:
    """Lower free columns from the old cap, or from above the new one, to the new one.

    Returns how many free columns at it exceed those that the virtual rows hold.
    """
    v, open_price, row_of_column = p.v, p.open_price, p.row_of_column
    surplus = -n_virtual
    for j in range(v.size):
        if row_of_column[j] < 0:
            if v[j] == old or v[j] > cap:
                v[j] = cap
                open_price[j] = cap
            if v[j] == cap:
                surplus += 1
    return surplus


@kernel(forceinline=True)
def _lower_prices(p: Pairs, f: Frontier, epsilon: float) -> None:
    """Lower the prices of the settled columns and of the sink.

    No price rises, since the label is the running maximum.
    """
    s, at, v = f.search, f.at, p.v
    for k in range(s.n_settled):
        fall = s.label - f.settled_dist[k]
        at.drops += fall
        v[f.settled[k]] -= fall + epsilon
    at.n_drops += s.n_settled
    if s.group_settled != 0:
        at.group_price -= (s.label - s.group_at) + epsilon
    if s.sink != GROUPED:
        fall = s.label - s.best_free
        at.drops += fall
        at.n_drops += 1
        v[s.sink] -= fall + epsilon


@kernel(forceinline=True)
def _flip(p: Pairs, f: Frontier, lists: Lists, terms: Terms) -> int:
    """Flip the path that ends in the sink; return the column that virtual rows took, or -1."""
    s, at, took = f.search, f.at, -1
    column_of_row, row_of_column, group = p.column_of_row, p.row_of_column, p.group
    zero = terms.sign - terms.sign
    row, cost, column = s.sink_row, s.sink_cost, s.sink
    if column == GROUPED:
        row, column = s.group_row, GROUPED - at.group_size
        cost = zero - lists.reference[row]
        group[at.group_size] = row
        at.group_size += 1
    else:
        p.open_price[column] = terms.blocked
    while True:
        if row == VIRTUAL:
            # Virtual rows leave the column they were reached by and take this one.
            row_of_column[column] = -1
            took = column
            p.open_price[s.held_by] = terms.blocked
            column, row, cost = s.held_by, s.held_row, s.held_cost
        old = column_of_row[row]
        column_of_row[row] = column
        p.match_cost[row] = cost
        if column >= 0:
            row_of_column[column] = row
        if row == s.root:
            return took
        if old <= GROUPED:
            # The row leaves the virtual columns; the row that reached them enters.
            column, row = old, s.group_row
            cost = zero - lists.reference[row]
            group[GROUPED - old] = row
        else:
            column, cost, row = old, f.pred_cost[old], f.pred[old]


@kernel(forceinline=True)
def commit(p: Pairs, f: Frontier, lists: Lists, terms: Terms, epsilon: float) -> None:
    """Apply a search: lower the prices, flip the path."""
    s, at, v, cap = f.search, f.at, p.v, f.at.cap
    n_virtual = max(0, terms.n_columns - p.column_of_row.size)
    at_cap = s.sink != GROUPED and v[s.sink] == cap
    _lower_prices(p, f, epsilon)
    took = _flip(p, f, lists, terms)
    if s.held_settled != 0:
        at.drops += n_virtual * (s.label - s.held_at)
        at.n_drops += n_virtual
        lower = cap - ((s.label - s.held_at) + epsilon)
        if took >= 0:
            # Equal except for rounding, by which no price may rise.
            lower = min(lower, v[took])
            p.open_price[took] = v[took]
            v[s.held_by] = lower
        at.cap = lower
        s.entries += terms.n_columns
        at.surplus = _lower_cap(cap, lower, n_virtual, p)
    elif n_virtual > 0 and at_cap:
        at.surplus -= 1
