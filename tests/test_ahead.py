"""Kernels that another process compiles while a solve has begun."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import bigsap
from bigsap.compile import ahead, kernel_cache
from bigsap.engine.core.team import Team
from bigsap.engine.lists.layout import run_greedy
from bigsap.problem import Problem
from bigsap.proof import minima
from bigsap.proof.row_minima import Prices
from bigsap.run import compile_ahead as named

GENERATOR = np.random.default_rng(5)
SQUARE = GENERATOR.integers(0, 60, (90, 90))
X, Y = GENERATOR.random((2, 90, 2))
SOURCES = {
    "float64": lambda: SQUARE.astype(np.float64),
    "float32": lambda: SQUARE.astype(np.float32),
    "uint8": lambda: SQUARE.astype(np.uint8),
    "wide": lambda: SQUARE[:50].astype(np.float64),
    "large integers": lambda: SQUARE << 44,
    "points": lambda: bigsap.points(X, Y),
    "wide points": lambda: bigsap.points(X[:40], Y),
    "rows": lambda: bigsap.from_function(lambda i: SQUARE[i], (90, 90), kind="row", compiled=False),
}


@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("kind", SOURCES)
def test_the_kernels_named_are_those_called(kind, method, monkeypatch):
    asked = []
    monkeypatch.setattr(named, "_named", set())
    monkeypatch.setattr(named, "available_threads", lambda: 2)
    monkeypatch.setattr(ahead, "request", asked.extend)
    bigsap.solve(SOURCES[kind](), method=method, threads=2)
    n_kernels = 1 if method == "ssp" else 2
    # Of large integers float64 prices are tried first.
    assert len(asked) == n_kernels * (2 if kind == "large integers" else 1)
    for kernel, arguments in asked[-n_kernels:]:
        signature = tuple(kernel.typeof_pyval(argument) for argument in arguments)
        called = {tuple(kinds) for kinds in kernel.overloads}
        assert signature in called, f"{kernel.py_func.__name__}: {signature} of {called}"


def test_the_coarsest_level_of_points(monkeypatch):
    """Many points: levels, the last of which is a matrix of float64 costs."""
    bigsap.solve(SQUARE.astype(np.float64), method="ssp")
    price = np.dtype(np.float64)
    source = named._one_pair(bigsap.points(X, Y))
    with Team(1) as team:
        kernels = list(named._kernels(source, price, team, "compressed", True, True))
    assert len(kernels) == 3
    kernel, arguments = kernels[-1]
    assert tuple(map(kernel.typeof_pyval, arguments)) in {tuple(s) for s in kernel.overloads}


def test_the_proof_of_points():
    source = bigsap.points(X, Y)
    assert minima.by_bounds(source, None, Prices(np.zeros(90)), False, at_any_size=True) is not None
    kernels = minima.kernels_by_bounds(source)
    assert len(kernels) == 3
    for kernel, arguments in kernels:
        signature = tuple(map(kernel.typeof_pyval, arguments))
        assert signature in {tuple(s) for s in kernel.overloads}, kernel.py_func.__name__
    assert minima.kernels_by_bounds(named._one_pair(source)) == []


def test_a_process_that_compiles_already_asks_nobody(monkeypatch):
    monkeypatch.setattr(ahead, "allowed", False)
    monkeypatch.setattr(named, "_named", set())
    monkeypatch.setattr(ahead, "request", lambda kernels: pytest.fail("asked"))
    named.compile_ahead(Problem(named._one_pair(bigsap.points(X, Y))), "ssp", np.dtype("f8"))


SCRIPT = """
import json, os, signal, sys, time
import numpy as np
import bigsap
from bigsap.engine.lists import layout
from bigsap.compile import ahead, cache
from bigsap.compile.decorator import Kernel

what = sys.argv[1]
n = np.arange(3, dtype=np.int32)
arguments = (
    n, np.zeros(3), np.arange(3), n, np.zeros(3), np.zeros(3), n, np.zeros(3, np.uint8), np.inf,
    np.zeros(3), n,
)
ahead.request([(layout.run_greedy, arguments)])
other = ahead._process
while other._at is None:
    time.sleep(0.01)
if what == "killed":
    os.kill(other._child.pid, signal.SIGKILL)
elif what == "stopped":
    ahead._PATIENCE = 0.3
    os.kill(other._child.pid, signal.SIGSTOP)
layout.run_greedy(*arguments)
print(json.dumps({"compiled": cache.COUNTS.compiled, "loaded": cache.COUNTS.loaded}))
"""


def run(folder, what):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, what],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_kernel_made_by_the_other_process_is_loaded(tmp_path):
    assert run(tmp_path, "left alone") == {"compiled": 0, "loaded": 1}


@pytest.mark.parametrize("what", ["killed", "stopped"])
def test_a_process_that_does_not_answer_is_not_needed(what, tmp_path):
    assert run(tmp_path, what) == {"compiled": 1, "loaded": 0}


def test_what_is_not_begun_is_compiled_where_it_is_needed():
    """And no longer asked of the other process."""
    other = ahead._Process()
    other._serving = True  # without a process that would serve
    other.ask({"a": ("bigsap.x", "f", b""), "b": ("bigsap.x", "g", b"")})
    assert not other.awaited("a")
    assert list(other._asked) == ["b"]
    assert not other.awaited("c")


def test_kernels_on_the_disk_are_not_asked_for(monkeypatch):
    row = np.arange(3, dtype=np.int32)
    arguments = (
        row,
        np.zeros(3),
        np.arange(3),
        row,
        np.zeros(3),
        np.zeros(3),
        row,
        np.zeros(3, np.uint8),
        np.inf,
        np.zeros(3),
        row,
    )
    run_greedy(*arguments)
    signature = tuple(map(run_greedy.typeof_pyval, arguments))
    assert kernel_cache.on_disk(run_greedy.py_func, signature)
    monkeypatch.setattr(ahead, "_other", lambda: pytest.fail("asked"))
    ahead.request([(run_greedy, arguments)])
