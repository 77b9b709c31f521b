"""``costs:check``: compile a cost spec and sample it, in a separate process.

Compiling a hostile formula may take seconds and memory. A process can be limited and killed
without blocking the service's event loop.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from bigsap_server.costs.build import Resolver, build
from bigsap_server.costs.limits import limit_process
from bigsap_server.problems import HttpProblem, from_error

_SAMPLE = 6
_MEMORY_BYTES = 8 << 30


def check_apart(
    request: Mapping[str, Any], data: Path, settings: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Run ``check`` in a child process, for at most ``seconds``. Raises HttpProblem."""
    order = json.dumps({"request": request, "data": str(data), "settings": settings})
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bigsap_server.costs.sandbox"],
            input=order,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HttpProblem(
            "over-limit", f"the costs could not be compiled and sampled in {seconds:g} s", pointer="/cost"
        ) from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        detail = "the check needs too much memory or processor time"
        raise HttpProblem("over-limit", detail, pointer="/cost") from None
    if "problem" in answer:
        found = answer["problem"]
        extra = {k: found[k] for k in ("row", "column") if k in found}
        slug = found["type"].rpartition(":")[2]
        # In a check, an error that would fail a job is an error of the request.
        slug = slug if slug in ("invalid-cost", "over-limit", "invalid-store") else "invalid-spec"
        raise HttpProblem(slug, found["detail"], pointer=found.get("pointer", "/cost"), **extra)
    return answer


def check(request: Mapping[str, Any], data: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return shape, dtype, sampled costs and times of a cost spec. Raises HttpProblem."""
    started = time.perf_counter()
    source = build(request["cost"], Resolver(data, settings), request["shape"], request["maximize"])
    opened = time.perf_counter()
    n, m = source.shape
    rows, columns = evenly(n, _SAMPLE), evenly(m, _SAMPLE)
    sample: list[list[Any]] = []
    row_ns, n_infinite = None, 0
    if n and m:
        block = np.empty((1, m), source.dtype)
        source.read(rows[:1], slice(0, m), block)  # compiles
        compiled = time.perf_counter()
        for row in rows:
            source.read(np.array([row]), slice(0, m), block)
            _judge(block[0], int(row), request["maximize"])
            n_infinite += infinite_among(block)
            sample.append([_plain(value) for value in block[0, columns].tolist()])
        row_ns = (time.perf_counter() - compiled) / len(rows) / m * 1e9
    else:
        compiled = opened
    return {
        "ok": True,
        "shape": [n, m],
        "dtype": str(source.dtype),
        "sample": {"rows": rows.tolist(), "columns": columns.tolist(), "costs": sample},
        "infinite": infinite(source, len(sample) * m, n_infinite),
        "pair_ns": None if row_ns is None else round(row_ns, 4),
        "open_s": round(opened - started, 4),
        "compile_s": round(compiled - opened, 4),
    }


def infinite_among(costs: np.ndarray[Any, Any]) -> int:
    """Return the number of infinite costs."""
    return int(np.isinf(costs).sum()) if costs.dtype.kind == "f" else 0


def infinite(source: Any, n_sampled: int, n_infinite: int) -> dict[str, Any]:
    """Return the number of infinite costs in a sample, and their cause if the spec has no inf."""
    explain = getattr(source, "why_infinite", None)
    why = explain() if n_infinite and explain is not None else None
    return {"sampled": n_sampled, "found": n_infinite, "why": why}


def evenly(size: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return up to ``most`` numbers below ``size``, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))


def _judge(row: np.ndarray[Any, Any], number: int, maximize: bool) -> None:
    if row.dtype.kind != "f":
        return
    wrong = np.isnan(row) | (row == (np.inf if maximize else -np.inf))
    if wrong.any():
        column = int(wrong.argmax())
        detail = f"cost[{number}, {column}] is {row[column]}"
        raise HttpProblem("invalid-cost", detail, pointer="/cost", row=number, column=column)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def main() -> int:
    """Read a request from stdin and write the answer to stdout."""
    order = json.load(sys.stdin)
    limit_process(CPU=int(order["settings"]["limits"]["check_s"]) + 1, DATA=_MEMORY_BYTES, CORE=0)
    try:
        with redirect_stdout(sys.stderr):  # plugins may print
            answer = check(order["request"], Path(order["data"]), order["settings"])
    except Exception as error:  # noqa: BLE001 - plugins raise any
        answer = {"problem": from_error(error, "/cost", order["settings"]).document()}
    json.dump(answer, sys.stdout, allow_nan=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
