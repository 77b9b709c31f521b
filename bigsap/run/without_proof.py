"""Cost and duals of an assignment without a certificate, from the state of the search.

With ``certify=False`` there is no pass over the costs. Most costs of the assigned pairs are in
memory; the others are read as single pairs. With Python sources one pair may take as long as its
row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.held import Held
from bigsap.engine.core.pair_costs import Tick, costs_of_pairs
from bigsap.engine.core.state import FREE
from bigsap.problem import Problem
from bigsap.proof.exact import exact_sum, three_sum
from bigsap.row_cache import Rows
from bigsap.sources.cuda.pairs import device_pairs
from bigsap.sources.filling import fill_of
from bigsap.strategies.outcome import rounding
from bigsap.types import Array


def pair_costs(problem: Problem, rows: Rows, held: Sequence[Held], column_of_row: Array, tick: Tick) -> Array:
    """Return the cost (n,) of each row's pair, int64 or float64, in the user's sense; 0 without one.

    The numbers are those of ``read``. Costs come from a matrix in memory; from a device; from
    computation, where a pair takes its share of a row's time; from ``held``; and the rest is read pair
    by pair. O(n) without the last.
    """
    source = problem.source
    n = column_of_row.size
    costs = np.zeros(n, np.int64 if problem.integer else np.float64)
    wanted = column_of_row >= 0
    table = rows.table if rows.policy == "in place" else None
    if table is None:
        here = np.flatnonzero(wanted)
        there = device_pairs(source, here, column_of_row[here])
        if there is not None:
            costs[wanted] = there
            return costs
        fill = fill_of(source)
        if fill is None or not fill.in_parts:
            for holder in held:
                found, known = holder.costs(column_of_row)
                known &= wanted
                costs[known] = found[known]
                wanted &= ~known
        column_of_row = np.where(wanted, column_of_row, FREE)
    for some, found in costs_of_pairs(problem, table, column_of_row, tick):
        tick()
        costs[some] = found
    return costs


@dataclass(frozen=True)
class Unproved:
    """Assignment without a certificate, in the solve's orientation.

    fun: as in a certificate, user's sense. u, v: signed duals, normalised as in
    ``bigsap.proof.certificate``, whose feasibility is not checked; None where unknown. doubtful:
    rounding may have decided the assignment. u_low, v_low: their low parts; None: 0.
    """

    fun: Any
    u: Array | None
    v: Array | None
    doubtful: bool
    u_low: Array | None = None
    v_low: Array | None = None


def unproved(
    problem: Problem,
    column_of_row: Array,
    costs: Array,
    prices: Array,
    reach: float = 0.0,
    hidden: float = 0.0,
    *,
    whole: bool = False,
) -> Unproved:
    """Return fun and duals from the ``costs`` of the assigned pairs and the search's signed prices.

    reach: the largest size of a price that the search began from. hidden: see ``Outcome``. whole: whether
    floats stand for integers. O(n + m). Pairs of the optimum are tight, which determines u of every row that
    has one.
    """
    n, m = problem.shape
    wanted = column_of_row >= 0
    integer = costs.dtype.kind in "iu"
    here = costs[wanted]
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(here).all():
            return Unproved(problem.sign * math.inf, None, None, False)
        fun = exact_sum(here.astype(np.int64 if integer else np.float64, copy=False))
        number = np.int64 if integer and prices.dtype.kind == "i" else np.float64
        v = prices.astype(number)
        largest = max(reach, float(v.max()), -float(v.min())) if v.size else reach
        # In place, to use no more vectors than the search itself (see tests/unit/test_memory.py).
        v -= np.partition(v, n - 1)[n - 1] if n < m else v.max(initial=v[0])
        if n < m:
            np.minimum(v, 0, out=v)
        signed: Array = problem.sign * here.astype(number)
        del here
        u = np.zeros(n, number)
        signed -= v[column_of_row[wanted]]
        u[wanted] = signed
        low = -np.inf if number is np.float64 else np.iinfo(np.int64).min
        top = u.max(where=wanted, initial=low)
        shift = number(0)
        if n > m:  # rows without a pair have 0, and no row has more
            shift = top
            u[wanted] -= shift
            v += shift
        size = max(abs(float(end)) for x in (u, v) for end in (x.min(), x.max()))
    if integer:
        return Unproved(fun, u, v, False)
    if not math.isfinite(size + largest):
        return Unproved(fun, None, None, True)
    lost = rounding(max(n, m), max(size, largest)) + hidden
    return Unproved(fun, u, v, _is_doubtful(lost, costs[wanted], whole))


def unproved_pair(
    problem: Problem,
    column_of_row: Array,
    costs: Array,
    prices: tuple[Array, Array],
    reach: float,
    hidden: float = 0.0,
    *,
    whole: bool,
) -> Unproved:
    """Return as ``unproved`` for a square problem, from prices in two parts. Its duals are not shifted.

    reach: the largest size of a price and of a reduced cost in the search. hidden, whole: see ``unproved``.
    O(n).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        fun = exact_sum(costs.astype(np.float64))
        v, v_low = prices
        high, mid, low = three_sum(
            problem.sign * costs.astype(np.float64), -v[column_of_row], -v_low[column_of_row]
        )
        u, u_low = high, mid + low
    doubtful = _is_doubtful(rounding(v.size, reach) + hidden, costs, whole)
    return Unproved(fun, u, v, doubtful, u_low, v_low)


def _is_doubtful(lost: float, costs: Array, whole: bool) -> bool:
    """Return whether so large an error may matter to the sum of the pairs' costs; also if it is no number."""
    if whole and not lost <= policy.DANGEROUS_WHOLE:
        return True
    # Not the sum, which a few huge costs dominate. Those of opposite signs cancel, so even half may be huge.
    sizes = np.abs(costs)
    sizes = sizes[sizes > 0]
    place = sizes.size // 4
    total = sizes.size * float(np.partition(sizes, place)[place]) if sizes.size else 0.0
    return not lost <= policy.DANGEROUS_ROUNDING * total
