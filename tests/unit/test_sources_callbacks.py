"""Cost functions: kinds, compiling, calling from Python, and everything that goes wrong."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from numba import njit

from bigsap.errors import (
    BigsapError,
    CallbackError,
    DtypeError,
    InvalidCostError,
    OptionError,
    OverflowRiskError,
    ShapeError,
)
from bigsap.sources.functions.callbacks import from_function
from contracts import SourceContract, one_class_each, read, whole
from function_costs import EXPECTED, SHAPE, X, Y


def call_fill(source, row, start, stop):
    fill = source.fill()
    out = np.full(stop - start, 7, source.dtype)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(fill.address)
    call(fill.context, row, start, stop, out.ctypes.data)
    return out


def value_of(i, j, matrix):
    return matrix[i, j]


def row_of(i, matrix):
    return matrix[i]


def part_of(i, start, stop, matrix):
    return matrix[i, start:stop]


def block_of(rows, out, matrix):
    for k in range(rows.size):
        out[k, :] = matrix[rows[k], :]


FUNCTIONS = {"value": value_of, "row": row_of, "part": part_of, "block": block_of}


class FunctionContract(SourceContract):
    kind = "value"
    compiled = True

    def make(self, matrix):
        return made(self.kind, self.compiled)


@functools.cache
def made(kind, compiled):
    """One source for all tests of a class: compiling takes longer than they do."""
    matrix = SourceContract().matrix()
    source = from_function(FUNCTIONS[kind], matrix.shape, (matrix,), compiled=compiled)
    assert source.kind == kind
    assert (source.translation() is not None) == compiled
    return source


for _kind in FUNCTIONS:
    globals().update(
        one_class_each(
            FunctionContract,
            **{f"Compiled{_kind.title()}": {"kind": _kind}},
            **{f"Called{_kind.title()}": {"kind": _kind, "compiled": False}},
        )
    )


class TestCompiledIntegers(SourceContract):
    def matrix(self):
        return np.random.default_rng(5).integers(-(10**12), 10**12, (13, 9))

    @staticmethod
    @functools.cache
    def source_of(text):
        matrix = np.frombuffer(text, np.int64).reshape(13, 9)
        return from_function(row_of, matrix.shape, (matrix,), compiled=True)

    def make(self, matrix):
        return self.source_of(matrix.tobytes())

    def test_integers_have_no_filler_as_they_have_no_nan(self, source):
        assert source.dtype == np.int64
        assert source.fill() is None
        assert source.translation() is not None


# -- kinds -------------------------------------------------------------------------------


class Callable:
    def __call__(self, i, j):
        return abs(X[i] - Y[j])

    def row(self, i):
        return np.abs(X[i] - Y)


@pytest.mark.parametrize(
    ("f", "args", "kind"),
    [
        (lambda i, j: abs(X[i] - Y[j]), (), "value"),
        (lambda i: np.abs(X[i] - Y), (), "row"),
        (lambda i: [abs(X[i] - y) for y in Y], (), "row"),
        (lambda i, start, stop: np.abs(X[i] - Y[start:stop]), (), "part"),
        (lambda i, j, x, y: abs(x[i] - y[j]), (X, Y), "value"),
        (lambda i, x, y: np.abs(x[i] - y), (X, Y), "row"),
        (lambda i, j, x=X, y=Y: abs(x[i] - y[j]), (), "value"),
        (lambda i, x=X, y=Y: np.abs(x[i] - y), (), "row"),
        (lambda i, start=0, stop=None: np.abs(X[i] - Y), (), "row"),
        (lambda rows, out: np.copyto(out, np.abs(X[rows][:, None] - Y)), (), "block"),
        (lambda r, o, x, y: np.abs(np.subtract.outer(x[r], y), out=o) is None, (X, Y), None),
        (lambda r, o, x, y: np.abs(np.subtract.outer(x[r], y), out=o), (X, Y), "block"),
        (lambda r, o, x, y: np.abs(np.subtract.outer(x[r], y), out=o)[:], (X, Y), "block"),
        (lambda r, o, x, y: np.abs(np.subtract.outer(x[r], y), out=o).copy(), (X, Y), None),
        (Callable(), (), "value"),
        (Callable().row, (), "row"),
        (functools.partial(lambda y, i: np.abs(X[i] - y), Y), (), "row"),
        (EXPECTED.__getitem__, (), "row"),
        (njit(lambda i, j: abs(i - j) * 1.0), (), "value"),
    ],
)
def test_kinds_are_inferred(f, args, kind):
    if kind is None:  # fills, but also returns something: unclear
        with pytest.raises((OptionError, CallbackError), match="kind="):
            from_function(f, SHAPE, args)
        assert from_function(f, SHAPE, args, kind="block").kind == "block"
        return
    source = from_function(f, SHAPE, args)
    assert source.kind == kind
    expected = EXPECTED if not hasattr(f, "py_func") else np.abs(np.subtract.outer(range(6), range(5)))
    np.testing.assert_array_equal(whole(source), expected)
    np.testing.assert_array_equal(whole(from_function(f, SHAPE, args, kind=kind)), expected)


def test_a_broadcasting_value_function_is_no_block_function():
    calls = []

    def f(i, j):
        calls.append(type(i))
        return np.hypot(i, j)

    assert from_function(f, SHAPE).kind == "value"
    assert calls
    assert set(calls) == {int}


def test_a_block_probe_works_on_copies():
    x = X.copy()

    def f(rows, out, x):
        out[...] = np.abs(x[rows][:, None] - Y)
        x[rows] += 1

    assert from_function(f, SHAPE, (x,)).kind == "block"
    # Once by the probe of the dtype, which is a call like any later one.
    np.testing.assert_array_equal(x[1:], X[1:])


@pytest.mark.parametrize(
    ("f", "args", "match"),
    [
        (lambda *ids: 1.0, (), r"takes 1 or 2 or 3 parameters; call bigsap.from_function\(f, shape, kind="),
        (lambda: 1.0, (), "neither 1, 2 nor 3"),
        (lambda i, j, k, n: 1.0, (), "neither 1, 2 nor 3"),
        (lambda i, j, x, scale=1.0: 1.0, (X,), r"2 or 3 parameters beside the 1 in args"),
        (lambda i, j: X, (), r"returned an array of shape \(6,\)"),
        (lambda i, j: None, (), "returned a NoneType, and it filled no block"),
        (lambda i: 1.0, (), r'was taken as kind="row".*returned a float'),
        (lambda i, j, x: 1.0, (), r'was taken as kind="part".*returned a float'),
        (max, (), "from_function"),
    ],
)
def test_unclear_kinds_ask_for_one(f, args, match):
    with pytest.raises(OptionError, match=match):
        from_function(f, SHAPE, args)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"f": 3}, "must be callable, got int"),
        ({"kind": "pair"}, "kind='pair' is unknown; choose one of value, row"),
        ({"args": X}, "args must be a tuple"),
        ({"compiled": "yes"}, "compiled must be"),
    ],
)
def test_bad_options(changes, match):
    with pytest.raises(OptionError, match=match):
        from_function(**({"f": lambda i, j: 1.0, "shape": SHAPE} | changes))


def test_empty_shapes_call_nothing():
    def f(i, j):
        raise AssertionError

    for shape in ((0, 4), (4, 0), (0, 0)):
        source = from_function(f, shape)
        assert whole(source).shape == shape
        assert source.fill() is None
        assert source.transposed().shape == shape[::-1]


# -- dtypes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        (lambda i, j: i + j, "f8"),
        (lambda i, j: np.float32(i + j), "f8"),
        (lambda i: np.arange(5, dtype="i4"), "i4"),
        (lambda i: np.arange(5, dtype="i2"), "i4"),
        (lambda i: np.arange(5, dtype=">f4"), "f4"),
        (lambda i: np.arange(5, dtype=np.longdouble), "f8"),
        (lambda i: Y > 0, "u1"),
        (lambda i: [1, 2, 3, 4, 5], "f8"),
        (lambda i, start, stop: np.arange(start, stop, dtype="u2"), "u2"),
        (lambda rows, out: out.fill(3), "f8"),
    ],
)
def test_inferred_dtypes(f, dtype):
    source = from_function(f, SHAPE)
    assert source.dtype == np.dtype(dtype)
    assert np.isfinite(whole(source)).all()


@pytest.mark.some(3)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u1", "u2"])
def test_declared_dtypes(dtype, compiled):
    matrix = np.arange(30).reshape(6, 5)
    for kind, f in FUNCTIONS.items():
        if compiled and kind in ("part", "block"):
            continue  # seconds of compiling
        given = matrix.astype(dtype) if kind == "block" else matrix
        source = from_function(f, SHAPE, (given,), kind, dtype, compiled=compiled)
        assert source.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(whole(source), matrix)
        assert (source.fill() is None) == (not compiled or dtype[0] != "f")


def test_dtypes_that_cannot_be_scanned():
    with pytest.raises(DtypeError, match="use int32"):
        from_function(lambda i, j: 1, SHAPE, dtype="i2")
    with pytest.raises(DtypeError, match="complex"):
        from_function(lambda i, j: 1, SHAPE, dtype=complex)


@pytest.mark.parametrize("compiled", [False, True])
def test_costs_beyond_the_declared_dtype(compiled):
    large = np.full(SHAPE, 1.0)
    large[2, 3] = 1e39
    integers = np.ones(SHAPE, np.int64)
    integers[2, 3] = 2**31
    forbidden = np.full(SHAPE, np.inf)
    for kind in ("value",) if compiled else ("value", "row", "part"):
        f = FUNCTIONS[kind]
        narrow = from_function(f, SHAPE, (large,), kind, "f4", compiled=compiled)
        with pytest.raises(InvalidCostError, match=r"cannot be held|cannot hold") as caught:
            whole(narrow)
        assert (caught.value.row, caught.value.column) == (2, 3)
        short = from_function(f, SHAPE, (integers,), kind, "i4", compiled=compiled)
        with pytest.raises(OverflowRiskError, match="2147483648"):
            whole(short)
        allowed = from_function(f, SHAPE, (forbidden,), kind, "f4", compiled=compiled)
        assert (whole(allowed) == np.inf).all()


def test_values_python_knows_but_float64_does_not():
    huge = from_function(lambda i, j: 10**400 if i == 2 else i, SHAPE)
    with pytest.raises(InvalidCostError, match="row 2, column 0, which float64 cannot hold"):
        whole(huge)
    assert whole(from_function(lambda i, j: 2**70, SHAPE))[0, 0] == 2.0**70


BAD_ANSWERS = [
    ("value", lambda i, j: 1j, DtypeError, "returned 1j for row 2, column 0"),
    ("value", lambda i, j: "1", DtypeError, "returned '1' for row 2, column 0"),
    ("value", lambda i, j: None, DtypeError, "returned None for row 2, column 0"),
    ("value", lambda i, j: np.ones(1), ShapeError, "expected one number"),
    ("value", lambda i, j: [1.0], ShapeError, "expected one number"),
    ("row", lambda i: np.ones(4), ShapeError, r"shape \(4,\) for row 2; expected shape \(5,\)"),
    ("row", lambda i: np.ones((1, 5)), ShapeError, r"shape \(1, 5\) for row 2"),
    ("row", lambda i: 1.0, ShapeError, "single float for row 2"),
    ("row", lambda i: None, ShapeError, "single NoneType for row 2"),
    ("row", lambda i: [[1.0], [2.0, 3.0]], ShapeError, "ragged row 2"),
    ("row", lambda i: np.ones(5, complex), DtypeError, "dtype complex128 for row 2"),
    ("row", lambda i: np.array(["a"] * 5), DtypeError, "dtype <U1 for row 2"),
    ("row", lambda i: np.array([None] * 5), DtypeError, "dtype object for row 2"),
    ("row", lambda i: np.ma.masked_equal(np.arange(5), 3), InvalidCostError, "row 2, column 3"),
    ("part", lambda i, s, e: np.ones(e - s + 1), ShapeError, r"shape \(6,\) for row 2"),
    ("block", lambda r, out: np.ones((1, 5)), ShapeError, "filled nothing"),
]


@pytest.mark.parametrize(("kind", "bad", "error", "match"), BAD_ANSWERS)
def test_bad_answers_name_their_row(kind, bad, error, match):
    good = {
        "value": lambda i, j: 1.0,
        "row": lambda i: np.ones(5),
        "part": lambda i, s, e: np.ones(e - s),
        "block": lambda rows, out: out.fill(1),
    }[kind]

    def f(*call):
        return (bad if int(np.max(call[0])) == 2 else good)(*call)

    source = from_function(f, SHAPE, kind=kind)
    assert (read(source, [0, 1, 3]) == 1).all()
    with pytest.raises(error, match=match):
        read(source, [2])
    # The same, when found on row 0, of which one column is probed.
    match = match.replace("row 2", "row 0").replace("(6,", "(2,")
    with pytest.raises(error, match=match):
        from_function(bad, SHAPE, kind=kind, dtype="f8")


def test_a_ragged_list_of_a_function_of_unknown_kind_is_named():
    with pytest.raises(ShapeError, match="ragged row 0"):
        whole(from_function(lambda i: [1.0, [2.0], 3.0, 4.0, 5.0], SHAPE))


@pytest.mark.parametrize("compiled", [False, None])
def test_dtype_that_changes_between_rows(compiled):
    def fraction(i):
        return np.full(5, 0.5) if i == 3 else np.ones(5, np.int64)

    with pytest.raises(DtypeError, match=r'float64 for row 3, but the costs are int64.*dtype="f'):
        whole(from_function(fraction, SHAPE, compiled=compiled))
    assert whole(from_function(fraction, SHAPE, dtype="f8", compiled=compiled))[3, 0] == 0.5

    def wider(i):
        return np.full(5, 0.1) if i == 3 else np.ones(5, "f4")

    with pytest.raises(DtypeError, match="float64 for row 3, but float32 for row 0"):
        whole(from_function(wider, SHAPE, compiled=compiled))

    def long(i):
        return np.full(5, i + 0.5, np.longdouble if i % 2 else np.float64)

    assert whole(from_function(long, SHAPE, compiled=compiled))[:, 0].tolist() == [k + 0.5 for k in range(6)]


def test_a_declared_integer_refuses_fractions():
    source = from_function(lambda i, j: 0.5 if i == 2 else 1, SHAPE, dtype="i8")
    with pytest.raises(DtypeError, match=r"returned 0\.5 for row 2, column 0, but the costs"):
        whole(source)


def test_what_a_block_leaves_out_is_invalid_not_zero():
    def f(rows, out):
        out[:, 1:] = 3

    got = whole(from_function(f, SHAPE))
    assert np.isnan(got[:, 0]).all()
    assert (got[:, 1:] == 3).all()


# -- exceptions --------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_what_the_function_raises_is_chained_and_named(compiled):
    def value(i, j):
        if i == 2 and j == 3:
            raise KeyError(i)
        return 1.0

    def row(i):
        if i == 2:
            raise KeyError(i)
        return np.ones(5)

    def part(i, start, stop):
        if i == 2:
            raise KeyError(i)
        return np.ones(stop - start)

    def block(rows, out):
        if rows[0] == 2:
            raise KeyError(2)
        out[:, :] = 1.0

    for f, where in (
        (value, "row 2, column 3"),
        (row, "row 2"),
        (part, "row 2"),
        (block, "row 2" if compiled else r"rows \[2, 1\]"),
    ):
        source = from_function(f, SHAPE, kind=f.__name__, compiled=compiled)
        assert (read(source, [0, 1, 3]) == 1).all()
        with pytest.raises(CallbackError, match=rf"raised KeyError: 2 for {where}") as caught:
            read(source, [2, 1])
        assert isinstance(caught.value.__cause__, KeyError)
        assert isinstance(caught.value, BigsapError)
        # The failure is over with that read.
        assert (read(source, [3, 1]) == 1).all()
        if compiled:
            assert np.isnan(call_fill(source, 2, 0, 5)).any()
            assert (read(source, [3, 1]) == 1).all()


def test_an_exception_on_row_0_is_found_at_once():
    for kind, f in (
        ("value", lambda i, j: 1 / 0),
        ("row", lambda i: 1 / 0),
        ("part", lambda i, start, stop: 1 / 0),
        ("block", lambda rows, out: 1 / 0),
    ):
        for given in (None, kind):
            with pytest.raises(CallbackError, match=r"ZeroDivisionError.*row 0") as caught:
                from_function(f, SHAPE, kind=given)
            assert isinstance(caught.value.__cause__, ZeroDivisionError)


def interrupt(*_):
    raise KeyboardInterrupt


def test_keyboard_interrupt_passes_through():
    for kind, f in (
        ("value", lambda i, j: interrupt() if i == 2 else 1.0),
        ("row", lambda i: interrupt() if i == 2 else np.ones(5)),
        ("block", lambda rows, out: interrupt() if rows[0] == 2 else out.fill(1)),
    ):
        source = from_function(f, SHAPE, kind=kind)
        with pytest.raises(KeyboardInterrupt):
            read(source, [1, 2] if kind != "block" else [2])


def test_keyboard_interrupt_passes_through_compiled_code(monkeypatch):
    source = from_function(lambda i, j: 1 // (2 - i), SHAPE, compiled=True)
    monkeypatch.setattr(source, "_call_row", interrupt)  # Ctrl-C while Python helps out
    with pytest.raises(KeyboardInterrupt):
        read(source, [1, 2])
    # Raised inside a filler, it waits for the next read.
    assert np.isnan(call_fill(source, 2, 0, 5)).all()
    with pytest.raises(KeyboardInterrupt):
        read(source, [1])
    assert (read(source, [1]) == 1).all()


def test_compiled_code_checks_indices_like_python():
    x = np.arange(7.0)
    source = from_function(lambda i, j, x: x[i + j], SHAPE, (x,), compiled=True)
    assert read(source, [2])[0].tolist() == [2, 3, 4, 5, 6]
    with pytest.raises(CallbackError, match=r"raised IndexError.*row 3, column 4"):
        read(source, [3])
    wrapped = from_function(lambda i, j, x: x[i - j], SHAPE, (x,), compiled=True)
    assert read(wrapped, [0])[0].tolist() == [0, 6, 5, 4, 3]
    # A function that the user has compiled, without checks.
    users = from_function(njit(lambda i, j, x: x[i + j]), SHAPE, (x,), compiled=True)
    with pytest.raises(CallbackError, match=r"raised IndexError.*row 3, column 4"):
        read(users, [3])
