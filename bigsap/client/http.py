"""Requests to a BigSAP service: retries, keys, and problem documents as exceptions."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bigsap.errors import BigsapError, InputError

if TYPE_CHECKING:
    import httpx

_MISSING = 'the client needs httpx and httpx-sse: pip install "bigsap[http]"'
# Status codes after which a retry may succeed.
_BUSY = (429, 502, 503, 504)
# Quotas that no waiting gives back: uploads stay until they are deleted.
_LASTING = ("arrays", "stored_bytes")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_ID = re.compile(r"[A-Za-z0-9_-]+")
#: Seconds after which an idle connection is not used again. Servers close idle ones, many after 5
#: s; a request sent at that moment is lost, and not all requests may be sent twice.
IDLE_S = 2.0


class ServiceError(BigsapError):
    """The service refused a request, or a job did not succeed.

    problem: the problem document (RFC 9457) as the service sent it. status: the HTTP status, None
    if the service could not be reached. slug: the last part of the problem's ``type``. pointer:
    JSON pointer of the offending field, if there is one.
    """

    def __init__(self, problem: Mapping[str, Any], status: int | None = None) -> None:
        self.problem = dict(problem)
        found = self.problem.get("status")
        self.status = status if status is not None else found if isinstance(found, int) else None
        self.slug = str(self.problem.get("type", "about:blank")).rpartition(":")[2]
        pointer = self.problem.get("pointer")
        self.pointer = pointer if isinstance(pointer, str) else None
        super().__init__(_sentence(self.problem, self.pointer))


class UnreachableError(ServiceError):
    """The service did not answer, or the answer is not from a BigSAP service."""


class JobFailedError(ServiceError):
    """A job ended without a result; ``job`` is its record as the service gave it."""

    def __init__(self, job: Mapping[str, Any], problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.job = dict(job)


class UploadError(ServiceError):
    """An upload stopped half-way; it can be continued with ``array_id``."""

    def __init__(self, error: ServiceError, array_id: str) -> None:
        super().__init__(error.problem, error.status)
        self.array_id = array_id


def _sentence(problem: Mapping[str, Any], pointer: str | None) -> str:
    detail = str(problem.get("detail") or problem.get("title") or "the request was refused")
    return f"{pointer}: {detail}" if pointer and pointer not in detail else detail


def header_text(name: str, value: str) -> str:
    """Return ``value`` if a header can hold it unchanged; raise InputError otherwise."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {type(value).__name__}")
    if not value:
        raise InputError(f"{name} is empty")
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        # The value may be a secret, so it is not in the message.
        raise InputError(f"{name} holds characters that no header can hold, or spaces at an end")
    return value


def path_of(collection: str, name: str) -> str:
    """Return the path of an id in ``collection``. Raises InputError if the id is not valid."""
    if not _ID.fullmatch(name):  # such as "../arrays", which would be another path
        raise InputError(f"{name!r} is no id: there is nothing like it in {collection}")
    return f"/v1/{collection}/{name}"


@dataclass
class Patience:
    """Growing pauses between attempts, for ``seconds`` in all.

    since: time of the first failure; None if there is none.
    """

    seconds: float
    since: float | None = None
    pause: float = _FIRST_PAUSE

    def renew(self) -> None:
        """Reset after an answer: the next failure starts a new period."""
        self.since, self.pause = None, _FIRST_PAUSE

    def spend(self, failure: ServiceError, named: float | None = None) -> None:
        """Wait before another attempt. Raises ``failure`` if the period would be over by then.

        named: seconds that the service requests, in place of our own pause.
        """
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        wanted = self.pause * random.uniform(0.5, 1.0) if named is None else named
        if now - self.since + wanted > self.seconds:
            raise failure
        time.sleep(wanted)
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)


class Transport:
    """One connection pool to one service.

    url: ``http`` or ``https``, with a path if the service has a prefix. key: sent as a bearer
    token, never over a redirect. timeout: seconds to wait for the connection and between two pieces
    of an answer. patience: seconds for which requests are repeated if the service cannot be reached
    or is busy; 0 for one attempt.
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 30.0, patience: float = 30.0
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ImportError(_MISSING) from error
        try:
            parts = urlsplit(url)
            # The library that looks up names refuses some that httpx accepts.
            httpx.URL(url).raw_host.decode("ascii").encode("idna")
        except (TypeError, ValueError, AttributeError, httpx.InvalidURL) as error:
            raise InputError(f"{url}: is no http address: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url}: the address of a service begins with http:// or https://")
        if parts.query or parts.fragment:
            raise InputError(f"{url}: the address of a service has neither ? nor #")
        self.url = url.rstrip("/")
        self.patience = patience
        self._timeout = timeout
        headers = {"Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {header_text('the key', key)}"
        self.http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=timeout,
            limits=httpx.Limits(keepalive_expiry=IDLE_S),
            # A proxy set in the environment cannot reach this machine's loopback.
            trust_env=parts.hostname not in ("localhost", "127.0.0.1", "::1"),
        )

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | memoryview | None = None,
        wait: float = 0.0,
        again: bool = True,
    ) -> httpx.Response:
        """Return the answer to one request.

        wait: seconds that the service may delay its answer on purpose. again: whether the request
        may be sent twice. Raises ServiceError for 4xx and 5xx, UnreachableError without an answer, and
        InputError for what JSON or an address cannot hold.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            request = self.http.build_request(
                method,
                path,
                headers=dict(headers or {}),
                params=given or None,
                json=json,
                content=None if content is None else bytes(content),
                timeout=self._timeout + wait,
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"the request cannot be sent: {error}") from error
        return self.persist(lambda: self.http.send(request), again=again)

    def persist(
        self, send: Callable[[], httpx.Response], *, again: bool = True, patience: Patience | None = None
    ) -> httpx.Response:
        """Repeat ``send()`` with growing pauses, for ``patience`` seconds.

        patience: given if ``send`` itself resets it.
        """
        import httpx

        patience = patience or Patience(self.patience, time.monotonic())
        lost = False
        while True:
            named: float | None = None
            try:
                answer = send()
            except httpx.LocalProtocolError as error:  # our own error, the same at each attempt
                raise InputError(f"the request cannot be sent: {error}") from error
            except httpx.TransportError as error:
                failure: ServiceError = unreachable(self.url, error)
                unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                may, lost = again or unsent, lost or not unsent
            else:
                # Redirects are not followed: the key is for this address alone.
                if answer.status_code < 300 or answer.status_code == 304:
                    return answer
                failure = refusal(answer)
                if lost and failure.slug == "not-found" and answer.request.method == "DELETE":
                    return answer  # done by the request whose answer was lost
                lost = lost or answer.status_code in (502, 504)
                named = _retry_after(answer.headers.get("Retry-After"))
                # 429: refused before any work was done. Superseded: what is left of a lost request may
                # reach the service after its repetition has begun; it ends soon.
                left_over = failure.slug == "block-superseded" or (
                    failure.slug == "array-incomplete" and named is not None
                )
                may = answer.status_code == 429 or (again and (answer.status_code in _BUSY or left_over))
                may = may and failure.problem.get("quota") not in _LASTING
            if not may:
                raise failure
            patience.spend(failure, named)


def unreachable(url: str, error: Exception) -> UnreachableError:
    """Return an exception for the failure to reach ``url``."""
    text = " ".join(str(error).split()) or type(error).__name__
    return UnreachableError(
        {"type": "about:blank", "title": "The service cannot be reached", "detail": f"{url}: {text}"}
    )


def refusal(answer: httpx.Response) -> ServiceError:
    """Return a 3xx, 4xx or 5xx answer as an exception; its body must have been read."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or answer.status_code < 400:
        status_line = f"{answer.status_code} {answer.reason_phrase}".strip()
        detail = (
            f"{answer.url}: {status_line}; this answer is not BigSAP's, but a proxy's or another service's"
        )
        if answer.status_code == 413:
            detail += "; have the proxy take larger bodies (nginx: client_max_body_size 64m)"
        return UnreachableError({"type": "about:blank", "detail": detail}, answer.status_code)
    return ServiceError(problem, answer.status_code)


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which may also be a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
