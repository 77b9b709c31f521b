"""Lists of point sets on a device from inner products: those of whole costs, whatever the rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import products
from bigsap.engine.cuda.device_lists import DeviceListEngine
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.cuda.placed import place

N, M, D, K = 40, 300, 12, 16


def points(kind: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    g = np.random.default_rng(5)
    x, y = g.normal(size=(N, D)), g.normal(size=(M, D))
    if kind == "near":  # differences of 1e-9 far from the common mean
        y = x[g.integers(0, N, M)] + 1e-9 * g.normal(size=(M, D))
        x[0] += 1e6
    if kind == "equal":
        x[:], y[:] = x[0], x[0]
    if kind == "far":
        x, y = x + 1e8, y + 1e8
    if kind == "tiny":
        x, y = 1e-160 * x, 1e-160 * y
    if kind == "huge":  # beyond what bounds of squares hold
        x, y = 1e151 * x, 1e151 * y
    return x, y, {"w": g.random(D)} if kind == "weighted" else {}


@pytest.fixture(params=[0.0, -1e-10], ids=["exact", "disturbed"])
def disturbed(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner products of other rounding, within their bound: half of it in the worst direction."""
    real = products.Products.of

    def of(self: Any, places: Any) -> Any:
        if not request.param:
            return real(self, places)
        sums = self.row_norms[places][:, None] + self.column_norms[None, :]
        error = np.where(np.arange(sums.size).reshape(sums.shape) % 2, 0.4, -0.4) * self.gamma * sums
        return (real(self, places) + 0.5 * error).view(type(self.row_norms))

    monkeypatch.setattr(products.Products, "of", of)


def engines(x: np.ndarray, y: np.ndarray, maximize: bool, **options: Any) -> Iterator[DeviceListEngine]:
    with Team(1) as team:
        for with_products in (True, False):
            problem = Problem(place(bigsap.points(x, y, **options), 0, None), maximize)
            engine = DeviceListEngine(problem, team, Monitor(), np.dtype("f8"), K, 0)
            if not with_products:
                engine._products = None
            yield engine


def same_lists(one: DeviceListEngine, other: DeviceListEngine) -> None:
    assert np.array_equal(one.lists.size, other.lists.size)
    assert np.array_equal(one.lists.theta, other.lists.theta)
    for start, size in zip(one.lists.start, one.lists.size, strict=True):
        some = slice(start, start + size)
        assert np.array_equal(one.lists.ids[some], other.lists.ids[some])
        assert np.array_equal(one.lists.costs[some], other.lists.costs[some])


KINDS = ("usual", "near", "equal", "far", "tiny", "huge")
CASES = [(kind, metric) for kind in KINDS for metric in ("sqeuclidean", "euclidean", "cosine")]
CASES += [("weighted", "sqeuclidean"), ("weighted", "euclidean")]


@pytest.mark.some(14)
@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_lists_are_those_of_whole_costs(cupy: Any, disturbed: None, kind: str, metric: str) -> None:
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


def test_rows_read_there_are_those_of_the_host(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = points("usual")
    here = bigsap.points(x, y)
    there = place(here, 0, None)
    found, expected = np.empty((20, M)), np.empty((20, M))
    here.read(np.arange(20), slice(0, M), expected)
    monkeypatch.setattr(type(here), "read", None)  # the host is not asked
    there.read(np.arange(20), slice(0, M), found)
    assert np.array_equal(found, expected)


def test_solves_are_those_of_the_host(cupy: Any) -> None:
    x, y, _ = points("usual")
    x, y = np.repeat(x, 6, axis=0)[:200], y[:200]
    there = bigsap.solve(bigsap.points(x, y), device="cuda", method="compressed")
    here = bigsap.solve(bigsap.points(x, y), method="compressed")
    assert there.status == here.status == "optimal"
    assert there.fun == here.fun
    there.verify(bigsap.points(x, y))


def test_a_search_asks_the_hosts_products(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves are evaluated there; rows that a search asks for, and no others, by products here."""
    x, y = np.random.default_rng(8).normal(size=(2, 300, D))
    asked: list[int] = []
    evaluate = ListEngine.evaluate_by_products

    def noted(self: ListEngine, rows: np.ndarray, v: np.ndarray) -> int:
        asked.append(rows.size)
        return evaluate(self, rows, v)

    monkeypatch.setattr(ListEngine, "evaluate_by_products", noted)
    monkeypatch.setattr(policy, "MANY_LIST_SIZE", K)
    there = bigsap.solve(bigsap.points(x, y), device="cuda", method="compressed")
    here = bigsap.solve(bigsap.points(x, y), method="ssp")
    assert there.status == here.status == "optimal"
    assert there.fun == here.fun
    assert 0 < sum(asked) < there.stats["rows_evaluated"] - 300
