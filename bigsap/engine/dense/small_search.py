"""Small problems: shortest augmenting paths over a matrix that fits a cache, by one thread.

No team, no monitor, no cache of rows: what a call costs beside its searches is what a problem of
three rows takes. After Jonker and Volgenant (1987) with the rectangular searches of Crouse (2016):
first prices are the column minima (square problems; else 0), rows then bid for columns one
after the other (their augmenting row reduction), and each row that is left is matched by a
Dijkstra search. ``solve_dense`` does all of a problem, from the check of its costs to the proof
of its result, so that one call from Python is enough, or one for a whole batch.

Costs are signed float64, rows no longer than columns: what else users have is converted before.
"""

from __future__ import annotations

import numpy as np

from bigsap.engine.dense.small_proof import prove_dense, prove_infeasible
from bigsap.engine.dense.small_sums import add
from bigsap.engine.dense.small_vectors import (
    find,
    item,
    judge,
    open_labels,
    relax_labels,
    two_least,
)
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array

#: What ``solve_dense`` returns. UNSURE: nothing was proved, of costs so far apart that rounding
#: or an overflow decided; the general method knows what to do.
OPTIMAL, INFEASIBLE, INVALID, UNSURE = range(4)

# Problems that take more pairs, some tens of milliseconds, are better solved with epsilon phases.
_MOST_PAIRS = 3 << 24

# Rows bid in so many rounds, in which altogether so many bids a row displace another one.
_ROUNDS, _BIDS = 2, 2
# So many of the columns that suit a row equally are looked at for one that is free.
_TIES = 8


#: Numbers beside ``low``, ``matched`` and ``prices`` that are kept of a solve.
FACTS = 6


def sizes(n: int, m: int) -> tuple[int, int, int]:
    """How many float64 ``solve_dense`` keeps, and how many float64 and int64 it works with."""
    return 2 * n + m + FACTS, 6 * m + 2 * n, 2 * m + 2 * n


@kernel
def solve_dense(
    cost: int, stride: int, n: int, m: int, slack: float, column_of_row: Array, kept: Array,
    real: Array, whole: Array,
) -> int:  # fmt: skip
    """Solve one problem, n <= m, and prove what is returned.

    cost: address of the signed costs, float64, of which rows are ``stride`` items apart.
    slack: 1.0; 0.0 where the costs are integers and all sums of them exact.
    column_of_row (n,) int64: the assignment; INFEASIBLE: the first ``facts[2]`` are rows, in
    order, whose allowed columns are too few, and ``prices`` is 1 for these columns, else 0.
    kept: one after the other, low (n,), matched (n,), prices (m,): row duals, costs of the
    pairs and normalised prices, as ``certificate.certify`` has them.
    And facts (FACTS,): the span of the prices before that; rows scanned; see above; and, of
    ``small_proof.prove_dense``, the total of the costs, the gap and the largest row dual.
    real, whole: room to work in, see ``sizes``.

    O(n^2 m) at worst; nothing is allocated.
    """
    low, matched = kept[:n], kept[n : 2 * n]
    prices, facts = kept[2 * n : 2 * n + m], kept[2 * n + m :]
    v, label = real[:m], real[m : 2 * m]
    nothing, spare = real[2 * m : 3 * m], real[3 * m : 4 * m]
    reached, kept = real[4 * m : 5 * m], real[5 * m : 6 * m]
    # A reference of each row: what labels are counted from.
    height = low
    row_of_column, tree = whole[:m], whole[m : 2 * m]
    free, settled = whole[2 * m : 2 * m + n], whole[2 * m + n : 2 * m + 2 * n]
    for k in range(FACTS):
        facts[k] = 0.0

    prices_at, label_at = np.int64(v.ctypes.data), np.int64(label.ctypes.data)
    nothing_at, spare_at = np.int64(nothing.ctypes.data), np.int64(spare.ctypes.data)
    tree_at = np.int64(tree.ctypes.data)
    for j in range(m):
        v[j] = np.inf
        row_of_column[j] = -1
        nothing[j] = 0.0
    smallest, wrong = np.inf, 0.0
    for i in range(n):
        one, bad = judge(cost + 8 * i * stride, prices_at, m)
        smallest = one if one < smallest else smallest
        wrong += bad
        column_of_row[i] = -1
        free[i] = i
    if wrong > 0.0 or smallest == -np.inf:
        return INVALID
    if n < m:
        for j in range(m):
            v[j] = 0.0
    else:
        for j in range(m):
            if v[j] == np.inf:
                v[j] = 0.0  # a column without allowed pairs: the searches will tell

    n_free, n_scans, bids, most_scans = n, 0, _BIDS * n, n + _MOST_PAIRS // m
    for _ in range(_ROUNDS):
        k = n_left = 0
        while k < n_free:
            row = free[k]
            k += 1
            at = cost + 8 * row * stride
            first, second = two_least(at, prices_at, m)
            n_scans += 1
            height[row] = first
            if first == np.inf:
                # No allowed pair, or none that float64 can tell from one.
                column_of_row[0] = row
                facts[1], facts[2] = n_scans, 1
                return _infeasible(
                    cost, stride, m, column_of_row, np.int64(1), row_of_column, prices
                )
            j = find(at, prices_at, 0, m, first)
            if j == m:
                return UNSURE
            owner = row_of_column[j]
            dearer = first < second and second < np.inf
            if owner >= 0 and not dearer:
                other = j
                for _ in range(_TIES):
                    other = find(at, prices_at, other + 1, m, first)
                    if other >= m:
                        break
                    if row_of_column[other] < 0:
                        j, owner = other, -1
                        break
            if owner >= 0 and not dearer:
                free[n_left] = row
                n_left += 1
                continue
            if dearer:
                v[j] -= second - first
            column_of_row[row] = j
            row_of_column[j] = row
            if owner >= 0:
                column_of_row[owner] = -1
                if bids > 0:
                    bids -= 1
                    k -= 1
                    free[k] = owner
                else:
                    free[n_left] = owner
                    n_left += 1
        n_free = n_left
        if n_free == 0 or bids == 0:
            break

    for j in range(m):
        spare[j] = 0.0 if row_of_column[j] < 0 else -np.inf
    for k in range(n_free):
        root = free[k]
        at = cost + 8 * root * stride
        best, best_free = open_labels(
            at, prices_at, label_at, tree_at, spare_at, m, height[root], root
        )
        n_scans += 1
        n_settled = 0
        while best < best_free:
            if n_scans >= most_scans:
                return UNSURE
            j = find(label_at, nothing_at, 0, m, best)
            if j == m:
                return UNSURE
            settled[n_settled], reached[n_settled], kept[n_settled] = j, best, v[j]
            n_settled += 1
            row = row_of_column[j]
            at = cost + 8 * row * stride
            distance = (item(at, j) - v[j]) - best
            v[j], label[j] = -np.inf, np.inf
            best, best_free = relax_labels(
                at, prices_at, label_at, tree_at, spare_at, m, distance, row
            )
            n_scans += 1
        if best_free == np.inf:
            # The rows of the tree have no other columns than those that were settled.
            facts[1], facts[2] = n_scans, n_settled + 1
            column_of_row[0] = root
            for s in range(n_settled):
                _insert(column_of_row, s + 1, row_of_column[settled[s]])
            return _infeasible(cost, stride, m, column_of_row, n_settled + 1, row_of_column, prices)
        sink = find(label_at, spare_at, 0, m, best_free)
        if sink == m:
            return UNSURE
        for s in range(n_settled):
            fall = best_free - reached[s]
            v[settled[s]] = kept[s] - (fall if fall > 0.0 else 0.0)
        spare[sink] = -np.inf
        j = sink
        while True:
            row = tree[j]
            row_of_column[j] = row
            j, column_of_row[row] = column_of_row[row], j
            if row == root:
                break

    if _identity_is_as_good(cost, stride, n, column_of_row, real[2 * m : 6 * m]):
        for i in range(n):
            column_of_row[i] = i
    facts[1] = n_scans
    proved = prove_dense(
        cost, stride, n, m, slack, column_of_row, v, row_of_column, low, matched, prices, facts,
        real[2 * m : 6 * m],
    )  # fmt: skip
    return OPTIMAL if proved else UNSURE


@kernel
def solve_some(
    problems: Array, first: int, last: int, columns: Array, kept: Array,
    statuses: Array, real: Array, whole: Array,
) -> None:  # fmt: skip
    """Problems ``first`` to ``last - 1`` of a batch, one after the other.

    problems (k, 7) int64: of each the address, stride, n, m of ``solve_dense``, where its part
    of ``columns`` and of ``kept`` begins, and 1 for a slack of 0. statuses (k,), out: how each
    of them ended.
    """
    for k in range(first, last):
        p = problems[k]
        n, m = p[2], p[3]
        statuses[k] = solve_dense(
            p[0], p[1], n, m, 1.0 - p[6], columns[p[4] : p[4] + n],
            kept[p[5] : p[5] + 2 * n + m + FACTS], real, whole,
        )  # fmt: skip


@kernel
def _infeasible(
    cost: int, stride: int, m: int, rows: Array, n_rows: int, allowed: Array, prices: Array
) -> int:
    if not prove_infeasible(cost, stride, m, rows, n_rows, allowed):
        return UNSURE
    for j in range(m):
        prices[j] = allowed[j]
    return INFEASIBLE


@kernel
def _insert(numbers: Array, count: int, number: int) -> None:
    """Into the first ``count``, which are in order."""
    k = count
    while k > 0 and numbers[k - 1] > number:
        numbers[k] = numbers[k - 1]
        k -= 1
    numbers[k] = number


@kernel
def _identity_is_as_good(
    cost: int, stride: int, n: int, column_of_row: Array, partials: Array
) -> bool:
    """Whether the pairs in order cost no more, all sums taken without rounding.

    partials: room for 2 n numbers. Most often the rounded sum tells.
    """
    more = size = 0.0
    for i in range(n):
        row = cost + 8 * i * stride
        mine, other = item(row, column_of_row[i]), item(row, i)
        more += other - mine
        size += abs(other) + abs(mine)
    # An infinite cost, too, fails here: it is never below itself.
    if not more <= 1e-14 * n * size or not size < np.inf:
        return False
    count = 0
    for i in range(n):
        row = cost + 8 * i * stride
        if column_of_row[i] != i:
            count = add(partials, count, item(row, i))
            count = add(partials, count, -item(row, column_of_row[i]))
    return count == 0 or partials[count - 1] <= 0.0
