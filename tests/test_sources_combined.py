"""Sums, multiples, masks and thresholds of sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.errors import InputError, InvalidCostError, OptionError, ShapeError
from contracts import SourceContract, read

RNG = np.random.default_rng(11)
OTHER = RNG.uniform(-1, 1, (13, 9))
FORBIDDEN = (RNG.uniform(size=(13, 9)) < 0.3).astype(np.uint8)


class TestSum(SourceContract):
    def matrix(self) -> np.ndarray:
        return super().matrix() + OTHER

    def make(self, matrix: np.ndarray) -> Any:
        return bigsap.sum_of([matrix - OTHER, OTHER])

    rtol = 1e-14


class TestScaled(SourceContract):
    def make(self, matrix: np.ndarray) -> Any:
        return bigsap.scaled(matrix / 4, 4)


class TestMasked(SourceContract):
    def matrix(self) -> np.ndarray:
        return np.where(FORBIDDEN, np.inf, super().matrix())

    def make(self, matrix: np.ndarray) -> Any:
        return bigsap.masked(np.where(FORBIDDEN, 1.0, matrix), FORBIDDEN)

    def changed(self, matrix: np.ndarray) -> Any:
        other = np.where(FORBIDDEN, 1.0, matrix)
        other[-1, -1] += 1
        return bigsap.masked(other, FORBIDDEN)


class TestForbidAbove(SourceContract):
    def matrix(self) -> np.ndarray:
        costs = super().matrix()
        return np.where(costs > 3, np.inf, costs)

    def make(self, matrix: np.ndarray) -> Any:
        return bigsap.forbid_above(np.where(np.isinf(matrix), 5, matrix), 3)

    def changed(self, matrix: np.ndarray) -> Any:
        other = np.where(np.isinf(matrix), 5, matrix)
        other[-1, -1] -= 1
        return bigsap.forbid_above(other, 3)


def test_integers_become_float64() -> None:
    source = bigsap.sum_of([np.array([[1, 2]]), np.array([[3, 4]], np.uint8)])
    assert source.dtype == np.float64
    np.testing.assert_array_equal(read(source, [0]), [[4.0, 6.0]])


def test_forbidden_pairs_stay_forbidden() -> None:
    matrix = np.array([[1.0, np.inf], [2, 3]])
    for factor in (0, -2, 3):
        found = read(bigsap.scaled(matrix, factor), [0, 1])
        np.testing.assert_array_equal(found, [[factor, np.inf], [2 * factor, 3 * factor]])
    assert read(bigsap.sum_of([matrix, matrix]), [0])[0, 1] == np.inf
    assert read(bigsap.forbid_above(matrix, 10), [0])[0, 1] == np.inf


def test_the_sense_decides_what_forbids() -> None:
    matrix = np.array([[1.0, 7], [2, 3]])
    found = read(bigsap.forbid_above(matrix, 6, maximize=True), [0])
    np.testing.assert_array_equal(found, [[1, -np.inf]])
    masked = bigsap.masked(matrix, np.eye(2), maximize=True)
    result = bigsap.solve(masked, maximize=True)
    assert result.fun == 9
    assert bigsap.solve(bigsap.forbid_above(matrix, 3)).fun == 4
    np.testing.assert_array_equal(read(bigsap.forbid_above(matrix, 7), [0]), [[1, 7]])


def test_infinities_of_both_signs_are_an_error_when_solved() -> None:
    source = bigsap.sum_of([np.array([[np.inf]]), np.array([[-np.inf]])])
    with pytest.raises(InvalidCostError):
        bigsap.solve(source)


def test_finite_costs_never_become_infinite() -> None:
    large = np.array([[1.0, 1e308]])
    with pytest.raises(InvalidCostError, match=r"cost\[0, 1\] exceeds") as caught:
        read(bigsap.sum_of([large, large]), [0])
    assert (caught.value.row, caught.value.column) == (0, 1)
    with pytest.raises(InvalidCostError, match=r"cost\[0, 1\]"):
        read(bigsap.scaled(large, 10), [0])


def test_bad_arguments() -> None:
    with pytest.raises(InputError):
        bigsap.sum_of([])
    with pytest.raises(ShapeError, match="one shape"):
        bigsap.sum_of([np.zeros((2, 2)), np.zeros((2, 3))])
    with pytest.raises(ShapeError):
        bigsap.masked(np.zeros((2, 2)), np.zeros((3, 2)))
    for wrong in (np.nan, np.inf, "2", True, None):
        with pytest.raises(OptionError):
            bigsap.scaled(np.zeros((2, 2)), wrong)  # type: ignore[arg-type]
        with pytest.raises(OptionError):
            bigsap.forbid_above(np.zeros((2, 2)), wrong)  # type: ignore[arg-type]


def test_combinations_are_solved_as_their_matrix(tmp_path: Any) -> None:
    x, y = RNG.uniform(size=(30, 2)), RNG.uniform(size=(40, 2))
    bonus = RNG.uniform(size=(30, 40))
    source = bigsap.forbid_above(
        bigsap.sum_of([bigsap.points(x, y), bigsap.scaled(bonus, 0.5)]), 0.6
    )
    matrix = ((x[:, None] - y[None]) ** 2).sum(axis=2) + 0.5 * bonus
    matrix[matrix > 0.6] = np.inf
    found, expected = bigsap.solve(source), bigsap.solve(matrix)
    assert found.fun == pytest.approx(expected.fun, rel=1e-12)
    found.verify(source)


def test_fingerprints_tell_rules_apart() -> None:
    matrix = np.ones((3, 3))
    made = [
        bigsap.scaled(matrix, 2), bigsap.scaled(matrix, 3), bigsap.forbid_above(matrix, 2),
        bigsap.forbid_above(matrix, 2, maximize=True), bigsap.sum_of([matrix]),
        bigsap.sum_of([matrix, matrix]),
    ]  # fmt: skip
    assert len({source.fingerprint() for source in made}) == len(made)  # type: ignore[attr-defined]


class Decoding:
    """Rows that come in groups of ``height``, as decoded chunks do; counts the groups."""

    dtype = np.dtype(np.float64)

    def __init__(self, costs: np.ndarray, height: int) -> None:
        self.costs, self.height, self.shape = costs, height, costs.shape
        self.groups = 0

    def rows_together(self, row: int) -> tuple[int, int]:
        start = row - row % self.height
        return start, min(start + self.height, self.shape[0])

    def prefetch(self, row: int) -> None:
        """Nothing to read ahead."""

    def read(self, rows: Any, columns: slice, out: np.ndarray) -> None:
        self.groups += len({int(row) // self.height for row in rows})
        out[...] = self.costs[rows, columns]


def test_groups_of_rows_are_passed_on() -> None:
    plain = RNG.uniform(size=(10, 10))
    two, four = Decoding(plain, 2), Decoding(plain, 4)
    combined: Any = bigsap.scaled(bigsap.sum_of([plain, two, four]), 2.0)
    assert [combined.rows_together(row) for row in (0, 5, 9)] == [(0, 4), (4, 8), (8, 10)]
    assert not hasattr(bigsap.scaled(plain, 2.0), "rows_together")


def test_a_group_is_decoded_once_for_all_its_rows() -> None:
    costs = RNG.uniform(size=(64, 64))
    source = Decoding(costs, 16)
    result = bigsap.solve(bigsap.scaled(source, 1.0), method="ssp", threads=1, certify=False)
    assert result.fun == bigsap.solve(costs).fun
    assert source.groups <= 16, "4 groups, several times, but not once a row"
