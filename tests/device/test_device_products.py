"""Lists of point sets on a device from inner products: those of whole costs, whatever the rounding."""

from __future__ import annotations

import threading
import weakref
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import device_lists, products
from bigsap.engine.cuda.device_lists import DeviceListEngine
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.run import kept_rows
from bigsap.sources.cuda import placed, product_proof
from bigsap.sources.cuda.placed import place
from bigsap.strategies.first_prices import choose_first_prices
from bigsap.strategies.list_sizes import list_size
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.strata import strata_of
from pairwise import each
from product_cases import CASES, D, K, M, N, costs, engines, listed, points, same_lists


def disturb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner products of other rounding, within their bound: half of it in the worst direction."""
    real = products.Products.of

    def of(self: Any, places: Any) -> Any:
        sums = self.row_norms[places][:, None] + self.column_norms[None, :]
        error = np.where(np.arange(sums.size).reshape(sums.shape) % 2, 0.4, -0.4)
        error *= self.gamma * sums if self.gamma else self.least
        return (real(self, places) + 0.5 * error).astype(self.item).view(type(self.row_norms))

    monkeypatch.setattr(products.Products, "of", of)


@pytest.mark.some(10)
@each(**{"kind, metric": CASES}, disturbed=[False, True], half=[True, False])
def test_lists_are_those_of_whole_costs(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str, metric: str, disturbed: bool, half: bool
) -> None:
    """half: products of float16."""
    if disturbed:
        disturb(monkeypatch)
    if half:
        monkeypatch.setattr(policy, "DEVICE_HALF_COORDINATES", 1)
    x, y, options = points(kind)
    for maximize in (False, True)[: 1 + (kind == "usual")]:
        one, other = engines(x, y, maximize, metric=metric, **options)
        assert (one._products is None) == (kind == "huge" and metric != "cosine")
        prices = np.random.default_rng(6).random(M)
        blocked = np.random.default_rng(7).random(M) < 0.9
        for engine in (one, other):
            engine.v[:] = prices
            engine.open_price[:] = np.where(blocked, engine.blocked, prices)
            engine.evaluate(np.arange(N))
        same_lists(one, other)


@pytest.mark.parametrize(
    ("metric", "weighted"),
    [("sqeuclidean", True), ("euclidean", False), ("cosine", False), ("inner products", False)],
)
def test_rows_read_there_are_those_of_the_host(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, metric: str, weighted: bool
) -> None:
    """Whole tiles and parts of tiles; more coordinates than a tile holds at a time; a range of columns."""
    g = np.random.default_rng(9)
    x, y = g.normal(size=(40, 70)), g.normal(size=(1100, 70))
    here = costs(x, y, metric, **({"w": g.random(70)} if weighted else {}))
    there = place(here, 0, None)
    rows, columns = g.permutation(40)[:37], slice(3, 1090)
    found, expected = np.empty((2, 37, 1087))
    here.read(rows, columns, expected)
    monkeypatch.setattr(type(here), "read", None)  # the host is not asked
    there.read(rows, columns, found)
    assert np.array_equal(found, expected)
    there.read(rows[:5], columns, found[:5])  # few rows, another kernel
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", ["usual", "near", "far", "tiny"])
def test_inner_products_and_terms_are_within_their_bound(cupy: Any, kind: str) -> None:
    x, y, _ = points(kind)
    source = costs(x, y, "inner products")
    with Team(1) as team:
        engine = DeviceListEngine(Problem(place(source, 0, None)), team, Monitor(), np.dtype("f8"), K, 0)
        found = engine._products
    assert found is not None
    row_terms, column_terms = source.row_terms[:, None], source.column_terms
    sums = (row_terms + column_terms) - 2.0 * found.of(np.arange(N))
    for i in range(10):
        for j in range(40):
            product = sum(Fraction(a) * Fraction(b) for a, b in zip(x[i], y[j], strict=True))
            cost = product + Fraction(row_terms[i, 0]) + Fraction(column_terms[j])
            assert abs(Fraction(float(sums[i, j])) - cost) <= Fraction(found.least)
            assert abs(cost) <= Fraction(float(found.sums[i]))


@pytest.mark.parametrize("metric", ["sqeuclidean", "inner products"])
def test_solves_are_those_of_the_host(cupy: Any, metric: str) -> None:
    x, y, _ = points("usual")
    x, y = np.repeat(x, 6, axis=0)[:200], y[:200]
    there = bigsap.solve(costs(x, y, metric), device="cuda", method="compressed")
    here = bigsap.solve(costs(x, y, metric), method="compressed")
    assert there.status == here.status == "optimal"
    assert there.fun == here.fun
    there.verify(costs(x, y, metric))


@pytest.mark.some(4)
@pytest.mark.parametrize("kind", ["usual", "near", "equal", "weighted"])
@pytest.mark.parametrize("free", [True, False])
def test_few_rows_have_the_lists_of_many(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str, free: bool
) -> None:
    """Rows that a search asks for, with columns hidden from it, have the lists they have in a wave."""
    x, y, options = points(kind)
    x = np.repeat(x, 2, axis=0)[: N + 5]
    g = np.random.default_rng(6)
    engine, other = engines(x, y, False, **options)
    prices = g.random(M)
    for rows in (np.array([7]), g.permutation(N + 5)[:21], np.arange(N + 5)):
        shown = np.where(g.random(M) < 0.1, engine.blocked, prices)
        for some in (engine, other):
            some.v[:] = shown
            some.open_price[:] = np.where(g.random(M) < 0.5, some.blocked, shown) if free else shown
        other.open_price[:] = engine.open_price
        before = engine.lists.counts.evaluations
        assert engine.evaluate_by_products(rows, shown) == -1
        assert engine.lists.counts.evaluations == before + rows.size
        other.evaluate(rows)
        for row in rows:
            assert engine.lists.theta[row] == other.lists.theta[row]
            (found, costs), (expected, known) = (listed(e, row) for e in (engine, other))
            assert np.array_equal(found, expected)
            assert np.array_equal(costs, known)


@pytest.mark.parametrize("multiplied", [True, False])
def test_lists_too_long_for_the_device_are_the_hosts(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, multiplied: bool
) -> None:
    """By matrix products, where these are of use; the device makes the others of a request."""
    x, y, _ = points("usual")
    engine, _ = engines(x, y, False)
    if not multiplied:
        monkeypatch.setattr(device_lists, "useful_products", lambda *_: None)
    monkeypatch.setattr(device_lists, "MOST_ENTRIES", K)
    engine._widen(np.arange(0, N, 3))
    few: list[int] = []
    usual = DeviceListEngine._evaluate_few

    def noted(self: DeviceListEngine, rows: np.ndarray, k: int, shown: np.ndarray) -> None:
        few.extend(rows.tolist())
        usual(self, rows, k, shown)

    monkeypatch.setattr(DeviceListEngine, "_evaluate_few", noted)
    engine.v[:] = engine.open_price[:] = np.random.default_rng(6).random(M)
    assert engine.evaluate_by_products(np.arange(N), engine.v) == -1
    assert engine.lists.counts.evaluations == N
    assert few == [row for row in range(N) if row % 3]
    reduced = ((x[:, None] - y) ** 2).sum(axis=2) - engine.v
    for row in range(N):
        columns, costs = listed(engine, row)
        assert columns.size >= (K - 1 if row % 3 else 2 * K - 3)
        np.testing.assert_allclose(costs - engine.v[columns], reduced[row, columns], rtol=1e-12)
        assert np.delete(reduced[row], columns).min() >= engine.lists.theta[row] - 1e-9


@pytest.mark.parametrize(("coordinates", "expected"), [(D, 0.1), (D + 1, 0.5)])
def test_stale_lists_of_many_coordinates_are_made_anew_more_often(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, coordinates: int, expected: float
) -> None:
    monkeypatch.setattr(policy, "REFRESHED_ROWS", 40)
    monkeypatch.setattr(policy, "DEVICE_KEPT_COORDINATES", coordinates)
    monkeypatch.setattr(policy, "DEVICE_KEPT_BYTES", 0)
    asked: set[float] = set()
    usual = DeviceListEngine._next_refresh

    def noted(self: DeviceListEngine) -> int:
        asked.add(self.refresh_scans)
        return usual(self)

    monkeypatch.setattr(DeviceListEngine, "_next_refresh", noted)
    x, y = np.random.default_rng(8).normal(size=(2, 120, D))
    there = bigsap.solve(bigsap.points(x, y), device="cuda", method="compressed")
    assert asked == {expected}
    assert there.fun == bigsap.solve(bigsap.points(x, y), method="ssp").fun


def test_rows_that_a_search_asks_for_are_evaluated_there(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.random.default_rng(8).normal(size=(2, 300, D))
    asked: list[int] = []
    evaluate = DeviceListEngine.evaluate_by_products

    def noted(self: DeviceListEngine, rows: np.ndarray, v: np.ndarray) -> int:
        asked.append(rows.size)
        return evaluate(self, rows, v)

    monkeypatch.setattr(DeviceListEngine, "evaluate_by_products", noted)
    monkeypatch.setattr(ListEngine, "evaluate_by_products", None)  # the host makes none
    monkeypatch.setattr(policy, "DEVICE_MANY_LIST_SIZE", K)
    there = bigsap.solve(bigsap.points(x, y), device="cuda", method="compressed")
    here = bigsap.solve(bigsap.points(x, y), method="ssp")
    assert there.status == here.status == "optimal"
    assert there.fun == here.fun
    assert 0 < sum(asked) < there.stats["rows_evaluated"] - 300


@pytest.mark.parametrize("masked", [False, True])
def test_a_row_asked_for_has_the_hosts_list(cupy: Any, masked: bool) -> None:
    """Also with prices of settled columns hidden, and a free column whose price is another."""
    x, y, _ = points("usual")
    g = np.random.default_rng(6)
    prices, free = g.random(M), g.random(M) < 0.1
    shown = prices.copy()
    with Team(1) as team:
        problem = Problem(place(bigsap.points(x, y), 0, None))
        there = DeviceListEngine(problem, team, Monitor(), np.dtype("f8"), K, 0)
        here = ListEngine(Problem(bigsap.points(x, y)), team, Monitor(), np.dtype("f8"), K, 0)
        here.drop_bounds()
        if masked:
            shown[(g.random(M) < 0.3) & ~free] = there.blocked
        for engine in (there, here):
            engine.v[:], engine.open_price[:] = prices, np.where(free, prices, engine.blocked)
            assert engine.by_products
            assert engine.evaluate_by_products(np.array([3, 17]), shown) == -1
        assert np.array_equal(there.lists.size, here.lists.size)
        assert np.array_equal(there.lists.theta, here.lists.theta)
        for row in (3, 17):
            some = slice(there.lists.start[row], there.lists.start[row] + there.lists.size[row])
            assert set(there.lists.ids[some].tolist()) == set(here.lists.ids[some].tolist())


def test_the_host_keeps_rows_of_many_coordinates(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device makes them once, in panels, and the search never asks again."""
    monkeypatch.setattr(policy, "DEVICE_KEPT_COORDINATES", D)
    monkeypatch.setattr(placed, "PANEL_BYTES", 7 * 300 * 8)
    x, y = np.random.default_rng(8).normal(size=(2, 300, D))
    monkeypatch.setattr(DeviceListEngine, "__init__", None)
    there = bigsap.solve(bigsap.points(x, y), device="cuda", method="compressed", threads=2)
    here = bigsap.solve(bigsap.points(x, y), method="ssp")
    assert there.status == here.status == "optimal"
    assert there.fun == here.fun
    assert np.array_equal(there.col4row, here.col4row)
    assert there.stats["device"] == "cuda:0"
    assert there.stats["rows_evaluated"] == 300
    there.verify(bigsap.points(x, y))


def test_the_classical_method_stays_on_the_device(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "DEVICE_KEPT_COORDINATES", D)
    monkeypatch.setattr(kept_rows, "bring_all", None)
    x, y = np.random.default_rng(8).normal(size=(2, 40, D))
    options = {"method": "hungarian", "variant": "classical"}
    there = bigsap.solve(bigsap.points(x, y), device="cuda", **options)
    assert there.fun == bigsap.solve(bigsap.points(x, y)).fun


@pytest.mark.parametrize(("maximize", "size"), [(False, 64), (True, 160)])
def test_lists_are_short_where_a_device_serves_requests(cupy: Any, maximize: bool, size: int) -> None:
    """The largest distances have no bounds from inner products: a request waits for others."""
    x, y = np.random.default_rng(8).normal(size=(2, 300, D))
    source = place(bigsap.points(x, y, metric="euclidean"), 0, None)
    assert list_size(Problem(source, maximize), many=True) == size


def test_orders_split_along_the_widest_coordinates_of_either_side() -> None:
    g = np.random.default_rng(8)
    x, y = 0.01 * g.random((2, 64, 40))
    x[:, 7] = g.permutation(64)
    y[:, 30] = g.permutation(64)
    found = strata_of(Problem(bigsap.points(x, y)), Monitor(), 0, Counts())
    assert np.abs(np.diff(x[found.rows, 7])).mean() < 4
    assert np.abs(np.diff(y[found.columns, 30])).mean() < 4


def test_a_solve_stopped_while_rows_come_from_the_device(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "DEVICE_KEPT_COORDINATES", D)
    monkeypatch.setattr(placed, "PANEL_BYTES", 50 * 300 * 8)
    x, y = np.random.default_rng(8).normal(size=(2, 300, D))
    cancel = threading.Event()

    def stop(progress: bigsap.Progress) -> None:
        if progress.rows_evaluated >= 100:
            cancel.set()

    source = bigsap.points(x, y)
    options = {"callback": stop, "callback_rows": 50, "cancel": cancel}
    stopped = bigsap.solve(source, device="cuda", method="compressed", **options)
    assert stopped.status == "cancelled"
    assert 100 <= stopped.stats["rows_evaluated"] < 300
    best = bigsap.solve(bigsap.points(x, y)).fun
    assert stopped.fun - stopped.gap <= best <= stopped.fun


def test_levels_are_not_asked_where_rows_take_long(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "DEVICE_KEPT_COORDINATES", D)
    monkeypatch.setattr(policy, "FIRST_PRICES_ROWS", 100)
    g = np.random.default_rng(8)
    x, y = g.normal(size=(400, D)), 3.0 + 2.0 * g.normal(size=(400, D))
    problem = Problem(place(bigsap.points(x, y), 0, None))
    assert choose_first_prices(problem, Monitor(), 0, Counts()) == ("none", None)


@pytest.mark.some(9)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_a_proof_by_products_is_that_of_all_pairs(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str, metric: str, maximize: bool
) -> None:
    """To the bit, whatever the rounding of products: here by half of the bound in the worst direction."""
    x, y, options = points(kind)
    g = np.random.default_rng(8)
    tied = (kind, metric) == ("near", "inner products")  # but for a few units in the last place
    if tied:
        y = y[:1] * (1.0 + g.integers(0, 8, (M, 1)) * 2.0**-52)
    source = place(costs(x, y, metric, **options), 0, None)
    prices = g.random(M) * (0.0 if kind == "equal" else 1.0)
    if tied:
        prices = source.product_terms()[1].get() * (-1.0 if maximize else 1.0)
    matching = np.where(g.random(N) < 0.9, g.permutation(M)[:N], -1)
    plain = source.row_minima(matching, prices, None, maximize, lambda _: None)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_LEFT", 2)  # also where all costs are left to compute
    real, launched = product_proof.products, []

    def disturbed(some: Any, all_columns: Any) -> Any:
        inner = real(some, all_columns)
        sums = (some * some).sum(axis=1)[:, None] + (all_columns * all_columns).sum(axis=1)[None, :]
        if metric == "inner products":
            sums[:] = D * np.abs(x).max() * np.abs(y).max()
        gamma = (8 * D + 128) * 2.0**-53
        launched.append(1)
        signs = np.where(np.arange(sums.size).reshape(sums.shape) % 2, 0.2, -0.2)
        return (inner + signs * gamma * sums).view(type(inner))

    for one in (real, disturbed):
        monkeypatch.setattr(product_proof, "products", one)
        found = source.bounded_minima(matching, prices, None, maximize, lambda _: None)
        if kind == "huge" and metric != "cosine":
            assert found is None
            continue
        assert found[1] <= source.shape[0] * source.shape[1]
        for here, there in zip(found[0], plain, strict=True):
            assert (here is None) == (there is None)
            assert here is None or np.array_equal(here, there)
    assert bool(launched) == (kind != "huge" or metric == "cosine")


@pytest.mark.some(3)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_columns_nearer_to_each_other_than_the_error_are_all_computed(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, metric: str, maximize: bool
) -> None:
    """Twins of each column, whose products are wrong by different amounts."""
    g = np.random.default_rng(6)
    x = g.normal(size=(N, D))
    y = np.repeat(g.normal(size=(M // 10, D)), 10, axis=0) + 1e-14 * g.normal(size=(M, D))
    source = place(bigsap.points(x, y, metric), 0, None)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_LEFT", 2)
    real = product_proof.products

    def disturbed(some: Any, all_columns: Any) -> Any:
        inner = real(some, all_columns)
        signs = np.where(np.arange(inner.size).reshape(inner.shape) % 3, 1e-13, -1e-13)
        sums = (some * some).sum(axis=1)[:, None] + (all_columns * all_columns).sum(axis=1)[None, :]
        return (inner + 0.05 * signs * sums).view(type(inner))

    monkeypatch.setattr(product_proof, "products", disturbed)
    found, n_computed = source.bounded_minima(None, np.zeros(M), None, maximize, lambda _: None)
    plain = source.row_minima(None, np.zeros(M), None, maximize, lambda _: None)
    assert np.array_equal(found[0], plain[0])
    assert 2 * N < n_computed < N * M / 4


def test_a_proof_by_products_can_be_stopped(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = points("usual")
    source = place(bigsap.points(x, y), 0, None)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    monkeypatch.setattr(product_proof, "_TERMS", 1)
    monkeypatch.setattr(product_proof, "_ROWS", 7)
    done: list[int] = []

    def tick(n_done: int) -> None:
        done.append(n_done)
        if n_done >= 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.bounded_minima(None, np.zeros(M), None, False, tick)
    assert done == [7, 14]


def test_a_solve_is_proved_by_products(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = points("usual")
    source = bigsap.points(x, y)
    plain = bigsap.solve(source, device="cuda")
    assert plain.stats["proof"] == "pairs"
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    found = bigsap.solve(source, device="cuda")
    assert (found.fun, found.bound, found.status) == (plain.fun, plain.bound, "optimal")
    assert np.array_equal(found.u, plain.u)
    assert found.stats["proof"] == "bounds"
    assert found.stats["proof_bounds"] == N * M
    assert N <= found.stats["certificate_pairs"] - N * M < N * M / 8
    found.verify(source)
    every = bigsap.solve(source, device="cuda", certify="pairs")
    assert (every.stats["proof"], every.stats["certificate_pairs"]) == ("pairs", N * M)


def test_a_device_without_room_for_products_looks_at_every_pair(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, _ = points("usual")
    source = bigsap.points(x, y)
    plain = bigsap.solve(source, device="cuda")
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)

    def full(*_: Any) -> Any:
        raise bigsap.DeviceMemoryError("the device has no room", 8)

    for name in ("_about_their_mean", "products"):
        with monkeypatch.context() as patched:
            patched.setattr(product_proof, name, full)
            found = bigsap.solve(source, device="cuda")
        assert (found.fun, found.bound, found.stats["proof"]) == (plain.fun, plain.bound, "pairs")


def test_where_products_exclude_little_every_pair_is_looked_at(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups so far apart that the bound's error exceeds the distances within one."""
    g = np.random.default_rng(9)
    x, y = (g.normal(size=(k, D)) + 1e9 * (np.arange(k) % 2)[:, None] for k in (N, M))
    source = place(bigsap.points(x, y), 0, None)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    assert source.bounded_minima(None, np.zeros(M), None, False, lambda _: None) is None


def test_weights_that_enlarge_what_underflows_have_no_products(cupy: Any) -> None:
    x, y, _ = points("usual")
    for weight, known in ((1e10, True), (1e30, False)):
        code = place(bigsap.points(x, y, w=np.full(D, weight)), 0, None).code()
        assert (code.product is not None) == known


def test_products_are_released_before_the_proof(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = points("usual")
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    made: list[Any] = []
    real = products.Products.__init__

    def noticed(self: Any, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        made.append(weakref.ref(self))

    alive: list[bool] = []
    about = product_proof._about_their_mean

    def look(*given: Any) -> Any:
        alive.extend(one() is not None for one in made)
        return about(*given)

    monkeypatch.setattr(products.Products, "__init__", noticed)
    monkeypatch.setattr(product_proof, "_about_their_mean", look)
    bigsap.solve(bigsap.points(x, y), device="cuda", method="compressed")
    assert alive == [False]
