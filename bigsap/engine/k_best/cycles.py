"""Agents whose pair can be changed within a budget: those on cycles of pairs of small slack.

A change of an assignment is an alternating cycle, which costs at least each of its slacks. So only
agents in a strongly connected component of two or more, of the graph of pairs whose slack is within
the budget, need a child (components by Tarjan 1972).
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.k_best.numbers import less, minus, plus
from bigsap.engine.k_best.search import slack
from bigsap.engine.k_best.state import (
    CLOCK,
    FAR,
    KEPT,
    LOADED,
    NARROW,
    SPARE,
    START,
    TOP,
    TOP_LOW,
    Graph,
    Work,
)
from bigsap.types import Array


@kernel
def mark_cycles(g: Graph, w: Work, begin: Array, end: Array, high: int, low: int, core: bool) -> int:
    """Mark each free agent on a cycle of slacks of at most this budget; return their number.

    begin, end: the entries ``near[begin[i]:end[i]]`` of each agent that count. core: these are of the
    core, whose slots and slacks are listed.

    Marks ``w.marked[i]`` are positive, and the same in a component; of other free agents 0.
    """
    w.counts[CLOCK] += 1
    clock = w.counts[CLOCK]
    count = kept = marks = n_roots = 0
    for k in range(w.counts[START], w.order.size):
        i = w.order[k]
        w.marked[i] = 0
        if not less(high, low, w.bound[i], w.bound_low[i]):
            w.changed[n_roots] = i
            n_roots += 1
    for k in range(n_roots):
        i = w.changed[k]
        if w.seen[i] != clock:
            count, kept = _component(g, w, begin, end, i, high, low, core, count, kept)
    for k in range(n_roots):  # who is on a cycle has a pair within the budget
        marks += w.marked[w.changed[k]] > 0
    return marks


@kernel
def _component(
    g: Graph,
    w: Work,
    begin: Array,
    end: Array,
    root: int,
    high: int,
    low: int,
    core: bool,
    count: int,
    kept: int,
) -> tuple[int, int]:
    """Visit all that the root reaches. label: order of visits; label_low: the earliest reached.

    done: the path of the visit; source: the next place of a vertex; item: vertices whose component
    is open, settled while they are there.
    """
    clock = w.counts[CLOCK]
    depth = 0
    count, kept = _enter(w, begin, root, count, kept)
    w.done[0] = root
    while depth >= 0:
        x = w.done[depth]
        y = _next_of_core(g, w, x, high, low) if core else _next(g, w, end, x, high, low)
        if y >= 0:
            if w.seen[y] != clock:
                count, kept = _enter(w, begin, y, count, kept)
                depth += 1
                w.done[depth] = y
            elif w.settled[y] == clock and w.label[y] < w.label_low[x]:
                w.label_low[x] = w.label[y]
            continue
        depth -= 1
        if depth >= 0 and w.label_low[x] < w.label_low[w.done[depth]]:
            w.label_low[w.done[depth]] = w.label_low[x]
        if w.label_low[x] == w.label[x]:
            kept = _close(w, x, kept)
    return count, kept


@kernel(forceinline=True)
def _enter(w: Work, begin: Array, x: int, count: int, kept: int) -> tuple[int, int]:
    clock = w.counts[CLOCK]
    w.seen[x] = w.settled[x] = clock
    w.label[x] = w.label_low[x] = count
    w.source[x] = w.counts[START] if x == w.at.size else begin[x]
    w.item[kept] = x
    return count + 1, kept + 1


@kernel(forceinline=True)
def _close(w: Work, x: int, kept: int) -> int:
    """Remove the component of x; mark its agents unless x is alone in it."""
    alone = w.item[kept - 1] == x
    while True:
        kept -= 1
        y = w.item[kept]
        w.settled[y] = 0
        if y < w.at.size:
            w.marked[y] = 0 if alone else x + 1
        if y == x:
            break
    return kept


@kernel(forceinline=True)
def _next(g: Graph, w: Work, end: Array, x: int, high: int, low: int) -> int:
    """Return the next agent, or the dummies, that x reaches within the budget; -1 at the end."""
    dummy = w.at.size
    if x == dummy:
        return _next_of_dummies(g, w, high, low)
    if less(high, low, w.bound[x], w.bound_low[x]):
        return -1
    while w.source[x] < end[x]:
        e = w.near[w.source[x]]
        w.source[x] += 1
        j = g.slot[e]
        if w.owner[j] == KEPT or w.off[e] or w.owner[j] == x:
            continue
        d, d_low = slack(g, w, x, e)
        if not less(high, low, d, d_low):
            return dummy if w.owner[j] == SPARE else w.owner[j]
    return -1


@kernel(forceinline=True)
def _next_of_core(g: Graph, w: Work, x: int, high: int, low: int) -> int:
    """Return the same by the entries of the core."""
    dummy = w.at.size
    if x == dummy:
        return _next_of_dummies(g, w, high, low)
    if less(high, low, w.bound[x], w.bound_low[x]):
        return -1
    while w.source[x] < w.core_end[x]:
        p = w.source[x]
        w.source[x] += 1
        y = w.owner[w.core_slot[p]]
        if y != KEPT and not less(high, low, w.core_slack[p], w.core_slack_low[p]):
            return dummy if y == SPARE else y
    return -1


@kernel(forceinline=True)
def _next_of_dummies(g: Graph, w: Work, high: int, low: int) -> int:
    """Return the next agent whose slot may become spare within the budget; -1 at the end."""
    dummy = w.at.size
    while w.source[dummy] < dummy:
        i = w.order[w.source[dummy]]
        w.source[dummy] += 1
        d, d_low = dummy_slack(g, w, w.at[i])
        if not less(high, low, d, d_low):
            return i
    return -1


@kernel(forceinline=True)
def dummy_slack(g: Graph, w: Work, j: int) -> tuple[int, int]:
    """Return what it costs, less the duals, that slot j of an agent becomes spare."""
    price, price_low = minus(w.v[j], w.v_low[j], w.scalar[TOP], w.scalar[TOP_LOW])
    return minus(g.spare_cost[j], g.spare_cost_low[j], price, price_low)


@kernel
def narrow(g: Graph, w: Work, high: int, low: int) -> None:
    """Restrict the entries that count to those of slacks of at most this budget, for ``prune``.

    An assignment with another entry costs more, in the whole subspace. The slacks are left in ``heap``.
    """
    count = base = w.near.size // 2
    for k in range(w.counts[START], w.order.size):
        i = w.order[k]
        first = count
        if not less(high, low, w.bound[i], w.bound_low[i]):
            for p in range(w.begin[i], w.end[i]):
                e = w.near[p]
                j = g.slot[e]
                if w.owner[j] == KEPT or w.off[e]:
                    continue
                d, d_low = slack(g, w, i, e)
                if not less(high, low, d, d_low):
                    w.near[count] = e
                    w.heap[count - base], w.heap_low[count - base] = d, d_low
                    count += 1
        w.begin[i], w.end[i] = first, count
    w.counts[NARROW] = w.counts[LOADED]


@kernel
def prune(g: Graph, w: Work, high: int, low: int) -> None:
    """Choose the narrowed entries that may lie on a cycle within the budget: the core.

    A cycle through agent x leaves it by one entry and reaches its slot by another, so it costs at least
    the sum of their least slacks. The entry of x for the slot of y is followed by one that leaves y, and
    comes after one that reaches x; these may be the same. Searches need all narrowed entries, since
    their duals must stay feasible.
    """
    dummy, base = w.at.size, w.near.size // 2
    count = 0
    for k in range(w.counts[START], dummy):
        x = w.order[k]
        w.core_begin[x] = count
        for p in range(w.begin[x], w.end[x]):
            j = g.slot[w.near[p]]
            if w.owner[j] != x:
                w.core_slot[count] = j
                w.core_slack[count], w.core_slack_low[count] = w.heap[p - base], w.heap_low[p - base]
                count += 1
        w.core_end[x] = count
    n_entries = count
    while n_entries > 0:
        _least_slacks(g, w)
        n_left = 0
        for k in range(w.counts[START], dummy):
            x = w.order[k]
            kept = w.core_begin[x]
            for p in range(w.core_begin[x], w.core_end[x]):
                j, d, d_low = w.core_slot[p], w.core_slack[p], w.core_slack_low[p]
                y = dummy if w.owner[j] == SPARE else w.owner[j]
                if _may_turn(w, x, y, d, d_low, high, low):
                    w.core_slot[kept] = j
                    w.core_slack[kept], w.core_slack_low[kept] = d, d_low
                    kept += 1
            n_left += kept - w.core_begin[x]
            w.core_end[x] = kept
        if 8 * n_left >= 7 * n_entries:
            break
        n_entries = n_left


@kernel(forceinline=True)
def _least_slacks(g: Graph, w: Work) -> None:
    """Find the least slacks of core entries that leave each agent (source, done) and reach it (label).

    The dummies are the last.
    """
    dummy = w.at.size
    for k in range(w.counts[START], dummy + 1):
        x = w.order[k] if k < dummy else dummy
        w.label[x] = w.source[x] = FAR
        w.label_low[x] = w.done[x] = 0
    for k in range(w.counts[START], dummy):
        x = w.order[k]
        for p in range(w.core_begin[x], w.core_end[x]):
            j, d, d_low = w.core_slot[p], w.core_slack[p], w.core_slack_low[p]
            y = dummy if w.owner[j] == SPARE else w.owner[j]
            if less(d, d_low, w.source[x], w.done[x]):
                w.source[x], w.done[x] = d, d_low
            if less(d, d_low, w.label[y], w.label_low[y]):
                w.label[y], w.label_low[y] = d, d_low
    if w.label[dummy] == FAR:
        return
    for k in range(w.counts[START], dummy):
        x = w.order[k]
        d, d_low = dummy_slack(g, w, w.at[x])
        if less(d, d_low, w.source[dummy], w.done[dummy]):
            w.source[dummy], w.done[dummy] = d, d_low
        if less(d, d_low, w.label[x], w.label_low[x]):
            w.label[x], w.label_low[x] = d, d_low


@kernel(forceinline=True)
def _may_turn(w: Work, x: int, y: int, d: int, d_low: int, high: int, low: int) -> bool:
    """Check whether a cycle within the budget can use an entry from x to y of slack d."""
    one, one_low = plus(d, d_low, w.label[x], w.label_low[x])
    other, other_low = plus(d, d_low, w.source[y], w.done[y])
    if less(high, low, one, one_low) or less(high, low, other, other_low):
        return False
    one, one_low = plus(w.source[x], w.done[x], w.label[x], w.label_low[x])
    other, other_low = plus(w.source[y], w.done[y], w.label[y], w.label_low[y])
    return not (less(high, low, one, one_low) or less(high, low, other, other_low))


@kernel
def busiest(w: Work, high: int, low: int) -> int:
    """Choose of each component of marked agents the one with the most pairs within the budget.

    The number counts the agent's own pairs, times those by which others reach its slot. The chosen
    agents are left in ``w.changed``; returns how many. Entries of the core that are beyond the budget, or
    for a slot that is kept, stay so for all children that are still to come, and leave the core.
    """
    start, n = w.counts[START], w.order.size
    for k in range(start, n):
        i = w.order[k]
        w.label[i] = w.label_low[i] = w.source[i] = 0
    for k in range(start, n):
        i = w.order[k]
        kept = w.core_begin[i]
        for p in range(w.core_begin[i], w.core_end[i]):
            j, d, d_low = w.core_slot[p], w.core_slack[p], w.core_slack_low[p]
            if w.owner[j] == KEPT or less(high, low, d, d_low):
                continue
            w.core_slot[kept], w.core_slack[kept], w.core_slack_low[kept] = j, d, d_low
            kept += 1
            if w.owner[j] != SPARE:
                w.label_low[w.owner[j]] += 1
        w.label[i] = kept - w.core_begin[i]
        w.core_end[i] = kept
    count = w.source[n] = 0  # a component may be named after the dummies
    for k in range(start, n):
        i = w.order[k]
        w.label[i] *= w.label_low[i] + 1
        head = w.marked[i] - 1
        # source: one more than the place of the component's choice. Not settled, which is a time.
        if w.source[head] == 0:
            w.changed[count] = i
            count += 1
            w.source[head] = count
        elif w.label[i] > w.label[w.changed[w.source[head] - 1]]:
            w.changed[w.source[head] - 1] = i
    return count
