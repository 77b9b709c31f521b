"""Solves on a real device, against scipy, the CPU and brute force."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

import bigsap
import device_twins as twins
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import device_engine as gpu
from bigsap.engine.cuda import shares as gpu_parts
from bigsap.engine.cuda.device_lists import DeviceListEngine
from bigsap.errors import InvalidCostError, OptionError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.row_minima import Prices, row_minima, whole
from bigsap.sources import ArraySource, as_source
from bigsap.sources.cuda import device_memory
from bigsap.sources.cuda.placed import MatrixOnDevice, place

cupy = pytest.importorskip("cupy")
optimize = pytest.importorskip("scipy.optimize")

KERNEL = """\
__device__ double cost(long long i, long long j, const double *x, const double *y) {
    double a = x[2 * i] - y[2 * j], b = x[2 * i + 1] - y[2 * j + 1];
    return a * a + b * b;
}
"""


def costs(kind: str, n: int, m: int, seed: int = 1) -> np.ndarray:
    g = np.random.default_rng(seed)
    if kind == "random":
        return g.random((n, m))
    x, y = g.random((n, 2)), g.random((m, 2))
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def optimum(matrix: np.ndarray, maximize: bool = False) -> float:
    rows, columns = optimize.linear_sum_assignment(matrix, maximize)
    return float(matrix[rows, columns].astype(np.float64).sum())


def agrees(result: bigsap.Result, wanted: float) -> None:
    assert result.status == "optimal", result.message
    assert result.stats["device"] == "cuda:0"
    assert result.fun == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("epsilon", [True, False])
@pytest.mark.parametrize("kind", ["random", "geometric"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (40, 40), (500, 500), (500, 700), (200, 1000), (700, 500), (900, 30)]
)
def test_dense_agrees_with_scipy(shape: tuple[int, int], kind: str, epsilon: bool) -> None:
    matrix = costs(kind, *shape)
    result = bigsap.solve(matrix, device="cuda", method="ssp", epsilon=epsilon)
    agrees(result, optimum(matrix))
    result.verify(matrix)


@pytest.mark.parametrize("shape", [(900, 900), (3000, 3000), (800, 2000), (2000, 800)])
@pytest.mark.parametrize("there", [False, True])
def test_compressed_agrees_with_scipy(shape: tuple[int, int], there: bool) -> None:
    matrix = costs("random", *shape)
    given = cupy.asarray(matrix) if there else matrix
    agrees(bigsap.solve(given, device="cuda", method="compressed"), optimum(matrix))


@pytest.mark.parametrize("dtype", ["f4", "i8", "i4", "u1", "u2"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_dtypes(dtype: str, maximize: bool, method: str) -> None:
    matrix = (np.random.default_rng(3).random((400, 410)) * 250).astype(dtype)
    result = bigsap.solve(cupy.asarray(matrix), device="cuda", maximize=maximize, method=method)
    agrees(result, optimum(matrix, maximize))


def test_large_integers_are_exact() -> None:
    matrix = np.random.default_rng(3).integers(0, 2**45, (300, 300))
    result = bigsap.solve(matrix, device="cuda", method="ssp")
    rows, columns = optimize.linear_sum_assignment(matrix)
    assert result.fun == int(matrix[rows, columns].sum())
    assert result.stats["price"] == "int64"


@pytest.mark.parametrize(
    "shape",
    [
        {"GROUP": 16, "THREADS": 64, "COLS": 1, "USE_CLUSTER": 1},
        {"GROUP": 2, "THREADS": 32, "COLS": 16, "USE_CLUSTER": 1},
        {"GROUP": 1, "THREADS": 32, "COLS": 32, "USE_CLUSTER": 1},
        {"GROUP": 8, "THREADS": 64, "COLS": 2, "USE_CLUSTER": 0},
        {"GROUP": 1, "THREADS": 32, "COLS": 32, "USE_CLUSTER": 0},
    ],
    ids=str,
)
def test_every_form_of_the_group(shape: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_parts, "geometry", lambda m, major: dict(shape))
    for matrix in (costs("geometric", 700, 1000), costs("geometric", 1000, 1000)):
        agrees(bigsap.solve(matrix, device="cuda", method="ssp"), optimum(matrix))


def test_notes_beyond_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_NOTES", 3)
    matrix = costs("geometric", 400, 400)
    agrees(bigsap.solve(matrix, device="cuda", method="ssp", epsilon=False), optimum(matrix))


@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize(
    "metric", ["sqeuclidean", "euclidean", "cityblock", "chebyshev", "cosine", "minkowski"]
)
def test_points(metric: str, method: str) -> None:
    g = np.random.default_rng(5)
    source = bigsap.points(g.random((900, 3)), g.random((900, 3)), metric)
    wanted = bigsap.solve(source, method="ssp").fun
    result = bigsap.solve(source, device="cuda", method=method)
    agrees(result, wanted)
    result.verify(source)


def test_computed_costs_have_the_hosts_bits() -> None:
    g = np.random.default_rng(6)
    x, y = g.random((60, 2)), g.random((90, 2))
    sources = [bigsap.points(x, y, metric) for metric in ("sqeuclidean", "euclidean", "cosine")]
    sources.append(bigsap.points(g.random((60, 20)), g.random((90, 20))))
    sources.append(bigsap.lowrank(x, y, column_terms=g.random(90)))
    sources.append(bigsap.expression("abs(x[i,0]-y[j,1]) / (1 + i)", (60, 90), x=x, y=y))
    for source in sources:
        there = place(source, 0, None)
        there.host = None  # rows from the device, not through the host
        here, found = np.empty((60, 90)), np.empty((60, 90))
        source.read(np.arange(60), slice(0, 90), here)
        there.read(np.arange(60), slice(0, 90), found)
        assert here.tobytes() == found.tobytes(), source


@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_other_computed_costs(method: str) -> None:
    g = np.random.default_rng(5)
    x, y = g.random((900, 2)), g.random((1000, 2))
    wanted = bigsap.solve(bigsap.points(x, y)).fun
    text = "(x[i,0]-y[j,0])**2 + (x[i,1]-y[j,1])**2"
    agrees(bigsap.solve(bigsap.expression(text, (900, 1000), x=x, y=y), device="cuda", method=method), wanted)
    kernel = bigsap.cuda_kernel(KERNEL, (900, 1000), (x, cupy.asarray(y)))
    agrees(bigsap.solve(kernel, device="cuda", method=method), wanted)
    tall = bigsap.cuda_kernel(KERNEL, (1000, 900), (y, x))
    agrees(bigsap.solve(tall, device="cuda", method=method), wanted)


def test_a_kernel_that_does_not_compile() -> None:
    code = "__device__ double cost(long long i, long long j) {\n  return i +* j;\n}"
    with pytest.raises(bigsap.KernelError, match="line 2") as caught:
        bigsap.solve(bigsap.cuda_kernel(code, (30, 30)), device="cuda")
    assert caught.value.line == 2


class TestDeviceArrays:
    def test_views_and_protocols(self) -> None:
        matrix = costs("random", 300, 300)
        there = cupy.asarray(matrix)
        wide = cupy.zeros((300, 320))
        wide[:, 7:307] = there
        wanted = optimum(matrix)
        by_protocol = type(
            "A",
            (),
            {
                "__dlpack__": lambda self, **k: there.__dlpack__(**k),
                "__dlpack_device__": lambda self: there.__dlpack_device__(),
            },
        )()
        for given in (there, cupy.asfortranarray(there), wide[:, 7:307], by_protocol):
            agrees(bigsap.solve(given, device="cuda", method="ssp"), wanted)
            agrees(bigsap.solve(given, device="auto"), wanted)
        doubled = cupy.repeat(there, 2, axis=0)
        agrees(bigsap.solve(doubled[::2], device="cuda", method="ssp"), wanted)

    def test_the_cpu_cannot_use_them(self) -> None:
        with pytest.raises(OptionError, match="cuda"):
            bigsap.solve(cupy.zeros((3, 3)))
        with pytest.raises(OptionError, match="does not exist"):
            bigsap.solve(np.zeros((3, 3)), device="cuda:77")

    def test_bad_costs_are_named(self) -> None:
        matrix = costs("random", 900, 900)
        matrix[7, 9] = np.nan
        for method in ("ssp", "compressed"):
            with pytest.raises(InvalidCostError) as caught:
                bigsap.solve(cupy.asarray(matrix), device="cuda", method=method)
            assert (caught.value.row, caught.value.column) == (7, 9)

    @pytest.mark.parametrize("method", ["ssp", "compressed"])
    def test_infeasible(self, method: str) -> None:
        matrix = costs("random", 900, 900)
        matrix[:30, 20:] = np.inf
        result = bigsap.solve(cupy.asarray(matrix), device="cuda", method=method)
        assert result.status == "infeasible"
        assert set(result.violator) <= set(range(30))
        result.verify(matrix)


def test_panels_are_read_before_they_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies from pinned memory are only queued, here behind work that takes long."""
    matrix = np.random.default_rng(6).integers(0, 1 << 40, (600, 1000))
    monkeypatch.setattr(device_memory, "PANEL_BYTES", 20 * matrix[0].nbytes)
    busy = cupy.random.random((6000, 6000))
    for _ in range(8):
        busy = busy @ busy
        busy /= busy.max()
    there = place(as_source(matrix), 0, None)
    assert np.array_equal(there.array.get(), matrix)
    busy = busy @ busy
    panel = cupy.empty(matrix.shape, matrix.dtype)
    for start, costs in device_memory.panels(as_source(matrix), np.arange(600), lambda: None):
        device_memory.bring(panel[start : start + len(costs)], costs)
    assert np.array_equal(panel.get(), matrix)


class TestTightPairs:
    """The quickest start (``strategies.tight_pairs``): the host has the matrix, too."""

    @pytest.mark.parametrize("kind", ["ties", "real", "a term a row and a column", "maximize"])
    def test_agree_with_scipy(self, kind: str) -> None:
        g = np.random.default_rng(4)
        n = 2100
        matrix = g.integers(0, n // 10, (n, n)).astype(np.int32)
        if kind == "real":  # a point set against itself, hardly moved
            x = g.random((n, 2))
            matrix = ((x[:, None] - x[g.permutation(n)][None]) ** 2).sum(-1)
        elif kind == "a term a row and a column":
            matrix = g.random((n, 1)) + g.random(n) + 1
            matrix[np.arange(n), g.permutation(n)] -= 1
        maximize = kind == "maximize"
        # Rows that are related are scanned whole by ``auto``.
        result = bigsap.solve(matrix, device="cuda", method="compressed", maximize=maximize)
        rows, columns = optimize.linear_sum_assignment(matrix, maximize)
        assert result.status == "optimal"
        assert result.fun == pytest.approx(matrix[rows, columns].sum(), rel=1e-12, abs=1e-12)
        assert result.stats["first_prices"] == "tight"
        result.verify(matrix)


class TestPoints:
    """Square problems of points: lists evaluated on the device, searched by the host."""

    @pytest.mark.parametrize("kind", ["random", "geometric", "ties", "large", "forbidden"])
    def test_lists_agree_with_scipy(self, kind: str) -> None:
        g = np.random.default_rng(2)
        matrix = costs("geometric" if kind == "geometric" else "random", 2500, 2500)
        if kind == "ties":
            matrix = g.integers(0, 2500, (2500, 2500), np.int32)
        elif kind == "large":
            matrix = g.integers(0, 2**45, (2500, 2500))
        elif kind == "forbidden":
            matrix[g.random(matrix.shape) < 0.7] = np.inf
        result = bigsap.solve(cupy.asarray(matrix), device="cuda", method="compressed")
        agrees(result, optimum(matrix))

    def test_points_twice(self) -> None:
        g = np.random.default_rng(3)
        source = bigsap.points(g.random((6000, 2)), 1 + g.random((6000, 2)))
        one, two = (bigsap.solve(source, device="cuda", method="compressed") for _ in range(2))
        assert one.stats["rows_scanned"] == two.stats["rows_scanned"]
        assert np.array_equal(one.col4row, two.col4row)
        assert one.v.tobytes() == two.v.tobytes()
        agrees(one, bigsap.solve(source).fun)

    def test_time_limit_and_checkpoint(self, tmp_path) -> None:
        g = np.random.default_rng(3)
        source = bigsap.points(g.random((20_000, 2)), 1 + g.random((20_000, 2)))
        path = tmp_path / "points.checkpoint"
        part = bigsap.solve(source, device="cuda", method="compressed", time_limit=0.8, checkpoint=path)
        assert part.status in ("time_limit", "optimal")
        whole = bigsap.resume(path, source, device="cuda")
        assert whole.status == "optimal"
        assert part.bound <= whole.fun * (1 + 1e-12)
        assert part.fun >= whole.fun * (1 - 1e-12)


class TestEvaluation:
    @pytest.mark.parametrize("m", [1000, 5000, 40_000])
    def test_lists_are_those_of_the_twin(self, m: int) -> None:
        g = np.random.default_rng(m)
        matrix, v = g.random((50, m)), g.random(m) * 0.2
        with Team(1) as team:
            problem = Problem(MatrixOnDevice(cupy.asarray(matrix)))
            engine = DeviceListEngine(problem, team, Monitor(), np.dtype("f8"), 128, 0)
            engine.v[:] = v
            engine.open_price[:] = v
            engine.evaluate(np.arange(50))
            lists = engine.lists
        for row in range(50):
            relative = matrix[row] - matrix[row].min()
            wanted, theta, _ = twins.select(relative - v, 128, engine.span)
            start = lists.start[row]
            found = lists.ids[start : start + lists.size[row]]
            assert set(found) == set(wanted)
            assert lists.theta[row] == theta
            assert np.array_equal(lists.costs[start : start + lists.size[row]], relative[found])

    def test_the_best_free_column_has_a_place(self) -> None:
        g = np.random.default_rng(8)
        matrix = g.random((20, 4000))
        with Team(1) as team:
            problem = Problem(MatrixOnDevice(cupy.asarray(matrix)))
            engine = DeviceListEngine(problem, team, Monitor(), np.dtype("f8"), 16, 0)
            engine.open_price[:] = engine.blocked
            free = np.array([17, 2345])
            engine.open_price[free] = 0
            engine.evaluate(np.arange(20))
            lists = engine.lists
        for row in range(20):
            start = lists.start[row]
            best = free[np.argmin(matrix[row, free])]
            listed = lists.ids[start : start + 16]
            assert best in listed
            outside = np.setdiff1d(np.arange(4000), listed)
            low = matrix[row].min()
            assert lists.theta[row] <= (matrix[row, outside] - low).min()


class TestCertificate:
    @pytest.mark.parametrize("maximize", [False, True])
    def test_device_and_host_prove_the_same(self, maximize: bool) -> None:
        g = np.random.default_rng(2)
        matrix, v = g.random((300, 320)), g.random(320)
        matching = g.permutation(320)[:300]
        prices = Prices(v)
        here = row_minima(ArraySource(matrix), matching, prices, maximize, 1, 1 << 20, None)
        source = MatrixOnDevice(cupy.asarray(matrix))
        there = row_minima(source, matching, prices, maximize, 1, 1 << 20, None)
        for one, other in zip(whole(here), whole(there), strict=True):
            assert one.tobytes() == other.tobytes()
        assert here.matched.tobytes() == there.matched.tobytes()
        assert np.array_equal(here.margins, there.margins)


class TestControl:
    def test_time_limit_and_cancel(self) -> None:
        g = np.random.default_rng(4)
        source = bigsap.points(g.random((9000, 2)), 5 + g.random((9000, 2)))
        result = bigsap.solve(source, device="cuda", method="ssp", time_limit=0.4)
        assert result.status in ("time_limit", "optimal")
        event = threading.Event()
        result = bigsap.solve(
            source,
            device="cuda",
            method="ssp",
            epsilon=False,
            cancel=event,
            callback=lambda state: event.set(),
            callback_every=0,
        )
        assert result.status == "cancelled"
        assert result.bound is not None

    def test_interrupt(self) -> None:
        g = np.random.default_rng(4)
        source = bigsap.points(g.random((9000, 2)), g.random((9000, 2)))
        timer = threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,))
        timer.start()

        def many() -> None:
            for _ in range(100):
                bigsap.solve(source, device="cuda", method="ssp", epsilon=False)

        with pytest.raises(KeyboardInterrupt):
            many()
        matrix = costs("random", 100, 100)
        agrees(bigsap.solve(matrix, device="cuda", method="ssp"), optimum(matrix))

    def test_warm_start_and_checkpoint(self, tmp_path) -> None:
        matrix = costs("geometric", 600, 600)
        first = bigsap.solve(matrix, device="cuda", method="ssp")
        changed = matrix.copy()
        changed[:5] *= 1.5
        warm = bigsap.solve(changed, device="cuda", method="ssp", warm_start=first)
        agrees(warm, optimum(changed))
        assert warm.stats["rows_scanned"] < first.stats["rows_scanned"] / 5
        path = tmp_path / "solve.checkpoint"
        bigsap.solve(matrix, device="cuda", checkpoint=path)
        agrees(bigsap.resume(path, matrix, device="cuda"), optimum(matrix))

    def test_the_answer_does_not_depend_on_the_run(self) -> None:
        matrix = np.random.default_rng(0).integers(0, 40, (600, 600))
        found = [bigsap.solve(matrix, device="cuda", method="ssp").col4row for _ in range(3)]
        assert np.array_equal(found[0], found[1])
        assert np.array_equal(found[0], found[2])
        assert np.array_equal(found[0], bigsap.solve(matrix, method="ssp").col4row)


def test_lists_of_tight_clusters() -> None:
    """Hundreds of nearly equal costs a row: more candidates than a block sorts at once."""
    g = np.random.default_rng(0)
    n, middle = 6000, g.random((12, 5))
    x, y = (middle[g.integers(0, 12, n)] + 0.01 * g.standard_normal((n, 5)) for _ in range(2))
    matrix = np.sqrt(((x[:, None] - y) ** 2).sum(axis=2))
    result = bigsap.solve(matrix, device="cuda", method="compressed")
    assert result.status == "optimal"
    assert result.fun == pytest.approx(bigsap.solve(matrix).fun, rel=1e-12)


def test_auto() -> None:
    assert bigsap.solve(np.eye(50), device="auto").stats["device"] == "cpu"
    matrix = np.random.default_rng(1).random((4200, 4200))
    result = bigsap.solve(matrix, device="auto")
    assert (result.stats["device"], result.stats["method"]) == ("cuda:0", "compressed")
    assert result.status == "optimal"
    assert result.fun == pytest.approx(bigsap.solve(matrix, method="ssp").fun, rel=1e-12)
