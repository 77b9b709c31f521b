"""The smallest limit of the costs within which a complete assignment exists.

The pairs of at most some cost are listed, by bounds of blocks of columns for points. Within the lists
a largest matching (``engine.bottleneck``) decides whether a limit suffices. The limit is halved
between one that does and one that does not, by rank: each answer moves its end further, since a
complete matching proves its own largest cost, and agents that are too many for their slots stay so up
to the least cost of a pair that leads out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.bottleneck.matching import Listed, least_beyond, match_within
from bigsap.engine.core.team import Team
from bigsap.engine.lists.below_price import Found, RowReader, run_below
from bigsap.engine.lists.bounds import blocks_of, fit, separated_columns
from bigsap.engine.lists.layout import PANEL
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.lists.reading import costs_in
from bigsap.problem import Problem
from bigsap.proof.row_pass import Work, stream
from bigsap.sources.base import Selectable, Separable, Sparse
from bigsap.sources.filling import fill_of
from bigsap.types import Array

# Pairs listed for each agent at first, judged by a sample of rows; and their factor if these do not
# suffice.
_PER_AGENT, _MORE, _SAMPLE = 24, 3, 64
# Entries that a thread collects at a time, beside one row's.
_ROOM = 1 << 16
# Coordinates up to which bounds exclude most pairs; rows from which they pay.
_FEW_COORDINATES, _LEAST_BOUNDED = 6, 4096
# Entries beyond which the middle of a range is judged by a sample.
_RANGE = 1 << 16

Tick = Callable[[], None]


@dataclass(frozen=True)
class Threshold:
    """The smallest limit, and what proves it.

    value: signed, as the problem minimises. rows, columns, costs: all allowed pairs of at most this
    cost, in the user's sense. violator: rows that are too many for their columns below the limit;
    empty if every complete assignment has a cost of at least this trivially: there is none.
    """

    value: Any
    rows: Array
    columns: Array
    costs: Array
    violator: Array


def threshold(problem: Problem, threads: int, tick: Tick) -> Threshold | None:
    """Return the smallest limit of a complete assignment's costs; None if there is none.

    Time: a pass over the costs or, for points, over the pairs that bounds leave open, and some twenty
    matchings on the lists. Memory: 20 bytes a listed pair.
    """
    per_agent = _PER_AGENT
    while True:
        limit = _sampled(problem, per_agent)
        rows, columns, costs = _pairs(problem, limit, threads, tick)
        found = _Search(problem, rows, columns, costs, tick).smallest()
        if found is not None:
            value, violator = found
            keep = costs <= value
            return Threshold(value, rows[keep], columns[keep], problem.sign * costs[keep], violator)
        if limit == np.inf:
            return None
        per_agent *= _MORE


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
    each = max(1, count // len(rows))
    return np.quantile(np.partition(signed, each, axis=1)[:, each], 0.9, method="higher")


def _signed(block: Array, problem: Problem) -> Array:
    if problem.integer:
        return problem.sign * block.astype(np.int64)
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
    if limit < np.inf and problem.sign > 0 and problem.shape[0] >= _LEAST_BOUNDED:
        found = _pairs_by_bounds(problem, float(limit), threads, tick)
        if found is not None:
            return found
    parts: list[tuple[int, Array, Array, Array]] = []
    lock = threading.Lock()

    def prepare() -> Work:
        def work(start: int, first: int, block: Array) -> None:
            signed = _signed(block, problem)
            keep = (signed <= limit) & (signed < np.inf) if signed.dtype.kind == "f" else signed <= limit
            i, j = np.nonzero(keep)
            with lock:
                parts.append((start * problem.shape[1] + first, i + start, j + first, signed[i, j]))

        return work

    stream(source, prepare, threads=threads, tick=lambda _: tick())
    parts.sort(key=lambda part: part[0])
    rows, columns, costs = (np.concatenate(part) for part in list(zip(*parts, strict=True))[1:])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows, kind="stable")
        rows, columns, costs = rows[order], columns[order], costs[order]
    return rows, columns, costs


def _pairs_by_bounds(
    problem: Problem, limit: float, threads: int, tick: Tick
) -> tuple[Array, Array, Array] | None:
    """Return these pairs of points, by bounds of blocks of columns; None where bounds do not apply."""
    source = problem.source
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is None or not isinstance(source, Selectable) or terms.y.shape[0] > _FEW_COORDINATES:
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
            team.run_some(width, run_below, part, limits, size[first : first + part.size], reader, f)
            for thread, taken in enumerate(f.taken.tolist()):
                of_thread[thread].append((f.ids[thread, :taken].copy(), f.costs[thread, :taken].copy()))
            tick()
        for piece in (piece for pieces in of_thread for piece in pieces):
            ids.append(piece[0])
            costs.append(piece[1])
    return np.repeat(np.arange(n), size), order[np.concatenate(ids)].astype(np.int64), np.concatenate(costs)


class _Search:
    """The smallest limit within lists. Agents are the shorter side."""

    def __init__(self, problem: Problem, rows: Array, columns: Array, costs: Array, tick: Tick) -> None:
        n, m = problem.shape
        self.turned, self.shape, self.tick = n > m, (n, m), tick
        agents, slots, count = (columns, rows, m) if self.turned else (rows, columns, n)
        if self.turned:
            order = np.argsort(agents, kind="stable")
            agents, slots, costs = agents[order], slots[order], costs[order]
        start = np.concatenate(([0], np.cumsum(np.bincount(agents, minlength=count))))
        self._make(start.astype(np.int64), slots.astype(np.int32), costs, max(n, m))

    def _make(self, start: Array, slots: Array, costs: Array, n_slots: int) -> None:
        count = len(start) - 1
        self.lists = Listed(
            start,
            slots,
            costs,
            np.full(count, -1),
            np.full(n_slots, -1),
            np.zeros(count, np.int64),
            *(np.zeros(count + 1, np.int64) for _ in range(4)),
        )

    def smallest(self) -> tuple[Any, Array] | None:
        """Return the smallest limit of a complete matching, and the violating rows below it."""
        p = self.lists
        start = p.start[:-1]
        if not p.cost.size or (start == p.start[1:]).any():
            return None
        # No limit below this leaves each agent a pair; with as many slots, nor each slot.
        low = np.minimum.reduceat(p.cost, start).max()
        if self.shape[0] == self.shape[1]:
            best = np.full(p.agent_of.size, p.cost.max())
            np.minimum.at(best, p.slot, p.cost)
            low = max(low, best.max())
        if match_within(p, low) > 0:
            if match_within(p, p.cost.max()) > 0:
                return None
            high = self._halve(low, p.cost[p.matched].max())
        else:
            high = p.cost[p.matched].max()
        return high, self._violator(high)

    def _halve(self, low: Any, high: Any) -> Any:
        """Return the smallest limit that suffices; ``low`` does not, ``high`` does."""
        p = self.lists
        inside = p.cost[(p.cost > low) & (p.cost < high)]
        while inside.size:
            self.tick()
            few = inside if inside.size <= _RANGE else inside[:: inside.size // _RANGE]
            middle = np.partition(few, few.size // 2)[few.size // 2]
            kept = p.slot_of.copy(), p.agent_of.copy(), p.matched.copy()
            count = match_within(p, middle)
            if count == 0:
                high = p.cost[p.matched].max()
            else:
                low = middle
                next_one = least_beyond(p, count, middle)
                if next_one >= 0:  # nothing below its cost suffices
                    inside = inside[inside >= p.cost[next_one]]
                p.slot_of[:], p.agent_of[:], p.matched[:] = kept
            inside = inside[(inside > low) & (inside < high)]
        return high

    def _violator(self, high: Any) -> Array:
        """Return rows that are too many for their columns of costs below the limit."""
        p = self.lists
        below = p.cost[p.cost < high]
        limit = below.max() if below.size else None
        count = len(p.slot_of) if limit is None else match_within(p, limit)
        agents = np.arange(len(p.slot_of)) if limit is None else p.queue[:count]
        if not self.turned:
            return np.sort(agents).astype(np.intp)
        # Columns with too few rows: all other rows have only the other columns.
        inside = np.zeros(len(p.slot_of), np.bool_)
        inside[agents] = True
        rows = np.ones(self.shape[0], np.bool_)
        if limit is not None:
            entry = np.repeat(inside, np.diff(p.start)) & (p.cost <= limit)
            rows[p.slot[entry]] = False
        return np.flatnonzero(rows)
