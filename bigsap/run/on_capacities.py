"""A solve in which columns take several rows, or rows several columns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bigsap.checkpoint import Saved
from bigsap.errors import OptionError
from bigsap.memory import usable_memory
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.weights import closer, exact_total
from bigsap.result import Result, Status, pairs_of
from bigsap.row_cache import parse_bytes
from bigsap.run.closed_columns import dual_of_closed
from bigsap.run.conclude import explain
from bigsap.run.few_columns import solve_few_columns
from bigsap.run.few_columns_problem import Wanted, fits
from bigsap.run.fingerprint import identity_with_counts
from bigsap.run.stats import last_report
from bigsap.run.unsearched import unsearched
from bigsap.run.warm_start import parse_warm_start, unmasked_start
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.repeated import (
    counts_of,
    naming_originals,
    no_more_than_listed,
    repeat_columns,
    repeat_rows,
    total_stated,
)
from bigsap.strategies import ON_COLUMNS
from bigsap.types import Array

SolveSum = Callable[[Any, dict[str, Any], Saved | None], Result]

#: Places that no column can fill, summed over all rows; more are refused.
_MOST_OPEN = 1 << 24
#: Options that have no meaning here, and the reason.
_REFUSED = {"cluster": "the search runs in this process; leave it out"}


def refuse_with_capacities(asked: dict[str, Any], options: Options) -> None:
    """Raise OptionError for options that do not go with ``capacity`` or ``demand``."""
    name = "capacity" if asked["capacity"] is not None else "demand"
    for other, reason in _REFUSED.items():
        if asked[other] is not None:
            raise OptionError(f"{other} is not valid with {name}: {reason}")
    if options.objective != "sum":
        raise OptionError(f'objective="{options.objective}" is not valid with {name}: leave it "sum"')
    if options.device not in ("cpu", "auto"):
        raise OptionError(f'device is not valid with {name}: leave it "cpu"')


def solve_capacities(
    source: CostSource,
    asked: dict[str, Any],
    options: Options,
    monitor: Monitor,
    solve_sum: SolveSum,
    saved: Saved | None,
) -> Result:
    """Return the best assignment in which columns take several rows, or rows several columns.

    source: as the user has it. asked: every option of ``solve``. solve_sum: solves a plain problem,
    with options by name. saved: the checkpoint to continue.
    """
    n, m = (int(size) for size in source.shape)
    capacity = None if asked["capacity"] is None else counts_of(asked["capacity"], m, "capacity", "column")
    demand = None if asked["demand"] is None else counts_of(asked["demand"], n, "demand", "row")
    if capacity is not None and demand is not None:
        capacity, demand = one_side_of(capacity, demand)
    one = _OneSolve(source, asked, options, monitor, solve_sum, saved)
    if options.checkpoint is not None or saved is not None:
        one.asked["stands_for"] = identity_with_counts(source, options, capacity, demand)
    return one.by_capacity(capacity) if demand is None and capacity is not None else one.by_demand(demand)


def one_side_of(capacity: Array, demand: Array) -> tuple[Array | None, Array | None]:
    """Return the counts of the side that takes several. Raises OptionError if both do."""
    if (demand == 1).all():
        return capacity, None
    if (capacity == 1).all():
        return None, demand
    raise OptionError(
        "demand is not valid with capacity above 1: one side takes several; leave out the other"
    )


class _OneSolve:
    """One such solve: its costs, its options, and how a plain problem is solved."""

    def __init__(
        self,
        source: CostSource,
        asked: dict[str, Any],
        options: Options,
        monitor: Monitor,
        solve_sum: SolveSum,
        saved: Saved | None,
    ) -> None:
        self.source, self.options, self.monitor, self.solve_sum = source, options, monitor, solve_sum
        self.saved = saved
        self.clock = time.perf_counter()
        self.asked = {**asked, "capacity": None, "demand": None, "device": "cpu"}
        self.asked |= {"shape": None, "args": (), "dtype": None}
        self.shape = (int(source.shape[0]), int(source.shape[1]))
        self.sign = -1 if options.maximize else 1
        limit = options.memory_limit
        self.room = usable_memory() // 4 if limit is None else parse_bytes(limit, "memory_limit") // 2

    # -- columns that take several rows ---------------------------------------------------------

    def by_capacity(self, capacity: Array) -> Result:
        """Solve with capacities (m,)."""
        n, _ = self.shape
        start = self._start()
        if int(capacity.sum()) < n and self.asked["unassigned_cost"] is None:
            return self._too_few(np.arange(n), str(n), int(capacity.sum()), capacity=capacity)
        contracted = self._contracted(capacity, None, start)
        if contracted is not None:
            return contracted
        # A single row leaves a copy free, so that its column has the price 0 where it has room.
        counts = no_more_than_listed(self.source, np.minimum(capacity, max(n, 2)))
        repeated = repeat_columns(self.source, counts, self.room)
        start = None if start is None else np.repeat(start, counts)
        inner = {**self.asked, "time_limit": self._left(), "warm_start": start}
        with naming_originals(None, counts):
            result = self.solve_sum(repeated, inner, self.saved)
        return self._joined(result, capacity, counts)

    def _start(self) -> Array | None:
        """Return the warm start's column prices (m,), in the user's sense."""
        given, problem = self.asked["warm_start"], Problem(self.source, self.options.maximize)
        start = None if given is None else parse_warm_start(unmasked_start(given), problem, several=True)
        return None if start is None else start.v

    def _contracted(self, capacity: Array | None, demand: Array | None, start: Array | None) -> Result | None:
        """Return the result of searches from column to column, where that is the way."""
        options, price = self.options, self.asked["unassigned_cost"]
        if options.method != "auto" or not options.epsilon or options.start not in ("auto", "levels"):
            return None
        saved, room = self.saved, float(self.room)
        if saved is not None:
            if saved.facts.get("method") != ON_COLUMNS:
                return None
            room = math.inf  # the way is chosen already
        gated = None if price is None else ClippedCosts(self.source, price, maximize=options.maximize)
        given = None if start is None or demand is not None else self.sign * start.astype(np.float64)
        wanted = Wanted(self.source, capacity, demand, gated, given)
        if not fits(wanted, room):
            return None
        result = solve_few_columns(wanted, options, self.monitor, saved, self.asked.get("stands_for"))
        if result is None:
            self.saved = None  # not of the other way, which begins anew
        return result

    def _joined(self, result: Result, capacity: Array, counts: Array) -> Result:
        """Return the result of the repeated columns as one of the columns themselves."""
        owner = np.repeat(np.arange(counts.size), counts)
        col4row = (
            np.where(result.col4row >= 0, owner[np.maximum(result.col4row, 0)], -1)
            if owner.size
            else (result.col4row)
        )
        v, v_low = _one_price(result, counts, self.sign)
        bound, gap = _better_bound(result, v, v_low, counts)
        result = replace(
            result,
            **pairs_of(col4row, self.shape[1], capacity, None),
            v=v,
            v_low=v_low,
            bound=bound,
            gap=gap,
            shape=self.shape,
            capacity=capacity,
            stats={**result.stats, "capacities": "repeated"},
        )
        return dual_of_closed(result, self.source)

    # -- rows that take several columns ---------------------------------------------------------

    def by_demand(self, demand: Array | None) -> Result:
        """Solve with demands (n,)."""
        n, m = self.shape
        assert demand is not None
        start = self._start()
        price, prices, needed = self.asked["unassigned_cost"], None, demand
        if price is not None:
            prices = ClippedCosts(self.source, price, maximize=self.options.maximize).prices
            needed = np.where(np.isinf(prices), demand, 0)
        if int(needed.sum()) > m:
            result = self._too_few(np.flatnonzero(needed), total_stated(needed), m, demand=demand)
            return replace(result, unassigned_cost=prices)
        if price is not None:
            _refuse_many_places(demand, m)
        contracted = self._contracted(None, demand, start)
        if contracted is not None:
            return contracted
        repeated = repeat_rows(self.source, demand, self.room)
        inner = {**self.asked, "time_limit": self._left(), "warm_start": start}
        if prices is not None:
            inner["unassigned_cost"] = np.repeat(prices, demand)
        with naming_originals(demand, None):
            result = self.solve_sum(repeated, inner, self.saved)
        owner = np.repeat(np.arange(n), demand)
        chosen = np.full(m, -1, np.intp)
        chosen[result.col_ind] = owner[result.row_ind]
        pairs = pairs_of(chosen, m, None, demand)
        costs = result.costs
        if costs is not None:  # by row, then column
            costs = costs[np.lexsort((result.col_ind, owner[result.row_ind]))]
        first = np.minimum(np.cumsum(demand) - demand, max(owner.size - 1, 0))
        u, u_low = result.u, result.u_low
        violator = np.unique(owner[result.violator]) if owner.size else result.violator
        result = replace(
            result,
            **pairs,
            u=u[first] if owner.size else np.full(n, np.nan),
            u_low=None if u_low is None or not owner.size else u_low[first],
            costs=costs,
            violator=violator,
            message=explain(violator, demand) if violator.size else result.message,
            shape=self.shape,
            demand=demand,
            unassigned_cost=prices,
            stats={**result.stats, "capacities": "repeated"},
        )
        if result.stats.pop("unassigned_rows", None) is not None:
            result.stats["open_places"] = int(demand.sum()) - len(result.row_ind)
        return dual_of_closed(result, self.source)

    # -- both -----------------------------------------------------------------------------------

    def _left(self) -> float | None:
        limit = self.asked["time_limit"]
        return None if limit is None else max(0.0, float(limit) - (time.perf_counter() - self.clock))

    def _too_few(self, rows: Array, wanted: str, places: int, **counts: Any) -> Result:
        """Return the infeasible result of rows that need more places than there are."""
        result = Result.from_assignment(
            None,
            shape=self.shape,
            status=Status.INFEASIBLE,
            message=(
                f"The problem is infeasible: {rows.size} rows need {wanted} places, and all columns together"
                f" have {places}."
            ),
            maximize=self.options.maximize,
            stats=unsearched(self.source, self.options.method, "there are too few places", self.monitor),
            violator=rows,
        )
        chosen = result.row4col if "demand" in counts else result.col4row
        capacity, demand = counts.get("capacity"), counts.get("demand")
        result = replace(result, **pairs_of(chosen, self.shape[1], capacity, demand), **counts)
        last_report(self.monitor, result)
        return result


def _refuse_many_places(demand: Array, m: int) -> None:
    """Raise OptionError where more places than memory holds could never be filled."""
    beyond = np.maximum(demand - m, 0)
    if int(beyond.sum()) > _MOST_OPEN:
        row = int(beyond.argmax())
        raise OptionError(
            f"demand[{row}] is {total_stated(demand[[row]])}, but there are {m} columns: places beyond them"
            f" always stay open; ask for {m} at most"
        )


def _one_price(result: Result, counts: Array, sign: int) -> tuple[Array, Array | None]:
    """Return one price a column, 0 for columns that take no row, and low parts.

    It is the largest of the copies' prices (minimising): that leaves all rows' duals as they are.
    """
    m = counts.size
    taking = np.flatnonzero(counts)
    v = np.zeros(m, result.v.dtype)
    low = None if result.v_low is None else np.zeros(m)
    if result.v.dtype.kind == "f" and np.isnan(result.v).any():
        return np.full(m, np.nan), None
    if not taking.size:
        return v, low
    starts = (np.cumsum(counts) - counts)[taking]
    signed = sign * result.v
    high = np.maximum.reduceat(signed, starts)
    v[taking] = sign * high + 0
    if low is not None and result.v_low is not None:
        largest = signed == np.repeat(high, counts[taking])
        low[taking] = sign * np.maximum.reduceat(np.where(largest, sign * result.v_low, -np.inf), starts) + 0
    return v, low


def _better_bound(result: Result, v: Array, v_low: Array | None, counts: Array) -> tuple[Any, Any]:
    """Return bound and gap of one price a column, where copies had several: the better ones."""
    bound, gap = result.bound, result.gap
    if bound is None or np.isnan(v).any() or np.isnan(result.u).any():
        return bound, gap
    old, new = np.repeat(v, counts), result.v
    if (old == new).all() and (v_low is None or (np.repeat(v_low, counts) == result.v_low).all()):
        return bound, gap
    sign = -1 if result.maximize else 1
    if isinstance(bound, int):
        lows = [
            low
            for low in (result.u_low, v_low if v_low is None else np.repeat(v_low, counts))
            if low is not None
        ]
        total = exact_total([result.u, old, *lows])
        better = sign * max(sign * bound, math.ceil(sign * total))
        return better, None if result.fun is None else abs(result.fun - better)
    terms = [sign * old.astype(np.float64), -sign * new.astype(np.float64)]
    if v_low is not None and result.v_low is not None:
        terms += [sign * np.repeat(v_low, counts), -sign * result.v_low]
    duals = [sign * result.u.astype(np.float64), terms[0]]
    duals += [] if result.u_low is None else [sign * result.u_low]
    duals += [] if v_low is None else [sign * np.repeat(v_low, counts)]
    fun = None if result.fun is None else sign * result.fun
    closest, gap = closer(fun, sign * bound, gap, terms, duals)
    return sign * closest + 0.0, gap
