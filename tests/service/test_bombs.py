"""Files of zarr arrays that are not what the metadata says: they end their job, and nothing else."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from bigsap_server.costs.build import build_source
from bigsap_server.settings import load
from checks import SQUARE, normalised, solved

import bigsap
from gate import HANG_S

MATRIX = np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])


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


@pytest.mark.parametrize("name", CODECS_3)
def test_arrays_of_format_3(store: Path, name: str) -> None:
    made(store, "a.zarr", 3, **CODECS_3[name])
    np.testing.assert_array_equal(rows(opened(store, "a.zarr")), MATRIX)


@pytest.mark.parametrize("name", CODECS_2)
def test_arrays_of_format_2(store: Path, name: str) -> None:
    made(store, "a.zarr", 2, compressors=CODECS_2[name])
    np.testing.assert_array_equal(rows(opened(store, "a.zarr")), MATRIX)


def test_a_bomb_ends_its_job_only(make_app: Callable[..., Any], store: Path) -> None:
    (made(store, "a.zarr", **CODECS_3["gzip"]) / "c/0/0").write_bytes(gzip.compress(bytes(8 << 20), 1))
    api = make_app(stores={"lab": store})
    job = solved(api, body("a.zarr"))
    assert (job["state"], job["attempt"]) == ("failed", 1)
    assert job["problem"]["type"] == "urn:bigsap:problem:source-failed"
    assert "Traceback" not in str(job)
    assert solved(api, SQUARE)["result"]["objective"] == 5


LIMITED = """
import sys
import numpy as np
from bigsap_server.jobs.worker import _limit_memory
from bigsap_server.problems import from_error
_limit_memory(2 << 30)
mapped = np.load(sys.argv[1], mmap_mode="r")
try:
    np.ones(3 << 30, np.uint8)
except MemoryError as error:
    print(mapped.nbytes >> 30, mapped[-1], from_error(error).slug)
"""


def test_a_worker_has_a_limit_of_memory(tmp_path: Path) -> None:
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
