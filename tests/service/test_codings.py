"""Bodies that come compressed."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from apps import TestClient
from checks import problem

SQUARE = {"cost": {"type": "array", "values": [[1, 2], [3, 4]]}}
JSON = {"Content-Type": "application/json"}


def post(api: TestClient, body: bytes, coding: str, **more: str) -> Any:
    headers = JSON | {"Content-Encoding": coding} | more
    return api.post("/v1/jobs", params={"dry_run": "true"}, content=body, headers=headers)


@pytest.mark.parametrize("coding", ["gzip", "GZip", "x-gzip"])
def test_gzip_is_taken(api: TestClient, coding: str) -> None:
    answer = post(api, gzip.compress(json.dumps(SQUARE).encode()), coding)
    assert answer.status_code == 200, answer.text
    assert answer.json()["spec"]["shape"] == [2, 2]


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


def test_rows_are_not_compressed(api: TestClient) -> None:
    made = api.post("/v1/arrays", json={"dtype": "f8", "shape": [1]}).json()
    headers = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    place = f"/v1/arrays/{made['id']}/rows/0"
    answer = api.put(place, content=gzip.compress(b"\0" * 8), headers=headers)
    problem(answer, 415, "unsupported-media-type")
    assert answer.headers["Accept-Encoding"] == "identity"
