"""Samples that mirror the whole: strata along a compact order of rows and of columns.

A uniform sample of a region that holds N points is off by about sqrt(N) rows against columns;
prices that are optimal for that imbalance are wrong for the whole over long distances. One
of every few neighbours, of rows and of columns, has no such imbalance.

What makes neighbours: coordinates, where the source has them; else the costs to a few
*landmarks*, of each row to some columns, of each column to some rows. Where a few costs of a
row are as dear as the row, landmark columns would read the whole matrix: then only
the columns, by landmark rows, have an order, and the rows are as they come in a seeded
shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsap.engine.lists.ordering import compact_order
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.base import Array, Separable
from bigsap.strategies.start.samples import Counts, pairs_are_cheap, some_costs

#: Landmark rows, and as many landmark columns.
_LANDMARKS = 8


@dataclass(frozen=True)
class Strata:
    """rows: intp (n,) and columns: intp (m,), all of the problem's, neighbours together.
    kind: by ``"coordinates"``, ``"landmarks"``, or of the ``"columns"`` alone."""

    rows: Array
    columns: Array
    kind: str


def strata_of(problem: Problem, monitor: Monitor, seed: int, counts: Counts) -> Strata:
    """Orders of the rows and columns, see above. What is read is counted.

    Deterministic for a seed. O((n + m) log(n + m)).
    """
    source = problem.source
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is not None and min(terms.y.shape) > 0:
        # Scaled as the costs see them, and finite: far points are no reason to fail here.
        return Strata(
            compact_order(finite(terms.x * terms.scale), monitor.tick),
            compact_order(finite(terms.y.T * terms.scale), monitor.tick),
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
    return Strata(compact_order(finite(of_rows), monitor.tick), column_order, "landmarks")


def finite(features: Array) -> Array:
    """As float64, forbidden pairs and overflows a little beyond the largest of the others."""
    values = features.astype(np.float64)
    fine = np.isfinite(values)
    if not fine.all():
        largest = np.abs(values, where=fine, out=np.zeros_like(values)).max()
        values[~fine] = 2 * min(largest, 1e300) + 1
    return values


def one_of_each(order: Array, size: int, generator: np.random.Generator) -> Array:
    """One of every ``size`` consecutive ones at random, in their order: nested strata.

    Of the last, where it is shorter, if half of it is there.
    """
    whole, rest = divmod(order.size, size)
    places = np.arange(whole) * size + generator.integers(0, size, whole)
    if 2 * rest >= size:
        places = np.append(places, whole * size + generator.integers(0, rest))
    drawn: Array = order[places]
    return drawn
