"""Files that several processes share: atomically replaced, or locked; folders put aside."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import filelock

from bigsap.system import patiently, replace

#: Prefix of the name of a folder that is being deleted.
DELETED = ".deleted-"
#: Name of a whole result in the folder of temporary files, for as long as it is being sent.
RESULT_COPY = "{}.npz"


class FileLock:
    """An exclusive lock that the system releases when its holder dies: filelock's, and who holds it.

    On a network file system it works across machines if the mount supports flock. The process id is
    in a file next to the lock, ``run.pid`` of ``run.lock``: on Windows others cannot read a locked file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Taken by one thread, it may be released by another.
        self._lock = filelock.FileLock(path, thread_local=False)

    def take(self) -> bool:
        """Try to take the lock without waiting; return whether this process holds it."""
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            return False
        # Information for operators only, so a full disk must not prevent locking.
        with suppress(OSError):
            self.path.with_suffix(".pid").write_text(f"{os.getpid()}\n", encoding="ascii")
        return True

    def release(self) -> None:
        """Release the lock. Harmless when not held."""
        self._lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at ``path``, or looks at it at this moment.

    The look takes the lock for microseconds; who takes it in earnest tries again.
    """
    if not path.exists():
        return False
    look = filelock.FileLock(path)
    try:
        look.acquire(blocking=False)
    except filelock.Timeout:
        return True
    look.release()
    return False


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Replace ``path`` by the JSON of ``value``: readers see the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(value, file, allow_nan=False)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> Any:
    """Return the value written by ``write_json``; None if the file does not exist."""
    try:
        return json.loads(patiently(partial(path.read_text, encoding="utf-8")))
    except FileNotFoundError:
        return None


def aside(folder: Path) -> Path:
    """Return the path to which a folder is moved while it is being deleted."""
    return folder.with_name(f"{DELETED}{folder.name}")


def scratch(data: str | os.PathLike[str]) -> Path:
    """Return the folder of temporary files in the data folder."""
    folder = Path(data) / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sweep_scratch(data: str | os.PathLike[str]) -> None:
    """Remove results that were being sent when the server ended. Dask removes what is its workers'."""
    for file in scratch(data).glob(RESULT_COPY.format("*")):
        with suppress(OSError):
            file.unlink()
