"""Sources around sources."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.errors import DtypeError, InvalidCostError, OverflowRiskError
from bigsap.sources import ArraySource, Counted, converted
from bigsap.sources.base import (
    CostSource,
    Fillable,
    Fingerprinted,
    Grouped,
    Prefetching,
    Resident,
    Transposable,
)
from bigsap.sources.packed import unpacked
from bigsap.sources.packing import Packing
from contracts import N_COLUMNS, N_ROWS, SourceContract, read

ABILITIES = (Resident, Transposable, Fillable, Grouped, Prefetching, Fingerprinted)


class TestCounted(SourceContract):
    def make(self, matrix: np.ndarray) -> Counted:
        return Counted(ArraySource(matrix))

    def test_counts(self, source: Counted) -> None:
        read(source, [3, 1, 3])
        read(source, [1], 2, 5)
        read(source, [])
        assert (source.calls, source.rows, source.pairs) == (3, 4, 3 * N_COLUMNS + 3)
        expected = np.zeros(N_ROWS, int)
        expected[[1, 3]] = 2
        np.testing.assert_array_equal(source.per_row, expected)
        source.reset()
        assert (source.calls, source.rows, source.pairs) == (0, 0, 0)
        assert not source.per_row.any()

    def test_has_no_way_around_the_count(self, source: Counted) -> None:
        assert not any(isinstance(source, ability) for ability in ABILITIES)

    def test_counts_of_threads_add_up(self, source: Counted) -> None:
        def reader() -> None:
            for _ in range(200):
                read(source, [0, 2])

        threads = [threading.Thread(target=reader) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert source.calls == 800
        assert source.per_row[2] == 800


class TestConverted(SourceContract):
    def matrix(self) -> np.ndarray:
        return np.random.default_rng(2).integers(0, 200, (N_ROWS, N_COLUMNS)).astype("i8")

    def make(self, matrix: np.ndarray) -> CostSource:
        source = converted(ArraySource(np.asfortranarray(matrix)), "u1")
        assert source.dtype == np.uint8
        return source

    def test_gives_the_transpose(self, source: CostSource) -> None:
        assert isinstance(source, Transposable)
        assert source.transposed() is not None


class Groups:
    """A source with two abilities, to see them through a conversion."""

    shape = (6, 2)
    dtype = np.dtype("i4")

    def __init__(self) -> None:
        self.ahead: list[int] = []

    def read(self, rows: np.ndarray, columns: slice, out: np.ndarray) -> None:
        out[...] = rows[:, None]

    def rows_together(self, row: int) -> tuple[int, int]:
        return row // 3 * 3, row // 3 * 3 + 3

    def prefetch(self, row: int) -> None:
        self.ahead.append(row)


def test_groups_survive_a_conversion() -> None:
    groups = Groups()
    source = converted(groups, np.float64)
    assert isinstance(source, Grouped)
    assert isinstance(source, Prefetching)
    assert source.rows_together(4) == (3, 6)
    source.prefetch(5)
    assert groups.ahead == [5]
    assert isinstance(source, Fingerprinted)
    assert source.fingerprint() != converted(groups, np.float32).fingerprint()
    assert not isinstance(converted(ArraySource(np.eye(3)), "f4"), Grouped)


@pytest.mark.parametrize("maximize", [False, True])
def test_the_sense_passes_a_conversion(maximize: bool) -> None:
    """``max_distance`` forbids by the infinity of the problem, also of costs as another dtype."""
    x, y = np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.5, 9.0, 2.5])
    near = bigsap.points(x, y, "cityblock", max_distance=1.0)
    for source in (near, bigsap.scaled(near, 2.0)):
        options: dict[str, Any] = {"maximize": maximize, "dtype": "f4"}
        result = bigsap.solve(source, **options)
        assert result.status == "optimal"
        assert result.fun == bigsap.solve(source, maximize=maximize).fun
        assert result.verify(source, dtype="f4", pairs=True).optimal
        assert bigsap.certify(source, result.col4row, **options).optimal
        assert bigsap.solve_k_best(source, 1, **options).costs[0] == result.fun


def test_same_dtype_is_no_wrapper() -> None:
    source = ArraySource(np.eye(3))
    assert converted(source, "f8") is source


@pytest.mark.parametrize("dtype", ["f2", "c16", "U3", "i2", ">f8", object, "nonsense"])
def test_only_scannable_dtypes(dtype: object) -> None:
    with pytest.raises(DtypeError, match="dtype"):
        converted(ArraySource(np.eye(3)), dtype)


@pytest.mark.parametrize(
    ("given", "value", "to", "error"),
    [
        ("f8", 0.5, "i8", InvalidCostError),
        ("f8", np.nan, "i4", InvalidCostError),
        ("f8", np.inf, "i8", InvalidCostError),
        ("f8", 2.0**63, "i8", InvalidCostError),
        ("f8", -1.0, "u1", InvalidCostError),
        ("f8", 1e39, "f4", InvalidCostError),
        ("i8", 2**31, "i4", OverflowRiskError),
        ("i8", -1, "u2", OverflowRiskError),
        ("i4", 256, "u1", OverflowRiskError),
    ],
)
def test_what_does_not_fit_is_named(given: str, value: float, to: str, error: type) -> None:
    matrix = np.ones((3, 4), given)
    matrix[2, 1] = value
    source = converted(ArraySource(matrix), to)
    np.testing.assert_array_equal(read(source, [0, 1]), 1)
    read(source, [2], 2, 4)
    with pytest.raises(error, match=r"cost\[2, 1\]") as caught:
        read(source, [1, 2], 1, 3)
    assert (caught.value.row, caught.value.column) == (2, 1)


@pytest.mark.parametrize(
    ("given", "value", "to"),
    [
        ("f8", -(2.0**63), "i8"),
        ("f8", 2.0**63 - 1024, "i8"),
        ("f8", np.inf, "f4"),
        ("f8", -np.inf, "f4"),
        ("f8", np.nan, "f4"),
        ("i8", 2**31 - 1, "i4"),
        ("i8", 255, "u1"),
    ],
)
def test_what_just_fits(given: str, value: float, to: str) -> None:
    matrix = np.full((2, 2), value, given)
    np.testing.assert_array_equal(read(converted(ArraySource(matrix), to), [0, 1]), matrix)


def _tall(value: float, dtype: str) -> np.ndarray:
    """Return costs with more rows than columns, by columns, with a value at row 7, column 2."""
    costs = np.zeros((9, 4), dtype, "F")
    costs[7, 2] = value
    return costs


TRANSPOSED = {
    "an array": lambda: ArraySource(_tall(2**64 - 1, "u8")),
    "a dtype": lambda: converted(ArraySource(_tall(1e300, "f8")), "f4"),
    "a dtype of a function": lambda: converted(
        bigsap.from_function(lambda i, j: 1e300 if (i, j) == (7, 2) else 0.0, (9, 4)), "f4"
    ),
    "a sum": lambda: bigsap.sum_of([_tall(1.5e308, "f8"), _tall(1.5e308, "f8")]),
    "a scale": lambda: unpacked(ArraySource(_tall(2.0, "f8")), Packing("x", scale=1e308), forbid=False),
    "a marker": lambda: unpacked(
        ArraySource(_tall(5, "i4")), Packing("x", markers=((5, "_FillValue"),)), forbid=False
    ),
}


@pytest.mark.parametrize("make", TRANSPOSED.values(), ids=TRANSPOSED)
def test_errors_of_a_transpose_name_the_users_pair(make: Callable[[], Any]) -> None:
    for call in (lambda: bigsap.solve(make()), lambda: read(make().transposed(), [2])):
        with pytest.raises(InvalidCostError, match=r"cost\[7, 2\]") as info:
            call()
        assert (info.value.row, info.value.column) == (7, 2)


def test_a_pickled_transpose_names_the_users_pair() -> None:
    source = pickle.loads(pickle.dumps(ArraySource(_tall(2**64 - 1, "u8")).across()))
    with pytest.raises(OverflowRiskError, match=r"cost\[7, 2\]"):
        read(source, [2])


def test_integers_too_large_are_named_with_the_users_shape() -> None:
    with pytest.raises(OverflowRiskError, match=r"cost\[7, 2\] is .* of shape \(9, 4\)"):
        bigsap.solve(_tall(2**62, "i8"))
