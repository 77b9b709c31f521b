"""The storage layout of a zarr array: chunks, shards, codecs, and missing chunks.

zarr parses the metadata and decodes chunks. This module adds two things that zarr lacks: it
distinguishes a chunk that was never written from one full of the fill value, and it finds the plain
bytes of an uncompressed chunk in a local file.

Layout facts (zarr specifications v2 and v3): a chunk without codecs is its values in C order, edge
chunks padded to full size; a shard is its inner chunks at the (offset, length) pairs, uint64 little
endian, of an index that crc32c usually follows; length and offset 2**64 - 1 mark an inner chunk
that was never written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import InputError, StoreError
from bigsap.sources.convert import cost_dtype, cost_shape
from bigsap.sources.packing import Packing, packing_told
from bigsap.types import Array

#: One of these files is in the folder of a zarr array or group.
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_ABSENT = np.uint64(2**64 - 1)
_CRC_BYTES = 4


@dataclass(frozen=True)
class Shards:
    """Shards of ``chunks`` = (down, across) inner chunks, and the place of their index."""

    chunks: tuple[int, int]
    index_first: bool
    with_crc: bool
    #: False if the index itself is coded in a way that is not supported here.
    readable: bool

    @property
    def index_bytes(self) -> int:
        return 16 * self.chunks[0] * self.chunks[1] + _CRC_BYTES * self.with_crc


@dataclass(frozen=True)
class Layout:
    """The layout of one 2-D numeric zarr array.

    chunk: (rows, columns) of the unit that is decoded: inner chunks of shards. stored: dtype, with
    the byte order of a raw chunk. raw: chunks have no codec. root: the array's local directory, or
    None. fill: fill value, or None. packing: of the numbers, by their attributes. absent_allowed:
    absent chunks hold the fill value.
    """

    array: Any
    name: str
    shape: tuple[int, int]
    stored: np.dtype[Any]
    chunk: tuple[int, int]
    shards: Shards | None
    raw: bool
    root: Path | None
    fill: Any
    packing: Packing | None = None
    absent_allowed: bool = False

    @property
    def may_be_absent(self) -> bool:
        """Whether an absent chunk means that its pairs are forbidden."""
        return self.absent_allowed or (self.fill is not None and bool(self.fill == np.inf))

    @property
    def filled(self) -> Array:
        """(1,), the value of an absent chunk."""
        if self.fill is None:
            return np.zeros(0, self.stored.newbyteorder("="))
        return np.full(1, self.fill, self.stored.newbyteorder("="))

    @property
    def columns_split(self) -> int:
        """The number of chunks that one row lies in."""
        return -(-self.shape[1] // self.chunk[1])

    def key(self, chunk: tuple[int, int]) -> str:
        """Return the store key, relative to the array, of the object that holds ``chunk``."""
        if self.shards is not None:
            down, across = self.shards.chunks
            chunk = (chunk[0] // down, chunk[1] // across)
        return str(self.array.metadata.encode_chunk_key(chunk))

    def place(self, chunk: tuple[int, int]) -> str:
        """Return ``chunk`` as text for errors: its key, rows and columns."""
        (n_rows, n_columns), (height, width) = self.shape, self.chunk
        row, column = chunk[0] * height, chunk[1] * width
        inner = f", inner chunk {chunk}" if self.shards else ""
        return (
            f"chunk {self.key(chunk)}{inner} (rows {row} to {min(row + height, n_rows) - 1}, "
            f"columns {column} to {min(column + width, n_columns) - 1})"
        )

    def missing(self, chunk: tuple[int, int]) -> StoreError:
        """Return the error for a missing chunk."""
        return StoreError(
            f"{self.name}: {self.place(chunk)} is missing, and its fill value {self.fill} is not "
            "taken for costs. Only fill_value=inf (forbidden pairs) allows missing chunks; if "
            "the costs do equal the fill value, write them with write_empty_chunks=True"
        )

    def damaged(self, chunk: tuple[int, int], reason: object) -> StoreError:
        """Return the error for a chunk that cannot be read."""
        return StoreError(f"{self.name}: {self.place(chunk)} cannot be read: {reason}")

    def inner(self, chunk: tuple[int, int]) -> int:
        """Return the place of ``chunk`` in its shard's index."""
        assert self.shards is not None
        down, across = self.shards.chunks
        return (chunk[0] % down) * across + chunk[1] % across

    def parse_index(self, data: bytes, chunk: tuple[int, int]) -> Array:
        """Return a shard's index as uint64 (inner chunks, 2); ``StoreError`` if damaged."""
        assert self.shards is not None
        if len(data) != self.shards.index_bytes:
            raise self.damaged(chunk, "the shard is shorter than its index")
        if self.shards.with_crc:
            data, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
            import google_crc32c

            if google_crc32c.value(data).to_bytes(_CRC_BYTES, "little") != crc:
                raise self.damaged(chunk, "the checksum of the shard's index is wrong")
        return np.frombuffer(data, "<u8").reshape(-1, 2)

    def is_missing(self, chunk: tuple[int, int]) -> bool:
        """Return whether ``chunk`` was never written, from the store. Call on the I/O thread."""
        from zarr.core.sync import sync

        store = self.array.store
        key = f"{self.array.path}/{self.key(chunk)}".lstrip("/")
        if self.shards is None:
            return not sync(store.exists(key))
        if not sync(store.exists(key)):
            return True
        if not self.shards.readable:
            raise self.damaged(
                chunk, "all its values equal the fill value, and the shard's index cannot be read"
            )
        data = sync(_index_of_shard(store, key, self.shards))
        return is_absent(self.parse_index(data, chunk)[self.inner(chunk)])


async def _index_of_shard(store: Any, key: str, shards: Shards) -> bytes:
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest
    from zarr.buffer import default_buffer_prototype

    size = shards.index_bytes
    where = RangeByteRequest(0, size) if shards.index_first else SuffixByteRequest(size)
    data = await store.get(key, default_buffer_prototype(), where)
    return b"" if data is None else bytes(data.to_bytes())


def is_absent(entry: Array) -> bool:
    """Return whether an index entry (offset, length) marks a chunk that was never written."""
    return bool(entry[0] == _ABSENT and entry[1] == _ABSENT)


def open_array(path_or_array: Any) -> tuple[Any, str]:
    """Return the zarr array and its name for messages; ``StoreError`` if there is none."""
    zarr = import_zarr()
    array = path_or_array
    name = f"the zarr array {getattr(array, 'store_path', array)}"
    if not isinstance(array, (zarr.Array, zarr.Group)):
        where = str(path_or_array)
        zarrs_own = type(array).__module__.partition(".")[0] == "zarr"  # such as a store
        if zarrs_own or not (isinstance(array, (str, os.PathLike)) or "://" in where):
            raise StoreError(f"{type(array).__qualname__} is neither a zarr.Array nor the path of one")
        name = f"the zarr store {where!r}"
        if "://" not in where and not Path(where).exists():
            raise StoreError(f"{name} does not exist")
        zipped = where.endswith(".zip") and Path(where).is_file()
        if "://" not in where:
            _refuse_others(Path(where), where, zipped)
        try:
            # Not every zarr 3 detects that a file is a zip store.
            store = zarr.storage.ZipStore(where, mode="r") if zipped else where
            array = zarr.open(store, mode="r")
        except Exception as error:
            # Damaged metadata raises errors of the parsers of JSON, numcodecs or zarr.
            raise StoreError(
                f"{name} cannot be opened as a zarr array: {type(error).__name__}: {error}"
            ) from error
    if isinstance(array, zarr.Group):
        raise StoreError(f"{name} is a group, not an array{_arrays_within(array)}")
    return array, name


def _refuse_others(path: Path, where: str, zipped: bool) -> None:
    """Raise a clear error for a path that is not a zarr array, before zarr raises its own."""
    if path.is_file() and path.suffix == ".npy":
        raise StoreError(f"the file {where!r} is no zarr store but a .npy file; use bigsap.from_npy")
    if path.is_file() and not zipped:
        raise StoreError(
            f"the file {where!r} is neither a .npy file (numpy.save), nor a .npz file of"
            " scipy.sparse.save_npz, nor a zarr store, which is a folder or a .zip file"
        )
    if path.is_dir() and not any((path / name).exists() for name in _METADATA):
        raise StoreError(f"the folder {where!r} is no zarr array: it has no zarr.json or .zarray")


def import_zarr() -> Any:
    """Return the zarr package (3 or later); raise an error with the install command if missing."""
    try:
        import zarr
    except ImportError as error:
        raise InputError('zarr stores need the zarr extra: pip install "bigsap[zarr]"') from error
    if int(zarr.__version__.partition(".")[0]) < 3:
        raise InputError(
            f'zarr 3 or later is needed, found {zarr.__version__}: pip install -U "bigsap[zarr]"'
        )
    return zarr


def _arrays_within(group: Any) -> str:
    try:
        names = sorted(key for key, _ in group.arrays())
    except Exception:  # noqa: BLE001  a failed hint must not raise a second error
        return ""
    if not names:
        return ""
    more = ", ..." if len(names) > 5 else ""
    sparse = "; bigsap.as_source opens sparse costs" if {"data", "indices", "indptr"} <= {*names} else ""
    return f"; it holds the arrays {', '.join(names[:5])}{more}{sparse}"


def describe(array: Any, name: str) -> Layout:
    """Return the layout of an open array; ``ShapeError``, ``DtypeError`` or ``StoreError``."""
    shape = cost_shape(array.shape, name)
    cost_dtype(array.dtype, name)
    stored = np.dtype(array.dtype)
    try:
        chunk = tuple(int(n) for n in array.chunks)
        outer = array.shards
    except NotImplementedError as error:
        raise StoreError(f"{name} has irregular chunks, which are not supported") from error
    shards, raw = None, False
    if array.metadata.zarr_format == 2:
        meta = array.metadata
        raw = meta.compressor is None and not meta.filters and meta.order == "C"
    else:
        shards, inner = _shards(array.metadata.codecs, outer, chunk)
        endian = _plain_bytes(inner)
        raw = endian is not None and (shards is None or (shards.readable and _has_crc32c()))
        if endian is not None:
            stored = stored.newbyteorder(endian)
    return Layout(
        array=array,
        name=name,
        shape=shape,
        stored=stored,
        chunk=(chunk[0], chunk[1]),
        shards=shards,
        raw=raw,
        root=_local_root(array),
        fill=array.fill_value,
        packing=packing_told(array, name),
    )


def _local_root(array: Any) -> Path | None:
    from zarr.storage import LocalStore

    return Path(array.store.root) / array.path if isinstance(array.store, LocalStore) else None


def _plain_bytes(codecs: Any) -> str | None:
    """Return the byte order, "<" or ">", if the only codec writes plain values; else None."""
    from zarr.codecs import BytesCodec

    if len(codecs) != 1 or not isinstance(codecs[0], BytesCodec):
        return None
    endian = codecs[0].endian  # None for single bytes
    return ">" if _word(endian) == "big" else "<"


def _word(setting: Any) -> Any:
    """Return a codec's setting as text or None: newer releases of zarr have no enumerations."""
    return getattr(setting, "value", setting)


def _shards(codecs: Any, outer: Any, chunk: Any) -> tuple[Shards | None, Any]:
    """Return the shards, if any, and the codecs of the chunks that are decoded."""
    from zarr.codecs import Crc32cCodec, ShardingCodec

    if outer is None:
        if any(isinstance(codec, ShardingCodec) for codec in codecs):
            # Shards wrapped in another codec: decodable, but not their index.
            return Shards((1, 1), index_first=False, with_crc=False, readable=False), codecs
        return None, codecs
    codec = codecs[0]
    index = list(codec.index_codecs)
    with_crc = len(index) == 2 and isinstance(index[1], Crc32cCodec)
    nested = any(isinstance(inner, ShardingCodec) for inner in codec.codecs)
    plain = (len(index) == 1 or with_crc) and _plain_bytes(index[:1]) == "<"
    return Shards(
        chunks=(int(outer[0]) // chunk[0], int(outer[1]) // chunk[1]),
        index_first=_word(codec.index_location) == "start",
        with_crc=with_crc,
        readable=plain and not nested,
    ), codec.codecs


def _has_crc32c() -> bool:
    try:
        import google_crc32c  # noqa: F401
    except ImportError:
        return False
    return True
