"""State of a search from column to column, as checkpoints hold it."""

from __future__ import annotations

import numpy as np

from bigsap.engine.capacity import columns as C
from bigsap.progress import Snapshot
from bigsap.types import Array

_PREFIX = "columns_"
#: Vectors of the columns, and matrices of the pairs of columns, which a search changes.
_NODES = ("v", "capacity", "kept", "excess", "begin", "load")
_PAIRS = ("top", "top_row", "limit", "size")


def snapshot_of(c: C.Columns, rows: Array) -> Snapshot:
    """Return the state of a search among these rows; only the listed ones of each list are in it."""
    column, place = c.column[rows], c.place[rows]
    listed = np.arange(c.rise.shape[2]) < c.size[:, :, None]
    found = {name: getattr(c, name) for name in (*_NODES, *_PAIRS)}
    found |= {
        "column": column,
        "place": place,
        "own": c.own[c.begin[column] + place],
        "rise": c.rise[listed],
        "row": c.row[listed],
    }
    return {_PREFIX + name: part for name, part in found.items()}


def restored(c: C.Columns, rows: Array, snapshot: Snapshot) -> C.Columns:
    """Return the columns in the state of a snapshot of a search among these rows."""
    for name in (*_NODES, *_PAIRS):
        getattr(c, name)[...] = snapshot[_PREFIX + name]
    room = int(c.begin[-1])
    c = c._replace(member=np.empty(room, np.int32), own=np.empty(room))
    c.column[rows], c.place[rows] = snapshot[_PREFIX + "column"], snapshot[_PREFIX + "place"]
    at = c.begin[c.column[rows]] + c.place[rows]
    c.member[at], c.own[at] = rows, snapshot[_PREFIX + "own"]
    listed = np.arange(c.rise.shape[2]) < c.size[:, :, None]
    c.rise[listed], c.row[listed] = snapshot[_PREFIX + "rise"], snapshot[_PREFIX + "row"]
    return c
