"""A real service, and a TCP relay that can lose connections."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import httpx

from gate import HANG_S, until
from live_server import LiveServer, Reached, free_port

OVER = ("succeeded", "failed", "cancelled")


class Service(Reached):
    """What the page's tests ask of a service behind the page's back."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=HANG_S, **options)

    def submit(self, body: dict[str, Any]) -> str:
        answer = httpx.post(f"{self.url}/v1/jobs", json=body, timeout=HANG_S)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def cancel(self, job: str) -> None:
        """Stop the job, if it still runs; its worker lives on."""
        httpx.post(f"{self.url}/v1/jobs/{job}/cancel", json={"mode": "graceful"}, timeout=HANG_S)

    def wait_for(self, job: str, *states: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            found: dict[str, Any] = self.get(f"/v1/jobs/{job}").json()
            if found["state"] in states:
                return found
            assert found["state"] not in OVER, f"{job} is {found['state']}, not {states}"
            return None

        found: dict[str, Any] = until(there)
        return found


class ServiceProcess(Service, LiveServer):
    """One in a process of its own, with workers of its own."""


class Relay:
    """Passes TCP connections on to ``target`` while ``up``; ``cut`` ends those that are open."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.up()

    def up(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """No new connections, and an end to the open ones, both at once."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Closing alone would leave ``accept`` waiting.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            found = list(self._open)
        for one in found:
            with suppress(OSError):  # the other side may have been quicker
                one.shutdown(socket.SHUT_RDWR)

    close = cut

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                there = socket.create_connection(("127.0.0.1", self.target), timeout=HANG_S)
            except OSError:
                here.close()
                continue
            there.settimeout(None)
            with self._lock:
                self._open |= {here, there}
            ends = threading.Barrier(2)
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=self._pass, args=(one, other, ends), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, ends: threading.Barrier) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        # Neither is closed while the other thread still uses it.
        with suppress(threading.BrokenBarrierError):
            ends.wait(HANG_S)
        with self._lock:
            self._open.discard(one)
        one.close()
