"""Costs of another source with pairs forbidden, or multiplied, that keep its bounds.

They are computed by a filler around the source's own, and are points or products as the source's are:
methods that exclude pairs by bounds do so as before. A forbidden pair costs more than any bound of it.
That holds for the infinity that forbids; costs of the other sense are shown as rows alone
(``in_sense``), so that every pair is looked at and the error is reported.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigsap.sources.base import (
    CostSource,
    Fill,
    Fillable,
    Fingerprinted,
    Limited,
    Reading,
    Selectable,
    Separable,
    Separation,
    Transposable,
    in_sense,
    range_of,
    sound_scales,
)
from bigsap.sources.convert import fingerprint_of
from bigsap.sources.filled import Filled
from bigsap.sources.products import Chosen, Multiplied, Product
from bigsap.types import Array, Ids

#: Numbers whose products and squares neither leave float64 nor lose bits in it.
_LEAST, _LARGEST = 1e-140, 1e140


def keeps_bounds(source: CostSource) -> bool:
    """Return whether a source may be wrapped: compiled float64 costs that can be reordered."""
    if np.dtype(source.dtype) != np.float64 or not isinstance(source, Selectable):
        return False
    return isinstance(source, Fillable) and source.fill() is not None


class Kept(Filled):
    """Costs of a source, changed by a rule. given: the source."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, given: CostSource) -> None:
        super().__init__()
        self.given: Any = given
        n, m = given.shape
        self.shape = (int(n), int(m))
        self._fill: Fill | None = None

    def __repr__(self) -> str:
        return f"<{self.rule()} of {self.given!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments()

    @abstractmethod
    def rule(self) -> str:
        """Return the rule in words."""

    @abstractmethod
    def made_of(self) -> tuple[str, dict[str, float], tuple[CostSource, ...]]:
        """Return the rule's type in a cost spec, its numbers (``infinity`` forbids), and the sources."""

    @abstractmethod
    def _arguments(self) -> tuple[Any, ...]: ...

    @abstractmethod
    def _context(self) -> tuple[str, tuple[Any, ...]]:
        """Return the rule and the numbers of ``wrapped_kernels.kept_fill``."""

    def _made(self, inner: Fill | Chosen) -> Fill:
        from bigsap.sources.wrapped_kernels import kept_fill

        rule, words = self._context()
        return kept_fill(rule, inner, words)

    @abstractmethod
    def _on(self, given: CostSource) -> CostSource:
        """Return the same rule on another source of the same shape."""

    def fill(self) -> Fill | None:
        """Return the compiled filler, None if the source has none any more."""
        if self._fill is None:
            inner = self.given.fill()
            self._fill = None if inner is None else self._made(inner)
        return self._fill

    def select(self, rows: Ids, columns: Ids) -> CostSource | None:
        """Return ``cost[rows][:, columns]`` as a source of the same kind."""
        given = self.given.select(rows, columns)
        return None if given is None else self._on(given)

    def transposed(self) -> CostSource | None:
        """Return the same rule on the transpose; None if the source has none."""
        other = self.given.transposed() if isinstance(self.given, Transposable) else None
        return None if other is None else self._on(other)

    def separable(self) -> Separation | None:
        """Return the source's points and function."""
        return self.given.separable() if isinstance(self.given, Separable) else None

    def product(self) -> Product | None:
        """Return the source's vectors and function, with chosen pairs by this rule."""
        product = self.given.product() if isinstance(self.given, Multiplied) else None
        if product is None:
            return None
        made = self._made(product.chosen)
        return replace(product, chosen=Chosen(made.address, made.context, made.keep))

    def limit(self) -> float:
        """Return a number that no allowed pair costs more than."""
        found: float = self.given.limit() if isinstance(self.given, Limited) else math.inf
        return found

    def cost_range(self) -> tuple[float, float] | None:
        """Return the range of the source's costs, below the limit."""
        ends = range_of(self.given)
        return None if ends is None else (ends[0], max(ends[0], min(ends[1], self.limit())))

    def with_infinity(self, infinity: float) -> CostSource:
        """Return the same costs, with the pairs that rules forbid at this infinity."""
        return self._on(_with_infinity(self.given, infinity))

    def in_sense(self, maximize: bool) -> CostSource:
        """Return the costs as a problem of this sense sees them."""
        given = in_sense(self.given, maximize)
        if given is self.given:
            return self
        return self._on(given) if keeps_bounds(given) else Rows(self)

    def fingerprint(self) -> str:
        """Return a digest of the rule and the fingerprint of the source."""
        digest = hashlib.blake2b(self.rule().encode(), digest_size=16)
        for source in self.made_of()[2]:
            own = source.fingerprint() if isinstance(source, Fingerprinted) else None
            digest.update((own or fingerprint_of(source)).encode() + b";")
        return digest.hexdigest()


class Forbidding(Kept):
    """Costs with some pairs forbidden by ``infinity``."""

    def __init__(self, given: CostSource, infinity: float) -> None:
        super().__init__(given)
        self.infinity = infinity

    def with_infinity(self, infinity: float) -> CostSource:
        other = copy(self)
        other.given, other.infinity, other._fill = _with_infinity(self.given, infinity), infinity, None
        return other

    def in_sense(self, maximize: bool) -> CostSource:
        """Return rows alone if the infinity is that of the other sense, for which it is an error."""
        return Rows(self) if maximize != (self.infinity < 0) else super().in_sense(maximize)


def _with_infinity(source: CostSource, infinity: float) -> CostSource:
    return source.with_infinity(infinity) if isinstance(source, Kept) else source


def without_forbidden(source: CostSource) -> CostSource:
    """Return the source whose costs the allowed pairs have, without the rules that forbid pairs."""
    while isinstance(source, Forbidding):
        source = source.given
    return source


class Bounded(Forbidding):
    """Costs with every pair forbidden that costs more than ``threshold``."""

    def __init__(self, given: CostSource, threshold: float, infinity: float) -> None:
        super().__init__(given, infinity)
        self.threshold = threshold

    def rule(self) -> str:
        return f"forbid above {self.threshold!r} with {self.infinity}"

    def made_of(self) -> tuple[str, dict[str, float], tuple[CostSource, ...]]:
        return "forbid_above", {"threshold": self.threshold, "infinity": self.infinity}, (self.given,)

    def limit(self) -> float:
        """Return the threshold, or the source's own limit if it is lower."""
        return min(self.threshold, super().limit())

    def _arguments(self) -> tuple[Any, ...]:
        return self.given, self.threshold, self.infinity

    def _context(self) -> tuple[str, tuple[Any, ...]]:
        return "limited", (float(self.threshold), float(self.infinity))

    def _on(self, given: CostSource) -> CostSource:
        return Bounded(given, self.threshold, self.infinity)


class NearPoints(Bounded):
    """Distances of points, with pairs farther apart than ``max_distance`` forbidden.

    Either sense is right: the infinity is the problem's. See ``bigsap.points``.
    """

    def __init__(
        self, given: CostSource, threshold: float, infinity: float = math.inf, *, max_distance: float
    ) -> None:
        super().__init__(given, threshold, infinity)
        self.max_distance = max_distance

    def __repr__(self) -> str:
        return f"{self.given!r}"[:-1] + f", max_distance={self.max_distance!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _near_points, (*self._arguments(), self.max_distance)

    def _on(self, given: CostSource) -> CostSource:
        return NearPoints(given, self.threshold, self.infinity, max_distance=self.max_distance)

    def in_sense(self, maximize: bool) -> CostSource:
        """Return the same costs, with pairs forbidden in this sense."""
        infinity = -math.inf if maximize else math.inf
        return self if infinity == self.infinity else self.with_infinity(infinity)


def _near_points(given: CostSource, threshold: float, infinity: float, max_distance: float) -> NearPoints:
    return NearPoints(given, threshold, infinity, max_distance=max_distance)


class Masked(Forbidding):
    """Costs with the pairs forbidden where a mask is not 0.

    mask: the source of the mask as given. matrix: its numbers, integers, (n_rows, n_columns) of the mask;
    rows, columns: where the rows and columns of these costs are in it. turned: the matrix is a transpose.
    """

    def __init__(
        self,
        given: CostSource,
        mask: CostSource,
        infinity: float,
        matrix: Array,
        places: tuple[Array, Array] | None = None,
        *,
        turned: bool = False,
    ) -> None:
        super().__init__(given, infinity)
        self.mask, self._matrix, self._turned = mask, matrix, turned
        self._places = (np.arange(self.shape[0]), np.arange(self.shape[1])) if places is None else places

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Masked, turned=self._turned), self._arguments()

    def _arguments(self) -> tuple[Any, ...]:
        return self.given, self.mask, self.infinity, self._matrix, self._places

    def rule(self) -> str:
        return f"mask with {self.infinity}"

    def made_of(self) -> tuple[str, dict[str, float], tuple[CostSource, ...]]:
        return "mask", {"infinity": self.infinity}, (self.given, self.mask)

    def fingerprint(self) -> str:
        return super().fingerprint() + ("t" if self._turned else "")

    def select(self, rows: Ids, columns: Ids) -> CostSource | None:
        """Return ``cost[rows][:, columns]`` as a source of the same kind; the mask is not copied."""
        given = self.given.select(rows, columns)
        places = self._places[0][rows], self._places[1][columns]
        if given is None:
            return None
        return Masked(given, self.mask, self.infinity, self._matrix, places, turned=self._turned)

    def transposed(self) -> CostSource | None:
        other = self.given.transposed() if isinstance(self.given, Transposable) else None
        if other is None:
            return None
        turned = not self._turned
        return Masked(other, self.mask, self.infinity, self._matrix.T, self._places[::-1], turned=turned)

    def _context(self) -> tuple[str, tuple[Any, ...]]:
        # Address and strides of the mask, bytes of an item, the infinity, addresses of rows and columns.
        mask = self._matrix
        return "masked", (mask, *mask.strides, mask.itemsize, float(self.infinity), *self._places)

    def _on(self, given: CostSource) -> CostSource:
        return Masked(given, self.mask, self.infinity, self._matrix, self._places, turned=self._turned)


class Scaled(Kept):
    """Costs times a positive factor; forbidden pairs stay forbidden."""

    def __init__(self, given: CostSource, factor: float) -> None:
        super().__init__(given)
        self.factor = factor

    def rule(self) -> str:
        return f"scale by {self.factor!r}"

    def made_of(self) -> tuple[str, dict[str, float], tuple[CostSource, ...]]:
        return "scale", {"factor": self.factor}, (self.given,)

    def separable(self) -> Separation | None:
        """Return the points, and the function with the factor in its scale."""
        terms = super().separable()
        if terms is None:
            return None
        factor = self.factor**2 if terms.kind in ("root", "chord") else self.factor
        scale = terms.scale * factor
        lost = terms.lost * max(1.0, factor)
        return replace(terms, scale=scale, lost=lost) if sound_scales(scale) else None

    def limit(self) -> float:
        """Return the source's limit, multiplied as the costs are: rounding keeps their order."""
        return super().limit() * self.factor

    def cost_range(self) -> tuple[float, float] | None:
        """Return the range of the source's costs, multiplied."""
        ends = range_of(self.given)
        return None if ends is None else (ends[0] * self.factor, ends[1] * self.factor)

    def product(self) -> Product | None:
        """Return the source's vectors with the factor in them; it rounds less than bounds allow for."""
        product, factor = super().product(), self.factor
        if product is None:
            return None
        if product.kind != "product":
            weight = factor * factor if product.kind == "root" else factor
            return replace(product, weights=product.weights * weight)
        x = np.asarray(product.x[:], np.float64) * factor
        terms = product.row_terms * factor, product.column_terms * factor
        return replace(product, x=x, row_terms=terms[0], column_terms=terms[1])

    def _arguments(self) -> tuple[Any, ...]:
        return self.given, self.factor

    def _context(self) -> tuple[str, tuple[Any, ...]]:
        return "scaled", (float(self.factor),)

    def _on(self, given: CostSource) -> CostSource:
        return Scaled(given, self.factor)


def may_scale(source: CostSource, factor: float) -> bool:
    """Return whether products with the factor stay within float64, for all costs of a source."""
    if not _LEAST < factor < _LARGEST:
        return False
    ends = range_of(source)
    if factor <= 1.0:
        return True
    most = math.inf if ends is None else max(abs(ends[0]), abs(ends[1]))
    if math.isinf(most):
        most = _largest(source.separable() if isinstance(source, Separable) else None)
    return bool(most * factor < np.finfo(np.float64).max / 4)


def _largest(terms: Separation | None) -> float:
    """Return a bound of the absolute costs of points, from the box around all of them."""
    if terms is None or not terms.x.size or not terms.y.size:
        return math.inf
    reach = np.zeros(terms.scale.size)
    for a, axis in ((terms.x, 0), (terms.y, 1)):
        reach += np.maximum(a.max(axis=axis), -a.min(axis=axis))
    with np.errstate(over="ignore"):
        parts = terms.scale * (reach if terms.kind in ("absolute", "largest") else reach**2)
        total = float(np.sqrt(parts.sum()) if terms.kind in ("root", "chord") else parts.sum())
        return 2.0 * total if terms.kind == "chord" else total  # an arc is at most pi / 2 chords


class Rows(Reading):
    """The rows of a source and nothing else, so that every pair is looked at."""

    def __init__(self, source: CostSource) -> None:
        self.source = source
        self.shape, self.dtype = source.shape, np.dtype(source.dtype)

    def __repr__(self) -> str:
        return repr(self.source)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        self.source.read(rows, columns, out)

    def fingerprint(self) -> str:
        own = self.source.fingerprint() if isinstance(self.source, Fingerprinted) else None
        return own or fingerprint_of(self.source)
