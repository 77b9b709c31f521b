"""Request bodies: JSON with limits, and streams of raw rows.

JSON is parsed by the standard library with two additions: a repeated key is an error, and
the parser's exceptions for extreme input (depth, digits) become problem documents.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from bigsap_server.problems import HttpProblem

_GZIP = ("gzip", "x-gzip")
# Bytes decompressed at a time.
_STEP = 1 << 16


class StrictRoute(APIRoute):
    """Route that reads JSON under the service's limits, and refuses unknown query parameters.

    Probes and scrapers add parameters of their own, so paths outside of ``/v1/`` accept any.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with the body read and parsed before the framework asks for it."""
        handler = super().get_route_handler()
        known = [field.alias for field in self.dependant.query_params]

        async def strict(request: Request) -> Response:
            if self.path.startswith("/v1/"):
                check_parameters(request.query_params, known)
            if self.body_field is not None:
                request._body = await _json_text(request)
                if request._body:
                    request._json = parse(request._body)
            return await handler(request)

        return strict


async def _json_text(request: Request) -> bytes:
    """Return a whole body, decompressed.

    Raises HttpProblem 413 beyond the limit, before and after decompression, 415 for a content type other
    than JSON or an unsupported content encoding, 408 if nothing arrives, and 400 for a body that is cut
    off or no gzip.
    """
    limit = request.app.state.settings.limits.body_bytes
    coding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
    chunks = limited(request, limit)
    if coding in _GZIP:
        chunks = unzipped(chunks, limit)
    elif coding not in ("", "identity"):
        detail = f"the content encoding {coding[:40]!r} is not understood; send gzip or none"
        raise HttpProblem("unsupported-media-type", detail, headers={"Accept-Encoding": "gzip"})
    body = b"".join([chunk async for chunk in chunks])
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/json":
        raise HttpProblem("unsupported-media-type", "send JSON with Content-Type: application/json")
    return body


def check_parameters(given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse unknown query parameters, like unknown fields of bodies."""
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    has = f"it has {', '.join(known)}" if known else "it has none"
    raise RequestValidationError(
        [
            {
                "type": "extra_forbidden",
                "loc": ("query", name),
                "msg": f"this resource has no such parameter; {has}",
            }
            for name in unknown
        ]
    )


def check_length(request: Request, limit: int) -> None:
    """Refuse a body that declares more than ``limit`` bytes: 413."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise _too_large(limit)


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem("body-too-large", f"at most {limit} bytes are allowed here")


async def limited(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the chunks of a body of at most ``limit`` bytes; 413, as early as possible.

    408 when nothing arrives for ``limits.idle_s`` seconds; 400 if the body is cut off.
    """
    check_length(request, limit)
    size = 0
    idle: float = request.app.state.settings.limits.idle_s
    chunks = request.stream()
    while True:
        try:
            async with asyncio.timeout(idle):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except ClientDisconnect:
            raise HttpProblem("malformed-request", "the body is cut off") from None
        except TimeoutError:
            detail = f"nothing has come for {idle:g} s"
            raise HttpProblem("request-timeout", detail, headers={"Connection": "close"}) from None
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if chunk:
            yield chunk


async def unzipped(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield a gzipped body decompressed, at most ``limit`` bytes: 413 beyond, 400 for invalid gzip.

    At most the limit is decompressed.
    """
    stream = zlib.decompressobj(wbits=31)
    size, begun = 0, False
    async for chunk in chunks:
        begun = True
        found = _unzip(stream, chunk)
        while found:
            size += len(found)
            if size > limit:
                raise _too_large(limit)
            yield found
            found = _unzip(stream, stream.unconsumed_tail)
    if begun and (not stream.eof or stream.unused_data):
        raise _no_gzip()


def _unzip(stream: Any, data: bytes) -> bytes:
    try:
        found: bytes = stream.decompress(data, _STEP)
    except zlib.error:
        raise _no_gzip() from None
    return found


def _no_gzip() -> HttpProblem:
    return HttpProblem("malformed-request", "the body is damaged, or no gzip")


def parse(text: bytes) -> Any:
    """Return the JSON value of a text. Raises HttpProblem ``malformed-json``."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_float=_float)
    except json.JSONDecodeError as error:
        detail = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        detail = "nested too deeply"
    except UnicodeDecodeError:
        detail = "the body is not UTF-8 text"
    except ValueError:  # a number with thousands of digits
        detail = "a number is too long"
    raise HttpProblem("malformed-json", detail) from None


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        detail = f'{text[:100]} is beyond float64; write "Infinity" if that is meant'
        raise HttpProblem("malformed-json", detail)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise HttpProblem("malformed-json", f"the key {key[:100]!r} appears twice in one object")
    return found
