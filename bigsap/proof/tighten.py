"""Correction of prices by their own rounding, from the near pairs that a pass has recorded.

Prices of a solve carry the rounding of thousands of updates, so assigned pairs miss their row's
least ``c - v`` by a few units in the last place. This module finds the correction: the smallest
``w >= 0`` for which every assigned pair (i, s) is tight at the prices ``v + w``,

    w[s] >= w[j] - (c[i, j] - v[j]) + (c[i, s] - v[s])   for all columns j,

the longest paths of a graph whose arcs are the near pairs. A positive cycle would mean that the
assignment is not optimal. Then, or if w grows beyond the width of the near pairs, nothing changes.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.proof import scan
from bigsap.proof.exact import three_sum, two_sum
from bigsap.proof.row_minima import NearPairs, Prices, RowMinima, whole
from bigsap.proof.scan import fold
from bigsap.types import Array

#: Limit of steps, per near pair, before the search is abandoned.
_STEPS = 64


@kernel
def raise_prices(
    begin: Array,
    rows: Array,
    columns: Array,
    excess: Array,
    column_of_row: Array,
    own: Array,
    waiting: Array,
    queue: Array,
    w: Array,
    small: float,
    most: float,
    steps: int,
) -> bool:
    """Find the longest paths; return False if that failed.

    begin (m + 1,): the first near pair of each column; rows, columns, excess (k,): of the pairs, in
    this order. own (n,): excess of the rows' own pairs. waiting (m,) uint8, queue (m,) int64: workspace.
    w (m,): in/out. small: rises up to this are ignored. most: a price's largest w.
    """
    m = w.size
    head = n_queued = 0
    for k in range(excess.size):
        column = column_of_row[rows[k]]
        if column < 0 or column == columns[k]:
            continue
        needed = own[rows[k]] - excess[k]
        if needed > w[column] + small:
            w[column] = needed
            if waiting[column] == 0:
                waiting[column] = 1
                queue[(head + n_queued) % m] = column
                n_queued += 1
    while n_queued > 0:
        column = queue[head]
        head = (head + 1) % m
        n_queued -= 1
        waiting[column] = 0
        steps -= begin[column + 1] - begin[column]
        if steps < 0 or w[column] > most:
            return False
        for k in range(begin[column], begin[column + 1]):
            other = column_of_row[rows[k]]
            if other < 0 or other == column:
                continue
            needed = w[column] - excess[k] + own[rows[k]]
            if needed > w[other] + small:
                w[other] = needed
                if waiting[other] == 0:
                    waiting[other] = 1
                    queue[(head + n_queued) % m] = other
                    n_queued += 1
    return True


@kernel
def excesses(
    rows: Array, columns: Array, costs: Array, prices: Array, below: Array, found: scan.Minima, excess: Array
) -> None:
    """Compute the excess of listed pairs' differences over their rows' minima, rounded."""
    for k in range(rows.size):
        r, q = rows[k], columns[k]
        a, b, d = scan.exact_difference(costs[k], prices[q], below[q] if below.size > 0 else 0.0)
        excess[k] = (a - found.high[r]) + ((b - found.mid[r]) + (d - found.low[r]))


def tightened(
    minima: RowMinima, matching: Array, signed: Array, prices: Prices, total: float, *, limited: bool = False
) -> tuple[RowMinima, Prices] | None:
    """Return minima and prices with the assigned pairs tight, or None if that is impossible.

    signed: (n,) costs of the assigned pairs in the minimising sense. total: a negligible gap; the
    rows' own shares of it are not corrected. Prices rise: not above the largest if ``limited`` or if
    costs are capped, not above 0 if columns are left over. The minima are exact again.
    O(k log k), k near pairs.
    """
    if minima.near is None or minima.near.rows.size == 0:
        return None
    n, m = matching.size, prices.high.size
    known = whole(minima)
    listed, high, below = _listed(minima, minima.near, matching, signed, prices)
    rows, columns, costs = listed
    excess = np.empty(rows.size)
    excesses(rows, columns, costs, high, below, known, excess)
    (assigned,) = np.nonzero(matching >= 0)
    own, mine = np.zeros(n), np.empty(assigned.size)
    excesses(assigned, matching[assigned], signed[assigned], high, below, known, mine)
    own[assigned] = mine
    # Pairs that are not listed stay above their row's minimum.
    most = minima.near.width * (1.0 - 2.0**-40)
    w = np.zeros(high.size)
    if not most > 0 or not raise_prices(
        np.searchsorted(columns, np.arange(high.size + 1)),
        rows,
        columns,
        excess,
        matching,
        own,
        np.zeros(w.size, np.uint8),
        np.empty(w.size, np.int64),
        w,
        total / (16 * n),
        most,
        _STEPS * (rows.size + 1),
    ):
        return None
    if w.max() > most or not w.any():
        return None
    lower, rounded = two_sum(0.0 if prices.low is None else prices.low, w[:m])
    # Never rounded up: near pairs are complete only up to w.
    lower = np.where(rounded < 0.0, np.nextafter(lower, -np.inf), lower)
    if n < m:
        lower = _not_above(prices, lower, (0.0, 0.0))
    elif limited or minima.cap is not None:
        lower = _not_above(prices, lower, largest(prices))
    found = scan.no_minima(n)
    all_low = lower if high.size == m else np.append(lower, below[m])
    fold(rows, columns, costs, high, all_low, found)
    if ((found.high == np.inf) & (minima.high != np.inf)).any():
        return None
    changed = RowMinima(found.high, found.mid, found.low, minima.matched, None, minima.margins, minima.cap)
    return changed, Prices(*two_sum(prices.high, lower))


def _listed(
    minima: RowMinima, near: NearPairs, matching: Array, signed: Array, prices: Prices
) -> tuple[tuple[Array, Array, Array], Array, Array]:
    """Return near and assigned pairs by columns, with all prices and their low parts.

    Pairs (k,): rows, columns and costs. Low parts may be (0,). If costs are capped there is one more
    column, of the largest price, at which every row has its cap.
    """
    m = prices.high.size
    (assigned,) = np.nonzero(matching >= 0)
    rows, columns = [near.rows, assigned], [near.columns, matching[assigned]]
    costs = [near.costs, signed[assigned]]
    high, below = prices.high, prices.below()
    if minima.cap is not None:
        (free,) = np.nonzero(minima.cap < np.inf)
        top = largest(prices)
        rows.append(free)
        columns.append(np.full(free.size, m))
        costs.append(minima.cap[free])
        high = np.append(high, top[0])
        below = np.append(np.zeros(m) if prices.low is None else prices.low, top[1])
    # Independent of the order in which threads have recorded them.
    order = np.lexsort((np.concatenate(rows), np.concatenate(columns)))
    listed = tuple(np.concatenate(part)[order] for part in (rows, columns, costs))
    return (listed[0], listed[1], listed[2]), high, below


def _not_above(prices: Prices, lower: Array, top: tuple[float, float]) -> Array:
    """Return low parts with which no price exceeds ``top``; those of ``prices`` where others would."""
    high, rest = two_sum(prices.high, -top[0])
    exact, _, _ = three_sum(high, rest, lower - top[1])
    kept = 0.0 if prices.low is None else prices.low
    found: Array = np.where(exact > 0, kept, lower)
    return found


def largest(prices: Prices) -> tuple[float, float]:
    """Return the largest price, in two parts."""
    high = float(prices.high.max())
    if prices.low is None:
        return high, 0.0
    return high, float(prices.low[prices.high == high].max())
