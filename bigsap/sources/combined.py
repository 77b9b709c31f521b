"""Costs combined from other costs: sums, multiples, forbidden pairs.

Nothing is stored: rows are read from the sources below and combined in pieces of about 1 MiB.
Forbidden pairs (infinite costs) stay forbidden in every combination, and a finite cost never
becomes infinite silently.

The costs are float64, since only floats forbid. Integers stay exact: if float64 does not hold one
(some beyond 2**53), reading it is an OverflowRiskError. Costs that are integers below several
combinations count as integers throughout. Thresholds are compared with integers exactly.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bigsap.errors import (
    InputError,
    InvalidCostError,
    OptionError,
    OverflowRiskError,
    ShapeError,
    flag,
    number,
)
from bigsap.notebook import Shown
from bigsap.sources import ArraySource, as_source
from bigsap.sources.base import (
    CostSource,
    Fingerprinted,
    Grouped,
    Interruptible,
    Prefetching,
    Transposable,
    in_sense,
    range_of,
    read_rows,
)
from bigsap.sources.convert import CONVERSION_BYTES, fingerprint_of, pair_at
from bigsap.sources.kept_bounds import Bounded, Masked, Scaled, keeps_bounds, may_scale
from bigsap.sources.rules import Mask, Rule, Scale, Sum, Threshold
from bigsap.sources.whole_numbers import plain_number
from bigsap.types import Array, Ids


def sum_of(sources: Sequence[Any]) -> CostSource:
    """Return the sum of the costs of several sources of one shape, float64.

    sources: one or more objects that ``as_source`` accepts. A pair is forbidden if one of them
    forbids it; infinities of both signs make NaN, which is an error when solved. Raises ShapeError
    if shapes differ, InvalidCostError if a sum exceeds float64, OverflowRiskError for a sum of
    integers, or an integer beside floats, that float64 does not hold. A row costs a row of each
    source.
    """
    if not isinstance(sources, Iterable):
        raise OptionError(f"sources must be a list of costs, got {type(sources).__name__}")
    terms = tuple(as_source(source) for source in sources)
    if not terms:
        raise InputError("a sum needs at least one source")
    _same_shape(terms)
    return _combined(terms, Sum())


def scaled(source: Any, factor: float) -> CostSource:
    """Return ``factor * cost[i, j]``, float64; forbidden pairs stay forbidden.

    source: anything ``as_source`` accepts. factor: finite, also negative or 0. Raises OptionError
    otherwise, InvalidCostError if a product exceeds float64, OverflowRiskError for a product of
    integers, or an integer to be multiplied by a fraction, that float64 does not hold.
    """
    number = _finite(factor, "factor")
    if isinstance(number, int):
        raise OptionError(f"factor {factor} is not valid: float64 does not hold it exactly")
    given = as_source(source)
    if keeps_bounds(given) and may_scale(given, number):
        return Scaled(given, number)
    return _combined((given,), Scale(number))


def masked(source: Any, forbidden: Any, *, maximize: bool = False) -> CostSource:
    """Return the costs, float64, with the pairs forbidden where ``forbidden[i, j]`` is not 0.

    source, forbidden: anything ``as_source`` accepts, of one shape. maximize: the sense of the
    problem, which decides the infinity that forbids. Raises ShapeError if the shapes differ,
    OverflowRiskError for an integer that is not forbidden and that float64 does not hold. A row
    costs a row of each.
    """
    both = (as_source(source), as_source(forbidden))
    _same_shape(both)
    infinity = _forbidding(maximize)
    matrix = _mask_in_memory(both[1])
    if matrix is not None and keeps_bounds(both[0]):
        return Masked(*both, infinity, matrix)
    return _combined(both, Mask(infinity))


def forbid_above(source: Any, threshold: float, *, maximize: bool = False) -> CostSource:
    """Return the costs, float64, with every pair forbidden that costs more than ``threshold``.

    source: anything ``as_source`` accepts. threshold: finite, cost units, compared exactly, also
    integers of any size with integers; pairs that cost exactly the threshold stay allowed.
    maximize: the sense of the problem, which decides the infinity that forbids. Raises OptionError
    for a threshold that is not finite, OverflowRiskError for an integer that is not forbidden and
    that float64 does not hold. A row costs a row of the source.
    """
    limit = _finite(threshold, "threshold")
    given = as_source(source)
    if isinstance(limit, float) and keeps_bounds(given):
        return Bounded(given, limit, _forbidding(maximize))
    return _combined((given,), Threshold(limit, _forbidding(maximize)))


def _mask_in_memory(source: CostSource) -> Array | None:
    """Return a mask of integers that lies in memory, not in a file; None for others."""
    if not isinstance(source, ArraySource) or source.mapped or source.dtype.kind not in "iu":
        return None
    return source.resident()


def _finite(value: Any, name: str) -> int | float:
    """Return a float; an integer if float64 does not hold it."""
    found = number(value)
    if found is None:
        raise OptionError(f"{name} must be a number, got {value!r}")
    if isinstance(found, float) and not math.isfinite(found):
        raise OptionError(f"{name} must be finite, got {value}")
    return plain_number(found)


def _forbidding(maximize: bool) -> float:
    return -math.inf if flag(maximize, "maximize") else math.inf


def _same_shape(sources: Sequence[CostSource]) -> None:
    for k, source in enumerate(sources):
        if source.shape != sources[0].shape:
            raise ShapeError(
                f"costs {k} have shape {source.shape}, costs 0 have {sources[0].shape}; combined"
                " costs need one shape"
            )


def _holds_whole(source: CostSource) -> bool:
    return np.dtype(source.dtype).kind in "iu" or getattr(source, "holds_whole", False)


def _combined(sources: tuple[CostSource, ...], rule: Rule, *, swapped: bool = False) -> _Combined:
    grouped = any(isinstance(source, Grouped) for source in sources)
    return (_CombinedGroups if grouped else _Combined)(sources, rule, swapped=swapped)


class _Combined(Shown):
    """Rows of several sources, combined by a rule.

    swapped: these are the transpose of the given costs, whose rows and columns errors name.
    """

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, sources: tuple[CostSource, ...], rule: Rule, *, swapped: bool = False) -> None:
        self.swapped = swapped
        self._sources = sources
        self._rule = rule
        self.shape = sources[0].shape
        below = sources[:1] if isinstance(rule, Mask) else sources
        self._of_whole = all(map(_holds_whole, below))
        #: Whether the finite costs are integers.
        self.holds_whole = self._of_whole and rule.whole()

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self._sources))
        return f"<{self._rule!r} of {inner}>"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        width = columns.stop - columns.start
        step = max(1, CONVERSION_BYTES // max(1, 8 * width * len(self._sources)))
        for k in range(0, len(rows), step):
            some = rows[k : k + step]
            blocks = [self._block(source, some, columns) for source in self._sources]
            with np.errstate(over="ignore", invalid="ignore"):
                values, lost, rounded = self._rule.apply(blocks, self._of_whole)
            if lost is not None and lost.any():
                i, j = np.argwhere(lost)[0]
                row, column = pair_at(some[i], columns.start + j, swapped=self.swapped)
                raise self._loss(row, column, rounded)
            out[k : k + step] = values

    def _loss(self, row: int, column: int, rounded: bool) -> InvalidCostError:
        if rounded:
            return OverflowRiskError(
                f"cost[{row}, {column}] is an integer that float64 does not hold"
                f" ({self._rule!r}); have costs smaller than 2**53 in size, or read the integers"
                " as floats (dtype=) for rounded ones",
                row,
                column,
            )
        return InvalidCostError(f"cost[{row}, {column}] exceeds float64 ({self._rule!r})", row, column)

    def _block(self, source: CostSource, rows: Ids, columns: slice) -> Array:
        block = np.empty((len(rows), columns.stop - columns.start), source.dtype)
        read_rows(source, rows, columns, block)
        return block

    def cost_range(self) -> tuple[float, float] | None:
        """Return the range of costs, from those of the sources."""
        ranges = [range_of(source) for source in self._sources]
        first = ranges[0]
        if first is None:
            return None
        others = [ends or (-math.inf, math.inf) for ends in ranges[1:]]
        return self._rule.ends([first, *others])

    def transposed(self) -> CostSource | None:
        others = [s.transposed() if isinstance(s, Transposable) else None for s in self._sources]
        found = tuple(other for other in others if other is not None)
        if len(found) != len(others):
            return None
        return _combined(found, self._rule, swapped=not self.swapped)

    def prefetch(self, row: int) -> None:
        for source in self._sources:
            if isinstance(source, Prefetching):
                source.prefetch(row)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        for source in self._sources:
            if isinstance(source, Interruptible):
                source.while_waiting(check)

    def in_sense(self, maximize: bool) -> CostSource:
        found = tuple(in_sense(source, maximize) for source in self._sources)
        same = all(a is b for a, b in zip(found, self._sources, strict=True))
        return self if same else _combined(found, self._rule, swapped=self.swapped)

    def made_of(self) -> tuple[str, dict[str, float], tuple[CostSource, ...]]:
        return *self._rule.facts(), self._sources

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(repr(self._rule).encode(), digest_size=16)
        for source in self._sources:
            own = source.fingerprint() if isinstance(source, Fingerprinted) else None
            digest.update((own or fingerprint_of(source)).encode() + b";")
        return digest.hexdigest()


class _CombinedGroups(_Combined):
    """Combined rows of sources of which some decode rows in groups."""

    def rows_together(self, row: int) -> tuple[int, int]:
        """Return the longest group that ``row`` is in: it is the most expensive to decode twice."""
        groups = [s.rows_together(row) for s in self._sources if isinstance(s, Grouped)]
        return max(groups, key=lambda group: group[1] - group[0])
