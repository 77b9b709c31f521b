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
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs.objects import options_of
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.problems import HttpProblem, without_paths

#: Most bytes read of metadata.
METADATA_BYTES = 1 << 20
CODECS = frozenset({"bytes", "blosc", "zstd", "lz4", "gzip", "crc32c", "sharding_indexed"})
_COMPRESSORS = frozenset({"blosc", "zstd", "lz4", "gzip", "zlib"})
_V3_TYPES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
_V2_TYPES = re.compile(r"[<>|]?(b1|[iu][1248]|f[248])")


def jailed(stores: Mapping[str, Any], store: str, path: str, pointer: str) -> Path:
    """Return the file or folder ``path`` of a named store. Raises HttpProblem ``forbidden-path``."""
    if store not in stores:
        raise HttpProblem("invalid-store", f"there is no store {store!r}", pointer=f"{pointer}/store")
    pointer = f"{pointer}/path"
    if any(c in path for c in "\\:") or any(ord(c) < 32 for c in path):
        raise _forbidden("the path has characters that are not allowed", pointer)
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "~" in pure.parts or not pure.parts:
        raise _forbidden("the path must be relative and stay within the store", pointer)
    try:
        place = Path(os.path.realpath(stores[store])) / pure
        if os.path.realpath(place, strict=True) != os.fspath(place):
            raise _forbidden("the path leads through a symbolic link", pointer)
    except (FileNotFoundError, NotADirectoryError):
        raise _bad("there is nothing at this path", pointer) from None
    except (OSError, ValueError):
        raise _bad("the path cannot be read", pointer) from None
    return place


def zarr_folder(spec: Mapping[str, Any], settings: Mapping[str, Any], pointer: str) -> Path:
    """Return the local folder of a zarr spec, inside its store."""
    folder = jailed(settings["stores"], spec["store"], spec["path"], pointer)
    if not folder.is_dir():
        raise _bad("there is no zarr folder at this path", pointer)
    return folder


def open_zarr(spec: Mapping[str, Any], settings: Mapping[str, Any], pointer: str) -> bigsap.CostSource:
    """Return a validated local or remote array.

    A file that decodes to more than its metadata say is refused by zarr, and met by the memory limit
    of the job's process: it can fail its job only.
    """
    limit = settings["limits"]["zarr_chunk_bytes"]
    if spec["uri"] is None:
        folder = zarr_folder(spec, settings, pointer)
        check_zarr_folder(folder, limit, pointer)
        return bigsap.from_zarr(folder)
    check_uri(spec["uri"], settings["zarr_uris"], f"{pointer}/uri")
    try:
        import zarr
        from zarr.buffer import default_buffer_prototype
        from zarr.storage import FsspecStore

        options = options_of(spec["uri"])
        store = FsspecStore.from_url(spec["uri"], storage_options=options, read_only=True)
        array = zarr.open_array(store, mode="r")
        name = "zarr.json" if array.metadata.zarr_format == 3 else ".zarray"
        metadata = array.metadata.to_buffer_dict(default_buffer_prototype())[name].to_bytes()
    except Exception as error:
        missing = isinstance(error, ImportError)
        text = without_paths(f"{type(error).__name__}: {error}", settings) if missing else ""
        detail = f"the array cannot be opened {text}".strip()
        raise HttpProblem("source-failed", detail, pointer=pointer) from error
    check_metadata(json.loads(metadata), limit, pointer)
    return bigsap.from_zarr(array)


def check_zarr_folder(folder: Path, most_bytes: int, pointer: str) -> tuple[list[int], str]:
    """Return shape and dtype of a local zarr array, from its metadata alone.

    Raises HttpProblem ``invalid-store`` if it is not an array, is not allowed, or has chunks
    larger than ``most_bytes`` when decoded.
    """
    # Readers differ in which file they prefer: both must be valid, and the first is used.
    files = [folder / name for name in ("zarr.json", ".zarray") if os.path.lexists(folder / name)]
    if not files:
        raise _bad("there is no zarr array at this path", pointer)
    found = [check_metadata(_metadata(file, pointer), most_bytes, pointer) for file in files]
    return found[0]


def _metadata(file: Path, pointer: str) -> dict[str, Any]:
    try:
        if not file.is_file() or file.is_symlink():
            raise _bad("the zarr metadata is not a plain file", pointer)
        with file.open("rb") as stream:
            text = stream.read(METADATA_BYTES + 1)
        found = json.loads(text) if len(text) <= METADATA_BYTES else None
    except OSError:
        raise _bad("the zarr metadata cannot be read", pointer) from None
    except (ValueError, RecursionError):
        found = None
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
    _check_codecs(found["codecs"], chunk, np.dtype(kind).itemsize, most_bytes, pointer)
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
    _check_chunk(_sizes(found["chunks"], pointer), np.dtype(kind).itemsize, most_bytes, pointer)
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
    if (nbytes := math.prod(chunk) * size) > most_bytes:
        detail = f"a chunk of shape {chunk} decodes to {nbytes} bytes; at most {most_bytes} are allowed"
        raise HttpProblem("over-limit", detail, pointer=pointer)


def _forbidden(reason: str, pointer: str) -> HttpProblem:
    return HttpProblem("forbidden-path", reason, pointer=pointer)


def _bad(reason: str, pointer: str) -> HttpProblem:
    return HttpProblem("invalid-store", reason, pointer=pointer)
