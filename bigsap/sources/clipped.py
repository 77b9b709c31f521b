"""Costs under which a row may stay unassigned at a price of its own.

Clip each cost at its row's price, ``min(c[i, j], price[i])``: a row that is assigned a clipped pair
pays its price, the cost of staying unassigned, and the pair is then dropped
(``bigsap.proof.unassigned.drop_clipped_pairs``). With at least as many columns as rows every choice
of unassigned rows can be completed in that way, so both problems have the same optimum, and no
entry is computed that the plain problem would not compute. With more rows than columns, ``n - m``
further columns, each at the row's own price, make the matrix square.

The textbook model adds a private column per row, ``(n, m + n)``: the same optimum, but every scan,
and every cached row, is that much longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from bigsap.errors import DtypeError, InputError, InvalidCostError, OverflowRiskError, ShapeError
from bigsap.sources.base import (
    CostSource,
    Fill,
    Fillable,
    Fingerprinted,
    Reading,
    Sparse,
    range_of,
    read_rows,
)
from bigsap.sources.convert import check_rows, fingerprint_of
from bigsap.sources.missing import parted
from bigsap.sources.wrappers import Groups, converted, is_grouped
from bigsap.types import Array, Ids

#: Integers below this size are exact in float64.
_EXACT = 2**53


def unassigned_prices(value: npt.ArrayLike, n_rows: int, maximize: bool) -> Array:
    """Return ``unassigned_cost=`` as a vector (n_rows,) of int64 or float64.

    value: a number for all rows, or (n_rows,) numbers, in cost units; the infinity that
        forbids a pair (``inf``, ``-inf`` under ``maximize``) means *must be assigned*.

    Raises DtypeError, ShapeError, or InvalidCostError naming the row for NaN and the other
    infinity.
    """
    what = "unassigned_cost"
    try:
        given, missing = parted(value, what)
    except InputError as error:
        raise type(error)(f"{what} must be a number or one number a row: {error}") from error
    if missing is not None and missing.ndim < 2:
        row = int(missing.argmax())
        raise InvalidCostError(
            f"{what} of row {row} is missing (masked, None or NA); say what leaving the row"
            " unassigned costs, or the infinity that forbids for a row that must be assigned",
            row,
        )
    if given.dtype.kind not in "biuf":
        raise DtypeError(f"{what} must hold real numbers that fit 64 bits, got {given.dtype}")
    if given.ndim > 1 or (given.ndim == 1 and given.shape != (n_rows,)):
        raise ShapeError(f"{what} must be a number or {n_rows} numbers, one a row; got shape {given.shape}")
    if given.dtype.kind in "iu" and given.size:
        largest = max(int(given.max()), -int(given.min()))
        if largest >= 2**62:
            raise OverflowRiskError(f"{what} holds {largest} in size; sums could leave int64")
    number = np.float64 if given.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore"):
        prices = np.array(np.broadcast_to(given, (n_rows,)), number)
    lost = np.isinf(prices) & np.isfinite(given)  # long doubles
    if lost.any():
        row = int(lost.argmax())
        price = np.broadcast_to(given, (n_rows,))[row]
        raise InvalidCostError(f"{what} of row {row} is {price!s}, which float64 cannot hold", row)
    must, wrong = (-np.inf, np.inf) if maximize else (np.inf, -np.inf)
    bad = np.isnan(prices) | (prices == wrong)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidCostError(
            f"{what} of row {row} is {prices[row]}; it must be finite, or {must} for a row"
            " that must be assigned",
            row,
        )
    return prices


class ClippedCosts(Reading):
    """The costs of ``source`` clipped at each row's price; made square if there are more rows.

    shape: (n, max(n, m)). prices: (n,), see ``unassigned_prices``. source: the given costs, in the
    dtype of this source, so that prices compare with them exactly.

    dtype: that of the costs if it holds every price, else int64 (whole prices and integer costs) or
    float64. Integer costs also become float64, and then must stay below 2**53 in size, if a row
    must be assigned although there are more rows than columns, because only floats can forbid a
    pair. A whole price that float costs do not hold is an OverflowRiskError. O(1) beyond the
    source's own time, two vectors of memory.
    """

    def __init__(self, source: CostSource, unassigned_cost: npt.ArrayLike, *, maximize: bool = False) -> None:
        n, m = (int(size) for size in source.shape)
        self.given = source
        self.maximize = bool(maximize)
        self.prices = unassigned_prices(unassigned_cost, n, self.maximize)
        self.shape = (n, max(n, m))
        self.n_columns = m
        self.dtype = _dtype_for(source, self.prices)
        refuse_inexact_prices(self.prices, self.dtype)
        # ``converted`` accepts all of int64 as float64, rounded: so check the size here.
        self._check_size = _own_dtype(source) == np.int64 and self.dtype.kind == "f"
        if self._check_size and isinstance(source, Sparse):
            _refuse_large_entries(source)
        self.source = converted(source, self.dtype)
        self._cap = _as_cap(self.prices, self.dtype, self.maximize)
        self._fill: Fill | None = None

    def __repr__(self) -> str:
        return f"ClippedCosts({self.given!r})"

    def __new__(cls, source: CostSource, *_: Any, **__: Any) -> ClippedCosts:
        """Make an object with the abilities of a source that reads rows in groups, if it is one."""
        return super().__new__(_GatedGroups if is_grouped(source) and cls is ClippedCosts else cls)

    def __getnewargs__(self) -> tuple[CostSource]:
        return (self.given,)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with the clipped costs of ``rows[k]``."""
        check_rows(rows, self.shape[0])
        start, stop = columns.start, columns.stop
        inner = max(0, min(stop, self.n_columns) - start)
        cap = self._cap[rows][:, None]
        if isinstance(self.source, Sparse):
            self._read_listed(self.source, rows, start, out[:, :inner], cap)
        elif inner > 0:
            part = out[:, :inner]
            read_rows(self.source, rows, slice(start, start + inner), part)
            if self._check_size:
                self._refuse_large(rows, start, part)
            # NaN and the wrong infinity pass; the caller reports them.
            (np.maximum if self.maximize else np.minimum)(part, cap, out=part)
        out[:, inner:] = cap

    def _read_listed(self, source: Sparse, rows: Ids, start: int, out: Array, cap: Array) -> None:
        """Fill a part of rows of sparse costs: pairs that are not listed cost the cap."""
        entries = source.entries()
        clip = np.maximum if self.maximize else np.minimum
        out[...] = cap
        for k, row in enumerate(np.asarray(rows).tolist()):
            some = slice(int(entries.start[row]), int(entries.start[row + 1]))
            ids = entries.columns[some]
            here = (ids >= start) & (ids < start + out.shape[1])
            places = ids[here] - start
            out[k, places] = clip(entries.costs[some][here], out[k, places])

    def _refuse_large(self, rows: Ids, start: int, part: Array) -> None:
        # 2**53 itself may be 2**53 + 1, rounded.
        large = np.abs(part) >= _EXACT
        if large.any():
            k, p = (int(x) for x in np.argwhere(large)[0])
            raise _too_large(int(rows[k]), start + p)

    def fill(self) -> Fill | None:
        """Return a compiled filler around the source's own, None if that has none."""
        if self._fill is None and not self._check_size and isinstance(self.given, Fillable):
            inner = self.given.fill()
            if inner is not None:
                from bigsap.sources.wrapped_kernels import gate_fill

                self._fill = gate_fill(inner, self.given.dtype, self._cap, self.n_columns, self.maximize)
        return self._fill

    @property
    def cap(self) -> Array:
        """(n,), the value at which each row's costs are clipped, in ``dtype``."""
        return self._cap

    @property
    def of_whole(self) -> bool:
        """Whether all prices that are finite are whole numbers."""
        prices = self.prices[np.isfinite(self.prices)]
        return bool((prices == np.rint(prices)).all())

    def cost_range(self) -> tuple[float, float] | None:
        """Return the range of the source's costs and of the prices."""
        ends = range_of(self.given)
        prices = self.prices[np.isfinite(self.prices)]
        if ends is None or not prices.size:
            return ends
        # Of whole prices that a float does not hold, the next floats outward: a range never is too narrow.
        low, high = prices.min().item(), prices.max().item()
        below = float(low) if float(low) <= low else np.nextafter(float(low), -np.inf)
        above = float(high) if float(high) >= high else np.nextafter(float(high), np.inf)
        return min(ends[0], float(below)), max(ends[1], float(above))

    @property
    def evaluated_by(self) -> str | None:
        way: str | None = getattr(self.given, "evaluated_by", None)
        return way

    @property
    def intact(self) -> Callable[[], None] | None:
        """Raise StoreError if the source's file was truncated; None if it has none."""
        return getattr(self.source, "intact", None)

    def fingerprint(self) -> str:
        given = self.given
        own = given.fingerprint() if isinstance(given, Fingerprinted) else fingerprint_of(given)
        return own + self.prices_fingerprint()

    def prices_fingerprint(self) -> str:
        """Return a digest of prices and sense alone."""
        digest = hashlib.blake2b(digest_size=8)
        digest.update(self.prices.dtype.str.encode() + self.prices.tobytes())
        digest.update(b"max" if self.maximize else b"min")
        return digest.hexdigest()


class _GatedGroups(Groups, ClippedCosts):
    """Clipped costs of a source that reads rows in groups, ahead of time."""


@contextmanager
def naming_prices(gated: ClippedCosts | None) -> Iterator[None]:
    """Let errors of costs that are a row's price name the price: its pair may not exist. None: no prices."""
    try:
        yield
    except InvalidCostError as error:
        row, column = error.row, error.column
        if gated is None or error.of_source or row is None or column is None:
            raise
        pair = f"cost[{row}, {column}]"
        if column < gated.n_columns and not str(error).startswith(f"{pair} is {gated.cap[row]}:"):
            raise
        text = str(error).replace(pair, f"unassigned_cost of row {row}")
        raise type(error)(text, row) from error.__cause__


def _own_dtype(source: CostSource) -> np.dtype[Any]:
    """Return the dtype of the costs; rows of sparse ones are floats, whatever their entries are."""
    return np.dtype(source.entries().costs.dtype if isinstance(source, Sparse) else source.dtype)


def _refuse_large_entries(source: Sparse) -> None:
    """Raise an error for the first integer that becomes a float and may be rounded."""
    start, columns, costs = source.entries()
    large = np.flatnonzero((costs >= _EXACT) | (costs <= -_EXACT))
    if large.size:
        k = int(large[0])
        row, column = int(np.searchsorted(start, k, side="right")) - 1, int(columns[k])
        raise _too_large(row, column)


def _too_large(row: int, column: int) -> OverflowRiskError:
    return OverflowRiskError(
        f"cost[{row}, {column}] is not below 2**53 in size; next to unassigned_cost with fractions or"
        " of at least 2**62, or rows that must be assigned, costs are float64",
        row,
        column,
    )


def refuse_inexact_prices(prices: Array, dtype: np.dtype[Any]) -> None:
    """Raise an error for the first whole price that a float next to the costs does not hold."""
    if prices.dtype.kind == "f" or dtype.kind != "f":
        return
    rounded = prices.astype(np.float64)
    # Prices are below 2**62 in size, so that the way back stays in int64.
    lost = rounded.astype(np.int64) != prices
    if lost.any():
        row = int(lost.argmax())
        raise OverflowRiskError(
            f"unassigned_cost of row {row} is {prices[row]}: the costs are floats here, which do not hold"
            " it; give a price that float64 holds, or integer costs (of sparse ones, with"
            ' method="auto")',
            row,
        )


def _dtype_for(source: CostSource, prices: Array) -> np.dtype[Any]:
    """Return the narrowest scannable dtype that holds costs and prices alike."""
    own = _own_dtype(source)
    free = prices[np.isfinite(prices)]
    if own.kind == "f":
        with np.errstate(over="ignore"):
            return own if (free.astype(own) == free).all() else np.dtype(np.float64)
    n, m = source.shape
    # As numbers of Python: float64 would round a price just below 2**62 up to it.
    largest = max(-free.min().item(), free.max().item()) if free.size else 0
    whole = (free == np.rint(free)).all() and largest < 2**62
    # Pairs that are not listed are forbidden in a row that must be assigned.
    must = n > m or isinstance(source, Sparse)
    if not whole or (must and free.size < n):
        return np.dtype(np.float64)
    if not free.size:
        return own
    limits = np.iinfo(own)
    fits = limits.min <= int(free.min()) and int(free.max()) <= limits.max
    return own if fits else np.dtype(np.int64)


def _as_cap(prices: Array, dtype: np.dtype[Any], maximize: bool) -> Array:
    """Return the values at which costs are clipped.

    They are the prices; for a row that must be assigned, a value that never clips.
    """
    if dtype.kind == "f":
        return np.ascontiguousarray(prices, dtype)
    limits = np.iinfo(dtype)
    cap = np.full(prices.shape, limits.min if maximize else limits.max, dtype)
    free = np.isfinite(prices)
    cap[free] = prices[free].astype(dtype)
    return cap
