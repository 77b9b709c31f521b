"""``certify=False``: the costs of the pairs come from what the search holds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.engine.core.record import record
from bigsap.engine.lists.layout import ListCounts, Lists
from bigsap.engine.lists.listed import Listed
from bigsap.errors import CertificateError
from bigsap.row_cache import RowCache
from oracle import optimum
from pairwise import each

SHAPES = [(70, 70), (50, 80), (80, 50)]
METHODS = ["ssp", "compressed"]
DTYPES = ["f8", "f4", "i4"]


class Asked:
    """A source with no ability but ``read``; single costs asked for are counted apart."""

    def __init__(self, cost: np.ndarray) -> None:
        self._cost = cost
        self.shape, self.dtype = cost.shape, cost.dtype
        self.single = self.whole = 0

    def read(self, rows: Any, columns: slice, out: np.ndarray) -> None:
        if columns.stop - columns.start == 1:
            self.single += len(rows)
        else:
            self.whole += len(rows)
        out[:] = self._cost[rows, columns]


def costs(shape: tuple[int, int], dtype: str, seed: int = 0, offset: float = 0) -> np.ndarray:
    g = np.random.default_rng([seed, *shape])
    if dtype == "i4":
        return g.integers(-500, 5000, shape, dtype=np.int32)
    # Products of a factor a row and one a column, with noise: searches go far.
    return (np.outer(g.random(shape[0]), g.random(shape[1])) + g.random(shape) / 50 + offset).astype(dtype)


def same_answer(found: bigsap.Result, proved: bigsap.Result, cost: np.ndarray) -> None:
    """The certificate's ``fun`` to the bit, no claim of a bound, and duals that hold."""
    assert (found.status, found.bound, found.gap) == ("optimal", None, None)
    assert (type(found.fun), found.fun) == (type(proved.fun), proved.fun)
    assert np.array_equal(found.col4row, proved.col4row)
    assert found.verify(cost).optimal
    reduced = cost.astype(float) - found.u[:, None] - found.v
    if found.maximize:
        reduced = -reduced
    assert reduced.min() >= -1e-12 * np.abs(cost).max()
    assert np.abs(reduced[found.row_ind, found.col_ind]).max() <= 1e-12 * np.abs(cost).max()
    duals = found.u.sum() + found.v.sum()
    assert duals == pytest.approx(proved.bound, rel=1e-9)


@each(maximize=[False, True], dtype=DTYPES, method=METHODS, shape=SHAPES)
def test_nothing_is_read_again(shape, method, dtype, maximize):
    cost = costs(shape, dtype)
    options = {"method": method, "maximize": maximize, "threads": 1}
    proved = bigsap.solve(Asked(cost), **options)
    source = Asked(cost)
    found = bigsap.solve(source, certify=False, **options)
    assert source.single == 0
    assert source.whole == found.stats["rows_evaluated"] == proved.stats["rows_evaluated"]
    assert found.stats["certificate_pairs"] == 0
    same_answer(found, proved, cost)


@pytest.mark.parametrize("offset", [1.0, -3.0, 1e6, 1e15])
def test_lists_that_round_give_the_costs_back(offset):
    """Lists hold costs less the smallest of the row."""
    cost = costs((120, 120), "f8", 3, offset)
    source = Asked(cost)
    found = bigsap.solve(source, method="compressed", certify=False)
    assert source.single == 0
    assert found.fun == bigsap.solve(cost, method="compressed").fun


@pytest.mark.parametrize("policy", ["slru", "lfu"])
def test_rows_that_left_the_cache(policy):
    cost = costs((160, 160), "f8", 2)
    proved = bigsap.solve(cost, method="ssp")
    source = Asked(cost)
    cache = RowCache(16 * 160 * 8, policy)
    found = bigsap.solve(source, method="ssp", cache=cache, certify=False)
    assert found.stats["cache_slots"] == 16
    # Only rows that got another column after they had left, within one search.
    assert source.single <= 16
    assert found.fun == proved.fun
    assert found.verify(cost).optimal


def test_after_a_checkpoint(tmp_path):
    cost = costs((90, 90), "f8", 4)
    path = tmp_path / "solve"
    proved = bigsap.solve(Asked(cost), method="compressed")
    ended = []

    def stop(progress):
        if progress.phase == 2:
            ended.append(progress)
            raise StopIteration

    bigsap.solve(Asked(cost), method="compressed", checkpoint=path, callback=stop)
    assert ended
    found = bigsap.resume(path, Asked(cost), certify=False)
    same_answer(found, proved, cost)


def test_rows_at_a_price_are_not_read_again():
    cost = costs((60, 60), "f8", 6)
    prices = np.full(60, 0.3)
    source = Asked(cost)
    proved = bigsap.solve(cost, unassigned_cost=prices)
    found = bigsap.solve(source, unassigned_cost=prices, certify=False, method="compressed")
    assert found.fun == proved.fun
    assert found.stats["unassigned_rows"] == proved.stats["unassigned_rows"] > 0
    # But for pairs that cost what their row costs alone, as those of rows left out do.
    assert source.single <= found.stats["unassigned_rows"] + 2 < 30
    found.verify(cost)


def test_verify_says_that_there_are_no_duals():
    cost = costs((30, 30), "f8")
    found = bigsap.solve(cost, certify=False)
    nothing = np.full(30, np.nan)
    bare = dataclasses.replace(found, u=nothing, v=nothing)
    with pytest.raises(CertificateError, match="has no duals"):
        bare.verify(cost)
    # One side is enough: the pass finds the other.
    assert dataclasses.replace(found, u=nothing).verify(cost).optimal
    with pytest.raises(CertificateError, match="no feasible dual"):
        dataclasses.replace(found, u=found.u + 1e-6).verify(cost)


def listed(entries: np.ndarray, ids: np.ndarray, low: float) -> Lists:
    empty = np.empty(0)
    return Lists(
        ids=ids,
        costs=entries,
        start=np.zeros(1, np.int64),
        width=np.array([ids.size]),
        size=np.array([ids.size]),
        theta=empty,
        reference=np.array([low]),
        low=empty,
        order=empty,
        counts=record(ListCounts, empty.dtype),
        freed=empty,
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_entries_of_two_costs_are_noted(sign):
    """Where rounding hides which of two costs an entry stands for, it is noted as it comes."""
    g = np.random.default_rng(7)
    m = 5000
    # Twice as fine as the costs: what is left is a half, and rounds to even.
    low = 0.25 + 2.0**-54
    row = sign * (0.76 + 0.23 * g.random(m))
    entries = sign * row - low
    ids = np.arange(m, dtype=np.int32)
    without, noting = Listed(row.dtype, sign), Listed(row.dtype, sign)
    noting.see(np.zeros(1, np.int32), row[None], listed(entries, ids, low))
    n_doubtful = 0
    for j in range(0, m, 5):
        pair = np.array([j]), entries[j : j + 1], np.array([low])
        cost, known = without.costs(*pair)
        assert cost[0] == row[j] or not known[0]
        n_doubtful += not known[0]
        cost, known = noting.costs(*pair)
        assert known[0]
        assert cost[0] == row[j]
    assert n_doubtful > 0


@pytest.mark.parametrize("method", ["compressed", "hungarian"])
def test_prices_that_were_huge(method):
    """Prices of rows that may stay unassigned rise to 0 again, but keep the rounding of a far start."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(4, 24, 2)
        cost = rng.integers(0, 8, (n, m)) + rng.choice([0.0, rng.random()])
        start = rng.normal(size=m) * 10.0 ** rng.integers(12, 16)
        pairs = np.full(n, -1)
        some = min(n, m)
        pairs[rng.permutation(n)[:some]] = rng.permutation(m)[:some]
        options: dict[str, Any] = {"unassigned_cost": rng.integers(1, 6), "maximize": bool(seed % 2)}
        expected = bigsap.solve(cost, **options).fun
        for warm in (start, (start, pairs)):
            found = bigsap.solve(cost, method=method, certify=False, warm_start=warm, **options)
            assert found.fun == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", [10, 16, 19])
def test_a_start_that_rounded_what_the_answer_does_not_show(seed):
    rng = np.random.default_rng(seed)
    cost, start = rng.random((7, 3)), -1e14 * rng.random(3)
    options: dict[str, Any] = {"unassigned_cost": 0.3, "maximize": True}
    found = bigsap.solve(cost, method="hungarian", certify=False, warm_start=start, **options)
    assert found.fun == pytest.approx(bigsap.solve(cost, **options).fun, rel=1e-12)
    assert found.costs.tolist() == cost[found.row_ind, found.col_ind].tolist()


@pytest.mark.parametrize("method", ["ssp", "compressed", "hungarian"])
@pytest.mark.parametrize(("n", "m", "most"), [(20, 20, None), (20, 30, None), (30, 20, None), (20, 20, 2.0)])
def test_a_start_whose_pairs_lack_more_than_one_rounding(method, n, m, most):
    """They count as tight within many roundings of the prices, and what they lack adds up."""
    rng = np.random.default_rng(n + m)
    cost = 1 + 1e-11 * rng.random((n, m))
    pairs = np.full(n, -1)
    pairs[: min(n, m)] = np.arange(min(n, m))
    start = np.full(m, -4000.0), pairs
    found = bigsap.solve(cost, method=method, certify=False, warm_start=start, unassigned_cost=most)
    best = cost[linear_sum_assignment(cost - 1)].sum()  # 1 is subtracted without rounding
    assert found.fun == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("method", ["auto", "ssp", "compressed"])
@pytest.mark.parametrize("seed", [0, 39])
def test_unassigned_rows_of_huge_costs(method, seed):
    """While a search has them assigned, prices are as precise as their costs: 2e18 times the others'."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(100, 200))
    m = int(n / 1.32)
    step = 500 / (n + m)
    powers = 2.0 ** (step * (np.arange(n)[:, None] + np.arange(m)))
    cost = powers * (1 + 1e-3 * rng.random((n, m)))
    cost[rng.random((n, m)) < 0.1] = np.inf
    best = bigsap.solve(cost).fun
    found = bigsap.solve(bigsap.from_function(lambda i: cost[i], cost.shape), method=method, certify=False)
    assert found.fun == pytest.approx(best, rel=1e-12)


def test_sums_of_sparse_integers_are_exact():
    """Their rows are floats, which do not hold them."""
    large = bigsap.sparse(([0, 1], [0, 1], np.array([2**53 + 1, 2])), shape=(2, 2))
    assert bigsap.solve(large, certify=False).fun == 2**53 + 3
    assert bigsap.solve(bigsap.sparse(([0], [0], np.array([2**62 + 5]))), certify=False).fun == 2**62 + 5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "i8", "f4", "f8"])
def test_the_type_of_the_costs_is_that_of_a_proved_result(dtype, method, tmp_path):
    cost = np.array([[200, 7, 9], [250, 240, 2]], dtype)
    options: dict[str, Any] = {"method": method, "maximize": True}
    found, proved = bigsap.solve(cost, certify=False, **options), bigsap.solve(cost, **options)
    assert found.costs.tolist() == proved.costs.tolist()
    assert found.costs.dtype == proved.costs.dtype == (np.float64 if dtype[0] == "f" else np.int64)
    found.save(tmp_path / "found.npz")
    assert bigsap.Result.load(tmp_path / "found.npz").costs.tolist() == found.costs.tolist()


@pytest.mark.parametrize("price", [None, 2**52 + 170])
@pytest.mark.parametrize("method", ["auction", "ssp"])
def test_integers_read_as_floats_are_proved_where_rounding_may_decide(method, price):
    """Their optimum is a whole number, of which the search's prices lose the last digits."""
    for seed in range(6):
        small = np.random.default_rng(seed).integers(0, 500, (50, 50))
        rows, columns = np.nonzero(np.ones(small.shape))
        listed = bigsap.sparse((rows, columns, 2**52 + small[rows, columns]))
        found = bigsap.solve(listed, method=method, certify=False, unassigned_cost=price)
        extended = small if price is None else np.hstack([small, np.full((50, 50), 170)])
        assert (found.status, found.fun) == ("optimal", 50 * 2**52 + optimum(extended)[0])
    near = bigsap.sparse((rows, columns, small[rows, columns]))
    assert bigsap.solve(near, method=method, certify=False).bound is None


@pytest.mark.parametrize("maximize", [False, True])
def test_duals_of_an_answer_that_was_proved_are_those_of_the_proof(maximize):
    """Those of the search have its rounding, from huge prices: they would not prove the answer."""
    sign = -1 if maximize else 1
    rows, columns = [0, 0, 1, 2, 3, 3], [0, 3, 1, 2, 0, 3]
    costs = sign * np.array([1e16, 0.15, 0.45, 0.1, 0.84, 0.36])
    listed = bigsap.sparse((rows, columns, costs), shape=(4, 4))
    options: dict[str, Any] = {"certify": False, "maximize": maximize}
    bigsap.solve(listed, unassigned_cost=sign * 1e16, **options).verify(listed)
    for seed in range(12):
        cost = sign * np.random.default_rng(seed).random((1, 6))
        start = sign * np.array([0, 1e3, -1e4, 1, 0, 3e3])
        found = bigsap.solve(cost, demand=3, method="ssp", warm_start=start, **options)
        found.verify(cost)
        assert found.bound is None


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("method", [*METHODS, "hungarian", "auction"])
def test_half_of_the_pairs_may_be_huge(method, maximize):
    """Those cancel, and the others decide, which prices of their size have rounded away."""
    sign, none = -1 if maximize else 1, np.inf
    options: dict[str, Any] = {"method": method, "certify": False, "maximize": maximize}
    rows = [[0.2, 0.1, 1e300, 1e300, 0.3, 1e300], [none, 1e16, 1e16, none, none, 0.1]]
    cost = sign * np.array([*rows, [0.2, 1e16, 1e16, 1e16, -1e16, 1e300]])
    assert bigsap.solve(cost, demand=[1, 2, 1], **options).fun == sign * 0.2
    cost = sign * np.array([[1e16, 1e300, 1e16], [0.1, -1e16, 0.3], [0.3, -1e16, 1e300]])
    prices = sign * np.array([1e300, 0.3, 1e300])
    assert bigsap.solve(cost, unassigned_cost=prices, **options).fun == sign * 0.1


@pytest.mark.parametrize("method", ["compressed", "ssp"])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (6, 6)])
def test_old_pairs_that_are_almost_tight_beside_large_prices(method, shape):
    """What a warm start keeps as tight may lack as much as the rounding of its prices, or more."""
    wrong = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        cost = 3e11 + 4 * rng.random(shape)
        prices = 10.0 ** rng.uniform(12, 15) * rng.random(shape[1])
        pairs = rng.permutation(max(shape))[: shape[0]]
        pairs[pairs >= shape[1]] = -1
        given = {"method": method, "certify": False, "warm_start": (prices, pairs)}
        found = bigsap.solve(cost, **given)
        rows, columns = linear_sum_assignment(cost - 3e11)
        best = math.fsum(cost[rows, columns])
        wrong += found.fun > best * (1 + 2e-12)
    assert wrong == 0
