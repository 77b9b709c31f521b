"""Several devices by column slabs; one device may be named twice, which needs no second."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap.engine.cuda import device_engine as gpu
from bigsap.engine.cuda import shares as gpu_parts
from bigsap.engine.cuda.device_engine import DeviceEngine

cupy = pytest.importorskip("cupy")
optimize = pytest.importorskip("scipy.optimize")
pytestmark = pytest.mark.usefixtures("no_small")

KERNEL = """\
__device__ double cost(long long i, long long j, const double *x, const double *y) {
    double a = x[2 * i] - y[2 * j], b = x[2 * i + 1] - y[2 * j + 1];
    return a * a + b * b;
}
"""


def devices() -> list[str]:
    count = cupy.cuda.runtime.getDeviceCount()
    return ["cuda:0,0", "cuda:0,0,0", *(["cuda:0,1", "cuda:1,0"] if count > 1 else [])]


def costs(n: int, m: int, seed: int = 1) -> np.ndarray:
    g = np.random.default_rng(seed)
    x, y = g.random((n, 2)), g.random((m, 2))
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def same(several: bigsap.Result, one: bigsap.Result, device: str) -> None:
    """Not only the optimum: the same searches, step for step."""
    assert several.status == one.status == "optimal", several.message
    assert several.stats["device"] == device
    assert several.fun == one.fun
    assert several.stats["rows_scanned"] == one.stats["rows_scanned"]
    assert np.array_equal(several.col4row, one.col4row)
    assert several.v.tobytes() == one.v.tobytes()


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("shape", [(40, 40), (600, 600), (500, 700), (200, 1000), (700, 500)])
def test_slabs_do_what_one_device_does(device: str, shape: tuple[int, int]) -> None:
    matrix = costs(*shape)
    several = bigsap.solve(matrix, device=device, method="ssp")
    same(several, bigsap.solve(matrix, device="cuda", method="ssp"), device)
    rows, columns = optimize.linear_sum_assignment(matrix)
    assert several.fun == pytest.approx(matrix[rows, columns].sum(), rel=1e-12)
    several.verify(matrix)


@pytest.mark.parametrize("device", devices())
def test_computed_costs(device: str) -> None:
    g = np.random.default_rng(5)
    x, y = g.random((500, 2)), g.random((620, 2))
    text = "(x[i,0]-y[j,0])**2 + (x[i,1]-y[j,1])**2"
    for source in (
        bigsap.points(x, y),
        bigsap.points(y, x, "cityblock"),
        bigsap.lowrank(x, y),
        bigsap.expression(text, (500, 620), x=x, y=y),
        bigsap.cuda_kernel(KERNEL, (620, 500), (y, x)),
    ):
        several = bigsap.solve(source, device=device, method="ssp")
        same(several, bigsap.solve(source, device="cuda", method="ssp"), device)


@pytest.mark.parametrize("device", devices()[-1:])
def test_through_host_memory(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = []

    class Through(gpu_parts.Exchange):
        def __init__(self, parts: list[gpu_parts.DevicePart], way: str | None = None) -> None:
            super().__init__(parts, "host" if len(parts) > 1 else None)
            ways.append(self.way)

    matrix = costs(300, 330)
    one = bigsap.solve(matrix, device="cuda", method="ssp")
    monkeypatch.setattr(gpu, "Exchange", Through)
    same(bigsap.solve(matrix, device=device, method="ssp"), one, device)
    assert ways == ["host"]


@pytest.mark.parametrize("device", devices()[-1:])
def test_who_is_left_alone_gives_up(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose letters never arrive ends the solve with an error, not a hang."""
    monkeypatch.setattr(gpu_parts, "PATIENCE_SECONDS", 0.05)
    usual = DeviceEngine._launch

    def astray(self: DeviceEngine, name: str, *rest: object) -> int:
        if name == "bigsap_search":
            # The last part writes to itself what the others wait for.
            last = self.parts[-1]
            with last.here():
                last.post[3 : 2 + len(self.parts)] = last.post[2 + len(self.parts)]
        return usual(self, name, *rest)

    monkeypatch.setattr(DeviceEngine, "_launch", astray)
    matrix = costs(300, 300)
    with pytest.raises(bigsap.BigsapError, match="lost each other"):
        bigsap.solve(matrix, device=device)
    monkeypatch.undo()
    assert bigsap.solve(matrix, device=device).status == "optimal"
