"""What is wrong with a request is said before anything is accepted, and where; codings."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from bigsap_server import serve
from checks import SQUARE, problem, solved, upload

from apps import TestClient, settings_in
from bigsap.client.http import IDLE_S
from bigsap.system import usable_cores
from gate import HANG_S, until
from live_server import free_port

JSON = {"Content-Type": "application/json"}


def test_a_page_of_arrays_has_no_more_than_the_operator_says(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"page_size": 2})
    for _ in range(3):
        upload(api, np.ones((1, 1)), seal=False)
    for query in ("", "?limit=3", "?limit=100000"):
        page = api.get("/v1/arrays" + query).json()
        assert len(page["arrays"]) == 2
        assert page["next_page_token"] is not None
    assert len(api.get("/v1/arrays?limit=1").json()["arrays"]) == 1


@pytest.mark.parametrize("number", ["1e999", "-1e400"])
def test_numbers_beyond_float64_are_refused(api: Any, number: str) -> None:
    body = '{"cost": {"type": "array", "values": [[1, %s]]}}'
    found = problem(api.post("/v1/jobs", content=body % number, headers=JSON), 400, "malformed-json")
    assert number in found["detail"]
    for token in ("Infinity", '"Infinity"', "1e308"):
        dry = "/v1/jobs?dry_run=true"
        assert api.post(dry, content=body % token, headers=JSON).status_code == 200


def test_threads_are_limited(make_app: Callable[..., Any], shared: Any) -> None:
    assert shared.get("/v1/capabilities").json()["limits"]["threads"] == usable_cores()
    api = make_app(limits={"threads": 64})
    assert api.get("/v1/capabilities").json()["limits"]["threads"] == 64
    dry, body = "/v1/jobs?dry_run=true", SQUARE | {"options": {"threads": 64}}
    assert api.post(dry, json=body).status_code == 200
    body = SQUARE | {"options": {"threads": 65}}
    problem(api.post(dry, json=body), 422, "over-limit", "/options/threads")


def test_a_body_that_is_cut_off_is_no_error_of_the_service(
    serve_app: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bigsap_server")
    host, port = serve_app().removeprefix("http://").split(":")
    kind, length = "Content-Type: application/json", "Content-Length: 64"
    with socket.create_connection((host, int(port)), 10) as raw:
        raw.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\n{kind}\r\n{length}\r\n\r\n{{".encode())
    until(lambda: "POST /v1/jobs 400" in caplog.messages)
    assert all(record.levelno < logging.ERROR for record in caplog.records)


@pytest.mark.parametrize("json_body", [True, False])
def test_bodies_that_do_not_come_are_given_up(serve_app: Callable[..., str], json_body: bool) -> None:
    address = serve_app(limits={"idle_s": 0.3})
    host, port = address.removeprefix("http://").split(":")
    with httpx.Client(base_url=address, timeout=HANG_S) as client:
        array = upload(client, np.ones((4, 2)), seal=False)
        target = "POST /v1/jobs" if json_body else f"PUT /v1/arrays/{array}/rows/0"
        kind = "application/json" if json_body else "application/octet-stream"
        with socket.create_connection((host, int(port)), 10) as raw:
            raw.sendall(
                f"{target} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {kind}\r\n"
                "Content-Length: 64\r\n\r\n{".encode()
            )
            raw.settimeout(HANG_S)
            answer = raw.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"urn:bigsap:problem:request-timeout" in answer
        body = np.ones((4, 2)).tobytes()
        assert client.put(f"/v1/arrays/{array}/rows/0", content=body).status_code == 200


def test_a_body_that_does_not_come_is_a_stream(serve_app: Callable[..., str]) -> None:
    address = serve_app(limits={"streams": 1})
    host, port = address.removeprefix("http://").split(":")
    body = np.ones((4, 2)).tobytes()
    with httpx.Client(base_url=address, timeout=HANG_S) as client:
        link = f"/v1/arrays/{upload(client, np.ones((4, 2)), seal=False)}/rows/0"

        def refusal() -> Any:
            """The answer to another body beside one that does not come; None where that one came
            second, and was refused itself."""
            with socket.create_connection((host, int(port)), HANG_S) as raw:
                raw.sendall(
                    f"PUT {link} HTTP/1.1\r\nHost: {host}:{port}\r\n"
                    "Content-Type: application/octet-stream\r\nContent-Length: 64\r\n\r\n{".encode()
                )
                raw.setblocking(False)
                while True:
                    answer = client.put(link, content=body)
                    if answer.status_code != 200:
                        return answer
                    with suppress(BlockingIOError):
                        raw.recv(1)
                        return None

        problem(until(refusal), 429, "too-many-requests")
        until(lambda: client.put(link, content=body).status_code == 200)


def test_a_formula_is_complained_about_in_one_line(api: Any) -> None:
    cost = {"type": "expression", "code": "abs(x[i,0]) + foo(1)", "arrays": {"x": [[1], [2]]}}
    found = problem(
        api.post("/v1/jobs", json={"cost": cost, "shape": [2, 2]}), 422, "invalid-spec", "/cost/code"
    )
    assert found["column"] == 15
    assert "^" not in found["detail"]
    assert found["detail"].endswith("where, sum")


def test_arrays_come_in_pages(api: Any) -> None:
    ids = [upload(api, np.ones((1, 1)), seal=False) for _ in range(5)][::-1]
    found: list[str] = []
    token = None
    for size in (2, 2, 1):
        page = api.get("/v1/arrays", params={"limit": 2} | ({"page_token": token} if token else {}))
        assert len(page.json()["arrays"]) == size
        found += [array["id"] for array in page.json()["arrays"]]
        token = page.json()["next_page_token"]
        assert api.delete(f"/v1/arrays/{found[-1]}").status_code == 204  # the page goes on
    assert (found, token) == (ids, None)
    for bad in ("zzzz", "%00", "w6Q", "nan-arr_0123456789abcdef", "inf-x"):
        problem(api.get(f"/v1/arrays?page_token={bad}"), 422, "invalid-spec")


def test_each_form_of_a_result_has_its_tag(api: Any) -> None:
    link = solved(api, SQUARE)["links"]["result"] + "/col4row"
    tags = set()
    forms = [
        ("application/x-npy", ""),
        ("text/csv", ""),
        ("application/json", ""),
        ("text/csv", "?limit=2"),
        ("application/json", "?offset=1"),
        ("application/json", "?offset=1&limit=1"),
    ]
    for kind, query in forms:
        answer = api.get(link + query, headers={"Accept": kind})
        assert answer.status_code == 200
        tag = answer.headers["ETag"]
        tags.add(tag)
        again = api.get(link + query, headers={"Accept": kind, "If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert len(tags) == len(forms)
    old = api.get(link, headers={"Accept": "text/csv", "If-None-Match": next(iter(tags)) + "x"})
    assert old.status_code == 200


def test_head_answers_what_get_does_without_the_body(serve_app: Callable[..., str]) -> None:
    with httpx.Client(base_url=serve_app()) as client:
        job = solved(client, SQUARE)["links"]["self"]
        paths = [
            job,
            job + "/result",
            job + "/result/u",
            "/v1/jobs",
            "/v1/nothing",
            job + "/cancel",
            "/healthz",
            "/metrics",
            "/openapi.json",
            "/",
            "/v1/jobs/job_none",
        ]
        for path in paths:
            got, head = client.get(path), client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert head.headers["content-type"] == got.headers["content-type"]
            if path != "/metrics":
                assert head.headers["content-length"] == got.headers["content-length"]
        queued = client.post("/v1/jobs", json=SQUARE).json()["links"]["events"]
        assert client.head(queued).status_code in (200, 204)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/jobs/job_1/cancel", "POST"),
        ("DELETE", "/v1/jobs", "GET, HEAD, POST"),
        ("PATCH", "/v1/jobs/job_1", "DELETE, GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/v1/arrays/arr_1/rows/0", "PUT"),
        ("POST", "/", "GET, HEAD"),
        ("PUT", "/openapi.json", "GET, HEAD"),
        ("DELETE", "/js/app.js", "GET, HEAD"),
    ],
)
def test_methods_that_are_not_there(api: Any, method: str, path: str, allow: str) -> None:
    answer = api.request(method, path)
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["Allow"] == allow


def test_page_files_are_asked_for_anew(api: Any) -> None:
    for path in ("/", "/js/app.js", "/css/page.css"):
        answer = api.get(path)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-cache")
        unchanged = api.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert unchanged.status_code == 304


def test_a_second_host_is_refused(api: Any) -> None:
    answer = api.get("/healthz", headers=[("Host", "127.0.0.1:8765"), ("Host", "evil")])
    problem(answer, 400, "malformed-request")


def test_idle_connections_are_kept_longer_than_clients_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who closes first is the client: httpx does after 5 s, our own before."""
    given: dict[str, Any] = {}

    class Told(Exception):
        pass

    def config(app: object, **settings: Any) -> None:
        given.update(settings)
        raise Told

    monkeypatch.setattr(serve.logs, "configure", lambda level: None)
    monkeypatch.setattr(serve.uvicorn, "Config", config)
    with pytest.raises(Told):
        serve.serve(settings_in(tmp_path / "data", port=free_port()))
    assert given["timeout_keep_alive"] > max(5 * IDLE_S, 6)


def post(api: TestClient, body: bytes, coding: str, **more: str) -> Any:
    headers = JSON | {"Content-Encoding": coding} | more
    return api.post("/v1/jobs", params={"dry_run": "true"}, content=body, headers=headers)


@pytest.mark.parametrize("coding", ["gzip", "GZip", "x-gzip"])
def test_gzip_is_taken(api: TestClient, coding: str) -> None:
    answer = post(api, gzip.compress(json.dumps(SQUARE).encode()), coding)
    assert answer.status_code == 200, answer.text
    assert answer.json()["spec"]["shape"] == [3, 3]


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "identity, gzip", "\x1b"])
def test_other_codings_are_refused(api: TestClient, coding: str) -> None:
    answer = post(api, json.dumps(SQUARE).encode(), coding)
    problem(answer, 415, "unsupported-media-type")
    assert answer.headers["Accept-Encoding"] == "gzip"


_WHOLE = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip at all",
        _WHOLE[:-3],
        _WHOLE[:5],
        _WHOLE + b"more",
        _WHOLE * 2,
        zlib.compress(b"{}"),
        _WHOLE[:-8] + b"\0" * 8,
    ],
    ids=["none", "cut", "head", "more", "twice", "zlib", "sum"],
)
def test_damaged_bodies_are_named(api: TestClient, body: bytes) -> None:
    problem(post(api, body, "gzip"), 400, "malformed-request")


def test_the_limit_is_that_of_the_unzipped_body(make_app: Callable[..., TestClient]) -> None:
    api = make_app(limits={"body_bytes": 100_000})
    within = json.dumps(SQUARE) + " " * 99_000
    assert post(api, gzip.compress(within.encode()), "gzip").status_code == 200
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    problem(post(api, bomb, "gzip"), 413, "body-too-large")
    exactly = within + " " * (100_000 - len(within))
    assert post(api, gzip.compress(exactly.encode()), "gzip").status_code == 200
    problem(post(api, gzip.compress(exactly.encode() + b" "), "gzip"), 413, "body-too-large")


def test_rows_are_octets_as_they_are(api: TestClient) -> None:
    made = api.post("/v1/arrays", json={"dtype": "f8", "shape": [1]}).json()
    headers = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    place = f"/v1/arrays/{made['id']}/rows/0"
    answer = api.put(place, content=gzip.compress(b"\0" * 8), headers=headers)
    problem(answer, 415, "unsupported-media-type")
    assert answer.headers["Accept-Encoding"] == "identity"
    problem(api.put(place, content=b"\0" * 8, headers=JSON), 415, "unsupported-media-type")
