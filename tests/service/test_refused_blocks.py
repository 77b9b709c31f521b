"""Blocks of rows that are refused or cut off change nothing of what had arrived."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from apps import served, settings_in
from bigsap_server.api.app import create_app
from bigsap_server.problems import HttpProblem
from bigsap_server.uploads.store import ArrayStore
from checks import problem

from gate import HANG_S, until

RAW = {"Content-Type": "application/octet-stream"}
ROWS, ROW = 10, 16
THERE = np.random.default_rng(4).random((ROWS, 2))
OTHER = np.random.default_rng(5).random((ROWS, 2))


def bad(row: int) -> bytes:
    """All rows, other ones than are there, with NaN in one of them."""
    values = OTHER.copy()
    values[row, 1] = np.nan
    return values.tobytes()


def long_bad() -> bytes:
    return OTHER.tobytes() + bytes(ROW)


REFUSED = {
    "17 bytes": (0, b"x" * 17, "invalid-spec"),
    "one byte short": (0, OTHER.tobytes()[:-1], "invalid-spec"),
    "empty": (0, b"", "invalid-spec"),
    "a row too many": (0, long_bad(), "invalid-spec"),
    "beyond the end": (9, OTHER[:2].tobytes(), "invalid-spec"),
    "nan at the end": (0, bad(9), "invalid-cost"),
    "nan in the middle": (3, bad(5)[3 * ROW :], "invalid-cost"),
    "no such row": (10, OTHER[:1].tobytes(), "not-found"),
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    app = create_app(settings_in(tmp_path_factory.mktemp("blocks") / "data"))
    with served(app) as address, httpx.Client(base_url=address, timeout=HANG_S) as client:
        yield client


def filled(api: Any, stop: int = ROWS) -> str:
    made = api.post("/v1/arrays", json={"dtype": "float64", "shape": [ROWS, 2]})
    link: str = made.json()["links"]["self"]
    sent = api.put(f"{link}/rows/0", content=THERE[:stop].tobytes(), headers=RAW)
    assert sent.json()["received"] == [[0, stop]]
    return link


def check_intact(api: Any, link: str, values: Any = THERE) -> None:
    found = api.get(link).json()
    assert (found["received"], found["missing"]) == ([[0, ROWS]], [])
    listed = api.get("/v1/arrays").json()["arrays"][0]
    assert listed["received"] == [[0, ROWS]]
    sealed = api.post(link + "/seal")
    assert sealed.status_code == 200, sealed.text
    assert sealed.json()["sha256"] == hashlib.sha256(values.tobytes()).hexdigest()


def pieces(body: bytes) -> Iterator[bytes]:
    """In small pieces and of no length told beforehand."""
    for start in range(0, len(body), 40):
        yield body[start : start + 40]


@pytest.mark.parametrize("told", [True, False], ids=["length told", "in pieces"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_block_changes_nothing(api: httpx.Client, name: str, told: bool) -> None:
    start, body, slug = REFUSED[name]
    link = filled(api)
    answer = api.put(f"{link}/rows/{start}", content=body if told else pieces(body), headers=RAW)
    problem(answer, 404 if slug == "not-found" else 422, slug)
    check_intact(api, link)


def test_a_refused_block_of_rows_some_of_which_are_there(api: httpx.Client) -> None:
    link = filled(api, 6)
    problem(api.put(f"{link}/rows/4", content=bad(9)[4 * ROW :], headers=RAW), 422, "invalid-cost")
    assert api.get(link).json()["received"] == [[0, 6]]
    again = api.put(f"{link}/rows/4", content=THERE[4:].tobytes(), headers=RAW)
    assert again.json()["received"] == [[0, ROWS]]
    check_intact(api, link)


def test_a_whole_block_still_replaces_what_was_there(api: httpx.Client) -> None:
    link = filled(api)
    for start, stop in ((2, 5), (4, 10)):
        body = OTHER[start:stop].tobytes()
        sent = api.put(f"{link}/rows/{start}", content=body, headers=RAW)
        assert sent.json()["received"] == [[0, ROWS]]
    check_intact(api, link, np.concatenate([THERE[:2], OTHER[2:]]))


@pytest.mark.parametrize("length", [True, False])
def test_a_block_cut_off_leaves_the_rows_that_were_there(api: httpx.Client, length: bool) -> None:
    host, port = api.base_url.host, api.base_url.port
    link = filled(api)
    how = f"Content-Length: {4 * ROW}" if length else "Transfer-Encoding: chunked"
    body = OTHER[:2].tobytes() if length else b"20\r\n" + OTHER[:2].tobytes() + b"\r\n"
    head = f"PUT {link}/rows/3 HTTP/1.1\r\nHost: {host}:{port}\r\n{how}\r\n\r\n"
    with socket.create_connection((host, port), 10) as raw:
        raw.sendall(head.encode() + body)
        # While it is under way its rows count as missing.
        until(lambda: api.get(link).json()["missing"] == [[3, 7 if length else ROWS]])
        problem(api.post(link + "/seal"), 409, "array-incomplete")
    until(lambda: not api.get(link).json()["missing"])
    check_intact(api, link)


def test_a_block_that_is_overtaken_leaves_the_rows_that_were_there(tmp_path: Any) -> None:
    store = ArrayStore(tmp_path / "arrays")
    meta = store.create("", "<f8", [ROWS, 2])
    first = store.open_block(meta, 0, ROWS * ROW)
    first.write(THERE.tobytes())
    store.close_block(meta, first, whole=True)
    early = store.open_block(meta, 0, 4 * ROW)
    early.write(OTHER[:4].tobytes())
    late = store.open_block(meta, 2, 2 * ROW)
    with pytest.raises(HttpProblem, match="another block"):
        store.close_block(meta, early, whole=True)
    with pytest.raises(HttpProblem, match="NaN"):
        late.write(np.full((1, 2), np.nan).tobytes())
    store.close_block(meta, late, whole=False)
    found = store.get(meta.id, "")
    assert found.ranges == [[0, ROWS]]
    np.testing.assert_array_equal(np.load(store.file(found)), THERE)
    # Nothing is left of what was kept aside.
    assert {file.name for file in store.file(found).parent.iterdir()} == {"data.npy", "meta.json"}
    np.testing.assert_array_equal(np.load(ArrayStore(tmp_path / "arrays").file(found)), THERE)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="cannot ask for room beforehand")
def test_a_full_disk_changes_nothing(make_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    api = make_app()
    link = filled(api)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("bigsap_server.uploads.blocks.os.posix_fallocate", full)
    problem(api.put(f"{link}/rows/0", content=OTHER.tobytes(), headers=RAW), 507, "disk-full")
    check_intact(api, link)
