"""Batches of small problems, solved one after the other where they lie in the user's memory."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.small.loading import INT64, Place, copy_columns, copy_rows, read_i8
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


def addresses(arrays: list[Array]) -> Array:
    """Return the addresses of the first items.

    numpy's way takes as long as solving a problem of twenty rows. So they are read from the arrays'
    objects, where numpy's extensions find them, too: behind the head that all objects have.
    """
    if not _LAYOUT_IS_KNOWN:
        return np.array([one.__array_interface__["data"][0] for one in arrays], np.int64)
    found = np.fromiter(map(id, arrays), np.int64, len(arrays))
    _follow(found, object.__basicsize__)
    return found


@kernel
def _follow(places: Array, offset: int) -> None:
    """Replace addresses by the numbers found ``offset`` bytes behind them."""
    for k in range(places.size):
        places[k] = read_i8(places[k] + offset)


def _layout_is_known() -> bool:
    if sys.implementation.name != "cpython":
        return False
    one = np.empty(1)
    return ctypes.c_int64.from_address(id(one) + object.__basicsize__).value == one.ctypes.data


_LAYOUT_IS_KNOWN = _layout_is_known()


@kernel
def solve_some(
    problems: Array,
    first: int,
    last: int,
    sign: float,
    caps: Array,
    columns: Array,
    kept: Array,
    statuses: Array,
    real: Array,
    whole: Array,
    copy: Array,
) -> None:
    """Solve problems ``first`` to ``last - 1`` of a batch in sequence.

    problems (k, WORDS) int64. sign: -1.0 when maximising. caps: signed prices of rows. columns, kept,
    statuses, out: the results of ``solve_dense``, at the positions in ``problems``.
    real, whole: workspace, see ``search.sizes``. copy: room for one problem, with rows ``spaced``.
    """
    for k in range(first, last):
        p = problems[k]
        n, m, exact, gated = p[ROWS], p[COLUMNS], p[EXACT] != 0, p[CAP] >= 0
        few, many = (n, m) if gated else (min(n, m), max(n, m))
        if p[KIND] < 0:
            statuses[k] = UNSURE
            continue
        room = kept[p[FIRST_KEPT] : p[FIRST_KEPT] + 3 * few + many + FACTS]
        if few == 0:
            room[:] = 0.0
            statuses[k] = OPTIMAL
            continue
        mine = caps[p[CAP] : p[CAP] + n] if gated else caps[:0]
        cost, stride = p[ADDRESS], p[ROW_STEP] // 8
        if not in_place(p, sign):
            cost, stride = np.int64(copy.ctypes.data), spaced(many)
            if not _copied(p, sign, mine, cost, stride):
                statuses[k] = UNSURE
                continue
        found = columns[p[FIRST_ROW] : p[FIRST_ROW] + few]
        statuses[k] = solve_dense(
            cost, stride, few, many, exact, False, False, np.inf, mine, found, room, real, whole
        )


@kernel
def _copied(p: Array, sign: float, caps: Array, target: int, stride: int) -> bool:
    """Copy a problem's costs; return whether float64 holds them, and, if they are integers, all sums."""
    n, m, exact = p[ROWS], p[COLUMNS], p[EXACT] != 0
    place = Place(p[ADDRESS], p[ROW_STEP], p[COLUMN_STEP], p[KIND], sign)
    whole = exact or p[KIND] == INT64
    if n > m and caps.size == 0:
        largest = copy_columns(place, n, m, target, stride, whole)
    else:
        largest = copy_rows(place, n, m, target, stride, whole)
    if not exact:
        return largest < _EXACT
    for i in range(caps.size):
        if caps[i] < np.inf:
            largest = max(largest, abs(caps[i]))
    # The same limit as for one array, see ``run.small_arrays.signed_costs``.
    few = n if caps.size > 0 else min(n, m)
    return _TERMS_PER_ROW * (few + 2) * largest < _EXACT


@kernel
def in_place(p: Array, sign: float) -> bool:
    """Return whether the kernel can read a problem where it lies."""
    aligned = p[ADDRESS] % 8 == 0 and p[ROW_STEP] % 8 == 0 and p[COLUMN_STEP] == 8
    turned = p[ROWS] > p[COLUMNS] and p[CAP] < 0
    return sign > 0.0 and p[KIND] == 0 and p[EXACT] == 0 and aligned and not turned


@kernel
def spaced(m: int) -> int:
    """Return the items from one row to the next in a copy of m columns."""
    return m - m % 8 + _SPARE + (8 if m % 8 > 0 else 0)


@kernel
def tabulate(
    problems: Array, columns: Array, statuses: Array, by_columns: bool, gated: bool, table: Array
) -> None:
    """Write the column of each row of all problems, or the row of each column; -1 where there is none.

    table (k, N) or (k, M), out. columns: as by ``solve_some``.
    """
    for k in range(len(problems)):
        table[k] = -1
        if statuses[k] != OPTIMAL:
            continue
        p = problems[k]
        n, m = p[ROWS], p[COLUMNS]
        turned = n > m and not gated
        for i in range(m if turned else n):
            j = columns[p[FIRST_ROW] + i]
            if j < 0:
                continue
            if turned == by_columns:
                table[k, i] = j
            else:
                table[k, j] = i
