"""Which first prices are worth having: none, the estimator's, or those of levels.

A stratified sample is solved exactly, and so is a stratified quarter of it. Where the quarter's
prices recover most of the dual value that exact prices add, costs have structure at large
scale, and so will levels. Prices of i.i.d. costs recover less than nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap.engine.cpu import Engine
from bigsap.engine.gpu import engine_for
from bigsap.engine.team import Team
from bigsap.methods import ssp
from bigsap.methods.levels import SHARE
from bigsap.methods.parts import Counts, pairs_are_cheap, some_costs
from bigsap.methods.start import estimate
from bigsap.methods.strata import Strata, one_of_each, sample, strata_of
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.rows import RowCache, Rows
from bigsap.sources.arrays import ArraySource
from bigsap.sources.base import Array, Resident

#: What ``start=`` may be.
STARTS = ("auto", "levels", "estimate", "none")
#: Problems with fewer rows or columns are begun without a sample.
_WORTH = 1500
#: Rows of the samples, the second taken only where the first leaves hope.
_SAMPLES = (256, 512)
#: The share of the optimum's dual value that prices of a quarter must recover, and below which
#: a small sample says that those of a larger one will not.
_GAIN = 0.5
_HOPELESS = -2.0
#: Columns of a sample are at most so many times its rows, and the other way round.
_LONGEST = 4


def choose_first_prices(
    problem: Problem, monitor: Monitor, seed: int, counts: Counts
) -> tuple[str, Strata | None]:
    """``"none"``, ``"estimate"`` or ``"levels"``, and the strata that levels are made of.

    Reads some 512 rows, or pairs of them alone where these are cheap; they are counted.
    Deterministic for a seed.
    """
    n, m = problem.shape
    if min(n, m) < _WORTH:
        return "none", None
    generator = np.random.default_rng(seed)
    # The same rows and columns: a special diagonal shows only then.
    some = np.sort(generator.permutation(min(n, m))[: _SAMPLES[0]])
    if not pairs_are_cheap(problem):
        return _choose_by_rows(problem, some, monitor, seed, counts)
    if n == m:
        costs = _signed(problem, some, some, monitor, counts)
        if costs is None:
            return "none", None
        if _estimator_proves(costs):
            return "estimate", None
    strata = strata_of(problem, monitor, seed, counts)
    share = -np.inf
    for size in _SAMPLES:
        drawn = _draw(problem, strata, size, np.random.default_rng([seed, size]))
        costs = _signed(problem, drawn.rows, drawn.columns, monitor, counts)
        share = -np.inf if costs is None else _recovered(costs, drawn)
        if share < _HOPELESS:
            break
    return ("levels", strata) if share > _GAIN else ("none", None)


def _choose_by_rows(
    problem: Problem, some: Array, monitor: Monitor, seed: int, counts: Counts
) -> tuple[str, Strata | None]:
    """The same where a pair costs its row: all of it from one reading of a few rows, which the
    order of the rows is not known beyond."""
    strata = strata_of(problem, monitor, seed, counts)
    drawn = _draw(problem, strata, some.size, np.random.default_rng([seed, some.size]))
    drawn = replace(drawn, rows=some[: drawn.rows.size])
    columns, places = np.unique(np.concatenate([some, drawn.columns]), return_inverse=True)
    costs = _signed(problem, some, columns, monitor, counts)
    if costs is None:
        return "none", None
    n, m = problem.shape
    if n == m and _estimator_proves(np.ascontiguousarray(costs[:, places[: some.size]])):
        return "estimate", None
    sampled = costs[: drawn.rows.size, places[some.size :]]
    share = _recovered(np.ascontiguousarray(sampled), drawn)
    return ("levels", strata) if share > _GAIN else ("none", None)


def estimated_prices(
    problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], counts: Counts
) -> tuple[Array, Array | None, bool]:
    """Prices of A1015's estimator, an assignment if it proved one optimal, and whether
    one plain phase is to follow."""
    matrix = problem.source.resident() if isinstance(problem.source, Resident) else None
    if matrix is not None:
        rows = Rows.in_place(matrix)
    else:
        budget = 64 * problem.shape[1] * problem.source.dtype.itemsize
        rows = Rows.cached(problem.shape, problem.source.dtype, RowCache(), budget)
    engine = engine_for(problem, rows, team, monitor, price)
    start = estimate(engine)
    visits = rows.hits + rows.misses
    counts.rows += visits
    counts.pairs += visits * problem.shape[1]
    return engine.state.v.copy(), start.solution, start.epsilon == 0


def _estimator_proves(costs: Array) -> bool:
    """Whether the estimator ends a sub-problem by itself."""
    with Team(1) as team:
        return estimate(_engine(costs, team)).epsilon == 0


@dataclass(frozen=True)
class _Sample:
    """rows, columns: a stratified sample in compact order; quarter_rows, quarter_columns:
    places in it, of a stratified sample of the sample."""

    rows: Array
    columns: Array
    quarter_rows: Array
    quarter_columns: Array


def _draw(problem: Problem, strata: Strata, size: int, generator: np.random.Generator) -> _Sample:
    n, m = problem.shape
    longer = min(_LONGEST * size, size * max(n, m) // min(n, m))
    n_rows, n_columns = (size, longer) if n <= m else (longer, size)
    rows = sample(strata.rows, n_rows, generator)
    columns = sample(strata.columns, n_columns, generator)
    return _Sample(
        rows, columns, one_of_each(np.arange(rows.size), SHARE, generator),
        one_of_each(np.arange(columns.size), SHARE, generator),
    )  # fmt: skip


def _recovered(costs: Array, drawn: _Sample) -> float:
    """The share of a sample's dual value, beyond prices 0, that a quarter's prices recover."""
    with Team(1) as team:
        v = _exact_prices(costs, team)
        corner = np.ascontiguousarray(costs[np.ix_(drawn.quarter_rows, drawn.quarter_columns)])
        inner = _exact_prices(corner, team)
    u = (corner - inner).min(axis=1)
    k, width = corner.shape
    if k > width:
        u = np.minimum(u, np.partition(u, width - 1)[width - 1])
    coarse = (costs[drawn.quarter_rows] - u[:, None]).min(axis=0)
    if k < width:
        coarse = np.minimum(coarse, inner.max())
    none = dual_value(costs, np.zeros(costs.shape[1]))
    gain = dual_value(costs, v) - none
    if not np.isfinite(gain) or gain <= 0:
        return -np.inf
    return float((dual_value(costs, coarse) - none) / gain)


def dual_value(costs: Array, v: Array) -> float:
    """The lower bound that prices v prove: of n < m at prices of at most 0, of n > m with the
    best constant added."""
    n, m = costs.shape
    if n < m:
        v = v - v.max()
    u = (costs - v).min(axis=1)
    if n > m:
        u = np.partition(u, m - 1)[:m]
    return float(u.sum() + v.sum())


def _signed(
    problem: Problem, rows: Array, columns: Array, monitor: Monitor, counts: Counts
) -> Array | None:
    """Signed costs as float64, None where some are not finite."""
    costs = some_costs(problem, rows, columns, monitor, counts)
    signed = problem.sign * costs.astype(np.float64)
    return signed if np.isfinite(signed).all() else None


def _engine(signed: Array, team: Team) -> Engine:
    dense = Problem(ArraySource(signed))
    return Engine(dense, Rows.in_place(signed), team, Monitor(), np.dtype(np.float64))


def _exact_prices(signed: Array, team: Team) -> Array:
    return ssp.run(_engine(signed, team), epsilon=True, seed=0, grid=0.0).v
