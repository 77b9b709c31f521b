"""Job table: SQLite in WAL mode in the data directory, the authoritative state of every job.

One server process owns the directory (``lock`` is held, which the system releases
when the process dies; WAL requires a local file system anyway). Within
it any thread may call a ``JobStore``; writes are serialised, reads use a separate connection
and never wait for a write.

``model.STATES`` has the states of a job and the steps between them. ``attempt`` counts claims; a
write on behalf of an attempt names it, and is refused once another attempt has begun.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from bigsap.system import replace as replace_file
from bigsap_server.jobs import control, sql
from bigsap_server.jobs.events import Changes, Recent
from bigsap_server.jobs.files import FileLock
from bigsap_server.jobs.model import (
    FINISHED,
    RUNNING,
    STATES,
    Answer,
    ArrayInUse,
    DirectoryBusy,
    JobEvent,
    JobInUse,
    JobRow,
    Row,
    StaleAttempt,
    StoreUnavailable,
    UnderWay,
    WrongState,
    canonical,
    is_active,
)


class JobStore:
    """The job table at ``path``; see the module. Methods block, but only for milliseconds.

    Every change of a job is one transaction, durable (``synchronous=FULL``) when
    the method returns, and followed by a call of the ``on_change`` callbacks with its id.
    Methods raise StoreUnavailable when the disk is full or failing; the table is then
    as it was before the call.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.data = self.path.parent
        self.data.mkdir(parents=True, exist_ok=True)
        self._lock_file = FileLock(self.data / "lock")
        if not self._lock_file.take():
            raise DirectoryBusy(f"another server owns {self.data}")
        self.recent = Recent()
        self._callbacks: list[Callable[[str], None]] = []
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        try:
            self._writer = sql.connect(self.path)
            sql.prepare(self._writer, self.path)
            self._reader = sql.connect(self.path)
            control.sweep(self.data / "jobs", self.known())
            sql.reserve(self._writer)
            with suppress(StoreUnavailable), self._write() as (db, changes):
                sql.fail_forgotten(db, changes)
        except BaseException:
            self._lock_file.release()
            raise

    def close(self) -> None:
        """Close the connections and release the directory. Harmless twice."""
        with self._write_lock, self._read_lock:
            self._writer.close()
            self._reader.close()
            self._lock_file.release()

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(job_id)`` after every committed change, on the thread that made it.

        It must return at once and not raise.
        """
        self._callbacks.append(callback)

    def folder(self, job_id: str) -> Path:
        """Return the job's directory: checkpoint, results, log. It may not exist yet."""
        return self.data / "jobs" / job_id

    def result_file(self, job: JobRow, name: str) -> Path:
        """Return the ``.npy`` file of one result array; those of ``FURTHER_ARRAYS`` may not exist."""
        if job.result is None:
            raise WrongState(f"{job.id} has no result", job.state)
        return self.folder(job.id) / f"result-{job.result['attempt']}" / f"{name}.npy"

    # For clients

    def submit(
        self,
        spec: dict[str, Any],
        *,
        owner: str = "",
        label: str | None = None,
        idempotency_key: str | None = None,
        digest: str | None = None,
        most_active: int | None = None,
        answer: Callable[[JobRow], Answer] | None = None,
        check: Callable[[Row], None] = lambda spec: None,
    ) -> tuple[JobRow, bool]:
        """Return a new queued job and True; or False and the one that ``idempotency_key`` made before.

        digest: of the body as the client sent it; default: of ``spec``. most_active: raise
        QuotaExceeded when the owner has this many active jobs. answer: of a new job with a key,
        stored for ``answer_of``. check: called with the spec of a new job, while nothing can be
        deleted; an exception prevents the job. Raises IdempotencyConflict when the key was used
        with another body.
        """
        text = canonical(spec)
        if digest is None:
            digest = hashlib.sha256(text.encode()).hexdigest()
        with self._write_lock:
            sql.reserve(self._writer)
        with self._write() as (db, changes):
            if (found := sql.made_by(db, owner, idempotency_key, digest)) is not None:
                return found, False
            sql.check_active(db, owner, most_active)
            check(spec)
            row = sql.insert(
                db,
                id=f"job_{secrets.token_hex(8)}",
                owner=owner,
                state="queued",
                created=time.time(),
                label=label,
                spec=text,
                digest=digest,
                idempotency_key=idempotency_key,
                priority=spec.get("priority", 0),
            )
            sql.state_event(db, changes, row)
            job = changes.jobs[row["id"]] = sql.job_of(row)
            if answer is not None and idempotency_key is not None:
                sql.keep_answer(db, job.id, answer(job))
            return job, True

    def keep_answer(self, job_id: str, answer: Answer) -> None:
        """Record the answer to the request that made the job, unless one is recorded."""
        with self._write() as (db, _):
            sql.keep_answer(db, job_id, answer)

    def answer_of(self, job_id: str) -> Answer | None:
        """Return the recorded answer to the request that made the job, if any."""
        with self._read() as db:
            return sql.answer_of(db, job_id)

    def made_by(self, idempotency_key: str, digest: str, owner: str = "") -> JobRow | None:
        """Return the job that ``submit`` would return for the key, if it has made one."""
        with self._read() as db:
            return sql.made_by(db, owner, idempotency_key, digest)

    def get(self, job_id: str, owner: str | None = None) -> JobRow:
        """Return the job. Raises UnknownJob, also when ``owner`` is given and the job is another's."""
        with self._read() as db:
            return sql.job_of(sql.find(db, job_id, owner))

    def page(
        self,
        *,
        state: str | None = None,
        label: str | None = None,
        owner: str | None = None,
        size: int = 50,
        token: str | None = None,
    ) -> tuple[list[JobRow], str | None]:
        """Return up to ``size`` jobs, newest first, and the token of the next page or None."""
        with self._read() as db:
            return sql.page(db, {"state": state, "label": label, "owner": owner}, size, token)

    def request_cancel(self, job_id: str, mode: Literal["graceful", "now"]) -> JobRow:
        """Cancel a job without a worker at once, else request it; ``now`` overrides ``graceful``.

        A cancelled job is returned as it is. Raises WrongState for other finished jobs.
        """
        if mode not in ("graceful", "now"):
            raise ValueError(f"mode must be 'graceful' or 'now', got {mode!r}")
        with self._write() as (db, changes):
            row = sql.find(db, job_id)
            if row["state"] in ("succeeded", "failed"):
                raise WrongState(f"{job_id} has {row['state']} already", row["state"])
            asked = "now" if row["cancel"] == "now" else mode
            if row["state"] == "cancelled" or (row["state"] == "cancelling" and row["cancel"] == asked):
                return sql.job_of(row)
            now = time.time()
            if row["state"] in RUNNING:
                state, finished = "cancelling", None
            else:
                state, finished = "cancelled", now
            return self._set(db, changes, row, state=state, finished=finished, cancel=asked, retry_at=None)

    def resume(
        self, job_id: str, most_active: int | None = None, check: Callable[[Row], None] = lambda spec: None
    ) -> JobRow:
        """Queue the job again, to continue from its checkpoint as a new attempt.

        For interrupted, cancelled and failed jobs, and for succeeded ones that ended
        before they were settled (``time_limit``, ``gap_reached``). Raises WrongState, and
        QuotaExceeded as ``submit``, by the job's owner. check: as of ``submit``.
        """
        with self._write() as (db, changes):
            row = sql.find(db, job_id)
            sql.check_resumable(row)
            sql.check_active(db, row["owner"], most_active, row["number"])
            check(json.loads(row["spec"]))
            return self._set(
                db,
                changes,
                row,
                state="queued",
                finished=None,
                cancel=None,
                problem=None,
                retry_at=None,
                failures=0,
                spent=0.0,
            )

    def delete(self, job_id: str) -> None:
        """Remove record, events and files.

        Raises WrongState while the job is active, JobInUse while an active one starts from it.
        """
        with self._write() as (db, changes):
            row = sql.find(db, job_id)
            if is_active(row["state"], row["retry_at"]):
                raise WrongState(f"{job_id} is {row['state']}: cancel it first", row["state"])
            sql.check_unused(db, job_id, JobInUse)
            db.execute("DELETE FROM job WHERE number = ?", (row["number"],))
            changes.jobs[job_id] = None
            # Move the folder before the commit, so that a crash leaves either everything or a folder whose
            # name shows the deletion to ``sweep``.
            with suppress(FileNotFoundError):
                try:
                    replace_file(self.folder(job_id), control.aside(self.folder(job_id)))
                except PermissionError as error:  # on Windows, while its result is being read
                    raise JobInUse(f"a file of {job_id} is being read; try again") from error
        shutil.rmtree(control.aside(self.folder(job_id)), ignore_errors=True)

    @contextmanager
    def unused(self, array_id: str) -> Iterator[None]:
        """Block submissions and resumptions while an array is deleted, which must be quick.

        Raises ArrayInUse when an active job uses it.
        """
        with self._write_lock:
            with self._read() as db:
                sql.check_unused(db, array_id, ArrayInUse)
            yield

    def events(self, job_id: str, after: int = 0, limit: int = 500) -> list[JobEvent]:
        """Return up to ``limit`` events with a sequence number above ``after``, in order."""
        with self._read() as db:
            return sql.events(db, job_id, after, limit)

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state, zeros included."""
        with self._read() as db:
            rows = db.execute("SELECT state, count(*) FROM job GROUP BY state").fetchall()
        return dict.fromkeys(STATES, 0) | {row[0]: row[1] for row in rows}

    # For the supervisor

    def held(self, most: Callable[[str], int | None]) -> int:
        """Return how many queued jobs wait because their owner has ``most(owner)`` running ones."""
        with self._read() as db:
            return sql.count_held(db, sql.full(db, most))

    def claim(self, most: Callable[[str], int | None] = lambda owner: None) -> JobRow | None:
        """Take the job that is next, as ``starting`` with its attempt incremented.

        most: running jobs of an owner at a time; None: no limit.
        """
        with self._write() as (db, changes):
            row = sql.claim(db, time.time(), sql.full(db, most))
            if row is None:
                return None
            sql.state_event(db, changes, row)
            job = changes.jobs[row["id"]] = sql.job_of(row)
            return job

    def running(self) -> list[JobRow]:
        """Return the jobs that a worker has or is being assigned, oldest first."""
        with self._read() as db:
            return sql.running(db)

    def under_way(self) -> list[UnderWay]:
        """Return ids and flags of the jobs that ``running`` returns."""
        with self._read() as db:
            return sql.under_way(db)

    def update(
        self,
        job_id: str,
        *,
        attempt: int,
        state: str | None = None,
        progress: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
        problem: dict[str, Any] | None = None,
        retry_at: float | None = None,
        failures: int | None = None,
        log: str | None = None,
    ) -> JobRow:
        """Record a report of attempt ``attempt``; counts as its heartbeat.

        ``running`` does not override ``cancelling``. Raises StaleAttempt when the attempt is
        not the job's present one, or has ended, and UnknownJob.
        """
        now = time.time()
        with self._write() as (db, changes):
            row = sql.find(db, job_id)
            if row["attempt"] != attempt or row["state"] not in RUNNING:
                raise StaleAttempt(f"attempt {attempt} of {job_id} is over")
            new: Row = {"heartbeat": now}
            if state == "running" and row["state"] == "cancelling":
                state = None
            if state is not None and state != row["state"]:
                new["state"] = state
                if state in FINISHED:
                    new["finished"] = now
            if state in (*FINISHED, "interrupted"):
                new |= {"retry_at": retry_at, "spent": row["spent"] + now - row["attempt_started"]}
                new["problem"] = None if problem is None else canonical(problem)
            if failures is not None:
                new["failures"] = failures
            if result is not None:
                new["result"] = canonical(result)
            if progress is not None:
                new["progress"] = canonical(progress)
                sql.add_event(db, changes, row, "progress", progress, now)
            if log is not None:
                sql.add_event(db, changes, row, "log", {"message": log}, now)
            return self._set(db, changes, row, **new)

    def known(self) -> set[str]:
        """Return all job ids."""
        with self._read() as db:
            return {row[0] for row in db.execute("SELECT id FROM job")}

    # Internal

    def _set(self, db: sqlite3.Connection, changes: Changes, row: sqlite3.Row, **new: Any) -> JobRow:
        """Write ``new`` into the row of a running transaction."""
        names = ", ".join(f"{name} = :{name}" for name in new)
        after = db.execute(
            f"UPDATE job SET {names}, version = version + 1 WHERE number = :row_number RETURNING *",
            {**new, "row_number": row["number"]},
        ).fetchone()
        if after["state"] != row["state"]:
            sql.state_event(db, changes, after, row["state"])
        job = changes.jobs[after["id"]] = sql.job_of(after)
        return job

    @contextmanager
    def _write(self) -> Iterator[tuple[sqlite3.Connection, Changes]]:
        """Run one transaction; afterwards the callbacks, for the jobs among the changes."""
        changes = Changes()
        with self._write_lock:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self._writer, changes
                    # The table must not be read before the recent states are updated: a client that saw its
                    # job end could otherwise read afterwards that it is running.
                    with self._read_lock:
                        self._writer.execute("COMMIT")
                        self.recent.publish(changes)
                except BaseException:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
            except sqlite3.OperationalError as error:
                raise StoreUnavailable(f"the job table cannot be written: {error}") from error
        for job_id in changes.jobs:
            for callback in self._callbacks:
                callback(job_id)

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock:
            try:
                yield self._reader
            except sqlite3.OperationalError as error:
                raise StoreUnavailable(f"the job table cannot be read: {error}") from error
