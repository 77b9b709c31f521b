"""Requests to a row provider: send, check, retry. See ``http_rows`` for the format.

Every answer is checked here before it is used as costs. Temporary failures (``_Passing``) are
retried; all others are errors at once.
"""

from __future__ import annotations

import email.utils
import http
import itertools
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from bigsap.errors import BigsapError, OptionError, SourceError, StoreError
from bigsap.sources.http.wire_format import (
    DTYPE,
    FINGERPRINT,
    WIRE_DTYPES,
    Description,
    check_headers,
    check_url,
    parse,
    shown,
)
from bigsap.types import Array

T = TypeVar("T")

DESCRIPTION_BYTES = 64 << 10  # the longest description that is read
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds before a further attempt
LONGEST_RETRY_AFTER = 30.0

_PASSING_STATUS = {408, 425, 429}


def import_httpx() -> Any:
    """Return the module; raise an error with the install command if it is missing."""
    try:
        import httpx
    except ImportError as error:
        raise OptionError('rows from a remote provider need httpx: pip install "bigsap[http]"') from error
    return httpx


class Abandoned(Exception):
    """Raised when the answer is no longer needed."""


class _Passing(Exception):
    """A temporary failure; ``after``: seconds to wait, if the provider named them."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


def name_rows(ids: Array) -> str:
    """Return ``ids`` (sorted) as text for an error message."""
    if ids.size == 1:
        return f"row {int(ids[0])}"
    count = f" ({ids.size} rows)" if ids[-1] - ids[0] >= ids.size else ""
    return f"rows {int(ids[0])} to {int(ids[-1])}{count}"


class Wire:
    """The address, the client and the limits of retries; used by several threads.

    timeout: seconds for one attempt. One call takes at most ``patience`` = (retries + 1) * timeout
    seconds, attempts and pauses together.
    """

    def __init__(
        self, url: str, headers: Any, timeout: float, retries: int, in_flight: int, client: Any
    ) -> None:
        httpx = import_httpx()
        self._url = check_url(url)
        self.shown = shown(url)
        self._headers = check_headers(headers)
        if client is not None and not isinstance(client, httpx.Client):
            raise OptionError(f"client must be a httpx.Client, got {type(client).__name__}")
        self._timeout = timeout
        self._retries = retries
        self.patience = (retries + 1) * timeout
        self._own = client is None
        self._httpx = httpx
        self._client = client or httpx.Client(
            limits=httpx.Limits(
                max_connections=in_flight, max_keepalive_connections=in_flight, keepalive_expiry=30
            )
        )
        self._lock = threading.Lock()
        # Reproducible for one process; several processes must not retry at the same times.
        self._random = random.Random(f"{os.getpid()} {url}")
        self._known: Description | None = None
        self.record: np.dtype[Any] = np.dtype(np.int64)
        self.changed: str | None = None
        self.n_requests = 0
        self.n_retries = 0
        self.n_bytes = 0

    @property
    def url(self) -> str:
        """The address as the user gave it; it may contain secrets."""
        return self._url

    @property
    def has_headers(self) -> bool:
        """Whether the user's headers, or client, are used with every request."""
        return bool(self._headers) or not self._own

    def close(self) -> None:
        """Close the connections, unless the client is the user's."""
        if self._own:
            self._client.close()

    # -- the two requests ------------------------------------------------------------

    def describe(self, stop: threading.Event) -> Description:
        """GET the description. Raises StoreError if the address is not a provider."""

        def once(end: float) -> Description:
            body = bytearray()
            with self._sent("GET", None, "application/json", end) as answer:
                self._check_answer(answer, "application/json")
                for chunk in answer.iter_raw():
                    body += chunk
                    self._still_wanted(end, stop)
                    if len(body) > DESCRIPTION_BYTES:
                        raise StoreError(f"the description is longer than {DESCRIPTION_BYTES} bytes")
            return parse(bytes(body))

        return self._try("the description", once, stop)

    def expect(self, known: Description) -> None:
        """Require this shape, dtype and fingerprint of all further rows."""
        self._known = known
        self.record = np.dtype([("id", "<i8"), ("cost", known.dtype, (known.shape[1],))])

    def rows(self, ids: Array, stop: threading.Event) -> Array:
        """POST row ids, sorted and distinct; return the received records, shape (k,)."""
        known = self._known
        assert known is not None
        records = np.empty(ids.size, self.record)
        view = records.view(np.uint8).data
        asked = ids.astype("<i8").tobytes()

        def once(end: float) -> Array:
            n_read = 0
            with self._sent("POST", asked, "application/octet-stream", end) as answer:
                self._check_answer(answer, "application/octet-stream")
                self._check_labels(answer.headers, known)
                declared = answer.headers.get("Content-Length")
                if declared is not None and declared != str(len(view)):
                    raise self._wrong_length(declared, view)
                for chunk in answer.iter_raw():
                    self._still_wanted(end, stop)
                    if n_read + len(chunk) > len(view):
                        raise self._wrong_length(f"more than {len(view)}", view)
                    view[n_read : n_read + len(chunk)] = chunk
                    n_read += len(chunk)
            if n_read < len(view):
                # No length was declared, so the connection may just have broken.
                raise _Passing(f"the answer ended after {n_read} of {len(view)} bytes")
            if not np.array_equal(records["id"], ids):
                k = int(np.flatnonzero(records["id"] != ids)[0])
                raise StoreError(
                    f"row {int(records['id'][k])} came where row {int(ids[k])} was asked; "
                    "rows must come in the order asked, each led by its id"
                )
            with self._lock:
                self.n_bytes += n_read
            return records

        return self._try(name_rows(ids), once, stop)

    # -- checks of an answer -----------------------------------------------------------

    def _check_answer(self, answer: Any, media_type: str) -> None:
        status = answer.status_code
        if 300 <= status < 400:
            raise StoreError(
                f"the provider redirects ({_status(status)}), which is refused; give the final address as url"
            )
        if status in _PASSING_STATUS or 500 <= status < 600:
            raise _Passing(
                f"the provider answered {_status(status)}", _retry_after(answer.headers.get("Retry-After"))
            )
        if status != 200:
            raise StoreError(f"the provider answered {_status(status)} instead of 200")
        coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if coding != "identity":
            raise StoreError(f"the answer has Content-Encoding {coding[:40]!r}; identity was asked")
        given = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if given != media_type:
            raise StoreError(f"the answer has Content-Type {given[:80]!r} instead of {media_type}")

    def _check_labels(self, headers: Any, known: Description) -> None:
        given = headers.get(FINGERPRINT)
        if given is None:
            raise StoreError(f"the answer lacks the header {FINGERPRINT}")
        if given != known.fingerprint:
            self.changed = (
                f"the provider's data changed: its fingerprint was {known.fingerprint!r} and is "
                f"now {given[:256]!r}; rows of both must not be mixed, so start again"
            )
            raise StoreError(self.changed)
        name = headers.get(DTYPE)
        if name is None:
            raise StoreError(f"the answer lacks the header {DTYPE}")
        # Not .get(): numpy compares None as if it were float64.
        if name not in WIRE_DTYPES or WIRE_DTYPES[name] != known.dtype:
            raise StoreError(f"the answer has dtype {name[:40]!r} instead of {known.dtype.str!r}")

    @staticmethod
    def _wrong_length(got: str, view: memoryview) -> StoreError:
        return StoreError(f"the answer has {got[:40]} bytes instead of {len(view)}")

    def _still_wanted(self, end: float, stop: threading.Event) -> None:
        if stop.is_set():
            raise Abandoned
        if time.monotonic() > end:
            raise _Passing(f"the answer took longer than timeout={self._timeout} s")

    # -- sending, and retries ----------------------------------------------------------

    def _sent(self, method: str, content: bytes | None, accept: str, end: float) -> Any:
        """Return a context manager of a streamed answer."""
        headers = self._headers | {"Accept": accept, "Accept-Encoding": "identity"}
        if content is not None:
            headers["Content-Type"] = "application/octet-stream"
        with self._lock:
            self.n_requests += 1
        return self._client.stream(
            method,
            self._url,
            content=content,
            headers=headers,
            timeout=max(0.001, end - time.monotonic()),
            follow_redirects=False,
        )

    def _try(self, what: str, once: Callable[[float], T], stop: threading.Event) -> T:
        """Call ``once`` until it succeeds, with pauses in between; errors name rows and address."""
        last = time.monotonic() + self.patience
        for attempt in itertools.count(1):
            try:
                return self._once(once, min(last, time.monotonic() + self._timeout))
            except _Passing as trouble:
                # A proxy in between may time out with 5xx; the attempts stay bounded.
                pause = self._pause(attempt, trouble.after)
                if attempt > self._retries or time.monotonic() + pause >= last:
                    tries = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                    raise SourceError(f"{what} from {self.shown}: {trouble} ({tries})") from None
                if stop.wait(pause):
                    raise Abandoned from None
                with self._lock:
                    self.n_retries += 1
            except BigsapError as error:
                raise type(error)(f"{what} from {self.shown}: {error}") from None
        raise AssertionError("unreachable")

    def _once(self, once: Callable[[float], T], end: float) -> T:
        """Call ``once``; classify its httpx errors without their text, which may quote the request."""
        httpx = self._httpx
        try:
            return once(end)
        except httpx.TimeoutException as error:
            raise _Passing(f"no answer within timeout={self._timeout} s ({type(error).__name__})") from None
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise StoreError(f"the request cannot be sent: {type(error).__name__}") from None
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise StoreError("the provider's certificate is not trusted") from None
            raise _Passing(f"the connection failed: {_reason(error)}") from None

    def _pause(self, attempt: int, after: float | None) -> float:
        with self._lock:
            jitter = self._random.uniform(0.5, 1.0)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt - 1, 30)) * jitter
        return pause if after is None else max(pause, min(after, LONGEST_RETRY_AFTER))


def _status(status: int) -> str:
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _reason(error: Exception) -> str:
    """Return an error of the transport as text; the peer's text is shortened."""
    return f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header (a number or a date), or None."""
    if text is None:
        return None
    try:
        if re.fullmatch(r"[0-9]{1,9}", text.strip()):
            return float(text)
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
