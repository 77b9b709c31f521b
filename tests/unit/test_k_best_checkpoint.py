"""Rankings that are interrupted anywhere, and continued from their checkpoints with the same bits."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_k_best_stopped import COSTS, KINDS, same, slowly

import bigsap
from bigsap import checkpoint
from bigsap.engine.k_best.state import WORST
from bigsap.errors import CheckpointError, OptionError
from bigsap.k_best import best_after
from bigsap.proof import k_best as proof
from bigsap.strategies import k_best_saved, k_best_search
from bigsap.strategies.k_best_lists import listed
from clock import Clock
from gate import Gate, Gated
from pairwise import each

__all__ = ["slowly"]


def bits(found: bigsap.Assignments) -> tuple[Any, ...]:
    """All of a ranking, its counts included."""
    costs = found.costs.tolist(), found.costs.dtype
    return (*costs, found.col4row.tobytes(), found.complete, found.status, sorted(found.stats.items()))


def in_one_go(costs: Any, k: int, folder: Path, **options: Any) -> tuple[Any, ...]:
    """The same without a stop. With a checkpoint, since the kernel for small matrices takes none."""
    return bits(bigsap.solve_k_best(costs, k, checkpoint=folder / "uninterrupted", **options))


class Stops:
    """Sets an event at the call of a kernel, or of the pass over the costs, with this number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.event, self.calls, self.last = threading.Event(), 0, 0
        usual = k_best_search.enumerate_best
        for name, real in (("enumerate_best", usual), ("listed", listed)):
            monkeypatch.setattr(k_best_search, name, self._counted(real))

    def _counted(self, real: Any) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            self.calls += 1
            if self.calls == self.last:
                self.event.set()
            return real(*args, **given)

        return call

    def at(self, last: int) -> threading.Event:
        """Count anew; 0: never set the event."""
        self.calls, self.last = 0, last
        self.event.clear()
        return self.event


@pytest.mark.usefixtures("slowly")
@each(kind=list(KINDS), shape=[(9, 9), (7, 9), (9, 7)], short=[False, True], price=[None, 0.4])
def test_wherever_it_was_stopped_it_ends_as_if_it_had_not_been(
    kind: str,
    shape: tuple[int, int],
    short: bool,
    price: float | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    costs, path = KINDS[kind](shape), tmp_path / "ranking"
    if short:  # the first lists do not suffice
        monkeypatch.setattr(k_best_search, "_PER_ROW", 1)
        monkeypatch.setattr(k_best_search, "_PER_DOUBLING", 0)
    stops = Stops(monkeypatch)
    whole = in_one_go(costs, 40, tmp_path, unassigned_cost=price, cancel=stops.at(0))
    for last in np.unique(np.linspace(1, stops.calls, 9).astype(int)).tolist()[:-1]:
        found = bigsap.solve_k_best(costs, 40, unassigned_cost=price, cancel=stops.at(last), checkpoint=path)
        assert found.status == "cancelled"
        # Stopped twice: also while it repeats what came before.
        again = bigsap.resume_k_best(path, costs, unassigned_cost=price, cancel=stops.at(2))
        assert again.status == "cancelled" or bits(again) == whole
        number = checkpoint.read(path).snapshot.get("number", 0)
        assert bits(bigsap.resume_k_best(path, costs, unassigned_cost=price, cancel=stops.at(0))) == whole
        assert checkpoint.read(path).snapshot.get("number", 0) >= number


@pytest.mark.usefixtures("slowly")
def test_no_subspace_is_solved_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But those of the shorter enumerations before."""
    path, stops = tmp_path / "ranking", Stops(monkeypatch)
    whole = in_one_go(COSTS, 300, tmp_path, cancel=stops.at(0))
    calls = stops.calls
    bigsap.solve_k_best(COSTS, 300, cancel=stops.at(calls - 20), checkpoint=path)
    assert bits(bigsap.resume_k_best(path, COSTS, cancel=stops.at(0))) == whole
    assert stops.calls < calls / 2


KILLED = """
import os, signal, sys
import bigsap
from bigsap.strategies import k_best_search
from test_k_best_stopped import COSTS

k_best_search._PAIRS = 0  # a look at the limits for each subspace

def callback(state):
    if state.stage == sys.argv[2] and state.ranked >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

bigsap.solve_k_best(
    COSTS, 300, checkpoint=sys.argv[1], checkpoint_every=0, callback=callback, callback_every=0, method="ssp"
)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
@pytest.mark.parametrize(("stage", "ranked"), [("search", 0), ("rank", 0), ("rank", 100)])
def test_a_process_that_is_killed(stage: str, ranked: int, tmp_path: Path) -> None:
    path, here = tmp_path / "ranking", Path(__file__).parent
    folders = [str(here), str(here.parent / "support"), str(here.parents[1])]
    code = f"import sys; sys.path[:0] = {folders}\n{KILLED}"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path), stage, str(ranked)], capture_output=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ("number" in checkpoint.read(path).snapshot) == (ranked > 0)
    assert bits(bigsap.resume_k_best(path, COSTS)) == in_one_go(COSTS, 300, tmp_path, method="ssp")


def test_a_stop_of_the_solve(gate: Gate, tmp_path: Path) -> None:
    path, event = tmp_path / "ranking", threading.Event()
    costs = Gated(COSTS, Gate(gate.folder / "solve", event.set), 10)
    found = bigsap.solve_k_best(costs, 3, cancel=event, method="ssp", checkpoint=path)
    assert (found.status, len(found)) == ("cancelled", 0)
    again = bigsap.resume_k_best(path, Gated(COSTS, gate, 10**6))
    assert again.costs.tolist() == bigsap.solve_k_best(COSTS, 3).costs.tolist()


@pytest.mark.usefixtures("slowly")
def test_limits_count_from_the_resumption(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "ranking"

    def callback(state: bigsap.Progress) -> None:
        if state.ranked >= 40:
            clock.sleep(9)

    options: dict[str, Any] = {"callback": callback, "callback_every": 0, "time_limit": 5}
    found = bigsap.solve_k_best(COSTS, 300, checkpoint=path, **options)
    assert (found.status, 40 <= len(found) < 300) == ("time_limit", True)
    whole = in_one_go(COSTS, 300, tmp_path)
    assert bits(bigsap.resume_k_best(path, COSTS, time_limit=5)) == whole


def stopped(path: Path, costs: Any = COSTS, **options: Any) -> None:
    """Leave the checkpoint of a ranking of 300 that was stopped after 40."""

    def callback(state: bigsap.Progress) -> None:
        if state.ranked >= 40:
            raise StopIteration

    found = bigsap.solve_k_best(costs, 300, checkpoint=path, callback=callback, callback_every=0, **options)
    assert found.status == "cancelled"


@pytest.mark.usefixtures("slowly")
def test_further_checkpoints_go_where_they_are_wanted(tmp_path: Path) -> None:
    path, other = tmp_path / "ranking", tmp_path / "other"
    stopped(path)
    before = path.read_bytes()
    whole = bits(bigsap.resume_k_best(path, COSTS, checkpoint=other))
    assert path.read_bytes() == before
    assert bits(bigsap.resume_k_best(other, COSTS)) == whole


@pytest.mark.usefixtures("slowly")
def test_functions_maximising_and_prices(tmp_path: Path) -> None:
    path = tmp_path / "ranking"
    price = np.linspace(0.2, 0.9, 30)

    def cost(i: int, j: int) -> float:
        return float(COSTS[i, j])

    options: dict[str, Any] = {"maximize": True, "dtype": "float32"}
    stopped(path, cost, shape=(30, 30), unassigned_cost=price, **options)
    whole = in_one_go(cost, 300, tmp_path, shape=(30, 30), unassigned_cost=price, **options)
    assert bits(bigsap.resume_k_best(path, cost, unassigned_cost=price)) == whole


@pytest.mark.usefixtures("slowly")
def test_checkpoints_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ranking"
    stopped(path)
    kept = path.read_bytes()
    of_a_ranking = r"of a ranking, which bigsap\.resume_k_best continues"
    for options in ({}, {"capacity": 2}, {"objective": "bottleneck"}, {"time_limit": 0}):
        with pytest.raises(CheckpointError, match=of_a_ranking):
            bigsap.resume(path, COSTS, **options)
    with pytest.raises(CheckpointError, match="fingerprint"):
        bigsap.resume_k_best(path, COSTS + 1)
    with pytest.raises(CheckpointError, match="shape"):
        bigsap.resume_k_best(path, COSTS[:20])
    with pytest.raises(CheckpointError, match="unassigned_cost"):
        bigsap.resume_k_best(path, COSTS, unassigned_cost=1.0)
    with pytest.raises(CheckpointError, match="maximize"):
        bigsap.resume_k_best(path, COSTS, maximize=True)
    with pytest.raises(CheckpointError, match="of a ranking of k = 300, not 299"):
        bigsap.resume_k_best(path, COSTS, k=299)
    with pytest.raises(OptionError, match="k must be an integer"):
        bigsap.resume_k_best(path, COSTS, k=0)
    with pytest.raises(OptionError, match="gap"):
        bigsap.resume_k_best(path, COSTS, gap=1)
    for name, value in (
        ("method", "none"),
        ("device", "none"),
        ("seed", -1),
        ("cache", "x"),
        ("checkpoint", 5),
    ):
        with pytest.raises(OptionError, match=name):
            bigsap.resume_k_best(path, COSTS, **{name: value})
    assert path.read_bytes() == kept
    bigsap.solve(COSTS, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"of a solve, which bigsap\.resume continues"):
        bigsap.resume_k_best(path, COSTS)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        bigsap.resume_k_best(tmp_path / "none", COSTS)
    path.write_bytes(kept[:-50])
    with pytest.raises(CheckpointError, match="damaged"):
        bigsap.resume_k_best(path, COSTS)


@pytest.mark.usefixtures("slowly")
def test_costs_that_have_no_fingerprint_and_differ(tmp_path: Path) -> None:
    """The lists say that these are others, or the proofs do."""
    path = tmp_path / "ranking"

    def source(costs: np.ndarray) -> bigsap.CostSource:
        return bigsap.from_function(lambda i: costs[i], costs.shape, kind="row", compiled=False)

    stopped(path, source(COSTS))
    with pytest.raises((CheckpointError, bigsap.CertificateError)):
        bigsap.resume_k_best(path, source(COSTS[::-1]))


@pytest.mark.usefixtures("slowly")
def test_subspaces_that_were_dropped_before_the_costs_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are in no file, so no proof would miss them; what identifies the lists does."""
    path, stops = tmp_path / "ranking", Stops(monkeypatch)
    rows = [[1, 2, 3, 11, 7], [7, 9, 1, 11, 3], [11, 1, 7, 2, 10], [3, 8, 9, 4, 5], [8, 3, 6, 5, 3]]
    before = np.array(rows, np.float64)
    after = before.copy()
    after[1, 1], after[3, 2] = 7, 6

    def source(costs: np.ndarray) -> bigsap.CostSource:
        return bigsap.from_function(lambda i: costs[i], costs.shape, kind="row", compiled=False)

    bigsap.solve_k_best(source(before), 10, cancel=stops.at(0), checkpoint=path)
    refused = 0
    for last in range(2, stops.calls):
        bigsap.solve_k_best(source(before), 10, cancel=stops.at(last), checkpoint=path)
        if "number" in checkpoint.read(path).snapshot:
            with pytest.raises(CheckpointError, match=f"{re.escape(str(path))}.*of other costs"):
                bigsap.resume_k_best(path, source(after), cancel=stops.at(0))
            refused += 1
        else:
            found = bigsap.resume_k_best(path, source(after), cancel=stops.at(0))
            assert same(found, bigsap.solve_k_best(after, 10, cancel=stops.at(0)))
    assert refused > 5


@pytest.mark.usefixtures("slowly")
def test_nothing_that_was_read_is_returned_before_it_is_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, event = tmp_path / "ranking", threading.Event()
    stopped(path)
    saved, real = checkpoint.read(path), k_best_saved.restored

    def restored(*given: Any) -> Any:
        event.set()
        return real(*given)

    monkeypatch.setattr(k_best_saved, "restored", restored)
    found = bigsap.resume_k_best(path, COSTS, cancel=event)
    assert (found.status, same(found, bigsap.solve_k_best(COSTS, 300))) == ("cancelled", True)
    assert checkpoint.read(path).snapshot["answers"].tolist() == saved.snapshot["answers"].tolist()
    wrong = np.roll(saved.snapshot["nodes_slot_of"], 1, axis=1)
    checkpoint.write(path, saved.facts, saved.snapshot | {"nodes_slot_of": wrong})
    event.clear()
    with pytest.raises(bigsap.CertificateError, match="duals of subspace"):
        bigsap.resume_k_best(path, COSTS, cancel=event)


@pytest.mark.usefixtures("slowly")
def test_a_stop_during_the_new_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Limits are looked at while many subspaces are proved at once, and the file stays as it was."""
    path, event = tmp_path / "ranking", threading.Event()
    stopped(path)
    kept, steps = path.read_bytes(), 0
    real, real_proof = k_best_saved.restored, proof._first_wrong

    def restored(*given: Any) -> Any:
        monkeypatch.setattr(proof, "_ENTRIES", 1)
        monkeypatch.setattr(proof, "_first_wrong", first_wrong)
        return real(*given)

    def first_wrong(*given: Any) -> int:
        nonlocal steps
        steps += 1
        if steps == 3:
            event.set()
        return int(real_proof(*given))

    monkeypatch.setattr(k_best_saved, "restored", restored)
    found = bigsap.resume_k_best(path, COSTS, cancel=event)
    assert (found.status, steps) == ("cancelled", 3)
    assert path.read_bytes() == kept


@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("options", [{}, {"maximize": True}, {"unassigned_cost": 0.4}])
def test_reports_without_the_solve(options: dict[str, Any], tmp_path: Path) -> None:
    """It is left out, but what it found is known."""
    path, costs = tmp_path / "ranking", COSTS[:, :20]
    seen: list[list[bigsap.Progress]] = [[], []]
    bigsap.solve_k_best(costs, 90, checkpoint=path, callback=seen[0].append, callback_every=0, **options)
    again: dict[str, Any] = {name: part for name, part in options.items() if name == "unassigned_cost"}
    bigsap.resume_k_best(path, costs, callback=seen[1].append, callback_every=0, **again)
    assert {state.stage for state in seen[1]} == {"rank", "done"}
    ranked = [state.ranked for state in seen[1]]
    assert ranked == sorted(ranked)
    names = ("n_rows", "n_columns", "assigned", "lower_bound", "upper_bound", "ranked", "to_rank")
    first, second = ({name: getattr(states[-1], name) for name in names} for states in seen)
    assert first == second
    assert all(state.n_rows == 20 + 10 * bool(again) for state in seen[1])


@pytest.mark.usefixtures("slowly")
def test_room_for_costs_that_are_not_known_yet_is_not_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ranking"
    bigsap.solve_k_best(COSTS, 300, cancel=Stops(monkeypatch).at(4), checkpoint=path)
    snapshot = checkpoint.read(path).snapshot
    known = int(snapshot["work_counts"][WORST])
    assert 0 < known < 16
    assert len(snapshot["queue_worst"]) == len(snapshot["queue_worst_low"]) == known


@pytest.mark.usefixtures("slowly")
def test_after_a_solve_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, stops = tmp_path / "ranking", Stops(monkeypatch)
    result = bigsap.solve(COSTS)
    whole = bits(best_after(result, COSTS, 300, cancel=stops.at(0)))
    calls = stops.calls
    best_after(result, COSTS, 300, cancel=stops.at(calls - 9), checkpoint=path)
    for k, fewer in ((300, True), (299, False)):  # that of another k is not continued but replaced
        found = best_after(result, COSTS, k, cancel=stops.at(0), checkpoint=path)
        assert (stops.calls < calls / 2) == fewer
        assert (bits(found) == whole) == fewer
        assert checkpoint.read(path).facts["ranking"] == k
    path.write_bytes(path.read_bytes()[:-1])  # damaged
    assert bits(best_after(result, COSTS, 300, cancel=stops.at(0), checkpoint=path)) == whole
    other = bigsap.solve(COSTS[::-1].copy())
    best_after(other, COSTS[::-1].copy(), 300, cancel=stops.at(calls - 9), checkpoint=path)
    assert bits(best_after(result, COSTS, 300, cancel=stops.at(0), checkpoint=path)) == whole


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be written"):
        bigsap.solve_k_best(COSTS, 3, checkpoint=tmp_path / "missing" / "ranking")


def test_problems_without_pairs(tmp_path: Path) -> None:
    path = tmp_path / "ranking"
    empty = np.empty((0, 3))
    assert len(bigsap.solve_k_best(empty, 2, checkpoint=path)) == 1
    assert len(bigsap.resume_k_best(path, empty)) == 1
    infeasible = np.full((2, 2), np.inf)
    assert len(bigsap.solve_k_best(infeasible, 2, checkpoint=path)) == 0
    again = bigsap.resume_k_best(path, infeasible)
    assert (len(again), again.status, again.complete) == (0, "infeasible", True)


def test_a_stopped_solve_that_is_optimal_is_not_kept(tmp_path: Path) -> None:
    """Its duals are not those of an uninterrupted one, on which the counts of the ranking depend."""
    path = tmp_path / "ranking"
    rng = np.random.default_rng(5)

    def stop(_: bigsap.Progress) -> None:
        raise StopIteration

    for _ in range(20):
        costs = bigsap.points(rng.random((5, 2)), rng.random((5, 2)))
        options: dict[str, Any] = {"maximize": True, "method": "ssp"}
        whole = in_one_go(costs, 5, tmp_path, **options)

        found = bigsap.solve_k_best(costs, 5, checkpoint=path, callback=stop, **options)
        assert (found.status, len(found)) == ("cancelled", 0)
        again = bigsap.resume_k_best(path, costs, callback=stop)
        assert (again.status, len(again)) == ("cancelled", 0)
        assert "solved_status" not in checkpoint.read(path).snapshot
        assert bits(bigsap.resume_k_best(path, costs)) == whole


def test_without_memory_for_more_what_is_there_is_kept(tmp_path: Path) -> None:
    """With more memory the ranking goes on where it was, instead of from its last checkpoint."""
    costs, path = np.random.default_rng(6).integers(0, 5, (60, 60)), tmp_path / "ranking"
    whole = in_one_go(costs, 200, tmp_path)
    limit = 10_000 * 300 + 400 * 61 * 68
    with pytest.raises(OptionError, match=r"subspaces.* memory_limit") as refused:
        bigsap.solve_k_best(costs, 200, checkpoint=path, memory_limit=limit)
    count = int(re.search(r"(\d+) so far", str(refused.value))[1])
    assert len(checkpoint.read(path).snapshot["nodes_cost"]) == count
    assert bits(bigsap.resume_k_best(path, costs, memory_limit="1GiB")) == whole
