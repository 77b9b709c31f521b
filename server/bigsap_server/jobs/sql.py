"""SQL of the job table: schema, pages of jobs, and statements shared by several methods."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bigsap_server.jobs.events import Changes
from bigsap_server.jobs.model import (
    RUNNING,
    SETTLED,
    STATES,
    Answer,
    BadPageToken,
    IdempotencyConflict,
    JobEvent,
    JobRow,
    JobStoreError,
    QuotaExceeded,
    Row,
    UnderWay,
    UnknownJob,
    WrongState,
    canonical,
)
from bigsap_server.jobs.references import references

# Most progress events kept of one job. Older ones are thinned out, so that a convergence plot keeps its
# shape and a solve of a week does not fill the disk.
_MOST_EVENTS = 4000

SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    started REAL,
    finished REAL,
    label TEXT,
    spec TEXT NOT NULL,
    digest TEXT NOT NULL,
    idempotency_key TEXT,
    progress TEXT,
    result TEXT,
    problem TEXT,
    cancel TEXT,
    retry_at REAL,
    failures INTEGER NOT NULL DEFAULT 0,
    heartbeat REAL,
    attempt_started REAL,
    spent REAL NOT NULL DEFAULT 0,
    last_event INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1,
    priority INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS job_state ON job (state, number);
CREATE INDEX IF NOT EXISTS job_owner ON job (owner, number);
CREATE INDEX IF NOT EXISTS job_turn ON job (owner, attempt_started);
CREATE UNIQUE INDEX IF NOT EXISTS job_key ON job (owner, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE TABLE IF NOT EXISTS answer (
    job INTEGER PRIMARY KEY REFERENCES job (number) ON DELETE CASCADE,
    status INTEGER NOT NULL,
    headers TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS reserve (bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS event (
    job INTEGER NOT NULL REFERENCES job (number) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
"""
VERSION = 1
_RESERVE_PAGES = 256


_RUNNING = f"state IN {RUNNING}"
ACTIVE = f"({_RUNNING} OR state = 'queued' OR (state = 'interrupted' AND retry_at IS NOT NULL))"
_PLAIN = (
    "id",
    "owner",
    "state",
    "attempt",
    "created",
    "started",
    "finished",
    "label",
    "cancel",
    "version",
    "retry_at",
    "failures",
    "heartbeat",
    "spent",
)
_JSON = ("spec", "progress", "result", "problem")


def job_of(row: sqlite3.Row) -> JobRow:
    """Return the record of a row."""
    values: Row = {key: row[key] for key in _PLAIN}
    for key in _JSON:
        values[key] = None if row[key] is None else json.loads(row[key])
    return JobRow(**values)


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection in WAL mode whose transactions are begun explicitly."""
    db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    # Early checkpoints keep the write-ahead log short, and it is overwritten from its beginning.
    db.execute(f"PRAGMA wal_autocheckpoint = {_RESERVE_PAGES}")
    return db


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create missing tables. Raises JobStoreError for those of another version."""
    db.executescript(SCHEMA)
    if "priority" not in (row["name"] for row in db.execute("PRAGMA table_info(job)")):
        db.execute("ALTER TABLE job ADD COLUMN priority INTEGER NOT NULL DEFAULT 0")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, VERSION):
        raise JobStoreError(f"{path}: the job table has format {version}, this server reads format {VERSION}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def fail_forgotten(db: sqlite3.Connection, changes: Changes) -> None:
    """Set jobs to failed that an older version left interrupted permanently."""
    rows = db.execute(
        "UPDATE job SET state = 'failed', finished = coalesce(heartbeat, ?), version = version + 1"
        " WHERE state = 'interrupted' AND retry_at IS NULL RETURNING *",
        (time.time(),),
    ).fetchall()
    for row in rows:
        state_event(db, changes, row)
        changes.jobs[row["id"]] = job_of(row)


def reserve(db: sqlite3.Connection) -> None:
    """Keep free pages in the file, so that a full disk can be recorded although it is full.

    Also extends the log to its final length. Does nothing if there are enough pages, and
    as much as it can if the disk has too little space.
    """
    free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
    if free >= _RESERVE_PAGES:
        return
    with suppress(sqlite3.OperationalError):
        # Two transactions: pages that one takes and returns are never written.
        db.execute("INSERT INTO reserve VALUES (zeroblob(?))", (2 * _RESERVE_PAGES * size,))
        db.execute("DELETE FROM reserve")


def find(db: sqlite3.Connection, job_id: str, owner: str | None = None, columns: str = "*") -> sqlite3.Row:
    """Return the row of a job. Raises UnknownJob, also when it is another owner's."""
    row: sqlite3.Row | None = db.execute(
        f"SELECT {columns} FROM job WHERE id = ? AND (? IS NULL OR owner = ?)", (job_id, owner, owner)
    ).fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return row


def made_by(db: sqlite3.Connection, owner: str, key: str | None, digest: str) -> JobRow | None:
    """Return the job that an idempotency key made. Raises IdempotencyConflict for another body."""
    row = db.execute(
        "SELECT * FROM job WHERE owner = ? AND idempotency_key = ?", (owner, key)
    ).fetchone()  # a NULL key equals nothing
    if row is None:
        return None
    if row["digest"] != digest:
        raise IdempotencyConflict(row["id"])
    return job_of(row)


def insert(db: sqlite3.Connection, **values: Any) -> sqlite3.Row:
    """Insert a new job with these columns."""
    names = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    row: sqlite3.Row = db.execute(
        f"INSERT INTO job ({names}) VALUES ({places}) RETURNING *", values
    ).fetchone()
    return row


def full(db: sqlite3.Connection, most: Callable[[str], int | None]) -> str:
    """Return, as JSON, the owners with as many running jobs as ``most`` allows each; None: no limit."""
    rows = db.execute(f"SELECT owner, count(*) FROM job WHERE {_RUNNING} GROUP BY owner")
    return json.dumps([owner for owner, count in rows if count >= (most(owner) or math.inf)])


def count_held(db: sqlite3.Connection, owners: str) -> int:
    """Return how many queued jobs wait for the limit of their owner. owners: from ``full``."""
    text = "SELECT count(*) FROM job WHERE state = 'queued' AND owner IN (SELECT value FROM json_each(?))"
    return int(db.execute(text, (owners,)).fetchone()[0])


def claim(db: sqlite3.Connection, now: float, owners: str = "[]") -> sqlite3.Row | None:
    """Set the next due job to ``starting`` and return it; None when none is due.

    Owners take turns: the one whose last attempt began longest ago is next, with the oldest job of
    the highest priority among its own. owners: those that must wait, from ``full``.
    """
    row: sqlite3.Row | None = db.execute(
        "UPDATE job SET state = 'starting', attempt = attempt + 1, attempt_started = :now,"
        " heartbeat = :now, started = coalesce(started, :now), finished = NULL,"
        " retry_at = NULL, progress = NULL, problem = NULL, version = version + 1"
        " WHERE number = (SELECT number FROM job AS due WHERE (state = 'queued'"
        "  OR (state = 'interrupted' AND retry_at <= :now))"
        "  AND owner NOT IN (SELECT value FROM json_each(:owners)) ORDER BY"
        "  (SELECT max(attempt_started) FROM job AS begun WHERE begun.owner = due.owner),"
        "  owner, priority DESC, number LIMIT 1)"
        " RETURNING *",
        {"now": now, "owners": owners},
    ).fetchone()
    return row


def running(db: sqlite3.Connection) -> list[JobRow]:
    """Return the jobs that a worker has or is being assigned, oldest first."""
    return [job_of(row) for row in db.execute(f"SELECT * FROM job WHERE {_RUNNING} ORDER BY number")]


def under_way(db: sqlite3.Connection) -> list[UnderWay]:
    """Return ids and flags of the jobs that ``running`` returns."""
    rows = db.execute(
        "SELECT id, attempt, state, cancel, failures, json_extract(result, '$.attempt') FROM job"
        f" WHERE {_RUNNING}"
    )
    return [UnderWay(*row) for row in rows]


def check_resumable(row: sqlite3.Row) -> None:
    """Raise WrongState for a job that is solved or still active."""
    job_id, state = row["id"], row["state"]
    if state == "succeeded":
        status = json.loads(row["result"] or "{}").get("status")
        if status in SETTLED:
            raise WrongState(f"{job_id} is solved: {status}", state)
    elif state not in ("interrupted", "cancelled", "failed"):
        raise WrongState(f"{job_id} is {state}; nothing to resume", state)


def check_unused(db: sqlite3.Connection, thing: str, error: type[JobStoreError]) -> None:
    """Raise ``error`` when an active job refers to ``thing``, the id of an array or a job."""
    rows = db.execute(
        # All states in one statement, so that a job that changes its state is not missed.
        f"SELECT id, spec FROM job WHERE {ACTIVE} AND instr(spec, ?) ORDER BY number",
        (thing,),
    )
    for row in rows:
        if thing in references(json.loads(row["spec"])):
            raise error(f"{row['id']} uses {thing}")


def events(db: sqlite3.Connection, job_id: str, after: int, limit: int) -> list[JobEvent]:
    """Return up to ``limit`` events of a job with a sequence number above ``after``, in order."""
    number = find(db, job_id, columns="number")["number"]
    rows = db.execute(
        "SELECT seq, time, kind, data FROM event WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?",
        (number, after, limit),
    ).fetchall()
    return [JobEvent(r["seq"], r["time"], r["kind"], json.loads(r["data"])) for r in rows]


def keep_answer(db: sqlite3.Connection, job_id: str, answer: Answer) -> None:
    """Record the answer to the request that made the job, unless one is recorded."""
    db.execute(
        "INSERT OR IGNORE INTO answer SELECT number, ?, ?, ? FROM job WHERE id = ?",
        (answer.status, json.dumps(answer.headers), answer.body, job_id),
    )


def answer_of(db: sqlite3.Connection, job_id: str) -> Answer | None:
    """Return the answer recorded by ``keep_answer``, if any."""
    row = db.execute(
        "SELECT answer.* FROM answer JOIN job ON job = number WHERE id = ?", (job_id,)
    ).fetchone()
    return None if row is None else Answer(row["status"], json.loads(row["headers"]), row["body"])


def check_active(db: sqlite3.Connection, owner: str, most: int | None, number: int | None = None) -> None:
    """Raise QuotaExceeded when ``owner`` has ``most`` active jobs besides job ``number``."""
    if most is None:
        return
    row = db.execute(
        f"SELECT count(*) FROM job WHERE owner = ? AND number IS NOT ? AND {ACTIVE}", (owner, number)
    )
    if row.fetchone()[0] >= most:
        raise QuotaExceeded(most)


def state_event(db: sqlite3.Connection, changes: Changes, row: sqlite3.Row, before: Any = None) -> None:
    """Record that the job is now in the state of ``row``. Raises WrongState where none leads to it."""
    if before is not None and row["state"] not in STATES[before].next:
        raise WrongState(f"{row['id']} is {before}, which does not lead to {row['state']}", before)
    data: Row = {"state": row["state"], "attempt": row["attempt"]}
    if row["problem"] is not None and row["state"] in ("failed", "interrupted"):
        data["problem"] = json.loads(row["problem"])
    add_event(db, changes, row, "state", data, time.time())


def add_event(
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


def page(
    db: sqlite3.Connection, wanted: dict[str, str | None], size: int, token: str | None
) -> tuple[list[JobRow], str | None]:
    """Return up to ``size`` jobs, newest first, and the token of the next page or None.

    wanted: required values of columns; None: any. Raises BadPageToken.
    """
    limits, values = ["1"], list[Any]()
    for name, value in wanted.items():
        if value is not None:
            limits.append(f"{name} = ?")
            values.append(value)
    if token is not None:
        limits.append("number < ?")
        values.append(number_of(token))
    rows = db.execute(
        f"SELECT * FROM job WHERE {' AND '.join(limits)} ORDER BY number DESC LIMIT ?", (*values, size + 1)
    ).fetchall()
    following = token_of(rows[size - 1]["number"]) if len(rows) > size else None
    return [job_of(row) for row in rows[:size]], following


def token_of(number: int) -> str:
    """Return the page token that continues below job ``number``."""
    return urlsafe_b64encode(str(number).encode()).decode().rstrip("=")


def number_of(token: str) -> int:
    """Return the job number of a page token. Raises BadPageToken."""
    try:
        text = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
        if not text.isdigit() or len(text) > 18 or token_of(int(text)) != token:
            raise ValueError
        return int(text)
    except ValueError as error:
        raise BadPageToken("this page token is none that a list of jobs gave out") from error
