"""Search of a ranking: lists of pairs, and enumerations on them that find and prove the best assignments."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from bigsap.engine.k_best.enumerate import DONE, FULL, GUESS, TOO_LARGE, enumerate_best
from bigsap.engine.k_best.numbers import BITS, LIMIT, MASK
from bigsap.engine.k_best.state import (
    ANSWERS,
    CAP,
    CAP_LOW,
    GUESSED,
    NODES,
    ROWS,
    SCANS,
    SEARCHES,
    TURNS,
    grown,
    grown_queue,
    new_nodes,
    new_queue,
    new_work,
)
from bigsap.errors import OptionError, OverflowRiskError
from bigsap.progress import Stopped
from bigsap.proof.k_best import prove_duals, prove_order
from bigsap.strategies.k_best_found import Found, Known, doubt, sure
from bigsap.strategies.k_best_lists import PAIR_BYTES, Listed, Task, listed, too_much
from bigsap.strategies.k_best_saved import State
from bigsap.types import Array

# Pairs listed for each agent at first, and the factor if they do not suffice; and how many more pairs in
# all a doubling of k takes: a few agents have more changes to choose from.
_PER_ROW, _MORE = 4, 4
_PER_DOUBLING = 16
# Assignments enumerated first; the factor to the next stage, whose last cost is guessed with a margin.
_FEW, _STAGE, _MARGIN = 16, 4, 1.03
# Assignments beyond the k-th that are compared if costs were rounded.
_BEYOND = 64
# Pairs listed of all subspaces that are solved between two calls of ``check``, and the most subspaces.
_PAIRS, _TURNS = 1 << 22, 1024


def searched(task: Task, count: int, known: Known | None) -> Search:
    """List pairs and enumerate, with longer lists until the last answer needs no other pair.

    The last cost, once it is known or guessed, says which pairs any better assignment can use, and limits
    the next enumeration.
    """
    n, m = task.source.shape
    count = min(count, 1 + _most(task, count))
    per_row = max(_PER_ROW, math.ceil(_PER_DOUBLING * math.log2(count + 1) / max(1, min(n, m))))
    lists, cap, by_cost = listed(task, per_row), None, False
    while True:
        found = _found(lists, count, task, cap, known)
        wanted = found.wanted
        if lists.beyond is None or (wanted is not None and wanted < lists.beyond):
            return found
        by_cost = wanted is not None and not by_cost
        if wanted is not None and by_cost:
            shorter = lists
            lists = listed(task, limit=shorter.limit_for(wanted))
            cap = lists.cost_in(shorter, wanted)
        else:
            per_row *= _MORE
            lists, cap = listed(task, per_row), None


def _most(task: Task, enough: int) -> int:
    """Return a number that the assignments do not exceed, or one from ``enough`` on."""
    n, m = task.source.shape
    choices = max(n, m) + (task.prices is not None)  # each row or column of the shorter side
    found, left = 1, min(n, m) if task.prices is None else n
    while left > 0 and found < enough:
        found, left = found * choices, left - 1
    return found


def _found(lists: Listed, count: int, task: Task, cap: int | None, known: Known | None) -> Search:
    """Enumerate ``count`` assignments; with rounded numbers as many more as may change places.

    cap: a cost in the graph that so many have at most, if one is known.
    """
    search = Search(lists, count, task, cap, known)
    more = count
    while lists.rounded and len(search.answers) == more:
        if search.cost_of(-1) - search.cost_of(count - 1) > doubt(lists):
            break
        if more >= 4 * count + _BEYOND:
            raise OverflowRiskError(
                "costs differ by too many orders of magnitude for the exact order of ties; round them"
            )
        more += _BEYOND
        search = Search(lists, more, task, known=known)
    return search


class Search:
    """One enumeration on lists.

    answers: nodes of the best assignments, in order. exhausted: whether there are fewer than asked for.
    others: whether assignments besides the answers were found. wanted: pairs that assignments of this cost
    can use must be listed: the last cost, or a guess of it before the enumeration of all. known: gets what
    is proved at each pause.
    """

    def __init__(
        self, lists: Listed, count: int, task: Task, cap: int | None = None, known: Known | None = None
    ) -> None:
        self.known = known
        self.lists, self.exhausted, self.check, self.memory = lists, False, task.check, task.memory
        self.wanted: int | None = None
        self.proved = 0  # subspaces whose duals are checked
        self.answers = _room(count)
        few, margin = count if cap is not None else _stage(count, 1), _MARGIN
        status = self._run(few, cap)
        while status == GUESS or (status == DONE and len(self.answers) == few < count):
            # So many assignments cost no more than this.
            n_found, first = len(self.answers), self.cost_of(0)
            more = (self._cap() if status == GUESS else self.cost_of(-1)) - first
            few = _stage(count, n_found)
            growth = (math.log(few) / math.log(max(2, n_found))) ** 2
            ties = None if status == GUESS else first
            margin = 2 * margin if status == GUESS else _MARGIN  # a gap in the costs is soon crossed
            cap = first + math.ceil(margin * growth * more) if more else ties
            if few == count and cap is not None and lists.beyond is not None and cap >= lists.beyond:
                self.wanted = cap
                return
            status = self._run(few, cap)
        if status != DONE:
            raise OverflowRiskError("costs and prices are too far apart for exact sums of this problem")
        self.exhausted = len(self.answers) < count
        if not self.exhausted:
            self.wanted = self.cost_of(-1)
        self._prove()

    def _prove(self) -> None:
        """Check every answer, and what was solved besides, by code of its own."""
        self._prove_new(self.check)
        self._prove_order()

    def _prove_order(self) -> None:
        left = np.ones(self.work.counts[NODES], np.bool_)
        left[self.answers] = False
        self.others = bool(left.any())
        prove_order(self.nodes, self.answers, np.flatnonzero(left))

    def _prove_new(self, check: Callable[[], None] | None = None) -> None:
        """Check the subspaces that were solved since the last time."""
        n_nodes = int(self.work.counts[NODES])
        prove_duals(self.lists.graph, self.nodes, np.arange(self.proved, n_nodes), check)
        self.proved = n_nodes

    def _run(self, count: int, cap: int | None) -> int:
        """Enumerate so many, with a guessed cap of the costs if there is one; return the last status."""
        graph, kept = self.lists.graph, None if self.known is None else self.known.kept
        answers, self.proved = _room(count), 0
        self.answers = answers[:0]
        before = None if kept is None else kept.next(graph, answers)
        if before is None:
            self.work, self.nodes = new_work(graph), new_nodes(64, len(graph.first) - 1, count)
            self.queue = new_queue(len(self.nodes.offset), count)
            self.work.at[:] = self.lists.at
            if cap is not None and cap >> BITS < LIMIT:
                self.work.counts[GUESSED] = 1
                self.work.scalar[[CAP, CAP_LOW]] = cap >> BITS, cap & MASK
        else:
            self.nodes, self.queue, self.work = before
        saving = nullcontext() if kept is None else kept.saving(lambda: self._state(answers))
        try:
            with saving:
                # Until all that was read is proved again, it has no answers that a stop could return.
                self._prove_new(self.check)
                self.answers = answers[: self.work.counts[ANSWERS]]
                status = self._enumerate(answers)
        except Stopped:
            self._keep()
            raise
        if status != TOO_LARGE:
            self._keep()
        return status

    def _state(self, answers: Array) -> State:
        return self.nodes, self.queue, self.work, answers

    def _enumerate(self, answers: Array) -> int:
        """Fill ``answers``; return the last status."""
        graph, work, known = self.lists.graph, self.work, self.known
        turns = 0 if self.check is None else 2 + min(_TURNS, _PAIRS // (len(graph.slot) + 1))
        status = FULL
        while status == FULL:
            if self.check is not None:
                self.check()
            work.counts[TURNS] = turns
            status = enumerate_best(graph, self.nodes, self.queue, work, answers)
            self.answers = answers[: work.counts[ANSWERS]]
            if known is not None and status != TOO_LARGE:
                self._prove_new()
                known.see(self._sure())
            if status == FULL:
                self._need_room()
                self.nodes = grown(self.nodes, work)
                self.queue = grown_queue(self.queue, len(self.nodes.offset))
        return int(status)

    def _sure(self) -> int:
        return sure(self.lists, len(self.answers), self.cost_of)

    def _keep(self) -> None:
        """Let a stop return what is proved."""
        if self.known is not None:
            self._prove_order()
            self.known.keep(self._sure(), self.found)

    def found(self) -> Found:
        """Return the answers."""
        costs = [self.cost_of(place) for place in range(len(self.answers))]
        return Found(self.lists, costs, self.nodes.slot_of[self.answers], self.stats)

    def _need_room(self) -> None:
        """Raise OptionError where memory does not hold the subspaces twice, as it must while they grow."""
        nodes, (n_nodes, n_rows) = self.nodes, self.work.counts[[NODES, ROWS]].tolist()
        if n_nodes < len(nodes.offset) and n_rows + len(self.work.at) <= len(nodes.rows):
            return  # a pause
        taken = sum(array[:1].nbytes * n_nodes for array in nodes[:-1]) + nodes.rows[:1].nbytes * n_rows
        if self.memory is not None and 2 * taken + PAIR_BYTES * len(self.lists.rows) > self.memory:
            raise too_much(f"ranking keeps subspaces, {n_nodes} so far", self.memory)

    def _cap(self) -> int:
        high, low = self.work.scalar[[CAP, CAP_LOW]].tolist()
        return int((high << BITS) + low)

    def cost_of(self, place: int) -> int:
        """Return the cost of an answer in the graph."""
        node = self.answers[place]
        return (int(self.nodes.cost[node]) << BITS) + int(self.nodes.cost_low[node])

    @property
    def stats(self) -> dict[str, int]:
        counts = self.work.counts
        return {
            "searches": int(counts[SEARCHES]),
            "scans": int(counts[SCANS]),
            "subspaces": int(counts[NODES]),
        }


def _stage(count: int, n_found: int) -> int:
    """Return how many of ``count`` assignments are enumerated next, when so many are known."""
    few = _FEW
    while few <= n_found:
        few *= _STAGE
    return few if 2 * few <= count else count


def _room(count: int) -> Array:
    """Return room for the answers; OptionError where memory has none."""
    try:
        return np.empty(count, np.int64)
    except (MemoryError, ValueError):
        raise OptionError(f"k={count} assignments do not fit into memory") from None
