"""Assignments that an enumeration has found: which of them are the best of all, and the user's costs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import OverflowRiskError
from bigsap.progress import Progress
from bigsap.strategies.k_best_lists import Listed, Task
from bigsap.strategies.k_best_saved import Kept
from bigsap.types import Array


@dataclass(frozen=True)
class Found:
    """The first assignments of a graph, in order.

    costs: of each in the graph. slots (f, R): of the agents. stats: of the enumeration.
    """

    lists: Listed
    costs: Sequence[int]
    slots: Array
    stats: dict[str, int]

    def ranked(self, count: int, task: Task) -> tuple[Array, Array]:
        """Return ``count`` costs in the user's sense, and columns of the rows."""
        lists = self.lists
        col4row = self._columns(task)
        if lists.rounded:
            return self._by_exact_sums(col4row, count, task)
        col4row = col4row[:count]
        sums = [lists.base + cost for cost in self.costs[:count]]
        if task.integer:
            signed: list[Any] = [task.sign * total for total in sums]
            fits = all(abs(total) < 2**63 for total in signed)
            return np.array(signed, np.int64 if fits else object), col4row
        unit = 1 << abs(lists.exponent)
        if lists.exponent >= 0:
            signed = [task.sign * _as_float(total, unit) + 0.0 for total in sums]
        else:
            signed = [task.sign * _as_float(total * unit, 1) for total in sums]
        return np.array(signed, np.float64), col4row

    def _columns(self, task: Task) -> Array:
        """Return the answers as columns of the rows."""
        slots = self.slots
        n, m = task.source.shape
        if not task.by_slots:
            return np.where(slots < m, slots, -1).astype(np.intp)
        col4row = np.full((len(slots), n), -1, np.intp)
        np.put_along_axis(col4row, slots.astype(np.intp), np.arange(m)[None, :], axis=1)
        return col4row

    def _by_exact_sums(self, col4row: Array, count: int, task: Task) -> tuple[Array, Array]:
        """Order the answers by exact sums of their costs."""
        from fractions import Fraction

        lists = self.lists
        pairs = zip(lists.rows.tolist(), lists.columns.tolist(), strict=True)
        of_pair = dict(zip(pairs, lists.costs.tolist(), strict=True))
        m = task.source.shape[1]
        sums = []
        for columns in col4row.tolist():
            places = [(i, j if j >= 0 else m + i) for i, j in enumerate(columns)]
            sums.append(sum((Fraction(of_pair[place]) for place in places if place in of_pair), Fraction(0)))
        order = sorted(range(len(sums)), key=lambda place: (sums[place], col4row[place].tolist()))[:count]
        costs = [task.sign * _as_float(*sums[place].as_integer_ratio()) + 0.0 for place in order]
        return np.array(costs), col4row[order]


class Known:
    """The best assignments that are proved so far: what a ranking that is stopped returns.

    wanted: how many are asked for. progress: gets how many there are. kept: for checkpoints, None without
    any. found, count: the first ``count`` of these, by exact sums; None before there is any.
    """

    def __init__(self, wanted: int, progress: Progress, kept: Kept | None = None) -> None:
        self.wanted, self.progress, self.kept = wanted, progress, kept
        self.found: Found | None = None
        self.count = 0

    def see(self, count: int) -> None:
        """Report that so many are known."""
        self.progress.ranked = max(self.progress.ranked, min(count, self.wanted))

    def keep(self, count: int, found: Callable[[], Found]) -> None:
        """Keep the first ``count`` of these, if fewer were known."""
        if min(count, self.wanted) > self.count:
            self.found, self.count = found(), min(count, self.wanted)


def sure(lists: Listed, count: int, cost_of: Callable[[int], int]) -> int:
    """Return how many of the first ``count`` assignments of a graph are the best of all, in order.

    cost_of: the cost of each in the graph. Others cost no less than the last one, or than what is not listed.
    """
    limit = lists.beyond
    if count and lists.rounded:
        # Each of the numbers may be half a unit off.
        last = cost_of(count - 1)
        limit = (last if limit is None else min(limit, last)) - doubt(lists)
    return count if limit is None else bisect_left(range(count), limit, key=cost_of)


def doubt(lists: Listed) -> int:
    """Return a difference of rounded costs above which their order is that of the exact ones."""
    return 2 * (len(lists.at) + 1)


def _as_float(numerator: int, denominator: int) -> float:
    """Return the quotient, rounded; OverflowRiskError if float64 does not hold it."""
    try:
        return numerator / denominator
    except OverflowError:
        raise OverflowRiskError("the sum of the costs leaves float64") from None
