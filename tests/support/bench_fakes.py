"""Solvers that misbehave, for the tests of the harness."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from benchmarks.contest import Entrant
from benchmarks.peers import Solve, Solver


def _returns(columns: Any) -> Any:
    def load(threads: int) -> Solve:
        return lambda cost: (columns(cost), {})

    return load


identity = Solver("identity", "numpy", "numpy", _returns(lambda cost: np.arange(len(cost))))
repeated = Solver("repeated", "numpy", "numpy", _returns(lambda cost: np.zeros(len(cost), int)))

# A kind of problem: answers are their costs.
NAME, WARM = "fakes", 2


def make(cls: str, n: int) -> dict[str, Any]:
    """A number."""
    return {"n": n}


def judge(problem: dict[str, Any], answer: Any) -> dict[str, Any]:
    """The answer is the cost."""
    return {"cost": answer}


def _fake(large: Any) -> Entrant:
    """Solve what is small, for warming up; then what its name says."""
    return Entrant("numpy", lambda problem: lambda: large() if problem["n"] > WARM else 0.0)


def _raises() -> None:
    raise ValueError


SOLVERS = {
    "bigsap": _fake(lambda: 2.0),
    "raises": _fake(_raises),
    "hangs": _fake(lambda: threading.Event().wait()),
    "ends": _fake(lambda: os._exit(3)),
    "worse": _fake(lambda: 3.0),
}
