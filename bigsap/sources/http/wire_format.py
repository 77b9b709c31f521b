"""The data exchanged between BigSAP and a row provider, as text and numbers. See ``http_rows``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bigsap.errors import DtypeError, OptionError, ShapeError, StoreError

#: Dtypes of the wire format. Looked up, never parsed: numpy's dtype strings are a language.
WIRE_DTYPES = {
    name: np.dtype(name)
    for name in ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1")
}

FINGERPRINT = "BigSAP-Fingerprint"
DTYPE = "BigSAP-Dtype"


@dataclass(frozen=True)
class Description:
    """A provider's description of itself. max_rows: per request, None for any number."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    fingerprint: str
    max_rows: int | None


def parse(body: bytes) -> Description:
    """Return the description in a JSON body; raise StoreError with the reason if it is invalid."""
    try:
        given = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise StoreError("the description is not JSON") from None
    if not isinstance(given, dict):
        raise StoreError("the description is no JSON object")
    for key in ("shape", "dtype", "fingerprint"):
        if key not in given:
            raise StoreError(f"the description lacks {key!r}")
    shape, name, fingerprint = given["shape"], given["dtype"], given["fingerprint"]
    if not (isinstance(shape, list) and len(shape) == 2 and all(map(_is_size, shape))):
        raise StoreError("the description's 'shape' is not [n_rows, n_columns]")
    if not isinstance(name, str) or name not in WIRE_DTYPES:
        raise StoreError(f"the description's 'dtype' is not one of {', '.join(WIRE_DTYPES)}")
    if not isinstance(fingerprint, str) or not re.fullmatch(r"[\x21-\x7e]{1,256}", fingerprint):
        raise StoreError("the description's 'fingerprint' is not 1 to 256 printable ASCII characters")
    most = given.get("max_rows")
    if most is not None and not (_is_size(most) and most > 0):
        raise StoreError("the description's 'max_rows' is not a positive integer")
    return Description((shape[0], shape[1]), WIRE_DTYPES[name], fingerprint, most)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def agree(known: Description, shape: tuple[int, int], dtype: np.dtype[Any], where: str) -> None:
    """Raise an error unless the description is the one that the user expects."""
    if known.shape != shape:
        raise ShapeError(f"the provider at {where} has shape {known.shape}, not shape={shape}")
    if known.dtype != dtype:
        raise DtypeError(f"the provider at {where} has dtype {known.dtype}, not dtype={dtype}")


def digest(known: Description) -> str:
    """Return a hex digest of all parts of a description that determine the costs."""
    text = json.dumps([known.shape, known.dtype.str, known.fingerprint])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def shown(url: str) -> str:
    """Return the address without parts that may be secret: user, password, query, fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + ("?..." if parts.query else "")


def check_url(url: Any) -> str:
    """Return ``url`` if it is an http(s) address with a host; else raise OptionError."""
    if not isinstance(url, str):
        raise OptionError(f"url must be a string, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        # Reading .port raises ValueError if it is invalid.
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or re.search(r"[\x00-\x20\x7f]", url):
        raise OptionError("url must look like http://host:port/path or https://host/path")
    return url


def check_headers(headers: Any) -> dict[str, str]:
    """Return headers that can be sent; errors name a header, never its value."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise OptionError(f"headers must be a mapping, got {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise OptionError("a name in headers is no legal HTTP header name")
        if not isinstance(value, str) or not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", value):
            raise OptionError(f"headers[{name!r}] is no legal header value: printable ASCII only")
    return dict(headers)
