"""Trees on a device (``engine/cuda/device_forest.py``), run by ``tests/support/simulated``."""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.cuda import device_classical, forest_rows, wait
from bigsap.engine.cuda import device_forest as gpu
from bigsap.engine.trees import device_result
from bigsap.sources import as_source
from bigsap.sources.cuda.placed import place
from bigsap.sources.cuda.row_blocks import RowsOnDevices
from bigsap.strategies import placement
from oracle import optimum
from whole_numbers import KINDS, costs_of

pytestmark = pytest.mark.usefixtures("cupy")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few threads, and steps that several blocks share."""
    monkeypatch.setattr(gpu, "_TEAM", 64)
    monkeypatch.setattr(gpu, "_SIDE", 64)
    monkeypatch.setattr(wait, "_USUAL_CHIPS", 3)
    monkeypatch.setattr(gpu, "WIDE", 128)
    monkeypatch.setattr(device_classical, "_TEAM", 64)
    monkeypatch.setattr(device_classical, "WIDE", 512)


def solved(cost: np.ndarray, **options: object) -> bigsap.Result:
    """Solved on the device, compared with the oracle."""
    maximize = bool(options.get("maximize", False))
    options.setdefault("variant", "tree")
    result = bigsap.solve(cost, method="hungarian", device="cuda", **options)
    assert result.status == "optimal"
    assert result.stats["device"] == "cuda:0"
    assert result.fun == optimum(cost, maximize)[0]
    return result


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_instances(kind: str) -> None:
    for n, m in ((1, 1), (2, 2), (31, 31), (33, 33), (40, 40), (32, 65)):
        cost = costs_of(kind, n, m, n)
        solved(cost)
        solved(cost, maximize=True, variant="auto")


@pytest.mark.some(1)
@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "i8"])
def test_dtypes(dtype: str) -> None:
    for n, m in ((48, 48), (20, 50), (50, 20)):
        solved(costs_of("n", n, m, 3).clip(0, 200).astype(dtype))


def facts(result: bigsap.Result) -> tuple[list[int], dict[str, int], list[float]]:
    return result.col4row.tolist(), result.stats["trees"], result.v.tolist()


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["n", "10n", "few cheap", "0.1n", "twins"])
def test_the_hosts_twin(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stars, trees and counts as the host's where lists are the same; whatever the
    number of blocks and the length of a launch."""
    cost = costs_of(kind, 32, 32, 7)
    here = facts(bigsap.solve(cost, method="hungarian", variant="tree"))
    assert facts(solved(cost)) == here
    cost = costs_of(kind, 90, 90, 7)
    first = facts(solved(cost))
    for blocks, wide, seconds in ((1, 128, 0.25), (5, 1, 0.25), (3, 128, 1e-6)):
        monkeypatch.setattr(wait, "_USUAL_CHIPS", blocks)
        monkeypatch.setattr(gpu, "WIDE", wide)
        monkeypatch.setattr(wait, "_LAUNCH_SECONDS", seconds)
        assert facts(solved(cost)) == first


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["product", "sanity", "1000n", "few cheap"])
def test_what_the_device_leaves_the_host_goes_on_with(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "KEEP", 4)
        patch.setattr(forest_rows, "KEEP", 4)
        patch.setattr(device_result, "KEEP", 4)
        solved(costs_of(kind, 14, 14, 1))
        solved(costs_of(kind, 9, 16, 1))
    monkeypatch.setattr(policy, "TREE_LEVELS_ON_DEVICE", 0)
    result = solved(costs_of(kind, 50, 50, 1), variant="auto")
    counts = result.stats["trees"]
    assert result.stats["rows_scanned"] or counts["paths"] == counts["roots"]


def test_ranges_beyond_the_device() -> None:
    g = np.random.default_rng(0)
    far = g.integers(0, 2**31 - 1, (40, 40))
    assert solved(far).stats["trees"]["paths"]
    solved(g.integers(-(2**31), 2**31 - 1, (1200, 1200)).astype(np.int32)[:50])
    for cost in (g.integers(-(2**50), 2**50, (40, 40)), g.integers(-(2**31), 2**31, (9, 1100))):
        assert bigsap.solve(cost, method="hungarian", device="cuda").fun == optimum(cost)[0]
    parts = np.concatenate([far[:20] >> 3, (far[:20] >> 3) + (1 << 29)])  # near within a device
    assert bigsap.solve(parts, method="hungarian", device="cuda:0,1").fun == optimum(parts)[0]


def test_more_ties_than_room(monkeypatch: pytest.MonkeyPatch) -> None:
    g = np.random.default_rng(0)
    for cost in (np.zeros((1100, 1100), np.int32), np.minimum(g.integers(0, 300, (60, 1300)), 4)):
        best = bigsap.solve(cost, method="ssp").fun
        result = bigsap.solve(cost, method="hungarian", variant="tree", device="cuda")
        assert result.fun == best


def test_a_stop_while_trees_grow() -> None:
    cost = costs_of("1000n", 120, 120, 8)
    best = bigsap.solve(cost, method="ssp").fun

    def leave(progress: bigsap.Progress) -> None:
        if progress.stage == "search":
            raise StopIteration

    result = bigsap.solve(cost, method="hungarian", device="cuda", callback=leave, callback_every=1e-9)
    assert result.status in ("cancelled", "optimal")
    assert result.bound <= best <= result.fun


def test_what_auto_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "FEW_ROWS", 60)
    g = np.random.default_rng(0)

    def taken(cost: np.ndarray, trees: bool = True) -> str:
        found = placement.device_method(place(as_source(cost), 0, None), trees=trees)
        assert found is not None
        return found[0]

    n = 400
    for share, expected in ((1, True), (50, True), (1000, False)):
        cost = g.integers(0, share * n, (n, n))
        assert (taken(cost) == "hungarian") == expected
        assert taken(cost, trees=False) != "hungarian"
    assert taken(g.integers(0, n, (n, n + 1))) != "hungarian"
    assert taken(g.integers(0, n, (n, n)) / 4) == "hungarian"
    assert taken(g.random((n, n))) != "hungarian"
    x, y = g.random((2, n, 2))
    assert taken((90 * ((x[:, None] - y) ** 2).sum(2)).astype(int)) != "hungarian"
    x, y = g.random((n, 2)), g.random((n, 2))
    distances = ((x[:, None] - y[None]) ** 2).sum(2)
    assert taken((20 * distances).astype(np.int32)) == "hungarian"
    assert taken((400 * distances).astype(np.int32)) != "hungarian"


def test_what_is_hard_for_trees_is_left_to_lists() -> None:
    """Products of few values: most trees have not ended when a list does."""
    g = np.random.default_rng(5)
    n = 110
    cost = (20 * (g.random((n, 2)) @ g.random((2, n)))).astype(np.int32)
    result = bigsap.solve(cost, method="hungarian", device="cuda")
    tree = bigsap.solve(cost, method="hungarian", variant="tree", device="cuda")
    assert result.fun == tree.fun == optimum(cost)[0]
    assert result.stats["trees"]["roots"] > n / 2
    assert len(result.stats["phases"]) > 1  # searches in phases, from prices of their own
    assert result.stats["trees"]["levels"] < tree.stats["trees"]["levels"]


@pytest.mark.some(1)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_reals_that_are_multiples_of_a_power_of_two(dtype: str) -> None:
    """As many units of it are solved as of integers: the same trees, no gap at all."""
    for kind, n, m in (("n", 48, 48), ("few cheap", 33, 33), ("n", 20, 50)):
        whole = costs_of(kind, n, m, 3) - 7
        trees = solved(whole)
        for exponent in (-6, 0, 5):
            cost = np.ldexp(whole, exponent).astype(dtype)
            result = solved(cost)
            assert result.gap == 0.0
            assert result.col4row.tolist() == trees.col4row.tolist()
            assert result.stats["trees"] == trees.stats["trees"]
            assert (result.v == np.ldexp(trees.v, exponent)).all()
    assert solved(np.zeros((9, 9), dtype)).fun == 0


def test_other_reals_are_left_to_the_host() -> None:
    g = np.random.default_rng(4)
    forbidden = g.integers(0, 9, (30, 30)) + 0.0
    forbidden[g.random((30, 30)) < 0.3] = np.inf
    tiny = 5e-324 * g.integers(0, 9, (20, 20))
    for cost in (g.random((30, 30)), forbidden, tiny, g.integers(0, 9, (20, 20)) * 1e200):
        result = bigsap.solve(cost, method="hungarian", device="cuda")
        assert result.fun == pytest.approx(float(optimum(cost)[0]), rel=1e-12)
    forbidden[3, 4] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[3, 4\]"):
        bigsap.solve(forbidden, method="hungarian", device="cuda")


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["n", "10n", "few cheap", "0.1n", "product", "equal"])
def test_rows_on_several_devices(kind: str) -> None:
    """The bits of one device, whatever the number of devices."""
    for n, m in ((90, 90), (40, 75), (50, 33), (5, 5)):
        cost = costs_of(kind, n, m, 7)
        first = solved(cost)
        for devices in ("cuda:0,1", "cuda:1,2,0", "cuda:0,1,2,0"):
            result = bigsap.solve(cost, method="hungarian", variant="tree", device=devices)
            assert result.status == "optimal"
            assert result.stats["device"] == devices
            # A single device has tall costs' transpose in columns, and leaves it to the host; the
            # host evaluates what lists end in by itself, or on a single device.
            if n <= m and not first.stats["trees"]["list_events"]:
                assert facts(result) == facts(first)
            assert result.fun == first.fun == optimum(cost)[0]


def test_rows_of_a_matrix_on_a_device() -> None:
    """Taken in place where it lies, copied to the others."""
    cupy = pytest.importorskip("cupy")
    for n, m in ((60, 60), (48, 80), (70, 32)):
        cost = costs_of("n", n, m, 2)
        first = solved(cost)
        there = cupy.asarray(cost)
        result = bigsap.solve(there, method="hungarian", variant="tree", device="cuda:0,1")
        assert result.fun == first.fun
        assert n > m or facts(result) == facts(first)


def test_several_devices_leave_what_is_hard_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TREE_LEVELS_ON_DEVICE", 0)
    cost = costs_of("1000n", 60, 60, 1)
    for given in (cost, cost + 0.5, np.random.default_rng(0).random((40, 40))):
        result = bigsap.solve(given, method="hungarian", device="cuda:0,1")
        assert result.fun == pytest.approx(float(optimum(given)[0]), rel=1e-12)
    bare = bigsap.solve(cost, method="hungarian", device="cuda:0,1", certify=False)
    assert bare.fun == optimum(cost)[0]


def classical(cost: np.ndarray, **options: object) -> bigsap.Result:
    """Zeros found by the device; the host's answer, prices and counts."""
    told = {"method": "hungarian", "variant": "classical", **options}
    there = bigsap.solve(cost, device="cuda", **told)
    here = bigsap.solve(cost, **told)
    assert there.stats["device"] == "cuda:0"
    assert (there.fun, there.status) == (here.fun, here.status)
    assert facts(there) == facts(here)
    return there


@pytest.mark.some(4)
@pytest.mark.parametrize("kind", KINDS)
def test_classical_is_the_hosts(kind: str) -> None:
    deep = kind == "product"
    for n, m in ((14, 14), (5, 70)) if deep else ((1, 1), (33, 33), (5, 70), (20, 70), (40, 9)):
        cost = costs_of(kind, n, m, n)
        assert classical(cost).fun == optimum(cost)[0]
        assert classical(cost / 7, maximize=True).status == "optimal"


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["n", "10n", "few cheap", "twins"])
def test_classical_whatever_the_grid(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many blocks, whichever steps they share, and however short launches are."""
    cost = costs_of(kind, 50, 50, 7)
    for blocks, wide, seconds in ((1, 512, 0.25), (5, 1, 0.25), (3, 1 << 20, 0.25), (3, 512, 1e-6)):
        monkeypatch.setattr(wait, "_USUAL_CHIPS", blocks)
        monkeypatch.setattr(device_classical, "WIDE", wide)
        monkeypatch.setattr(wait, "_LAUNCH_SECONDS", seconds)
        classical(cost)


def test_classical_warm_starts() -> None:
    for n, m in ((50, 50), (30, 60)):
        cost = costs_of("10n", n, m, 4)
        cold = classical(cost)
        cost[3] = cost[3][::-1]
        classical(cost, warm_start=cold)
        classical(cost, warm_start=np.random.default_rng(0).integers(-900, 900, m).astype(float))


@pytest.mark.usefixtures("unhurried")
@pytest.mark.some(1)
@pytest.mark.parametrize(("first", "then"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
def test_classical_continues_from_a_checkpoint(
    first: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device or off it, with the answer, prices and counts of the whole solve."""
    monkeypatch.setattr(wait, "_LAUNCH_SECONDS", 1e-6)
    told = {"method": "hungarian", "variant": "classical"}
    cost = costs_of("10n", 40, 40, 6)
    whole = bigsap.solve(cost, **told)
    assert whole.stats["trees"]["stages"] > 4
    for stop in (1, 30):
        looks = 0

        def leave(progress: bigsap.Progress, stop: int = stop) -> None:
            nonlocal looks
            looks += progress.stage == "search"
            if looks > stop:
                raise StopIteration

        left = bigsap.solve(
            cost,
            device=first,
            checkpoint=tmp_path / "state",
            checkpoint_every=1e-9,
            callback=leave,
            callback_every=1e-9,
            **told,
        )
        assert left.bound <= whole.fun <= left.fun
        assigned: list[int] = []

        def hear(progress: bigsap.Progress, assigned: list[int] = assigned) -> None:
            assigned.append(progress.assigned)

        done = bigsap.resume(tmp_path / "state", cost, device=then, callback=hear, callback_every=1e-9)
        assert max(assigned) <= 40
        assert facts(done) == facts(whole)
        assert done.stats["rows_evaluated"] == whole.stats["rows_evaluated"]


def test_classical_tells_of_rows_without_columns() -> None:
    cost = costs_of("n", 20, 30, 1).astype(float)
    cost[[3, 8, 11], 2:] = np.inf
    told = {"method": "hungarian", "variant": "classical"}
    result = bigsap.solve(cost, device="cuda", **told)
    assert result.status == "infeasible"
    assert result.violator.tolist() == [3, 8, 11]
    assert result.stats["trees"] == bigsap.solve(cost, **told).stats["trees"]


@pytest.mark.some(2)
@pytest.mark.parametrize("dtype", ["u1", "f4", "u2", "i4", "i8"])
def test_classical_takes_any_dtype(dtype: str) -> None:
    classical(np.random.default_rng(1).integers(0, 200, (30, 30)).astype(dtype))


def test_classical_takes_any_costs() -> None:
    g = np.random.default_rng(1)
    classical(g.integers(-(2**50), 2**50, (20, 20)))
    for share in (0.3, 0.8):
        cost = g.random((24, 25))
        cost[g.random(cost.shape) < share] = np.inf
        classical(cost)
    x, y = g.random((2, 40, 2))
    points = {"method": "hungarian", "variant": "classical"}
    there = bigsap.solve(bigsap.points(x, y), device="cuda", **points)
    assert there.fun == pytest.approx(bigsap.solve(bigsap.points(x, y), method="ssp").fun)
    cost[3, 4] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[3, 4\]"):
        bigsap.solve(cost, device="cuda", **points)
    with pytest.raises(bigsap.OverflowRiskError):
        bigsap.solve(np.full((4, 4), 2**62), device="cuda", **points)


@pytest.mark.parametrize("by", [1, -1])
def test_a_block_of_rows_has_rounded_minima_and_another_none(by: int) -> None:
    """The pass rounds ``c - v`` in the rows of one device, and not in those of the other."""
    cost = np.vstack((np.zeros((16, 3)), np.ones((16, 3))))[::by]
    prices = np.full(3, 2.0**-60)
    blocks = RowsOnDevices(as_source(cost), (0, 1), None)
    found = blocks.row_minima(None, prices, None, False, lambda _: None)
    assert found is not None
    for row, parts in enumerate(zip(*found[:2], strict=True)):
        assert sum(map(Fraction, parts)) == Fraction(cost[row, 0]) - Fraction(prices[0])


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("method", ["hungarian", "ssp"])
def test_a_solve_stopped_before_its_costs_are_copied(method: str) -> None:
    cost = np.random.default_rng(5).random((40, 36))
    cancel = threading.Event()
    cancel.set()
    result = bigsap.solve(cost, method=method, device="cuda:0,1", cancel=cancel)
    assert result.status == "cancelled"
    assert result.bound <= optimum(cost, False)[0] <= result.fun
