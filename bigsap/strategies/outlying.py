"""Outlying points: excluded from levels, and priced afterwards by a small problem.

One faulty reading puts a point away from the others by many times their own distances. A sample
that contains it, or contains its column but not its row, has prices of that size; shifting the
largest price to 0 would then lose the digits of all others. So levels contain only points that are
not outlying. The prices of outlying columns relative to the others come from a small problem of the
outlying rows and columns, each with one extra line that stands for the others.

Any prices are a legal start, so outlying points do not affect the optimality of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.rows.row_engine import Engine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.row_cache import Rows
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Separable
from bigsap.strategies import whole_rows
from bigsap.strategies.start.samples import Counts, some_costs
from bigsap.strategies.start.strata import Strata
from bigsap.types import Array

#: Coordinates that are looked at together.
_TOGETHER = 16


@dataclass(frozen=True)
class Outlying:
    """Outlying points. rows, columns: intp, ascending ids of the problem."""

    rows: Array
    columns: Array


def outlying(problem: Problem, strata: Strata) -> Outlying | None:
    """Return the few points of a square problem that are far from all others; None without any.

    Without coordinates, rows and columns are outlying by their costs to landmarks.
    """
    source = problem.source
    n, m = problem.shape
    terms = source.separable() if isinstance(source, Separable) else None
    if n == m and not problem.integer and strata.far_rows.size + strata.far_columns.size:
        return Outlying(strata.far_rows, strata.far_columns)
    if terms is None or n != m or problem.integer or terms.kind == "product" or not terms.x.size:
        return None
    sides = terms.x, terms.y.T
    # Some coordinates at a time: of hundreds, copies of all would take more memory than the points.
    parts = [slice(k, k + _TOGETHER) for k in range(0, terms.scale.size, _TOGETHER)]
    ends = np.concatenate([_usual_ends([side[:, part] for side in sides]) for part in parts], axis=1)
    middle, extent = ends.mean(axis=0), float((ends[1] - ends[0]).max())
    if not extent > 0:
        return None
    far = [np.zeros(n, bool), np.zeros(m, bool)]
    for part in parts:
        for side, found in zip(sides, far, strict=True):
            found |= (np.abs(side[:, part] - middle[part]) > policy.FAR_POINT * extent).any(axis=1)
    rows, columns = map(np.flatnonzero, far)
    most = min(policy.MOST_FAR_POINTS, n // policy.FEW_OUTLIERS)
    if not rows.size + columns.size or max(rows.size, columns.size) > most:
        return None
    return Outlying(rows, columns)


def _usual_ends(sides: list[Array]) -> Array:
    """Return (2, d) coordinates between which nine tenths of the points (n, d) of both sides lie."""
    ends: Array = np.quantile(np.concatenate(sides, dtype=np.float64), (0.05, 0.95), axis=0)
    return ends


def without(order: Array, left_out: Array, size: int) -> Array:
    """Return an order without some ids, and cut to ``size``."""
    kept: Array = order[~np.isin(order, left_out)][:size]
    return kept


def worth(problem: Problem, v: Array, far: Outlying, team: Team, monitor: Monitor, counts: Counts) -> Array:
    """Return the prices with those of outlying columns computed from the rows' costs.

    v: (m,) prices by rows that are not outlying. The largest of the other columns' becomes 0.
    """
    rows, columns = far.rows, far.columns
    near = np.ones(v.size, bool)
    near[columns] = False
    top = float(v[near].max())
    v = v - top
    if not rows.size or not columns.size:
        return v
    costs = problem.sign * some_costs(problem, rows, np.arange(v.size), monitor, counts)
    k, size = rows.size, rows.size + columns.size
    # For an outlying row, its cheapest other column stands for all others; which one matters little.
    small = np.zeros((size, size))
    small[:k, : columns.size] = costs[:, columns]
    small[:k, columns.size :] = (costs[:, near] - v[near]).min(axis=1)[:, None]
    small[k:, : columns.size] = v[columns]
    prices = _nearest_to_zero(small, team, monitor)[: columns.size]
    v[columns] = np.minimum(v[columns], prices)
    return v


def _nearest_to_zero(costs: Array, team: Team, monitor: Monitor) -> Array:
    """Return optimal prices of a small square matrix, each as close to 0 as possible.

    The largest price of the last row and column, which are not outliers, is 0.
    """
    dense = Problem(ArraySource(costs), maximize=False)
    engine = Engine(dense, Rows.in_place(costs), team, monitor, np.dtype(np.float64))
    found = whole_rows.run(engine, epsilon=True, seed=0, grid=0.0, published=True).column_of_row
    if found is None:
        return np.zeros(costs.shape[0])
    # away[s, j]: the largest amount by which j's price may exceed that of s.
    own = costs[np.arange(found.size), found]
    away = np.empty_like(costs)
    away[found] = costs - own[:, None]
    for middle in range(found.size):
        np.minimum(away, away[:, middle, None] + away[middle], out=away)
    most, least = away[-1], -away[:, -1]
    prices: Array = np.clip(0.0, np.minimum(least, most), most)
    return prices
