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
import math
import os
import re
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from bigsap.system import replace as replace_file
from bigsap_server.files import FileLock, aside
from bigsap_server.jobs import control, sql
from bigsap_server.jobs.events import Changes, Recent
from bigsap_server.jobs.model import (
    ACTIVE,
    FINISHED,
    RUNNING,
    STATES,
    Answer,
    JobEvent,
    JobRow,
    Row,
    StaleAttempt,
    StoreUnavailable,
    UnderWay,
    UnknownJob,
    canonical,
    etag,
    settled,
)
from bigsap_server.jobs.references import references
from bigsap_server.problems import HttpProblem

#: Entity tags of which a job must have one; None: any.
Tags = Collection[str] | None

# Most progress events kept of one job. Older ones are thinned out, so that a convergence plot keeps its
# shape and a solve of a week does not fill the disk.
_MOST_EVENTS = 4000
# Seconds to wait for other writes. If another program locks the table, each of them waits for it.
_PATIENCE_S = 10.0
# A job whose next attempt is further ahead was interrupted before the clock was set back.
_LONGEST_PAUSE_S = 600.0


class JobStore:
    """The job table at ``path``; see the module. Methods block, but only for milliseconds.

    Every change of a job is one transaction, durable (``synchronous=FULL``) when
    the method returns, and followed by a call of the ``on_change`` callbacks.
    Methods raise StoreUnavailable when the disk is full or failing, or the file is damaged; the table is
    then as it was before the call.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.data = self.path.parent
        try:
            self.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"data: cannot use the folder {self.data}: {error.strerror or error}") from error
        self._lock_file = FileLock(self.data / "lock")
        if not self._lock_file.take():
            raise OSError(f"another server owns {self.data}")
        self.recent = Recent()
        self._callbacks: list[Callable[[str, JobRow | None], None]] = []
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        with ExitStack() as opened:
            opened.callback(self._lock_file.release)
            try:
                self._writer = opened.enter_context(closing(sql.connect(self.path)))
                sql.prepare(self._writer, self.path)
                self._reader = opened.enter_context(closing(sql.connect(self.path)))
            except sqlite3.DatabaseError as error:
                raise StoreUnavailable(f"{self.path}: the job table cannot be opened: {error}") from error
            control.sweep(self.data / "jobs", self.known())
            sql.reserve(self._writer)
            opened.pop_all()

    def close(self) -> None:
        """Close the connections and release the directory. Harmless twice."""
        with self._write_lock, self._read_lock:
            self._writer.close()
            self._reader.close()
            self._lock_file.release()

    def on_change(self, callback: Callable[[str, JobRow | None], None]) -> None:
        """Call ``callback(job_id, job)`` after every committed change, on the thread that made it.

        job: as this change left it, whatever has changed since; None: deleted. The callback must return at
        once and not raise.
        """
        self._callbacks.append(callback)

    def folder(self, job_id: str) -> Path:
        """Return the job's directory: checkpoint, results, log. It may not exist yet."""
        return self.data / "jobs" / job_id

    def result_file(self, job: JobRow, name: str) -> Path:
        """Return the ``.npy`` file of one result array; those of ``FURTHER_ARRAYS`` may not exist."""
        if job.result is None:
            raise HttpProblem("wrong-state", f"{job.id} has no result", state=job.state)
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
        HttpProblem ``quota-exceeded`` when the owner has this many active jobs. answer: of a new job
        with a key, stored for ``answer_of``. check: called with the spec of a new job, while nothing can
        be deleted; an exception prevents the job. Raises HttpProblem ``idempotency-conflict`` when the
        key was used with another body.
        """
        text = canonical(spec)
        if digest is None:
            digest = hashlib.sha256(text.encode()).hexdigest()
        with self._writing():
            sql.reserve(self._writer)
        with self._write() as (db, changes):
            if (found := _made_by(db, owner, idempotency_key, digest)) is not None:
                return found, False
            _check_active(db, owner, most_active)
            check(spec)
            job_id = f"job_{secrets.token_hex(8)}"
            row = db.execute(
                "INSERT INTO job (id, owner, state, created, label, spec, digest, idempotency_key, priority)"
                " VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?) RETURNING *",
                (job_id, owner, time.time(), label, text, digest, idempotency_key, spec.get("priority", 0)),
            ).fetchone()
            job = _changed(db, changes, row)
            if answer is not None and idempotency_key is not None:
                _keep_answer(db, job.id, answer(job))
            return job, True

    def keep_answer(self, job_id: str, answer: Answer) -> None:
        """Record the answer to the request that made the job, unless one is recorded."""
        with self._write() as (db, _):
            _keep_answer(db, job_id, answer)

    def answer_of(self, job_id: str) -> Answer | None:
        """Return the recorded answer to the request that made the job, if any."""
        text = "SELECT answer.* FROM answer JOIN job ON job = number WHERE id = ?"
        with self._read() as db:
            row = db.execute(text, (job_id,)).fetchone()
        return None if row is None else Answer(row["status"], json.loads(row["headers"]), row["body"])

    def made_by(self, idempotency_key: str, digest: str, owner: str = "") -> JobRow | None:
        """Return the job that ``submit`` would return for the key, if it has made one."""
        with self._read() as db:
            return _made_by(db, owner, idempotency_key, digest)

    def get(self, job_id: str, owner: str | None = None) -> JobRow:
        """Return the job. Raises UnknownJob, also when ``owner`` is given and the job is another's."""
        with self._read() as db:
            return sql.job_of(_find(db, job_id, owner))

    def page(
        self,
        *,
        state: str | None = None,
        label: str | None = None,
        owner: str | None = None,
        size: int = 50,
        token: str | None = None,
    ) -> tuple[list[JobRow], str | None]:
        """Return up to ``size`` jobs, newest first, and the token of the next page or None.

        The token is the number of the last job. Raises HttpProblem for an invalid one.
        """
        if token is not None and not re.fullmatch("[0-9]{1,18}", token, re.ASCII):
            raise HttpProblem("invalid-spec", "this page token is none that a list of jobs gave out")
        below = None if token is None else int(token)
        wanted = {"state = ?": state, "label = ?": label, "owner = ?": owner, "number < ?": below}
        limits = {text: value for text, value in wanted.items() if value is not None}
        where = " AND ".join(["1", *limits])
        text = f"SELECT * FROM job WHERE {where} ORDER BY number DESC LIMIT ?"
        with self._read() as db:
            rows = db.execute(text, (*limits.values(), size + 1)).fetchall()
        following = str(rows[size - 1]["number"]) if len(rows) > size else None
        return [sql.job_of(row) for row in rows[:size]], following

    def request_cancel(self, job_id: str, mode: Literal["graceful", "now"], tags: Tags = None) -> JobRow:
        """Cancel a job without a worker at once, else request it; ``now`` overrides ``graceful``.

        A cancelled job is returned as it is. Raises HttpProblem ``wrong-state`` for other finished jobs.
        tags: raise HttpProblem ``precondition-failed`` unless the job has one of these entity tags.
        """
        with self._write() as (db, changes):
            row = _find(db, job_id, tags=tags)
            if row["state"] in ("succeeded", "failed"):
                raise HttpProblem("wrong-state", f"{job_id} has {row['state']} already", state=row["state"])
            asked = "now" if row["cancel"] == "now" else mode
            if row["state"] == "cancelled" or (row["state"] == "cancelling" and row["cancel"] == asked):
                return sql.job_of(row)
            running = row["state"] in RUNNING
            state, finished = ("cancelling", None) if running else ("cancelled", time.time())
            return _set(db, changes, row, state=state, finished=finished, cancel=asked, retry_at=None)

    def resume(
        self,
        job_id: str,
        most_active: int | None = None,
        check: Callable[[Row], None] = lambda spec: None,
        tags: Tags = None,
    ) -> JobRow:
        """Queue the job again, to continue from its checkpoint as a new attempt.

        For interrupted, cancelled and failed jobs, and for succeeded ones that ended
        before they were settled (``time_limit``, ``gap_reached``, a ranking cut short). Raises
        HttpProblem: ``wrong-state``, and ``quota-exceeded`` as ``submit``, by the job's owner. check: as of
        ``submit``; tags: as of ``request_cancel``.
        """
        with self._write() as (db, changes):
            row = _find(db, job_id, tags=tags)
            state, spec, result = row["state"], json.loads(row["spec"]), json.loads(row["result"] or "null")
            if state == "succeeded" and settled(result, spec):
                raise HttpProblem("wrong-state", f"{job_id} is solved: {result['status']}", state=state)
            if "queued" not in STATES[state].next:
                raise HttpProblem("wrong-state", f"{job_id} is {state}; nothing to resume", state=state)
            _check_active(db, row["owner"], most_active, row["number"])
            check(spec)
            anew: Row = {"failures": 0, "spent": 0.0}
            anew |= dict.fromkeys(("finished", "cancel", "problem", "retry_at"))
            return _set(db, changes, row, state="queued", **anew)

    def delete(self, job_id: str, ended_before: float = math.inf, tags: Tags = None) -> None:
        """Remove record, events and files.

        Raises HttpProblem: ``wrong-state`` while the job is active, or if it ended after ``ended_before``;
        ``job-in-use`` while an active one starts from it. tags: as of ``request_cancel``.
        """
        folder = self.folder(job_id)
        # Held until a folder whose job could not be deleted is back.
        with self._writing():
            try:
                with self._write() as (db, changes):
                    row = _find(db, job_id, tags=tags)
                    if row["state"] in ACTIVE:
                        raise HttpProblem(
                            "wrong-state", f"{job_id} is {row['state']}: cancel it first", state=row["state"]
                        )
                    if row["finished"] >= ended_before:
                        raise HttpProblem("wrong-state", f"{job_id} has ended anew", state=row["state"])
                    _check_unused(db, job_id, "job-in-use")
                    db.execute("DELETE FROM job WHERE number = ?", (row["number"],))
                    changes.jobs[job_id] = None
                    # Move the folder before the commit, so that a crash leaves either everything or a folder
                    # whose name shows the deletion to ``sweep``.
                    with suppress(FileNotFoundError):
                        replace_file(folder, aside(folder))
            except PermissionError as error:  # on Windows, while its result is being read
                raise HttpProblem("job-in-use", f"a file of {job_id} is being read; try again") from error
            except StoreUnavailable:
                if not folder.exists() and aside(folder).exists():
                    replace_file(aside(folder), folder)
                raise
        shutil.rmtree(aside(folder), ignore_errors=True)

    def expire(self, seconds: float) -> list[str]:
        """Delete jobs that ended so long ago, but those that others start from; return their ids."""
        text = f"SELECT id FROM job WHERE state IN {FINISHED} AND finished < ? ORDER BY number"
        before = time.time() - seconds
        with self._read() as db:
            due = [row[0] for row in db.execute(text, (before,))]
        gone = []
        for job_id in due:
            # In use, resumed or deleted meanwhile, or the table or a file of it is unavailable.
            with suppress(HttpProblem, OSError):
                self.delete(job_id, before)
                gone.append(job_id)
        return gone

    @contextmanager
    def unused(self, array_id: str) -> Iterator[None]:
        """Block submissions and resumptions while an array is deleted, which must be quick.

        Raises HttpProblem ``array-in-use`` when an active job uses it.
        """
        with self._writing():
            with self._read() as db:
                _check_unused(db, array_id, "array-in-use")
            yield

    def events(self, job_id: str, after: int = 0, limit: int = 500) -> list[JobEvent]:
        """Return up to ``limit`` events with a sequence number above ``after``, in order."""
        text = "SELECT seq, time, kind, data FROM event WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?"
        with self._read() as db:
            number = _find(db, job_id, columns="number")["number"]
            rows = db.execute(text, (number, after, limit)).fetchall()
        return [JobEvent(seq, at, kind, json.loads(data)) for seq, at, kind, data in rows]

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state, zeros included."""
        with self._read() as db:
            rows = db.execute("SELECT state, count(*) FROM job GROUP BY state").fetchall()
        return dict.fromkeys(STATES, 0) | {row[0]: row[1] for row in rows}

    # For the supervisor

    def held(self, most: Callable[[str], int | None]) -> int:
        """Return how many queued jobs wait because their owner has ``most(owner)`` running ones."""
        text = "SELECT count(*) FROM job WHERE state = 'queued' AND owner IN (SELECT value FROM json_each(?))"
        with self._read() as db:
            return int(db.execute(text, (_full(db, most),)).fetchone()[0])

    def claim(self, most: Callable[[str], int | None] = lambda owner: None) -> JobRow | None:
        """Take the next due job, as ``starting`` with its attempt incremented; None when none is due.

        Owners take turns: the one whose last attempt began longest ago is next, with the oldest job of
        the highest priority among its own. most: running jobs of an owner at a time; None: no limit.
        Times ahead of now do not count: the clock has been set back.
        """
        with self._write() as (db, changes):
            row = db.execute(
                "UPDATE job SET state = 'starting', attempt = attempt + 1, attempt_started = :now,"
                " started = coalesce(started, :now), finished = NULL,"
                " retry_at = NULL, progress = NULL, problem = NULL, version = version + 1"
                " WHERE number = (SELECT number FROM job AS due WHERE (state = 'queued'"
                "  OR (state = 'interrupted' AND (retry_at <= :now OR retry_at > :now + :pause)))"
                "  AND owner NOT IN (SELECT value FROM json_each(:owners)) ORDER BY"
                "  (SELECT max(attempt_started) FROM job AS begun"
                "   WHERE begun.owner = due.owner AND attempt_started <= :now),"
                "  owner, priority DESC, number LIMIT 1)"
                " RETURNING *",
                {"now": time.time(), "owners": _full(db, most), "pause": _LONGEST_PAUSE_S},
            ).fetchone()
            return None if row is None else _changed(db, changes, row)

    def running(self) -> list[JobRow]:
        """Return the jobs that a worker has or is being assigned, oldest first."""
        with self._read() as db:
            rows = db.execute(f"SELECT * FROM job WHERE state IN {RUNNING} ORDER BY number").fetchall()
        return [sql.job_of(row) for row in rows]

    def under_way(self) -> list[UnderWay]:
        """Return ids and flags of the jobs that ``running`` returns."""
        columns = "id, attempt, state, cancel, failures, json_extract(result, '$.attempt')"
        with self._read() as db:
            rows = db.execute(f"SELECT {columns} FROM job WHERE state IN {RUNNING}").fetchall()
        return [UnderWay(*row) for row in rows]

    def last_event(self, job_id: str) -> float:
        """Return the time of the job's latest event."""
        with self._read() as db:
            number = _find(db, job_id, columns="number")["number"]
            text = "SELECT time FROM event WHERE job = ? ORDER BY seq DESC LIMIT 1"
            return float(db.execute(text, (number,)).fetchone()[0])

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
        until: float | None = None,
    ) -> JobRow:
        """Record a report of attempt ``attempt``. until: when it ended; None: now.

        ``running`` does not override ``cancelling``. Raises StaleAttempt when the attempt is
        not the job's present one, or has ended, and UnknownJob.
        """
        now = time.time()
        with self._write() as (db, changes):
            row = _find(db, job_id)
            if row["attempt"] != attempt or row["state"] not in RUNNING:
                raise StaleAttempt(f"attempt {attempt} of {job_id} is over")
            new: Row = {}
            if state == "running" and row["state"] == "cancelling":
                state = None
            if state is not None and state != row["state"]:
                new["state"] = state
                if state in FINISHED:
                    new["finished"] = now
            if state == "interrupted" and retry_at is None:
                retry_at = now
            if state in (*FINISHED, "interrupted"):
                spent = max(0.0, (now if until is None else until) - row["attempt_started"])
                new |= {"retry_at": retry_at, "spent": row["spent"] + spent}
                new["problem"] = None if problem is None else canonical(problem)
            if failures is not None:
                new["failures"] = failures
            if result is not None:
                new["result"] = canonical(result)
            if progress is not None:
                new["progress"] = canonical(progress)
                _add_event(db, changes, row, "progress", progress, now)
            if log is not None:
                _add_event(db, changes, row, "log", {"message": log}, now)
            return _set(db, changes, row, **new)

    def known(self) -> set[str]:
        with self._read() as db:
            return {row[0] for row in db.execute("SELECT id FROM job")}

    # Internal

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Exclude other writes. Raises StoreUnavailable if they take too long."""
        if not self._write_lock.acquire(timeout=_PATIENCE_S):
            raise StoreUnavailable("the job table cannot be written: earlier writes still wait for it")
        try:
            yield
        finally:
            self._write_lock.release()

    @contextmanager
    def _write(self) -> Iterator[tuple[sqlite3.Connection, Changes]]:
        """Run one transaction; afterwards the callbacks, for the jobs among the changes."""
        changes = Changes()
        with self._writing():
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
            except sqlite3.DatabaseError as error:
                raise StoreUnavailable(f"the job table cannot be written: {error}") from error
        for job_id, job in changes.jobs.items():
            for callback in self._callbacks:
                callback(job_id, job)

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock:
            try:
                yield self._reader
            except sqlite3.DatabaseError as error:
                raise StoreUnavailable(f"the job table cannot be read: {error}") from error


def _find(
    db: sqlite3.Connection, job_id: str, owner: str | None = None, columns: str = "*", tags: Tags = None
) -> sqlite3.Row:
    """Return the row of a job. Raises UnknownJob, also when it is another owner's.

    tags: raises HttpProblem ``precondition-failed`` unless the job has one of these entity tags.
    """
    text = f"SELECT {columns} FROM job WHERE id = ? AND (? IS NULL OR owner = ?)"
    row: sqlite3.Row | None = db.execute(text, (job_id, owner, owner)).fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    if tags is not None and etag(row["version"]) not in tags:
        raise HttpProblem("precondition-failed", f"{job_id} is {row['state']}, and its ETag is another one")
    return row


def _made_by(db: sqlite3.Connection, owner: str, key: str | None, digest: str) -> JobRow | None:
    """Return the job that an idempotency key made. Raises HttpProblem for another body."""
    text = "SELECT * FROM job WHERE owner = ? AND idempotency_key = ?"  # a NULL key equals nothing
    row = db.execute(text, (owner, key)).fetchone()
    if row is not None and row["digest"] != digest:
        raise HttpProblem(
            "idempotency-conflict", f"the idempotency key was used for {row['id']} with another body"
        )
    return None if row is None else sql.job_of(row)


def _full(db: sqlite3.Connection, most: Callable[[str], int | None]) -> str:
    """Return, as JSON, the owners with as many running jobs as ``most`` allows each; None: no limit."""
    rows = db.execute(f"SELECT owner, count(*) FROM job WHERE state IN {RUNNING} GROUP BY owner")
    return json.dumps([owner for owner, count in rows if count >= (most(owner) or math.inf)])


def _check_unused(db: sqlite3.Connection, thing: str, slug: str) -> None:
    """Raise HttpProblem ``slug`` when an active job refers to ``thing``, the id of an array or a job."""
    # All states in one statement, so that a job that changes its state is not missed.
    text = f"SELECT id, spec FROM job WHERE state IN {ACTIVE} AND instr(spec, ?) ORDER BY number"
    for job_id, spec in db.execute(text, (thing,)):
        if thing in references(json.loads(spec)):
            raise HttpProblem(slug, f"{job_id} uses {thing}")


def _check_active(db: sqlite3.Connection, owner: str, most: int | None, number: int | None = None) -> None:
    """Raise HttpProblem when ``owner`` has ``most`` active jobs besides job ``number``."""
    text = f"SELECT count(*) FROM job WHERE owner = ? AND number IS NOT ? AND state IN {ACTIVE}"
    if most is not None and db.execute(text, (owner, number)).fetchone()[0] >= most:
        detail = f"{most} unfinished jobs are allowed; wait for one to end, or cancel one"
        raise HttpProblem("quota-exceeded", detail, quota="active_jobs", limit=most)


def _keep_answer(db: sqlite3.Connection, job_id: str, answer: Answer) -> None:
    text = "INSERT OR IGNORE INTO answer SELECT number, ?, ?, ? FROM job WHERE id = ?"
    db.execute(text, (answer.status, json.dumps(answer.headers), answer.body, job_id))


def _set(db: sqlite3.Connection, changes: Changes, row: sqlite3.Row, **new: Any) -> JobRow:
    """Write ``new`` into the row of a job."""
    names = ", ".join([*(f"{name} = :{name}" for name in new), "version = version + 1"])
    after = db.execute(
        f"UPDATE job SET {names} WHERE number = :row_number RETURNING *", {**new, "row_number": row["number"]}
    ).fetchone()
    return _changed(db, changes, after, row["state"])


def _changed(db: sqlite3.Connection, changes: Changes, row: sqlite3.Row, before: Any = None) -> JobRow:
    """Record that the job is now as in ``row``. before: its former state.

    Raises HttpProblem if that state does not lead to the new one.
    """
    if before != row["state"]:
        if before is not None and row["state"] not in STATES[before].next:
            detail = f"{row['id']} is {before}, which does not lead to {row['state']}"
            raise HttpProblem("wrong-state", detail, state=before)
        data: Row = {"state": row["state"], "attempt": row["attempt"]}
        if row["problem"] is not None and row["state"] in ("failed", "interrupted"):
            data["problem"] = json.loads(row["problem"])
        _add_event(db, changes, row, "state", data, time.time())
    job = changes.jobs[row["id"]] = sql.job_of(row)
    return job


def _add_event(
    db: sqlite3.Connection, changes: Changes, row: sqlite3.Row, kind: str, data: Row, now: float
) -> None:
    """Append an event to the job of ``row``; thin out its old progress when there is much."""
    number = row["number"]
    seq, count = db.execute(
        "UPDATE job SET last_event = last_event + 1, events = events + 1 WHERE number = ?"
        " RETURNING last_event, events",
        (number,),
    ).fetchone()
    db.execute(
        "INSERT INTO event (job, seq, time, kind, data) VALUES (?, ?, ?, ?, ?)",
        (number, seq, now, kind, canonical(data)),
    )
    changes.events.append((row["id"], JobEvent(seq, now, kind, data)))
    if count > _MOST_EVENTS:
        # One per time slot, with half as many slots as events may stay: the remaining ones are spread
        # evenly over the job's life. All recent events stay.
        gone = db.execute(
            "DELETE FROM event WHERE job = :job AND kind <> 'state' AND seq <= :latest"
            " AND seq NOT IN (SELECT min(seq) FROM event WHERE job = :job AND kind <> 'state'"
            "  GROUP BY CAST((time - :start) * :slots AS INTEGER))",
            {
                "job": number,
                "latest": seq - _MOST_EVENTS // 8,
                "start": row["created"],
                "slots": _MOST_EVENTS / 2 / max(now - row["created"], 1e-3),
            },
        ).rowcount
        db.execute("UPDATE job SET events = events - ? WHERE number = ?", (gone, number))
