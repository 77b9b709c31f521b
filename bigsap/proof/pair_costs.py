"""Costs of single pairs, read anew for a proof."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bigsap.sources.base import CostSource, Entries, Resident
from bigsap.sources.compiled import read_pairs
from bigsap.sources.filling import fill_of
from bigsap.types import Array

_AT_ONCE = 1 << 14


def read_pair_costs(source: CostSource, rows: Array, columns: Array) -> Array:
    """Return the costs (k,) of pairs, of the source's dtype.

    From Python, pairs of one row that stand together are read as one slice of it. O(k) for a matrix
    and for compiled costs.
    """
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is not None:
        found: Array = matrix[rows, columns]
        return found
    costs = np.empty(rows.size, source.dtype)
    fill = fill_of(source)
    if fill is not None and fill.in_parts:
        for start in range(0, rows.size, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            read_pairs(fill, rows[some], columns[some], costs[some])
        return costs
    ends = [0, *(np.flatnonzero(np.diff(rows)) + 1).tolist(), rows.size] if rows.size else []
    for start, stop in pairwise(ends):
        mine = columns[start:stop]
        first, last = int(mine.min()), int(mine.max())
        part = np.empty((1, last + 1 - first), source.dtype)
        source.read(rows[start : start + 1], slice(first, last + 1), part)
        costs[start:stop] = part[0, mine - first]
    return costs


def listed_costs(entries: Entries, rows: Array, columns: Array) -> tuple[Array, Array]:
    """Return the costs (k,) of pairs of a sparse source, of the type of its entries, and which are listed.

    Rows of a sparse source are floats, which do not hold all integers. O(E log E) for E entries.
    """
    start, ids, costs = entries
    if not ids.size:
        return np.zeros(rows.size, costs.dtype), np.zeros(rows.size, np.bool_)
    width = max(int(ids.max()), int(columns.max(initial=0))) + 1
    keys = np.repeat(np.arange(start.size - 1), np.diff(start)) * width + ids
    order = np.argsort(keys, kind="stable")  # a row's columns are in any order
    wanted = rows.astype(np.int64) * width + columns
    places = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    return costs[places], keys[places] == wanted
