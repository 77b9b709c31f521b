"""Small files that processes tell each other things by: replaced atomically, or locked."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO


class FileLock:
    """An exclusive lock that the kernel lets go of when its holder dies, however it dies.

    On a network file system it holds between machines where the mount supports flock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def take(self) -> bool:
        """Whether the lock is ours now; never waits."""
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
        # For people, who want to know whom to ask; a full disk is no reason not to lock.
        with suppress(OSError):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        return True

    def release(self) -> None:
        """Let go. Harmless when not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock at ``path``.

    Shared, since a look must neither keep another one away nor write its own process where
    the holder's is read: who kills what the file names would kill the server.
    """
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by the JSON of ``value``: readers see the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(value, file, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> Any:
    """What ``write_json`` wrote; None when there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
