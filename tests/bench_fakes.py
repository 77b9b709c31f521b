"""Solvers that misbehave, for the tests of the harness."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from benchmarks.peers import Solve, Solver
from bigsap import linear_sum_assignment


def _returns(columns: Any) -> Any:
    def load(threads: int) -> Solve:
        return lambda cost: (columns(cost), {})

    return load


def _sleep(cost: np.ndarray) -> np.ndarray:
    if len(cost) > 64:  # larger than what it is warmed up with
        time.sleep(60)
    return np.arange(len(cost))


def _fail(cost: np.ndarray) -> np.ndarray:
    raise ValueError("cannot")


def _crash(cost: np.ndarray) -> np.ndarray:
    os._exit(3)


identity = Solver("identity", "numpy", "numpy", _returns(lambda cost: np.arange(len(cost))))
exact = Solver("exact", "numpy", "numpy", _returns(lambda cost: linear_sum_assignment(cost)[1]))
repeated = Solver("repeated", "numpy", "numpy", _returns(lambda cost: np.zeros(len(cost), int)))
slow = Solver("slow", "numpy", "numpy", _returns(_sleep))
failing = Solver("failing", "numpy", "numpy", _returns(_fail))
crashing = Solver("crashing", "numpy", "numpy", _returns(_crash))
