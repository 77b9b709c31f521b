"""Data of an enumeration: the graph, the subspaces that were solved, and workspace.

*Agents* are the shorter side, each of which is assigned; *slots* the longer side and, where rows may
stay unassigned, one private slot for each row. Slots without an agent are *spare*. In the square
problem with a dummy agent for each spare slot all assignments are complete; dummies are alike, so
one dual, minus ``top``, serves them all, and ``top`` is the price of every spare slot.

Numbers are pairs of limbs, see ``numbers``; names that end in ``_low`` are the low limbs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsap.types import Array

#: More than any number.
FAR = 1 << 62
#: What ``owner`` says of other slots: spare; to be filled by the search; kept by an agent throughout.
SPARE, OPEN, KEPT = -1, -2, -3


class Graph(NamedTuple):
    """Allowed pairs with their costs.

    first (R + 1,): the entries of agent i are ``first[i]`` to ``first[i + 1]``, by slot. slot, cost
    (E,). spare_cost (T,): what a slot costs if it stays spare. private: the first private slot; T if
    there is none. by_slots: rows of the user's problem are slots, and agents its columns.
    """

    first: Array
    slot: Array
    cost: Array
    cost_low: Array
    spare_cost: Array
    spare_cost_low: Array
    private: int
    by_slots: bool


class Nodes(NamedTuple):
    """Subspaces that were solved, each with the best of its assignments.

    slot_of (N, R): that assignment. offset, n_free (N,): its *free* agents are rows ``offset`` to
    ``offset + n_free`` of ``rows``; the others keep their slots throughout the subspace. parent, barred:
    the entry (``Graph``) that the subspace excludes, in addition to those of its ancestors. top: see above.
    cost: of the assignment.
    rows (P, 8): see ``AGENT``.
    """

    slot_of: Array
    offset: Array
    n_free: Array
    parent: Array
    barred: Array
    top: Array
    top_low: Array
    cost: Array
    cost_low: Array
    rows: Array


#: Columns of ``Nodes.rows``: an agent and its slot; their duals u and v, which prove the optimum of the
#: subspace; and a bound: the agent's pair cannot be changed for less.
AGENT, SLOT, U, U_LOW, V, V_LOW, BOUND, BOUND_LOW = range(8)


class Work(NamedTuple):
    """The subspace at hand, and workspace of its search.

    owner (T,): the agent of a slot, or SPARE, OPEN, KEPT. decided (T,): see ``ties``. off (E,): excluded
    entries. order (R,): free agents, from ``START`` on. at, u, bound (R,), v (T,): as in ``Nodes``.
    scalar: see ``TOP``.
    label, source, entry (T + 1,): distance of a slot, the agent it comes from (R: dummies) and, of
    the dummies, which are number T, the spare slot; seen: the clock when they were set, settled.
    heap, heap_low, item: a priority queue of slots. done: slots settled. changed: agents with new
    bounds. opened: slots that are OPEN. near: all entries, then those within a budget (see
    ``cycles``); those of agent i that count are ``near[begin[i]:end[i]]``. core_slot, core_slack (E,):
    slots and slacks of the core of these; agent i has those from ``core_begin[i]`` to ``core_end[i]``.
    marked, chosen (R,): see ``cycles``. changed is also the list of agents in ``cycles``. edge_slot,
    edge_agent: see ``ties``. counts: see ``CLOCK``.
    """

    owner: Array
    decided: Array
    off: Array
    at: Array
    u: Array
    u_low: Array
    v: Array
    v_low: Array
    bound: Array
    bound_low: Array
    scalar: Array
    label: Array
    label_low: Array
    source: Array
    seen: Array
    settled: Array
    heap: Array
    heap_low: Array
    item: Array
    done: Array
    changed: Array
    opened: Array
    order: Array
    near: Array
    begin: Array
    chosen: Array
    end: Array
    core_begin: Array
    core_end: Array
    core_slot: Array
    core_slack: Array
    core_slack_low: Array
    marked: Array
    edge_slot: Array
    edge_agent: Array
    counts: Array


class Queue(NamedTuple):
    """Subspaces by the costs of their assignments.

    cost, node (Q,): a heap, the first at 0. worst (k,): the smallest costs of subspaces that
    were solved, a heap with the largest of them at 0: no answer costs more.
    """

    cost: Array
    cost_low: Array
    node: Array
    worst: Array
    worst_low: Array


#: Positions in ``Work.counts``: clock, heap size, settled, changed, open slots, the spare slot by
#: which dummies were reached, the first free agent, the node at hand, that of near entries (-1: none);
#: then, of the whole, a node whose children are not all solved (-1: none), its next row, rows, nodes,
#: queue, answers, smallest costs, searches, lists scanned; the first agent at hand; whether the cap is
#: a guess; and how many more children are looked at before a pause, none up to 0.
CLOCK, HEAP, DONE, CHANGED, OPENED, ENTRY, START, LOADED, NARROW = range(9)
PENDING, PLACE, ROWS, NODES, QUEUE, ANSWERS, WORST, SEARCHES, SCANS, BASE, GUESSED, TURNS = range(9, 21)
COUNTS = 21
#: Positions in ``Work.scalar``: the price of spare slots, the distance found, and the cap: subspaces that
#: cost more are dropped.
TOP, TOP_LOW, FOUND, FOUND_LOW, CAP, CAP_LOW = range(6)

# Nodes for each answer, and the most agents in all of them, that room is set aside for.
_NODES, _ROOM = 3, 1 << 20


def new_nodes(capacity: int, n_agents: int, count: int) -> Nodes:
    """Return room for ``capacity`` nodes, which grows without copies as long as it is not large.

    count: the answers wanted. Room beyond is set aside for some nodes of each; unused, it takes no memory.
    """
    most = max(capacity, min(_NODES * count, _ROOM // max(1, n_agents)))
    n_rows = 2 * n_agents + capacity
    names = Nodes._fields[1:-1]
    one = {name: np.empty(most, np.int64)[:capacity] for name in names}
    rows = np.empty((max(n_rows, min(most * n_agents, _ROOM)), 8), np.int64)[:n_rows]
    return Nodes(slot_of=np.empty((most, n_agents), np.int32)[:capacity], **one, rows=rows)


def grown(nodes: Nodes, work: Work) -> Nodes:
    """Return the nodes with room for more nodes, or more of their rows, whatever is short."""
    *made, rows = nodes
    if work.counts[NODES] == len(nodes.offset):
        made = [_longer(array, 2 * len(array)) for array in made]
    if work.counts[ROWS] + len(work.at) > len(rows):
        rows = _longer(rows, 2 * len(rows) + len(work.at))
    return Nodes._make((*made, rows))


def _longer(array: Array, length: int) -> Array:
    """Return the array with more room: what was set aside, or a copy."""
    if array.base is not None and len(array.base) >= length:
        longer: Array = array.base[:length]
        return longer
    room = np.empty((length, *array.shape[1:]), array.dtype)
    room[: len(array)] = array
    return room


def new_queue(capacity: int, count: int) -> Queue:
    """Return an empty queue for ``count`` answers; each node is in it at most once."""
    sizes = (*[capacity + 2] * 3, count, count)
    return Queue._make(np.empty(size, np.int64) for size in sizes)


def grown_queue(queue: Queue, capacity: int) -> Queue:
    """Return the queue, a longer one unless it has room for so many nodes."""
    if len(queue.node) >= capacity + 2:
        return queue
    larger = new_queue(capacity, 0)
    for old, new in zip(queue[:3], larger[:3], strict=True):
        new[: len(old)] = old
    return larger._replace(worst=queue.worst, worst_low=queue.worst_low)


def new_work(graph: Graph) -> Work:
    """Return workspace for a graph; nothing is assigned."""
    n_agents, n_slots, n_entries = len(graph.first) - 1, len(graph.spare_cost), len(graph.slot)

    def zeros(size: int) -> Array:
        return np.zeros(size, np.int64)

    agents = {
        name: zeros(n_agents)
        for name in (
            *("at", "order", "marked", "begin", "end", "core_begin", "core_end", "chosen"),
            *("u", "u_low", "bound", "bound_low"),
        )
    }
    slots = {name: zeros(n_slots) for name in ("v", "v_low", "decided", "opened")}
    more = {name: zeros(n_slots + 1) for name in ("label", "label_low", "source", "seen", "settled", "done")}
    counts = zeros(COUNTS)
    counts[[LOADED, NARROW, PENDING]] = -1
    core = {name: zeros(n_entries) for name in ("core_slot", "core_slack", "core_slack_low")}
    near = zeros(2 * n_entries)
    near[:n_entries] = np.arange(n_entries)
    queue = {name: zeros(n_entries + 2 * n_slots + 2) for name in ("heap", "heap_low", "item")}
    return Work(
        **agents,
        **slots,
        **more,
        **queue,
        **core,
        owner=np.full(n_slots, SPARE if n_slots > n_agents else KEPT),
        off=np.zeros(n_entries, np.bool_),
        scalar=np.array([0, 0, 0, 0, FAR, 0]),
        changed=zeros(n_agents + 1),
        edge_slot=zeros(n_entries + n_slots + 1),
        edge_agent=zeros(n_entries + n_slots + 1),
        counts=counts,
        near=near,
    )
