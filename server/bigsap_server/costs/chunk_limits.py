"""Limits on decoding zarr chunks: a chunk is decoded only if its result fits the declared size.

Metadata declares the size of a chunk; the compressed frame in its file may claim, or decode to, a
larger one. Codecs allocate what the frame claims, or as much as is decoded, so the
frame is checked first. zarr takes its codecs from registries; while an array is opened within
``capped``, the registries hold codecs that check the frame and then call zarr's.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

_BLOCK = 128 << 10  # largest decoded block of a zstd frame (RFC 8878, 3.1.1.2.4)
_STEP = 1 << 20
# A codec may be wrapped in another, whose input is then slightly larger than the chunk.
_SLACK = 4096

# zarr's registries are global to the process; jobs on threads take turns to open arrays.
_lock = threading.Lock()


def zstd_size(data: bytes, most: int) -> int:
    """Return the size that zstd frames claim, or more than ``most`` if a frame may exceed it.

    A frame without a size is bounded by its blocks. Encoders choose the block sizes, so four
    times ``most`` and a MiB are accepted by that bound.
    """
    total, place, first = 0, 0, True
    while place < len(data):
        magic, flags = struct.unpack_from("<IB", data, place)
        if magic >> 4 == 0x184D2A5:  # skippable frame
            place += 8 + int(struct.unpack_from("<I", data, place + 4)[0])
            continue
        if magic != 0xFD2FB528:
            return total  # not zstd: the codec reports it
        whole = flags >> 5 & 1
        place += 5 + (not whole) + (0, 1, 2, 4)[flags & 3]
        width = (whole, 2, 4, 8)[flags >> 6]
        if width:
            size = int.from_bytes(data[place : place + width], "little") + 256 * (width == 2)
            if first:
                return size  # this size is allocated, even if data are missing
        place, first = place + width, False
        last = 0
        while not last:
            header = int.from_bytes(data[place : place + 3], "little")
            last, kind, size = header & 1, header >> 1 & 3, header >> 3
            if place + 3 > len(data):
                return total
            total += size if kind < 2 else _BLOCK
            place += 3 + (1 if kind == 1 else size)
            if total > 4 * most + _STEP:
                return total
        place += 4 * (flags >> 2 & 1)
    return min(total, most)


def blosc_size(data: bytes, most: int) -> int:
    """Return the decoded size that a blosc frame claims."""
    return int(struct.unpack_from("<I", data, 4)[0])


def lz4_size(data: bytes, most: int) -> int:
    """Return the decoded size in numcodecs' prefix of an lz4 block."""
    return int(struct.unpack_from("<I", data, 0)[0])


def deflated_size(data: bytes, most: int) -> int:
    """Return the decoded size of gzip or zlib data, or a number above ``most`` if it is larger.

    These formats do not state the size, so the data are decoded once to count it, a MiB at a time.
    """
    if 1040 * len(data) <= most:
        return 0  # largest compression ratio of deflate
    total = 0
    while data:
        stream = zlib.decompressobj(wbits=47)
        while data and not stream.eof:
            total += len(stream.decompress(data, _STEP))
            data = stream.unconsumed_tail
            if total > most:
                return total
        data = stream.unused_data.lstrip(b"\0")
    return total


_SIZES: dict[str, Callable[[bytes, int], int]] = {
    "zstd": zstd_size,
    "blosc": blosc_size,
    "lz4": lz4_size,
    "gzip": deflated_size,
    "zlib": deflated_size,
}


def check_chunk(name: str, data: bytes, chunk_bytes: int) -> None:
    """Raise ValueError when a frame of codec ``name`` decodes to more than a chunk."""
    most = chunk_bytes + chunk_bytes // 64 + _SLACK
    try:
        size = _SIZES[name](data, most)
    except (struct.error, zlib.error, IndexError) as error:
        raise ValueError(f"the {name} data are damaged") from error
    if size > most:
        raise ValueError(f"the {name} data decode to {size} bytes or more, but the chunk has {chunk_bytes}")


@contextmanager
def capped(v2_chunk_bytes: int) -> Iterator[None]:
    """Limit arrays that zarr opens in this context to chunks of the declared size.

    v2_chunk_bytes: size of a decoded chunk of an array of format 2, whose codecs do not receive it;
    those of format 3 do.
    """
    import numcodecs.registry as old
    import zarr

    with _lock:
        before = {name: old.get_codec({"id": name}).__class__ for name in _SIZES}
        try:
            for name, codec in before.items():
                old.register_codec(_format_2(name, codec, v2_chunk_bytes), name)
            with zarr.config.set({"codecs": {**zarr.config.get("codecs"), **_of_format_3()}}):
                yield
        finally:
            for name, codec in before.items():
                old.register_codec(codec, name)


@cache
def _of_format_3() -> dict[str, str]:
    """Register the limited codecs beside zarr's; return, by the key in metadata, their names."""
    from zarr.registry import get_codec_class, register_codec

    chosen: dict[str, str] = {}
    for name in _SIZES:
        for key in (name, f"numcodecs.{name}"):
            try:
                base = get_codec_class(key)
            except (KeyError, ValueError):  # as the release of zarr has it
                continue
            chosen[key] = f"{__name__}.{key}"
            register_codec(key, _format_3(name, base), qualname=chosen[key])
    return chosen


def _format_2(name: str, base: Any, chunk_bytes: int) -> type:
    def decode(self: Any, buf: Any, out: Any = None) -> Any:
        check_chunk(name, bytes(buf), chunk_bytes)
        return base.decode(self, buf, out)

    return type(f"Capped{base.__name__}", (base,), {"decode": decode})


def _format_3(name: str, base: Any) -> type:
    def check(chunk_bytes: Any, chunk_spec: Any) -> None:
        native = getattr(chunk_spec.dtype, "to_native_dtype", lambda: chunk_spec.dtype)()
        check_chunk(name, chunk_bytes.to_bytes(), prod(chunk_spec.shape) * native.itemsize)

    async def decode_single(self: Any, chunk_bytes: Any, chunk_spec: Any) -> Any:
        check(chunk_bytes, chunk_spec)
        return await base._decode_single(self, chunk_bytes, chunk_spec)

    def decode_sync(self: Any, chunk_bytes: Any, chunk_spec: Any) -> Any:
        check(chunk_bytes, chunk_spec)
        return base._decode_sync(self, chunk_bytes, chunk_spec)

    members: dict[str, Any] = {"_decode_single": decode_single}
    if hasattr(base, "_decode_sync"):
        # Some versions of zarr call this method directly, others through the one above.
        members["_decode_sync"] = decode_sync
    return type(base.__name__, (base,), members)
