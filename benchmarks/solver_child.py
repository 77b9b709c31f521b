"""The process of one solver: reads paths of matrices, times the solve, answers in JSON.

For each line of stdin, ``{"path": ..., "warm": path or null}``, two lines come back:
``{"ready": true}`` when the matrix is in memory, then seconds and cost, or an error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.costs import total
from benchmarks.peers import Solve, Solver, find
from bigsap.memory import peak_bytes

# What solvers raise; anything else ends the process, with its traceback.
_ERRORS = (ValueError, RuntimeError, TypeError, ArithmeticError, MemoryError, ImportError)


def answer(solver: Solver, solve: Solve, cost: Any, prepared: Any) -> dict[str, Any]:
    """Seconds of one solve; ``cost`` is None when the answer is no permutation."""
    gc.collect()
    clock = time.perf_counter()
    columns, more = solve(prepared)
    seconds = time.perf_counter() - clock
    allowed = cost[np.isfinite(cost)] if cost.dtype.kind == "f" else cost
    largest = float(np.abs(allowed).max(initial=0))
    # Sums of n costs are rounded, whoever makes them.
    error = (solver.rounding + float(np.finfo(float).eps)) * largest * len(cost)
    found = {
        "seconds": seconds,
        "cost": total(cost, columns),
        "error_bound": error,
        "floor": len(cost) * float(allowed.min()) if allowed.size else 0.0,
    }
    # Of the process: libraries, the matrix and what the solver took; it never falls.
    return {**found, "peak_bytes": peak_bytes(), **more}


def main() -> None:
    """Answer until stdin ends: ``python -m benchmarks.solver_child SOLVER THREADS``."""
    # Libraries may print: the answers keep a channel of their own.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    solver = find(sys.argv[1])
    solve = solver.load(int(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["warm"]:
                solve(solver.prepared(np.load(request["warm"])))
            cost = np.load(request["path"])
            prepared = solver.prepared(cost)
            say({"ready": True})
            say(answer(solver, solve, cost, prepared))
        except _ERRORS as error:
            say({"failed": f"{type(error).__name__}: {error}"})
        cost = prepared = None


if __name__ == "__main__":
    main()
