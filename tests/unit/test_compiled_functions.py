"""Functions of the user that are compiled: what compiles, and what is said of the rest."""

from __future__ import annotations

import ctypes
import warnings
import weakref

import numpy as np
import pytest
from numba import njit
from numba.extending import overload

from bigsap import policy
from bigsap.errors import CallbackError, OptionError
from bigsap.sources.functions.callbacks import from_function
from bigsap.sources.functions.speed import PerformanceWarning
from contracts import read, whole
from function_costs import EXPECTED, SHAPE, X, Y


def strided(array):
    return np.repeat(array, 2)[::2]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda i, j, x, y: abs(x[i] - y[j]), (strided(X), Y[::-1][::-1])),
        (lambda i, j, m: m[i, j], (np.asfortranarray(EXPECTED),)),
        (lambda i, j, m: m[2 * i, 3 * j], (np.kron(EXPECTED, np.eye(2, 3))[:, ::1],)),
        (lambda i, j, xy: abs(xy[0][i] - xy[1][j]), ((X, Y),)),
        (lambda i, j, x, y, a, b, c: abs(x[i] - y[j]) * a if c else b, (X, Y, 1.0, 3, True)),
        (lambda i, j, x, y, a: abs(x[i] - y[j]) * a, (X, Y, np.uint8(1))),
        (lambda i, j, x, y, a: abs(x[i] - y[j]) * a, (X, Y, np.float32(1))),
        (lambda i, j, m: m[i, j], (np.lib.stride_tricks.as_strided(EXPECTED, SHAPE, (40, 8)),)),
        (lambda i, j, x, y=Y: abs(x[i] - y[j]), (X,)),
        (lambda i, j, keep, x: x[i, j] if keep[i] else 0.0, (np.ones(6, bool), EXPECTED)),
    ],
)
def test_all_sorts_of_arguments_compile(f, args):
    source = from_function(f, SHAPE, args, kind="value", compiled=True)
    np.testing.assert_array_equal(whole(source), EXPECTED)
    np.testing.assert_array_equal(whole(source.transposed()), EXPECTED.T)


def helper(a, b):
    return abs(a - b)


@njit
def compiled_helper(x, i):
    return x[i]


def item(x, i):
    return x[i]


def test_helpers_and_captured_arrays_are_compiled_along():
    x, pair = X.copy(), (X, Y)

    def f(i, j):
        return helper(compiled_helper(x, i), pair[1][j])

    source = from_function(f, SHAPE, compiled=True)
    np.testing.assert_array_equal(whole(source), EXPECTED)
    # An index outside, in a helper: checked as well.
    outside = from_function(lambda i, j: item(X, i + j), SHAPE, compiled=True)
    with pytest.raises(CallbackError, match=r"IndexError.*row 2, column 4"):
        read(outside, [2])


@pytest.mark.parametrize("compiled", [False, True])
def test_arrays_are_seen_as_they_are_now(compiled):
    x, every_second, captured = np.zeros(6), np.zeros(12), np.zeros(5)
    view = every_second[::2]

    def f(i, j, x, view):
        return x[i] + view[i] + captured[j]

    source = from_function(f, SHAPE, (x, view), compiled=compiled)
    assert (whole(source) == 0).all()
    x[3] = 1
    assert whole(source).sum(axis=1).tolist() == [0, 0, 0, 5, 0, 0]
    every_second[4] = 10
    assert whole(source).sum(axis=1).tolist() == [0, 0, 50, 5, 0, 0]
    captured[0] = 100
    assert whole(source)[0].tolist() == [100, 0, 0, 0, 0]


def test_filler_keeps_everything_alive():
    x = np.arange(6.0)
    watch = weakref.ref(x)
    fill = from_function(lambda i, j, x: x[i], SHAPE, (x,), compiled=True).fill()
    del x
    assert watch() is not None
    out = np.zeros(5)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(fill.address)
    call(fill.context, 4, 0, 5, out.ctypes.data)
    assert (out == 4).all()


def test_small_matrices_are_not_compiled():
    assert from_function(lambda i, j: 1.0, SHAPE).translation() is None
    assert from_function(lambda i, j: 1.0, SHAPE).fill() is None
    assert from_function(lambda i, j: 1.0, (policy.COMPILED_PAIRS, 1)).translation() is not None


def test_what_cannot_be_compiled_is_called_with_one_note():
    names = {"a": 1.0}

    def f(i, j):
        return names.get("a", 2.0)

    shape = (policy.COMPILED_PAIRS, 1)
    source = from_function(f, shape)
    with pytest.warns(PerformanceWarning, match=r"f could not be compiled.*once a pair") as notes:
        assert source.fill() is None
    assert len(notes) == 1
    assert notes[0].filename == __file__
    assert read(source, [5]).tolist() == [[1.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_function(f, shape).fill() is None  # said already
        assert from_function(lambda i: [names.get("a")], shape).fill() is None  # a row: fast
        assert from_function(lambda i, j: names["a"], shape, compiled=False).fill() is None
    with pytest.raises(OptionError, match=r"compiled=True, but .*f cannot be compiled"):
        from_function(f, SHAPE, compiled=True)


def half(number):
    return number / 2


half.__module__ = "math"  # so that it is left to numba, which has another idea of it


@overload(half)
def _half(number):
    return lambda number: number / 3


def test_compiled_answers_that_are_not_pythons_are_refused():
    def f(i, j):
        return half(i) + j

    with pytest.raises(OptionError, match="compiled, it gives"):
        from_function(f, SHAPE, compiled=True)


def test_single_precision_is_compiled_even_if_it_rounds_less():
    x = X.astype("f4")
    source = from_function(lambda i, j, x: x[i] * 0.1, SHAPE, (x,), compiled=True)
    np.testing.assert_allclose(whole(source)[:, 0], x * np.float32(0.1), rtol=1e-6)


def test_transposed_names_the_functions_own_row_and_column():
    def f(i, j):
        if i == 4 and j == 2:
            raise KeyError(i)
        return float(i)

    for compiled in (False, True):
        source = from_function(f, SHAPE, compiled=compiled).transposed()
        assert source.shape == (5, 6)
        assert read(source, [0])[0].tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(CallbackError, match=r"f\(4, 2\) raised.*row 4, column 2") as info:
            read(source, [2])
        assert info.value.row == 4
        np.testing.assert_array_equal(read(source.transposed(), [3]), [[3.0] * 5])
    assert from_function(lambda i: np.ones(5), SHAPE).transposed() is None


def test_long_rows_are_read_in_pieces_unless_the_function_gives_rows(monkeypatch):
    from bigsap.sources import compiled

    monkeypatch.setattr(compiled, "PAIRS_PER_CALL", 7)
    counts = np.zeros(1, np.int64)

    def row(i, x, counts):
        counts[0] += 1
        return x + i

    x = np.arange(20.0)
    source = from_function(row, (5, 20), (x, counts), compiled=True)
    counts[0] = 0
    np.testing.assert_array_equal(whole(source), x + np.arange(5)[:, None])
    assert counts[0] == 5
    value = from_function(lambda i, j, x: x[j] + i, (5, 20), (x,), compiled=True)
    np.testing.assert_array_equal(whole(value), x + np.arange(5)[:, None])
