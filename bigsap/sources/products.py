"""Costs that are a function of inner products of two sets of vectors.

A matrix product gives all costs of many rows at once, some ten times faster than one pair after another,
but rounded otherwise. So it can only exclude pairs; the costs of the others come from the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bigsap import policy
from bigsap.sources.base import Ability, CostSource
from bigsap.types import Array


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


@dataclass(frozen=True)
class Product:
    """``cost[i, j] = f(x[i], y[j])``, float64, by ``kind``.

    ``"square"``: scale times the sum over k of weights[k] (x[i, k] - y[j, k])^2. ``"root"``: the square
    root of that. ``"product"``: the inner product of x[i] and y[j], plus row_terms[i] + column_terms[j].
    The filler evaluates the formula as it stands, summed over k in order.

    x: (n_rows, d), y: (n_columns, d), float64 or float32, finite. weights: (d,) positive.
    row_terms, column_terms: float64 (n_rows,), (n_columns,), finite.
    """

    kind: str
    x: Array
    y: Array
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
