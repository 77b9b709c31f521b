"""These tests need a GPU: they are skipped, with the reason, where there is none."""

from __future__ import annotations

import pytest


def _why_not() -> str | None:
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device: {error}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if "gpu" in item.path.parts]
    reason = _why_not() if here else None
    if reason is not None:
        for item in here:
            item.add_marker(pytest.mark.skip(reason=reason))
