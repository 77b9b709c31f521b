"""After a warmup nothing is left to compile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bigsap.engine.core import kernel_files

SECOND = """
import numpy as np
from bigsap.engine.dense.small_search import solve_dense, solve_some
from bigsap.engine.lists.search import run_searches
from bigsap.engine.lists.opening import run_evaluations
from bigsap.engine.dense.rectangular import run_phase
from bigsap.engine.dense.square import run_square
from bigsap.engine.dense.sweep import run_sweep, run_undercut
from bigsap.proof.descent import descend

import bigsap

for dtype in ("f8", "f4", "i8", "i4", "u1", "u2"):
    cost = np.random.default_rng(1).integers(0, 200, (60, 60)).astype(dtype)
    for method in ("ssp", "compressed"):
        bigsap.solve(cost[:50], method=method)
        bigsap.solve(cost, method=method)
    bigsap.linear_sum_assignment(cost)
    bigsap.solve_many([cost, cost[:9]])
x = np.random.default_rng(1).random((8000, 2))
assert bigsap.certify(bigsap.points(x, x, "euclidean"), None, np.zeros(8000)).by == "bounds"
for kernel in (
    run_searches, run_evaluations, run_phase, run_square, run_sweep, run_undercut, descend,
    solve_dense, solve_some,
):
    print(sum(kernel.stats.cache_misses.values()))
"""


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout


@pytest.mark.timeout(600)
def test_a_second_process_compiles_nothing():
    said = run("-m", "bigsap", "warmup", "--processes", "2")
    for kind in ("uint16 costs", "int64 costs, int64 prices", "lfu", "haversine", "table"):
        assert kind in said
    assert [int(line) for line in run("-c", SECOND).split()] == 9 * [0]


def test_kernels_are_entered_one_process_at_a_time(monkeypatch):
    held = []

    class Lock:
        def __enter__(self):
            held.append(True)

        def __exit__(self, *error):
            held.pop()

    def save(cache, key, data):
        seen.append((key, data, len(held)))

    seen = []
    monkeypatch.setattr(kernel_files.IndexDataCacheFile, "save", save)
    kernel_files.one_writer(Lock())
    kernel_files.IndexDataCacheFile.save(None, "key", "data")
    assert seen == [("key", "data", 1)]
    assert not held
