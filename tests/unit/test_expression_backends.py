"""The expression language's back ends agree: numba, C, CUDA's text, and plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from contracts import read
from examples_of import examples
from expression_oracle import ARRAYS, CUDA, GCC, M, N, by_c, by_python

# -- random expressions ----------------------------------------------------------------

LEAVES = st.sampled_from(
    [
        "i",
        "j",
        "n",
        "m",
        "c",
        "w[i]",
        "v[j]",
        "x[i,0]",
        "x[i,2]",
        "y[j,1]",
        "inf",
        "0",
        "1",
        "2",
        "0.1",
        "1.5e3",
        "7",
        "1e-300",
    ]
)
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
@examples(20)
def test_what_ieee_fixes_agrees_bit_for_bit(codes, transposed, folder):
    agree(codes, folder, 0, transposed)


@given(codes=st.lists(INEXACT, min_size=1, max_size=12), transposed=st.booleans())
@examples(10)
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


@pytest.mark.some(1)
@pytest.mark.parametrize("transposed", [False, True])
def test_edges_agree(transposed, folder):
    agree(EDGES, folder, 0, transposed)
    for code in EDGES[3:6]:
        check(by_numba(code, transposed), by_python(code), 0, f"numba: {code}")
