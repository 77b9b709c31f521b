"""Samples that mirror the whole: strata along a compact order of rows and of columns.

In a region with N points, a uniform sample's numbers of rows and columns differ by about sqrt(N);
prices that are optimal for that imbalance are wrong for the whole over long distances. A sample of
one of every few neighbours, of rows and of columns, has no such imbalance.

Neighbours are determined by coordinates, where the source has them; else by the costs to a few
*landmarks*: of each row to some columns, of each column to some rows. Where a few costs of a
row are as expensive as the row, landmark columns would read the whole matrix: then only
the columns are ordered, by landmark rows, and the rows are in a seeded random order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bigsap import policy
from bigsap.engine.lists.ordering import compact_order
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.base import Separable
from bigsap.strategies.start.outliers import no_ids, outlying_lines
from bigsap.strategies.start.samples import Counts, pairs_are_cheap, some_costs
from bigsap.types import Array

#: Number of landmark rows, and of landmark columns.
_LANDMARKS = 8


@dataclass(frozen=True)
class Strata:
    """Orders of a problem's rows and columns, with neighbours together.

    rows: intp (n,), columns: intp (m,). kind: ``"coordinates"``, ``"landmarks"``, or ``"columns"``
    where only these are ordered. far_rows, far_columns: intp, ids of the few lines whose costs are far
    from all others', where landmarks show them.
    """

    rows: Array
    columns: Array
    kind: str
    far_rows: Array = field(default_factory=no_ids)
    far_columns: Array = field(default_factory=no_ids)


def strata_of(problem: Problem, monitor: Monitor, seed: int, counts: Counts) -> Strata:
    """Return orders of the rows and columns; what is read is counted.

    Deterministic for a seed. O((n + m) log(n + m)).
    """
    source = problem.source
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is not None and min(terms.y.shape) > 0:
        # Scaled as in the costs, and finite: distant points must not cause a failure here.
        some = _widest(terms.x, terms.y.T, terms.scale)
        scale = terms.scale[some]
        return Strata(
            compact_order(finite(terms.x[:, some] * scale), monitor.tick),
            compact_order(finite(terms.y[some].T * scale), monitor.tick),
            "coordinates",
        )
    n, m = problem.shape
    generator = np.random.default_rng([seed, n, m, 5])
    rows = np.sort(generator.permutation(n)[:_LANDMARKS])
    columns = np.sort(generator.permutation(m)[:_LANDMARKS])
    of_columns = some_costs(problem, rows, np.arange(m), monitor, counts)
    column_order = compact_order(finite(of_columns.T), monitor.tick)
    if not pairs_are_cheap(problem):
        return Strata(generator.permutation(n), column_order, "columns")
    of_rows = some_costs(problem, np.arange(n), columns, monitor, counts)
    counts.rows -= n  # of which hardly anything was read
    return Strata(
        compact_order(finite(of_rows), monitor.tick),
        column_order,
        "landmarks",
        outlying_lines(of_rows, policy.OUTLYING),
        outlying_lines(of_columns.T, policy.OUTLYING),
    )


def _widest(x: Array, y: Array, scale: Array) -> Array:
    """Return the coordinates along which a compact order splits the points x (n, d) and y (m, d).

    A tree of a few levels splits along the widest coordinates. Of hundreds, to look at all takes longer
    than what follows.
    """
    d = scale.size
    if d <= policy.ORDERED_COORDINATES:
        return np.arange(d)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [points.max(axis=0).astype(np.float64) - points.min(axis=0) for points in (x, y)]
        extent = scale * np.maximum(*ends)
    return np.sort(np.argsort(-extent, kind="stable")[: policy.ORDERED_COORDINATES])


def finite(features: Array) -> Array:
    """Return features as float64, with forbidden pairs and overflows just above the largest others."""
    values = features.astype(np.float64)
    fine = np.isfinite(values)
    if not fine.all():
        largest = np.abs(values, where=fine, out=np.zeros_like(values)).max()
        values[~fine] = 2 * min(largest, 1e300) + 1
    return values


def one_of_each(order: Array, size: int, generator: np.random.Generator) -> Array:
    """Return one of every ``size`` consecutive entries at random, in their order: nested strata.

    Of the last group, if it is shorter, only if at least half of it exists.
    """
    whole, rest = divmod(order.size, size)
    places = np.arange(whole) * size + generator.integers(0, size, whole)
    if 2 * rest >= size:
        places = np.append(places, whole * size + generator.integers(0, rest))
    drawn: Array = order[places]
    return drawn
