"""Small files for communication between processes: atomically replaced, or locked."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO


class FileLock:
    """An exclusive lock that the kernel releases when its holder dies.

    On a network file system it works across machines if the mount supports flock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def take(self) -> bool:
        """Try to take the lock without waiting; return whether this process holds it."""
        file = self.path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except BaseException:
            file.close()
            raise
        self._file = file
        # The process id is only information for operators, so a full disk must not prevent locking.
        with suppress(OSError):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        return True

    def release(self) -> None:
        """Release the lock. Harmless when not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at ``path``.

    Uses a shared lock, so that the check does not block other checks or overwrite the holder's process
    id with its own: a tool that kills the process named in the file would kill the server.
    """
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
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
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> Any:
    """Return the value written by ``write_json``; None if the file does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
