"""Errors as RFC 9457 problem documents, independent of HTTP frameworks.

A problem's ``type`` is ``urn:bigsap:problem:`` and a stable slug; ``pointer`` is the JSON
pointer (RFC 6901) of the offending field, where there is one, and ``errors`` lists further ones.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import bigsap

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:bigsap:problem:"

#: Slug, HTTP status and title of every problem.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "malformed-request": (400, "The request cannot be read"),
    "malformed-json": (400, "The body is not JSON"),
    "unauthorized": (401, "A key is needed"),
    "forbidden": (403, "The key does not allow this"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "The method is not allowed here"),
    "not-acceptable": (406, "Not acceptable: no supported media type"),
    "request-timeout": (408, "Request body timed out"),
    "wrong-state": (409, "The state does not allow this"),
    "idempotency-conflict": (409, "The idempotency key belongs to another request"),
    "no-result": (409, "There is no result yet"),
    "array-sealed": (409, "The array is sealed"),
    "array-incomplete": (409, "Rows are missing"),
    "block-superseded": (409, "A later block has the same rows"),
    "array-in-use": (409, "An unfinished job uses the array"),
    "job-in-use": (409, "An unfinished job starts from the job"),
    "precondition-failed": (412, "The job has changed"),
    "body-too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body has a type that is not understood here"),
    "range-not-satisfiable": (416, "The range lies outside"),
    "invalid-spec": (422, "The request is not valid"),
    "invalid-cost": (422, "A cost is not a number"),
    "forbidden-address": (422, "The address is not allowed"),
    "forbidden-path": (422, "The path is not allowed"),
    "invalid-store": (422, "The store cannot be used"),
    "over-limit": (422, "A limit of this service is exceeded"),
    "quota-exceeded": (429, "The key's quota is used up"),
    "too-many-requests": (429, "Too many requests"),
    "headers-too-large": (431, "The headers are too large"),
    "internal": (500, "An error in the service"),
    "unavailable": (503, "The service is not ready"),
    "disk-full": (507, "The disk is full"),
    # Outcomes of jobs, which no request can have.
    "solve-failed": (500, "The solve failed"),
    "source-failed": (502, "The costs could not be read"),
    "out-of-memory": (507, "Not enough memory"),
    "result-not-stored": (502, "The result could not be written to its address"),
    "worker-lost": (503, "The worker was lost"),
    "server-stopped": (503, "The server was stopped"),
    "certificate-failed": (500, "The result is not what it claims"),
    "invalid-assignment": (422, "The assignment is not one of allowed pairs"),
}

_OF_LIBRARY = {
    bigsap.CertificateError: "certificate-failed",
    bigsap.SourceError: "source-failed",
    bigsap.InputError: "invalid-spec",
}

# Absolute paths of at least two names: in quotes, where they may contain any character, or bare. Not URLs,
# nor paths after a name (``c/0/0``).
_QUOTED = re.compile(r"""(['"])/(?:(?!\1).)+/((?!\1)[^/])+\1""")
_BARE = re.compile(r"""(?<![\w.:/~@%+)\]-])/(?:[^\s/'"<>:,;()]+/)+([^\s/'"<>:,;()]*)""")


class HttpProblem(Exception):
    """An error that is answered with a problem document.

    slug: a key of ``PROBLEMS``. pointer: JSON pointer into the body. errors: further
    ``{"detail", "pointer"}``. headers: of the answer; 429 always has a
    Retry-After. extra: further members.
    """

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        pointer: str | None = None,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.slug = slug
        self.detail = detail
        self.pointer = pointer
        self.errors = [dict(error) for error in errors]
        self.headers = dict(headers or {})
        if self.status == 429:
            self.headers.setdefault("Retry-After", "5" if slug == "quota-exceeded" else "1")
        self.extra = extra

    def __reduce__(self) -> Any:
        return type(self).__new__, (type(self), self.detail), self.__dict__

    @property
    def status(self) -> int:
        return PROBLEMS[self.slug][0]

    def document(self, instance: str | None = None, request: str | None = None) -> dict[str, Any]:
        """Return the JSON of RFC 9457. request: id of the request that it answers."""
        status, title = PROBLEMS[self.slug]
        found = {
            "type": PREFIX + self.slug,
            "title": title,
            "status": status,
            "detail": self.detail,
            "instance": instance,
            "request": request,
            "pointer": self.pointer,
            "errors": self.errors or None,
        }
        return {name: value for name, value in found.items() if value is not None} | self.extra


def pointer_to(*parts: object) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def without_paths(text: str, settings: Mapping[str, Any] | None = None) -> str:
    """Return a text for clients, without absolute paths of the server.

    Clients know only names of stores and paths within them. settings: the service's, or a worker's part
    of them, for the names; other absolute paths are reduced to their last name.
    """
    places = {} if settings is None else {**settings.get("stores", {}), "data": settings["data"]}
    roots = {
        root: name
        for name, place in places.items()
        for root in (os.fspath(place), os.path.abspath(place), os.path.realpath(place))
        if root != "/"
    }
    for root in sorted(roots, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.:/-]){re.escape(root)}(?![\w.-])", roots[root], text)
    text = _QUOTED.sub(lambda found: found[1] + _last(found[0][1:-1]) + found[1], text)
    return _BARE.sub(lambda found: _last(found[0]), text)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def from_error(
    error: BaseException, pointer: str | None = None, settings: Mapping[str, Any] | None = None
) -> HttpProblem:
    """Return the problem for an exception of a source or a solve, without its traceback.

    settings: see ``without_paths``.
    """
    if isinstance(error, HttpProblem):
        return error
    text = without_paths(" ".join(str(error).split()), settings)[:2000]
    extra: dict[str, Any] = {}
    if isinstance(error, bigsap.InvalidCostError):
        extra = {name: getattr(error, name) for name in ("row", "column") if getattr(error, name) is not None}
        return HttpProblem("invalid-cost", text, pointer=pointer, **extra)
    for kind, slug in _OF_LIBRARY.items():
        if isinstance(error, kind):
            return HttpProblem(slug, text, pointer=pointer)
    if isinstance(error, MemoryError):
        return HttpProblem("out-of-memory", "not enough memory for this problem")
    if is_disk_full(error):
        return HttpProblem("disk-full", "the disk is full")
    return HttpProblem("solve-failed", f"{type(error).__name__}: {text}" if text else type(error).__name__)


def is_disk_full(error: BaseException) -> bool:
    """Return whether a write failed for lack of space, quota or allowed file size."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
