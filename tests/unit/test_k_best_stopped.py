"""``solve_k_best`` while it ranks: reports, limits, and what a ranking that is stopped returns."""

from __future__ import annotations

import io
import itertools
import sys
import threading
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.display import progress_bar
from bigsap.engine.k_best.enumerate import TOO_LARGE
from bigsap.engine.k_best.state import NODES, U_LOW
from bigsap.errors import CertificateError, OverflowRiskError
from bigsap.k_best import best_after
from bigsap.strategies import k_best_search
from bigsap.strategies.k_best_lists import listed
from clock import Clock
from gate import Counting, Gate, Gated
from pairwise import each

COSTS = np.random.default_rng(2).random((30, 30))


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the limits for each subspace."""
    monkeypatch.setattr(k_best_search, "_PAIRS", 0)


def wide(shape: tuple[int, int]) -> np.ndarray:
    """Costs whose digits span too many bits: ranked by rounded numbers, then by exact sums."""
    rng = np.random.default_rng(12)
    costs = rng.random(shape)
    costs[0] += 1e30 * (1 + rng.integers(0, 3, shape[1]))
    costs[1] *= 1e-15
    return costs


def points(shape: tuple[int, int]) -> bigsap.CostSource:
    rng = np.random.default_rng(5)
    return bigsap.points(rng.random((shape[0], 2)), rng.random((shape[1], 2)))


def same(found: bigsap.Assignments, whole: bigsap.Assignments) -> bool:
    """Whether these are the first ones of all."""
    count = len(found)
    costs, columns = whole.costs[:count].tolist(), whole.col4row[:count].tolist()
    return (found.costs.tolist(), found.col4row.tolist()) == (costs, columns)


def seen_by(**options: Any) -> tuple[bigsap.Assignments, list[bigsap.Progress]]:
    seen: list[bigsap.Progress] = []
    found = bigsap.solve_k_best(COSTS, 300, callback=seen.append, callback_every=0, **options)
    return found, seen


@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("method", ["auto", "ssp"])
def test_reports_of_a_ranking(method: str) -> None:
    found, seen = seen_by(method=method)
    assert same(found, bigsap.solve_k_best(COSTS, 300))
    assert (found.status, len(found)) == ("optimal", 300)
    stages = [stage for stage, _ in itertools.groupby(state.stage for state in seen)]
    assert stages[-2:] == ["rank", "done"]
    assert stages.count("done") == stages.count("rank") == 1
    ranked = [(state.ranked, state.to_rank) for state in seen if state.stage == "rank"]
    assert ranked[0] == (0, 300)
    assert ranked == sorted(ranked)
    assert {of for _, of in ranked} == {300}
    assert len(set(ranked)) > 30
    assert {(state.ranked, state.to_rank) for state in seen if state.stage not in ("rank", "done")} == {
        (0, 0)
    }
    last = seen[-1]
    assert (last.ranked, last.to_rank, last.lower_bound, last.assigned) == (300, 300, found.costs[0], 30)
    assert [state.seconds for state in seen] == sorted(state.seconds for state in seen)


@pytest.mark.parametrize("plain", [False, True])
def test_the_bar_goes_on(plain: bool, monkeypatch: pytest.MonkeyPatch, slowly: None) -> None:
    stream = io.StringIO()
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(progress_bar, "INTERVAL", 0)
    made: list[progress_bar.Bar] = []

    class Drawn(progress_bar.Bar):
        def __init__(self) -> None:
            super().__init__(stream, plain=plain)
            made.append(self)

    monkeypatch.setattr(sys.modules["bigsap.solve"], "Bar", Drawn)
    bigsap.solve_k_best(COSTS, 300, progress=True, callback_every=0)
    text = stream.getvalue()
    assert len(made) == 1
    assert text.index("first prices") < text.index("ranking")
    assert "1/300" in text
    assert "300/300" in text.splitlines()[-1]
    assert text.endswith("\n")


KINDS = {
    "real": lambda shape: np.random.default_rng(3).random(shape),
    "ties": lambda shape: np.random.default_rng(3).integers(0, 3, shape),
    "equal": np.ones,
    "wide": wide,
    "points": points,
}


@pytest.mark.usefixtures("slowly")
@each(kind=list(KINDS), shape=[(9, 9), (7, 9), (9, 7)], short=[False, True], price=[None, 0.4])
def test_each_stop_returns_the_first_ones(
    kind: str, shape: tuple[int, int], short: bool, price: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is stopped: between two subspaces, two stages, two lists."""
    costs = KINDS[kind](shape)
    whole = bigsap.solve_k_best(costs, 40, unassigned_cost=price)
    if short:  # the first lists do not suffice
        monkeypatch.setattr(k_best_search, "_PER_ROW", 1)
        monkeypatch.setattr(k_best_search, "_PER_DOUBLING", 0)
    calls = stop = 0

    def counted(real: Any) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == stop:
                event.set()
            return real(*args, **given)

        return call

    monkeypatch.setattr(k_best_search, "enumerate_best", counted(k_best_search.enumerate_best))
    monkeypatch.setattr(k_best_search, "listed", counted(listed))

    def run(last: int) -> tuple[bigsap.Assignments, list[int]]:
        nonlocal calls, stop
        calls, stop, ranked = 0, last, []
        event.clear()
        options: dict[str, Any] = {"unassigned_cost": price, "cancel": event, "callback_every": 0}
        found = bigsap.solve_k_best(costs, 40, callback=lambda state: ranked.append(state.ranked), **options)
        return found, ranked

    event = threading.Event()
    assert same(run(0)[0], whole)
    some = set()
    for last in np.unique(np.linspace(1, calls - 1, 25).astype(int)).tolist():
        found, ranked = run(last)
        assert (found.status, found.complete) == ("cancelled", False)
        assert len(found) == ranked[-2] == ranked[-1]
        assert same(found, whole)
        some.add(len(found))
    assert 0 in some
    assert len(some) > 3


@pytest.mark.usefixtures("slowly")
def test_rounded_numbers_that_are_too_close_settle_nothing() -> None:
    """Only exact sums tell these apart, and any that is not found yet may come before."""
    costs = np.random.default_rng(4).random((5, 5)) * 1e-3  # some units
    costs[:, 0] += 1e30
    whole = bigsap.solve_k_best(costs, 120)
    for most in range(2, 60, 9):
        asked = Counting(most)  # an event that is set then
        found = bigsap.solve_k_best(costs, 120, cancel=asked)
        assert same(found, whole)
        assert len(found) == 0
    assert found.status == "cancelled"


def test_a_pair_that_is_not_listed_may_come_before(monkeypatch: pytest.MonkeyPatch, slowly: None) -> None:
    """What the first lists do not settle is not returned."""
    whole = bigsap.solve_k_best(COSTS, 200)
    monkeypatch.setattr(k_best_search, "_PER_ROW", 1)
    monkeypatch.setattr(k_best_search, "_PER_DOUBLING", 0)
    event, lists = threading.Event(), 0

    def cancelled_at_the_second(*args: Any, **given: Any) -> Any:
        nonlocal lists
        lists += 1
        if lists == 2:
            event.set()
        return listed(*args, **given)

    monkeypatch.setattr(k_best_search, "listed", cancelled_at_the_second)
    found = bigsap.solve_k_best(COSTS, 200, cancel=event)
    assert (lists, found.status) == (2, "cancelled")
    assert same(found, whole)
    assert len(found) < 200


@pytest.mark.usefixtures("slowly")
def test_the_time_limit_is_that_of_the_whole(clock: Clock) -> None:
    def callback(state: bigsap.Progress) -> None:
        if state.ranked >= 40:
            clock.sleep(11)

    found = bigsap.solve_k_best(COSTS, 300, time_limit=10, callback=callback, callback_every=0)
    assert (found.status, found.complete) == ("time_limit", False)
    assert 40 <= len(found) < 300
    assert same(found, bigsap.solve_k_best(COSTS, 300))
    assert "time_limit" in repr(found)
    assert "time_limit" in found._repr_html_()


def test_no_time_and_enough() -> None:
    for limit in (0, 1e9):
        found = bigsap.solve_k_best(COSTS, 300, time_limit=limit)
        assert (found.status, len(found)) == (("optimal", 300) if limit else ("time_limit", 0))
        assert found.col4row.shape == (len(found), 30)


@pytest.mark.parametrize("way", ["event", "other thread", "StopIteration"])
def test_cancelled_while_it_ranks(way: str, slowly: None) -> None:
    event, seen = threading.Event(), []

    def callback(state: bigsap.Progress) -> None:
        seen.append(state)
        if state.ranked < 20:
            return
        if way == "StopIteration":
            raise StopIteration
        if way == "event":
            event.set()
        else:
            other = threading.Thread(target=event.set)
            other.start()
            other.join()

    found = bigsap.solve_k_best(COSTS, 300, cancel=event, callback=callback, callback_every=0)
    assert (found.status, found.complete) == ("cancelled", False)
    assert 20 <= len(found) < 300
    assert same(found, bigsap.solve_k_best(COSTS, 300))
    # As of a solve: who asked for the end is not called again.
    assert (seen[-1].stage == "done") == (way != "StopIteration")


@pytest.mark.parametrize("stage", ["search", "rank"])
def test_an_interrupt_is_raised(stage: str) -> None:
    def callback(state: bigsap.Progress) -> None:
        if state.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigsap.solve_k_best(COSTS, 300, callback=callback, callback_every=0)


def test_kernels_pause_for_an_interrupt(monkeypatch: pytest.MonkeyPatch, slowly: None) -> None:
    """Python handles Ctrl-C only between two calls of compiled code: also where nobody looks on."""
    calls = 0

    def interrupted(*args: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt
        return enumerate_best(*args)

    enumerate_best = k_best_search.enumerate_best
    monkeypatch.setattr(k_best_search, "enumerate_best", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bigsap.solve_k_best(COSTS, 16)


def test_a_stop_of_the_first_solve_or_of_the_pass_over_the_costs_finds_none(gate: Gate) -> None:
    for after in (0, 30):  # rows that are read before; all of them are kept
        event = threading.Event()
        costs = Gated(COSTS, Gate(gate.folder / str(after), event.set), after)
        found = bigsap.solve_k_best(costs, 3, cancel=event, method="ssp")
        assert (found.status, len(found), found.complete) == ("cancelled", 0, False)
        assert found.col4row.shape == (0, 30)


def test_all_that_were_asked_for_and_whether_there_are_others(slowly: None) -> None:
    """Stopped while the next one is searched: not known to be all."""
    costs = np.full((6, 6), np.inf)
    costs[np.tril_indices(6)] = np.random.default_rng(10).random(21)
    costs[0, 1] = 0.5
    event = threading.Event()
    assert bigsap.solve_k_best(costs, 2).complete

    def callback(state: bigsap.Progress) -> None:
        if state.ranked == 2:
            event.set()

    found = bigsap.solve_k_best(costs, 2, cancel=event, callback=callback, callback_every=0)
    assert (len(found), found.complete, found.status) == (2, False, "cancelled")


def test_what_is_returned_is_proved(monkeypatch: pytest.MonkeyPatch, slowly: None) -> None:
    """Duals that prove nothing are noticed before a stop returns what they should prove."""
    prove = k_best_search.Search._prove_new

    def spoiled(search: Any, *args: Any) -> None:
        last = int(search.work.counts[NODES]) - 1
        if last > 3:
            search.nodes.rows[search.nodes.offset[last], U_LOW] += 1
        prove(search, *args)

    monkeypatch.setattr(k_best_search.Search, "_prove_new", spoiled)
    with pytest.raises(CertificateError, match="duals"):
        bigsap.solve_k_best(COSTS, 300, cancel=threading.Event())


def test_a_ranking_after_a_solve_of_ones_own(slowly: None) -> None:
    result, seen = bigsap.solve(COSTS), []
    begun = bigsap.Progress(phase=3, rows_evaluated=77, stage="done")
    found = best_after(result, COSTS, 100, callback=seen.append, progress=begun)
    assert same(found, bigsap.solve_k_best(COSTS, 100))
    assert [(seen[p].stage, seen[p].ranked, seen[p].to_rank) for p in (0, -1)] == [
        ("rank", 0, 100),
        ("done", 100, 100),
    ]
    assert {(state.phase, state.rows_evaluated) for state in seen} == {(3, 77)}
    assert (begun.stage, begun.to_rank) == ("done", 0)
    stopped = bigsap.Result.from_assignment(None, shape=(30, 30), status="time_limit")
    found = best_after(stopped, COSTS, 3)
    assert (found.status, len(found), found.complete) == ("time_limit", 0, False)


def test_numbers_that_leave_their_range_are_the_error(monkeypatch: pytest.MonkeyPatch, slowly: None) -> None:
    """Whatever is known by then: the rest cannot be ranked."""
    calls, usual = 0, k_best_search.enumerate_best

    def enumerate_best(*args: Any) -> int:
        nonlocal calls
        calls += 1
        return TOO_LARGE if calls == 5 else int(usual(*args))

    monkeypatch.setattr(k_best_search, "enumerate_best", enumerate_best)
    with pytest.raises(OverflowRiskError):
        bigsap.solve_k_best(COSTS, 300, cancel=threading.Event())
