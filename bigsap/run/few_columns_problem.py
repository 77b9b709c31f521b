"""Problems with capacities where few columns take many rows each, and costs that kernels can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bigsap import policy
from bigsap.errors import OverflowRiskError
from bigsap.proof.row_pass import stream
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Resident, Transposable, integral
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.filling import fill_of
from bigsap.types import Array

#: Whole numbers below this have exact sums in float64, of few columns.
_EXACT = 2**38


@dataclass(frozen=True)
class Wanted:
    """A problem with capacities, or with demands.

    source: as the user has it. capacity (m,) or demand (n,), the other is None. gated: prices of rows
    that may stay unassigned. start: (m,) prices in the minimising sense, or None.
    """

    source: CostSource
    capacity: Array | None
    demand: Array | None
    gated: ClippedCosts | None
    start: Array | None

    @property
    def shape(self) -> tuple[int, int]:
        """The user's shape."""
        return int(self.source.shape[0]), int(self.source.shape[1])

    @property
    def n_few(self) -> int:
        """The number of columns, or of rows with demands, that take several."""
        return self.shape[1] if self.demand is None else self.shape[0]

    @property
    def n_many(self) -> int:
        """The number of rows, or of columns with demands, that take at most one."""
        return self.shape[0] if self.demand is None else self.shape[1]

    @property
    def integer(self) -> bool:
        """Whether all costs and prices are whole numbers."""
        return integral(self.source if self.gated is None else self.gated)

    def at_most_prices(self, u: Array) -> Array:
        """Return row duals, minimising sense, that are not above the prices of open places."""
        if self.gated is None:
            return u
        prices = self.gated.prices.astype(np.float64)
        found: Array = np.minimum(u, -prices if self.gated.maximize else prices)
        return found

    def open_places(self) -> Array | None:
        """Return how many places of each row may stay open, with demands; None if none may."""
        if self.demand is None or self.gated is None:
            return None
        return np.where(np.isfinite(self.gated.prices), self.demand, 0)

    def owners(self) -> Array | None:
        """Return the row of each place that may stay open; None if none may."""
        count = self.open_places()
        return None if count is None else np.repeat(np.arange(count.size), count)


def fits(wanted: Wanted, room: float) -> bool:
    """Return whether so few columns take so many rows that this way is the faster one."""
    n, m = wanted.shape
    few, many = (m, n) if wanted.demand is None else (n, m)
    places = wanted.capacity if wanted.demand is None else wanted.demand
    if not few or not many or places is None or few > policy.MOST_CONTRACTED:
        return False
    rows_a_column = min(int(places.sum()), many) / few
    least = max(policy.LEAST_ROWS_A_COLUMN, policy.ROWS_A_COLUMN_SHARE * few)
    if rows_a_column < least or n * m < policy.LEAST_CONTRACTED_COSTS:
        return False
    open_places = wanted.open_places()
    if open_places is not None:  # rows of their own, in a copy
        n_many = many + int(open_places.sum())
        return n_many * few * 8 + (few + 1) ** 2 * policy.CONTRACTED_PAIR_BYTES <= room
    lists = (few + 1) ** 2 * policy.CONTRACTED_PAIR_BYTES
    if lists > room:
        return False
    held = in_place(wanted.gated.source if wanted.gated is not None else wanted.source)
    if wanted.demand is not None and not isinstance(wanted.source, Transposable | Resident):
        held = False
    return held or n * m * 8 + lists <= room


def in_place(source: CostSource) -> bool:
    """Return whether kernels reach single costs: in memory, or computed for their share of a row's time."""
    if isinstance(source, Resident) and source.resident() is not None:
        return True
    fill = fill_of(source)
    return fill is not None and fill.in_parts


def at_hand(source: CostSource, tick: Callable[[], None]) -> CostSource:
    """Return a source whose single costs kernels can read: a copy in memory if need be."""
    if in_place(source):
        return source
    costs = np.empty(source.shape, source.dtype)

    def work(start: int, first: int, block: Array) -> None:
        costs[start : start + len(block), first : first + block.shape[1]] = block

    stream(source, lambda: work, threads=1, tick=lambda _: tick())
    return ArraySource(costs)


def with_open_places(wanted: Wanted, tick: Callable[[], None]) -> CostSource:
    """Return the costs with rows and columns exchanged, and a row for each place that may stay open.

    Such a row takes the column that its place belongs to, at its price, or the further column, which
    costs it nothing. Raises OverflowRiskError for integers that float64 does not hold.
    """
    owner, gated = wanted.owners(), wanted.gated
    assert owner is not None
    assert gated is not None
    n, m = wanted.shape
    forbidden = -np.inf if gated.maximize else np.inf
    if gated.source.dtype.kind in "iu" and (np.abs(gated.prices[owner]) >= _EXACT).any():
        raise OverflowRiskError("prices beyond float64")
    costs = np.empty((m + owner.size, n))

    def work(start: int, first: int, block: Array) -> None:
        if block.dtype.kind in "iu" and block.size and not -_EXACT < block.min() <= block.max() < _EXACT:
            raise OverflowRiskError("integers beyond float64")
        costs[first : first + block.shape[1], start : start + len(block)] = block.T

    stream(gated.source, lambda: work, threads=1, tick=lambda _: tick())
    costs[m:] = forbidden
    costs[m + np.arange(owner.size), owner] = gated.prices[owner]
    return ArraySource(costs)


def transposed(source: CostSource, tick: Callable[[], None]) -> CostSource:
    """Return the costs with rows and columns exchanged: a copy, if the source has no such form."""
    other = source.transposed() if isinstance(source, Transposable) else None
    if other is not None and in_place(other):
        return other
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is not None:
        return ArraySource(np.ascontiguousarray(matrix[:, : source.shape[1]].T))
    if other is not None:
        return other
    costs = np.empty(source.shape[::-1], source.dtype)

    def work(start: int, first: int, block: Array) -> None:
        costs[first : first + block.shape[1], start : start + len(block)] = block.T

    stream(source, lambda: work, threads=1, tick=lambda _: tick())
    return ArraySource(costs)
