"""Gated problems solved on the pairs below their row's price: the same optimum, few scans."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import policy
from bigsap.engine.sparse import pairs as P
from bigsap.engine.sparse.search import NEVER, search
from bigsap.proof.minima import minima
from bigsap.proof.row_minima import Prices
from bigsap.proof.unassigned import drop_clipped_pairs, extend_warm_start
from bigsap.sources import as_source
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import cheap_pairs, optional_rows
from contracts import whole
from examples_of import examples
from oracle import optimum, value
from pairwise import each

KINDS = ["f8", "f4", "i8", "i4", "u2"]


@pytest.fixture
def asked(monkeypatch):
    """Whether the answers came from the sparse search: one truth value each."""
    seen = []
    run = optional_rows.SparseGate.run

    def noted(self):
        done = run(self)
        seen.append(done)
        return done

    monkeypatch.setattr(optional_rows.SparseGate, "run", noted)
    return seen


def solve(cost, price, *, warm_start=None, **options):
    """``solve(..., unassigned_cost=price)``, not by the kernel for small arrays."""
    gated = ClippedCosts(as_source(cost), price, maximize=options.get("maximize", False))
    start = extend_warm_start(warm_start, gated)
    return drop_clipped_pairs(bigsap.solve(gated, warm_start=start, **options), gated)


def matrix(rng, shape, kind, maximize=False, forbidden=0.2):
    if kind[0] == "f":
        cost = rng.normal(0, 3, shape).astype(kind)
        cost[rng.random(shape) < forbidden] = -np.inf if maximize else np.inf
        return cost
    return rng.integers(0 if kind[0] == "u" else -40, 90, shape).astype(kind)


def tracks(n, seed=0, *, d=2, spread=0.15, keep=0.95):
    """Two pictures of the same points, each without some, and the mean distance of neighbours."""
    rng = np.random.default_rng(seed)
    spacing = n ** (-1 / d)
    places = rng.random((n, d))
    pictures = []
    for _ in range(2):
        seen = rng.permutation(n)[: int(keep * n)]
        pictures.append(places[seen] + rng.normal(0, spread * spacing, (seen.size, d)))
    return *pictures, spacing


def exact_total(cost, prices, result):
    """Pairs and prices paid, as a fraction."""
    out = result.col4row < 0
    paid = sum((Fraction(p.item()) for p in np.asarray(prices)[out]), Fraction(0))
    return value(cost, result.row_ind, result.col_ind) + paid


@examples(120)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(KINDS),
    st.booleans(),
    st.sampled_from(["one", "each", "half"]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_the_optimum_of_the_textbook(n, m, kind, maximize, prices, seed, warm):
    """The problem with a private column for each row, solved by code that shares nothing."""
    rng = np.random.default_rng(seed)
    cost = matrix(rng, (n, m), kind, maximize)
    price = {
        "one": np.full(n, int(rng.integers(-30, 60))),
        "each": rng.integers(-30, 60, n),
        "half": rng.integers(-30, 60, n) / 2,
    }[prices]
    start = (rng.integers(-9, 3, m), rng.permutation(max(n, m))[:n]) if warm else None
    if start is not None:
        start[1][start[1] >= m] = -1
    result = solve(cost, price, maximize=maximize, warm_start=start)
    wide = np.full((n, m + n), -np.inf if maximize else np.inf)
    wide[:, :m] = cost
    wide[np.arange(n), m + np.arange(n)] = price
    best, _ = optimum(wide, maximize)
    assert abs(exact_total(cost, price, result) - best) <= 1e-12 * (1 + abs(best))
    assert result.verify(cost, unassigned_cost=price).optimal
    plain = solve(cost, price, maximize=maximize, method="ssp")
    assert plain.fun == pytest.approx(result.fun, rel=1e-12, abs=1e-12)


@each(shape=[(180, 180), (150, 190), (190, 140)], maximize=[False, True], kind=KINDS)
def test_the_answer_of_the_long_way(asked, shape, maximize, kind):
    rng = np.random.default_rng([*shape, maximize])
    cost = matrix(rng, shape, kind, maximize)
    ends = [0.0, 0.04]
    if maximize:
        ends = [1.0, 0.96]
    finite = cost[np.isfinite(cost)].astype(float)
    price = rng.choice(np.quantile(finite, ends), shape[0]).round()
    few = solve(cost, price, maximize=maximize)
    assert asked == [True]
    long = solve(cost, price, maximize=maximize, method="ssp")
    assert asked == [True]
    assert few.fun == pytest.approx(long.fun, rel=1e-12)
    assert few.stats["unassigned_rows"] > 0
    assert few.verify(cost, unassigned_cost=price).optimal
    assert few.nit == 1


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock", "chebyshev"])
@pytest.mark.parametrize("gate", [0.5, 2.0])
def test_points_open_few_blocks(asked, metric, gate):
    """Bounds of blocks lose no pair: the same lists as of the matrix."""
    x, y, spacing = tracks(3000, 3)
    source = bigsap.points(x, y, metric)
    price = gate * spacing
    price = price**2 if metric == "sqeuclidean" else price
    found = solve(source, price)
    n, m = found.shape
    costs = whole(source)
    same = solve(costs, price)
    assert asked == [True, True]
    assert found.fun == same.fun
    assert (found.col4row == same.col4row).all()
    assert found.stats["pairs_evaluated"] < 0.12 * n * m
    assert found.stats["rows_scanned"] < 4 * n


def test_many_coordinates(asked):
    """Blocks are in no use any more: rows are kept as they are read, each once."""
    x, y, spacing = tracks(1500, 4, d=8, spread=0.05)
    found = solve(bigsap.points(x, y, "euclidean"), spacing)
    assert asked == [True]
    n, m = found.shape
    assert found.stats["pairs_evaluated"] == n * m
    assert found.verify(bigsap.points(x, y, "euclidean"), unassigned_cost=spacing).optimal


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_find_the_same(threads, monkeypatch):
    monkeypatch.setattr(policy, "TEAM_PAIRS", 0)
    x, y, spacing = tracks(2100, 5)
    one = solve(bigsap.points(x, y), spacing**2, threads=1)
    more = solve(bigsap.points(x, y), spacing**2, threads=threads)
    assert (one.col4row == more.col4row).all()
    assert (one.v == more.v).all()
    for count in ("rows_scanned", "pairs_evaluated", "rows_evaluated"):
        assert one.stats[count] == more.stats[count]


def test_lists_longer_than_a_threads_room(asked, monkeypatch):
    """Rows that all come at once do not fit into the room of one reading."""
    monkeypatch.setattr(cheap_pairs, "_ROOM", 100)
    rng = np.random.default_rng(6)
    cost = rng.random((900, 3000))
    price = np.quantile(cost, 0.1)
    found = solve(cost, price)
    assert asked == [True]
    assert found.fun == pytest.approx(solve(cost, price, method="ssp").fun, rel=1e-12)


def test_from_the_frame_before():
    """Few rows are searched when little has changed; the same optimum as from nothing."""
    rng = np.random.default_rng(7)
    x, y, spacing = tracks(4000, 7, spread=0.05)
    price = spacing**2
    before = solve(bigsap.points(x, y), price)
    moved = rng.permutation(len(x))[:20]
    x[moved] += rng.normal(0, spacing, (20, 2))
    costs = bigsap.points(x, y)
    warm = solve(costs, price, warm_start=before)
    cold = solve(costs, price)
    assert warm.fun == pytest.approx(cold.fun, rel=1e-12)
    assert warm.stats["rows_scanned"] < 0.3 * cold.stats["rows_scanned"]
    assert warm.verify(costs, unassigned_cost=price).optimal


def test_pairs_that_unravel_round_by_round(monkeypatch):
    """Freed columns make other pairs loose; too many rounds, and nothing is kept."""
    n = 40
    cost = np.full((n, n), np.inf)
    np.fill_diagonal(cost, 2.0)
    # Each row would rather have the next one's column, were its price not that low.
    cost[np.arange(n - 1), np.arange(1, n)] = 1.5
    v = -np.arange(n)[::-1].astype(float)
    v[:] = -0.5 * np.arange(n)
    start = (v, np.arange(n))
    whole = solve(cost, 50.0)
    assert solve(cost, 50.0, warm_start=start).fun == whole.fun == 2.0 * n
    # Without the last column, all but one row move on.
    cost[-1, -1] = np.inf
    one = solve(cost, 50.0, warm_start=start)
    monkeypatch.setattr(policy, "OPTIONAL_WARM_ROUNDS", 1)
    two = solve(cost, 50.0, warm_start=start)
    assert one.fun == two.fun == solve(cost, 50.0, method="ssp").fun


@pytest.mark.parametrize("why", ["must", "many", "named", "started", "no epsilon", "memory"])
def test_other_problems_go_the_long_way(asked, why):
    rng = np.random.default_rng(8)
    cost = rng.random((300, 300))
    price = np.full(300, np.quantile(cost, 0.02))
    options = {}
    if why == "must":
        price[3] = np.inf
    elif why == "many":
        price[:] = np.quantile(cost, 0.5)
    elif why == "named":
        options = {"method": "ssp"}
    elif why == "started":
        options = {"start": "none"}
    elif why == "no epsilon":
        options = {"epsilon": False}
    elif why == "memory":
        options = {"memory_limit": 20_000}
    found = solve(cost, price, **options)
    assert asked == []
    assert found.status == "optimal"


def test_a_search_that_takes_too_long_is_left(asked, monkeypatch):
    rng = np.random.default_rng(9)
    cost = rng.random((400, 400))
    price = np.quantile(cost, 0.05)
    monkeypatch.setattr(optional_rows, "_FIRST_ENTRIES", 256)
    monkeypatch.setattr(policy, "OPTIONAL_PATIENCE", 0.01)
    found = solve(cost, price)
    assert asked == [False]
    assert found.status == "optimal"
    assert found.fun == pytest.approx(solve(cost, price, method="ssp").fun, rel=1e-12)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("certify", [True, False])
def test_invalid_costs_are_named(bad, certify):
    cost = np.random.default_rng(10).random((200, 220))
    cost[17, 33] = bad
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[17, 33\]"):
        solve(cost, 0.02, certify=certify)


@pytest.mark.usefixtures("unhurried")
def test_a_stop_has_the_matching_at_hand():
    """Rows that are still ahead stay unassigned, and the bound holds."""
    x, y, spacing = tracks(30_000, 11, spread=0.6)
    costs, price = bigsap.points(x, y), (2 * spacing) ** 2
    best = solve(costs, price)
    seen = []

    def enough(progress):
        seen.append((progress.stage, progress.assigned))
        if progress.stage == "search" and progress.assigned > 1000:
            raise StopIteration

    found = solve(costs, price, callback=enough, callback_every=0.0, certify=True)
    assert found.status in ("cancelled", "optimal")
    assert seen
    assert found.bound <= best.fun * (1 + 1e-12)
    assert found.fun >= best.fun * (1 - 1e-12)
    assert found.verify(costs, unassigned_cost=price).gap is not None


def test_prices_far_above_all_costs():
    """As many pairs as possible first, then the cheapest: prices do not absorb the costs."""
    rng = np.random.default_rng(13)
    cost = np.full((400, 400), np.inf)
    near = rng.random((400, 400)) < 0.01
    cost[near] = rng.random(near.sum())
    found = solve(cost, 1e7)
    other = solve(cost, 1e7, method="ssp")
    assert found.fun == pytest.approx(other.fun, rel=1e-13)
    assert found.verify(cost, unassigned_cost=1e7).optimal


def test_large_integers_are_exact(asked):
    """Whole numbers too large for float64 prices."""
    rng = np.random.default_rng(14)
    cost = rng.integers(0, 100, (120, 130)) + (1 << 49)
    price = (1 << 49) + 4
    found = solve(cost, price)
    assert asked[-1:] == [True]
    small = solve(cost - (1 << 49), 4)
    assert found.fun == small.fun + 120 * (1 << 49)


@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("maximize", [True, False])
def test_large_integers_and_rows_that_must_be_assigned(maximize, certify):
    """What stands for no price at all, the end of int64, has no other sign."""
    rng = np.random.default_rng(18)
    cost = rng.integers(0, 1 << 33, (120, 120))
    price = np.full(120, float((1 << 33) * (0.995 if maximize else 0.005) // 1))
    price[::7] = -np.inf if maximize else np.inf
    found = solve(cost, price, maximize=maximize, certify=certify)
    wide = np.full((120, 240), -np.inf if maximize else np.inf)
    wide[:, :120] = cost
    wide[np.arange(120), 120 + np.arange(120)] = price
    best, _ = optimum(wide, maximize)
    assert found.fun == best
    assert (found.col4row[::7] >= 0).all()
    assert found.verify(cost, unassigned_cost=price).optimal


def test_the_pass_over_a_matrix_in_place():
    """Rows that must be assigned have no clipped costs, whatever the prices of columns are."""
    cost = np.random.default_rng(19).integers(0, 1 << 40, (3, 4))
    for maximize in (False, True):
        must = -np.inf if maximize else np.inf
        gated = ClippedCosts(as_source(cost), np.array([must, 5, 1 << 39]), maximize=maximize)
        clipped = np.empty(gated.shape, gated.dtype)
        gated.read(np.arange(3), slice(0, 4), clipped)
        v = np.array([-1, -2, -3, -(1 << 30)])
        found, _ = minima(gated, np.array([3, 1, -1]), Prices(v), maximize)
        matched = found.matched
        assert (found.high == ((-clipped if maximize else clipped) - v).min(axis=1)).all()
        assert matched.tolist() == [clipped[0, 3], clipped[1, 1], 0]


def test_rows_that_were_read_are_counted(monkeypatch):
    """Where too many pairs are below the price, those of the rows until then."""
    seen = []
    count = cheap_pairs.CheapPairs._count
    monkeypatch.setattr(policy, "TEAM_PAIRS", 1 << 60)
    monkeypatch.setattr(
        cheap_pairs.CheapPairs,
        "_count",
        staticmethod(lambda counts, rows, f: seen.append(rows) or count(counts, rows, f)),
    )
    cost = np.ones((2000, 2000))
    cost[:900] = 0  # most of the sample, and more than a row's share
    found = solve(cost, 0.5)
    assert found.status == "optimal"
    assert 0 < sum(seen) < 500


def test_rows_that_python_delivers_go_the_long_way(asked):
    """Workers of a cluster evaluate them as lists ask for them: the bits must be the same."""
    cost = np.random.default_rng(16).random((400, 420))
    source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    found = solve(source, 0.01, method="compressed")
    assert asked == []
    assert found.fun == pytest.approx(solve(cost, 0.01).fun, rel=1e-12)
    assert asked == [True]


def test_prices_never_rise_and_pairs_stay_tight():
    """The kernel's own invariants, search by search."""
    rng = np.random.default_rng(17)
    n, m = 60, 50
    size = rng.integers(0, 9, n)
    start = np.concatenate(([0], np.cumsum(size)))
    ids = np.concatenate([rng.permutation(m)[:k] for k in size]).astype(np.int32)
    p = P.Pairs(start, ids, rng.random(start[-1]), np.full(n, 0.7), 1.0, 0.0, 1.0, np.inf)
    s, labels = P.matching(n, m, np.dtype(float)), P.labels(m, np.dtype(float))
    s.queue[:], s.at.n_queue = np.arange(n), n
    before = s.v.copy()
    for done in range(1, n + 1):
        while s.at.position < done:
            search(p, s, labels, -np.inf, NEVER, 1)
        assert (s.v <= before).all()
        before = s.v.copy()
        assert (s.v[s.row_of_column < 0] == 0).all()
        for i in range(done):
            mine = slice(start[i], start[i + 1])
            low = min([p.own[i], *(p.costs[mine] - s.v[ids[mine]])])
            j = s.column_of_row[i]
            has = p.own[i] if j == P.PRIVATE else s.match_cost[i] - s.v[j]
            assert has == pytest.approx(low, abs=1e-12)


def test_warnings_stay_away():
    """Costs beyond all reason are left to the long way, quietly."""
    cost = np.array([[1e308, 1.0], [-1e308, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = solve(cost, 1.2e308)
    assert found.fun == -1e308


def test_problems_without_a_price_are_left_alone():
    """No other first prices are told of, and a warm start is made ready once."""
    cost = np.random.default_rng(20).random((80, 60))
    before = bigsap.solve(cost)
    found = bigsap.solve(cost, warm_start=before.v)
    assert found.stats["first_prices"] is None
    assert found.fun == before.fun
