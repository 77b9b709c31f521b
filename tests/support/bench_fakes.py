"""Solvers that misbehave, for the tests of the harness."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers import Solve, Solver


def _returns(columns: Any) -> Any:
    def load(threads: int) -> Solve:
        return lambda cost: (columns(cost), {})

    return load


identity = Solver("identity", "numpy", "numpy", _returns(lambda cost: np.arange(len(cost))))
repeated = Solver("repeated", "numpy", "numpy", _returns(lambda cost: np.zeros(len(cost), int)))
