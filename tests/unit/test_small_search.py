"""Small matrices with a few huge costs: answers by reduced costs, proved by the given ones."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap.engine.small.search import LOOSE, OPTIMAL
from bigsap.run import small_search
from bigsap.run.small_search import solved_closely
from exact_judge import Truth, judge

KINDS = ("row", "column", "row and column", "pair", "far pair")


def put_away(cost, kind, size):
    cost = cost.copy()
    pair = cost[2, 1]
    if kind in ("row", "row and column", "far pair"):
        cost[2] += size
    if kind in ("column", "row and column", "far pair"):
        cost[:, 1] += size
    if kind == "pair":
        cost[2] = cost[:, 1] = size
    if kind in ("pair", "far pair"):
        cost[2, 1] = pair
    return cost


@pytest.mark.some(8)
@pytest.mark.parametrize("shape", [(40, 40), (30, 45), (45, 30), (5, 5), (150, 150)])
@pytest.mark.parametrize("size", [1e10, 1e13, 1e16, float(2**63)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [False, True])
def test_the_kernel_solves_and_proves(spread, kind, size, shape):
    rng = np.random.default_rng(shape)
    cost = rng.lognormal(0, 2, shape) if spread else rng.random((shape[0], 2)) @ rng.random((2, shape[1]))
    cost = put_away(cost, kind, size)
    result = bigsap.solve(cost)
    assert judge(Truth(cost), result).faults == []
    assert result.status == "optimal"
    if kind != "row and column":  # the prices of both sides would need two parts
        assert result.stats["method"] == "dense"
    rows, columns = bigsap.linear_sum_assignment(cost)
    assert cost[rows, columns].tolist() == result.costs.tolist()


def test_reduced_costs_are_needed_and_prove_in_two_parts(monkeypatch):
    """A huge column's price has a low part; rows' and columns' numbers are not exchanged."""
    rng = np.random.default_rng(3)
    cost = put_away(rng.random((60, 60)), "column", 1e13)
    status, columns, kept, v_low = solved_closely(cost, False)
    assert status == OPTIMAL
    assert v_low is not None
    assert v_low.any()
    n = len(cost)
    u, matched, v = kept[:n], kept[n : 2 * n], kept[2 * n : 3 * n]
    np.testing.assert_array_equal(matched, cost[np.arange(n), columns])
    slack = (cost - v) - v_low - u[:, None]
    assert slack.min() > -1e-12
    assert abs(slack[np.arange(n), columns]).max() < 1e-12
    monkeypatch.setattr(small_search, "_by_reduced_costs", lambda *given: None)
    assert solved_closely(cost, False)[0] == LOOSE


def test_costs_that_may_stay_unassigned_keep_prices_below_zero():
    """A free column needs a price of at most 0, however large others are."""
    rng = np.random.default_rng(4)
    for kind in KINDS:
        cost = put_away(rng.random((20, 20)), kind, 1e13)
        start = bigsap.solve(rng.random((20, 20)))
        result = bigsap.solve(cost, unassigned_cost=0.4, warm_start=start)
        assert judge(Truth(cost, unassigned=np.array(0.4)), result).faults == []
        assert result.v.max() <= 0


def test_the_largest_price_is_zero_where_rows_may_stay_unassigned():
    """Proved by prices as they are, a row's dual could exceed what the row costs unassigned."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        terms = (rng.standard_normal(5) * 10.0 ** rng.integers(0, sizes, 5) for sizes in (15, 8))
        cost = np.outer(*terms)
        result = bigsap.solve(cost, unassigned_cost=-0.66)
        assert judge(Truth(cost, unassigned=np.array(-0.66)), result).faults == []
