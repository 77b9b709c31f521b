"""What is wrong with a request is said before anything is accepted, and where."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from bigsap_server.settings import cores
from checks import SQUARE, problem, upload

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("cost", "pointer"),
    [
        ({"type": "array", "array": [[1, 2], [3, 4]], "foo": 1}, "/cost/foo"),
        ({"type": "table", "table": [[1]], "row_class": [0], "column_class": [0]}, "/cost/values"),
        ({"type": "mask", "cost": {"type": "array", "values": [["x"]]}}, "/cost/cost/values"),
        ({"type": "sum", "terms": [{"type": "sum", "terms": [], "sum": 1}]}, "/cost/terms/0/terms"),
        ({"type": "array", "values": []}, "/cost/values"),
        ({"type": "array", "values": [1, 2]}, "/cost/values"),
    ],
)
def test_pointers_lead_to_the_field(api: Any, cost: dict[str, Any], pointer: str) -> None:
    problem(api.post("/v1/jobs", json={"cost": cost}), 422, "invalid-spec", pointer)


@pytest.mark.parametrize("number", ["1e999", "-1e400"])
def test_numbers_beyond_float64_are_refused(api: Any, number: str) -> None:
    body = '{"cost": {"type": "array", "values": [[1, %s]]}}'
    found = problem(
        api.post("/v1/jobs", content=body % number, headers=JSON), 400, "malformed-json"
    )
    assert number in found["detail"]
    for token in ("Infinity", '"Infinity"', "1e308"):
        dry = "/v1/jobs?dry_run=true"
        assert api.post(dry, content=body % token, headers=JSON).status_code == 200


def test_threads_are_limited(make_app: Callable[..., Any]) -> None:
    api = make_app()
    most = api.get("/v1/capabilities").json()["limits"]["threads"]
    assert most == cores()
    for threads, status in ((most, 200), (most + 1, 422)):
        body = SQUARE | {"options": {"threads": threads}}
        answer = api.post("/v1/jobs?dry_run=true", json=body)
        if status == 200:
            assert answer.status_code == 200
        else:
            problem(answer, status, "over-limit", "/options/threads")


def test_threads_as_the_operator_says(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"threads": 64})
    assert api.get("/v1/capabilities").json()["limits"]["threads"] == 64
    for threads, status in ((64, 200), (65, 422)):
        body = SQUARE | {"options": {"threads": threads}}
        assert api.post("/v1/jobs?dry_run=true", json=body).status_code == status


@pytest.mark.parametrize("json_body", [True, False])
def test_bodies_that_do_not_come_are_given_up(
    serve_app: Callable[..., str], json_body: bool
) -> None:
    address = serve_app(limits={"idle_s": 0.5, "streams": 1})
    host, port = address.removeprefix("http://").split(":")
    with httpx.Client(base_url=address) as client:
        array = upload(client, np.ones((4, 2)), seal=False)
        target = "POST /v1/jobs" if json_body else f"PUT /v1/arrays/{array}/rows/0"
        kind = "application/json" if json_body else "application/octet-stream"
        with socket.create_connection((host, int(port)), 10) as raw:
            began = time.monotonic()
            raw.sendall(
                f"{target} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {kind}\r\n"
                "Content-Length: 64\r\n\r\n{".encode()
            )
            raw.settimeout(10)
            if not json_body:
                time.sleep(0.2)
                body = np.ones((4, 2)).tobytes()
                problem(
                    client.put(f"/v1/arrays/{array}/rows/0", content=body),
                    429, "too-many-requests",
                )  # fmt: skip
            answer = raw.recv(1 << 16)
            assert 0.4 < time.monotonic() - began < 8
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"urn:bigsap:problem:request-timeout" in answer
        body = np.ones((4, 2)).tobytes()
        assert client.put(f"/v1/arrays/{array}/rows/0", content=body).status_code == 200
