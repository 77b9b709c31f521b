"""Matchings among listed pairs within a limit.

Phases of disjoint augmenting paths, depth first, with a look ahead for free slots and turns of
direction (Pothen and Fan 1990; Duff, Kaya and Ucar 2011).
"""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.types import Array


class Listed(NamedTuple):
    """Listed pairs by agent, and a matching of some of them.

    start (n + 1,): agent i has entries ``start[i]`` to ``start[i + 1]``, by cost. slot (E,) int32. cost
    (E,). slot_of (n,), agent_of (m,): the matching, -1 for none. matched (n,): the entry of an agent's
    pair. stop (n,): the end of an agent's entries within the limit. ahead, place (n,): its next entries,
    to look ahead and to visit. seen (n,): the phase in which it was visited. stack, queue (n,): the
    path, and agents left over or reached.
    """

    start: Array
    slot: Array
    cost: Array
    slot_of: Array
    agent_of: Array
    matched: Array
    stop: Array
    ahead: Array
    place: Array
    seen: Array
    stack: Array
    queue: Array


@kernel
def match_within(p: Listed, limit: float) -> int:
    """Extend the matching by pairs within the limit until all agents have one, or one cannot.

    Pairs beyond the limit are dropped first. Returns 0, or the number of agents ``queue[:count]`` that
    are too many for their slots within the limit; these have ``seen == 0``, others -1.
    """
    n = p.slot_of.size
    for i in range(n):
        p.seen[i] = 0
        p.ahead[i] = p.start[i]
        p.stop[i] = _end(p, p.start[i], p.start[i + 1], limit)
        if p.slot_of[i] >= 0 and p.matched[i] >= p.stop[i]:
            p.agent_of[p.slot_of[i]] = -1
            p.slot_of[i] = -1
    n_free = 0
    for i in range(n):
        if p.slot_of[i] < 0 and not _look_ahead(p, i):
            p.queue[n_free] = i
            n_free += 1
    phase = 0
    while n_free > 0:
        phase += 1
        n_left, found = 0, False
        for k in range(n_free):
            root = p.queue[k]
            if _augment(p, root, phase):
                found = True
            elif found:
                # Perhaps blocked by another path of this phase: the next one begins with it.
                p.queue[n_left] = root
                n_left += 1
            else:
                return _reach(p, root)
        n_free = n_left
    return 0


@kernel(forceinline=True)
def _end(p: Listed, first: int, stop: int, limit: float) -> int:
    """Return the first entry beyond the limit, by bisection."""
    while first < stop:
        middle = (first + stop) // 2
        if p.cost[middle] <= limit:
            first = middle + 1
        else:
            stop = middle
    return first


@kernel(forceinline=True)
def _look_ahead(p: Listed, i: int) -> bool:
    """Match an agent with a free slot, if it has one; its entries before ``ahead`` have none."""
    while p.ahead[i] < p.stop[i]:
        e = p.ahead[i]
        p.ahead[i] += 1
        if p.agent_of[p.slot[e]] < 0:
            p.slot_of[i], p.agent_of[p.slot[e]], p.matched[i] = p.slot[e], i, e
            return True
    return False


@kernel
def _augment(p: Listed, root: int, phase: int) -> bool:
    """Augment along a path from ``root`` to a free slot through agents not visited in this phase."""
    backwards = phase % 2 == 0
    top = 0
    p.stack[0] = root
    _open(p, root, phase, backwards)
    while top >= 0:
        i = p.stack[top]
        if p.ahead[i] < p.stop[i]:
            before = p.slot_of[i]
            if _look_ahead(p, i):
                _shift(p, top, before, backwards)
                return True
        other = -1
        while other < 0:
            if backwards:
                p.place[i] -= 1
                if p.place[i] < p.start[i]:
                    break
                e = p.place[i]
            else:
                if p.place[i] >= p.stop[i]:
                    break
                e = p.place[i]
                p.place[i] += 1
            owner = p.agent_of[p.slot[e]]
            if p.seen[owner] != phase:
                other = owner
        if other < 0:
            top -= 1
        else:
            _open(p, other, phase, backwards)
            top += 1
            p.stack[top] = other
    return False


@kernel(forceinline=True)
def _open(p: Listed, i: int, phase: int, backwards: bool) -> None:
    p.seen[i] = phase
    p.place[i] = p.stop[i] if backwards else p.start[i]


@kernel(forceinline=True)
def _shift(p: Listed, top: int, before: int, backwards: bool) -> None:
    """Give each agent of the stack below ``top`` the slot that the one above it had."""
    for t in range(top - 1, -1, -1):
        i = p.stack[t]
        e = p.place[i] if backwards else p.place[i] - 1
        old = p.slot_of[i]
        p.slot_of[i], p.agent_of[before], p.matched[i] = before, i, e
        before = old


@kernel
def _reach(p: Listed, root: int) -> int:
    """Collect the agents reached from one that no path leads from to a free slot; return how many."""
    for i in range(p.seen.size):
        p.seen[i] = -1
    p.seen[root] = 0
    p.queue[0] = root
    count, position = 1, 0
    while position < count:
        i = p.queue[position]
        position += 1
        for e in range(p.start[i], p.stop[i]):
            other = p.agent_of[p.slot[e]]
            if p.seen[other] < 0:
                p.seen[other] = 0
                p.queue[count] = other
                count += 1
    return count


@kernel
def least_beyond(p: Listed, count: int) -> int:
    """Return the cheapest entry beyond the limit of the reached agents, to a slot not reached.

    Below a limit of its cost they remain too many for their slots. -1 if there is none.
    """
    least = -1
    for position in range(count):
        i = p.queue[position]
        for e in range(p.stop[i], p.start[i + 1]):
            if least >= 0 and not p.cost[e] < p.cost[least]:
                break
            other = p.agent_of[p.slot[e]]
            if other < 0 or p.seen[other] < 0:
                least = e
                break
    return least


@kernel
def sort_rows(start: Array, slot: Array, cost: Array) -> None:
    """Order the entries of each agent by cost (Shell 1959)."""
    for i in range(start.size - 1):
        first, stop = start[i], start[i + 1]
        gap = 1
        while gap < (stop - first) // 9:
            gap = 3 * gap + 1
        while gap > 0:
            for k in range(first + gap, stop):
                c, j, e = cost[k], slot[k], k
                while e >= first + gap and cost[e - gap] > c:
                    cost[e], slot[e] = cost[e - gap], slot[e - gap]
                    e -= gap
                cost[e], slot[e] = c, j
            gap //= 3
