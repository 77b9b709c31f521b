"""API keys: permissions, quotas and request rates.

A keys file is TOML, one table a key, see docs/operator.md; ``bigsap keys NAME`` makes an entry.
Keys are random 256-bit numbers and cannot be guessed, so one round of SHA-256 is enough.
A client sends ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bigsap_server.problems import HttpProblem
from bigsap_server.settings import Limits, complaints, read_toml

Scope = Literal["read", "submit", "admin"]
#: Limits that a key may have of its own, as ``Caller.quotas`` has them.
QUOTAS = ("active_jobs", "running_jobs", "stored_bytes", "streams", "spread_workers")


class Key(BaseModel):
    """One entry of the keys file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    scopes: frozenset[Scope] = Field(min_length=1)
    active_jobs: int | None = Field(None, ge=0)
    running_jobs: int | None = Field(None, ge=1)
    requests_per_s: float | None = Field(None, gt=0)
    burst: int | None = Field(None, ge=1)
    stored_bytes: int | None = Field(None, ge=0)
    streams: int | None = Field(None, ge=0)
    spread_workers: int | None = Field(None, ge=0)

    def quotas(self, limits: Limits) -> dict[str, Any]:
        """Return the key's own quotas, and the service's limits for those that it does not have."""
        own = self.model_dump(include=set(QUOTAS), exclude_none=True)
        return limits.model_dump(include=set(QUOTAS)) | own


@dataclass
class Caller:
    """The sender of a request. ``owner`` of the objects it creates; "" for a service without keys."""

    owner: str
    scopes: frozenset[Scope]
    quotas: Mapping[str, Any]
    streams: int = 0
    bucket: Bucket | None = field(default=None, repr=False)

    def become(self, other: Caller) -> None:
        """Take the scopes and limits of ``other``, and keep what is counted."""
        self.scopes, self.quotas = other.scopes, other.quotas
        if self.bucket is not None and other.bucket is not None:
            self.bucket.become(other.bucket)

    @property
    def sees(self) -> str | None:
        """The owner whose jobs and arrays the caller may see, or None for all owners."""
        return None if "admin" in self.scopes else self.owner

    @property
    def may_wait(self) -> bool:
        """Whether the caller may keep one more request open."""
        return bool(self.streams < self.quotas["streams"])

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a request that stays open. Raises HttpProblem beyond the limit."""
        self.check_waiting()
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def check_waiting(self) -> None:
        """Raise HttpProblem for a request that cannot stay open."""
        if not self.may_wait:
            most = self.quotas["streams"]
            detail = f"{most} open streams, polls and uploads are allowed"
            raise HttpProblem("too-many-requests", detail, quota="streams", limit=most)

    def has(self, *scopes: Scope) -> bool:
        """Return whether the caller has one of the scopes."""
        return not self.scopes.isdisjoint({*scopes, "admin"})

    def require(self, *scopes: Scope) -> None:
        """Raise HttpProblem ``forbidden`` without one of the scopes."""
        if not self.has(*scopes):
            named = " or ".join(map(repr, scopes))
            raise HttpProblem("forbidden", f"this needs a key with the scope {named}")


class Bucket:
    """Token bucket: a rate of requests per second, and a burst. Used on the event loop only."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._seen = float(burst), time.monotonic()

    def become(self, other: Bucket) -> None:
        """Take the limits of ``other``, and keep what is counted."""
        self.rate, self.burst = other.rate, other.burst

    def take(self) -> float:
        """Return 0 if the request is allowed, else the seconds until one is."""
        now = time.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._seen) * self.rate)
        self._seen = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self.rate


class Keys:
    """All keys of a service, or the one caller of a service without keys."""

    def __init__(self, keys: Mapping[str, Key] | None, limits: Limits) -> None:
        self.required = keys is not None
        self._callers: dict[str, Caller] = {}
        for name, key in (keys or {}).items():
            bucket = Bucket(key.requests_per_s or limits.requests_per_s, key.burst or limits.burst)
            self._callers[key.hash] = Caller(name, key.scopes, key.quotas(limits), bucket=bucket)
        everything = limits.model_dump(include=set(QUOTAS))
        self._anybody = Caller("", frozenset({"admin"}), everything)
        self._named = {caller.owner: caller for caller in self._callers.values()}
        # Keys cannot be guessed, but the limit keeps attempts from loading the service.
        self._strangers = Bucket(limits.requests_per_s, limits.burst)

    @classmethod
    def read(cls, file: Path | None, limits: Limits) -> Keys:
        """Read a keys file. Raises ValueError naming the file, or OSError naming the setting, too."""
        if file is None:
            return cls(None, limits)
        try:
            keys = TypeAdapter(dict[str, Key]).validate_python(read_toml(file, "keys"))
        except ValidationError as error:
            raise ValueError(f"{file}: {complaints(error)}") from None
        if not keys:
            raise ValueError(f"{file}: there is no key in it")
        if len({key.hash for key in keys.values()}) < len(keys):
            raise ValueError(f"{file}: two names have the same key")
        return cls(keys, limits)

    def reload(self, others: Keys) -> None:
        """Take the keys of ``others``: who is a caller here stays the same one, with what is open.

        A caller that is none there may do nothing more: also its open streams end.
        """
        for digest, caller in self._callers.items():
            found = others._callers.get(digest)
            if found is None or found.owner != caller.owner:
                caller.scopes = frozenset()
            else:
                caller.become(found)
                others._callers[digest] = others._named[caller.owner] = caller
        self._anybody.become(others._anybody)
        self._strangers.become(others._strangers)
        self._callers, self._named = others._callers, others._named

    def running_jobs(self, owner: str) -> int | None:
        """Return how many jobs of an owner may run at a time; None: no limit."""
        most: int | None = self._named.get(owner, self._anybody).quotas["running_jobs"]
        return most

    def caller(self, authorization: str | None, api_key: str | None) -> Caller:
        """Return the caller that sent these headers.

        Raises HttpProblem: unauthorized, or too many requests.
        """
        if not self.required:
            return self._anybody
        text = api_key
        if authorization is not None:
            scheme, _, given = authorization.partition(" ")
            if scheme.lower() == "bearer":  # others are a proxy's own login
                text = given
        known = None if text is None else self._callers.get(hashed(text.strip()))
        bucket = self._strangers if known is None else known.bucket
        wait = 0.0 if bucket is None else bucket.take()
        if wait:
            later, detail = {"Retry-After": str(max(1, round(wait + 0.5)))}, "too many requests with this key"
            raise HttpProblem("too-many-requests", detail, quota="requests_per_s", headers=later)
        if known is None:
            detail = "send a key: Authorization: Bearer KEY" if text is None else "unknown key"
            raise HttpProblem("unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="bigsap"'})
        return known


def hashed(key: str) -> str:
    """Return the hash as the keys file has it. The time of a look-up reveals nothing about other keys."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> str:
    """Return a new random key."""
    return "bsk_" + secrets.token_urlsafe(32)


def new_entry(name: str, scopes: Sequence[str] = ()) -> tuple[str, str]:
    """Return a new key, and its table for the keys file. Raises ValueError."""
    scopes = scopes or ["read", "submit"]
    unknown = [scope for scope in scopes if scope not in get_args(Scope)]
    if unknown:
        raise ValueError(f"unknown scope {unknown[0]!r}: there are {', '.join(get_args(Scope))}")
    if not name or not name.isprintable():
        raise ValueError(f"{name!r} is not a valid name: it needs printable characters")
    key = new_key()
    # TOML reads [a.b] as a nested table. JSON strings of printable characters are valid TOML strings.
    table = name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
    shown = ", ".join(f'"{scope}"' for scope in sorted(set(scopes)))
    return key, f'[{table}]\nhash = "{hashed(key)}"\nscopes = [{shown}]\n'
