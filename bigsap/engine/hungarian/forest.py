"""Alternating trees from all free rows at once, under one clock, on rows' lists.

The alternating-tree variant of the Hungarian method (Date and Nagi 2016, section 2.3 and
algorithms 4 to 9) with three changes:

* *A clock in place of dual updates.* ``key[j]`` is the time at which column j becomes tight, and
  the row that makes it so. In the forest duals are implied by the clock D: a row's is
  ``u + (D - since)``, a column's price ``v - (D - at)``. Stored duals change when a column leaves
  the forest, and no vector is gone through at a dual update but the keys.
* *Grafting.* After an augmentation the trees that were not part of it stay as they are: their
  slacks are untouched. The clock never goes back, so it never exceeds what one root's dual
  rises in all.
* *Lists.* A row is its cheapest columns and a threshold (``engine.lists.layout``): prices only
  fall, so that no other column can become tight before ``ends[i]``. Then the row is evaluated anew.

Claims are by minimum (time, then row), free columns by minimum a tree: the forest does not depend
on the order in which a level's rows are gone through.

A pair is tight because its time was taken or because it is matched, never because a difference
is zero: times that rounding puts before the clock count as now.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.state import FREE, ID
from bigsap.engine.lists.layout import Lists
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array

# What ``run_forest`` returns. EVENT: lists of the frontier's rows have ended. LIMIT: too much
# work for too few matches. BROKEN: a path that never ends, which only costs that change lead to.
DONE, YIELD, EVENT, INFEASIBLE, LIMIT, BROKEN = range(6)

#: Where a list that was sorted may be left, and where all of it was gone through.
CUTS = np.array([6, 16, 64])
WHOLE = 4
# Lists up to this long are sorted by insertion.
_INSERTED = 128
#: One in so many of the first roots, see ``run_forest``.
SHARE = 64

# Of a column: untouched, waiting for its time, tight now, in the forest.
_FAR, _WAITING, _TIGHT, _REACHED = range(4)

# Steps of ``run_forest``.
EXPAND, TAKE, ADVANCE, EVALUATE = range(4)

# Words of Forest.words.
(
    STEP,
    POSITION,  # in the frontier
    N_ROWS,
    N_COLUMNS,
    N_TOUCHED,
    N_TIGHT,
    N_FRONTIER,
    N_LEAVES,
    LEFT,  # free rows
    STAGES,
    PATHS,
    LEVELS,
    CLOCKS,
    EXPANSIONS,
    EVENTS,
    WORK,  # entries and keys gone through
    ROOTS,  # free rows at the beginning
    MARK,  # work when LEFT was MARK_LEFT
    MARK_LEFT,
    WORD_COUNT,
) = range(20)


class Forest(NamedTuple):
    """P is the price type, see ``State``.

    key: P (n_columns,) when a column outside the forest becomes tight, infinity if unknown; pred,
    pred_cost: the row that makes it so, and what the pair costs there. kind: uint8 (n_columns,).
    at: P (n_columns,) the clock when it was reached. u, since, ends: P (n_rows,) a forest
    row's dual when it was reached, the clock then, and when what was not gone through of its
    list, or of all columns, can become tight. place: uint8 (n_rows,) parts of the list gone
    through, WHOLE for all; bounds: P (n_rows, CUTS), see ``arrange``. root: ID (n_rows,).
    leaf: ID (n_rows,) smallest free column of the root's tree, n_columns while there is none.
    rows, columns: the forest's; touched: columns with a key; tight: those to take next;
    frontier: rows to expand next; roots: those with a leaf. clock: P (1,).
    """

    key: Array
    pred: Array
    pred_cost: Array
    kind: Array
    at: Array
    u: Array
    since: Array
    ends: Array
    place: Array
    bounds: Array
    root: Array
    leaf: Array
    rows: Array
    columns: Array
    touched: Array
    tight: Array
    frontier: Array
    roots: Array
    words: Array
    clock: Array


def forest(n: int, m: int, price: np.dtype[Any]) -> Forest:
    """No trees yet. Fourteen vectors."""
    return Forest(
        key=np.full(m, S.infinity(price), price), pred=np.zeros(m, ID),
        pred_cost=np.zeros(m, price), kind=np.zeros(m, np.uint8), at=np.zeros(m, price),
        u=np.zeros(n, price), since=np.zeros(n, price), ends=np.zeros(n, price),
        place=np.zeros(n, np.uint8), bounds=np.zeros((n, CUTS.size), price),
        root=np.zeros(n, ID), leaf=np.full(n, m, ID), rows=np.zeros(n, ID),
        columns=np.zeros(m, ID), touched=np.zeros(m, ID), tight=np.zeros(m, ID),
        frontier=np.zeros(n, ID), roots=np.zeros(n, ID), words=np.zeros(WORD_COUNT, np.int64),
        clock=np.zeros(1, price),
    )  # fmt: skip


@kernel(nrt=True)
def star(
    lists: Lists, v: Array, column_of_row: Array, row_of_column: Array, match_cost: Array,
    offer: Array, infinity: float,
) -> int:  # fmt: skip
    """Match free rows to free columns of their lists' smallest ``c - v``; how many.

    In rounds: every free row offers itself to its first such column, from a column on that
    its number decides, and a column takes the smallest row (Lopes et al. 2019, algorithm
    1, where the first to come is taken). Rows with a single choice go first (Karp and Sipser
    1981). offer: ID (n_columns,). Ends since each round but the last matches a row.
    """
    n, m = column_of_row.size, row_of_column.size
    for j in range(m):
        offer[j] = n
    low = np.empty(n, v.dtype)
    waiting = np.empty(n, ID)
    n_waiting = 0
    for row in range(n):
        if column_of_row[row] >= 0:
            continue
        least = infinity
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            least = min(least, lists.costs[k] - v[lists.ids[k]])
        low[row] = least
        if least < infinity and least <= lists.theta[row]:
            waiting[n_waiting] = row
            n_waiting += 1
    matched = 0
    single = True
    wish = np.empty(n, np.int64)
    while True:
        kept = 0
        offers = 0
        for p in range(n_waiting):
            row = waiting[p]
            start, size = lists.start[row], lists.size[row]
            spread = np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
            first = int(np.int64((spread >> np.uint64(33)) % np.uint64(m)))
            count, choice, nearest = 0, -1, m
            for k in range(start, start + size):
                j = lists.ids[k]
                if row_of_column[j] < 0 and lists.costs[k] - v[j] == low[row]:
                    count += 1
                    turn = j - first if j >= first else j - first + m
                    if turn < nearest:
                        choice, nearest = k, turn
            if count == 0:
                continue
            waiting[kept] = row
            kept += 1
            wish[row] = -1
            if not single or count == 1:
                wish[row] = choice
                offers += 1
                j = lists.ids[choice]
                offer[j] = min(offer[j], row)
        n_waiting = kept
        if offers == 0:
            if not single:
                return matched
            single = False
            continue
        kept = 0
        for p in range(n_waiting):
            row = waiting[p]
            k = wish[row]
            if k >= 0:
                j = lists.ids[k]
                if offer[j] == row:
                    column_of_row[row] = j
                    row_of_column[j] = row
                    match_cost[row] = lists.costs[k]
                    offer[j] = n
                    matched += 1
                    continue
            waiting[kept] = row
            kept += 1
        n_waiting = kept
        single = True


@kernel
def plant(lists: Lists, v: Array, column_of_row: Array, f: Forest, infinity: float) -> None:
    """Make every free row a root, at the clock 0. O(entries)."""
    words = f.words
    count = 0
    for row in range(column_of_row.size):
        if column_of_row[row] >= 0:
            continue
        low = infinity
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            low = min(low, lists.costs[k] - v[lists.ids[k]])
        # Where ties fill a list, or all is forbidden, the threshold is as low.
        low = min(low, lists.theta[row])
        f.u[row] = low if low < infinity else 0
        f.since[row] = 0
        f.root[row] = row
        f.rows[count] = row
        f.frontier[count] = row
        count += 1
    words[N_ROWS] = words[N_FRONTIER] = count
    words[LEFT] = words[ROOTS] = words[MARK_LEFT] = count
    words[STEP], words[POSITION] = EXPAND, 0


@kernel
def judge(lists: Lists, f: Forest, infinity: float) -> int:
    """How many of the frontier's lists end now; their rows come first. O(frontier)."""
    ended = 0
    for p in range(f.words[N_FRONTIER]):
        row = f.frontier[p]
        theta = lists.theta[row]
        ends = infinity
        if theta < infinity:
            ends = (theta - f.u[row]) + f.since[row]
        f.place[row] = 0
        if ends <= f.clock[0]:
            f.frontier[p] = f.frontier[ended]
            f.frontier[ended] = row
            ended += 1
    return ended


def true_prices(v: Array, f: Forest) -> Array:
    """A copy of the prices with those of the forest as the clock implies them. O(n_columns)."""
    prices: Array = v.copy()
    columns = f.columns[: f.words[N_COLUMNS]]
    prices[columns] -= f.clock[0] - f.at[columns]
    return prices


@kernel
def rebase(v: Array, f: Forest) -> None:
    """Write down what the clock implies: all is as it was, with ``true_prices`` in v.

    Never by the clock on the wall: of reals the sums would be rounded at other moments.
    """
    now = f.clock[0]
    for p in range(f.words[N_ROWS]):
        row = f.rows[p]
        f.u[row] += now - f.since[row]
        f.since[row] = now
    for p in range(f.words[N_COLUMNS]):
        j = f.columns[p]
        v[j] -= now - f.at[j]
        f.at[j] = now


@kernel
def _flip(column_of_row: Array, row_of_column: Array, match_cost: Array, f: Forest) -> bool:
    """Augment along the path of every tree that has a free column; False for one without end."""
    n = column_of_row.size
    for p in range(f.words[N_LEAVES]):
        root = f.roots[p]
        j = f.leaf[root]
        steps = 0
        while True:
            row = f.pred[j]
            before = column_of_row[row]
            column_of_row[row] = j
            row_of_column[j] = row
            match_cost[row] = f.pred_cost[j]
            if row == root:
                break
            j = before
            steps += 1
            if steps > n or j < 0:  # a path has no more rows than there are
                return False
    return True


@kernel
def _graft(v: Array, f: Forest, n_columns: int, infinity: float) -> None:
    """Dismiss the trees that flipped; what lives is to be expanded again. O(forest, touched)."""
    words, now = f.words, f.clock[0]
    kept = 0
    for p in range(words[N_COLUMNS]):
        j = f.columns[p]
        if f.leaf[f.root[f.pred[j]]] < n_columns:
            v[j] -= now - f.at[j]
            f.kind[j] = _FAR
            f.key[j] = infinity
        else:
            f.columns[kept] = j
            kept += 1
    words[N_COLUMNS] = kept
    kept = 0
    for p in range(words[N_ROWS]):
        row = f.rows[p]
        if f.leaf[f.root[row]] == n_columns:
            f.rows[kept] = row
            f.frontier[kept] = row
            f.place[row] = 0
            kept += 1
    words[N_ROWS] = words[N_FRONTIER] = kept
    words[POSITION] = 0
    for p in range(words[N_TOUCHED]):
        j = f.touched[p]
        if f.kind[j] != _REACHED:
            f.key[j] = infinity
            f.kind[j] = _FAR
    words[N_TOUCHED] = 0
    for p in range(words[N_LEAVES]):
        f.leaf[f.roots[p]] = n_columns
    words[N_LEAVES] = 0


@kernel
def _take(
    v: Array, row_of_column: Array, match_cost: Array, f: Forest, n_columns: int, infinity: float
) -> None:  # fmt: skip
    """Take what is tight into the forest; the rows behind are the next frontier."""
    words, now = f.words, f.clock[0]
    n_next, n_rows, reached = 0, words[N_ROWS], words[N_COLUMNS]
    for p in range(words[N_TIGHT]):
        j = f.tight[p]
        f.kind[j] = _REACHED
        f.key[j] = -infinity  # no time is smaller
        f.at[j] = now
        f.columns[reached] = j
        reached += 1
        root = f.root[f.pred[j]]
        row = row_of_column[j]
        if row == FREE:
            if f.leaf[root] == n_columns:
                f.roots[words[N_LEAVES]] = root
                words[N_LEAVES] += 1
            f.leaf[root] = min(f.leaf[root], j)
            continue
        f.root[row] = root
        f.since[row] = now
        u = match_cost[row] - v[j]
        f.u[row] = u
        f.place[row] = 0
        f.ends[row] = infinity
        f.rows[n_rows] = row
        n_rows += 1
        f.frontier[n_next] = row
        n_next += 1
    words[N_TIGHT], words[N_FRONTIER], words[POSITION] = 0, n_next, 0
    words[N_ROWS], words[N_COLUMNS] = n_rows, reached


@kernel(nrt=True)
def arrange(lists: Lists, rows: Array, v: Array, f: Forest, infinity: float) -> None:
    """Sort the lists of ``rows``, just evaluated under the prices v, by ``c - v``.

    As prices fall these numbers only grow: what lies behind a cut cannot become tight before
    the cut's bound does, and need not be looked at till then. O(entries log(entries)).
    """
    longest = 1
    for p in range(rows.size):
        longest = max(longest, lists.size[rows[p]])
    tau = np.empty(longest, v.dtype)
    ids, costs = np.empty(longest, ID), np.empty(longest, v.dtype)
    for p in range(rows.size):
        row = rows[p]
        start, size = lists.start[row], lists.size[row]
        f.place[row] = 0
        if size > _INSERTED:
            for k in range(size):
                ids[k], costs[k] = lists.ids[start + k], lists.costs[start + k]
                tau[k] = costs[k] - v[ids[k]]
            order = np.argsort(tau[:size], kind="mergesort")
            for k in range(size):
                lists.ids[start + k] = ids[order[k]]
                lists.costs[start + k] = costs[order[k]]
            for c in range(CUTS.size):
                f.bounds[row, c] = tau[order[CUTS[c]]] if CUTS[c] < size else infinity
            continue
        for k in range(size):
            j, cost = lists.ids[start + k], lists.costs[start + k]
            g = cost - v[j]
            place = k
            while place > 0 and tau[place - 1] > g:
                tau[place] = tau[place - 1]
                lists.ids[start + place] = lists.ids[start + place - 1]
                lists.costs[start + place] = lists.costs[start + place - 1]
                place -= 1
            tau[place] = g
            lists.ids[start + place], lists.costs[start + place] = j, cost
        for c in range(CUTS.size):
            f.bounds[row, c] = tau[CUTS[c]] if CUTS[c] < size else infinity


@kernel
def _expand_row(row: int, lists: Lists, v: Array, f: Forest, infinity: float) -> int:
    """Give the columns of a row's list their times, from its place on as far as it can matter
    now; how many entries that were."""
    words, now = f.words, f.clock[0]
    key, pred = f.key, f.pred
    touched, tight = words[N_TOUCHED], words[N_TIGHT]
    u, since = f.u[row], f.since[row]
    start, size = lists.start[row], lists.size[row]
    part = f.place[row]
    first = CUTS[part - 1] if part > 0 else 0
    done = 0
    while True:
        last = size
        if part < CUTS.size:
            last = min(size, CUTS[part])
        for k in range(start + first, start + last):
            j = lists.ids[k]
            t = ((lists.costs[k] - v[j]) - u) + since
            t = max(t, now)
            old = key[j]
            if t > old or (t == old and row >= pred[j]) or not t < infinity:
                continue
            key[j] = t
            pred[j] = row
            f.pred_cost[j] = lists.costs[k]
            what = f.kind[j]
            if what == _FAR:
                f.touched[touched] = j
                touched += 1
                f.kind[j] = _WAITING
            if t == now and what != _TIGHT:
                f.kind[j] = _TIGHT
                f.tight[tight] = j
                tight += 1
        done += last - first
        part += 1
        if last == size:
            part = WHOLE
            theta = lists.theta[row]
            f.ends[row] = (theta - u) + since if theta < infinity else infinity
            break
        f.ends[row] = (f.bounds[row, part - 1] - u) + since
        if f.ends[row] > now:
            break
        first = last
    f.place[row] = part
    words[N_TOUCHED], words[N_TIGHT] = touched, tight
    return done


@kernel
def _expand(lists: Lists, v: Array, f: Forest, infinity: float, budget: int) -> int:
    """Expand the frontier's rows, within a budget; the entries gone through.

    Trees that have a free column grow no further: they are dismissed at the end of the stage.
    """
    words = f.words
    none = f.kind.size
    p, done = words[POSITION], 0
    while p < words[N_FRONTIER] and done < budget:
        row = f.frontier[p]
        p += 1
        if f.leaf[f.root[row]] == none:
            words[EXPANSIONS] += 1
            done += 1 + _expand_row(row, lists, v, f, infinity)
    words[POSITION] = p
    return done


@kernel
def _advance(lists: Lists, v: Array, f: Forest, infinity: float) -> int:
    """The next moment at which something happens; what it is. O(touched, forest's rows)."""
    words = f.words
    while True:
        now = f.clock[0]
        ended, first = 0, infinity
        for p in range(words[N_ROWS]):
            row = f.rows[p]
            ends = f.ends[row]
            if ends <= now:
                f.frontier[ended] = row
                ended += 1
            first = min(first, ends)
        if ended:
            words[N_FRONTIER], words[POSITION] = ended, 0
            words[EVENTS] += ended
            words[STEP] = EVALUATE
            return EVENT
        kept = 0
        for p in range(words[N_TOUCHED]):
            j = f.touched[p]
            if f.kind[j] != _REACHED:
                f.touched[kept] = j
                kept += 1
                first = min(first, f.key[j])
        words[N_TOUCHED] = kept
        if not first < infinity:
            return INFEASIBLE
        f.clock[0] = now = first
        tight = 0
        for p in range(kept):
            j = f.touched[p]
            if f.key[j] <= now:
                f.kind[j] = _TIGHT
                f.tight[tight] = j
                tight += 1
        words[N_TIGHT] = tight
        for p in range(words[N_ROWS]):
            row = f.rows[p]
            if f.ends[row] <= now and f.place[row] != WHOLE:
                words[WORK] += _expand_row(row, lists, v, f, infinity)
        if words[N_TIGHT]:
            words[CLOCKS] += 1
            words[STEP] = TAKE
            return YIELD


@kernel
def uproot(v: Array, f: Forest, infinity: float) -> None:
    """Give the forest up: true prices in v, no trees. O(forest, touched)."""
    rebase(v, f)
    words = f.words
    for p in range(words[N_COLUMNS]):
        f.kind[f.columns[p]] = _FAR
        f.key[f.columns[p]] = infinity
    for p in range(words[N_TOUCHED]):
        j = f.touched[p]
        f.key[j] = infinity
        f.kind[j] = _FAR
    for p in range(words[N_TIGHT]):
        f.kind[f.tight[p]] = _FAR
    words[N_ROWS] = words[N_COLUMNS] = words[N_TOUCHED] = 0
    words[N_TIGHT] = words[N_FRONTIER] = words[POSITION] = 0


@kernel
def _hopeless(words: Array, enough: int) -> bool:
    """Whether more than ``enough`` work was done without a share of the roots being matched."""
    if (words[MARK_LEFT] - words[LEFT]) * SHARE >= words[ROOTS]:
        words[MARK], words[MARK_LEFT] = words[WORK], words[LEFT]
    return words[WORK] - words[MARK] > enough


@kernel
def run_forest(
    lists: Lists, v: Array, column_of_row: Array, row_of_column: Array, match_cost: Array,
    f: Forest, infinity: float, enough: int, budget: int,
) -> int:  # fmt: skip
    """Grow, flip and graft until every row is matched, or another reason to return.

    enough: work without one in SHARE of the first roots being matched at which LIMIT is
    returned. budget: work before YIELD, about. Between calls ``true_prices`` are dual feasible,
    and matched pairs tight under them. O(entries) a level, O(touched columns) a step of
    the clock; a level or a step either reaches a column or ends a list, so both are bounded.
    """
    m = row_of_column.size
    words = f.words
    stop = words[WORK] + budget
    while words[LEFT] > 0:
        if words[STEP] == EXPAND:
            if words[POSITION] == 0 and _hopeless(words, enough):
                return LIMIT
            words[WORK] += _expand(lists, v, f, infinity, stop - words[WORK])
            if words[POSITION] < words[N_FRONTIER]:
                return YIELD
            words[LEVELS] += 1
            words[STEP] = TAKE if words[N_TIGHT] or words[N_LEAVES] else ADVANCE
        elif words[STEP] == TAKE:
            words[WORK] += words[N_TIGHT]
            _take(v, row_of_column, match_cost, f, m, infinity)
            words[STEP] = EXPAND if words[N_FRONTIER] else ADVANCE
            if words[N_LEAVES] and words[N_FRONTIER] == 0:
                if not _flip(column_of_row, row_of_column, match_cost, f):
                    return BROKEN
                words[STAGES] += 1
                words[PATHS] += words[N_LEAVES]
                words[LEFT] -= words[N_LEAVES]
                words[WORK] += words[N_TOUCHED] + words[N_ROWS]
                _graft(v, f, m, infinity)
                words[STEP] = EXPAND
        elif words[STEP] == ADVANCE:
            words[WORK] += 1 + (words[N_TOUCHED] + words[N_ROWS]) // 4
            found = _advance(lists, v, f, infinity)
            if found != YIELD:
                return found
        else:
            return EVENT
        if words[WORK] >= stop and words[LEFT] > 0:
            return YIELD
    return DONE
