"""The service on systems that lack something: each absence is simulated."""

from __future__ import annotations

import errno
import os
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from bigsap_server import serve
from bigsap_server.costs import limits
from bigsap_server.costs.stores import check_zarr_folder
from bigsap_server.files import FileLock, is_locked, read_json, write_json
from bigsap_server.jobs import control, worker
from bigsap_server.jobs.store import JobStore
from bigsap_server.problems import HttpProblem
from bigsap_server.uploads.blocks import Block, Meta
from bigsap_server.uploads.store import ArrayStore

from bigsap import system


@pytest.fixture
def windows(monkeypatch):
    """A file that is read cannot be moved: a list of open files, as long as it is not empty."""
    monkeypatch.setattr(system, "PATIENCE_S", 0.05)
    replaced, held = os.replace, []

    def attempt(source, target):
        if held:
            error = PermissionError(errno.EACCES, "Access is denied", os.fspath(source))
            error.winerror = 5
            raise error
        return replaced(source, target)

    monkeypatch.setattr(os, "replace", attempt)
    monkeypatch.setattr(os, "rename", lambda *given: pytest.fail("not every system renames like this"))
    return held


def test_a_lock_without_room_for_its_holder(tmp_path, monkeypatch):
    lock = FileLock(tmp_path / "run.lock")
    (tmp_path / "run.pid").mkdir()
    assert lock.take()
    assert is_locked(lock.path)
    lock.release()


def test_a_job_whose_result_is_being_read_is_kept(tmp_path, windows):
    store = JobStore(tmp_path / "jobs.sqlite")
    try:
        job_id = store.submit({"cost": {"type": "array", "values": [[1.0]]}})[0].id
        store.request_cancel(job_id, "now")
        store.folder(job_id).mkdir(parents=True, exist_ok=True)
        windows.append("result")
        with pytest.raises(HttpProblem, match="is being read"):
            store.delete(job_id)
        assert store.get(job_id).state == "cancelled"
        assert store.folder(job_id).exists()
        windows.clear()
        store.delete(job_id)
        assert not store.folder(job_id).exists()
    finally:
        store.close()


def test_an_array_that_is_being_read_is_kept(tmp_path, windows):
    store = ArrayStore(tmp_path)
    meta = store.create("a", "<f8", [2, 2])
    windows.append("a job")
    with pytest.raises(HttpProblem, match="is being read"):
        store.delete(meta.id, lambda array_id: nullcontext())
    windows.clear()
    assert store.get(meta.id, "a").shape == [2, 2]


def test_a_report_that_is_being_read_is_replaced_a_moment_later(tmp_path, windows, monkeypatch):
    monkeypatch.setattr(system, "PATIENCE_S", 30.0)
    write_json(tmp_path / "progress.json", 1)
    windows.append("a reader")
    timer = threading.Timer(0.1, windows.clear)
    timer.start()
    write_json(tmp_path / "progress.json", 2)
    timer.join()
    assert read_json(tmp_path / "progress.json") == 2
    assert [file.name for file in tmp_path.iterdir()] == ["progress.json"]


def test_prices_to_start_from_come_under_their_name_by_a_portable_move(tmp_path, windows):
    result = tmp_path / "result-1"
    result.mkdir()
    for name in control.START_ARRAYS:
        np.save(result / f"{name}.npy", np.zeros(2))
    folder = control.Folder(tmp_path / "job")
    folder.path.mkdir()
    kept = folder.keep_start(result)
    assert sorted(file.stem for file in kept.iterdir()) == sorted(control.START_ARRAYS)


def test_checks_without_limits(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    for platform in ("linux", "win32"):
        monkeypatch.setattr(limits.sys, "platform", platform)
        limits.limit_process(DATA=1 << 30)


def test_a_worker_in_a_container_takes_what_that_has(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(worker, "limit_process", lambda **most: asked.append(most))
    monkeypatch.setattr(worker, "_run_job", lambda *_: {})
    order = control.Order("job", 1, control.Folder(tmp_path), {}, {"own_process": True})
    for found in (8 << 30, 256 << 20):
        monkeypatch.setattr(worker, "usable_memory", lambda found=found: found)
        worker.run_job(order)
    assert asked == [{"DATA": 8 << 30}, {"DATA": 1 << 30}]


def test_blocks_where_no_space_can_be_reserved(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    file = tmp_path / "data.npy"
    file.write_bytes(bytes(32))
    block = Block(Meta("arr_1", "", "<f8", [2, 2], 0.0), file, 0, 1, aside=True)
    block.write(np.ones(2).tobytes())
    block.finish()
    block.claim()
    block.move()
    block.close()
    assert np.frombuffer(file.read_bytes()).tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("flags", [(), ("O_NOFOLLOW", "O_NONBLOCK")])
def test_metadata_behind_a_link_are_refused_without_the_flags(tmp_path, monkeypatch, flags):
    zarr = pytest.importorskip("zarr")
    zarr.save_array(tmp_path / "real", np.zeros((2, 2)))
    check_zarr_folder(tmp_path / "real", 1 << 20, "/cost")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "zarr.json").symlink_to(tmp_path / "real" / "zarr.json")
    (tmp_path / "piped").mkdir()
    for flag in flags:
        monkeypatch.delattr(os, flag, raising=False)
    with pytest.raises(HttpProblem):
        check_zarr_folder(tmp_path / "linked", 1 << 20, "/cost")


@pytest.mark.parametrize(("platform", "told"), [("win32", 16384), ("darwin", 5), ("linux", 5)])
def test_workers_yield_to_others_by_the_means_of_the_system(monkeypatch, platform, told):
    found = []
    monkeypatch.setattr(worker.sys, "platform", platform)
    monkeypatch.setattr(psutil, "BELOW_NORMAL_PRIORITY_CLASS", 16384, raising=False)
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(nice=found.append))
    monkeypatch.setattr(worker.logs, "configure", lambda level: None)
    monkeypatch.setattr(worker.signal, "signal", lambda number, action: None)
    worker.dask_setup(None)
    assert found == [told]


def test_cores_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace())
    assert system.usable_cores() == 7


def test_a_port_is_not_shared_on_windows(monkeypatch):
    monkeypatch.setattr(serve.sys, "platform", "win32")
    listener = serve._listen("127.0.0.1", 0)
    try:
        assert listener.getsockopt(serve.socket.SOL_SOCKET, serve.socket.SO_REUSEADDR) == 0
    finally:
        listener.close()
