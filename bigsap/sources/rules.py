"""Rules by which costs are combined, block by block. See ``combined``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from bigsap.sources.whole_numbers import (
    EXACT,
    above,
    as_floats,
    integer_sum,
    is_whole,
    rounded_product,
    rounded_sum,
)
from bigsap.types import Array


class Rule(ABC):
    """A rule that combines blocks of several sources."""

    @abstractmethod
    def apply(self, blocks: Sequence[Array], whole: bool) -> tuple[Array, Array | None, bool]:
        """Return the combined costs, a mask of errors, and the kind of error.

        The costs are float64. The mask is None without errors. The kind is True if integers were
        rounded, False if finite costs became infinite. blocks: in the sources' own dtypes. whole:
        all sources hold integers and infinities only.
        """

    def whole(self) -> bool:
        """Return whether integers stay integers."""
        return True

    def ends(self, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Return the range of the result from the ranges of the blocks."""
        return ranges[0]

    @abstractmethod
    def facts(self) -> tuple[str, dict[str, float]]:
        """Return the rule's type in a cost spec, and its numbers."""


class Sum(Rule):
    """The sum of all sources."""

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


class Scale(Rule):
    """The costs of one source times a factor."""

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


class Mask(Rule):
    """The costs of the first source, forbidden where the second is not 0."""

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


class Threshold(Rule):
    """The costs of one source, forbidden above a limit."""

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
