"""Addresses in a spec: checked against the operator's list, and pinned.

The host is compared with the list as text, resolved once, and every connection goes to
that address, so that a name cannot resolve to another address between check and use. The library
refuses redirects.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bigsap_server.problems import HttpProblem

if TYPE_CHECKING:
    import httpx

_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_host(url: str, allowed: Iterable[str], pointer: str) -> tuple[str, int]:
    """Return host and port of an http(s) URL that the operator allows; else raise HttpProblem.

    An entry ``host`` allows the scheme's default port, ``host:port`` that port.
    """

    def refuse(reason: str) -> HttpProblem:
        return HttpProblem("forbidden-address", reason, pointer=pointer)

    if not url.isascii() or any(c.isspace() or ord(c) < 32 for c in url) or "\\" in url:
        raise refuse("the address has characters that are not allowed")
    try:
        parts = urlsplit(url)
        host, port, default = parts.hostname, parts.port, _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        raise refuse("this is no address") from None
    if default is None or not host:
        raise refuse("the address must begin with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise refuse("credentials in an address are not allowed")
    port = default if port is None else port
    shown = f"[{host}]" if ":" in host else host
    names = {f"{shown}:{port}", *([shown] if port == default else ())}
    if not names & {entry.lower() for entry in allowed}:
        raise refuse("the operator has not allowed this host and port")
    return host, port


def check_uri(uri: str, prefixes: Iterable[str], pointer: str) -> None:
    """Raise HttpProblem unless a zarr URI begins with an allowed prefix and stays below it."""
    plain = uri.isascii() and not any(c.isspace() or ord(c) < 32 for c in uri)
    # Chained (::), nested and relative addresses could leave the allowed prefix.
    wrong = ("::", "\\", "/../", "/./", "@", "#", "?", "%2e", "%2E", "%2f", "%2F")
    body = uri.partition("://")[2]
    if not plain or any(part in uri for part in wrong) or "://" in body or uri.endswith("/.."):
        raise HttpProblem("forbidden-address", "this address is not allowed", pointer=pointer)
    if not any(uri.startswith(prefix if prefix.endswith("/") else prefix + "/") for prefix in prefixes):
        raise HttpProblem("forbidden-address", "the operator has not allowed this address", pointer=pointer)


def pinned_client(host: str, port: int, headers: Mapping[str, str]) -> Any:
    """Return an ``httpx.Client`` that connects to ``host`` at its present address only.

    Raises HttpProblem ``source-failed`` when the name is unknown.
    """
    import httpx

    address = _address(host, port)

    class Pinned(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return super().handle_request(_pinned(request, host, address))

    return httpx.Client(transport=Pinned(), headers=dict(headers), trust_env=False)


def pinned_async_client(host: str, port: int, headers: Mapping[str, str]) -> Any:
    """Return an ``httpx.AsyncClient`` like ``pinned_client``: what it does can be given up at any point."""
    import httpx

    address = _address(host, port)

    class Pinned(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return await super().handle_async_request(_pinned(request, host, address))

    return httpx.AsyncClient(transport=Pinned(), headers=dict(headers), trust_env=False)


def _address(host: str, port: int) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise HttpProblem("source-failed", f"the host {host} is unknown") from None
    return str(found[0][4][0])


def _pinned(request: httpx.Request, host: str, address: str) -> httpx.Request:
    """Return the request, to be sent to the address. Its Host header keeps the host of the spec's URL."""
    import httpx

    if request.url.host != host:
        raise httpx.ConnectError("requests to other hosts are not allowed")
    request.extensions = {**request.extensions, "sni_hostname": host}
    request.url = request.url.copy_with(host=address)
    return request
