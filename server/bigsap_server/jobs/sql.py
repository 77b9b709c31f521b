"""The job table in SQLite: schema, connections, and rows as records."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from bigsap_server.jobs.model import JobRow

SCHEMA = """
CREATE TABLE job (
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
    attempt_started REAL,
    spent REAL NOT NULL DEFAULT 0,
    last_event INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1,
    priority INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX job_state ON job (state, number);
CREATE INDEX job_owner ON job (owner, number);
CREATE INDEX job_turn ON job (owner, attempt_started);
CREATE UNIQUE INDEX job_key ON job (owner, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE TABLE answer (
    job INTEGER PRIMARY KEY REFERENCES job (number) ON DELETE CASCADE,
    status INTEGER NOT NULL,
    headers TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE reserve (bytes BLOB NOT NULL);
CREATE TABLE event (
    job INTEGER NOT NULL REFERENCES job (number) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
"""
VERSION = 2
_RESERVE_PAGES = 256

_JSON = ("spec", "progress", "result", "problem")


def job_of(row: sqlite3.Row) -> JobRow:
    """Return the record of a row."""
    values = {field.name: row[field.name] for field in fields(JobRow)}
    values |= {name: json.loads(values[name]) for name in _JSON if values[name] is not None}
    return JobRow(**values)


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection in WAL mode whose transactions are begun explicitly."""
    db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    # Early checkpoints keep the write-ahead log short, and it is overwritten from its beginning.
    db.execute(f"PRAGMA wal_autocheckpoint = {_RESERVE_PAGES}")
    return db


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file. Raises ValueError for a file of another version or program."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    if version:
        raise ValueError(f"{path}: the job table has format {version}, this server reads format {VERSION}")
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise ValueError(f"{path}: this is the database of another program")
    db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")


def reserve(db: sqlite3.Connection) -> None:
    """Keep free pages in the file, so that a full disk can be recorded although it is full.

    Also extends the log to its final length. Does nothing if there are enough pages, and
    as much as it can if the disk has too little space.
    """
    with suppress(sqlite3.DatabaseError):
        free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        if free >= _RESERVE_PAGES:
            return
        # Two transactions: pages that one takes and returns are never written.
        db.execute("INSERT INTO reserve VALUES (zeroblob(?))", (2 * _RESERVE_PAGES * size,))
        db.execute("DELETE FROM reserve")
