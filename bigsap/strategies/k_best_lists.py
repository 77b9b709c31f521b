"""Lists of the pairs that the k best assignments can use, with exact costs as integers.

With duals u, v of a solve, ``slack[i, j] = cost[i, j] - u[i] - v[j]`` is at least 0, and an assignment
costs at least the optimum plus its largest slack. So pairs of small slack suffice, and the answer says
whether they did: the last assignment must cost less than any with a pair that is not listed.

Costs are counted in a unit, a power of two of which all listed costs are multiples, less duals that
are multiples of it too. If their digits span too many bits for the kernels' integers, the unit is
coarser, and the numbers are rounded; ``Listed.rounded`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np

from bigsap.engine.k_best.numbers import BITS, MASK
from bigsap.engine.k_best.state import Graph
from bigsap.errors import OptionError, OverflowRiskError
from bigsap.proof.exact import three_sum
from bigsap.proof.row_pass import kept_pairs
from bigsap.sources.base import CostSource, Sparse, read_while
from bigsap.types import Array

# Rows sampled for the slack that lists a certain number of pairs a row.
_SAMPLE = 64
# A thousand times the rounding of a slack, as a share of the numbers involved.
_ROUNDING = 2.0**-43
# Slacks are compared as doubles.
_ABOVE = 1.0 + 2.0**-40
# Memory that a listed pair takes in all: its costs, and the workspace of the enumeration.
PAIR_BYTES = 300
# Bits of the kernels' sums: both limbs, less one for the sign.
_SUM_BITS = 2 * BITS - 1


@dataclass(frozen=True)
class Task:
    """A problem with an optimal assignment and duals, all in the minimising sense.

    source: the costs (n, m), of which ``sign`` times each is minimised. col4row (n,). u (n,), v (m,).
    prices: (n,) of leaving rows unassigned, or None. threads: of a pass over the costs. check: called now
    and then, or None; what it raises ends the work. memory: bytes for the listed pairs, None without limit.
    """

    source: CostSource
    sign: int
    col4row: Array
    u: Array
    v: Array
    prices: Array | None
    threads: int
    check: Callable[[], None] | None = None
    memory: int | None = None

    @property
    def by_slots(self) -> bool:
        """Whether the rows are the longer side, and columns the agents."""
        n, m = self.source.shape
        return self.prices is None and n > m

    @property
    def integer(self) -> bool:
        """Whether the costs are whole numbers of an integer type."""
        source = self.source
        dtype = source.entries().costs.dtype if isinstance(source, Sparse) else source.dtype
        return dtype.kind in "iu"


@dataclass(frozen=True)
class Listed:
    """The graph of the listed pairs, and what its numbers mean.

    at: (R,), the slot of each agent in the optimal assignment. base, exponent: an assignment that
    costs c in the graph costs ``(base + c) * 2**-exponent``, if the numbers are not ``rounded``.
    beyond: assignments with a pair that is not listed cost at least this in the graph; None if all
    pairs are listed. rows, columns, costs: the pairs, signed. slip: at most 0, what rounded
    duals can take from the cost of an assignment.
    """

    graph: Graph
    at: Array
    base: int
    exponent: int
    beyond: int | None
    rounded: bool
    rows: Array
    columns: Array
    costs: Array
    slip: int

    def limit_for(self, cost: int) -> float:
        """Return a slack: assignments with a pair above it cost more than this in the graph."""
        return float(np.ldexp(float(cost - self.slip + 4), -self.exponent)) * _ABOVE

    def cost_in(self, other: Listed, cost: int) -> int | None:
        """Return a cost of another graph of the same problem in this one, rounded up; None if rounded."""
        if self.rounded or other.rounded:
            return None
        shift = self.exponent - other.exponent
        total = other.base + cost
        units = total << shift if shift >= 0 else -(-total >> -shift)
        return units - self.base


def listed(task: Task, per_row: int = 0, limit: float | None = None) -> Listed:
    """Return the lists of about ``per_row`` pairs for each agent, or of all pairs.

    limit: instead, of all pairs of at most this slack.
    """
    n, m = task.source.shape
    u, v = _duals(task)
    every_pair = per_row >= max(n, m) or isinstance(task.source, Sparse)
    if limit is None:
        limit = np.inf if every_pair else _limit(task, u, v, per_row)
    rows, columns, costs = _pairs(task, u, v, limit)
    if task.prices is not None:
        free = np.flatnonzero(np.isfinite(task.prices))
        rows, columns = np.concatenate((rows, free)), np.concatenate((columns, m + free))
        costs = np.concatenate((costs, task.sign * task.prices[free].astype(costs.dtype)))
        v = np.concatenate((v, np.zeros(n, v.dtype)))
    every = np.concatenate((u, v))
    if task.integer:
        high, low, exponent = *_limbs_of_integers(costs - u[rows] - v[columns]), 0
        whole, rounded = [int(x) for x in every.tolist()], False
    else:
        exponent, rounded = _exponent(costs, u, v, rows, columns, longer=u if task.by_slots else v)
        units = np.rint(np.ldexp(every, exponent))
        whole = [int(x) for x in units.tolist()]
        every = np.ldexp(units, -exponent)
        high, low = _limbs(three_sum(costs, -every[rows], -every[len(u) + columns]), exponent)
    beyond = None
    slip = (n + 1) * min(0, min((int(h) << BITS) + int(x) for h, x in _least(high, low)))
    if limit < np.inf:
        beyond = int(np.floor(np.ldexp(limit, exponent))) - 2 + slip
    graph, at = _graph(task, rows, columns, high, low, whole)
    return Listed(graph, at, sum(whole), exponent, beyond, rounded, rows, columns, costs, slip)


def _duals(task: Task) -> tuple[Array, Array]:
    """Return the duals; exactly 0 and nowhere above it on the longer side, where a side is longer."""
    n, m = task.source.shape
    u, v = task.u, task.v
    if task.integer:
        u, v = (x if x.dtype.kind == "i" else np.rint(x).astype(np.int64) for x in (u, v))
    if task.by_slots:
        u = np.where(task.col4row < 0, 0, np.minimum(u, 0)).astype(u.dtype)
    elif n < m or task.prices is not None:
        left = np.ones(m, np.bool_)
        left[task.col4row[task.col4row >= 0]] = False
        v = np.where(left, 0, np.minimum(v, 0)).astype(v.dtype)
    return u, v


def _limit(task: Task, u: Array, v: Array, per_row: int) -> float:
    """Return the slack below which a sample of rows has so many pairs for each agent."""
    n, m = task.source.shape
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.intp))
    block = np.empty((len(rows), m), task.source.dtype)
    read_while(task.source, task.check or (lambda: None), rows, slice(0, m), block)
    slack = (task.sign * block.astype(np.float64) - u[rows][:, None]) - v
    count = max(1, per_row * len(rows) * min(n, m) // n)
    if count >= slack.size:
        return np.inf
    return float(np.partition(slack, count, axis=None)[count])


def _pairs(task: Task, u: Array, v: Array, limit: float) -> tuple[Array, Array, Array]:
    """Return rows, columns and signed costs of all allowed pairs of at most this slack, by row.

    Those assigned are among them.
    """
    if isinstance(task.source, Sparse):
        return _listed_pairs(task)
    room = _Room(task.memory)
    largest = max((float(np.abs(x).max()) for x in (u, v) if x.size), default=0.0)
    if limit < np.inf:
        limit += _ROUNDING * (abs(limit) + 4 * largest)
    kind = np.int64 if task.integer else np.float64

    def keep(start: int, first: int, block: Array) -> tuple[Array, Array]:
        signed = block if task.sign > 0 else -block.astype(kind)
        rows = slice(start, start + len(block))
        slack = (signed - u[rows].astype(np.float64)[:, None]) - v[first : first + block.shape[1]]
        kept = slack <= limit
        if limit == np.inf:
            kept &= signed < np.inf  # a slack may overflow
        mine = task.col4row[rows]
        (here,) = np.nonzero((mine >= first) & (mine < first + block.shape[1]))
        kept[here, mine[here] - first] = True
        room.take(int(np.count_nonzero(kept)))
        return signed, kept

    check = task.check
    tick = None if check is None else lambda _done: check()
    rows, columns, costs = kept_pairs(task.source, keep, threads=task.threads, tick=tick)
    return rows, columns, costs.astype(kind)


def too_much(what: str, memory: int | None) -> OptionError:
    """Return the error where a ranking needs more memory than there is."""
    allowed = f"for these costs they need more than the {memory} bytes that there are or memory_limit allows"
    return OptionError(f"{what}; {allowed}")


class _Room:
    """The pairs that memory still holds."""

    def __init__(self, memory: int | None) -> None:
        self._memory, self._lock = memory, Lock()
        self._left = np.inf if memory is None else memory // PAIR_BYTES

    def take(self, pairs: int) -> None:
        """Count pairs. Raises OptionError where all of them are too many."""
        with self._lock:
            self._left -= pairs
        if self._left < 0:
            raise too_much(f"ranking lists pairs, {PAIR_BYTES} bytes each", self._memory)


def _listed_pairs(task: Task) -> tuple[Array, Array, Array]:
    """Return all pairs of sparse costs, by row and column."""
    assert isinstance(task.source, Sparse)
    start, columns, costs = task.source.entries()
    _Room(task.memory).take(len(columns))
    rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
    signed = task.sign * costs.astype(np.int64 if task.integer else np.float64)
    keep = np.abs(signed) < np.inf
    rows, columns, signed = rows[keep], columns[keep].astype(np.intp), signed[keep]
    order = np.lexsort((columns, rows))
    return rows[order], columns[order], signed[order]


def _exponent(
    costs: Array, u: Array, v: Array, rows: Array, columns: Array, *, longer: Array
) -> tuple[int, bool]:
    """Return the exponent of the unit, ``2**-exponent``, and whether it is too coarse for some cost.

    longer: the duals of slots, which are costs of dummies.
    """
    slack = np.abs((costs - u[rows]) - v[columns])
    largest = max(float(slack.max(initial=0.0)), float(np.abs(longer).max(initial=0.0)))
    terms = 16 * (len(u) + len(v) + 2)
    fraction, exponent = np.frexp(costs[costs != 0])
    digits = np.ldexp(fraction, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    size = max((float(np.abs(x).max()) for x in (u, v, costs) if x.size), default=0.0)
    allowed = 1000 - int(np.frexp(size)[1])
    if largest > 0:
        allowed = min(allowed, _SUM_BITS - terms.bit_length() - int(np.frexp(largest)[1]))
    if not digits.size:  # of zeros, any unit: fine enough for what longer lists hold
        return min(allowed, _SUM_BITS), False
    needed = int((53 - exponent - lowest).max())
    return min(max(0, needed), allowed), needed > allowed


def _limbs(parts: tuple[Array, Array, Array], exponent: int) -> tuple[Array, Array]:
    """Return the sums of three parts, in units, as limbs; each part is rounded to the unit."""
    high = np.zeros(parts[0].shape, np.int64)
    low = np.zeros_like(high)
    for part in parts:
        units = np.rint(np.ldexp(part, exponent))
        above = np.trunc(np.ldexp(units, -BITS))  # of the sign of units: the rest is exact
        if not (np.abs(above) < 2.0**BITS).all():
            raise OverflowRiskError("costs and prices are too far apart for exact sums of this problem")
        high += above.astype(np.int64)
        low += (units - np.ldexp(above, BITS)).astype(np.int64)
        high += low >> BITS
        low &= MASK
    return high, low


def _limbs_of_integers(values: Array) -> tuple[Array, Array]:
    return values >> BITS, values & MASK


def _least(high: Array, low: Array) -> list[tuple[int, int]]:
    """Return the smallest number of these, if there is any."""
    if not high.size:
        return [(0, 0)]
    (places,) = np.nonzero(high == high.min())
    return [(int(high.min()), int(low[places].min()))]


def _graph(
    task: Task, rows: Array, columns: Array, high: Array, low: Array, duals: list[int]
) -> tuple[Graph, Array]:
    """Return the graph by agents, and the slots of the optimal assignment."""
    n, m = task.source.shape
    agents, slots, n_agents, n_slots = rows, columns, n, m if task.prices is None else m + n
    at = task.col4row.astype(np.int64)
    spare = [-x for x in duals[n:]]
    if task.by_slots:
        agents, slots, n_agents, n_slots = columns, rows, m, n
        at = np.full(m, -1)
        (assigned,) = np.nonzero(task.col4row >= 0)
        at[task.col4row[assigned]] = assigned
        spare = [-x for x in duals[:n]]
    elif task.prices is not None:
        (left,) = np.nonzero(at < 0)
        at[left] = m + left
    if n_agents == n_slots:
        spare = [0] * n_slots  # no slot is ever spare
    order = np.lexsort((slots, agents))
    first = np.concatenate(([0], np.cumsum(np.bincount(agents, minlength=n_agents)))).astype(np.int64)
    graph = Graph(
        first,
        slots[order].astype(np.int64),
        high[order],
        low[order],
        np.array([x >> BITS for x in spare], np.int64),
        np.array([x & MASK for x in spare], np.int64),
        m if task.prices is not None else n_slots,
        task.by_slots,
    )
    return graph, at
