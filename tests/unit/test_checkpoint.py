"""Checkpoints: killed solves continue to the same answer, bad files are refused."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap import checkpoint, policy
from bigsap.cli import main
from bigsap.engine.lists import list_engine as engine_compressed
from bigsap.strategies import list_run
from gate import Gated, gate  # noqa: F401
from instances import CLASSES, points_of
from killed import same, stop_after

ROOT = Path(__file__).parents[2]


# --- stopped anywhere -----------------------------------------------------------------


@pytest.mark.some(3)
@pytest.mark.parametrize("shape", [(70, 70), (50, 70), (70, 50)])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i4", "wide"])
def test_stopped_at_every_row_and_continued(shape, maximize, dtype, tmp_path):
    """Rows come from Python one at a time through a tiny cache: a tick a row."""
    n, m = shape
    cost = CLASSES["disjoint"](70, seed=2)[:n, :m].copy()
    if dtype == "i4":
        cost = np.rint(cost * 1000).astype(np.int32)
    if dtype == "wide":
        cost = np.rint(cost * 2.0**40).astype(np.int64)
    source = bigsap.from_function(lambda i: cost[i], shape, kind="row", dtype=cost.dtype, compiled=False)
    options = {
        "method": "ssp",
        "maximize": maximize,
        "cache": 8 * m * 8,
        "callback_every": 0,
        "certify": False,
    }
    whole = bigsap.solve(source, **options)
    path = tmp_path / "c"
    res = None
    stops = 0
    generator = random.Random(7)
    while res is None or res.status == "cancelled":
        callback = stop_after(generator.randrange(400)) if stops < 25 else None
        if res is None:
            res = bigsap.solve(source, checkpoint=path, callback=callback, **options)
        else:
            res = bigsap.resume(path, source, callback=callback, **options)
        stops += 1
    assert stops > 3
    assert np.array_equal(res.col4row, whole.col4row)
    assert res.fun == whole.fun
    assert [p["epsilon"] for p in res.stats["phases"]] == [p["epsilon"] for p in whole.stats["phases"]]
    assert 1 <= res.stats["resumed"] <= stops - 1
    done = checkpoint.read(path).snapshot
    assert done["done"]


def _as_rows(cost):
    return bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", dtype=cost.dtype, compiled=False)


def _points_in_two_dimensions():
    return bigsap.points(*points_of("disjoint", 300, seed=2)), {}


def _many_dimensions(n):
    return np.random.default_rng(4).normal(size=(2, n, 12))


STOPPED = {
    "points": _points_in_two_dimensions,
    "rows": lambda: (_as_rows(CLASSES["disjoint"](150, seed=2)), {"cache": 8 * 150}),
    "tall rows": lambda: (_as_rows(CLASSES["disjoint"](200, seed=2)[:, :150]), {"cache": 8 * 150}),
    "refreshed": lambda: (bigsap.points(*_many_dimensions(300)), {"cache": 8 * 300}),
    "ties": lambda: (_as_rows(CLASSES["int0.1n"](300, seed=2)), {"cache": 8 * 300}),
    "tied array": lambda: (CLASSES["int0.1n"](300, seed=2) // 3, {}),
    "wide": lambda: (CLASSES["int10n"](150, seed=2)[:120].astype("i4"), {"maximize": True}),
    "large": lambda: (CLASSES["int10n"](120, seed=2) << 39, {}),
    "limited rows": lambda: (_as_rows(CLASSES["int0.1n"](300, seed=2) // 3), {"memory_limit": 300 * 24 * 6}),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", STOPPED)
def test_lists_stopped_at_every_slice_and_continued(kind, tmp_path, monkeypatch):
    """Few columns a list, a search or a row a slice: a tick everywhere there can be one."""
    for name in ("LIST_SIZE", "MATRIX_LIST_SIZE", "MANY_LIST_SIZE"):
        monkeypatch.setattr(policy, name, 6)
    if kind == "refreshed":  # as large problems are
        monkeypatch.setattr(policy, "REFRESHED_ROWS", 100)
    cost, options = STOPPED[kind]()
    options = {"method": "compressed", "callback_every": 0, "certify": False, **options}
    whole = bigsap.solve(cost, **options)
    monkeypatch.setattr(engine_compressed, "_SLICE_SECONDS", 0)
    for name in ("_FIRST_ENTRIES", "_FIRST_PAIRS", "_LEAST_WORK"):
        monkeypatch.setattr(engine_compressed, name, 1)
    # The search at hand is finished: nothing is done twice.
    monkeypatch.setattr(engine_compressed, "_PATIENCE", 1e9)
    path = tmp_path / "c"
    res = None
    stops = 0
    stages = set()
    # How many ticks there are depends on how many threads the machine has to spare.
    wanted = {(list_run.EVALUATE, True), (list_run.MATCH, False)}
    if kind in ("rows", "tall rows", "ties"):
        wanted.add((list_run.MATCH, True))
    if kind == "refreshed":  # a tile holds all rows
        wanted = {(list_run.MATCH, True), (list_run.MATCH, False)}
    generator = random.Random(7)
    while res is None or res.status == "cancelled":
        stop = stops < 60 or (stops < 1000 and not wanted <= stages)
        callback = stop_after(generator.randrange(30)) if stop else None
        if res is None:
            res = bigsap.solve(cost, checkpoint=path, callback=callback, **options)
        else:
            res = bigsap.resume(path, cost, callback=callback, **options)
        stops += 1
        saved = checkpoint.read(path).snapshot
        stages.add((saved.get("stage"), saved.get("wave")))
    assert stops > 4
    assert wanted <= stages
    assert np.array_equal(res.col4row, whole.col4row)
    assert res.fun == whole.fun
    for counter in ("rows_scanned", "first_prices"):
        assert res.stats[counter] == whole.stats[counter]
    for counter in ("rows_evaluated", "pairs_evaluated"):
        # A solve that is continued has no rows at hand that were kept.
        again = res.stats[counter] - whole.stats[counter]
        assert 0 <= again <= (0.02 * whole.stats[counter] if "cache" in options else 0)
    assert [p["drops"] for p in res.stats["phases"]] == [p["drops"] for p in whole.stats["phases"]]
    assert res.stats["resumed"] >= 3


def test_a_cost_of_lists_that_a_killed_solve_leaves_is_added_up_again(tmp_path):
    """Sums that cancel: costs that lists hold are rounded, and a killed solve has stored their sum."""
    rng = np.random.default_rng(2)
    cost = 1000 + rng.random((1700, 1700))
    cost[:, 7] += -1000 * 1700 + 0.1234567 * rng.random(1700)
    path, left = tmp_path / "c", tmp_path / "left"

    def copied(progress):
        if progress.phase == 3 and not left.exists():
            shutil.copy(path, left)

    bigsap.solve(cost, method="compressed", checkpoint=path, callback=copied, callback_every=0)
    options = {"certify": False, "callback_every": 0, "checkpoint": tmp_path / "d"}
    found = bigsap.resume(left, cost, callback=stop_after(0), **options)
    assert found.status == "cancelled"
    assert found.fun == math.fsum(cost[found.row_ind, found.col_ind])


@pytest.mark.some(1)
@pytest.mark.parametrize("share", [0.4, 0.7])
def test_a_solve_whose_lists_are_abandoned_after_the_stop_ends_the_same(share, tmp_path, monkeypatch):
    """In the first phase, and in a later one: what was found before counts for what follows."""
    rng = np.random.default_rng(3)
    x, y = rng.random((2, 1500, 2))
    cost = np.sqrt(((x[:, None] - y) ** 2).sum(axis=2))
    used = bigsap.solve(cost).stats["pairs_evaluated"] / cost.size
    monkeypatch.setattr(policy, "EXHAUSTED", share * used)
    monkeypatch.setattr(policy, "EXHAUSTED_ANYWAY", 1.0)
    monkeypatch.setattr(engine_compressed, "_PATIENCE", 1e9)
    whole = bigsap.solve(cost)
    assert whole.stats["pairs_skipped"] > 0  # by scans of whole rows
    path, stops = tmp_path / "c", 0
    for k in range(25, 80, 5):
        stopped = bigsap.solve(cost, checkpoint=path, callback=stop_after(k), callback_every=0)
        if stopped.status != "cancelled":
            break
        stops += 1
        again = bigsap.resume(path, cost)
        assert np.array_equal(again.v, whole.v)
        assert again.stats["rows_scanned"] == whole.stats["rows_scanned"]
    assert stops > 2


@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_a_finished_solve_is_not_solved_again(method, tmp_path):
    cost = CLASSES["random"](60, seed=1)
    path = tmp_path / "c"
    first = bigsap.solve(cost, checkpoint=path, method=method)
    again = bigsap.resume(path, cost)
    assert same(first, again)
    assert again.stats["rows_scanned"] == first.stats["rows_scanned"]
    assert len(again.stats["phases"]) == first.nit


def test_an_interrupt_is_saved(tmp_path):
    cost = CLASSES["disjoint"](400, seed=1)
    path = tmp_path / "c"
    seen = []

    def interrupt(state):
        seen.append(state.phase)
        if state.phase == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigsap.solve(cost, checkpoint=path, callback=interrupt)
    saved = checkpoint.read(path).snapshot
    assert len(saved["phases"]) == 2
    assert not saved["done"]
    phases = []
    res = bigsap.resume(path, cost, callback=lambda state: phases.append(state.phase))
    assert min(p for p in phases if p) == 3
    assert same(res, bigsap.solve(cost, method="ssp"))


def test_written_at_each_phase_and_when_due(tmp_path, monkeypatch):
    cost = CLASSES["disjoint"](120, seed=1)
    written = []
    real = checkpoint.write

    def count(path, facts, snapshot):
        written.append(len(snapshot.get("phases", ())))
        real(path, facts, snapshot)

    monkeypatch.setattr(checkpoint, "write", count)
    res = bigsap.solve(cost, checkpoint=tmp_path / "c")
    # Before the search, at the beginning of each phase, at the end.
    assert written == [0, *range(res.nit), res.nit]
    few = cost[:40, :40]
    source = bigsap.from_function(lambda i: few[i], few.shape, kind="row", compiled=False)
    written.clear()
    options = {"checkpoint": tmp_path / "d", "checkpoint_every": 0, "cache": 5 * 40 * 8}
    bigsap.solve(source, method="ssp", **options)
    assert len(written) > 100


# --- refused --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A cost matrix, and the bytes of a checkpoint in the middle of solving it."""
    cost = CLASSES["disjoint"](80, seed=1)
    path = tmp_path_factory.mktemp("half") / "c"

    def stop(state):
        if state.phase == 2:
            raise StopIteration

    bigsap.solve(cost, checkpoint=path, callback=stop)
    return cost, path.read_bytes()


def refused(path, cost, words, **options):
    before = path.read_bytes()
    with pytest.raises(bigsap.CheckpointError, match=words) as caught:
        bigsap.resume(path, cost, **options)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert isinstance(caught.value, bigsap.InputError)
    assert str(path) in str(caught.value)


def test_truncated_anywhere(half, tmp_path):
    cost, data = half
    path = tmp_path / "c"
    generator = random.Random(0)
    offsets = {*range(60), len(data) - 1, len(data) - 32, len(data) - 33}
    for size in sorted(offsets | {generator.randrange(len(data)) for _ in range(60)}):
        path.write_bytes(data[:size])
        refused(path, cost, "truncated|no BigSAP checkpoint")
    path.write_bytes(data + b"\0")
    refused(path, cost, "truncated or damaged")


def test_any_changed_byte(half, tmp_path):
    cost, data = half
    path = tmp_path / "c"
    generator = random.Random(1)
    for place in [*range(40), *(generator.randrange(len(data)) for _ in range(60))]:
        changed = bytearray(data)
        changed[place] ^= 1 << generator.randrange(8)
        path.write_bytes(changed)
        refused(path, cost, "checkpoint")


def test_another_version(half, tmp_path):
    cost, data = half
    path = tmp_path / "c"
    path.write_bytes(data[:8] + (77).to_bytes(4, "little") + data[12:])
    refused(path, cost, "format 77, this BigSAP reads format 4")


def test_foreign_files(half, tmp_path):
    cost, _ = half
    path = tmp_path / "c"
    bigsap.solve(cost).save(path)
    refused(path, cost, "no BigSAP checkpoint")
    path.write_text("hello")
    refused(path, cost, "no BigSAP checkpoint")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        bigsap.resume(tmp_path / "nowhere", cost)


def test_another_problem(half, tmp_path):
    cost, data = half
    path = tmp_path / "c"
    path.write_bytes(data)
    other = cost.copy()
    other[-1, -1] += 1
    refused(path, other, "fingerprint")
    refused(path, cost[:70], "shape")
    refused(path, cost.astype("f4"), "dtype float64, this solve of float32")
    refused(path, np.asfortranarray(cost), "transposed")
    refused(path, cost, "maximize", maximize=True)
    refused(path, cost, "seed", seed=5)
    refused(path, cost, "epsilon", epsilon=False)
    with pytest.raises(TypeError, match="nonsense"):
        bigsap.resume(path, cost, nonsense=1)
    assert bigsap.resume(path, cost).success


def test_options_come_from_the_checkpoint(tmp_path):
    cost = CLASSES["disjoint"](80, seed=1)

    def stop(state):
        if state.phase == 1:
            raise StopIteration

    path = tmp_path / "c"
    options = {"maximize": True, "seed": 9, "epsilon": False, "dtype": "f4"}
    f = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row").function
    bigsap.solve(f, shape=cost.shape, checkpoint=path, callback=stop, **options)
    res = bigsap.resume(path, f)
    assert same(res, bigsap.solve(f, shape=cost.shape, **options))


@pytest.mark.parametrize("options", [{}, {"method": "auction"}, {"objective": "bottleneck"}, {"capacity": 2}])
def test_another_file_goes_on_where_the_first_ended(options, tmp_path):
    """Also if nothing new is found."""
    cost, path, other = CLASSES["random"](90, seed=4), tmp_path / "c", tmp_path / "other"
    assert bigsap.solve(cost, checkpoint=path, time_limit=0, **options).status == "time_limit"
    kept, counts = path.read_bytes(), {"capacity": options["capacity"]} if "capacity" in options else {}
    stopped = bigsap.resume(path, cost, checkpoint=other, time_limit=0, **counts)
    assert (stopped.status, path.read_bytes()) == ("time_limit", kept)
    assert same(bigsap.resume(other, cost, **counts), bigsap.resume(path, cost, **counts))


def test_auto_is_what_the_checkpoint_has(tmp_path):
    """With room for all rows, whole rows would have been chosen."""
    source = _as_rows(CLASSES["disjoint"](150, seed=2))
    options = {"checkpoint": tmp_path / "c", "callback": stop_after(9), "callback_every": 0}
    assert bigsap.solve(source, cache=8 * 150, **options).status == "cancelled"
    again = bigsap.resume(tmp_path / "c", source, method="auto")
    assert (again.status, again.stats["method"], again.stats["resumed"]) == ("optimal", "compressed", 1)


@pytest.mark.parametrize("name", ["a line", "kinds"])
def test_what_auto_has_chosen_is_continued_as_it_was_chosen(name, tmp_path):
    """Not as if it had been asked for: lists are given up as soon, sorted costs are recognised."""
    g = np.random.default_rng(0)
    if name == "a line":
        cost = np.subtract.outer(g.random(1600), g.random(1600)) ** 2
    else:  # whose lists end at once
        cost = abs(np.subtract.outer(g.integers(0, 30, 1600), g.integers(0, 30, 1600)))
        cost = cost + 0.001 * g.random((1600, 1600))
    whole = bigsap.solve(cost, threads=1)
    assert whole.stats["method"] == "compressed"
    for stop in (1, 6):
        calls = 0

        def leave(state, stop=stop):
            nonlocal calls
            calls += 1
            if calls > stop:
                raise StopIteration

        left = bigsap.solve(
            cost,
            threads=1,
            checkpoint=tmp_path / "state",
            checkpoint_every=1e-9,
            callback=leave,
            callback_every=1e-9,
        )
        assert left.status == "cancelled"
        again = bigsap.resume(tmp_path / "state", cost, threads=1)
        assert same(again, whole)
        assert again.stats["rows_scanned"] == whole.stats["rows_scanned"]


def test_costs_without_a_fingerprint_are_noted(tmp_path, caplog):
    cost = CLASSES["random"](20)
    source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    bigsap.solve(source, checkpoint=tmp_path / "c")
    assert "no fingerprint" in caplog.text
    caplog.clear()
    bigsap.solve(cost, checkpoint=tmp_path / "d")
    # Threads of other tests in the same process may write theirs.
    assert not [record for record in caplog.records if record.name.startswith("bigsap")]


# --- the disk -------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["write", "fsync", "replace"])
def test_a_failing_disk_keeps_the_last_checkpoint(stage, half, tmp_path, monkeypatch):
    cost, data = half
    path = tmp_path / "c"
    path.write_bytes(data)

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if stage == "write":
        real = open

        class Full:
            def __init__(self, *args):
                self.file = real(*args)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.file.close()

            def write(self, part):
                self.file.write(part[: len(part) // 2])
                full()

        monkeypatch.setattr(
            checkpoint, "open", lambda *a: Full(*a) if "x" in a[1] else real(*a), raising=False
        )
    else:
        monkeypatch.setattr(os, stage, full)
    with pytest.raises(OSError, match="checkpoint cannot be written") as caught:
        bigsap.resume(path, cost)
    assert caught.value.errno == errno.ENOSPC
    assert str(path) in str(caught.value)
    assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_an_impossible_place_is_known_before_work(tmp_path):
    calls = []

    def row(i):
        calls.append(i)
        return np.arange(5.0) * i

    source = bigsap.from_function(row, (5, 5), kind="row", dtype="f8", compiled=False)
    calls.clear()
    with pytest.raises(FileNotFoundError, match="checkpoint cannot be written"):
        bigsap.solve(source, checkpoint=tmp_path / "no" / "c")
    with pytest.raises(OSError, match="checkpoint cannot be written"):
        bigsap.solve(source, checkpoint=tmp_path)
    assert not calls


@pytest.mark.skipif(os.name == "nt", reason="pipes as on POSIX")
def test_a_pipe_is_not_replaced(tmp_path):
    """Nor a device: for root, the file of a checkpoint would take the place of /dev/null."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="checkpoint cannot be written: it is a device, pipe or socket"):
        bigsap.solve(np.eye(3), checkpoint=path)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("solve", [bigsap.solve, lambda *a, **k: bigsap.solve_k_best(*a, 2, **k)])
def test_a_file_of_another_kind_is_not_replaced(solve, tmp_path):
    """It may hold what the costs are made of. An empty one has nothing to lose."""
    path = tmp_path / "c.npy"
    np.save(path, np.eye(3))
    for options in ({}, {"method": "compressed"}):
        with pytest.raises(bigsap.CheckpointError, match=r"c\.npy: is no BigSAP checkpoint, and would"):
            solve(np.eye(3), checkpoint=path, **options)
    assert np.load(path).tolist() == np.eye(3).tolist()
    path.write_bytes(b"")
    solve(np.eye(3), checkpoint=path)
    solve(np.eye(3), checkpoint=path)
    assert checkpoint.read(path).facts["shape"] == [3, 3]


def test_leftovers_of_a_killed_process_are_replaced(tmp_path):
    path = tmp_path / "c"
    (tmp_path / ".c.0123abcd.tmp").write_bytes(b"half a checkpoint")
    bigsap.solve(CLASSES["random"](10), checkpoint=path)
    assert list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link"
    link.symlink_to(path)
    bigsap.solve(CLASSES["random"](11), checkpoint=link)
    assert link.is_symlink()
    assert checkpoint.read(path).facts["shape"] == [11, 11]


def test_two_processes_that_write_at_a_time(tmp_path, monkeypatch):
    """The one that began last has the last word, and the other one goes on."""
    path, real = tmp_path / "c", os.fsync

    def meanwhile(handle):
        monkeypatch.setattr(os, "fsync", real)
        checkpoint.write(path, {"of": "the other"}, {})
        real(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    checkpoint.write(path, {"of": "this"}, {"v": np.zeros(5)})
    assert checkpoint.read(path).facts == {"of": "the other"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_longer_name_is_another_checkpoint(tmp_path, monkeypatch):
    other, real = tmp_path / "c.2", os.fsync

    def meanwhile(handle):
        monkeypatch.setattr(os, "fsync", real)
        checkpoint.write(tmp_path / "c", {}, {})
        real(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    checkpoint.write(other, {"of": "this"}, {})
    assert checkpoint.read(other).facts == {"of": "this"}


# --- the command line -----------------------------------------------------------------


def test_command_line(tmp_path, capsys):
    cost = CLASSES["disjoint"](60, seed=1)
    np.save(tmp_path / "c.npy", cost)
    path = tmp_path / "s.ckpt"

    def solve(*more):
        code = main(["solve", str(tmp_path / "c.npy"), "--json", "--quiet", *more])
        text = capsys.readouterr()
        return code, json.loads(text.out), text.err

    code, _, err = solve("--resume")
    assert code == 1
    assert "--checkpoint" in err
    code, fresh, err = solve("--checkpoint", str(path), "--resume")
    assert code == 0
    assert "starting from the beginning" in err
    assert path.exists()
    code, again, err = solve("--checkpoint", str(path), "--resume", "--checkpoint-every", "5")
    assert code == 0
    assert not err
    assert again["fun"] == fresh["fun"]
    assert again["stats"]["resumed"] == 1
    code, wrong, err = solve("--checkpoint", str(path), "--resume", "--maximize")
    assert code == 1
    assert "maximize" in err
    assert wrong["error"] == "CheckpointError"
    code, rough, _ = solve("--gap", "5")
    assert code == 0
    assert rough["status"] in ("gap_reached", "optimal")


def test_saving_does_not_change_the_answer(tmp_path):
    cost = CLASSES["rank2"](150, seed=1)
    event = threading.Event()
    plain = bigsap.solve(cost, method="ssp")
    res = bigsap.solve(cost, checkpoint=tmp_path / "c", checkpoint_every=0, cancel=event)
    assert same(plain, res)
    assert res.stats["rows_scanned"] == plain.stats["rows_scanned"]


def test_large_integers_that_were_met_after_the_checkpoint(tmp_path):
    """What was saved is of another arithmetic; the search begins anew, in int64."""
    cost = np.random.default_rng(3).integers(0, 100, (80, 60))
    cost[-1, -1] = 2**45
    path = tmp_path / "large.ck"

    def stop(progress):
        raise StopIteration

    stopped = bigsap.solve(
        cost, method="ssp", start="none", checkpoint=path, callback=stop, callback_rows=1, threads=1
    )
    assert stopped.status == "cancelled"
    assert bigsap.checkpoint.read(path).facts["price"] == "float64"
    resumed = bigsap.resume(path, cost, threads=1)
    assert resumed.status == "optimal"
    assert resumed.fun == bigsap.solve(cost).fun
