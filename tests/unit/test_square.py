"""The kernel of square problems where it is entered again: after a pause, a fault, a resume."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.optimize

import bigsap
from bigsap.engine.core import state as S
from bigsap.engine.core.team import Team
from bigsap.engine.rows import row_engine as cpu
from bigsap.engine.rows.rectangular import NEXT_ROW
from bigsap.engine.rows.row_engine import Engine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.row_cache import Rows
from bigsap.sources import as_source
from pairwise import each

# A resumed solve computes its rows anew, in slices of one row here, as where a row takes long:
# the last row that is missing is then the first of a slice. In a process of its own: threads
# that disagree about whether it is there wait for each other for ever.
RESUMED = """
import shutil, sys, threading
import numpy as np
import bigsap
from bigsap.engine.rows import row_engine as cpu

cpu._SLICE_SECONDS, cpu._FIRST_SLICE_FILLED = 0, 1
generator = np.random.default_rng(0)
n, folder = 130, sys.argv[1]
x, y = generator.random((n, 2)), generator.random((n, 2))
cancel, seen = threading.Event(), []

def watch(progress):
    if progress.stage == "search":
        seen.append(progress)
        if len(seen) > 3:
            cancel.set()

path = folder + "/checkpoint"
stopped = bigsap.solve(
    bigsap.points(x, y), method="ssp", threads=2, checkpoint=path, checkpoint_every=0,
    callback=watch, callback_every=0, cancel=cancel,
)
assert stopped.status == "cancelled"
for _ in range(8):
    shutil.copy(path, path + "2")
    assert bigsap.resume(path + "2", bigsap.points(x, y), threads=2).status == "optimal"
"""


def test_threads_agree_on_whether_the_last_row_is_there(tmp_path):
    subprocess.run([sys.executable, "-c", RESUMED, str(tmp_path)], check=True, timeout=120)


@pytest.mark.parametrize("kind", ["float64", "wide int64"])
@pytest.mark.parametrize("n", [40, 65, 200])
def test_a_search_left_after_every_row_goes_on_as_if_it_had_not_been(n, kind, monkeypatch):
    generator = np.random.default_rng(n)
    cost = generator.random((n, n))
    if kind == "wide int64":
        cost = (cost * 1e13).astype(np.int64)  # prices are integers then
    whole = bigsap.solve(cost, method="ssp", threads=1)
    monkeypatch.setattr(cpu, "_FIRST_SLICE_PAIRS", 1)
    monkeypatch.setattr(cpu, "_SLICE_SECONDS", 0)
    for threads in (1, 2, 3):
        cut = bigsap.solve(cost, method="ssp", threads=threads)
        np.testing.assert_array_equal(cut.col4row, whole.col4row)
        np.testing.assert_array_equal(cut.v, whole.v)
        assert cut.stats["rows_scanned"] == whole.stats["rows_scanned"]


@pytest.mark.some(3)
@pytest.mark.parametrize("seed", range(8))
def test_phase_after_one_that_was_left_in_the_midst_of_a_search(seed, monkeypatch):
    monkeypatch.setattr(cpu, "_SLICE_SECONDS", 0)
    monkeypatch.setattr(cpu, "_FIRST_SLICE_PAIRS", 1)
    generator = np.random.default_rng(seed)
    n = 150
    x, y = generator.random((n, 2)), generator.random((n, 2))
    cost = ((x[:, None] - y[None]) ** 2).sum(2)
    order, left = np.arange(n, dtype=S.ID), int(generator.integers(150, 500))
    with Team(1) as team:
        problem = Problem(as_source(cost))
        engine = Engine(problem, Rows.in_place(cost), team, Monitor(), np.dtype(np.float64))
        engine.begin_phase()
        tick = engine.monitor.tick

        def interrupted():
            nonlocal left
            left -= 1
            if left <= 0 and engine.state.at.stage != NEXT_ROW:
                raise KeyboardInterrupt
            tick()

        engine.monitor.tick = interrupted
        with pytest.raises(KeyboardInterrupt):
            engine.phase(order, backward=False, epsilon=0.0)
        assert engine.state.at.stage != NEXT_ROW
        assert engine.state.sieve.size == 0
        np.testing.assert_array_equal(engine.prices(), engine.state.v)
        engine.monitor.tick = tick
        assert engine.phase(order, backward=False, epsilon=0.0)
        columns = engine.matching()
    best = cost[scipy.optimize.linear_sum_assignment(cost)].sum()
    assert cost[np.arange(n), columns].sum() == pytest.approx(best, rel=1e-12)


def looked_up(i, j, table):
    return table[i, j]


def looked_up_by_row(i, table):
    return table[i]


@pytest.mark.some(2)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("threads", [2, 1, 3])
def test_costs_that_go_bad_under_a_search(bad, threads, monkeypatch):
    """The first pass finds all that is bad before: here all threads leave a search for it."""
    monkeypatch.setattr(cpu, "_SLICE_SECONDS", 0)
    n = 300
    for column in (0, 130, n - 1):
        cost = np.random.default_rng(column).random((n, n))

        def spoil(progress, cost=cost, column=column):
            if progress.stage == "search":
                cost[:, column] = bad

        with pytest.raises(bigsap.InvalidCostError, match=rf", {column}\] is"):
            bigsap.solve(
                looked_up,
                shape=(n, n),
                args=(cost,),
                method="ssp",
                threads=threads,
                cache=8 * n,
                callback=spoil,
                callback_every=0,
            )


@pytest.mark.some(1)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("threads", [2, 1, 3])
def test_bad_cost_in_a_row_that_threads_compute_in_parts(bad, threads):
    """Whichever thread meets it, all leave the search for it; no other row is at fault."""
    n = 200
    for column in (0, 70, n - 1):
        cost = np.random.default_rng(column).random((n, n))
        cost[17, column] = bad
        with pytest.raises(bigsap.InvalidCostError, match=rf"cost\[17, {column}\] is"):
            bigsap.solve(
                looked_up,
                shape=(n, n),
                args=(cost,),
                method="ssp",
                epsilon=False,
                threads=threads,
                cache=8 * n,
            )


@pytest.mark.some(2)
@each(threads=[2, 3, 1, 5], rows=[1, 2, 30], function=[looked_up, looked_up_by_row])
def test_rows_computed_in_parts_are_as_those_in_memory(function, threads, rows):
    """The cost by which a search enters a row is told by the thread that computes it."""
    n = 700
    generator = np.random.default_rng(rows)
    for cost in (generator.random((n, n)), generator.integers(0, 9, (n, n)).astype(float)):
        right = bigsap.solve(cost, method="ssp", threads=1)
        result = bigsap.solve(
            function, shape=(n, n), args=(cost,), method="ssp", threads=threads, cache=8 * n * rows
        )
        np.testing.assert_array_equal(result.col4row, right.col4row)
        np.testing.assert_array_equal(result.v, right.v)
        assert result.stats["rows_scanned"] == right.stats["rows_scanned"]
        assert result.stats["pairs_evaluated"] == result.stats["rows_evaluated"] * n
