"""Limits and cancellation are obeyed, in every kind of source, and what is known then is kept."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import bigsap
from gate import Gate, Gated
from instances import CLASSES
from oracle import optimum


def over(limit):
    """What is over at the tick given: the call of ``cancel`` or the time."""
    return "time_limit" if limit else "cancelled"


@pytest.mark.parametrize("threads", [1, 2])
def test_cancelled_in_the_certificate(threads, clock):
    """Slow rows, a search that is over after one sweep: the rest of the time is the proof."""
    n = 60
    cost = CLASSES["random"](n) + 1 - np.eye(n)
    read = []

    def row(i):
        read.append(i)
        clock.sleep(0.02)
        return cost[i]

    cancel = threading.Event()
    source = bigsap.from_function(row, (n, n), kind="row", compiled=False)

    def tick(state):
        if state.stage == "certificate":
            cancel.set()

    options = {"cancel": cancel, "callback": tick, "callback_every": 0, "threads": threads}
    read.clear()
    res = bigsap.solve(source, **options)
    # The proof, and with it the second sweep over all rows, was left.
    assert len(read) < 1.7 * n
    assert res.status == "cancelled"
    # The assignment was found, and the sweep had proved a bound.
    assert res.fun == pytest.approx(float(optimum(cost)[0]))
    assert res.bound == pytest.approx(res.fun)
    assert res.bound <= res.fun
    res.verify(cost)


def test_the_bound_of_the_sweeps_is_used_when_a_pass_is_too_slow(clock):
    n = 60
    cost = CLASSES["disjoint"](n, seed=1)
    slow = threading.Event()
    late = []

    def row(i):
        if slow.is_set():
            late.append(i)
            clock.sleep(0.1)
        return cost[i]

    def stop(state):
        if state.phase == 1 and state.assigned > 5:
            slow.set()
            if state.assigned > 6:
                raise StopIteration

    source = bigsap.from_function(row, (n, n), kind="row", compiled=False)
    res = bigsap.solve(source, callback=stop, callback_every=0, cache=4 * n * 8, threads=1)
    assert len(late) < n / 2  # a pass would read them all, at 0.1 s each
    assert res.status == "cancelled"
    assert len(res.row_ind) == n
    best = float(optimum(cost)[0])
    assert res.bound <= best <= res.fun
    assert res.gap < 10 * best
    slow.clear()
    res.verify(cost)


@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_time_limit_stops_slow_rows(method, clock):
    costs = CLASSES["disjoint"](60, seed=1)

    def row(i):
        clock.sleep(0.02)
        return costs[i]

    source = bigsap.from_function(row, costs.shape, kind="row", compiled=False)
    began = clock()
    res = bigsap.solve(source, time_limit=0.5, threads=1, method=method)
    assert res.status == "time_limit"
    assert 0.5 < clock() - began < 1.5  # one sweep takes 1.2
    assert res.bound is None


def test_unsigned_integers_have_a_bound_before_any_row_is_read(tmp_path):
    costs = np.random.default_rng(0).integers(0, 200, (300, 300)).astype(np.uint8)
    gate = Gate(tmp_path / "gate")
    assert bigsap.solve(Gated(costs, gate), time_limit=0).bound == 0
    gate.open()
