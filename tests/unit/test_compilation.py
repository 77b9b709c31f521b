"""Whoever waits for kernels is told, once, and unless he asked for quiet."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba.core import event

import bigsap
from bigsap.display import progress_bar as progress
from bigsap.engine.core import compilation
from bigsap.engine.core.compilation import TEXT, report_compilation
from bigsap.progress import Progress
from clock import Clock
from gate import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Compiler:
    """Compiles for seconds of a clock of its own, and until a watch, if any, has looked at it."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.looks = clock, 0

    def __call__(self, seconds: float, nested: int = 0) -> None:
        """What numba announces when it compiles."""
        with event.trigger_event("numba:compile", data={}):
            if nested:
                self(seconds, nested - 1)
            else:
                self.clock.sleep(seconds)
                self.wait_for_a_look()

    def wait_for_a_look(self) -> None:
        """A whole one: the watch waits between two looks, and comes to it twice."""
        before = self.looks
        if any(thread.name == "bigsap-compilation" for thread in threading.enumerate()):
            until(lambda: self.looks >= before + 2, every=0.001)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Compiler:
    compiler = Compiler(clock)

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            compiler.looks += 1
            return super().wait(timeout)

    known = SimpleNamespace(Event=Over, Lock=threading.Lock)
    monkeypatch.setattr(compilation, "threading", known)
    monkeypatch.setattr(compilation, "_LOOK", 0.002)
    return compiler


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("quiet", ["1", "0", None])
def test_one_line_on_a_terminal(compiling, monkeypatch, terminal, quiet):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    if quiet is None:
        monkeypatch.delenv("BIGSAP_QUIET", raising=False)
    else:
        monkeypatch.setenv("BIGSAP_QUIET", quiet)
    with report_compilation():
        for _ in range(3):
            compiling(0.7, nested=2)
    expected = TEXT + "\n" if terminal and quiet != "1" else ""
    assert stream.getvalue() == expected


def test_quick_compilations_are_not_told_until_they_add_up(compiling):
    said: list[str] = []
    with report_compilation(said.append):
        compiling(0.5, nested=5)
        compiling.clock.sleep(9)  # which is no compiling
        compiling.wait_for_a_look()
        assert said == []
        for k in range(8):
            compiling(0.25)
            assert said == ([TEXT] if k > 5 else [])
    assert said == [TEXT]


def test_nothing_is_left_behind(compiling):
    before = set(threading.enumerate())

    def fail() -> None:
        with report_compilation(lambda text: None):
            compiling(1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert set(threading.enumerate()) <= before
    said: list[str] = []
    with report_compilation(said.append):
        pass
    compiling(3)
    assert said == []


@pytest.mark.parametrize("plain", [True, False])
def test_the_bar_says_compiling(compiling, plain, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    stream = io.StringIO()
    bar = progress.Bar(stream, plain=plain)
    with report_compilation(bar.say, bar.compiling):
        compiling(3)
        assert TEXT in stream.getvalue()
        assert "compiling, 0:03" in stream.getvalue()
        until(lambda: "first prices" in stream.getvalue().rpartition("compiling")[2])
    bar.update(Progress(n_rows=10, phase=2, epsilon=0.5))
    bar.close()
    assert "phase 2" in stream.getvalue()


def test_a_solve_tells(compiling, monkeypatch, capsys):
    """What is compiled in a solve is heard of, in any of its threads."""
    heard: list[Any] = []
    usual = progress.Bar.compiling
    monkeypatch.setattr(progress.Bar, "compiling", lambda bar, s: heard.append(s) or usual(bar, s))
    cost = np.random.default_rng(0).random((5, 5))

    def see(state: Progress) -> None:
        if not heard:
            compiling(3)

    bigsap.solve(cost, progress=True, callback=see)
    assert heard
    assert TEXT in capsys.readouterr().err
    heard.clear()
    bigsap.solve(cost, callback=lambda state: compiling(3))
    assert heard == []
    assert TEXT not in capsys.readouterr().err


CODE = """
import sys
from numba import njit
from bigsap.engine.core import compilation
compilation.PATIENCE = 0.0
said = []
with compilation.report_compilation(said.append):
    @njit
    def f(x):
        s = 0.0
        for k in range(x.size):
            s += x[k] ** 0.5 if x[k] > 0 else -x[k]
        return s
    import numpy as np, time
    f(np.ones(3)); f(np.ones(3, np.float32)); f(np.ones((2, 2))[0])
    while not said: time.sleep(0.01)
    f(np.ones(3, np.int64)); f(np.ones(3, np.int32))  # nothing is said again
print(len(said))
"""


def test_numba_announces_what_it_compiles():
    """The events are numba's: a version without them would leave everybody in the dark."""
    environment = {**os.environ, "PYTHONPATH": str(Path(bigsap.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1"]
