"""Choice of first prices: none, the estimator's, or those of levels.

Levels pay where costs are smooth: where rows that are neighbours in the compact order, and
columns, have similar costs. A stratified sample measures this. The *nugget* (a term of
geostatistics) is the share of the variance of the costs, less the means of rows and columns, that
remains between neighbours. It is 1 for i.i.d. costs, and halves in the plane when a sample doubles.
If it is neither small nor falling, costs have many dimensions, or noise. Then the sample is
solved exactly, and so is a stratified quarter of it: levels pay if the quarter's prices recover
most of the dual value that exact prices add. Costs that are i.i.d., or nearly so, are recognised
from a few rows and columns, ordered by landmarks among these. They need no prices, unless they
pile up at the smallest of a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.rows.row_engine import Engine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.row_cache import RowCache, Rows
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Resident
from bigsap.sources.cuda.placed import many_coordinates_there
from bigsap.strategies import whole_rows
from bigsap.strategies.levels import SHARE, reached
from bigsap.strategies.list_sizes import many_dimensions
from bigsap.strategies.placement import engine_for, unrelated_there
from bigsap.strategies.start.estimate import estimate
from bigsap.strategies.start.samples import Counts, pairs_are_cheap, some_costs
from bigsap.strategies.start.strata import Strata, finite, one_of_each, strata_of
from bigsap.types import Array

#: Values of the option ``start``.
STARTS = ("auto", "levels", "estimate", "none")


def choose_first_prices(
    problem: Problem, monitor: Monitor, seed: int, counts: Counts
) -> tuple[str, Strata | None]:
    """Return ``"none"``, ``"estimate"`` or ``"levels"``, and the strata that levels are made of.

    Reads about 512 rows, or only pairs of them where these are cheap; they are counted.
    Deterministic for a seed.
    """
    n, m = problem.shape
    if min(n, m) < policy.FIRST_PRICES_ROWS:
        solved = _estimator_solves(problem, monitor, seed, counts)
        return ("estimate" if solved else "none"), None
    # A device reads all costs sooner than the host reads a sample, and there the estimator's prices save
    # searches a fifth of their scans.
    if n == m and unrelated_there(problem.source):
        return "estimate", None
    generator = np.random.default_rng(seed)
    # The same rows and columns, so that a special diagonal is recognised.
    shuffled = generator.permutation(min(n, m))
    some = np.sort(shuffled[: policy.ESTIMATOR_TRIED])
    if not pairs_are_cheap(problem):
        return _choose_by_rows(problem, some, monitor, seed, counts)
    if n == m:
        costs = _signed(problem, some, some, monitor, counts)
        if costs is None:
            return "none", None
        if _unrelated(costs):
            return ("estimate" if _piled_up(costs) else "none"), None
        if np.isfinite(costs).all() and _estimator_proves(costs):
            some = np.sort(shuffled[: policy.ESTIMATOR_TRIED_AGAIN])
            costs = _signed(problem, some, some, monitor, counts)
            if costs is not None and np.isfinite(costs).all() and _estimator_proves(costs):
                return "estimate", None
    if many_coordinates_there(problem.source):
        return "none", None  # searches of a level ask for rows one by one
    strata = strata_of(problem, monitor, seed, counts)
    drawn = _draw(problem, strata, policy.SAMPLE_ROWS, np.random.default_rng([seed, 1]))
    costs = _signed(problem, drawn.rows, drawn.columns, monitor, counts)
    if costs is None:
        return "none", None
    if _worth(costs, drawn) or _prices_spread(problem, strata, drawn, costs, monitor, counts):
        return "levels", strata
    # With twice as many columns as rows no prices are needed.
    competing = max(n, m) < policy.SKINNY * min(n, m)
    estimated = competing and _piled_up(costs) and nugget(costs) > policy.NUGGET_UNRELATED
    return ("estimate" if estimated else "none"), None


def _choose_by_rows(
    problem: Problem, some: Array, monitor: Monitor, seed: int, counts: Counts
) -> tuple[str, Strata | None]:
    """Return the same choice where a pair costs as much as its row.

    All decisions follow from one reading of a few rows, and only these rows have a known order.
    """
    strata = strata_of(problem, monitor, seed, counts)
    drawn = _draw(problem, strata, some.size, np.random.default_rng([seed, 1]))
    drawn = replace(drawn, rows=some[: drawn.rows.size])
    columns, places = np.unique(np.concatenate([some, drawn.columns]), return_inverse=True)
    costs = _signed(problem, some, columns, monitor, counts)
    if costs is None:
        return "none", None
    n, m = problem.shape
    corner = np.ascontiguousarray(costs[:, places[: some.size]])
    if n == m and np.isfinite(corner).all() and _estimator_proves(corner):
        return "estimate", None
    sampled = costs[: drawn.rows.size, places[some.size :]]
    worth = _worth(np.ascontiguousarray(sampled), drawn, ordered_rows=False)
    return ("levels", strata) if worth else ("none", None)


def estimated_prices(
    problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], counts: Counts
) -> tuple[Array, Array | None, bool]:
    """Return prices of A1015's estimator, its assignment if proved optimal, and a flag.

    The flag tells whether one plain phase is to follow.
    """
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


def _estimator_solves(problem: Problem, monitor: Monitor, seed: int, counts: Counts) -> bool:
    """Return whether the estimator's sweeps are likely to solve a problem with few Python rows.

    The sweeps then request fewer pairs than lists, whose first evaluation reads as much as one sweep.
    """
    n, m = problem.shape
    if n != m or pairs_are_cheap(problem):
        return False
    tried = min(policy.ESTIMATOR_TRIED_BY_PYTHON, n // 4)
    some = np.sort(np.random.default_rng(seed).permutation(n)[:tried])
    costs = _signed(problem, some, some, monitor, counts)
    if costs is None or not costs.size or not np.isfinite(costs).all():
        return False
    with Team(1) as team:
        return estimate(_engine(costs, team)).solution is not None


def _estimator_proves(costs: Array) -> bool:
    """Return whether the estimator alone solves a sub-problem."""
    with Team(1) as team:
        return estimate(_engine(costs, team)).epsilon == 0


@dataclass(frozen=True)
class _Sample:
    """Stratified sample of rows and columns in compact order.

    quarter_rows, quarter_columns: positions in it, of a stratified sample of the sample.
    """

    rows: Array
    columns: Array
    quarter_rows: Array
    quarter_columns: Array


def _draw(problem: Problem, strata: Strata, size: int, generator: np.random.Generator) -> _Sample:
    """Draw about ``size`` lines of the shorter side, and of the longer side in proportion."""
    # Powers of two, so that strata of the sample are nodes of the k-d tree of the whole.
    step = 2 ** max(0, round(math.log2(min(problem.shape) / size)))

    def draw(order: Array) -> Array:
        wider = 2 ** max(0, math.ceil(math.log2(order.size / (step * policy.LONGEST_SAMPLE * size))))
        return one_of_each(order, step * wider, generator)

    rows, columns = draw(strata.rows), draw(strata.columns)
    return _Sample(
        rows,
        columns,
        one_of_each(np.arange(rows.size), SHARE, generator),
        one_of_each(np.arange(columns.size), SHARE, generator),
    )


def _worth(costs: Array, drawn: _Sample, *, ordered_rows: bool = True) -> bool:
    """Return whether levels pay, according to a sample in compact order."""
    if _picks_differ(costs):
        return False
    now, before = _nuggets(costs, ordered_rows=ordered_rows)
    if now > policy.NUGGET_ROUGH:
        return means_share(costs) > policy.MEANS_SHARE and _gains(costs, drawn)
    return bool(now <= policy.NUGGET_SMOOTH or now < policy.NUGGET_FALLING * before or _gains(costs, drawn))


def _prices_spread(
    problem: Problem, strata: Strata, drawn: _Sample, costs: Array, monitor: Monitor, counts: Counts
) -> bool:
    """Return whether prices differ over long distances by more than a row's near columns do.

    Searches for such prices go far, and levels find them from few points: in mixtures, where the two sides
    have other densities. What the prices of two samples have in common shows the differences, some whole
    rows what is near. Only for large problems, whose samples are a small part.
    """
    n, m = problem.shape
    size = drawn.rows.size
    if n != m or strata.kind != "coordinates" or n < policy.SPREAD_SAMPLES * size:
        return False
    if many_dimensions(problem.source):  # the rows of a level's searches would be multiplied one by one
        return False
    other = _draw(problem, strata, policy.SAMPLE_ROWS, np.random.default_rng([size, n]))
    again = _signed(problem, other.rows, other.columns, monitor, counts)
    rows = drawn.rows[:: max(1, size // policy.SPREAD_ROWS)]
    whole = _signed(problem, rows, np.arange(m), monitor, counts)
    if again is None or whole is None:
        return False
    nearest = np.partition(whole, (0, policy.SPREAD_RANK), axis=1)
    near = float(np.median(nearest[:, policy.SPREAD_RANK] - nearest[:, 0]))
    if not 0 < near < np.inf:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        common = np.cov(_middles(costs) / near, _middles(again) / near)[0, 1]
    return bool(abs(common) > policy.SPREAD**2)


def _middles(costs: Array) -> Array:
    """Return the median of the optimal prices in each group of neighbouring columns of a sample; or nan."""
    with Team(1) as team:
        v = _exact_prices(costs, team)
    v = np.full(costs.shape[1], np.nan) if v is None else v
    return np.array([np.median(part) for part in np.array_split(v, policy.SPREAD_GROUPS)])


def _unrelated(costs: Array) -> bool:
    """Return whether some rows and columns, the same in a square problem, look like i.i.d. costs.

    Costs of so many dimensions that no neighbour is near look the same. Returns False where columns'
    means differ or the diagonal is special: other first prices may then be better.
    """
    rows = compact_order(finite(costs[:, : policy.PLACING_ROWS]))
    columns = compact_order(finite(costs[: policy.PLACING_ROWS].T))
    rows, columns = rows[rows >= policy.PLACING_ROWS], columns[columns >= policy.PLACING_ROWS]
    ordered = costs[np.ix_(rows, columns)]
    now, before = _nuggets(ordered)
    if (
        now <= policy.NUGGET_UNRELATED
        or now < policy.NUGGET_STEADY * before
        or means_share(ordered) > policy.MEANS_SHARE
    ):
        return False
    special = float((costs.argmin(axis=1) == np.arange(costs.shape[0])).mean())
    return special <= policy.DIAGONAL_SHARE


def _piled_up(costs: Array) -> bool:
    """Return whether unrelated costs pile up towards a row's smallest, as powers of uniform costs do.

    An epsilon that suits the mean row is then far too coarse for most: the estimator's prices, which
    take two more readings, save lists up to a thousand scans a row.
    """
    nearest = np.partition(costs[:: policy.PILE_APART], policy.PILE_RANKS, axis=1)
    low = nearest[:, : policy.PILE_RANKS[0]].min(axis=1)
    first, last = (nearest[:, k] - low for k in policy.PILE_RANKS)
    known = (first > 0) & np.isfinite(last)
    return bool(2 * np.count_nonzero(last[known] > policy.PILED_UP * first[known]) > known.size)


def _nuggets(costs: Array, *, ordered_rows: bool = True) -> tuple[float, float]:
    """Return the nugget of a sample in compact order, and that of every second line.

    Of rows and columns, or of columns alone.
    """

    def of(costs: Array) -> float:
        rest, known = _residuals(costs)
        by_columns = _between(rest.T, None if known is None else known.T)
        return (by_columns + _between(rest, known)) / 2 if ordered_rows else by_columns

    return of(costs), of(costs[::2, ::2])


def _picks_differ(costs: Array) -> bool:
    """Return whether the shorter side is clearly shorter and its cheapest pairs seldom conflict.

    Searches then end soon whatever the prices are.
    """
    if costs.shape[0] > costs.shape[1]:
        costs = costs.T
    n, m = costs.shape
    by_chance = -m * math.expm1(-n / m)
    return bool(
        m > policy.WIDE * n and np.unique(costs.argmin(axis=1)).size > policy.DIFFERENT_PICKS * by_chance
    )


def nugget(costs: Array) -> float:
    """Return the share of the costs' variance that remains between neighbouring rows.

    Of costs (n, m), less the means of rows and columns, between rows 2 k and 2 k + 1. Counts allowed
    pairs only; 0 for constant costs.
    """
    return _between(*_residuals(costs))


def _between(rest: Array, known: Array | None) -> float:
    """Return the nugget of these residuals."""
    half = rest.shape[0] // 2
    steps = rest[: 2 * half : 2] - rest[1 : 2 * half : 2]
    both = None if known is None else known[: 2 * half : 2] & known[1 : 2 * half : 2]
    if both is not None:
        steps *= both
    variance = _mean_square(rest, known)
    return _mean_square(steps, both) / (2 * variance) if variance > 0 else 0.0


def _mean_square(rest: Array, known: Array | None) -> float:
    """Return the mean square of the known entries; the others are 0."""
    count = rest.size if known is None else int(np.count_nonzero(known))
    return float(np.einsum("ij,ij->", rest, rest)) / max(1, count)


def means_share(costs: Array) -> float:
    """Return the share of the variance of costs (n, m), less row means, between column means.

    Counts allowed pairs only; 0 for constant costs.
    """
    rest, known = _residuals(costs, columns=False)
    variance = _mean_square(rest, known)
    some = None if known is None else np.asarray(known.any(axis=0, keepdims=True))
    return _mean_square(_mean(rest, known, 0), some) / variance if variance > 0 else 0.0


def _residuals(costs: Array, *, columns: bool = True) -> tuple[Array, Array | None]:
    """Return residuals of the costs, and a mask of allowed pairs, or None if all are allowed.

    Costs are scaled by the largest, less the means of rows, and of columns; 0 for forbidden pairs.
    """
    here = np.isfinite(costs)
    known = None if here.all() else here
    allowed = costs if known is None else np.where(known, costs, 0.0)
    scale = max(allowed.max(initial=0.0), -allowed.min(initial=0.0))
    if not scale > 0:
        return np.zeros_like(costs), known
    rest: Array = allowed / scale
    for axis in (1, 0) if columns else (1,):
        rest -= _mean(rest, known, axis)
        if known is not None:
            rest *= known
    return rest, known


def _mean(rest: Array, known: Array | None, axis: int) -> Array:
    """Return means of the known entries along an axis, with that axis kept; 0 without entries."""
    if known is None:
        return np.asarray(rest.mean(axis=axis, keepdims=True))
    return np.asarray(rest.sum(axis=axis, keepdims=True) / np.maximum(1, known.sum(axis, keepdims=True)))


def _gains(costs: Array, drawn: _Sample) -> bool:
    """Return whether a quarter's prices recover enough of the dual value.

    Every second row and column of the sample decides, or the whole sample if they leave a doubt.
    """
    rows, columns = drawn.rows[::2], drawn.columns[::2]
    generator = np.random.default_rng([rows.size, columns.size])
    half = _Sample(
        rows,
        columns,
        one_of_each(np.arange(rows.size), SHARE, generator),
        one_of_each(np.arange(columns.size), SHARE, generator),
    )
    share = _recovered(np.ascontiguousarray(costs[::2, ::2]), half)
    if policy.DOUBTFUL_GAIN[0] <= share <= policy.DOUBTFUL_GAIN[1]:
        share = _recovered(costs, drawn)
    return share > policy.GAIN


def _recovered(costs: Array, drawn: _Sample) -> float:
    """Return the share of a sample's dual value, beyond prices 0, that a quarter's prices recover."""
    with Team(1) as team:
        v = _exact_prices(costs, team)
        corner = np.ascontiguousarray(costs[np.ix_(drawn.quarter_rows, drawn.quarter_columns)])
        inner = _exact_prices(corner, team)
    if v is None or inner is None:
        return -np.inf
    u = (corner - inner).min(axis=1)
    k, width = corner.shape
    if k > width:
        u = np.minimum(u, np.partition(u, width - 1)[width - 1])
    coarse = reached((costs[drawn.quarter_rows] - u[:, None]).min(axis=0))
    if k < width:
        coarse = np.minimum(coarse, inner.max())
    none = dual_value(costs, np.zeros(costs.shape[1]))
    gain = dual_value(costs, v) - none
    if not np.isfinite(gain) or gain <= 0:
        return -np.inf
    return float((dual_value(costs, coarse) - none) / gain)


def dual_value(costs: Array, v: Array) -> float:
    """Return the lower bound that prices v prove.

    For n < m with prices of at most 0; for n > m with the best constant added.
    """
    n, m = costs.shape
    if n < m:
        v = v - v.max()
    u = (costs - v).min(axis=1)
    if n > m:
        u = np.partition(u, m - 1)[:m]
    return float(u.sum() + v.sum())


def _signed(problem: Problem, rows: Array, columns: Array, monitor: Monitor, counts: Counts) -> Array | None:
    """Return signed costs as float64, or None where there are none or too many are not finite."""
    if not rows.size or not columns.size:
        return None
    costs = some_costs(problem, rows, columns, monitor, counts)
    signed = problem.sign * costs.astype(np.float64)
    forbidden = float((~np.isfinite(signed)).mean())
    return signed if forbidden <= policy.FORBIDDEN_SHARE else None


def _engine(signed: Array, team: Team) -> Engine:
    dense = Problem(ArraySource(signed))
    return Engine(dense, Rows.in_place(signed), team, Monitor(), np.dtype(np.float64))


def _exact_prices(signed: Array, team: Team) -> Array | None:
    """Return optimal prices, or None where forbidden pairs leave no solution."""
    outcome = whole_rows.run(_engine(signed, team), epsilon=True, seed=0, grid=0.0, published=True)
    return None if outcome.violator.size else outcome.v
