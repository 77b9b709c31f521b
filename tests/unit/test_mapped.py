"""Files that are mapped: bounded in number, and never touched beyond their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse

import bigsap
from bigsap.errors import StoreError
from bigsap.sources import as_source
from bigsap.sources.arrays.mapped import Files, MapGuard
from contracts import read

HANDLES = "/proc/self/fd"


def write(path, values):
    path.write_bytes(np.asarray(values, "f8").tobytes())
    return os.fspath(path)


def content(files, path, count):
    out = np.empty(count)
    with files.open(path) as file:
        assert file.fill(0, out)
        kind = type(file).__name__
    return out.tolist(), kind


def test_a_file_is_mapped_when_asked_for_again(tmp_path):
    files = Files(most=2)
    paths = [write(tmp_path / str(k), [k, k + 1]) for k in range(5)]
    assert content(files, paths[0], 2) == ([0, 1], "_Read")
    assert content(files, paths[0], 2) == ([0, 1], "_Mapped")
    assert content(files, paths[0], 2) == ([0, 1], "_Mapped")
    # Asked for too long ago: read, not mapped for a single use.
    for path in paths[1:]:
        assert content(files, path, 2)[1] == "_Read"
    assert content(files, paths[1], 2) == ([1, 2], "_Read")
    # The map used least recently makes room.
    assert content(files, paths[4], 2)[1] == "_Mapped"
    assert content(files, paths[0], 2)[1] == "_Mapped"
    assert content(files, paths[1], 2)[1] == "_Mapped"
    assert content(files, paths[4], 2)[1] == "_Read"


def test_parts_and_ends(tmp_path):
    files = Files()
    path = write(tmp_path / "f", np.arange(4))
    for _ in range(3):
        with files.open(path) as file:
            assert file.size == 32
            assert file.take(8, 8) == np.array([1.0]).tobytes()
            assert len(file.take(24, 100)) == 8
            out = np.empty(2)
            assert file.fill(16, out)
            assert out.tolist() == [2, 3]
            assert not file.fill(24, out)
    empty = write(tmp_path / "e", [])
    for _ in range(3):
        with files.open(empty) as file:
            assert file.size == 0
            assert not file.fill(0, out)
    for _ in range(2):
        with pytest.raises(FileNotFoundError), files.open(os.fspath(tmp_path / "none")):
            pass


@pytest.mark.parametrize("size", [0, 8, 24, 40])
def test_a_file_that_changes_its_size_while_mapped(tmp_path, size):
    files = Files()
    path = write(tmp_path / "f", np.arange(4))
    for _ in range(2):
        content(files, path, 4)
    os.truncate(path, size)
    for _ in range(3):
        with files.open(path) as file:
            assert file.size == size
            assert file.fill(0, np.empty(4)) == (size >= 32)


@pytest.mark.skipif(not os.path.isdir(HANDLES), reason="handles are counted as Linux shows them")
def test_handles_are_bounded_and_given_back(tmp_path):
    before = len(os.listdir(HANDLES))
    files = Files(most=8)
    paths = [write(tmp_path / str(k), [k]) for k in range(40)]
    for path in paths:
        for _ in range(3):
            content(files, path, 1)
    assert before < len(os.listdir(HANDLES)) <= before + 8
    del files
    assert len(os.listdir(HANDLES)) == before


def test_threads_copy_from_maps_that_make_room(tmp_path):
    files = Files(most=3)
    paths = [write(tmp_path / str(k), np.full(2000, k)) for k in range(12)]
    wrong = []

    def work(seed):
        for k in np.random.default_rng(seed).integers(0, 12, 600).tolist():
            out = np.empty(2000)
            with files.open(paths[k]) as file:
                if not file.fill(0, out) or (out != k).any():
                    wrong.append(k)

    team = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for member in team:
        member.start()
    for member in team:
        member.join(200)
    assert not any(member.is_alive() for member in team)
    assert not wrong


@pytest.mark.parametrize("shards", [None, (8, 6)])
def test_chunks_cut_short_after_they_were_mapped(tmp_path, shards):
    zarr = pytest.importorskip("zarr")
    cost = np.random.default_rng(0).random((8, 6))
    array = zarr.create_array(
        tmp_path / "c.zarr", shape=cost.shape, chunks=(4, 6), dtype="f8", compressors=None, shards=shards
    )
    array[:] = cost
    source = bigsap.from_zarr(tmp_path / "c.zarr")
    for _ in range(3):
        np.testing.assert_array_equal(read(source, np.arange(8)), cost)
    chunk = tmp_path / "c.zarr" / "c" / ("0" if shards else "1") / "0"
    os.truncate(chunk, 100)
    np.testing.assert_array_equal(read(source, [0]), cost[[0]]) if shards is None else None
    for _ in range(2):
        with pytest.raises(StoreError, match=r"chunk c/\d/0.*cannot be read"):
            read(source, [5])
    with pytest.raises(StoreError, match=r"chunk c/\d/0"):
        bigsap.solve(source)


# -- whole arrays in place -------------------------------------------------------------


def test_what_is_guarded(tmp_path):
    np.save(tmp_path / "c.npy", np.eye(600))
    mapped = np.load(tmp_path / "c.npy", mmap_mode="r")
    for array in (mapped, mapped[100:], mapped.T, np.asarray(mapped)[:, 3:]):
        assert MapGuard.of(array, "it") is not None
    assert MapGuard.of(np.eye(3), "it") is None
    sources = [bigsap.from_npy(tmp_path / "c.npy"), as_source(mapped), as_source(mapped[5:])]
    for source in sources:
        source.intact()
        np.testing.assert_array_equal(read(source, [1]), source.array[[1]])
    os.truncate(tmp_path / "c.npy", 600 * 600 * 4)
    for source in sources:
        with pytest.raises(StoreError, match="truncated while in use"):
            source.intact()
        with pytest.raises(StoreError, match="truncated while in use"):
            read(source, [590])


# In a process of its own: where the guard fails, the system ends it.
CODE = """
import os, sys
import numpy as np
import bigsap

path, kind, method, stage, threads = sys.argv[1:]
rng = np.random.default_rng(0)
cost = rng.random((1500, 2)) @ rng.random((2, 1500)) + 0.01 * rng.random((1500, 1500))
if kind == "transposed":
    cost = np.asfortranarray(cost)
elif kind == "converted":
    cost = cost.astype(">f4")
np.save(path, cost)
source = bigsap.from_npy(path)
assert (source.resident() is None) == (kind != "in place")

def cut(state):
    if state.stage == stage:
        os.truncate(path, 100_000)

try:
    bigsap.solve(source, method=method, callback=cut, callback_every=0, threads=int(threads))
except bigsap.StoreError as error:
    print(error)
"""


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("kind", "method", "stage"),
    [
        ("in place", "ssp", "start"),
        ("in place", "ssp", "search"),
        ("in place", "ssp", "certificate"),
        ("in place", "compressed", "search"),
        ("in place", "compressed", "certificate"),
        ("transposed", "ssp", "search"),
        ("converted", "ssp", "search"),
        ("converted", "compressed", "certificate"),
    ],
)
def test_truncated_during_a_solve(kind, method, stage, tmp_path):
    threads = "2" if kind == "in place" else "1"
    done = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path / "c.npy", kind, method, stage, threads],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "c.npy' was truncated while in use" in done.stdout


# -- pages that are missing -------------------------------------------------------------

TOUCH = """
import gc, os, sys
import numpy as np
import bigsap

path, other, kind = sys.argv[1:]
np.save(path, np.ones((600, 600)))
np.save(other, np.ones((600, 600)))
source, again = bigsap.from_npy(path), bigsap.from_npy(path)
os.truncate(path, 100_000)
print(source.array[:10].sum(), source.array.sum() < 20_000)
for each in source, again:
    try:
        each.intact()
    except bigsap.StoreError as error:
        print("truncated" in str(error))
if kind == "unwatched":
    strange = np.load(other, mmap_mode="r")
elif kind == "no longer watched":
    mapped = source.array.base
    strange = np.load(other, mmap_mode="r")
    watched = bigsap.from_npy(other)
    del watched, source, again, each
    gc.collect()
else:
    sys.exit(0)
os.truncate(other, 100_000)
print("still here", flush=True)
print(strange.sum())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="watches maps on Linux only")
@pytest.mark.parametrize("kind", ["watched", "unwatched", "no longer watched"])
def test_missing_pages_are_zeros_where_a_source_reads(tmp_path, kind):
    done = subprocess.run(
        [sys.executable, "-c", TOUCH, tmp_path / "c.npy", tmp_path / "d.npy", kind],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == ["6000.0 True", "True", "True"], done.stderr
    if kind == "watched":
        assert done.returncode == 0
    else:  # somebody else's map is not ours to mend
        assert (done.returncode, lines[3:]) == (-signal.SIGBUS, ["still here"])


RACE = """
import os, sys, threading, time
import numpy as np
import bigsap

path, method = sys.argv[1:]
rng = np.random.default_rng(0)
cost = rng.random((1500, 2)) @ rng.random((2, 1500)) + 0.01 * rng.random((1500, 1500))
bigsap.solve(cost, method=method, threads=2)
for delay in np.linspace(0, 0.1, 12):
    np.save(path, cost)
    source = bigsap.from_npy(path)
    cutter = threading.Timer(delay, os.truncate, (path, 100_000))
    cutter.start()
    try:
        print(bigsap.solve(source, method=method, threads=2).status)
        cutter.join()
    except bigsap.StoreError as error:
        print("truncated" in str(error))
    del source
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_truncated_between_two_looks_at_its_size(method, tmp_path):
    """The kernels look every tenth of a second; this file is cut in between."""
    done = subprocess.run(
        [sys.executable, "-c", RACE, tmp_path / "c.npy", method],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split()
    assert len(answers) == 12
    assert set(answers) <= {"True", "optimal"}
    assert "True" in answers


_SPARSE = """
import os, sys
import bigsap
from bigsap.errors import StoreError
path, moment, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
source = bigsap.as_source(path)
def cut(_progress=None):
    os.truncate(path, 1000)
if moment == "before":
    cut()
for _ in range(2):  # the second finds it cut in any case
    try:
        bigsap.solve(source, callback=cut, callback_every=0, **options)
    except StoreError as error:
        print(error)
"""


@pytest.mark.some(2)
@pytest.mark.skipif(sys.platform != "linux", reason="watches maps on Linux only")
@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize(
    "options",
    [{}, {"unassigned_cost": 0.5}, {"objective": "bottleneck"}, {"capacity": 2}, {"method": "ssp"}],
    ids=lambda options: next(iter(options), "plain"),
)
def test_sparse_costs_whose_file_is_cut(moment, options, tmp_path):
    rng = np.random.default_rng(14)
    path, n = tmp_path / "g.npz", 3000
    rows, columns = np.repeat(np.arange(n), 8), np.concatenate([(np.arange(n) + k * k) % n for k in range(8)])
    columns = columns.reshape(8, n).T.ravel()
    graph = scipy.sparse.csr_array((rng.random(rows.size), (rows, columns)), shape=(n, n))
    scipy.sparse.save_npz(path, graph, compressed=False)
    command = [sys.executable, "-c", _SPARSE, path, moment, repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("g.npz' was truncated while in use") == 2
