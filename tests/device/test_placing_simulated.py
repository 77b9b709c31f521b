"""Costs in the host's memory are copied to a device only where a search is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.errors import OptionError
from bigsap.run import sorted_matrices
from bigsap.run.ceiling import Ceiling
from bigsap.sources.cuda import placed, slabs
from bigsap.sources.cuda.placed import MatrixOnDevice
from bigsap.strategies import placement

optimize = pytest.importorskip("scipy.optimize")
sparse = pytest.importorskip("scipy.sparse")

DEVICES = ["cuda", "cuda:1", "cuda:0,1", "auto"]
N = 60


@pytest.fixture
def copies(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes that are copied to a device. ``auto`` takes one from 8 rows on."""
    found: list[tuple[int, int]] = []
    copied = placed.panels

    def noticed(source: Any, *rest: Any) -> Any:
        found.append(source.shape)
        return copied(source, *rest)

    for module in (placed, slabs):
        monkeypatch.setattr(module, "panels", noticed)
    monkeypatch.setattr(placement, "has_device", lambda: True)
    monkeypatch.setattr(policy, "DEVICE_ROWS", 8)
    return found


def on_a_line(n: int = N) -> np.ndarray:
    x, y = np.random.default_rng(3).random((2, n))
    return np.asarray((x[:, None] - y) ** 2)


def in_the_plane(n: int = N) -> np.ndarray:
    x, y = np.random.default_rng(3).random((2, n, 2))
    return np.asarray(((x[:, None] - y) ** 2).sum(axis=2))


def optimum(matrix: np.ndarray) -> float:
    rows, columns = optimize.linear_sum_assignment(matrix)
    return float(matrix[rows, columns].sum())


def same_way(found: bigsap.Result, host: bigsap.Result) -> None:
    """The host's way, to the count and to the bit."""
    assert found.status == host.status == "optimal"
    for name in ("method", "first_prices", "why", "device", "proof", "copied_bytes", "threads"):
        assert found.stats[name] == host.stats[name], name
    for name in ("pairs_evaluated", "rows_scanned", "certificate_pairs", "expected"):
        assert found.stats[name] == host.stats[name], name
    assert found.fun == host.fun
    assert found.col4row.tobytes() == host.col4row.tobytes()
    assert found.u.tobytes() == host.u.tobytes()
    assert found.v.tobytes() == host.v.tobytes()


def capped(matrix: np.ndarray) -> np.ndarray:
    return np.minimum(matrix, np.quantile(matrix, 0.2))


@pytest.mark.parametrize("device", DEVICES)
class TestWithoutASearch:
    @pytest.mark.parametrize(
        "costs",
        [
            on_a_line(),
            -on_a_line(),
            (1e6 * on_a_line()).astype(np.int64),
            (1e15 * on_a_line()).astype(np.int64),
            on_a_line().astype(np.float32),
        ],
        ids=["line", "negative", "int64", "large", "float32"],
    )
    def test_sorted_matrices(self, copies: list[Any], no_small: None, device: str, costs: np.ndarray) -> None:
        maximize = bool(costs.max() <= 0)
        host = bigsap.solve(costs, maximize=maximize)
        assert host.stats["first_prices"] == "sorted"
        same_way(bigsap.solve(costs, maximize=maximize, device=device), host)
        assert not copies

    def test_costs_with_a_ceiling(
        self, copies: list[Any], no_small: None, device: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policy, "CEILING_ROWS", 8)
        costs = capped(in_the_plane())
        host = bigsap.solve(costs)
        assert "dearest" in host.stats["why"]
        same_way(bigsap.solve(costs, device=device), host)
        assert not copies

    def test_rows_that_may_stay_unassigned(self, copies: list[Any], no_small: None, device: str) -> None:
        costs = in_the_plane()
        price = float(np.quantile(costs, 0.05))
        host = bigsap.solve(costs, unassigned_cost=price)
        assert host.stats["first_prices"] == "none"
        same_way(bigsap.solve(costs, unassigned_cost=price, device=device), host)
        assert not copies

    def test_points_within_a_limit(self, copies: list[Any], no_small: None, device: str) -> None:
        x = np.random.default_rng(3).random((N, 2))
        costs = bigsap.points(x, x + 0.01, max_distance=0.1)
        host = bigsap.solve(costs)
        assert host.stats["why"] == "few pairs are within the limit"
        same_way(bigsap.solve(costs, device=device), host)

    @pytest.mark.parametrize("kind", ["array", "tall", "int32", "points", "priced"])
    def test_small_costs(self, copies: list[Any], few_points: None, device: str, kind: str) -> None:
        costs: Any = in_the_plane()
        options: dict[str, Any] = {"unassigned_cost": 0.1} if kind == "priced" else {}
        if kind == "tall":
            costs = costs[:, :20]
        elif kind == "int32":
            costs = (1e4 * costs).astype(np.int32)
        elif kind == "points":
            costs = bigsap.points(*np.random.default_rng(3).random((2, N, 2)))
        host = bigsap.solve(costs, **options)
        assert host.stats["method"] == "dense"
        same_way(bigsap.solve(costs, device=device, **options), host)
        assert not copies

    def test_rows_that_hardly_compete(
        self, copies: list[Any], device: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policy, "MOST_SMALL_COSTS", 800)
        terms = np.random.default_rng(5).random((2, 200))
        costs = 0.1 * (1 - np.eye(200)) + terms[0, :, None] + terms[1]
        host = bigsap.solve(costs)
        assert host.stats["method"] == "dense"
        same_way(bigsap.solve(costs, device=device), host)
        assert not copies

    def test_a_stop_ends_the_solve(self, copies: list[Any], no_small: None, device: str) -> None:
        """At once, or while the costs are looked at: nothing is copied."""
        costs, stop = on_a_line(), threading.Event()
        stop.set()
        for options in ({"time_limit": 0.0}, {"cancel": stop}):
            found = bigsap.solve(costs, device=device, **options)
            assert found.status in ("time_limit", "cancelled", "optimal")
            assert found.stats["device"] == "cpu"
            assert not copies

    def test_a_bad_cost_is_named(self, copies: list[Any], device: str) -> None:
        costs = in_the_plane()
        costs[7, 5] = np.nan
        with pytest.raises(bigsap.InvalidCostError) as caught:
            bigsap.solve(costs, device=device)
        assert (caught.value.row, caught.value.column) == (7, 5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("priced", [False, True])
def test_sparse_costs_stay_sparse(copies: list[Any], no_small: None, device: str, priced: bool) -> None:
    """On a device the pairs that are not listed would be costs like all others."""
    matrix = in_the_plane()
    matrix[matrix > np.quantile(matrix, 0.3)] = np.inf
    for side in (matrix, matrix[:, :40]):
        rows, columns = np.nonzero(np.isfinite(side))
        costs = sparse.csr_array((side[rows, columns], (rows, columns)), shape=side.shape)
        options = {"unassigned_cost": 0.05} if priced else {}
        host = bigsap.solve(costs, **options)
        assert host.stats["method"] == "sparse"
        same_way(bigsap.solve(costs, device=device, **options), host)
        assert not copies


@pytest.mark.parametrize("device", ["cuda", "cuda:0,1"])
def test_what_needs_a_search_is_searched_there_and_looked_at_once(
    copies: list[Any], no_small: None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    start: Callable[..., Any] = sorted_matrices.sorted_start

    def noticed(problem: Any, *rest: Any) -> Any:
        looked.append(placement.device_name(problem.source))
        return start(problem, *rest)

    expects = Ceiling.expects

    def expected(self: Ceiling, run: Any) -> Any:
        looked.append("ceiling")
        return expects(self, run)

    monkeypatch.setattr(sorted_matrices, "sorted_start", noticed)
    monkeypatch.setattr(Ceiling, "expects", expected)
    matrix = in_the_plane()
    found = bigsap.solve(matrix, device=device)
    assert (found.status, found.stats["device"]) == ("optimal", {"cuda": "cuda:0"}.get(device, device))
    assert found.fun == pytest.approx(optimum(matrix), rel=1e-12)
    assert looked == ["ceiling", "cpu"]
    assert copies


@pytest.mark.parametrize("method", ["ssp", "compressed", "hungarian", "auction"])
def test_a_method_that_is_named_runs_on_the_device(copies: list[Any], method: str) -> None:
    matrix = on_a_line(20)
    found = bigsap.solve(matrix, method=method, device="cuda")
    assert (found.stats["method"], found.stats["device"]) == (method, "cuda:0")
    assert found.fun == pytest.approx(optimum(matrix), rel=1e-12)
    assert copies


@pytest.mark.parametrize("options", [{"start": "none"}, {"epsilon": False}, {"memory_limit": "1MB"}])
def test_so_does_a_start_that_is_named(copies: list[Any], options: dict[str, Any]) -> None:
    found = bigsap.solve(on_a_line(20), device="cuda", **options)
    assert found.stats["device"] == "cuda:0"
    assert found.fun == pytest.approx(optimum(on_a_line(20)), rel=1e-12)


def test_a_checkpoint_is_of_the_search_there(copies: list[Any], tmp_path: Any) -> None:
    found = bigsap.solve(in_the_plane(20), device="cuda", checkpoint=tmp_path / "c")
    assert found.stats["device"] == "cuda:0"
    again = bigsap.resume(tmp_path / "c", in_the_plane(20), device="cuda")
    assert again.fun == found.fun


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_costs_on_a_device_stay_there(
    cupy: Any, copies: list[Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for matrix in (on_a_line(20), capped(in_the_plane(20))):
        found = bigsap.solve(MatrixOnDevice(cupy.asarray(matrix)), device=device)
        assert found.stats["device"] == "cuda:0"
        assert found.stats["copied_bytes"] == 0
        assert found.fun == pytest.approx(optimum(matrix), rel=1e-12)


def test_sorted_points_are_proved_by_the_device(copies: list[Any], no_small: None) -> None:
    """The host computes the few pairs that the order needs."""
    x, y = np.random.default_rng(3).random((2, N, 1))
    costs = bigsap.points(x, y)
    found, host = bigsap.solve(costs, device="cuda"), bigsap.solve(costs)
    assert found.stats["device"] == "cuda:0"
    assert found.stats["first_prices"] == host.stats["first_prices"] == "sorted"
    assert found.stats["rows_scanned"] == 0
    assert found.col4row.tobytes() == host.col4row.tobytes()
    assert (found.fun, found.status) == (host.fun, "optimal")
    found.verify(costs)


def test_auto_looks_for_no_device_where_rows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked() -> bool:
        raise AssertionError

    monkeypatch.setattr(placement, "has_device", looked)
    for costs in (in_the_plane(20), in_the_plane(1100)):
        same_way(bigsap.solve(costs, device="auto"), bigsap.solve(costs))


@pytest.mark.parametrize("costs", [np.eye(3), on_a_line(1100)], ids=["small", "sorted"])
def test_a_device_that_is_not_there_is_refused_all_the_same(cupy: Any, costs: np.ndarray) -> None:
    for device in ("cuda:77", "cuda:0,77"):
        with pytest.raises(OptionError, match="'cuda:77' does not exist"):
            bigsap.solve(costs, device=device)


def test_a_cluster_and_a_device_exclude_each_other(cupy: Any) -> None:
    with pytest.raises(OptionError, match='leave device="cpu"'):
        bigsap.solve(np.eye(3), device="cuda", cluster="local")


class TestMatricesThatAreShortForADevice:
    """The host searches a matrix in its memory, unless a way or a limit is named."""

    @pytest.fixture(autouse=True)
    def few(self, no_small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(policy, "DEVICE_SHORT", (70, 90))
        monkeypatch.setattr(policy, "FEW_ROWS", 40)

    @pytest.mark.parametrize("device", ["cuda", "cuda:0,1"])
    @pytest.mark.parametrize("shape", [(60, 60), (60, 80), (80, 60), (20, 70)])
    def test_they_are_searched_as_without_one(
        self, copies: list[Any], device: str, shape: tuple[int, int]
    ) -> None:
        matrix = np.ascontiguousarray(in_the_plane(80)[: shape[0], : shape[1]])
        for costs in (matrix, np.asfortranarray(matrix), matrix.astype(np.float16)):
            same_way(bigsap.solve(costs, device=device), bigsap.solve(costs))
        assert not copies

    def test_lists_and_trees_are_the_hosts_too(self, copies: list[Any]) -> None:
        g = np.random.default_rng(3)
        for costs in (g.random((60, 60)), g.integers(0, 30, (60, 60))):
            same_way(bigsap.solve(costs, device="cuda"), bigsap.solve(costs))
        assert not copies

    @pytest.mark.parametrize("shape", [(60, 60), (30, 100), (100, 30)])
    def test_long_rows_are_scanned_there(
        self, copies: list[Any], shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policy, "DEVICE_SHORT", (60, 100))
        matrix = in_the_plane(100)[: shape[0], : shape[1]]
        found = bigsap.solve(matrix, device="cuda")
        assert (found.stats["method"], found.stats["device"]) == ("ssp", "cuda:0")
        assert found.fun == pytest.approx(optimum(matrix), rel=1e-12)

    @pytest.mark.parametrize(
        "options", [{"method": "ssp"}, {"start": "none"}, {"epsilon": False}, {"memory_limit": "1MB"}]
    )
    def test_what_is_named_is_done_there(self, copies: list[Any], options: dict[str, Any]) -> None:
        found = bigsap.solve(in_the_plane(20), device="cuda", **options)
        assert found.stats["device"] == "cuda:0"

    def test_a_device_that_is_not_there_is_refused(self, copies: list[Any]) -> None:
        with pytest.raises(OptionError, match="'cuda:77' does not exist"):
            bigsap.solve(in_the_plane(80)[:, :60], device="cuda:77")
