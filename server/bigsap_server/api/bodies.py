"""Request bodies: JSON with limits, and streams of raw rows.

JSON is parsed by the standard library with two additions: a repeated key is an error, and
the parser's exceptions for extreme input (depth, digits) become problem documents.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from bigsap_server.problems import HttpProblem

_GZIP = ("gzip", "x-gzip")
# Bytes decompressed at a time.
_STEP = 1 << 16
_JSON_TYPES = ("application/json", "application/merge-patch+json")


def http_error(problem: HttpProblem) -> HTTPException:
    """Return a problem as the only exception that the framework passes on from body parsing."""
    return HTTPException(problem.status, detail=problem)


class StrictRequest(Request):
    """A request whose JSON body is read under the service's limits."""

    async def body(self) -> bytes:
        """Return the whole body, decompressed.

        Raises 413 beyond the limit, before and after decompression, and 415 for a content type other than
        JSON or an unsupported content encoding.
        """
        if not hasattr(self, "_body"):
            limit = self.app.state.settings.limits.body_bytes
            coding = ", ".join(self.headers.getlist("content-encoding")).strip().lower()
            chunks = limited(self, limit)
            if coding in _GZIP:
                chunks = unzipped(chunks, limit)
            elif coding not in ("", "identity"):
                detail = f"the content encoding {coding[:40]!r} is not understood; send gzip or none"
                problem = HttpProblem("unsupported-media-type", detail, headers={"Accept-Encoding": "gzip"})
                raise http_error(problem)
            self._body = b"".join([chunk async for chunk in chunks])
            kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self._body and kind not in _JSON_TYPES:
                detail = "send JSON with Content-Type: application/json"
                raise http_error(HttpProblem("unsupported-media-type", detail))
        return self._body

    async def json(self) -> Any:
        """Return the parsed body; raise 400 when it is not JSON."""
        if not hasattr(self, "_json"):
            try:
                self._json = parse(await self.body())
            except HttpProblem as problem:
                raise http_error(problem) from None
        return self._json


class StrictRoute(APIRoute):
    """Route with a ``StrictRequest`` that refuses unknown query parameters.

    Probes and scrapers add parameters of their own, so paths outside of ``/v1/`` accept any.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, called with a ``StrictRequest``."""
        handler = super().get_route_handler()
        known = parameters_of(self.dependant)
        judged = self.path.startswith("/v1/")

        async def strict(request: Request) -> Response:
            if judged:
                check_parameters(request.query_params, known)
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def parameters_of(dependant: Any) -> list[str]:
    """Return the query parameters of a route, from the framework's declaration."""
    found = [str(field.alias) for field in dependant.query_params]
    for below in dependant.dependencies:
        found += parameters_of(below)
    return found


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


def _too_large(limit: int) -> HTTPException:
    return http_error(HttpProblem("body-too-large", f"at most {limit} bytes are allowed here"))


async def limited(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the chunks of a body of at most ``limit`` bytes; 413, as early as possible.

    408 when nothing arrives for ``limits.idle_s`` seconds.
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
        except TimeoutError:
            problem = HttpProblem(
                "request-timeout", f"nothing has come for {idle:g} s", headers={"Connection": "close"}
            )
            raise http_error(problem) from None
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


def _no_gzip() -> HTTPException:
    return http_error(HttpProblem("malformed-request", "the body is damaged, or no gzip"))


def parse(text: bytes) -> Any:
    """Return the JSON value of a text. Raises HttpProblem ``malformed-json``."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_float=_float)
    except _RepeatedNameError as error:
        detail = f"the key {str(error.args[0])[:100]!r} appears twice in one object"
    except _OverflowError as error:
        detail = f'{error.args[0][:100]} is beyond float64; write "Infinity" if that is meant'
    except json.JSONDecodeError as error:
        detail = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        detail = "nested too deeply"
    except UnicodeDecodeError:
        detail = "the body is not UTF-8 text"
    except ValueError:  # a number with thousands of digits
        detail = "a number is too long"
    raise HttpProblem("malformed-json", detail) from None


class _RepeatedNameError(Exception):
    pass


class _OverflowError(Exception):
    pass


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _OverflowError(text)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedNameError(key)
            seen.add(key)
    return found
