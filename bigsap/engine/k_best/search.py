"""Shortest augmenting paths in a subspace, by Dijkstra's algorithm on the lists.

A search begins at an agent without a slot and ends at an open slot. Dummies (see ``state``) are one
vertex: they are reached by any spare slot, and leave to any slot that an agent has, at ``spare_cost``
less the duals. Duals change as in the Hungarian method, so that they stay feasible, and pairs of the
assignment tight, exactly.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.k_best.numbers import LIMIT, less, minus, plus
from bigsap.engine.k_best.state import (
    CHANGED,
    CLOCK,
    DONE,
    ENTRY,
    FAR,
    FOUND,
    FOUND_LOW,
    HEAP,
    KEPT,
    OPEN,
    OPENED,
    SCANS,
    SEARCHES,
    SPARE,
    START,
    TOP,
    TOP_LOW,
    Graph,
    Work,
)

#: Results of ``augment``.
REACHED, UNREACHABLE, BEYOND = range(3)


@kernel
def augment(g: Graph, w: Work, root: int, most: int, most_low: int) -> int:
    """Give ``root`` a slot by a shortest path to an open slot, shorter than ``most``; change duals.

    The path's length is left in ``w.scalar``. UNREACHABLE: nothing has changed. BEYOND: numbers leave
    their range.
    """
    n_slots = w.owner.size
    w.counts[CLOCK] += 1
    w.counts[HEAP] = w.counts[DONE] = w.counts[CHANGED] = 0
    w.counts[SEARCHES] += 1
    w.scalar[FOUND], w.scalar[FOUND_LOW] = most, most_low
    sink = scan(g, w, root, 0, 0, -1)
    while w.counts[HEAP] > 0:
        high, low, j = pop(w)
        if not less(high, low, w.scalar[FOUND], w.scalar[FOUND_LOW]):
            break
        if w.settled[j] == w.counts[CLOCK]:
            continue
        w.settled[j] = w.counts[CLOCK]
        w.done[w.counts[DONE]] = j
        w.counts[DONE] += 1
        if j == n_slots:
            sink = _scan_dummies(g, w, high, low, sink)
        else:
            sink = scan(g, w, w.owner[j], high, low, sink)
    if sink < 0:
        return UNREACHABLE
    if w.scalar[FOUND] >= LIMIT:
        return BEYOND
    _raise_duals(w, root)
    _flip(g, w, root, sink)
    return REACHED if w.scalar[TOP] > -LIMIT else BEYOND


@kernel(forceinline=True)
def scan(g: Graph, w: Work, i: int, high: int, low: int, sink: int) -> int:
    """Relax the pairs of an agent at this distance; return the nearest open slot so far."""
    w.counts[SCANS] += 1
    base, base_low = minus(high, low, w.u[i], w.u_low[i])
    for k in range(w.begin[i], w.end[i]):
        e = w.near[k]
        j = g.slot[e]
        o = w.owner[j]
        if o == KEPT or w.off[e] or o == i:  # noqa: SIM109  tuples take a kernel longer
            continue
        price, price_low = price_of(g, w, j)
        d, d_low = plus(base, base_low, g.cost[e], g.cost_low[e])
        d, d_low = minus(d, d_low, price, price_low)
        if less(d, d_low, w.scalar[FOUND], w.scalar[FOUND_LOW]):
            sink = _relax(w, i, j, o, d, d_low, sink)
    return sink


@kernel(forceinline=True)
def _scan_dummies(g: Graph, w: Work, high: int, low: int, sink: int) -> int:
    """Relax all slots that agents have, and open ones, from the dummies at this distance."""
    n_agents = w.at.size
    high, low = plus(high, low, w.scalar[TOP], w.scalar[TOP_LOW])
    for k in range(w.counts[START], n_agents + w.counts[OPENED]):
        j = w.at[w.order[k]] if k < n_agents else w.opened[k - n_agents]
        if j < 0 or w.owner[j] == SPARE:
            continue
        d, d_low = plus(high, low, g.spare_cost[j], g.spare_cost_low[j])
        d, d_low = minus(d, d_low, w.v[j], w.v_low[j])
        if less(d, d_low, w.scalar[FOUND], w.scalar[FOUND_LOW]):
            sink = _relax(w, n_agents, j, w.owner[j], d, d_low, sink)
    return sink


@kernel(forceinline=True)
def _relax(w: Work, i: int, j: int, o: int, d: int, d_low: int, sink: int) -> int:
    """Offer slot j, which o has, the distance by agent i; return the nearest open slot so far."""
    clock = w.counts[CLOCK]
    target = w.owner.size if o == SPARE else j
    if w.settled[target] == clock:
        return sink
    if w.seen[target] == clock and not less(d, d_low, w.label[target], w.label_low[target]):
        return sink
    w.seen[target] = clock
    w.label[target], w.label_low[target], w.source[target] = d, d_low, i
    if o == SPARE:
        w.counts[ENTRY] = j
    if o == OPEN:
        w.scalar[FOUND], w.scalar[FOUND_LOW] = d, d_low
        return j
    push(w, d, d_low, target)
    return sink


@kernel
def _raise_duals(w: Work, root: int) -> None:
    """Move the duals of what was settled, so that the path is tight."""
    n_slots = w.owner.size
    far, far_low = w.scalar[FOUND], w.scalar[FOUND_LOW]
    w.u[root], w.u_low[root] = plus(w.u[root], w.u_low[root], far, far_low)
    w.changed[0] = root
    w.counts[CHANGED] = 1
    for k in range(w.counts[DONE]):
        j = w.done[k]
        fall, fall_low = minus(far, far_low, w.label[j], w.label_low[j])
        if j == n_slots:
            w.scalar[TOP], w.scalar[TOP_LOW] = minus(w.scalar[TOP], w.scalar[TOP_LOW], fall, fall_low)
            continue
        i = w.owner[j]
        w.v[j], w.v_low[j] = minus(w.v[j], w.v_low[j], fall, fall_low)
        w.u[i], w.u_low[i] = plus(w.u[i], w.u_low[i], fall, fall_low)
        w.changed[w.counts[CHANGED]] = i
        w.counts[CHANGED] += 1


@kernel
def _flip(g: Graph, w: Work, root: int, sink: int) -> None:
    """Exchange the pairs along the path that ends at ``sink``."""
    n_agents, n_slots = w.at.size, w.owner.size
    j = sink
    while True:
        i = w.source[j]
        if i == n_agents:
            w.owner[j] = SPARE
            j = w.counts[ENTRY]
            w.v[j], w.v_low[j] = price_of(g, w, j)
            i = w.source[n_slots]
        before = w.at[i]
        w.owner[j], w.at[i] = i, j
        if i == root:
            break
        j = before


@kernel
def renew_bounds(g: Graph, w: Work) -> None:
    """Compute the bounds of agents whose duals changed anew: least slack of another pair."""
    for k in range(w.counts[CHANGED]):
        i = w.changed[k]
        best, best_low = FAR, 0
        for p in range(w.begin[i], w.end[i]):
            e = w.near[p]
            j = g.slot[e]
            if w.owner[j] == KEPT or w.off[e] or w.owner[j] == i:
                continue
            d, d_low = slack(g, w, i, e)
            if less(d, d_low, best, best_low):
                best, best_low = d, d_low
        w.bound[i], w.bound_low[i] = best, best_low


@kernel(forceinline=True)
def slack(g: Graph, w: Work, i: int, e: int) -> tuple[int, int]:
    """Return the slack of entry e of agent i: its cost less the duals."""
    price, price_low = price_of(g, w, g.slot[e])
    d, d_low = minus(g.cost[e], g.cost_low[e], w.u[i], w.u_low[i])
    return minus(d, d_low, price, price_low)


@kernel(forceinline=True)
def price_of(g: Graph, w: Work, j: int) -> tuple[int, int]:
    """Return the price of a slot: of a spare one that of all of these."""
    if w.owner[j] == SPARE:
        return plus(g.spare_cost[j], g.spare_cost_low[j], w.scalar[TOP], w.scalar[TOP_LOW])
    return w.v[j], w.v_low[j]


@kernel(forceinline=True)
def push(w: Work, high: int, low: int, j: int) -> None:
    """Add a slot at a distance to the queue."""
    k = w.counts[HEAP]
    w.counts[HEAP] = k + 1
    while k > 0:
        above = (k - 1) >> 1
        if not less(high, low, w.heap[above], w.heap_low[above]):
            break
        w.heap[k], w.heap_low[k], w.item[k] = w.heap[above], w.heap_low[above], w.item[above]
        k = above
    w.heap[k], w.heap_low[k], w.item[k] = high, low, j


@kernel(forceinline=True)
def pop(w: Work) -> tuple[int, int, int]:
    """Remove the nearest slot from the queue; return its distance and the slot."""
    high, low, j = w.heap[0], w.heap_low[0], w.item[0]
    last = w.counts[HEAP] - 1
    w.counts[HEAP] = last
    a, a_low, b = w.heap[last], w.heap_low[last], w.item[last]
    k = np.int64(0)
    while 2 * k + 1 < last:
        c = 2 * k + 1
        if c + 1 < last and less(w.heap[c + 1], w.heap_low[c + 1], w.heap[c], w.heap_low[c]):
            c += 1
        if not less(w.heap[c], w.heap_low[c], a, a_low):
            break
        w.heap[k], w.heap_low[k], w.item[k] = w.heap[c], w.heap_low[c], w.item[c]
        k = c
    w.heap[k], w.heap_low[k], w.item[k] = a, a_low, b
    return high, low, j
