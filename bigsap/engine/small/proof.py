"""Proof of a small problem's result: one pass over its costs, using only the prices.

A compiled counterpart of ``bigsap.proof.certificate`` that returns the same quantities for the
price of one pass over the costs. It takes only the assignment and the prices from the search: it
checks the assignment, computes row duals as exact minima over all costs, and sums the gap exactly.
If the gap exceeds the limit of an optimal result, it says so; prices are corrected elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.compile.vector_code import item
from bigsap.engine.small.sums import rounded, rounded_to
from bigsap.engine.small.vectors import find, two_least
from bigsap.proof.exact import add
from bigsap.proof.limits import CLEAR, DOUBTFUL, HUGE, MARGIN
from bigsap.proof.scan import two_sum
from bigsap.types import Array

# Sums of all numbers here stay within float64.
LARGEST = 1e290
#: What ``prove_dense`` returns. LOOSE: the gap is larger than that of an optimal result.
WRONG, LOOSE, PROVED = range(3)
# Limit of an optimal result's gap, as a share of the assigned costs' magnitudes (less a little, since
# their sum is rounded), and of rows times the
# median margin; smaller margins, in units of the costs, are ties. See ``certificate``, ``row_minima``.
SHARE, _TIE = 2.0**-50 * (1.0 - 2.0**-20), 2.0**-48
#: Rows sampled for margins.
_SAMPLE = 16


class Claim(NamedTuple):
    """The claim to be proved: the column of each row, prices (m,), and caps, see ``search.solve_dense``."""

    column_of_row: Array
    v: Array
    caps: Array


class Found(NamedTuple):
    """Room for the proof's answers.

    low, rest, matched (n,): the row duals ``min_j (cost - prices)`` in two parts, and the costs of the
    pairs, of unassigned rows their caps. prices (m,): v shifted so that its largest is 0 (n < m: the
    largest of an assigned column, and the others capped; with caps not shifted; without ``shift`` so
    that a typical one is 0).
    facts: [0] the span of v, [3] the total of ``matched``, rounded to nearest, [4] the gap,
    rounded up, [5] the bound, rounded down.
    """

    low: Array
    rest: Array
    matched: Array
    prices: Array
    facts: Array


@kernel
def prove_dense(
    cost: int,
    stride: int,
    n: int,
    m: int,
    whole: bool,
    claim: Claim,
    seen: Array,
    found: Found,
    room: Array,
    shift: bool = True,
    strict: bool = False,
) -> int:
    """Check that the assignment is optimal: complete, allowed, and tight at these prices.

    cost, stride, whole: as for ``search.solve_dense``. seen (m,) int64: workspace. found: out.
    room (4 m + 2 n + 64,): sums of 4 n + m numbers. With caps, rows without a column are those that
    pay their cap, and a row's dual is at most its cap. shift: make the largest price 0, which rounds
    the others if it is huge; else, in square problems only, a typical one. strict: a few huge costs
    made rounding decide before, so the gap must be small against a typical cost, too.
    """
    column_of_row, v, caps = claim
    low, rest, matched, prices, facts = found
    gated = caps.size > 0
    for j in range(m):
        seen[j] = 0
    smallest, largest, top = np.inf, -np.inf, -np.inf
    for j in range(m):
        if not abs(v[j]) < LARGEST:
            return WRONG
        smallest = v[j] if v[j] < smallest else smallest
        largest = v[j] if v[j] > largest else largest
    for i in range(n):
        j = column_of_row[i]
        if j == -1 and gated:
            continue
        if j < 0 or j >= m or seen[j] != 0:
            return WRONG
        seen[j] = 1
        top = v[j] if v[j] > top else top
    top = largest if n == m else top
    if gated:
        top = 0.0
    if not shift:
        top = typical(v, False, room)
    for j in range(m):
        prices[j] = v[j] - top
        if shift and prices[j] > 0.0:
            prices[j] = 0.0
    facts[0] = largest - smallest
    at = np.int64(prices.ctypes.data)
    size = 0.0
    n_gap = 0
    for i in range(n):
        row = cost + 8 * i * stride
        j = column_of_row[i]
        matched[i] = item(row, j) if j >= 0 else caps[i]
        low[i], second = two_least(row, at, m)
        left_out = gated and caps[i] <= low[i]
        least_rest = 0.0
        if left_out and caps[i] == low[i]:
            least_rest = min(0.0, _least_rest(row, at, m, low[i]))
        if left_out:
            low[i] = caps[i]
        # A forbidden pair, or a number too large to be summed.
        if not (abs(matched[i]) < LARGEST and abs(low[i]) < LARGEST):
            return WRONG
        size += abs(matched[i])
        tau, error = two_sum(matched[i], -prices[j] if j >= 0 else 0.0)
        # Usually no other column's rounded difference is as small.
        alone = tau == low[i] and low[i] < second
        if left_out:
            rest[i] = least_rest
        else:
            rest[i] = error if alone else _least_rest(row, at, m, low[i])
        if tau != low[i]:
            n_gap = add(room, n_gap, tau)
            n_gap = add(room, n_gap, -low[i])
        if error != rest[i]:
            n_gap = add(room, n_gap, error)
            n_gap = add(room, n_gap, -rest[i])
    for j in range(m):
        if seen[j] == 0 and prices[j] != 0.0:
            n_gap = add(room, n_gap, -prices[j])
    if (m > 0 and not facts[0] < LARGEST) or not size < LARGEST:
        return WRONG
    gap, n_gap = rounded_to(room, n_gap, 1.0)
    if not gap >= 0.0:
        return WRONG
    facts[4] = gap
    n_total = 0
    if gap != 0.0:
        # The bound: total cost minus the gap.
        for k in range(n_gap):
            room[k] = -room[k]
        n_total = n_gap
        for i in range(n):
            n_total = add(room, n_total, matched[i])
        facts[5], n_total = rounded_to(room, n_total, -1.0)
        n_total = 0
    for i in range(n):
        n_total = add(room, n_total, matched[i])
    facts[3] = rounded(room, n_total)
    if gap == 0.0:
        facts[5], n_total = rounded_to(room, n_total, -1.0)
    if gap == 0.0:
        return PROVED
    if whole or not gap <= SHARE * size:
        return LOOSE
    if strict and gap > CLEAR * n * typical(matched, True, room):
        return LOOSE
    margin, paid = _margin(cost, stride, n, m, at, caps, room), typical(matched, True, room)
    low = room[min(matched.size, _SAMPLE) // 4]
    if margin == 0.0 or margin > DOUBTFUL * paid:  # prices, or a few costs, may be huge
        usual = _usual(cost, stride, n, m, room)
        if margin == 0.0:
            margin = usual if usual > 0.0 else paid
        elif usual > 0.0:
            margin = min(margin, MARGIN * usual)
    if low > 0.0:
        margin = min(margin, HUGE * low)
    return LOOSE if gap > CLEAR * n * margin else PROVED


@kernel
def _least_rest(row: int, prices: int, m: int, low: float) -> float:
    """Return the smallest rounding error among columns whose rounded difference is ``low``."""
    found = np.inf
    j = find(row, prices, 0, m, low)
    while j < m:
        _, error = two_sum(item(row, j), -item(prices, j))
        found = error if error < found else found
        j = find(row, prices, j + 1, m, low)
    return found


@kernel
def typical(values: Array, sizes: bool, room: Array) -> float:
    """Return the median of sampled values, or of their sizes."""
    count = min(values.size, _SAMPLE)
    for k in range(count):
        value = values[k if count == values.size else k * (values.size - 1) // (count - 1)]
        value = abs(value) if sizes else value
        p = k
        while p > 0 and room[p - 1] > value:
            room[p] = room[p - 1]
            p -= 1
        room[p] = value
    return room[count // 2] if count > 0 else 0.0


@kernel
def _usual(cost: int, stride: int, n: int, m: int, room: Array) -> float:
    """Return what costs of a row usually differ by, from sampled costs; see ``usual_difference``."""
    count, width = min(n, _SAMPLE), min(m, _SAMPLE)
    some, apart = room[:_SAMPLE], room[_SAMPLE : 2 * _SAMPLE]
    found, spare = room[2 * _SAMPLE : 3 * _SAMPLE], room[3 * _SAMPLE :]
    n_found = 0
    for k in range(count):
        i, n_some = k if count == n else k * (n - 1) // (count - 1), 0
        for q in range(width):
            value = item(cost + 8 * i * stride, q if width == m else q * (m - 1) // (width - 1))
            if abs(value) < np.inf:
                some[n_some] = value
                n_some += 1
        middle = typical(some[:n_some], False, spare)
        for q in range(n_some):
            apart[q] = some[q] - middle
        if n_some > 0:
            found[n_found] = typical(apart[:n_some], True, spare)
            n_found += 1
    return typical(found[:n_found], False, spare)


@kernel
def _margin(cost: int, stride: int, n: int, m: int, prices: int, caps: Array, room: Array) -> float:
    """Return the median margin of the best column over sampled rows, ignoring ties; 0 if all are ties."""
    count = min(n, _SAMPLE)
    n_found = 0
    for k in range(count):
        i = k if count == n else k * (n - 1) // (count - 1)
        first, second = two_least(cost + 8 * i * stride, prices, m)
        if caps.size > 0:
            cap = caps[i]
            second = max(first, cap) if cap < second else second
            first = cap if cap < first else first
        excess = second - first
        if not excess > _TIE * abs(first) or not excess < np.inf:
            continue
        p = n_found
        while p > 0 and room[p - 1] > excess:
            room[p] = room[p - 1]
            p -= 1
        room[p] = excess
        n_found += 1
    return room[n_found // 2] if n_found > 0 else 0.0


@kernel
def prove_infeasible(
    cost: int, stride: int, m: int, rows: Array, n_rows: int, allowed: Array, caps: Array
) -> bool:
    """Check that rows have too few allowed columns for an assignment (Hall's theorem).

    The first ``n_rows`` of ``rows``, all different, must have fewer allowed columns than n_rows, and,
    with caps, must be assigned.
    allowed (m,) int64, out: 1 for these columns.
    """
    for k in range(1, n_rows):
        if rows[k - 1] >= rows[k]:
            return False
    if caps.size > 0:
        for k in range(n_rows):
            if caps[rows[k]] < np.inf:
                return False
    n_allowed = 0
    for j in range(m):
        allowed[j] = 0
        for k in range(n_rows):
            if item(cost + 8 * rows[k] * stride, j) < np.inf:
                allowed[j] = 1
                n_allowed += 1
                break
    return n_allowed < n_rows
