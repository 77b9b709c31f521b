"""Whoever waits for kernels is told, once, and unless he asked for quiet."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import event

import bigsap
from bigsap.engine.core import compilation
from bigsap.engine.core.compilation import TEXT, compilation_told
from bigsap.monitor import Progress
from bigsap.show import progress_bar as progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "PATIENCE", 0.1)
    monkeypatch.setattr(compilation, "_LOOK", 0.02)


def compiling(seconds: float, nested: int = 0) -> None:
    """What numba announces when it compiles."""
    with event.trigger_event("numba:compile", data={}):
        if nested:
            compiling(seconds, nested - 1)
        else:
            time.sleep(seconds)


def until(wanted: Any) -> None:
    end = time.monotonic() + 20
    while not wanted() and time.monotonic() < end:
        time.sleep(0.01)
    assert wanted()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("quiet", ["1", "0", None])
def test_one_line_on_a_terminal(impatient, monkeypatch, terminal, quiet):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    if quiet is None:
        monkeypatch.delenv("BIGSAP_QUIET", raising=False)
    else:
        monkeypatch.setenv("BIGSAP_QUIET", quiet)
    with compilation_told():
        for _ in range(3):
            compiling(0.15, nested=2)
    expected = TEXT + "\n" if terminal and quiet != "1" else ""
    assert stream.getvalue() == expected


def test_quick_compilations_are_not_told_until_they_add_up(monkeypatch):
    monkeypatch.setattr(compilation, "PATIENCE", 0.3)
    monkeypatch.setattr(compilation, "_LOOK", 0.02)
    said: list[str] = []
    with compilation_told(said.append):
        compiling(0.01, nested=5)
        time.sleep(0.4)  # which is no compiling
        assert said == []
        for _ in range(8):
            compiling(0.05)
        until(lambda: said)
    assert said == [TEXT]


@pytest.mark.parametrize("stream", [None, "closed", "broken"])
def test_without_a_stderr(impatient, monkeypatch, stream):
    class Broken(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    made: Any = {None: None, "closed": Terminal(), "broken": Broken()}[stream]
    if stream == "closed":
        made.close()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.delenv("BIGSAP_QUIET", raising=False)
    with compilation_told():
        compiling(0.2)


def test_nothing_is_left_behind(impatient):
    before = threading.active_count()

    def fail() -> None:
        with compilation_told(lambda text: None):
            compiling(0.05)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert threading.active_count() == before
    said: list[str] = []
    with compilation_told(said.append):
        pass
    compiling(0.3)
    assert said == []


@pytest.mark.parametrize("plain", [True, False])
def test_the_bar_says_compiling(impatient, plain):
    stream = io.StringIO()
    bar = progress.Bar(stream, plain=plain)
    with compilation_told(bar.say, bar.compiling):
        compiling(0.3)
        until(lambda: TEXT in stream.getvalue())
        assert "compiling, 0:00" in stream.getvalue()
        until(lambda: "first prices" in stream.getvalue().rpartition("compiling")[2])
    bar.update(Progress(n_rows=10, phase=2, epsilon=0.5))
    time.sleep(progress.INTERVAL)
    bar.close()
    assert "phase 2" in stream.getvalue()


def test_a_solve_tells(impatient, monkeypatch, capsys):
    """What is compiled in a solve is heard of, in any of its threads."""
    heard: list[Any] = []
    usual = progress.Bar.compiling
    monkeypatch.setattr(progress.Bar, "compiling", lambda bar, s: heard.append(s) or usual(bar, s))
    cost = np.random.default_rng(0).random((5, 5))

    def see(state: Progress) -> None:
        if not heard:
            compiling(0.2)

    bigsap.solve(cost, progress=True, callback=see)
    assert heard
    assert TEXT in capsys.readouterr().err
    heard.clear()
    bigsap.solve(cost, callback=lambda state: compiling(0.2))
    assert heard == []
    assert TEXT not in capsys.readouterr().err


CODE = """
import sys
from numba import njit
from bigsap.engine.core import compilation
compilation.PATIENCE = 0.0
said = []
with compilation.compilation_told(said.append):
    @njit
    def f(x):
        s = 0.0
        for k in range(x.size):
            s += x[k] ** 0.5 if x[k] > 0 else -x[k]
        return s
    import numpy as np, time
    f(np.ones(3)); f(np.ones(3, np.float32)); f(np.ones((2, 2))[0]); time.sleep(0.5)
print(len(said))
"""


def test_numba_announces_what_it_compiles():
    """The events are numba's: a version without them would leave everybody in the dark."""
    environment = {**os.environ, "PYTHONPATH": str(Path(bigsap.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1"]
