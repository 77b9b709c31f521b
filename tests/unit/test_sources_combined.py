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


@pytest.mark.parametrize("maximize", [False, True])
def test_pairs_that_sparse_costs_do_not_list_are_forbidden_in_both_senses(maximize: bool) -> None:
    listed = bigsap.sparse(([0, 1], [0, 1], [1.0, 2.0]), shape=(2, 2))
    far = bigsap.forbid_above(listed, 5.0, maximize=maximize)
    for cost, fun in (
        (bigsap.sum_of([listed, np.ones((2, 2))]), 5),
        (bigsap.scaled(listed, -1), -3),
        (far, 3),
    ):
        assert bigsap.solve(cost, maximize=maximize).fun == fun


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
    source = bigsap.forbid_above(bigsap.sum_of([bigsap.points(x, y), bigsap.scaled(bonus, 0.5)]), 0.6)
    matrix = ((x[:, None] - y[None]) ** 2).sum(axis=2) + 0.5 * bonus
    matrix[matrix > 0.6] = np.inf
    found, expected = bigsap.solve(source), bigsap.solve(matrix)
    assert found.fun == pytest.approx(expected.fun, rel=1e-12)
    found.verify(source)


def test_fingerprints_tell_rules_apart() -> None:
    matrix = np.ones((3, 3))
    made = [
        bigsap.scaled(matrix, 2),
        bigsap.scaled(matrix, 3),
        bigsap.forbid_above(matrix, 2),
        bigsap.forbid_above(matrix, 2, maximize=True),
        bigsap.sum_of([matrix]),
        bigsap.sum_of([matrix, matrix]),
    ]
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


# Integers beyond 2**53, which float64 holds in part

BIG = 2**53


def test_a_threshold_is_compared_with_integers_as_they_are() -> None:
    """Rounded, BIG + 1 and BIG are one number, and both pairs would be allowed."""
    costs = np.array([[BIG + 1, BIG], [BIG, BIG + 1]])
    for limit in (BIG, float(BIG), np.int64(BIG), np.float64(BIG)):
        found = read(bigsap.forbid_above(costs, limit), [0, 1])
        np.testing.assert_array_equal(found, [[np.inf, BIG], [BIG, np.inf]])
    only = np.array([[BIG + 1, BIG + 1], [BIG, BIG]])
    assert bigsap.solve(bigsap.forbid_above(only, BIG)).status == "infeasible"
    assert bigsap.solve(bigsap.forbid_above(only, BIG, maximize=True), maximize=True).status == ("infeasible")


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        (BIG + 1, [1, 1, 0]),
        (BIG + 0.0, [1, 0, 0]),
        (BIG - 1, [0, 0, 0]),
        (2**63, [1, 1, 1]),
        (2**63 - 1, [1, 1, 1]),
        (-(2**70), [0, 0, 0]),
        (10**400, [1, 1, 1]),
        (1e300, [1, 1, 1]),
    ],
)
def test_what_a_threshold_allows(limit: float, allowed: list[int]) -> None:
    from bigsap.sources.whole_numbers import above

    costs = np.array([BIG, BIG + 1, BIG + 2])
    np.testing.assert_array_equal(above(costs, limit), [not one for one in allowed])
    small = np.array([0, 200], np.uint8)
    assert above(small, limit).all() == (limit < 0)


def test_an_integer_threshold_is_compared_with_floats_as_it_is() -> None:
    """BIG + 1 rounds to BIG + 2 in neither direction: the float BIG + 2 is above it."""
    costs = np.array([[float(BIG), float(BIG + 2)]])
    np.testing.assert_array_equal(read(bigsap.forbid_above(costs, BIG + 1), [0]), [[BIG, np.inf]])
    np.testing.assert_array_equal(read(bigsap.forbid_above(costs, BIG + 3), [0]), costs)
    np.testing.assert_array_equal(read(bigsap.forbid_above(-costs, -BIG - 1), [0]), [[np.inf, -BIG - 2]])


def exact_or_error(source: Any, expected: int) -> None:
    """The one cost of the source is the integer, or an error that names it, as float64 allows."""
    if int(float(expected)) == expected:
        assert int(read(source, [0])[0, 0]) == expected
        return
    with pytest.raises(bigsap.OverflowRiskError) as caught:
        read(source, [0])
    assert (caught.value.row, caught.value.column) == (0, 0)


CORNERS = [0, 3, BIG - 1, BIG, BIG + 1, BIG + 2, 2**62 + 2**10, 2**63 - 1, 2**63 - 1024, -(2**63)]


@pytest.mark.parametrize("value", [*CORNERS, *(-k for k in CORNERS[1:-1])])
def test_integers_stay_exact_in_every_combination(value: int) -> None:
    one = np.array([[value]])
    for other in (0, 1, -1, -value // 2, BIG + 1):
        exact_or_error(bigsap.sum_of([one, np.array([[other]])]), value + other)
        exact_or_error(bigsap.sum_of([one, np.array([[other]]), np.array([[-1]])]), value + other - 1)
    for factor in (0, 1, -1, 2, 3, 1024, 2**40 + 1):
        exact_or_error(bigsap.scaled(one, factor), value * factor)
    exact_or_error(bigsap.masked(one, np.zeros((1, 1))), value)
    exact_or_error(bigsap.forbid_above(one, 2**63), value)


def test_sums_beyond_int64_are_exact_too() -> None:
    one = np.array([[2**63 - 1]])
    exact_or_error(bigsap.sum_of([one, one, np.array([[2]])]), 2**64)
    exact_or_error(bigsap.sum_of([one] * 2), 2**64 - 2)
    exact_or_error(bigsap.sum_of([-one - 1] * 4), -(2**65))


def test_integers_of_combinations_stay_exact() -> None:
    """Combined costs are float64, their integers are still integers."""
    allowed = bigsap.forbid_above(np.array([[BIG, 1]]), 2**62)
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\]"):
        read(bigsap.sum_of([allowed, np.array([[1, 1]])]), [0])
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\]"):
        read(bigsap.scaled(bigsap.scaled(np.array([[BIG - 1, 1]]), 2), 5), [0])
    found = read(bigsap.sum_of([bigsap.scaled(np.array([[BIG, 1]]), 4), allowed]), [0])
    np.testing.assert_array_equal(found, [[5 * BIG, 5]])
    # A fraction makes floats of them, which round.
    half = bigsap.scaled(np.array([[BIG - 1, 1]]), 0.5)
    assert read(bigsap.sum_of([half, half, half]), [0])[0, 0] == 3 * (BIG - 1) / 2


def test_integers_beside_floats_are_not_rounded() -> None:
    large = np.array([[BIG + 1, 1]])
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\] is an integer"):
        read(bigsap.sum_of([large, np.array([[0.5, 0.5]])]), [0])
    with pytest.raises(bigsap.OverflowRiskError):
        read(bigsap.scaled(large, 0.5), [0])
    rounded = bigsap.as_source(large, dtype=np.float64)
    assert read(bigsap.sum_of([rounded, np.array([[0.5, 0.5]])]), [0])[0, 0] == BIG


def test_what_is_forbidden_need_not_be_exact() -> None:
    import sys

    costs = np.array([[sys.maxsize, 1], [2, sys.maxsize - 1]])
    forbidden = costs > 2
    np.testing.assert_array_equal(read(bigsap.masked(costs, forbidden), [0, 1]), [[np.inf, 1], [2, np.inf]])
    assert bigsap.solve(bigsap.forbid_above(costs, 2)).fun == 3
    other = np.where(forbidden, np.inf, 0.5)
    assert bigsap.solve(bigsap.sum_of([costs, other])).fun == 4.0


def test_numbers_that_float64_does_not_hold() -> None:
    with pytest.raises(OptionError, match="float64 does not hold"):
        bigsap.scaled(np.ones((1, 1), int), BIG + 1)
    with pytest.raises(OptionError, match="float64 does not hold"):
        bigsap.scaled(np.ones((1, 1), int), 10**400)
    kind, numbers, _ = bigsap.forbid_above(np.ones((1, 1)), BIG + 1).made_of()  # type: ignore[attr-defined]
    assert (kind, numbers["threshold"]) == ("forbid_above", BIG + 1)
