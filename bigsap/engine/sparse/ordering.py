"""An order of sparse rows and columns in which those with common pairs are near each other.

A search goes from a row to its columns and on to their rows. If these lie anywhere in memory, a large
problem waits for memory at each step. In the order of a breadth-first search (Cuthill and McKee
1969) they lie within a few layers. Graphs of neighbours gain by it; in random graphs a few steps
reach everything, and no order helps. Checkpoints have the user's numbers: a continued solve may use
another order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap import policy
from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import ID
from bigsap.types import Array

#: Bytes that an order takes for each row and column while it is computed; 12 remain.
ORDERING_BYTES = 24


class Ordering(NamedTuple):
    """Order of rows and columns.

    rows (n,), columns (m,): ID, the numbers in the new order. place (m,): ID, the inverse of columns.
    """

    rows: Array
    columns: Array
    place: Array


def local_ordering(start: Array, ids: Array, n_columns: int) -> Ordering | None:
    """Return a breadth-first order; None if these pairs have no use of one.

    start (n + 1,), ids: the entries of each row, as in ``pairs.Pairs``. A sample decides first, by a
    pass over ids. Time: O(entries). Memory: 4 bytes an entry, and ``ORDERING_BYTES`` a row and a column.
    """
    n = start.size - 1
    if ids.size == 0 or _neighbours_share(start, ids) or not _is_clustered(start, ids, n_columns):
        return None
    begin = np.zeros(n_columns + 1, np.int64)
    _count(ids, begin[1:])
    np.cumsum(begin, out=begin)
    of_column = np.empty(ids.size, ID)
    _turn(start, ids, begin[:-1].copy(), of_column)
    found = Ordering(np.empty(n, ID), np.empty(n_columns, ID), np.full(n_columns, -1, ID))
    wide = max(1, n // policy.ORDER_WIDEST_SHARE)
    return found if _breadth_first(start, ids, begin, of_column, wide, np.zeros(n, np.bool_), found) else None


def _neighbours_share(start: Array, ids: Array) -> bool:
    """Return whether rows with successive numbers mostly have common columns: the order is local."""
    rows = np.unique(np.linspace(0, start.size - 2, policy.ORDER_SAMPLE + 1).astype(np.int64))[:-1]
    shared = sum(_share(start, ids, row, row + 1, -1) for row in rows.tolist())
    return 2 * shared > rows.size


def _is_clustered(start: Array, ids: Array, n_columns: int) -> bool:
    """Return whether rows that have a column in common mostly have another one in common."""
    chosen = np.unique(ids[np.linspace(0, ids.size - 1, policy.ORDER_SAMPLE).astype(np.int64)])
    wanted = np.zeros(n_columns, np.bool_)
    wanted[chosen] = True
    at = np.flatnonzero(wanted[ids])
    rows = np.searchsorted(start, at, side="right") - 1
    order = np.argsort(ids[at], kind="stable")
    column, rows = ids[at][order], rows[order]
    (pairs,) = np.nonzero(column[1:] == column[:-1])
    pairs = pairs[:: 1 + pairs.size // policy.ORDER_SAMPLE_PAIRS]
    shared = sum(_share(start, ids, rows[k], rows[k + 1], column[k]) for k in pairs)
    return bool(2 * shared > pairs.size)


def _share(start: Array, ids: Array, a: int, b: int, apart: int) -> bool:
    """Return whether two rows have a common column, ``apart`` from one."""
    common = np.intersect1d(ids[start[a] : start[a + 1]], ids[start[b] : start[b + 1]])
    return bool((common != apart).any())


@kernel
def _count(ids: Array, counts: Array) -> None:
    """Add how often each number occurs."""
    for k in range(ids.size):
        counts[ids[k]] += 1


@kernel
def _turn(start: Array, ids: Array, place: Array, of_column: Array) -> None:
    """Write each column's rows. place (m,): where they begin, changed."""
    for row in range(start.size - 1):
        for k in range(start[row], start[row + 1]):
            at = place[ids[k]]
            place[ids[k]] = at + 1
            of_column[at] = row


@kernel
def _breadth_first(
    start: Array, ids: Array, begin: Array, of_column: Array, wide: int, seen: Array, o: Ordering
) -> bool:
    """Fill the order; return False at a layer of more than ``wide`` rows. O(entries)."""
    n, m = start.size - 1, o.place.size
    n_rows, n_columns = 0, 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        o.rows[n_rows] = root
        first, n_rows = n_rows, n_rows + 1
        while first < n_rows:
            stop = n_rows
            if stop - first > wide:
                return False
            for position in range(first, stop):
                row = o.rows[position]
                for k in range(start[row], start[row + 1]):
                    j = ids[k]
                    if o.place[j] >= 0:
                        continue
                    o.place[j] = n_columns
                    o.columns[n_columns] = j
                    n_columns += 1
                    for e in range(begin[j], begin[j + 1]):
                        other = of_column[e]
                        if not seen[other]:
                            seen[other] = True
                            o.rows[n_rows] = other
                            n_rows += 1
            first = stop
    for j in range(m):
        if o.place[j] < 0:
            o.place[j] = n_columns
            o.columns[n_columns] = j
            n_columns += 1
    return True


def ordered(o: Ordering, start: Array, ids: Array, costs: Array) -> tuple[Array, Array, Array]:
    """Return the entries in this order, a copy. O(entries)."""
    sizes = np.diff(start)[o.rows]
    begin = np.zeros(start.size, np.int64)
    np.cumsum(sizes, out=begin[1:])
    columns, values = np.empty(ids.size, ID), np.empty(costs.size, costs.dtype)
    _copy(o, start, ids, costs, begin, columns, values)
    return begin, columns, values


@kernel
def _copy(
    o: Ordering, start: Array, ids: Array, costs: Array, begin: Array, columns: Array, values: Array
) -> None:
    for position in range(o.rows.size):
        row, at = o.rows[position], begin[position]
        for k in range(start[row], start[row + 1]):
            columns[at], values[at] = o.place[ids[k]], costs[k]
            at += 1
