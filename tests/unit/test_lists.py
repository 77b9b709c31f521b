"""Evaluation into lists: what a list and its threshold promise, checked on every pair."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import policy
from bigsap.engine.core import team as engine_team
from bigsap.engine.core.incumbent import row_floors
from bigsap.engine.core.state import ID
from bigsap.engine.core.team import Team
from bigsap.engine.lists import bounded_evaluation, bounds
from bigsap.engine.lists import layout as lists
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.ordering import compact_order
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.sources.combined import scaled
from bigsap.strategies import list_sizes
from examples_of import examples
from instances import points_of
from pairwise import each


def engine_for(cost, k, *, threads=1, maximize=False):
    source = as_source(cost)
    return ListEngine(Problem(source, maximize), Team(threads), Monitor(), np.dtype(np.float64), k, seed=1)


def dense(source):
    n, m = source.shape
    out = np.empty((n, m), source.dtype)
    source.read(np.arange(n), slice(0, m), out)
    return out.astype(np.float64)


def check_lists(engine, cost, v, free=None):
    """Every promise of the store; costs signed, (n, m)."""
    found = engine.lists
    for row in range(cost.shape[0]):
        start, size = found.start[row], found.size[row]
        assert size <= found.width[row]
        ids = found.ids[start : start + size]
        assert len(set(ids.tolist())) == size
        reference = found.reference[row]
        assert np.array_equal(found.costs[start : start + size], cost[row, ids] - reference)
        tau = (cost[row] - reference) - v
        outside = np.setdiff1d(np.arange(cost.shape[1]), ids)
        if outside.size:
            assert tau[outside].min() >= found.theta[row]
        else:
            assert found.theta[row] >= tau.max()
        k = int(found.width[row])
        best = np.sort(tau[np.isfinite(tau)])
        # Nearly all of the k best, and none beyond them but the best free column.
        assert size >= min(k - k // 16, best.size) - 1
        if free is not None and free.any() and np.isfinite(tau[free]).any():
            assert tau[free].min() == tau[ids][free[ids]].min()


@examples(60)
@given(
    st.integers(1, 6),
    st.integers(1, 300),
    # With more than 57 entries, the groups of these rows are too few to limit them.
    st.integers(1, 40) | st.integers(56, 120),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["real", "ties", "holes", "offset", "constant"]),
)
def test_lists_keep_their_promises(n, m, k, seed, kind):
    generator = np.random.default_rng(seed)
    cost = generator.random((n, m))
    if kind == "ties":
        cost = generator.integers(0, 3, (n, m)).astype(float)
    elif kind == "holes":
        cost[generator.random((n, m)) < 0.5] = np.inf
    elif kind == "offset":
        cost += 1e9
    elif kind == "constant":
        cost[:] = 7.0
    engine = engine_for(cost, k)
    engine.v[:] = -generator.random(m) if kind != "ties" else -generator.integers(0, 3, m)
    free = generator.random(m) < 0.3
    engine.open_price[:] = np.where(free, engine.v, -np.inf)
    engine.evaluate(np.arange(n))
    check_lists(engine, cost, engine.v, free)
    # Prices fall; the thresholds stay valid without another look.
    engine.v -= generator.random(m)
    for row in range(n):
        start, size = engine.lists.start[row], engine.lists.size[row]
        outside = np.setdiff1d(np.arange(m), engine.lists.ids[start : start + size])
        tau = (cost[row] - engine.lists.reference[row]) - engine.v
        assert not outside.size or tau[outside].min() >= engine.lists.theta[row]


def test_wide_rows_are_thinned_panel_by_panel():
    generator = np.random.default_rng(3)
    m = 3 * lists.PANEL + 77
    cost = np.stack([np.sort(generator.random(m))[::-1], generator.random(m), np.arange(m) % 5.0])
    engine = engine_for(cost, 50)
    engine.open_price[:] = -np.inf
    engine.evaluate(np.arange(3))
    check_lists(engine, cost, engine.v)


SEPARABLE = ["sqeuclidean", "cityblock", "euclidean", "chebyshev", "weighted", "lowrank"]


def separable(kind, n, m, generator):
    if kind == "lowrank":
        return bigsap.lowrank(generator.normal(size=(n, 3)), generator.normal(size=(m, 3)))
    d = 3
    w = [1.0, 0.5, 2.0] if kind == "weighted" else None
    metric = "sqeuclidean" if kind == "weighted" else kind
    return bigsap.points(generator.random((n, d)), generator.random((m, d)) * 3, metric, w=w)


@pytest.mark.parametrize("n_threads", [2, 3, 64])
def test_majorants_are_the_same_for_any_number_of_threads(n_threads, monkeypatch):
    monkeypatch.setattr(engine_team, "_MANY", 1)
    generator = np.random.default_rng(1)
    m = 5000
    source = separable(SEPARABLE[0], 30, m, generator)
    y = source.separable().y
    v = generator.normal(size=m) + y.sum(axis=0)
    alone, shared = bounds.blocks_of(source), bounds.blocks_of(source)
    bounds.fit(alone, y, v, Team(1))
    with Team(n_threads) as team:
        bounds.fit(shared, y, v, team)
    assert alone.offset.all()
    for name in ("slope", "offset", "margin"):
        assert np.array_equal(getattr(shared, name), getattr(alone, name)), name


@pytest.mark.parametrize("n_threads", [1, 3])
def test_least_entries_are_the_same_for_any_number_of_threads(n_threads, monkeypatch):
    monkeypatch.setattr(engine_team, "_MANY", 1)
    cost = np.random.default_rng(2).random((70, 90))
    with Team(n_threads) as team:
        problem = Problem(as_source(cost))
        engine = ListEngine(problem, team, Monitor(), np.dtype(np.float64), 8, 0)
        engine.evaluate(np.arange(70, dtype=ID))
        engine.v -= np.arange(90) / 300.0
        low = engine.list_minima()
    assert np.array_equal(engine.list_minima(), low)  # the members are gone
    lists = engine.lists
    for row, start in enumerate(lists.start.tolist()):
        ids = lists.ids[start : start + lists.size[row]]
        own = lists.costs[start : start + ids.size] - engine.v[ids]
        assert low[row] == own.min() + lists.reference[row]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("k", [3, 9, 40])
def test_the_greedy_gap_is_that_of_whole_lists(k, n_threads, monkeypatch):
    """Ties, full lists, rows whose whole list is taken, and rows of which nothing is allowed."""
    monkeypatch.setattr(engine_team, "_MANY", 1)
    generator = np.random.default_rng(k)
    cost = generator.integers(0, 30, (60, 40)).astype(np.float64)
    cost[generator.random(cost.shape) < 0.2] = np.inf
    cost[7] = np.inf
    with Team(n_threads) as team:
        engine = ListEngine(Problem(as_source(cost)), team, Monitor(), np.dtype(float), k, 0)
        engine.v -= generator.integers(0, 5, 40)
        engine.open_price[:] = engine.v
        engine.evaluate(np.arange(60, dtype=ID))
        order = generator.permutation(60).astype(ID)
        found = engine.greedy_gap(order, order[:0])
    own, taken, gap = engine.lists, set(), 0.0
    for row in order.tolist():
        entries = slice(own.start[row], own.start[row] + own.size[row])
        ids = own.ids[entries].tolist()
        reduced = (own.costs[entries] - engine.v[ids]).tolist()
        if not ids:
            continue
        free = [(t, j) for t, j in zip(reduced, ids, strict=True) if j not in taken]
        best, pick = min(free, key=lambda pair: pair[0]) if free else (np.inf, -1)
        taken.add(pick)
        if pick >= 0 and best <= own.theta[row]:
            gap += best - min(reduced)
        elif own.theta[row] < np.inf:
            gap += max(own.theta[row], min(reduced)) - min(reduced)
    assert found == gap > 0


@each(threads=[2, 3, 8, 64], kind=["points", "ties", "wide", "tall"])
def test_passes_by_all_threads_change_nothing(kind, threads, monkeypatch):
    """The same bits and counters for any number of threads, where the team makes all passes."""
    monkeypatch.setattr(engine_team, "_MANY", 1)
    generator = np.random.default_rng(7)
    costs = {
        "points": bigsap.points(*points_of("disjoint", 500)),
        "ties": generator.integers(0, 40, (200, 200)),
        "wide": generator.random((150, 220)),
        "tall": generator.random((220, 150)),
    }[kind]
    found = [bigsap.solve(costs, method="compressed", threads=t) for t in (1, threads)]
    assert found[0].success
    for name in ("col_ind", "u", "v"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name)), name
    for name in ("rows_scanned", "rows_evaluated", "pairs_evaluated"):
        assert found[0].stats[name] == found[1].stats[name], name


def test_a_dismissed_team_leaves_the_caller_alone():
    team = Team(3)
    seen = []
    with team:
        pass
    assert team.run(lambda thread, n_threads: seen.append((thread, n_threads)) or 5) == 5
    assert seen == [(0, 1)]


@each(kind=SEPARABLE, seed=range(3))
def test_bounds_bound_every_pair(kind, seed):
    """Also with prices of 1e6 times the costs, and with prices that fell since the fit."""
    generator = np.random.default_rng(seed)
    m = 5000
    source = separable(kind, 30, m, generator)
    order = compact_order(source.separable().y.T)
    source = source.select(np.arange(30), order)
    blocks = bounds.blocks_of(source)
    assert blocks.n_blocks == -(-m // bounds.BLOCK)
    assert blocks.offset.size == blocks.n_blocks + -(-m // (bounds.BLOCK * bounds.GROUP))
    y = source.separable().y
    v = [1.0, 1e-3, 1e6][seed] * (generator.normal(size=m) + y.sum(axis=0))
    bounds.fit(blocks, y, v, Team(1))
    v = v - generator.random(m) * 0.1
    cost = dense(source)
    out, some = np.empty(blocks.offset.size), np.empty(7)
    for row in range(30):
        bounds.bound_row(row, blocks, 0, out.size, out)
        bounds.bound_row(row, blocks, 5, 12, some)
        assert np.array_equal(some, out[5:12])
        for block in range(out.size):
            width, k = bounds.BLOCK, block
            if block >= blocks.n_blocks:
                width, k = bounds.BLOCK * bounds.GROUP, block - blocks.n_blocks
            columns = slice(k * width, (k + 1) * width)
            assert out[block] <= (cost[row, columns] - v[columns]).min()


def angles(kind, n, generator):
    """Latitudes and longitudes (n, 2), where rounding is worst."""
    latitude, longitude = np.arcsin(generator.uniform(-1, 1, n)), generator.uniform(-np.pi, np.pi, n)
    if kind == "city":
        latitude, longitude = (0.7 + 1e-8 * generator.normal(size=n), 2 + 1e-8 * generator.normal(size=n))
    elif kind == "pole":
        latitude = np.minimum(np.pi / 2, np.pi / 2 - 1e-9 * generator.random(n))
    elif kind == "date line":
        longitude = generator.choice([-np.pi, np.pi, 3 * np.pi], n) + 1e-9 * generator.normal(size=n)
        latitude = 1e-9 * generator.normal(size=n)
    elif kind == "opposite":
        side = generator.integers(0, 2, n)
        latitude, longitude = np.where(side, 0.3, -0.3), np.where(side, 0.1, 0.1 - np.pi)
    return np.stack([latitude, longitude], axis=1)


@each(kind=["uniform", "city", "pole", "date line", "opposite"], radius=[1.0, 6371.0, 1e-9, 1e60])
def test_chords_bound_arcs(kind, radius):
    """Bounds of blocks and of rows are never above a cost, however it is rounded."""
    generator = np.random.default_rng(3)
    m = 600
    x, y = angles(kind, 40, generator), angles(kind, m, generator)
    x[:20] = y[:20]
    if kind == "city":
        y[:] = y[0]
        x[20:] = y[0] + 1e-6 * generator.normal(size=(20, 2))
    source = bigsap.points(x, y, "haversine", radius=radius)
    order = compact_order(source.separable().y.T)
    source = source.select(np.arange(40), order)
    cost, blocks = dense(source), bounds.blocks_of(source)
    for spread in (0.0, 1e-6, 1.0):
        v = spread * cost.max() * generator.normal(size=m)
        bounds.fit(blocks, source.separable().y, v, Team(1))
        out = np.empty(blocks.offset.size)
        for row in range(40):
            bounds.bound_row(row, blocks, 0, out.size, out)
            for block in range(blocks.n_blocks):
                columns = slice(block * bounds.BLOCK, (block + 1) * bounds.BLOCK)
                assert out[block] <= (cost[row, columns] - v[columns]).min()
    assert (row_floors(Problem(source)) <= cost.min(axis=1)).all()
    assert (row_floors(Problem(source, maximize=True)) <= -cost.max(axis=1)).all()


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_bounds_of_what_underflows(metric, d):
    """Squares of small differences are 0, and so are their costs, however large a weight or a factor is."""
    cases = (-545, 1000, 1.0), (-540, 0, 1.0), (-540, 0, 1e50), (-1065, -5, 1e50)
    for size, weight, factor in cases:
        g = np.random.default_rng(0)
        x, y = (2.0**size * g.random((k, d)) * g.integers(-8, 9, (k, d)) for k in (8, 512))
        w = 2.0**weight * g.uniform(1, 2, d)
        source = scaled(bigsap.points(x, y[np.lexsort(y.T)], metric, w=w), factor)
        cost, blocks = dense(source), bounds.blocks_of(source)
        out = np.empty(blocks.n_blocks)
        for v in (np.zeros(512), -cost.max() * g.random(512)):
            bounds.fit(blocks, source.separable().y, v, Team(1))
            exact = [Fraction(price) for price in v]
            for row in range(8):
                bounds.bound_row(row, blocks, 0, out.size, out)
                least = [Fraction(c) - price for c, price in zip(cost[row], exact, strict=True)]
                for block in range(out.size):
                    assert out[block] <= min(least[block * bounds.BLOCK :][: bounds.BLOCK])
        for maximize in (False, True):
            floors = row_floors(Problem(source, maximize))
            assert (floors <= (-cost if maximize else cost).min(axis=1)).all()


@each(kind=["uniform", "city", "pole", "date line", "opposite"], maximize=[False, True])
def test_great_circles_are_matched_as_a_matrix_is(kind, maximize):
    generator = np.random.default_rng(4)
    x, y = angles(kind, 700, generator), angles(kind, 700, generator)
    source = bigsap.points(x, y, "haversine", radius=6371.0)
    expected = bigsap.solve(dense(source), method="ssp", maximize=maximize)
    for options in ({}, {"unassigned_cost": float(np.median(dense(source)))}):
        found = bigsap.solve(source, method="compressed", maximize=maximize, **options)
        assert found.success
        if options:
            expected = bigsap.solve(dense(source), method="ssp", maximize=maximize, **options)
        assert found.fun == pytest.approx(expected.fun, rel=1e-12)


def test_bounds_of_a_sphere_are_off_where_angles_or_radii_are_out_of_range():
    x = np.array([[0.1, 0.2], [0.3, 100.0]])
    assert bigsap.points(x, x, "haversine").separable() is None
    assert bigsap.points(x[:1], x[:1], "haversine", radius=1e200).separable() is None
    assert bigsap.points(x[:1], x[:1], "haversine").separable().kind == "chord"


@pytest.mark.parametrize("kind", SEPARABLE)
def test_bounded_evaluation_keeps_the_promises(kind):
    generator = np.random.default_rng(7)
    source = separable(kind, 25, 5000, generator)
    order = compact_order(source.separable().y.T)
    source = source.select(np.arange(25), order)
    engine = ListEngine(Problem(source), Team(1), Monitor(), np.dtype(np.float64), 32, seed=0)
    assert engine.blocks.offset.size
    cost = dense(source)
    for attempt in range(3):
        engine.v -= generator.random(5000) * 0.01
        engine.open_price[:] = -np.inf
        if attempt != 1:  # once with majorants that have loosened
            engine.fit_bounds()
        engine.evaluate(np.arange(25))
        check_lists(engine, cost, engine.v)
    assert engine.pairs_evaluated < 3 * 25 * 5000


def many_columns(generator, n=10, m=70_000):
    """An engine of points with more groups of blocks than are bounded one and all."""
    source = bigsap.points(generator.random((n, 2)), generator.random((m, 2)) * 2)
    source = source.select(np.arange(n), compact_order(source.separable().y.T))
    engine = ListEngine(Problem(source), Team(1), Monitor(), np.dtype(np.float64), 32, seed=0)
    assert engine.blocks.offset.size - engine.blocks.n_blocks >= bounded_evaluation._MANY_GROUPS
    engine.v[:] = -generator.random(m) * 0.01
    engine.open_price[:] = engine.v
    engine.fit_bounds()
    return source, engine


@pytest.mark.parametrize("seed", range(2))
def test_nearest_groups_first_keep_the_promises(seed):
    """And take fewer pairs than bounds of all blocks alone would."""
    source, engine = many_columns(np.random.default_rng(seed))
    engine.evaluate(np.arange(10))
    check_lists(engine, dense(source), engine.v, np.ones(70_000, bool))
    assert engine.pairs_evaluated < 8 * 10 * engine.blocks.n_blocks


@pytest.mark.some(1)
@pytest.mark.parametrize("n_shown", [5_000, 0, 1, 20, 33])
def test_nearest_groups_where_nearly_all_columns_are_settled(n_shown):
    """The nearest groups hold nothing that matters: the search goes on to the farthest."""
    source, engine = many_columns(np.random.default_rng(4))
    row, m = 3, 70_000
    tau = (dense(source)[row] - engine.lists.reference[row]) - engine.v
    farthest = np.argsort(tau)[m - n_shown :]
    shown = np.full(m, -np.inf)
    shown[farthest] = engine.v[farthest]
    left = np.add.reduceat(np.isfinite(shown), np.arange(0, m, bounds.BLOCK)).astype(np.int32)
    blocked = np.full(m, -np.inf)
    evaluator = engine.evaluator(engine.slots, engine.scratch)
    bounded_evaluation.evaluate_row(row, 0, shown, blocked, evaluator, engine.lists, left)
    found = engine.lists
    ids = found.ids[found.start[row] : found.start[row] + found.size[row]]
    assert np.isin(ids, farthest).all()
    assert len(ids) >= min(n_shown, 30)
    outside = np.setdiff1d(farthest, ids)
    assert outside.size == 0 or tau[outside].min() >= found.theta[row]


def test_bounds_are_off_where_they_cannot_help():
    generator = np.random.default_rng(0)
    high = bigsap.points(generator.random((600, 20)), generator.random((600, 20)))
    assert not bounds.blocks_of(high).offset.size
    cosine = bigsap.points(generator.random((600, 2)), generator.random((600, 2)), "cosine")
    assert not bounds.blocks_of(cosine).offset.size
    assert not bounds.blocks_of(as_source(generator.random((600, 600)))).offset.size


def block_minima(tau, order):
    return np.minimum.reduceat(tau[:, order], np.arange(0, order.size, bounds.BLOCK), axis=1)


@each(kind=["real", "ties", "holes", "offset", "float32", "huge"], scattered=[False, True], m=[700, 9000])
def test_block_minima_open_only_what_matters_and_miss_nothing(kind, scattered, m):
    """Evaluations by minima that were last seen under other prices keep every promise."""
    generator = np.random.default_rng(m + scattered)
    where = generator.random((m, 2))
    cost = ((generator.random((12, 1, 2)) - where) ** 2).sum(axis=2)
    order = compact_order(where)
    if not scattered:
        cost, order = cost[:, order], np.arange(m)
    if kind == "ties":
        cost = np.floor(20 * cost)
    elif kind == "holes":
        cost[generator.random(cost.shape) < 0.3] = np.inf
        cost[:, order[: bounds.BLOCK]] = np.inf
    elif kind == "offset":
        cost += 1e12
    elif kind == "float32":
        cost = cost.astype(np.float32) + np.float32(1e4)
    elif kind == "huge":
        cost *= 1e300
    step = 1e298 if kind == "huge" else 0.01
    engine = engine_for(cost, 20)
    engine.keep_minima(order.astype(np.int32) if scattered else np.empty(0, np.int32))
    rows, wide = np.arange(12), cost.astype(np.float64)
    for attempt in range(4):
        free = generator.random(m) < 0.3
        engine.open_price[:] = np.where(free, engine.v, -np.inf)
        pairs = engine.pairs_evaluated
        engine.evaluate(rows)
        pairs = engine.pairs_evaluated - pairs
        check_lists(engine, wide, engine.v)
        tau = (wide - engine.lists.reference[:, None]) - engine.v
        assert (engine.lists.low <= block_minima(tau, order)).all()
        if attempt == 0:
            assert pairs == 12 * m
        elif m == 9000 and kind not in ("ties", "offset", "float32", "huge"):
            assert pairs < 12 * m // 2
        engine.v -= step * generator.random(m)


@pytest.mark.parametrize("k", [20, 64])
def test_blocks_never_seen_are_opened(k):
    """A row evaluated by other means has no minima yet: every block may hold its best."""
    generator = np.random.default_rng(6)
    cost = generator.random((8, 3000))
    engine = engine_for(cost, k)
    engine.open_price[:] = engine.v
    engine.evaluate(np.arange(8))
    engine.keep_minima(np.empty(0, np.int32))
    for _ in range(2):
        engine.open_price[:] = engine.v
        engine.evaluate(np.arange(8))
        check_lists(engine, cost, engine.v, np.ones(3000, bool))
        engine.v -= 0.001 * generator.random(3000)


def test_block_minima_of_computed_rows():
    generator = np.random.default_rng(5)
    y = generator.random((3000, 7))
    source = bigsap.points(generator.random((9, 7)), y[compact_order(y)])
    engine = ListEngine(Problem(source), Team(2), Monitor(), np.dtype(np.float64), 16, seed=0)
    engine.drop_bounds()
    engine.keep_minima(np.empty(0, np.int32))
    cost = dense(source)
    for _ in range(3):
        engine.open_price[:] = -np.inf
        engine.evaluate(np.arange(9))
        check_lists(engine, cost, engine.v)
        engine.v -= 0.01 * generator.random(3000)


@pytest.mark.parametrize(
    ("n", "d", "metric", "maximize", "size"),
    [
        (99_999, 2, "sqeuclidean", False, 48),
        (100_000, 6, "sqeuclidean", False, 64),
        (9_999, 2, "product", False, 48),
        # Whole rows are evaluated, or bounds leave much open.
        (9_999, 2, "sqeuclidean", True, 128),
        (9_999, 7, "sqeuclidean", False, 128),
        (10_000, 2, "euclidean", False, 160),
        (10_000, 2, "cityblock", False, 160),
        (9_999, 2, "cosine", False, 128),
    ],
)
def test_lists_are_short_where_evaluations_are_cheap(n, d, metric, maximize, size):
    x = np.random.default_rng(0).random((n, d))
    source = bigsap.lowrank(x, x) if metric == "product" else bigsap.points(x, x, metric=metric)
    assert list_sizes.list_size(Problem(source, maximize)) == size


@pytest.mark.parametrize(("n", "size", "of_files"), [(9_999, 64, 128), (10_000, 96, 160)])
def test_lists_are_short_where_a_matrix_is_in_memory(n, size, of_files, tmp_path):
    small = np.zeros((1, 1), np.float32)
    cost = np.broadcast_to(small, (n, n))
    assert list_sizes.usual_list_size(Problem(as_source(cost)), n) == size
    assert list_sizes.usual_list_size(Problem(as_source(cost[:, 1:])), n) == of_files
    np.save(tmp_path / "costs.npy", small)
    mapped = as_source(np.load(tmp_path / "costs.npy", mmap_mode="r"))
    assert list_sizes.usual_list_size(Problem(mapped), n) == of_files


@each(size=[1, 7, 48, 400], product=[False, True])
def test_any_length_leads_to_the_same_optimum(size, product, monkeypatch):
    monkeypatch.setattr(policy, "CLOSE_LIST_SIZE", size)
    generator = np.random.default_rng(3)
    x, y = generator.random((400, 2)), 0.5 + generator.random((500, 2))
    source = bigsap.lowrank(x, y) if product else bigsap.points(x, y)
    found = bigsap.solve(source, method="compressed")
    found.verify(source)
    assert found.fun == pytest.approx(bigsap.solve(source, method="ssp").fun, rel=1e-12)
    # A few lists double.
    most = 24 if size < 48 else 1.1
    assert 12 * size * 400 <= found.stats["list_bytes"] <= most * 12 * size * 400
