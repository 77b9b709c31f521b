"""The row cache in device memory, on the stand-in for a device (``tests/support/simulated``).

Counts are those of the plain-Python models of the policies in ``test_rows``, and whatever
the cache holds, lists and answers are the ones without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import row_cache as gpu_cache
from bigsap.engine.cuda.device_lists import DeviceListEngine
from bigsap.engine.cuda.row_cache import DeviceRows, shares
from bigsap.errors import DeviceMemoryError, OptionError
from bigsap.problem import Problem
from bigsap.progress import Monitor, Stopped
from bigsap.row_cache import ABSENT, RowCache
from bigsap.sources import as_source
from bigsap.sources.cuda import device_memory
from bigsap.sources.cuda.placed import MatrixOnDevice, StreamedToDevice, place
from cache_models import LfuModel, SlruModel
from pairwise import each

optimize = pytest.importorskip("scipy.optimize")

N = 96
# Rows that the host reads before all else: a corner of them tells whether the estimator would do.
SAMPLED = N // 4
K = 16


def costs(n: int = N, m: int = N, seed: int = 1) -> np.ndarray:
    g = np.random.default_rng(seed)
    x, y = g.random((n, 2)), g.random((m, 2))
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def by_rows(matrix: np.ndarray) -> Any:
    """The matrix as a source whose rows come through Python: all evaluations ask the device."""
    return bigsap.from_function(lambda i: matrix[i], matrix.shape, kind="row", args=())


def optimum(matrix: np.ndarray, maximize: bool = False) -> float:
    rows, columns = optimize.linear_sum_assignment(matrix, maximize)
    return float(matrix[rows, columns].astype(np.float64).sum())


def streamed(matrix: np.ndarray, n_slots: int, policy: str = "slru") -> StreamedToDevice:
    """With so many slots."""
    row = matrix.shape[1] * matrix.itemsize
    return StreamedToDevice(as_source(matrix), 0, (2 * n_slots + 8) * row, RowCache(n_slots * row, policy))


@pytest.fixture
def evaluated(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    return noting(monkeypatch)


def noting(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The rows of each evaluation; after each, slots are compared with the costs."""
    waves: list[np.ndarray] = []
    usual = DeviceRows.go_over

    def noted(self: DeviceRows, rows: np.ndarray, *rest: Any) -> None:
        waves.append(np.array(rows))
        usual(self, rows, *rest)
        hold_what_they_should(self)

    monkeypatch.setattr(DeviceRows, "go_over", noted)
    return waves


def resident(cache: DeviceRows) -> np.ndarray:
    """The rows that have a slot."""
    assert cache._rows is not None
    return np.flatnonzero(cache._rows.table.slot_of_row != ABSENT)


def hold_what_they_should(cache: DeviceRows) -> None:
    if cache._rows is None:
        return
    rows = resident(cache)
    m = cache.source.shape[1]
    wanted = np.empty((rows.size, m), cache.source.dtype)
    cache.source.read(rows, slice(0, m), wanted)
    slots = cache._slots.get()[cache._rows.table.slot_of_row[rows]]
    assert np.array_equal(slots, wanted)
    assert np.array_equal(cache._rows.table.row_of_slot[cache._rows.table.slot_of_row[rows]], rows)


def by_model(waves: list[np.ndarray], policy: str, n_slots: int) -> tuple[int, int, set[int]]:
    """Hits, misses and residents of the plain-Python policy; of each wave what is resident
    comes first."""
    model = SlruModel(n_slots) if policy == "slru" else LfuModel(n_slots)
    hits = misses = 0
    for wave in waves:
        there = model.rows()
        for row in sorted(wave.tolist(), key=lambda row: (row not in there, row)):
            found = row in model.rows()
            hits, misses = hits + found, misses + (not found)
            model.use(row, wave.size > n_slots)
    return hits, misses, model.rows()


@pytest.mark.some(1)
@each(policy=["slru", "lfu"], n_slots=[1, 2, 9, 40, 90])
def test_a_solve_counts_what_the_policy_would(
    cupy: Any, evaluated: list[np.ndarray], policy: str, n_slots: int
) -> None:
    matrix = costs()
    row = matrix.itemsize * N
    options: dict[str, Any] = {"device": "cuda", "memory_limit": matrix.nbytes - 1}
    cache = RowCache(n_slots * row, policy)
    result = bigsap.solve(by_rows(matrix), cache=cache, **options)
    hits, misses, _ = by_model(evaluated, policy, min(n_slots, 84))
    stats = result.stats
    assert stats["method"] == "compressed"
    assert (stats["cache_policy"], stats["cache_hits"], stats["cache_misses"]) == (policy, hits, misses)
    assert stats["cache_slots"] == min(n_slots, 84)  # of 95 rows an eighth are panel
    assert stats["cache_bytes"] == stats["cache_slots"] * row
    assert stats["copied_bytes"] == misses * row
    assert hits + misses == sum(map(len, evaluated)) == stats["rows_evaluated"] - SAMPLED
    # The slow path: a limit of one row leaves no slot.
    alone = bigsap.solve(by_rows(matrix), device="cuda", memory_limit=row)
    assert alone.stats["cache_policy"] == "none"
    assert alone.stats["copied_bytes"] == (alone.stats["rows_evaluated"] - SAMPLED) * row
    assert np.array_equal(result.col4row, alone.col4row)
    assert result.v.tobytes() == alone.v.tobytes()
    assert stats["rows_scanned"] == alone.stats["rows_scanned"]
    assert result.status == "optimal"
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
    result.verify(matrix)


def engines(matrix: np.ndarray, *sources: Any, maximize: bool = False) -> Iterator[Any]:
    integer = matrix.dtype.kind in "iu"
    with Team(1) as team:
        for source in sources:
            problem = Problem(source, maximize)
            kind = np.dtype("i8" if integer else "f8")
            yield DeviceListEngine(problem, team, Monitor(), kind, K, 0)


def evaluate(engine: DeviceListEngine, rows: np.ndarray, v: np.ndarray) -> None:
    engine.v[:] = engine.open_price[:] = v
    engine.evaluate(rows)


def same_lists(one: DeviceListEngine, other: DeviceListEngine) -> None:
    assert np.array_equal(one.lists.size, other.lists.size)
    assert np.array_equal(one.lists.theta, other.lists.theta)
    for row, (start, size) in enumerate(zip(one.lists.start, one.lists.size, strict=True)):
        some = slice(start, start + size)
        assert np.array_equal(one.lists.ids[some], other.lists.ids[some]), row
        assert np.array_equal(one.lists.costs[some], other.lists.costs[some]), row


@pytest.mark.some(1)
@pytest.mark.parametrize(("dtype", "maximize"), [("f8", False), ("i4", True)])
@pytest.mark.parametrize("policy", ["slru", "lfu"])
def test_any_evaluations_give_the_lists_of_whole_costs(
    cupy: Any,
    evaluated: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    maximize: bool,
    policy: str,
) -> None:
    """Many ties, panels of three rows, batches across panels: only slots matter."""
    g = np.random.default_rng(7)
    matrix = g.integers(0, 9, (N, N)).astype(dtype)
    monkeypatch.setattr(device_memory, "PANEL_BYTES", 3 * N * matrix.itemsize)
    sources = (streamed(matrix, 20, policy), MatrixOnDevice(cupy.asarray(matrix)))
    cached, whole = engines(matrix, *sources, maximize=maximize)
    v = np.zeros(N, cached.price)
    for size in (N, 5, 20, 21, 1, 60, 8, 3, 20, 20):
        v -= g.integers(0, 2, N).astype(v.dtype)
        rows = g.permutation(N)[:size]
        evaluate(cached, rows, v)
        evaluate(whole, rows, v)
        same_lists(cached, whole)
    hits, misses, rows_left = by_model(evaluated, policy, 20)
    assert (cached.cache.hits, cached.cache.misses) == (hits, misses)
    assert set(resident(cached.cache)) == rows_left
    assert hits > 20


def test_sweeps_leave_the_residents_alone(cupy: Any) -> None:
    matrix = costs()
    (engine,) = engines(matrix, streamed(matrix, 20))
    v = np.zeros(N)
    evaluate(engine, np.arange(N), v)
    first = set(resident(engine.cache))
    assert first == {*range(1, 20), N - 1}  # the oldest row's slot is swept through
    evaluate(engine, np.arange(50, 65), v)
    evaluate(engine, np.arange(50, 65), v)
    before = set(resident(engine.cache))
    assert before >= set(range(50, 65))
    copied = engine.cache.copied_bytes
    evaluate(engine, np.arange(N), v)
    assert len(before - set(resident(engine.cache))) <= 1
    assert engine.cache.copied_bytes == copied + (N - 20) * matrix.nbytes // N


def test_rows_in_slots_are_not_read(cupy: Any) -> None:
    matrix = costs()
    asked: list[int] = []

    def row(i: int) -> np.ndarray:
        asked.append(i)
        return matrix[i]

    source = bigsap.from_function(row, (N, N), kind="row")
    there = StreamedToDevice(source, 0, 50 * N * 8, RowCache(30 * N * 8))
    (engine,) = engines(matrix, there)
    evaluate(engine, np.arange(40, 70), np.zeros(N))
    asked.clear()
    evaluate(engine, np.arange(35, 65), np.zeros(N))
    assert asked == list(range(35, 40))


class TestLeftInBetween:
    @pytest.mark.parametrize("at", [1, 2, 4])
    def test_a_stop_empties_the_cache(self, cupy: Any, evaluated: list[Any], at: int) -> None:
        matrix = costs()
        cached, whole = engines(matrix, streamed(matrix, 20), MatrixOnDevice(cupy.asarray(matrix)))
        v = np.zeros(N)
        evaluate(cached, np.arange(30), v)
        assert resident(cached.cache).size == 20
        usual, looks = cached.monitor.tick, []

        def stop(*given: Any, **more: Any) -> None:
            looks.append(1)
            if len(looks) == at:
                raise Stopped("cancelled")
            usual(*given, **more)

        cached.monitor.tick = stop
        with pytest.raises(Stopped):
            evaluate(cached, np.arange(10, 50), v)
        assert resident(cached.cache).size == 0
        cached.wave = None
        cached.monitor.tick = usual
        evaluated.clear()
        before = cached.cache.misses
        v -= np.random.default_rng(0).random(N)
        for rows in (np.arange(N), np.arange(0, 40, 3), np.arange(N)):
            evaluate(cached, rows, v)
        _, misses, _ = by_model(evaluated, "slru", 20)
        assert cached.cache.misses - before == misses
        evaluate(whole, np.arange(N), v)
        same_lists(cached, whole)

    def test_so_does_a_bad_cost(self, cupy: Any) -> None:
        matrix = costs()
        matrix[40, 7] = np.nan
        (engine,) = engines(matrix, streamed(matrix, 20))
        evaluate(engine, np.arange(20), np.zeros(N))
        with pytest.raises(bigsap.InvalidCostError) as caught:
            evaluate(engine, np.arange(10, 45), np.zeros(N))
        assert (caught.value.row, caught.value.column) == (40, 7)
        assert resident(engine.cache).size == 0


class TestRoom:
    def test_shares(self) -> None:
        assert shares(100, 100) == (100, 0)
        assert shares(250, 100) == (100, 150)
        assert shares(1 << 40, 100) == (device_memory.PANEL_BYTES, (1 << 40) - (64 << 20))
        assert shares(8000, 100) == (1000, 7000)

    @pytest.mark.some(2)
    @each(method=["auto", "compressed"], shape=[(1, 4), (30, 30), (20, 45), (45, 20)], rows=[1, 2, 4])
    def test_down_to_one_row(self, cupy: Any, shape: tuple[int, int], method: str, rows: int) -> None:
        matrix = costs(*shape)
        limit = min(rows * 8 * shape[1], matrix.nbytes - 1)
        if limit < 8 * shape[1]:
            with pytest.raises(OptionError, match="does not even hold one row of costs, 32 bytes"):
                bigsap.solve(matrix, device="cuda", memory_limit=limit, method=method)
            return
        for given in (matrix, by_rows(matrix)):
            result = bigsap.solve(given, device="cuda", memory_limit=limit, method=method)
            assert result.stats["method"] == "compressed"
            assert result.stats["device"] == "cuda:0"
            assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
        by_columns = np.asfortranarray(matrix)  # whose rows are the longer ones if shape is tall
        limit = min(rows * 8 * max(shape), matrix.nbytes - 1)
        result = bigsap.solve(by_columns, device="cuda", memory_limit=limit, method=method)
        assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)

    def test_what_cannot_be(self, cupy: Any) -> None:
        matrix = costs()
        options: dict[str, Any] = {"device": "cuda", "memory_limit": matrix.nbytes // 2}
        with pytest.raises(DeviceMemoryError, match=r"73728 bytes.*'compressed' \(or 'auto'\)"):
            bigsap.solve(matrix, method="ssp", **options)
        for cache in (100, "767B", RowCache(0)):
            with pytest.raises(OptionError, match="does not hold one row of 96 columns"):
                bigsap.solve(matrix, cache=cache, **options)
        with pytest.raises(OptionError, match="not even hold one row of costs, 768 bytes"):
            bigsap.solve(matrix, device="cuda", memory_limit=767)

    def test_more_than_there_is_may_be_allowed(self, cupy: Any, monkeypatch: Any) -> None:
        matrix = costs()
        monkeypatch.setattr(cupy.cuda.Device, "mem_info", (matrix.nbytes // 2, matrix.nbytes))
        result = bigsap.solve(by_rows(matrix), device="cuda", memory_limit="1TiB")
        assert result.stats["method"] == "compressed"
        assert 10 < result.stats["cache_slots"] < N // 2
        assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)

    def test_costs_that_fit_are_copied_once(self, cupy: Any, no_small: None) -> None:
        matrix = costs(40, 40)
        stats = bigsap.solve(matrix, device="cuda", method="compressed").stats
        assert stats["copied_bytes"] == matrix.nbytes
        assert stats["cache_hits"] == stats["cache_misses"] == 0
        there = MatrixOnDevice(cupy.asarray(matrix))
        assert bigsap.solve(there, device="cuda").stats["copied_bytes"] == 0
        assert bigsap.solve(matrix, device="cuda:0,1").stats["copied_bytes"] == matrix.nbytes
        assert bigsap.solve(matrix).stats["copied_bytes"] == 0

    def test_memory_that_is_not_there_after_all(self, cupy: Any, monkeypatch: Any) -> None:
        matrix = costs()
        row = matrix.nbytes // N
        # Free, but in pieces: fewer slots and shorter panels, and still the same answer.
        usual = device_memory.empty
        monkeypatch.setattr(cupy, "largest", matrix.nbytes - 1)

        def pieces(shape: tuple[int, ...], dtype: Any, what: str) -> Any:
            if np.prod(shape) * np.dtype(dtype).itemsize > 12 * row:
                raise device_memory.no_room(what, 12 * row)
            return usual(shape, dtype, what)

        monkeypatch.setattr(gpu_cache, "empty", pieces)
        result = bigsap.solve(by_rows(matrix), device="cuda")
        assert result.stats["cache_slots"] == 12  # 96, 48, 24
        assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
        with pytest.raises(DeviceMemoryError, match="73728 bytes"):
            bigsap.solve(matrix, device="cuda", method="ssp")
        # No room for the work itself: an error that names the bytes.
        monkeypatch.setattr(cupy, "largest", row - 1)
        with pytest.raises(DeviceMemoryError, match="bytes needed") as caught:
            bigsap.solve(by_rows(matrix), device="cuda")
        assert caught.value.nbytes >= row

    def test_work_that_finds_no_room_takes_the_slots(self, cupy: Any, monkeypatch: Any) -> None:
        matrix = costs()
        usual, calls = DeviceListEngine._begin, []

        def tight(self: DeviceListEngine, *given: Any) -> Any:
            calls.append(1)
            if len(calls) > 2 and self.cache._slots is not None:
                raise cupy.cuda.memory.OutOfMemoryError("Out of memory allocating 1,024 bytes (so")
            return usual(self, *given)

        monkeypatch.setattr(DeviceListEngine, "_begin", tight)
        result = bigsap.solve(by_rows(matrix), device="cuda", memory_limit=matrix.nbytes // 2)
        assert result.stats["cache_policy"] == "none"
        assert result.stats["cache_misses"] > N
        assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)

    def test_an_error_of_the_device_names_its_bytes(self, cupy: Any, monkeypatch: Any) -> None:
        def tight(*_: Any) -> None:
            raise cupy.cuda.memory.OutOfMemoryError("Out of memory allocating 1,024 bytes (so")

        monkeypatch.setattr(DeviceListEngine, "_launch", tight)
        for limit in (None, 9000):
            with pytest.raises(DeviceMemoryError, match="1024 bytes needed") as caught:
                bigsap.solve(costs(), device="cuda", method="compressed", memory_limit=limit)
            assert caught.value.nbytes == 1024


def test_transposes_keep_their_limits(cupy: Any) -> None:
    source = place(as_source(costs(40, 30)), 0, 1000, None, RowCache(240))
    assert isinstance(source, StreamedToDevice)
    turned = source.transposed()
    assert turned is None or (turned.limit, turned.cache) == (1000, RowCache(240))


def test_panels_are_read_before_they_are_used_again(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies from pinned memory are only queued, and made as late as can be here."""
    matrix = costs(90, 40)
    monkeypatch.setattr(device_memory, "PANEL_BYTES", 20 * matrix[0].nbytes)
    assert np.array_equal(place(as_source(matrix), 0, None).array.get(), matrix)
