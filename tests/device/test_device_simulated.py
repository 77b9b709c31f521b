"""Device kernels and what launches them, run on this machine: ``tests/support/simulated``.

The texts of the kernels are compiled for the host and run block by block, so that index
arithmetic, exchanges and searches are tested where no GPU is. Timing, memory order and
clusters are not: for these there is ``tests/device/gpu``.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import batch, policy
from bigsap.engine.cuda import device_engine as gpu
from bigsap.engine.cuda import shares as gpu_parts
from bigsap.engine.cuda.device_engine import DeviceEngine, merge_minima
from bigsap.engine.cuda.shares import greetings
from bigsap.errors import DeviceMemoryError, OptionError
from bigsap.sources import as_source
from bigsap.sources.cuda import device_memory
from bigsap.sources.cuda.placed import place
from bigsap.sources.cuda.slabs import slab_bounds
from bigsap.strategies import placement as devices_of
from bigsap.strategies.placement import few_values, unrelated
from pairwise import each

optimize = pytest.importorskip("scipy.optimize")
pytestmark = pytest.mark.usefixtures("no_small")

KERNEL = """\
__device__ double cost(long long i, long long j, const double *x, const double *y) {
    double a = x[2 * i] - y[2 * j], b = x[2 * i + 1] - y[2 * j + 1];
    return a * a + b * b;
}
"""


def costs(n: int, m: int, seed: int = 1) -> np.ndarray:
    g = np.random.default_rng(seed)
    x, y = g.random((n, 2)), g.random((m, 2))
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def optimum(matrix: np.ndarray, maximize: bool = False) -> float:
    rows, columns = optimize.linear_sum_assignment(matrix, maximize)
    return float(matrix[rows, columns].astype(np.float64).sum())


def same(several: bigsap.Result, one: bigsap.Result) -> None:
    assert several.status == one.status == "optimal"
    assert several.stats["rows_scanned"] == one.stats["rows_scanned"]
    assert np.array_equal(several.col4row, one.col4row)
    assert several.v.tobytes() == one.v.tobytes()


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("shape", "devices"),
    [
        ((48, 48), ["cuda:0,0"]),
        ((40, 75), ["cuda:0,1"]),
        ((30, 140), ["cuda:1,0", "cuda:2,0,1"]),
        ((75, 40), ["cuda:0,0"]),
    ],
)
def test_slabs_do_what_one_device_does(cupy: Any, shape: tuple[int, int], devices: list[str]) -> None:
    matrix = costs(*shape)
    one = bigsap.solve(matrix, device="cuda", method="ssp")
    assert one.fun == pytest.approx(optimum(matrix), rel=1e-12)
    for device in devices:
        several = bigsap.solve(matrix, device=device)
        same(several, one)
        assert several.stats["device"] == device
        several.verify(matrix)


def test_groups_of_several_blocks(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"GROUP": 2, "THREADS": 64, "COLS": 1, "USE_CLUSTER": 0}
    monkeypatch.setattr(gpu_parts, "geometry", lambda m, major: dict(shape))
    matrix = costs(30, 40)
    one = bigsap.solve(matrix, device="cuda", method="ssp")
    assert one.fun == pytest.approx(optimum(matrix), rel=1e-12)
    same(bigsap.solve(matrix, device="cuda:0,1"), one)


@pytest.mark.some(1)
@pytest.mark.parametrize("dtype", ["i4", "i8", "u1"])
def test_integers(cupy: Any, dtype: str) -> None:
    matrix = (np.random.default_rng(3).random((40, 48)) * 25).astype(dtype)
    layouts = [matrix, cupy.asarray(matrix)]
    if dtype == "i4":
        layouts.append(cupy.asarray(matrix.T.copy()).T)
    for given in layouts:
        result = bigsap.solve(given, device="cuda:0,1", maximize=True)
        assert result.fun == optimum(matrix, True)


def test_computed_costs(cupy: Any) -> None:
    g = np.random.default_rng(5)
    x, y = g.random((30, 2)), g.random((40, 2))
    text = "(x[i,0]-y[j,0])**2 + (x[i,1]-y[j,1])**2"
    square = ((x[:, None] - y[None]) ** 2).sum(-1)
    for source, matrix in (
        (bigsap.points(x, y), square),
        (bigsap.lowrank(x, y), x @ y.T),
        (bigsap.expression(text, (30, 40), x=x, y=y), square),
        (bigsap.cuda_kernel(KERNEL, (40, 30), (y, x)), square),
    ):
        several = bigsap.solve(source, device="cuda:0,1", method="ssp")
        assert several.status == "optimal"
        assert several.fun == pytest.approx(optimum(matrix), rel=1e-12)
    one = bigsap.solve(source, device="cuda", method="ssp")
    same(several, one)


def test_through_host_memory(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = costs(30, 40)
    one = bigsap.solve(matrix, device="cuda", method="ssp")
    ways = []
    usual = gpu_parts.Exchange.__init__

    def noted(self: Any, *given: Any) -> None:
        usual(self, *given)
        ways.append(self.way)

    monkeypatch.setattr(gpu_parts.Exchange, "__init__", noted)
    monkeypatch.setattr(cupy.cuda.runtime, "deviceCanAccessPeer", lambda a, b: 0)
    same(bigsap.solve(matrix, device="cuda:0,1"), one)
    same(bigsap.solve(matrix, device="cuda:0,0"), one)  # its own memory is in reach
    assert ways == ["host", "device"]


@pytest.mark.parametrize("device", ["cuda", "cuda:0,1"])
def test_launches_are_counted(cupy: Any, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """One launch for each of the two sweeps and each phase with searches, on however many
    devices: no round trip of the host for a scan."""
    # A launch also ends when its slice of time does: no such end on a busy machine.
    monkeypatch.setattr(gpu, "_SLICE_SECONDS", 3600.0)
    launches: Counter[str] = Counter()
    usual = DeviceEngine._launch

    def counted(self: DeviceEngine, name: str, *rest: Any) -> int:
        launches[name] += 1
        return usual(self, name, *rest)

    monkeypatch.setattr(DeviceEngine, "_launch", counted)
    result = bigsap.solve(costs(48, 48), device=device, method="ssp")
    searched = sum(phase["rows_scanned"] > 0 for phase in result.stats["phases"])
    assert result.stats["rows_scanned"] > 10 * len(result.stats["phases"])
    assert launches == {"bigsap_picks": 2, "bigsap_search": searched}


def test_a_link_that_loses_letters_is_noticed(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_parts, "greetings", lambda me, count: greetings(me, count) + 1)
    with pytest.raises(bigsap.BigsapError, match="cannot exchange"):
        bigsap.solve(costs(30, 40), device="cuda:0,1")


def test_who_is_left_alone_gives_up(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_parts, "PATIENCE_SECONDS", 0.05)
    usual = DeviceEngine._launch

    def astray(self: DeviceEngine, name: str, *rest: Any) -> int:
        if name == "bigsap_search":
            self.parts[-1].post[3] = self.parts[-1].post[4]  # it writes to itself
        return usual(self, name, *rest)

    monkeypatch.setattr(DeviceEngine, "_launch", astray)
    with pytest.raises(bigsap.BigsapError, match="lost each other"):
        bigsap.solve(costs(30, 40), device="cuda:0,1")


def test_a_launch_that_fails_leaves_nobody_waiting(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = gpu_parts.DevicePart.kernel

    def broken(self: gpu_parts.DevicePart, name: str, *rest: Any) -> Any:
        kernel = usual(self, name, *rest)
        if name == "bigsap_picks" and self.device == 1:

            def fail(*_: Any, **__: Any) -> None:
                raise RuntimeError("out of resources")

            return fail
        return kernel

    monkeypatch.setattr(gpu_parts.DevicePart, "kernel", broken)
    with pytest.raises(RuntimeError, match="out of resources"):
        bigsap.solve(costs(30, 40), device="cuda:0,1")


class TestOutcomes:
    def test_infeasible_and_invalid(self, cupy: Any) -> None:
        matrix = costs(40, 40)
        matrix[:10, 6:] = np.inf
        result = bigsap.solve(matrix, device="cuda:0,1")
        assert result.status == "infeasible"
        assert set(result.violator) <= set(range(10))
        matrix[7, 38] = np.nan
        with pytest.raises(bigsap.InvalidCostError) as caught:
            bigsap.solve(matrix, device="cuda:0,1")
        assert (caught.value.row, caught.value.column) == (7, 38)

    @pytest.mark.usefixtures("unhurried")
    @each(device=["cuda", "cuda:0,1", "cuda:1,0"], way=["time_limit", "cancel", "callback"])
    def test_a_stop_while_costs_are_copied(
        self, cupy: Any, device: str, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        matrix = costs(60, 80)
        best, asked = optimum(matrix), []
        monkeypatch.setattr(device_memory, "PANEL_BYTES", 16 * 80 * 8)
        options: dict[str, Any] = {"time_limit": {"time_limit": 0.0}}.get(way, {})
        if way == "cancel":
            options["cancel"] = threading.Event()
            options["cancel"].set()
        if way == "callback":

            def once(progress: Any) -> None:
                asked.append(progress.stage)
                if len(asked) == 2:  # in the middle of the copy; not asked again
                    raise StopIteration

            options |= {"callback": once, "callback_every": 0.0}
        for given in (matrix, matrix.T, np.asfortranarray(matrix)):
            asked.clear()
            result = bigsap.solve(given, device=device, checkpoint=tmp_path / "c", **options)
            assert result.status == ("time_limit" if way == "time_limit" else "cancelled")
            assert len(asked) == (2 if way == "callback" else 0)
            assert result.stats["device"] == "cpu"
            assert result.bound <= best
            rows = np.flatnonzero(result.col4row >= 0)
            assert rows.size == 60
            assert result.fun == pytest.approx(given[rows, result.col4row[rows]].sum())
            assert result.fun >= best

    @pytest.mark.parametrize("device", ["cuda", "cuda:0,1"])
    def test_a_checkpoint_survives_a_stop_while_costs_are_copied(
        self, cupy: Any, device: str, tmp_path: Path
    ) -> None:
        matrix, path = costs(40, 40), tmp_path / "c"
        whole = bigsap.solve(matrix, device=device, method="ssp", checkpoint=path)
        stopped = bigsap.resume(path, matrix, device=device, time_limit=0.0)
        # Slabs are copied after the checkpoint is read, whose assignment may be proved at once.
        assert stopped.status in ("time_limit", "optimal")
        assert stopped.stats["device"] == "cpu"
        same_answer = bigsap.resume(path, matrix, device=device)
        assert same_answer.col4row.tolist() == whole.col4row.tolist()

    @pytest.mark.parametrize("device", ["cuda", "cuda:0,1"])
    def test_a_checkpoint_knows_the_prices_of_rows_left_out(
        self, cupy: Any, device: str, tmp_path: Path
    ) -> None:
        matrix, path = costs(50, 30), tmp_path / "c"
        rows = bigsap.from_function(lambda i: matrix[i], (50, 30), kind="row")
        options: dict[str, Any] = {"unassigned_cost": 0.01, "device": device}
        whole = bigsap.solve(rows, checkpoint=path, **options)
        again = bigsap.resume(path, lambda i: matrix[i], **options)
        assert again.col4row.tolist() == whole.col4row.tolist()
        assert again.stats["resumed"] == 1
        with pytest.raises(bigsap.CheckpointError, match="unassigned"):
            bigsap.resume(path, rows, **(options | {"unassigned_cost": 0.02}))

    def test_refusals(self, cupy: Any) -> None:
        matrix = costs(40, 40)
        with pytest.raises(OptionError, match="one device"):
            bigsap.solve(matrix, device="cuda:0,1", method="compressed")
        with pytest.raises(OptionError, match="does not exist"):
            bigsap.solve(matrix, device="cuda:0,9")
        with pytest.raises(DeviceMemoryError, match="bytes of cuda:0") as caught:
            bigsap.solve(matrix, device=["cuda:0", "cuda:1"], memory_limit=1000)
        assert caught.value.nbytes == 40 * 32 * 8
        # A row of costs is 320 bytes, but the limit is of each device, which has a part of it.
        with pytest.raises(DeviceMemoryError, match=r"bytes of cuda:0.*name more devices"):
            bigsap.solve(matrix, device="cuda:0,1", memory_limit=300)

    def test_a_slab_that_computes_something_else_is_caught(
        self, cupy: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from bigsap.sources.cuda.slabs import SlabsOnDevices

        usual = SlabsOnDevices.slabs

        def wrong(self: SlabsOnDevices, *given: Any) -> Any:
            found = usual(self, *given)
            found[1].source.array[5, 2] -= 0.5
            return found

        monkeypatch.setattr(SlabsOnDevices, "slabs", wrong)
        with pytest.raises(bigsap.CertificateError, match="the device computes"):
            bigsap.solve(costs(40, 40), device="cuda:0,1")


def test_a_batch_on_a_device_is_solved_one_problem_after_the_other(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one launch is not enough: all memory of the device is the problem's, and all threads."""
    pools, asked, pool, usual = [], [], batch.ThreadPoolExecutor, batch.solve
    monkeypatch.setattr(batch, "ThreadPoolExecutor", lambda n, *rest: pools.append(n) or pool(n, *rest))
    monkeypatch.setattr(batch, "solve", lambda cost, **given: asked.append(given) or usual(cost, **given))
    matrices = np.stack([costs(20, 30, seed) for seed in range(4)])
    found = bigsap.solve_many(matrices, device="cuda", threads=3, method="ssp")
    assert found.fun == pytest.approx([optimum(matrix) for matrix in matrices])
    assert pools == [1]
    assert asked == [{"maximize": False, "device": "cuda", "threads": 3, "method": "ssp"}] * 4


@each(n_columns=[0, 1, 15, 16, 17, 100, 4096, 100_001], n_devices=[1, 2, 3, 8])
def test_every_column_is_in_one_slab(n_columns: int, n_devices: int) -> None:
    bounds = slab_bounds(n_columns, n_devices)
    assert bounds[0] == 0
    assert bounds[-1] == n_columns
    assert len(bounds) <= n_devices + 1
    widths = np.diff(bounds)
    assert (widths > 0).all()
    assert all(b % 16 == 0 for b in bounds[:-1])
    assert widths.size == 0 or widths.max() <= n_columns / n_devices + 16


def test_minima_of_two_slabs() -> None:
    g = np.random.default_rng(0)
    values = g.integers(0, 9, (50, 12)).astype(float)
    ordered = [np.sort(part, axis=1) for part in (values[:, :5], values[:, 5:])]
    low, second = ordered[0][:, 0].copy(), ordered[0][:, 1].copy()
    merge_minima(low, second, ordered[1][:, 0], ordered[1][:, 1], probed=False)
    assert np.array_equal(np.stack([low, second], 1), np.sort(values, axis=1)[:, :2])
    found = np.array([1.0, np.inf, np.inf])
    merge_minima(low[:3], found, low[:3], np.array([np.inf, 4.0, np.inf]), probed=True)
    assert found.tolist() == [1.0, 4.0, np.inf]


def test_integers_of_a_small_range_are_solved_by_lists() -> None:
    g = np.random.default_rng(0)
    assert few_values(g.integers(-400, 400, (16, 800)), 800)
    assert not few_values(g.integers(0, 800_000, (16, 800)), 800)
    assert few_values(g.integers(0, 800_000, (16, 800)), 400_000)


def test_rows_without_a_pattern_are_known() -> None:
    g = np.random.default_rng(0)
    for m in (700, 5000):
        assert unrelated(g.random((16, m)))
        assert unrelated(g.integers(0, 2**60, (16, m)))
        assert unrelated(g.exponential(size=(16, m)))
        assert not unrelated(g.random((16, 2)) @ g.random((2, m)))
        assert not unrelated(g.random((16, 1)) + g.random(m))
        assert not unrelated(g.random((16, m)) + 0.3 * g.random(m))
        x, y = g.random((16, 2)), g.random((m, 2))
        assert not unrelated(((x[:, None] - y[None]) ** 2).sum(-1))
    some = g.random((16, 700))
    some[3, 5] = np.inf
    assert not unrelated(some)
    assert not unrelated(np.ones((16, 700)))
    assert not unrelated(1e300 * g.random((16, 700)))  # too large to tell


def test_what_auto_takes_on_a_device(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "FEW_ROWS", 200)
    monkeypatch.setattr(policy, "UNRELATED_ROWS", 300)
    g = np.random.default_rng(0)

    def taken(source: Any) -> str:
        found = devices_of.device_method(place(as_source(source), 0, None))
        assert found is not None
        return found[0]

    methods = [taken(g.random((n, n))) for n in (199, 200, 299, 300)]
    assert methods == ["ssp", "compressed", "compressed", "ssp"]
    assert taken(g.random((250, 350))) == "ssp"
    assert taken(costs(250, 250)) == "ssp"
    assert taken(bigsap.points(*g.random((2, 250, 2)))) == "ssp"
    matrix = g.random((210, 210))
    result = bigsap.solve(matrix, device="cuda")
    assert (result.stats["method"], result.status) == ("compressed", "optimal")
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)


def test_lists_on_trial(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where costs are as dense everywhere lists are searched; of clusters, whole rows."""
    monkeypatch.setattr(policy, "FEW_ROWS", 100)
    monkeypatch.setattr(policy, "TRIED_ROWS", 200)
    monkeypatch.setattr(policy, "LIST_SIZE", 20)
    g = np.random.default_rng(0)
    k = np.arange(240) % 8
    middles, sizes = 30 * g.random((8, 2)), 0.01 + g.random(8)[:, None] ** 4
    x, y = (middles[k] + sizes[k] * g.random((240, 2)) for _ in range(2))
    even, clusters = g.random((240, 240)) + 3 * g.random(240), ((x[:, None] - y) ** 2).sum(2)
    for scattered, matrix in ((False, even), (True, clusters)):
        result = bigsap.solve(matrix, device="cuda")
        assert result.status == "optimal"
        assert result.fun == pytest.approx(optimum(matrix), rel=1e-9)
        assert result.stats["why"].startswith("the device scans" if scattered else "lists")


@pytest.mark.slow
def test_scans_of_many_rows_begin_from_levels(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = costs(600, 600)
    published = bigsap.solve(matrix, device="cuda", method="ssp")
    assert published.stats["first_prices"] != "levels"
    monkeypatch.setattr(policy, "LEVELS_ON_DEVICE_ROWS", 600)
    monkeypatch.setattr(policy, "FIRST_PRICES_ROWS", 600)
    result = bigsap.solve(matrix, device="cuda", method="ssp")
    assert result.status == "optimal"
    assert result.stats["first_prices"] == "levels"
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
    assert result.stats["rows_scanned"] < published.stats["rows_scanned"]
    noise = np.random.default_rng(0).random((600, 600))
    for method in ("ssp", "compressed"):
        result = bigsap.solve(noise, device="cuda", method=method)
        assert result.stats["first_prices"] == "estimate"
        assert result.fun == pytest.approx(optimum(noise), rel=1e-12)


@pytest.mark.parametrize("m", [700, 3000])
def test_more_candidates_than_are_sorted_at_once(cupy: Any, m: int) -> None:
    """Threads that added candidates met others that had not yet asked whether there were too
    many: some sorted, some did not, and a device stopped with an illegal address."""
    matrix = np.random.default_rng(0).integers(0, 2, (40, m)).astype(np.float64)
    result = bigsap.solve(matrix, device="cuda", method="compressed", start="none")
    twin = bigsap.solve(matrix, method="compressed", start="none")
    assert result.fun == twin.fun == 0
    assert result.v.tobytes() == twin.v.tobytes()


def test_compiled_modules_are_kept_for_this_user_alone(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are loaded: those of others, or of other options, must not be."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    module = cupy.RawModule('extern "C" __global__ void bigsap_nothing(int n) { }', ())
    for count, options in ((1, cupy.OPTIONS), (1, cupy.OPTIONS), (2, (*cupy.OPTIONS, "-DOTHER"))):
        monkeypatch.setattr(cupy, "OPTIONS", options)
        module.compile()
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        assert len(list(folder.iterdir())) == count
    folder.rename(tmp_path / "other")
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(PermissionError, match="not a folder of this user"):
        module.compile()
