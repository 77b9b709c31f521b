"""Servers for tests: a process on loopback, or this one. A plugin: ``live_server``, ``start_server``."""

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

import pytest

from gate import HANG_S, PLUGINS, until

if TYPE_CHECKING:
    import httpx

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


class Reached:
    """A service at ``url``."""

    url = ""

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client for this server."""
        import httpx

        return httpx.Client(**{"base_url": self.url, "timeout": HANG_S} | options)

    def finished(self, job_id: str) -> dict[str, Any]:
        """The job when it is over, by long polling."""
        end, tag, job = time.monotonic() + HANG_S, "", {}
        with self.client() as client:
            while time.monotonic() < end:
                answer = client.get(f"/v1/jobs/{job_id}", params={"wait": 5}, headers={"If-None-Match": tag})
                if answer.status_code == 304:
                    continue
                answer.raise_for_status()
                tag, job = answer.headers["ETag"], answer.json()
                if job["state"] in ("succeeded", "failed", "cancelled"):
                    return dict(job)
        raise AssertionError(f"{job_id} is not over: {job}")


class LiveServer(Reached):
    """One server process over a data folder; ``start`` again after ``stop`` or ``kill``.

    env: further ``BIGSAP_*`` variables, without the prefix.
    """

    def __init__(self, data: Path, **env: Any) -> None:
        self.data = data
        self.env = {name.upper(): str(value) for name, value in env.items()}
        self.process: subprocess.Popen[str] | None = None
        self.port = free_port()  # kept over restarts, so that clients find it again

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
                    *(sys.executable, "-m", "bigsap", "serve"),
                    *("--port", str(self.port), "--data", str(self.data)),
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=plain | DEFAULTS | given,
            )
        self.url = self._address().replace("0.0.0.0", "127.0.0.1")

        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, log.read_text()[-3000:]
            with suppress(httpx.TimeoutException):
                return httpx.get(self.url + "/readyz", timeout=10).status_code == 200
            return False

        if wait_ready:
            until(ready)
        return self

    def _address(self) -> str:
        found: queue.SimpleQueue[str] = queue.SimpleQueue()
        process = self.process
        assert process is not None

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if "http://" in line:
                    found.put("http://" + line.split("http://")[1].split()[0])
            found.put("")

        threading.Thread(target=read, daemon=True).start()
        address = found.get(timeout=HANG_S)
        log = self.data.parent / f"{self.data.name}.log"
        assert address, f"the server has ended: {log.read_text()[-3000:]}"
        return address

    def signal(self, number: int) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(HANG_S)
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


@pytest.fixture(scope="module")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    """A service in this process, behind a real socket, for a module whose subject is its clients."""
    from bigsap_server.api.app import create_app

    from apps import served, settings_in

    found = Reached()
    app = create_app(settings_in(tmp_path_factory.mktemp("live") / "data", heartbeat_s=0.2))
    with served(app) as found.url:
        yield found


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
