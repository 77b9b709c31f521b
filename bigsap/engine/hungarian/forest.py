"""Alternating trees from all free rows at once, under one clock, on rows' lists.

The alternating-tree variant of the Hungarian method (Date and Nagi 2016, section 2.3 and
algorithms 4 to 9) with three changes:

* *A clock in place of dual updates.* ``key[j]`` is the time at which column j becomes tight, and
  the row that makes it so. In the forest duals are implied by the clock D: a row's is
  ``u + (D - since)``, a column's price ``v - (D - entered)``. Stored duals change when a column
  leaves the forest, and no vector is gone through at a dual update but the keys.
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
from bigsap.engine.core.record import numbers, record, set_numbers
from bigsap.engine.core.state import CHANGED, DONE, EVENT, FREE, ID, INFEASIBLE, LIMIT, YIELD
from bigsap.engine.lists.layout import Lists
from bigsap.errors import CheckpointError
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array

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


class ForestStanding:
    """Where the forest stands: ``Forest.at``; what ``Result.stats["trees"]`` counts too."""

    step: int
    position: int  # in the frontier
    n_rows: int
    n_columns: int
    n_touched: int
    n_tight: int
    n_frontier: int
    n_leaves: int
    left: int  # free rows
    stages: int  # augmentations made together
    paths: int  # and one by one
    levels: int  # breadth-first
    clock_steps: int
    expansions: int  # of rows
    list_events: int  # lists that ended
    work: int  # entries and keys gone through
    roots: int  # free rows at the beginning
    mark: int  # work when ``left`` was ``mark_left``
    mark_left: int
    clock: float  # never goes back


class Forest(NamedTuple):
    """P is the price type, see ``State``.

    key: P (n_columns,) when a column outside the forest becomes tight, infinity if unknown; pred,
    pred_cost: the row that makes it so, and what the pair costs there. kind: uint8 (n_columns,).
    entered: P (n_columns,) the clock when it was reached. u, since, ends: P (n_rows,) a forest
    row's dual when it was reached, the clock then, and when what was not gone through of its
    list, or of all columns, can become tight. place: uint8 (n_rows,) parts of the list gone
    through, WHOLE for all; bounds: P (n_rows, CUTS), see ``arrange``. root: ID (n_rows,).
    leaf: ID (n_rows,) smallest free column of the root's tree, n_columns while there is none.
    rows, columns: the forest's; touched: columns with a key; tight: those to take next;
    frontier: rows to expand next; roots: those with a leaf.
    """

    key: Array
    pred: Array
    pred_cost: Array
    kind: Array
    entered: Array
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
    at: ForestStanding


def forest(n: int, m: int, price: np.dtype[Any]) -> Forest:
    """No trees yet. Fourteen vectors."""
    return Forest(
        key=np.full(m, S.infinity(price), price), pred=np.zeros(m, ID),
        pred_cost=np.zeros(m, price), kind=np.zeros(m, np.uint8), entered=np.zeros(m, price),
        u=np.zeros(n, price), since=np.zeros(n, price), ends=np.zeros(n, price),
        place=np.zeros(n, np.uint8), bounds=np.zeros((n, CUTS.size), price),
        root=np.zeros(n, ID), leaf=np.full(n, m, ID), rows=np.zeros(n, ID),
        columns=np.zeros(m, ID), touched=np.zeros(m, ID), tight=np.zeros(m, ID),
        frontier=np.zeros(n, ID), roots=np.zeros(n, ID), at=record(ForestStanding, price),
    )  # fmt: skip


def kept(f: Forest) -> dict[str, Array]:
    """What continues the forest: its own arrays, and copies of its numbers."""
    told = numbers(f.at, ForestStanding)
    arrays = {name: array for name, array in f._asdict().items() if name not in ("at", "entered")}
    return arrays | {"at": f.entered, "words": told["words"], "clock": told["values"]}


def continued(f: Forest, saved: dict[str, Array]) -> None:
    """Go on from what was ``kept``. Raises CheckpointError if it is of another problem."""
    for name, here in kept(f).items():
        there = saved[name]
        if there.dtype != here.dtype or there.shape != here.shape:
            raise CheckpointError(f"the checkpoint's forest does not fit: {name}")
        here[:] = there
    set_numbers(f.at, ForestStanding, {"words": saved["words"], "values": saved["clock"]})


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
    at = f.at
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
    at.n_rows = at.n_frontier = count
    at.left = at.roots = at.mark_left = count
    at.step, at.position = EXPAND, 0


@kernel
def judge(lists: Lists, f: Forest, infinity: float) -> int:
    """How many of the frontier's lists end now; their rows come first. O(frontier)."""
    ended = 0
    for p in range(f.at.n_frontier):
        row = f.frontier[p]
        theta = lists.theta[row]
        ends = infinity
        if theta < infinity:
            ends = (theta - f.u[row]) + f.since[row]
        f.place[row] = 0
        if ends <= f.at.clock:
            f.frontier[p] = f.frontier[ended]
            f.frontier[ended] = row
            ended += 1
    return ended


def true_prices(v: Array, f: Forest) -> Array:
    """A copy of the prices with those of the forest as the clock implies them. O(n_columns)."""
    prices: Array = v.copy()
    columns = f.columns[: f.at.n_columns]
    prices[columns] -= f.at.clock - f.entered[columns]
    return prices


@kernel
def rebase(v: Array, f: Forest) -> None:
    """Write down what the clock implies: all is as it was, with ``true_prices`` in v.

    Never by the clock on the wall: of reals the sums would be rounded at other moments.
    """
    now = f.at.clock
    for p in range(f.at.n_rows):
        row = f.rows[p]
        f.u[row] += now - f.since[row]
        f.since[row] = now
    for p in range(f.at.n_columns):
        j = f.columns[p]
        v[j] -= now - f.entered[j]
        f.entered[j] = now


@kernel
def _flip(column_of_row: Array, row_of_column: Array, match_cost: Array, f: Forest) -> bool:
    """Augment along the path of every tree that has a free column; False for one without end."""
    n = column_of_row.size
    for p in range(f.at.n_leaves):
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
    at, now = f.at, f.at.clock
    kept = 0
    for p in range(at.n_columns):
        j = f.columns[p]
        if f.leaf[f.root[f.pred[j]]] < n_columns:
            v[j] -= now - f.entered[j]
            f.kind[j] = _FAR
            f.key[j] = infinity
        else:
            f.columns[kept] = j
            kept += 1
    at.n_columns = kept
    kept = 0
    for p in range(at.n_rows):
        row = f.rows[p]
        if f.leaf[f.root[row]] == n_columns:
            f.rows[kept] = row
            f.frontier[kept] = row
            f.place[row] = 0
            kept += 1
    at.n_rows = at.n_frontier = kept
    at.position = 0
    for p in range(at.n_touched):
        j = f.touched[p]
        if f.kind[j] != _REACHED:
            f.key[j] = infinity
            f.kind[j] = _FAR
    at.n_touched = 0
    for p in range(at.n_leaves):
        f.leaf[f.roots[p]] = n_columns
    at.n_leaves = 0


@kernel
def _take(
    v: Array, row_of_column: Array, match_cost: Array, f: Forest, n_columns: int, infinity: float
) -> None:  # fmt: skip
    """Take what is tight into the forest; the rows behind are the next frontier."""
    at, now = f.at, f.at.clock
    n_next, n_rows, reached = 0, at.n_rows, at.n_columns
    for p in range(at.n_tight):
        j = f.tight[p]
        f.kind[j] = _REACHED
        f.key[j] = -infinity  # no time is smaller
        f.entered[j] = now
        f.columns[reached] = j
        reached += 1
        root = f.root[f.pred[j]]
        row = row_of_column[j]
        if row == FREE:
            if f.leaf[root] == n_columns:
                f.roots[at.n_leaves] = root
                at.n_leaves += 1
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
    at.n_tight, at.n_frontier, at.position = 0, n_next, 0
    at.n_rows, at.n_columns = n_rows, reached


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
    at, now = f.at, f.at.clock
    key, pred = f.key, f.pred
    touched, tight = at.n_touched, at.n_tight
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
    at.n_touched, at.n_tight = touched, tight
    return done


@kernel
def _expand(lists: Lists, v: Array, f: Forest, infinity: float, budget: int) -> int:
    """Expand the frontier's rows, within a budget; the entries gone through.

    Trees that have a free column grow no further: they are dismissed at the end of the stage.
    """
    at = f.at
    none = f.kind.size
    p, done = at.position, 0
    while p < at.n_frontier and done < budget:
        row = f.frontier[p]
        p += 1
        if f.leaf[f.root[row]] == none:
            at.expansions += 1
            done += 1 + _expand_row(row, lists, v, f, infinity)
    at.position = p
    return done


@kernel
def _advance(lists: Lists, v: Array, f: Forest, infinity: float) -> int:
    """The next moment at which something happens; what it is. O(touched, forest's rows)."""
    at = f.at
    while True:
        now = f.at.clock
        ended, first = 0, infinity
        for p in range(at.n_rows):
            row = f.rows[p]
            ends = f.ends[row]
            if ends <= now:
                f.frontier[ended] = row
                ended += 1
            first = min(first, ends)
        if ended:
            at.n_frontier, at.position = ended, 0
            at.list_events += ended
            at.step = EVALUATE
            return EVENT
        kept = 0
        for p in range(at.n_touched):
            j = f.touched[p]
            if f.kind[j] != _REACHED:
                f.touched[kept] = j
                kept += 1
                first = min(first, f.key[j])
        at.n_touched = kept
        if not first < infinity:
            return INFEASIBLE
        f.at.clock = now = first
        tight = 0
        for p in range(kept):
            j = f.touched[p]
            if f.key[j] <= now:
                f.kind[j] = _TIGHT
                f.tight[tight] = j
                tight += 1
        at.n_tight = tight
        for p in range(at.n_rows):
            row = f.rows[p]
            if f.ends[row] <= now and f.place[row] != WHOLE:
                at.work += _expand_row(row, lists, v, f, infinity)
        if at.n_tight:
            at.clock_steps += 1
            at.step = TAKE
            return YIELD


@kernel
def uproot(v: Array, f: Forest, infinity: float) -> None:
    """Give the forest up: true prices in v, no trees. O(forest, touched)."""
    rebase(v, f)
    at = f.at
    for p in range(at.n_columns):
        f.kind[f.columns[p]] = _FAR
        f.key[f.columns[p]] = infinity
    for p in range(at.n_touched):
        j = f.touched[p]
        f.key[j] = infinity
        f.kind[j] = _FAR
    for p in range(at.n_tight):
        f.kind[f.tight[p]] = _FAR
    at.n_rows = at.n_columns = at.n_touched = 0
    at.n_tight = at.n_frontier = at.position = 0


@kernel
def _hopeless(at: ForestStanding, enough: int) -> bool:
    """Whether more than ``enough`` work was done without a share of the roots being matched."""
    if (at.mark_left - at.left) * SHARE >= at.roots:
        at.mark, at.mark_left = at.work, at.left
    return at.work - at.mark > enough


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
    at = f.at
    stop = at.work + budget
    while at.left > 0:
        if at.step == EXPAND:
            if at.position == 0 and _hopeless(at, enough):
                return LIMIT
            at.work += _expand(lists, v, f, infinity, stop - at.work)
            if at.position < at.n_frontier:
                return YIELD
            at.levels += 1
            at.step = TAKE if at.n_tight or at.n_leaves else ADVANCE
        elif at.step == TAKE:
            at.work += at.n_tight
            _take(v, row_of_column, match_cost, f, m, infinity)
            at.step = EXPAND if at.n_frontier else ADVANCE
            if at.n_leaves and at.n_frontier == 0:
                if not _flip(column_of_row, row_of_column, match_cost, f):
                    return CHANGED
                at.stages += 1
                at.paths += at.n_leaves
                at.left -= at.n_leaves
                at.work += at.n_touched + at.n_rows
                _graft(v, f, m, infinity)
                at.step = EXPAND
        elif at.step == ADVANCE:
            at.work += 1 + (at.n_touched + at.n_rows) // 4
            found = _advance(lists, v, f, infinity)
            if found != YIELD:
                return found
        else:
            return EVENT
        if at.work >= stop and at.left > 0:
            return YIELD
    return DONE
