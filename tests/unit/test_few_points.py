"""Few points are solved at once, by the dense kernel on all their costs: the answers of the long way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from contracts import whole
from pairwise import each

pytestmark = pytest.mark.usefixtures("few_points")

WHY = "few points, whose costs take less time than a search"
METRICS = ("sqeuclidean", "euclidean", "cityblock", "chebyshev", "cosine", "minkowski", "haversine")


def points(rng: Any, metric: str, n: int, m: int) -> Any:
    d = 2 if metric == "haversine" else 3
    more = {"p": 3.0} if metric == "minkowski" else {}
    return bigsap.points(rng.random((n, d)), rng.random((m, d)), metric, **more)


@each(
    metric=METRICS,
    shape=[(40, 40), (30, 50), (50, 30)],
    maximize=[False, True],
    price=[None, 0.3, "each"],
    certify=[True, False],
)
def test_the_answer_is_that_of_the_matrix(
    metric: str, shape: tuple[int, int], maximize: bool, price: Any, certify: bool
) -> None:
    rng = np.random.default_rng([METRICS.index(metric), *shape])
    source = points(rng, metric, *shape)
    options = {"maximize": maximize, "certify": certify}
    if price is not None:
        options["unassigned_cost"] = rng.random(shape[0]) if price == "each" else price
    found = bigsap.solve(source, **options)
    expected = bigsap.solve(whole(source), **options)
    assert found.status == expected.status == "optimal"
    assert (found.fun, found.bound, found.gap) == (expected.fun, expected.bound, expected.gap)
    assert np.array_equal(found.col4row, expected.col4row)
    assert np.array_equal(found.costs, expected.costs)
    assert (found.stats["method"], found.stats["why"]) == ("dense", WHY)
    assert found.stats["source"] == ("PointSource" if price is None else "ClippedCosts")
    if certify:
        found.verify(source)


def test_low_rank_scaled_and_forbidden_costs() -> None:
    rng = np.random.default_rng(1)
    given = points(rng, "euclidean", 30, 30)
    sources = (
        bigsap.lowrank(rng.random((30, 4)), rng.random((30, 4))),
        bigsap.scaled(given, 2.5),
        bigsap.forbid_above(given, 0.9),
        bigsap.points(rng.random((30, 2)), rng.random((30, 2)), max_distance=0.8),
    )
    for source in sources:
        found = bigsap.solve(source)
        assert found.stats["why"] == WHY
        assert found.stats["source"] == type(source).__name__
        assert found.fun == bigsap.solve(whole(source)).fun
        found.verify(source)


def test_more_points_take_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    source = points(rng, "sqeuclidean", 64, 64)
    monkeypatch.setattr(policy, "MOST_SMALL_COMPUTED", 64 * 64)
    assert bigsap.solve(source).stats["method"] == "dense"
    monkeypatch.setattr(policy, "MOST_SMALL_COMPUTED", 64 * 64 - 1)
    other = bigsap.solve(source)
    assert other.stats["method"] != "dense"
    monkeypatch.undo()
    for options in ({"method": "ssp"}, {"memory_limit": "64 KiB"}, {"start": "none"}, {"epsilon": False}):
        found = bigsap.solve(source, **options)
        assert found.stats["method"] != "dense", options
        assert found.fun == pytest.approx(other.fun, rel=1e-12)


def test_functions_are_not_called_for_all_pairs_at_once() -> None:
    x = np.random.default_rng(3).random(40)
    found = bigsap.solve(lambda i, j: abs(x[i] - x[j]), shape=(40, 40))
    assert found.stats["method"] != "dense"


def test_infeasible_and_stopped() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.random((20, 2)), rng.random((20, 2))
    x[[3, 7]] += 10
    found = bigsap.solve(bigsap.points(x, y, max_distance=2.0))
    assert (found.status, found.violator.tolist(), found.stats["why"]) == ("infeasible", [3, 7], WHY)
    x[[3, 7]] -= 10
    assert bigsap.solve(bigsap.points(x, y), time_limit=0).status == "time_limit"
    seen: list[Any] = []
    bigsap.solve(bigsap.points(x, y), callback=seen.append)
    assert (seen[-1].stage, seen[-1].assigned) == ("done", 20)
    warm = bigsap.solve(bigsap.points(x, y), warm_start=bigsap.solve(bigsap.points(x, y)))
    assert warm.stats["warm_started"]


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("maximize", [False, True])
def test_all_rows_without_an_allowed_pair_are_named(kind: str, maximize: bool) -> None:
    cost = np.random.default_rng(5).random((9, 11)).astype(kind)
    cost[[2, 5, 8]] = -np.inf if maximize else np.inf
    found = bigsap.solve(cost, maximize=maximize)
    assert (found.status, found.violator.tolist()) == ("infeasible", [2, 5, 8])
    found.verify(cost)
    with pytest.raises(bigsap.InfeasibleError):
        bigsap.linear_sum_assignment(cost, maximize)
