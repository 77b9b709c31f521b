"""What the numbers hold for: machine, versions, code; and how noisy the machine is."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.records import Log
from bigsap.info import collect, version

_PACKAGE = Path(bigsap.__file__).parent
NOISE = "noise"
# Numbers that are sorted between experiments.
_SORTED = 5_000_000


def header(peers: dict[str, str], scale: str) -> dict[str, Any]:
    """Facts under which measurements may be compared. peers: distributions by solver."""
    facts = collect()
    kept = ("cpu", "cores", "threads", "memory_bytes", "python", "numpy", "numba", "bigsap")
    return {
        **{name: facts[name] for name in kept},
        "peers": {name: version(package) for name, package in sorted(peers.items())},
        "code": code_digest(),
        "scale": scale,
    }


def code_digest() -> str:
    """Of the library's sources: other code, other measurements."""
    digest = hashlib.sha256()
    found = [file for pattern in ("*.py", "*.cu") for file in _PACKAGE.rglob(pattern)]
    for file in sorted(found):
        digest.update(str(file.relative_to(_PACKAGE)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def probe(log: Log) -> None:
    """Time a fixed piece of work; called between experiments, it shows the noise."""
    numbers = np.random.default_rng(0).random(_SORTED)
    seconds = []
    for _ in range(3):
        clock = time.perf_counter()
        np.sort(numbers)
        seconds.append(time.perf_counter() - clock)
    count = sum(1 for _ in log.of(experiment=NOISE))
    log.add((NOISE, "sort", numbers.size, count, "numpy", 1), seconds=seconds, load=load())


def load() -> float | None:
    """Processes that wanted a core during the last minute, on average."""
    if not hasattr(os, "getloadavg"):
        return None
    try:
        return round(float(os.getloadavg()[0]), 2)
    except OSError:
        return None


def enough_memory(needed: float) -> bool:
    """Whether so many bytes are free, with a quarter to spare."""
    free = collect()["memory_available_bytes"]
    return free is None or free > 1.25 * needed


def lines(log: Log) -> list[str]:
    """Machine, versions and noise, a text each."""
    facts = log.header
    memory = facts["memory_bytes"]
    size = "memory unknown" if memory is None else f"{memory / 2**30:.0f} GiB"
    peers = ", ".join(f"{name} {v}" for name, v in facts["peers"].items() if v) or "none"
    missing = ", ".join(name for name, v in facts["peers"].items() if not v)
    found = [
        f"machine: {facts['cpu']}, {facts['threads']} of {facts['cores']} cores, {size}",
        f"versions: bigsap {facts['bigsap']} (code {facts['code']}), Python {facts['python']},"
        f" numpy {facts['numpy']}, numba {facts['numba']}",
        f"peers: {peers}" + (f"; not installed: {missing}" if missing else ""),
        f"sizes: {facts['scale']}",
    ]
    runs = [t for seconds in log.values("seconds", experiment=NOISE) for t in seconds]
    if runs:
        loads = [x for x in log.values("load", experiment=NOISE) if x is not None]
        busy = f"; load average {min(loads):.1f} to {max(loads):.1f}" if loads else ""
        found.append(
            f"noise: the same five million numbers, sorted {len(runs)} times between the"
            f" experiments, took {min(runs):.3f} to {max(runs):.3f} s"
            f" (median {float(np.median(runs)):.3f}){busy}"
        )
    return found
