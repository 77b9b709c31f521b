"""The fixture that puts ``tests/support/simulated`` in CuPy's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigsap.engine.cuda import shares as gpu_parts
from bigsap.sources.cuda import device_kernels
from host_compiler import host_compiler


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in for CuPy."""
    if host_compiler() is None:
        pytest.skip("no C++ compiler")
    monkeypatch.syspath_prepend(Path(__file__).parent / "simulated")
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    device_kernels._compiled.cache_clear()
    import cupy

    # Few threads: they take turns. On a busy machine they wait for each other.
    monkeypatch.setattr(gpu_parts, "geometry", few_threads)
    monkeypatch.setattr(gpu_parts, "PATIENCE_SECONDS", 120.0)
    yield cupy
    assert not cupy.diverged, cupy.diverged[0]
    del sys.modules["cupy"]
    device_kernels._compiled.cache_clear()


def few_threads(n_columns: int, major: int) -> dict[str, int]:
    # One form for all widths, and widths that take the same loads: each text that differs
    # is another run of the compiler.
    columns = 8 if n_columns <= 256 else 32
    assert n_columns <= 32 * columns
    return {"GROUP": 1, "THREADS": 32, "COLS": columns, "USE_CLUSTER": 0}
