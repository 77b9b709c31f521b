"""Costs that are a function of inner products of two sets of vectors.

A matrix product gives all costs of many rows at once, some ten times faster than one pair after another,
but rounded otherwise. So it can only exclude pairs; the costs of the others come from the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from bigsap import policy
from bigsap.sources.base import Ability, CostSource
from bigsap.types import Array

#: Numbers of vectors that are widened at a time.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Chosen:
    """A C function that computes chosen costs of one row, with the bits of the source's filler.

    ``void chosen(int64 context, int64 row, int64 ids, int64 n, int64 out)`` writes ``cost[row,
    ids[t]]`` to the t-th item at address ``out``; ids: the address of n int32. Thread-safe.
    ``keep`` holds objects that must outlive the addresses.
    """

    address: int
    context: int
    keep: tuple[Any, ...]


class Widened:
    """float32 vectors (k, d) whose parts are given as float64, divided by both of their divisors (k, 2)."""

    def __init__(self, vectors: Array, divisors: Array) -> None:
        self.vectors, self.divisors, self.shape = vectors, divisors, vectors.shape

    def __getitem__(self, some: Any) -> Array:
        part: Array = self.vectors[some].astype(np.float64)
        for k in range(2):
            part /= self.divisors[some, k, None]
        return part


#: Vectors of a product, (k, d).
Vectors: TypeAlias = Array | Widened


def parts_of(vectors: Vectors) -> Iterator[Array]:
    """Yield the vectors some at a time."""
    step = max(1, _AT_ONCE // max(1, vectors.shape[1]))
    for start in range(0, vectors.shape[0], step):
        yield vectors[start : start + step]


def mean_of(vectors: Vectors) -> Array:
    """Return the mean of vectors (k, d), 0 without any."""
    if not vectors.shape[0]:
        return np.zeros(vectors.shape[1])
    if isinstance(vectors, Widened):
        return np.asarray(sum(part.sum(axis=0) for part in parts_of(vectors)) / vectors.shape[0])
    return np.asarray(vectors.mean(axis=0, dtype=np.float64))


def reach_of(vectors: Vectors) -> float:
    """Return the largest size of a coordinate, 0 without any."""
    if isinstance(vectors, Widened):
        return max((float(np.abs(part).max(initial=0.0)) for part in parts_of(vectors)), default=0.0)
    return max(float(vectors.max(initial=0.0)), -float(vectors.min(initial=0.0)))


@dataclass(frozen=True)
class Product:
    """``cost[i, j] = f(x[i], y[j])``, float64, by ``kind``.

    ``"square"``: scale times the sum over k of weights[k] (x[i, k] - y[j, k])^2. ``"root"``: the square
    root of that. ``"product"``: the inner product of x[i] and y[j], plus row_terms[i] + column_terms[j].
    The filler evaluates the formula as it stands, summed over k in order.

    x: (n_rows, d), y: (n_columns, d), float64, float32 or ``Widened``, finite. weights: (d,) positive.
    row_terms, column_terms: float64 (n_rows,), (n_columns,), finite.
    """

    kind: str
    x: Vectors
    y: Vectors
    weights: Array
    scale: float
    row_terms: Array
    column_terms: Array
    chosen: Chosen


@runtime_checkable
class Multiplied(Protocol, metaclass=Ability):
    """Costs are a function of inner products, so matrix products bound them."""

    def product(self) -> Product | None:
        """Return the vectors and the function, None if this instance has none."""
        ...


def is_multiplied(source: CostSource) -> bool:
    """Return whether lists of a source's rows are made by matrix products."""
    if source.shape[1] < policy.PRODUCT_COLUMNS or not isinstance(source, Multiplied):
        return False
    product = source.product()
    return product is not None and product.x.shape[1] >= policy.PRODUCT_COORDINATES
