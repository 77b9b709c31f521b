"""Records: named numbers in one block of memory, shared by kernels and Python.

A class lists the fields and their meanings; ``int`` stands for int64, ``float`` for the type
of prices (float64 or int64). A kernel receives one address, where an array takes seven words. In
Python a record is a ``numpy.void`` whose fields are also attributes. Writes on one side are visible
on the other. Records are not pickled: checkpoints hold their ``numbers``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from operator import itemgetter
from typing import Any, TypeVar, cast

import numpy as np

from bigsap.types import Array

Fields = TypeVar("Fields")

#: Bytes of a cache line.
LINE = 64
#: Names in checkpoints of the two kinds of numbers.
_PARTS = {"words": "int", "values": "float"}


def _setter(name: str) -> Callable[[Any, Any], None]:
    def put(kept: Any, value: Any) -> None:
        kept[name] = value

    return put


def _given(fields: type) -> dict[str, str]:
    """Return the fields of a class and its bases, with "int" or "float" for each."""
    return {name: kind for base in fields.__mro__[::-1] for name, kind in get_annotations(base).items()}


@cache
def record_type(fields: type, price: np.dtype[Any]) -> np.dtype[Any]:
    """Return the numpy type of a class's fields: eight bytes each, padded to whole cache lines.

    Raises TypeError for a name that ``numpy.void`` already defines.
    """
    kinds = {"int": np.dtype(np.int64), "float": price}
    given = _given(fields)
    hidden = [name for name in given if hasattr(np.void, name)]
    if hidden:
        raise TypeError(f"{fields.__name__}: numpy.void has {hidden} of its own")
    size = -(-8 * len(given) // LINE) * LINE
    formats = [kinds[kind] for kind in given.values()]
    lines = np.dtype({"names": list(given), "formats": formats, "itemsize": size}, align=True)
    # ``numpy.record`` looks fields up in Python, a microsecond each; C properties avoid that.
    # Without a ``__dict__``, assigning to an unknown name is an error.
    attributes = {name: property(itemgetter(name), _setter(name)) for name in given}
    own = type(fields.__name__, (np.void,), {"__slots__": (), **attributes})
    return np.dtype((own, lines))


def record(fields: type[Fields], price: np.dtype[Any]) -> Fields:
    """Return a new record, all fields 0."""
    return cast(Fields, records(fields, price, 1)[0])


def records(fields: type, price: np.dtype[Any], count: int) -> Array:
    """Return an array of records, all fields 0, each aligned to cache lines."""
    own = record_type(fields, price)
    size = count * own.itemsize
    room = np.zeros(size + LINE, np.uint8)
    skip = -room.ctypes.data % LINE
    return room[skip : skip + size].view(own)


def numbers(kept: Any, fields: type) -> dict[str, Array]:
    """Copy a record's integers and its numbers in the unit of prices, in order, for checkpoints."""
    found = {}
    for name, kind in _PARTS.items():
        given = [field for field, has in _given(fields).items() if has == kind]
        found[name] = np.array([kept[field] for field in given])
    return found


def set_numbers(kept: Any, fields: type, saved: dict[str, Array]) -> None:
    """Set a record's numbers from those of ``numbers``; other keys are ignored."""
    for name, kind in _PARTS.items():
        given = [field for field, has in _given(fields).items() if has == kind]
        for field, value in zip(given, saved[name] if given else [], strict=True):
            kept[field] = value
