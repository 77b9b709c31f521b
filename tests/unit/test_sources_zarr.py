"""Zarr stores: every layout reads the same, and damage is reported, never returned."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.errors import DtypeError, ShapeError, SourceError, StoreError
from bigsap.sources import ArraySource, as_source, from_zarr
from bigsap.sources.base import CostSource, Grouped, Prefetching, Resident
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource
from bigsap.sources.zarr.readahead import ReadAhead
from contracts import N_COLUMNS, N_ROWS, SourceContract, one_class_each, read
from pairwise import each
from zarr_files import COSTS, quiet, write

zarr = pytest.importorskip("zarr")

BIG_ENDIAN = zarr.codecs.BytesCodec(endian="big")
WHOLE = (N_ROWS, N_COLUMNS)


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
    with pytest.warns(UserWarning, match="bigsap rechunk") as caught:
        bigsap.solve(tmp_path / "c")
    assert caught[0].filename == __file__  # also where bigsap opens it


class TestNotAnArray:
    def test_nowhere(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"nowhere\.zarr.*does not exist"):
            from_zarr(tmp_path / "nowhere.zarr")

    @pytest.mark.parametrize("given", [np.zeros((90, 90)), [[1, 2], [3, 4]], None, b"costs.zarr", 3])
    def test_neither_a_path_nor_an_array_of_zarr(self, given: Any) -> None:
        with pytest.raises(StoreError, match=rf"^{type(given).__name__} is neither"):
            from_zarr(given)

    def test_a_store_without_an_array(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"^LocalStore is neither"):
            from_zarr(zarr.storage.LocalStore(tmp_path))

    def test_a_plain_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="is no zarr array"):
            from_zarr(tmp_path)

    def test_a_group_names_its_arrays(self, tmp_path: Path) -> None:
        group = zarr.create_group(tmp_path / "g")
        group.create_array("costs", shape=(2, 2), dtype="f8")
        for given in (tmp_path / "g", group):
            with pytest.raises(StoreError, match=r"is a group.*arrays costs$"):
                from_zarr(given)
        for name in ("indptr", "indices", "data"):
            group.create_array(name, shape=(3,), dtype="i8")
        with pytest.raises(StoreError, match=r"data, indices, indptr; bigsap.as_source opens sparse costs$"):
            from_zarr(group)

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


def test_what_is_not_ours_is_wrapped() -> None:
    def broken(start: int, stop: int) -> np.ndarray:
        raise MemoryError("too large")

    ahead = ReadAhead(broken)
    for _ in range(2):
        with pytest.raises(SourceError, match="MemoryError: too large"):
            ahead.rows(0, 0, 1)
    assert not ahead.holds(0)
