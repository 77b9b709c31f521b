"""Result of a solve in the user's orientation, with its message."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bigsap.errors import BigsapError
from bigsap.problem import Problem
from bigsap.proof.pair_costs import listed_costs
from bigsap.proof.weights import exact_total
from bigsap.result import MESSAGES, Result, Status
from bigsap.run.interrupted import Conclusion, as_float
from bigsap.run.run import BLOCK_SECONDS, Run
from bigsap.run.stats import last_report, solve_stats
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.constant import infinities
from bigsap.sources.repeated import total_stated
from bigsap.sources.sparse.by_rows import ByRows
from bigsap.strategies.orientation import exchanged, inverse, rows_outside
from bigsap.types import Array

# Whole numbers below this are floats without rounding.
_EXACT = 1 << 53


def conclude(run: Run, found: Conclusion, violator: Array | None = None) -> Result:
    """Return the result in the user's orientation."""
    problem = run.problem
    certificate = found.certificate
    if violator is None and certificate is not None and math.isinf(certificate.bound):
        violator = _without_column(certificate.u, problem)
        found, certificate = Conclusion(None), None
    col4row = found.column_of_row
    u, v, u_low, v_low = found.u, found.v, found.u_low, found.v_low
    status = run.stopped or Status.OPTIMAL
    message = None
    if violator is not None:
        status = Status.INFEASIBLE
        if problem.transposed:
            violator = rows_outside(problem, violator)
        message = f"{explain(violator)} {of_infinities(run, violator)}".rstrip()
    costs = found.costs if certificate is None else certificate.matched
    if problem.transposed:
        col4row = None if col4row is None else inverse(col4row, run.given.shape[0])
        certificate = None if certificate is None else exchanged(certificate)
        u, v, u_low, v_low = v, u, v_low, u_low
        costs = None if costs is None or col4row is None else costs[np.maximum(col4row, 0)]
    if certificate is not None and certificate.fun is not None:
        if certificate.optimal and (run.stopped is None or certificate.clear):
            # For a stopped solve it is not enough that the gap is small relative to the sum of the costs.
            status = Status.OPTIMAL
        elif run.stopped is None:
            status = Status.IMPRECISE
    result = Result.from_assignment(
        col4row,
        as_float(v),
        certificate,
        shape=run.given.shape,
        status=status,
        message=message,
        maximize=problem.maximize,
        stats=solve_stats(run),
        nit=len(run.phases),
        violator=() if violator is None else violator,
        u=as_float(u),
        u_low=u_low,
        v_low=v_low,
        fun=found.fun,
        bound=found.bound,
        costs=costs,
    )
    last_report(run.monitor, result)
    return result


def stands_for_whole(source: CostSource) -> bool:
    """Return whether these costs are integers that are read as floats."""
    if isinstance(source, ClippedCosts):
        return source.of_whole and stands_for_whole(source.given)
    return isinstance(source, ByRows) and source.of_whole


def in_whole_numbers(result: Result, source: CostSource) -> Result:
    """Return the result of integer costs that were read as floats, as that of integers.

    source: these costs. The bound is the next integer, and an assignment is optimal only if its cost is that.
    """
    fun, bound, gap, sign = _whole_sum(result, source), result.bound, result.gap, -1 if result.maximize else 1
    if fun is None:  # no assignment
        return result
    if bound is not None and math.isfinite(bound):
        least = math.ceil(sign * bound)
        if gap is not None and math.isfinite(gap):  # the bound was rounded, the gap is of the exact cost
            least = max(least, sign * fun - math.floor(gap))
        if abs(least) >= _EXACT:
            least = max(least, _whole_duals(result, least))
        bound = sign * least
        gap = sign * (fun - bound)
    status = result.status
    if status in (Status.OPTIMAL, Status.IMPRECISE) and gap is not None:
        status = Status.IMPRECISE if gap else Status.OPTIMAL
    text = result.message if status == result.status else MESSAGES[status]
    success = status in (Status.OPTIMAL, Status.GAP_REACHED)
    return replace(result, fun=fun, bound=bound, gap=gap, status=status, success=success, message=text)


def _whole_sum(result: Result, source: CostSource) -> int | None:
    """Return the exact cost; None if there is none."""
    fun = result.fun
    if fun is None or not math.isfinite(fun):
        return None
    if abs(fun) < _EXACT:
        return int(fun)
    costs = result.costs
    if costs is None:  # a stopped solve has not read them all
        assert isinstance(source, ByRows)
        costs, _ = listed_costs(source.source.entries(), result.row_ind, result.col_ind)
    terms = costs.tolist()
    if result.unassigned_cost is not None:
        terms += result.unassigned_cost[result.col4row < 0].tolist()
    return sum(map(int, terms))


def _whole_duals(result: Result, least: int) -> int:
    """Return the next integer of the sum of the duals, which floats round; ``least`` if some are unknown."""
    duals = [part for part in (result.u, result.v, result.u_low, result.v_low) if part is not None]
    if not all(np.isfinite(part).all() for part in duals):
        return least
    return math.ceil((-1 if result.maximize else 1) * exact_total(duals))


def _without_column(u: Array, problem: Problem) -> Array:
    """Return the rows that prove an infinite bound.

    This is one row without an allowed column, or all such rows if there are more rows than columns.
    The certificate pass of a stopped solve may be the first to find them.
    """
    rows = np.flatnonzero(np.isinf(u))
    return rows if problem.n_virtual_columns else rows[:1]


def of_infinities(run: Run, violator: Array) -> str:
    """Return a message about infinite costs; empty where the check would take long."""
    if run.seconds_per_row > BLOCK_SECONDS or run.method == "sparse":
        return ""
    source = run.given.source if run.gated is None else run.gated
    with suppress(BigsapError):
        return infinities(source, violator.tolist())
    return ""


def explain(violator: Array, demand: Array | None = None) -> str:
    """Return the message of an infeasible result. demand: (n,) columns that each row takes, if not one."""
    shown = ", ".join(map(str, violator[:8].tolist())) + (", ..." if violator.size > 8 else "")
    if demand is not None:
        return (
            f"The problem is infeasible: rows [{shown}] demand {total_stated(demand[violator])} columns, and"
            " together have too few that are not forbidden."
        )
    if violator.size == 1:
        return f"The cost matrix is infeasible: row {violator[0]} has no column that is not forbidden."
    return (
        f"The cost matrix is infeasible: together, the {violator.size} rows [{shown}] have too"
        " few columns that are not forbidden."
    )
