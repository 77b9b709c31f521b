"""Selection of a row's k best columns, exactly, from lower bounds of ``c - v`` or from its costs.

Both ways give the same list, bit for bit: the k smallest ``c - v``, among equal ones those met
first from the row's offset on, and as threshold the smallest of the others. So results do not depend
on how a matrix product is rounded, nor on the way taken.

The lower bounds are float32 or float64, each ``c - v`` times a unit, less a term of the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import lowest_bit
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.scan import n_invalid
from bigsap.engine.core.selection import bracket, extremes, n_within
from bigsap.engine.lists.bounded_evaluation import offset_of
from bigsap.engine.lists.layout import CHUNK, Lists
from bigsap.engine.lists.product_vectors import GROUP, at_most_bits, plain_bounds, root_bounds
from bigsap.sources.compiled import address_of, call_fill
from bigsap.types import Array

_BISECTIONS = 60
_LARGEST = 1.7e308
#: Fewer groups for each entry of a list let too many candidates through.
_GROUPS = 2
# Results of the selection from bounds.
FOUND, TOO_MANY, BAD_COST = range(3)


class Candidates(NamedTuple):
    """One thread's candidates, in the order from the row's offset on.

    ids: int32 (room,); costs, tau: float64 (room,), signed costs and ``c - v``. raw: float64 (CHUNK,).
    unknown: int32 (room,) those to be computed; places: int32 (room,) of them. listed: int32 (m,) 1 plus the
    place of a column in the pool of lists, if it is in the row's, else 0.
    """

    ids: Array
    costs: Array
    tau: Array
    raw: Array
    unknown: Array
    places: Array
    listed: Array


class Chosen(NamedTuple):
    """Address and context of a function that computes chosen costs, see ``sources.products``."""

    address: int
    context: int


class Prices(NamedTuple):
    """Prices of an evaluation.

    v: float64 (m,). open_price: v where a column is free. free: int32 the free columns, empty if all or
    none are.
    """

    v: Array
    open_price: Array
    free: Array


@kernel
def _boundary(tau: Array, n: int, k: int) -> tuple[float, float, int]:
    """Return (below, at, room): the k smallest of n >= k values, k >= 1, are those <= below, and the
    first ``room`` of those equal to ``at``.
    """
    least, most = tau[0], tau[0]
    for j in range(n):
        least, most = min(least, tau[j]), max(most, tau[j])
    count = n_within(tau, n, least)
    if count >= k:
        return -np.inf, least, k
    low, high = least, most
    for _ in range(_BISECTIONS):
        middle = low + (high - low) / 2
        if not (middle > low and middle < high):
            break
        within = n_within(tau, n, middle)
        if within == k:
            return middle, middle, 0
        if within < k:
            low, count = middle, within
        else:
            high = middle
    room = k - count
    while True:
        # The next value, and how often it occurs.
        x, equal = most, 0
        for j in range(n):
            if tau[j] > low and tau[j] < x:
                x = tau[j]
        for j in range(n):
            equal += 1 if tau[j] == x else 0
        if equal > room:
            return low, x, room
        if equal == room:
            return x, x, 0
        low = x
        room -= equal


@kernel
def _keep(c: Candidates, n: int, k: int) -> tuple[int, float]:
    """Keep the k smallest of n candidates, in order; return their number, and the smallest of the others."""
    rest = np.inf
    if n <= k:
        return n, rest
    below, at, room = _boundary(c.tau, n, k)
    kept = 0
    for j in range(n):
        x = c.tau[j]
        keep = x <= below
        if not keep and x == at and room > 0:
            keep = True
            room -= 1
        if keep:
            c.tau[kept], c.costs[kept], c.ids[kept] = x, c.costs[j], c.ids[j]
            kept += 1
        elif x < rest:
            rest = x
    return kept, rest


@kernel
def _store(row: int, n: int, theta: float, c: Candidates, best: Any, lists: Lists) -> None:
    """Write a list of n entries; the best free column replaces the worst if it is not among them.

    best: ``c - v``, cost and column of the best free column; -1 if there is none or it is listed.
    """
    free_tau, free_cost, free_id = best
    if free_id >= 0 and n > 0:
        worst, listed = 0, False
        for j in range(n):
            listed = listed or c.ids[j] == free_id
            if c.tau[j] >= c.tau[worst]:
                worst = j
        if not listed:
            theta = min(theta, c.tau[worst])
            c.tau[worst], c.costs[worst], c.ids[worst] = free_tau, free_cost, free_id
    start = lists.start[row]
    for j in range(n):
        lists.ids[start + j] = c.ids[j]
        lists.costs[start + j] = c.costs[j]
    lists.size[row] = n
    lists.theta[row] = theta


@kernel
def select_from_costs(row: int, offset: int, p: Prices, terms: Terms, c: Candidates, lists: Lists) -> bool:
    """Evaluate a row by its filler; return False on an invalid cost. O(m)."""
    m, sign, infinity, k = terms.n_columns, terms.sign, terms.infinity, lists.width[row]
    need, n, cap, rest = k + 1, 0, infinity, infinity
    free_tau, free_cost, free_id = infinity, infinity, -1
    raw, v, tau = c.raw, p.v, c.tau
    for lo, hi in ((offset, m), (0, offset)):
        for first in range(lo, hi, CHUNK):
            width = min(CHUNK, hi - first)
            call_fill(terms.fill_address, terms.fill_context, row, first, first + width, address_of(raw))
            if n_invalid(raw, sign, terms.lowest, terms.highest, 0, width):
                return False
            # Behind the candidates there is room for a chunk.
            new = tau[tau.size - CHUNK :]
            for j in range(width):
                new[j] = sign * raw[j] - v[first + j]
            if p.free.size:
                for j in range(width):
                    if new[j] < free_tau and p.open_price[first + j] == v[first + j]:
                        free_tau, free_cost, free_id = new[j], sign * raw[j], first + j
            for j in range(width):
                if new[j] < cap:
                    tau[n], c.costs[n], c.ids[n] = new[j], sign * raw[j], first + j
                    n += 1
            if n > tau.size - 2 * CHUNK:
                n, left = _keep(c, n, need)
                rest = min(rest, left)
                cap = tau[0]
                for j in range(n):
                    cap = max(cap, tau[j])
    n, left = _keep(c, n, k)
    _store(row, n, min(rest, left), c, (free_tau, free_cost, free_id), lists)
    return True


class Bounds(NamedTuple):
    """Lower bounds of a tile of rows, T is float32 or float64. See ``products``.

    tile: T (rows, m). low: T (rows, groups) minima of groups of 16 columns. row_terms: float64 (rows,)
    what is to be added to a bound. unit: by which ``c - v`` was multiplied, a power of two. failed: uint8
    (rows,) set for rows with too many candidates. minima: float64 (m,), lanes: (2 * LANES,),
    workspace.
    """

    tile: Array
    low: Array
    row_terms: Array
    unit: float
    failed: Array
    minima: Array
    lanes: Array


@kernel
def free_columns(v: Array, open_price: Array, out: Array) -> int:
    """Write the free columns that are not blocked to ``out``; return their number."""
    n = 0
    for j in range(v.size):
        if open_price[j] == v[j] and v[j] > -np.inf:
            out[n] = j
            n += 1
    return n


@kernel
def copy_rows(kept: Array, rows: Array, first: int, panel: Array) -> None:
    """Copy a panel of columns of some rows from those that are kept."""
    width = panel.shape[1]
    for r in range(rows.size):
        given, out = kept[rows[r], first : first + width], panel[r]
        for j in range(width):
            out[j] = given[j]


@kernel
def price_terms(
    v: Array, lowered: Array, unit: float, rounding: float, lost: float, most: float, out: Array
) -> None:
    """Write the column terms less prices, or both, as lower and upper bounds within T's range.

    v: (m,) prices, -inf where blocked. lowered: float64 (m,) column terms. unit: of prices. rounding, lost:
    relative and absolute error of T. most: a large number of T. out: T (1, m) or, for roots, (2, m).
    """
    for j in range(v.size):
        blocked = v[j] == -np.inf
        price = v[j] * unit if blocked else max(v[j] * unit, -_LARGEST)
        if out.shape[0] > 1:
            out[0, j] = min(lowered[j], most)
            price = price if blocked else max(price + (rounding * abs(price) + lost), -most)
            out[1, j] = np.inf if price > most else price
        elif blocked:
            out[0, j] = np.inf
        else:
            x = min(lowered[j] - price - rounding * abs(price), most)
            out[0, j] = x if x >= -most else -np.inf


@kernel
def lower_bounds(
    panel: Array, first: int, low: Array, w: Array, error: Array, sizes: Array, terms: Array, zero: float
) -> None:
    """Turn a panel of inner products into lower bounds, in place, and find the minima of groups.

    panel: T (rows, width), columns from ``first``, a multiple of CHUNK. w: T (1, m), column terms less
    prices; or (2, m), column terms and prices, where roots are taken. error: T (m,), sizes: T (rows,):
    their product bounds the error of an inner product. terms: T (rows,), row terms within roots. zero: of T.
    """
    rows, width = panel.shape
    item, rooted = panel.itemsize, w.shape[0] > 1
    whole = width // GROUP * GROUP
    column_at, error_at = address_of(w) + first * item, address_of(error) + first * item
    price_at = column_at + w.shape[1] * item
    for r in range(rows):
        size, term, t = sizes[r], terms[r], panel[r]
        at, group = address_of(t), first // GROUP
        for j in range(0, whole * item, GROUP * item):
            if rooted:
                least = root_bounds(at + j, column_at + j, error_at + j, price_at + j, size, term)
            else:
                least = plain_bounds(at + j, column_at + j, error_at + j, size)
            low[r, group] = least
            group += 1
        if whole < width:
            low[r, group] = np.inf
        for j in range(whole, width):
            x = (t[j] + w[0, first + j]) - size * error[first + j]
            if rooted:
                x += term
                x = np.sqrt(x if x > zero else zero) - w[1, first + j]
            t[j] = x
            low[r, group] = min(low[r, group], x)


@kernel
def _gather(t: Array, cap: float, lo: int, hi: int, ids: Array, n: int) -> int:
    """Append the columns lo to hi - 1 with bounds of at most cap; return the number, -1 without room."""
    for first in range(lo, hi, 64):
        if first + 64 <= hi:
            word = at_most_bits(t, first, cap)
        else:
            word = np.uint64(0)
            for j in range(first, hi):
                if t[j] <= cap:
                    word |= np.uint64(1) << np.uint64(j - first)
        while word != 0:
            if n == ids.size:
                return -1
            ids[n] = first + lowest_bit(word)
            word &= word - np.uint64(1)
            n += 1
    return n


@kernel
def _priced(row: int, n: int, p: Prices, chosen: Chosen, terms: Terms, c: Candidates, lists: Lists) -> int:
    """Find the costs of n candidates; drop those that are forbidden or blocked; -1 on an invalid cost.

    Costs in the row's list are taken from there.
    """
    count, start = 0, lists.start[row]
    for j in range(n):
        at = c.listed[c.ids[j]]
        if at > 0:
            c.costs[j] = lists.costs[start + at - 1]
        else:
            c.unknown[count], c.places[count] = c.ids[j], j
            count += 1
    computed = c.tau
    call_fill(chosen.address, chosen.context, row, address_of(c.unknown), count, address_of(computed))
    for q in range(count):
        x = terms.sign * computed[q]
        if not (x > terms.lowest and x <= terms.highest):
            return -1
        c.costs[c.places[q]] = x
    kept = 0
    for j in range(n):
        x = c.costs[j]
        tau = x - p.v[c.ids[j]]
        c.tau[kept], c.costs[kept], c.ids[kept] = tau, x, c.ids[j]
        kept += 1 if tau < terms.infinity else 0
    return kept


@kernel
def _mark(row: int, listed: Array, lists: Lists, there: bool) -> None:
    """Note where the row's list holds its columns, or forget that again."""
    start = lists.start[row]
    for q in range(lists.size[row]):
        listed[lists.ids[start + q]] = q + 1 if there else 0


@kernel
def _above(tau: float, term: float, unit: float) -> float:
    """Return a bound that bounds of columns with ``c - v`` of at most tau do not exceed, with float32 too."""
    x = tau * unit
    size = abs(x) + abs(term)
    return x - term + (3e-7 * abs(x - term) + 1e-15 * size + 1e-37)


@kernel
def _first_cap(low: Array, need: int, b: Bounds) -> float:
    """Return a number that at least ``need`` bounds, not many more, do not exceed; inf if there is none.

    low: the bounds, or minima of their groups.
    """
    n, minima = low.size, b.minima
    for q in range(n):
        minima[q] = low[q]
    if n_within(minima, n, _LARGEST) < need:
        return np.inf
    least, most = extremes(minima, n, -np.inf, np.inf, b.lanes)
    return bracket(minima, n, need, least, most)[1] if least < most else least


@kernel
def _select(
    r: int,
    row: int,
    offset: int,
    p: Prices,
    chosen: Chosen,
    terms: Terms,
    b: Bounds,
    c: Candidates,
    lists: Lists,
) -> tuple[int, int, float, tuple[float, float, int]]:
    """Find the list of row r of the tile: FOUND, or TOO_MANY candidates, or BAD_COST; and for ``_store``."""
    m, k = terms.n_columns, lists.width[row]
    t, term, need = b.tile[r], b.row_terms[r], k + 1
    free = _LARGEST, _LARGEST, -1
    cap = _first_cap(b.low[r] if b.low.shape[1] >= _GROUPS * need else t, need, b)
    while True:
        n = _gather(t, cap, offset, m, c.ids, 0)
        n = _gather(t, cap, 0, offset, c.ids, n) if n >= 0 else n
        if n < 0:
            return TOO_MANY, 0, 0.0, free
        n = _priced(row, n, p, chosen, terms, c, lists)
        if n < 0:
            return BAD_COST, 0, 0.0, free
        if cap == np.inf:
            break
        limit = np.inf
        if n >= need:
            below, at, room = _boundary(c.tau, n, need)
            limit = _above(at if room else below, term, b.unit)
            if limit <= cap:
                break
        cap = limit
    n, theta = _keep(c, n, k)
    status = FOUND
    if p.free.size:
        status, free = _best_free(r, row, offset, n, p, chosen, terms, b, c, lists)
    return status, n, theta, free


@kernel
def _best_free(
    r: int,
    row: int,
    offset: int,
    n: int,
    p: Prices,
    chosen: Chosen,
    terms: Terms,
    b: Bounds,
    c: Candidates,
    lists: Lists,
) -> tuple[int, tuple[float, float, int]]:
    """Return the best free column that is not among the n listed candidates: -1 if one of these is free."""
    t, free = b.tile[r], p.free
    nothing = _LARGEST, _LARGEST, -1
    for j in range(n):
        if p.open_price[c.ids[j]] == p.v[c.ids[j]]:
            return FOUND, nothing
    nearest = free[0]
    for j in range(free.size):
        if t[free[j]] < t[nearest]:
            nearest = free[j]
    some = Candidates(c.ids[n:], c.costs[n:], c.tau[n:], c.raw, c.unknown, c.places, c.listed)
    some.ids[0] = nearest
    found = _priced(row, 1, p, chosen, terms, some, lists)
    if found < 0:
        return BAD_COST, nothing
    limit = _above(some.tau[0], b.row_terms[r], b.unit) if found else np.inf
    found = 0
    for j in range(free.size):
        if t[free[j]] <= limit:
            if found == some.ids.size:
                return TOO_MANY, nothing
            some.ids[found] = free[j]
            found += 1
    found = _priced(row, found, p, chosen, terms, some, lists)
    if found < 0:
        return BAD_COST, nothing
    best = nothing
    for j in range(found):
        tau, column, before = some.tau[j], some.ids[j], best[2]
        # Among equal ones the first from the offset on.
        first = (column >= offset) == (before >= offset) and column < before
        first = first or (column >= offset and before < offset)
        if before < 0 or tau < best[0] or (tau == best[0] and first):
            best = tau, some.costs[j], column
    return FOUND, best


@kernel
def select_from_bounds(
    rows: Array, seed: int, p: Prices, chosen: Chosen, terms: Terms, b: Bounds, c: Candidates, lists: Lists
) -> int:
    """Evaluate the rows of a tile; return the index of one with an invalid cost, -1 if there is none.

    Rows with too many candidates are marked in ``b.failed``, and nothing else is done about them.
    """
    for r in range(rows.size):
        row = rows[r]
        offset = offset_of(row, seed, terms.n_columns)
        _mark(row, c.listed, lists, True)
        status, n, theta, free = _select(r, row, offset, p, chosen, terms, b, c, lists)
        _mark(row, c.listed, lists, False)
        if status == BAD_COST:
            return r
        b.failed[r] = 1 if status == TOO_MANY else 0
        if status == FOUND:
            _store(row, n, theta, c, free, lists)
    return -1


@kernel
def select_marked(
    rows: Array, marked: Array, seed: int, p: Prices, terms: Terms, c: Candidates, lists: Lists
) -> int:
    """Evaluate the marked rows by their costs; return the index of one with an invalid cost, -1 for none."""
    for r in range(rows.size):
        if marked[r] != 0:
            offset = offset_of(rows[r], seed, terms.n_columns)
            if not select_from_costs(rows[r], offset, p, terms, c, lists):
                return r
    return -1
