"""Costs from a formula in a small safe language, compiled for the CPU and for GPUs."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import DtypeError, ExpressionError, ShapeError
from bigsap.notebook import Shown
from bigsap.sources.base import Fill
from bigsap.sources.convert import cost_shape
from bigsap.sources.expression.emit import c_source, cuda_source
from bigsap.sources.expression.inner_products import InnerProducts, constant, recognised
from bigsap.sources.expression.parser import parse
from bigsap.sources.expression.syntax_tree import (
    MAX_ARRAYS,
    RESERVED,
    Declared,
    Load,
    Node,
    Number,
    SyntaxTree,
    walk,
)
from bigsap.sources.expression.value_range import expression_range
from bigsap.sources.filled import Filled
from bigsap.sources.metrics import digest, real_array
from bigsap.sources.products import Chosen, Product
from bigsap.types import Array, Ids


def expression(code: str, shape: Any, **arrays: Any) -> ExpressionSource:
    """Return costs by a formula: ``expression("(x[i] - y[j])**2", (n, m), x=x, y=y)``.

    shape: (n_rows, n_columns). arrays: up to 8 arrays of real numbers, (n,), (n, d), (m,)
    or (m, d), and single numbers, all copied as float64, which integers must fit.
    Costs are float64; an infinity forbids its pair, NaN is an error when solved.

    The language is a small part of Python's, without access to anything else:

    ================ ===================================================================
    values           numbers, ``inf``, row ``i``, column ``j``, their numbers ``n``, ``m``
    arrays           ``x[i]``, ``x[j]``; of two dimensions ``x[i, 0]``, ``x[j, k]``: the
                     first subscript is bare ``i`` if x has n entries, ``j`` if m; the
                     second a whole number or the index of a sum, below the width
    arithmetic       ``+ - * / // % **``, brackets
    conditions       ``< <= > >= == !=``, chained too; ``and``, ``or``, ``not``;
                     ``a if c else b``, ``where(c, a, b)``
    functions        abs sqrt exp log sin cos floor; atan2 hypot; min max of two or more
    sums             ``sum(... for k in range(D))``; D a whole number, a declared one,
                     ``x.shape[1]``, or the letter D: the width of the arrays that k
                     subscripts. At most 4,096 terms, 65,536 of sums within sums
    ================ ===================================================================

    At most 4,096 characters, 500 nodes, 32 levels, 16 sums.

    Everything is computed in float64, in the written order, by IEEE 754; there are no
    exceptions. x / 0 is infinite or NaN. // and % are Python's for floats (floor; the
    remainder takes the divisor's sign); x // 0 is x / 0 and x % 0 NaN. ** is C's pow,
    NaN for fractional powers of negative numbers; a constant exponent 2, 3 or 4 multiplies: x*x,
    (x*x)*x, (x*x)*(x*x). Comparisons, and, or, not give 1 or 0 (``2 and 3`` is 1); NaN
    counts as true and equals nothing. min and max are NaN if an argument is, and of
    equal arguments take the first. A sum starts at 0 and adds in order.

    CPU code, C text (without contraction) and CUDA text agree bit for bit in these
    operations, and within 2 ulp in exp, log, sin, cos, atan2, hypot and other powers.

    Raises ExpressionError with the offending column, ShapeError, DtypeError. Compiling
    takes some tenths of a second, seconds for the longest formulas, once for each formula;
    memory O(size of the arrays).
    """
    sizes = cost_shape(shape, "shape=")
    values = _arrays(arrays)
    declared = [Declared(name, a.shape, None if a.ndim else float(a)) for name, a in values.items()]
    return ExpressionSource(parse(code, sizes, declared), tuple(values.values()), code)


#: Sizes of vectors of which no product or square is lost, or beyond float64.
_LEAST, _LARGEST = 1e-100, 1e100


class ExpressionSource(Filled, Shown):
    """Costs by a formula. See ``expression``.

    expression: the checked tree. arrays: float64, C-contiguous, in the tree's order.
    code: the text, for people. swapped: this is the transpose.
    """

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(
        self, expression: SyntaxTree, arrays: tuple[Array, ...], code: str, *, swapped: bool = False
    ) -> None:
        super().__init__()
        self.expression = expression
        self.arrays = arrays
        self.code = code
        self.swapped = swapped
        n, m = expression.shape
        self.shape = (m, n) if swapped else (n, m)
        self._fill: Fill | None = None

    def __repr__(self) -> str:
        n, m = self.shape
        code = self.code if len(self.code) <= 60 else self.code[:57] + "..."
        return f"expression({code!r}, {n} x {m}{', transposed' if self.swapped else ''})"

    def cost_range(self) -> tuple[float, float]:
        """Return the range by interval arithmetic over the arrays' smallest and largest numbers."""
        return expression_range(self.expression, self.arrays)

    def sample(self, rows: Ids, columns: Ids) -> Array:
        """Return ``cost[rows[k], columns[k]]`` computed by numpy, k pairs, without compiling.

        The last bits may differ. O(k) times the operations of the formula.
        """
        from bigsap.sources.expression.sample import sampled

        i, j = (columns, rows) if self.swapped else (rows, columns)
        return sampled(self.expression, self.arrays, i, j)

    def why_infinite(self) -> str | None:
        """Return the reason for infinite costs if neither formula nor arrays contain inf, else None."""
        unbounded = any(isinstance(e, Number) and e.value == np.inf for e in walk(self.expression.root))
        if unbounded or any(np.isinf(values).any() for values in self.arrays):
            return None
        return "the expression says inf nowhere, so these exceed float64 (about 1.8e308) or divide by 0"

    def fill(self) -> Fill:
        """Return the compiled filler (compiled at first use, kept for equal formulas)."""
        if self._fill is None:
            from bigsap.sources.compiled import make_fill
            from bigsap.sources.expression.numba_code import filler

            kernel = filler(self.expression, swapped=self.swapped)
            words = [a if a.ndim else float(a) for a in self.arrays]
            given = [*self.expression.shape, *words]
            self._fill = make_fill(kernel.address, given, (kernel,), in_parts=True, many=self._many())
        return self._fill

    @cached_property
    def inner_products(self) -> InnerProducts | None:
        """The parts of the formula if it is a function of inner products of usual vectors, else None."""
        found = recognised(self.expression)
        if found is None:
            return None
        sizes = (float(np.abs(self.arrays[k][:, : found.count]).max(initial=0.0)) for k in found.arrays)
        return found if all(size == 0.0 or _LEAST < size < _LARGEST for size in sizes) else None

    def vectors(self) -> tuple[Array, Array]:
        """Return the vectors of ``inner_products``, (n_rows, d) and (n_columns, d).

        Of products those of the formula's rows times the factor.
        """
        found = self.inner_products
        assert found is not None
        x, y = (self.arrays[place][:, : found.count] for place in found.arrays)
        if found.kind == "product" and found.factor != 1.0:
            x = found.factor * x
        return (y, x) if self.swapped else (x, y)

    def terms(self) -> tuple[Array, Array]:
        """Return what ``inner_products`` adds in each row (n_rows,) and column (n_columns,)."""
        found = self.inner_products
        assert found is not None
        x, y = (self._term(*given) for given in zip(found.terms, self.expression.shape, strict=True))
        return (y, x) if self.swapped else (x, y)

    def _term(self, given: tuple[float, Node] | None, size: int) -> Array:
        if given is None:
            return np.zeros(size)
        sign, node = given
        if isinstance(node, Load):
            values = self.arrays[node.array]
            at: Any = node.second  # no loop, see ``inner_products``
            return np.asarray(sign * (values[:, at] if values.ndim == 2 else values))
        value = constant(node, self.expression)
        assert value is not None
        return np.full(size, sign * value)

    def product(self) -> Product | None:
        """Return the vectors and terms of a formula of inner products; None for another."""
        return self._product

    @cached_property
    def _product(self) -> Product | None:
        found = self.inner_products
        if found is None or not all(np.isfinite(some).all() for some in self.terms()):
            return None
        from bigsap.sources.compiled import make_fill
        from bigsap.sources.kernels import filler

        (x, y), exponent = self.vectors(), {"square": 1, "root": 2, "product": 0}[found.kind]
        weights = np.full(found.count, found.factor**exponent)
        fill, kernel = self.fill(), filler("chosen_filled")
        made = make_fill(kernel.address, [fill.address, fill.context], (kernel, fill))
        chosen = Chosen(made.address, made.context, made.keep)
        return Product(found.kind, x, y, weights, 1.0, *self.terms(), chosen)

    def _many(self) -> Callable[[Array, int, int, Array], None] | None:
        """Return the filler of many rows at once, for plain sums over enough coordinates."""
        found = self.inner_products
        if found is None or not found.plain or found.count < policy.PRODUCT_COORDINATES:
            return None
        from bigsap.sources import sums_of_rows as S

        kinds = {
            "square": (S.SQUARES, S.PLAIN),
            "root": (S.SQUARES, S.ROOT),
            "product": (S.PRODUCTS, S.TERMS),
        }
        x, y = self.vectors()
        rows, columns = np.ascontiguousarray(x), np.ascontiguousarray(y.T)
        return S.filler_of_rows(rows, columns, np.ones(found.count), None, kinds[found.kind])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what holds addresses: another process makes its own. ``Fill`` itself pickles as None."""
        return {name: value for name, value in self.__dict__.items() if name != "_product"}

    def transposed(self) -> ExpressionSource:
        """Return the same formula by columns, bit for bit."""
        return ExpressionSource(self.expression, self.arrays, self.code, swapped=not self.swapped)

    def fingerprint(self) -> str:
        """Return a digest of the formula (not its spelling) and of whole arrays."""
        return digest(repr((self.shape, self.swapped, self.c_source())), self.arrays)

    def c_source(self) -> str:
        """Return the formula as C99: ``double cost(long long i, long long j, n, m, a0, a1, ...)``.

        n, m: long long. a0, a1, ...: the declared names in their order, ``const double *`` to the
        items of an array in C order, ``double`` for a number. Needs math.h; compile with
        -ffp-contract=off. The cost is that of the formula's i and j, transposed or not.
        """
        return c_source(self.expression)

    def cuda_source(self) -> str:
        """Return the formula as CUDA C++: ``__device__ double cost(...)`` with the same parameters.

        Rounded by intrinsics that are never contracted, whatever ``-fmad`` is set to.
        """
        return cuda_source(self.expression)


def _arrays(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Return the declared arrays as read-only float64 copies."""
    if len(arrays) > MAX_ARRAYS:
        raise ExpressionError(f"{len(arrays)} arrays are declared; at most {MAX_ARRAYS} can be")
    found = {}
    for name, values in arrays.items():
        ascii_name = isinstance(name, str) and name.isascii() and name.isidentifier()
        if not ascii_name or keyword.iskeyword(name) or name.startswith("__"):
            raise ExpressionError(f"{name!r} cannot be the name of an array")
        if name in RESERVED:
            raise ExpressionError(f"{name!r} has a meaning in expressions; rename the array")
        array = real_array(values, name)
        if array.ndim > 2:
            raise ShapeError(f"{name} has {array.ndim} dimensions; at most 2 are possible")
        if array.dtype != np.float64:  # pragma: no cover  (real_array's promise)
            raise DtypeError(f"{name} has dtype {array.dtype}")
        array.flags.writeable = False
        found[name] = array
    return found
