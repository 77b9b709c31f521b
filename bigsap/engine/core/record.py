"""Records: named numbers in one piece of memory, which kernels and Python read and write alike.

A class lists the fields and says what each means; ``int`` stands for int64, ``float`` for the type
of prices (float64 or int64). A kernel is handed one address, where an array takes seven words; in
Python a record is a ``numpy.void`` whose fields are attributes too. What is written on one side
is there on the other. Records are not pickled: checkpoints hold their ``numbers``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from operator import itemgetter
from typing import Any, TypeVar, cast

import numpy as np

from bigsap.sources.base import Array

Fields = TypeVar("Fields")

#: Bytes of a cache line.
LINE = 64
#: What checkpoints call the numbers of a kind.
_PARTS = {"words": "int", "values": "float"}


def _setter(name: str) -> Callable[[Any, Any], None]:
    def put(kept: Any, value: Any) -> None:
        kept[name] = value

    return put


def _given(fields: type) -> dict[str, str]:
    """The fields of a class and those it is derived from: "int" or "float" of each."""
    return {name: kind for base in fields.__mro__[::-1] for name, kind in get_annotations(base).items()}


@cache
def record_type(fields: type, price: np.dtype[Any]) -> np.dtype[Any]:
    """The numpy type of the fields of a class, each of eight bytes, padded to whole cache lines.

    Raises TypeError for a name that every ``numpy.void`` uses for something else.
    """
    kinds = {"int": np.dtype(np.int64), "float": price}
    given = _given(fields)
    hidden = [name for name in given if hasattr(np.void, name)]
    if hidden:
        raise TypeError(f"{fields.__name__}: numpy.void has {hidden} of its own")
    size = -(-8 * len(given) // LINE) * LINE
    formats = [kinds[kind] for kind in given.values()]
    lines = np.dtype({"names": list(given), "formats": formats, "itemsize": size}, align=True)
    # ``numpy.record`` looks fields up in Python, a microsecond each; properties of C do not.
    # Without a dictionary a name that is no field is an error.
    attributes = {name: property(itemgetter(name), _setter(name)) for name in given}
    own = type(fields.__name__, (np.void,), {"__slots__": (), **attributes})
    return np.dtype((own, lines))


def record(fields: type[Fields], price: np.dtype[Any]) -> Fields:
    """A record of its own, all fields 0."""
    return cast(Fields, records(fields, price, 1)[0])


def records(fields: type, price: np.dtype[Any], count: int) -> Array:
    """An array of records, all fields 0, each on cache lines of its own."""
    own = record_type(fields, price)
    size = count * own.itemsize
    room = np.zeros(size + LINE, np.uint8)
    skip = -room.ctypes.data % LINE
    return room[skip : skip + size].view(own)


def numbers(kept: Any, fields: type) -> dict[str, Array]:
    """Copies of a record's whole numbers, and of those in the unit of prices, in order: what
    checkpoints hold."""
    found = {}
    for name, kind in _PARTS.items():
        given = [field for field, has in _given(fields).items() if has == kind]
        found[name] = np.array([kept[field] for field in given])
    return found


def set_numbers(kept: Any, fields: type, saved: dict[str, Array]) -> None:
    """The opposite of ``numbers``; what else is saved is left alone."""
    for name, kind in _PARTS.items():
        given = [field for field, has in _given(fields).items() if has == kind]
        for field, value in zip(given, saved[name] if given else [], strict=True):
            kept[field] = value
