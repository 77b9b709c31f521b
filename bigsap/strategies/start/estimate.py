"""Bounds, first prices and first epsilon (A1015, section 3.4).

Up to five sweeps over the rows. Sums are float64 whatever the price type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core.state import FREE, ID
from bigsap.engine.rows.row_engine import Engine
from bigsap.engine.rows.sweep import Survey, first_survey, later_survey
from bigsap.strategies.start.outliers import lower_outliers, usual, without_forced
from bigsap.strategies.start.warm import mean_gap
from bigsap.types import Array

# Largest length of temporary arrays of the start.
_AT_ONCE = 256
# Gaps above this have squares, and powers of 1.5, that may overflow.
_SQUARED_TOO_LARGE = 1e150


@dataclass(frozen=True)
class Start:
    """Result of the start; the first prices are in the engine's state.

    epsilon: first epsilon, 0 for one plain pass. epsilon_low: below it epsilon is 0.
    solution: column of each row when a sweep already proved one optimal.
    """

    epsilon: float
    epsilon_low: float
    solution: Array | None = None


def _total(values: Array, base: Array | None = None) -> float:
    """Return the sum of values, less that of ``base``, subtracted first."""
    return float((values if base is None else values - base).sum(dtype=np.float64))


def _upper(engine: Engine, costs: Array, base: Array | None) -> float:
    """Return the total cost of a candidate assignment; infinite when a pair is missing."""
    if costs.size and costs.max() >= engine.infinity:
        return float("inf")
    return _total(costs, base)


def _usual_picks(engine: Engine, survey: Survey) -> Array:
    """Return the costs of the picks; of forced rows what they would cost if they were like the others.

    A forced row that picked late has a huge cost, in which all differences of the others vanish.
    """
    v = engine.state.v
    if v.dtype.kind != "f" or (survey.pick < 0).any():
        return survey.pick_cost
    excess = survey.pick_cost - v[survey.pick] - survey.low
    without = without_forced(excess)
    if without is excess:
        return survey.pick_cost
    return np.where(without < excess, survey.low + v[survey.pick] + without, survey.pick_cost)


def _base(engine: Engine, low: Array) -> Array | None:
    """Return what to subtract from rows' costs before they are summed: their minima, or None.

    A few rows of huge costs would round all others away. low: of the first sweep.
    """
    n, m = engine.problem.shape
    sizes = np.abs(low)
    if n > m or low.dtype.kind != "f" or usual(sizes) is sizes or sizes.max() >= engine.infinity:
        return None
    return low.copy() if (usual(sizes) < sizes).any() else None


def _identity(engine: Engine, survey: Survey) -> Array | None:
    """Return the identity when the first sweep proves it optimal (at prices 0).

    Every row then has its smallest cost on the diagonal and, with more rows than
    columns, no unassigned row has a smaller one. Solves constant matrices and a
    point set against itself, with scipy's answer.
    """
    n, m = engine.problem.shape
    k = min(n, m)
    if (survey.second[:k] != survey.low[:k]).any() or (survey.low[:k] >= engine.infinity).any():
        return None
    if n > m and survey.low[:m].max() > survey.low[m:].min():
        return None
    solution = np.full(n, FREE, ID)
    solution[:k] = np.arange(k)
    return solution


def _picks(engine: Engine, survey: Survey) -> Array | None:
    """Return the greedy picks when every row got a column of smallest ``c - v``."""
    n, m = engine.problem.shape
    if n > m or (survey.pick < 0).any():
        return None
    v = engine.state.v
    if n < m and v.min() != v.max():
        return None  # free columns would not have the highest price
    for start in range(0, n, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        if (survey.pick_cost[rows] - v[survey.pick[rows]] != survey.low[rows]).any():
            return None
    return survey.pick.copy()


def _ranks(pick: Array, order: Array, rank: Array) -> Array:
    """Return the position in the order of the row that picked each column, -1 for none."""
    rank[:] = -1
    for start in range(0, order.size, _AT_ONCE):
        picked = pick[order[start : start + _AT_ONCE]]
        rank[picked[picked >= 0]] = start + np.flatnonzero(picked >= 0)
    return rank


def _shift(v: Array, infinity: float) -> None:
    """Shift prices so that every price is finite and the largest is 0."""
    finite = v < infinity
    if not finite.any():
        v[:] = 0
        return
    top = v.max(where=finite, initial=-infinity)
    v[~finite] = top
    v -= top


def _reach(engine: Engine, survey: Survey) -> Any:
    """Return how far below the real columns the virtual ones (n > m) should start.

    Somewhat more than what the m cheapest rows need, by some multiples of their cost differences.
    The other rows do not count: one of them may have a huge cost, which would absorb all other prices.
    """
    m = engine.problem.shape[1]
    low = np.sort(survey.low)[: m + 1].astype(np.float64)
    low = low[low < engine.infinity]
    usable = (survey.low[:m] < engine.infinity) & (survey.second[:m] < engine.infinity)
    differences = survey.second[:m][usable] - survey.low[:m][usable]
    typical = float(np.median(differences)) if differences.size else 0.0
    with np.errstate(over="ignore"):
        reach = low[-1] + 4 * (low[-1] - low[0]) + 4 * typical + np.spacing(abs(low[-1]))
    if engine.problem.integer:
        return engine.price.type(min(np.ceil(reach), engine.limit))
    return min(reach, np.finfo(np.float64).max / 8)


def inspect(engine: Engine) -> tuple[Start, Survey]:
    """Make only the first sweep, which validates every cost and finds trivial answers.

    Prices stay 0.
    """
    n, _ = engine.problem.shape
    survey = first_survey(engine.state)
    engine.sweep(survey, np.arange(n, dtype=ID), backward=False, first=True)
    solution = _identity(engine, survey)
    if solution is None:
        solution = _picks(engine, survey)
    if engine.problem.n_virtual_columns and (survey.low < engine.infinity).any():
        engine.group_reach = _reach(engine, survey)
    return Start(0.0, 0.0, solution), survey


def plain(engine: Engine) -> Start:
    """Return the start of one plain pass from prices 0: the first sweep alone."""
    start, _ = inspect(engine)
    _set_references(engine)
    return start


def _set_references(engine: Engine) -> None:
    """Set each row's reference to its smallest value of the first sweep, where finite."""
    reference = engine.state.reference
    reference[reference >= engine.infinity] = 0


def _usual_gap(survey: Survey) -> float | None:
    """Return by how much the identity exceeds the rows' minima without its outliers; None without any.

    With them every epsilon would be too large or too small.
    """
    excess = survey.second - survey.low
    without = usual(without_forced(excess))
    return None if without is excess or (without == excess).all() else _total(without)


def estimate(engine: Engine) -> Start:
    """Compute first prices and epsilon; may already solve the problem."""
    problem, st = engine.problem, engine.state
    n, m = problem.shape
    start, survey = inspect(engine)
    base = _base(engine, survey.low)
    lower = _total(survey.low, base)
    _set_references(engine)
    if start.solution is not None:
        return start
    upper = _upper(engine, survey.pick_cost, base)
    identity = _upper(engine, survey.second, base) if n <= m else float("inf")
    initial_gap = (identity if np.isfinite(identity) else upper) - lower
    usual_gap = _usual_gap(survey) if np.isfinite(identity) else None
    if usual_gap is not None:
        initial_gap = usual_gap
    upper = min(upper, identity)
    hopeless = not np.isfinite(lower) or (survey.low >= engine.infinity).any()
    if hopeless or (n > m and not np.isfinite(upper)):
        # A plain pass immediately finds a row without an allowed column.
        return Start(0.0, 0.0)
    if not np.isfinite(upper):
        # Forbidden pairs make the bounds useless. A plain pass from prices 0 took 3 to 10 times the scans
        # of phases with the epsilon suggested by the rows with a pick.
        high, _ = mean_gap(engine, survey.pick, survey.pick_cost, survey.low)
        return Start(high, high / (16 * n))
    if problem.n_virtual_rows == 0:
        st.v[:] = survey.runner_up if n > 1 else 0
        lower_outliers(st.v)
        _shift(st.v, engine.infinity)

    survey = later_survey(survey, st)
    natural = np.arange(n, dtype=ID)
    engine.sweep(survey, natural, backward=True, first=False)
    solution = _picks(engine, survey)
    if solution is not None:
        return Start(0.0, 0.0, solution)
    price_total = _total(st.v)
    lower2 = _total(survey.low, base) + price_total
    upper2 = _upper(engine, _usual_picks(engine, survey), base)
    greedy_gap = upper2 - lower2
    lower, upper = max(lower, lower2), min(upper, upper2)

    factor = 1.0
    if initial_gap < 4 * greedy_gap:
        del natural
        # Largest regret first.
        np.subtract(survey.low, survey.second, out=survey.second)
        order = np.argsort(survey.second, kind="stable").astype(ID)
        engine.sweep(survey, order, backward=False, first=False)
        solution = _picks(engine, survey)
        if solution is not None:
            return Start(0.0, 0.0, solution)
        upper = min(upper, _upper(engine, survey.pick_cost, base))
        old = st.v.copy()
        engine.undercut(survey.pick, _ranks(survey.pick, order, st.row_of_column), order)
        del order
        _shift(st.v, engine.infinity)
        engine.sweep(survey, np.arange(n, dtype=ID), backward=False, first=False)
        lower3 = _total(survey.low, base) + _total(st.v)
        upper3 = _upper(engine, _usual_picks(engine, survey), base)
        new_gap = upper3 - lower3
        upper = min(upper, upper3)
        lower = max(lower, lower3)
        # The paper does not specify the blend. Weights by the squares of the gaps, and a quarter of the
        # epsilon that the gap suggests, scanned the fewest rows on ranks 1 to 8 (n = 1000 and 4000),
        # against plain weights, either prices alone, and factors 1 and 1/2; where this branch is not taken
        # factor 1 is best. Powers of gaps overflow long before gaps do; scaling by a power of two is exact.
        scale = 2.0**-600 if max(greedy_gap, new_gap) > _SQUARED_TOO_LARGE else 1.0
        squares = (scale * greedy_gap) ** 2 + (scale * new_gap) ** 2
        share = (scale * greedy_gap) ** 2 / squares if squares > 0 else 0.5
        v = st.v
        if v.dtype.kind == "f":
            v -= old
            v *= share
            v += old
        else:
            v[:] = old + (v - old) * share
        del old
        factor = 0.25
        _shift(st.v, engine.infinity)

    gap = max(0.0, upper - lower)
    if usual_gap is not None:
        # What is left of a cost of few large differences may be far smaller than any gap.
        initial_gap = max(initial_gap, gap)
    if initial_gap <= 0 or gap <= 0:
        return Start(0.0, 0.0)
    if gap > _SQUARED_TOO_LARGE:
        high = factor * gap / n * (gap / initial_gap) ** 0.5
    else:
        high = factor * gap**1.5 / (n * initial_gap**0.5)
    low = initial_gap / (16 * n * n)
    if high < low:
        return Start(0.0, low)
    return Start(high, low)
