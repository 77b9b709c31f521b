"""Trees of the Hungarian method on a device."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap

cupy = pytest.importorskip("cupy")
optimize = pytest.importorskip("scipy.optimize")


def best(cost: np.ndarray, maximize: bool = False) -> float:
    rows, columns = optimize.linear_sum_assignment(cost, maximize=maximize)
    return float(cost[rows, columns].sum())


@pytest.mark.parametrize("share", [0.002, 0.1, 1, 10, 1000])
@pytest.mark.parametrize("shape", [(33, 33), (1023, 1023), (1025, 1025), (700, 2000), (2500, 2500)])
def test_optima(shape: tuple[int, int], share: float) -> None:
    g = np.random.default_rng(1)
    cost = g.integers(0, max(1, int(share * shape[0])) + 1, shape).astype(np.int32)
    for variant in ("auto", "tree"):
        result = bigsap.solve(cost, method="hungarian", device="cuda", variant=variant)
        assert result.status == "optimal"
        assert result.fun == best(cost)
        again = bigsap.solve(cost, method="hungarian", device="cuda", variant=variant)
        assert (again.col4row == result.col4row).all()
        assert again.stats["trees"] == result.stats["trees"]


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "i8"])
@pytest.mark.parametrize("maximize", [False, True])
def test_dtypes(dtype: str, maximize: bool) -> None:
    cost = np.random.default_rng(2).integers(0, 250, (600, 600)).astype(dtype)
    result = bigsap.solve(cost, method="hungarian", device="cuda", maximize=maximize)
    assert result.fun == best(cost, maximize)


def test_the_hosts_twin() -> None:
    cost = np.random.default_rng(3).integers(0, 40, (32, 32))
    here = bigsap.solve(cost, method="hungarian", variant="tree")
    there = bigsap.solve(cost, method="hungarian", variant="tree", device="cuda")
    assert here.col4row.tolist() == there.col4row.tolist()
    assert here.stats["trees"] == there.stats["trees"]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_reals_of_a_common_unit(dtype: str) -> None:
    whole = np.random.default_rng(4).integers(0, 3000, (1500, 1500))
    cost = (whole / 8).astype(dtype)
    trees = bigsap.solve(whole, method="hungarian", variant="tree", device="cuda")
    result = bigsap.solve(cost, method="hungarian", variant="tree", device="cuda")
    assert result.fun * 8 == trees.fun == best(whole)
    assert result.gap == 0
    assert result.stats["trees"] == trees.stats["trees"]
    assert (result.col4row == trees.col4row).all()


@pytest.mark.parametrize("share", [0.1, 1, 10])
def test_classical_is_the_hosts(share: float) -> None:
    for shape in ((500, 500), (300, 700)):
        cost = np.random.default_rng(5).integers(0, int(share * 500) + 1, shape)
        here = bigsap.solve(cost, method="hungarian", variant="classical")
        there = bigsap.solve(cost, method="hungarian", variant="classical", device="cuda")
        assert there.fun == here.fun == best(cost)
        assert (there.col4row == here.col4row).all()
        assert there.stats["trees"] == here.stats["trees"]


@pytest.mark.parametrize("variant", ["plain", "scaled"])
def test_the_auctions_bids_are_the_hosts(variant: str) -> None:
    for cost in (
        np.random.default_rng(6).integers(0, 5000, (400, 400)),
        np.random.default_rng(6).random((300, 400)),
    ):
        here = bigsap.solve(cost, method="auction", variant=variant)
        there = bigsap.solve(cost, method="auction", variant=variant, device="cuda")
        assert there.stats["auction"] == here.stats["auction"]
        assert there.fun == pytest.approx(best(cost), rel=1e-12)


def test_rows_on_two_devices() -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one device")
    for share in (0.1, 1, 10):
        cost = np.random.default_rng(7).integers(0, int(2000 * share) + 1, (2000, 2000))
        one = bigsap.solve(cost, method="hungarian", variant="tree", device="cuda")
        two = bigsap.solve(cost, method="hungarian", variant="tree", device="cuda:0,1")
        assert two.fun == one.fun == best(cost)
        assert (two.col4row == one.col4row).all()
        assert two.stats["trees"] == one.stats["trees"]
