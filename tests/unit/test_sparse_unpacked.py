"""Compressed sparse costs that are unpacked into a temporary file: full disks, large chunks, names."""

from __future__ import annotations

import errno
import io
import itertools
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr

import bigsap
from bigsap import policy
from bigsap.sources.arrays.mapped import place_of
from bigsap.sources.sparse import stored as stored_costs

N = 300


@pytest.fixture(autouse=True)
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "UNPACKED_IN_MEMORY", 0.0)
    monkeypatch.setattr(stored_costs, "_AT_ONCE", 1 << 10)


def graph() -> scipy.sparse.csr_array:
    rng = np.random.default_rng(4)
    columns = np.concatenate((rng.permutation(N), rng.integers(0, N, 5 * N)))
    rows = np.concatenate((np.arange(N), rng.integers(0, N, 5 * N)))
    return scipy.sparse.csr_array((rng.random(rows.size), (rows, columns)), shape=(N, N))


def archive(folder: Path) -> Path:
    path = folder / "graph.npz"
    scipy.sparse.save_npz(path, graph())
    return path


def group_in(store: Any, **layout: Any) -> Any:
    group = zarr.open_group(store, mode="w")
    group.attrs["shape"] = [N, N]
    for part in ("indptr", "indices", "data"):
        group.create_array(part, data=getattr(graph(), part), **layout)
    return group


class Small(io.FileIO):
    """A file on a disk that has room for so many bytes."""

    room = 5000

    def write(self, data: Any) -> int:
        fits = memoryview(data).cast("B")[: max(0, self.room - self.tell())]
        if not len(fits):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fits)


@pytest.mark.parametrize("kind", ["npz", "zarr"])
def test_a_full_disk_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is mapped before it is written would end the process where the disk is full."""
    cost = archive(tmp_path) if kind == "npz" else group_in(tmp_path / "graph.zarr")
    names = map(str, itertools.count())
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Small(tmp_path / next(names), "w+"))
    with pytest.raises(bigsap.StoreError, match=r"temporary file: .*No space left.*TMPDIR") as caught:
        bigsap.as_source(cost)
    assert "readable" not in str(caught.value)
    monkeypatch.setattr(Small, "room", 1 << 20)
    assert bigsap.solve(cost).fun == bigsap.solve(graph()).fun


def test_a_missing_folder_for_temporary_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = archive(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(bigsap.StoreError, match=r"temporary file: .*missing.*TMPDIR"):
        bigsap.as_source(cost)


def test_a_temporary_file_that_has_a_name_is_not_named_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where no other process can open it."""
    monkeypatch.setattr(tempfile, "TemporaryFile", tempfile.NamedTemporaryFile)
    entries = bigsap.as_source(archive(tmp_path)).entries()
    assert all(place_of(array) is None for array in entries)
    np.testing.assert_array_equal(entries.costs, graph().data)


class Counting(zarr.storage.MemoryStore):
    """A store that counts how often each key is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    async def get(self, key: str, *of: Any, **options: Any) -> Any:
        self.read[key] += 1
        return await super().get(key, *of, **options)


LAYOUTS = ({"chunks": (1000,)}, {"chunks": (50,), "shards": (500,)}, {"chunks": (7,)})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_chunk_is_decoded_once(layout: dict[str, Any]) -> None:
    """Chunks may be larger than what is unpacked at a time."""
    store = Counting()
    group = group_in(store, **layout)
    store.read.clear()
    found = bigsap.as_source(group)
    if "shards" not in layout:
        assert {n for key, n in store.read.items() if "/c/" in key} == {1}
    assert bigsap.solve(found).fun == bigsap.solve(graph()).fun


def test_damage_is_named_where_costs_are_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(bigsap.StoreError, match=r"not a readable .npz file"):
        bigsap.as_source(path)
    with np.load(archive(tmp_path)) as file:
        members = dict(file)
    np.savez_compressed(path, **{**members, "indices": members["indices"][:-1]})
    with pytest.raises(bigsap.ShapeError, match="one for each listed pair"):
        bigsap.as_source(path)


@pytest.mark.parametrize("dtype", ["i1", "i8", "u2", "f4", ">f8", "f2"])
@pytest.mark.parametrize("kind", ["npz", "zarr"])
def test_unpacked_costs_of_every_dtype(kind: str, dtype: str, tmp_path: Path) -> None:
    given = graph()
    costs = (10 * given.data).astype(dtype)
    parts = {"indptr": given.indptr.astype("i8"), "indices": given.indices.astype("u4"), "data": costs}
    path = tmp_path / f"graph.{kind}"
    if kind == "npz":
        np.savez_compressed(path, format=b"csr", shape=np.array(given.shape), **parts)
    else:
        group = zarr.open_group(path, mode="w")
        group.attrs["shape"] = list(given.shape)
        for name, part in parts.items():
            group.create_array(name, data=part)
    found = bigsap.as_source(path)
    np.testing.assert_array_equal(found.entries().costs, costs)
    pairs = np.repeat(np.arange(N), np.diff(given.indptr)), given.indices, costs
    assert bigsap.solve(found).fun == bigsap.solve(bigsap.sparse(pairs, given.shape)).fun


@pytest.mark.parametrize("kind", ["npz", "zarr"])
def test_unpacked_costs_without_pairs(kind: str, tmp_path: Path) -> None:
    path, empty = tmp_path / f"graph.{kind}", scipy.sparse.csr_array((3, 4))
    if kind == "npz":
        scipy.sparse.save_npz(path, empty)
    else:
        group = zarr.open_group(path, mode="w")
        group.attrs["shape"] = [3, 4]
        for part in ("indptr", "indices", "data"):
            group.create_array(part, data=getattr(empty, part))
    assert bigsap.solve(path).status == "infeasible"
