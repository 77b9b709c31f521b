"""Exact optima and exact minima of linear assignment, to judge results by. Nothing of bigsap here.

Every double is a whole multiple of 2**-1074, so all costs, prices and sums below are Python
integers in that unit: ``grid`` makes one, ``value`` gives it back as a Fraction.

``optimum`` is a Hungarian method on integers, for any small problem. For larger ones a result's own
prices prove a lower bound of the optimum (``row_minima`` and ``dual_bound``: no rounding, whatever
the prices are), any assignment an upper one, and ``settle`` closes what is left between
the two, from the best prices known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

#: Numbers are counted in this unit, 2**-1074, the smallest double.
UNIT_BITS = 1074
INFINITY = math.inf
_SAFE = 2.0**1000
#: So many costs of a large problem are kept as integers.
_KEPT = 2_000_000


def grid(number: Any) -> int:
    """A finite double or integer, in units of 2**-1074."""
    if isinstance(number, (int, np.integer)):
        return int(number) << UNIT_BITS
    top, bottom = float(number).as_integer_ratio()
    return top << (UNIT_BITS + 1 - bottom.bit_length())


def value(units: int) -> Fraction:
    """The number that is so many units."""
    return Fraction(units, 1 << UNIT_BITS)


def nearest(units: int) -> float:
    """The double nearest to it, ties to even; an infinity beyond the doubles."""
    try:
        return units / (1 << UNIT_BITS)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def grids(numbers: Any) -> np.ndarray:
    """An object array of units; infinities become None."""
    numbers = np.asarray(numbers)
    flat = [None if x in (INFINITY, -INFINITY) else grid(x) for x in numbers.ravel().tolist()]
    found = np.empty(len(flat), object)
    found[:] = flat
    return found.reshape(numbers.shape)


# -- the optimum of a small problem ------------------------------------------------------------


def optimum(cost: Any, maximize: bool = False, unassigned: Any = None) -> tuple[int, list[int]] | None:
    """The optimal cost in units, and the column of each row (-1: none); None when infeasible.

    cost: (n, m) doubles or integers; infinities forbid a pair. unassigned: a price or (n,) prices
    at which rows may stay without a column (infinite: must not). Else min(n, m) pairs are
    assigned. O(min(n, m)**2 max(n, m)) operations on integers.
    """
    cost = np.asarray(cost)
    n, m = cost.shape
    numbers = grids(cost)
    if unassigned is not None:
        prices = np.broadcast_to(np.asarray(unassigned), (n,))
        own = np.full((n, n), None, object)
        own[np.arange(n), np.arange(n)] = grids(prices)
        numbers = np.concatenate((numbers, own), axis=1)
    sign = -1 if maximize else 1
    allowed = np.not_equal(numbers, None)
    finite = [sign * x for x in numbers[allowed]]
    low_bit = min((x & -x for x in finite if x), default=1).bit_length() - 1
    finite = [x >> low_bit for x in finite]
    # More than any assignment of allowed pairs can save.
    beyond = 2 * (min(numbers.shape) + 1) * max((abs(x) for x in finite), default=1) + 1
    whole = np.full(numbers.shape, beyond, object)
    whole[allowed] = finite
    turned = whole.shape[0] > whole.shape[1]
    chosen = hungarian(_narrowed(whole.T if turned else whole))
    pairs = [(j, i) if turned else (i, j) for i, j in enumerate(chosen)]
    if not all(allowed[pair] for pair in pairs):
        return None
    col4row = [-1] * n
    for i, j in pairs:
        col4row[i] = j if j < m else -1
    return sum(numbers[pair] for pair in pairs), col4row


def _narrowed(numbers: np.ndarray) -> np.ndarray:
    """The same numbers as int64, where every sum of the method below fits."""
    largest = max((abs(x) for x in numbers.ravel()), default=0)
    return numbers.astype(np.int64) if largest * 8 * (sum(numbers.shape) + 2) < 2**62 else numbers


def hungarian(numbers: np.ndarray) -> list[int]:
    """The columns of an optimal assignment of all rows; no more rows than columns.

    One shortest augmenting path a row, by prices of the columns.
    """
    rows, columns = numbers.shape
    price = numbers[0].copy() * 0 if rows else np.zeros(columns, object)
    height = [0] * rows
    owner, chosen = [-1] * columns, [-1] * rows
    for root in range(rows):
        column, distances, done, before, reached = _path(lambda i: numbers[i], root, height, price, owner)
        for j in done:
            price[j] += distances[j] - reached
            if owner[j] >= 0:
                height[owner[j]] += reached - distances[j]
        height[root] += reached
        _augment(column, root, before, owner, chosen)
    return chosen


def _path(
    row_of: Callable[[int], Any], root: int, height: Any, price: Any, owner: list[int]
) -> tuple[int, Any, list[int], Any, Any]:
    """Dijkstra from a row to the first free column, over costs minus duals.

    That column, labels, the columns settled (with it), the column before each, its distance.
    """
    row, ahead, last = root, 0, -1
    distances = before = open_ = None
    done: list[int] = []
    while True:
        found = row_of(row) - price + (ahead - height[row])
        if distances is None:
            distances, before = found, np.full(found.size, -1)
            open_ = np.ones(found.size, bool)
        else:
            closer = open_ & (found < distances)
            distances = np.where(closer, found, distances)
            before[closer] = last
        left = np.flatnonzero(open_)
        last = int(left[np.argmin(distances[left])])
        ahead = distances[last]
        open_[last] = False
        done.append(last)
        if owner[last] < 0:
            return last, distances, done, before, ahead
        row = owner[last]


def _augment(column: int, root: int, before: Any, owner: list[int], chosen: list[int]) -> None:
    while column >= 0:
        previous = int(before[column])
        row = root if previous < 0 else owner[previous]
        owner[column], chosen[row] = row, column
        column = previous


def brute_force(cost: Any, maximize: bool = False, unassigned: Any = None) -> int | None:
    """The optimal cost in units by trying everything; None when infeasible."""
    cost = np.asarray(cost)
    n, m = cost.shape
    numbers, better = grids(cost), max if maximize else min
    prices = None if unassigned is None else grids(np.broadcast_to(np.asarray(unassigned), (n,)))
    must_stay = max(0, n - m)

    def best(row: int, taken: frozenset[int], left_out: int) -> int | None:
        if row == n:
            return 0
        found = []
        for j in range(m):
            if j not in taken and numbers[row, j] is not None:
                rest = best(row + 1, taken | {j}, left_out)
                found += [] if rest is None else [rest + numbers[row, j]]
        if prices is None and left_out < must_stay:
            rest = best(row + 1, taken, left_out + 1)
            found += [] if rest is None else [rest]
        elif prices is not None and prices[row] is not None:
            rest = best(row + 1, taken, left_out)
            found += [] if rest is None else [rest + prices[row]]
        return better(found) if found else None

    return best(0, frozenset(), 0)


# -- bounds by prices ----------------------------------------------------------------------------


def row_minima(cost: Any, v: Any, v_low: Any = None, maximize: bool = False) -> list[int | None]:
    """``min_j (c[i, j] - v[j])`` of each row, exactly, in units; None without an allowed pair.

    When maximising the largest, of ``c`` and ``v`` as the user has them, times -1.
    """
    cost, v = np.asarray(cost), np.asarray(v)
    low = None if v_low is None or not np.any(v_low) else np.asarray(v_low, np.float64)
    exact = cost.dtype.kind == "f" or np.abs(cost.astype(object)).max(initial=0) <= 2**53
    exact = exact and (v.dtype.kind == "f" or np.abs(v.astype(object)).max(initial=0) <= 2**53)
    sign = -1 if maximize else 1
    prices = grids(v) if low is None else grids(v) + grids(low)
    if not exact:
        found: list[int | None] = []
        for row in cost:
            units = grids(row)
            here = [sign * (c - p) for c, p in zip(units, prices, strict=True) if c is not None]
            found.append(min(here, default=None))
        return found
    numbers, v = sign * cost.astype(np.float64), sign * v.astype(np.float64)
    low = None if low is None else sign * low
    return [_row_minimum(row, v, low, sign, prices) for row in numbers]


def _row_minimum(row: Any, v: Any, low: Any, sign: int, prices: Any) -> int | None:
    """The same of one row: those that rounding may confuse are compared as integers."""
    open_ = np.flatnonzero(row < INFINITY)
    if not open_.size:
        return None
    row, v, own = row[open_], v[open_], prices[open_]
    near = np.arange(open_.size)
    with np.errstate(all="ignore"):
        s = row - v
        tail = 0.0 if low is None else np.abs(low[open_]).max()
        if max(np.abs(row).max(), np.abs(v).max()) < _SAFE and tail < _SAFE:
            # Differences of doubles are multiples of the smallest: exact where they are tiny.
            off = np.abs(s) * 2.0**-51 + 2.0 * tail
            near = np.flatnonzero(s - off <= (s + off).min())
            near = _nearer(row, v, None if low is None else low[open_], s, near)
    best = None
    seen = set()
    for c, p in zip(row[near].tolist(), own[near], strict=True):
        if (c, p) not in seen:
            seen.add((c, p))
            here = grid(c) - sign * p
            best = here if best is None or here < best else best
    return best


def _nearer(row: Any, v: Any, low: Any, s: Any, near: Any) -> Any:
    """Those of the nearest that differ by less than the rounding of differences."""
    if near.size < 8:
        return near
    s, a, b = s[near], row[near], v[near]
    other = s - a
    rest = (a - (s - other)) - (b + other)
    size = np.abs(s - s.min()) + np.abs(rest)
    if low is not None:
        size += np.abs(low[near])
        rest = rest - low[near]
    here, off = (s - s.min()) + rest, size * 2.0**-50
    return near[np.flatnonzero(here - off <= (here + off).min())]


def dual_bound(
    minima: Sequence[int | None], v: Any, v_low: Any = None, maximize: bool = False, unassigned: Any = None
) -> int | None:
    """What the prices prove: no assignment costs less (more than -1 times it when maximising).

    minima: of ``row_minima`` with these prices. None: it is infeasible. With ``unassigned`` the
    prices must not be above 0 (below, when maximising).
    """
    sign = -1 if maximize else 1
    prices = [sign * p for p in grids(v)]
    if v_low is not None:
        prices = [p + sign * q for p, q in zip(prices, grids(v_low), strict=True)]
    n, m = len(minima), len(prices)
    if unassigned is not None:
        assert max(prices, default=0) <= 0
        own = [None if p is None else sign * p for p in grids(np.broadcast_to(np.asarray(unassigned), (n,)))]
        low = [
            min((x for x in pair if x is not None), default=None) for pair in zip(minima, own, strict=True)
        ]
        return None if None in low else sum(low) + sum(prices)
    known = sorted(x for x in minima if x is not None)
    if len(known) < min(n, m):
        return None
    if n <= m:
        return sum(known) + sum(sorted(prices)[:n])
    return sum(prices) + sum(known[:m])


def settle(cost: Any, v: Any, v_low: Any = None, maximize: bool = False) -> int:
    """The optimal cost of a large feasible problem, in units, from prices near the optimal ones.

    Rows whose cheapest column by these prices is free take it; each other one is an augmenting path
    over integers, a row of them at a time.
    """
    cost = np.asarray(cost)
    sign = -1 if maximize else 1
    if cost.shape[0] > cost.shape[1]:
        least = row_minima(cost, v, v_low, maximize)  # the prices of the rows
        known = [x for x in least if x is not None]
        prices = np.array([max(known) if x is None else x for x in least], object)
        cost = cost.T
    else:
        prices = sign * (grids(v) if v_low is None else grids(v) + grids(v_low))
    n, m = cost.shape
    allowed = np.isfinite(cost) if cost.dtype.kind == "f" else np.ones(cost.shape, bool)
    sizes = np.abs(cost[allowed].astype(np.float64))
    # Bits that no number needs are left out.
    spare = min(((x & -x).bit_length() - 1 for x in prices if x), default=UNIT_BITS)
    smallest = math.frexp(sizes[sizes > 0].min())[1] if sizes.any() else 0
    spare = max(0, min(spare, UNIT_BITS + smallest - 64))
    prices = np.array([x >> spare for x in prices], object)
    beyond = (4 * (m + 1) * (int(sizes.max()) + 1) << UNIT_BITS) >> spare
    zeros = np.array([0] * m, object)
    kept: dict[int, Any] = {}

    def row_of(i: int) -> Any:
        """Units of a row; beyond the last one, rows of zeros make the problem square."""
        if i >= n:
            return zeros
        if i not in kept:
            if len(kept) * m > _KEPT:
                kept.clear()
            units = [beyond if x is None else sign * x >> spare for x in grids(cost[i])]
            kept[i] = np.array(units, object)
        return kept[i]

    height, owner, chosen, roots = [0] * m, [-1] * m, [-1] * m, []
    for i in range(m):
        slack = row_of(i) - prices
        height[i] = slack.min()
        free = [j for j in np.flatnonzero(slack == height[i]) if owner[j] < 0]
        if free:
            owner[free[0]], chosen[i] = i, int(free[0])
        else:
            roots.append(i)
    for root in roots:
        column, distances, done, before, reached = _path(row_of, root, height, prices, owner)
        for j in done:
            prices[j] += distances[j] - reached
            if owner[j] >= 0:
                height[owner[j]] += reached - distances[j]
        height[root] += reached
        _augment(column, root, before, owner, chosen)
    return sign * sum(int(row_of(i)[chosen[i]]) << spare for i in range(n))
