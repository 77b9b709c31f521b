"""``solve_k_best`` against trying everything, and fast ways against slow ones."""

from __future__ import annotations

import itertools
import sys
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

import bigsap
from bigsap import k_best
from bigsap.engine.k_best import state
from bigsap.errors import CertificateError, InvalidCostError, OptionError, OverflowRiskError
from bigsap.k_best import best_after
from bigsap.progress import guarded
from bigsap.proof.k_best import prove_duals, prove_order
from bigsap.strategies import k_best_search
from bigsap.strategies.k_best_lists import PAIR_BYTES, Task, listed
from pairwise import each


def every(cost, maximize=False, unassigned=None):
    """All assignments as (exact cost, columns of the rows), in order."""
    cost = np.asarray(cost)
    n, m = cost.shape
    sign, forbidden = (-1, -np.inf) if maximize else (1, np.inf)
    prices = None if unassigned is None else np.broadcast_to(unassigned, (n,))
    most_out = n if prices is not None else max(0, n - m)
    found = []
    for columns in itertools.product(range(-1, m), repeat=n):
        used = [j for j in columns if j >= 0]
        if len(set(used)) < len(used) or n - len(used) > most_out:
            continue
        if prices is None and n - len(used) != most_out:
            continue
        taken = [cost[i, j] for i, j in enumerate(columns) if j >= 0]
        if prices is not None:
            taken += [price for price, j in zip(prices, columns, strict=True) if j < 0]
        if forbidden not in taken:
            total = sum((Fraction(c.item()) for c in taken), Fraction(0))
            found.append((sign * total, columns))
    return [(sign * total, columns) for total, columns in sorted(found)]


def check(cost, k, maximize=False, unassigned=None):
    expected = every(cost, maximize, unassigned)
    found = bigsap.solve_k_best(cost, k, maximize=maximize, unassigned_cost=unassigned)
    assert [tuple(columns) for columns in found.col4row.tolist()] == [columns for _, columns in expected[:k]]
    kind = int if found.costs.dtype.kind in "iO" else float
    assert found.costs.tolist() == [kind(c) for c, _ in expected[:k]]
    assert len(found) == min(k, len(expected))
    assert found.complete == (len(expected) <= k)
    return found


def costs_of(rng, kind, shape, maximize):
    if kind == "ties":
        return rng.integers(0, 3, shape).astype(float)
    if kind == "equal":
        return np.full(shape, 0.1)
    if kind == "repeated":
        return rng.random((1, shape[1])).repeat(shape[0], axis=0)
    if kind == "integers":
        return rng.integers(-5, 6, shape)
    if kind == "large":
        return rng.integers(-(2**52), 2**52, shape)
    if kind == "forbidden":
        cost = rng.integers(0, 4, shape) / 4
        cost[rng.random(shape) < 0.35] = -np.inf if maximize else np.inf
        return cost
    if kind == "float32":
        return rng.random(shape).astype(np.float32)
    if kind == "scales":
        return 10.0 ** rng.integers(-6, 7, shape) * rng.random(shape)
    return rng.standard_normal(shape)


KINDS = ["normal", "ties", "equal", "repeated", "integers", "large", "forbidden", "float32", "scales"]
SHAPES = [(1, 1), (1, 4), (4, 1), (3, 3), (5, 5), (3, 5), (5, 3), (2, 6)]


@each(kind=KINDS, maximize=[False, True])
def test_all_assignments_in_order(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize])
    for shape in SHAPES:
        cost = costs_of(rng, kind, shape, maximize)
        for k in (1, 5, 1000):
            check(cost, k, maximize)


@pytest.mark.parametrize("parts", [3, 4, 6, 9])
def test_independent_parts(parts):
    """Each part has two assignments, so the costs of all are the sums of subsets."""
    rng = np.random.default_rng(parts)
    for k in (2, 5, 9, 14, 20, 30, 50) * 6:
        more = rng.integers(1, 60, parts)
        cost = np.full((2 * parts, 2 * parts), np.inf)
        for part, by in enumerate(more):
            cost[2 * part : 2 * part + 2, 2 * part : 2 * part + 2] = [[0, by], [0, 0]]
        order = rng.permutation(2 * parts)
        found = bigsap.solve_k_best(cost[order], k)
        sums = sorted(np.dot(taken, more).item() for taken in itertools.product((0, 1), repeat=parts))
        assert found.costs.tolist() == sums[:k]
        assert found.complete == (k >= 2**parts)


@pytest.mark.parametrize("k", [3, 5, 10, 40])
def test_distances_of_a_set_to_itself(k):
    """Nothing costs nothing, all else nearly the same: two rows that exchange their columns come next."""
    rng = np.random.default_rng(k)
    for n in range(10, 50):
        cost = rng.integers(200, 290, (n, n))
        cost += cost.T
        np.fill_diagonal(cost, 0)
        exchanges = np.sort((cost + cost.T)[np.triu_indices(n, 1)])
        found = bigsap.solve_k_best(cost, k)
        assert found.costs.tolist() == [0, *exchanges[: k - 1].tolist()]


@each(kind=["normal", "ties", "equal", "integers", "forbidden"], maximize=[False, True])
def test_rows_that_may_stay_unassigned(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize, 2])
    for shape in ((1, 1), (3, 3), (2, 4), (4, 2)):
        cost = costs_of(rng, kind, shape, maximize)
        prices = rng.integers(0, 3, shape[0])
        for price in (1, 0.1, prices if kind == "integers" else prices / 4):
            if kind != "integers" or np.asarray(price).dtype.kind == "i":
                check(cost, 40, maximize, price)
        must = np.full(shape[0], -np.inf if maximize else np.inf)
        must[0] = 0.5
        if shape[0] <= shape[1]:
            check(cost.astype(float), 40, maximize, must)


def ranking(cost, k, **options):
    found = bigsap.solve_k_best(cost, k, **options)
    return found.costs.tolist(), found.col4row.tolist()


@each(kind=["normal", "ties", "integers", "points"], shape=[(60, 60), (40, 70), (70, 40)])
def test_short_lists_and_guessed_caps_change_nothing(kind, shape, monkeypatch):
    rng = np.random.default_rng(shape[0])
    if kind == "points":
        cost = bigsap.points(rng.random((shape[0], 2)), rng.random((shape[1], 2)))
    else:
        cost = rng.integers(0, 400, shape) if kind == "integers" else costs_of(rng, kind, shape, False)
        cost = cost + (rng.integers(0, 50, shape) if kind == "ties" else 0)
    usual = ranking(cost, 150)
    monkeypatch.setattr(k_best_search, "_PER_ROW", 10**6)  # all pairs
    assert ranking(cost, 150) == usual
    # Lists that do not suffice, but for a limit of the costs.
    limits = []
    monkeypatch.setattr(k_best_search, "_PER_ROW", 2)
    monkeypatch.setattr(k_best_search, "_PER_DOUBLING", 0)
    monkeypatch.setattr(
        k_best_search, "listed", lambda *a, **b: limits.append(b.get("limit")) or listed(*a, **b)
    )
    assert ranking(cost, 150) == usual
    monkeypatch.setattr(k_best_search, "_PER_ROW", 1)
    assert ranking(cost, 150) == usual
    assert any(limits) or kind == "points"
    monkeypatch.undo()
    # As many subspaces as ever are needed: no cap, until all answers are there.
    search = k_best_search.Search._run
    monkeypatch.setattr(k_best_search.Search, "_run", lambda self, count, cap: search(self, count, 1 << 200))
    assert ranking(cost, 150) == usual


@each(shape=[(6, 6), (5, 7), (7, 5)], maximize=[False, True])
def test_sparse_costs(shape, maximize):
    rng = np.random.default_rng([*shape, maximize])
    for cost in (rng.standard_normal(shape), rng.integers(-(2**40), 2**40, shape).astype(float)):
        cost[rng.random(shape) < 0.3] = -np.inf if maximize else np.inf
        rows, columns = np.nonzero(np.isfinite(cost))
        values = cost[rows, columns]
        usual = ranking(cost, 50, maximize=maximize)
        for given in (values, values.astype(np.int64)) if (values % 1 == 0).all() else (values,):
            found = ranking(bigsap.sparse((rows, columns, given), shape), 50, maximize=maximize)
            assert found == usual
    price = rng.random(shape[0])
    usual = ranking(cost, 50, maximize=maximize, unassigned_cost=price)
    assert (
        ranking(bigsap.sparse((rows, columns, values), shape), 50, maximize=maximize, unassigned_cost=price)
        == usual
    )


def test_a_cap_that_is_too_low_is_raised(monkeypatch):
    cost = np.random.default_rng(6).random((12, 12))
    usual = ranking(cost, 400)
    runs = []
    search = k_best_search.Search._run

    def low(self, count, cap):
        if cap is not None and runs.count(k_best_search.GUESS) < 3:
            cap = self.cost_of(0) + (cap - self.cost_of(0)) // 3
        runs.append(search(self, count, cap))
        return runs[-1]

    monkeypatch.setattr(k_best_search.Search, "_run", low)
    assert ranking(cost, 400) == usual
    assert runs.count(k_best_search.GUESS) == 3


def test_few_enumerations_cross_a_gap_of_the_costs(monkeypatch):
    # 120 assignments cost little, all others a million times as much.
    cost = np.full((8, 8), 10**9)
    np.fill_diagonal(cost, 0)
    cost[:5, :5] = np.random.default_rng(8).integers(0, 5, (5, 5)) * 1000
    caps, search = [], k_best_search.Search._run
    monkeypatch.setattr(k_best_search.Search, "_run", lambda self, *a: caps.append(a) or search(self, *a))
    costs = bigsap.solve_k_best(cost, 200).costs
    assert costs[119] < 10**6 < costs[120]
    assert len(caps) < 20


def test_attributes_and_iteration():
    cost = np.array([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    found = bigsap.solve_k_best(cost, 3)
    assert isinstance(found, bigsap.Assignments)
    assert (found.costs.dtype, found.costs.tolist()) == (np.int64, [5, 6, 6])
    assert found.col4row.shape == (3, 3)
    assert [(one.cost, one.col4row.tolist()) for one in found] == [
        (cost, columns) for cost, columns in zip(found.costs.tolist(), found.col4row.tolist(), strict=True)
    ]
    first = found[0]
    assert cost[first.row_ind, first.col_ind].sum() == first.cost
    assert (len(found), found.shape, found.maximize, found.complete) == (3, (3, 3), False, False)
    assert "3 of 3 x 3" in repr(found)
    assert len(bigsap.solve_k_best(cost, 7)) == 6
    out = bigsap.solve_k_best(cost, 2, unassigned_cost=0)
    assert out[0].row_ind.size == out[0].col_ind.size < 3


def test_infeasible_and_empty_problems():
    forbidden = np.full((2, 2), np.inf)
    found = bigsap.solve_k_best(forbidden, 4)
    assert (len(found), found.col4row.shape, found.complete) == (0, (0, 2), True)
    assert list(found) == []
    for shape in ((0, 0), (0, 3), (3, 0)):
        found = bigsap.solve_k_best(np.empty(shape), 4)
        assert (found.costs.tolist(), found.col4row.tolist()) == ([0.0], [[-1] * shape[0]])
    found = bigsap.solve_k_best(np.empty((3, 0)), 4, unassigned_cost=1.5)
    assert (found.costs.tolist(), found.complete) == ([4.5], True)


def test_no_costs_have_the_type_of_costs():
    whole = bigsap.sparse(([0, 1], [0, 0], np.array([3, 4])), (2, 2))
    for given, kind in ((whole, np.int64), (bigsap.sparse({(0, 0): 1.5}, (2, 2)), np.float64)):
        assert bigsap.solve_k_best(given, 2).costs.dtype == kind
    for prices, kind in (([8, 9], np.int64), ([np.inf, np.inf], np.float64)):
        found = bigsap.solve_k_best(whole, 2, unassigned_cost=prices, time_limit=0)
        assert (len(found), found.costs.dtype) == (0, kind)


@pytest.mark.parametrize("k", [0, -1, 1.5, None, "3", True])
def test_k_is_refused(k):
    with pytest.raises(OptionError, match="k must be an integer"):
        bigsap.solve_k_best(np.eye(2), k)


def test_options_are_refused():
    for name in k_best.REFUSED_BY_K_BEST:
        with pytest.raises(OptionError, match=name):
            bigsap.solve_k_best(np.eye(2), 1, **{name: 1})
    with pytest.raises(TypeError):
        bigsap.solve_k_best(np.eye(2), 1, treads=1)
    with pytest.raises(InvalidCostError, match=r"cost\[0, 1\]"):
        bigsap.solve_k_best(np.array([[0, np.nan], [1, 1]]), 1)
    with pytest.raises(OverflowRiskError):
        bigsap.solve_k_best(np.full((3, 3), 2**61), 2)
    event = threading.Event()
    assert len(bigsap.solve_k_best(np.eye(3), 9, cancel=event, method="ssp", threads=2)) == 6


def test_a_stopped_first_solve_without_an_answer_does_not_say_that_there_is_none(monkeypatch):
    for status, complete in (("cancelled", False), ("infeasible", True)):
        none = bigsap.Result.from_assignment(None, shape=(3, 4), status=status)
        monkeypatch.setattr(sys.modules["bigsap.solve"], "_solve", lambda *_, none=none: none)
        found = bigsap.solve_k_best(np.ones((3, 4)), 2)
        assert (len(found), found.complete, found.status) == (0, complete, status)


def test_all_assignments_are_known_to_be_all():
    """Also where k is their number, and pairs are left that no assignment can use."""
    cost = np.full((6, 6), np.inf)
    cost[np.tril_indices(6)] = np.random.default_rng(10).random(21)
    for k in (1, 2):
        found = bigsap.solve_k_best(cost, k)
        assert (len(found), found.complete) == (1, True)
    cost[0, 1] = 0.5
    assert [bigsap.solve_k_best(cost, k).complete for k in (1, 2, 3)] == [False, True, True]
    assert bigsap.solve_k_best(np.zeros((3, 3)), 6).complete
    assert not bigsap.solve_k_best(np.zeros((3, 3)), 5).complete


@pytest.mark.parametrize("k", [1, 2])
def test_longer_lists_with_rounded_numbers_find_the_others(k):
    # One pair is left off the first lists; with it, differences are too wide for whole numbers.
    cost = np.full((5, 5), -1e100)
    cost[0, 4] = 0.2132810294628143
    ranking = bigsap.solve_k_best(cost, k)
    assert ranking.costs.tolist() == [-5e100] * k
    assert not ranking.complete


@pytest.mark.parametrize("size", [1e-30, 1e-300, 5e-324, 1.0, 1e300])
@pytest.mark.parametrize("shape", [(6, 5), (5, 6), (5, 5)])
def test_equal_costs_of_any_size(shape, size):
    ranking = bigsap.solve_k_best(np.full(shape, size), 3)
    assert ranking.costs.tolist() == [5 * size] * 3


def test_orders_of_magnitude():
    # Forbidden by a huge number, as many write it: the order of the others is not touched.
    cost = np.random.default_rng(8).random((5, 5)) * 100
    cost[0, 1:] = np.iinfo(np.int64).max
    check(cost, 24)
    wide = 10.0 ** np.arange(-60, 60, 5).reshape(4, 6) * 3
    check(wide, 1)
    check(np.array([[1.0, 1e-30], [1e-30, 1e30]]), 1)  # the other one was found as well


@pytest.mark.parametrize("power", [-1074, -1000, 130, 900])
def test_whole_multiples_of_a_power_of_two(power):
    """Only digits count, not where they are."""
    check(np.random.default_rng(3).integers(0, 9, (4, 5)) * 2.0**power, 40)


@pytest.mark.parametrize("least", [1e-308, 1e-295 / 3])
def test_lists_of_zeros_next_to_the_least_costs(least):
    cost = np.zeros((8, 14))
    cost[0, 0] = least
    assert bigsap.solve_k_best(cost, 2).costs.tolist() == [0, 0]
    cost = np.zeros((3, 3))
    cost[0] = least * np.array([1, 2, 4])
    check(cost, 6)


def test_sums_beyond_float64_are_refused():
    for cost in ([[1e308, 1.0], [1.0, 1.7e308]], [[1e308, 1e300], [1e300, 1.7e308]]):
        with pytest.raises(OverflowRiskError):
            bigsap.solve_k_best(np.array(cost), 2)
    for cost, prices in (([[-1.7e308], [1e308]], None), ([[-1.7e308]], 1.7e308)):  # only slacks are beyond
        with pytest.raises(OverflowRiskError):
            bigsap.solve_k_best(np.array(cost), 2, unassigned_cost=prices)


@pytest.mark.parametrize("k", [2**40, 10**30])
def test_more_than_there_are(k):
    for shape, unassigned in (((2, 2), None), ((2, 3), None), ((3, 2), None), ((2, 2), 1.0)):
        check(np.arange(6.0)[: shape[0] * shape[1]].reshape(shape), k, unassigned=unassigned)
    with pytest.raises(OptionError, match="do not fit into memory"):
        bigsap.solve_k_best(np.random.default_rng(1).random((60, 60)), 2**62)


def parts():
    """A graph and its solved subspaces."""
    cost = np.random.default_rng(9).random((12, 12))
    best = bigsap.solve(cost)
    task = Task(bigsap.as_source(cost), 1, best.col4row, best.u, best.v, None, 1)
    lists = listed(task, 100)
    search = k_best_search.Search(lists, 60, task)
    n = int(search.work.counts[state.NODES])
    left = np.setdiff1d(np.arange(n), search.answers)
    return lists.graph, search.nodes, search.answers, left


def prove_subspaces(graph, nodes, answers, left):
    prove_duals(graph, nodes, np.concatenate((answers, left)))
    prove_order(nodes, answers, left)


def test_the_proof_refuses_wrong_subspaces():
    graph, nodes, answers, left = parts()
    prove_subspaces(graph, nodes, answers, left)
    for column in (state.U_LOW, state.V_LOW):
        for change in (-1, 1):
            nodes.rows[nodes.offset[answers[3]], column] += change
            with pytest.raises(CertificateError, match=f"duals of subspace {answers[3]}"):
                prove_subspaces(graph, nodes, answers, left)
            nodes.rows[nodes.offset[answers[3]], column] -= change
    nodes.cost_low[answers[5]] += 1
    with pytest.raises(CertificateError, match=f"subspace {answers[5]}"):
        prove_subspaces(graph, nodes, answers, left)
    nodes.cost_low[answers[5]] -= 1
    with pytest.raises(CertificateError, match="assignment 2 costs less"):
        prove_subspaces(graph, nodes, answers[[0, 2, 1, *range(3, 60)]], left)
    if left.size:
        with pytest.raises(CertificateError, match="left out"):
            prove_subspaces(graph, nodes, answers[:-1], np.append(left, answers[3]) * 0 + answers[3])
    prove_subspaces(graph, nodes, answers, left)


def test_a_slice_of_the_ranking_is_a_list():
    ranking = bigsap.solve_k_best([[1, 2], [4, 7]], 5)
    assert [one.cost for one in ranking[:5]] == [6, 8]
    assert [one.col4row.tolist() for one in ranking[1:]] == [[0, 1]]


class _Enough(Exception):
    pass


@pytest.mark.parametrize("costs", [np.zeros((40, 40)), np.random.default_rng(3).random((9, 12))])
@pytest.mark.parametrize("limited", [False, True])
def test_a_ranking_ends_where_its_caller_wants(costs: np.ndarray, limited: bool) -> None:
    """The limits are looked at throughout, which changes nothing; what a guard raises ends it at once."""
    result = bigsap.solve(costs)
    expected = bigsap.solve_k_best(costs, 200)
    calls = last = 0

    def guard() -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise _Enough

    limits = {"cancel": threading.Event()} if limited else {}
    with pytest.MonkeyPatch.context() as patch, guarded(guard):
        patch.setattr("bigsap.strategies.k_best_search._PAIRS", 0)  # a call for each subspace
        patch.setattr("bigsap.proof.k_best._ENTRIES", 0)
        found = best_after(result, costs, 200, **limits)
        assert found.costs.tolist() == expected.costs.tolist()
        assert found.col4row.tolist() == expected.col4row.tolist()
        assert calls > (1 if limited else 2) * found.stats["subspaces"]
        for last in (1, calls // 2, calls):
            calls = 0
            with pytest.raises(_Enough):
                best_after(result, costs, 200, **limits)
            assert calls == last


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("less", [False, True])
def test_costs_that_changed_after_the_solve(integer: bool, less: bool) -> None:
    """Ranks of other costs would contradict the proof of the result."""
    costs = np.random.default_rng(4).integers(1, 100, (6, 6))
    costs = costs if integer else costs / 7
    for maximize in (False, True):
        result = bigsap.solve(costs, maximize=maximize)
        with pytest.raises(bigsap.CertificateError, match="changed"):
            best_after(result, costs - 1 if less else costs + 1, 3)
        assert best_after(result, costs, 3).costs[0] == result.fun
        # A solve that was stopped may have no bound: then only what costs more contradicts it.
        stopped = replace(result, bound=None)
        if less == maximize:
            with pytest.raises(bigsap.CertificateError, match="changed"):
                best_after(stopped, costs - 1 if less else costs + 1, 3)
        else:
            assert len(best_after(stopped, costs - 1 if less else costs + 1, 3)) == 3


@pytest.mark.parametrize("sparse", [False, True])
def test_listed_pairs_stay_within_memory(sparse: bool) -> None:
    """Of equal costs all pairs are listed: an error before memory is full."""
    costs = np.ones((100, 100))
    given = scipy.sparse.csr_matrix(costs) if sparse else costs
    enough = 10_000 * PAIR_BYTES
    assert bigsap.solve_k_best(given, 2, memory_limit=2 * enough).stats["pairs"] == 10_000
    with pytest.raises(OptionError, match=f"{enough - 1} bytes .* memory_limit"):
        bigsap.solve_k_best(given, 2, memory_limit=enough - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(k_best, "usable_memory", lambda: enough - 1)
        with pytest.raises(OptionError, match="pairs"):
            bigsap.solve_k_best(given, 2)


def test_subspaces_stay_within_memory() -> None:
    """Where many assignments cost the same, each leaves many subspaces: an error before memory is full."""
    costs = np.random.default_rng(6).integers(0, 5, (60, 60))
    found = bigsap.solve_k_best(costs, 200)
    assert found.stats["subspaces"] > 10 * 200
    pairs = found.stats["pairs"] * PAIR_BYTES
    enough = pairs + 4 * found.stats["subspaces"] * (60 + 1) * 68
    again = bigsap.solve_k_best(costs, 200, memory_limit=enough)
    assert again.col4row.tolist() == found.col4row.tolist()
    # Of as many subspaces as answers, which is all that there are without ties.
    with pytest.raises(OptionError, match=r"subspaces.* memory_limit"):
        bigsap.solve_k_best(costs, 200, memory_limit=pairs + 2 * 200 * (60 + 1) * 68)


def test_a_pause_copies_no_queue():
    """Pauses are many, and the queue may be long: only more room needs a new one."""
    queue = state.new_queue(8, 3)
    queue.node[:] = range(10)
    assert state.grown_queue(queue, 8) is queue
    longer = state.grown_queue(queue, 16)
    assert (len(longer.node), longer.node[:10].tolist()) == (18, list(range(10)))
    assert longer.worst is queue.worst
