"""Zarr stores: every layout reads the same, and damage is reported, never returned."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsap.errors import DtypeError, OptionError, ShapeError, SourceError, StoreError
from bigsap.sources import ArraySource, as_source, from_zarr
from bigsap.sources.base import CostSource, Grouped, Prefetching, Resident
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource
from bigsap.sources.zarr.readahead import ReadAhead
from bigsap.sources.zarr.zarr_store import rechunk
from contracts import N_COLUMNS, N_ROWS, SourceContract, one_class_each, read
from gate import HANG_S, until
from pairwise import each

zarr = pytest.importorskip("zarr")

COSTS = np.random.default_rng(4).uniform(1, 9, (N_ROWS, N_COLUMNS))
BIG_ENDIAN = zarr.codecs.BytesCodec(endian="big")
WHOLE = (N_ROWS, N_COLUMNS)


def write(path: Any, matrix: np.ndarray, **options: Any) -> Any:
    """A zarr array with every chunk written. ``path``: a path or a store."""
    options = {"chunks": (4, N_COLUMNS), "compressors": None, "dtype": matrix.dtype, **options}
    array = zarr.create_array(store=path, shape=matrix.shape, config={"write_empty_chunks": True}, **options)
    array[...] = matrix
    return array


def quiet(path: Any) -> CostSource:
    """``from_zarr`` without the warning about chunks that split columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*bigsap rechunk.*")
        return from_zarr(path)


class ZarrContract(SourceContract):
    """One layout: ``options`` for zarr and the ``kind`` of source it should give."""

    options: dict[str, Any] = {}  # noqa: RUF012
    kind: type = RawZarrSource

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._paths = (tmp_path / f"costs{k}.zarr" for k in itertools.count())

    def make(self, matrix: np.ndarray) -> CostSource:
        path = next(self._paths)
        write(path, matrix, **self.options)
        return quiet(path)

    def test_kind(self, source: CostSource) -> None:
        assert type(source) is self.kind

    def test_equals_reading_through_zarr(self, expected: np.ndarray) -> None:
        """The fast path against zarr's own reading of the same store."""
        path = next(self._paths)
        write(path, expected, **self.options)
        source = quiet(path)
        zarr_says = np.asarray(zarr.open(path, mode="r")[...])
        np.testing.assert_array_equal(read(source, np.arange(len(expected))), zarr_says)


NO_CHECKSUM = zarr.codecs.ShardingCodec(
    chunk_shape=(2, N_COLUMNS), codecs=[zarr.codecs.BytesCodec()], index_codecs=[zarr.codecs.BytesCodec()]
)
INDEX_FIRST = zarr.codecs.ShardingCodec(
    chunk_shape=(2, N_COLUMNS), codecs=[BIG_ENDIAN], index_location="start"
)
RAW_LAYOUTS: dict[str, dict[str, Any]] = {
    "RawRows": {"chunks": (1, N_COLUMNS)},
    "RawBlocks": {},
    "RawTiles": {"chunks": (5, 4)},
    "RawV2": {"zarr_format": 2, "chunks": (5, 4)},
    "RawV2BigEndian": {"zarr_format": 2, "dtype": ">f8"},
    "RawV3BigEndian": {"serializer": BIG_ENDIAN},
    "RawPaddedColumns": {"chunks": (4, N_COLUMNS + 3)},
    "RawShards": {"chunks": (1, N_COLUMNS), "shards": (4, N_COLUMNS)},
    "RawShardsOfTiles": {"chunks": (2, 3), "shards": (4, 6)},
    "RawShardsIndexFirst": {"chunks": (4, N_COLUMNS), "serializer": INDEX_FIRST},
    "RawShardsWithoutChecksum": {"serializer": NO_CHECKSUM},
}
DECODED_LAYOUTS: dict[str, dict[str, Any]] = {
    "CompressedV2BigEndian": {"compressors": "auto", "zarr_format": 2, "dtype": ">f8"},
    "FortranOrderV2": {"zarr_format": 2, "order": "F"},
    "TransposedV3": {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
}
globals().update(
    one_class_each(ZarrContract, **{name: {"options": given} for name, given in RAW_LAYOUTS.items()})
)
globals().update(
    one_class_each(
        ZarrContract,
        **{name: {"options": given, "kind": DecodedZarrSource} for name, given in DECODED_LAYOUTS.items()},
    )
)


class TestOneRawChunk(ZarrContract):
    options = {"chunks": WHOLE}  # noqa: RUF012
    kind = ArraySource

    def test_is_resident(self, source: CostSource) -> None:
        assert isinstance(source, Resident)
        whole = source.resident()
        assert whole is not None
        assert isinstance(whole.base, np.memmap)


class TestOnePaddedRawChunk(TestOneRawChunk):
    options = {"chunks": (N_ROWS + 3, N_COLUMNS + 2)}  # noqa: RUF012

    def test_is_resident(self, source: CostSource) -> None:
        assert source.resident().shape == (N_ROWS, N_COLUMNS + 2)


class TestCompressed(ZarrContract):
    options = {"compressors": "auto"}  # noqa: RUF012
    kind = DecodedZarrSource

    def test_abilities(self, source: CostSource) -> None:
        assert isinstance(source, Grouped)
        assert isinstance(source, Prefetching)
        assert source.rows_together(6) == (4, 8)
        assert source.rows_together(12) == (12, 13)


class TestCompressedTiles(ZarrContract):
    options = {"compressors": "auto", "chunks": (5, 4)}  # noqa: RUF012
    kind = DecodedZarrSource


class TestCompressedShards(ZarrContract):
    options = {"compressors": "auto", "chunks": (2, 3), "shards": (4, 9)}  # noqa: RUF012
    kind = DecodedZarrSource

    def test_inner_chunks_are_the_groups(self, source: CostSource) -> None:
        assert source.rows_together(7) == (6, 8)


class TestWrappedShards(ZarrContract):
    options = {  # noqa: RUF012
        "serializer": zarr.codecs.ShardingCodec(chunk_shape=(2, 3)),
        "compressors": [zarr.codecs.GzipCodec()],
    }
    kind = DecodedZarrSource

    @pytest.fixture(autouse=True)
    def _quiet(self) -> Any:
        with warnings.catch_warnings():
            # zarr advises against such an array; reading one must work all the same.
            warnings.filterwarnings("ignore", message=".*sharding.*")
            yield


class TestSmallGroups(TestCompressedTiles):
    """Rows of chunks too large to keep are read in parts."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bigsap.sources.zarr.decoded.GROUP_BYTES", 2 * 8 * N_COLUMNS)

    def test_parts_stay_within_chunks(self, source: CostSource) -> None:
        groups = sorted({source.rows_together(row) for row in range(N_ROWS)})
        assert groups == [(0, 2), (2, 4), (4, 5), (5, 7), (7, 9), (9, 10), (10, 12), (12, 13)]


class TestOtherStore(ZarrContract):
    kind = DecodedZarrSource

    def make(self, matrix: np.ndarray) -> CostSource:
        return from_zarr(write(zarr.storage.MemoryStore(), matrix))

    def test_equals_reading_through_zarr(self, expected: np.ndarray) -> None:
        pass  # there is no path to open again; test_reads compares with the costs


@each(
    zarr_format=[2, 3],
    compressors=[None, "auto"],
    dtype=["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4"],
)
def test_every_dtype(tmp_path: Path, dtype: str, compressors: Any, zarr_format: int) -> None:
    matrix = np.random.default_rng(1).integers(0, 2, WHOLE).astype(dtype)
    write(tmp_path / "c", matrix, compressors=compressors, zarr_format=zarr_format)
    source = as_source(tmp_path / "c")
    assert source.dtype == ArraySource(matrix).dtype
    np.testing.assert_array_equal(read(source, np.arange(N_ROWS)[::-1]), matrix[::-1])


def test_an_open_array_and_one_inside_a_group(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    array = group.create_array("deep/costs", shape=WHOLE, chunks=(4, N_COLUMNS), dtype="f8", compressors=None)
    array[...] = COSTS
    for given in (array, tmp_path / "g.zarr" / "deep" / "costs"):
        source = as_source(given)
        assert isinstance(source, RawZarrSource)
        np.testing.assert_array_equal(read(source, [5]), COSTS[[5]])


def test_zip_store(tmp_path: Path) -> None:
    store = zarr.storage.ZipStore(tmp_path / "c.zip", mode="w")
    write(store, COSTS)
    store.close()
    source = as_source(tmp_path / "c.zip")
    np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), COSTS)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0)])
def test_empty(tmp_path: Path, shape: tuple[int, int]) -> None:
    zarr.create_array(store=tmp_path / "c", shape=shape, chunks=(2, 2), dtype="f4")
    source = from_zarr(tmp_path / "c")
    assert source.shape == shape
    assert source.dtype == np.float32


def test_split_columns_warn_once_and_name_the_remedy(tmp_path: Path) -> None:
    write(tmp_path / "c", COSTS, chunks=(5, 4))
    with pytest.warns(UserWarning, match=r"3 chunks of 4 columns.*bigsap rechunk") as caught:
        source = from_zarr(tmp_path / "c")
    read(source, np.arange(N_ROWS))
    assert len(caught) == 1
    assert caught[0].filename == __file__


class TestNotAnArray:
    def test_nowhere(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"nowhere\.zarr.*does not exist"):
            from_zarr(tmp_path / "nowhere.zarr")

    def test_a_plain_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="is no zarr array"):
            from_zarr(tmp_path)

    def test_a_group_names_its_arrays(self, tmp_path: Path) -> None:
        group = zarr.create_group(tmp_path / "g")
        group.create_array("costs", shape=(2, 2), dtype="f8")
        for given in (tmp_path / "g", group):
            with pytest.raises(StoreError, match=r"is a group.*arrays costs"):
                from_zarr(given)

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_damaged_metadata(self, tmp_path: Path, zarr_format: int) -> None:
        write(tmp_path / "c", COSTS, zarr_format=zarr_format)
        meta = tmp_path / "c" / (".zarray" if zarr_format == 2 else "zarr.json")
        text = meta.read_text()
        damages = ["", text[: len(text) // 2], "[]", "{}", "\x00" * 20]
        damages += [text.replace("13", "-13"), text.replace("13", '"x"'), text.replace("13", "1e9")]
        damages += [text.replace("float64", "float65").replace("<f8", "<q9")]
        for damage in damages:
            meta.write_text(damage)
            with pytest.raises((StoreError, ShapeError), match=r"/c'"):
                from_zarr(tmp_path / "c")

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_unknown_codec(self, tmp_path: Path, zarr_format: int) -> None:
        write(tmp_path / "c", COSTS, zarr_format=zarr_format, compressors="auto")
        meta = tmp_path / "c" / (".zarray" if zarr_format == 2 else "zarr.json")
        meta.write_text(meta.read_text().replace('"zstd"', '"squash"'))
        with pytest.raises(StoreError, match="squash"):
            from_zarr(tmp_path / "c")

    def test_wrong_kind_of_numbers_or_dimensions(self, tmp_path: Path) -> None:
        zarr.create_array(store=tmp_path / "a", shape=(2, 2), dtype="c16")
        with pytest.raises(DtypeError, match="complex128"):
            from_zarr(tmp_path / "a")
        zarr.create_array(store=tmp_path / "b", shape=(2, 2, 2), dtype="f8")
        with pytest.raises(ShapeError, match="3 dimension"):
            from_zarr(tmp_path / "b")


RAW = {"chunks": (4, N_COLUMNS)}
ONE = {"chunks": WHOLE}
PACKED = {"chunks": (4, N_COLUMNS), "compressors": "auto"}
PACKED_V2 = {**PACKED, "zarr_format": 2}
RAW_V2 = {**RAW, "zarr_format": 2}
LAYOUTS = pytest.mark.parametrize("options", [RAW, RAW_V2, PACKED, PACKED_V2])


def chunk_file(path: Path, row: int, options: dict[str, Any]) -> Path:
    return path / (f"{row}.0" if "zarr_format" in options else f"c/{row}/0")


class TestMissingChunks:
    @LAYOUTS
    @pytest.mark.parametrize("fill", [0.0, 3.5, np.nan, -np.inf])
    def test_are_an_error(self, tmp_path: Path, options: dict[str, Any], fill: float) -> None:
        write(tmp_path / "c", COSTS, fill_value=fill, **options)
        chunk_file(tmp_path / "c", 2, options).unlink()
        source = from_zarr(tmp_path / "c")
        np.testing.assert_array_equal(read(source, np.arange(8)), COSTS[:8])
        np.testing.assert_array_equal(read(source, [12]), COSTS[[12]])
        for rows in ([9], range(N_ROWS)):
            with pytest.raises(StoreError, match=r"2.0 \(rows 8 to 11, columns 0 to 8\) is missing"):
                read(source, rows)

    @LAYOUTS
    def test_of_fill_inf_are_forbidden_pairs(self, tmp_path: Path, options: dict[str, Any]) -> None:
        write(tmp_path / "c", COSTS, fill_value=np.inf, **options)
        chunk_file(tmp_path / "c", 2, options).unlink()
        expected = COSTS.copy()
        expected[8:12] = np.inf
        np.testing.assert_array_equal(read(from_zarr(tmp_path / "c"), np.arange(N_ROWS)), expected)

    @LAYOUTS
    def test_costs_that_equal_the_fill_value_are_costs(self, tmp_path: Path, options: dict[str, Any]) -> None:
        write(tmp_path / "c", np.zeros(WHOLE), fill_value=0, **options)
        assert not read(from_zarr(tmp_path / "c"), np.arange(N_ROWS)).any()

    def test_the_only_chunk(self, tmp_path: Path) -> None:
        for fill in (np.inf, 1.0):
            write(tmp_path / "c", COSTS, fill_value=fill, overwrite=True, **ONE)
            (tmp_path / "c/c/0/0").unlink()
            source = from_zarr(tmp_path / "c")
            if fill == np.inf:
                assert (read(source, [0, 12]) == np.inf).all()
            else:
                with pytest.raises(StoreError, match="is missing"):
                    read(source, [0])

    @pytest.mark.parametrize("compressors", [None, "auto"])
    @pytest.mark.parametrize("first", [True, False])
    def test_within_a_shard(self, tmp_path: Path, compressors: Any, first: bool) -> None:
        codecs = [zarr.codecs.BytesCodec()] + ([zarr.codecs.ZstdCodec()] if compressors else [])
        sharding = zarr.codecs.ShardingCodec(
            chunk_shape=(2, N_COLUMNS), codecs=codecs, index_location="start" if first else "end"
        )
        for fill in (0.0, np.inf):
            array = zarr.create_array(
                store=tmp_path / "c",
                shape=WHOLE,
                chunks=(4, N_COLUMNS),
                dtype="f8",
                compressors=None,
                serializer=sharding,
                fill_value=fill,
                overwrite=True,
            )
            array[:6] = COSTS[:6]
            source = from_zarr(tmp_path / "c")
            np.testing.assert_array_equal(read(source, np.arange(6)), COSTS[:6])
            for row, place in ((7, "c/1/0, inner chunk .3, 0. .rows 6 to 7"), (12, "rows 12 to 12")):
                if fill == np.inf:
                    assert (read(source, [row]) == np.inf).all()
                else:
                    with pytest.raises(StoreError, match=place):
                        read(source, [row])

    def test_in_a_store_that_is_not_local(self) -> None:
        store = zarr.storage.MemoryStore()
        array = write(store, np.zeros(WHOLE))
        assert not read(from_zarr(array), np.arange(N_ROWS)).any()
        store = zarr.storage.MemoryStore()
        array = zarr.create_array(store=store, shape=WHOLE, chunks=(4, 9), dtype="f8", name="b")
        array[:4] = COSTS[:4]
        source = from_zarr(array)
        read(source, [3])
        with pytest.raises(StoreError, match=r"b.*rows 4 to 7.*is missing"):
            read(source, [4])

    def test_where_the_index_cannot_be_read(self, tmp_path: Path) -> None:
        """A shard within a codec: no costs are better than made-up ones."""
        with pytest.warns(UserWarning, match="sharding"):
            array = write(tmp_path / "c", COSTS, **TestWrappedShards.options)
        array[4:8] = 0
        with pytest.warns(UserWarning, match="sharding"):
            source = from_zarr(tmp_path / "c")
        np.testing.assert_array_equal(read(source, [2]), COSTS[[2]])
        with pytest.raises(StoreError, match="index cannot be read"):
            read(source, [4])


class TestDamagedChunks:
    @pytest.mark.parametrize("options", [RAW, RAW_V2])
    @pytest.mark.parametrize("size", [0, 5, 287, 289])
    def test_raw_of_the_wrong_size(self, tmp_path: Path, options: dict[str, Any], size: int) -> None:
        write(tmp_path / "c", COSTS, **options)
        chunk_file(tmp_path / "c", 1, options).write_bytes(bytes(size))
        source = from_zarr(tmp_path / "c")
        read(source, [0])
        with pytest.raises(StoreError, match=rf"rows 4 to 7.*{size} bytes instead of 288"):
            read(source, [4], 0, 1)

    def test_one_raw_chunk(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, **ONE)
        file = tmp_path / "c/c/0/0"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(StoreError, match="935 bytes instead of 936"):
            from_zarr(tmp_path / "c")

    @pytest.mark.parametrize("options", [PACKED, PACKED_V2])
    @pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "garbage"])
    def test_compressed(self, tmp_path: Path, options: dict[str, Any], damage: str) -> None:
        write(tmp_path / "c", COSTS, **options)
        file = chunk_file(tmp_path / "c", 1, options)
        data = file.read_bytes()
        file.write_bytes(
            {"empty": b"", "cut": data[:-9], "zeros": bytes(len(data)), "garbage": data[::-1]}[damage]
        )
        source = from_zarr(tmp_path / "c")
        read(source, [0])
        for rows in ([5], range(N_ROWS), [5]):
            with pytest.raises(StoreError, match=r"rows 4 to 7.*cannot be read"):
                read(source, rows)
        read(source, [9])

    @pytest.mark.parametrize("compressors", [None, "auto"])
    def test_shard_index(self, tmp_path: Path, compressors: Any) -> None:
        write(tmp_path / "c", COSTS, chunks=(2, 9), shards=(4, 9), compressors=compressors)
        file = tmp_path / "c/c/1/0"
        data = file.read_bytes()
        for damaged in (b"", data[:10], data[:-1], data[:-20] + b"\x01" + data[-19:]):
            file.write_bytes(damaged)
            source = from_zarr(tmp_path / "c")
            read(source, [0])
            with pytest.raises(StoreError, match=r"c/1/0.*rows 4 to 5.*cannot be read"):
                read(source, [4])

    def test_shard_index_without_checksum(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, serializer=NO_CHECKSUM)
        file = tmp_path / "c/c/0/0"
        data = file.read_bytes()
        for offset in (2**63, len(data) - 100):
            file.write_bytes(data[:-32] + offset.to_bytes(8, "little") + data[-24:])
            with pytest.raises(StoreError, match=r"rows 0 to 1.*index places it at"):
                read(from_zarr(tmp_path / "c"), [0])

    def test_a_folder_in_the_place_of_a_chunk(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS)
        file = tmp_path / "c/c/1/0"
        file.unlink()
        file.mkdir()
        with pytest.raises(StoreError, match=r"rows 4 to 7.*cannot be read"):
            read(from_zarr(tmp_path / "c"), [4])


class Calls:
    """A zarr array that notes which rows are decoded, and by which thread."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.asked: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __getitem__(self, where: Any) -> Any:
        self.asked.append((where[0].start, where[0].stop))
        self.threads.add(threading.current_thread().name)
        return self.array[where]


@pytest.fixture
def counted(tmp_path: Path) -> tuple[DecodedZarrSource, Calls]:
    write(tmp_path / "c", COSTS, compressors="auto")
    source = from_zarr(tmp_path / "c")
    calls = Calls(source._layout.array)
    object.__setattr__(source._layout, "array", calls)
    return source, calls


class TestDecoding:
    def test_a_chunk_is_decoded_once(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        for row in range(N_ROWS):
            read(source, [row])
        assert calls.asked == [(0, 4), (4, 8), (8, 12), (12, 13)]
        assert calls.threads == {"bigsap-read"}

    def test_the_same_with_reading_ahead(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        for row in range(N_ROWS):
            read(source, [row])
            for ahead in range(row, N_ROWS):
                source.prefetch(ahead)
        assert calls.asked == [(0, 4), (4, 8), (8, 12), (12, 13)]

    def test_neighbours_are_decoded_by_one_call(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        np.testing.assert_array_equal(read(source, [12, 0, 5, 1]), COSTS[[12, 0, 5, 1]])
        assert calls.asked == [(0, 8), (12, 13)]

    def test_what_is_held_is_not_decoded_again(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        source.prefetch(5)
        np.testing.assert_array_equal(read(source, np.arange(8)), COSTS[:8])
        assert sorted(calls.asked) == [(0, 4), (4, 8)]

    def test_but_not_beyond_the_limit(
        self, counted: tuple[DecodedZarrSource, Calls], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bigsap.sources.zarr.decoded.CALL_BYTES", 8 * 8 * N_COLUMNS)
        source, calls = counted
        np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), COSTS)
        assert calls.asked == [(0, 8), (8, 13)]

    def test_errors_of_reading_ahead_wait_for_the_reader(
        self, counted: tuple[DecodedZarrSource, Calls], tmp_path: Path
    ) -> None:
        source, _ = counted
        (tmp_path / "c/c/1/0").write_bytes(b"")
        source.prefetch(5)
        read(source, [0])
        for _ in range(2):
            with pytest.raises(StoreError, match="rows 4 to 7"):
                read(source, [6])
        read(source, [8])

    def test_the_thread_ends_with_its_source(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, compressors="auto")
        source = from_zarr(tmp_path / "c")
        before = set(threading.enumerate())
        read(source, [0])
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
        del source
        gc.collect()
        thread.join(HANG_S)
        assert not thread.is_alive()

    def test_the_thread_does_not_keep_the_interpreter(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, compressors="auto")
        code = (
            "import threading, time, sys\n"
            "from bigsap.sources import from_zarr\n"
            "source = from_zarr(sys.argv[1])\n"
            "class Slow:\n"
            "    def __getitem__(self, where): time.sleep(1000)\n"
            "object.__setattr__(source._layout, 'array', Slow())\n"
            "source.prefetch(0)\n"
            "print(threading.active_count())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "c")],
            timeout=HANG_S,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) >= 2

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_after_a_fork_it_says_so_instead_of_hanging(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, compressors="auto")
        source = from_zarr(tmp_path / "c")
        read(source, [0])
        source.prefetch(4)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                source.prefetch(8)
                read(source, [12])
            except SourceError as error:
                code = 0 if "forked" in str(error) else 2
            finally:
                os._exit(code)
        _, how = until(lambda: (ended := os.waitpid(pid, os.WNOHANG)) != (0, 0) and ended)
        assert os.waitstatus_to_exitcode(how) == 0


def test_what_is_not_ours_is_wrapped() -> None:
    def broken(start: int, stop: int) -> np.ndarray:
        raise MemoryError("too large")

    ahead = ReadAhead(broken)
    for _ in range(2):
        with pytest.raises(SourceError, match="MemoryError: too large"):
            ahead.rows(0, 0, 1)
    assert not ahead.holds(0)


class TestRechunk:
    @pytest.mark.parametrize("compress", [False, True])
    @pytest.mark.parametrize("rows", [None, 1, 4, 100])
    def test_from_npy(self, tmp_path: Path, rows: int | None, compress: bool) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        target = rechunk(tmp_path / "a.npy", tmp_path / "b.zarr", rows=rows, compress=compress)
        assert target == tmp_path / "b.zarr"
        array = zarr.open(target, mode="r")
        assert array.metadata.zarr_format == 3
        assert array.chunks == (min(rows or N_ROWS, N_ROWS), N_COLUMNS)
        np.testing.assert_array_equal(array[...], COSTS)
        source = from_zarr(target)
        assert isinstance(source, DecodedZarrSource) == compress
        np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), COSTS)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.zarr"]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("dtype", [">i2", "f4", "u1", "u4"])
    def test_from_tiles(self, tmp_path: Path, dtype: str, zarr_format: int) -> None:
        matrix = np.random.default_rng(3).integers(0, 99, WHOLE).astype(dtype)
        write(tmp_path / "a", matrix, chunks=(5, 4), compressors="auto", zarr_format=zarr_format)
        seen: list[tuple[int, int]] = []
        rechunk(tmp_path / "a", tmp_path / "b", rows=3, progress=lambda *at: seen.append(at))
        assert seen == [(3, 13), (6, 13), (9, 13), (12, 13), (13, 13)]
        source = from_zarr(tmp_path / "b")
        assert source.dtype == ArraySource(matrix).dtype
        np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), matrix)

    def test_chunks_are_a_few_mebibytes(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros((700, 2000)))
        rechunk(tmp_path / "a.npy", tmp_path / "b")
        rows, columns = zarr.open(tmp_path / "b", mode="r").chunks
        assert columns == 2000
        assert 1 << 20 <= rows * columns * 8 <= 8 << 20

    def test_nan_and_inf_are_copied(self, tmp_path: Path) -> None:
        matrix = COSTS.copy()
        matrix[4:8] = np.nan
        matrix[8:10] = np.inf
        np.save(tmp_path / "a.npy", matrix)
        rechunk(tmp_path / "a.npy", tmp_path / "b", rows=2, compress=True)
        np.testing.assert_array_equal(read(from_zarr(tmp_path / "b"), np.arange(N_ROWS)), matrix)

    def test_an_existing_target_is_left_alone(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        (tmp_path / "b").mkdir()
        (tmp_path / "c").symlink_to(tmp_path / "nowhere")
        for target in ("a.npy", "b", "c"):
            with pytest.raises(OptionError, match="exists already"):
                rechunk(tmp_path / "a.npy", tmp_path / target)
        assert list((tmp_path / "b").iterdir()) == []

    def test_a_failure_leaves_nothing(self, tmp_path: Path) -> None:
        write(tmp_path / "a", COSTS, compressors="auto")
        (tmp_path / "a/c/2/0").unlink()
        with pytest.raises(StoreError, match=r"rows 8 to 11.*is missing"):
            rechunk(tmp_path / "a", tmp_path / "b", rows=2)
        assert [p.name for p in tmp_path.iterdir()] == ["a"]

    def test_an_interruption_leaves_nothing(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", COSTS)

        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            rechunk(tmp_path / "a.npy", tmp_path / "b", rows=2, progress=interrupt)
        assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]

    def test_where_it_cannot_be_written(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        with pytest.raises(StoreError, match="cannot be written"):
            rechunk(tmp_path / "a.npy", tmp_path / "a.npy" / "b")

    @pytest.mark.parametrize("rows", [0, -1, 1.5, True, "3"])
    def test_bad_rows(self, tmp_path: Path, rows: Any) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        with pytest.raises(OptionError, match="rows must be a positive integer"):
            rechunk(tmp_path / "a.npy", tmp_path / "b", rows=rows)

    def test_only_local_targets(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="local path"):
            rechunk(tmp_path / "a.npy", "s3://bucket/b")
