"""Records: named numbers in one piece of memory, which kernels and Python read and write alike.

A class lists the fields and says what each means; ``int`` stands for int64, ``float`` for the type
of prices (float64 or int64). A kernel is handed one address, where an array takes seven words; in
Python a record is a ``numpy.record``, whose fields are attributes too. What is written on one side
is there on the other.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np

from bigsap.sources.base import Array

Fields = TypeVar("Fields")

#: What checkpoints call the numbers of a kind.
_PARTS = {"words": "int", "values": "float"}


def record_type(fields: type, price: np.dtype[Any]) -> np.dtype[Any]:
    """The numpy type of the fields of a class; each takes eight bytes, whole numbers come first.

    Raises TypeError for a name that every ``numpy.record`` uses for something else.
    """
    kinds = {"int": np.dtype(np.int64), "float": price}
    given = list(fields.__annotations__.items())
    for name, kind in given:
        if hasattr(np.record, name) or (kind == "int" and given[0][1] != "int"):
            where = f"{fields.__name__}.{name}"
            raise TypeError(f"{where}: a name of numpy.record, or a whole number after others")
    names = [(name, kinds[kind]) for name, kind in given]
    return np.dtype((np.record, np.dtype(names, align=True)))


def record(fields: type[Fields], price: np.dtype[Any]) -> Fields:
    """A record of its own, all fields 0."""
    return cast(Fields, np.zeros(1, record_type(fields, price))[0])


def numbers(kept: Any, fields: type) -> dict[str, Array]:
    """Copies of a record's whole numbers, and of those in the unit of prices, in order: what
    checkpoints hold."""
    found = {}
    for name, kind in _PARTS.items():
        given = [field for field, has in fields.__annotations__.items() if has == kind]
        found[name] = np.array([kept[field] for field in given])
    return found


def set_numbers(kept: Any, fields: type, saved: dict[str, Array]) -> None:
    """The opposite of ``numbers``; what else is saved is left alone."""
    for name, kind in _PARTS.items():
        given = [field for field, has in fields.__annotations__.items() if has == kind]
        for field, value in zip(given, saved[name] if given else [], strict=True):
            kept[field] = value
