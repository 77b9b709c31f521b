"""The job table: what is promised to clients, to the supervisor, and after a crash."""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from bigsap_server.files import FileLock
from bigsap_server.jobs import model as jobs
from bigsap_server.jobs import store as jobs_store
from bigsap_server.jobs.store import JobStore
from bigsap_server.problems import HttpProblem

from gate import HANG_S

SPEC = {"cost": {"type": "array", "values": [[1, 2], [2, 1]]}}


@pytest.fixture
def store(tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite")
    yield store
    store.close()


def started(store, **given):
    job, _ = store.submit(SPEC, **given)
    claimed = store.claim()
    assert claimed.id == job.id
    return store.update(job.id, attempt=claimed.attempt, state="running")


def test_a_job_from_submission_to_success(store):
    job, new = store.submit(SPEC, owner="ann", label="first")
    assert new
    assert (job.state, job.attempt, job.owner, job.label) == ("queued", 0, "ann", "first")
    assert job.spec == SPEC
    claimed = store.claim()
    assert (claimed.id, claimed.state, claimed.attempt) == (job.id, "starting", 1)
    assert claimed.started is not None
    assert store.claim() is None
    assert store.update(job.id, attempt=1, state="running").state == "running"
    store.update(job.id, attempt=1, progress={"assigned": 1})
    done = store.update(job.id, attempt=1, state="succeeded", result={"attempt": 1, "bound": 2})
    assert (done.state, done.result["bound"]) == ("succeeded", 2)
    assert done.finished >= done.started >= done.created
    assert not done.active
    kinds = [(event.kind, event.data.get("state")) for event in store.events(job.id)]
    assert kinds == [
        ("state", "queued"),
        ("state", "starting"),
        ("state", "running"),
        ("progress", None),
        ("state", "succeeded"),
    ]
    assert store.get(job.id) == done


def test_versions_and_sequence_numbers_only_grow(store):
    job = started(store)
    versions, last = [job.version], 0
    for k in range(5):
        versions.append(store.update(job.id, attempt=1, progress={"assigned": k}).version)
        new = store.events(job.id, after=last)
        assert [event.seq for event in new] == list(range(last + 1, new[-1].seq + 1))
        last = new[-1].seq
    assert versions == sorted(set(versions))
    assert store.events(job.id, after=last) == []
    assert [event.seq for event in store.events(job.id, limit=2)] == [1, 2]


def test_jobs_are_claimed_in_order_and_once(store):
    ids = [store.submit(SPEC)[0].id for _ in range(40)]
    claimed, lock = [], threading.Lock()

    def claim():
        while (job := store.claim()) is not None:
            with lock:
                claimed.append((job.id, job.attempt))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sorted(claimed) == sorted((job_id, 1) for job_id in ids)
    assert store.counts()["starting"] == 40
    assert store.submit(SPEC)[0].id not in ids


def test_an_idempotency_key_makes_one_job(store):
    first, new = store.submit(SPEC, owner="ann", idempotency_key="k")
    again, repeated = store.submit(SPEC, owner="ann", idempotency_key="k")
    assert new
    assert not repeated
    assert again.id == first.id
    other, new = store.submit(SPEC, owner="bob", idempotency_key="k")
    assert new
    assert other.id != first.id
    with pytest.raises(HttpProblem, match="with another body") as caught:
        store.submit({**SPEC, "label": "x"}, owner="ann", idempotency_key="k")
    assert first.id in str(caught.value)
    assert store.counts()["queued"] == 2


def test_idempotent_submissions_race_to_one_job(store):
    found = []

    def submit():
        found.append(store.submit(SPEC, idempotency_key="k"))

    threads = [threading.Thread(target=submit) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert len({job.id for job, _ in found}) == 1
    assert sum(new for _, new in found) == 1


def test_a_quota_holds_for_resuming_too(store):
    done = started(store, owner="ann")
    store.update(done.id, attempt=1, state="failed", problem={"status": 500})
    store.submit(SPEC, owner="ann")
    with pytest.raises(HttpProblem, match="unfinished jobs are allowed"):
        store.resume(done.id, 1)
    found = []

    def resume():
        try:
            found.append(store.resume(done.id, 2))
        except HttpProblem:
            found.append(None)

    threads = [threading.Thread(target=resume) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sum(job is not None for job in found) == 1
    assert [job.state for job in store.page()[0]] == ["queued", "queued"]


def test_pages_are_newest_first_and_complete(store):
    ids = [store.submit(SPEC, label="even" if k % 2 == 0 else "odd")[0].id for k in range(7)]
    seen, token = [], None
    while True:
        page, token = store.page(size=3, token=token)
        seen += [job.id for job in page]
        store.submit(SPEC, label="late")  # does not disturb later pages
        if token is None:
            break
    assert seen == ids[::-1]
    page, token = store.page(label="odd")
    assert [job.id for job in page] == ids[5::-2]
    assert token is None
    assert store.page(state="running")[0] == []
    for bad in ("x", "*", "MTIz!", "-1", "é", "A" * 200):
        with pytest.raises(HttpProblem, match="page token"):
            store.page(token=bad)


def test_a_queued_job_is_cancelled_at_once_and_never_claimed(store):
    job, _ = store.submit(SPEC)
    assert store.request_cancel(job.id, "graceful").state == "cancelled"
    assert store.request_cancel(job.id, "now").state == "cancelled"
    assert store.claim() is None


def test_cancelling_a_running_job(store):
    job = started(store)
    asked = store.request_cancel(job.id, "graceful")
    assert (asked.state, asked.cancel) == ("cancelling", "graceful")
    assert store.request_cancel(job.id, "graceful").version == asked.version
    assert store.update(job.id, attempt=1, state="running").state == "cancelling"
    assert store.request_cancel(job.id, "now").cancel == "now"
    assert store.request_cancel(job.id, "graceful").cancel == "now"
    done = store.update(job.id, attempt=1, state="cancelled")
    assert done.state == "cancelled"
    job = started(store)
    store.update(job.id, attempt=1, state="succeeded", result={"attempt": 1})
    with pytest.raises(HttpProblem) as caught:
        store.request_cancel(job.id, "now")
    assert (caught.value.slug, caught.value.extra) == ("wrong-state", {"state": "succeeded"})


def test_a_former_attempt_cannot_write(store):
    job = started(store)
    store.update(job.id, attempt=1, state="interrupted", retry_at=0.0, failures=1, problem={"status": 503})
    for news in ({"state": "succeeded"}, {"progress": {}}, {"result": {}}):
        with pytest.raises(jobs.StaleAttempt):
            store.update(job.id, attempt=1, **news)
    again = store.claim()
    assert (again.id, again.attempt, again.failures, again.problem) == (job.id, 2, 1, None)
    with pytest.raises(jobs.StaleAttempt):
        store.update(job.id, attempt=1, state="succeeded")
    assert store.update(job.id, attempt=2, state="running").state == "running"


def test_an_interrupted_job_waits_for_its_time_or_for_resume(store):
    job = started(store)
    problem = {"title": "lost"}
    store.update(job.id, attempt=1, state="interrupted", retry_at=time.time() + 300, problem=problem)
    assert store.claim() is None
    found = store.get(job.id)
    assert found.active
    assert found.problem == problem
    with pytest.raises(HttpProblem, match=f"{job.id} is"):
        store.delete(job.id)
    resumed = store.resume(job.id)
    assert (resumed.state, resumed.problem, resumed.failures) == ("queued", None, 0)
    claimed = store.claim()
    assert claimed.attempt == 2


def test_a_clock_that_is_set_back_keeps_no_job_waiting(store, monkeypatch):
    now = [2e9]
    monkeypatch.setattr(jobs_store, "time", SimpleNamespace(time=lambda: now[0]))
    job = started(store, owner="ann")
    store.update(job.id, attempt=1, state="interrupted", retry_at=now[0] + 4)
    now[0] -= 86_400
    assert store.claim().id == job.id
    # Nor does a key wait until the time of its last turn.
    turns = [store.submit(SPEC, owner=owner)[0].owner for owner in ("bob", "bob", "ann", "bob", "ann")]
    found = []
    for _ in turns:
        now[0] += 1
        found.append(store.claim().owner)
    assert found == ["bob", "ann", "bob", "ann", "bob"]


@pytest.mark.parametrize(
    ("status", "allowed"),
    [("optimal", False), ("infeasible", False), ("time_limit", True), ("gap_reached", True)],
)
def test_what_is_solved_is_not_resumed(store, status, allowed):
    job = started(store)
    store.update(job.id, attempt=1, state="succeeded", result={"attempt": 1, "status": status})
    if allowed:
        assert store.resume(job.id).state == "queued"
    else:
        with pytest.raises(HttpProblem, match=f"{job.id} is"):
            store.resume(job.id)


def test_deleting_removes_record_events_and_files(store):
    job = started(store, idempotency_key="k")
    folder = store.folder(job.id)
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_bytes(b"x")
    store.update(job.id, attempt=1, state="failed", problem={})
    store.delete(job.id)
    assert list((store.data / "jobs").iterdir()) == []
    with pytest.raises(jobs.UnknownJob):
        store.get(job.id)
    with sqlite3.connect(store.path) as db:
        assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)
    db.close()
    assert store.submit(SPEC, idempotency_key="k")[1]


def test_a_crash_within_delete_leaves_all_or_nothing(tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite")
    job = started(store)
    store.update(job.id, attempt=1, state="failed", problem={})
    store.close()
    kept, gone = (tmp_path / "jobs" / f".deleted-{name}" for name in (job.id, "job_gone"))
    for folder in (kept, gone):
        folder.mkdir(parents=True)
        (folder / "checkpoint").write_bytes(b"x")
    store = JobStore(tmp_path / "jobs.sqlite")
    assert (store.folder(job.id) / "checkpoint").exists()
    assert not kept.exists()
    assert not gone.exists()
    store.close()


def test_old_progress_is_thinned_out_and_states_are_kept(store, monkeypatch):
    monkeypatch.setattr(jobs_store, "_MOST_EVENTS", 160)
    seconds = itertools.count(1000.0)
    monkeypatch.setattr(jobs_store, "time", SimpleNamespace(time=lambda: next(seconds)))
    job = started(store)
    for k in range(400):
        store.update(job.id, attempt=1, progress={"assigned": k})
    events = store.events(job.id, limit=10_000)
    assert len(events) <= 162
    assert [event.data["state"] for event in events if event.kind == "state"] == [
        "queued",
        "starting",
        "running",
    ]
    assigned = [event.data["assigned"] for event in events if event.kind == "progress"]
    assert assigned[-20:] == list(range(380, 400))
    assert assigned[0] == 0
    assert max(b - a for a, b in itertools.pairwise(assigned)) <= 40


def test_callbacks_follow_the_commit(store):
    seen = []
    store.on_change(lambda job_id, job: seen.append((job_id, job.state)))
    job, _ = store.submit(SPEC)
    store.claim()
    with pytest.raises(jobs.StaleAttempt):
        store.update(job.id, attempt=7, state="running")
    store.request_cancel(job.id, "now")
    assert seen == [(job.id, "queued"), (job.id, "starting"), (job.id, "cancelling")]


def test_callbacks_see_each_change_once(store):
    """Else a message about a job's end would be sent twice, or never."""
    seen = []

    def next_change(job_id, job):
        if job.state == "cancelling":
            store.update(job_id, attempt=1, state="cancelled")
        elif job.state == "cancelled":
            store.resume(job_id)

    store.on_change(next_change)
    store.on_change(lambda job_id, job: seen.append((job.version, job.state)))
    job = started(store)
    store.request_cancel(job.id, "now")
    assert [state for _, state in sorted(seen)] == [
        "queued",
        "starting",
        "running",
        "cancelling",
        "cancelled",
        "queued",
    ]


def test_a_table_of_another_format_is_refused(tmp_path):
    db = sqlite3.connect(tmp_path / "jobs.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ValueError, match="format 99"):
        JobStore(tmp_path / "jobs.sqlite")


@pytest.mark.parametrize("content", ["no database", "another program's", "a folder"])
def test_a_file_that_is_no_job_table_is_refused(tmp_path, content):
    path, tables = tmp_path / "jobs.sqlite", "SELECT name FROM sqlite_master"
    if content == "a folder":
        path.mkdir()
    elif content == "no database":
        path.write_bytes(b"no database" * 100)
    else:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE job (name TEXT)")
        db.close()
    with pytest.raises((ValueError, jobs.StoreUnavailable), match=r"jobs\.sqlite: "):
        JobStore(path)
    if content == "another program's":
        with sqlite3.connect(path) as db:
            assert db.execute(tables).fetchall() == [("job",)]
        db.close()
    lock = FileLock(tmp_path / "lock")
    assert lock.take()
    lock.release()


def test_a_damaged_table_is_unavailable(store):
    job = started(store)
    store._reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with store.path.open("r+b") as file:
        file.seek(100)
        file.write(b"x" * (store.path.stat().st_size - 100))
    for connection in (store._reader, store._writer):
        connection.execute("PRAGMA cache_size = 0")
        connection.execute("PRAGMA shrink_memory")
    with pytest.raises(jobs.StoreUnavailable, match="cannot be read"):
        store.get(job.id)
    with pytest.raises(jobs.StoreUnavailable, match="cannot be written"):
        store.submit(SPEC)


class _Full:
    """A connection whose commits find a full disk."""

    def __init__(self, db):
        self._db = db

    def __getattr__(self, name):
        return getattr(self._db, name)

    def execute(self, text, *given):
        if text == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(text, *given)


def test_a_locked_table_makes_no_queue_of_requests(store, monkeypatch):
    monkeypatch.setattr(jobs_store, "_PATIENCE_S", 0.01)
    job = store.request_cancel(store.submit(SPEC)[0].id, "now")
    writes = [
        lambda: store.submit(SPEC),
        lambda: store.resume(job.id),
        lambda: store.delete(job.id),
        lambda: store.unused("arr_0").__enter__(),
    ]
    refused = []

    def write():
        for one in writes:
            with pytest.raises(jobs.StoreUnavailable, match="earlier writes"):
                one()
            refused.append(one)

    with store._write():
        other = threading.Thread(target=write)
        other.start()
        other.join(HANG_S)
    assert refused == writes
    assert store.get(job.id) == job


def test_a_deletion_that_cannot_be_recorded_keeps_the_files(store, monkeypatch):
    job = started(store)
    folder = store.folder(job.id)
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_bytes(b"x")
    store.update(job.id, attempt=1, state="failed", problem={})
    monkeypatch.setattr(store, "_writer", _Full(store._writer))
    with pytest.raises(jobs.StoreUnavailable, match="full"):
        store.delete(job.id)
    monkeypatch.undo()
    assert (folder / "checkpoint").exists()
    assert list((store.data / "jobs").iterdir()) == [folder]
    store.delete(job.id)
    assert list((store.data / "jobs").iterdir()) == []


def test_a_full_disk_is_said_so_and_nothing_is_half_written(store):
    job = started(store)
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages}")

    def submit_many():
        for _ in range(1000):
            store.submit({"x": "y" * 10_000})

    with pytest.raises(jobs.StoreUnavailable, match="full"):
        submit_many()
    before = store.counts()
    assert store.get(job.id).state == "running"
    store._writer.execute("PRAGMA max_page_count = 1000000")
    store.submit(SPEC)
    assert store.counts()["queued"] == before["queued"] + 1


CHILD = """
import sys
from bigsap_server.jobs.store import JobStore
from bigsap_server.problems import HttpProblem

from gate import HANG_S
store = JobStore(sys.argv[1])
print("ready", flush=True)
k = 0
while True:
    job, _ = store.submit({"k": k}, idempotency_key=str(k))
    print(job.id, flush=True)
    k += 1
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    path = tmp_path / "jobs.sqlite"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    said = [child.stdout.readline() for _ in range(40)]
    os.kill(child.pid, signal.SIGKILL)
    said += child.stdout.read().splitlines(keepends=True)
    child.wait(HANG_S)
    child.stdout.close()
    ids = [line.strip() for line in said[1:] if line.endswith("\n")]
    store = JobStore(path)
    known = store.known()
    assert set(ids) <= known
    assert len(known) <= len(ids) + 1
    store.close()


def test_the_table_is_never_ahead_of_what_is_kept_in_memory(store, monkeypatch):
    """Who has seen a job end is not told afterwards that it is running."""
    job_id = store.submit(SPEC)[0].id
    store.update(store.claim().id, attempt=1, state="running", log="begun")
    publish, committed = store.recent.publish, threading.Event()

    def late(changes):
        committed.set()
        time.sleep(0.3)
        publish(changes)

    monkeypatch.setattr(store.recent, "publish", late)
    end = {"attempt": 1, "state": "failed", "problem": {}}
    writer = threading.Thread(target=store.update, args=(job_id,), kwargs=end)
    writer.start()
    try:
        assert committed.wait(HANG_S)
        assert store.get(job_id) == store.recent.job(job_id)
        assert store.recent.job(job_id).state == "failed"
    finally:
        writer.join()


def test_what_is_kept_in_memory_is_what_the_table_says(store):
    """Also over more jobs and more events than are kept."""
    ids = [store.submit({**SPEC, "label": str(k)})[0].id for k in range(70)]
    while (claimed := store.claim()) is not None:
        store.update(claimed.id, attempt=1, state="running", log="begun")
    for k in range(100):
        store.update(ids[-1], attempt=1, progress={"assigned": k})
    with pytest.raises(jobs.StaleAttempt):
        store.update(ids[-1], attempt=2, progress={"assigned": -1})
    store.request_cancel(ids[-2], "now")
    store.update(ids[-3], attempt=1, state="failed", problem={})
    store.delete(ids[-3])
    kept = 0
    for job_id in store.known():
        recent = store.recent.job(job_id)
        assert recent in (None, store.get(job_id))
        kept += recent is not None
        for after in (0, 3, 50, 104, 1000):
            found = store.recent.events(job_id, after)
            assert found is None or found == store.events(job_id, after)
    assert 32 < kept <= 64
    assert store.recent.job(ids[-3]) is None
    assert store.recent.events(ids[-3], 0) is None
    assert store.recent.events(ids[-1], 0) is None
    assert len(store.recent.events(ids[-1], 90)) > 5
