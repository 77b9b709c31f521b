"""What the supervisor makes of jobs and of what happens to them, with workers on threads."""

import errno
import os
import shutil
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from bigsap_server.costs.request import JobRequest
from bigsap_server.files import FileLock
from bigsap_server.jobs import control, ranking, store, supervisor, worker
from bigsap_server.jobs.control import Folder, Order
from bigsap_server.jobs.executor import InlineExecutor, Report
from bigsap_server.jobs.model import StoreUnavailable
from bigsap_server.jobs.store import JobStore
from bigsap_server.jobs.supervisor import Supervisor
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import load

import bigsap
from clock import Clock
from gate import HANG_S, apart, gated_job, until

MATRIX = [[4, 1, 3], [2, 0, 5], [3, 2, 2]]
ROWS = 200
#: Rows that are read before the gate: the gated job is then in a search of the second phase.
SEARCHING = 1500
TINY = {"cost": {"type": "array", "values": MATRIX}}


def request(**given):
    return JobRequest.model_validate(TINY | given).model_dump(mode="json")


class Service:
    """Store, executor and supervisor over one data directory."""

    def __init__(self, data, executor=None, **settings):
        given = {"executor": "inline", "workers": 2, "drain_s": HANG_S, "plugins": ["gated"]}
        settings = {"data": data} | given | settings
        self.settings = load(**settings)
        self.store = JobStore(data / "jobs.sqlite")
        self.executor = InlineExecutor(2) if executor is None else executor
        self.supervisor = Supervisor(self.store, self.executor, self.settings)

    def __enter__(self):
        self.supervisor.start()
        return self

    def __exit__(self, *error):
        self.supervisor.stop()
        self.store.close()

    def submit(self, **given):
        return self.store.submit(request(**given))[0].id

    def reaches(self, job_id, *states):
        def there():
            job = self.store.get(job_id)
            return job if job.state in states else None

        return until(there)

    def finished(self, job_id):
        return self.reaches(job_id, "succeeded", "failed", "cancelled")

    def array(self, job, name):
        return np.load(self.store.result_file(job, name))


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """What was lost is tried again at once."""
    monkeypatch.setattr(supervisor, "_BACKOFF_S", 0.1)
    monkeypatch.setattr(supervisor, "_DISK_BACKOFF_S", 0.1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the gated job gives when nothing happens to it, bit for bit."""
    checkpoint = tmp_path_factory.mktemp("whole") / "c"
    return bigsap.solve(apart(ROWS), method="ssp", threads=1, cache="32KiB", checkpoint=checkpoint)


def test_jobs_run_and_leave_certified_results(tmp_path):
    with Service(tmp_path / "data") as service:
        ids = [service.submit() for _ in range(5)]
        for job_id in ids:
            job = service.finished(job_id)
            assert (job.state, job.attempt, job.problem) == ("succeeded", 1, None)
            assert job.result["status"] == "optimal"
            assert job.result["objective"] == 5
            assert job.result["certificate"]["certified"]
            assert job.result["gap"] == 0
            col4row = service.array(job, "col4row")
            assert np.array(MATRIX)[np.arange(3), col4row].sum() == 5
            u, v = service.array(job, "u"), service.array(job, "v")
            assert u.sum() + v.sum() == 5
            assert (u[:, None] + v[None, :] <= np.array(MATRIX)).all()
            kinds = [event.kind for event in service.store.events(job_id)]
            assert "progress" in kinds
            folder = service.store.folder(job_id)
            until(lambda folder=folder: not (folder / "checkpoint").exists())
        # Wait for the threads to have gone: slots are free again.
        until(lambda: service.executor.free() == 2)


def test_bad_costs_fail_with_a_problem_and_harm_nobody(tmp_path):
    (tmp_path / "s").mkdir()
    np.save(tmp_path / "s" / "bad.npy", np.array([[1.0, np.nan], [0.0, 1.0]]))
    cost = {"type": "array", "values": {"store": "s", "path": "bad.npy"}}
    with Service(tmp_path / "data", stores={"s": tmp_path / "s"}) as service:
        bad, good = service.submit(cost=cost), service.submit()
        job = service.finished(bad)
        assert job.state == "failed"
        assert job.problem["type"].endswith(":invalid-cost")
        assert (job.problem["row"], job.problem["column"]) == (0, 1)
        assert "Traceback" not in str(job.problem)
        assert service.finished(good).state == "succeeded"


def test_graceful_cancel_keeps_what_is_known_and_resume_ends_identical(tmp_path, gate, whole):
    with Service(tmp_path / "data") as service:
        job_id = service.submit(**gated_job(gate, ROWS, SEARCHING))
        gate.wait_for_readers()
        assert service.store.request_cancel(job_id, "graceful").state == "cancelling"
        job = service.finished(job_id)
        assert job.state == "cancelled"
        assert job.result["status"] == "cancelled"
        assert job.result["bound"] <= whole.fun + 1e-6
        gate.open()
        service.store.resume(job_id)
        job = service.finished(job_id)
        assert (job.state, job.attempt, job.result["attempt"]) == ("succeeded", 2, 2)
        assert job.result["stats"]["resumed"] == 1
        for name in ("col4row", "row4col", "u", "v"):
            np.testing.assert_array_equal(service.array(job, name), getattr(whole, name))
        until(lambda: not (service.store.folder(job_id) / "result-1").exists())


@pytest.mark.parametrize("kept", [True, False])
def test_a_job_goes_on_without_the_one_it_started_from(tmp_path, gate, whole, kept):
    """Also one begun by a version that did not keep the prices."""
    x = np.random.default_rng(5).random((ROWS, 2)).tolist()
    with Service(tmp_path / "data") as service:
        first = service.finished(service.submit(cost={"type": "points", "x": x, "y": x}))
        spec = gated_job(gate, ROWS, SEARCHING)
        job_id = service.submit(**spec, warm_start={"job": first.id})
        folder = Folder(service.store.folder(job_id))
        gate.wait_for_readers()
        with pytest.raises(HttpProblem, match="uses"):
            service.store.delete(first.id)
        service.store.request_cancel(job_id, "graceful")
        assert service.finished(job_id).state == "cancelled"
        assert folder.checkpoint.exists()
        service.store.delete(first.id)
        assert folder.start.exists()
        if not kept:
            shutil.rmtree(folder.start)
        gate.open()
        service.store.resume(job_id)
        job = service.finished(job_id)
        assert (job.state, job.result["stats"]["resumed"]) == ("succeeded", 1), job.problem
        assert job.result["objective"] == pytest.approx(whole.fun)
        until(lambda: not folder.start.exists())


def test_progress_comes_at_least_once_a_second(tmp_path, gate, clock, monkeypatch):
    """A second of the worker's clock, while the solve is stuck in a read."""
    monkeypatch.setattr(worker, "time", clock)
    with Service(tmp_path / "data", heartbeat_s=1.0) as service:
        job_id = service.submit(**gated_job(gate, ROWS, SEARCHING))
        gate.wait_for_readers()

        def told():
            return [e.data for e in service.store.events(job_id) if e.kind == "progress"]

        for count in range(1, 5):
            assert len(told()) == count - 1
            clock.sleep(1.0)
            until(lambda count=count: len(told()) == count)
        gate.open_for(2)
        service.store.request_cancel(job_id, "graceful")
        service.finished(job_id)
        assert len(told()) == 5
        wanted = {
            "phase",
            "epsilon",
            "assigned",
            "rows_evaluated",
            "rows_scanned",
            "cache_hit",
            "lower_bound",
            "upper_bound",
            "gap",
            "eta_s",
            "seconds",
        }
        assert all(wanted <= set(data) for data in told())
        assert told()[0]["phase"] == 2


def test_a_stopped_service_goes_on_with_its_jobs(tmp_path, gate, whole):
    with Service(tmp_path / "data") as service:
        job_id = service.submit(**gated_job(gate, ROWS, SEARCHING))
        gate.wait_for_readers()
        service.supervisor.stop()
        later = service.submit()
        job = service.store.get(job_id)
        assert (job.state, job.failures) == ("interrupted", 0)
        assert job.problem["type"].endswith(":server-stopped")
        assert job.active
    gate.open()
    with Service(tmp_path / "data") as service:
        job = service.finished(job_id)
        assert (job.state, job.attempt) == ("succeeded", 2)
        np.testing.assert_array_equal(service.array(job, "v"), whole.v)
        assert job.result["stats"]["resumed"] == 1
        assert service.finished(later).state == "succeeded"


def test_attempts_share_the_time_limit(tmp_path, gate, clock, monkeypatch):
    # Far ahead of the supervisor's: whatever is to be tried again is due.
    monkeypatch.setattr(store, "time", SimpleNamespace(time=lambda: 2**32 + clock()))
    spec = gated_job(gate, ROWS, SEARCHING, time_limit_s=2.0)
    with Service(tmp_path / "data") as service:
        job_id = service.submit(**spec)
        gate.wait_for_readers()
        clock.sleep(0.75)
        gate.open_for(2)  # who puts the answer together: the clock stands
        service.supervisor.stop()
        assert service.store.get(job_id).spent == 0.75
    gate.shut()
    with Service(tmp_path / "data") as service:
        gate.wait_for_readers()
        until(lambda: service.store.get(job_id).state == "running")
        gate.open_for(2)
        clock.sleep(1.3)  # 2.05 with what was spent before
        job = service.finished(job_id)
        assert (job.state, job.result["status"]) == ("succeeded", "time_limit")
        assert job.result["stats"]["seconds"]["total"] == pytest.approx(1.3)


class Unreachable(InlineExecutor):
    """Cannot be started at first, as when the scheduler is not there yet."""

    def __init__(self):
        super().__init__(1)
        self.there, self.tried = False, 0

    def start(self, listener):
        self.tried += 1
        if not self.there:
            raise ConnectionRefusedError("nobody listens")
        super().start(listener)


def test_jobs_wait_for_workers_that_cannot_be_reached_yet(tmp_path):
    executor = Unreachable()
    with Service(tmp_path / "data", executor) as service:
        job_id, other = service.submit(), service.submit()
        until(lambda: executor.tried >= 2)
        assert service.supervisor.alive
        assert not service.supervisor.ready()
        assert service.store.get(job_id).state == "queued"
        service.store.request_cancel(other, "now")
        executor.there = True
        assert service.finished(job_id).state == "succeeded"
        assert service.supervisor.ready()
        assert service.store.get(other).state == "cancelled"


class Losing(InlineExecutor):
    """Loses the first ``times`` attempts of every job, as a killed worker would."""

    def __init__(self, times):
        super().__init__(2)
        self.times, self.orders = times, []

    def submit(self, order: Order):
        self.orders.append(order.key)
        if order.attempt <= self.times:
            self._listener(Report(*order.key, why="killed"))
        else:
            super().submit(order)


def test_a_lost_worker_is_replaced(tmp_path):
    executor = Losing(2)
    with Service(tmp_path / "data", executor) as service:
        job = service.finished(service.submit())
        assert (job.state, job.attempt, job.failures) == ("succeeded", 3, 0)
        states = [
            (e.data["state"], e.data["attempt"]) for e in service.store.events(job.id) if e.kind == "state"
        ]
        assert ("interrupted", 1) in states
        assert ("interrupted", 2) in states
    assert executor.orders == [(job.id, 1), (job.id, 2), (job.id, 3)]


def test_a_job_that_an_error_keeps_from_its_worker_is_tried_again(tmp_path, monkeypatch):
    real, errors = Supervisor._job_settings, iter([StoreUnavailable("the job table cannot be read")])

    def settings(self, job):
        for error in errors:
            raise error
        return real(self, job)

    monkeypatch.setattr(Supervisor, "_job_settings", settings)
    with Service(tmp_path / "data") as service:
        job = service.finished(service.submit())
        assert (job.state, job.attempt, job.failures) == ("succeeded", 2, 0)


def test_a_job_that_kills_its_workers_is_given_up(tmp_path):
    with Service(tmp_path / "data", Losing(10), attempts=2) as service:
        job_id = service.submit()
        job = service.finished(job_id)
        assert (job.state, job.attempt, job.failures, job.active) == ("failed", 2, 2, False)
        assert job.problem["type"].endswith(":worker-lost")
        assert "2 times in a row" in job.problem["detail"]
        service.executor.times = 0
        service.store.resume(job_id)
        assert service.finished(job_id).state == "succeeded"


def full_disk(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_interrupts_with_the_reason_and_then_fails(tmp_path, monkeypatch):
    now = [time.time()]  # of the table, which stands: until the test moves it nothing is tried again
    monkeypatch.setattr(store, "time", SimpleNamespace(time=lambda: now[0]))
    with Service(tmp_path / "data", attempts=3) as service:
        with monkeypatch.context() as patch:
            patch.setattr(worker.np, "save", full_disk)
            job_id = service.submit()
            job = service.reaches(job_id, "interrupted", "failed")
            assert job.state == "interrupted"
            assert job.problem["type"].endswith(":disk-full")
            assert job.active
            now[0] += 2.0**32
            job = service.finished(job_id)
            assert (job.state, job.attempt, job.active) == ("failed", 3, False)
            assert job.problem["detail"] == "the disk is full: a file cannot be written, 3 times in a row"
            now[0] = time.time()
            later = service.submit()
            service.reaches(later, "interrupted")
        now[0] += 2.0**32
        # With space again it goes on by itself; what was given up, when asked to.
        assert service.supervisor.alive
        assert service.finished(later).state == "succeeded"
        service.store.resume(job_id)
        assert service.finished(job_id).state == "succeeded"


@pytest.mark.parametrize("mode", ["graceful", "now"])
def test_a_full_disk_keeps_no_job_from_being_cancelled(tmp_path, gate, monkeypatch, mode):
    with Service(tmp_path / "data") as service:
        job_id = service.submit(**gated_job(gate, ROWS, SEARCHING))
        gate.wait_for_readers()
        service.reaches(job_id, "running")
        monkeypatch.setattr(control, "write_json", full_disk)
        service.store.request_cancel(job_id, mode)
        folder = Folder(service.store.folder(job_id))
        if mode == "now":
            until(lambda: folder.commanded(1) == "fenced")
        gate.open()
        assert service.finished(job_id).state == "cancelled"


def test_a_table_that_cannot_be_written_is_written_later(tmp_path):
    with Service(tmp_path / "data") as service:
        job_id = service.submit()
        service.finished(job_id)
        db = service.store._writer
        other = service.submit(label="x" * 200)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        time.sleep(0.5)
        assert service.supervisor.alive
        db.execute("PRAGMA max_page_count = 1000000")
        assert service.finished(other).state == "succeeded"


def test_an_orphan_is_watched_and_never_doubled(tmp_path):
    """A worker that outlives its server is waited for; its outcome is the job's."""
    with Service(tmp_path / "data", Losing(0)) as service:
        service.supervisor.stop()
        job_id = service.submit()
        claimed = service.store.claim()
        assert claimed.id == job_id
    folder = Folder(tmp_path / "data" / "jobs" / job_id)
    folder.command(1, "run")
    assert folder.begin(1)
    lock = FileLock(folder.lock)
    assert lock.take()
    executor = Losing(0)
    with Service(tmp_path / "data", executor) as service:
        other = service.submit()
        service.finished(other)
        service.reaches(job_id, "running")
        assert [job for job, _ in executor.orders] == [other]
        folder.end(1, {"state": "succeeded", "result": {"attempt": 1, "status": "optimal"}})
        lock.release()
        job = service.finished(job_id)
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert [job for job, _ in executor.orders] == [other]


def test_an_orphan_that_died_is_replaced_at_once(tmp_path):
    with Service(tmp_path / "data", Losing(0)) as service:
        service.supervisor.stop()
        job_id = service.submit()
        service.store.claim()
        service.store.update(job_id, attempt=1, state="running")
    folder = Folder(tmp_path / "data" / "jobs" / job_id)
    folder.command(1, "run")
    folder.begin(1)
    with Service(tmp_path / "data", Losing(0)) as service:
        job = service.finished(job_id)
        assert (job.state, job.attempt, job.failures) == ("succeeded", 2, 0)
        # The old order turns up late at some worker: it must not run.
        outcome = worker.run_job(Order(job_id, 1, folder, job.spec, {}))
        assert outcome == {"state": "stale"}


def test_the_time_without_a_server_is_not_the_jobs(tmp_path, monkeypatch):
    now = [2.0**32]  # far ahead of the supervisor's: whatever is to be tried again is due
    monkeypatch.setattr(store, "time", SimpleNamespace(time=lambda: now[0]))
    with Service(tmp_path / "data", Losing(0)) as service:
        service.supervisor.stop()
        job_id = service.submit(options={"time_limit_s": 60.0})
        service.store.claim()
        now[0] += 3.0
        service.store.update(job_id, attempt=1, state="running")
    folder = Folder(tmp_path / "data" / "jobs" / job_id)
    folder.command(1, "run")
    folder.begin(1)
    folder.report(1, {}, [])
    now[0] += 3600.0
    with Service(tmp_path / "data", Losing(0)) as service:
        job = service.finished(job_id)
        assert (job.state, job.attempt, job.spent) == ("succeeded", 2, 3.0)


def test_a_look_at_a_lock_changes_nothing(tmp_path):
    """Neither the name of who held it last, which people and tests kill by, nor who may have it."""
    folder = Folder(tmp_path)
    assert not folder.locked()
    assert not folder.lock.exists()
    held_by = folder.lock.with_suffix(".pid")
    folder.lock.touch()
    held_by.write_text("12345\n")
    assert not folder.locked()
    assert held_by.read_text() == "12345\n"
    lock = FileLock(folder.lock)
    assert lock.take()
    assert folder.locked()
    assert folder.locked()
    assert held_by.read_text() == f"{os.getpid()}\n"
    other = threading.Thread(target=lock.release)  # not the one that has taken it
    other.start()
    other.join()
    assert not folder.locked()
    assert lock.take()
    lock.release()


def test_two_runs_of_one_attempt_do_not_both_run(tmp_path):
    folder = Folder(tmp_path / "job")
    folder.command(1, "run")
    settings = load(data=tmp_path).model_dump(mode="json")
    assert worker.run_job(Order("job", 1, folder, request(), settings))["state"] == "succeeded"
    again = worker.run_job(Order("job", 1, folder, request(), settings))
    assert (again["state"], again["slug"]) == ("interrupted", "worker-lost")


def test_a_new_attempt_waits_for_the_old_ones_process(tmp_path):
    folder = Folder(tmp_path / "job")
    folder.command(2, "run")
    lock = FileLock(folder.lock)
    assert lock.take()
    settings = load(data=tmp_path).model_dump(mode="json")
    found = []
    thread = threading.Thread(
        target=lambda: found.append(worker.run_job(Order("job", 2, folder, request(), settings)))
    )
    thread.start()
    time.sleep(0.5)
    assert found == []
    lock.release()
    thread.join(HANG_S)
    assert found[0]["state"] == "succeeded"


def test_what_begins_anew_gets_the_time_that_is_left(monkeypatch, tmp_path):
    """A solve and a ranking may find only after a while that their checkpoints are of other costs."""
    limits, clock, folder = {}, Clock(), Folder(tmp_path / "job")

    def late(name, real):
        def call(*args, **given):
            limits.setdefault(name, []).append(given["time_limit"])
            if name != "solve" and len(limits[name]) == 1:
                clock.sleep(100.0)
                raise bigsap.CheckpointError("of other costs")
            return real(*args, **given)

        return call

    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(ranking, "best_after", late("rank", ranking.best_after))
    for name in ("solve", "resume"):
        monkeypatch.setattr(bigsap, name, late(name, getattr(bigsap, name)))
    folder.command(1, "run")
    folder.checkpoint.touch()
    settings = load(data=tmp_path).model_dump(mode="json")
    spec = request(k_best=2, options={"time_limit_s": 1000})
    outcome = worker.run_job(Order("job", 1, folder, spec, settings))
    assert (outcome["state"], outcome["result"]["k_best"]["count"]) == ("succeeded", 2)
    assert limits == {"resume": [1000], "solve": [900], "rank": [900, 800]}
