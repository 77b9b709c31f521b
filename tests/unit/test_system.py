"""What systems lack: each absence is simulated, since these tests run on one system."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import bigsap
from bigsap import checkpoint, memory, system
from bigsap.client import local_service
from bigsap.engine.core import contention, team
from bigsap.info import cpu_model
from bigsap.sources.cluster.connection import cores_here


def in_use(path, winerror):
    """The error of Windows for a file that another program has open."""
    error = PermissionError(13, "The process cannot access the file", os.fspath(path))
    error.winerror = winerror
    return error


@pytest.fixture
def no_proc(monkeypatch):
    """No file of /proc and /sys, as on macOS and Windows."""
    opened = os.open

    def refuse(path, *given, **named):
        if str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return opened(path, *given, **named)

    monkeypatch.setattr(os, "open", refuse)


@pytest.fixture
def missing(monkeypatch):
    """Modules whose import fails from now on."""
    gone = set()
    found = builtins.__import__

    def look(name, *given, **named):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", look)
    return gone


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only while somebody sleeps."""
    now = [0.0]
    monkeypatch.setattr(system.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(system.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def refusing(monkeypatch, times, target, winerror=32):
    """Have os.replace to a path fail so many times; return the list of calls for it."""
    replaced, calls = os.replace, []

    def attempt(source, to):
        if to != target:
            return replaced(source, to)
        calls.append(to)
        if len(calls) <= times:
            raise in_use(source, winerror)
        return replaced(source, to)

    monkeypatch.setattr(os, "replace", attempt)
    return calls


@pytest.mark.parametrize("winerror", [5, 32])
def test_a_file_that_is_open_elsewhere_is_waited_for(tmp_path, monkeypatch, clock, winerror):
    calls = refusing(monkeypatch, 3, tmp_path / "out.npz", winerror)
    result = bigsap.solve(np.eye(3))
    result.save(tmp_path / "out.npz")
    assert len(calls) == 4
    assert clock[0] > 0
    np.testing.assert_array_equal(bigsap.Result.load(tmp_path / "out.npz").col4row, result.col4row)


def test_a_file_that_stays_open_is_named(tmp_path, monkeypatch, clock):
    refusing(monkeypatch, 10**6, tmp_path / "out.npz")
    with pytest.raises(PermissionError, match="open in another program"):
        bigsap.solve(np.eye(3)).save(tmp_path / "out.npz")
    assert system.PATIENCE_S <= clock[0] < 2 * system.PATIENCE_S
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_stays_open_is_named_and_the_old_one_stays(tmp_path, monkeypatch, clock):
    file = tmp_path / "run.ckpt"
    checkpoint.write(file, {}, {"v": np.zeros(2)})
    refusing(monkeypatch, 10**6, file)
    with pytest.raises(PermissionError, match=r"cannot be written: .*open in another program"):
        checkpoint.write(file, {}, {"v": np.ones(2)})
    np.testing.assert_array_equal(checkpoint.read(file).snapshot["v"], np.zeros(2))
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_in_use_is_waited_for(tmp_path, monkeypatch, clock):
    pytest.importorskip("zarr")
    from bigsap.sources.zarr.zarr_store import rechunk

    calls = refusing(monkeypatch, 2, tmp_path / "costs.zarr")
    np.save(tmp_path / "costs.npy", np.arange(12.0).reshape(3, 4))
    rechunk(tmp_path / "costs.npy", tmp_path / "costs.zarr")
    assert len(calls) == 3
    assert bigsap.solve(bigsap.from_zarr(tmp_path / "costs.zarr")).fun == 15.0


def test_a_refusal_of_other_systems_is_no_open_file(tmp_path, monkeypatch, clock):
    def refuse(source, target):
        raise PermissionError(13, "Permission denied", target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError, match="Permission denied"):
        system.replace(tmp_path / "a", tmp_path / "b")
    assert clock[0] == 0


def test_a_folder_that_cannot_be_opened_is_not_synced(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, *given, **named):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *given, **named)

    monkeypatch.setattr(os, "open", refuse)
    checkpoint.write(tmp_path / "run.ckpt", {"n": 1}, {})
    assert checkpoint.read(tmp_path / "run.ckpt").facts == {"n": 1}


def fake_psutil(monkeypatch, **parts):
    """Put a psutil with these parts, and no others, in place of the installed one."""
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(**parts))


def test_memory_without_proc(monkeypatch, no_proc):
    tells = SimpleNamespace(total=16 << 30, available=3 << 30)
    fake_psutil(monkeypatch, virtual_memory=lambda: tells)
    assert memory.total_memory() == 16 << 30
    assert memory.available_memory() == memory.free_memory() == 3 << 30
    assert memory.memory_limit_bytes() is None


def test_memory_that_nobody_tells(missing, no_proc):
    missing.add("psutil")
    assert memory.total_memory() is memory.available_memory() is None
    assert memory.free_memory() == 4 << 30
    assert bigsap.solve(np.arange(9.0).reshape(3, 3)).success


def test_peak_without_proc(missing, no_proc):
    resource = pytest.importorskip("resource", reason="Windows has none")
    scale = 1 if sys.platform == "darwin" else 1024
    assert memory.peak_bytes() == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    missing.add("resource")
    assert memory.peak_bytes() == 0
    assert bigsap.solve(np.eye(3)).success


def test_cores_by_affinity_then_by_psutil_then_all(monkeypatch, missing):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    assert system.usable_cores() == cores_here() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)

    class Windows:
        def cpu_affinity(self):
            return [0, 2]

    class Mac:
        pass

    fake_psutil(monkeypatch, Process=Windows)
    assert system.usable_cores() == 2
    fake_psutil(monkeypatch, Process=Mac)
    assert system.usable_cores() == 8
    missing.add("psutil")
    monkeypatch.delitem(sys.modules, "psutil")
    assert system.usable_cores() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert system.usable_cores() == 1


def test_threads_without_cgroups(monkeypatch, no_proc):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert team.available_threads() == 6
    assert cpu_model()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Write files of /proc and /sys/fs/cgroup, in place of this machine's."""
    opened = os.open

    def written(path):
        return tmp_path / str(path)[1:] if str(path).startswith(("/proc", "/sys")) else path

    def write(files):
        for path, text in files.items():
            written(path).parent.mkdir(parents=True, exist_ok=True)
            written(path).write_text(text)

    found = os.path.isdir
    monkeypatch.setattr(os, "open", lambda path, *given, **named: opened(written(path), *given, **named))
    monkeypatch.setattr(os.path, "isdir", lambda path: found(written(path)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    system._cgroup_folders.cache_clear()
    write({"/proc/meminfo": f"MemTotal: {512 << 20} kB\nMemAvailable: {256 << 20} kB\n"})
    yield write
    system._cgroup_folders.cache_clear()


GROUPS = "/sys/fs/cgroup"


def test_limits_of_a_container(machine):
    machine({"/proc/self/cgroup": "0::/\n", f"{GROUPS}/memory.max": f"{8 << 30}\n"})
    machine({f"{GROUPS}/memory.current": f"{3 << 30}\n", f"{GROUPS}/cpu.max": "250000 100000\n"})
    assert memory.memory_limit_bytes() == memory.usable_memory() == 8 << 30
    assert memory.free_memory() == 5 << 30
    assert team.available_threads() == 2


def test_limits_of_a_container_that_sees_its_name_outside(machine):
    """Where only its own cgroups are mounted, or a process was moved out of the root that it sees."""
    machine({"/proc/self/cgroup": "5:memory:/docker/0a\n4:cpuacct,cpu:/../other\n0::/\n"})
    machine({f"{GROUPS}/memory/memory.limit_in_bytes": f"{8 << 30}\n"})
    machine({f"{GROUPS}/cpu/cpu.cfs_quota_us": "300000\n", f"{GROUPS}/cpu/cpu.cfs_period_us": "100000\n"})
    assert memory.memory_limit_bytes() == 8 << 30
    assert team.available_threads() == 3


def test_limits_of_a_job_below_the_root(machine):
    """Slurm and systemd: cgroups of the machine, of which the job's and those above it limit."""
    machine({"/proc/self/cgroup": "0::/slurm/job_7/step_0\n", f"{GROUPS}/slurm/memory.max": f"{64 << 30}\n"})
    job = f"{GROUPS}/slurm/job_7"
    machine({f"{job}/memory.max": f"{16 << 30}\n", f"{job}/memory.current": f"{6 << 30}\n"})
    machine({f"{job}/step_0/memory.max": "max\n", f"{job}/cpu.max": "400000 100000\n"})
    machine({f"{job}/step_0/cpu.max": "max 100000\n", f"{GROUPS}/slurm/job_8/memory.max": "1\n"})
    assert memory.memory_limit_bytes() == memory.usable_memory() == 16 << 30
    assert memory.free_memory() == 10 << 30
    assert team.available_threads() == 4


def test_limits_of_a_job_by_cgroups_of_the_first_version(machine):
    machine({"/proc/self/cgroup": "9:name=systemd:/\n4:memory:/slurm/a:b\n3:cpu,cpuacct:/slurm/a:b\n"})
    memory_of, cpu_of = f"{GROUPS}/memory/slurm/a:b", f"{GROUPS}/cpu/slurm/a:b"
    machine({f"{memory_of}/memory.limit_in_bytes": f"{16 << 30}\n"})
    machine({f"{GROUPS}/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    machine({f"{memory_of}/memory.usage_in_bytes": f"{16 << 30}\n"})
    machine({f"{memory_of}/memory.stat": f"inactive_file 5\ntotal_inactive_file {2 << 30}\n"})
    machine({f"{cpu_of}/cpu.cfs_quota_us": "200000\n", f"{cpu_of}/cpu.cfs_period_us": "100000\n"})
    assert memory.memory_limit_bytes() == 16 << 30
    assert memory.free_memory() == 2 << 30
    assert team.available_threads() == 2


def test_files_that_were_read_do_not_take_the_memory_of_a_container(machine):
    machine({"/proc/self/cgroup": "0::/\n", f"{GROUPS}/memory.max": f"{8 << 30}\n"})
    machine({f"{GROUPS}/memory.current": f"{8 << 30}\n"})
    machine({f"{GROUPS}/memory.stat": f"anon 7\ninactive_file {5 << 30}\nactive_file 9\n"})
    assert memory.free_memory() == 5 << 30


def test_waits_that_the_system_does_not_tell(monkeypatch, no_proc):
    waits = contention.Waits([1])
    assert waits.read(1) == []
    monkeypatch.delattr(os, "pread", raising=False)
    assert waits.read(1) == []


def test_a_team_of_two_without_proc(no_proc):
    cost = np.random.default_rng(0).random((300, 300))
    same = bigsap.solve(cost, threads=1, method="ssp")
    assert bigsap.solve(cost, threads=2, method="ssp").col4row.tolist() == same.col4row.tolist()


def test_mapped_files_where_no_signal_tells(tmp_path, monkeypatch):
    from bigsap.sources.arrays import shrinking

    def refuse():
        raise AssertionError("a handler was installed")

    monkeypatch.setattr(shrinking, "_WATCHABLE", False)
    monkeypatch.setattr(shrinking._watcher, "_install", refuse)
    np.save(tmp_path / "costs.npy", np.random.default_rng(1).random((40, 40)))
    assert bigsap.solve(bigsap.from_npy(tmp_path / "costs.npy")).success


def test_a_local_service_is_asked_to_end_as_each_system_can(monkeypatch):
    asked = []
    process = SimpleNamespace(terminate=lambda: asked.append("terminate"), send_signal=asked.append)
    monkeypatch.setattr(local_service.sys, "platform", "win32")
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 512, raising=False)
    local_service._end(process)
    assert local_service._apart() == {"creationflags": 512}
    monkeypatch.setattr(local_service.sys, "platform", "darwin")
    local_service._end(process)
    assert local_service._apart() == {"start_new_session": True}
    assert asked == [1, "terminate"]


def test_peaks_of_a_process_and_its_children(missing):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "1\n"
        peaks = local_service._peaks(process.pid)
        missing.add("psutil")
        assert local_service._peaks(process.pid) == []
        process.communicate("\n")
    assert len(peaks) == 2
    assert min(peaks) > 1 << 20
