"""The forward auction, plain and with epsilon scaling: a baseline, and a piece to learn from.

Free rows bid for columns, all at once (Bertsekas 1988). With the last epsilon every row is within
epsilon of its best column, so the matching is within n epsilon of the optimum. ``ssp`` then begins
from these prices and pairs: it keeps what is tight, searches for the rest, and is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.rows.bidding import auction, run_bids
from bigsap.errors import OptionError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.base import Array
from bigsap.strategies.orientation import inverse, refuse_more_rows, resident
from bigsap.strategies.placement import device_bids
from bigsap.strategies.start.samples import all_costs
from bigsap.strategies.start.warm import Warm

#: What ``variant`` can be.
VARIANTS = ("auto", "plain", "scaled")
#: The first epsilon is this share of the costs' range, each further one of the last.
_FIRST, _SHRINK = 1 / 8, 1 / 5
#: The last epsilon times the rows is this share of the range. Below it bids are many and small
#: where a search from the same prices is short.
_LAST = 1 / 8
#: Pairs that bids look at between two looks at the clock: some hundredths of a second.
_PAIRS = 1 << 25
#: Costs judged between two looks at the clock.
_LOOKED = 1 << 22


def run_auction(
    problem: Problem, monitor: Monitor, arithmetic: Arithmetic, variant: str
) -> tuple[Warm | None, dict[str, Any]]:
    """Prices and pairs by bids, from which ``ssp`` begins, and counts for ``stats["auction"]``:
    phases, bids, the last epsilon, rows without a column. None and no counts where all costs are
    equal or forbidden, which needs no bids, or one is invalid, which ``ssp`` says.

    variant: "plain", one phase with the last epsilon; "scaled" (and "auto") phases with
    falling ones, of square problems: with fewer rows than columns, columns that nobody bids for
    must keep their first price. All costs are read once into memory (n_rows * n_columns), unless
    they are there, or on a device, which then bids: the same bids; see ``refuse_many_costs``. By
    one thread; the same for any number. Raises OptionError for more rows than columns.
    """
    refuse_more_rows(problem, "auction")
    n, m = problem.shape
    price, grid = arithmetic.price, arithmetic.grid
    there = device_bids(problem, price, monitor.look)
    bidders = there or HostBids(problem, price, monitor)
    low, high = map(float, bidders.range())
    width, infinity = high - low, float(S.infinity(price))
    if not 0 < width < infinity:
        return None, {}
    epsilon = last = _on_grid(_LAST * width / n, grid)
    if variant != "plain" and n == m:
        epsilon = max(last, _on_grid(_FIRST * width, grid))
    monitor.progress.stage = "start"
    v, phases, bids = np.zeros(m, price), 0, 0
    while True:
        monitor.progress.epsilon = epsilon
        # A path of bids from any column to one at the top has a pair of each row at most.
        floor = max(float(v.min()) - (n + 1) * (2 * width + epsilon), -infinity / 4)
        spread, step, lowest = map(price.type, (width, epsilon, floor))
        row_of_column, made = bidders.bid(v, spread, step, lowest, policy.AUCTION_BIDS * n)
        phases, bids = phases + 1, bids + made
        if epsilon <= last:
            break
        epsilon = max(last, _on_grid(epsilon * _SHRINK, grid))
    open_rows = n - int((row_of_column != S.FREE).sum())
    counts = {"phases": phases, "bids": bids, "epsilon": epsilon, "open": open_rows}
    return Warm(v, inverse(row_of_column, n)), counts


def refuse_many_costs(problem: Problem, memory: int | None) -> None:
    """Raise OptionError where all costs, which bids need in memory, exceed ``memory`` bytes."""
    if memory is None or resident(problem) is not None:
        return
    n, m = problem.shape
    nbytes = n * m * problem.source.dtype.itemsize
    if nbytes > memory:
        raise OptionError(
            f'method "auction" needs all costs in memory, {nbytes} bytes; memory_limit allows'
            f" {memory}: other methods need less"
        )


def _on_grid(epsilon: float, grid: float) -> float:
    """A multiple of the grid on which sums are exact, and no smaller than it."""
    return max(grid, float(np.floor(epsilon / grid) * grid)) if grid else epsilon


class HostBids:
    """Bids by one thread."""

    def __init__(self, problem: Problem, price: np.dtype[Any], monitor: Monitor) -> None:
        matrix = resident(problem)
        self.costs = all_costs(problem, monitor) if matrix is None else matrix
        self.sign, self.infinity = price.type(problem.sign), S.infinity(price)
        self.shape, self.monitor = problem.shape, monitor

    def range(self) -> tuple[float, float]:
        """The smallest and the largest signed cost that is allowed, no finite numbers where one is
        invalid; the first not below the second where there is none."""
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
        """Lower the prices by bids until no row is free, or it takes too long: these rows stay
        open. ID (n_columns,), the columns' rows, and how many bids it took; see ``run_bids``."""
        n, m = self.shape
        a, status = auction(n, v), S.YIELD
        terms = (self.sign, self.infinity, spread, epsilon, floor, most, max(1, _PAIRS // m))
        while status == S.YIELD:
            status = run_bids(self.costs, *terms, a)
            self.monitor.progress.assigned = n - int(a.at.count)
            self.monitor.tick()
        return a.row_of_column, int(a.at.bids)
