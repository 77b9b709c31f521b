"""Files of zarr arrays that are not what the metadata says: frames, links, sizes."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from bigsap_server.costs.build import build_source
from bigsap_server.costs.stores import check_zarr_files
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import load
from checks import SQUARE, problem, solved

import bigsap

MATRIX = np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])
CHUNK = MATRIX.nbytes
HUGE = 256 << 20


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
    return build_source(body(name), settings["data"], settings)


def rows(source: bigsap.CostSource) -> np.ndarray[Any, Any]:
    out = np.empty((3, 3), source.dtype)
    source.read(np.arange(3), slice(0, 3), out)
    return out


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "lab").mkdir()
    return tmp_path / "lab"


def silent_zstd(*blocks: tuple[int, int, bytes]) -> bytes:
    """A zstd frame that does not say its size; blocks: (type, size, bytes)."""
    found = struct.pack("<IBB", 0xFD2FB528, 0, 0x38)
    for k, (kind, size, data) in enumerate(blocks):
        found += (size << 3 | kind << 1 | (k == len(blocks) - 1)).to_bytes(3, "little") + data
    return found


def zstd_that_claims(size: int) -> bytes:
    """A valid zstd frame with another size in its header."""
    honest = numcodecs.Zstd().encode(MATRIX.tobytes())
    assert honest[4] >> 5 == 1, "one byte of size in a single segment"
    return struct.pack("<IBQ", 0xFD2FB528, honest[4] | 0xC0, size) + honest[6:]


def patched(frame: bytes, place: int, size: int) -> bytes:
    return frame[:place] + struct.pack("<I", size) + frame[place + 4 :]


CODECS_3 = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "blosc": {"compressors": zarr.codecs.BloscCodec()},
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "shards": {"compressors": zarr.codecs.ZstdCodec(), "chunks": (1, 3), "shards": (3, 3)},
    "twice": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec()]},
}
CODECS_2 = {
    "zstd": numcodecs.Zstd(),
    "blosc": numcodecs.Blosc(),
    "gzip": numcodecs.GZip(),
    "zlib": numcodecs.Zlib(),
    "lz4": numcodecs.LZ4(),
}
BOMBS = {
    "zstd": zstd_that_claims(HUGE),
    "silent zstd": silent_zstd(*[(1, 128 << 10, b"\0")] * (HUGE >> 17)),
    "blosc": patched(numcodecs.Blosc().encode(MATRIX), 4, HUGE),
    "gzip": gzip.compress(bytes(HUGE >> 2), 1),
    "gzip in parts": gzip.compress(bytes(1000)) * 200,
    "zlib": zlib.compress(bytes(HUGE >> 2), 1),
    "lz4": patched(numcodecs.LZ4().encode(MATRIX.tobytes()), 0, HUGE),
}


def codec_of(bomb: str) -> str:
    return next(name for name in (*CODECS_2, "gzip") if name in bomb.split())


@pytest.mark.parametrize("name", CODECS_3)
def test_honest_arrays_of_format_3(store: Path, name: str) -> None:
    made(store, "a.zarr", 3, **CODECS_3[name])
    np.testing.assert_array_equal(rows(opened(store, "a.zarr")), MATRIX)


@pytest.mark.parametrize("name", CODECS_2)
def test_honest_arrays_of_format_2(store: Path, name: str) -> None:
    made(store, "a.zarr", 2, compressors=CODECS_2[name])
    np.testing.assert_array_equal(rows(opened(store, "a.zarr")), MATRIX)


def test_a_frame_may_keep_its_size_to_itself(store: Path) -> None:
    file = made(store, "a.zarr", **CODECS_3["zstd"]) / "c/0/0"
    file.write_bytes(silent_zstd((0, CHUNK, MATRIX.tobytes())))
    np.testing.assert_array_equal(rows(opened(store, "a.zarr")), MATRIX)


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("v", [2, 3])
def test_bombs_do_not_go_off(store: Path, v: int, bomb: str) -> None:
    name = codec_of(bomb)
    if v == 3 and name not in CODECS_3:
        pytest.skip("format 3 knows it only under a name that zarr warns of")
    given = CODECS_3[name] if v == 3 else {"compressors": CODECS_2[name]}
    folder = made(store, "a.zarr", v, **given)
    (folder / ("c/0/0" if v == 3 else "0.0")).write_bytes(BOMBS[bomb])
    source = opened(store, "a.zarr")
    tracemalloc.start()
    try:
        with pytest.raises(bigsap.StoreError, match=r"decode to \d+ bytes or more, but the chunk"):
            rows(source)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_ends_its_job_only(make_app: Callable[..., Any], store: Path) -> None:
    (made(store, "a.zarr", **CODECS_3["gzip"]) / "c/0/0").write_bytes(BOMBS["gzip"])
    api = make_app(stores={"lab": store})
    job = solved(api, body("a.zarr"))
    assert job["state"] == "failed"
    assert job["attempt"] == 1
    assert job["problem"]["type"] == "urn:bigsap:problem:source-failed"
    assert "decode to" in job["problem"]["detail"]
    assert "Traceback" not in str(job)
    assert solved(api, SQUARE)["result"]["objective"] == 5


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("what", ["file", "folder", "fifo", "within the store"])
def test_chunks_behind_links_are_refused(
    make_app: Callable[..., Any], store: Path, raw: bool, what: str
) -> None:
    folder = made(store, "a.zarr", compressors=None if raw else zarr.codecs.ZstdCodec())
    chunk = folder / "c/0/0"
    if what == "file":
        os.replace(chunk, store.parent / "secret")
        chunk.symlink_to(store.parent / "secret")
    elif what == "folder":
        os.replace(folder / "c", store.parent / "c")
        (folder / "c").symlink_to(store.parent / "c")
    elif what == "fifo":
        chunk.unlink()
        os.mkfifo(chunk)
    else:
        os.replace(chunk, store / "b")
        chunk.symlink_to("../../../b")
    api = make_app(stores={"lab": store})
    answer = api.post("/v1/jobs", json=body("a.zarr"))
    problem(answer, 422, "forbidden-path", "/cost")
    assert str(store.parent) not in answer.text
    # The worker looks for itself, and at all files.
    with pytest.raises(HttpProblem) as caught:
        opened(store, "a.zarr")
    assert caught.value.slug == "forbidden-path"


def test_files_larger_than_a_chunk_are_refused(store: Path) -> None:
    chunk = made(store, "a.zarr", **CODECS_3["zstd"]) / "c/0/0"
    os.truncate(chunk, 1 << 40)
    with pytest.raises(HttpProblem, match="more than a chunk can have"):
        opened(store, "a.zarr")


def test_a_request_looks_at_some_files_only(store: Path) -> None:
    folder = made(store, "a.zarr", chunks=(1, 1), compressors=None)
    (folder / "c/2/2").unlink()
    (folder / "c/2/2").symlink_to(folder / "c/0/0")
    check_zarr_files(folder, "/cost", most_entries=1)
    with pytest.raises(HttpProblem, match=r"c/2/2.*no plain file"):
        check_zarr_files(folder, "/cost")
