"""``certify=False`` on a device: all assigned pairs are gathered in one launch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.sources import as_source
from bigsap.sources.cuda.device_kernels import Kernels
from bigsap.sources.cuda.pairs import device_pairs
from bigsap.sources.cuda.placed import place
from bigsap.sources.cuda.row_blocks import RowsOnDevices
from bigsap.sources.cuda.slabs import SlabsOnDevices


@pytest.fixture
def launched(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kernel was asked for."""
    names: Counter[str] = Counter()
    usual = Kernels.get

    def get(self: Kernels, name: str, *args: Any, **options: Any) -> Any:
        names[name] += 1
        return usual(self, name, *args, **options)

    monkeypatch.setattr(Kernels, "get", get)
    return names


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_computed_costs_are_gathered(launched: Counter[str], method: str) -> None:
    g = np.random.default_rng(0)
    source = bigsap.points(g.random((50, 2)), g.random((60, 2)))
    proved = bigsap.solve(source, device="cuda", method=method)
    assert not launched["bigsap_pairs"]
    launched.clear()
    found = bigsap.solve(source, device="cuda", method=method, certify=False)
    assert launched["bigsap_pairs"] == 1
    assert not launched["bigsap_proof"]
    assert found.fun == proved.fun
    assert found.verify(source).optimal


@pytest.mark.some(1)
@pytest.mark.parametrize("maximize", [False, True])
def test_matrices_are_gathered(launched: Counter[str], maximize: bool) -> None:
    matrix = np.random.default_rng(1).random((70, 40))
    options: dict[str, Any] = {"method": "ssp", "maximize": maximize}
    proved = bigsap.solve(matrix, **options)
    for device in ("cuda", "cuda:0,0"):
        found = bigsap.solve(matrix, device=device, certify=False, **options)
        assert found.fun == proved.fun
        assert found.verify(matrix).optimal
    assert not launched["bigsap_proof"]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1"])
def test_pairs_of_every_source(cupy: Any, dtype: str) -> None:
    g = np.random.default_rng(2)
    matrix = (g.random((30, 45)) * 200).astype(dtype)
    rows, columns = g.integers(30, size=500), g.integers(45, size=500)
    there = place(as_source(matrix), 0, None)
    slabs = SlabsOnDevices(as_source(matrix), (0, 0), None)
    shared = RowsOnDevices(as_source(matrix), (0, 1, 0), None)
    turned = RowsOnDevices(as_source(matrix.T.copy()), (0, 1), None).transposed()
    for source in (there, slabs, shared, turned):
        found = device_pairs(source, rows, columns)
        assert found is not None
        assert found.dtype == matrix.dtype
        assert np.array_equal(found, matrix[rows, columns])
    assert device_pairs(as_source(matrix), rows, columns) is None
    computed = place(bigsap.points(g.random((30, 2)), g.random((45, 2))), 0, None)
    none = device_pairs(computed, rows[:0], columns[:0])
    assert none is not None
    assert none.size == 0
