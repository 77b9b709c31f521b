"""Rows evaluated by matrix products: the lists of a slow evaluation of every pair, bit for bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import bigsap
from bigsap import blas, policy
from bigsap.engine.core.state import ID
from bigsap.engine.core.team import Team
from bigsap.engine.lists import product_selection, products
from bigsap.engine.lists.bounded_evaluation import offset_of
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.multiplied import vectors_of
from contracts import whole

SOURCES = {
    "sqeuclidean": lambda x, y: bigsap.points(x, y),
    "weighted": lambda x, y: bigsap.points(x, y, w=np.linspace(0.1, 3, x.shape[1])),
    "euclidean": lambda x, y: bigsap.points(x, y, "euclidean"),
    "cosine": lambda x, y: bigsap.points(x, y, "cosine"),
    "lowrank": lambda x, y: bigsap.lowrank(x, y, row_terms=x[:, 0], column_terms=2 * y[:, 0]),
    "formula of squares": lambda x, y: formula("3 * sum((x[i, k] - y[j, k])**2 for k in range(D))", x, y),
    "formula of a root": lambda x, y: formula("sqrt(sum((y[j, k] - x[i, k])**2 for k in range(D)))", x, y),
    "formula of products": lambda x, y: formula(
        "1 - sum(x[i, k] * y[j, k] for k in range(D)) + y[j, 0]", x, y
    ),
    "formula of columns": lambda x, y: formula(
        "x[i, 1] - 2 * sum(x[i, k] * y[j, k] for k in range(D))", y, x
    ).transposed(),
}


def formula(text, x, y):
    return bigsap.expression(text, (len(x), len(y)), x=x, y=y)


def engine_for(source, k=20, threads=1, maximize=False):
    engine = ListEngine(Problem(source, maximize), Team(threads), Monitor(), np.dtype(np.float64), k, seed=1)
    if engine.blocks.offset.size:
        engine.drop_bounds()
    assert engine.products is not None
    return engine


def slow_list(row, cost, v, open_price, k):
    """The k best columns in the order of their places, and the smallest of the others."""
    m = cost.size
    places = (np.arange(m) + int(offset_of(row, 1, m))) % m
    tau = cost - v
    by_place = tau[places]
    order = np.argsort(by_place, kind="stable")
    order = order[np.isfinite(by_place[order])]
    kept, rest = np.sort(order[:k]), order[k:]
    theta = by_place[rest[0]] if rest.size else np.inf
    ids = places[kept]
    is_free = (open_price == v) & np.isfinite(v)
    free = np.flatnonzero(is_free[places])
    if free.size and not is_free[ids].any() and ids.size:
        worst = kept.size - 1 - int(np.argmax(by_place[kept][::-1]))
        theta = min(theta, by_place[kept[worst]])
        ids[worst] = places[free[np.argmin(by_place[free])]]
    return ids, cost[ids], theta


def check(engine, source, maximize=False, rows=None):
    rows = np.arange(source.shape[0]) if rows is None else rows
    cost = whole(source) * (-1 if maximize else 1)
    found = engine.lists
    for row in rows:
        at = slice(found.start[row], found.start[row] + found.size[row])
        ids, costs, theta = slow_list(row, cost[row], engine.v, engine.open_price, int(found.width[row]))
        assert np.array_equal(found.ids[at], ids), row
        assert np.array_equal(found.costs[at], costs)
        assert found.theta[row] == theta


def some_points(n, m, d, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)) + 3, generator.normal(size=(m, d)) + 3


def evaluated(source, v, open_price=None, **options):
    engine = engine_for(source, **options)
    engine.v[:] = v
    engine.open_price[:] = v if open_price is None else open_price
    rows = np.arange(source.shape[0], dtype=ID)
    assert engine.read_and_evaluate(rows)[1] == -1
    return engine


@pytest.mark.parametrize("kind", SOURCES)
def test_lists_are_those_of_every_pair(kind):
    x, y = some_points(70, 1100, 12)
    v = -np.abs(np.random.default_rng(1).normal(size=1100))
    source = SOURCES[kind](x, y)
    check(evaluated(source, v), source)


@pytest.mark.parametrize("kind", ["sqeuclidean", "lowrank", "cosine"])
def test_lists_of_a_maximum(kind):
    x, y = some_points(40, 700, 9)
    source = SOURCES[kind](x, y)
    engine = evaluated(source, np.zeros(700), maximize=True)
    check(engine, source, maximize=True)


@pytest.mark.parametrize("kind", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("share", [0.002, 0.5])
def test_the_best_free_column_is_listed(kind, share):
    x, y = some_points(60, 1000, 10)
    generator = np.random.default_rng(2)
    v = -generator.random(1000)
    free = generator.random(1000) < share
    free[500] = True
    source = SOURCES[kind](x, y)
    check(evaluated(source, v, np.where(free, v, -np.inf)), source)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("height", [1, 7, 1000])
def test_same_bits_for_any_threads_and_tiles(monkeypatch, threads, height):
    x, y = some_points(300, 2600, 20)
    v = -np.random.default_rng(1).random(2600)
    alone = evaluated(bigsap.points(x, y), v)
    monkeypatch.setattr(products, "TILE_ROWS", height)
    monkeypatch.setattr(products, "PANEL", 1024)
    others = evaluated(bigsap.points(x, y), v, threads=threads)
    others.team.close()
    for name in ("ids", "costs", "size", "theta"):
        size = 300 * 20 if name in ("ids", "costs") else 300
        assert np.array_equal(getattr(alone.lists, name)[:size], getattr(others.lists, name)[:size])


def near_duplicates(random):
    near = random.normal(size=(40, 16)) * 1e6
    close = near[random.integers(40, size=(2, 600))] + 1e-9 * random.normal(size=(2, 600, 16))
    close[0, 0] = close[1, 0] = 1.0
    return close


def outliers(random):
    far = random.normal(size=(2, 500, 16))
    far[0, 3] *= 1e6
    far[1, 7] *= 1e12
    return far


#: Points by name, from a generator of random numbers.
ATTACKS = {
    "near duplicates among large ones": near_duplicates,
    "outliers": outliers,
    "huge": lambda random: 1e150 * random.normal(size=(2, 300, 8)),
    "tiny": lambda random: 1e-170 * random.normal(size=(2, 300, 8)),
    "all equal": lambda random: np.full((2, 400, 8), 0.3),
    "duplicates": lambda random: random.integers(0, 2, (2, 500, 8)).astype(float),
    "2048 coordinates": lambda random: random.normal(size=(2, 300, 2048)) + 100,
    "12,000 coordinates": lambda random: random.normal(size=(2, 260, 12000)),
    "far apart": lambda random: random.normal(size=(2, 400, 10)) + np.array([[[0.0]], [[1e7]]]),
}


def attacked(name):
    return ATTACKS[name](np.random.default_rng(5))


@pytest.mark.some(18)
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(
    "kind",
    ["sqeuclidean", "formula of products", "euclidean", "lowrank", "formula of squares", "formula of a root"],
)
def test_bounds_hold_where_they_are_attacked(name, kind):
    x, y = attacked(name)
    if "formula" in kind:  # sums have at most 4,096 terms
        x, y = x[:, :4096], y[:, :4096]
    source = SOURCES[kind](x[:40], y)
    engine = ListEngine(Problem(source, False), Team(1), Monitor(), np.dtype(np.float64), 20, seed=1)
    if engine.blocks.offset.size:
        engine.drop_bounds()
    if engine.products is None:
        assert name in ("huge", "tiny")
        return
    for v in (np.zeros(len(y)), -np.abs(whole(source)[3])):
        engine.v[:] = engine.open_price[:] = v
        engine.read_and_evaluate(np.arange(40, dtype=ID))
        check(engine, source)


def test_a_solve_takes_products_and_is_optimal(monkeypatch):
    x, y = some_points(400, 400, 20)
    cost = whole(bigsap.points(x, y))
    called = []
    evaluate = products.Products.evaluate
    monkeypatch.setattr(
        products.Products,
        "evaluate",
        lambda self, rows, *rest: called.append(rows) or evaluate(self, rows, *rest),
    )
    monkeypatch.setattr(policy, "KEPT_BYTES", 0)
    found = bigsap.solve(bigsap.points(x, y), method="compressed", cache=4096)
    assert called
    assert found.fun == bigsap.solve(cost).fun
    assert found.status == "optimal"


@pytest.mark.parametrize("kept", [True, False])
def test_stale_rows_of_large_problems_are_evaluated_within_phases(monkeypatch, kept):
    """Prices in the midst of a phase rest on lists that are not stale, so fewer of them move."""
    x, y = some_points(600, 600, 20)
    options = {"method": "compressed", "certify": True} | ({} if kept else {"cache": 8 * 600})
    monkeypatch.setattr(policy, "MANY_LIST_SIZE", 10)
    monkeypatch.setattr(policy, "REACHES", 1e9)
    scans = {}
    for refreshed, rows in ((True, 100), (False, 10_000)):
        monkeypatch.setattr(policy, "REFRESHED_ROWS", rows)
        found = bigsap.solve(bigsap.points(x, y), **options)
        assert found.status == "optimal"
        scans[refreshed] = found.stats["rows_scanned"]
        assert found.fun == bigsap.solve(whole(bigsap.points(x, y)), method="ssp").fun
    assert scans[True] < scans[False]


def test_events_of_refreshed_lists_wait_for_what_the_lists_reach(monkeypatch):
    """Less postponed, more rows are asked for within the first phase."""
    x, y = some_points(600, 600, 20)
    monkeypatch.setattr(policy, "MANY_LIST_SIZE", 10)
    monkeypatch.setattr(policy, "REFRESHED_ROWS", 100)
    monkeypatch.setattr(policy, "REFRESH_SCANS", 1)  # within the phase, few lists are made anew before
    first = {}
    for reach in (0.5, 6.0):
        monkeypatch.setattr(policy, "REACHES", reach)
        found = bigsap.solve(bigsap.points(x, y), method="compressed")
        assert found.status == "optimal"
        first[reach] = found.stats["phases"][0]["rows_evaluated"]
    assert first[0.5] > first[6.0]


def test_products_use_one_thread_each_and_give_the_others_back():
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def threads():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with threadpoolctl.threadpool_limits(3, "blas"):
        with blas.one_thread(), blas.one_thread():
            assert set(threads()) <= {1}
        assert set(threads()) <= {3}
    assert threads() == before


@pytest.mark.parametrize("kind", ["sqeuclidean", "euclidean", "lowrank"])
def test_a_few_rows_have_the_lists_of_many(kind):
    x, y = some_points(40, 333, 9)
    v = -np.abs(np.random.default_rng(4).normal(size=333))
    source = SOURCES[kind](x, y)
    engine = evaluated(source, v)
    for count in (1, 2, 3, 5, 16):
        rows = np.arange(count, dtype=ID)
        engine.lists.size[rows] = 0
        assert engine.evaluate_by_products(rows, v) == -1
        check(engine, source, rows=rows)
    assert engine.products._tiles is not None


class Row(NamedTuple):
    """Of ``Candidates`` and ``Lists``, what ``_store`` reads and writes."""

    tau: np.ndarray
    costs: np.ndarray
    ids: np.ndarray


class Stored(NamedTuple):
    """Of ``Lists``, what ``_store`` writes."""

    start: np.ndarray
    size: np.ndarray
    theta: np.ndarray
    ids: np.ndarray
    costs: np.ndarray


def test_the_best_free_column_is_listed_once():
    rng = np.random.default_rng(8)
    for _ in range(200):
        n = int(rng.integers(1, 9))
        ids = rng.permutation(20)[:n].astype(np.int32)
        tau = rng.integers(0, 5, n).astype(float)
        made = Row(tau.copy(), tau + 10, ids.copy())
        free = int(rng.choice([-1, *range(20)]))
        best = (float(tau[ids == free][0]) if free in ids else 1.5, 11.5, free)
        lists = Stored(
            np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1), np.zeros(8, np.int32), np.zeros(8)
        )
        product_selection._store(0, n, 9.0, made, best, lists)
        found = lists.ids[:n].tolist()
        assert len(set(found)) == n
        assert free < 0 or free in found
        gone = set(ids.tolist()) - set(found)
        assert all(lists.theta[0] <= tau[ids == one][0] for one in gone)


def test_the_boundary_of_the_smallest():
    rng = np.random.default_rng(9)
    for _ in range(400):
        n = int(rng.integers(1, 40))
        k = int(rng.integers(1, n + 1))
        tau = rng.choice([rng.integers(0, 6, n).astype(float), rng.normal(size=n)])
        if n % 3 == 0:
            tau[0] = 1e300  # halving the range does not tell the others apart
        below, at, room = product_selection._boundary(tau, n, k)
        least = np.sort(tau)[:k].tolist()
        assert sorted([x for x in tau.tolist() if x <= below] + [at] * room) == least
        assert room <= (tau == at).sum()


def test_prices_beyond_the_unit_are_no_blocked_ones() -> None:
    lowered, out, roots = np.zeros(4), np.empty((1, 4), np.float32), np.empty((2, 4), np.float32)
    v = np.array([-1e290, -np.inf, 1e290, -1.0])
    most = float(np.finfo(np.float32).max) / 4
    product_selection.price_terms(v, lowered, 1e100, 1e-6, 1e-30, most, out)
    assert out[0].tolist()[:3] == [np.float32(most), np.inf, -np.inf]
    product_selection.price_terms(v, lowered, 1e100, 1e-6, 1e-30, most, roots)
    assert np.isfinite(roots[1, [0, 3]]).all()
    assert roots[1, 1] == -np.inf


@pytest.mark.parametrize("factor", [1.0, 9e99])
def test_weights_lift_no_squares_that_were_lost(factor: float) -> None:
    x, y = 1e-160 * np.random.default_rng(3).normal(size=(2, 400, 16))
    source = bigsap.scaled(bigsap.points(x, y, "euclidean"), factor)
    engine = ListEngine(Problem(source, False), Team(1), Monitor(), np.dtype(np.float64), 20, seed=1)
    assert engine.products is None
    assert vectors_of(source) is None
