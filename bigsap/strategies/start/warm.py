"""Warm start from prices, and perhaps an assignment, of similar costs.

One sweep with the old prices gives every row's smallest reduced cost. A row whose old pair
is still tight keeps it; only the others need a search. So a solve after changes in few rows
takes one pass and few scans, and a solve without changes no scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.virtual import hold_at_cap, rows_for_group
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.rows.rectangular import NEXT_ROW
from bigsap.engine.rows.row_engine import Engine
from bigsap.engine.rows.sweep import Survey, first_survey
from bigsap.proof.tightness import UNIT, allowance
from bigsap.strategies.start.outliers import without_forced
from bigsap.types import Array


@dataclass(frozen=True)
class Warm:
    """Start of a solve; signed, oriented.

    v: (n_columns,) finite prices. column_of_row: (n_rows,), negative = none; None: the
    smallest reduced costs decide. exact: keep only pairs that are tight to the last bit,
    which a repair requires. guided: the prices are those of levels.
    """

    v: Array
    column_of_row: Array | None = None
    exact: bool = False
    guided: bool = False


def adopt(engine: Engine, warm: Warm, grid: float) -> tuple[Array, float]:
    """Set the engine's state to that of a phase in which the tight pairs are already matched.

    Returns the rows still to be matched, ids ascending, and what is hidden, see ``lacking``. One sweep,
    O(n m). Validates every cost, as any first sweep does.
    """
    st, problem = engine.state, engine.problem
    n, m = problem.shape
    st.v[:] = fitting(engine, warm.v, grid)
    old = np.full(n, S.FREE, S.ID) if warm.column_of_row is None else _ids(warm.column_of_row)
    if problem.n_virtual_rows:
        # The virtual rows hold free columns at one price, the highest of all.
        free = np.ones(m, bool)
        free[old[old >= 0]] = False
        cap = _largest(st.v[free], problem.n_virtual_rows)
        np.minimum(st.v, cap, out=st.v)
    if not warm.exact:
        engine.known.active = True  # ``first_epsilon`` uses it
    survey = first_survey(st)
    survey.probe[:] = old
    engine.sweep(survey, np.arange(n, dtype=S.ID), backward=False, first=True)
    low = survey.low.copy()
    finite = low[low < engine.infinity]
    if finite.size:
        least = 1 if engine.problem.integer else 0
        engine.group_reach = 2 * (abs(finite.max()) + abs(finite.min())) + least
    st.reference[:] = np.where(low < engine.infinity, low, 0)
    engine.picks_gap, engine.picks_forced = mean_gap(engine, survey.pick, survey.pick_cost, low)
    tight, costs = _tight(engine, old, survey.second, low, warm.exact), survey.second.copy()
    if warm.column_of_row is None:
        old, costs = survey.pick.copy(), survey.pick_cost.copy()
        tight = _tight(engine, old, survey.pick_cost, low, warm.exact, picked=True)
    elif not problem.n_virtual_columns:
        # A free row may have a free column that is tight.
        picked = _free_picks(engine, old, survey, low, tight)
        costs[picked], tight = survey.pick_cost[picked], tight | picked
    left, threshold = _match(engine, np.where(tight, old, S.FREE).astype(S.ID), low, warm.exact)
    reduced = costs - st.v[np.maximum(st.column_of_row, 0)]
    return left, lacking(engine, st.column_of_row, reduced, low, threshold)


def lacking(
    engine: Engine | ListEngine, column_of_row: Array, reduced: Array, low: Array, threshold: Any
) -> float:
    """Return by how much the matched pairs lack tightness, in sum; 0 for integers.

    reduced: (n_rows,) ``c - v`` of the pairs. low: the rows' smallest. threshold: the ``u`` at which
    rows take virtual columns, at least infinity where there are none. Exact but for the rounding of
    the differences. O(n).
    """
    if engine.price.kind != "f" or engine.problem.integer:
        return 0.0
    u = np.minimum(low, threshold)
    matched, grouped = column_of_row >= 0, column_of_row <= S.GROUPED
    lack = np.maximum(reduced[matched] - u[matched], 0).sum()
    if grouped.any():
        lack += (np.broadcast_to(threshold, u.shape)[grouped] - u[grouped]).sum()
    return float(lack)


def first_epsilon(engine: Engine) -> float:
    """Return the mean gap per row that the warm prices leave to the sweep's own picks.

    Averaged over the rows that have a pick, since forbidden pairs may leave some without; 0 if unknown.
    Limited, since a price may fall by epsilon once a row and must not overflow.
    """
    n, gap, between = max(1, engine.problem.shape[0]), engine.picks_gap, engine.known.between()
    if between is not None and np.isfinite(between):  # sums of costs near 1e308 overflow
        # Of huge sums the difference may be rounding alone, and still be far more than the picks' gap.
        rounded = between <= 8 * UNIT * abs(engine.known.found()[0])
        gap = min(gap, between / n) if engine.picks_forced or rounded else between / n
    return min(max(0.0, gap), float(np.finfo(np.float64).max) / (16 * n))


def mean_gap(engine: Engine, pick: Array, pick_cost: Array, low: Array) -> tuple[float, bool]:
    """Return the mean excess of greedy picks over their rows' smallest ``c - v``, and if a row is forced.

    A forced row counts as one of the others: its excess is huge, and would become epsilon. O(n).
    """
    rows = np.flatnonzero((pick >= 0) & (pick_cost < engine.infinity) & (low < engine.infinity))
    if not rows.size:
        return 0.0, False
    v = engine.state.v
    excess = pick_cost[rows] - v[pick[rows]] - low[rows]
    usual = without_forced(excess)
    gap = float(usual.mean(dtype=np.float64))
    if not np.isfinite(gap):  # the sum may overflow where the mean does not
        gap = float((usual / rows.size).sum())
    return max(0.0, gap) if np.isfinite(gap) else 0.0, usual is not excess


def _ids(columns: Array) -> Array:
    return np.maximum(columns, S.FREE).astype(S.ID)


def _largest(values: Array, k: int) -> Any:
    """Return the k-th largest of at least k values."""
    return np.partition(values, values.size - k)[values.size - k]


def fitting(engine: Engine | ListEngine, v: Array, grid: float) -> Array:
    """Return the prices in the engine's arithmetic: on its grid and within its range.

    A shift of all prices changes nothing; prices far below the rest may be raised and remain as good
    a start.
    """
    top = v.max() if v.size else v.dtype.type(0)
    if not grid:
        prices = np.asarray(v, np.float64)
        span = float(np.finfo(np.float64).max) / (64 * max(1, sum(engine.problem.shape)))
        if np.abs(prices).max(initial=0) <= span:
            return prices
        raised: Array = np.maximum(prices - top, -span)  # sums of all prices stay finite
        return raised
    # In int64 where the prices already are: float64 would lose their last digits.
    whole = v.dtype.kind == "i" and grid == 1
    lowered: Array = v - top if whole else np.floor((v - top) / grid) * grid
    span = engine.limit if engine.price.kind == "i" else grid * 2.0**50
    fitting: Array = np.maximum(lowered, -span).astype(engine.price)
    return fitting


def _tight(
    engine: Engine, columns: Array, costs: Array, low: Array, exact: bool, *, picked: bool = False
) -> Array:
    """Return (n_rows,) bool: whether the row's pair has the row's smallest reduced cost.

    picked: the pairs are picks, not given pairs, which may have been tight. Tolerances of all rows
    add up, and where all costs share a large term they would hide the differences. So the tolerance
    of a pick excludes the term, except for one rounding of its ``c - v``: the cost itself is no more
    precise.
    """
    v = engine.state.v
    here: Array = (columns >= 0) & (costs < engine.infinity)
    here[here] = low[here] < engine.infinity
    rows = np.flatnonzero(here)
    prices = v[columns[rows]]
    reduced = costs[rows] - prices
    excess = reduced - low[rows]
    span = v.max() - v.min()
    if picked and engine.price.kind == "f":
        one = 0 if exact or engine.problem.integer else 2 * UNIT * np.abs(reduced)
        here[rows] = excess <= np.maximum(allowed(engine, span, exact), one)
    else:
        size = np.abs(reduced) + np.abs(low[rows]) + span
        here[rows] = excess <= allowed(engine, size, exact)
    return here


def allowed(engine: Engine | ListEngine, size: Array, exact: bool) -> Any:
    """Return the tolerance for equality of numbers of this size.

    It is most of what the certificate attributes to rounding.
    """
    if engine.price.kind != "f" or engine.problem.integer or exact:
        return 0
    return 0.75 * allowance(max(engine.problem.shape), UNIT * size)


def _free_picks(engine: Engine, old: Array, survey: Survey, low: Array, tight: Array) -> Array:
    """Return rows that are not tight but picked a free tight column; updates old."""
    pick = survey.pick
    kept = np.zeros(engine.problem.shape[1], bool)
    kept[old[tight]] = True
    wanted = ~tight & (pick >= 0)
    wanted[wanted] = ~kept[pick[wanted]]
    good: Array = wanted & _tight(engine, pick, survey.pick_cost, low, True)
    old[good] = pick[good]
    return good


def _match(engine: Engine, columns: Array, low: Array, exact: bool) -> tuple[Array, Any]:
    """Begin a phase with these pairs matched; return the other rows and the group's threshold."""
    st, problem = engine.state, engine.problem
    n, _ = problem.shape
    at = st.at
    at.position, at.stage = 0, NEXT_ROW
    at.group_size = at.surplus = 0
    engine.sweeping = False
    st.group[:] = S.FREE
    st.row_of_column[:] = S.FREE
    st.column_of_row[:] = columns
    rows = np.flatnonzero(columns >= 0)
    st.row_of_column[columns[rows]] = rows
    if problem.n_virtual_rows:
        st.at.cap, st.at.surplus = hold_at_cap(
            st.v, st.column_of_row, st.row_of_column, problem.n_virtual_rows
        )
    threshold = _fill_group(engine, low, exact) if problem.n_virtual_columns else engine.infinity
    left = np.flatnonzero(st.column_of_row == S.FREE).astype(S.ID)
    engine.n_kept = n - left.size
    return left, threshold


def _fill_group(engine: Engine, low: Array, exact: bool) -> Any:
    """Set and return the price of virtual columns, which separates assigned from unassigned rows."""
    st = engine.state
    n, m = engine.problem.shape
    threshold = np.partition(low, m - 1)[m - 1]
    if threshold >= engine.infinity:
        st.column_of_row[:] = st.row_of_column[:] = S.FREE
        st.at.group_price = engine.group_price_start()
        return engine.infinity
    st.at.group_price = -threshold
    slop = allowed(engine, np.abs(threshold) + st.v.max() - st.v.min(), exact)
    left_over = rows_for_group(low, threshold, slop, st.column_of_row, st.row_of_column, n - m)
    st.group[: left_over.size] = left_over
    st.column_of_row[left_over] = S.GROUPED - np.arange(left_over.size)
    st.at.group_size = left_over.size
    return threshold
