"""Searches without the sizes of far lines: from the given costs to others, and back.

While strategies climb, the run's problem is that of the near costs, and bounds are reported as those of
the given ones. Whatever ends the search, ``give_back`` restores the given problem: proof, refinement and
answer know no other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.state import infinity
from bigsap.problem import Problem
from bigsap.proof.exact import down, expansion, two_sum
from bigsap.run.run import Run
from bigsap.run.stats import of_search
from bigsap.strategies import Outcome
from bigsap.strategies.far_lines import NearCosts
from bigsap.strategies.list_run import ListSolve
from bigsap.strategies.orientation import resident
from bigsap.types import Array


def given_outcome(run: Run, outcome: Outcome) -> Outcome:
    """Return the outcome with prices of the given costs, which the run's problem has again."""
    near, found = run.near, outcome.column_of_row
    if near is None:
        return outcome
    if found is not None:
        run.reach = max(run.reach, _size(near.problem, found, outcome.v))
        run.standing = found, outcome.v
    give_back(run)
    v, v_low = two_sum(outcome.v.astype(np.float64), near.of_columns)
    return replace(outcome, v=v, v_low=v_low)


def _size(problem: Problem, column_of_row: Array, v: Array) -> float:
    """Return the largest size of a price v (m,) and of a reduced cost of a pair in column_of_row (n,)."""
    matrix = resident(problem)
    assert matrix is not None
    rows = np.flatnonzero(column_of_row >= 0)
    columns = column_of_row[rows]
    reduced = problem.sign * matrix[rows, columns] - v[columns]
    return float(max(np.abs(v).max(initial=0.0), np.abs(reduced).max(initial=0.0)))


def give_back(run: Run) -> None:
    """Make the given problem the run's, at the end of a search of near costs. Their matrix is released.

    Counts, bounds, matching and prices of the search stay. Its certificate does not: it is of other costs.
    """
    near = run.near
    if near is None:
        return
    matching, v = run.at_hand()
    run.known, run.searched = given_incumbent(run, run.known, near), of_search(run)
    run.lists = None if run.lists is None else ListSolve()
    run.levels = run.engine = run.near = run.monitor.as_given = run.proved = run.stopped = None
    run.whole_rows = False
    run.read(near.given, run.options.cache_budget(near.given))
    # Rounded: the bound of the search, whose duals have low parts, is the better one.
    run.standing = matching, v.astype(np.float64) + near.of_columns


def given_incumbent(run: Run, known: Incumbent, near: NearCosts) -> Incumbent:
    """Return what is known of the near costs as facts of the given ones: no bound becomes too large.

    The bound is that of the duals where there are some.
    """
    found = Incumbent(near.given, infinity(run.arithmetic.price), active=known.active)
    found.complete, found.column_of_row, found.exact = known.complete, known.column_of_row, False
    low, high = near.bounds(*known.enclosure())
    if near.given.maximize:
        low, high = (None if x is None else -x for x in (high, low))
    found.bound, found.cost = low, high
    if known.u is not None and known.v is not None:
        found.u, found.u_low = _moved(known.u, known.u_low, near.of_rows)
        found.v, found.v_low = _moved(known.v, known.v_low, near.of_columns)
        found.bound = down(expansion(found.u, found.u_low, found.v, found.v_low))
    return found


def _moved(dual: Array, low: Array | None, shift: Array) -> tuple[Array, Array]:
    """Return duals (k,) plus ``shift`` (k,), in two parts that are not above the exact sums. O(k).

    low: (k,) the duals' low parts, None for 0.
    """
    high, rest = two_sum(dual, shift)
    if low is not None:
        rest, lost = two_sum(rest, low)
        rest = np.where(lost < 0, np.nextafter(rest, -np.inf), rest)
    return high, rest
