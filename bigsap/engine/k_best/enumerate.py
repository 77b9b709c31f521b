"""Murty's enumeration: the cheapest assignments in order, each the best of a subspace.

A subspace keeps the slots of some agents and excludes some pairs. When its best assignment is the
next answer, the rest of it is divided: child p keeps the slots of the free agents before row p, and
excludes the pair of the agent there. One augmenting search from the duals of the parent solves it.

No answer costs more than the k-th smallest cost so far. The rest is a budget: see ``cycles``; children
within it are solved at once.
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.k_best.cycles import busiest, mark_cycles, narrow, prune
from bigsap.engine.k_best.numbers import less, minus, plus
from bigsap.engine.k_best.search import BEYOND, REACHED, augment, renew_bounds
from bigsap.engine.k_best.state import (
    AGENT,
    ANSWERS,
    BASE,
    BOUND,
    BOUND_LOW,
    CAP,
    CAP_LOW,
    CHANGED,
    FAR,
    FOUND,
    FOUND_LOW,
    GUESSED,
    KEPT,
    LOADED,
    NARROW,
    NODES,
    OPEN,
    OPENED,
    PENDING,
    PLACE,
    QUEUE,
    ROWS,
    SLOT,
    SPARE,
    START,
    TOP,
    TOP_LOW,
    TURNS,
    U_LOW,
    V_LOW,
    WORST,
    Graph,
    Nodes,
    Queue,
    U,
    V,
    Work,
)
from bigsap.engine.k_best.ties import break_ties
from bigsap.types import Array

#: Results: all found; more room is needed, or a pause is due; numbers leave their range; a guess was wrong.
DONE, FULL, TOO_LARGE, GUESS = range(4)


@kernel
def _solve_whole(g: Graph, nodes: Nodes, queue: Queue, w: Work) -> int:
    """Solve the whole problem, from the complete assignment in ``w.at`` and zero prices."""
    n_agents = w.at.size
    w.counts[START] = w.counts[OPENED] = 0
    w.counts[CHANGED] = n_agents
    for i in range(n_agents):
        w.owner[w.at[i]] = w.order[i] = w.changed[i] = i
        w.begin[i], w.end[i] = g.first[i], g.first[i + 1]
    for i in range(n_agents):
        _set_out(g, w, i)
    for i in range(n_agents):
        if w.at[i] < 0 and augment(g, w, i, FAR, 0) != REACHED:
            return TOO_LARGE
    for i in range(n_agents):
        w.changed[i] = i
    w.counts[CHANGED] = n_agents
    w.counts[OPENED] = 0
    renew_bounds(g, w)
    break_ties(g, w)
    for i in range(n_agents):
        nodes.slot_of[0, i] = w.at[i]
    high, low = _total(g, w)
    _store(g, nodes, queue, w, -1, -1, high, low)
    w.counts[BASE] = 0
    _unload(nodes, w, 0)
    return DONE


@kernel
def _set_out(g: Graph, w: Work, i: int) -> None:
    """Set the dual of an agent to its least cost; open its slot if that costs more."""
    mine = w.at[i]
    best, best_low, own, own_low = FAR, 0, FAR, 0
    for e in range(g.first[i], g.first[i + 1]):
        if less(g.cost[e], g.cost_low[e], best, best_low):
            best, best_low = g.cost[e], g.cost_low[e]
        if g.slot[e] == mine:
            own, own_low = g.cost[e], g.cost_low[e]
    w.u[i], w.u_low[i] = best, best_low
    if own != best or own_low != best_low:
        w.owner[mine] = OPEN
        w.opened[w.counts[OPENED]] = mine
        w.counts[OPENED] += 1
        w.at[i] = -1


@kernel
def _total(g: Graph, w: Work) -> tuple[int, int]:
    """Return the cost of the assignment, with that of spare slots."""
    high, low = 0, 0
    for i in range(w.at.size):
        for e in range(g.first[i], g.first[i + 1]):
            if g.slot[e] == w.at[i]:
                high, low = plus(high, low, g.cost[e], g.cost_low[e])
    for j in range(w.owner.size):
        if w.owner[j] == SPARE:
            high, low = plus(high, low, g.spare_cost[j], g.spare_cost_low[j])
    return high, low


@kernel
def enumerate_best(g: Graph, nodes: Nodes, queue: Queue, w: Work, answers: Array) -> int:
    """Write the nodes of the best assignments to ``answers``, in order, until it is full.

    w.at: a complete assignment, from which the first one is found.

    FULL: call again with more room, or after a pause. Fewer are found where there are no more:
    ``w.counts[ANSWERS]`` says how many. GUESS: the cap was too low; begin anew with a higher one.
    """
    if w.counts[NODES] == 0 and _solve_whole(g, nodes, queue, w) == TOO_LARGE:
        return TOO_LARGE
    while w.counts[ANSWERS] < answers.size and (w.counts[QUEUE] > 0 or w.counts[PENDING] >= 0):
        if w.counts[PENDING] >= 0:
            status = _solve_children(g, nodes, queue, w)
            if status != DONE:
                return status
            continue
        node = _pop(g, nodes, queue, w)
        if less(w.scalar[CAP], w.scalar[CAP_LOW], nodes.cost[node], nodes.cost_low[node]):
            return GUESS
        answers[w.counts[ANSWERS]] = node
        w.counts[ANSWERS] += 1
        w.counts[PENDING], w.counts[PLACE] = node, nodes.offset[node]
    return GUESS if w.counts[ANSWERS] < answers.size and w.counts[GUESSED] else DONE


@kernel
def _is_full(nodes: Nodes, w: Work) -> bool:
    """Check whether there is no room for another node."""
    return w.counts[NODES] == nodes.offset.size or w.counts[ROWS] + w.at.size > len(nodes.rows)


@kernel
def _solve_children(g: Graph, nodes: Nodes, queue: Queue, w: Work) -> int:
    """Solve all children of the pending node that may cost no more than the last answer can.

    Agents on no cycle within the budget keep their slots. Of the others, one on many cycles is the
    next: when it keeps its slot, fewer cycles are left.
    """
    node = w.counts[PENDING]
    while True:
        w.counts[TURNS] -= 1
        if w.counts[TURNS] == 0 or _is_full(nodes, w):
            return FULL
        _load(g, nodes, w, node)
        _keep(nodes, w, node, w.counts[PLACE])
        high, low = minus(w.scalar[CAP], w.scalar[CAP_LOW], nodes.cost[node], nodes.cost_low[node])
        if high < 0:
            w.counts[PENDING] = -1
            return DONE
        if w.counts[NARROW] != node:
            narrow(g, w, high, low)
            prune(g, w, high, low)
        if mark_cycles(g, w, w.core_begin, w.core_end, high, low, True) == 0:
            w.counts[PENDING] = -1
            return DONE
        first = place = w.counts[START]
        for k in range(place, w.order.size):
            if w.marked[w.order[k]] == 0:
                _exchange(nodes, w, node, k, place)
                place += 1
        shift = nodes.offset[node] + nodes.n_free[node] - w.order.size
        _keep(nodes, w, node, shift + place)
        n_chosen = busiest(w, high, low)
        for c in range(n_chosen):
            w.chosen[c] = w.changed[c]
        for k in range(first, w.order.size):
            w.marked[w.order[k]] = 0
        w.counts[PLACE] = shift + place
        for c in range(n_chosen):
            if _is_full(nodes, w):
                return FULL
            _load(g, nodes, w, node)
            place = w.counts[PLACE] - shift
            k = place
            while w.order[k] != w.chosen[c]:
                k += 1
            _exchange(nodes, w, node, k, place)
            w.counts[PLACE] += 1
            if _solve_child(g, nodes, queue, w, node, shift + place) == TOO_LARGE:
                return TOO_LARGE


@kernel(forceinline=True)
def _exchange(nodes: Nodes, w: Work, node: int, k: int, p: int) -> None:
    """Exchange two free agents in the order, and their rows."""
    if k == p:
        return
    w.order[k], w.order[p] = w.order[p], w.order[k]
    base = nodes.offset[node] + nodes.n_free[node] - w.order.size
    for c in range(8):
        kept = nodes.rows[base + k, c]
        nodes.rows[base + k, c] = nodes.rows[base + p, c]
        nodes.rows[base + p, c] = kept


@kernel
def _solve_child(g: Graph, nodes: Nodes, queue: Queue, w: Work, node: int, r: int) -> int:
    """Solve the child of row r of the node at hand, and queue it.

    Not if it is empty or, where that is known, costs more than the last answer can.
    """
    _keep(nodes, w, node, r)
    i, mine = nodes.rows[r, AGENT], nodes.rows[r, SLOT]
    barred = g.first[i]
    while g.slot[barred] != mine:
        barred += 1
    w.off[barred] = True
    w.owner[mine] = OPEN
    w.opened[0] = mine
    w.counts[OPENED] = 1
    w.at[i] = -1
    most, most_low = minus(w.scalar[CAP], w.scalar[CAP_LOW], nodes.cost[node], nodes.cost_low[node])
    most, most_low = plus(most, most_low, 0, 1)
    found = augment(g, w, i, most, most_low)
    w.counts[OPENED] = 0
    if found == REACHED:
        renew_bounds(g, w)
        break_ties(g, w)
        high, low = plus(nodes.cost[node], nodes.cost_low[node], w.scalar[FOUND], w.scalar[FOUND_LOW])
        new = w.counts[NODES]
        for k in range(w.at.size):
            nodes.slot_of[new, k] = nodes.slot_of[node, k]
        _store(g, nodes, queue, w, node, barred, high, low)
        _unload(nodes, w, node)
    else:
        w.owner[mine], w.at[i] = i, mine
    w.off[barred] = False
    return TOO_LARGE if found == BEYOND else DONE


@kernel
def _remember(queue: Queue, w: Work, high: int, low: int) -> None:
    """Keep a cost among the smallest ones."""
    worst, worst_low, count = queue.worst, queue.worst_low, w.counts[WORST]
    if count < worst.size:
        k = count
        w.counts[WORST] = count + 1
        while k > 0:
            above = (k - 1) >> 1
            if not less(worst[above], worst_low[above], high, low):
                break
            worst[k], worst_low[k] = worst[above], worst_low[above]
            k = above
        worst[k], worst_low[k] = high, low
        _lower_cap(queue, w)
        return
    if not less(high, low, worst[0], worst_low[0]):
        return
    k = 0
    while 2 * k + 1 < count:
        c = 2 * k + 1
        if c + 1 < count and less(worst[c], worst_low[c], worst[c + 1], worst_low[c + 1]):
            c += 1
        if not less(high, low, worst[c], worst_low[c]):
            break
        worst[k], worst_low[k] = worst[c], worst_low[c]
        k = c
    worst[k], worst_low[k] = high, low
    _lower_cap(queue, w)


@kernel
def _lower_cap(queue: Queue, w: Work) -> None:
    """Lower the cap to the largest of the smallest costs, once there are enough of them."""
    full = w.counts[WORST] == queue.worst.size
    if full and less(queue.worst[0], queue.worst_low[0], w.scalar[CAP], w.scalar[CAP_LOW]):
        w.scalar[CAP], w.scalar[CAP_LOW] = queue.worst[0], queue.worst_low[0]


@kernel
def _load(g: Graph, nodes: Nodes, w: Work, node: int) -> None:
    """Make a node the subspace at hand."""
    if w.counts[LOADED] == node:
        return
    if w.counts[LOADED] >= 0:
        _unload(nodes, w, w.counts[LOADED])
    n, first, count = w.order.size, nodes.offset[node], nodes.n_free[node]
    if w.owner.size > n:
        for i in range(n):
            w.owner[nodes.slot_of[node, i]] = KEPT
    narrowed = w.counts[NARROW] == node
    if narrowed and w.counts[PENDING] == node:  # the agents before keep their slots
        count -= w.counts[PLACE] - first
        first = w.counts[PLACE]
    for k in range(count):
        row = nodes.rows[first + k]
        i, j = row[AGENT], row[SLOT]
        w.order[n - count + k], w.at[i], w.owner[j] = i, j, i
        w.u[i], w.u_low[i] = row[U], row[U_LOW]
        w.v[j], w.v_low[j] = row[V], row[V_LOW]
        w.bound[i], w.bound_low[i] = row[BOUND], row[BOUND_LOW]
        if not narrowed:
            w.begin[i], w.end[i] = g.first[i], g.first[i + 1]
    if not narrowed:
        w.counts[NARROW] = -1
    w.scalar[TOP], w.scalar[TOP_LOW] = nodes.top[node], nodes.top_low[node]
    _exclude(nodes, w, node, True)
    w.counts[LOADED] = node
    w.counts[START] = w.counts[BASE] = n - count


@kernel
def _unload(nodes: Nodes, w: Work, node: int) -> None:
    """Clear the subspace of a node, which is at hand."""
    _exclude(nodes, w, node, False)
    other = KEPT
    if w.owner.size > w.order.size:
        other = SPARE
        for i in range(w.order.size):
            w.owner[nodes.slot_of[node, i]] = SPARE
    for k in range(w.counts[BASE], w.order.size):
        w.owner[w.at[w.order[k]]] = other
    w.counts[LOADED] = -1


@kernel
def _exclude(nodes: Nodes, w: Work, node: int, on: bool) -> None:
    """Exclude the entries that a node does, or undo that."""
    while nodes.parent[node] >= 0:
        w.off[nodes.barred[node]] = on
        node = nodes.parent[node]


@kernel
def _keep(nodes: Nodes, w: Work, node: int, r: int) -> None:
    """Let the agents before row r of the node at hand keep their slots, and no others."""
    p = r - nodes.offset[node] + w.order.size - nodes.n_free[node]
    for k in range(w.counts[START], p):
        w.owner[w.at[w.order[k]]] = KEPT
    for k in range(p, w.counts[START]):
        w.owner[w.at[w.order[k]]] = w.order[k]
    w.counts[START] = p


@kernel
def _store(
    g: Graph, nodes: Nodes, queue: Queue, w: Work, parent: int, barred: int, high: int, low: int
) -> None:
    """Keep the subspace at hand as a new node, and queue it. Slots of the parent are there."""
    node, first = w.counts[NODES], w.counts[ROWS]
    count = w.order.size - w.counts[START]
    w.counts[NODES] += 1
    w.counts[ROWS] += count
    for k in range(count):
        row, i = nodes.rows[first + k], w.order[w.counts[START] + k]
        j = w.at[i]
        nodes.slot_of[node, i] = j
        row[AGENT], row[SLOT] = i, j
        row[U], row[U_LOW] = w.u[i], w.u_low[i]
        row[V], row[V_LOW] = w.v[j], w.v_low[j]
        row[BOUND], row[BOUND_LOW] = w.bound[i], w.bound_low[i]
    nodes.offset[node], nodes.n_free[node] = first, count
    nodes.parent[node], nodes.barred[node] = parent, barred
    nodes.top[node], nodes.top_low[node] = w.scalar[TOP], w.scalar[TOP_LOW]
    nodes.cost[node], nodes.cost_low[node] = high, low
    _push(g, nodes, queue, w, high, low, node)
    _remember(queue, w, high, low)


@kernel(forceinline=True)
def _before(g: Graph, nodes: Nodes, queue: Queue, w: Work, a: int, b: int) -> bool:
    """Check whether entry a of the queue comes before entry b: by cost, then by the columns of the rows."""
    if less(queue.cost[a], queue.cost_low[a], queue.cost[b], queue.cost_low[b]):
        return True
    if less(queue.cost[b], queue.cost_low[b], queue.cost[a], queue.cost_low[a]):
        return False
    return _is_lower(g, nodes, w, queue.node[a], queue.node[b])


@kernel
def _is_lower(g: Graph, nodes: Nodes, w: Work, a: int, b: int) -> bool:
    """Compare the columns of the rows in two nodes, -1 before all."""
    n = w.at.size
    if not g.by_slots:
        for i in range(n):
            one, other = nodes.slot_of[a, i], nodes.slot_of[b, i]
            if one != other:
                return one >= g.private or (other < g.private and one < other)
        return False
    for j in range(w.owner.size):
        w.label[j] = w.source[j] = -1
    for i in range(n):
        w.label[nodes.slot_of[a, i]] = w.source[nodes.slot_of[b, i]] = i
    for j in range(w.owner.size):
        if w.label[j] != w.source[j]:
            return w.label[j] < w.source[j]
    return False


@kernel(forceinline=True)
def _swap(queue: Queue, a: int, b: int) -> None:
    queue.cost[a], queue.cost[b] = queue.cost[b], queue.cost[a]
    queue.cost_low[a], queue.cost_low[b] = queue.cost_low[b], queue.cost_low[a]
    queue.node[a], queue.node[b] = queue.node[b], queue.node[a]


@kernel(forceinline=True)
def _push(g: Graph, nodes: Nodes, queue: Queue, w: Work, high: int, low: int, node: int) -> None:
    k = w.counts[QUEUE]
    w.counts[QUEUE] = k + 1
    queue.cost[k], queue.cost_low[k], queue.node[k] = high, low, node
    while k > 0:
        above = (k - 1) >> 1
        if not _before(g, nodes, queue, w, k, above):
            break
        _swap(queue, k, above)
        k = above


@kernel(forceinline=True)
def _pop(g: Graph, nodes: Nodes, queue: Queue, w: Work) -> int:
    """Remove the first entry; return its node."""
    node = queue.node[0]
    last = w.counts[QUEUE] - 1
    w.counts[QUEUE] = last
    _swap(queue, 0, last)
    k = 0
    while 2 * k + 1 < last:
        c = 2 * k + 1
        if c + 1 < last and _before(g, nodes, queue, w, c + 1, c):
            c += 1
        if not _before(g, nodes, queue, w, c, k):
            break
        _swap(queue, k, c)
        k = c
    return node
