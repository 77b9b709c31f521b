"""Point sets whose lists a device makes by inner products, and its engine with and without these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import bigsap
from bigsap.engine.core.team import Team
from bigsap.engine.cuda.device_lists import DeviceListEngine
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


def costs(x: np.ndarray, y: np.ndarray, metric: str = "sqeuclidean", **options: Any) -> bigsap.CostSource:
    """Points; of the metric "inner products", a matrix of low rank with terms of both signs."""
    if metric != "inner products":
        return bigsap.points(x, y, metric, **options)
    g = np.random.default_rng(4)
    return bigsap.lowrank(x, y, row_terms=g.normal(size=x.shape[0]), column_terms=g.normal(size=y.shape[0]))


def engines(x: np.ndarray, y: np.ndarray, maximize: bool, **options: Any) -> Iterator[DeviceListEngine]:
    with Team(1) as team:
        for with_products in (True, False):
            problem = Problem(place(costs(x, y, **options), 0, None), maximize)
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
METRICS = ("sqeuclidean", "euclidean", "cosine")
# Each kind once comes first: a few of the cases show all kinds.
CASES = [(kind, METRICS[(k + turn) % 3]) for turn in range(3) for k, kind in enumerate(KINDS)]
CASES[6:6] = [("weighted", "sqeuclidean"), ("weighted", "euclidean")]
CASES[8:8] = [(kind, "inner products") for kind in ("near", "usual", "equal", "far", "tiny", "huge")]


def listed(engine: DeviceListEngine, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and costs of a row's list, by column."""
    some = slice(engine.lists.start[row], engine.lists.start[row] + engine.lists.size[row])
    order = np.argsort(engine.lists.ids[some])
    return engine.lists.ids[some][order], engine.lists.costs[some][order]
