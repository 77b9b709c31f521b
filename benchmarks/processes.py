"""A solver in a process of its own, kept warm between runs and killed when it takes too long."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# The folder that holds the package: children start in others.
_HOME = Path(__file__).parents[1]
# Loading a matrix and warming up, kernels compiled included, must not count as solving.
_LOADING = 300.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the benchmarks."""
    return [sys.executable, "-m", module, *arguments]


def environment() -> dict[str, str]:
    """This process's, with the benchmarks importable."""
    paths = [str(_HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Process:
    """The process of ``solver``; started when first needed, and again after a kill."""

    def __init__(self, solver: str, threads: int) -> None:
        self.solver, self.threads = solver, threads
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._warm: set[str] = set()
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, path: Path, limit: float, warm: Path | None = None) -> dict[str, Any]:
        """One solve of the matrix in the file, in at most ``limit`` seconds of solving.

        warm: a small matrix of the same kind, solved first in a process that has not yet.
        The answer has ``seconds`` and ``cost`` (None: not a permutation), or
        ``timeout`` (the limit), or ``failed`` (why).
        """
        child = self._started()
        first = warm is not None and str(warm) not in self._warm
        request = {"path": str(path), "warm": str(warm) if first else None}
        stdin = child.stdin
        if stdin is None:
            raise RuntimeError("the child has no stdin")
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return self._crashed()
        message = self._next(_LOADING)
        if message is not None and message.get("ready"):
            self._warm.add(str(warm))
            message = self._next(limit)
            if message is None:
                self.stop()
                return {"timeout": limit}
        if message is None:
            self.stop()
            return {"failed": f"not ready after {_LOADING:.0f} s"}
        return message

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by stop()
            threads = dict.fromkeys(_THREAD_VARIABLES, str(self.threads))
            self._child = subprocess.Popen(
                python("benchmarks.solver_child", self.solver, str(self.threads)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**environment(), **threads},
            )
        return self._child

    def _next(self, limit: float) -> dict[str, Any] | None:
        """The next message; None when none comes in time."""
        child = self._child
        if child is None or child.stdout is None:
            raise RuntimeError("no child to listen to")
        deadline = time.monotonic() + limit
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                return None
            piece = os.read(child.stdout.fileno(), 1 << 16)
            if not piece:
                return self._crashed()
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _crashed(self) -> dict[str, Any]:
        child = self._child
        if child is None:
            raise RuntimeError("no child has crashed")
        code = child.wait()
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self.stop()
        return {"failed": f"exit code {code}" + (f": {tail[0]}" if tail else "")}

    def stop(self) -> None:
        """End the process, if there is one."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, self._errors):
            if pipe is not None:
                pipe.close()
        self._warm.clear()
        self._pending = b""
