"""Cancelled from another thread, or by Ctrl-C: promptly, whatever the solve is waiting for.

Costs take simulated time (``clock.py``) or wait at a gate (``gate.py``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from functools import cache

import numpy as np
import pytest

import bigsap
from gate import HANG_S, SUPPORT, Gate, Gated, until
from instances import points_of
from pairwise import each
from remote_provider import Provider

N = 300
ROW_S = 0.02
# Promised.
LATE = 1.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of the files that several tests read."""
    return tmp_path_factory.mktemp("costs")


@cache
def costs(n=N):
    x, y = points_of("disjoint", n, seed=1)
    return (x[:, :1] - y[:, 0]) ** 2 + (x[:, 1:] - y[:, 1]) ** 2


def slow_rows(clock):
    def row(i):
        clock.sleep(ROW_S)
        return costs()[i]

    return bigsap.from_function(row, (N, N), kind="row", compiled=False)


def slow_parts(clock):
    def part(i, start, stop):
        clock.sleep(ROW_S)
        return costs()[i, start:stop]

    return bigsap.from_function(part, (N, N), kind="part", compiled=False)


def slow_blocks(clock):
    """As many rows as it is asked for, each of which takes time."""

    def block(rows, out):
        clock.sleep(ROW_S * len(rows))
        out[:] = costs()[rows]

    return bigsap.from_function(block, (N, N), kind="block", compiled=False)


def slow_values(clock):
    """Rows of 300 values from Python: more than a second each."""

    def value(i, j):
        clock.sleep(0.005)
        return abs(i - j) % 17

    return bigsap.from_function(value, (N, N), kind="value", compiled=False)


def rows_that_become_slow(clock):
    """Fast for some time, so that many are asked for at once."""
    count = [0]

    def row(i):
        count[0] += 1
        clock.sleep(0.05 if count[0] > 100 else 1e-4)
        return costs()[i]

    return bigsap.from_function(row, (N, N), kind="row", compiled=False)


class SlowTable:
    """What h5py looks like, over a slow line."""

    shape, dtype = (N, N), np.dtype("f8")

    def __init__(self, clock):
        self.clock = clock

    def __getitem__(self, where):
        self.clock.sleep(ROW_S * (where[0].stop - where[0].start))
        return costs()[where]


def sliceable(clock):
    return SlowTable(clock)


TAKING_TIME = {
    make.__name__: make
    for make in (slow_rows, slow_parts, slow_blocks, slow_values, rows_that_become_slow, sliceable)
}


def cancelled(source, clock, after=0.3, **options):
    """The result of a solve that is cancelled after so long, and how much later it came."""
    cancel = threading.Event()
    pressed = clock.after(after, cancel.set)
    res = bigsap.solve(source, cancel=cancel, callback_every=0, cache="128KiB", **options)
    return res, clock() - pressed


def check_stopped(res):
    assert res.status == "cancelled"
    assert res.gap is None or res.gap >= 0
    if res.fun is None:
        assert len(res.row_ind) == 0
    else:
        assert len(res.row_ind) == min(res.shape)


@each(make=TAKING_TIME, method=["ssp", "compressed"], after=[0.3, 1.0, 2.0])
def test_costs_that_take_time(make, method, after, clock):
    res, late = cancelled(TAKING_TIME[make](clock), clock, after, method=method, threads=2)
    check_stopped(res)
    assert late <= LATE


# --- costs whose time nobody can count: cancelled at a tick -------------------------------


def lambda_of_pairs(folder):
    return bigsap.from_function(lambda i, j: sum(abs((i * k) % 79 - (j * k) % 83) for k in range(9)), (N, N))


def formula(folder):
    code = "sum(abs((i * k) % 79 - (j * k) % 83) for k in range(9))"
    return bigsap.expression(code, (N, N))


def point_sets(folder):
    return bigsap.points(*points_of("disjoint", 1000, seed=1))


def low_rank(folder):
    rng = np.random.default_rng(1)
    return bigsap.lowrank(rng.random((1000, 30)), rng.random((1000, 30)))


def _npy(folder, dtype):
    """Written once: who maps a file that is written anew loses its pages."""
    path, unfinished = (folder / f"{kind}{dtype}.npy" for kind in ("whole", "new"))
    if not path.exists():
        np.save(unfinished, costs().astype(dtype))
        unfinished.rename(path)
    return bigsap.from_npy(path)


def npy_in_place(folder):
    return _npy(folder, "<f8")


def npy_converted(folder):
    return _npy(folder, ">f4")


def _zarr(folder, **options):
    zarr = pytest.importorskip("zarr")
    path, unfinished = (folder / f"{kind}{len(options)}.zarr" for kind in ("whole", "new"))
    if not path.exists():
        array = zarr.create_array(
            unfinished, shape=(N, N), chunks=(64, N), dtype="f8", overwrite=True, **options
        )
        array[:] = costs()
        unfinished.rename(path)
    return path


def zarr_raw(folder):
    return bigsap.from_zarr(_zarr(folder, compressors=None))


def zarr_packed(folder):
    return bigsap.from_zarr(_zarr(folder))


QUICK = {
    make.__name__: make
    for make in (
        lambda_of_pairs,
        formula,
        point_sets,
        low_rank,
        npy_in_place,
        npy_converted,
        zarr_raw,
        zarr_packed,
    )
}


@each(make=QUICK, method=["ssp", "compressed"], stage=["start", "search"], threads=[1, 2])
def test_cancelled_at_a_tick(make, method, stage, threads, folder, clock):
    """The clock stands: there is all the time to put the answer together."""
    cancel, later = threading.Event(), []

    def tick(state):
        if cancel.is_set():
            later.append(state.stage)
        elif state.stage == stage or state.stage not in ("start", "levels"):
            cancel.set()

    res = bigsap.solve(
        QUICK[make](folder),
        cancel=cancel,
        callback=tick,
        callback_every=0,
        threads=threads,
        method=method,
        cache="128KiB",
    )
    check_stopped(res)
    assert later == ["done"]
    assert res.fun is not None
    assert res.gap is not None


# --- reads that do not end ----------------------------------------------------------------


@pytest.fixture
def stuck(tmp_path):
    """A gate that cancels the solve whose reader comes to it, and is never opened for it."""
    cancel = threading.Event()
    gate = Gate(tmp_path / "gate", cancel.set)
    gate.cancel = cancel
    yield gate
    gate.open()  # what the solve has left may end


@pytest.mark.some(3)
@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("after", [0, 40, 600])
def test_a_source_that_hangs(method, threads, after, stuck):
    if method == "compressed" and after > N:
        after = N  # its lists are made of one sweep
    source = Gated(costs(), stuck, after)
    res = bigsap.solve(source, method=method, threads=threads, cache="128KiB", cancel=stuck.cancel)
    assert stuck.waiting
    check_stopped(res)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("rows", [0, 40])
def test_a_provider_that_hangs(method, rows, stuck):
    """From the first request, or in the midst of the solve: the answer does not wait for it."""
    pytest.importorskip("httpx")
    with Provider(costs()) as provider:

        def hang(handler, ids):
            if len(provider.asked) <= rows:
                handler.send_rows(provider.records(ids))
            else:
                stuck.enter()
                handler.drop()

        provider.always["POST"] = hang
        with bigsap.from_http(provider.url, (N, N), "f8", block_rows=4) as source:
            res = bigsap.solve(source, method=method, cancel=stuck.cancel, cache="128KiB")
        stuck.open()
    check_stopped(res)


@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("options", [{}, {"dtype": "f4"}], ids=["plain", "wrapped"])
def test_a_store_that_hangs(method, options, folder, stuck):
    zarr = pytest.importorskip("zarr")
    from zarr.storage import LocalStore, WrapperStore

    class Hanging(WrapperStore):
        hangs = False

        async def get(self, *args, **given):
            if Hanging.hangs:
                await asyncio.to_thread(stuck.enter)
            return await super().get(*args, **given)

    array = zarr.open_array(Hanging(LocalStore(_zarr(folder))), mode="r")
    source = bigsap.from_zarr(array)
    Hanging.hangs = True
    res = bigsap.solve(source, method=method, cancel=stuck.cancel, **options)
    check_stopped(res)


@pytest.mark.parametrize(
    "made",
    [
        lambda x: bigsap.points(x, x),
        lambda x: bigsap.points(x[:, :3], x[:, :3], "minkowski", p=3, max_distance=0.5),
        lambda x: bigsap.points(x.astype("f4"), x.astype("f4")),
        lambda x: bigsap.lowrank(x, x),
        lambda x: bigsap.table(x, np.arange(N), np.arange(N) % 20),
        lambda x: bigsap.masked(bigsap.points(x, x), np.eye(N, dtype=bool)),
        lambda x: bigsap.scaled(bigsap.forbid_above(bigsap.points(x, x), 3.0), 2.0),
        lambda x: bigsap.expression("x[i, 0] * x[j, 1]", (N, N), x=x),
    ],
    ids=["points", "near", "single", "lowrank", "table", "masked", "scaled", "expression"],
)
def test_many_rows_of_compiled_costs_are_left(made, monkeypatch):
    """A block of rows in many dimensions takes seconds."""
    monkeypatch.setattr("bigsap.sources.compiled.PAIRS_PER_CALL", N)
    monkeypatch.setattr("bigsap.sources.base._LOOK_SECONDS", 0.0)
    source = made(np.random.default_rng(0).random((N, 20)))
    looks = []

    class Left(Exception):
        pass

    def check():
        looks.append(1)
        if len(looks) == 3:
            raise Left

    rows, out = np.arange(N), np.full((N, N), -1.0)
    source.while_waiting(check)
    with pytest.raises(Left):
        source.read(rows, slice(0, N), out)
    assert (out[-1] == -1.0).all()
    source.while_waiting(None)
    source.read(rows, slice(0, N), out)
    assert (out >= 0.0).all()


def test_single_pairs_do_not_make_a_row_deaf(clock):
    """Read one by one they are soon over, which says nothing of thousands at once."""
    called = []

    def value(i, j):
        called.append(j)
        clock.sleep(0.001 if i else 0)
        return float(j)

    class Left(Exception):
        pass

    def leave():
        raise Left

    source = bigsap.from_function(value, (2, 20000), kind="value", compiled=False)
    for column in range(100):
        source.read(np.array([0]), slice(column, column + 1), np.empty((1, 1)))
    called.clear()

    def slow_part():
        source.while_waiting(lambda: called and leave())
        try:
            source.read(np.array([1]), slice(0, 20000), np.empty((1, 20000)))
        finally:
            source.while_waiting(None)

    with pytest.raises(Left):
        slow_part()
    assert len(called) < 1000


# --- Ctrl-C -------------------------------------------------------------------------

INTERRUPTED = """
import ctypes, os, signal, sys, threading, time, warnings
import numpy as np
import bigsap
from gate import Gate, Gated
warnings.simplefilter("ignore")
usleep = ctypes.CDLL(None).usleep
usleep.argtypes, usleep.restype = [ctypes.c_uint], ctypes.c_int

if __name__ == "__main__":
    n, kind, gate = 300, sys.argv[1], Gate(sys.argv[2])
    rng = np.random.default_rng(0)
    x, y = rng.random((n, 2)), rng.random((n, 2)) + 1
    cost = ((x[:, None] - y[None]) ** 2).sum(axis=2)
    state = np.zeros(3)  # pairs done, how many of them before the gate, whether it is open
    state[1:] = np.inf, 1

    def value(i, j, cost, state):
        state[0] += 1
        if state[0] > state[1]:
            while state[2] == 0:
                state[1] = -1.0
                usleep(1000)
        return cost[i, j]

    callback = None
    if kind == "rows":
        source = Gated(cost, gate, 400)
    elif kind == "compiled":
        source = bigsap.from_function(value, (n, n), (cost, state), kind="value", compiled=True)
        state[0], state[1], state[2] = 0, 50_000, 0
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)  # told of the signal though Python is busy in the kernel

        def tell():
            while state[1] > 0:
                usleep(1000)
            gate.enter()

        def let_go():
            os.read(reading, 1)
            state[2] = 1

        threading.Thread(target=tell, daemon=True).start()
        threading.Thread(target=let_go, daemon=True).start()
    else:
        source = cost

        def callback(state):
            if state.stage == "search":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0)

    try:
        bigsap.solve(
            source, callback=callback, callback_every=0, threads=1 if kind == "compiled" else 2,
            cache="128KiB", method="ssp", start="estimate",
        )
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os._exit(130)
    print("finished", flush=True)
"""


@pytest.mark.some(1)
@pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
@pytest.mark.parametrize("kind", ["rows", "compiled", "array"])
def test_ctrl_c_stops(kind, tmp_path):
    script, gate = tmp_path / "solves.py", Gate(tmp_path / "gate")
    script.write_text(textwrap.dedent(INTERRUPTED))
    with subprocess.Popen(
        [sys.executable, str(script), kind, str(gate.folder)],
        cwd=SUPPORT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        try:
            if kind != "array":  # it sends itself the signal, from the callback
                until(lambda: gate.waiting or child.poll() is not None)
                child.send_signal(signal.SIGINT)
            said, _ = child.communicate(timeout=HANG_S)
        finally:
            child.kill()
    assert child.returncode == 130, said
    assert said == "stopped\n"
