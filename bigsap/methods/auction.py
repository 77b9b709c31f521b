"""The forward auction, plain and with epsilon scaling: a baseline, and a piece to learn from.

Free rows bid for columns, all at once (Bertsekas 1988). With the last epsilon every row is within
epsilon of its best column, so the matching is within n epsilon of the optimum. ``ssp`` then begins
from these prices and pairs: it keeps what is tight, searches for the rest, and is exact.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.changed import changed
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.dense import bidding as B
from bigsap.errors import OptionError
from bigsap.methods.parts import all_costs
from bigsap.methods.placement import device_bids
from bigsap.methods.warm import Warm
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.sources.base import Resident

#: What ``variant`` can be.
VARIANTS = ("auto", "plain", "scaled")
#: The first epsilon is this share of the costs' range, each further one of the last.
_FIRST, _SHRINK = 1 / 8, 1 / 5
#: The last epsilon times the rows is this share of the range. Below it bids are many and small
#: where a search from the same prices is short.
_LAST = 1 / 8
#: Bids a row in one phase after which the rest is left to searches.
_MOST = 1000
_FIRST_BUDGET, _SLICE_SECONDS = 64, 0.1


@dataclass
class Sale:
    """An auction that is over. counts: for ``stats["auction"]``: phases, bids, the last epsilon,
    rows without a column. warm: where ``ssp`` begins."""

    warm: Warm
    counts: dict[str, Any]


def run_auction(
    problem: Problem, monitor: Monitor, arithmetic: Arithmetic, variant: str
) -> Sale | None:
    """Prices and pairs by bids; None where all costs are equal or forbidden, which needs none.

    variant: "plain", one phase with the last epsilon; "scaled" (and "auto") phases with
    falling ones, of square problems: with fewer rows than columns, columns that nobody bids for
    must keep their first price. All costs are read once into memory (n_rows * n_columns), unless
    they are there, or on a device, which then bids: the same bids. By one thread; the same for any
    number. Raises OptionError for more rows than
    columns, and what invalid costs raise.
    """
    n, m = problem.shape
    if n > m:
        raise OptionError(
            'method "auction" needs no more rows than columns, or costs that give columns as'
            f" cheaply as rows; the shape is {problem.shape}: solve the transpose"
        )
    bidders: Bidders = device_bids(problem, arithmetic.price, monitor.look) or HostBids(
        problem, monitor, arithmetic.price
    )
    (low, high), bad = bidders.range()
    if bad < n:
        _complain(problem, bad)
    if not low < high:
        return None
    width = float(high) - float(low)
    price, grid = arithmetic.price, arithmetic.grid
    last = _on_grid(_LAST * width / n, grid)
    epsilon = last
    if variant != "plain" and n == m:
        epsilon = max(last, _on_grid(_FIRST * width, grid))
    progress = monitor.progress
    progress.stage = "start"
    v = np.zeros(m, price)
    phases = bids = 0
    while True:
        a = B.auction(n, m, v)
        progress.epsilon = epsilon
        kind = price.type
        # A path of bids from any column to one at the top has a pair of each row at most.
        floor = float(a.v.min(initial=0)) - (n + 1) * (2 * width + epsilon)
        floor = max(floor, -float(1 << 58)) if price.kind == "i" else floor
        bidders.bid(kind(width), kind(epsilon), kind(floor), _MOST * n, a)
        phases, bids = phases + 1, bids + int(a.at.bids)
        if epsilon <= last:
            break
        epsilon = max(last, _on_grid(epsilon * _SHRINK, grid))
    counts = {
        "phases": phases, "bids": bids, "epsilon": epsilon,
        "open": int((a.column_of_row == S.FREE).sum()),
    }  # fmt: skip
    return Sale(Warm(a.v, a.column_of_row.astype(np.intp)), counts)


def _on_grid(epsilon: float, grid: float) -> float:
    """A multiple of the grid on which sums are exact, and no smaller than it."""
    return max(grid, float(np.floor(epsilon / grid) * grid)) if grid else epsilon


class Bidders(Protocol):
    """Where costs are gone through: ``HostBids``, or a device."""

    def range(self) -> tuple[Any, int]: ...

    def bid(self, spread: Any, epsilon: Any, floor: Any, most: int, a: B.Auction) -> None: ...


class HostBids:
    """Bids by one thread."""

    def __init__(self, problem: Problem, monitor: Monitor, price: np.dtype[Any]) -> None:
        source, m = problem.source, problem.shape[1]
        matrix = source.resident() if isinstance(source, Resident) else None
        self.costs = all_costs(problem, monitor) if matrix is None else matrix[:, :m]
        self.problem, self.monitor, self.price = problem, monitor, price

    def range(self) -> tuple[Any, int]:
        """The smallest and the largest allowed signed cost, the first not below the second where
        there is none; the first row with an invalid cost, or how many rows there are."""
        sign, (n, _) = self.problem.sign, self.problem.shape
        low, high = np.inf, -np.inf
        for row, given in enumerate(self.costs):
            signed = sign * given.astype(np.float64)
            if not (signed > -np.inf).all():
                return (low, high), row
            signed = signed[signed < np.inf]
            if signed.size:
                low, high = min(low, float(signed.min())), max(high, float(signed.max()))
            if row % 64 == 0:
                self.monitor.tick()
        return (low, high), n

    def bid(self, spread: Any, epsilon: Any, floor: Any, most: int, a: B.Auction) -> None:
        """Bid until no row is free, or it takes too long: these rows stay open."""
        sign, budget = self.price.type(self.problem.sign), _FIRST_BUDGET
        infinity = S.infinity(self.price)
        while True:
            clock = time.perf_counter()
            status = B.run_bids(self.costs, sign, infinity, spread, epsilon, floor, most, budget, a)
            self.monitor.progress.assigned = self.problem.shape[0] - int(a.at.count)
            self.monitor.tick()
            if status != S.YIELD:
                return
            ratio = _SLICE_SECONDS / max(time.perf_counter() - clock, 1e-6)
            budget = max(1, int(budget * min(4.0, max(0.05, ratio))))


def _complain(problem: Problem, row: int) -> None:
    """Raise for a row with an invalid cost."""
    costs = np.empty((1, problem.shape[1]), problem.source.dtype)
    problem.source.read(np.array([row]), slice(0, costs.shape[1]), costs)
    problem.check_row(row, costs[0])
    raise changed(f"row {row} had an invalid cost that it no longer has when read again")
