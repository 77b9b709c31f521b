"""The smallest limit of the costs within which a complete assignment exists.

The pairs of at most some cost are listed, by bounds of blocks of columns for points. Within the lists
a matching (``engine.bottleneck``) decides whether a limit suffices. The limit is halved
between one that does and one that does not, by rank: each answer moves its end further, since a
complete matching proves its own largest cost, and agents that are too many for their slots stay so up
to the least cost of a pair that leads out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.bottleneck.matching import Listed, cut, least_beyond, match_some, sort_rows
from bigsap.engine.core.team import Team
from bigsap.engine.lists.below_price import Found, RowReader, run_below
from bigsap.engine.lists.bounds import blocks_of, fit, separated_columns
from bigsap.engine.lists.layout import PANEL
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.lists.reading import costs_in
from bigsap.engine.sparse.ordering import local_ordering, ordered
from bigsap.errors import OverflowRiskError
from bigsap.problem import Problem
from bigsap.proof.refusals import refuse_invalid
from bigsap.proof.row_pass import kept_pairs
from bigsap.sources.base import Selectable, Separable, Sparse
from bigsap.sources.filling import fill_of
from bigsap.sources.sparse.entries import by_columns
from bigsap.types import Array

# Pairs listed for each agent at first, judged by a sample of rows; and their factor if these do not
# suffice. The threshold of n points in the plane grows like log(n)**0.75 / sqrt(n) (Leighton and Shor,
# 1989), so beyond exp(_LOG_AGENTS) agents the pairs grow like log(n)**1.5.
_PER_AGENT, _LOG_AGENTS, _MORE, _SAMPLE = 32, 10.0, 3, 64
# Entries that a thread collects at a time, in addition to one row's.
_ROOM = 1 << 16
# Entries beyond which the middle of a range is judged by a sample.
_RANGE = 1 << 16

Tick = Callable[[], None]
#: Takes the columns of rows, -1 for none, and their signed costs.
Tell = Callable[[tuple[Array, Array]], None]


@dataclass(frozen=True)
class Threshold:
    """The smallest limit, and what proves it.

    value: signed, as the problem minimises. rows, columns, costs: all allowed pairs of at most this
    cost, in the user's sense. violator: rows that are too many for their columns below the limit.
    """

    value: Any
    rows: Array
    columns: Array
    costs: Array
    violator: Array


def threshold(problem: Problem, threads: int, tick: Tick, tell: Tell) -> Threshold | None:
    """Return the smallest limit of a complete assignment's costs; None if there is none.

    tell: called with each complete assignment, none with a larger limit than the last.
    Time: a pass over the costs or, for points, over the pairs that bounds leave open, and some twenty
    matchings on the lists. Memory: some 70 bytes a listed pair.
    """
    per_agent = _first_per_agent(min(problem.shape))
    before: _Search | None = None
    while True:
        limit = _sampled(problem, per_agent)
        rows, columns, costs = _pairs(problem, limit, threads, tick)
        search = _Search(problem, rows, columns, costs, (tick, tell), before)
        found = search.smallest()
        if found is not None:
            value, violator = found
            keep = costs <= value
            tick()
            return Threshold(value, rows[keep], columns[keep], problem.sign * costs[keep], violator)
        if limit == np.inf:
            return None
        per_agent, before = per_agent * _MORE, search


def _first_per_agent(agents: int) -> int:
    """Return how many pairs are listed for each agent at first."""
    return int(_PER_AGENT * max(1.0, math.log(max(1, agents)) / _LOG_AGENTS) ** 1.5)


def _sampled(problem: Problem, per_agent: int) -> Any:
    """Return the cost up to which a sample of rows has so many pairs for each agent."""
    n, m = problem.shape
    if isinstance(problem.source, Sparse) or per_agent >= max(n, m):
        return np.inf
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.intp))
    block = np.empty((len(rows), m), problem.source.dtype)
    problem.source.read(rows, slice(0, m), block)
    signed = _signed(block, problem)
    count = max(1, per_agent * len(rows) * min(n, m) // n)
    if count >= signed.size:
        return np.inf
    # Rows differ: of each its own cost, and the largest of most of them.
    each = min(max(1, count // len(rows)), m - 1)
    return np.quantile(np.partition(signed, each, axis=1)[:, each], 0.9, method="higher")


def _signed(block: Array, problem: Problem) -> Array:
    if problem.integer:
        whole = block.astype(np.int64)
        if problem.sign < 0 and whole.size and whole.min() == np.iinfo(np.int64).min:
            raise OverflowRiskError(
                f"a cost of {whole.min()} with maximize leaves int64 when its sign is changed"
            )
        return problem.sign * whole
    return block.astype(np.float64) if problem.sign > 0 else -block.astype(np.float64)


def _pairs(problem: Problem, limit: Any, threads: int, tick: Tick) -> tuple[Array, Array, Array]:
    """Return rows, columns and signed costs of all allowed pairs of at most this cost, by row."""
    source = problem.source
    if isinstance(source, Sparse):
        start, columns, costs = source.entries()
        rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
        signed = _signed(costs, problem)
        keep = signed < np.inf
        return rows[keep], columns[keep].astype(np.int64), signed[keep]
    if limit < np.inf and problem.sign > 0 and problem.shape[0] >= policy.BOTTLENECK_BOUNDED_ROWS:
        found = _pairs_by_bounds(problem, float(limit), threads, tick)
        if found is not None:
            return found

    def kept(start: int, first: int, block: Array) -> tuple[Array, Array]:
        signed = _signed(block, problem)
        if signed.dtype.kind != "f":
            return signed, signed <= limit
        refuse_invalid(block, start + np.arange(len(block)), problem.maximize, first)
        return signed, (signed <= limit) & (signed < np.inf)

    return kept_pairs(source, kept, threads=threads, tick=lambda _: tick())


def _pairs_by_bounds(
    problem: Problem, limit: float, threads: int, tick: Tick
) -> tuple[Array, Array, Array] | None:
    """Return these pairs of points, by bounds of blocks of columns; None where bounds do not apply."""
    source = problem.source
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is None or not isinstance(source, Selectable) or terms.y.shape[0] > policy.FEW_COORDINATES:
        return None
    n, m = problem.shape
    order = compact_order(terms.y.T, tick).astype(np.int32)
    ordered = source.select(np.arange(n), order)
    fill = None if ordered is None else fill_of(ordered)
    if ordered is None or fill is None or source.dtype != np.float64:
        return None
    blocks = blocks_of(ordered)
    if not blocks.offset.size or not isinstance(ordered, Separable):
        return None
    with Team(threads) as team:
        fit(blocks, separated_columns(ordered), np.zeros(m), team)
        slots = np.empty((1, 1))
        costs = costs_in(slots, np.dtype(np.float64), there=False)
        reader = RowReader(costs, fill.address, fill.context, np.float64(1.0), m, blocks)
        f = Found(
            ids=np.empty((threads, m + _ROOM), np.int32),
            costs=np.empty((threads, m + _ROOM)),
            taken=np.zeros(threads, np.int64),
            done=np.zeros(threads, np.int64),
            pairs=np.zeros(threads, np.int64),
            raw=np.empty((threads, PANEL * 8), np.uint8),
            near=np.empty((threads, PANEL)),
            bound=np.empty((threads, blocks.offset.size)),
        )
        return _collected(reader, f, team, np.full(n, np.nextafter(limit, np.inf)), order, tick)


def _collected(
    reader: RowReader, f: Found, team: Team, limits: Array, order: Array, tick: Tick
) -> tuple[Array, Array, Array]:
    """Run ``run_below`` over all rows, some at a time."""
    n, width = limits.size, len(f.taken)
    size = np.zeros(n, np.int64)
    ids: list[Array] = []
    costs: list[Array] = []
    for first in range(0, n, 1024 * width):
        part = np.arange(first, min(n, first + 1024 * width))
        f.done[:] = 0
        of_thread: list[list[tuple[Array, Array]]] = [[] for _ in range(width)]
        while int(f.done.sum()) < part.size:
            team.run_some(width, run_below, part, limits, limits, size[first : first + part.size], reader, f)
            for thread, taken in enumerate(f.taken.tolist()):
                of_thread[thread].append((f.ids[thread, :taken].copy(), f.costs[thread, :taken].copy()))
            tick()
        for piece in (piece for pieces in of_thread for piece in pieces):
            ids.append(piece[0])
            costs.append(piece[1])
    return np.repeat(np.arange(n), size), order[np.concatenate(ids)].astype(np.int64), np.concatenate(costs)


class _Search:
    """The smallest limit within lists. Agents are the shorter side.

    before: the search of shorter lists, all of which did not suffice.
    """

    def __init__(
        self,
        problem: Problem,
        rows: Array,
        columns: Array,
        costs: Array,
        calls: tuple[Tick, Tell],
        before: _Search | None,
    ) -> None:
        n, m = problem.shape
        self.turned, self.shape, self.before = n > m, (n, m), before
        self.tick, self.tell = calls
        agents, slots, count = (columns, rows, m) if self.turned else (rows, columns, n)
        if self.turned:
            order = np.argsort(agents, kind="stable")
            agents, slots, costs = agents[order], slots[order], costs[order]
        start = np.concatenate(([0], np.cumsum(np.bincount(agents, minlength=count)))).astype(np.int64)
        slots, costs = slots.astype(np.int32), costs.copy()
        self.order = None
        if before is not None:
            self.order = before.order
        elif count >= policy.BOTTLENECK_BOUNDED_ROWS:
            self.order = local_ordering(start, slots, max(n, m))
        if self.order is not None:
            start, slots, costs = ordered(self.order, start, slots, costs)
        sort_rows(start, slots, costs)
        self._make(start, slots, costs, max(n, m))

    def _make(self, start: Array, slots: Array, costs: Array, n_slots: int) -> None:
        count = len(start) - 1
        begin = np.concatenate(([0], np.cumsum(np.bincount(slots, minlength=n_slots)))).astype(np.int64)
        agents, paid = np.empty(slots.size, np.int32), np.empty_like(costs)
        by_columns(start, slots, costs, begin[:-1].copy(), agents, paid)
        sort_rows(begin, agents, paid)
        sizes = (count, n_slots, count, count, n_slots, n_slots, count, count, n_slots)
        rest = [np.zeros(size, np.int64) for size in sizes]
        self.lists = Listed._make((start, slots, costs, begin, agents, paid, *rest))
        self.lists.slot_of[:] = self.lists.agent_of[:] = -1

    def matching(self) -> Array:
        """Return each agent's slot, -1 for none."""
        if self.order is None:
            return self.lists.slot_of.copy()
        slot_of = np.empty_like(self.lists.slot_of)
        matched = self.lists.slot_of
        slot_of[self.order.rows] = np.where(matched >= 0, self.order.columns[matched], -1)
        return slot_of

    def _complete(self) -> Any:
        """Tell of a complete matching; return its largest cost."""
        agents = np.arange(self.lists.slot_of.size) if self.order is None else self.order.rows
        slot_of, own = self.matching(), self.lists.cost[self.lists.matched]
        rows, columns = (slot_of[agents], agents) if self.turned else (agents, slot_of[agents])
        column_of_row, costs = np.full(self.shape[0], -1, np.intp), np.zeros(self.shape[0], own.dtype)
        column_of_row[rows], costs[rows] = columns, own
        self.tell((column_of_row, costs))
        return own.max()

    def _take(self, slot_of: Array) -> None:
        """Begin with pairs of shorter lists."""
        p = self.lists
        if self.order is not None:
            given = slot_of[self.order.rows]
            slot_of = np.where(given >= 0, self.order.place[given], -1)
        agent = np.repeat(np.arange(slot_of.size), np.diff(p.start))
        (at,) = np.nonzero(p.slot == slot_of[agent])
        p.slot_of[agent[at]], p.agent_of[p.slot[at]], p.matched[agent[at]] = p.slot[at], agent[at], at

    def smallest(self) -> tuple[Any, Array] | None:
        """Return the smallest limit of a complete matching, and rows that prove it."""
        p, before, self.before = self.lists, self.before, None
        start = p.start[:-1]
        if not p.cost.size or (start == p.start[1:]).any():
            return None
        # No limit below this leaves each agent a pair; with as many slots, nor each slot.
        low = p.cost[start].max()
        if self.shape[0] == self.shape[1]:
            best = np.full(p.agent_of.size, p.cost.max())
            np.minimum.at(best, p.slot, p.cost)
            low = max(low, best.max())
        if before is not None and before.lists.cost.size:
            low = max(low, before.lists.cost.max())
            self._take(before.matching())
        if self._match(p.cost.max()):
            return None
        high = self._halve(low, self._complete())
        return high, self._violator(high)

    def _match(self, limit: Any) -> int:
        """Extend the matching within the limit; return how many agents are too many for their slots."""
        first, left = 0, cut(self.lists, limit)
        while left > 0:
            self.tick()
            first, left = match_some(self.lists, first, left)
        return -int(left)

    def _halve(self, low: Any, high: Any) -> Any:
        """Return the smallest limit that suffices, from ``low`` to ``high``, whose matching is at hand."""
        p = self.lists
        inside = p.cost[(p.cost >= low) & (p.cost < high)]
        while inside.size:
            self.tick()
            few = inside if inside.size <= _RANGE else inside[:: inside.size // _RANGE]
            middle = np.partition(few, few.size // 2)[few.size // 2]
            count = self._match(middle)
            if count == 0:
                high = self._complete()
            else:
                inside = inside[inside > middle]
                other = least_beyond(p, count)
                if other >= 0:  # nothing below its cost suffices
                    inside = inside[inside >= p.cost[other]]
            inside = inside[inside < high]
        return high

    def _violator(self, high: Any) -> Array:
        """Return rows that are too many for their columns of costs below the limit."""
        p = self.lists
        agents, slots = np.ones(len(p.slot_of), np.bool_), np.ones(len(p.agent_of), np.bool_)
        below = p.cost[p.cost < high]
        if below.size:
            limit = below.max()
            count = self._match(limit)
            agents[:] = False
            agents[p.queue[:count]] = True
            slots[p.slot[np.repeat(agents, np.diff(p.start)) & (p.cost <= limit)]] = False
        # Where agents are columns: all rows that cost them as much are left to the other columns.
        (rows,) = np.nonzero(slots if self.turned else agents)
        if self.order is not None:
            rows = (self.order.columns if self.turned else self.order.rows)[rows]
        return rows
