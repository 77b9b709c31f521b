"""Lambdas read from their source: the same costs, or None."""

from __future__ import annotations

import linecache
import math

import numpy as np
import pytest

from bigsap.sources.expression.lambdas import lambda_expression
from contracts import read

N, M = 5, 7
RNG = np.random.default_rng(2)
X, Y, W = RNG.normal(size=(N, 3)), RNG.normal(size=(M, 3)), RNG.normal(size=N)
HUGE = 10**400
INTEGERS = np.arange(N)
i, n, sqrt = 2.5, 40, math.sqrt


def shadow(a):
    return a + 1


def make_closure(scale, values):
    return lambda i, j: scale * values[i] - j


def mean(i, j):
    return i


TWO = (lambda a, b: abs(a - b), lambda a, b: abs(a - b) + 1)
INSIDE = [
    *TWO,
    lambda row, column: (W[row] - column) ** 2,
    lambda a, b: sqrt(abs(W[a])) * n + i * b,
    lambda i, j: sum((X[i, k] - Y[j, k]) ** 2 for k in range(X.shape[1])),
    lambda i, j: np.hypot(i, j) if i < j and j > 2 else W[i],
    lambda i, j: 1 if (W[i] and j) else math.pi,
    lambda i, j: not (i and j),
    lambda i, j: max(i, j, 1.5 if j else 2) if i else min(i, j),
    lambda i, j, W=Y, s=3: W[j, 0] * s + i,
    lambda i, j: np.abs(i - j) + math.floor(W[i]),
    make_closure(2.0, W),
    (lambda f: f)(lambda i, j: i - 2 * j),
]

OUTSIDE = [
    mean,
    max,
    lambda i: i,
    lambda *a: 1.0,
    lambda i, j: i and j,
    lambda i, j: round(i),
    lambda i, j: X[i][0],
    lambda i, j: [1, 2][0],
    lambda i, j: math.log(i + 2, 2),
    lambda i, j: shadow(i),
    lambda i, j: INTEGERS[i] - j,
    lambda i, j: W[j],
    lambda i, j: W[-i],
    lambda i, j: (lambda q: q)(i),
    lambda i, j: missing + 1,  # noqa: F821
    lambda i, j: f"{i}",
    lambda i, j: 1 + i * HUGE,
    lambda i, j: W.max() + i,
    lambda i, j: np.where(i < j, i, j, j),
    lambda i, j, k: i,
]


def whole(f, shape):
    return np.array([[f(a, b) for b in range(shape[1])] for a in range(shape[0])], float)


@pytest.mark.some(3)
@pytest.mark.parametrize("f", INSIDE)
def test_inside(f):
    source = lambda_expression(f, (N, M))
    assert source is not None
    np.testing.assert_allclose(read(source, np.arange(N)), whole(f, (N, M)), rtol=1e-14)


@pytest.mark.parametrize("f", OUTSIDE)
def test_outside(f):
    assert lambda_expression(f, (N, M)) is None


def test_two_on_one_line_are_told_apart():
    one, two = (lambda_expression(f, (3, 3)) for f in TWO)
    assert (one.code, two.code) == ("abs(i - j)", "abs(i - j) + 1")


def test_a_constant_is_found_or_not_but_never_mistaken():
    source = lambda_expression(lambda i, j: 3, (2, 2))  # without a place in Python 3.12
    assert source is None or source.code == "3"


def test_args_fill_parameters():
    source = lambda_expression(lambda i, j, a, s: a[i] * s + j, (N, M), (W, 2.0))
    np.testing.assert_array_equal(read(source, [0, 4]), W[[0, 4], None] * 2.0 + np.arange(M))
    assert lambda_expression(lambda i, j, a: i, (N, M)) is None


def test_arrays_are_seen_to_change():
    values = np.zeros(N)
    source = lambda_expression(lambda i, j: values[i], (N, 2))
    values[3] = 7
    np.testing.assert_array_equal(read(source, [3]), [[7, 7]])


def test_a_global_of_a_functions_name_is_looked_up():
    scope = {"abs": shadow}
    f = compiled("f = lambda i, j: abs(i)", scope)
    assert lambda_expression(f, (2, 2)) is None
    assert lambda_expression(compiled("f = lambda i, j: abs(i)", {}), (2, 2)) is not None


def compiled(text, scope, shown=None):
    name = f"<text {len(linecache.cache)} {text}>"
    shown = text if shown is None else shown
    linecache.cache[name] = (len(shown), None, shown.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


def test_a_source_that_changed_since_is_not_believed():
    assert lambda_expression(compiled("f = lambda i, j: i + 1", {}), (2, 2)) is not None
    stale = compiled("f = lambda i, j: i + 1", {}, "f = lambda i, j: i - 1")
    assert lambda_expression(stale, (2, 2)) is None
    assert lambda_expression(compiled("f = lambda i, j: i + 1", {}, ""), (2, 2)) is None
    unreadable = compiled("f = lambda i, j: i + 1", {}, "f = lambda i, j: i + (")
    assert lambda_expression(unreadable, (2, 2)) is None
