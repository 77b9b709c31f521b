"""The Hungarian method, trees and zeros: answers, invariants of every stage, counters, stops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import policy
from bigsap.engine.trees import forest as T
from bigsap.engine.trees import grow
from bigsap.strategies import trees as H
from examples_of import examples
from oracle import optimum
from pairwise import each
from whole_numbers import KINDS, costs_of

VARIANTS = ("auto", "tree", "classical")
DTYPES = ("f8", "f4", "i8", "i4", "u1", "u2")


def check(cost, *, maximize=False, **options):
    """Solve, and compare with the oracle; the result."""
    result = bigsap.solve(cost, method="hungarian", maximize=maximize, **options)
    best = optimum(cost, maximize)
    if best is None:
        assert result.status == "infeasible"
        assert result.violator.size
        return result
    assert result.status == "optimal"
    if np.asarray(cost).dtype.kind in "iu":
        assert result.fun == best[0]
    else:
        assert result.fun == pytest.approx(float(best[0]), rel=1e-12)
    return result


@pytest.mark.some(12)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_instances(kind, variant):
    for n, m in ((1, 1), (2, 2), (31, 31), (33, 33), (32, 65)):
        cost = costs_of(kind, n, m, n)
        check(cost, variant=variant)
        check(cost, variant=variant, maximize=True)


@pytest.mark.some(8)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_shapes_and_senses(dtype, variant):
    for n, m in ((20, 20), (20, 21), (9, 40), (3, 300), (40, 9), (21, 20)):
        cost = costs_of("n", n, m, 3).clip(0, 200).astype(dtype)
        for maximize in (False, True):
            check(cost, variant=variant, maximize=maximize)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_multiples_of_a_power_of_two_are_solved_as_whole_numbers_are(dtype, variant):
    """The same matching, counts and prices as of the integers: sums of such numbers are exact
    while they fit the 53 bits of float64, so nothing is rounded and the gap is 0, not small."""
    for kind, n, m in (("n", 60, 60), ("10n", 50, 70), ("few cheap", 40, 40), ("product", 30, 30)):
        whole = costs_of(kind, n, m, 6) - 11
        for exponent in (-9, 0, 7):
            cost = np.ldexp(whole, exponent).astype(dtype)
            for maximize in (False, True):
                told = {"method": "hungarian", "variant": variant, "maximize": maximize}
                integer = bigsap.solve(whole, **told)
                real = bigsap.solve(cost, **told)
                assert real.gap == 0.0
                assert real.fun == np.ldexp(float(integer.fun), exponent)
                assert real.col4row.tolist() == integer.col4row.tolist()
                assert real.stats["trees"] == integer.stats["trees"]
                assert (real.v == np.ldexp(integer.v, exponent)).all()
                assert (real.u == np.ldexp(integer.u, exponent)).all()


@pytest.mark.some(1)
@pytest.mark.parametrize("variant", VARIANTS)
def test_large_integers(variant):
    g = np.random.default_rng(0)
    for dtype, low, high in (
        (np.int32, -(2**31), 2**31 - 1),
        (np.uint32, 0, 2**32 - 1),
        (np.int64, -(2**50), 2**50),
    ):
        cost = g.integers(low, high, (25, 25), dtype=dtype, endpoint=True)
        check(cost, variant=variant)
        check(cost, variant=variant, maximize=True)
    with pytest.raises(bigsap.OverflowRiskError):
        bigsap.solve(np.full((4, 4), 2**62), method="hungarian", variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_forbidden_pairs(variant):
    for seed in range(30):
        g = np.random.default_rng(seed)
        n = int(g.integers(2, 24))
        m = n + int(g.integers(0, 5))
        cost = g.integers(0, 9, (n, m)).astype(float)
        cost[g.random((n, m)) < g.choice([0.2, 0.6, 0.85])] = np.inf
        result = check(cost, variant=variant)
        if result.status == "infeasible":
            rows = result.violator
            allowed = np.isfinite(cost[rows]).any(0).sum()
            assert allowed < rows.size


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_invalid_costs_are_named(bad, variant):
    cost = np.random.default_rng(0).random((30, 30))
    cost[17, 5] = bad
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[17, 5\]"):
        bigsap.solve(cost, method="hungarian", variant=variant)


@examples(150)
@given(data=st.data())
def test_any_small_problem(data):
    n = data.draw(st.integers(1, 7))
    m = data.draw(st.integers(n, 9))
    entry = st.one_of(st.integers(0, 4).map(float), st.just(np.inf), st.floats(-3, 3, width=32))
    rows = st.lists(entry, min_size=m, max_size=m)
    cost = np.array(data.draw(st.lists(rows, min_size=n, max_size=n)))
    check(cost, variant=data.draw(st.sampled_from(VARIANTS)))


@each(k=[1, 2, 5], kind=KINDS)
def test_short_lists_end_and_are_renewed(kind, k, monkeypatch):
    monkeypatch.setattr(policy, "TREE_LIST_SIZE", k)
    events = 0
    for n, m in ((24, 24), (40, 40), (20, 50)):
        result = check(costs_of(kind, n, m, k), variant="tree")
        events += result.stats["trees"]["list_events"]
    if k == 1 and kind in ("n", "10n", "few cheap", "product"):
        assert events


class Watched:
    """``run_forest``, and what holds whenever it returns."""

    def __init__(self, cost, monkeypatch):
        self.cost, self.prices, self.now, self.seen = cost, None, 0.0, 0
        self.true = grow.run_forest
        monkeypatch.setattr(grow, "run_forest", self)

    def __call__(self, lists, v, column_of_row, row_of_column, match_cost, f, *rest):
        status = self.true(lists, v, column_of_row, row_of_column, match_cost, f, *rest)
        prices = T.true_prices(v, f)
        slack = self.cost - prices
        matched = np.flatnonzero(column_of_row >= 0)
        assert (slack[matched, column_of_row[matched]] == slack.min(1)[matched]).all()
        assert self.prices is None or (prices <= self.prices).all()
        if self.cost.shape[0] < self.cost.shape[1]:
            assert (prices[row_of_column < 0] == 0).all()
        rows = f.rows[: f.at.n_rows]
        assert len(set(rows.tolist())) == rows.size
        assert (f.root[f.root[rows]] == f.root[rows]).all()
        assert (column_of_row[f.root[rows]] == -1).all()
        assert f.at.clock >= self.now
        self.prices, self.now = prices, f.at.clock
        self.seen += 1
        return status


@pytest.mark.parametrize("shape", [(40, 40), (30, 60)])
@pytest.mark.parametrize("kind", ["n", "10n", "few cheap", "product"])
def test_every_slice_is_dual_feasible(kind, shape, monkeypatch):
    """Pairs are tight, prices only fall, free columns keep theirs, the clock never goes back."""
    monkeypatch.setattr(policy, "TREE_LIST_SIZE", 4)
    monkeypatch.setattr(H, "_FIRST_WORK", 1)
    monkeypatch.setattr(H, "_LEAST_WORK", 1)
    monkeypatch.setattr(H, "_SLICE_SECONDS", 0.0)
    cost = costs_of(kind, *shape, 1)
    watched = Watched(cost, monkeypatch)
    check(cost, variant="tree")
    assert watched.seen > 5


def facts(result):
    return result.col4row.tolist(), result.stats["trees"], result.v.tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_and_slices_change_nothing(variant, monkeypatch):
    for kind, n, m in (("n", 150, 150), ("10n", 150, 150), ("two values", 80, 130)):
        cost = costs_of(kind, n, m, 5)
        first = facts(bigsap.solve(cost, method="hungarian", variant=variant, threads=1))
        for threads in (2, 3):
            again = bigsap.solve(cost, method="hungarian", variant=variant, threads=threads)
            assert facts(again) == first
        with monkeypatch.context() as patch:
            patch.setattr(H, "_FIRST_WORK", 3)
            patch.setattr(H, "_LEAST_WORK", 3)
            patch.setattr(H, "_SLICE_SECONDS", 0.0)
            assert facts(bigsap.solve(cost, method="hungarian", variant=variant)) == first


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_through_python(variant):
    cost = costs_of("n", 40, 60, 2)
    result = bigsap.solve(
        lambda i: cost[i].astype(float), shape=cost.shape, method="hungarian", variant=variant
    )
    assert result.fun == optimum(cost)[0]
    x, y = np.random.default_rng(1).random((2, 50, 2))
    near = bigsap.solve(bigsap.points(x, y), method="hungarian", variant=variant)
    assert near.fun == pytest.approx(bigsap.solve(bigsap.points(x, y), method="ssp").fun)


def test_tall_costs_that_have_no_transpose_are_refused():
    cost = costs_of("n", 60, 40, 2)
    with pytest.raises(bigsap.OptionError, match="no more rows than columns"):
        bigsap.solve(lambda i: cost[i] * 1.0, shape=cost.shape, method="hungarian")


@pytest.mark.parametrize("method", ["hungarian", "auction"])
def test_a_wide_file_by_columns_is_refused_by_its_own_shape(tmp_path, method):
    np.save(tmp_path / "c.npy", np.asfortranarray(costs_of("n", 20, 90, 2)))
    with pytest.raises(bigsap.OptionError, match=r"shape \(20, 90\).* copy in C order"):
        bigsap.solve(bigsap.from_npy(tmp_path / "c.npy"), method=method)
    bigsap.solve(np.ascontiguousarray(np.load(tmp_path / "c.npy")), method=method)


@pytest.mark.parametrize("variant", VARIANTS)
def test_warm_starts(variant):
    for n, m in ((60, 60), (40, 70)):
        cost = costs_of("10n", n, m, 4)
        cold = check(cost, variant=variant)
        again = check(cost, variant=variant, warm_start=cold)
        if variant != "classical":
            assert again.stats["trees"]["roots"] == 0
        changed = cost.copy()
        changed[3] = changed[3][::-1]
        changed[:, 7] += 20
        check(changed, variant=variant, warm_start=cold)
        check(changed, variant=variant, warm_start=cold.v)
        wild = np.random.default_rng(0).integers(-900, 900, m).astype(float)
        check(changed, variant=variant, warm_start=wild)


@pytest.mark.some(3)
@pytest.mark.parametrize("variant", ["tree", "auto"])
@pytest.mark.parametrize("limit", [20_400, 40_000, 80_000])
def test_trees_with_short_lists_are_left_to_searches(variant, limit):
    """130 rows of rank 1, whose trees would read each row hundreds of times."""
    x, y = np.random.default_rng(0).random((2, 130, 1))
    result = bigsap.solve(bigsap.lowrank(x, y), method="hungarian", variant=variant, memory_limit=limit)
    assert result.fun == pytest.approx(np.sort(x[:, 0]) @ np.sort(y[:, 0])[::-1])
    assert result.stats["rows_evaluated"] < 250 * 130


def test_two_columns_that_hardly_any_row_can_pay_for():
    """Prices of all other columns fall by 1e12, a list's reach at a time."""
    cost = np.random.default_rng(0).random((80, 80))
    cost[1:, :2] = 1e12
    result = bigsap.solve(
        lambda row: cost[row], shape=(80, 80), dtype=float, method="hungarian", variant="tree"
    )
    assert result.fun == float(optimum(cost)[0])
    assert result.stats["rows_evaluated"] < 32 * 80


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_checkpoint_continues_bit_for_bit(variant, tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "TREE_LIST_SIZE", 4)
    monkeypatch.setattr(H, "_FIRST_WORK", 50)
    monkeypatch.setattr(H, "_LEAST_WORK", 50)
    monkeypatch.setattr(H, "_SLICE_SECONDS", 0.0)
    cost = costs_of("10n", 120, 120, 6)
    whole = bigsap.solve(cost, method="hungarian", variant=variant)
    path = tmp_path / "state"
    for stop in range(1, 12, 2):
        calls = [0]

        def leave(progress, calls=calls, stop=stop):
            calls[0] += progress.stage == "search"
            if calls[0] > stop:
                raise StopIteration

        left = bigsap.solve(
            cost,
            method="hungarian",
            variant=variant,
            checkpoint=path,
            checkpoint_every=1e-9,
            callback=leave,
            callback_every=1e-9,
        )
        assert left.status == "cancelled"
        done = bigsap.resume(path, cost)
        assert done.stats["resumed"] == 1
        assert facts(done) == facts(whole)


def test_options_are_judged():
    cost = np.eye(3)
    with pytest.raises(bigsap.OptionError, match="variant"):
        bigsap.solve(cost, method="hungarian", variant="fast")
    with pytest.raises(bigsap.OptionError, match="variant"):
        bigsap.solve(cost, method="ssp", variant="tree")
    with pytest.raises(bigsap.OptionError, match="variant"):
        bigsap.solve(cost, variant="tree")


def test_unassigned_rows_and_no_certificate():
    cost = costs_of("n", 40, 40, 9)
    for variant in VARIANTS:
        gated = bigsap.solve(cost, method="hungarian", variant=variant, unassigned_cost=3)
        assert gated.fun == bigsap.solve(cost, method="ssp", unassigned_cost=3).fun
        bare = bigsap.solve(cost, method="hungarian", variant=variant, certify=False)
        assert bare.fun == optimum(cost)[0]
        assert bare.bound is None


def test_what_auto_takes(monkeypatch):
    """Ties in unrelated rows; not so few rows, no ties, distances, or another start."""
    g = np.random.default_rng(0)
    n = 1500
    ties = g.integers(0, 10 * n, (n, n))
    assert bigsap.solve(ties).stats["method"] == "hungarian"
    assert bigsap.solve(-ties, maximize=True).stats["method"] == "hungarian"
    assert bigsap.solve(ties / 4).stats["method"] == "hungarian"  # ties are what counts
    for other in (ties[:600, :600], ties[:, :-1], g.integers(0, 1000 * n, (n, n)), g.random((n, n))):
        assert bigsap.solve(other, certify=False).stats["method"] != "hungarian"
    x = g.random((n, 2))
    far = (1e5 * ((x[:, None] - g.random((n, 2))) ** 2).sum(2)).astype(int)
    assert bigsap.solve(far, certify=False).stats["method"] != "hungarian"
    assert bigsap.solve(ties, start="none", certify=False).stats["method"] != "hungarian"
