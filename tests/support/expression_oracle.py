"""What an expression means, by Python itself, and by the system's compiler from the C text.

Nothing here is taken from bigsap: the meaning is that of Python's own tree.
"""

from __future__ import annotations

import ast
import ctypes
import ctypes.util
import math
import shutil
import subprocess

import numpy as np

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


def terms(size, body, index):
    """How many terms a sum has: a number, ``x.shape[1]``, or D, the width of what k subscripts."""
    match size:
        case ast.Constant(value):
            return value
        case ast.Subscript(value=ast.Attribute(value=ast.Name(name))):
            return ARRAYS[name].shape[1]
    loads = [e for e in ast.walk(body) if isinstance(e, ast.Subscript)]
    (width,) = {
        ARRAYS[e.value.id].shape[1]
        for e in loads
        if isinstance(e.slice, ast.Tuple) and getattr(e.slice.elts[1], "id", None) == index
    }
    return width


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
            if isinstance(e.op, ast.Not):
                return float(not operand)
            return -operand if isinstance(e.op, ast.USub) else operand
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
            for k in range(terms(clause.iter.args[0], inner.elt, clause.target.id)):
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
    return np.array([[value_of(tree, names | {"i": i, "j": j}) for j in range(M)] for i in range(N)])


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
        [
            GCC,
            "-std=c99",
            "-Werror=implicit-function-declaration",
            *flags,
            str(file),
            "-o",
            str(file.with_suffix(".so")),
            "-lm",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(file.with_suffix(".so")))
    results = []
    for k in range(len(texts)):
        out = np.empty((N, M))
        getattr(library, f"run{k}")(ctypes.c_void_p(out.ctypes.data))
        results.append(out)
    return results
