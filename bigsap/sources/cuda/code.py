"""CUDA C++ of the costs of one pair, with which device kernels are compiled.

Every text defines ``COST_T``, ``struct Costs`` with ``load_costs(words)``, ``struct Row`` with
``open_row(costs, i)``, ``cost_at(costs, row, j)`` and ``cost_vector<W>(costs, row, j, out)`` for W
neighbours. The words are pointers and numbers, eight bytes each.

Formulas round like the CPU's fillers (``sources.kernels``): the same operations in the same order,
compiled without contraction. All IEEE 754 arithmetic then has the same bits; pow, sin and asin may
differ in the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.lowrank import LowRankSource
from bigsap.sources.metrics import PointSource
from bigsap.types import Array

#: Names of the scannable dtypes in CUDA C++.
C_TYPES = {
    "float64": "double",
    "float32": "float",
    "int64": "long long",
    "int32": "int",
    "uint16": "unsigned short",
    "uint8": "unsigned char",
}

_PHI = {"sqeuclidean": 0, "euclidean": 1, "cosine": 2}
_INNER = 3
#: Most coordinates that are kept in registers.
_IN_REGISTERS = 8
#: Weights of coordinates whose sum is smaller let matrix products bound costs.
_MOST_WEIGHT = 1e30

PRELUDE = """\
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
"""

# Computed costs: W neighbours one by one.
_COMPUTED = """
template <int W>
__device__ __forceinline__ void cost_vector(
    const Costs& costs, const Row& row, int j, COST_T* out
) {
    #pragma unroll
    for (int k = 0; k < W; k++) out[k] = cost_at(costs, row, j + k);
}
"""

_MATRIX = (
    """
struct Costs { const COST_T* base; i64 row_stride, column_stride; };
__device__ __forceinline__ Costs load_costs(const i64* w) {
    return {(const COST_T*)w[0], w[1], w[2]};
}
struct Row { const COST_T* at; };
__device__ __forceinline__ Row open_row(const Costs& costs, int i) {
    return {costs.base + (i64)i * costs.row_stride};
}
#if UNIT_STRIDE
__device__ __forceinline__ COST_T cost_at(const Costs&, const Row& row, int j) {
    return __ldg(row.at + j);
}
template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char T; };
template <> struct Word<2> { typedef unsigned short T; };
template <> struct Word<4> { typedef unsigned int T; };
template <> struct Word<8> { typedef uint2 T; };
template <> struct Word<16> { typedef uint4 T; };
template <int W>
__device__ __forceinline__ void cost_vector(
    const Costs&, const Row& row, int j, COST_T* out
) {
    typedef typename Word<W * (int)sizeof(COST_T)>::T Packed;
    union { Packed packed; COST_T one[W]; } u;
    u.packed = __ldg((const Packed*)(row.at + j));
    #pragma unroll
    for (int k = 0; k < W; k++) out[k] = u.one[k];
}
#else
__device__ __forceinline__ COST_T cost_at(const Costs& costs, const Row& row, int j) {
    return __ldg(row.at + (i64)j * costs.column_stride);
}
"""
    + _COMPUTED
    + """
#endif
"""
)


@dataclass(frozen=True, eq=False)
class ProductForm:
    """Costs that are a function of squared distances or of inner products.

    phi: 0 the squared distance, 1 the distance, 2 half of the squared distance, 3 the inner product plus a
    term of the row and one of the column. weights: (d,). by_point: the code's first words are the points,
    rows (n, d) and columns (m, d); otherwise columns (d, m). Single pairs of many coordinates are read by
    point, whole rows by dimension.
    """

    phi: int
    weights: Array
    by_point: bool

    @property
    def root(self) -> bool:
        """Whether costs are square roots."""
        return self.phi == _PHI["euclidean"]

    @property
    def inner(self) -> bool:
        """Whether costs are inner products plus terms, the code's next two words."""
        return self.phi == _INNER


@dataclass(frozen=True, eq=False)
class DeviceCode:
    """The code of costs in device kernels.

    text: CUDA C++, to follow ``PRELUDE``. words: int64, the input of ``load_costs``; an array
    (numpy; copied to the device) stands for its address. dtype: of the costs. trusted: no pair can
    be NaN or the infinity that is an error. width: costs that can be loaded at once. options:
    further compiler options. exact: the same bits as on the host. lookup: costs are read row by row
    from device memory, not computed. product: the form of costs that inner products bound cheaper
    than they are computed.
    """

    text: str
    words: tuple[int | float | Array, ...]
    dtype: np.dtype[Any]
    trusted: bool
    width: int = 1
    options: tuple[str, ...] = field(default=())
    exact: bool = False
    lookup: bool = False
    product: ProductForm | None = None


def matrix_code(
    dtype: np.dtype[Any], address: int, row_stride: int, column_stride: int, n_columns: int
) -> DeviceCode:
    """Return the code of a matrix in device memory; strides in items."""
    size = dtype.itemsize
    unit = column_stride == 1
    width = 1
    while unit and width * size < 16:
        twice = 2 * width
        if address % (twice * size) or row_stride % twice or n_columns % twice:
            break
        width = twice
    text = f"#define COST_T {C_TYPES[dtype.name]}\n#define UNIT_STRIDE {int(unit)}\n" + _MATRIX
    return DeviceCode(
        text, (address, row_stride, column_stride), dtype, False, width, exact=True, lookup=unit
    )


def source_code(source: Any) -> DeviceCode | PairCode | None:
    """Return the code of a computed source; None if it has none."""
    if isinstance(source, PointSource):
        return _points(source)
    if isinstance(source, LowRankSource):
        return _lowrank(source)
    if isinstance(source, ExpressionSource):
        return _expression(source)
    return None


def _row_of(d: int, base: str, item: str = "double") -> str:
    """Return the text of a Row that holds d coordinates of a C type, in registers if they are few."""
    if d <= _IN_REGISTERS:
        load = "".join(f"    r.x[{k}] = __ldg(p + {k});\n" for k in range(d))
        return (
            f"struct Row {{ double x[{max(d, 1)}]; EXTRA_FIELD }};\n"
            "__device__ __forceinline__ Row open_row(const Costs& costs, int i) {\n"
            f"    const double* p = costs.{base} + (i64)i * {d};\n    Row r;\n"
            f"{load}    EXTRA_LOAD\n    return r;\n}}\n"
        )
    return (
        f"struct Row {{ const {item}* x; EXTRA_FIELD }};\n"
        "__device__ __forceinline__ Row open_row(const Costs& costs, int i) {\n"
        f"    Row r;\n    r.x = costs.{base} + (i64)i * {d};\n    EXTRA_LOAD\n    return r;\n}}\n"
    )


_POINT_TERMS = {
    "sqeuclidean": ("double a = X(k) - Y(k); total += W(a * a);", "total"),
    "euclidean": ("double a = X(k) - Y(k); total += W(a * a);", "__dsqrt_rn(total)"),
    "cosine": ("double a = X(k) - Y(k); total += W(a * a);", "total * 0.5"),
    "cityblock": ("total += W(fabs(row.x[k] - Y(k)));", "total"),
    "chebyshev": ("double a = W(fabs(row.x[k] - Y(k))); total = a > total ? a : total;", "total"),
    "minkowski": (
        "total += W(pow(fabs(row.x[k] - Y(k)), costs.parameter));",
        "pow(total, 1.0 / costs.parameter)",
    ),
}

# One term of a sum, and the cost, for kernels that load a coordinate once for many pairs.
_SUMMED = """
__device__ __forceinline__ double with_term(const Costs& costs, double total, double x, double y, int k) {{
    const double a = x - y;
    return total + W(a * a);
}}
__device__ __forceinline__ double cost_of(const Costs& costs, double total, int i, int j) {{
    return {result};
}}
"""
_INNER_SUMMED = """
__device__ __forceinline__ double with_term(const Costs& costs, double total, double x, double y, int k) {
    return total + x * y;
}
__device__ __forceinline__ double cost_of(const Costs& costs, double total, int i, int j) {
    return total + (__ldg(costs.row_terms + i) + __ldg(costs.column_terms + j));
}
"""

_HAVERSINE = """
    double a = sin(0.5 * (row.x[0] - Y(0)));
    double b = sin(0.5 * (row.x[1] - Y(1)));
    double chord = a * a + (row.x[2] * Y(2)) * (b * b);
    return 2.0 * costs.parameter * asin(__dsqrt_rn(chord < 1.0 ? chord : 1.0));
"""


def _points(source: PointSource) -> DeviceCode:
    kernel, x, y, weights, parameter = source.prepared()
    (d, m), divisors = y.shape, source.divisors
    unit, item = bool((weights == 1).all()), C_TYPES[x.dtype.name]
    # Larger weights would also enlarge what underflows in the costs' own squares.
    multiplied = kernel in _PHI and d > _IN_REGISTERS and float(weights.sum()) < _MOST_WEIGHT
    of_row = of_column = of_this = more = field = load = ""
    if divisors is not None:  # float32 vectors under cosine
        of_row = " / __ldg(costs.u + 2 * (i64)(i)) / __ldg(costs.u + 2 * (i64)(i) + 1)"
        of_column = " / __ldg(costs.v + 2 * (i64)(j)) / __ldg(costs.v + 2 * (i64)(j) + 1)"
        of_this, more = " / row.largest / row.length", ", (const double*)w[5], (const double*)w[6]"
        field = "double largest, length;"
        load = "r.largest = __ldg(costs.u + 2 * (i64)i), r.length = __ldg(costs.u + 2 * (i64)i + 1);"
    by_point = multiplied and d >= policy.DEVICE_HALF_COORDINATES
    place = f"(i64)(j) * {d} + (k)" if by_point else "(i64)(k) * costs.m + (j)"
    text = (
        f"#define COST_T double\n#define POINT {item}\n"
        f"#define BY_POINT {int(by_point)}\n#define DIVISORS {int(divisors is not None)}\n"
        f"#define Y_AT(j, k) ((double)__ldg(costs.y + {place}){of_column})\n"
        f"#define X_AT(i, k) ((double)__ldg(costs.x + (i64)(i) * {d} + (k)){of_row})\n"
        f"#define Y(k) Y_AT(j, k)\n#define X(k) ((double)row.x[k]{of_this})\n"
        f"#define W(a) ({'a' if unit else '__ldg(costs.w + k) * (a)'})\n"
        "struct Costs {\n    const POINT *x, *y;\n    const double* w;\n    i64 m;\n    double parameter;\n"
        "    const double *u, *v;\n};\n"
        "__device__ __forceinline__ Costs load_costs(const i64* w) {\n"
        "    return {(const POINT*)w[0], (const POINT*)w[1], (const double*)w[2], w[3],\n"
        f"            __longlong_as_double(w[4]){more}}};\n}}\n"
    )
    text += _row_of(d, "x", item).replace("EXTRA_FIELD", field).replace("EXTRA_LOAD", load)
    text += "__device__ __forceinline__ double cost_at(const Costs& costs, const Row& row, int j) {"
    if kernel == "haversine":
        text += _HAVERSINE + "}\n"
    else:
        term, result = _POINT_TERMS[kernel]
        # Costs that products bound are computed one by one, and wait for memory; others fill registers.
        far_apart = 32 if kernel in _PHI else 8
        unroll = d if d <= _IN_REGISTERS else far_apart
        text += (
            f"\n    double total = 0.0;\n    #pragma unroll {unroll}\n"
            f"    for (int k = 0; k < {d}; k++) {{ {term} }}\n    return {result};\n}}\n"
        )
    words = (x, y.T if by_point else y, weights, m, float(parameter), *(divisors or ()))
    exact = kernel not in ("minkowski", "haversine")
    product = None
    if multiplied:
        product = ProductForm(_PHI[kernel], weights, by_point)
        text += _SUMMED.format(result=_POINT_TERMS[kernel][1])
    return DeviceCode(text + _COMPUTED, words, np.dtype(np.float64), True, exact=exact, product=product)


def _lowrank(source: LowRankSource) -> DeviceCode:
    rank, m, item = source.a.shape[1], source.shape[1], C_TYPES[source.a.dtype.name]
    finite = bool(np.isfinite(source.row_terms).all() and np.isfinite(source.column_terms).all())
    multiplied = finite and rank > _IN_REGISTERS
    by_point = multiplied and rank >= policy.DEVICE_HALF_COORDINATES
    place = f"(i64)(j) * {rank} + (k)" if by_point else "(i64)(k) * costs.m + (j)"
    text = (
        f"#define COST_T double\n#define POINT {item}\n#define BY_POINT {int(by_point)}\n#define DIVISORS 0\n"
        f"#define X_AT(i, k) ((double)__ldg(costs.a + (i64)(i) * {rank} + (k)))\n"
        f"#define Y_AT(j, k) ((double)__ldg(costs.b + {place}))\n"
        f"struct Costs {{ const {item} *a, *b; const double *row_terms, *column_terms; i64 m; }};\n"
        "__device__ __forceinline__ Costs load_costs(const i64* w) {\n"
        f"    return {{(const {item}*)w[0], (const {item}*)w[1], (const double*)w[2],\n"
        "            (const double*)w[3], w[4]};\n}\n"
    )
    row = _row_of(rank, "a", item).replace("EXTRA_FIELD", "double term;")
    text += row.replace("EXTRA_LOAD", "r.term = __ldg(costs.row_terms + i);")
    # Costs that products bound are computed one by one, and wait for memory.
    unroll = max(1, rank) if rank <= _IN_REGISTERS else 32 if multiplied else 4
    text += (
        "__device__ __forceinline__ double cost_at(const Costs& costs, const Row& row, int j) {\n"
        f"    double total = 0.0;\n    #pragma unroll {unroll}\n"
        f"    for (int k = 0; k < {rank}; k++)\n"
        "        total += (double)row.x[k] * Y_AT(j, k);\n"
        "    return total + (row.term + __ldg(costs.column_terms + j));\n}\n"
    )
    words = (source.a, source.b if by_point else source.b.T, source.row_terms, source.column_terms, m)
    product = None
    if multiplied:
        product = ProductForm(_INNER, np.ones(rank), by_point)
        text += _INNER_SUMMED
    return DeviceCode(text + _COMPUTED, words, np.dtype(np.float64), finite, exact=True, product=product)


def _expression(source: ExpressionSource) -> PairCode:
    arguments = [np.ascontiguousarray(a) if a.ndim else float(a) for a in source.arrays]
    kinds = ["const double*" if isinstance(a, np.ndarray) else "double" for a in arguments]
    function = source.cuda_source()
    return PairCode(
        function,
        "double",
        tuple(kinds),
        tuple(arguments),
        np.dtype(np.float64),
        sizes=source.expression.shape,
        swapped=source.swapped,
    )


@dataclass(frozen=True, eq=False)
class PairCode:
    """A function ``cost(i, j, arguments...)`` of one pair, and the selected part of the matrix.

    kinds: the C type of each argument. sizes: passed after i and j if given. swapped: the source is
    the transpose of the function's matrix. rows, columns: int32 ids of the part, None for all.
    """

    function: str
    result: str
    kinds: tuple[str, ...]
    words: tuple[int | float | Array, ...]
    dtype: np.dtype[Any]
    sizes: tuple[int, int] | None = None
    swapped: bool = False
    rows: Array | None = None
    columns: Array | None = None
    options: tuple[str, ...] = ()

    def code(self) -> DeviceCode:
        words = self.words
        if self.rows is not None and self.columns is not None:
            words = (*words, self.rows, self.columns)
        text = _pair_text(
            self.function, self.result, self.kinds, self.sizes, self.swapped, self.rows is not None
        )
        return DeviceCode(text, words, self.dtype, False, 1, self.options)

    def turned(self) -> PairCode:
        return replace(self, swapped=not self.swapped, rows=self.columns, columns=self.rows)

    def part(self, rows: Array, columns: Array) -> PairCode:
        """Return some rows and columns, also of a part."""
        if self.rows is not None and self.columns is not None:
            rows, columns = self.rows[rows], self.columns[columns]
        return replace(self, rows=rows.astype(np.int32), columns=columns.astype(np.int32))


def _pair_text(
    function: str,
    result: str,
    kinds: tuple[str, ...],
    sizes: tuple[int, int] | None,
    swapped: bool,
    selected: bool,
) -> str:
    fields = "".join(f" {kind} a{k};" for k, kind in enumerate(kinds))
    loads = []
    for k, kind in enumerate(kinds):
        if kind == "double":
            loads.append(f"__longlong_as_double(w[{k}])")
        else:
            loads.append(f"({kind})w[{k}]")
    i, j = ("row.i", "__ldg(costs.columns + j)" if selected else "j")
    first, second = (j, i) if swapped else (i, j)
    if selected:
        fields += " const int *rows, *columns;"
        loads += [f"(const int*)w[{len(kinds)}]", f"(const int*)w[{len(kinds) + 1}]"]
    opened = "__ldg(costs.rows + i)" if selected else "i"
    given = [f"(long long){first}", f"(long long){second}"]
    if sizes is not None:
        given += [f"{sizes[0]}LL", f"{sizes[1]}LL"]
    given += [f"costs.a{k}" for k in range(len(kinds))]
    return (
        f"{function}\n#define COST_T {result}\n"
        f"struct Costs {{{fields} int unused; }};\n"
        "__device__ __forceinline__ Costs load_costs(const i64* w) {\n"
        f"    return {{{''.join(load + ', ' for load in loads)}0}};\n}}\n"
        "struct Row { int i; };\n"
        "__device__ __forceinline__ Row open_row(const Costs& costs, int i) {\n"
        f"    return {{{opened}}};\n}}\n"
        "__device__ __forceinline__ COST_T cost_at(const Costs& costs, const Row& row, int j) {\n"
        f"    return (COST_T)cost({', '.join(given)});\n}}\n" + _COMPUTED
    )
