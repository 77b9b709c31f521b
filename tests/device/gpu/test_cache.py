"""The row cache in the memory of a real device: as in ``test_device_cache``, at larger sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_device_cache import (
    by_model,
    by_rows,
    costs,
    engines,
    evaluate,
    noting,
    optimum,
    resident,
    same_lists,
    streamed,
)

import bigsap
from bigsap.errors import DeviceMemoryError
from bigsap.row_cache import RowCache
from bigsap.sources.cuda.placed import MatrixOnDevice

cupy = pytest.importorskip("cupy")

N = 900


@pytest.mark.parametrize("policy", ["slru", "lfu"])
@pytest.mark.parametrize("n_slots", [1, 90, 300, 700])
def test_a_solve_counts_what_the_policy_would(
    monkeypatch: pytest.MonkeyPatch, policy: str, n_slots: int
) -> None:
    matrix, waves = costs(N, N), noting(monkeypatch)
    row = matrix.itemsize * N
    options: dict[str, Any] = {"device": "cuda", "memory_limit": matrix.nbytes - 1}
    result = bigsap.solve(by_rows(matrix), cache=RowCache(n_slots * row, policy), **options)
    hits, misses, _ = by_model(waves, policy, n_slots)
    stats = result.stats
    assert (stats["cache_policy"], stats["cache_slots"]) == (policy, n_slots)
    assert (stats["cache_hits"], stats["cache_misses"]) == (hits, misses)
    assert stats["copied_bytes"] == misses * row
    alone = bigsap.solve(by_rows(matrix), device="cuda", memory_limit=row)
    assert alone.stats["cache_policy"] == "none"
    assert np.array_equal(result.col4row, alone.col4row)
    assert result.v.tobytes() == alone.v.tobytes()
    assert stats["rows_scanned"] == alone.stats["rows_scanned"]
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
    result.verify(matrix)


@pytest.mark.parametrize(
    ("dtype", "maximize"),
    [("f8", False), ("f4", True), ("i8", False), ("i4", True), ("u2", False), ("u1", True)],
)
@pytest.mark.parametrize(("n", "m"), [(200, 1000), (300, 4097)])
def test_any_evaluations_give_the_lists_of_whole_costs(
    monkeypatch: pytest.MonkeyPatch, dtype: str, maximize: bool, n: int, m: int
) -> None:
    g = np.random.default_rng(7)
    matrix, waves = g.integers(0, 200, (n, m)).astype(dtype), noting(monkeypatch)
    sources = (streamed(matrix, 40), MatrixOnDevice(cupy.asarray(matrix)))
    cached, whole = engines(matrix, *sources, maximize=maximize)
    v = np.zeros(m, cached.price)
    for size in (n, 10, 40, 41, 1, 120, 16, 3, 40, 40):
        v -= g.integers(0, 20, m).astype(v.dtype)
        rows = g.permutation(n)[:size]
        evaluate(cached, rows, v)
        evaluate(whole, rows, v)
        same_lists(cached, whole)
    hits, misses, rows_left = by_model(waves, "slru", 40)
    assert (cached.cache.hits, cached.cache.misses) == (hits, misses)
    assert set(resident(cached.cache)) == rows_left


class TestRoom:
    @pytest.fixture
    def pool(self) -> Iterator[Any]:
        pool = cupy.get_default_memory_pool()
        pool.free_all_blocks()
        yield pool
        pool.set_limit(size=0)

    @pytest.mark.parametrize("share", [0.9, 0.5, 0.25])
    def test_less_than_seems_free(self, pool: Any, no_small: None, share: float) -> None:
        matrix = costs(2000, 2000)
        pool.set_limit(size=pool.used_bytes() + int(share * matrix.nbytes))
        for given in (matrix, by_rows(matrix)):
            result = bigsap.solve(given, device="cuda")
            assert result.stats["method"] == "compressed"
            assert result.stats["cache_slots"] < 2000
            assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
        with pytest.raises(DeviceMemoryError, match=r"32000000 bytes.*'compressed'"):
            bigsap.solve(matrix, device="cuda", method="ssp")
