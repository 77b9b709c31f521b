"""Points within a limit, and rules that keep the bounds of what they wrap."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.errors import InvalidCostError, OptionError
from bigsap.proof.minima import by_bounds
from bigsap.proof.row_minima import Prices, row_minima
from bigsap.sources.metrics import METRICS
from bigsap.strategies import cheap_pairs, near_pairs
from contracts import N_COLUMNS, N_ROWS, SourceContract, whole
from pairwise import each

FEW = "few pairs are within the limit"


def sets(rng: Any, metric: str, n: int, m: int, d: int = 3, noise: float = 0.05) -> tuple[Any, Any]:
    """Two sets of points; the smaller one has a neighbour for each in the larger one."""
    if metric == "haversine":
        d = 2
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    k = min(n, m)
    y[:k] = x[:k] + rng.normal(0, noise, (k, d))
    if metric == "haversine":
        x, y = (np.clip(z * (0.4, 1.0), -1.5, 1.5) for z in (x, y))
    return x, y[rng.permutation(m)]


def near(rng: Any, metric: str, n: int, m: int, share: float, **more: Any) -> tuple[Any, np.ndarray]:
    """Points of which about a share of the pairs are allowed, and their matrix."""
    x, y = sets(rng, metric, n, m, **more)
    given = {"p": 2.5} if metric == "minkowski" else {}
    dense = whole(bigsap.points(x, y, metric, **given))
    limit = np.quantile(dense, share)
    reach = math.sqrt(limit) if metric == "sqeuclidean" else limit
    source = bigsap.points(x, y, metric, max_distance=reach, **given)
    return source, np.where(dense > (reach * reach if metric == "sqeuclidean" else reach), np.inf, dense)


class TestLimitedPoints(SourceContract):
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(9)
        return rng.normal(size=(N_ROWS, 2)), rng.normal(size=(N_COLUMNS, 2))

    def matrix(self) -> np.ndarray:
        costs = whole(bigsap.points(*self.points()))
        return np.where(costs > 1.5 * 1.5, np.inf, costs)

    def make(self, matrix: np.ndarray) -> Any:
        return bigsap.points(*self.points(), max_distance=1.5)

    def changed(self, matrix: np.ndarray) -> Any:
        return bigsap.points(*self.points(), max_distance=1.6)


class TestMaskedPoints(TestLimitedPoints):
    def mask(self) -> np.ndarray:
        return np.random.default_rng(3).random((N_ROWS, N_COLUMNS)) < 0.3

    def matrix(self) -> np.ndarray:
        return np.where(self.mask(), np.inf, whole(bigsap.points(*self.points())))

    def make(self, matrix: np.ndarray) -> Any:
        return bigsap.masked(bigsap.points(*self.points()), self.mask())

    def changed(self, matrix: np.ndarray) -> Any:
        mask = self.mask()
        mask[-1, -1] ^= True
        return bigsap.masked(bigsap.points(*self.points()), mask)


# -- the limit ----------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_a_pair_exactly_at_the_limit_is_allowed(metric: str) -> None:
    x, y = sets(np.random.default_rng(1), metric, 5, 6)
    costs = whole(bigsap.points(x, y, metric))
    limit = float(np.sort(costs, axis=None)[10])
    above = whole(bigsap.forbid_above(bigsap.points(x, y, metric), limit))
    below = whole(bigsap.forbid_above(bigsap.points(x, y, metric), math.nextafter(limit, -math.inf)))
    np.testing.assert_array_equal(above, np.where(costs <= limit, costs, np.inf))
    np.testing.assert_array_equal(below, np.where(costs < limit, costs, np.inf))
    if metric != "sqeuclidean":
        np.testing.assert_array_equal(whole(bigsap.points(x, y, metric, max_distance=limit)), above)


def test_for_squared_distances_the_limit_is_a_distance() -> None:
    """In one dimension both round the same product, so a pair exactly so far apart is allowed."""
    reach = np.random.default_rng(2).uniform(0.01, 9, 50)
    for far in reach.tolist():
        source = bigsap.points([0.0], [far, np.nextafter(far, 99), -far], max_distance=far)
        apart = np.nextafter(far, 99) ** 2
        last = apart if apart == far * far else np.inf
        np.testing.assert_array_equal(whole(source), [[far * far, last, far * far]])


@pytest.mark.parametrize("wrong", [-1.0, -1e-300, math.nan, "1", True, None, [1.0]])
def test_a_wrong_limit_is_named(wrong: Any) -> None:
    if wrong is None:
        assert type(bigsap.points([0.0], [1.0], max_distance=None)).__name__ == "PointSource"
        return
    with pytest.raises(OptionError, match="max_distance must be a number"):
        bigsap.points([0.0], [1.0], max_distance=wrong)


@pytest.mark.parametrize("wrong", [2**53 + 1, 2**53 + 3, np.int64(2**62 + 1), 10**400])
def test_numbers_are_not_rounded(wrong: Any) -> None:
    x = [[0.0, 0.5]]
    for name, given in (
        ("max_distance", {}),
        ("p", {"metric": "minkowski"}),
        ("radius", {"metric": "haversine"}),
    ):
        with pytest.raises(OptionError, match=f"{name} must be a number that float64 holds, got .*{wrong}"):
            bigsap.points(x, x, **given, **{name: wrong})
    assert whole(bigsap.points([0.0], [2.0**53, 2.0**53 + 4], max_distance=2**53 + 2))[0, 1] == np.inf


def test_corner_limits() -> None:
    x, y = np.array([0.0, 1.0, 1.0]), np.array([1.0, 0.0, 1.0])
    same = bigsap.solve(bigsap.points(x, y, max_distance=0))
    assert same.fun == 0
    assert sorted(zip(x[same.row_ind], y[same.col_ind], strict=True)) == [(0, 0), (1, 1), (1, 1)]
    assert whole(bigsap.points(x, y, max_distance=math.inf)).max() == 1
    assert bigsap.solve(bigsap.points(x, y + 5, max_distance=1e200)).status == "optimal"
    apart = bigsap.solve(bigsap.points(x, y + 5, max_distance=1))
    assert apart.status == "infeasible"
    equal = bigsap.solve(bigsap.points(np.ones((400, 2)), np.ones((400, 2)), max_distance=0))
    assert (equal.status, equal.fun) == ("optimal", 0)
    assert bigsap.solve(bigsap.points(np.ones((0, 2)), np.ones((3, 2)), max_distance=1)).fun == 0
    with pytest.raises(InvalidCostError, match=r"x\[1\]|x\[1, 0\]"):
        bigsap.points([0.0, math.nan], [1.0, 2.0], max_distance=1)


# -- solves -------------------------------------------------------------------------------


@each(metric=METRICS, shape=[(300, 300), (250, 400), (400, 250)])
def test_near_pairs_are_solved_as_their_matrix(metric: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng([len(metric), *shape])
    source, matrix = near(rng, metric, *shape, share=0.04)
    np.testing.assert_array_equal(whole(source), matrix)
    for maximize in (False, True):
        found = bigsap.solve(source, maximize=maximize)
        dense = np.where(np.isinf(matrix), -np.inf, matrix) if maximize else matrix
        expected = bigsap.solve(dense, maximize=maximize)
        assert found.status == expected.status == "optimal"
        assert found.fun == expected.fun
        assert found.stats["why"] == FEW
        found.verify(dense)
        found.verify(source)


def test_rows_without_a_near_column_are_named() -> None:
    rng = np.random.default_rng(6)
    x, y = sets(rng, "euclidean", 400, 400, noise=0.01)
    x[[17, 230]] += 100
    source = bigsap.points(x, y, "euclidean", max_distance=0.3)
    found = bigsap.solve(source)
    assert found.status == "infeasible"
    assert found.violator.tolist() == [17, 230]
    found.verify(source)
    x, y = np.zeros((300, 1)), np.r_[np.zeros(299), 1.0]
    crowded = bigsap.solve(bigsap.points(x, y, max_distance=0.5))
    assert crowded.status == "infeasible"
    assert crowded.violator.size == 300


@each(price=["low", "high", "each", "must"], maximize=[False, True])
def test_rows_left_out_within_a_limit(price: str, maximize: bool) -> None:
    rng = np.random.default_rng(7)
    for shape in ((300, 300), (260, 400), (400, 260)):
        source, matrix = near(rng, "sqeuclidean", *shape, share=0.03, noise=0.3)
        limit = matrix[np.isfinite(matrix)].max()
        prices = {"low": 0.2 * limit, "high": 50 * limit}.get(price, rng.uniform(0, 2 * limit, shape[0]))
        if price == "must":
            prices[:3] = -np.inf if maximize else np.inf
        dense = np.where(np.isinf(matrix), -np.inf, matrix) if maximize else matrix
        found = bigsap.solve(source, unassigned_cost=prices, maximize=maximize)
        expected = bigsap.solve(dense, unassigned_cost=prices, maximize=maximize)
        assert (found.status, found.fun) == (expected.status, expected.fun)
        found.verify(dense, unassigned_cost=prices)


def test_any_way_gives_the_same_optimum() -> None:
    source, matrix = near(np.random.default_rng(8), "sqeuclidean", 300, 320, share=0.05)
    expected = bigsap.solve(matrix).fun
    ways = [{"method": "ssp"}, {"method": "compressed"}, {"start": "levels"}, {"epsilon": False}]
    for way in (*ways, {"certify": False}, {"seed": 3}, {"certify": "pairs"}):
        found = bigsap.solve(source, **way)
        assert found.fun == expected, way
    assert bigsap.certify(source, bigsap.solve(source).col4row).gap == pytest.approx(0, abs=1e-12)
    assert [a.fun for a in (bigsap.solve(source, objective="bottleneck"),)] == [
        bigsap.solve(matrix, objective="bottleneck").fun
    ]
    best = bigsap.solve_k_best(source, 3)
    np.testing.assert_array_equal(best.costs, bigsap.solve_k_best(matrix, 3).costs)


def test_the_result_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TEAM_PAIRS", 0)
    monkeypatch.setattr(cheap_pairs, "_ROOM", 100)  # the buffers are emptied often
    source, _ = near(np.random.default_rng(10), "euclidean", 700, 700, share=0.03)
    one, two = (bigsap.solve(source, threads=k) for k in (1, 2))
    np.testing.assert_array_equal(one.col4row, two.col4row)
    np.testing.assert_array_equal(one.v, two.v)


def test_a_warm_start_and_a_stop(tmp_path: Any) -> None:
    source, matrix = near(np.random.default_rng(11), "sqeuclidean", 500, 500, share=0.03)
    expected = bigsap.solve(matrix).fun
    first = bigsap.solve(source)
    assert bigsap.solve(source, warm_start=first).fun == expected
    path = tmp_path / "state"
    for stop in (1, 3):
        seen = itertools.count()

        def end(progress: Any, stop: int = stop, seen: Any = seen) -> None:
            if progress.stage == "search" and next(seen) >= stop:
                raise StopIteration

        stopped = bigsap.solve(source, callback=end, callback_every=0.0, checkpoint=path)
        assert stopped.status == "cancelled"
        found = bigsap.resume(path, source)
        assert found.fun == expected
        np.testing.assert_array_equal(found.col4row, first.col4row)


# -- the work -----------------------------------------------------------------------------


def test_many_near_pairs_are_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    source, matrix = near(np.random.default_rng(13), "sqeuclidean", 1200, 1200, share=0.5)
    found = bigsap.solve(source)
    assert found.stats["why"] != FEW
    assert found.fun == bigsap.solve(matrix).fun
    monkeypatch.setattr(policy, "NEAR_MANY", 10_000)
    monkeypatch.setattr(policy, "OPTIONAL_SHARE", 1)
    few = bigsap.solve(source)
    assert (few.stats["why"], few.fun) == (FEW, found.fun)


@pytest.mark.parametrize("metric", METRICS)
def test_the_proof_opens_no_box_beyond_the_limit(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With prices that would draw it there; the minima are those of the pass, bit for bit."""
    monkeypatch.setattr(policy, "PROOF_BOUNDS_SHARE", 1e-3)  # however little they exclude
    rng = np.random.default_rng(14)
    source, matrix = near(rng, metric, 500, 500, share=0.03)
    matching = np.argmin(matrix, axis=1)
    for prices in (Prices(rng.normal(0, 3, 500)), Prices(rng.normal(0, 3, 500), rng.normal(0, 1e-20, 500))):
        for one, factor in ((source, 1.0), (bigsap.scaled(source, 3.0), 3.0)):
            every = row_minima(bigsap.as_source(matrix * factor), matching, prices, False, 1, 1 << 20, None)
            found = by_bounds(one, matching, prices, False, at_any_size=True)
            assert isinstance(found, tuple)
            minima, looked = found
            np.testing.assert_array_equal(minima.high, every.high)
            np.testing.assert_array_equal(minima.matched, every.matched)
            # Without the limit nearly all pairs would be read: the prices are far apart.
            assert looked.pairs < 0.5 * 500 * 500 + 600 * 500


def test_a_pair_whose_powers_underflow_is_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost is 0, however far it is beyond the limit in one coordinate."""
    monkeypatch.setattr(policy, "OPTIONAL_SHARE", 1)
    collect, seen = near_pairs.near_pairs, []

    def noted(*given: Any) -> Any:
        seen.append(collect(*given))
        return seen[-1]

    monkeypatch.setattr("bigsap.run.near_pairs.near_pairs", noted)
    x = np.column_stack((np.arange(700.0), np.zeros(700)))
    source = bigsap.points(x, x + np.array((0.0, 1e-7)), "minkowski", p=50.0, max_distance=1e-8)
    assert bigsap.solve(source).fun == 0.0
    found = [pairs.entries().columns.size for pairs in seen]
    assert found == [np.isfinite(whole(source)).sum()]


def test_a_pair_that_the_search_missed_is_found_by_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof does not trust the pairs that were collected."""
    source, matrix = near(np.random.default_rng(15), "euclidean", 400, 400, share=0.05)
    good = bigsap.solve(matrix)
    collect = near_pairs.near_pairs
    row = int(np.argmax(np.isfinite(matrix).sum(axis=1)))  # with other columns to go to

    def some(*given: Any) -> Any:
        found = collect(*given)
        _, columns, costs = found.entries()
        rows = found.entries().rows()
        kept = (rows != row) | (columns != good.col4row[row])
        return bigsap.sparse((rows[kept], columns[kept], costs[kept]), shape=found.shape)

    monkeypatch.setattr("bigsap.run.near_pairs.near_pairs", some)
    found = bigsap.solve(source)
    assert found.status in ("optimal", "imprecise")
    assert found.bound <= good.fun <= found.fun
    assert found.status == "imprecise" or found.fun == good.fun
    assert found.stats["refined"] > 0


# -- rules around rules -------------------------------------------------------------------


def rules(rng: Any, shape: tuple[int, int], mask: np.ndarray) -> list[Any]:
    """Rules that forbid nothing of costs below 1e6, and the factor by which each multiplies."""
    none = np.zeros(shape, np.uint8)
    return [
        (lambda c: bigsap.forbid_above(c, 1e6), 1.0),
        (lambda c: bigsap.masked(c, none), 1.0),
        (lambda c: bigsap.scaled(c, 2.5), 2.5),
        (lambda c: bigsap.forbid_above(bigsap.scaled(bigsap.masked(c, none), 0.5), 1e6), 0.5),
        (lambda c: bigsap.scaled(bigsap.forbid_above(bigsap.forbid_above(c, 1e6), 1e5), 1.0), 1.0),
    ]


def test_nested_rules_are_their_matrix_bit_for_bit() -> None:
    rng = np.random.default_rng(17)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(70, 3))
    for base in (bigsap.points(x, y, "euclidean"), bigsap.lowrank(x, y), bigsap.points(x, y, "cosine")):
        dense = whole(base)
        mask = rng.random(dense.shape) < 0.2
        for kind in ("?", "u1", "u2", "i4", "i8"):
            limit = float(np.quantile(dense, 0.7))
            source = bigsap.scaled(bigsap.masked(bigsap.forbid_above(base, limit), mask.astype(kind)), 0.3)
            expected = np.where(mask | (dense > limit), np.inf, dense * 0.3)
            np.testing.assert_array_equal(whole(source), expected)
            rows, columns = rng.permutation(60)[:40], rng.permutation(70)[:50]
            chosen = source.select(rows, columns)
            np.testing.assert_array_equal(whole(chosen), expected[np.ix_(rows, columns)])
            turned = chosen.transposed()
            np.testing.assert_array_equal(whole(turned), expected[np.ix_(rows, columns)].T)
            np.testing.assert_array_equal(whole(turned.transposed()), whole(chosen))
            for again in (copy.copy(turned), pickle.loads(pickle.dumps(turned))):
                np.testing.assert_array_equal(whole(again), whole(turned))
                assert again.fingerprint() == turned.fingerprint()
            assert source.fingerprint() != bigsap.scaled(base, 0.3).fingerprint()


@pytest.mark.parametrize("factor", [0.0, -2.0, 1e200, 1e-200])
def test_factors_that_keep_no_bounds(factor: float) -> None:
    rng = np.random.default_rng(19)
    plain = bigsap.points(rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), max_distance=1.5)
    matrix = whole(plain)
    expected = np.where(np.isinf(matrix), np.inf, np.where(np.isinf(matrix), 0, matrix) * factor)
    np.testing.assert_array_equal(whole(bigsap.scaled(plain, factor)), expected)


def test_the_other_sense_is_an_error_for_rules_and_right_for_points() -> None:
    """Bounds would hide the pairs of a wrong infinity."""
    rng = np.random.default_rng(20)
    x, y = sets(rng, "sqeuclidean", 400, 400)
    plain = bigsap.points(x, y)
    mask = np.zeros((400, 400), np.uint8)
    mask[3, 5] = 1
    for made in (
        bigsap.forbid_above(plain, 0.5),
        bigsap.masked(plain, mask),
        bigsap.scaled(bigsap.masked(plain, mask), 2.0),
    ):
        with pytest.raises(InvalidCostError, match="is inf"):
            bigsap.solve(made, maximize=True)
        with pytest.raises(InvalidCostError, match="is inf"):
            bigsap.certify(made, np.arange(400), np.zeros(400), maximize=True)
    for made in (bigsap.forbid_above(plain, 0.5, maximize=True), bigsap.masked(plain, mask, maximize=True)):
        with pytest.raises(InvalidCostError, match="is -inf"):
            bigsap.solve(made)
    source = bigsap.points(x, y, max_distance=0.5)
    matrix = whole(source)
    found = bigsap.solve(source, maximize=True)
    assert found.fun == bigsap.solve(np.where(np.isinf(matrix), -np.inf, matrix), maximize=True).fun
    found.verify(source)
    assert "max_distance=0.5" in repr(source)
