"""The auction: its bids come within n epsilon, and the result is exact."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.precision import choose
from bigsap.engine.core.state import DONE
from bigsap.engine.rows import bidding
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.strategies.baselines import auction
from killed import stop_after
from oracle import optimum
from whole_numbers import KINDS, costs_of

VARIANTS = ("auto", "plain", "scaled")


def check(cost, *, maximize=False, **options):
    result = bigsap.solve(cost, method="auction", maximize=maximize, **options)
    best = optimum(cost, maximize)
    if best is None:
        assert result.status == "infeasible"
        return result
    assert result.status == "optimal"
    assert result.fun == pytest.approx(float(best[0]), rel=1e-12, abs=0)
    return result


@pytest.mark.some(8)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum(kind, variant):
    for n, m in ((1, 1), (2, 2), (30, 30), (20, 45), (45, 20)):
        check(costs_of(kind, n, m, n), variant=variant)
        check(costs_of(kind, n, m, n) / 7, variant=variant, maximize=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bids_come_within_n_epsilon(variant):
    for kind in ("n", "1000n", "product", "sanity"):
        cost = costs_of(kind, 40, 40, 3)
        problem = Problem(as_source(cost))
        warm, counts = auction.run_auction(problem, Monitor(), choose(problem), variant)
        columns = warm.column_of_row
        assert counts["open"] == 0
        assert sorted(columns.tolist()) == list(range(40))
        total = cost[np.arange(40), columns].sum()
        best = optimum(cost)[0]
        assert best <= total <= best + 40 * counts["epsilon"]
        slack = cost - warm.v
        own = slack[np.arange(40), columns]
        assert (own <= slack.min(axis=1) + counts["epsilon"]).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_forbidden_pairs(variant):
    for seed in range(25):
        g = np.random.default_rng(seed)
        n = int(g.integers(2, 14))
        cost = g.integers(0, 30, (n, n + int(g.integers(0, 3)))).astype(float)
        cost[g.random(cost.shape) < g.choice([0.3, 0.7])] = np.inf
        check(cost, variant=variant)


def test_large_and_invalid_costs():
    g = np.random.default_rng(0)
    check(g.integers(-(2**50), 2**50, (20, 20)))
    cost = g.random((20, 20))
    cost[3, 7] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[3, 7\]"):
        bigsap.solve(cost, method="auction")
    with pytest.raises(bigsap.OptionError, match="no more rows"):
        bigsap.solve(lambda i: cost[0, :9], shape=(20, 9), method="auction")


def tall(cost):
    def block(rows, out):
        out[:] = cost[rows]

    return bigsap.from_function(block, cost.shape, kind="block", compiled=False)


@pytest.mark.parametrize("method", ["auction", "hungarian"])
def test_tall_functions_are_refused_before_they_are_read(method, tmp_path):
    """Also where the solve would be stopped before it knew: its checkpoint could not be continued."""
    path = tmp_path / "c"
    with pytest.raises(bigsap.OptionError, match="no more rows"):
        bigsap.solve(tall(np.eye(60, 40)), method=method, checkpoint=path, callback=stop_after(0))
    assert not path.exists()


@pytest.mark.parametrize("ticks", [0, 2, 6])
def test_a_warm_start_of_a_tall_function_is_continued(ticks, tmp_path):
    """It needs no bids; the checkpoint does not hold it."""
    g, path = np.random.default_rng(0), tmp_path / "c"
    cost, options = g.random((60, 40)), {"callback_every": 0, "threads": 1}
    left = bigsap.solve(
        tall(cost),
        method="auction",
        warm_start=g.random(40),
        checkpoint=path,
        callback=stop_after(ticks),
        **options,
    )
    assert left.status == "cancelled"
    found = bigsap.resume(path, tall(cost), threads=1)
    assert (found.status, found.fun) == ("optimal", pytest.approx(float(optimum(cost)[0]), rel=1e-12))


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_costs_may_be_near_the_largest_float(seed):
    """The bound of the first prices overflows; epsilon must not follow it."""
    cost = np.random.default_rng(seed).uniform(-4e306, 4e306, (40, 40))
    found = bigsap.solve(cost, method="auction", variant="scaled")
    assert found.success
    assert found.fun == bigsap.solve(cost, method="ssp").fun


def test_what_it_takes_is_told_and_does_not_depend_on_threads():
    cost = costs_of("10n", 60, 60, 2)
    first = check(cost, threads=1)
    again = check(cost, threads=2)
    assert first.stats["auction"] == again.stats["auction"]
    assert first.col4row.tolist() == again.col4row.tolist()
    assert first.stats["auction"]["phases"] > 1
    assert check(cost, variant="plain").stats["auction"]["phases"] == 1
    with pytest.raises(bigsap.OptionError, match="variant"):
        bigsap.solve(cost, method="auction", variant="tree")


def test_bids_are_the_same_in_short_slices(monkeypatch):
    cost = costs_of("10n", 40, 40, 2)
    first = check(cost)
    monkeypatch.setattr(auction, "_PAIRS", 1)
    again = check(cost)
    assert again.stats["auction"] == first.stats["auction"]
    assert again.col4row.tolist() == first.col4row.tolist()


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_an_invalid_cost_is_refused_before_any_bid(bad, monkeypatch):
    monkeypatch.setattr(auction, "run_bids", None)
    cost = costs_of("product", 30, 30, 2).astype(float)
    cost[5, 2] = cost[7, 1] = bad
    for given in (cost, lambda i, j: cost[i, j]):
        with pytest.raises(bigsap.InvalidCostError, match=r"cost\[5, 2\]"):
            bigsap.solve(given, shape=cost.shape, method="auction")
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[5, 2\]"):
        bigsap.solve(-cost, method="auction", maximize=True)


def test_a_memory_limit_below_all_costs_is_refused():
    x, y = np.random.default_rng(0).random((2, 60, 2))
    with pytest.raises(bigsap.OptionError, match=r"28800 bytes; memory_limit allows 28000"):
        bigsap.solve(bigsap.points(x, y), method="auction", memory_limit=28_000)
    res = bigsap.solve(bigsap.points(x, y), method="auction", memory_limit=28_800)
    assert res.stats["auction"]["bids"]
    cost = costs_of("10n", 60, 60, 2)  # costs in memory take none
    check(cost, memory_limit=1000)
    with pytest.raises(bigsap.OptionError, match="needs all costs in memory"):
        bigsap.solve(np.asfortranarray(cost[:40]), method="auction", memory_limit=1000)


def test_more_costs_than_the_machine_holds_are_refused():
    x = np.random.default_rng(0).random((3_000_000, 2))
    with pytest.raises(bigsap.OptionError, match="needs all costs in memory, 72000000000000 bytes; this"):
        bigsap.solve(bigsap.points(x, x), method="auction")


def test_endless_bids_are_left_to_searches(monkeypatch):
    monkeypatch.setattr(policy, "AUCTION_BIDS", 1)
    cost = costs_of("product", 50, 50, 2)
    assert check(cost, variant="plain").stats["auction"]["open"] > 0


def bids_by_rounds(cost, spread, epsilon):
    """Every free row bids at once; the lowest price wins, of equal ones the smallest row."""
    n, m = cost.shape
    v, row_of, free, count = np.zeros(m), np.full(m, -1), set(range(n)), 0
    while free:
        offers = {}
        for row in sorted(free):
            taus = cost[row] - v
            best, second = np.sort(taus)[:2] if m > 1 else (taus[0], np.inf)
            j = int(taus.argmin())
            rise = (second - best if second < np.inf else spread) + epsilon
            offers.setdefault(j, []).append((v[j] - rise, row))
        count += len(free)
        for j, made in offers.items():
            price, row = min(made)
            if row_of[j] >= 0:
                free.add(int(row_of[j]))
            free.discard(row)
            v[j], row_of[j] = price, row
    return v, row_of, count


def test_equal_offers_go_to_the_smallest_row():
    for seed in range(40):
        g = np.random.default_rng(seed)
        n = int(g.integers(2, 30))
        cost = g.integers(0, 3, (n, n + seed % 2)).astype(float)
        a = bidding.auction(n, np.zeros(cost.shape[1]))
        status = bidding.run_bids(cost, 1.0, np.inf, 9.0, 0.25, -1e9, 10**6, 10**6, a)
        assert status == DONE
        v, row_of, count = bids_by_rounds(cost, 9.0, 0.25)
        assert a.v.tolist() == v.tolist()
        assert a.row_of_column.tolist() == row_of.tolist()
        assert a.at.bids == count


@pytest.mark.parametrize("size", [1e6, 1e12, 2.0**63])
@pytest.mark.parametrize("shape", ["row", "column", "pair"])
def test_a_huge_cost_makes_no_more_bids(shape, size):
    """Epsilon follows the costs of most pairs; no bids where it vanishes next to the largest."""
    cost = np.random.default_rng(7).random((120, 120))
    usual = check(cost)
    if shape == "row":
        cost[3] += size
    elif shape == "column":
        cost[:, 5] += size
    else:
        cost[3], cost[:, 7] = size, size
        cost[3, 7] = size / 2
    found = check(cost)
    found.verify(cost)
    counts = found.stats["auction"]
    assert bool(counts) == (size < 1e13)
    if counts:
        assert counts["bids"] < 2 * usual.stats["auction"]["bids"]
        assert counts["open"] == 0
        assert counts["epsilon"] == pytest.approx(usual.stats["auction"]["epsilon"], rel=0.2)
    assert found.stats["rows_scanned"] < 6 * usual.stats["rows_scanned"]


def test_a_column_too_few_for_its_rows_ends_a_phase():
    """It is open, and the bids of its rows are limited. Whole numbers have no columns taken out as far."""
    cost = np.random.default_rng(7).integers(0, 10**9, (60, 60))
    usual = check(cost).stats
    cost[:, 5] += 10**15
    found = check(cost)
    found.verify(cost)
    counts = found.stats["auction"]
    assert counts["open"] == 1
    assert counts["bids"] < 12 * usual["auction"]["bids"]
    assert found.stats["rows_scanned"] < 6 * usual["rows_scanned"]
