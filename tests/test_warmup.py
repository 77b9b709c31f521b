"""After a warmup nothing is left to compile."""

from __future__ import annotations

import subprocess
import sys

SECOND = """
import numpy as np
import bigsap
from bigsap.engine.list_search import run_searches
from bigsap.engine.lists import run_evaluations
from bigsap.engine.search import run_phase
from bigsap.engine.sweep import run_sweep, run_undercut

bigsap.warmup() if {warm} else None
for dtype in ("f8", "f4", "i8", "i4", "u1", "u2"):
    cost = np.random.default_rng(1).integers(0, 200, (60, 60)).astype(dtype)
    for method in ("ssp", "compressed"):
        bigsap.solve(cost, method=method)
for kernel in (run_searches, run_evaluations, run_phase, run_sweep, run_undercut):
    print(sum(kernel.stats.cache_misses.values()))
"""


def run(warm):
    done = subprocess.run(
        [sys.executable, "-c", SECOND.format(warm=warm)],
        capture_output=True, text=True, check=True, timeout=280,
    )  # fmt: skip
    return [int(line) for line in done.stdout.split()]


def test_a_second_process_compiles_nothing():
    run(True)
    assert run(False) == [0, 0, 0, 0, 0]
