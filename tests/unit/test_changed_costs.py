"""Costs that change under a solve: an error, or an answer the certificate has judged.

Kernels go over a row in place more than once, and whoever owns it may write to it in between.
"""

import subprocess
import sys

import numpy as np
import pytest

from bigsap.engine.core import state as S
from bigsap.engine.core.record import record, records
from bigsap.engine.core.scan import NOWHERE, Part, locate
from bigsap.engine.rows.augment import augment
from bigsap.engine.rows.rectangular import _reduce
from bigsap.engine.rows.sweep import _find
from pairwise import each

N = 200


def test_a_minimum_that_is_no_longer_there_has_no_column():
    """As a row that was changed between the pass for its minimum and that for its place."""
    v, dist, free = np.zeros(N), np.ones(N), np.full(N, -1, np.int32)
    block_min, barrier = np.full(1, 0.5), np.zeros(16, np.int64)
    assert locate(0.5, dist, v, free, np.inf, 0, N, block_min) == (NOWHERE, False)
    reports, own = records(S.Report, v.dtype, 2), record(S.Walk, v.dtype)
    part = Part(own, v, dist, v.astype(S.ID), free, v, block_min, 0, N, 0, 1, np.inf)
    assert reports[_reduce(part, 0, 0.5, np.inf, reports, barrier)].column == NOWHERE
    assert _find(0.5, dist, 1.0, v, 0, N, block_min) == NOWHERE
    dist[70] = 0.5
    assert locate(0.5, dist, v, free, np.inf, 0, N, block_min) == (70, True)
    assert _find(0.5, dist, 1.0, v, 0, N, block_min) == 70


def test_a_path_that_closes_to_a_circle_ends():
    st = S.allocate(3, 3, np.dtype(np.float64), 1, 0)
    st.pred[:] = [1, 1, 0]  # column 0 by row 1, which holds column 1, reached by row 1
    st.column_of_row[:] = [S.FREE, 1, S.FREE]
    st.row_of_column[:] = [S.FREE, 1, S.FREE]
    assert not augment(st, 0, 0, 3, 6)
    st.pred[1] = 0
    st.column_of_row[:] = [S.FREE, 1, S.FREE]
    assert augment(st, 0, 0, 3, 6)
    assert st.column_of_row.tolist() == [1, 0, S.FREE]


# In a process of its own: where the guard fails, the system ends it.
RACE = """
import sys, threading
import numpy as np
import bigsap

method, dtype, threads, n, m = *sys.argv[1:3], *map(int, sys.argv[3:])
rng = np.random.default_rng(0)
near = (rng.random((n, 2)) @ rng.random((2, m)) * 1000).astype(dtype)
far = (rng.random((n, m)) * 1000).astype(dtype)
wild = far.copy()
if dtype == "float64":
    wild[::7, ::5] = [[np.inf]]
    wild[::11, ::3] = [[np.nan]]
    wild[::13, ::2] = [[-np.inf]]
else:
    wild[::7, ::5] = np.iinfo(dtype).min
    wild[::11, ::3] = np.iinfo(dtype).max
cost = near.copy()
over = threading.Event()

def change():
    while not over.is_set():
        for other in near, far, wild:
            cost[...] = other

changer = threading.Thread(target=change)
changer.start()
seen = set()
try:
    for _ in range(4):
        try:
            seen.add(str(bigsap.solve(cost, method=method, threads=threads, time_limit=0.2).status))
        except bigsap.BigsapError as error:
            seen.add(type(error).__name__)
finally:
    over.set()
    changer.join()
print(*seen)
"""
# Lists that are evaluated anew each time with other costs may take the search its time.
OUTCOMES = {
    "time_limit",
    "optimal",
    "feasible",
    "imprecise",
    "infeasible",
    "SourceError",
    "InvalidCostError",
    "CertificateError",
    "OverflowRiskError",
}


@pytest.mark.some(1)
@pytest.mark.timeout(330)  # as long as its process may take, on a machine that does other work
@each(
    method=["ssp", "compressed"],
    dtype=["float64", "int64", "int32"],
    **{"threads, n, m": [(1, 500, 500), (2, 500, 500), (2, 600, 400), (2, 400, 600)]},
)
def test_costs_written_to_all_the_time(method, dtype, threads, n, m):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RACE, method, dtype, *map(str, (threads, n, m))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = set(done.stdout.split())
    assert seen
    assert seen <= OUTCOMES
