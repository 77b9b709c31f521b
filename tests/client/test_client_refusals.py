"""What the client makes of refusals, busy services, and addresses that are none."""

from __future__ import annotations

import io
import socket
import struct
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")

from bigsap.client import Client, ServiceError, UnreachableError
from bigsap.client.arrays import download
from bigsap.client.http import IDLE_S, Transport
from bigsap.errors import InputError
from clock import Clock
from gate import HANG_S
from http_stand_ins import stub

SSE = {"Content-Type": "text/event-stream"}


def test_refusal_names_the_field(client):
    with pytest.raises(ServiceError) as caught:
        client.submit({"type": "points", "x": np.eye(4), "y": np.eye(4), "metric": "crow"})
    error = caught.value
    assert (error.status, error.slug) == (422, "invalid-spec")
    assert error.pointer == "/cost/metric"
    assert error.problem["type"].endswith(":invalid-spec")
    assert str(error).startswith("/cost/metric: ")


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with (
        Client(f"http://127.0.0.1:{port}", patience=0.3) as client,
        pytest.raises(UnreachableError, match=str(port)),
    ):
        client.capabilities()


@pytest.mark.parametrize(
    ("status", "said"),
    [(502, r"502 .*not BigSAP's, but a proxy's"), (413, r"413 .*proxy.*client_max_body_size")],
)
def test_something_else_there(status, said):
    with (
        stub((status, {"Content-Type": "text/html"}, b"<h1>no</h1>")) as (url, _),
        Client(url, patience=0) as client,
        pytest.raises(UnreachableError, match=said),
    ):
        client.capabilities()


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8765",
        "ftp://host",
        "http://",
        "",
        "http://[::1",
        "http://host:port",
        "http://host\x00",
        "http://" + 300 * "a",
        "http://host?key=1",
        5,
    ],
)
def test_addresses_are_checked(url):
    with pytest.raises(InputError, match="http"):
        Client(url)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ImportError, match=r"bigsap\[http\]"):
        Client("http://127.0.0.1:1")


def test_key_is_sent_and_does_not_follow_redirects():
    with stub((200, {}, {"api": "v1"})) as (url, seen), Client(url, key="k-123") as client:
        client.capabilities()
        assert seen[0]["headers"]["Authorization"] == "Bearer k-123"
    with stub((200, {}, {})) as (other, reached):
        moved = (307, {"Location": other + "/v1/capabilities"}, {})
        with (
            stub(moved) as (url, _),
            Client(url, key="k", patience=0) as client,
            pytest.raises(UnreachableError, match="307"),
        ):
            client.capabilities()
        assert reached == []


@pytest.mark.parametrize("key", ["", "abc ", " abc", "two\nlines", "schl\u00fcssel", "\x7f"])
def test_keys_that_no_header_can_hold_are_refused_at_once(key, client):
    with pytest.raises(InputError, match="key"):
        Client("http://127.0.0.1:1", key=key)
    with pytest.raises(InputError, match="idempotency key"):
        client.submit({"type": "array", "values": [[1]]}, idempotency_key=key)


IDS = ["", ".", "..", "../arrays", "../jobs/job_1", "job_1/events", "job_1?wait=1", "job_1#", "a b"]


@pytest.mark.parametrize("name", IDS)
def test_what_is_no_id_leads_nowhere(name):
    with stub((200, {}, {"id": "job_1"})) as (url, seen), Client(url, patience=0) as client:
        for call in (
            client.job,
            client.cancel,
            client.result,
            client.delete_array,
            lambda name: list(client.events(name)),
            lambda name: client.upload(np.eye(2), array_id=name),
        ):
            with pytest.raises(InputError, match="is no id"):
                call(name)
        assert seen == []


BUSY = {"type": "urn:bigsap:problem:too-many-requests", "title": "x", "status": 429}


@pytest.fixture
def pauses(monkeypatch) -> Clock:
    """A clock that only the client's own pauses move."""
    clock = Clock()
    for module in ("arrays", "http", "jobs"):
        monkeypatch.setattr(f"bigsap.client.{module}.time", clock)
    return clock


def test_busy_service_is_asked_again_when_it_says(pauses):
    answers = ((429, {"Retry-After": "4"}, BUSY), (503, {}, BUSY), (200, {}, {"api": "v1"}))
    with stub(*answers) as (url, seen), Client(url, patience=10) as client:
        began = pauses()
        assert client.capabilities() == {"api": "v1"}
        assert 4.1 <= pauses() - began <= 4.2  # then one of its own
        assert len(seen) == 3


@pytest.mark.parametrize(
    ("slug", "headers"), [("block-superseded", {}), ("array-incomplete", {"Retry-After": "0.05"})]
)
def test_what_is_left_of_a_lost_request_is_waited_for(slug, headers, pauses):
    # It reached the service after its repetition had begun, or is still being received.
    refused = {"type": f"urn:bigsap:problem:{slug}", "title": "x", "status": 409}
    with stub((409, headers, refused), (200, {}, {"rows": 1})) as (url, seen):
        transport = Transport(url, patience=5)
        assert transport.call("PUT", "/v1/arrays/arr_1/rows/0", content=b"x").json() == {"rows": 1}
        transport.close()
    assert len(seen) == 2


def test_busy_service_is_asked_again_for_arrays_and_events(pauses):
    npy = io.BytesIO()
    np.save(npy, np.arange(3))
    soon = {"Retry-After": "0.05"}
    answers = ((429, soon, BUSY), (503, soon, BUSY), (200, {}, npy.getvalue()))
    with stub(*answers) as (url, _):
        transport = Transport(url, patience=5)
        assert download(transport, "/v1/jobs/job_1/result/u").tolist() == [0, 1, 2]
        transport.close()
    stream = b'id: 1\ndata: {"seq": 1}\n\nevent: end\ndata: {}\n\n'
    answers = ((429, soon, BUSY), (503, soon, BUSY), (200, SSE, stream))
    with stub(*answers) as (url, _), Client(url, patience=60) as client:
        assert list(client.events("job_1")) == [{"seq": 1}]
    with stub((429, soon, BUSY)) as (url, seen), Client(url, patience=0.3) as client:
        with pytest.raises(ServiceError):
            list(client.events("job_1"))
        assert len(seen) > 2


@pytest.mark.parametrize("quota", ["arrays", "stored_bytes"])
def test_a_quota_that_no_waiting_gives_back_is_an_error_at_once(quota):
    full = {"type": "urn:bigsap:problem:quota-exceeded", "title": "x", "status": 429, "quota": quota}
    with stub((429, {"Retry-After": "5"}, full)) as (url, seen), Client(url, patience=HANG_S) as client:
        with pytest.raises(ServiceError) as caught:
            client.upload(np.ones(3))
        assert (caught.value.slug, len(seen)) == ("quota-exceeded", 1)


def test_a_stream_that_is_always_cut_off_ends_with_patience(pauses):
    with stub((200, SSE, b"")) as (url, seen), Client(url, patience=0.5) as client:
        with pytest.raises(UnreachableError, match="cut off"):
            list(client.events("job_1"))
        assert 2 <= len(seen) < 10


def test_a_service_that_lets_nobody_wait_is_not_asked_all_the_time(pauses, monkeypatch):
    record = {"id": "job_1", "state": "running", "links": {}}
    answers = ((200, {"ETag": "1"}, record), (304, {"ETag": "1"}, b""))
    with stub(*answers) as (url, seen), Client(url) as client:
        job = client.job("job_1")
        with pytest.raises(TimeoutError):
            job.wait(2)
        assert 2 <= len(seen) <= 5
    # A job of a list has no ETag yet: the first poll only brings that.
    monkeypatch.setattr("bigsap.client.jobs._PAUSE", 10.0)
    ended = {**record, "state": "succeeded"}
    answers = ((200, {}, {"jobs": [record]}), (200, {"ETag": "1"}, record), (200, {}, ended))
    with stub(*answers) as (url, seen), Client(url) as client:
        (job,) = client.jobs(limit=1)
        began = pauses()
        assert job.wait(30).state == "succeeded"
        assert (pauses(), len(seen)) == (began, 3)


def test_idle_connections_are_left_before_servers_close_them(monkeypatch):
    """A request that meets a connection being closed is lost, and not all may be sent twice."""
    clock = Clock()
    monkeypatch.setattr("httpcore._sync.http11.time", clock)
    assert IDLE_S < 5  # after which many do
    listener = socket.create_server(("127.0.0.1", 0))
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    connections = []

    def serve() -> None:
        """The second request of a connection is answered by a reset."""
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            connections.append(near)
            near.recv(65536)
            near.sendall(answer)
            threading.Thread(target=reset, args=(near,), daemon=True).start()

    def reset(near: socket.socket) -> None:
        near.recv(65536)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.close()

    threading.Thread(target=serve, daemon=True).start()
    transport = Transport(f"http://127.0.0.1:{listener.getsockname()[1]}", patience=0)
    try:
        for _ in range(2):
            assert transport.call("POST", "/v1/arrays", json={}, again=False).json() == {}
            clock.sleep(IDLE_S + 0.1)
        assert len(connections) == 2
    finally:
        transport.close()
        listener.close()


def test_patience_ends(pauses):
    with stub((429, {"Retry-After": "60"}, BUSY)) as (url, seen), Client(url) as client:
        began = pauses()
        with pytest.raises(ServiceError) as caught:
            client.capabilities()
        assert pauses() == began
        assert (caught.value.status, len(seen)) == (429, 1)


def test_lost_answer_to_a_submission_is_asked_for_under_the_same_key():
    record = {"id": "job_1", "state": "queued", "links": {}}
    with stub((0, {}, b""), (202, {}, record)) as (url, seen), Client(url) as client:
        assert client.submit({"type": "array", "values": [[1]]}).id == "job_1"
        keys = [request["headers"]["Idempotency-Key"] for request in seen]
        assert len(keys) == 2
        assert keys[0] == keys[1]


ABSENT = {"type": "urn:bigsap:problem:not-found", "title": "Not found", "status": 404}


@pytest.mark.parametrize(
    ("before", "absent", "gone"),
    [
        ((0, {}, b""), ABSENT, True),
        ((502, {}, b""), ABSENT, True),
        ((429, {}, BUSY), ABSENT, False),
        ((502, {}, b""), b"a proxy's 404", False),
    ],
)
def test_a_deletion_whose_answer_was_lost_is_done(pauses, before, absent, gone):
    with stub(before, (404, {}, absent)) as (url, seen), Client(url) as client:
        if gone:
            client.delete("job_1")
        else:
            with pytest.raises(ServiceError, match=r"Not found|a proxy"):
                client.delete("job_1")
        assert len(seen) == 2
