"""As many pairs as possible among listed ones within a limit (Hopcroft and Karp 1973)."""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.types import Array


class Listed(NamedTuple):
    """Listed pairs by agent, and a matching of some of them.

    start (n + 1,): agent i has entries ``start[i]`` to ``start[i + 1]``. slot (E,) int32. cost (E,).
    slot_of (n,), agent_of (m,): the matching, -1 for none. matched (n,): the entry of an agent's pair.
    depth, queue, place, stack (n + 1,): workspace.
    """

    start: Array
    slot: Array
    cost: Array
    slot_of: Array
    agent_of: Array
    matched: Array
    depth: Array
    queue: Array
    place: Array
    stack: Array


@kernel
def match_within(p: Listed, limit: float) -> int:
    """Extend the matching by pairs within the limit until it is largest.

    Pairs beyond the limit are dropped first. Returns how many agents are reached from those that are
    left over, ``queue[:count]``; 0 if none is left. Their slots within the limit are one fewer than
    they are for each agent left over.
    """
    for i in range(p.slot_of.size):
        if p.slot_of[i] >= 0 and not p.cost[p.matched[i]] <= limit:
            p.agent_of[p.slot_of[i]] = -1
            p.slot_of[i] = -1
        if p.slot_of[i] < 0:
            _take_free(p, i, limit)
    while True:
        count = _layers(p, limit)
        if count >= 0:
            return count
        _augment(p, limit)


@kernel
def _take_free(p: Listed, i: int, limit: float) -> None:
    """Match an agent with a free slot, if it has one."""
    for e in range(p.start[i], p.start[i + 1]):
        if p.cost[e] <= limit and p.agent_of[p.slot[e]] < 0:
            p.slot_of[i], p.agent_of[p.slot[e]], p.matched[i] = p.slot[e], i, e
            return


@kernel
def _layers(p: Listed, limit: float) -> int:
    """Number the agents by their distance from those left over, up to the first free slot.

    Returns -1 if there is one, else how many were reached.
    """
    count, found = 0, -1
    for i in range(p.slot_of.size):
        p.depth[i] = -1
        if p.slot_of[i] < 0:
            p.depth[i] = 0
            p.queue[count] = i
            count += 1
    position = 0
    while position < count:
        i = p.queue[position]
        position += 1
        if found >= 0 and p.depth[i] >= found:
            break
        for e in range(p.start[i], p.start[i + 1]):
            if not p.cost[e] <= limit:
                continue
            other = p.agent_of[p.slot[e]]
            if other < 0:
                found = p.depth[i] + 1 if found < 0 else found
            elif p.depth[other] < 0:
                p.depth[other] = p.depth[i] + 1
                p.queue[count] = other
                count += 1
    return count if found < 0 else -1


@kernel
def _augment(p: Listed, limit: float) -> None:
    """Augment along disjoint paths through the layers."""
    for i in range(p.slot_of.size):
        p.place[i] = p.start[i]
    for root in range(p.slot_of.size):
        if p.slot_of[root] >= 0:
            continue
        top = 0
        p.stack[0] = root
        while top >= 0:
            i = p.stack[top]
            if p.place[i] == p.start[i + 1]:
                p.depth[i] = -1
                top -= 1
                continue
            e = p.place[i]
            p.place[i] += 1
            if not p.cost[e] <= limit:
                continue
            other = p.agent_of[p.slot[e]]
            if other < 0:
                _flip(p, top)
                break
            if p.depth[other] == p.depth[i] + 1:
                top += 1
                p.stack[top] = other


@kernel
def _flip(p: Listed, top: int) -> None:
    """Exchange pairs along the agents of the stack, each of which moves to its last entry."""
    for t in range(top, -1, -1):
        i = p.stack[t]
        e = p.place[i] - 1
        p.slot_of[i], p.agent_of[p.slot[e]], p.matched[i] = p.slot[e], i, e
        p.depth[i] = -1


@kernel
def least_beyond(p: Listed, count: int, limit: float) -> int:
    """Return the cheapest entry beyond the limit of the reached agents, to a slot not reached.

    Below a limit of its cost they remain too many for their slots. -1 if there is none.
    """
    least = -1
    for position in range(count):
        i = p.queue[position]
        for e in range(p.start[i], p.start[i + 1]):
            if p.cost[e] > limit and (least < 0 or p.cost[e] < p.cost[least]):
                other = p.agent_of[p.slot[e]]
                if other < 0 or p.depth[other] < 0:
                    least = e
    return least
