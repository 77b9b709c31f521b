"""Files of named stores: restricted paths, and zarr metadata checked before decoding.

A path is relative, has no ``..`` and leads through no symbolic link, so it stays within its
store. A zarr array must be 2-D and of real numbers, its chunks below the limit when decoded,
and its codecs among those that only compress bytes.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bigsap_server.problems import HttpProblem

#: Most bytes read of metadata.
METADATA_BYTES = 1 << 20
CODECS = frozenset({"bytes", "blosc", "zstd", "lz4", "gzip", "crc32c", "sharding_indexed"})
_COMPRESSORS = frozenset({"blosc", "zstd", "lz4", "gzip", "zlib"})
_V3_TYPES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
_V2_TYPES = re.compile(r"[<>|]?(b1|[iu][1248]|f[248])")


def jailed(stores: Mapping[str, Any], store: str, path: str, pointer: str) -> Path:
    """Return the file or folder ``path`` of a named store. Raises HttpProblem ``forbidden-path``."""

    def refuse(reason: str, slug: str = "forbidden-path") -> HttpProblem:
        return HttpProblem(slug, reason, pointer=f"{pointer}/path")

    if store not in stores:
        raise HttpProblem("invalid-store", f"there is no store {store!r}", pointer=f"{pointer}/store")
    if "\0" in path or "\\" in path or ":" in path or any(ord(c) < 32 for c in path):
        raise refuse("the path has characters that are not allowed")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "~" in pure.parts or not pure.parts:
        raise refuse("the path must be relative and stay within the store")
    place = root = Path(os.path.realpath(stores[store]))
    try:
        for part in pure.parts:
            place = place / part
            if stat.S_ISLNK(os.lstat(place).st_mode):
                raise refuse("the path leads through a symbolic link")
        # A link may be created between the check above and the use, so realpath decides.
        if os.path.commonpath((root, os.path.realpath(place))) != os.fspath(root):
            raise refuse("the path leaves the store")
    except (FileNotFoundError, NotADirectoryError):
        raise refuse("there is nothing at this path", "invalid-store") from None
    except (OSError, ValueError):
        raise refuse("the path cannot be read", "invalid-store") from None
    return place


def check_zarr_folder(folder: Path, most_bytes: int, pointer: str) -> tuple[list[int], str]:
    """Return shape and dtype of a local zarr array, from its metadata alone.

    Raises HttpProblem ``invalid-store`` if it is not an array, is not allowed, or has chunks
    larger than ``most_bytes`` when decoded.
    """
    found = [name for name in ("zarr.json", ".zarray") if os.path.lexists(folder / name)]
    if not found:
        raise _bad("there is no zarr array at this path", pointer)
    facts = None
    # Readers differ in which file they prefer: both must be valid, and the first is used.
    for name in reversed(found):
        facts = check_metadata(_metadata(folder / name, pointer), most_bytes, pointer)
    assert facts is not None
    return facts


def check_zarr_files(folder: Path, pointer: str, most_entries: int | None = None) -> None:
    """Raise if a validated array's files include a link, a device or a file larger than a chunk.

    zarr opens files by name and reads them whole, long after the path was checked. Checks
    ``most_entries`` of them; None: all, which takes less time than reading them.
    """
    most_bytes = max(
        file_bytes(_metadata(folder / name, pointer))
        for name in ("zarr.json", ".zarray")
        if os.path.lexists(folder / name)
    )
    seen, left = 0, [folder]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if most_entries is not None and seen > most_entries:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
                        continue
                    facts = entry.stat(follow_symlinks=False)
                    shown = os.path.relpath(entry.path, folder)[:100]
                    if not stat.S_ISREG(facts.st_mode):
                        raise HttpProblem(
                            "forbidden-path", f"{shown!r} in the array is no plain file", pointer=pointer
                        )
                    if facts.st_size > most_bytes:
                        raise _bad(
                            f"{shown!r} has {facts.st_size} bytes, more than a chunk can have", pointer
                        )
        except OSError:
            raise _bad("the files of the array cannot be listed", pointer) from None


def file_bytes(found: Mapping[str, Any]) -> int:
    """Return an upper bound of a file's size: codecs compress, or expand slightly."""
    if found["zarr_format"] == 2:
        return 2 * chunk_bytes(found) + METADATA_BYTES
    # Each chunk of a shard has 16 bytes in its index, and a frame of its own.
    outer: list[int] = found["chunk_grid"]["configuration"]["chunk_shape"]
    sharded = any("chunk_shape" in _configuration(codec) for codec in found["codecs"])
    return 2 * chunk_bytes(found) + 64 * math.prod(outer) * sharded + METADATA_BYTES


def _configuration(codec: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = {} if isinstance(codec, str) else codec.get("configuration") or {}
    return found


def chunk_bytes(found: Mapping[str, Any]) -> int:
    """Return the size of a decoded chunk (of a shard, where there are some) by validated metadata."""
    outer: list[int]
    if found["zarr_format"] == 2:
        outer = found["chunks"]
        return math.prod(outer) * int(found["dtype"][-1])
    outer = found["chunk_grid"]["configuration"]["chunk_shape"]
    return math.prod(outer) * _item_bytes(found["data_type"])


def _item_bytes(kind: str) -> int:
    return 1 if kind == "bool" else int(kind.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def v2_chunk_bytes(folder: Path, pointer: str) -> int:
    """Return the size of a decoded chunk of a validated local array of format 2; 0 for format 3."""
    file = folder / ".zarray"
    return chunk_bytes(_metadata(file, pointer)) if os.path.lexists(file) else 0


def _metadata(file: Path, pointer: str) -> dict[str, Any]:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise _bad("the zarr metadata is no plain file", pointer)
            text = stream.read(METADATA_BYTES + 1)
    except OSError:
        raise _bad("the zarr metadata cannot be read", pointer) from None
    if len(text) > METADATA_BYTES:
        raise _bad("the zarr metadata is too large", pointer)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad("the zarr metadata is damaged", pointer) from None
    if not isinstance(found, dict):
        raise _bad("the zarr metadata is damaged", pointer)
    return found


def check_metadata(found: Mapping[str, Any], most_bytes: int, pointer: str) -> tuple[list[int], str]:
    """Validate the metadata of a zarr array, format 2 or 3; return its shape and dtype."""
    try:
        if found.get("zarr_format") == 3:
            return _check_v3(found, most_bytes, pointer)
        if found.get("zarr_format") == 2:
            return _check_v2(found, most_bytes, pointer)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise _bad("the zarr metadata is damaged", pointer) from None
    raise _bad("only zarr formats 2 and 3 are known", pointer)


def _check_v3(found: Mapping[str, Any], most_bytes: int, pointer: str) -> tuple[list[int], str]:
    if found.get("node_type") != "array":
        raise _bad("this is a zarr group, not an array", pointer)
    if found.get("storage_transformers"):
        raise _bad("storage transformers are not allowed", pointer)
    shape = _sizes(found["shape"], pointer)
    kind = found["data_type"]
    if not isinstance(kind, str) or not _V3_TYPES.fullmatch(kind):
        raise _bad("the array must be of real numbers", pointer)
    if found["chunk_grid"]["name"] != "regular":
        raise _bad("only regular chunks are allowed", pointer)
    chunk = _sizes(found["chunk_grid"]["configuration"]["chunk_shape"], pointer)
    _check_codecs(found["codecs"], chunk, _item_bytes(kind), most_bytes, pointer)
    return shape, kind


def _check_codecs(
    codecs: Any, chunk: list[int], size: int, most_bytes: int, pointer: str, depth: int = 0
) -> None:
    if not isinstance(codecs, list) or not codecs or depth > 2:
        raise _bad("the codecs are not allowed", pointer)
    sharded = False
    for codec in codecs:
        name = codec if isinstance(codec, str) else codec["name"]
        name = name.removeprefix("numcodecs.")
        if name not in CODECS:
            raise _bad(f"the codec {str(name)[:50]!r} is not allowed", pointer)
        if name == "sharding_indexed":
            sharded = True
            inner = _sizes(codec["configuration"]["chunk_shape"], pointer)
            count = math.prod(-(-c // i) for c, i in zip(chunk, inner, strict=True))
            if 16 * count > most_bytes:
                raise _bad("a shard has too many chunks", pointer)
            configuration = codec["configuration"]
            _check_codecs(configuration["codecs"], inner, size, most_bytes, pointer, depth + 1)
            index = configuration.get("index_codecs", ["bytes"])
            _check_codecs(index, [1, 1], 16, most_bytes, pointer, depth + 1)
    if not sharded:
        _check_chunk(chunk, size, most_bytes, pointer)


def _check_v2(found: Mapping[str, Any], most_bytes: int, pointer: str) -> tuple[list[int], str]:
    kind = found["dtype"]
    if not isinstance(kind, str) or not _V2_TYPES.fullmatch(kind):
        raise _bad("the array must be of real numbers", pointer)
    if found.get("filters"):
        raise _bad("filters are not allowed", pointer)
    compressor = found.get("compressor")
    if compressor is not None and compressor["id"] not in _COMPRESSORS:
        raise _bad(f"the codec {str(compressor['id'])[:50]!r} is not allowed", pointer)
    shape = _sizes(found["shape"], pointer)
    size = int(kind[-1])
    _check_chunk(_sizes(found["chunks"], pointer), size, most_bytes, pointer)
    return shape, kind


def _sizes(values: Any, pointer: str) -> list[int]:
    if (
        not isinstance(values, (list, tuple))
        or len(values) != 2
        or not all(type(n) is int and 0 <= n < 2**53 for n in values)
    ):
        raise _bad("the array must have 2 dimensions", pointer)
    return list(values)


def _check_chunk(chunk: list[int], size: int, most_bytes: int, pointer: str) -> None:
    if min(chunk) < 1:
        raise _bad("chunks must not be empty", pointer)
    if math.prod(chunk) * size > most_bytes:
        raise HttpProblem(
            "over-limit",
            f"a chunk of shape {chunk} decodes to {math.prod(chunk) * size} bytes; at most"
            f" {most_bytes} are allowed",
            pointer=pointer,
        )


def _bad(reason: str, pointer: str) -> HttpProblem:
    return HttpProblem("invalid-store", reason, pointer=pointer)
