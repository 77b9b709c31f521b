"""Pool of list entries that grows without copying, up to a limit.

The pool is reserved once, at its maximum size. The operating system provides memory page by page as
lists are written, so growing needs no copy and no second pool. Initially rows have adjacent lists of
k entries. A row whose list doubles takes a place of the next size, either freed by another row or
the next unused one, and frees its own. The first places of two neighbours make one of the next size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.row_access import Terms
from bigsap.engine.lists.layout import ENTRY_BYTES, PANEL, PRICE_BYTES, Lists
from bigsap.engine.lists.reading import Costs
from bigsap.sources.compiled import address_of, call, call_fill
from bigsap.types import Array

#: Reserved beyond the first lists if there is no limit, in multiples of their size.
_SPARE = 15
#: No limit, in entries.
UNLIMITED = 1 << 62
#: Entries copied between two polls.
COPIED = 1 << 22
# Results of ``widen``.
WIDENED, NO_ROOM, NO_GROWTH = range(3)


class ListsExhausted(Exception):
    """Raised to switch to scans of whole rows.

    Lists may not grow and kernels cannot read the rows that need it, or evaluations have cost more
    than such scans would.
    """


def reserve(least: int, wanted: int, price: np.dtype[Any]) -> tuple[Array, Array]:
    """Reserve columns and costs of up to ``wanted`` entries, fewer if the system refuses; not cleared."""
    while True:
        try:
            return np.empty(wanted, np.int32), np.empty(wanted, price)
        except MemoryError:
            if wanted <= least:
                raise
            wanted = max(least, wanted // 2)


def first_pool(lists: Lists, k: int, share: int | None, n_columns: int) -> Lists:
    """Move these lists, still empty, into their own pool. share: bytes, None for no limit.

    Under a limit there is room for one whole row beyond the lists, see ``write_whole``. The
    shortest lists may exceed a share that is too small for them.
    """
    n, counts = lists.start.size, lists.counts
    used = n * k
    counts.pool_used, counts.first_width = used, k
    if share is None:
        ids, costs = reserve(used + 4096, (1 + _SPARE) * used + 4096, lists.costs.dtype)
        counts.pool_size, counts.pool_limit = ids.size, UNLIMITED
    else:
        size = max(used, share // ENTRY_BYTES - n_columns)
        ids, costs = reserve(size + n_columns, size + n_columns, lists.costs.dtype)
        ids[size:] = np.arange(n_columns)
        counts.pool_size = counts.pool_limit = size
    return lists._replace(ids=ids, costs=costs)


def moved(lists: Lists, size: int, kept: int, beyond: int, look: Callable[[], None]) -> Lists:
    """Return the same lists in another pool of ``size`` entries, with the first ``kept`` of the old one.

    beyond: columns of a row that has room at the end, see ``first_pool``. An exception of ``look``,
    called about every tenth of a second, leaves the lists where they are.
    """
    ids, costs = reserve(size + beyond, size + beyond, lists.costs.dtype)
    for start in range(0, kept, COPIED):
        part = slice(start, min(start + COPIED, kept))
        ids[part], costs[part] = lists.ids[part], lists.costs[part]
        look()
    ids[size:] = np.arange(beyond)
    lists.counts.pool_size = size
    return lists._replace(ids=ids, costs=costs)


def pool_bytes(lists: Lists, n_columns: int) -> int:
    """Return the bytes that lists and minima have taken so far."""
    counts = lists.counts
    whole = n_columns if counts.pool_limit < UNLIMITED else 0
    return ENTRY_BYTES * (int(counts.pool_used) + whole) + lists.low.nbytes


@kernel(nrt=True)
def clear_unused(lists: Lists) -> None:
    """Set the entries that rows own but do not use to 0: a checkpoint must not hold foreign memory."""
    for row in range(lists.start.size):
        for k in range(lists.start[row] + lists.size[row], lists.start[row] + lists.width[row]):
            lists.ids[k] = 0
            lists.costs[k] = 0


@kernel(nrt=True)
def _leave(place: int, kind: int, lists: Lists) -> None:
    """Add a freed place to its chain. kind: how often its width was doubled."""
    freed = lists.freed
    # Places of a kind form a chain; in ``freed`` and in the chain, 0 is the end.
    lists.costs[place] = freed[kind]
    freed[kind] = place + 1


@kernel(nrt=True)
def widen(row: int, n_columns: int, longest: int, lists: Lists) -> int:
    """Move a row and its entries to a place for twice as many.

    For a list shorter than n_columns. longest: entries that searches can scan. Returns
    WIDENED; NO_ROOM, nothing changed, if Python may enlarge the pool; or NO_GROWTH.
    """
    counts, freed, start = lists.counts, lists.freed, lists.start
    width, old = lists.width[row], start[row]
    wider = min(2 * width, n_columns)
    if wider > longest:
        return NO_ROOM
    kind, first = 0, counts.first_width
    while first << kind < width:
        kind += 1
    place = freed[kind + 1] - 1
    if place >= 0:
        freed[kind + 1] = np.int64(lists.costs[place])
    else:
        place = counts.pool_used
        if place + wider > counts.pool_size:
            if counts.pool_size < counts.pool_limit:
                return NO_ROOM
            counts.refused += 1
            return NO_GROWTH
        counts.pool_used += wider
    for k in range(lists.size[row]):
        lists.ids[place + k] = lists.ids[old + k]
        lists.costs[place + k] = lists.costs[old + k]
    start[row] = place
    lists.width[row] = wider
    counts.doubled += 1
    if kind > 0:
        _leave(old, kind, lists)
    else:
        partner = row ^ 1
        if partner < start.size and start[partner] != partner * first:
            _leave(min(row, partner) * first, 1, lists)
    return WIDENED


@kernel(nrt=True)
def write_whole(row: int, from_fill: bool, source: Costs, terms: Terms, raw: Array, lists: Lists) -> bool:
    """Write the whole row as a list of all columns at the pool's end; return False on an invalid cost.

    For a row whose list may not grow: a search scans all of it. raw: see ``Scratch``.
    """
    m = terms.n_columns
    sign, reference, costs = terms.sign, lists.reference[row], lists.costs
    at = lists.ids.size - m
    lists.counts.evaluations += 1
    lists.counts.pairs += m
    out, raw_at = address_of(costs) + at * PRICE_BYTES, address_of(raw)
    good = 0
    for column in range(0, m, PANEL):
        width = min(PANEL, m - column)
        cost = source.start + row * source.stride + column * source.item
        if from_fill:
            cost = raw_at
            call_fill(terms.fill_address, terms.fill_context, row, column, column + width, cost)
        call(source.copy, (cost, 0, width, out + column * PRICE_BYTES))
        for j in range(at + column, at + column + width):
            x = sign * costs[j]
            costs[j] = x - reference
            good += 1 if (x > terms.lowest) & (x <= terms.highest) else 0
    return good == m
