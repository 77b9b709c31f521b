"""float32 points on a device, and lists by products of float16: those of float64, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import products
from bigsap.engine.cuda.device_lists import DeviceListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.cuda import device_memory, placed
from bigsap.sources.cuda.placed import place
from product_cases import METRICS, D, K, M, N, engines, listed, points, same_lists


@pytest.mark.some(1)
@pytest.mark.parametrize("metric", METRICS[::-1])
def test_float32_points_are_those_of_float64_there(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    """Rows, lists, proof: to the bit. The points lie there as float32."""
    monkeypatch.setattr(policy, "UNIT_VECTORS", 0)
    monkeypatch.setattr(policy, "PRODUCT_PROOF_TERMS", 0)
    monkeypatch.setattr(policy, "DEVICE_HALF_COORDINATES", 1)
    g = np.random.default_rng(9)
    x, y = (g.normal(size=(k, 19)).astype(np.float32) for k in (N, M))
    found: list[list[np.ndarray]] = []
    for kind in (np.float32, np.float64):
        source = place(bigsap.points(x.astype(kind), y.astype(kind), metric), 0, None)
        source.words()
        assert [side.dtype for side in source._kept[:2]] == [kind] * 2
        costs = np.empty((N, M))
        source.read(np.arange(N), slice(0, M), costs)
        proof, _ = source.bounded_minima(None, np.zeros(M), None, False, lambda _: None)
        with Team(1) as team:
            engine = DeviceListEngine(Problem(source), team, Monitor(), np.dtype("f8"), K, 0)
            engine.evaluate(np.arange(N))
        listed_there = [side for row in range(N) for side in listed(engine, row)]
        found.append([costs, proof[0], engine.lists.theta, *listed_there])
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["usual", "near", "equal", "subnormal", "outlier", "rounded"])
@pytest.mark.parametrize("factor", [1.0, 2.0**-25, 2.0**25])
def test_bounds_by_float16_hold(cupy: Any, kind: str, factor: float) -> None:
    """The squared distance lies within the bound's error; coordinates are the worst for rounding."""
    g, d = np.random.default_rng(10), 200
    x, y = g.normal(size=(2, 60, d))
    if kind == "near":
        y = x + 1e-9 * y
        x[0] = y[0] = 1e3
    elif kind == "equal":
        x[:] = y[:] = 1.0
    elif kind == "subnormal":  # all but one coordinate below what float16 holds
        x, y = 1e-9 * x, 1e-9 * y
        x[:, 0], y[:, 0] = g.normal(size=(2, 60))
    elif kind == "outlier":
        x[0] *= 1e4
    elif kind == "rounded":  # halfway between neighbours of float16, all errors of one sign
        x, y = (1.0 + 2.0**-11 + g.integers(0, 900, (60, d)) * 2.0**-10 for _ in range(2))
    source = place(bigsap.points(factor * x, factor * y), 0, None)
    made = products.ProductsOfPoints(source.code().product, source.points(), half=True)
    assert made.fits()
    inner = np.asarray(made.of(cupy.arange(60)), np.float64)
    sums = np.asarray(made.row_norms)[:, None] + np.asarray(made.column_norms)
    exact = ((factor * x[:, None] - factor * y) ** 2).sum(axis=2)
    error = np.abs(sums - 2.0 * inner - exact)
    assert (error <= made.gamma * sums + made.least).all()


def test_products_return_to_float64_where_float16_excludes_little(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups so far apart that bounds by float16 leave all pairs within one open."""
    monkeypatch.setattr(policy, "DEVICE_HALF_COORDINATES", 1)
    monkeypatch.setattr(policy, "DEVICE_HALF_COSTS", 2 * K)
    g = np.random.default_rng(9)
    x, y = (g.normal(size=(k, D)) + 1e5 * (np.arange(k) % 2)[:, None] for k in (N, M))
    one, other = engines(x, y, False)
    assert one._products.half
    for engine in (one, other):
        engine.evaluate(np.arange(N))
    same_lists(one, other)
    assert not one._products.half
    one.evaluate(np.arange(N))
    same_lists(one, other)


def test_products_of_float16_are_kept_where_they_exclude_enough(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "DEVICE_HALF_COORDINATES", 1)
    monkeypatch.setattr(policy, "DEVICE_HALF_COSTS", 4 * K)
    one, _ = engines(*points("usual")[:2], False)
    one.evaluate(np.arange(N))
    assert one._products.half
    assert 0 < one._by_half[1] < 4 * K * N


def test_products_stay_where_float64_finds_no_room(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds by float16 are slow there, but valid; they are not judged again."""
    monkeypatch.setattr(policy, "DEVICE_HALF_COORDINATES", 1)
    monkeypatch.setattr(policy, "DEVICE_HALF_COSTS", 2 * K)
    g = np.random.default_rng(9)
    x, y = (g.normal(size=(k, D)) + 1e5 * (np.arange(k) % 2)[:, None] for k in (N, M))
    one, other = engines(x, y, False)
    real, refused = products.empty, []

    def full(shape: Any, dtype: Any, what: str) -> Any:
        if what == "the points" and dtype == np.float64 and len(shape) == 2:
            refused.append(shape)
            raise bigsap.DeviceMemoryError("the device has no room", 8)
        return real(shape, dtype, what)

    monkeypatch.setattr(products, "empty", full)
    for engine in (one, other, one):
        engine.evaluate(np.arange(N))
    same_lists(one, other)
    assert one._products.half
    assert len(refused) == 1


def test_many_points_are_copied_in_parts(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of all would take as much pinned memory."""
    sizes: list[int] = []
    g = np.random.default_rng(2)
    x, y = (g.normal(size=(k, 19)).astype(np.float32) for k in (N, M))
    monkeypatch.setattr(device_memory, "PANEL_BYTES", 19 * 4 * 10)
    bring = device_memory.bring
    monkeypatch.setattr(
        device_memory, "bring", lambda there, part: (sizes.append(part.nbytes), bring(there, part))
    )
    source = place(bigsap.points(x, y), 0, None)
    source.words()
    assert np.array_equal(source._kept[0].get(), x)
    assert np.array_equal(source._kept[1].get(), y.T)
    assert max(sizes) == 19 * 4 * 10
    assert sum(sizes) >= x.nbytes


def test_points_that_found_no_room_are_placed_anew(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = points("usual")
    source = place(bigsap.points(x, y), 0, None)
    real = placed._placed

    def full(word: Any) -> Any:
        if word.shape[0] != N:
            raise bigsap.DeviceMemoryError("the device has no room", 8)
        return real(word)

    with monkeypatch.context() as patched:
        patched.setattr(placed, "_placed", full)
        with pytest.raises(bigsap.DeviceMemoryError):
            source.points()
    assert [side.shape for side in source.points()] == [(N, D), (M, D)]


def test_float32_factors_are_those_of_float64_there(cupy: Any) -> None:
    g = np.random.default_rng(9)
    a, b = (g.normal(size=(k, 19)).astype(np.float32) for k in (N, M))
    found = np.empty((2, N, M))
    for kind, costs in zip((np.float32, np.float64), found, strict=True):
        source = place(
            bigsap.lowrank(a.astype(kind), b.astype(kind), row_terms=g.normal(size=N) * 0), 0, None
        )
        costs[:] = np.asarray(source.computed(np.arange(N), slice(0, M)))
        assert source._kept[0].dtype == source._kept[1].dtype == kind
    assert np.array_equal(*found)


def test_a_few_hard_rows_do_not_end_float16(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "DEVICE_HALF_COORDINATES", 1)
    monkeypatch.setattr(policy, "DEVICE_HALF_COSTS", 40)
    x, y, _ = points("usual")
    x[5] *= 300.0  # little is excluded for this row: 50 costs remain
    one, _ = engines(x, y, False)
    one.evaluate(np.arange(N))
    one.evaluate(np.array([5]))
    assert one._products.half
    for _ in range(3):
        one.evaluate(np.array([5] * (N // 2)))
    assert not one._products.half
