"""Costs from few numbers: low-rank products, and tables of costs by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import DtypeError, InvalidCostError, ShapeError
from bigsap.notebook import Shown
from bigsap.sources.base import Fill, Separation
from bigsap.sources.convert import convert, cost_dtype
from bigsap.sources.filled import Filled
from bigsap.sources.metrics import are_single, check_finite, digest, real_array, whole_array
from bigsap.sources.products import Chosen, Product
from bigsap.types import Array, Ids


def lowrank(a: Any, b: Any, *, row_terms: Any = None, column_terms: Any = None) -> LowRankSource:
    """Return ``cost = a @ b.T + row_terms[:, None] + column_terms[None, :]``, never stored.

    a, b: (n, r) and (m, r), finite real numbers (1-D means r = 1). row_terms (n,),
    column_terms (m,): real numbers, 0 if not given; an infinite one forbids its whole
    row or column. a and b are kept as float32 if both are no wider and r is more than 16. All
    are copied, except read-only ones, as in ``points``. Costs are float64, summed over the
    rank in order, the same bits for any part of a row and for the transpose (so no BLAS).

    Memory O((n + m) r), b twice where rows are read on the host; a row costs O(m r). Raises
    ShapeError, DtypeError; InvalidCostError for NaN, or costs beyond float64.
    """
    return LowRankSource(a, b, row_terms, column_terms)


class LowRankSource(Filled, Shown):
    """A matrix of low rank plus row and column terms. See ``lowrank``.

    a: (n, r), b: (m, r), float64 or both float32 (``single``). row_terms (n,), column_terms (m,): float64.
    """

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, a: Any, b: Any, row_terms: Any, column_terms: Any) -> None:
        super().__init__()
        a, b = whole_array(a, "a"), whole_array(b, "b")
        self.single = are_single(a, b)
        kind = np.float32 if self.single else np.float64
        self.a, self.b = _factor(a, "a", kind), _factor(b, "b", kind)
        self._b_by_rank = self.b.T
        if not self.single:
            self._b_by_rank = np.ascontiguousarray(self.b.T)
            self.b = self._b_by_rank.T
        if self.a.shape[1] != self.b.shape[1]:
            raise ShapeError(f"a has rank {self.a.shape[1]}, b has rank {self.b.shape[1]}; they must agree")
        self.shape = (self.a.shape[0], self.b.shape[0])
        self.row_terms = _terms(row_terms, self.shape[0], "row_terms")
        self.column_terms = _terms(column_terms, self.shape[1], "column_terms")
        self._check_reach()
        self._fill: Fill | None = None
        self._product: Product | None = None

    def __repr__(self) -> str:
        n, m = self.shape
        return f"lowrank({n} x {m}, rank={self.a.shape[1]})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LowRankSource, (self.a, self.b, self.row_terms, self.column_terms)

    def _check_reach(self) -> None:
        """Refuse finite data that could give an infinite cost: that would forbid its pair."""
        if 0 in self.shape:
            return
        terms = [t[np.isfinite(t)] for t in (self.row_terms, self.column_terms)]
        with np.errstate(over="ignore", under="ignore"):
            sizes = [np.maximum(f.max(axis=0), -f.min(axis=0)).astype(np.float64) for f in (self.a, self.b)]
            largest = (sizes[0] * sizes[1]).sum()
            largest += sum(np.abs(t).max(initial=0.0) for t in terms)
        # A factor of 2, because the kernel sums in another order.
        if not np.isfinite(2.0 * largest):
            raise InvalidCostError("these factors and terms give costs beyond float64; scale down")
        infinite = np.concatenate([self.row_terms, self.column_terms])
        infinite = infinite[np.isinf(infinite)]
        if infinite.size and infinite.min() != infinite.max():
            raise InvalidCostError("row_terms and column_terms hold both +inf and -inf")

    def fill(self) -> Fill:
        if self._fill is None:
            from bigsap.sources.compiled import make_fill
            from bigsap.sources.kernels import filler

            kernel = filler("lowrank_single" if self.single else "lowrank")
            factors = self.b if self.single else self._b_by_rank
            sizes: tuple[Any, ...] = (self.a.shape[1], self.shape[1])
            if self.single:
                copied = self.b.nbytes <= policy.PRODUCT_COPY_BYTES
                sizes = (*sizes, np.ascontiguousarray(self._b_by_rank) if copied else 0)
            given = (self.a, factors, self.row_terms, self.column_terms, *sizes)
            many, several = self._many(), policy.SINGLE_ROWS if self.single else 2
            self._fill = make_fill(
                kernel.address, given, (kernel,), in_parts=True, many=many, several=several
            )
        return self._fill

    def _many(self) -> Callable[[Array, int, int, Array], None] | None:
        """Return the filler of many rows at once; None for few factors."""
        from bigsap.sources import sums_of_rows as S

        rank = self.a.shape[1]
        if rank < policy.PRODUCT_COORDINATES:
            return None
        terms, kinds = (self.row_terms, self.column_terms), (S.PRODUCTS, S.TERMS)
        if self.single:
            return S.filler_of_single(self.a, self.b, np.ones(rank), None, kinds, terms)
        return S.filler_of_rows(self.a, self._b_by_rank, np.ones(rank), terms, kinds)

    def transposed(self) -> LowRankSource:
        """Return ``lowrank(b, a)``: the same costs, bit for bit."""
        return LowRankSource(self.b, self.a, self.column_terms, self.row_terms)

    def select(self, rows: Ids, columns: Ids) -> LowRankSource:
        return LowRankSource(self.a[rows], self.b[columns], self.row_terms[rows], self.column_terms[columns])

    def separable(self) -> Separation | None:
        """Return the factors as a scalar product; None if row or column terms are added.

        float32 only with a higher rank than boxes have coordinates.
        """
        if self.row_terms.any() or self.column_terms.any() or not self.a.shape[1]:
            return None
        return Separation(self.a, self._b_by_rank, np.ones(self.a.shape[1]), "product")

    def product(self) -> Product | None:
        """Return the factors and terms; None if a row or column is forbidden, or the rank is 0."""
        rank = self.a.shape[1]
        if not rank or not (np.isfinite(self.row_terms).all() and np.isfinite(self.column_terms).all()):
            return None
        if self._product is not None:
            return self._product
        from bigsap.sources.compiled import make_fill
        from bigsap.sources.kernels import filler

        kernel = filler("chosen_lowrank_single" if self.single else "chosen_lowrank")
        b = np.ascontiguousarray(self.b)
        words = (self.a, b, self.row_terms, self.column_terms, rank, b.shape[0])
        made = make_fill(kernel.address, words, (kernel,))
        chosen = Chosen(made.address, made.context, made.keep)
        terms = self.row_terms, self.column_terms
        self._product = Product("product", self.a, b, np.ones(rank), 1.0, *terms, chosen)
        return self._product

    def fingerprint(self) -> str:
        factors = self.b if self.single else self._b_by_rank
        return digest("lowrank", (self.a, factors, self.row_terms, self.column_terms))


def table(values: Any, row_class: Any, column_class: Any) -> TableSource:
    """Return ``cost[i, j] = values[row_class[i], column_class[j]]``.

    values: (K, L), real numbers; infinities forbid. row_class: integers (n,) in [0, K);
    column_class: integers (m,) in [0, L). All are copied; the costs have the dtype of
    ``values`` (narrow and wide types as in ``base.scannable``).

    Memory O(K L + n + m); a row costs O(m). Raises ShapeError, DtypeError; InvalidCostError naming
    a class out of range.
    """
    return TableSource(values, row_class, column_class)


class TableSource(Filled, Shown):
    """Costs looked up by the classes of row and column. See ``table``.

    values: (K, L), dtype; row_class: int64 (n,); column_class: int64 (m,).
    """

    def __init__(self, values: Any, row_class: Any, column_class: Any) -> None:
        super().__init__()
        self.values = _table_values(values)
        self.dtype = self.values.dtype
        self.row_class = _classes(row_class, self.values.shape[0], "row_class", "row")
        self.column_class = _classes(column_class, self.values.shape[1], "column_class", "column")
        self.shape = (self.row_class.size, self.column_class.size)
        self._fill: Fill | None = None

    def __repr__(self) -> str:
        n, m = self.shape
        return f"table({n} x {m}, classes={self.values.shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TableSource, (self.values, self.row_class, self.column_class)

    def fill(self) -> Fill:
        if self._fill is None:
            from bigsap.sources.compiled import make_fill
            from bigsap.sources.kernels import filler

            kernel = filler("table")
            arrays = (self.values, self.row_class, self.column_class)
            sizes = (self.values.shape[1], self.dtype.itemsize)
            self._fill = make_fill(kernel.address, (*arrays, *sizes), (kernel,), in_parts=True)
        return self._fill

    def transposed(self) -> TableSource:
        return TableSource(self.values.T, self.column_class, self.row_class)

    def fingerprint(self) -> str:
        return digest("table", (self.values, self.row_class, self.column_class))


def _factor(values: Any, name: str, dtype: Any) -> Array:
    array = real_array(values, name, dtype, in_place=True)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ShapeError(f"{name} has {array.ndim} dimensions, shape {array.shape}; needs (n, r)")
    check_finite(array, f"{name}[{{}}, {{}}]", "factors must be finite numbers")
    array.flags.writeable = False
    return array


def _terms(values: Any, size: int, name: str) -> Array:
    if values is None:
        return np.zeros(size)
    array = real_array(values, name)
    if array.shape != (size,):
        raise ShapeError(f"{name} has shape {array.shape}; needs ({size},)")
    if np.isnan(array).any():
        raise InvalidCostError(f"{name}[{int(np.isnan(array).argmax())}] is nan")
    array.flags.writeable = False
    return array


def _table_values(values: Any) -> Array:
    given = whole_array(values, "values")
    if given.ndim != 2:
        raise ShapeError(f"values has {given.ndim} dimension(s), shape {given.shape}; needs (K, L)")
    array = np.empty(given.shape, cost_dtype(given.dtype, "values"))
    try:
        convert(given, array, np.arange(given.shape[0]), 0)
    except InvalidCostError as error:
        raise type(error)(str(error).replace("cost[", "values[", 1)) from None
    array.flags.writeable = False
    return array


def _classes(values: Any, n_classes: int, name: str, side: str) -> Array:
    array = whole_array(values, name)
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; needs one class a {side}")
    if array.dtype.kind not in "biu" and array.size:
        raise DtypeError(f"{name} has dtype {array.dtype}; classes are integers")
    # Test before the cast, which could wrap. numpy would wrap negative ones too.
    wrong = (array < 0) | (array >= n_classes)
    if wrong.any():
        k = int(wrong.argmax())
        raise InvalidCostError(f"{name}[{k}] is {array[k]}; values has {n_classes} {side} classes, from 0")
    classes = np.array(array, np.int64, order="C", copy=True, subok=False)
    classes.flags.writeable = False
    return classes
