"""Warm start of compressed rows from prices, and perhaps an assignment, of similar costs.

One evaluation of every row under the old prices gives its list and its smallest reduced
cost; a row whose old pair is still tight keeps it, and only the others are searched for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.virtual import rows_for_group
from bigsap.engine.lists.first_matching import Entries, FirstPairs, keep_tight, pick_tight
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.proof.tightness import UNIT
from bigsap.strategies.start.outliers import usual
from bigsap.strategies.start.warm import Warm, allowed, fitting, lacking
from bigsap.types import Array


def begin(engine: ListEngine, warm: Warm, rows: Array | None, columns: Array | None, grid: float) -> Array:
    """Set the engine's prices; return the old column of each row (n,), negative = none.

    rows, columns: the order in which the engine has those of ``warm``, None for its own.
    """
    v = fitting(engine, warm.v, grid)
    engine.v[:] = v if columns is None else v[columns]
    pairs = np.full(engine.problem.shape[0], S.FREE, S.ID)
    if warm.column_of_row is not None:
        pairs[:] = np.maximum(warm.column_of_row, S.FREE)
    if rows is not None and columns is not None:
        place = np.empty(columns.size, S.ID)
        place[columns] = np.arange(columns.size)
        pairs = pairs[rows]
        pairs = np.where(pairs >= 0, place[pairs], S.FREE).astype(S.ID)
    if engine.n_virtual:
        free = np.ones(v.size, bool)
        free[pairs[pairs >= 0]] = False
        engine.lower_to_cap(engine.v[free])
    return pairs


def adopt(engine: ListEngine, pairs: Array, order: Array) -> tuple[Array, float]:
    """Match tight pairs on lists just evaluated; return the other rows in order, and what is hidden.

    pairs: old column of each row, negative = none. Open rows then take free columns that are
    tight. Tolerances allow for rounding. An old pair may have been tight, so its tolerance is that of
    its cost. A picked column's tolerance is that of costs less the row's reference, or one rounding of
    the cost, which is no more precise. Tolerances of all rows add up, and where all costs share a large
    term, tolerances of whole costs would hide the differences. Hidden: see ``warm.lacking``.
    """
    lists, v = engine.lists, engine.v
    relative = engine.relative_minima()
    low = lists.reference + relative
    finite = low < engine.infinity
    exact, extent = not (pairs >= 0).any(), _extent(v)
    size = 2 * np.abs(np.where(finite, low, 0)) + extent
    excess = np.zeros(low.size, engine.price) + allowed(engine, size, exact)
    entries = Entries(lists.ids, lists.costs, lists.start, lists.size)
    matching = FirstPairs(engine.column_of_row, engine.row_of_column, engine.match_cost)
    keep_tight(entries, v, pairs, excess, matching, engine.infinity)
    del excess  # no more vectors than the search itself uses, see tests/unit/test_memory.py
    size = 2 * np.abs(np.where(finite, relative, 0)) + extent
    near = np.zeros(low.size, engine.price) + allowed(engine, size, exact=False)
    if engine.price.kind == "f" and not engine.problem.integer:
        near = np.maximum(near, 2 * UNIT * usual(np.abs(np.where(finite, low, 0))))
    pick_tight(entries, v, order, near, matching, engine.infinity)
    del near, size, finite
    threshold = _fill_group(engine, low, exact) if engine.group.size else engine.infinity
    if engine.n_virtual:
        engine.hold_at_cap()
    engine.open_price[:] = np.where(engine.row_of_column < 0, v, engine.blocked)
    left: Array = order[engine.column_of_row[order] == S.FREE]
    reduced = engine.match_cost - v[np.maximum(engine.column_of_row, 0)]
    return left, lacking(engine, engine.column_of_row, reduced, relative, threshold - lists.reference)


def _extent(v: Array) -> Any:
    """Return the range of the prices, or that of nine tenths of them if a few are outliers.

    With outliers the rounding tolerance of the full range would hide differences elsewhere.
    """
    extent = v.max() - v.min()
    if v.dtype.kind != "f" or v.size < policy.OUTLIERS_AMONG:
        return extent
    few = v.size // policy.FEW_OUTLIERS
    ordered = np.partition(v, (few, v.size - 1 - few))
    most = ordered[v.size - 1 - few] - ordered[few]
    return most if extent > policy.OUTLYING * most > 0 else extent


def _fill_group(engine: ListEngine, low: Array, exact: bool) -> Any:
    """Set and return the price of virtual columns, which separates assigned from unassigned rows."""
    m, v = engine.v.size, engine.v
    threshold = np.partition(low, m - 1)[m - 1]
    if threshold >= engine.infinity:
        engine.column_of_row[:] = engine.row_of_column[:] = S.FREE
        engine.open_group()
        return engine.infinity
    slop = allowed(engine, np.abs(threshold) + v.max() - v.min(), exact)
    rest = rows_for_group(low, threshold, slop, engine.column_of_row, engine.row_of_column, engine.group.size)
    engine.open_group(-threshold, rest)
    return threshold
