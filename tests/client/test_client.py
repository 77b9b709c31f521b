"""The client against a real service, through a proxy that breaks connections, and stubs."""

from __future__ import annotations

import io
import json
import select
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

import bigsap

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")

from bigsap.client import Client, JobFailedError, ServiceError, UnreachableError, UploadError
from bigsap.client.arrays import download
from bigsap.client.http import IDLE_S, Transport
from bigsap.errors import DtypeError, InputError, ShapeError
from clock import Clock
from gate import HANG_S, gated_job

SSE = {"Content-Type": "text/event-stream"}
RNG = np.random.default_rng(0)
X, Y = RNG.random((300, 2)), RNG.random((320, 2))
#: Rows that are read before the gate: the gated job is then in a search of the second phase.
SEARCHING = 1500


@pytest.fixture
def client(live_server) -> Iterator[Client]:
    with Client(live_server.url, patience=60) as found:
        yield found


class Proxy:
    """Forwards connections to ``port``; each ends after ``most`` bytes of answers or requests."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.most_down: int | None = None
        self.most_up: int | None = None
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        left = {"down": self.most_down, "up": self.most_up}
        with near, socket.create_connection(("127.0.0.1", self.target), 5) as far:
            while True:
                ready, _, _ = select.select([near, far], [], [], 30)
                if not ready:
                    return
                for end in ready:
                    other, way = (far, "up") if end is near else (near, "down")
                    try:
                        data = end.recv(4096)
                        if not data:
                            return
                        other.sendall(data)
                    except OSError:
                        return
                    if left[way] is not None:
                        left[way] -= len(data)
                        if left[way] <= 0:
                            return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def proxy(live_server) -> Iterator[Proxy]:
    found = Proxy(int(live_server.url.rsplit(":", 1)[1]))
    yield found
    found.close()


@contextmanager
def stub(*answers: tuple[int, dict[str, str], Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers one after another, then the last for ever."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = answers[min(len(seen), len(answers) - 1)]
            seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
            if status == 0:  # no answer at all
                self.close_connection = True
                return
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- jobs ---------------------------------------------------------------------------------


def test_points_solved_far_away_are_those_solved_here(client):
    job = client.submit({"type": "points", "x": X, "y": Y, "metric": "euclidean"}, label="far")
    assert job.id.startswith("job_")
    assert job.record["label"] == "far"
    job.wait(HANG_S)
    assert (job.state, job.ended) == ("succeeded", True)
    result = job.result()
    here = bigsap.solve(bigsap.points(X, Y, metric="euclidean"))
    assert result.fun == pytest.approx(here.fun, rel=1e-12)
    assert isinstance(result.col4row, np.ndarray)
    assert result.col4row.dtype == np.intp
    result.verify(bigsap.points(X, Y, metric="euclidean"))
    assert result.stats["rows_evaluated"] >= 300
    assert result.nit == len(result.stats["phases"])


@pytest.mark.parametrize(("kind", "n"), [(np.asarray, 400), (np.ndarray.tolist, 3)], ids=["array", "list"])
def test_nan_is_refused_before_anything_is_sent(kind, n, client):
    cost = np.ones((n, n))
    cost[2, 1] = np.nan
    before = len(list(client.jobs()))
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\.values\[2, 1\] is nan") as caught:
        client.submit({"type": "array", "values": kind(cost)})
    assert (caught.value.row, caught.value.column) == (2, 1)
    assert len(list(client.jobs())) == before


def test_infeasible_is_a_result_with_its_proof(client):
    cost = np.array([[1.0, np.inf], [2.0, np.inf]])
    job = client.submit({"type": "array", "values": cost}, wait=30.0)
    assert job.state == "succeeded"
    result = job.result()
    assert result.status == "infeasible"
    assert result.fun is None
    assert result.violator.tolist() == [0, 1]
    result.verify(cost)


def test_two_submissions_under_one_key_are_one_job(client):
    spec = {"type": "array", "values": [[1, 2], [3, 4]]}
    first = client.submit(spec, idempotency_key="test-client-once")
    again = client.submit(spec, idempotency_key="test-client-once")
    assert again.id == first.id
    first.wait(HANG_S)
    # Answered as the first time, and then looked at.
    assert client.submit(spec, idempotency_key="test-client-once").state == "succeeded"
    with pytest.raises(ServiceError) as caught:
        client.submit({"type": "array", "values": [[5]]}, idempotency_key="test-client-once")
    assert (caught.value.slug, caught.value.status) == ("idempotency-conflict", 409)


def test_list_is_paged_and_limited(client):
    made = [client.submit({"type": "array", "values": [[k]]}, label="listed", wait=30.0).id for k in range(3)]
    assert [job.id for job in client.jobs(label="listed")] == made[::-1]
    assert [job.id for job in client.jobs(label="listed", limit=2)] == made[:0:-1]
    assert list(client.jobs(label="nobody's")) == []


def test_estimate_and_check_start_nothing(client):
    before = len(list(client.jobs()))
    found = client.estimate({"type": "points", "x": [[0.0], [1.0]], "y": [[1.0], [3.0]]})
    assert found["spec"]["spread"] is False
    with pytest.raises(ServiceError, match="no cluster to spread a job over"):
        client.estimate([[1.0, 2.0], [3.0, 1.0]], spread=True)
    assert found["spec"]["shape"] == [2, 2]
    assert found["estimate"]["memory_bytes"] > 0
    checked = client.check({"type": "expression", "code": "i + 2*j"}, shape=(3, 3))
    assert json.dumps(checked)
    assert len(list(client.jobs())) == before


def test_cancelled_gracefully_keeps_what_was_found(client, gate):
    job = client.submit(gated_job(gate, after=SEARCHING))
    gate.wait_for_readers()  # nobody opens it
    assert job.cancel().state in ("cancelling", "cancelled")
    assert job.wait(HANG_S).state == "cancelled"
    result = job.result()
    assert result.status == "cancelled"
    assert result.bound <= result.fun
    assert sorted(result.col4row) == list(range(200))
    job.delete()
    with pytest.raises(ServiceError) as caught:
        client.job(job.id)
    assert caught.value.status == 404


def test_waiting_has_an_end(client, gate):
    job = client.submit(gated_job(gate))
    with pytest.raises(TimeoutError, match=job.id):
        job.wait(0.1)
    with pytest.raises(ServiceError) as caught:
        job.result()
    assert caught.value.slug == "no-result"
    with pytest.raises(ServiceError) as caught:
        job.delete()
    assert caught.value.slug == "wrong-state"
    job.cancel("now")
    job.wait(HANG_S)
    with pytest.raises(JobFailedError):
        job.result()


def test_wait_draws_a_bar_and_tells_of_changes(client, capsys):
    states = []
    job = client.submit({"type": "points", "x": X, "y": Y})
    job.wait(60, progress=True, callback=lambda now: states.append(now.state))
    assert states[-1] == "succeeded"
    assert f"/{len(X)}" in capsys.readouterr().err


def test_failed_job_says_why(client):
    spec = {"shape": [3, 3], "cost": {"type": "expression", "code": "log(i - 1.0 - j)"}}
    job = client.submit(spec, wait=60.0)
    assert job.state == "failed"
    with pytest.raises(JobFailedError) as caught:
        job.result()
    assert caught.value.slug == "invalid-cost"
    assert caught.value.problem["row"] == 0
    assert caught.value.job["id"] == job.id


# --- refusals -----------------------------------------------------------------------------


def test_refusal_names_the_field(client):
    with pytest.raises(ServiceError) as caught:
        client.submit({"type": "points", "x": X, "y": Y, "metric": "crow"})
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


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "ftp://host", "http://", ""])
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


def test_a_superseded_block_is_sent_again(pauses):
    # The rest of a lost request reached the service after its repetition had begun.
    superseded = {"type": "urn:bigsap:problem:block-superseded", "title": "x", "status": 409}
    with stub((409, {}, superseded), (200, {}, {"rows": 1})) as (url, seen):
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


# --- arrays -------------------------------------------------------------------------------


def test_upload_keeps_dtype_and_shape(client):
    for array in (
        RNG.random((50, 3)).astype(np.float32),
        np.arange(20, dtype=">i4"),
        np.asfortranarray(RNG.random((30, 40))),
        np.zeros((0, 3)),
        RNG.random((100, 100))[::2, ::3],
    ):
        array_id = client.upload(array, block_bytes=1000)
        info = client._json("GET", f"/v1/arrays/{array_id}")
        assert info["sealed"]
        assert tuple(info["shape"]) == array.shape
        assert np.dtype(info["dtype"]) == array.dtype.newbyteorder("<")
        client.delete_array(array_id)


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.array(["a"]), DtypeError),
        (np.ones((2, 2), complex), DtypeError),
        (np.ones((2, 2), bool), DtypeError),
        (np.ones((2, 2, 2)), ShapeError),
        (np.array(1.0), ShapeError),
    ],
)
def test_what_cannot_be_uploaded(client, array, error):
    with pytest.raises(error):
        client.upload(array)


def sent_rows(client: Client, monkeypatch) -> list[str]:
    """The paths of row blocks, as they are sent from now on."""
    paths: list[str] = []
    real = client._transport.call

    def call(method: str, path: str, **given: Any) -> Any:
        if method == "PUT":
            paths.append(path.rpartition("/")[2])
        return real(method, path, **given)

    monkeypatch.setattr(client._transport, "call", call)
    return paths


def test_half_an_upload_is_continued(client, proxy, monkeypatch):
    array = RNG.random((1000, 8))  # 64,000 bytes in 8 blocks
    # Within the fourth block, however the bytes are read: a block that arrives whole after the
    # connection is lost is kept too, perhaps only after `received` was asked for.
    proxy.most_up = 28_000
    with Client(proxy.url, patience=0) as broken, pytest.raises(UploadError) as caught:
        broken.upload(array, block_bytes=8000)
    array_id = caught.value.array_id
    received = client._json("GET", f"/v1/arrays/{array_id}")["received"]
    assert received == [[0, 375]]
    paths = sent_rows(client, monkeypatch)
    done: list[tuple[int, int]] = []
    found = client.upload(array, array_id=array_id, block_bytes=8000, progress=lambda *now: done.append(now))
    assert found == array_id
    assert 0 < len(paths) < 8
    assert int(paths[0]) == received[-1][1]
    assert done[-1] == (1000, 1000)
    # Once more: nothing is sent, the digest is compared.
    paths.clear()
    client.upload(array, array_id=array_id)
    assert paths == []


def test_upload_survives_lost_connections(proxy):
    array = RNG.random((1000, 8))
    proxy.most_up = 20_000
    with Client(proxy.url, patience=10) as client:
        array_id = client.upload(array, block_bytes=8000)
        assert client._json("GET", f"/v1/arrays/{array_id}")["sealed"]
    assert proxy.connections > 2


def test_other_data_under_the_same_id_is_noticed(client):
    array = RNG.random((10, 2))
    array_id = client.upload(array)
    with pytest.raises(ServiceError, match="digest"):
        client.upload(array + 1, array_id=array_id)
    with pytest.raises(ServiceError, match=r"shape \(10, 2\)"):
        client.upload(array[:5], array_id=array_id)


def test_broken_downloads_go_on(proxy):
    x, y = RNG.random((4000, 1)), RNG.random((4000, 1))
    with Client(proxy.url, patience=10) as client:
        job = client.submit({"type": "points", "x": x, "y": y}, wait=60.0)
        proxy.most_down = 15_000  # an array has 32,000 bytes
        client.close()
    with Client(proxy.url, patience=10) as client:
        result = client.result(job.id)
    assert proxy.connections > 5
    result.verify(bigsap.points(x, y))


# --- events -------------------------------------------------------------------------------


def test_events_have_no_gap_when_the_connection_is_lost(client, proxy, gate):
    proxy.most_down = 1500
    job = client.submit(gated_job(gate, after=SEARCHING))
    seen = []
    with Client(proxy.url, patience=HANG_S) as broken:
        for event in broken.events(job.id):
            seen.append(event)
            if sum(event["kind"] == "progress" for event in seen) == 4:
                gate.open()
    assert proxy.connections >= 3
    numbers = [event["seq"] for event in seen]
    assert numbers == list(range(1, len(numbers) + 1))
    assert seen[-1]["data"]["state"] == "succeeded"
    assert {"state", "progress"} <= {event["kind"] for event in seen}
    times = [event for event in seen if event["kind"] == "progress"]
    assert len(times) >= 3
    assert [e["seq"] for e in client.events(job.id, after=numbers[-2])] == numbers[-1:]
    assert list(client.job(job.id).events(after=numbers[-1])) == []
