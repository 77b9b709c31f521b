"""Sizes of memory in requests: a number of bytes, or text such as "8GiB"."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

import bigsap

_SIZE_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,6})? ?([kKMGT]i?)?B?$"


def size_bytes(value: int | str) -> int:
    """Return a validated size as a number of bytes, as the library parses it."""
    return bigsap.RowCache(value).budget(0)


def _check_size(value: object) -> object:
    size = 0
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and re.fullmatch(_SIZE_PATTERN, value):
        size = size_bytes(value)
    if 1 <= size < 2**63:
        return value
    raise ValueError('must be a number of bytes, at least 1, or a size such as "4GiB" or "500MB"')


#: Bytes: a number, or text such as "8GiB".
Size: TypeAlias = Annotated[
    int | str,
    BeforeValidator(_check_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "exclusiveMaximum": 2**63},
                {"type": "string", "pattern": _SIZE_PATTERN},
            ]
        }
    ),
]
