"""Batches of small problems, solved one after the other where they lie in the user's memory."""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.small.loading import Place, copy_columns, copy_rows, signed_cost
from bigsap.engine.small.search import FACTS, OPTIMAL, UNSURE, solve_dense
from bigsap.types import Array

#: Words of a problem. The address of its first cost, the bytes between its rows and between its
#: columns, its sizes as the user has them, the place of its number type in ``loading.DTYPES`` (-1: not
#: to be solved), 1 for integers; its first positions in the arrays of prices (-1: none), of rows and of
#: what is kept.
ADDRESS, ROW_STEP, COLUMN_STEP, ROWS, COLUMNS, KIND, EXACT, CAP, FIRST_ROW, FIRST_KEPT = range(10)
WORDS = 10

# Sums of integers stay exact: so many costs a row.
_EXACT, _TERMS_PER_ROW = 2.0**53, 4
# Spare items between rows of a copy, so that columns do not meet in the same lines of a cache.
_SPARE = 8


@kernel
def solve_some(
    problems: Array,
    first: int,
    last: int,
    sign: float,
    caps: Array,
    columns: Array,
    chosen: Array,
    kept: Array,
    statuses: Array,
    real: Array,
    whole: Array,
    copy: Array,
) -> None:
    """Solve problems ``first`` to ``last - 1`` of a batch in sequence.

    problems (k, WORDS) int64. sign: -1.0 when maximising. caps: signed prices of rows. columns, kept,
    statuses, out: the results of ``solve_dense``, at the positions in ``problems``. chosen, out: with
    prices, ``columns`` without the pairs that cost more, and without columns that are not the user's.
    real, whole: workspace, see ``search.sizes``. copy: for ``copied`` items.
    """
    target = np.int64(copy.ctypes.data)
    for k in range(first, last):
        p = problems[k]
        if p[KIND] < 0:
            statuses[k] = UNSURE
            continue
        n, m, exact, gated = p[ROWS], p[COLUMNS], p[EXACT] != 0, p[CAP] >= 0
        place = Place(p[ADDRESS], p[ROW_STEP], p[COLUMN_STEP], p[KIND], sign)
        many = max(n, m)
        few = n if gated else min(n, m)
        if few == 0:
            kept[p[FIRST_KEPT] : p[FIRST_KEPT] + many + FACTS] = 0.0
            statuses[k] = OPTIMAL
            continue
        cost, stride, largest = p[ADDRESS], p[ROW_STEP] // 8, 0.0
        if gated or not in_place(p, sign):
            cost, stride = target, spaced(many)
            if n > m and not gated:
                largest = copy_columns(place, n, m, target, stride, exact)
            else:
                row_caps = caps[p[CAP] : p[CAP] + n] if gated else caps[:0]
                largest = copy_rows(place, n, m, target, stride, row_caps, exact)
        # The same limit as for one array, see ``run.small_arrays.signed_costs``.
        if (largest == np.inf and not exact) or (exact and not _TERMS_PER_ROW * (few + 2) * largest < _EXACT):
            statuses[k] = UNSURE
            continue
        found = columns[p[FIRST_ROW] : p[FIRST_ROW] + few]
        room = kept[p[FIRST_KEPT] : p[FIRST_KEPT] + 3 * few + many + FACTS]
        statuses[k] = solve_dense(cost, stride, few, many, exact, False, found, room, real, whole)
        if gated and statuses[k] == OPTIMAL:
            for j in range(m, many):
                # The user's problem has no such column: its dual improves the bound.
                if room[2 * n + j] != 0.0:
                    statuses[k] = UNSURE
            for i in range(n):
                j = found[i]
                mine = signed_cost(place, i, j) if j < m else np.inf
                worth = mine < np.inf and mine <= caps[p[CAP] + i]
                chosen[p[FIRST_ROW] + i] = j if worth else -1


@kernel
def in_place(p: Array, sign: float) -> bool:
    """Return whether the kernel can read a problem without prices where it lies."""
    aligned = p[ADDRESS] % 8 == 0 and p[ROW_STEP] % 8 == 0 and p[COLUMN_STEP] == 8
    return sign > 0.0 and p[KIND] == 0 and p[EXACT] == 0 and p[ROWS] <= p[COLUMNS] and aligned


@kernel
def spaced(m: int) -> int:
    """Return the items from one row to the next in a copy of m columns."""
    return m - m % 8 + _SPARE + (8 if m % 8 > 0 else 0)


@kernel
def tabulate(
    problems: Array, chosen: Array, statuses: Array, by_columns: bool, gated: bool, table: Array
) -> None:
    """Write the column of each row of all problems, or the row of each column; -1 where there is none.

    table (k, N) or (k, M), out. chosen: as by ``solve_some``.
    """
    for k in range(len(problems)):
        table[k] = -1
        if statuses[k] != OPTIMAL:
            continue
        p = problems[k]
        n, m = p[ROWS], p[COLUMNS]
        turned = n > m and not gated
        for i in range(m if turned else n):
            j = chosen[p[FIRST_ROW] + i]
            if j < 0:
                continue
            if turned == by_columns:
                table[k, i] = j
            else:
                table[k, j] = i
