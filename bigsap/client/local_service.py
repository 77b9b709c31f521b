"""A temporary local service: a process on a free port of the loopback."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

from bigsap.errors import BigsapError
from bigsap.system import psutil_or_none, system_file

# Packages that the service needs beyond the library; if one is missing, so is the extra.
_PACKAGES = ("bigsap_server", "fastapi", "uvicorn", "distributed", "pydantic_settings")
_START_S = 60.0
# Longer than the time that the service gives running jobs for their checkpoints.
_STOP_S = 60.0


class LocalService:
    """Starts a service on entering, stops it on leaving.

    data: its folder, created if missing; jobs of an earlier service in it continue. workers: worker
    processes. ``url`` is its address: on 127.0.0.1, without access keys.

    Raises ImportError naming the extra if packages are missing, BigsapError with the service's own
    message if it does not start.
    """

    def __init__(self, data: Path, *, workers: int = 1) -> None:
        missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise ImportError(f'the service needs {", ".join(missing)}: pip install "bigsap[server]"')
        self._data, self._workers = data, workers
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._former: Any = None
        self.url = ""

    def __enter__(self) -> LocalService:
        if threading.current_thread() is threading.main_thread():
            # If SIGTERM ends this process, stop the service too.
            self._former = signal.signal(signal.SIGTERM, _leave)
        # BIGSAP_ settings of the user's environment are meant for another service.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("BIGSAP_")}
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bigsap", "serve", "--host", "127.0.0.1", "--port", "0"),
                *("--data", os.fspath(self._data)),
            ],
            env={**kept, "BIGSAP_WORKERS": str(self._workers), "BIGSAP_LOG_LEVEL": "warning"},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            **_apart(),
        )
        try:
            self.url = self._address(self._process)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def peak_bytes(self) -> int:
        """Return the sum of peak resident bytes of the service and its workers."""
        return 0 if self._process is None else sum(_peaks(self._process.pid))

    def _address(self, process: subprocess.Popen[str]) -> str:
        """Return the address that the service prints once it listens."""
        found: list[str] = []

        def listen() -> None:
            for line in process.stdout or ():
                address = re.search(r"http://\S+", line)
                if address and not found:
                    found.append(address.group())
                    answered.set()
            answered.set()  # the process has ended

        answered = threading.Event()
        threading.Thread(target=listen, daemon=True).start()
        answered.wait(_START_S)
        if not found:
            raise BigsapError(f"the service did not start: {self._words()}")
        return found[0]

    def _words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return " ".join(self._log.read()[-2000:].split()) or "it said nothing"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                _end(process)
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._former is not None:
            signal.signal(signal.SIGTERM, self._former)
            self._former = None


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _apart() -> dict[str, Any]:
    """Return options of Popen for a process that Ctrl-C does not reach: this one then stops it."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    else:  # noqa: RET505 - type checkers know platforms by whole branches
        return {"start_new_session": True}


def _end(process: subprocess.Popen[str]) -> None:
    """Ask a process to end; on Windows ``terminate`` would kill it, and no checkpoint be written."""
    if sys.platform == "win32":
        process.send_signal(signal.CTRL_BREAK_EVENT)
    else:
        process.terminate()


def _peaks(pid: int) -> list[int]:
    """Return the peak resident bytes of a process and all its descendants, where the system tells."""
    psutil = psutil_or_none()
    if psutil is None:
        return []
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        return [_peak(process) for process in (root, *root.children(recursive=True))]
    return []


def _peak(process: Any) -> int:
    """Return the largest resident size so far: of /proc, or of Windows; 0 on other systems."""
    with suppress(OSError):
        status = system_file(f"/proc/{process.pid}/status")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)
        return int(found.group(1)) * 1024 if found else 0
    return int(getattr(process.memory_info(), "peak_wset", 0))
