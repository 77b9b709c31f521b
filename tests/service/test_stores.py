"""Zarr stores and remote addresses: what is allowed, and judged before use; bombs."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numcodecs
import numpy as np
import pytest
import zarr
from bigsap_server.costs.build import build_source
from bigsap_server.costs.stores import check_metadata
from bigsap_server.costs.url_policy import check_host, check_uri, pinned_client
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import load
from checks import SQUARE, normalised, problem, solved

import bigsap
from gate import HANG_S
from live_server import LiveServer

MATRIX = np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    store = tmp_path / "lab"
    store.mkdir()
    good = zarr.create_array(store / "good.zarr", shape=(3, 3), dtype="f8", chunks=(1, 3))
    good[:] = MATRIX
    old = zarr.create_array(store / "old.zarr", shape=(3, 3), dtype="f4", chunks=(3, 3), zarr_format=2)
    old[:] = MATRIX
    sharded = zarr.create_array(
        store / "sharded.zarr", shape=(4, 3), dtype="i4", chunks=(1, 3), shards=(2, 3)
    )
    sharded[:] = 1
    zarr.create_group(store / "group.zarr")
    return store


def spec(path: str) -> dict[str, Any]:
    return {"cost": {"type": "zarr", "store": "lab", "path": path}}


@pytest.mark.parametrize("path", ["good.zarr", "old.zarr"])
def test_good_stores_are_solved(make_app: Callable[..., Any], lab: Path, path: str) -> None:
    api = make_app(stores={"lab": lab})
    job = solved(api, spec(path))
    assert job["shape"] == [3, 3]
    assert job["result"]["objective"] == 5


def change(lab: Path, **changes: Any) -> None:
    file = lab / "good.zarr" / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


HUGE = {"name": "regular", "configuration": {"chunk_shape": [100_000, 100_000]}}
SHARD = {
    "name": "sharding_indexed",
    "configuration": {
        "chunk_shape": [1, 1],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_location": "end",
    },
}


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"chunk_grid": HUGE}, "over-limit"),
        ({"chunk_grid": HUGE, "codecs": [SHARD]}, "invalid-store"),
        ({"codecs": [{"name": "numcodecs.pickle"}]}, "invalid-store"),
        ({"codecs": []}, "invalid-store"),
        ({"data_type": "object"}, "invalid-store"),
        ({"shape": [3]}, "invalid-store"),
        ({"shape": [3, 10**30]}, "invalid-store"),
        ({"shape": None}, "invalid-store"),
        ({"zarr_format": 4}, "invalid-store"),
        ({"storage_transformers": [{"name": "x"}]}, "invalid-store"),
        ({"chunk_grid": {"name": "rectilinear"}}, "invalid-store"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}}, "invalid-store"),
    ],
)
def test_bombs_are_refused_before_decoding(
    make_app: Callable[..., Any], lab: Path, changes: dict[str, Any], slug: str
) -> None:
    change(lab, **changes)
    api = make_app(stores={"lab": lab})
    problem(api.post("/v1/jobs", json=spec("good.zarr")), 422, slug, "/cost")


def test_damaged_metadata(make_app: Callable[..., Any], lab: Path) -> None:
    api = make_app(stores={"lab": lab})
    file = lab / "good.zarr" / "zarr.json"
    whole = file.read_bytes()
    for text in ("", "{", "[]", "[" * 100_000, '{"zarr_format": 3}', " " * (2 << 20)):
        file.write_text(text)
        problem(api.post("/v1/jobs", json=spec("good.zarr")), 422, "invalid-store", "/cost")
    file.write_bytes(whole)
    file.rename(lab / "elsewhere.json")
    file.symlink_to(lab / "elsewhere.json")
    problem(api.post("/v1/jobs", json=spec("good.zarr")), 422, "invalid-store", "/cost")


def test_both_formats_at_once_are_both_judged(make_app: Callable[..., Any], lab: Path) -> None:
    """Readers differ in which metadata they believe."""
    api = make_app(stores={"lab": lab})
    (lab / "good.zarr" / ".zarray").write_text(
        json.dumps({"zarr_format": 2, "shape": [3, 3], "chunks": [3, 3], "dtype": "|O", "filters": None})
    )
    problem(api.post("/v1/jobs", json=spec("good.zarr")), 422, "invalid-store", "/cost")


def test_limit_of_a_chunk_is_the_operators(make_app: Callable[..., Any], lab: Path) -> None:
    wide = zarr.create_array(lab / "wide.zarr", shape=(40, 40), dtype="f8", chunks=(40, 40))
    wide[:] = 0
    api = make_app(stores={"lab": lab}, limits={"zarr_chunk_bytes": 8 * 1600 - 1})
    problem(api.post("/v1/jobs", json=spec("wide.zarr")), 422, "over-limit", "/cost")


def test_version_2_codecs() -> None:
    good = {
        "zarr_format": 2,
        "shape": [3, 3],
        "chunks": [3, 3],
        "dtype": "<f8",
        "filters": None,
        "compressor": {"id": "blosc"},
    }
    assert check_metadata(good, 1000, "")[0] == [3, 3]
    for bad in (
        {"compressor": {"id": "pickle"}},
        {"filters": [{"id": "x"}]},
        {"dtype": "<U8"},
        {"dtype": [["a", "<f8"]]},
        {"compressor": 3},
    ):
        with pytest.raises(HttpProblem):
            check_metadata(good | bad, 1000, "")


ALLOWED = ["https://data.example/lab/", "s3://bucket/"]


@pytest.mark.parametrize("uri", ["https://data.example/lab/a.zarr", "s3://bucket/a/b.zarr"])
def test_allowed_addresses(uri: str) -> None:
    check_uri(uri, ALLOWED, "")


@pytest.mark.parametrize(
    "uri",
    [
        "https://data.example/lab",
        "http://data.example/lab/a",
        "https://data.example@evil/lab/a",
        "file:///etc/passwd",
        "https://data.example/lab/../x",
        "https://data.example/lab/%2e%2e/x",
        "zip::https://data.example/lab/a",
        "https://data.example/lab/a?u=http://evil",
        "https://data.example/lab/\\..",
        "https://data.example/lab/a b",
        "https://data.example/lab/http://evil/",
        "",
    ],
)
def test_forbidden_addresses(uri: str) -> None:
    with pytest.raises(HttpProblem):
        check_uri(uri, ALLOWED, "")


def test_addresses_are_off_by_default(api: Any) -> None:
    body = {"cost": {"type": "zarr", "uri": "https://data.example/lab/a.zarr"}}
    problem(api.post("/v1/jobs", json=body), 422, "forbidden-address", "/cost/uri")
    cost = {"type": "http_rows", "url": "http://127.0.0.1:9/", "dtype": "f8"}
    answer = api.post("/v1/jobs", json={"shape": [2, 2], "cost": cost})
    problem(answer, 422, "forbidden-address", "/cost/url")


HOSTS = ["rows.example", "rows.example:8000", "10.0.0.7:80", "[::1]:9000"]


@pytest.mark.parametrize(
    "url",
    [
        "http://rows.example/",
        "https://rows.example/x",
        "http://rows.example:8000/",
        "http://ROWS.example/",
        "http://10.0.0.7/",
        "http://[::1]:9000/",
    ],
)
def test_allowed_hosts(url: str) -> None:
    check_host(url, HOSTS, "")


@pytest.mark.parametrize(
    "url",
    [
        "http://rows.example:8001/",
        "http://rows.example:0/",
        "http://evil.rows.example/",
        "http://rows.example@evil/",
        "http://169.254.169.254/",
        "http://0xa000007/",
        "ftp://rows.example/",
        "http://",
        "//rows.example",
        "http://rows.example\\@evil/",
        "http://r\u043ews.example/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.7]/",
    ],
)
def test_forbidden_hosts(url: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        check_host(url, HOSTS, "/cost/url")
    assert caught.value.slug == "forbidden-address"


def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: whatever the name says later, connections go where it said first."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    asked = []

    def resolve(host: str, *args: Any, **named: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    original = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    def later(host: str, *args: Any, **named: Any) -> Any:
        """What needs no name server; there is no other host."""
        asked.append(host)
        if host != "127.0.0.1":
            raise socket.gaierror(8, "not known")
        return original(host, *args, **named)

    with pinned_client("rows.example", port, {}) as client:
        monkeypatch.setattr(socket, "getaddrinfo", later)
        with pytest.raises(httpx.ConnectError):
            client.get("http://other.example/")
        server.settimeout(HANG_S)
        request = client.build_request("GET", f"http://rows.example:{port}/x")
        transport = client._transport
        seen: list[bytes] = []

        def answer() -> None:
            peer, _ = server.accept()
            seen.append(peer.recv(4096))
            peer.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert transport.handle_request(request).status_code == 204
        thread.join(HANG_S)
    server.close()
    assert asked.count("rows.example") == 1
    assert f"host: rows.example:{port}".encode() in seen[0].lower()


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(8, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(HttpProblem, match="unknown"):
        pinned_client("nowhere.invalid", 80, {})


class _Files(SimpleHTTPRequestHandler):
    """Serves a folder; below /away all is somewhere else."""

    def do_GET(self) -> None:
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/away"))
            self.end_headers()
        else:
            super().do_GET()

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def files(lab: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(lab)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join(HANG_S)


def remote(uri: str) -> dict[str, Any]:
    return {"shape": [3, 3], "cost": {"type": "zarr", "uri": uri}}


@pytest.mark.slow
def test_allowed_address_is_solved(start_server: Callable[..., LiveServer], files: str) -> None:
    """In a process of its own: fsspec keeps a thread and connections for good."""
    server = start_server(zarr_uris=json.dumps([files]), attempts=2)
    with server.client() as client:
        good = solved(client, remote(files + "good.zarr"))
        assert good["result"]["objective"] == 5
        for path in ("away/good.zarr", "missing.zarr", "group.zarr"):
            job = solved(client, remote(files + path))
            assert (job["state"], job["attempt"]) == ("failed", 1), path
            assert "cannot be opened" in job["problem"]["detail"]
        elsewhere = remote(files.replace("127.0.0.1", "localhost") + "good.zarr")
        problem(client.post("/v1/jobs", json=elsewhere), 422, "forbidden-address", "/cost/uri")


def test_no_link_is_followed_even_within_the_store(make_app: Callable[..., Any], lab: Path) -> None:
    (lab / "alias.zarr").symlink_to(lab / "good.zarr")
    api = make_app(stores={"lab": lab})
    problem(api.post("/v1/jobs", json=spec("alias.zarr")), 422, "forbidden-path", "/cost/path")


@pytest.mark.parametrize("path", ["group.zarr", "missing.zarr", "good.zarr/c", "old.zarr/.zarray"])
def test_what_is_no_array(make_app: Callable[..., Any], lab: Path, path: str) -> None:
    api = make_app(stores={"lab": lab})
    answer = api.post("/v1/jobs", json=spec(path))
    problem(answer, 422, "invalid-store")


def made(store: Path, name: str, v: int = 3, **given: Any) -> Path:
    """An array of one chunk under ``store``; its folder."""
    chunks = given.pop("chunks", (3, 3))
    array = zarr.create_array(store / name, shape=(3, 3), dtype="f8", chunks=chunks, zarr_format=v, **given)
    array[:] = MATRIX
    return store / name


def body(name: str) -> dict[str, Any]:
    return {"cost": {"type": "zarr", "store": "lab", "path": name}}


def opened(store: Path, name: str) -> bigsap.CostSource:
    settings = load(data=store.parent / "data", stores={"lab": store}).model_dump(mode="json")
    return build_source(normalised(body(name)), settings["data"], settings)


def rows(source: bigsap.CostSource) -> np.ndarray[Any, Any]:
    out = np.empty((3, 3), source.dtype)
    source.read(np.arange(3), slice(0, 3), out)
    return out


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "lab").mkdir()
    return tmp_path / "lab"


GZIP = zarr.codecs.GzipCodec()
CODECS: list[dict[str, Any]] = [
    {"compressors": zarr.codecs.ZstdCodec(), "chunks": (1, 3), "shards": (3, 3)},
    {"compressors": [zarr.codecs.BloscCodec(), GZIP]},
    *({"v": 2, "compressors": kind()} for kind in (numcodecs.Zstd, numcodecs.Blosc, numcodecs.GZip)),
    *({"v": 2, "compressors": kind()} for kind in (numcodecs.Zlib, numcodecs.LZ4)),
]


@pytest.mark.parametrize(
    "given", CODECS, ids=["shards", "blosc", "zstd 2", "blosc 2", "gzip 2", "zlib 2", "lz4 2"]
)
def test_codecs_that_are_taken(store: Path, given: dict[str, Any]) -> None:
    made(store, "a.zarr", **given)
    np.testing.assert_array_equal(rows(opened(store, "a.zarr")), MATRIX)


def test_a_bomb_ends_its_job_only(make_app: Callable[..., Any], store: Path) -> None:
    (made(store, "a.zarr", compressors=GZIP) / "c/0/0").write_bytes(gzip.compress(bytes(8 << 20), 1))
    api = make_app(stores={"lab": store})
    job = solved(api, body("a.zarr"))
    assert (job["state"], job["attempt"]) == ("failed", 1)
    assert job["problem"]["type"] == "urn:bigsap:problem:source-failed"
    assert "Traceback" not in str(job)
    assert solved(api, SQUARE)["result"]["objective"] == 5


LIMITED = """
import sys
import numpy as np
from bigsap_server.costs.limits import limit_process
from bigsap_server.problems import from_error
limit_process(DATA=2 << 30)
mapped = np.load(sys.argv[1], mmap_mode="r")
try:
    np.ones(3 << 30, np.uint8)
except MemoryError as error:
    print(mapped.nbytes >> 30, mapped[-1], from_error(error).slug)
"""


def test_a_process_has_a_limit_of_memory(tmp_path: Path) -> None:
    """Mapped files do not count: matrices may be larger than memory."""
    file = tmp_path / "large.npy"
    with file.open("wb") as out:
        header = {"descr": "|u1", "fortran_order": False, "shape": (4 << 30,)}
        np.lib.format.write_array_header_2_0(out, header)
        out.truncate(out.tell() + (4 << 30))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(file)], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.split() == ["4", "0", "out-of-memory"]
