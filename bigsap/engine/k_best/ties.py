"""The first of the cheapest assignments of a subspace: ties are decided by the user's rows.

Every cheapest assignment consists of pairs without slack, and every complete one of such pairs is
cheapest, dummies included (see ``state``). So the rows are visited in order, and each takes the first
partner that an alternating path of such pairs allows, among rows that are not decided yet.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.k_best.cycles import dummy_slack, mark_cycles
from bigsap.engine.k_best.search import price_of, slack
from bigsap.engine.k_best.state import CLOCK, DONE, ENTRY, KEPT, SPARE, START, Graph, Work


@kernel
def break_ties(g: Graph, w: Work) -> None:
    """Exchange pairs without changing the cost, until rows have their first possible partners."""
    if mark_cycles(g, w, w.begin, w.end, 0, 0, False) == 0:
        return
    if g.by_slots:
        _sort_by_slot(w, _collect(g, w))
        _by_slots(g, w)
    else:
        _by_agents(g, w)
    for j in range(w.owner.size):
        w.decided[j] = 0
    for k in range(w.counts[START], w.order.size):
        w.marked[w.order[k]] = 0


@kernel
def _is_tight(g: Graph, w: Work, i: int, e: int) -> bool:
    """Check whether entry e of agent i may be assigned at no cost."""
    j = g.slot[e]
    if w.decided[j] or w.owner[j] == KEPT or w.off[e]:
        return False
    high, low = slack(g, w, i, e)
    return high == 0 and low == 0


@kernel
def _dummy_is_tight(g: Graph, w: Work, j: int) -> bool:
    """Check whether slot j, which an agent has, may become spare at no cost."""
    high, low = dummy_slack(g, w, j)
    return high == 0 and low == 0


@kernel
def _collect(g: Graph, w: Work) -> int:
    """List the pairs without slack of marked agents, by agent; return their number."""
    count = 0
    for i in range(w.at.size):
        if w.marked[i] == 0:
            continue
        for p in range(w.begin[i], w.end[i]):
            e = w.near[p]
            if _is_tight(g, w, i, e):
                w.edge_agent[count], w.edge_slot[count] = i, g.slot[e]
                count += 1
    return count


@kernel
def _sort_by_slot(w: Work, n_edges: int) -> None:
    """Order the list by slot: agents of slot j are ``item[heap_low[j]:heap_low[j + 1]]``."""
    n_slots = w.owner.size
    for j in range(n_slots + 1):
        w.heap_low[j] = 0
    for e in range(n_edges):
        w.heap_low[w.edge_slot[e] + 1] += 1
    for j in range(n_slots):
        w.heap_low[j + 1] += w.heap_low[j]
        w.heap[j] = w.heap_low[j]
    for e in range(n_edges):
        j = w.edge_slot[e]
        w.item[w.heap[j]] = w.edge_agent[e]
        w.heap[j] += 1


@kernel
def _by_agents(g: Graph, w: Work) -> None:
    """Decide the rows, which are agents: first to stay unassigned, then the slots in order."""
    for i in range(w.at.size):
        if w.marked[i] == 0:
            continue
        if w.at[i] < g.private:
            e = w.near[w.end[i] - 1]
            found = g.slot[e] >= g.private and _is_tight(g, w, i, e) and _force(g, w, i, g.slot[e])
            k = w.begin[i]
            while not found and k < w.end[i] and g.slot[w.near[k]] < w.at[i]:
                e = w.near[k]
                found = _is_tight(g, w, i, e) and _force(g, w, i, g.slot[e])
                k += 1
        w.decided[w.at[i]] = 1


@kernel
def _by_slots(g: Graph, w: Work) -> None:
    """Decide the rows, which are slots: first to stay spare, then the agents in order."""
    dummy = w.at.size
    for j in range(w.owner.size):
        if w.owner[j] == KEPT:
            continue
        mine = w.owner[j]
        if mine != SPARE:
            found = _dummy_is_tight(g, w, j) and _force(g, w, dummy, j)
            k = w.heap_low[j]
            while not found and k < w.heap_low[j + 1] and w.item[k] < mine:
                i = w.item[k]
                found = not w.decided[w.at[i]] and _force(g, w, i, j)
                k += 1
        w.decided[j] = 1


@kernel
def _force(g: Graph, w: Work, h: int, s: int) -> bool:
    """Give slot s to h, an agent or dummy, if an alternating path finds a slot for its owner.

    The path ends at the slot that h leaves; a dummy leaves any spare one.
    """
    dummy = w.at.size
    w.counts[CLOCK] += 1
    clock = w.counts[CLOCK]
    left = np.int64(-1) if h == dummy else w.at[h]
    start = np.int64(dummy) if w.owner[s] == SPARE else w.owner[s]
    w.settled[s] = clock
    if start == dummy:
        w.settled[w.owner.size] = clock
        w.counts[ENTRY] = s
    w.done[0] = start
    w.counts[DONE] = 1
    k = 0
    while k < w.counts[DONE]:
        x = w.done[k]
        k += 1
        end = _visit_dummy(g, w, left) if x == dummy else _visit(g, w, x, left)
        if end >= 0:
            _exchange(g, w, start, end)
            _give(g, w, s, h)
            return True
    return False


@kernel
def _visit(g: Graph, w: Work, x: int, left: int) -> int:
    """Reach the slots that agent x may have; return the end of the path, else -1."""
    n_slots = w.owner.size
    clock = w.counts[CLOCK]
    if w.bound[x] != 0 or w.bound_low[x] != 0:
        return -1
    for k in range(w.begin[x], w.end[x]):
        e = w.near[k]
        j = g.slot[e]
        if w.owner[j] == x or w.settled[j] == clock or not _is_tight(g, w, x, e):
            continue
        w.settled[j], w.source[j] = clock, x
        spare = w.owner[j] == SPARE
        if j == left or (left < 0 and spare):
            return j
        if not spare:
            w.done[w.counts[DONE]] = w.owner[j]
            w.counts[DONE] += 1
        elif w.settled[n_slots] != clock:
            w.settled[n_slots] = clock
            w.counts[ENTRY] = j
            w.done[w.counts[DONE]] = w.at.size
            w.counts[DONE] += 1
    return -1


@kernel
def _visit_dummy(g: Graph, w: Work, left: int) -> int:
    """Reach the slots of agents that may become spare; return the end of the path, else -1."""
    clock, dummy = w.counts[CLOCK], w.at.size
    for k in range(w.counts[START], dummy):
        i = w.order[k]
        j = w.at[i]
        if w.decided[j] or w.settled[j] == clock or not _dummy_is_tight(g, w, j):
            continue
        w.settled[j], w.source[j] = clock, dummy
        if j == left:
            return j
        w.done[w.counts[DONE]] = i
        w.counts[DONE] += 1
    return -1


@kernel
def _exchange(g: Graph, w: Work, start: int, end: int) -> None:
    """Exchange the pairs along the path from ``start`` to the slot ``end``."""
    j, dummy = end, w.at.size
    while True:
        x = w.source[j]
        before = w.counts[ENTRY] if x == dummy else w.at[x]
        _give(g, w, j, x)
        if x == start:
            break
        j = before


@kernel
def _give(g: Graph, w: Work, j: int, x: int) -> None:
    """Give slot j to agent x, or to a dummy; its price stays."""
    w.v[j], w.v_low[j] = price_of(g, w, j)
    if x == w.at.size:
        w.owner[j] = SPARE
    else:
        w.owner[j], w.at[x] = x, j
