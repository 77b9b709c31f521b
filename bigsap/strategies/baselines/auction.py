"""Forward auction, plain and with epsilon scaling, as a baseline and for study.

All free rows bid for columns at once (Bertsekas 1988). With the last epsilon every row is within
epsilon of its best column, so the matching is within n epsilon of the optimum. ``ssp`` then begins
from these prices and pairs: it keeps tight pairs, searches for the remaining rows, and is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.rows.bidding import auction, run_bids
from bigsap.errors import OptionError
from bigsap.memory import usable_memory
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.row_minima import usual_difference
from bigsap.strategies.orientation import inverse, resident
from bigsap.strategies.placement import device_bids, device_name
from bigsap.strategies.start.samples import all_costs
from bigsap.strategies.start.warm import Warm
from bigsap.types import Array

#: Values of ``variant``.
VARIANTS = ("auto", "plain", "scaled")
#: First epsilon as a share of the costs' range, and the factor from each epsilon to the next.
_FIRST, _SHRINK = 1 / 8, 1 / 5
#: The last epsilon times the rows is this share of the range. Below it, bids are many and small where a
#: search from the same prices is short.
_LAST = 1 / 8
#: The last epsilon is too large beyond so many times what the costs of a row usually differ by; then their
#: range counts as that of evenly spread costs, so many times this difference.
_FAR, _RANGE = 64, 4
#: Bids whose epsilon is less than this share of the largest cost would not move its price.
_UNIT = 2.0**-50
#: Pairs that bids examine between two checks of the clock: some hundredths of a second.
_PAIRS = 1 << 25
#: Costs validated between two checks of the clock.
_LOOKED = 1 << 22


def run_auction(
    problem: Problem, monitor: Monitor, arithmetic: Arithmetic, variant: str
) -> tuple[Warm | None, dict[str, Any]]:
    """Return prices and pairs of an auction, from which ``ssp`` begins, and ``stats["auction"]``.

    The counts are phases, bids, the last epsilon, and rows without a column. Returns None and no counts
    where all costs are equal or forbidden, which needs no bids, where one is invalid, which ``ssp``
    reports, or where costs are so far apart that bids cannot tell most of them from each other.

    variant: "plain": one phase with the last epsilon; "scaled" (and "auto"): phases with falling
    epsilons, for square problems only: with fewer rows than columns, columns without bids must keep
    their first price. All costs are read once into memory (n_rows * n_columns), unless they are in
    memory already, or on a device, which then computes the same bids; see ``refuse_many_costs``. Runs
    on one thread, with the same result for any number. No more rows than columns.
    """
    n, m = problem.shape
    price, grid = arithmetic.price, arithmetic.grid
    there = device_bids(problem, price, monitor.look)
    bidders = there or HostBids(problem, price, monitor)
    low, high = map(float, bidders.range())
    width, infinity = high - low, float(S.infinity(price))
    if not 0 < width < infinity:
        return None, {}
    scale = _scale(problem, width)
    if scale / n < _UNIT * width and not grid:
        return None, {}
    most = n * (policy.AUCTION_BIDS if scale == width else policy.AUCTION_BIDS_FAR)
    epsilon = last = _on_grid(_LAST * scale / n, grid)
    if variant != "plain" and n == m:
        epsilon = max(last, _on_grid(_FIRST * scale, grid))
    monitor.progress.stage = "start"
    v, phases, bids = np.zeros(m, price), 0, 0
    while True:
        monitor.progress.epsilon = epsilon
        # A path of bids from any column to one of the highest price has at most one pair of each row.
        floor = max(float(v.min()) - (n + 1) * (2 * width + epsilon), -infinity / 4)
        spread, step, lowest = map(price.type, (width, epsilon, floor))
        row_of_column, made = bidders.bid(v, spread, step, lowest, most)
        phases, bids = phases + 1, bids + made
        if epsilon <= last:
            break
        epsilon = max(last, _on_grid(epsilon * _SHRINK, grid))
    open_rows = n - int((row_of_column != S.FREE).sum())
    counts = {"phases": phases, "bids": bids, "epsilon": epsilon, "open": open_rows}
    return Warm(v, inverse(row_of_column, n)), counts


def _scale(problem: Problem, width: float) -> float:
    """Return the range of costs by which epsilon is chosen: ``width``, or less where a few costs are huge.

    With an epsilon for these, bids would not tell the others apart.
    """
    usual = usual_difference(problem.source)
    far = 0 < _FAR * usual < _LAST * width / problem.shape[0]
    return _RANGE * usual if far else width


def refuse_many_costs(problem: Problem, memory: int | None) -> None:
    """Raise OptionError where the costs, which bids need in memory, exceed ``memory`` bytes.

    memory: None without a ``memory_limit``: then what the machine has; a device reports for itself.
    """
    if resident(problem) is not None or device_name(problem.source) != "cpu":
        return
    allowed = usable_memory() if memory is None else memory
    whose = "this machine or container has" if memory is None else "memory_limit allows"
    n, m = problem.shape
    nbytes = n * m * problem.source.dtype.itemsize
    if nbytes > allowed:
        raise OptionError(
            f'method "auction" needs all costs in memory, {nbytes} bytes; {whose} {allowed}: other'
            " methods need less"
        )


def _on_grid(epsilon: float, grid: float) -> float:
    """Return epsilon rounded down to a multiple of the grid, on which sums are exact, but not to 0."""
    return max(grid, float(np.floor(epsilon / grid) * grid)) if grid else epsilon


class HostBids:
    """Bids computed by one thread."""

    def __init__(self, problem: Problem, price: np.dtype[Any], monitor: Monitor) -> None:
        matrix = resident(problem)
        self.costs = all_costs(problem, monitor) if matrix is None else matrix
        self.sign, self.infinity = price.type(problem.sign), S.infinity(price)
        self.shape, self.monitor = problem.shape, monitor

    def range(self) -> tuple[float, float]:
        """Return the smallest and largest signed cost among allowed pairs.

        Not finite if a cost is invalid. The first is not below the second if no pair is allowed.
        """
        low, high, looked = np.inf, -np.inf, 0
        for costs in self.costs:
            signed = self.sign * costs[: self.shape[1]].astype(np.float64)
            low = np.minimum(low, signed.min())
            high = max(high, signed.max(where=signed < np.inf, initial=-np.inf))
            looked += costs.size
            if looked >= _LOOKED:
                looked = 0
                self.monitor.tick()
        return low, high

    def bid(self, v: Array, spread: Any, epsilon: Any, floor: Any, most: int) -> tuple[Array, int]:
        """Lower prices by bids until no row is free or the limit of bids is reached.

        Rows that are free then stay open. Returns ID (n_columns,), the columns' rows, and the number of
        bids; see ``run_bids``.
        """
        n, m = self.shape
        a, status = auction(n, v), S.YIELD
        terms = (self.sign, self.infinity, spread, epsilon, floor, most, max(1, _PAIRS // m))
        while status == S.YIELD:
            status = run_bids(self.costs, *terms, a)
            self.monitor.progress.assigned = n - int(a.at.count)
            self.monitor.tick()
        return a.row_of_column, int(a.at.bids)
