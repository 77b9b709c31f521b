"""Small matrices with a few huge costs: answers by reduced costs, proved by the given ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.engine.small.search import HUGE, LOOSE, OPTIMAL
from bigsap.proof.certificate import certify
from bigsap.run import small_search
from bigsap.run.small_search import solved_closely
from bigsap.sources.arrays.matrix import ArraySource
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


@pytest.mark.some(3)
@pytest.mark.parametrize("size", [1e13, 1e15, 1e16, 1e17, 2.0**63, 1e30])
@pytest.mark.parametrize("maximize", [False, True])
def test_a_huge_gain_does_not_hide_the_rest(maximize, size):
    """Every price is huge, and the gap of the other rows small against the total."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        cost = rng.random((20, 20))
        cost[3] = size if maximize else -size
        rest = np.delete(cost, 3, axis=0)
        rows, columns = linear_sum_assignment(rest, maximize)
        best = sum(map(Fraction, rest[rows, columns].tolist()))
        result = bigsap.solve(cost, maximize=maximize)
        again = bigsap.solve_many([cost], maximize=maximize)[0]
        for col_ind in (result.col_ind, again.col_ind, bigsap.linear_sum_assignment(cost, maximize)[1]):
            found = np.delete(cost[np.arange(20), col_ind], 3)
            assert abs(sum(map(Fraction, found.tolist())) - best) < 1e-12
        v = -result.v if maximize else result.v
        assert certify(ArraySource(cost), result.col4row, v, maximize=maximize).clear


def test_a_second_search_is_not_made_for_nothing(monkeypatch):
    """Without a huge minimum reduced costs are the same; scans of both searches count."""
    searches, solved = [], small_search._solved

    def noted(*given, **more):
        searches.append(given)
        return solved(*given, **more)

    monkeypatch.setattr(small_search, "_solved", noted)
    rng = np.random.default_rng(3)
    hard = np.outer(*np.sort(rng.random((2, 700)))) ** 3
    assert bigsap.solve(hard).stats["method"] != "dense"
    assert len(searches) == 1
    searches.clear()
    far = bigsap.solve(put_away(rng.random((80, 80)), "column", 1e13))
    assert len(searches) == 2
    statuses, _, kept = zip(*(solved(*given) for given in searches), strict=True)
    assert statuses == (HUGE, OPTIMAL)  # seen before the search
    assert far.stats["rows_scanned"] == sum(facts[3 * 80 + 1] for facts in kept)


@pytest.mark.parametrize("outlier", ["row", "cross", "forced row"])
@pytest.mark.parametrize("size", [1e12, 2.0**63])
def test_a_huge_number_leads_to_one_search(outlier, size):
    """Beside the three scans a row that show it: a huge row gives no column its minimum, no bid is huge."""
    rng = np.random.default_rng(5)
    n = 600
    cost = rng.random((n, n))
    plain = bigsap.solve(cost).stats
    far = cost.copy()
    if outlier == "cross":
        far[:, 7] += size
    if outlier != "forced row":
        far[n // 2] += size
    else:
        far[n // 2] = size
        far[n // 2, 9] = 0.5
    found = bigsap.solve(far).stats
    assert found["method"] == plain["method"] == "dense"
    assert found["rows_scanned"] <= 1.25 * plain["rows_scanned"] + 3 * n


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(30, 30), (30, 40), (40, 30)])
@pytest.mark.parametrize("kind", ["row", "column", "both", "two", "forbidden"])
def test_differences_of_huge_costs_that_are_rounded_and_exact(kind, shape, maximize):
    """Costs of one line that differ by more than a factor of two, and one that is forbidden in part."""
    rng = np.random.default_rng([shape[0], shape[1]])
    for size in (1e12, 1e17):
        cost = rng.random(shape) + 1
        if kind in ("row", "both", "two"):
            cost[3] *= size * 10 ** rng.random(shape[1])
        if kind in ("column", "both"):
            cost[:, 5] *= size * 10 ** rng.random(shape[0])
        if kind == "two":
            cost[8] += size
        if kind == "forbidden":
            cost[3] += size
            cost[3, ::2] = np.inf
        if maximize:
            cost = -cost
        result = bigsap.solve(cost, maximize=maximize)
        assert judge(Truth(cost, maximize=maximize), result).faults == []


@pytest.mark.parametrize("seed", [1520, *range(30)])
def test_gaps_are_judged_by_the_given_costs(seed):
    """A row of huge gains, a column of huge costs: reduced, pairs of both are huge, given they are not."""
    rng = np.random.default_rng(seed)
    cost = rng.random((12, 12))
    cost[0] -= 2.0**50
    cost[:, 1] += 2.0**50
    result = bigsap.solve(cost)
    assert judge(Truth(cost), result).faults == []
    assert result.fun == bigsap.solve(cost, method="ssp").fun


@pytest.mark.parametrize(("shape", "seed", "size"), [((64, 64), 32, 1e12), ((71, 69), 11, 1e10)])
def test_huge_columns_beside_rows_that_may_stay_unassigned(shape, seed, size):
    for more in range(5):
        rng = np.random.default_rng(seed + more)
        cost = rng.random(shape)
        cost[:, 0] -= size
        prices = np.full(shape[0], 0.5)
        prices[rng.random(shape[0]) < 0.5] = np.inf
        prices[: max(0, shape[0] - shape[1])] = 0.5
        result = bigsap.solve(cost, unassigned_cost=prices)
        assert judge(Truth(cost, unassigned=prices), result).faults == []
        result.verify(cost)


@pytest.mark.parametrize("shape", [(10, 10), (10, 12), (80, 80)])
@pytest.mark.parametrize("size", [1.5e308, -1.5e308])
def test_costs_whose_sums_are_no_numbers(size, shape):
    cost = np.random.default_rng(3).random(shape)
    cost[1] = cost[2] = size
    with pytest.raises(bigsap.OverflowRiskError):
        bigsap.solve(cost)
    rows, columns = bigsap.linear_sum_assignment(cost)
    assert len(set(columns.tolist())) == len(rows) == 10 if shape[0] == 10 else 80


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
    # Where the reduced costs' own prices do not prove it, those of the transposed matrix do.
    ways, proved = [LOOSE, OPTIMAL], small_search._proved
    monkeypatch.setattr(small_search, "_is_small", lambda *given: False)
    monkeypatch.setattr(small_search, "_proved", lambda *given: (ways.pop(0), proved(*given)[1]))
    status, columns, kept, v_low = solved_closely(cost, False)
    assert (status, ways) == (OPTIMAL, [])
    np.testing.assert_array_equal(kept[n : 2 * n], cost[np.arange(n), columns])
    slack = (cost - kept[2 * n : 3 * n]) - v_low - kept[:n, None]
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


@pytest.mark.parametrize("seed", [27, 69, 98])
def test_no_price_is_above_zero_where_rows_may_stay_unassigned(seed):
    """Proved with a typical price of 0, as these are: a free column's price would be above 0."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    terms = (rng.standard_normal(n) * 10.0 ** rng.integers(0, sizes, n) for sizes in (15, 8))
    cost = np.outer(*terms)
    price = np.array(-0.66) if seed % 2 else rng.standard_normal(n) * 10.0 ** rng.integers(0, 10, n)
    result = bigsap.solve(cost, unassigned_cost=price)
    assert judge(Truth(cost, unassigned=price), result).faults == []


def test_most_columns_may_be_huge():
    """Then rows cannot begin above the columns' minima: the sum would overflow, or round the rows."""
    cost = np.random.default_rng(0).random((40, 120))
    cost[5] += 2.0**60
    for size in (1e30, 1.2e308):
        cost[:, 42:] = size
        with np.errstate(over="ignore"):
            found = small_search._by_reduced_costs(cost, 0.0)
        assert found is not None
        assert found[0] == OPTIMAL
        assert (found[1] < 42).all()
