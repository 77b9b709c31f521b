"""Remote zarr arrays: no answer is read beyond what the array can need.

Metadata limits the size of a chunk, decoded and compressed; a server may send more, or
never end. HTTP answers are counted as they arrive. Object stores are requested by range, which
they honour.
"""

from __future__ import annotations

import json
from typing import Any

from bigsap_server.costs.stores import METADATA_BYTES


class Limit:
    """Most bytes of one answer; ``most`` may be changed while a store is open."""

    def __init__(self, most: int = METADATA_BYTES) -> None:
        self.most = most

    def check(self, size: int) -> None:
        """Raise ValueError when ``size`` bytes are too many."""
        if size > self.most:
            raise ValueError(f"the answer is larger than an object of this array can be ({self.most} bytes)")


def remote_zarr(uri: str) -> tuple[Any, dict[str, Any], Limit]:
    """Return a read-only zarr array behind an http(s) or object store address, and its metadata.

    The limit is that for metadata; the caller sets that for chunks after checking the metadata.
    Redirects are refused. Raises ImportError when fsspec's package for the scheme is missing,
    and zarr's exceptions.
    """
    import zarr
    from zarr.buffer import default_buffer_prototype
    from zarr.storage import FsspecStore

    limit = Limit()
    http = uri.startswith("http")
    options = _http_options(limit) if http else {}
    store = FsspecStore.from_url(uri, storage_options=options, read_only=True)
    array = zarr.open_array(store if http else bounded(store, limit), mode="r")
    found = array.metadata.to_buffer_dict(default_buffer_prototype())
    name = "zarr.json" if array.metadata.zarr_format == 3 else ".zarray"
    return array, json.loads(found[name].to_bytes()), limit


def _http_options(limit: Limit) -> dict[str, Any]:
    """Return the options of fsspec's HTTP file system that keep the limit."""
    import aiohttp

    class Response(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            limit.check(self.content_length or 0)
            if self.headers.get("Content-Encoding", "identity") != "identity":
                # Compression was not requested, and a few bytes may decode to millions.
                raise ValueError("the answer is compressed for its transport")
            pieces, size = [], 0
            async for piece in self.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                limit.check(size)
            return b"".join(pieces)

    return {
        "allow_redirects": False,
        "skip_instance_cache": True,  # another array has another limit
        "client_kwargs": {
            "response_class": Response,
            "auto_decompress": False,
            "headers": {"Accept-Encoding": "identity"},
        },
    }


def bounded(store: Any, limit: Limit) -> Any:
    """Return a zarr store that requests at most one byte above the limit."""
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.storage import WrapperStore

    class Bounded(WrapperStore[Any]):
        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            if isinstance(byte_range, RangeByteRequest):
                limit.check(byte_range.end - byte_range.start)
            elif isinstance(byte_range, SuffixByteRequest):
                limit.check(byte_range.suffix)
            else:
                start = byte_range.offset if isinstance(byte_range, OffsetByteRequest) else 0
                byte_range = RangeByteRequest(start, start + limit.most + 1)
            found = await self._store.get(key, prototype, byte_range)
            if found is not None:
                limit.check(len(found))
            return found

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            return [await self.get(key, prototype, wanted) for key, wanted in key_ranges]

        async def _get_many(self, requests: Any) -> Any:
            for key, prototype, wanted in requests:
                yield key, await self.get(key, prototype, wanted)

    return Bounded(store)
