"""A real server process on loopback, for tests. A plugin: ``live_server``, ``start_server``."""

from __future__ import annotations

import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from beside import shared_by
from gate import PLUGINS

if TYPE_CHECKING:
    import httpx

STARTUP_S = 60.0
STOP_S = 60.0
DEFAULTS = {"PYTHONUNBUFFERED": "1", "BIGSAP_WORKERS": "1", "BIGSAP_PLUGINS": '["gated"]'}


def free_port() -> int:
    """A port that nobody listens at, and that no connection gets by itself.

    One that the system chooses would come from the range of outgoing connections, any of which
    (Dask makes dozens) may have taken it when somebody comes to listen there.
    """
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port below the range of outgoing connections is free")


class Patience:
    """Seconds for a process and its children, less those in which they wait for a processor.

    A start that takes 3 s takes minutes on a loaded machine, and by the clock cannot be told from
    one that hangs. What hangs does not want a processor. By the clock where the system does
    not tell.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid, self._seconds = pid, seconds
        self._began = time.monotonic()
        self._waited: dict[str, int] = {}  # by thread, also of those that have ended
        self._before = self._look()

    @property
    def over(self) -> bool:
        """Whether they have had their seconds."""
        held_up = 1e-9 * (self._look() - self._before)
        return time.monotonic() - self._began - held_up > self._seconds

    def _look(self) -> int:
        """Nanoseconds that all threads so far have waited for a processor."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._pid)
            for process in (root, *root.children(recursive=True)):
                for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                    with suppress(OSError):
                        self._waited[str(file)] = int(file.read_text().split()[1])
        return sum(self._waited.values())


class LiveServer:
    """One server process over a data folder; ``start`` again after ``stop`` or ``kill``.

    env: further ``BIGSAP_*`` variables, without the prefix.
    """

    def __init__(self, data: Path, **env: Any) -> None:
        self.data = data
        self.env = {name.upper(): str(value) for name, value in env.items()}
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.port = free_port()  # kept over restarts, so that clients find it again
        self.lines: list[str] = []

    def start(self, wait_ready: bool = True) -> LiveServer:
        """Start the process; wait until it answers (and, unless told not to, is ready)."""
        import httpx

        log = self.data.parent / f"{self.data.name}.log"
        given = {f"BIGSAP_{name}": value for name, value in self.env.items()}
        plain = {k: v for k, v in os.environ.items() if not k.startswith("BIGSAP_")}
        plain["PYTHONPATH"] = os.pathsep.join([str(PLUGINS), plain.get("PYTHONPATH", "")])
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "bigsap_server"),
                    *("--port", str(self.port), "--data", str(self.data)),
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=plain | DEFAULTS | given,
            )
        patience = self.patience(STARTUP_S)
        self.url = self._address(patience).replace("0.0.0.0", "127.0.0.1")
        while wait_ready:
            assert self.process.poll() is None, log.read_text()[-3000:]
            with suppress(httpx.TimeoutException):
                if httpx.get(self.url + "/readyz", timeout=10).status_code == 200:
                    break
            assert not patience.over, f"not ready: {log.read_text()[-3000:]}"
            time.sleep(0.05)
        return self

    def patience(self, seconds: float) -> Patience:
        """So many seconds for this server's processes, see ``Patience``."""
        assert self.process is not None
        return Patience(self.process.pid, seconds)

    def _address(self, patience: Patience) -> str:
        found: queue.SimpleQueue[str] = queue.SimpleQueue()
        process = self.process
        assert process is not None

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self.lines.append(line)
                if "http://" in line:
                    found.put("http://" + line.split("http://")[1].split()[0])
            found.put("")

        threading.Thread(target=read, daemon=True).start()
        log = self.data.parent / f"{self.data.name}.log"
        while found.empty():
            assert not patience.over, f"the server does not listen: {log.read_text()[-3000:]}"
            time.sleep(0.05)
        address = found.get()
        assert address, f"the server has ended: {log.read_text()[-3000:]}"
        return address

    def signal(self, number: int) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
        return code

    def stop(self) -> int:
        """Gracefully."""
        return self.signal(signal.SIGTERM)

    def kill(self) -> int:
        """As a crash would."""
        return self.signal(signal.SIGKILL)

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client for this server."""
        import httpx

        return httpx.Client(**{"base_url": self.url, "timeout": 30} | options)

    def finished(self, job_id: str, seconds: float = 60.0) -> dict[str, Any]:
        """The job when it is over, by long polling."""
        patience, tag = self.patience(seconds), ""
        with self.client() as client:
            while not patience.over:
                answer = client.get(f"/v1/jobs/{job_id}", params={"wait": 5}, headers={"If-None-Match": tag})
                if answer.status_code == 304:
                    continue
                answer.raise_for_status()
                tag, job = answer.headers["ETag"], answer.json()
                if job["state"] in ("succeeded", "failed", "cancelled"):
                    return dict(job)
        raise AssertionError(f"{job_id} is not over after {seconds} s: {job}")


class Shared:
    """The server that the tests of some files have in common, from the first that asks for it."""

    server: LiveServer | None = None

    def stop(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            server.stop()


_SHARED = Shared()


@pytest.fixture
def live_server(tmp_path_factory: pytest.TempPathFactory) -> LiveServer:
    """A server with one Dask worker, shared by those who share a process: leave it running."""
    if _SHARED.server is None:
        _SHARED.server = LiveServer(tmp_path_factory.mktemp("live") / "data").start()
    return _SHARED.server


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """It ends with those who share it: the tests after them would pay for a service that waits."""
    if nextitem is None or shared_by(nextitem.nodeid) != shared_by(item.nodeid):
        _SHARED.stop()


def pytest_sessionfinish() -> None:
    """It also ends with a session that is interrupted."""
    _SHARED.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    """Starts servers of one's own; whatever is left of them ends with the test."""
    servers: list[LiveServer] = []

    def start(data: Path | None = None, wait_ready: bool = True, **env: Any) -> LiveServer:
        server = LiveServer(data or tmp_path / "data", **env)
        servers.append(server)
        return server.start(wait_ready)

    yield start
    for server in servers:
        server.kill()
