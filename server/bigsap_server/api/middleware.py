"""Outermost middleware: header limits, origin and key checks, and headers of every answer.

Plain ASGI around the application, so that the body of a request without a key is never
read, and internal errors expose only a problem document.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from bigsap_server import logs
from bigsap_server.api.service_metrics import Metrics
from bigsap_server.auth import Keys
from bigsap_server.problems import MEDIA_TYPE, HttpProblem
from bigsap_server.settings import is_loopback

_log = logging.getLogger("bigsap_server.access")

MOST_HEADERS = 100
MOST_HEADER_BYTES = 32 << 10
_SAFE = ("GET", "HEAD", "OPTIONS")
#: Paths requested by process supervisors, which may use HTTP/1.0 without a Host header.
_PROBES = ("/healthz", "/readyz")
_JOB = re.compile(r"/v1/jobs/([a-z]+_[A-Za-z0-9]{1,40})(?:/|$)")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def response_of(problem: HttpProblem, path: str, request_id: str | None) -> Response:
    """Return a problem as the response to the request of a path."""
    body = json.dumps(problem.document(path, request_id)).encode()
    return Response(body, problem.status, problem.headers, MEDIA_TYPE)


class Admission:
    """The outermost ASGI layer. root: the path prefix that a proxy removes."""

    def __init__(self, app: Any, keys: Keys, metrics: Metrics, root: str = "") -> None:
        self.app, self._keys, self._metrics, self._root = app, keys, metrics, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(scope, send, self._root)
        token = logs.context.set(answer.context)
        try:
            self._check(scope)
            if answer.method == "HEAD":
                # Answer as GET, without the body. A copy, because the server reads its own scope.
                scope, receive = {**scope, "method": "GET"}, answer.receive
            await self.app(scope, receive, answer.send)
            if answer.method == "HEAD" and answer.status is not None and not answer.complete:
                await answer.send({"type": "http.response.body", "body": b""})
        except HttpProblem as problem:
            await answer.problem(problem)
        except Exception:
            _log.exception("unexpected error")
            if answer.status is not None and not answer.complete:
                raise  # too late for an answer: the server must break the connection
            await answer.problem(HttpProblem("internal", "an error in the service; it is in the log"))
        finally:
            self._count(scope, answer)
            logs.context.reset(token)

    def _check(self, scope: Scope) -> None:
        raw = scope["headers"]
        if len(raw) > MOST_HEADERS or sum(len(k) + len(v) for k, v in raw) > MOST_HEADER_BYTES:
            raise HttpProblem("headers-too-large", "too many or too large headers")
        if sum(name == b"host" for name, _ in raw) > 1:
            raise HttpProblem("malformed-request", "there is more than one Host header")
        headers = Headers(scope=scope)
        path = scope["path"]
        if not self._keys.required and (path not in _PROBES or "host" in headers):
            _check_local(scope["method"], headers)
        if path.startswith("/v1/") or path == "/metrics":
            caller = self._keys.caller(headers.get("authorization"), headers.get("x-api-key"))
            scope.setdefault("state", {})["caller"] = caller

    def _count(self, scope: Scope, answer: _Answer) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        status = answer.status or 499
        known = (*_SAFE, "POST", "PUT", "DELETE")
        method = answer.method if answer.method in known else "?"
        self._metrics.requests.labels(method, route, str(status)).inc()
        seconds = (answer.began or time.perf_counter()) - answer.started
        self._metrics.seconds.labels(route).observe(seconds)
        # Successful polls and probes are logged at a lower level, because they are frequent.
        quiet = status < 400 and method in _SAFE
        caller = scope.get("state", {}).get("caller")
        _log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s %s %s",
            method,
            scope["path"][:200],
            status,
            extra={
                "status": status,
                "seconds": round(seconds, 4),
                "key": None if caller is None else caller.owner,
                "address": (scope.get("client") or (None,))[0],
            },
        )


def _check_local(method: str, headers: Headers) -> None:
    """Refuse requests from other machines and other web sites, for a service without keys.

    A name other than the loopback's in ``Host`` means DNS rebinding; another ``Origin`` means a
    request forged across sites.
    """
    host = headers.get("host", "")
    here = _place_of(host)
    if here is None or here.hostname is None or not is_loopback(here.hostname):
        raise HttpProblem("forbidden", "without keys this service answers to localhost only")
    origin = headers.get("origin")
    if method not in _SAFE and origin is not None:
        there = _place_of(origin.partition("://")[2])
        if there is None or there.netloc.lower() != host.lower():
            raise HttpProblem("forbidden", "requests from other origins are not accepted")


def _place_of(text: str) -> SplitResult | None:
    """Return a name or an address, with or without a port; None for anything else."""
    if re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", text) is None:
        return None
    try:
        return urlsplit(f"//{text}")
    except ValueError:  # in brackets, but no address
        return None


class _Answer:
    """The answer being sent: adds headers, records status and time."""

    def __init__(self, scope: Scope, send: Send, root: str) -> None:
        self._scope, self._send, self._path, self._root = scope, send, scope["path"], root
        self.method: str = scope["method"]
        self._asked, self._begun = False, asyncio.Event()
        self.started = time.perf_counter()
        self.began: float | None = None
        self.status: int | None = None
        self.complete = False
        given = Headers(scope=scope).get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self.context: dict[str, Any] = {"request": self.id}
        if found := _JOB.match(self._path):
            self.context["job"] = found.group(1)

    async def receive(self) -> Message:
        """Return an empty body for HEAD, and a disconnect once the answer has begun."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._begun.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.began = message["status"], time.perf_counter()
            present = {name.lower() for name, _ in message["headers"]}
            extra = {**SECURITY_HEADERS, "x-request-id": self.id}
            if self._path.startswith("/v1/"):
                extra["cache-control"] = "no-store"
            message = {
                **message,
                "headers": [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in extra.items()
                        if name.encode() not in present
                    ),
                ],
            }
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
            if self.method == "HEAD":
                message = {**message, "body": b""}
        await self._send(message)
        self._begun.set()

    async def problem(self, problem: HttpProblem) -> None:
        if self.status is None:
            response = response_of(problem, self._root + self._path, self.id)
            await response(self._scope, self.receive, self.send)
