"""The forward auction, plain and with epsilon scaling: a baseline, and a piece to learn from.

Rows bid for columns (Bertsekas 1988). With the last epsilon every row is within epsilon of its best
column, so the matching is within n epsilon of the optimum. ``ssp`` then begins from these prices
and pairs: it keeps what is tight, searches for the rest, and is exact.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.dense import bidding as B
from bigsap.errors import OptionError
from bigsap.methods.parts import all_costs
from bigsap.methods.warm import Warm
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.sources.base import Array, Resident

#: What ``variant`` can be.
VARIANTS = ("auto", "plain", "scaled")
#: The first epsilon is this share of the costs' range, each further one of the last.
_FIRST, _SHRINK = 1 / 8, 1 / 5
#: The last epsilon times the rows is this share of the range. Below it bids are many and small
#: where a search from the same prices is short.
_LAST = 1 / 8
#: Bids a row in one phase after which the rest is left to searches.
_MOST = 200
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
    they are there. By one thread; the same for any number. Raises OptionError for more rows than
    columns, and what invalid costs raise.
    """
    n, m = problem.shape
    if n > m:
        raise OptionError(
            'method "auction" needs no more rows than columns, or costs that give columns as'
            f" cheaply as rows; the shape is {problem.shape}: solve the transpose"
        )
    source = problem.source
    matrix = source.resident() if isinstance(source, Resident) else None
    costs = all_costs(problem, monitor) if matrix is None else matrix[:, :m]
    ends = _range(problem, costs, monitor)
    if ends is None:
        return None
    price, grid = arithmetic.price, arithmetic.grid
    width = ends[1] - ends[0]
    last = _on_grid(_LAST * width / n, grid)
    epsilon = last
    if variant != "plain" and n == m:
        epsilon = max(last, _on_grid(_FIRST * width, grid))
    progress = monitor.progress
    progress.stage = "start"
    v: Array = np.zeros(m, price)
    phases = bids = 0
    while True:
        a = B.auction(n, m, v)
        progress.epsilon = epsilon
        _phase(problem, costs, monitor, price, width, epsilon, a)
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


def _range(problem: Problem, costs: Array, monitor: Monitor) -> tuple[float, float] | None:
    """The smallest and the largest allowed signed cost; None where they are equal, or none is.

    Judges every cost.
    """
    low, high = np.inf, -np.inf
    for row, given in enumerate(costs):
        problem.check_row(row, given)
        signed = problem.sign * given.astype(np.float64)
        signed = signed[signed < np.inf]
        if signed.size:
            low, high = min(low, float(signed.min())), max(high, float(signed.max()))
        if row % 64 == 0:
            monitor.tick()
    return (low, high) if low < high else None


def _phase(
    problem: Problem, costs: Array, monitor: Monitor, price: np.dtype[Any], width: float,
    epsilon: float, a: B.Auction,
) -> None:  # fmt: skip
    """Bid with one epsilon; rows that would bid too long stay open."""
    n = problem.shape[0]
    kind = price.type
    # A path of bids from any column to one at the top has a pair of each row at most.
    floor = float(a.v.min(initial=0)) - (n + 1) * (2 * width + epsilon)
    floor = max(floor, -float(1 << 58)) if price.kind == "i" else floor
    args = (kind(problem.sign), S.infinity(price), kind(width), kind(epsilon), kind(floor))
    budget = _FIRST_BUDGET
    while True:
        clock = time.perf_counter()
        status = B.run_bids(costs, *args, _MOST * n, budget, a)
        monitor.progress.assigned = n - int(a.at.count)
        monitor.tick()
        if status != S.YIELD:
            return
        ratio = _SLICE_SECONDS / max(time.perf_counter() - clock, 1e-6)
        budget = max(1, int(budget * min(4.0, max(0.05, ratio))))
