"""Options of ``solve`` where the dense kernel solves: the general way's answers and errors."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import batch, policy
from bigsap.engine.small import search as dense
from bigsap.run import small_call, small_search
from bigsap.run.small_arrays import suits
from examples_of import examples
from instances import CLASSES
from oracle import optimum, value
from pairwise import each


@pytest.fixture
def general(monkeypatch):
    """``solve`` as if no array were small."""

    def solve(cost, **options):
        with monkeypatch.context() as patch:
            patch.setattr(small_call, "suits", lambda *_, **__: False)
            result = bigsap.solve(cost, **options)
        assert result.stats["method"] != "dense"
        return result

    return solve


def small(cost, **options):
    result = bigsap.solve(cost, **options)
    assert result.stats["method"] == "dense"
    return result


def changed(cost, result, by):
    """The same costs, but that one assigned pair costs more."""
    other = cost.copy()
    other[3, result.col4row[3]] += by
    return other


def costs(shape, dtype="f8", maximize=False, holes=0.0, seed=0):
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, 50, shape).astype(dtype)
    if cost.dtype.kind == "f":
        cost += rng.random(shape).astype(dtype)
        cost[rng.random(shape) < holes] = -np.inf if maximize else np.inf
    return cost


OPTIONS = {
    "certify": {"certify": False},
    "every pair": {"certify": "pairs"},
    "gap": {"gap": 0.5},
    "time_limit": {"time_limit": 60.0},
    "cache": {"cache": "1MiB"},
    "cache object": {"cache": bigsap.RowCache(policy="lfu")},
    "memory_limit": {"memory_limit": "1MiB"},
    "callback": {"callback": lambda progress: None},
    "cancel": {"cancel": threading.Event()},
    "seed": {"seed": 3},
    "threads": {"threads": 2},
    "dtype": {"dtype": "f8"},
}


@each(maximize=[False, True], shape=[(9, 9), (6, 11), (11, 6)], name=list(OPTIONS))
def test_an_option_changes_neither_the_way_nor_the_answer(name, shape, maximize, general):
    options = OPTIONS[name] | {"maximize": maximize}
    for dtype in ("f8", "i8") if name != "dtype" else ("f8",):
        cost = costs(shape, dtype, maximize)
        plain, found = small(cost, maximize=maximize), small(cost, **options)
        for field in ("col4row", "row4col", "u", "v"):
            np.testing.assert_array_equal(found[field], plain[field], strict=True)
        assert (found.fun, found.status) == (plain.fun, plain.status)
        slow = general(cost, **options)
        assert (found.fun, type(found.fun)) == (pytest.approx(slow.fun, rel=1e-14), type(slow.fun))
        assert (found.status, found.message) == (slow.status, slow.message)
        assert found.stats.keys() == slow.stats.keys()
        assert (found.bound is None) == (slow.bound is None) == (options.get("certify") is False)


@examples(150)
@given(
    shape=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    dtype=st.sampled_from(["f8", "f4", "i8", "u1"]),
    holes=st.sampled_from([0.0, 0.3, 0.7]),
    maximize=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_without_a_certificate_everything_but_the_proof_is_told(shape, dtype, holes, maximize, seed):
    cost = costs(shape, dtype, maximize, holes, seed)
    plain = small(cost, maximize=maximize)
    found = small(cost, maximize=maximize, certify=False)
    slow = bigsap.solve(cost, maximize=maximize, certify=False, method="ssp")
    assert (found.stats["gaps"], found.stats["certificate_pairs"]) == ([], 0)
    assert found.certificate is slow.certificate is None
    assert (found.fun, found.message) == (plain.fun, plain.message)
    assert found.status == plain.status == slow.status
    if found.success:
        assert (slow.fun, type(slow.fun)) == (pytest.approx(found.fun, rel=1e-14), type(found.fun))
    assert found.bound is found.gap is slow.bound is slow.gap is None
    np.testing.assert_array_equal(found.u, plain.u)
    np.testing.assert_array_equal(found.v, plain.v)
    if found.success:
        found.verify(cost)


# -- warm starts -----------------------------------------------------------------------


def starts(rng, cost, maximize):
    """Good ones, those of nobody, and absurd ones."""
    n, m = cost.shape
    good = bigsap.solve(cost, maximize=maximize)
    pairs = np.full(n, -1)
    pairs[rng.permutation(n)[: min(n, m)]] = rng.permutation(m)[: min(n, m)]
    some = np.where(rng.random(n) < 0.5, pairs, -1)
    far = rng.normal(0, 1, m) * 10.0 ** rng.integers(-300, 299, m)
    found = [
        np.zeros(m),
        np.zeros(m, int),
        rng.normal(0, 9, m),
        rng.integers(-9, 9, m),
        far,
        np.full(m, 1e300),
        rng.integers(-(2**61), 2**61, m),
        (rng.normal(0, 9, m), pairs),
        (np.zeros(m), some),
        (far, pairs),
        rng.random(m).astype("f4"),
    ]
    if good.success:
        found += [good, good.v, (good.v, good.col4row), (good.v, pairs), (far, good.col4row)]
    return found


@examples(150)
@given(
    shape=st.one_of(st.integers(1, 9).map(lambda n: (n, n)), st.tuples(st.integers(1, 8), st.integers(1, 8))),
    dtype=st.sampled_from(["f8", "f4", "i8", "u1", "?"]),
    holes=st.sampled_from([0.0, 0.3, 0.6]),
    maximize=st.booleans(),
    certify=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_any_start_leads_to_the_optimum(shape, dtype, holes, maximize, certify, seed):
    cost = costs(shape, dtype, maximize, holes, seed)
    best = optimum(cost, maximize)
    for start in starts(np.random.default_rng(seed), cost, maximize):
        found = small(cost, maximize=maximize, warm_start=start, certify=certify)
        if best is None:
            assert found.status == "infeasible"
        else:
            assert found.status == "optimal"
            exact = value(cost, found.row_ind, found.col_ind)
            assert abs(exact - best[0]) <= abs(best[0]) / 10**13
            if cost.dtype.kind != "f":
                assert found.fun == best[0]
        found.verify(cost)


@pytest.mark.parametrize("name", CLASSES)
def test_one_cost_changed(name, general):
    for kind in ("f8", "i8"):
        cost = np.rint(1000 * CLASSES[name](90, seed=1)).astype(kind)
        first = small(cost)
        other = changed(cost, first, cost.max() // 2)
        for start in (first, (first.v, first.col4row)):
            warm, cold = small(other, warm_start=start), small(other)
            slow = general(other, warm_start=start)
            assert warm.fun == cold.fun == slow.fun
            assert warm.status == slow.status == "optimal"
            assert warm.stats.keys() == slow.stats.keys()
            assert warm.stats["warm_started"]
            assert not cold.stats["warm_started"]
            assert warm.verify(other).optimal
        again = small(cost, warm_start=first)
        assert again.stats["rows_scanned"] == 0
        np.testing.assert_array_equal(again.col4row, first.col4row)


def test_a_kept_pair_that_is_displaced_before_its_row_bids(monkeypatch):
    """Its row had no height: what lay in memory decided whether the warm start was taken."""
    cost = np.rint(1000 * CLASSES["int1000n"](90, seed=1))
    first = small(cost)
    other = changed(cost, first, cost.max() // 2)
    poisoned = SimpleNamespace(**vars(np))
    poisoned.empty = lambda shape, dtype=float: np.full(shape, np.nan if dtype is float else -7, dtype)
    monkeypatch.setattr(small_search, "np", poisoned)
    assert small(other, warm_start=first).stats["warm_started"]


def test_pairs_that_rounding_has_left_loose_stay():
    """Points: prices that are shifted to be at most 0 leave some pairs a bit loose."""
    rng = np.random.default_rng(2)
    x, y = rng.random((300, 2)), rng.random((300, 2))
    cost = ((x[:, None] - y) ** 2).sum(axis=2)
    first = small(cost)
    reduced = cost - first.v
    assert (reduced[np.arange(300), first.col4row] > reduced.min(axis=1)).any()
    again = small(cost, warm_start=first)
    assert again.stats["rows_scanned"] == 0
    assert again.verify(cost).optimal


@pytest.mark.parametrize(
    "start",
    [
        np.zeros(5),
        "prices",
        np.array([np.nan] * 6),
        np.full(6, np.inf),
        np.full(6, 1.1e300),
        np.full(6, 2**62),
        np.zeros(6, bool).tolist(),
        (np.zeros(6), np.zeros(6, int)),
        (np.zeros(6), np.full(6, 6)),
        (np.zeros(6), np.arange(6.0)),
        (np.zeros(6), np.arange(5)),
        np.ma.array(np.zeros(6), mask=np.arange(6) == 2),
        bigsap.solve(np.ones((6, 7))),
        bigsap.solve(np.ones((6, 6)), maximize=True),
        bigsap.solve(np.full((6, 6), np.inf)),
        np.zeros(6, complex),
        np.zeros((6, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("price", [None, 9.0])
def test_a_start_that_does_not_fit_is_told_as_by_the_general_way(start, price, general):
    told = []
    for solve in (bigsap.solve, general):
        try:
            result = solve(costs((6, 6)), warm_start=start, unassigned_cost=price)
            told.append((result.fun, result.status))
        except bigsap.OptionError as error:
            told.append(str(error))
    assert told[0] == told[1]


def test_a_start_that_leads_nowhere_is_left(monkeypatch):
    cost, asked = costs((7, 7)), []
    kernel = small_search.solve_dense

    def unsure(address, stride, n, m, integers, warm, *others):
        asked.append(warm)
        return dense.UNSURE if warm else kernel(address, stride, n, m, integers, warm, *others)

    monkeypatch.setattr(small_search, "solve_dense", unsure)
    found = small(cost, warm_start=np.zeros(7))
    assert asked == [True, False]
    assert not found.stats["warm_started"]
    np.testing.assert_array_equal(found.u, small(cost).u)


# -- limits and listeners --------------------------------------------------------------


def event():
    cancel = threading.Event()
    cancel.set()
    return cancel


@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("shape", [(30, 30), (20, 30), (30, 20)])
@pytest.mark.parametrize("limit", [{"time_limit": 0}, {"cancel": event()}], ids=["time", "cancel"])
def test_a_limit_that_is_reached_ends_the_solve_as_the_general_way(limit, shape, certify, general):
    cost = costs(shape)
    found = bigsap.solve(cost, certify=certify, **limit)
    slow = general(cost, certify=certify, **limit)
    assert found.status == slow.status
    assert found.status == ("time_limit" if "time_limit" in limit else "cancelled")
    assert (found.fun, found.bound, found.gap) == (slow.fun, slow.bound, slow.gap)
    assert found.stats["why"] == slow.stats["why"]
    np.testing.assert_array_equal(found.col4row, slow.col4row)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(30, 30), (20, 30), (30, 20)])
def test_a_callback_may_refuse(shape, maximize, certify):
    cost, asked = costs(shape), []

    def refuse(progress):
        asked.append(progress)
        raise StopIteration

    found = bigsap.solve(cost, maximize=maximize, certify=certify, callback=refuse)
    best = small(cost, maximize=maximize)
    assert (found.status, found.success, len(asked)) == ("cancelled", False, 1)
    low, high = sorted((found.fun, best.fun))
    assert best.fun == (high if maximize else low)
    assert (found.bound is None) == (not certify)
    found.verify(cost)


@pytest.mark.parametrize("price", [None, 20.0])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(9, 9), (6, 11), (11, 6)])
def test_what_a_callback_is_told(shape, maximize, price):
    told = []
    result = small(costs(shape), maximize=maximize, unassigned_cost=price, callback=told.append)
    first, last = told
    n = shape[0]
    assert (first.stage, first.phase, first.seconds <= last.seconds) == ("search", 1, True)
    assert (last.stage, last.assigned) == ("done", min(shape) if price is None else n)
    assert last.n_rows == min(shape) if price is None else n
    low, high = sorted((result.bound, result.fun))
    assert (last.lower_bound, last.upper_bound) == (low, high)
    assert last.rows_scanned == result.stats["rows_scanned"]


def test_what_is_hard_for_its_size_is_told_to_the_same_callback(monkeypatch):
    monkeypatch.setattr(small_search, "solve_dense", lambda *given: dense.UNSURE)
    told = []
    result = bigsap.solve(costs((9, 9)), callback=told.append)
    assert result.stats["why"] == "a small matrix that is hard for its size"
    assert (told[0].stage, told[0].phase) == ("search", 1)
    assert [progress.stage for progress in told].count("done") == 1
    assert told[-1].stage == "done"


# -- what goes the general way ---------------------------------------------------------


def test_little_memory():
    """Copies count against ``memory_limit``: the general way makes none."""
    cost = costs((60, 60))
    assert small(cost, memory_limit="1MiB").success
    assert bigsap.solve(cost, memory_limit=cost.nbytes).stats["method"] != "dense"


@pytest.mark.parametrize(
    "options",
    [
        {"memory_limit": 100},
        {"memory_limit": -1},
        {"memory_limit": "much"},
        {"cache": "much"},
        {"cache": -1},
        {"cache": 1.5},
        {"gap": -1},
        {"time_limit": -1},
        {"callback": 3},
        {"cancel": 3},
        {"gap": 1, "certify": False},
    ],
    ids=str,
)
def test_options_are_judged_as_by_the_general_way(options, general):
    told = []
    for solve in (bigsap.solve, general):
        with pytest.raises(bigsap.OptionError) as caught:
            solve(costs((40, 60)), **options)
        told.append(str(caught.value))
    assert told[0] == told[1]


@pytest.fixture
def easy(monkeypatch):
    """Costs of which a bid a row assigns nearly all; arrays of 30 rows are large here."""
    monkeypatch.setattr(policy, "MOST_SMALL_COSTS", 800)
    rng = np.random.default_rng(5)
    return 0.1 * (1 - np.eye(200)) + rng.random(200)[None, :] + rng.random(200)[:, None]


def test_large_arrays_whose_rows_hardly_compete_are_solved_here_too(easy, general):
    found, slow = small(easy), general(easy)
    assert found.stats["why"] == "a matrix in memory whose rows hardly compete"
    assert found.stats["rows_scanned"] < 225
    np.testing.assert_array_equal(found.col4row, slow.col4row)
    assert (found.fun, found.bound, found.gap) == (slow.fun, slow.bound, slow.gap)
    assert found.verify(easy).optimal
    np.testing.assert_array_equal(bigsap.linear_sum_assignment(easy)[1], slow.col4row)
    compete = np.random.default_rng(6).random((60, 60))
    for other in (compete, easy.astype("f4"), easy[:50], easy[:, :50]):
        assert bigsap.solve(other).stats["method"] != "dense"
    assert bigsap.solve(easy, maximize=True).stats["method"] != "dense"


def test_the_first_rows_that_are_looked_at_reject_only_what_all_of_them_reject(easy, monkeypatch):
    rng = np.random.default_rng(8)
    monkeypatch.setattr(policy, "EASY_SHARE", 10)
    arrays = []
    for share in (0.0, 0.05, 0.1, 0.15, 0.2):
        for _ in range(20):
            costs = easy.copy()
            costs[rng.random(200) < share, rng.integers(200)] -= 9.0  # rows that want the same column
            arrays.append(costs)
    few = [suits(costs, easy=True) for costs in arrays]
    monkeypatch.setattr(policy, "EASY_FIRST", 0)
    assert few == [suits(costs, easy=True) for costs in arrays]
    assert 20 < sum(few) < 80


def test_easy_arrays_with_costs_that_are_no_numbers(easy):
    barred = np.where(np.random.default_rng(7).random(easy.shape) < 0.5, np.inf, easy)
    np.fill_diagonal(barred, -5.0)
    assert small(barred).fun == -1000.0
    barred[11] = np.inf  # not one of those that are looked at first
    assert set(small(barred).violator) == {11}
    for wrong, row in ((np.nan, 16), (-np.inf, 30)):
        bad = easy.copy()
        bad[row, 17] = wrong
        with pytest.raises(bigsap.InvalidCostError) as caught:
            bigsap.solve(bad)
        assert (caught.value.row, caught.value.column) == (row, 17)


def test_a_large_array_of_a_batch_has_its_share_of_the_memory_though_easy(easy, monkeypatch):
    shares = []

    def solve(cost, **options):
        shares.append(options.get("memory_limit"))
        return bigsap.solve(cost, **options)

    monkeypatch.setattr(batch, "solve", solve)
    monkeypatch.setattr(batch, "usable_memory", lambda: 1 << 30)
    found = bigsap.solve_many([easy, easy[:20, :20]], time_limit=60, threads=1)
    assert shares == [1 << 30, None]
    assert [one.stats["method"] for one in found] == ["dense", "dense"]


def test_what_only_looks_easy_is_left_to_the_general_way(easy, monkeypatch):
    monkeypatch.setattr(small_search, "_solved", lambda *_, **__: (dense.UNSURE, None, np.zeros(1000)))
    result = bigsap.solve(easy)
    assert (result.status, result.stats["method"]) == ("optimal", "ssp")
    assert "hard for its size" not in result.stats["why"]
