"""Builds a matrix, solves it or not, and prints the peak of its own memory as JSON."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np

import bigsap
from bigsap.memory import peak_bytes

_WARM = 64


def own_peak() -> int:
    """VmHWM: ru_maxrss survives exec, so a child's may be that of its parent."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return peak_bytes()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)
    return int(found.group(1)) * 1024 if found else peak_bytes()


def main() -> None:
    """``python -m benchmarks.memory_child N SEED WHAT [traced]``."""
    n, seed, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    certify = what == "certified"
    generator = np.random.default_rng(seed)
    for proof in (False, True):
        bigsap.solve(
            generator.random((_WARM, _WARM)), method="ssp", start="estimate", threads=1, certify=proof
        )
    # After everything else: what was freed before must not hide what the solve takes.
    cost = np.random.default_rng(seed).random((n, n))
    traced = "traced" in sys.argv
    if traced:
        tracemalloc.start()
    if what != "base":
        bigsap.solve(cost, method="ssp", start="estimate", threads=1, certify=certify)
    answer = {"peak_bytes": own_peak()}
    if traced:
        answer["traced_bytes"] = tracemalloc.get_traced_memory()[1]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
