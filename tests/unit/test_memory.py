"""What a solve allocates beyond a matrix in memory, counted exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys

BAR = 12.0  # vectors of 8 n bytes, seven of which are the result's: three indices, costs, duals, inverse
CERTIFIED = 50.0  # with room for near pairs, whose memory is taken only when they are noted
# Records, statistics: whatever does not grow with n. On a busy machine a solve looks at its limits and
# reports more often, which takes 30 KiB more. With this room a vector more is still noticed.
OBJECTS = 46 << 10
N = 6000
# In a process of its own: threads that other tests left (of a cluster, say) allocate as well. Small
# solves go first, since kernels and modules are not the solve's. Rank 1 takes all of the start's
# sweeps, random two of them.
SOLVES = """
import json, sys, tracemalloc
import numpy as np
import bigsap
from instances import low_rank

def matrix(kind, n):
    return np.ascontiguousarray(low_rank(n)) if kind == "rank 1" else np.random.default_rng(0).random((n, n))

def solve(cost, certify):
    return bigsap.solve(cost, method="ssp", start="estimate", threads=1, certify=certify)

for kind, proofs in (("random", [False]), ("rank 1", [False, True])):
    cost = matrix(kind, int(sys.argv[1]))
    for certify in proofs:
        solve(matrix(kind, 100), certify)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        result = solve(cost, certify)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        print(json.dumps([kind, certify, peak, result.success, result.gap is not None]))
"""


def test_some_vectors_beyond_the_matrix():
    out = subprocess.run(
        [sys.executable, "-c", SOLVES, str(N)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    found = [json.loads(line) for line in out.stdout.splitlines()]
    assert len(found) == 3
    for kind, certify, peak, success, proved in found:
        assert success, kind
        assert proved == certify, kind
        assert peak <= (CERTIFIED if certify else BAR) * 8 * N + OBJECTS, (kind, certify)
