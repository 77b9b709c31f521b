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
