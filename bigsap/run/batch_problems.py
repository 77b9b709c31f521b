"""The problems of ``solve_many``: their costs, true sizes and prices, checked once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InputError, OptionError, ShapeError
from bigsap.sources.missing import parted
from bigsap.types import Array


@dataclass(frozen=True)
class BatchProblems:
    """Costs (k, n, m) or a sequence of them, with what differs from problem to problem.

    rows, columns: (k,) int64, the sizes of padded problems; None if they are not padded. prices: None,
    or a number or vector a problem: (k,) or (k, n) numbers, or a list.
    """

    costs: Any
    rows: Array | None = None
    columns: Array | None = None
    prices: Any = None

    def __len__(self) -> int:
        return len(self.costs)

    def each(self) -> Iterator[Any]:
        """Return the costs of one problem after the other."""
        if self.rows is None and self.columns is None:
            return iter(self.costs)
        return (self.cost(place) for place in range(len(self)))

    def cost(self, place: int) -> Any:
        """Return the costs of a problem without their padding: a view of the user's array."""
        cost = self.costs[place]
        if self.rows is not None:
            cost = cost[: self.rows[place]]
        return cost if self.columns is None else cost[:, : self.columns[place]]

    def options(self, place: int) -> dict[str, Any]:
        """Return the options of ``solve`` that only this problem has."""
        if self.prices is None:
            return {}
        prices = self.prices[place]
        if self.rows is not None and np.ndim(prices) == 1 and len(prices) > self.rows[place]:
            prices = prices[: self.rows[place]]
        return {"unassigned_cost": prices}


def batch_problems(costs: Any, rows: Any, columns: Any, prices: Any) -> BatchProblems:
    """Check what ``solve_many`` was given for a list or an array of costs.

    Raises ShapeError for sizes that do not fit the costs, DtypeError for sizes that are no whole
    numbers, OptionError for costs without a size to cut.
    """
    if rows is not None or columns is not None:
        costs = costs if isinstance(costs, np.ndarray) else [_as_matrix(c, p) for p, c in enumerate(costs)]
        rows = _sizes("rows", rows, costs, 0)
        columns = _sizes("columns", columns, costs, 1)
    return BatchProblems(costs, rows, columns, _prices(prices, costs))


def shapes_of(costs: Any) -> Array:
    """Return the shapes (k, 2) of an array (k, n, m), or of matrices, as intp."""
    if isinstance(costs, np.ndarray):
        return np.tile(np.array(costs.shape[1:], np.intp), (len(costs), 1))
    return np.array([cost.shape for cost in costs], np.intp).reshape(-1, 2)


def _as_matrix(cost: Any, place: int) -> Array:
    """Return costs that can be cut to their true size."""
    if isinstance(cost, (list, tuple)):
        cost, missing = parted(cost, "costs")
        if missing is not None:
            cost = None
    if not isinstance(cost, np.ndarray) or cost.ndim != 2:
        raise OptionError(
            f"rows= and columns= are not valid: problem {place} is no matrix in memory; give padded"
            " matrices, or costs of their true size and neither option"
        )
    return cost


def _sizes(name: str, given: Any, costs: Any, axis: int) -> Array | None:
    """Return true sizes (k,) as int64, each between 0 and the size of the problem's matrix."""
    if given is None:
        return None
    try:
        sizes, missing = parted(given, name)
    except InputError as error:
        raise type(error)(f"{name} is not valid: {error}; give one whole number a problem") from error
    if sizes.shape != (len(costs),):
        raise ShapeError(
            f"{name} is not valid: it has shape {sizes.shape} for {len(costs)} problems; give one whole"
            " number a problem"
        )
    if len(sizes) and (sizes.dtype.kind not in "iu" or missing is not None):
        raise DtypeError(f"{name} is not valid: it holds {sizes.dtype}; give one whole number a problem")
    if isinstance(costs, np.ndarray):
        if costs.ndim != 3:
            raise ShapeError(f"{name} is for costs (k, n, m) or a list of matrices, got shape {costs.shape}")
        limits = np.full(len(costs), costs.shape[1 + axis])
    else:
        limits = np.array([cost.shape[axis] for cost in costs], np.int64)
    bad = (sizes < 0) | (sizes > limits)
    if bad.any():
        p = int(bad.argmax())
        raise ShapeError(
            f"{name} of problem {p} is {sizes[p]}, but its matrix has {limits[p]} {name}; give a number"
            f" from 0 to {limits[p]}"
        )
    return sizes.astype(np.int64)


def _prices(given: Any, costs: Any) -> Any:
    """Return prices that can be indexed by problem; a number is the price of all rows."""
    if given is None:
        return None
    count = len(costs) if hasattr(costs, "__len__") else None
    listed = isinstance(given, (list, tuple)) and any(np.ndim(one) for one in given)
    if not listed:
        given, missing = parted(given, "unassigned_cost")
        if missing is not None:
            raise DtypeError("unassigned_cost is not valid: values are missing; give a number for each")
        if given.ndim == 0:
            return _Same(given[()])
    if len(given) != count or (not listed and given.ndim > 2):
        told = f"a list of {len(given)}" if listed else f"shape {given.shape}"
        raise ShapeError(
            f"unassigned_cost is not valid: {told} for {count} problems; give a number, one a problem,"
            " or one a row of each problem"
        )
    return given


@dataclass(frozen=True)
class _Same:
    """The same price for every problem."""

    price: Any

    def __getitem__(self, place: int) -> Any:
        return self.price
