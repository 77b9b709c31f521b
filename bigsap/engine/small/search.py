"""Small problems: shortest augmenting paths over a matrix that fits a cache, on one thread.

There is no team, monitor or row cache: the overhead of a call outweighs the work of a problem of
three rows. The method is that of Jonker and Volgenant (1987) with the rectangular searches of
Crouse (2016). Initial prices are the column minima (square problems; else 0), or given ones, at
which given tight pairs are kept. Rows then bid for columns (augmenting row reduction), and a Dijkstra
search matches each remaining row. ``solve_dense`` checks, solves and proves in one call from Python.

Costs are signed float64, with no more rows than columns; the caller converts other input.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.compile.vector_code import item
from bigsap.engine.small.proof import LOOSE as LOOSE_PROOF
from bigsap.engine.small.proof import PROVED, Claim, Found, prove_dense, prove_infeasible, typical
from bigsap.engine.small.vectors import (
    find,
    judge,
    least,
    open_labels,
    relax_labels,
    two_least,
    two_least_judged,
)
from bigsap.proof.exact import add
from bigsap.sources.compiled import address_of
from bigsap.types import Array

#: Results of ``solve_dense``. UNSURE: nothing was proved, since the costs' range is so wide that
#: rounding or overflow decided; the general method handles such costs. LOOSE: complete, but the gap is
#: too large for an optimal result. HUGE: not solved, a row or column is huge as a whole.
OPTIMAL, INFEASIBLE, INVALID, UNSURE, LOOSE, HUGE = range(6)

# Problems that take more pairs, some tens of milliseconds, are faster with epsilon phases. Those of more
# costs than _FEW come here only if a scan a row is likely to be enough: a part of their rows more.
_MOST_PAIRS, _FEW, _MORE_ROWS = 3 << 24, 1 << 20, 8

# Number of bidding rounds, and limit of displacing bids per row over all rounds.
_ROUNDS, _BIDS = 2, 2
# A share of the cost below which limits of bids do not help.
_TINY = 2.0**-20
# A row or column is huge as a whole if its smallest cost is so many times a typical one's.
_HUGE = 2.0**25
#: Minima are at least so small a part of a typical cost, where more than half of them are 0.
MINIMA = 256.0
# Fewer costs are solved before anybody could look at them.
_WATCHED = 1 << 10
# Limit of equally good columns that are searched for a free one.
_TIES = 8

#: Numbers kept of a solve besides ``low``, ``matched`` and ``prices``.
FACTS = 6
# Numbers that exact sums need besides two a row.
SPARE = 64


def sizes(n: int, m: int) -> tuple[int, int, int]:
    """Return the float64 values ``solve_dense`` keeps, and the float64 and int64 workspace it needs."""
    return kept_of(n, m), 6 * m + 2 * n + SPARE, 2 * m + 2 * n


def kept_of(n: Any, m: Any) -> Any:
    """Return the number of float64 values kept of a problem."""
    return 3 * n + m + FACTS


class Task(NamedTuple):
    """A problem and the workspace of its searches.

    v (m,): prices. height (n,): a reference of each row, subtracted from its labels. column_of_row (n,),
    row_of_column (m,): -1 if unassigned. free (n,): rows without a column. facts: see ``solve_dense``.
    Of one search: label, tree (m,): distances and the rows they come from; nothing: zeros;
    spare (m,): 0 for a free column, else -inf; settled, reached, held (m,): the columns settled
    so far, their distances, and their prices, while ``v`` has -inf.
    caps: (n,) the prices of leaving rows unassigned; empty if all must be assigned.
    most: scans after which the search ends without a result.
    """

    cost: int
    stride: int
    most: int
    v: Array
    height: Array
    column_of_row: Array
    row_of_column: Array
    free: Array
    facts: Array
    label: Array
    tree: Array
    nothing: Array
    spare: Array
    settled: Array
    reached: Array
    held: Array
    caps: Array


@kernel
def solve_dense(
    cost: int,
    stride: int,
    n: int,
    m: int,
    integers: bool,
    warm: bool,
    watch: bool,
    most_bid: float,
    caps: Array,
    column_of_row: Array,
    kept: Array,
    real: Array,
    whole: Array,
) -> int:
    """Solve one problem, and prove the result; n <= m unless rows may stay unassigned.

    cost: address of the signed costs, float64, with rows ``stride`` items apart.
    integers: the costs are integers and all sums of them exact.
    warm: start from the prices in ``real[:m]`` and the pairs in ``column_of_row`` (-1: none), no
    column twice; only for n == m, where any prices are valid. Without any pair the costs are read once less.
    watch: return HUGE as soon as a row, or column of a square problem, is seen to be huge as a whole.
    most_bid: by how much one bid may lower a price; inf: as far as it takes, and less if that is not proved.
    caps (n,): prices at which rows may stay unassigned, inf for a row that must be assigned; empty if
    all must be. Such a price is a column that only its row may take (the textbook's model).
    column_of_row (n,) int64: the assignment, -1 = unassigned. If INFEASIBLE, the first ``facts[2]``
    entries are rows, in order, with too few allowed columns, and ``prices`` is 1 for these columns,
    else 0.
    kept: in sequence, low (n,), matched (n,), prices (m,): row duals, costs of the pairs and
    normalised prices, as in ``certificate.certify``. Then facts (FACTS,): the span of the prices
    before normalisation; rows scanned; the row count above; and, from ``proof.prove_dense``, the
    total of the costs, the gap and the bound. Then the low parts of the row duals (n,).
    real, whole: workspace, see ``sizes``.

    O(n^2 m) at worst; allocates nothing.
    """
    low, matched = kept[:n], kept[n : 2 * n]
    prices, facts = kept[2 * n : 2 * n + m], kept[2 * n + m : 2 * n + m + FACTS]
    rest = kept[2 * n + m + FACTS :]
    v, room, row_of_column = real[:m], real[2 * m :], whole[:m]
    square = n == m and caps.size == 0
    for k in range(FACTS):
        facts[k] = 0.0
    t = Task(
        cost,
        stride,
        n + (_MOST_PAIRS // max(m, 1) if n * m <= _FEW else n // _MORE_ROWS),
        v,
        low,
        column_of_row,
        row_of_column,
        whole[2 * m : 2 * m + n],
        facts,
        real[m : 2 * m],
        whole[m : 2 * m],
        real[2 * m : 3 * m],
        real[3 * m : 4 * m],
        whole[2 * m + n : 2 * m + 2 * n],
        real[4 * m : 5 * m],
        real[5 * m : 6 * m],
        caps,
    )
    claim = Claim(column_of_row, v, caps)
    found = Found(low, rest, matched, prices, facts)
    limit, alone = most_bid, warm
    for i in range(n):
        alone = alone and column_of_row[i] < 0
    while True:
        if alone:
            n_free = _no_pairs(t)
        else:
            n_free = _given_prices(t, integers) if warm else _first_prices(t, square)
        if n_free < 0:
            return INVALID
        watched = watch and n * m >= _WATCHED and not (integers or warm)
        status, n_free = _bid(t, n_free, alone or not square, limit, watched)
        if status == OPTIMAL:
            status = _search(t, n_free)
        if status == INFEASIBLE:
            n_rows = np.int64(facts[2])
            if not prove_infeasible(cost, stride, m, column_of_row, n_rows, row_of_column, caps):
                return UNSURE
            for j in range(m):
                prices[j] = row_of_column[j]
        if status != OPTIMAL:
            return status
        if caps.size == 0 and _identity_is_as_good(cost, stride, n, column_of_row, room):
            for i in range(n):
                column_of_row[i] = i
        strict = limit < np.inf
        proved = _prove(cost, stride, n, m, integers, claim, row_of_column, found, room, strict)
        if proved == PROVED:
            return OPTIMAL
        if proved != LOOSE_PROOF or integers:
            return UNSURE
        if warm or caps.size > 0 or limit < np.inf:
            return LOOSE
        # Prices as large as a forbidding cost have lost the digits of the others. No price must fall
        # by more than this assignment exceeds the rows' minima: begin again with that limit.
        limit = _excess(t, facts[3])
        if facts[0] <= limit:
            return LOOSE


@kernel
def solve_matrix(matrix: Array, pairs: Array, room: Array) -> int:
    """Call ``solve_dense`` for a contiguous float64 matrix (n, m), n <= m.

    pairs (2, n) int64: the row and the column of each pair. room: 7 n + 9 m + FACTS + SPARE float64 values.
    For calls from Python on a few rows, where each array takes a tenth of the time.
    """
    n, m = matrix.shape
    keep, numbers = 3 * n + m + FACTS, 5 * n + 7 * m + FACTS + SPARE
    if room.size < numbers + 2 * (n + m) or pairs.shape[1] != n:
        return UNSURE
    for i in range(n):
        pairs[0, i] = i
    return solve_dense(
        address_of(matrix),
        m,
        n,
        m,
        False,
        False,
        True,
        np.inf,
        room[:0],
        pairs[1],
        room[:keep],
        room[keep:numbers],
        room[numbers:].view(np.int64),
    )


@kernel
def prove_matrix(matrix: Array, column_of_row: Array, v: Array, kept: Array, room: Array, seen: Array) -> int:
    """Prove an assignment of a contiguous float64 matrix by prices v (m,), as ``solve_dense`` does.

    Returns OPTIMAL, LOOSE or UNSURE. kept: as there. room (4 m + 2 n + SPARE,), seen (m,) int64: workspace.
    """
    n, m = matrix.shape
    claim = Claim(column_of_row, v, v[:0])
    found = Found(
        kept[:n],
        kept[2 * n + m + FACTS :],
        kept[n : 2 * n],
        kept[2 * n : 2 * n + m],
        kept[2 * n + m : 2 * n + m + FACTS],
    )
    proved = _prove(address_of(matrix), m, n, m, False, claim, seen, found, room, True)
    return OPTIMAL if proved == PROVED else LOOSE if proved == LOOSE_PROOF else UNSURE


@kernel
def _prove(
    cost: int,
    stride: int,
    n: int,
    m: int,
    whole: bool,
    claim: Claim,
    seen: Array,
    found: Found,
    room: Array,
    strict: bool,
) -> int:
    """Prove with the largest price 0; if that fails in a square problem, with a typical price 0.

    Where the largest is huge, the first shift rounds the others. strict: see ``prove_dense``.
    """
    shift = True
    while True:
        proved = prove_dense(cost, stride, n, m, whole, claim, seen, found, room, shift, strict or not shift)
        if proved != LOOSE_PROOF or n < m or claim.caps.size > 0 or not shift:
            return proved
        shift = False


@kernel
def _first_prices(t: Task, square: bool) -> int:
    """Set prices to the column minima (0 unless square) and match nothing.

    Returns the number of free rows, or -1 if a cost is NaN or -inf. Unless square, the first bids find
    such costs.
    """
    m = t.v.size
    for j in range(m):
        t.v[j] = np.inf if square else 0.0
    n_free = _no_pairs(t)
    if square:
        if _wrong(t, 0, np.int64(t.v.ctypes.data)):
            return -1
        for j in range(m):
            # A column without allowed pairs has inf; the searches detect it.
            if t.v[j] == np.inf:
                t.v[j] = 0.0
    return n_free


@kernel
def _no_pairs(t: Task) -> int:
    """Match nothing; return the number of free rows: all."""
    for j in range(t.v.size):
        t.row_of_column[j] = -1
        t.nothing[j] = 0.0
    for i in range(t.free.size):
        t.column_of_row[i] = -1
        t.free[i] = i
    return t.free.size


@kernel
def _wrong(t: Task, first: int, lows_at: int) -> bool:
    """Return whether a cost is NaN or -inf in rows from ``first`` on; lower ``lows`` to the costs."""
    smallest, wrong = np.inf, 0.0
    for i in range(first, t.free.size):
        one, bad = judge(t.cost + 8 * i * t.stride, lows_at, t.v.size)
        smallest = one if one < smallest else smallest
        wrong += bad
    return wrong > 0.0 or smallest == -np.inf


@kernel
def _outlying(t: Task) -> bool:
    """Return whether a row, or in square problems a column, is huge as a whole, after the first bids."""
    square = t.height.size == t.v.size
    usual = min(_usual_cost(t, 0), _usual_cost(t, t.height.size // 2)) / MINIMA
    usual = max(usual, typical(t.height, True, t.label))
    largest = 0.0
    for i in range(t.height.size):
        largest = max(largest, abs(t.height[i]))
    if square:
        usual = max(usual, typical(t.v, True, t.label))
        for j in range(t.v.size):
            largest = max(largest, abs(t.v[j]))
    return usual > 0.0 and _HUGE * usual < largest < np.inf


@kernel
def _usual_cost(t: Task, row: int) -> float:
    """Return the median size of some costs of a row."""
    count = min(t.v.size, t.settled.size, 16)
    for k in range(count):
        t.reached[k] = item(t.cost + 8 * row * t.stride, k * (t.v.size - 1) // max(1, count - 1))
    return typical(t.reached[:count], True, t.label)


@kernel
def _given_prices(t: Task, exact: bool) -> int:
    """Keep the prices in ``v`` and the pairs that are tight at them; return as ``_first_prices``.

    exact: arithmetic without rounding. Otherwise a pair may miss tightness by the rounding of
    prices and of the two differences compared; the proof judges the result anyway.
    """
    n, m = t.free.size, t.v.size
    prices_at, label_at = np.int64(t.v.ctypes.data), np.int64(t.label.ctypes.data)
    largest = 0.0
    for j in range(m):
        t.label[j] = np.inf  # ``judge`` needs an array for column minima
        t.row_of_column[j] = -1
        t.nothing[j] = 0.0
        largest = max(largest, abs(t.v[j]))
    smallest, wrong, n_free = np.inf, 0.0, 0
    for i in range(n):
        at = t.cost + 8 * i * t.stride
        one, bad = judge(at, label_at, m)
        smallest = one if one < smallest else smallest
        wrong += bad
        j = t.column_of_row[i]
        if j >= 0:
            mine = item(at, j)
            slack = 0.0 if exact else 2.0**-52 * (abs(mine) + largest)
            if mine < np.inf and (mine - t.v[j]) - least(at, prices_at, m) <= slack:
                t.row_of_column[j] = i
                t.height[i] = mine - t.v[j]  # it may lose the column before it bids
                continue
        t.column_of_row[i] = -1
        t.free[n_free] = i
        n_free += 1
    return -1 if wrong > 0.0 or smallest == -np.inf else n_free


@kernel
def _excess(t: Task, total: float) -> float:
    """Return twice the amount by which an assignment of this cost exceeds the sum of the rows' minima.

    A pair that exceeds its row's minimum by more is in no better assignment. inf where the amount is a
    tiny share of the cost: then the cost, not a forbidding one, made prices lose digits.
    """
    for j in range(t.v.size):
        t.nothing[j] = 0.0  # the proof's sums were there
    nothing_at = np.int64(t.nothing.ctypes.data)
    excess = total
    for i in range(t.free.size):
        excess -= least(t.cost + 8 * i * t.stride, nothing_at, t.v.size)
    return 2.0 * max(excess, 0.0) if excess > _TINY * abs(total) else np.inf


@kernel
def _bid(t: Task, n_free: int, unjudged: bool, limit: float, watched: bool) -> tuple[int, int]:
    """Run rounds of bids (augmenting row reduction); return OPTIMAL and the number of free rows.

    limit: of the amount by which one bid lowers a price. watched: return HUGE if a row or column is.
    unjudged: all rows are free, and their costs may be NaN or -inf: the first bids return INVALID then.
    """
    m, gated = t.v.size, t.caps.size > 0
    n_scans, bids = np.int64(t.facts[1]), _BIDS * n_free
    prices_at = np.int64(t.v.ctypes.data)
    for _ in range(_ROUNDS):
        k = n_left = 0
        while k < n_free:
            row = t.free[k]
            k += 1
            at = t.cost + 8 * row * t.stride
            if unjudged:
                first, second, wrong = two_least_judged(at, prices_at, m)
                if wrong > 0.0:
                    return INVALID, 0
            else:
                first, second = two_least(at, prices_at, m)
            if n_scans >= t.most:
                return UNSURE, 0
            n_scans += 1
            t.facts[1] = n_scans
            cap = t.caps[row] if gated else np.inf
            if cap < first:
                t.height[row] = cap
                continue
            t.height[row] = first
            second = cap if cap < second else second
            if first == np.inf:
                # No allowed pair, or costs too large for float64 to distinguish from that.
                if unjudged and _wrong(t, row + 1, np.int64(t.label.ctypes.data)):
                    return INVALID, 0
                t.facts[2] = _alone(t)
                return INFEASIBLE, 0
            j = find(at, prices_at, 0, m, first)
            if j == m:
                return UNSURE, 0
            owner = t.row_of_column[j]
            dearer = first < second and second < np.inf
            if owner >= 0 and not dearer:
                j, owner = _other(t, at, j, first)
            if owner >= 0 and not dearer:
                t.free[n_left] = row
                n_left += 1
                continue
            if dearer:
                t.v[j] -= min(second - first, limit)
            t.column_of_row[row] = j
            t.row_of_column[j] = row
            if owner >= 0:
                t.column_of_row[owner] = -1
                if bids > 0:
                    bids -= 1
                    k -= 1
                    t.free[k] = owner
                else:
                    t.free[n_left] = owner
                    n_left += 1
        n_free = n_left
        unjudged = False
        if n_free == 0 or bids == 0:
            break
    return HUGE if watched and _outlying(t) else OPTIMAL, n_free


@kernel
def _alone(t: Task) -> int:
    """Put the rows that must and cannot be assigned into ``column_of_row``, in order; return how many."""
    m, count = t.v.size, 0
    for row in range(t.column_of_row.size):
        if t.caps.size > 0 and t.caps[row] < np.inf:
            continue
        first, _ = two_least(t.cost + 8 * row * t.stride, np.int64(t.v.ctypes.data), m)
        if first == np.inf:
            t.column_of_row[count] = row
            count += 1
    return count


@kernel
def _other(t: Task, at: int, taken: int, first: float) -> tuple[int, int]:
    """Return a free column that suits the row at ``at`` as well as ``taken``, and its owner."""
    m, j = t.v.size, taken
    for _ in range(_TIES):
        j = find(at, np.int64(t.v.ctypes.data), j + 1, m, first)
        if j >= m:
            break
        if t.row_of_column[j] < 0:
            return j, -1
    return taken, t.row_of_column[taken]


@kernel
def _search(t: Task, n_free: int) -> int:
    """Run a Dijkstra search from each of the first ``n_free`` rows of ``free``."""
    m, gated, n_scans = t.v.size, t.caps.size > 0, np.int64(t.facts[1])
    prices_at, label_at = np.int64(t.v.ctypes.data), np.int64(t.label.ctypes.data)
    nothing_at, spare_at = np.int64(t.nothing.ctypes.data), np.int64(t.spare.ctypes.data)
    tree_at = np.int64(t.tree.ctypes.data)
    for j in range(m):
        t.spare[j] = 0.0 if t.row_of_column[j] < 0 else -np.inf
    for k in range(n_free):
        root = t.free[k]
        at = t.cost + 8 * root * t.stride
        best, best_free = open_labels(at, prices_at, label_at, tree_at, spare_at, m, t.height[root], root)
        # A row of the tree may be left out, too: this one at the least distance.
        leaver, leave = root, t.caps[root] - t.height[root] if gated else np.inf
        n_scans += 1
        n_settled = 0
        while best < best_free and best < leave:
            if n_scans >= t.most:
                return UNSURE
            j = find(label_at, nothing_at, 0, m, best)
            if j == m:
                return UNSURE
            t.settled[n_settled], t.reached[n_settled], t.held[n_settled] = j, best, t.v[j]
            n_settled += 1
            row = t.row_of_column[j]
            at = t.cost + 8 * row * t.stride
            distance = (item(at, j) - t.v[j]) - best
            t.v[j], t.label[j] = -np.inf, np.inf
            best, best_free = relax_labels(at, prices_at, label_at, tree_at, spare_at, m, distance, row)
            n_scans += 1
            if gated and t.caps[row] - distance < leave:
                leaver, leave = row, t.caps[row] - distance
        t.facts[1] = n_scans
        end = best_free if best_free <= leave else leave
        if end == np.inf:
            # The rows of the tree have no allowed columns except the settled ones.
            t.facts[2] = n_settled + 1
            t.column_of_row[0] = root
            for s in range(n_settled):
                _insert(t.column_of_row, s + 1, t.row_of_column[t.settled[s]])
            return INFEASIBLE
        sink = t.column_of_row[leaver]
        if best_free <= leave:
            sink = find(label_at, spare_at, 0, m, best_free)
            if sink == m:
                return UNSURE
            t.spare[sink] = -np.inf
        else:
            t.column_of_row[leaver] = -1
        for s in range(n_settled):
            fall = end - t.reached[s]
            t.v[t.settled[s]] = t.held[s] - (fall if fall > 0.0 else 0.0)
        if sink >= 0:
            _augment(t, root, sink)
    return OPTIMAL


@kernel
def _augment(t: Task, root: int, sink: int) -> None:
    """Flip the pairs along the path from ``root`` to ``sink``."""
    j = sink
    while True:
        row = t.tree[j]
        t.row_of_column[j] = row
        j, t.column_of_row[row] = t.column_of_row[row], j
        if row == root:
            break


@kernel
def _insert(numbers: Array, count: int, number: int) -> None:
    """Insert into the first ``count`` numbers, which are sorted."""
    k = count
    while k > 0 and numbers[k - 1] > number:
        numbers[k] = numbers[k - 1]
        k -= 1
    numbers[k] = number


@kernel
def _identity_is_as_good(cost: int, stride: int, n: int, column_of_row: Array, partials: Array) -> bool:
    """Check whether the identity assignment costs no more, all sums taken without rounding.

    partials: workspace of 2 n numbers. Usually the rounded sums decide.
    """
    more = size = 0.0
    for i in range(n):
        row = cost + 8 * i * stride
        mine, other = item(row, column_of_row[i]), item(row, i)
        more += other - mine
        size += abs(other) + abs(mine)
    # Fails for an infinite cost too: inf is not below itself.
    if not more <= 1e-14 * n * size or not size < np.inf:
        return False
    count = 0
    for i in range(n):
        row = cost + 8 * i * stride
        if column_of_row[i] != i:
            count = add(partials, count, item(row, i))
            count = add(partials, count, -item(row, column_of_row[i]))
    return count == 0 or partials[count - 1] <= 0.0
