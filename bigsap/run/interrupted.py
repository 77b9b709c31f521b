"""Answer of a stopped solve: the best assignment known, and a bound.

Every step must be quick, since a cancelled solve returns within a second. So each step ends when
the grace period is over. What the start's sweeps proved is always available.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.pair_costs import signed_total
from bigsap.engine.core.state import FREE
from bigsap.errors import OverflowRiskError
from bigsap.problem import Problem
from bigsap.proof.certificate import Certificate
from bigsap.proof.exact import ceiling, down, expansion
from bigsap.run.deadline import Deadline, Late
from bigsap.run.run import Run
from bigsap.sources.base import read_while
from bigsap.sources.filling import fill_of
from bigsap.strategies.start.samples import pairs_are_cheap
from bigsap.types import Array

#: Ends the current step by raising ``Late``.
Tick = Callable[[], None]


@dataclass(frozen=True)
class Conclusion:
    """Assignment, bound and duals of a solve.

    column_of_row, fun: None when no complete assignment of known cost was found.
    fun, bound: in the user's sense. u, v, u_low, v_low: signed duals that prove the bound, and
    their low parts. costs: (n,) of the rows' pairs. certificate: present if there was time for a pass
    over the costs.
    """

    column_of_row: Array | None
    fun: Any = None
    bound: Any = None
    u: Array | None = None
    v: Array | None = None
    certificate: Certificate | None = None
    u_low: Array | None = None
    v_low: Array | None = None
    costs: Array | None = None


def answer(
    run: Run,
    deadline: Deadline,
    prove: Callable[[Array | None, Array], Certificate],
    found: Array | None = None,
    costs: tuple[Array, Array] | None = None,
    by_bounds: float = math.inf,
) -> Conclusion:
    """Return the best known assignment and bound of a stopped solve.

    found: the assignment, if the search had ended already. Otherwise the candidates are the matching
    of the last complete phase, the matching of the current phase with its open rows given free
    columns, and the sweeps' assignments. costs: (n,) signed costs of the current matching, and which
    of them are known exactly. prove: a certificate pass that raises ``Late``. by_bounds: seconds that
    the pass may take where bounds reduce the pairs it reads.
    """
    problem, known = run.problem, run.known
    if run.earlier is not None:
        known.add(run.earlier)
    now, v = run.at_hand()
    candidates: list[Array | None] = [known.complete, now] if found is None else [found]
    if known.exact:
        matching, cost = known.column_of_row, known.cost
    else:
        matching, cost = None, None
        candidates.append(known.column_of_row)
    try:
        for candidate in candidates:
            if candidate is None:
                continue
            at_hand = costs if candidate is now else None
            whole, price = _completed(run, candidate, deadline.tick, at_hand)
            if price < math.inf and (cost is None or price < cost):
                matching, cost = whole, price
    except Late:
        if cost is None:
            matching, cost = _at_once(run, candidates)
    certificate = None
    # Recent seconds per row may be a poor estimate. So if there is no bound yet, a pass that can be
    # interrupted between rows is started in any case.
    expected = run.seconds_per_row * problem.shape[0] / run.n_threads
    light = run.rows.policy == "in place" or fill_of(problem.source) is not None
    if min(expected, by_bounds) <= max(0.0, deadline.left) or (known.bound is None and light):
        with suppress(Late):
            certificate = prove(matching, v)
    if certificate is None:
        known.add_floor()
    fun = None if cost is None else problem.sign * cost
    bound = known.bound if known.u is None else sum_of_duals(known, problem.integer)
    if certificate is not None:
        proved = problem.sign * certificate.bound
        if bound is None or proved >= bound:
            return Conclusion(matching, certificate=certificate)
    return Conclusion(
        matching,
        fun,
        None if bound is None else problem.sign * bound,
        known.u,
        known.v,
        u_low=known.u_low,
        v_low=known.v_low,
    )


def sum_of_duals(known: Incumbent, integer: bool) -> Any:
    """Return the exact sum of the duals that prove the bound, rounded down, or up to a whole number.

    The bound that the search compares had its own share of roundings subtracted, and differs from it where
    prices are large.
    """
    parts = [part for part in (known.u, known.v, known.u_low, known.v_low) if part is not None]
    if any(part.dtype.kind != "f" for part in parts):  # a certificate's, exact
        return known.bound
    try:
        return (ceiling if integer else down)(expansion(*parts))
    except OverflowRiskError:  # a row without a column, or sums beyond float64
        return known.bound


def _completed(
    run: Run, candidate: Array, tick: Tick, costs: tuple[Array, Array] | None
) -> tuple[Array, Any]:
    """Return the candidate with its open rows matched, and its signed cost.

    The search reads at least one row for each open row. Where there are many open rows it is used
    only as a last resort against forbidden pairs.
    """
    problem = run.problem
    n_open = min(problem.shape) - int((candidate >= 0).sum())
    price: Any = math.inf
    whole = candidate
    if n_open == 0 or n_open > policy.FEW_OPEN_ROWS:
        whole = in_order(problem, candidate)
        price = _signed_cost(run, whole, tick, candidate, costs)
    if n_open and price == math.inf:
        whole = complete(problem, candidate, tick)
        price = _signed_cost(run, whole, tick, candidate, costs)
    return whole, price


def _at_once(run: Run, candidates: list[Array | None]) -> tuple[Array | None, Any]:
    """Return a candidate with its open rows given free columns in order, and its signed cost.

    Returns (None, None) unless there are few pairs to read and each is cheap.
    """
    problem = run.problem
    if min(problem.shape) > policy.FEW_LATE_PAIRS or not pairs_are_cheap(problem):
        return None, None
    for candidate in candidates:
        if candidate is not None:
            whole = in_order(problem, candidate)
            price = signed_total(problem, run.rows.table, whole, lambda: None)
            if price < math.inf:
                return whole, price
    return None, None


def _signed_cost(run: Run, whole: Array, tick: Tick, base: Array, costs: tuple[Array, Array] | None) -> Any:
    """Return the signed cost of an assignment that differs from ``base`` in few rows.

    costs: (n,) signed costs of ``base``, and which of them are known.
    """
    problem = run.problem
    known: list[Any] = []
    if costs is not None:
        same = (base >= 0) & (whole == base) & costs[1]
        known = costs[0][same].tolist()
        known = [int(cost) for cost in known] if problem.integer else known
        whole = np.where(same, FREE, whole)
    return signed_total(problem, run.rows.table, whole, tick, known)


def in_order(problem: Problem, matching: Array) -> Array:
    """Return ``matching`` with open rows given the free columns in order; pairs may be forbidden."""
    whole = matching.copy()
    taken = np.zeros(problem.shape[1], bool)
    taken[whole[whole >= 0]] = True
    open_rows, free = np.flatnonzero(whole < 0), np.flatnonzero(~taken)
    k = min(open_rows.size, free.size)
    whole[open_rows[:k]] = free[:k]
    return whole


def complete(problem: Problem, matching: Array, tick: Tick) -> Array:
    """Return ``matching`` with its open rows matched, as far as forbidden pairs allow it.

    A short search: each open row takes its cheapest free column, or the first column that can be
    freed along allowed pairs. Rows that remain when time is up, or that cannot be matched, get
    free columns in order; such an assignment may contain forbidden pairs. Reads one row for each
    open row, and more around forbidden pairs. Does not raise Late.
    """
    n, m = problem.shape
    column_of_row = matching.copy()
    row_of_column = np.full(m, FREE, np.intp)
    matched = np.flatnonzero(column_of_row >= 0)
    row_of_column[column_of_row[matched]] = matched
    wanted = min(n, m) - matched.size
    costs = np.empty((1, m), problem.source.dtype)

    def allowed(row: int) -> tuple[Array, Array]:
        tick()
        read_while(problem.source, tick, np.array([row]), slice(0, m), costs)
        signed = problem.sign * costs[0].astype(np.float64)
        return signed < np.inf, signed

    try:
        for root in np.flatnonzero(column_of_row < 0).tolist():
            if wanted == 0:
                break
            wanted -= _augment(root, column_of_row, row_of_column, allowed)
    except Late:
        pass
    return in_order(problem, column_of_row)


def _augment(
    root: int, column_of_row: Array, row_of_column: Array, allowed: Callable[[int], tuple[Array, Array]]
) -> int:
    """Search breadth first from ``root`` for a free column; return 1 if root was matched, else 0."""
    parent = np.full(row_of_column.size, FREE, np.intp)  # row from which a column was reached
    seen = np.zeros(row_of_column.size, bool)
    queue = [root]
    for row in queue:
        open_here, signed = allowed(row)
        free = open_here & (row_of_column < 0)
        if free.any():
            column = int(np.where(free, signed, np.inf).argmin())
            while True:
                left = int(column_of_row[row])
                column_of_row[row], row_of_column[column] = column, row
                if row == root:
                    return 1
                column, row = left, int(parent[left])
        new = np.flatnonzero(open_here & ~seen)
        seen[new] = True
        parent[new] = row
        queue += row_of_column[new].tolist()
    return 0


def as_float(dual: Array | None) -> Array | None:
    """Return duals as results store them: float64, or int64 where float64 is not exact."""
    if dual is None or dual.dtype.kind == "f" or np.abs(dual).max(initial=0) > 2**53:
        return dual
    return dual.astype(np.float64)
