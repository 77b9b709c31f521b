"""Solves with objective="bottleneck" that are stopped, cancelled, continued and watched."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.checkpoint import read
from bigsap.errors import CheckpointError
from bigsap.progress import Monitor, Stopped
from bigsap.run import bottleneck as run_bottleneck
from killed import same
from oracle import value
from pairwise import each


def test_stopped_anywhere_and_continued(tmp_path):
    """The search for the threshold begins anew; that of the sum goes on."""
    cost = np.random.default_rng(3).integers(0, 900, (120, 150))
    whole, path = bigsap.solve(cost, objective="bottleneck", maximize=True), tmp_path / "c"

    def stop(ticks):
        count = itertools.count()

        def callback(_progress):
            if next(count) >= ticks:
                raise StopIteration

        return {"callback": callback, "callback_every": 0}

    left = bigsap.solve(cost, objective="bottleneck", maximize=True, checkpoint=path, **stop(0))
    assert (left.status, left.bound, left.bottleneck) == ("cancelled", None, None)
    assert value(cost, left.row_ind, left.col_ind) == left.fun
    for ticks in range(30):
        for other in ({"objective": "sum"}, {"maximize": False}, {"seed": 1}):
            with pytest.raises(CheckpointError, match=f"of {next(iter(other))} ="):
                bigsap.resume(path, cost, **other)
        with pytest.raises(CheckpointError, match="fingerprint"):
            bigsap.resume(path, cost + 1)
        found = bigsap.resume(path, cost, **stop(ticks))
    assert read(path).snapshot
    again = bigsap.resume(path, cost)
    assert same(again, whole)
    assert again.bottleneck == whole.bottleneck
    assert found.stats["resumed"] > 0


def test_one_solve_reports():
    """Threshold, sum and proof are its parts: no count falls, it ends once, and a stop is not asked twice."""
    cost = np.random.default_rng(3).integers(0, 900, (15, 12))

    def reports(last):
        seen = []

        def callback(state):
            seen.append(state)
            if len(seen) == last:
                raise StopIteration

        bigsap.solve(cost, objective="bottleneck", callback=callback, callback_every=0)
        return seen

    seen = reports(None)
    assert [state.stage for state in seen].index("done") == len(seen) - 1
    assert len({(state.n_rows, state.n_columns) for state in seen}) == 1
    for name in ("phase", "rows_scanned", "rows_evaluated", "seconds"):
        counts = [getattr(state, name) for state in seen]
        assert counts == sorted(counts)
    assert [len(reports(last)) for last in range(1, len(seen))] == list(range(1, len(seen)))


@each(
    shape=[(60, 60), (40, 60), (60, 40)],
    maximize=[False, True],
    kind=["real", "whole"],
    ordered=[False, True],
)
def test_a_stopped_search_for_the_threshold_has_an_assignment(shape, maximize, kind, ordered, monkeypatch):
    """The best one that it has found; until then that of a stopped solve of the sum."""
    monkeypatch.setattr(Monitor, "grace", lambda _: 1e9)
    if ordered:
        monkeypatch.setattr(policy, "BOTTLENECK_BOUNDED_ROWS", 1)
    rng = np.random.default_rng(4)
    cost = rng.random(shape) if kind == "real" else rng.integers(-300, 300, shape)
    whole = bigsap.solve(cost, objective="bottleneck", maximize=maximize)
    fields, worst = bigsap.solve(cost, method="ssp").stats.keys(), []
    for ticks in itertools.count():
        calls = itertools.count()

        def callback(state, ticks=ticks, calls=calls):
            if next(calls) >= ticks:
                raise StopIteration

        found = bigsap.solve(
            cost, objective="bottleneck", maximize=maximize, callback=callback, callback_every=0, threads=1
        )
        assert len(found.row_ind) == min(shape)
        assert len(set(found.col_ind.tolist())) == min(shape)
        assert found.fun == pytest.approx(float(value(cost, found.row_ind, found.col_ind)), rel=1e-15)
        paid = cost[found.row_ind, found.col_ind]
        worst.append(-paid.min() if maximize else paid.max())
        if found.bottleneck is not None:
            break
        assert (found.status, found.bound, found.gap) == ("cancelled", None, None)
        assert fields <= found.stats.keys()
        assert found.stats["seconds"].keys() == whole.stats["seconds"].keys()
        found.verify(cost)
    assert worst[-1] == (-whole.bottleneck if maximize else whole.bottleneck)
    assert worst[-2] == worst[-1]  # the last stop was in the search for the threshold
    assert worst == sorted(worst, reverse=True)


def test_a_stopped_search_for_the_threshold_tells_no_bounds_of_the_sum_alone(monkeypatch):
    """The least sum is less than that of least largest cost."""
    monkeypatch.setattr(Monitor, "grace", lambda _: 1e9)
    cost = np.full((60, 60), 100.0)
    for k in range(0, 60, 2):
        cost[k : k + 2, k : k + 2] = [[0, 6], [6, 10]]
    seen, cancel = [], threading.Event()

    def callback(state):
        seen.append((state.lower_bound, state.upper_bound))
        cancel.set()

    found = bigsap.solve(cost, objective="bottleneck", cancel=cancel, callback=callback, callback_every=0)
    assert (found.status, found.fun < 360) == ("cancelled", True)
    assert set(seen) == {(None, None)}
    assert not found.stats["gaps"]


@each(maximize=[False, True], kind=["real", "whole"])
def test_a_sum_that_is_stopped_at_once_has_the_assignment_of_the_threshold(maximize, kind, monkeypatch):
    monkeypatch.setattr(Monitor, "grace", lambda _: -1.0)  # no time to complete another one
    rng = np.random.default_rng(4)
    cost = rng.random((60, 60)) if kind == "real" else rng.integers(-300, 300, (60, 60))
    whole = bigsap.solve(cost, objective="bottleneck", maximize=maximize)

    def callback(state):
        if state.phase == 1:
            raise StopIteration

    found = bigsap.solve(cost, objective="bottleneck", maximize=maximize, callback=callback, callback_every=0)
    assert (found.status, len(found.row_ind)) == ("cancelled", 60)
    paid = cost[found.row_ind, found.col_ind]
    assert (paid.min() if maximize else paid.max()) == whole.bottleneck
    low, high = (found.fun, found.bound) if maximize else (found.bound, found.fun)
    assert low <= whole.fun <= high
    found.verify(cost)


@pytest.mark.parametrize("certify", [True, "pairs"])
def test_a_cancel_in_the_proof_leaves_the_assignment_without_a_bound(certify, monkeypatch):
    cost = np.random.default_rng(3).random((60, 60))
    whole_answer = bigsap.solve(cost, objective="bottleneck")
    cancel, prove = threading.Event(), run_bottleneck.prove_entries

    def cancelled(*given, **options):
        cancel.set()
        return prove(*given, **options)

    monkeypatch.setattr(run_bottleneck, "prove_entries", cancelled)
    found = bigsap.solve(cost, objective="bottleneck", cancel=cancel, certify=certify)
    assert (found.status, found.success, found.bound, found.gap) == ("cancelled", False, None, None)
    assert (found.fun, found.bottleneck) == (whole_answer.fun, whole_answer.bottleneck)
    assert "cancelled" in found.message
    assert (found.stats["gaps"], found.stats["proof"]) == ([], None)


def test_a_proof_goes_on_for_the_grace_period():
    class Ended:
        cancelled = False

        def __init__(self, seconds, reason="time_limit"):
            self.seconds, self.reason = seconds, reason

        def grace(self):
            return self.seconds

        def tick(self):
            raise Stopped(self.reason)

    tick = run_bottleneck._until_late(Ended(1e6))
    tick(1)
    tick(2)
    for ended in (Ended(-1.0), Ended(1e6, "cancelled")):
        with pytest.raises(Stopped):
            run_bottleneck._until_late(ended)(1)
