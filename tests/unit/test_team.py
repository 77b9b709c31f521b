"""A team of threads: nobody passes a barrier alone; fewer search where others want the cores."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import cross, new_barrier
from bigsap.engine.core.contention import Contention, Waits
from bigsap.engine.core.team import Team
from bigsap.engine.rows import row_engine
from gate import HANG_S


@kernel
def _turns(thread: int, n_threads: int, barrier: np.ndarray, sums: np.ndarray) -> int:
    """Each thread adds to its own sum what the one beside it had after the turn before."""
    for turn in range(200):
        before, after = turn % 2, 1 - turn % 2
        sums[after, thread] = sums[before, (thread + 1) % n_threads] + 1
        cross(barrier, n_threads)
    return 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_nobody_passes_a_barrier_alone(threads):
    sums = np.zeros((2, threads), np.int64)
    with Team(threads) as team:
        assert team.run(_turns, new_barrier(), sums) == 0
    assert (sums[0] == 200).all()


@pytest.mark.parametrize("width", [1, 2, 3])
def test_some_of_a_team_run_a_kernel(width):
    sums = np.zeros((2, width), np.int64)
    with Team(4) as team:
        assert team.run_some(width, _turns, new_barrier(), sums) == 0
    assert (sums[0] == 200).all()


@kernel
def _busy(thread: int, n_threads: int, sums: np.ndarray) -> int:
    for k in range(60_000_000):
        sums[8 * thread] = (sums[8 * thread] * 5 + k) % 1_000_003
    return 0


def test_threads_on_one_core_wait_for_it():
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("the system does not tell how long threads waited")
    core = min(os.sched_getaffinity(0))

    def pinned(thread: int, n_threads: int, sums: np.ndarray) -> int:
        os.sched_setaffinity(0, {core})
        return _busy(thread, n_threads, sums)

    sums = np.zeros(16, np.int64)
    _busy(0, 0, sums)  # compiled
    with Team(2) as team:
        assert team.waits(1) == []
        assert team.waits(2) == [0.0, 0.0]
        clock = time.perf_counter()
        team.run(pinned, sums)
        seconds = time.perf_counter() - clock
        assert sum(team.waits(2)) > 0.4 * seconds


def test_systems_that_do_not_tell_have_no_crowd():
    waits = Waits([threading.get_native_id(), 2**22 + 1])
    assert waits.read(2) == []
    clock = Clock()
    crowd = Contention(2, clock)
    for _ in range(100):
        clock.now += 0.1
        crowd.judge([], 0.1)
    assert crowd.width == 2


def test_an_interrupt_within_the_lock_is_still_one():
    """It leaves as the context of the error that the lock then raises."""
    with Team(2) as team:
        real, waits = team._condition.wait, threading.Event()

        def interrupted(timeout):
            if threading.current_thread() is not threading.main_thread():
                return real(timeout)
            team._condition.wait = real
            waits.set()
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("cannot release un-acquired lock")

        def slowly(thread, n_threads):
            if thread == 0:
                team._condition.wait = interrupted
            assert waits.wait(HANG_S)
            return 0

        team.run(lambda thread, n_threads: 0)
        with pytest.raises(KeyboardInterrupt):
            team.run(slowly)


def test_who_has_not_begun_is_not_waited_for():
    begun = []

    def claims(thread: int, n_threads: int) -> int:
        begun.append(thread)
        return 0

    with Team(2) as team:
        team._threads[1] = threading.Thread(target=lambda: None)  # never comes
        for _ in range(3):
            team.run_claims(claims)
        assert begun == [0, 0, 0]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def _slice(crowd, clock, share, seconds=0.1):
    """A slice in which the last thread waited for a core for a share of the time."""
    clock.now += seconds
    crowd.judge([0.0] * (crowd.width - 1) + [share * seconds], seconds)
    return crowd.width


def test_a_crowd_halves_the_width_and_its_end_doubles_it():
    clock = Clock()
    crowd = Contention(4, clock)
    assert crowd.unsure
    assert _slice(crowd, clock, 0.01) == 4
    assert not crowd.unsure
    assert _slice(crowd, clock, 0.6) == 2
    assert crowd.unsure
    assert _slice(crowd, clock, 0.6) == 1
    widths = [_slice(crowd, clock, 0.0) for _ in range(30)]
    assert widths[0] == 1
    assert widths[-1] == 4  # after two times a second: the way down was no try
    assert widths == sorted(widths)


def _costs(name):
    rng = np.random.default_rng(5)
    return {
        "square": rng.random((300, 300)),
        "ties": rng.integers(0, 40, (260, 260)),
        "wide": rng.random((150, 400)),
        "tall": rng.random((400, 150)),
        "computed": bigsap.points(rng.random((300, 2)), rng.random((300, 2))),
    }[name]


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["square", "ties", "wide", "tall", "computed"])
def test_a_width_that_changes_all_the_time_changes_nothing(monkeypatch, name):
    costs = _costs(name)
    given = {"method": "ssp", "start": "estimate"}
    expected = bigsap.solve(costs, threads=1, **given)
    seen = set()

    def restless(crowd: Contention, waited: list[float], seconds: float) -> None:
        seen.add(crowd.width)
        crowd.width = 1 + (crowd.width + 1) % 3

    monkeypatch.setattr(Contention, "judge", restless)
    monkeypatch.setattr(row_engine, "_UNSURE_PAIRS", 2000)
    monkeypatch.setattr(Contention, "unsure", property(lambda _: True, lambda *_: None), raising=False)
    found = bigsap.solve(costs, threads=3, **given)
    assert seen == {1, 2, 3}
    np.testing.assert_array_equal(found.col_ind, expected.col_ind)
    np.testing.assert_array_equal(found.v, expected.v)
    assert found.fun == expected.fun
    for counter in ("rows_scanned", "rows_evaluated"):
        assert found.stats[counter] == expected.stats[counter]
