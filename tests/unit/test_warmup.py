"""After a warmup nothing is left to compile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bigsap.strategies import METHODS
from bigsap.warmup import _combinations, _groups

SECOND = """
import numpy as np
import bigsap
from bigsap.compile.kernel_cache import COUNTS

generator = np.random.default_rng(1)
for dtype in ("f8", "f4", "i8", "i4", "u1", "u2"):
    cost = generator.integers(0, 200, (60, 60)).astype(dtype)
    for method in ("ssp", "compressed"):
        bigsap.solve(cost[:50], method=method)
        bigsap.solve(cost, method=method)
    bigsap.linear_sum_assignment(cost)
    bigsap.solve_many([cost, cost[:9]])
print(COUNTS.compiled)
bigsap.solve(generator.random((2000, 2000)))
bigsap.linear_sum_assignment(generator.random((200, 200)))
print(COUNTS.compiled)
x, y = generator.random((2, 2000, 2))
bigsap.solve(bigsap.points(x, y))
print(COUNTS.compiled)
x = generator.random((8000, 2))
assert bigsap.certify(bigsap.points(x, x, "euclidean"), None, np.zeros(8000)).by == "bounds"
print(COUNTS.compiled)
assert COUNTS.loaded > 40
"""


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout


def test_groups_that_begin_at_once_share_nothing():
    names = [name for name, _ in _combinations()]
    groups = _groups(names)
    assert sorted(name for group in groups for name in group) == sorted(names)
    prices = [group[0].split(", ")[1] for group in groups[:2]]
    assert sorted(prices) == ["float64 prices", "int64 prices"]
    assert all(name.split(", ")[1].endswith("prices") for group in groups[:7] for name in group)
    euclidean = [group for group in groups if "points, euclidean, 2-D, ssp" in group]
    assert [len(group) for group in euclidean] == [3 * len(METHODS)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_second_process_compiles_nothing():
    said = run("-m", "bigsap", "warmup", "--processes", "2")
    for kind in ("uint16 costs", "int64 costs, int64 prices", "lfu", "haversine", "table"):
        assert kind in said
    assert run("-c", SECOND).split() == 4 * ["0"]
