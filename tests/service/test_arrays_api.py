"""Uploads by row blocks: any order, interrupted, repeated, refused, sealed."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from bigsap_server.api.app import create_app
from bigsap_server.problems import HttpProblem
from bigsap_server.uploads.store import ArrayStore, merged, without
from checks import problem, solved, upload
from fastapi.responses import FileResponse

from apps import served, settings_in
from gate import HANG_S, until

RAW = {"Content-Type": "application/octet-stream"}
MATRIX = np.random.default_rng(1).uniform(size=(10, 3))


def create(api: Any, dtype: str = "float64", shape: tuple[int, ...] = (10, 3)) -> str:
    answer = api.post("/v1/arrays", json={"dtype": dtype, "shape": list(shape)})
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == answer.json()["links"]["self"]
    return str(answer.headers["Location"])


def put(api: Any, array: str, start: int, values: Any) -> Any:
    return api.put(f"{array}/rows/{start}", content=np.asarray(values).tobytes(), headers=RAW)


def test_blocks_in_any_order(api: Any) -> None:
    array = create(api)
    assert put(api, array, 6, MATRIX[6:]).json()["received"] == [[6, 10]]
    assert put(api, array, 0, MATRIX[:2]).json()["received"] == [[0, 2], [6, 10]]
    found = problem(api.post(array + "/seal"), 409, "array-incomplete")
    assert found["missing"] == [[2, 6]]
    answer = put(api, array, 2, MATRIX[2:6]).json()
    assert answer["received"] == [[0, 10]]
    assert answer["complete"] is True
    sealed = api.post(array + "/seal").json()
    assert sealed["sha256"] == hashlib.sha256(MATRIX.tobytes()).hexdigest()
    assert sealed["sealed"] is not None
    data = np.load(io.BytesIO(api.get(array + "/data").content), allow_pickle=False)
    np.testing.assert_array_equal(data, MATRIX)


def test_a_sealed_array_never_changes(api: Any) -> None:
    array = "/v1/arrays/" + upload(api, MATRIX)
    first = api.get(array).json()
    problem(put(api, array, 0, MATRIX), 409, "array-sealed")
    assert api.post(array + "/seal").json() == first
    wrong = api.post(array + "/seal", json={"sha256": "0" * 64})
    problem(wrong, 422, "invalid-spec", "/sha256")
    assert api.post(array + "/seal", json={"sha256": first["sha256"]}).status_code == 200


def test_nan_names_row_and_column(api: Any) -> None:
    bad = MATRIX.copy()
    bad[7, 2] = np.nan
    array = create(api)
    found = problem(put(api, array, 4, bad[4:]), 422, "invalid-cost")
    assert (found["row"], found["column"]) == (7, 2)


def test_nan_across_chunks_of_the_network(make_app: Callable[..., Any]) -> None:
    """An item that is cut in two by the chunking is judged as one."""
    api = make_app()
    bad = np.ones((10, 3))
    bad[5, 1] = np.nan
    text = bad.tobytes()
    store: ArrayStore = api.app.app.state.service.arrays
    meta = store.create("", "<f8", [10, 3])
    block = store.open_block(meta, 0, None)
    at = 8 * (5 * 3 + 1) + 7  # the byte that completes the bad item
    for k in range(0, at // 7 * 7, 7):
        block.write(text[k : k + 7])
    with pytest.raises(HttpProblem, match=r"\[5, 1\] is NaN"):
        block.write(text[at // 7 * 7 : at // 7 * 7 + 7])
    store.close_block(meta, block, whole=False)


@pytest.mark.parametrize("shape", [(5, 0), (0, 0), (0, 5), (0,)])
def test_arrays_without_numbers_are_whole_from_the_start(api: Any, shape: tuple[int, ...]) -> None:
    array = create(api, "float32", shape)
    assert api.get(array).json()["missing"] == []
    assert api.get(array).json()["complete"]
    if 0 in shape[1:] and shape[0]:
        for start in (0, 2):
            assert put(api, array, start, np.zeros((0,))).json()["missing"] == []
        problem(put(api, array, 0, np.zeros(1)), 422, "invalid-spec")
    sealed = api.post(array + "/seal")
    assert sealed.status_code == 200
    assert sealed.json()["sha256"] == hashlib.sha256(b"").hexdigest()
    values = np.load(io.BytesIO(api.get(array + "/data").content))
    assert (values.shape, values.dtype) == (shape, np.dtype("<f4"))
    if len(shape) == 2:
        job = solved(api, {"cost": {"type": "array", "array": sealed.json()["id"]}})
        assert (job["state"], job["result"]["shape"]) == ("succeeded", list(shape)), job


def test_ranges_of_the_data(api: Any) -> None:
    array_id = upload(api, np.arange(12.0).reshape(3, 4))
    link = f"/v1/arrays/{array_id}/data"
    whole = api.get(link).content
    for text, start, stop in (
        ("bytes=0-3,100000-", 0, 4),
        ("bytes=100000-,4-9, -0", 4, 10),
        ("bytes=-100000", 0, len(whole)),
    ):
        answer = api.get(link, headers={"Range": text})
        assert answer.status_code == 206, text
        assert answer.content == whole[start:stop]
        assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(whole)}"
    several = api.get(link, headers={"Range": "bytes=0-3,100000-,8-9"})
    assert several.status_code == 206
    assert several.headers["Content-Type"].startswith("multipart/byteranges")
    found = api.get(link, headers={"Range": "bytes=100000-,-0"})
    problem(found, 416, "range-not-satisfiable")
    assert found.headers["Content-Range"] == f"bytes */{len(whole)}"
    assert api.get(link, headers={"Range": "bytes=0-3,9-1"}).content == whole


def test_an_array_that_is_deleted_while_it_is_asked_for_is_not_there(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = f"/v1/arrays/{upload(api, MATRIX)}"
    usual = ArrayStore.file

    def deleted(store: ArrayStore, meta: Any) -> Path:
        file = usual(store, meta)
        file.unlink()
        return file

    monkeypatch.setattr(ArrayStore, "file", deleted)
    problem(api.get(link + "/data"), 404, "not-found")


@pytest.mark.parametrize("wanted", [None, "bytes=0-9", "bytes=0-3,20-29"])
def test_a_download_that_has_begun_is_whole_although_it_is_deleted(
    api: Any, monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    headers = {"Accept": "application/x-npy"} | ({} if wanted is None else {"Range": wanted})
    link = f"/v1/arrays/{upload(api, MATRIX)}"
    job = solved(api, {"cost": {"type": "array", "values": MATRIX.tolist()}})
    places = (f"{link}/data", f"{job['links']['result']}/u")
    lengths = {place: len(api.get(place, headers=headers).content) for place in places}
    usual = FileResponse.__call__

    async def meanwhile(answer: FileResponse, *asgi: Any) -> None:
        Path(answer.path).unlink()
        await usual(answer, *asgi)

    monkeypatch.setattr(FileResponse, "__call__", meanwhile)
    for place in places:
        answer = api.get(place, headers=headers)
        assert (answer.status_code, len(answer.content)) == (206 if wanted else 200, lengths[place])


def test_data_that_the_client_has_are_not_sent_again(api: Any) -> None:
    link = f"/v1/arrays/{upload(api, MATRIX)}/data"
    tag = api.get(link).headers["ETag"]
    again = api.get(link, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert api.get(link, headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_refused_block_overtakes_none(serve_app: Callable[..., str]) -> None:
    address = serve_app(limits={"block_bytes": 1024})
    with httpx.Client(base_url=address, timeout=HANG_S) as client:
        array = create(client, shape=(4, 1))
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), HANG_S) as raw:
            raw.sendall(
                f"PUT {array}/rows/0 HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 32\r\n\r\n".encode()
                + bytes(16)
            )
            # Until the first block is open, which it is once sealing says so.
            until(lambda: "block" in client.post(array + "/seal").json()["detail"])
            problem(put(client, array, 0, np.zeros((129, 1))), 413, "body-too-large")
            problem(put(client, array, 0, np.zeros((5, 1))), 422, "invalid-spec")
            raw.sendall(bytes(16))
            assert b" 200 " in raw.recv(100)
        assert client.get(array).json()["missing"] == []


def test_finite_is_what_is_sealed(api: Any) -> None:
    array = create(api)
    put(api, array, 0, np.full((10, 3), np.inf))
    put(api, array, 0, MATRIX)
    assert api.post(array + "/seal").json()["finite"] is True
    array = create(api)
    put(api, array, 0, np.where(MATRIX > 0.5, np.inf, MATRIX))
    assert api.post(array + "/seal").json()["finite"] is False


def test_half_an_upload_survives_a_restart(make_app: Callable[..., Any], tmp_path: Path) -> None:
    store = ArrayStore(tmp_path / "arrays")
    meta = store.create("me", "<f8", [10, 3])
    block = store.open_block(meta, 2, None)
    block.write(MATRIX[2:5].tobytes())
    store.close_block(meta, block, whole=True)
    half = store.open_block(meta, 6, 48)
    half.write(MATRIX[6:7].tobytes())  # ... and then the process is gone
    again = ArrayStore(tmp_path / "arrays")
    assert again.get(meta.id, "me").ranges == [[2, 5]]
    (tmp_path / "arrays" / "arr_0123456789abcdef").mkdir()  # created, never recorded
    assert len(ArrayStore(tmp_path / "arrays").owned(None)) == 1
    half.close()


def test_an_upload_whose_record_cannot_be_read_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = ArrayStore(tmp_path).create("me", "<f8", [10, 3])

    def refused(path: Path) -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("bigsap_server.uploads.store.read_json", refused)
        assert ArrayStore(tmp_path).owned(None) == []
    assert ArrayStore(tmp_path).get(meta.id, "me").shape == [10, 3]


def test_an_array_in_use_stays(make_app: Callable[..., Any]) -> None:
    api = make_app()
    array_id = upload(api, np.ones((2, 2)))
    store = api.app.app.state.service.store
    api.app.app.state.service.supervisor.stop()  # so that the job stays queued
    spec = {
        "cost": {"type": "sum", "terms": [{"type": "array", "values": {"array": array_id}}]},
        "options": {"maximize": False},
    }
    job, _ = store.submit(spec)
    found = problem(api.delete(f"/v1/arrays/{array_id}"), 409, "array-in-use")
    assert job.id in found["detail"]
    store.request_cancel(job.id, "now")
    assert api.delete(f"/v1/arrays/{array_id}").status_code == 204


def test_quotas(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"arrays": 2, "stored_bytes": 1000})
    create(api, shape=(100,))
    problem(api.post("/v1/arrays", json={"dtype": "f8", "shape": [100]}), 429, "quota-exceeded")
    create(api, shape=(1,))
    problem(api.post("/v1/arrays", json={"dtype": "f8", "shape": [1]}), 429, "quota-exceeded")


def test_a_quota_holds_for_arrays_made_at_once(tmp_path: Path) -> None:
    store = ArrayStore(tmp_path / "arrays")
    answers: list[str] = []

    def make() -> None:
        try:
            answers.append(store.create("me", "<f8", [10], (3, 10_000)).id)
        except HttpProblem as error:
            answers.append(error.slug)

    threads = [threading.Thread(target=make) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert answers.count("quota-exceeded") == 13
    assert len(store.owned("me")) == 3


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "body",
    [
        {"dtype": "f8"},
        {"dtype": "f8", "shape": []},
        {"dtype": "f8", "shape": [1, 2, 3]},
        {"dtype": "f8", "shape": [-1]},
        {"dtype": "c16", "shape": [1]},
        {"dtype": "f8", "shape": [2**60, 2**60]},
    ],
)
def test_arrays_that_cannot_be(api: Any, body: dict[str, Any]) -> None:
    answer = api.post("/v1/arrays", json=body)
    problem(answer, 422, answer.json()["type"].rpartition(":")[2])


def test_ranges_of_rows() -> None:
    assert merged([[5, 7], [0, 2], [2, 3], [6, 9]]) == [[0, 3], [5, 9]]
    assert without([[0, 10]], 3, 5) == [[0, 3], [5, 10]]
    assert without([[0, 3], [5, 9]], 2, 6) == [[0, 2], [6, 9]]
    assert without([[0, 3]], 3, 9) == [[0, 3]]
    assert without([[2, 3]], 0, 9) == []


def test_a_wrong_hash_does_not_seal(api: Any) -> None:
    array = "/v1/arrays/" + upload(api, MATRIX, seal=False)
    problem(api.post(array + "/seal", json={"sha256": "0" * 64}), 422, "invalid-spec", "/sha256")
    assert api.get(array).json()["sealed"] is None


def test_sealing_a_large_array_keeps_no_other_request_waiting(
    serve_app: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for it, and whatever else is asked for this array meanwhile."""
    reading, go_on = threading.Event(), threading.Event()
    usual = ArrayStore._digest

    def slowly(*given: Any) -> Any:
        reading.set()
        assert go_on.wait(HANG_S)
        return usual(*given)

    monkeypatch.setattr(ArrayStore, "_digest", slowly)
    with httpx.Client(base_url=serve_app(), timeout=HANG_S) as api, ThreadPoolExecutor(60) as clients:
        array = create(api)
        assert put(api, array, 0, MATRIX).status_code == 200
        sealed = [
            clients.submit(httpx.post, f"{api.base_url}{array}/seal", timeout=HANG_S) for _ in range(60)
        ]
        assert reading.wait(HANG_S)
        problem(put(api, array, 0, MATRIX), 409, "array-in-use")
        problem(api.delete(array), 409, "array-in-use")
        assert api.get(array).json()["sealed"] is None
        assert api.get("/v1/jobs").status_code == 200
        go_on.set()
        assert {answer.result().status_code for answer in sealed} == {200}
        problem(put(api, array, 0, MATRIX), 409, "array-sealed")
        assert api.delete(array).status_code == 204


def test_a_stalled_block_does_not_mix_into_a_later_one(serve_app: Callable[..., str]) -> None:
    """The later block of the same rows counts, whole; the stalled one writes nothing more."""
    address = serve_app()
    rows, size = 4000, 4000 * 128 * 8
    with httpx.Client(base_url=address, timeout=HANG_S) as client:
        array = create(client, shape=(rows, 128))
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), HANG_S) as stalled:
            stalled.sendall(
                f"PUT {array}/rows/0 HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Content-Length: {size}\r\n\r\n".encode()
                + b"\0" * (2 << 20)
            )
            said = "a block is still being received"
            until(lambda: problem(client.post(array + "/seal"), 409, "array-incomplete")["detail"] == said)
            matrix = np.random.default_rng(1).random((rows, 128))
            assert put(client, array, 0, matrix).json()["received"] == [[0, rows]]
            stalled.sendall(b"\0" * (size * 5 // 8 - (2 << 20)))
            assert b" 409 " in stalled.recv(1 << 16).split(b"\r\n")[0]
        assert client.get(array).json()["received"] == [[0, rows]]
        sealed = client.post(array + "/seal").json()
    assert sealed["sha256"] == hashlib.sha256(matrix.tobytes()).hexdigest()


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
def test_a_full_disk_leaves_nothing_of_a_new_array(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = ArrayStore(tmp_path / "arrays")
    monkeypatch.setattr("bigsap_server.uploads.store.write_json", full)
    with pytest.raises(HttpProblem) as caught:
        store.create("ann", "<f8", [3, 3])
    assert caught.value.slug == "disk-full"
    assert list(store.folder.iterdir()) == []
    assert store.owned("ann") == []


def test_a_full_disk_changes_nothing(make_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    api = make_app()
    link = filled(api)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("bigsap_server.uploads.blocks.os.posix_fallocate", full)
    problem(api.put(f"{link}/rows/0", content=OTHER.tobytes(), headers=RAW), 507, "disk-full")
    check_intact(api, link)
