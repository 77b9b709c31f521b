"""A finished solve with a checkpoint lets go of what it held, without waiting for the collector."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap.solving.session import Run


@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_nothing_of_a_solve_waits_for_the_collector(tmp_path: Path, method: str) -> None:
    """In a process that solves one job after another the lists of several would lie about."""
    rng = np.random.default_rng(0)
    costs = rng.random((60, 60))
    # Compiling a kernel leaves frames in cycles, ours among them: compile before looking.
    bigsap.solve(costs, method=method, threads=1, checkpoint=tmp_path / "first.ckpt")
    gc.collect()
    gc.disable()
    try:
        result = bigsap.solve(costs, method=method, threads=1, checkpoint=tmp_path / "run.ckpt")
        # By type: asked for its class, a weak proxy of something long gone raises an error.
        assert not [one for one in gc.get_objects() if type(one) is Run]
    finally:
        gc.enable()
    assert result.status == "optimal"
