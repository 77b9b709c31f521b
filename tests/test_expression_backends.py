"""The expression language's back ends agree: numba, C, CUDA's text, and plain Python."""

from __future__ import annotations

import ast
import ctypes
import ctypes.util
import math
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigsap
from contracts import read

GCC = shutil.which("gcc") or shutil.which("cc")
LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
N, M = 5, 11
RNG = np.random.default_rng(3)
ODD = np.array([0.0, -0.0, 1e300, -1e-310, np.inf, -np.inf, np.nan, 0.1])
ARRAYS = {
    "x": RNG.normal(size=(N, 3)),
    "y": RNG.normal(size=(M, 3)),
    "w": np.array([0.0, -0.0, np.inf, -2.5, 1e-310]),
    "v": np.concatenate([ODD, [3.0, -7.0, 0.5]]),
    "c": np.array(-1.75),
}

# -- plain Python ----------------------------------------------------------------------


def c_function(name, *values):
    function = getattr(LIBM, name)
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_double] * len(values)
    return function(*values)


def divide(a, b):
    if b == 0.0:
        bad = a == 0.0 or math.isnan(a)
        return math.nan if bad else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def extreme(values, better):
    for value in values:
        if math.isnan(value):
            return value
    best = values[0]
    for value in values[1:]:
        best = value if better(value, best) else best
    return best


def power(left, e, names):
    exponent = value_of(e, names)
    if isinstance(e, ast.Constant) and exponent in (2.0, 3.0, 4.0):
        square = left * left
        return {2.0: square, 3.0: square * left, 4.0: square * square}[exponent]
    return c_function("pow", left, exponent)


ARITHMETIC = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: divide,
    ast.FloorDiv: lambda a, b: divide(a, b) if b == 0.0 else a // b,
    ast.Mod: lambda a, b: math.nan if b == 0.0 else a % b,
}
COMPARISONS = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
FUNCTIONS = {
    "abs": abs,
    "sqrt": lambda a: math.nan if a < 0 else math.sqrt(a),
    "floor": lambda a: c_function("floor", a),
    "min": lambda *a: extreme(a, lambda x, y: x < y),
    "max": lambda *a: extreme(a, lambda x, y: x > y),
    "where": lambda c, a, b: a if c else b,
}


def value_of(e, names):
    """The value of a Python tree, by its definition."""
    match e:
        case ast.Constant():
            return float(e.value)
        case ast.Name():
            return float(names[e.id])
        case ast.Subscript():
            at = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
            return float(names[e.value.id][tuple(int(value_of(s, names)) for s in at)])
        case ast.UnaryOp():
            operand = value_of(e.operand, names)
            return -operand if isinstance(e.op, ast.USub) else float(not operand)
        case ast.BinOp(op=ast.Pow()):
            return power(value_of(e.left, names), e.right, names)
        case ast.BinOp():
            return ARITHMETIC[type(e.op)](value_of(e.left, names), value_of(e.right, names))
        case ast.Compare():
            operands = [value_of(o, names) for o in (e.left, *e.comparators)]
            pairs = zip(e.ops, operands, operands[1:], strict=False)
            return float(all(COMPARISONS[type(op)](a, b) for op, a, b in pairs))
        case ast.BoolOp():
            truths = [bool(value_of(o, names)) for o in e.values]
            return float(all(truths) if isinstance(e.op, ast.And) else any(truths))
        case ast.IfExp():
            return value_of(e.body if value_of(e.test, names) else e.orelse, names)
        case ast.Call(func=ast.Name(id="sum"), args=[inner]):
            clause = inner.generators[0]
            total = 0.0
            for k in range(3):
                total += value_of(inner.elt, names | {clause.target.id: k})
            return total
        case ast.Call():
            values = [value_of(a, names) for a in e.args]
            if e.func.id in FUNCTIONS:
                return FUNCTIONS[e.func.id](*values)
            return c_function(e.func.id, *values)
    raise AssertionError(ast.dump(e))


def by_python(code):
    tree = ast.parse(code, mode="eval").body
    names = ARRAYS | {"n": N, "m": M, "inf": math.inf}
    return np.array([[value_of(tree, names | {"i": i, "j": j}) for j in range(M)]
                     for i in range(N)])  # fmt: skip


# -- the system's compiler -------------------------------------------------------------

# What a CUDA compiler brings along.
CUDA = """
#include <math.h>
#define __device__
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dsqrt_rn(double a) { return sqrt(a); }
static double __longlong_as_double(long long bits) {
    union { long long bits; double value; } u = {bits};
    return u.value;
}
"""
HELPERS = ("cost", "bigsap_min", "bigsap_max", "bigsap_modulo", "bigsap_floor_divide")
RUN = """
void run%d(double *out) {
    for (long long i = 0; i < %d; i++)
        for (long long j = 0; j < %d; j++)
            *out++ = cost(i, j, %d, %d, x, y, w, v, %r);
}
"""


def by_c(texts, folder, prelude=""):
    """The costs by C texts, compiled together."""
    parts = [prelude, "#include <math.h>\n"]
    for name in "xywv":
        items = ", ".join("%r" % float(a) for a in ARRAYS[name].ravel())  # noqa: UP031
        items = items.replace("inf", "HUGE_VAL").replace("nan", "NAN")
        parts.append(f"static const double {name}[] = {{{items}}};\n")
    for k, text in enumerate(texts):
        parts += [f"#define {name} {name}{k}\n" for name in HELPERS]
        parts += [text, RUN % (k, N, M, N, M, float(ARRAYS["c"]))]
        parts += [f"#undef {name}\n" for name in HELPERS]
    file = folder / f"costs{abs(hash(tuple(parts)))}.c"
    file.write_text("".join(parts))
    flags = ["-O1", "-ffp-contract=off", "-march=native", "-fno-builtin", "-shared", "-fPIC"]
    done = subprocess.run(
        [GCC, "-std=c99", "-Werror=implicit-function-declaration", *flags,
         str(file), "-o", str(file.with_suffix(".so")), "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(file.with_suffix(".so")))
    results = []
    for k in range(len(texts)):
        out = np.empty((N, M))
        getattr(library, f"run{k}")(ctypes.c_void_p(out.ctypes.data))
        results.append(out)
    return results


# -- random expressions ----------------------------------------------------------------

LEAVES = st.sampled_from(
    ["i", "j", "n", "m", "c", "w[i]", "v[j]", "x[i,0]", "x[i,2]", "y[j,1]", "inf",
     "0", "1", "2", "0.1", "1.5e3", "7", "1e-300"]
)  # fmt: skip
TERMS = st.one_of(LEAVES, st.sampled_from(["x[i,k]", "y[j,k]", "k"]))
OPERATORS = st.sampled_from(["+", "-", "*", "/", "//", "%"])
COMPARE = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def compound(inner):
    return st.one_of(
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("({} {} {})".format, inner, COMPARE, inner),
        st.builds("({} {} {} {} {})".format, inner, COMPARE, inner, COMPARE, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("({} and {} and {})".format, inner, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("where({}, {}, {})".format, inner, inner, inner),
        st.builds("({}{})".format, st.sampled_from(["-", "not "]), inner),
        st.builds("({}) ** {}".format, inner, st.sampled_from("234")),
        st.builds("{}({})".format, st.sampled_from(["abs", "floor", "sqrt"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        st.builds("{}({}, {}, {})".format, st.sampled_from(["min", "max"]), inner, inner, inner),
    )


SUMS = st.builds(
    "sum({} for k in range({}))".format,
    st.recursive(TERMS, compound, max_leaves=4).filter(lambda t: "k]" in t),
    st.sampled_from(["3", "D", "x.shape[1]", "y.shape[1]"]),
)
# Functions that IEEE 754 does not fix stand outermost, so that nothing multiplies their error.
EXACT = st.recursive(st.one_of(LEAVES, SUMS), compound, max_leaves=10)
POWERS = ["0.5", "(-1)", "x[i,1]", "1.7", "2.0"]
INEXACT = st.one_of(
    st.builds("{}({})".format, st.sampled_from(["exp", "log", "sin", "cos"]), EXACT),
    st.builds("{}({}, {})".format, st.sampled_from(["hypot", "atan2"]), EXACT, EXACT),
    st.builds("({}) ** {}".format, EXACT, st.sampled_from(POWERS)),
)


def source_of(code):
    return bigsap.expression(code, (N, M), **ARRAYS)


def by_numba(code, transposed):
    source = source_of(code)
    if transposed:
        return read(source.transposed(), np.arange(M)).T
    return read(source, np.arange(N))


def check(got, expected, ulps, what):
    """Bit for bit (zeros' signs too; NaN is NaN), or within so many units in the last place."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan, err_msg=what)
    got, expected = got[~nan], expected[~nan]
    if ulps == 0:
        same = got.view(np.int64) == expected.view(np.int64)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(got - expected) <= ulps * np.spacing(np.abs(expected))
        same = near | (got == expected)
    assert same.all(), f"{what}: {got[~same][:3]} instead of {expected[~same][:3]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("c")


def agree(codes, folder, ulps, transposed):
    expected = [by_python(code) for code in codes]
    if GCC:
        plain = by_c([source_of(code).c_source() for code in codes], folder)
        cuda = by_c([source_of(code).cuda_source() for code in codes], folder, CUDA)
        for code, want, one, two in zip(codes, expected, plain, cuda, strict=True):
            check(one, want, ulps, f"C: {code}")
            check(two, want, ulps, f"CUDA's text: {code}")
    check(by_numba(codes[0], transposed), expected[0], ulps, f"numba: {codes[0]}")


@given(codes=st.lists(EXACT, min_size=1, max_size=12), transposed=st.booleans())
@settings(max_examples=20)
def test_what_ieee_fixes_agrees_bit_for_bit(codes, transposed, folder):
    agree(codes, folder, 0, transposed)


@given(codes=st.lists(INEXACT, min_size=1, max_size=12), transposed=st.booleans())
@settings(max_examples=10)
def test_the_other_functions_agree_within_two_ulp(codes, transposed, folder):
    agree(codes, folder, 2, transposed)


EDGES = [
    "v[j] // w[i] + v[j] % w[i]",
    "(i - 2.5) // (j - 5) + 10 * ((i - 2.5) % (j - 5))",
    "(1e15 * y[j,0]) // 0.1",
    "min(v[j], w[i])",
    "max(w[i], v[j], 0)",
    "1 / (w[i] + v[j] * 0)",
    "not v[j] or w[i] and v[j] == v[j]",
    "sum(sum(x[i,k] * y[j,l] for l in range(3)) for k in range(3))",
    "0.1 * x[i,0] + 0.2 * y[j,0] - 0.3 * y[j,1] * x[i,1]",
    "-v[j] if w[i] < v[j] != 3 <= j else floor(x[i,0] - v[j])",
]


@pytest.mark.parametrize("transposed", [False, True])
def test_edges_agree(transposed, folder):
    for code in EDGES if not transposed else EDGES[:3]:
        agree([code], folder, 0, transposed)
