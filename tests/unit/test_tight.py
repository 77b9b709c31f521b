"""The start by tight pairs: what it promises of every row, and answers no worse than others'."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import choose
from bigsap.engine.core.team import Team
from bigsap.engine.lists import tight as T
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.strategies import tight_pairs as tight
from bigsap.strategies.start.samples import Counts
from examples_of import examples
from instances import CLASSES
from oracle import optimum
from pairwise import each

DTYPES = ["f8", "f4", "i8", "i4", "u1", "u2"]


def costs_of(kind, n, seed):
    """Costs with ties, stars, blocks and good pairs, whole numbers all."""
    generator = np.random.default_rng(seed)
    if kind == "few values":
        return generator.integers(0, 1 + generator.integers(1, 2 + n // 3), (n, n))
    if kind == "constant":
        return np.full((n, n), generator.integers(0, 9))
    if kind == "terms":
        terms = generator.integers(0, 50, n)[:, None] + generator.integers(0, 50, n)
        return terms + 7 * (np.arange(n) != generator.permutation(n)[:, None])
    if kind == "crowded":  # many rows like the same few columns
        cost = generator.integers(1, 9, (n, n))
        cost[:, : max(1, n // 3)] = 0
        return cost
    if kind == "lonely":  # columns that no row likes
        cost = generator.integers(0, 2, (n, n))
        cost[:, generator.integers(0, n, 2)] += generator.integers(1, 5, 2)
        return cost
    return generator.integers(0, 1000, (n, n))


KINDS = ["few values", "constant", "terms", "crowded", "lonely", "wide"]


def found(cost, *, maximize=False, threads=1, seed=0):
    problem = Problem(as_source(cost), maximize)
    counts = Counts()
    with Team(threads) as team:
        start = tight.tight_start(problem, team, Monitor(), choose(problem), seed, counts)
    return start, counts, problem


def check(start, cost):
    """Every promise about pairs, prices and matching; cost: (n, n), signed."""
    reduced = cost - start.v
    low = reduced.min(axis=1)
    np.testing.assert_array_equal(start.tight.low, low)
    for i, row in enumerate(reduced):
        ids = start.tight.ids[i, : start.tight.size[i]]
        assert len(set(ids.tolist())) == ids.size
        assert (row[ids] == low[i]).all()
        others = np.delete(row, ids)
        if others.size:
            assert others.min() >= start.tight.above[i]
    matching = start.matching
    rows = np.flatnonzero(matching.column_of_row >= 0)
    columns = matching.column_of_row[rows]
    assert len(set(columns.tolist())) == rows.size
    assert (reduced[rows, columns] == low[rows]).all()
    np.testing.assert_array_equal(matching.row_of_column[columns], rows)
    assert (matching.row_of_column >= 0).sum() == rows.size
    np.testing.assert_array_equal(start.left, np.flatnonzero(matching.column_of_row < 0))


@examples(150)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 40),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(DTYPES),
    maximize=st.booleans(),
    forbidden=st.booleans(),
)
def test_the_same_optimum_whatever_the_ties(kind, n, seed, dtype, maximize, forbidden):
    """The optimum of the oracle, certified, with this start and without it."""
    cost = costs_of(kind, n, seed).astype(dtype)
    if forbidden and dtype[0] == "f" and n > 1:
        hidden = np.random.default_rng(seed).random((n, n)) < 0.2
        hidden[np.arange(n), np.arange(n)] = False
        cost[hidden] = -np.inf if maximize else np.inf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "TIGHT_PAIRS_ROWS", 1)
        res = bigsap.solve(cost, method="compressed", maximize=maximize, threads=1)
    expected, _ = optimum(cost, maximize)
    assert res.status == "optimal"
    assert res.fun == expected  # whole numbers in every dtype
    res.verify(cost)


@examples(100)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(DTYPES),
    maximize=st.booleans(),
    guess=st.booleans(),
)
def test_what_is_promised_of_every_pair(kind, n, seed, dtype, maximize, guess):
    """Tight pairs, bounds and matching under either guess, and handed over as lists."""
    cost = costs_of(kind, n, seed).astype(dtype)
    problem = Problem(as_source(cost), maximize)
    arithmetic = choose(problem)
    signed = problem.sign * cost.astype(arithmetic.price)
    with Team(1) as team, pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "TIGHT_FEW", n)
        patch.setattr(policy, "TIGHT_LONELY", 1)
        passes = tight._Passes(problem, problem.source.resident(), team, arithmetic.price)
        attempt = tight._Attempt(problem, passes, Monitor(), arithmetic, Counts(), 1)
        rows = np.arange(n, dtype=S.ID)
        guess = guess and n > 1
        v = attempt.column_terms(rows) if guess else np.zeros(n, arithmetic.price)
        start = attempt.run(v, rows)
        if start is None:  # more rows were left open than a start is worth
            return
        check(start, signed)
        engine = ListEngine(problem, team, Monitor(), arithmetic.price, 128, 0)
        tight.hand_over(start, engine, attempt.counts)
        assert attempt.counts.rows == rows.size * guess
        assert engine.rows_evaluated == rows.size
    lists = engine.lists
    for i, reference in enumerate(lists.reference):
        entries = slice(lists.start[i], lists.start[i] + lists.size[i])
        ids = lists.ids[entries]
        np.testing.assert_array_equal(lists.costs[entries], signed[i, ids] - reference)
        rest = np.delete(signed[i] - reference - engine.v, ids)
        assert not rest.size or rest.min() >= lists.theta[i]
    matched = np.flatnonzero(engine.column_of_row >= 0)
    pairs = signed[matched, engine.column_of_row[matched]] - lists.reference[matched]
    np.testing.assert_array_equal(engine.match_cost[matched], pairs)
    taken = engine.row_of_column >= 0
    np.testing.assert_array_equal(engine.open_price[~taken], engine.v[~taken])
    assert (engine.open_price[taken] == engine.blocked).all()


@pytest.mark.parametrize("kind", ["sanity", "int0.1n", "few"])
def test_the_same_for_any_number_of_threads_and_any_slices(kind, monkeypatch):
    n = 1600
    few = np.random.default_rng(2).integers(0, n // 5, (n, n))
    cost = few if kind == "few" else CLASSES[kind](n, 3)
    one, counts, _ = found(cost)
    monkeypatch.setattr(tight, "_FIRST_PAIRS", 5 * n)
    monkeypatch.setattr(tight, "_SLICE_SECONDS", 0.0005)
    for threads in (2, 3):
        more, others, _ = found(cost, threads=threads)
        assert others == counts
        for name in ("ids", "size", "low", "above"):
            mine, theirs = getattr(more.tight, name), getattr(one.tight, name)
            if name == "ids":
                listed = np.arange(T.ROOM) < one.tight.size[:, None]
                mine, theirs = mine[listed], theirs[listed]
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(more.matching.column_of_row, one.matching.column_of_row)
        np.testing.assert_array_equal(more.v, one.v)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_wrong_guess_costs_next_to_nothing(name):
    """Both guesses together: a hundredth of a solve, or all of it."""
    n = 1600
    start, counts, _ = found(CLASSES[name](n, 5))
    assert (start is not None) == (name in ("sanity", "int0.1n"))
    assert counts.rows <= (1.15 if start is not None else 0.5) * n
    assert counts.pairs == counts.rows * n


@each(maximize=[False, True], values=[160, 320, 480])
def test_rows_that_no_tight_pair_is_left_for(values, maximize):
    """Columns that no row likes are made dearer; what is then left is searched for."""
    n = 1600
    for seed in range(3):
        cost = np.random.default_rng(seed).integers(0, values, (n, n), dtype=np.int32)
        res = bigsap.solve(cost, maximize=maximize)
        plain = bigsap.solve(cost, maximize=maximize, epsilon=False)
        assert res.stats["first_prices"] == ("tight" if values < 480 else "columns")
        assert (res.status, res.fun) == ("optimal", plain.fun)
        assert res.stats["rows_evaluated"] <= 2.2 * n


def test_scipys_answer_where_the_identity_is_optimal():
    n = 1600
    x = np.random.default_rng(0).random((n, 2))
    itself = ((x[:, None] - x) ** 2).sum(axis=2)
    for cost in (np.full((n, n), 2.5), itself, np.zeros((n, n), np.uint8)):
        res = bigsap.solve(cost)
        np.testing.assert_array_equal(res.col4row, np.arange(n))
        assert res.stats["rows_evaluated"] == n
    assert res.stats["first_prices"] == "tight"


def test_points_hardly_moved():
    """Few of the rows compete: these are searched for, the others keep their nearest column."""
    n = 1600
    generator = np.random.default_rng(1)
    x = generator.random((n, 2))
    y = x + 8e-4 * generator.random((n, 2))
    cost = ((x[:, None] - y) ** 2).sum(axis=2)
    res = bigsap.solve(cost)
    assert res.stats["first_prices"] == "tight"
    assert res.stats["rows_scanned"] > 0  # a search was left to do
    other = bigsap.solve(cost, method="ssp")
    assert res.fun == pytest.approx(other.fun, rel=1e-12)
    np.testing.assert_array_equal(res.col4row, other.col4row)


@each(wrong=[np.nan, -np.inf], column=[0, 700, 1599])
def test_invalid_costs_are_named(wrong, column):
    """Wherever in a row they are, and whichever rows come first."""
    cost = CLASSES["sanity"](1600, 1)
    cost[801, column] = wrong
    with pytest.raises(bigsap.InvalidCostError, match=rf"cost\[801, {column}\]"):
        bigsap.solve(cost, certify=False)  # the certificate would find them too


def test_large_integers_start_over():
    cost = CLASSES["int0.1n"](1600, 1)
    cost[5, 7] = 1 << 40
    res = bigsap.solve(cost)
    assert res.stats["price"] == "int64"
    assert res.stats["first_prices"] == "tight"
    assert res.fun == bigsap.solve(cost, method="ssp").fun


def test_stopped_in_a_pass_and_continued_in_the_search(tmp_path, monkeypatch):
    """Stopped at any tick the answer is honest; a checkpoint of the search continues it."""
    n = 1600
    cost = np.random.default_rng(2).integers(0, n // 5, (n, n))
    whole = bigsap.solve(cost)
    assert whole.stats["first_prices"] == "tight"
    assert whole.stats["phases"]

    def stop(progress):
        raise StopIteration

    monkeypatch.setattr(tight, "_FIRST_PAIRS", 100 * n)
    res = bigsap.solve(cost, callback=stop, callback_rows=300)
    assert res.status == "cancelled"
    assert res.fun is None or res.fun >= whole.fun
    assert res.bound is None or res.bound <= whole.fun

    def stop_later(progress):
        if progress.stage == "search":
            raise StopIteration

    path = tmp_path / "checkpoint"
    assert bigsap.solve(cost, callback=stop_later, checkpoint=path).status == "cancelled"
    again = bigsap.resume(path, cost)
    assert again.fun == whole.fun
    np.testing.assert_array_equal(again.col4row, whole.col4row)
    np.testing.assert_array_equal(again.v, whole.v)
    assert again.stats["first_prices"] == "tight"
    assert again.stats["rows_evaluated"] == whole.stats["rows_evaluated"]


def test_warmup_enters_these_kernels(monkeypatch):
    """For every type of costs and prices; raising prices is for integers alone."""
    raised = []
    raise_prices = T.raise_prices
    monkeypatch.setattr(T, "raise_prices", lambda *a: raised.append(1) or raise_prices(*a))
    warmup = importlib.import_module("bigsap.warmup")  # its function has the same name
    tied = {name: run for name, run in warmup._combinations() if "tight pairs" in name}
    assert len(tied) == 7
    for name, run in tied.items():
        raised.clear()
        stats = run().stats
        assert stats["first_prices"] == "tight"
        assert stats["price"] == name.split(", ")[1].removesuffix(" prices")
        assert len(raised) == ("int" in name.split()[0])
