"""Long searches under watch: signals and limits are served while one search goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bigsap
from bigsap.engine.core import watch
from bigsap.engine.core.watch import watched
from bigsap.engine.lists import list_engine as engine_compressed
from bigsap.monitor import Monitor, Stopped
from gate import HANG_S
from test_hiding import check_thresholds, clusters, solved_by_lists, squared


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as one:
        yield one


class Kernel:
    """Runs until it is stopped."""

    def __init__(self):
        self.stopped, self.ended = threading.Event(), False

    def __call__(self):
        self.stopped.wait(HANG_S)
        self.ended = True
        return 7


def nothing():
    pass


def test_a_kernel_that_returns(executor):
    looked, stopped = threading.Event(), threading.Event()
    kernel = lambda: 7 if looked.wait(HANG_S) else 0  # noqa: E731
    assert watched(executor, looked.set, stopped.set, kernel) == 7
    assert not stopped.is_set()


def test_its_error_is_raised(executor):
    def kernel():
        raise ValueError("of the kernel")

    with pytest.raises(ValueError, match="of the kernel"):
        watched(executor, nothing, nothing, kernel)


def test_what_a_look_raises_stops_it(executor):
    kernel = Kernel()
    monitor = Monitor(time_limit=0.0)
    with pytest.raises(Stopped):
        watched(executor, monitor.look, kernel.stopped.set, kernel)
    assert kernel.stopped.is_set()
    assert kernel.ended


def test_a_kernel_about_to_return_is_not_stopped(executor, monkeypatch):
    monkeypatch.setattr(watch, "_PATIENCE", HANG_S)
    looked, stopped = threading.Event(), threading.Event()

    def look():
        looked.set()
        raise Stopped("cancelled")

    with pytest.raises(Stopped):
        watched(executor, look, stopped.set, lambda: 7 if looked.wait(HANG_S) else 0)
    assert not stopped.is_set()


def test_an_interrupt_is_heard(executor):
    kernel = Kernel()

    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        return kernel()

    with pytest.raises(KeyboardInterrupt):
        watched(executor, nothing, kernel.stopped.set, interrupted)
    assert kernel.stopped.is_set()
    assert kernel.ended


def test_a_look_saves_nothing_and_asks_for_no_bounds():
    """In mid-search lists may leave settled columns out: they prove nothing then."""
    told = []
    monitor = Monitor(callback=told.append, interval=0.0, save_every=0.0)
    monitor.bounds = monitor.save = lambda *_: pytest.fail("asked in the midst of a search")
    with monitor.saving(lambda: {"some": 1}):
        monitor.look()
        monitor.save = None
    assert len(told) == 1
    assert monitor.bounds is not None


@pytest.mark.parametrize("seed", range(3))
def test_searches_that_are_given_up_change_nothing(monkeypatch, seed):
    """Stopped over and over in the midst of searches, which then begin again."""
    generator = np.random.default_rng(seed)
    x, y = clusters(1400, 1400, 2, 12.0, generator, dimensions=3)
    cost = squared(x, y)
    frontiers, done, given_up = [], threading.Event(), []
    usual = engine_compressed.run_searches

    def noted(*args):
        frontier = args[2]
        frontiers[:] = [frontier]
        position = int(frontier.at.position)
        status = usual(*args)
        if frontier.at.stop:
            given_up.append(int(frontier.at.position) >= position)
            frontier.at.stop = 0
        return status

    def disturb():
        while not done.is_set() and len(given_up) < 40:
            time.sleep(0.002)
            for frontier in frontiers:
                frontier.at.stop = 1

    monkeypatch.setattr(engine_compressed, "run_searches", noted)
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        found = solved_by_lists(bigsap.points(x, y), 24)
    finally:
        done.set()
        thread.join()
    assert given_up
    assert all(given_up)
    monkeypatch.undo()
    best = bigsap.solve(cost, method="ssp").fun
    chosen = found.outcome.column_of_row
    assert cost[np.arange(1400), chosen].sum() == pytest.approx(best, rel=1e-12)
    rows = found.rows[np.arange(1400)]
    check_thresholds(found.engine, cost[np.ix_(rows, found.columns)])


def test_the_answer_is_the_one_without_a_watch(monkeypatch):
    generator = np.random.default_rng(3)
    x, y = clusters(600, 600, 1, 9.0, generator)
    plain = solved_by_lists(bigsap.points(x, y), 16)
    monkeypatch.setattr(engine_compressed, "_WATCHED", 1)
    seen = solved_by_lists(bigsap.points(x, y), 16)
    assert np.array_equal(plain.outcome.column_of_row, seen.outcome.column_of_row)
    assert plain.outcome.v.tobytes() == seen.outcome.v.tobytes()
    assert plain.engine.rows_scanned == seen.engine.rows_scanned
