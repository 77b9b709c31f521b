"""The progress bar, its own and tqdm's."""

from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest

import bigsap
from bigsap.client.shown import Shown
from bigsap.display import progress_bar as progress
from bigsap.progress import Progress


def state(**changes) -> Progress:
    fields = {
        "n_rows": 2000,
        "phase": 3,
        "epsilon": 0.0125,
        "assigned": 500,
        "rows_scanned": 12345,
        "rows_evaluated": 678,
        "seconds": 75.2,
    }
    return Progress(**(fields | changes))


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when told."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_line_tells_phase_share_and_counts():
    text = progress.line(state(), 200)
    assert text == ("phase 3, epsilon 0.013 [#####...............] 1:15 12,345 scans, 678 evaluations")
    # Of the rows, only what the last phase assigns stays assigned.
    assert "...] 500/2,000 1:15 12,345 scans" in progress.line(state(epsilon=0.0), 200)
    assert "...] 500/2,000 1:15 12,345 scans" in progress.line(state(stage="done"), 200)


def test_line_of_a_ranking():
    whole = "ranking [##########..........] 150/300 1:15 12,345 scans, 678 evaluations"
    assert progress.line(state(ranked=150, to_rank=300, epsilon=0.0), 200) == whole
    record = {"shape": [2000, 2000], "progress": {"ranked": 150, "to_rank": 300, "stage": "rank"}}
    assert progress.line(Shown(record), 200).startswith("ranking [##########..........] 150/300")
    record["progress"] = {"ranked": None, "to_rank": None, "assigned": 500, "phase": 1}
    assert progress.line(Shown(record), 200).startswith("phase 1, epsilon 0 [#####...............] 500/2,000")


@pytest.mark.parametrize("plain", [True, False])
def test_the_count_of_assigned_rows_never_falls(plain, clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    stream = io.StringIO()
    bar = progress.Bar(stream, plain=plain)
    steps = [(1, 0.5, 1990), (1, 0.5, 1980), (2, 0.1, 2000), (2, 0.1, 7), (3, 0.0, 1500)]
    steps += [(3, 0.0, 1900), (3, 0.0, 1890), (4, 0.0, 3), (4, 0.0, 1950)]
    for phase, epsilon, assigned in steps:
        clock[0] += 1
        bar.update(state(phase=phase, epsilon=epsilon, assigned=assigned))
    clock[0] += 1
    bar.update(state(phase=4, epsilon=0.0, assigned=2000, stage="done"))
    bar.close()
    shown = [int(x.replace(",", "")) for x in re.findall(r"([\d,]+)/2,000", stream.getvalue())]
    assert shown == sorted(shown)
    assert {1500, 1900, 1950, 2000} <= set(shown)
    assert not {1990, 1890, 7, 3} & set(shown)


@pytest.mark.parametrize("plain", [True, False])
def test_bar_shows_first_and_last_state_and_ends_the_line(plain, clock):
    stream = io.StringIO()
    bar = progress.Bar(stream, plain=plain)
    moving = state(assigned=0, epsilon=0.0)
    bar.update(moving)
    moving.assigned = 2000  # changed in place, too soon for another drawing
    bar.update(moving)
    before = stream.getvalue()
    assert "2,000/2,000" not in before
    assert "2000/2000" not in before
    bar.close()
    after = stream.getvalue()
    assert "2,000/2,000" in after or "2000/2000" in after
    assert after.endswith("\n")
    bar.update(state())
    bar.close()
    assert stream.getvalue() == after


def test_plain_bar_draws_no_more_often_than_its_interval(clock):
    stream = io.StringIO()
    bar = progress.Bar(stream, plain=True)
    for step in range(1000):
        clock[0] = 100.0 + step * progress.INTERVAL / 10.01
        bar.update(state(assigned=step))
    assert 90 <= stream.getvalue().count("\r") <= 101


def test_bar_is_plain_where_tqdm_is_absent(monkeypatch):
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "tqdm", None)  # an import of it would fail
    stream = io.StringIO()
    bar = progress.Bar(stream)
    bar.update(state())
    bar.close()
    assert "[#####...............]" in stream.getvalue()


class Gone(io.StringIO):
    """A terminal that closes after some writes."""

    def __init__(self, left: int, error: type[Exception]) -> None:
        super().__init__()
        self.left, self.error = left, error

    def write(self, text: str) -> int:
        if self.left == 0:
            raise self.error("gone")
        self.left -= 1
        return super().write(text)


@pytest.mark.parametrize("error", [BrokenPipeError, OSError, ValueError])
@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("plain", [True, False])
def test_a_bar_on_a_stream_that_breaks_switches_itself_off(plain, left, error, clock):
    stream = Gone(left, error)
    bar = progress.Bar(stream, plain=plain)
    for step in range(8):
        clock[0] += 1
        bar.update(state(assigned=step))
        bar.say("hello")
        bar.compiling(1.0)
    bar.close()
    written = stream.getvalue()
    stream.left = 100
    bar.update(state())
    bar.close()
    del bar
    assert stream.getvalue() == written


@pytest.mark.parametrize("plain", [True, False])
def test_a_bar_without_stderr_is_none(plain, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    bar = progress.Bar(plain=plain)
    bar.update(state())
    bar.say("hello")
    bar.compiling(1.0)
    bar.close()


@pytest.mark.parametrize("broken", [None, Gone(0, BrokenPipeError), Gone(2, OSError)])
def test_no_solve_ends_by_its_bar(broken, monkeypatch):
    monkeypatch.setattr(sys, "stderr", broken)
    cost = np.random.default_rng(0).random((30, 30))
    assert bigsap.solve(cost, progress=True).status == "optimal"


class OnlyWrites:
    """A stream as some loggers put in the place of stderr."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


@pytest.mark.parametrize("plain", [True, False])
def test_a_stderr_that_only_writes(plain, monkeypatch):
    if not plain:
        pytest.importorskip("tqdm")
    stream = OnlyWrites()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = progress.Bar(plain=plain)
    bar.update(state())
    bar.close()
    assert stream.text
    assert bigsap.solve(np.eye(300), progress=True).fun == 0
