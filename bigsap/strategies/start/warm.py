"""Starting from prices, and perhaps an assignment, that were good for similar costs.

One sweep with the old prices gives every row's smallest reduced cost. A row whose old pair
is still tight keeps it; only the others need a search. So a solve after few rows
have changed costs one pass and few scans, and one after nothing has changed no scan.
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
from bigsap.sources.base import Array


@dataclass(frozen=True)
class Warm:
    """Where to start; signed, oriented.

    v: (n_columns,) finite prices. column_of_row: (n_rows,), negative = none; None: the
    cheapest reduced costs decide. exact: keep only pairs that are tight to the last bit,
    which is what a repair needs. guided: the prices are those of levels.
    """

    v: Array
    column_of_row: Array | None = None
    exact: bool = False
    guided: bool = False


def adopt(engine: Engine, warm: Warm, grid: float) -> Array:
    """Make the engine's state that of a phase in which the tight pairs are matched already.

    Returns the rows still to be matched, ids ascending. One sweep, O(n m). Judges
    every cost, as any first sweep does.
    """
    st, problem = engine.state, engine.problem
    n, m = problem.shape
    st.v[:] = fitting(engine, warm.v, grid)
    old = np.full(n, S.FREE, S.ID) if warm.column_of_row is None else _ids(warm.column_of_row)
    if problem.n_virtual_rows:
        # The virtual rows hold free columns at one price, the largest there is.
        free = np.ones(m, bool)
        free[old[old >= 0]] = False
        cap = _largest(st.v[free], problem.n_virtual_rows)
        np.minimum(st.v, cap, out=st.v)
    if not warm.exact:
        engine.known.active = True  # ``first_epsilon`` asks it
    survey = first_survey(st)
    survey.probe[:] = old
    engine.sweep(survey, np.arange(n, dtype=S.ID), backward=False, first=True)
    low = survey.low.copy()
    finite = low[low < engine.infinity]
    if finite.size:
        least = 1 if engine.problem.integer else 0
        engine.group_reach = 2 * (abs(finite.max()) + abs(finite.min())) + least
    st.reference[:] = np.where(low < engine.infinity, low, 0)
    engine.picks_gap = mean_gap(engine, survey.pick, survey.pick_cost, low)
    tight = _tight(engine, old, survey.second, low, warm.exact)
    if warm.column_of_row is None:
        old = survey.pick.copy()
        tight = _tight(engine, old, survey.pick_cost, low, warm.exact, picked=True)
    elif not problem.n_virtual_columns:
        # A free row may have a free column that is as good as any.
        tight |= _free_picks(engine, old, survey, low, tight)
    return _match(engine, np.where(tight, old, S.FREE).astype(S.ID), low, warm.exact)


def first_epsilon(engine: Engine) -> float:
    """The mean gap a row that the warm prices leave to the sweep's own picks: of the rows that
    have one, where forbidden pairs leave some without; 0 if unknown."""
    known = engine.known
    if known.cost is None or known.bound is None:
        return engine.picks_gap
    return max(0.0, float(known.cost - known.bound) / max(1, engine.problem.shape[0]))


def mean_gap(engine: Engine, pick: Array, pick_cost: Array, low: Array) -> float:
    """How much dearer, in the mean, greedy picks are than their rows' smallest ``c - v``. O(n)."""
    rows = np.flatnonzero((pick >= 0) & (pick_cost < engine.infinity) & (low < engine.infinity))
    if not rows.size:
        return 0.0
    v = engine.state.v
    gap = float((pick_cost[rows] - v[pick[rows]] - low[rows]).mean(dtype=np.float64))
    return max(0.0, gap) if np.isfinite(gap) else 0.0


def _ids(columns: Array) -> Array:
    return np.maximum(columns, S.FREE).astype(S.ID)


def _largest(values: Array, k: int) -> Any:
    """The k-th largest of at least k values."""
    return np.partition(values, values.size - k)[values.size - k]


def fitting(engine: Engine | ListEngine, v: Array, grid: float) -> Array:
    """The prices in the engine's arithmetic: on its grid and within its range.

    A shift of all prices changes nothing; prices far below the rest are as good a start
    when they are raised.
    """
    top = v.max() if v.size else v.dtype.type(0)
    if not grid:
        return np.asarray(v, np.float64)
    # In int64 where the prices already are: float64 would lose their last digits.
    whole = v.dtype.kind == "i" and grid == 1
    lowered: Array = v - top if whole else np.floor((v - top) / grid) * grid
    span = engine.limit if engine.price.kind == "i" else grid * 2.0**50
    fitting: Array = np.maximum(lowered, -span).astype(engine.price)
    return fitting


def _tight(
    engine: Engine, columns: Array, costs: Array, low: Array, exact: bool, *, picked: bool = False
) -> Array:
    """(n_rows,) bool: whether the row's pair has the row's smallest reduced cost.

    picked: the pairs are picks, not given ones, which may have been tight. Allowances of all rows
    add up, and where all costs share a large term they would hide what differs. So that of a pick
    leaves the term out, but for one rounding of its ``c - v``: the cost itself is no more precise.
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
    """How far from equal numbers of this size may be: most of what the certificate
    will put down to rounding."""
    if engine.price.kind != "f" or engine.problem.integer or exact:
        return 0
    return 0.75 * allowance(max(engine.problem.shape), UNIT * size)


def _free_picks(engine: Engine, old: Array, survey: Survey, low: Array, tight: Array) -> Array:
    """Rows that are not tight but picked a tight column that nobody keeps; updates old."""
    pick = survey.pick
    kept = np.zeros(engine.problem.shape[1], bool)
    kept[old[tight]] = True
    wanted = ~tight & (pick >= 0)
    wanted[wanted] = ~kept[pick[wanted]]
    good: Array = wanted & _tight(engine, pick, survey.pick_cost, low, True)
    old[good] = pick[good]
    return good


def _match(engine: Engine, columns: Array, low: Array, exact: bool) -> Array:
    """Begin a phase with these pairs matched; the rows that are left."""
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
    if problem.n_virtual_columns:
        _fill_group(engine, low, exact)
    left = np.flatnonzero(st.column_of_row == S.FREE).astype(S.ID)
    engine.n_kept = n - left.size
    return left


def _fill_group(engine: Engine, low: Array, exact: bool) -> None:
    """Virtual columns: their price parts the rows with a column from those without."""
    st = engine.state
    n, m = engine.problem.shape
    threshold = np.partition(low, m - 1)[m - 1]
    if threshold >= engine.infinity:
        st.column_of_row[:] = st.row_of_column[:] = S.FREE
        st.at.group_price = engine.group_price_start()
        return
    st.at.group_price = -threshold
    slop = allowed(engine, np.abs(threshold) + st.v.max() - st.v.min(), exact)
    left_over = rows_for_group(low, threshold, slop, st.column_of_row, st.row_of_column, n - m)
    st.group[: left_over.size] = left_over
    st.column_of_row[left_over] = S.GROUPED - np.arange(left_over.size)
    st.at.group_size = left_over.size
