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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsap.errors import InputError, InvalidCostError, OptionError, OverflowRiskError, ShapeError, number
from bigsap.notebook import Shown
from bigsap.sources import as_source
from bigsap.sources.base import (
    CostSource,
    Fingerprinted,
    Grouped,
    Interruptible,
    Prefetching,
    Transposable,
    range_of,
    read_rows,
)
from bigsap.sources.convert import CONVERSION_BYTES, fingerprint_of
from bigsap.sources.whole_numbers import (
    EXACT,
    above,
    as_floats,
    integer_sum,
    is_whole,
    plain_number,
    rounded_product,
    rounded_sum,
)
from bigsap.types import Array, Ids


def sum_of(sources: Sequence[Any]) -> CostSource:
    """Return the sum of the costs of several sources of one shape, float64.

    sources: one or more objects that ``as_source`` accepts. A pair is forbidden if one of them
    forbids it; infinities of both signs make NaN, which is an error when solved. Raises ShapeError
    if shapes differ, InvalidCostError if a sum exceeds float64, OverflowRiskError for a sum of
    integers, or an integer beside floats, that float64 does not hold. A row costs a row of each
    source.
    """
    terms = tuple(as_source(source) for source in sources)
    if not terms:
        raise InputError("a sum needs at least one source")
    _same_shape(terms)
    return _combined(terms, _Sum())


def scaled(source: Any, factor: float) -> CostSource:
    """Return ``factor * cost[i, j]``, float64; forbidden pairs stay forbidden.

    factor: finite, also negative or 0. Raises OptionError otherwise, InvalidCostError if a product
    exceeds float64, OverflowRiskError for a product of integers, or an integer to be multiplied by
    a fraction, that float64 does not hold.
    """
    number = _finite(factor, "factor")
    if isinstance(number, int):
        raise OptionError(f"factor {factor} is not valid: float64 does not hold it exactly")
    return _combined((as_source(source),), _Scale(number))


def masked(source: Any, forbidden: Any, *, maximize: bool = False) -> CostSource:
    """Return the costs, float64, with the pairs forbidden where ``forbidden[i, j]`` is not 0.

    forbidden: anything ``as_source`` accepts, of the same shape. maximize: the sense of the
    problem, which decides the infinity that forbids. Raises ShapeError if the shapes differ,
    OverflowRiskError for an integer that is not forbidden and that float64 does not hold. A row
    costs a row of each.
    """
    both = (as_source(source), as_source(forbidden))
    _same_shape(both)
    return _combined(both, _Mask(_forbidding(maximize)))


def forbid_above(source: Any, threshold: float, *, maximize: bool = False) -> CostSource:
    """Return the costs, float64, with every pair forbidden that costs more than ``threshold``.

    threshold: finite, cost units, compared exactly, also integers of any size with integers; pairs
    that cost exactly the threshold stay allowed. maximize: the sense of the problem, which decides
    the infinity that forbids. Raises OptionError for a threshold that is not finite,
    OverflowRiskError for an integer that is not forbidden and that float64 does not hold. A row
    costs a row of the source.
    """
    limit = _finite(threshold, "threshold")
    return _combined((as_source(source),), _Threshold(limit, _forbidding(maximize)))


def _finite(value: Any, name: str) -> int | float:
    """Return a float; an integer if float64 does not hold it."""
    found = number(value)
    if found is None:
        raise OptionError(f"{name} must be a number, got {value!r}")
    if isinstance(found, float) and not math.isfinite(found):
        raise OptionError(f"{name} must be finite, got {value}")
    return plain_number(found)


def _forbidding(maximize: bool) -> float:
    return -math.inf if maximize else math.inf


def _same_shape(sources: Sequence[CostSource]) -> None:
    for k, source in enumerate(sources):
        if source.shape != sources[0].shape:
            raise ShapeError(
                f"costs {k} have shape {source.shape}, costs 0 have {sources[0].shape}; combined"
                " costs need one shape"
            )


class _Rule:
    """A rule that combines blocks of several sources."""

    def apply(self, blocks: Sequence[Array], whole: bool) -> tuple[Array, Array | None, bool]:
        """Return the combined costs, a mask of errors, and the kind of error.

        The costs are float64. The mask is None without errors. The kind is True if integers were
        rounded, False if finite costs became infinite. blocks: in the sources' own dtypes. whole:
        all sources hold integers and infinities only.
        """
        raise NotImplementedError

    def whole(self) -> bool:
        """Return whether integers stay integers."""
        return True

    def ends(self, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Return the range of the result from the ranges of the blocks."""
        return ranges[0]

    def facts(self) -> tuple[str, dict[str, float]]:
        """Return the rule's type in a cost spec, and its numbers."""
        raise NotImplementedError


class _Sum(_Rule):
    def apply(self, blocks: Sequence[Array], whole: bool) -> tuple[Array, Array | None, bool]:
        if all(block.dtype.kind in "iu" for block in blocks):
            return *integer_sum(blocks), True
        infinite = np.zeros(blocks[0].shape, np.bool_)
        rounded = np.zeros_like(infinite)
        total: Array | None = None
        for block in blocks:
            infinite |= np.isinf(block)
            values, inexact = as_floats(block)
            if inexact is not None:
                rounded |= inexact
            if total is None:
                total = values
                continue
            if not whole:
                total += values
                continue
            before, total = total, total + values
            if (np.abs(total) >= EXACT).any():
                rounded |= rounded_sum(before, values, total)
        assert total is not None
        rounded &= ~infinite
        if rounded.any():
            return total, rounded, True
        return total, np.isinf(total) & ~infinite, False

    def ends(self, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
        low, high = ranges[0]
        for other in ranges[1:]:  # rounded in the same order as the costs
            low, high = low + other[0], high + other[1]
        return low, high

    def facts(self) -> tuple[str, dict[str, float]]:
        return "sum", {}

    def __repr__(self) -> str:
        return "sum"


class _Scale(_Rule):
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def whole(self) -> bool:
        return is_whole(self.factor)

    def apply(self, blocks: Sequence[Array], whole: bool) -> tuple[Array, Array | None, bool]:
        (given,) = blocks
        values, rounded = as_floats(given)
        finite = ~np.isinf(values)
        if whole and self.whole():
            # The product may fit float64 although a factor does not.
            rounded = rounded_product(given, self.factor)
        np.multiply(values, self.factor, out=values, where=finite)
        if rounded is not None and rounded.any():
            return values, rounded, True
        return values, np.isinf(values) & finite, False

    def ends(self, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
        ends = [end * self.factor if self.factor else 0.0 for end in ranges[0]]
        return min(ends), max(ends)

    def facts(self) -> tuple[str, dict[str, float]]:
        return "scale", {"factor": self.factor}

    def __repr__(self) -> str:
        return f"scale by {self.factor!r}"


class _Mask(_Rule):
    def __init__(self, infinity: float) -> None:
        self.infinity = infinity

    def apply(self, blocks: Sequence[Array], whole: bool) -> tuple[Array, Array | None, bool]:
        values, rounded = as_floats(blocks[0])
        forbidden = blocks[1] != 0
        values[forbidden] = self.infinity
        return values, None if rounded is None else rounded & ~forbidden, True

    def facts(self) -> tuple[str, dict[str, float]]:
        return "mask", {"infinity": self.infinity}

    def __repr__(self) -> str:
        return f"mask with {self.infinity}"


class _Threshold(_Rule):
    def __init__(self, limit: float, infinity: float) -> None:
        self.limit = limit
        self.infinity = infinity

    def apply(self, blocks: Sequence[Array], whole: bool) -> tuple[Array, Array | None, bool]:
        (given,) = blocks
        values, rounded = as_floats(given)
        # Keep an infinity that forbids already; the wrong one too, so that it is reported.
        forbidden = above(given, self.limit) & np.isfinite(values)
        values[forbidden] = self.infinity
        return values, None if rounded is None else rounded & ~forbidden, True

    def facts(self) -> tuple[str, dict[str, float]]:
        return "forbid_above", {"threshold": self.limit, "infinity": self.infinity}

    def __repr__(self) -> str:
        return f"forbid above {self.limit!r} with {self.infinity}"


def _holds_whole(source: CostSource) -> bool:
    return np.dtype(source.dtype).kind in "iu" or getattr(source, "holds_whole", False)


def _combined(sources: tuple[CostSource, ...], rule: _Rule) -> _Combined:
    if any(isinstance(source, Grouped) for source in sources):
        return _CombinedGroups(sources, rule)
    return _Combined(sources, rule)


class _Combined(Shown):
    """Rows of several sources, combined by a rule."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, sources: tuple[CostSource, ...], rule: _Rule) -> None:
        self._sources = sources
        self._rule = rule
        self.shape = sources[0].shape
        below = sources[:1] if isinstance(rule, _Mask) else sources
        self._of_whole = all(map(_holds_whole, below))
        #: Whether the finite costs are integers.
        self.holds_whole = self._of_whole and rule.whole()

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self._sources))
        return f"<{self._rule!r} of {inner}>"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``."""
        width = columns.stop - columns.start
        step = max(1, CONVERSION_BYTES // max(1, 8 * width * len(self._sources)))
        for k in range(0, len(rows), step):
            some = rows[k : k + step]
            blocks = [self._block(source, some, columns) for source in self._sources]
            with np.errstate(over="ignore", invalid="ignore"):
                values, lost, rounded = self._rule.apply(blocks, self._of_whole)
            if lost is not None and lost.any():
                i, j = (int(place) for place in np.argwhere(lost)[0])
                raise self._loss(int(some[i]), columns.start + j, rounded)
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
        """Return the same rule on the transposes; None if a source has none."""
        others = [s.transposed() if isinstance(s, Transposable) else None for s in self._sources]
        found = tuple(other for other in others if other is not None)
        return _combined(found, self._rule) if len(found) == len(others) else None

    def prefetch(self, row: int) -> None:
        for source in self._sources:
            if isinstance(source, Prefetching):
                source.prefetch(row)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        for source in self._sources:
            if isinstance(source, Interruptible):
                source.while_waiting(check)

    def made_of(self) -> tuple[str, dict[str, float], tuple[CostSource, ...]]:
        """Return the rule's type in a cost spec, its numbers (``infinity`` forbids), and the sources."""
        return *self._rule.facts(), self._sources

    def fingerprint(self) -> str:
        """Return a digest of the rule and the fingerprints of the sources."""
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
