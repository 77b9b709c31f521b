"""Sparse costs in the forms that searches for neighbours return: lists of each row, records, dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bigsap.errors import ShapeError
from bigsap.sources.convert import cost_shape
from bigsap.sources.missing import parted

#: Rows, columns and costs of the listed pairs.
_Vectors: TypeAlias = tuple[Any, Any, Any]
#: Fields of the records of scipy's ``sparse_distance_matrix(output_type="ndarray")``.
_FIELDS = ("i", "j", "v")


def vectors_of(entries: Any) -> _Vectors | None:
    """Return the vectors of records with fields i, j, v, or of costs by (row, column) in a dict, or None."""
    if isinstance(entries, np.ndarray) and entries.dtype.names == _FIELDS:
        rows, columns, costs = (np.ascontiguousarray(entries[name]) for name in _FIELDS)
        return rows, columns, costs
    if not isinstance(entries, Mapping):
        return None
    pairs = list(entries)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return None
    return [row for row, _ in pairs], [column for _, column in pairs], list(entries.values())


def vectors_of_lists(lists: Sequence[Any], shape: Sequence[int] | None) -> tuple[_Vectors, tuple[int, int]]:
    """Return the vectors and the shape of two arrays (n_rows, k): columns and costs of each row's pairs.

    Costs come first if the other array alone holds integers. A place of cost ``inf`` is empty. Raises
    ShapeError.
    """
    first, second = (_masked(values) for values in lists)
    if first.ndim != 2 or first.shape != second.shape:
        raise ShapeError(
            f"two arrays are the columns and costs of each row's pairs, both (n_rows, k); these have the"
            f" shapes {first.shape} and {second.shape}; pairs in any order are (rows, columns, costs)"
        )
    swapped = first.dtype.kind == "f" and second.dtype.kind in "iu"
    columns, costs = (second, first) if swapped else (first, second)
    n, k = columns.shape
    if shape is not None and cost_shape(shape, "shape=")[0] != n:
        raise ShapeError(f"shape={tuple(shape)} contradicts the lists of {n} row{'s' if n != 1 else ''}")
    vectors = [np.repeat(np.arange(n), k), columns.ravel(), costs.ravel()]
    if costs.dtype.kind == "f":
        kept = ~np.ma.filled(np.isposinf(vectors[2]), False)
        vectors = [values[kept] for values in vectors]
    rows, columns, costs = vectors
    if shape is not None:
        return (rows, columns, costs), cost_shape(shape, "shape=")
    known = np.ma.filled(columns, 0) if columns.dtype.kind in "iu" else np.zeros(0)
    return (rows, columns, costs), (n, int(known.max()) + 1 if known.size else 0)


def _masked(values: Any) -> Any:
    array, missing = parted(values, "the lists")
    return array if missing is None else np.ma.array(array, mask=missing)
