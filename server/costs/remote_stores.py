"""Zarr arrays behind an address: no answer is taken in beyond what the array can need.

Metadata says how large a chunk may be, decoded and on its way; what answers may send more, or
never end. HTTP answers are counted as they come in. Object stores are asked for so many bytes
at the most, which is a range they honour.
"""

from __future__ import annotations

import json
from typing import Any

from bigsap_server.costs.stores import METADATA_BYTES


class Limit:
    """The most bytes of one answer; ``most`` may be changed while a store is open."""

    def __init__(self, most: int = METADATA_BYTES) -> None:
        self.most = most

    def check(self, size: int) -> None:
        """Raise ValueError when ``size`` bytes are too many."""
        if size > self.most:
            raise ValueError(f"the answer is larger than an object of this array can be ({self.most} bytes)")


def remote_zarr(uri: str) -> tuple[Any, dict[str, Any], Limit]:
    """A zarr array behind an http(s) or object store address, read-only, and its metadata.

    The limit is that of metadata; whoever has judged them sets that of the chunks.
    Redirects are refused. Raises ImportError when fsspec's part for the scheme is missing,
    and whatever zarr raises.
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
    """What fsspec's HTTP file system needs to keep the limit."""
    import aiohttp

    class Response(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            limit.check(self.content_length or 0)
            if self.headers.get("Content-Encoding", "identity") != "identity":
                # It was not asked for, and a few bytes of it may become very many.
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
    """``store`` (zarr's), which asks for no more than one byte above the limit."""
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
