"""Processes that measure: one answer from a fresh one, or a solver kept warm in one of its own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.instances import total
from benchmarks.peers import Solve, Solver, find
from bigsap.memory import peak_bytes

# Loading a matrix and warming up, kernels compiled included, must not count as solving.
_LOADING = 300.0
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMBA")
_SPAWN = multiprocessing.get_context("spawn")
# What solvers raise; anything else ends the process, with its traceback.
ERRORS = (*(ValueError, RuntimeError, TypeError, ArithmeticError, MemoryError, ImportError), KeyError)


class Child:
    """A fresh process that runs a function, whose first argument is a pipe to here."""

    def __init__(self, function: Callable[..., None], *given: Any, threads: int | None = None):
        self.pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=function, args=(theirs, *given), daemon=True)
        names = [f"{name}_NUM_THREADS" for name in _LIBRARIES] if threads else []
        before = {name: os.environ.get(name) for name in names}
        os.environ |= dict.fromkeys(names, str(threads))
        self._process.start()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        theirs.close()

    def next(self, limit: float | None) -> dict[str, Any] | None:
        """What it says next, ``failed`` where it ended; None when nothing comes in time."""
        if not self.pipe.poll(limit):
            return None
        try:
            said: dict[str, Any] = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return {"failed": f"exit code {self._process.exitcode}"}
        return said

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.pipe.close()


def measured(
    function: Callable[..., dict[str, Any]], *given: Any, limit: float | None = None
) -> dict[str, Any]:
    """What the function returns in a fresh process.

    Raises TimeoutError after ``limit`` seconds, RuntimeError where it fails.
    """
    child = Child(_tell, function, given)
    answer = child.next(limit)
    child.kill()
    if answer is None:
        raise TimeoutError
    if "failed" in answer:
        raise RuntimeError(f"{function.__name__}{given}: {answer['failed']}")
    return answer


def _tell(pipe: Connection, function: Callable[..., dict[str, Any]], given: Any) -> None:
    pipe.send(function(*given))


def own_peak() -> int:
    """Most bytes that this process had in memory: VmHWM, since ru_maxrss survives exec."""
    status = Path("/proc/self/status")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.M) if status.exists() else None
    return int(found.group(1)) * 1024 if found else peak_bytes()


class Process:
    """The process of ``solver``; started when first needed, and again after a kill."""

    def __init__(self, solver: str, threads: int) -> None:
        self.solver, self.threads = solver, threads
        self._child: Child | None = None
        self._warm: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self.stop()

    def run(self, path: Path, limit: float, warm: Path | None = None) -> dict[str, Any]:
        """One solve of the matrix in the file, in at most ``limit`` seconds of solving.

        warm: a small matrix of the same kind, solved first in a process that has not yet.
        The answer has ``seconds`` and ``cost`` (None: not a permutation), or
        ``timeout`` (the limit), or ``failed`` (why).
        """
        if self._child is None:
            self._child = Child(_serve, self.solver, self.threads, threads=self.threads)
        child = self._child
        first = warm is not None and str(warm) not in self._warm
        with suppress(OSError):  # it ended: its next message says so
            child.pipe.send((str(path), str(warm) if first else None))
        answer = child.next(_LOADING) or {"failed": f"not ready after {_LOADING:.0f} s"}
        if answer.get("ready"):
            self._warm.add(str(warm))
            answer = child.next(limit) or {"timeout": limit}
        if "timeout" in answer or "failed" in answer:
            self.stop()
        return answer

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            self._child.kill()
        self._child = None
        self._warm.clear()


def answer(solver: Solver, solve: Solve, cost: Any, prepared: Any) -> dict[str, Any]:
    """Seconds of one solve; ``cost`` is None when the answer is no permutation."""
    gc.collect()
    clock = time.perf_counter()
    columns, more = solve(prepared)
    seconds = time.perf_counter() - clock
    allowed = cost[np.isfinite(cost)] if cost.dtype.kind == "f" else cost
    largest = float(np.abs(allowed).max(initial=0))
    return {
        "seconds": seconds,
        "cost": total(cost, columns),
        # Sums of n costs are rounded, whoever makes them.
        "error_bound": (solver.rounding + float(np.finfo(float).eps)) * largest * len(cost),
        "floor": len(cost) * float(allowed.min()) if allowed.size else 0.0,
        # Of the process: libraries, the matrix and what the solver took; it never falls.
        "peak_bytes": peak_bytes(),
        **more,
    }


def _serve(pipe: Connection, name: str, threads: int) -> None:
    """Answer one request after another: ``ready`` when the matrix is in memory, then the solve."""
    os.dup2(2, 1)  # libraries may print
    while True:
        path, warm = pipe.recv()
        try:
            solver = find(name)
            solve = solver.load(threads)
            if warm:
                solve(solver.prepared(np.load(warm)))
            cost = np.load(path)
            prepared = solver.prepared(cost)
            pipe.send({"ready": True})
            pipe.send(answer(solver, solve, cost, prepared))
        except ERRORS as error:
            pipe.send({"failed": f"{type(error).__name__}: {error}"})
        cost = prepared = None
