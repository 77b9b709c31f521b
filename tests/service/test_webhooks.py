"""Webhooks: signed, repeated and given up; slow receivers leave turns to others."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bigsap_server.jobs import webhooks
from bigsap_server.jobs.store import JobStore
from bigsap_server.jobs.webhooks import Webhooks, signature
from checks import SQUARE, problem, solved

from apps import settings_in
from gate import HANG_S

HOOK = {"webhook_hosts": ["hooks.example"], "webhook_secret": "0123456789abcdef"}


def ended(hooks: Webhooks) -> None:
    """Stop it, and wait: a try that is left would go to what the next test puts in its place."""
    hooks.stop()
    hooks._thread.join(HANG_S)
    assert not hooks._thread.is_alive()


def test_webhooks_go_to_allowed_hosts_only(make_app: Callable[..., Any]) -> None:
    api = make_app()
    body = SQUARE | {"webhook": "https://hooks.example/done"}
    problem(api.post("/v1/jobs", json=body), 422, "forbidden-address", "/webhook")


def test_webhooks_are_signed_and_repeated(
    make_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
    answers = iter([503, 0, 204])

    def post(*message: Any) -> int:
        sent.put(message)
        return next(answers)

    monkeypatch.setattr(webhooks, "_post", post)
    monkeypatch.setattr(webhooks, "PAUSES", (0.01, 0.01))
    api = make_app(**HOOK)
    other = SQUARE | {"webhook": "https://evil.example/"}
    problem(api.post("/v1/jobs", json=other), 422, "forbidden-address", "/webhook")
    job = solved(api, SQUARE | {"webhook": "https://hooks.example/done"})
    for _ in range(3):
        url, host, port, body, headers = sent.get(timeout=HANG_S)
        assert (url, host, port) == ("https://hooks.example/done", "hooks.example", 443)
        stamp = headers["X-BigSAP-Timestamp"]
        assert headers["X-BigSAP-Signature"] == signature(HOOK["webhook_secret"], stamp, body)
    found = json.loads(body)
    assert (found["id"], found["state"], found["result"]["objective"]) == (job["id"], "succeeded", 5)


def test_webhooks_are_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(webhooks, "PAUSES", (0.0,))
    tried: queue.SimpleQueue[str] = queue.SimpleQueue()
    store = JobStore(tmp_path / "jobs.sqlite")
    monkeypatch.setattr(webhooks, "_post", lambda *message: tried.put(message[0]) or 500)
    hooks = Webhooks(lambda: settings_in(tmp_path, **HOOK))
    hooks.start()
    store.on_change(hooks.follow)
    job, _ = store.submit(SQUARE | {"webhook": "https://hooks.example/1"})
    store.request_cancel(job.id, "now")
    assert [tried.get(timeout=HANG_S) for _ in range(2)] == ["https://hooks.example/1"] * 2
    job, _ = store.submit(SQUARE | {"webhook": "https://hooks.example/2"})
    store.request_cancel(job.id, "now")
    assert tried.get(timeout=HANG_S) == "https://hooks.example/2"
    ended(hooks)
    store.close()


def test_a_receiver_without_answers_leaves_turns_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, tried = [1000.0], queue.SimpleQueue[str]()

    def post(url: str, host: str, *_: Any) -> int:
        tried.put(url)
        if host == "hooks.example":
            now[0] += 10.0
            raise TimeoutError
        return 204

    monkeypatch.setattr(webhooks, "_post", post)
    monkeypatch.setattr(webhooks, "time", SimpleNamespace(time=time.time, monotonic=lambda: now[0]))
    store = JobStore(tmp_path / "jobs.sqlite")
    allowed = {"webhook_hosts": ["hooks.example", "other.example"]}
    hooks = Webhooks(lambda: settings_in(tmp_path, **(HOOK | allowed)))
    store.on_change(hooks.follow)
    for url in ("https://hooks.example/1", "https://hooks.example/2", "https://other.example/"):
        job, _ = store.submit(SQUARE | {"webhook": url})
        store.request_cancel(job.id, "now")
    hooks.start()
    assert [tried.get(timeout=HANG_S) for _ in range(2)] == [
        "https://hooks.example/1",
        "https://other.example/",
    ]
    ended(hooks)
    store.close()


class _Slow(BaseHTTPRequestHandler):
    """Answers 200 at /body and never sends the body; at /head the head does not end."""

    wanted: threading.Event
    seen: queue.SimpleQueue[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.put(self.path)
        if self.path == "/body":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx")
            self.wanted.wait(HANG_S)
        elif self.path == "/head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            with suppress(OSError):
                while not self.wanted.wait(0.02):
                    self.wfile.write(b"x")
        else:
            self.send_response(204)
            self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[tuple[ThreadingHTTPServer, queue.SimpleQueue[str]]]:
    """A receiver of webhooks that keeps its callers waiting, and the paths it was sent to."""
    wanted, seen = threading.Event(), queue.SimpleQueue[str]()
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), type("", (_Slow,), {"wanted": wanted, "seen": seen}))
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    yield receiver, seen
    wanted.set()
    receiver.shutdown()
    thread.join(HANG_S)
    receiver.server_close()


@pytest.mark.parametrize("kept", ["body", "head"])
def test_a_slow_receiver_keeps_no_other_message(
    slow: tuple[ThreadingHTTPServer, queue.SimpleQueue[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kept: str,
) -> None:
    receiver, seen = slow
    # The time is not awaited where only the body is slow: the message is delivered then.
    monkeypatch.setattr(webhooks, "_TIMEOUT_S", {"body": 2 * HANG_S, "head": 2.0}[kept])
    monkeypatch.setattr(webhooks, "PAUSES", (2 * HANG_S,))
    host = f"127.0.0.1:{receiver.server_port}"
    store = JobStore(tmp_path / "jobs.sqlite")
    hooks = Webhooks(lambda: settings_in(tmp_path, **(HOOK | {"webhook_hosts": [host]})))
    hooks.start()
    store.on_change(hooks.follow)
    for path in (kept, "other"):
        job, _ = store.submit(SQUARE | {"webhook": f"http://{host}/{path}"})
        store.request_cancel(job.id, "now")
    assert [seen.get(timeout=HANG_S) for _ in range(2)] == [f"/{kept}", "/other"]
    ended(hooks)
    store.close()
