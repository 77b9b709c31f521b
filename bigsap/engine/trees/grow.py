"""Growth of the forest: expand rows, take tight columns, flip paths, graft trees.

Ties are broken by minimum: a column goes to the minimum (time, then row), a tree takes the smallest
free column. So the forest does not depend on the order in which a level's rows are processed.

A pair is tight because its time has come or because it is matched, never because a difference is
zero: a time that rounding puts before the clock counts as now.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import CHANGED, DONE, EVENT, FREE, INFEASIBLE, LIMIT, YIELD
from bigsap.engine.lists.layout import Lists
from bigsap.engine.trees.forest import (
    ADVANCE,
    AMIDST,
    CUTS,
    EVALUATE,
    EXPAND,
    FAR,
    REACHED,
    TAKE,
    TIGHT,
    WAITING,
    WHOLE,
    Forest,
    ForestStanding,
)
from bigsap.types import Array

#: One in this many of the first roots, see ``run_forest``.
SHARE = 64


@kernel
def _flip(column_of_row: Array, row_of_column: Array, match_cost: Array, f: Forest) -> bool:
    """Augment along the path of every tree that has a free column; return False for an endless path."""
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
            if steps > n or j < 0:  # longer than any path
                return False
    return True


@kernel
def _graft(v: Array, f: Forest, n_columns: int, infinity: float) -> None:
    """Remove the trees that flipped; the others are to be expanded again. O(forest, touched)."""
    at, now = f.at, f.at.clock
    kept = 0
    for p in range(at.n_columns):
        j = f.columns[p]
        if f.leaf[f.root[f.pred[j]]] < n_columns:
            v[j] -= now - f.entered[j]
            f.kind[j] = FAR
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
        if f.kind[j] != REACHED:
            f.key[j] = infinity
            f.kind[j] = FAR
    at.n_touched = 0
    for p in range(at.n_leaves):
        f.leaf[f.roots[p]] = n_columns
    at.n_leaves = 0


@kernel
def _take(
    v: Array, row_of_column: Array, match_cost: Array, f: Forest, n_columns: int, infinity: float
) -> None:
    """Add the tight columns to the forest; their rows are the next frontier."""
    at, now = f.at, f.at.clock
    n_next, n_rows, reached = 0, at.n_rows, at.n_columns
    for p in range(at.n_tight):
        j = f.tight[p]
        f.kind[j] = REACHED
        f.key[j] = -infinity  # no time can be smaller
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


@kernel
def _expand_row(row: int, lists: Lists, v: Array, f: Forest, infinity: float) -> int:
    """Update the keys of a row's list; return the number of entries read.

    Reads from the row's position up to the first cut that cannot matter now.
    """
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
            if what == FAR:
                f.touched[touched] = j
                touched += 1
                f.kind[j] = WAITING
            if t == now and what != TIGHT:
                f.kind[j] = TIGHT
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
    """Expand the frontier's rows, within a budget; return the number of entries processed.

    Trees that have a free column grow no further: the end of the stage removes them.
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
def _advance(lists: Lists, v: Array, f: Forest, infinity: float, budget: int) -> int:
    """Advance the clock to the next event and return it. O(touched, forest's rows) per step.

    YIELD: columns are tight, or the budget is spent, see the step.
    """
    at = f.at
    done = 0
    while True:
        done += 1 + at.n_touched + at.n_rows
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
            if f.kind[j] != REACHED:
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
                f.kind[j] = TIGHT
                f.tight[tight] = j
                tight += 1
        at.n_tight = tight
        for p in range(at.n_rows):
            row = f.rows[p]
            if f.ends[row] <= now and f.place[row] != WHOLE:
                expanded = _expand_row(row, lists, v, f, infinity)
                at.work += expanded
                done += expanded
        if at.n_tight:
            at.clock_steps += 1
            at.step = TAKE
            return YIELD
        if done >= budget:
            at.step = AMIDST
            return YIELD


@kernel
def _hopeless(at: ForestStanding, enough: int) -> bool:
    """Check whether more than ``enough`` work was done without matching a share of the roots."""
    if (at.mark_left - at.left) * SHARE >= at.roots:
        at.mark, at.mark_left = at.work, at.left
    return at.work - at.mark > enough


@kernel
def run_forest(
    lists: Lists,
    v: Array,
    column_of_row: Array,
    row_of_column: Array,
    match_cost: Array,
    f: Forest,
    infinity: float,
    enough: int,
    budget: int,
) -> int:
    """Grow, flip and graft until every row is matched, or for another reason to return.

    enough: the work after which LIMIT is returned unless one in SHARE of the first roots was
    matched. budget: approximate work before YIELD. Between calls ``true_prices`` are dual
    feasible, and matched pairs tight under them. O(entries) a level, O(touched columns) a step of
    the clock. A level or a step either reaches a column or ends a list, so both are bounded.
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
        elif at.step == ADVANCE or at.step == AMIDST:
            if at.step == ADVANCE:  # counted once
                at.work += 1 + (at.n_touched + at.n_rows) // 4
            found = _advance(lists, v, f, infinity, budget)
            if found != YIELD or at.step == AMIDST:
                return found
        else:
            return EVENT
        if at.work >= stop and at.left > 0:
            return YIELD
    return DONE
