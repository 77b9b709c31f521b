"""The proof of a small problem's result: one pass over its costs, from the prices alone.

As ``bigsap.proof.certificate``, in whose words everything is told; here it is compiled, so that it
costs what one look at the costs does. Nothing is taken over from the search but the
assignment and the prices: the assignment is counted, row duals are minima over all costs, and
a pair passes that is no farther from tight than ``tightness.allowance`` says of its rounding.
What does not pass here is left to the general method.
"""

from __future__ import annotations

import math

import numpy as np

from bigsap.engine.dense.small_sums import add, rounded
from bigsap.engine.dense.small_vectors import item, least
from bigsap.native.kernel import kernel
from bigsap.proof.tightness import UNIT
from bigsap.sources.base import Array

# Half of ``tightness.allowance``: what passes here passes there, in whatever order it is added.
_ALLOWED = 8.0
# Sums of as many numbers as there may be here stay within float64.
_LARGEST = 1e290


@kernel
def prove_dense(
    cost: int, stride: int, n: int, m: int, allowance: float, column_of_row: Array, v: Array,
    seen: Array, low: Array, matched: Array, prices: Array, facts: Array, room: Array,
) -> bool:  # fmt: skip
    """Whether the assignment is optimal: complete, allowed, and tight at these prices.

    cost, stride, allowance: as for ``small_search.solve_dense``, n <= m. v (m,): any prices.
    seen (m,) int64: room. low, matched (n,), prices (m,), out: the row duals
    ``min_j (cost - prices)``, the costs of the pairs, and v shifted so that its largest is 0
    (n < m: the largest of an assigned column, and the others capped). facts, out:
    [0] the span of v, [3] the total of ``matched``, [4] what the parts of the gap add up to, as
    in ``certificate``, both rounded once, [5] the largest of ``low``, in magnitude. room (2 n,).
    """
    for j in range(m):
        seen[j] = 0
    smallest, largest, top = np.inf, -np.inf, -np.inf
    for j in range(m):
        if not abs(v[j]) < _LARGEST:
            return False
        smallest = v[j] if v[j] < smallest else smallest
        largest = v[j] if v[j] > largest else largest
    for i in range(n):
        j = column_of_row[i]
        if j < 0 or j >= m or seen[j] != 0:
            return False
        seen[j] = 1
        top = v[j] if v[j] > top else top
    top = largest if n == m else top
    for j in range(m):
        prices[j] = v[j] - top
        if prices[j] > 0.0:
            prices[j] = 0.0
    span = largest - smallest
    facts[0] = span
    shift = UNIT * span
    factor = allowance * _ALLOWED * max(4.0, math.sqrt(m))
    size = 0.0
    n_gap = n_total = 0
    at = np.int64(prices.ctypes.data)
    for i in range(n):
        row = cost + 8 * i * stride
        j = column_of_row[i]
        matched[i] = item(row, j)
        tau = matched[i] - prices[j]
        low[i] = least(row, at, m)
        # A forbidden pair is as far from tight as infinite rounding would allow.
        if not (abs(matched[i]) < _LARGEST and abs(low[i]) < _LARGEST):
            return False
        each = UNIT * abs(tau) + UNIT * abs(low[i]) + shift
        loose = tau - low[i]
        if not (loose <= factor * each) or not loose >= 0.0:
            return False
        n_gap = add(room, n_gap, loose)
        here = UNIT * abs(low[i])
        size = here if here > size else size
    for j in range(m):
        # Of a free column: of what the prices' own shift may have left.
        if seen[j] == 0:
            if not (-prices[j] <= factor * (shift + size)):
                return False
            n_gap = add(room, n_gap, -prices[j])
    facts[4] = rounded(room, n_gap)
    for i in range(n):
        n_total = add(room, n_total, matched[i])
    facts[3] = rounded(room, n_total)
    facts[5] = size / UNIT
    return size < UNIT * _LARGEST and span < _LARGEST


@kernel
def prove_infeasible(
    cost: int, stride: int, m: int, rows: Array, n_rows: int, allowed: Array
) -> bool:
    """Whether the first ``n_rows`` of ``rows``, all different, have fewer allowed columns
    (Hall). allowed (m,) int64, out: 1 for these."""
    for k in range(1, n_rows):
        if rows[k - 1] >= rows[k]:
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
