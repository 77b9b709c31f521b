"""Matchings among listed pairs within a limit.

An agent without a slot takes the one that is nearest to a free slot, whose agent then looks for another:
a push-relabel method (Goldberg and Tarjan 1988) whose distances are measured anew from time to time
(Kaya, Langguth, Manne and Ucar 2013).
"""

from __future__ import annotations

from typing import NamedTuple

from bigsap.compile.decorator import kernel
from bigsap.types import Array


class Listed(NamedTuple):
    """Listed pairs by agent and by slot, and a matching of some of them.

    start (n + 1,): agent i has entries ``start[i]`` to ``start[i + 1]``, by cost. slot (E,) int32. cost
    (E,). begin (m + 1,), agent (E,) int32, paid (E,): the same of each slot. slot_of (n,), agent_of (m,):
    the matching, -1 for none. matched (n,): the entry of an agent's pair. stop (n,), until (m,): the end of
    the entries within the limit. distance (m,): any path from a slot to a free one has at least so many
    agents. seen (n,): 0 where an agent is reached, else -1. queue (n,), slots (m,): agents left over or
    reached, and slots reached.
    """

    start: Array
    slot: Array
    cost: Array
    begin: Array
    agent: Array
    paid: Array
    slot_of: Array
    agent_of: Array
    matched: Array
    stop: Array
    until: Array
    distance: Array
    seen: Array
    queue: Array
    slots: Array


@kernel
def cut(p: Listed, limit: float) -> int:
    """Drop pairs beyond the limit and match agents with free slots; return how many others are queued."""
    for j in range(p.agent_of.size):
        p.until[j] = _end(p.paid, p.begin[j], p.begin[j + 1], limit)
    for i in range(p.slot_of.size):
        p.stop[i] = _end(p.cost, p.start[i], p.start[i + 1], limit)
        if p.slot_of[i] >= 0 and p.matched[i] >= p.stop[i]:
            p.agent_of[p.slot_of[i]] = -1
            p.slot_of[i] = -1
    n_free = 0
    for i in range(p.slot_of.size):
        if p.slot_of[i] < 0 and not _take_free(p, i):
            p.queue[n_free] = i
            n_free += 1
    return n_free


@kernel
def match_some(p: Listed, first: int, n_free: int) -> tuple[int, int]:
    """Let queued agents take slots until that read as much as measuring the distances, or one cannot.

    first, n_free: where the queue begins, a ring, and how many wait; returns both. If an agent cannot, the
    second is minus the number of agents ``queue[:count]`` that are too many for their slots within the
    limit; these have ``seen == 0``, others -1. Time: O(entries within the limit).
    """
    n = p.slot_of.size
    left = _measure(p)
    while n_free > 0 and left > 0:
        i = p.queue[first]
        first, n_free = (first + 1) % n, n_free - 1
        left -= p.stop[i] - p.start[i]
        e, distance = _nearest(p, i)
        if e < 0:
            return 0, -_reach(p, i)
        j = p.slot[e]
        other = p.agent_of[j]
        p.slot_of[i], p.agent_of[j], p.matched[i], p.distance[j] = j, i, e, distance
        if other >= 0:
            p.slot_of[other] = -1
            p.queue[(first + n_free) % n] = other
            n_free += 1
    return first, n_free


@kernel(forceinline=True)
def _end(cost: Array, first: int, stop: int, limit: float) -> int:
    """Return the first entry beyond the limit, by bisection."""
    while first < stop:
        middle = (first + stop) // 2
        if cost[middle] <= limit:
            first = middle + 1
        else:
            stop = middle
    return first


@kernel(forceinline=True)
def _take_free(p: Listed, i: int) -> bool:
    """Match an agent with its cheapest free slot, if it has one."""
    for e in range(p.start[i], p.stop[i]):
        j = p.slot[e]
        if p.agent_of[j] < 0:
            p.slot_of[i], p.agent_of[j], p.matched[i] = j, i, e
            return True
    return False


@kernel(forceinline=True)
def _nearest(p: Listed, i: int) -> tuple[int, int]:
    """Return an agent's entry of least distance and the distance of its slot once it is taken.

    The entry is -1 if none leads to a free slot: a slot's distance is at most the number of matched agents,
    thus less than that of slots while one of these is free.
    """
    best, least, second = -1, p.agent_of.size, p.agent_of.size
    for e in range(p.start[i], p.stop[i]):
        distance = p.distance[p.slot[e]]
        if distance < least:
            best, least, second = e, distance, least
        elif distance < second:
            second = distance
    return best, second + 1


@kernel
def _measure(p: Listed) -> int:
    """Measure the distances of all slots, breadth first from the free ones; return what it read."""
    m = p.agent_of.size
    count, position, read = 0, 0, m
    for j in range(m):
        p.distance[j] = m
        if p.agent_of[j] < 0:
            p.distance[j] = 0
            p.slots[count] = j
            count += 1
    while position < count:
        j = p.slots[position]
        position += 1
        read += p.until[j] - p.begin[j]
        for k in range(p.begin[j], p.until[j]):
            own = p.slot_of[p.agent[k]]
            if own >= 0 and p.distance[own] == m:
                p.distance[own] = p.distance[j] + 1
                p.slots[count] = own
                count += 1
    return read


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
