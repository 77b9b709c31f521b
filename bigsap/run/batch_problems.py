"""The problems of ``solve_many``: their costs, true sizes and prices, checked once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InputError, OptionError, ShapeError
from bigsap.sources.missing import parted
from bigsap.sources.tensors import is_tensor
from bigsap.types import Array


@dataclass(frozen=True)
class BatchProblems:
    """Costs (k, n, m) or a sequence of them, with what differs from problem to problem.

    rows, columns: (k,) int64, the sizes of padded problems; None if they are not padded. prices: None,
    an array () or (k,) or (k, n), or a list of arrays () and vectors; what is no array is left to ``solve``.
    """

    costs: Any
    rows: Array | None = None
    columns: Array | None = None
    prices: Any = None

    def __len__(self) -> int:
        return _count(self.costs)

    def each(self) -> Iterator[Any]:
        """Return the costs of one problem after the other."""
        if self.rows is None and self.columns is None and isinstance(self.costs, Iterable):
            many = self.prices is not None and not self._one_price
            return self._counted() if many and _length(self.costs) is None else iter(self.costs)
        return (self.cost(place) for place in range(len(self)))

    def _counted(self) -> Iterator[Any]:
        """Return the costs of a generator, one after the other, if they are as many as prices."""
        count = 0
        for cost in self.costs:
            if count == len(self.prices):
                raise _too_many_or_few(self.prices, f"more than {count}")
            count += 1
            yield cost
        if count < len(self.prices):
            raise _too_many_or_few(self.prices, count)

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
        return {"unassigned_cost": self._prices_of(place)}

    @property
    def _one_price(self) -> bool:
        """Whether one number is the price of all rows of all problems."""
        return isinstance(self.prices, np.ndarray) and not self.prices.ndim

    def _prices_of(self, place: int) -> Any:
        if self._one_price:
            return self.prices
        prices = self.prices[place]
        if self.rows is None or not isinstance(prices, np.ndarray) or prices.ndim != 1:
            return prices
        return prices[: self.rows[place]] if len(prices) == len(self.costs[place]) else prices

    def row_prices(self, rows: Array, maximize: bool) -> RowPrices | None:
        """Return the prices of all rows; None if all rows must be assigned. rows: (k,) their numbers."""
        if self.prices is None:
            return None
        first, fits = np.cumsum(rows) - rows, np.ones(len(rows), np.bool_)
        own: list[Array] | None = None
        each = isinstance(self.prices, np.ndarray) and self.prices.ndim < 2
        if each:
            given = np.broadcast_to(self.prices, len(rows))
        elif isinstance(self.prices, np.ndarray) and (rows == self.prices.shape[1]).all():
            given = self.prices.reshape(-1)
        else:
            parts, fits = _fitting([self._prices_of(place) for place in range(len(rows))], rows)
            own = parts if len({part.dtype for part in parts}) > 1 else None
            given = np.concatenate(parts) if parts else np.empty(0)
        real = given.dtype.kind in "biuf"
        with np.errstate(over="ignore"):
            values = given.astype(np.float64) if real else np.zeros(len(given))
        sign = -1.0 if maximize else 1.0
        free = np.isfinite(values)
        wrong = np.isnan(values) | (values == -sign * np.inf)
        if real:
            wrong |= _inexact(given) if own is None else np.concatenate([_inexact(part) for part in own])
        rounded = free & ((values != np.rint(values)) | (np.abs(values) >= 2.0**62))
        if real and own is None:
            given = given.astype(np.float64 if given.dtype.kind == "f" else np.int64)
        marks = [wrong, rounded, ~free]
        if each:
            given, values = given.repeat(rows), values.repeat(rows)
        else:
            marks = [_any(one, first, rows) for one in marks]
        bad = marks[0] | ~fits | (not real)
        return RowPrices(given, sign * values, first, rows, bad, ~marks[1], ~marks[2], own)


@dataclass(frozen=True, slots=True)
class RowPrices:
    """The prices of the rows of all problems, one after the other.

    given: int64 or float64. caps: signed float64. first, rows: (k,) where each problem's begin, and
    their number. wrong, whole, finite: (k,) whether a price is not valid, all finite ones are
    integers, all are finite. own: each problem's prices, if some are integers and others are not.
    """

    given: Array
    caps: Array
    first: Array
    rows: Array
    wrong: Array
    whole: Array
    finite: Array
    own: list[Array] | None = None

    def of(self, place: int) -> Array:
        """Return the prices of a problem's rows."""
        if self.own is not None:
            return self.own[place].copy()
        start = int(self.first[place])
        return self.given[start : start + int(self.rows[place])].copy()


def _inexact(prices: Array) -> Array:
    """Return which prices float64 does not hold, or integers too large; ``solve`` names those."""
    if prices.dtype.kind not in "iu":
        if prices.dtype.itemsize <= 8:
            return np.zeros(prices.shape, np.bool_)
        with np.errstate(over="ignore"):
            beyond: Array = np.isinf(prices.astype(np.float64)) & np.isfinite(prices)
        return beyond
    values = prices.astype(np.float64)
    large = np.abs(values) >= 2.0**62
    found: Array = large | (np.where(large, 0.0, values).astype(np.int64) != prices)
    return found


def _any(flags: Array, first: Array, rows: Array) -> Array:
    """Return for each problem whether a flag of its rows is set."""
    counts = np.concatenate(([0], np.cumsum(flags)))
    found: Array = counts[first + rows] > counts[first]
    return found


def _fitting(prices: list[Any], rows: Array) -> tuple[list[Array], Array]:
    """Return the prices of each problem's rows, and which fit.

    Of several number types they are int64 or float64, as in ``solve``.
    """
    parts, fits = [], np.ones(len(rows), np.bool_)
    for place, (price, n) in enumerate(zip(prices, rows.tolist(), strict=True)):
        part = price
        if type(part) is not np.ndarray or part.shape not in ((), (n,)) or part.dtype.kind not in "biuf":
            part, fits[place] = np.zeros(()), False
        parts.append(part if part.ndim else np.broadcast_to(part, n))
    if len({part.dtype for part in parts}) > 1:
        parts = [_of_64_bits(part) for part in parts]
    return parts, fits


def _of_64_bits(prices: Array) -> Array:
    if prices.dtype.kind == "f":
        return np.where(_inexact(prices), np.nan, prices).astype(np.float64, copy=False)
    if prices.dtype == np.uint64:  # too large ones stay too large
        prices = np.minimum(prices, np.uint64(2**62))
    return prices.astype(np.int64, copy=False)


def batch_problems(costs: Any, rows: Any, columns: Any, prices: Any) -> BatchProblems:
    """Check what ``solve_many`` was given for a list or an array of costs.

    Raises ShapeError for sizes that do not fit the costs, DtypeError for sizes that are no whole
    numbers, OptionError for costs without a size to cut.
    """
    if rows is not None or columns is not None:
        if not isinstance(costs, np.ndarray) and not is_tensor(costs):
            costs = [_as_matrix(cost, place) for place, cost in enumerate(costs)]
        rows = _sizes("rows", rows, costs, 0)
        columns = _sizes("columns", columns, costs, 1)
    return BatchProblems(costs, rows, columns, _prices(prices, costs))


def _count(costs: Any) -> int:
    return int(costs.shape[0]) if is_tensor(costs) else len(costs)


def _as_matrix(cost: Any, place: int) -> Any:
    """Return costs that can be cut to their true size."""
    # Data frames, which have no common way to be cut.
    if isinstance(cost, (list, tuple)) or (hasattr(cost, "columns") and hasattr(cost, "__array__")):
        cost, missing = parted(cost, "costs")
        if missing is not None:
            cost = np.ma.MaskedArray(cost, missing)
    of_xarray = type(cost).__module__.partition(".")[0] == "xarray"
    held: Any = getattr(cost, "data", None) if of_xarray else cost
    if not (isinstance(held, np.ndarray) or is_tensor(held)) or len(held.shape) != 2:
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
    count = _count(costs)
    if sizes.shape != (count,):
        raise ShapeError(
            f"{name} is not valid: it has shape {sizes.shape} for {count} problems; give one whole"
            " number a problem"
        )
    if len(sizes) and (sizes.dtype.kind not in "iu" or missing is not None):
        held = sizes.dtype if missing is None else "missing values"
        raise DtypeError(f"{name} is not valid: it holds {held}; give one whole number a problem")
    if not isinstance(costs, list):
        if len(costs.shape) != 3:
            raise ShapeError(f"{name} is for costs (k, n, m) or a list of matrices, got shape {costs.shape}")
        limits = np.full(count, costs.shape[1 + axis])
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
    count = _length(costs)
    listed = isinstance(given, (list, tuple)) and any(_is_vector(one) for one in given)
    if listed:
        given = [_as_numbers(one) for one in given]
    else:
        given, missing = parted(given, "unassigned_cost")
        if missing is not None:
            raise DtypeError("unassigned_cost is not valid: values are missing; give a number for each")
        if given.ndim == 0:
            return given
    if len(given) != (len(given) if count is None else count) or (not listed and given.ndim > 2):
        raise _too_many_or_few(given, "uncounted" if count is None else count)
    return given


def _length(costs: Any) -> int | None:
    """Return the number of problems; None for a generator."""
    return _count(costs) if hasattr(costs, "__len__") or is_tensor(costs) else None


def _too_many_or_few(prices: Any, count: int | str) -> ShapeError:
    what = f"a list of {len(prices)}" if isinstance(prices, list) else f"shape {prices.shape}"
    return ShapeError(
        f"unassigned_cost is not valid: {what} for {count} problems; give a number, one a problem,"
        " or one a row of each problem"
    )


def _is_vector(price: Any) -> bool:
    if hasattr(price, "ndim"):
        return bool(price.ndim > 0)
    return hasattr(price, "__len__") and not isinstance(price, (str, bytes))


def _as_numbers(price: Any) -> Any:
    """Return a number or a vector as an array, masked where values are missing.

    Unchanged if it is neither, which ``solve`` reports.
    """
    if price is None or type(price) is np.ndarray:
        return price
    if isinstance(price, (list, tuple)) and set(map(type, price)) <= {float, np.float64}:
        return np.array(price, np.float64)  # most lists, in half the time
    try:
        numbers, missing = parted(price, "unassigned_cost")
    except InputError:
        return price
    return numbers if missing is None else np.ma.MaskedArray(numbers, missing)
