"""The stand-in for CuPy is loaded for these tests alone."""

from __future__ import annotations

import pytest

from bigsap import policy
from stand_in import cupy

__all__ = ["cupy"]


@pytest.fixture
def no_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve small arrays as large ones are: the host would solve them, or search them, by itself."""
    for name in ("MOST_SMALL_COSTS", "MOST_EASY_COSTS", "MOST_SMALL_COMPUTED", "MOST_SMALL_GATED_COSTS"):
        monkeypatch.setattr(policy, name, 0)
    monkeypatch.setattr(policy, "DEVICE_SHORT", (0, 0))
