"""Costs that sorting makes Monge: found by a sample, answered without a search, proved."""

from __future__ import annotations

import itertools
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap.problem import Problem
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.strategies.monge import sorted_start
from bigsap.strategies.start.samples import Counts
from examples_of import examples
from oracle import optimum
from pairwise import each

FLOAT = np.dtype(np.float64)


def numbers(n, seed):
    g = np.random.default_rng(seed)
    return g.random(n), g.random(n), g


def rank_one(n, seed):
    a, b, _ = numbers(n, seed)
    return np.outer(a, b)


def of_both_signs(n, seed):
    a, b, _ = numbers(n, seed)
    return np.outer(a - 0.5, b - 0.5)


def small_integers(n, seed):
    _, _, g = numbers(n, seed)
    return np.outer(g.integers(0, 7, n), g.integers(0, 7, n)).astype(np.uint8)


def distances(n, seed):
    a, b, _ = numbers(n, seed)
    return np.abs(a[:, None] - b)


def distances_with_terms(n, seed):
    a, b, g = numbers(n, seed)
    return np.abs(a[:, None] - b) + 9 * g.random(n)[:, None] + 9 * g.random(n)


def squares_of_integers(n, seed):
    _, _, g = numbers(n, seed)
    x, y = g.integers(0, n, n), g.integers(0, n, n)
    return ((x[:, None] - y) ** 2).astype(np.int32)


def exponential(n, seed):
    a, b, _ = numbers(n, seed)
    return np.exp(3 * a[:, None] * b)


FAMILIES = [
    rank_one,
    of_both_signs,
    small_integers,
    distances,
    distances_with_terms,
    squares_of_integers,
    exponential,
]


def solve(cost, **options):
    return bigsap.solve(cost, **{"method": "compressed", "threads": 1, **options})


def same_value(res, cost, maximize=False):
    best, _ = optimum(cost, maximize)
    size = float(np.abs(cost[np.isfinite(cost)]).max()) * cost.shape[0]
    exact = cost.dtype.kind in "iu"
    assert res.fun == best if exact else abs(res.fun - float(best)) <= 1e-13 * size
    assert sorted(res.col_ind.tolist()) == list(range(cost.shape[0]))
    res.verify(cost)


@each(maximize=[False, True], family=FAMILIES)
def test_families_are_answered_without_a_search(family, maximize):
    for n, seed in ((17, 1), (48, 2)):
        cost = family(n, seed)
        res = solve(cost, maximize=maximize)
        same_value(res, cost, maximize)
        assert res.stats["first_prices"] == "sorted"
        assert res.stats["rows_scanned"] == 0
        assert res.stats["phases"] == []
        assert res.stats["certificate_pairs"] == n * n


@st.composite
def monge(draw):
    """Any integer Monge matrix, shuffled: terms of rows and columns less a heap of corners."""
    n = draw(st.integers(2, 12))
    seed = draw(st.integers(0, 2**31))
    g = np.random.default_rng(seed)
    corners = g.integers(0, draw(st.sampled_from([2, 5, 1000])), (n, n))
    cost = -corners.cumsum(axis=0).cumsum(axis=1)
    cost += g.integers(-50, 50, n)[:, None] + g.integers(-50, 50, n)
    return cost[g.permutation(n)][:, g.permutation(n)]


@examples(60)
@given(monge(), st.booleans())
def test_any_monge_matrix(cost, maximize):
    cost = np.ascontiguousarray(-cost if maximize else cost)
    problem = Problem(ArraySource(cost), maximize)
    start = sorted_start(problem, FLOAT, 0, Counts(), lambda: None)
    res = solve(cost, maximize=maximize)
    same_value(res, cost, maximize)
    if start is None:
        # Few values, or many ties: only those are left to others.
        return
    rows = np.arange(len(cost))
    assert sorted(start.column_of_row.tolist()) == rows.tolist()
    best, _ = optimum(cost, maximize)
    if res.stats["first_prices"] == "sorted":
        assert cost[rows, start.column_of_row].sum() == best
        signed = (-cost if maximize else cost) - start.v
        assert (signed.min(axis=1) == signed[rows, start.column_of_row]).all()


@pytest.mark.parametrize("change", [-3.0, 3.0, np.inf])
def test_one_entry_that_does_not_fit(change):
    cost = rank_one(40, 5)
    tried = 0
    for i in range(0, 40, 8):
        for j in range(0, 40, 9):
            spoiled = cost.copy()
            spoiled[i, j] += change
            res = solve(spoiled)
            same_value(res, spoiled)
            tried += res.stats["certificate_pairs"] > 40 * 40
    if change < 0:
        assert tried  # some of them took the start in and not the proof
        assert tried < 25


def test_forbidden_pairs_that_nobody_wants_do_not_matter():
    n = 300
    cost = np.abs(np.arange(n)[:, None] - np.arange(n)).astype(float)
    cost[5, 290] = cost[288, 3] = np.inf
    res = bigsap.solve(cost, method="compressed", seed=1)
    assert res.fun == 0
    res.verify(cost)


@pytest.mark.parametrize(
    "cost",
    [
        np.ones((30, 30)),
        np.add.outer(np.arange(30.0), np.arange(30.0) ** 2),
        np.outer(np.zeros(30), np.arange(30.0)),
        np.outer(np.arange(30) % 2, np.arange(30)),
        np.random.default_rng(0).random((30, 30)),
        np.sqrt(distances(30, 1)),
        np.full((30, 30), np.inf),
        rank_one(30, 2)[:, :20],
        rank_one(30, 2)[:20],
        np.ones((1, 1)),
    ],
    ids=["constant", "terms", "zero", "two", "random", "sqrt", "inf", "tall", "wide", "one"],
)
def test_what_is_left_to_others(cost):
    cost = np.ascontiguousarray(cost)
    counts = Counts()
    assert sorted_start(Problem(ArraySource(cost)), FLOAT, 0, counts, lambda: None) is None
    assert counts.pairs <= 6 * 6 + 16 * 16


def test_ties_everywhere():
    found = 0
    for seed in range(6):
        g = np.random.default_rng(seed)
        x, y = g.integers(0, 9, 40), g.integers(0, 9, 40)
        for cost in (np.abs(x[:, None] - y), np.minimum(x[:, None], y), np.outer(x, y)):
            for maximize in (False, True):
                res = solve(cost, maximize=maximize)
                found += res.stats["first_prices"] == "sorted"
                same_value(res, cost, maximize)
    # Some samples do not tell the order of what ties.
    assert found >= 32


def test_rounded_costs_are_solved_all_the_same():
    for cost in (
        rank_one(48, 1).astype(np.float32),
        np.rint(50 * rank_one(48, 1)).astype(np.int32),
        distances(48, 1).astype(np.float32),
        rank_one(48, 1) + 1e9,
    ):
        for maximize in (False, True):
            same_value(solve(cost, maximize=maximize), cost, maximize)


def test_integers_beyond_doubles():
    x = np.random.default_rng(4).permutation(30).astype(np.int64) + 1
    cost = np.outer(x, x[::-1]) * (1 << 44) + 1
    res = solve(cost)
    assert res.stats["price"] == "int64"
    assert res.stats["first_prices"] == "sorted"
    same_value(res, cost)
    beyond = np.outer(x, x) * (1 << 52)
    counts = Counts()
    found = sorted_start(Problem(ArraySource(beyond)), FLOAT, 0, counts, lambda: None)
    assert found is None


def test_huge_and_tiny_costs():
    cost = rank_one(30, 3)
    for scale in (1e-300, 1e300, 1e306):
        res = solve(cost * scale)
        assert res.status == "optimal"
        assert (res.col4row == solve(cost).col4row).all()


def test_threads_and_seeds_agree():
    cost = distances_with_terms(200, 9)
    answers = [solve(cost, threads=t, seed=s) for t, s in ((1, 0), (2, 0), (1, 1), (1, 2))]
    assert (answers[0].col4row == answers[1].col4row).all()
    assert (answers[0].v == answers[1].v).all()
    assert np.ptp([a.fun for a in answers]) <= 1e-9
    assert {a.stats["first_prices"] for a in answers} == {"sorted"}


def test_sources_of_cheap_pairs():
    n = 150
    a, b, _ = numbers(n, 11)
    product = [
        np.outer(a, b),
        np.asfortranarray(np.outer(a, b)),
        bigsap.lowrank(a, b),
        bigsap.expression("a[i]*b[j]", (n, n), a=a, b=b),
        bigsap.from_function(lambda i, j: a[i] * b[j], (n, n)),
        bigsap.from_function(lambda i, j: a[i] * b[j], (n, n), compiled=False),
    ]
    line = [np.abs(a[:, None] - b), bigsap.points(a[:, None], b[:, None], "cityblock")]
    for sources in (product, line):
        results = [solve(source) for source in sources]
        assert {res.stats["first_prices"] for res in results} == {"sorted"}
        assert np.ptp([res.fun for res in results]) <= 1e-12
        assert (
            len({tuple(res.row4col if res.stats["transposed"] else res.col4row) for res in results[:1]}) == 1
        )


def test_functions_of_rows_are_not_asked_for_pairs():
    n = 60
    a, b, _ = numbers(n, 12)
    source = bigsap.from_function(lambda i: a[i] * b, (n, n), kind="row", compiled=False)
    problem, counts = Problem(source), Counts()
    assert sorted_start(problem, FLOAT, 0, counts, lambda: None) is None
    assert counts.pairs == 0
    same_value(solve(source), np.outer(a, b))


def test_a_python_function_is_asked_for_little_more_than_every_pair():
    n = 400
    a, b, _ = numbers(n, 13)
    asked = 0

    def cost(i, j):
        nonlocal asked
        asked += 1
        return a[i] * b[j]

    source = bigsap.from_function(cost, (n, n), compiled=False)
    res = solve(source)
    assert res.stats["first_prices"] == "sorted"
    assert asked <= 1.05 * n * n


def test_invalid_costs_are_named_as_ever():
    for n, wrong in ((40, np.nan), (400, -np.inf)):
        cost = rank_one(n, 1)
        cost[7, 11] = wrong
        with pytest.raises(bigsap.InvalidCostError, match=r"cost\[7, 11\]") as caught:
            solve(cost)
        with pytest.raises(bigsap.InvalidCostError) as without:
            solve(cost, epsilon=False)
        assert str(caught.value) == str(without.value)


def test_a_stop_within_the_proof_keeps_the_answer(clock):
    n, asked, cancel = 200, 0, threading.Event()

    def cost(i, j):
        nonlocal asked
        asked += 1
        if asked == n * n // 2:
            cancel.set()
            clock.sleep(0.1)  # for the solve to look up
        return float(i * j)

    source = bigsap.from_function(cost, (n, n), compiled=False)
    # With room for two rows only, the proof asks the function again.
    res = solve(source, cancel=cancel, certify=False, cache=2 * 8 * n)
    assert res.status == "cancelled"
    i = np.arange(n)
    assert res.fun == (i * i[::-1]).sum()


def test_a_gap_that_only_a_huge_column_excuses_is_searched():
    """The sorted assignment is 56 above the optimum: little relative to the sum."""
    cost = np.array(
        [
            [25.0, 2.0**62, 40.0, 49.0, 71.0],
            [42.0, 2.0**62, 5.0, 64.0, 52.0],
            [4.0, 2.0**62, 47.0, 8.0, 97.0],
            [67.0, 2.0**62, -1120479070.0, 41.0, 52.0],
            [5.0, 2.0**62, 31.0, 35.0, 26.0],
        ]
    )
    least = min(
        sum(Fraction(cost[i, j]) for i, j in enumerate(columns))
        for columns in itertools.permutations(range(5))
    )
    for method in ("auto", "ssp", "compressed", "hungarian"):
        found = bigsap.solve(cost, method=method)
        assert sum(Fraction(cost[i, j]) for i, j in enumerate(found.col4row)) == least
