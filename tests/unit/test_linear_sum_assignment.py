"""``linear_sum_assignment`` side by side with scipy's: whatever scipy does is right."""

from __future__ import annotations

import array
import dataclasses
import fractions
import importlib
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment as scipys

import bigsap
from bigsap import linear_sum_assignment
from bigsap.run.small_arrays import assignment, quick_assignment
from examples_of import examples
from instances import CLASSES, integers
from oracle import optimum, value
from pairwise import each


def outcome(function, *args, **kwargs):
    """What a call gave: arrays, or the exception."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - to be compared
        return error


def same_outcome(cost, maximize=False):
    """BigSAP answers as scipy does: an equally good assignment, or the same error."""
    expected = outcome(scipys, cost, maximize)
    found = outcome(linear_sum_assignment, cost, maximize)
    if isinstance(expected, Exception):
        assert isinstance(found, type(expected)), found
        assert str(found) == str(expected)
        return
    assert not isinstance(found, Exception), found
    assert isinstance(found, tuple)
    assert len(found) == 2
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert type(mine) is type(theirs)
        assert mine.flags.writeable
    rows, columns = found
    assert (np.diff(rows) > 0).all()
    assert len(set(columns.tolist())) == len(columns)
    matrix = np.asarray(cost)
    if matrix.dtype == object:
        matrix = matrix.astype(float)
    mine, theirs = value(matrix, rows, columns), value(matrix, *expected)
    assert abs(mine - theirs) <= abs(theirs) / 10**12


class ArrayLike:
    def __array__(self, dtype=None, copy=None):
        return np.array([[3.0, 1.0], [1.0, 3.0]], dtype=dtype)


class TextArrayLike:
    def __array__(self, dtype=None, copy=None):
        return np.array([["3", "1"], ["1", "3"]])


eye = np.eye(3)
big = 2**53
with warnings.catch_warnings():
    # numpy discourages the class; scipy silences that, for whoever imports it first.
    warnings.simplefilter("ignore", PendingDeprecationWarning)
    numpy_matrix = np.matrix(eye)
ACCEPTED = {
    "square": [[4, 1, 3], [2, 0, 5], [3, 2, 2]],
    "wide": [[4.0, 1, 3], [2, 0, 5]],
    "tall": [[4.0, 1], [2, 0], [3, 2]],
    "one": [[7]],
    "tuples": ((1, 2), (2, 1)),
    "bool": eye.astype(bool),
    "masked array": np.ma.masked_equal(eye, 7),
    "array-like": ArrayLike(),
    "memoryview": memoryview(eye),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3) ** 2),
    "reversed": np.arange(16.0).reshape(4, 4)[::-1, ::-1],
    "every second": np.arange(36.0).reshape(6, 6)[::2, 1::2] % 7,
    "big-endian": eye.astype(">f8"),
    "float16": eye.astype("f2"),
    "float32": eye.astype("f4"),
    "int8": -np.eye(3, dtype="i1"),
    "uint8": np.eye(3, dtype="u1"),
    "uint64": np.array([[2**63 + 2**20, 2**63], [2**63, 2**63 + 2**30]], dtype="u8"),
    "int64 ends": np.array([[2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1]]),
    "fractions": [[fractions.Fraction(1, 2), 1], [1, 1]],
    "long integers": [[10**30, 1], [1, 2]],
    "mixed": [[1, 2.5], [True, 0]],
    "forbidden": [[np.inf, 1], [1, np.inf]],
    "half forbidden": [[np.inf, 1, 2], [1, np.inf, np.inf]],
    "row forbidden, to spare": [[1, 2], [np.inf, np.inf], [3, 1]],
    "0 x 0": np.zeros((0, 0)),
    "0 x 3": np.zeros((0, 3)),
    "3 x 0": np.zeros((3, 0)),
    "list of nothing": [[]],
    "constant": np.full((6, 6), 2.5),
    "negative": -(np.arange(9.0).reshape(3, 3) ** 2),
    "huge": np.array([[1e308, 1e307], [1e308, 1e308]]),
    "wide range": np.array([[1e30, 1e-30], [1.0, 1e30]]),
    "signed zeros": np.array([[-0.0, 0.0], [0.0, -0.0]]),
    "minus inf": [[-np.inf, 1], [1, 2]],
}
REFUSED = {
    "number": 5,
    "none": None,
    "text": "costs",
    "empty list": [],
    "1-D": [1, 2, 3],
    "array.array": array.array("d", [1, 2]),
    "3-D": np.zeros((2, 2, 2)),
    "ragged": [[1, 2], [3]],
    "strings": eye.astype(str),
    "bytes": np.array([[b"1"]]),
    "text array-like": TextArrayLike(),
    "objects": eye.astype(object),
    "list with none": [[None, 1], [1, 1]],
    "complex": eye + 1j,
    "long double": np.eye(3, dtype=np.longdouble),
    "dates": np.zeros((2, 2), "M8[s]"),
    "records": np.zeros((2, 2), dtype=[("a", "f8")]),
    "dict": {},
    "nan": np.diag([np.nan, 1, 1]),
    "minus inf": np.diag([1, -np.inf, 1]),
    "nan and infeasible": [[np.inf, np.inf], [np.nan, np.inf]],
    "nan in a spare row": [[1, 2], [np.nan, 9], [1, 3]],
    "row of inf": [[np.inf, np.inf], [1, 2]],
    "column of inf": [[np.inf, 1], [np.inf, 2]],
    "only inf, wide": np.full((3, 4), np.inf),
    "two rows for one column": [[1, np.inf, np.inf], [2, np.inf, np.inf], [1, 1, 1]],
}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_scipy_accepts(name, maximize):
    same_outcome(ACCEPTED[name], maximize)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_scipy_refuses(name, maximize):
    assert isinstance(outcome(scipys, REFUSED[name]), Exception)
    same_outcome(REFUSED[name], maximize)


@pytest.mark.parametrize("sense", [None, 0, 2, "x", "", [], np.True_, np.array([True])])
def test_maximize_is_taken_for_its_truth(sense):
    cost = [[1, 2], [3, 1]]
    np.testing.assert_array_equal(linear_sum_assignment(cost, sense), scipys(cost, sense), strict=True)


def test_the_call_itself():
    cost = [[1, 2], [3, 1]]
    np.testing.assert_array_equal(linear_sum_assignment(cost_matrix=cost, maximize=True), scipys(cost, True))
    same_outcome(cost, True)
    both = np.array([1, 2])
    assert str(outcome(linear_sum_assignment, cost, both)) == str(outcome(scipys, cost, both))
    for args, kwargs in (((), {}), ((cost, True, 3), {}), ((cost,), {"method": "ssp"})):
        assert isinstance(outcome(scipys, *args, **kwargs), TypeError)
        assert isinstance(outcome(linear_sum_assignment, *args, **kwargs), TypeError)


def test_errors_say_more_than_scipys():
    cost = np.ones((5, 4))
    cost[3, 1] = cost[3, 2] = cost[4, 0] = np.nan
    with pytest.raises(bigsap.InvalidCostError) as invalid:
        linear_sum_assignment(cost)
    assert (invalid.value.row, invalid.value.column) == (3, 1)
    assert "cost[3, 1] is nan" in str(invalid.value.__cause__)
    cost = np.ones((4, 4))
    cost[1:3, 1:] = np.inf
    with pytest.raises(bigsap.InfeasibleError) as infeasible:
        linear_sum_assignment(cost)
    assert sorted(infeasible.value.violator) == [1, 2]


@examples(60)
@given(
    shape=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    dtype=st.sampled_from(["f8", "f4", "i8", "i4", "u2", "u1", "?"]),
    forbidden=st.sampled_from([0.0, 0.2, 0.6]),
    maximize=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_small_problems(shape, dtype, forbidden, maximize, seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, 9, shape).astype(dtype)
    if dtype[0] == "f":
        cost = cost - 4 + rng.random(shape).astype(dtype)
        cost[rng.random(shape) < forbidden] = -np.inf if maximize else np.inf
    same_outcome(cost, maximize)


def test_integers_are_exact_where_scipys_floats_are_not():
    """Differences of 1 beside 2**53 are lost in float64: scipy may return a worse sum."""
    cost = 2**53 + integers(12, seed=3, factor=0.5)
    best, _ = optimum(cost)
    assert value(cost, *linear_sum_assignment(cost)) == best
    best, _ = optimum(cost, maximize=True)
    assert value(cost, *linear_sum_assignment(cost, maximize=True)) == best


def test_the_input_is_left_alone():
    for cost in (CLASSES["random"](20), integers(20), CLASSES["random"](20).astype("f4")):
        before = cost.copy()
        cost.setflags(write=False)
        linear_sum_assignment(cost)
        linear_sum_assignment(cost.T, maximize=True)
        np.testing.assert_array_equal(cost, before)


# -- arrays of other packages ----------------------------------------------------------

NUMBERS = np.array([[4, 1, 3], [2, 0, 5], [3, 2, 2]])


class Objects:
    """Its ``__array__`` gives objects, unless asked for numbers, as frames of mixed columns do."""

    def __array__(self, dtype=None, copy=None):
        return NUMBERS.astype(object if dtype is None else dtype)


def mixed_frame():
    pandas = pytest.importorskip("pandas")
    columns = {"a": pandas.array([4, 2, 3], dtype="Int64"), "b": [1.0, 0, 2], "c": [7, 5, 2]}
    return pandas.DataFrame(columns)


OTHERS = {
    "objects": Objects,
    "pandas mixed": mixed_frame,
    **{
        f"pandas {kind}": lambda kind=kind: (
            pytest.importorskip("pandas").DataFrame(NUMBERS % (2 if kind == "boolean" else 9))
        ).astype(kind)
        for kind in ("Int64", "Float64", "boolean")
    },
    "polars Decimal": lambda: _decimals(pytest.importorskip("polars")),
    **{
        kind: lambda kind=kind: NUMBERS.astype(getattr(pytest.importorskip("ml_dtypes"), kind))
        for kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")
    },
}


def _decimals(polars):
    return polars.DataFrame(NUMBERS).cast(polars.Decimal(9, 2))


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_what_scipy_accepts_of_other_packages(name, maximize):
    cost = OTHERS[name]()
    same_outcome(cost, maximize)
    if "boolean" not in name and "mixed" not in name:
        rows, columns = linear_sum_assignment(cost, maximize)
        assert NUMBERS[rows, columns].sum() == (11 if maximize else 5)
    if name != "objects":
        assert bigsap.solve(cost, maximize=maximize).status == "optimal"


@each(shape=[(1, 1), (3, 3), (7, 19), (50, 50)], kind=["plain", "holes", "ties"])
def test_matrices_as_kernels_like_them_are_solved_at_once(shape, kind):
    generator = np.random.default_rng(shape)
    cost = generator.integers(0, 4, shape).astype(float) if kind == "ties" else generator.random(shape)
    if kind == "holes":
        cost[generator.random(shape) < 0.3] = np.inf
        cost[np.arange(shape[0]), np.arange(shape[0])] = 1.0
    found = quick_assignment(cost)
    assert found is not None
    result = bigsap.solve(cost)
    for ours, its in zip(found, (result.row_ind, result.col_ind), strict=True):
        np.testing.assert_array_equal(ours, its, strict=True)


@each(
    shape=[(1, 1), (4, 4), (9, 5), (5, 40), (64, 64)],
    dtype=["f8", "f4", "f2", "?", "i1", "u4", "i8", "u8", ">f8", ">i4"],
    order=["C", "F", "reversed", "read-only"],
    maximize=[False, True],
)
def test_few_costs_of_any_type_are_solved_at_once(shape, dtype, order, maximize):
    cost = np.random.default_rng(len(dtype)).integers(0, 9, shape).astype(dtype)
    if order == "reversed":
        cost = cost[::-1, ::-1]
    elif order == "F":
        cost = np.asfortranarray(cost)
    cost.flags.writeable = order != "read-only"
    found, expected = quick_assignment(cost, maximize), assignment(cost, maximize)
    for ours, its in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, its, strict=True)


@pytest.mark.parametrize("offset", [0, 1 << 40, (1 << 58) + 1, -(1 << 58)])
def test_integers_too_large_for_floats_are_not_solved_at_once(offset):
    cost = np.array([[1, 0], [0, 0]]) + offset
    assert (quick_assignment(cost) is None) == (offset != 0)
    assert linear_sum_assignment(cost)[1].tolist() == [1, 0]
    assert linear_sum_assignment(cost, True)[1].tolist() == [0, 1]


def test_what_is_not_solved_at_once_is_left_to_the_general_way():
    cost = np.random.default_rng(5).random((5, 5))
    bad, full = cost.copy(), np.full((4, 4), np.inf)
    bad[2, 3] = np.nan
    empty, objects, many = np.empty((0, 3)), cost.astype(object), np.zeros((65, 65), np.float32)
    for left in (bad, full, bad.T, full.astype(np.float32), empty, empty.T, objects, many):
        assert quick_assignment(left) is None
    frozen = cost.copy()
    frozen.flags.writeable = False
    swapped, odd = cost.astype(">f8"), np.zeros(5 * 5 * 8 + 1, np.uint8)[1:].view(float).reshape(5, 5)
    odd[:] = cost
    for other in (frozen, np.asfortranarray(cost), np.repeat(cost, 2, 1)[:, ::2], swapped, odd):
        np.testing.assert_array_equal(linear_sum_assignment(other), scipys(cost), strict=True)


def test_an_answer_that_is_not_proved_is_said_to_be_so(monkeypatch):
    solved = bigsap.solve(np.eye(3))
    unproved = dataclasses.replace(solved, status=bigsap.Status.IMPRECISE, success=False, gap=0.25)
    monkeypatch.setattr(importlib.import_module("bigsap.solve"), "solve", lambda *_, **__: unproved)
    with pytest.warns(UserWarning, match=r"within 0\.25") as caught:
        linear_sum_assignment(bigsap.sparse(([0, 1, 2], [0, 1, 2], [0.0, 0.0, 0.0])))
    assert caught[0].filename == __file__  # the caller's line


def test_the_gap_of_costs_that_were_scaled_is_that_of_the_costs(monkeypatch):
    solved = bigsap.solve(np.eye(3))

    def solve(costs, **_):
        if costs.max() > 1e300:
            raise bigsap.OverflowRiskError("sums")
        return dataclasses.replace(solved, status=bigsap.Status.IMPRECISE, success=False, gap=costs[0, 0])

    monkeypatch.setattr(importlib.import_module("bigsap.solve"), "solve", solve)
    with pytest.warns(UserWarning, match=r"within 1e\+308 ") as caught:
        linear_sum_assignment(np.full((70, 70), 1e308))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("base", [-(2**63), 2**63 - 1, 2**62, 5])
def test_sparse_integers_at_the_ends_of_their_type(base, maximize):
    """Their differences decide; a cost far from all others, as stands for a forbidden pair, hides none."""
    rng = np.random.default_rng(31)
    for case in range(30):
        shape = tuple(int(k) for k in rng.integers(1, 6, 2))
        small = rng.integers(0, 9, shape)
        cost = (small if base < 2**62 else -small).astype(np.int64) + np.int64(base)
        if case % 2:
            cost[rng.random(shape) < 0.3] = -(2**63) if maximize else 2**63 - 1
        rows, columns = np.nonzero(np.ones(shape))
        given = bigsap.sparse((rows, columns, cost[rows, columns]), shape=shape)
        try:
            found = linear_sum_assignment(given, maximize)
        except bigsap.OverflowRiskError:
            assert case % 2
            continue
        best, _ = optimum(cost.astype(object), maximize)
        assert sum(cost.astype(object)[found]) == best


def test_sparse_integers_that_would_be_rounded_are_an_error():
    cost = bigsap.sparse(([0, 0, 1, 1], [0, 1, 0, 1], [2**62 + 1, 2**62 + 3, 0, -(2**62)]))
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, [01]\] is as far"):
        linear_sum_assignment(cost)
