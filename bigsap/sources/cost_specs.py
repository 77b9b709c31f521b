"""Costs described by plain data: the types of a cost spec, and the source of each.

One definition for the JSON of the command line and for that of the service. They differ in how an
array is given (files beside the spec; uploads and stores) and in what they accept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import InputError
from bigsap.sources.base import CostSource
from bigsap.types import Array, Ids


@dataclass(frozen=True)
class Kind:
    """A type of cost spec.

    build: makes the source from the fields' values. fields: names of the fields and their types:
    array, arrays (an object of names and arrays or numbers), text, texts (an object), number,
    count, shape, path, cost or costs (a list). sensed: build takes ``maximize``, the sense of the problem.
    """

    build: Callable[..., CostSource]
    fields: Mapping[str, str]
    required: tuple[str, ...]
    sensed: bool = False


# Imported in the call: a spec of one type needs no modules of the others.
def _points(**values: Any) -> CostSource:
    from bigsap.sources.metrics import points

    return points(**values)


def _lowrank(**values: Any) -> CostSource:
    from bigsap.sources.lowrank import lowrank

    return lowrank(**values)


def _table(**values: Any) -> CostSource:
    from bigsap.sources.lowrank import table

    return table(**values)


def _sparse(
    columns: Array,
    costs: Array,
    rows: Array | None = None,
    start: Array | None = None,
    shape: tuple[int, int] | None = None,
) -> CostSource:
    from bigsap.sources.sparse.sparse_costs import sparse_of_spec

    return sparse_of_spec(columns, costs, rows, start, shape)


def _array(values: Array) -> CostSource:
    from bigsap.sources import as_source

    return as_source(values)


def _zarr(path: str) -> CostSource:
    from bigsap.sources.zarr.zarr_store import from_zarr

    return from_zarr(path)


def _npy(path: str) -> CostSource:
    from bigsap.sources.arrays.matrix import from_npy

    return from_npy(path)


def _expression(code: str, shape: tuple[int, int], arrays: Mapping[str, Any] | None = None) -> CostSource:
    from bigsap.sources.expression.formula import expression

    return expression(code, shape, **(arrays or {}))


def _http_rows(**values: Any) -> CostSource:
    from bigsap.sources.http.http_rows import from_http

    return from_http(**values)


class _Inverted:
    """Source that is 1 where another source is 0, else 0."""

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, source: CostSource) -> None:
        self.source, self.shape = source, source.shape

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` for ``rows[k]``."""
        values = np.empty(out.shape, self.source.dtype)
        self.source.read(rows, columns, values)
        np.equal(values, 0, out=out, casting="unsafe")

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called while a read of this thread waits."""
        if (pass_on := getattr(self.source, "while_waiting", None)) is not None:
            pass_on(check)


def _sum(terms: Sequence[Any]) -> CostSource:
    from bigsap.sources.combined import sum_of

    return sum_of(terms)


def _scale(cost: Any, factor: float) -> CostSource:
    from bigsap.sources.combined import scaled

    return scaled(cost, factor)


def _mask(cost: Any, forbidden: Any = None, allowed: Any = None, maximize: bool = False) -> CostSource:
    from bigsap.sources import as_source
    from bigsap.sources.combined import masked

    if (forbidden is None) == (allowed is None):
        raise InputError("a mask has either forbidden or allowed")
    if isinstance(allowed, np.ndarray):
        allowed = as_source(allowed)
    return masked(cost, forbidden if allowed is None else _Inverted(allowed), maximize=maximize)


def _forbid_above(cost: Any, threshold: float, maximize: bool = False) -> CostSource:
    from bigsap.sources.combined import forbid_above

    return forbid_above(cost, threshold, maximize=maximize)


#: Names that an expression's arrays cannot have: those of its other fields.
RESERVED = ("code", "shape")
KINDS: Mapping[str, Kind] = {
    "points": Kind(
        _points,
        {
            "x": "array",
            "y": "array",
            "metric": "text",
            "p": "number",
            "w": "array",
            "radius": "number",
            "max_distance": "number",
        },
        ("x", "y"),
    ),
    "lowrank": Kind(
        _lowrank, {"a": "array", "b": "array", "row_terms": "array", "column_terms": "array"}, ("a", "b")
    ),
    "table": Kind(
        _table,
        {"values": "array", "row_class": "array", "column_class": "array"},
        ("values", "row_class", "column_class"),
    ),
    "sparse": Kind(
        _sparse,
        {"rows": "array", "start": "array", "columns": "array", "costs": "array", "shape": "shape"},
        ("columns", "costs"),
    ),
    "array": Kind(_array, {"values": "array"}, ("values",)),
    "zarr": Kind(_zarr, {"path": "path"}, ("path",)),
    "npy": Kind(_npy, {"path": "path"}, ("path",)),
    "expression": Kind(
        _expression, {"code": "text", "shape": "shape", "arrays": "arrays"}, ("code", "shape")
    ),
    "http_rows": Kind(
        _http_rows,
        {
            "url": "text",
            "shape": "shape",
            "dtype": "text",
            "headers": "texts",
            "timeout": "number",
            "retries": "count",
            "in_flight": "count",
            "block_rows": "count",
        },
        ("url", "shape", "dtype"),
    ),
    "sum": Kind(_sum, {"terms": "costs"}, ("terms",)),
    "scale": Kind(_scale, {"cost": "cost", "factor": "number"}, ("cost", "factor")),
    "mask": Kind(_mask, {"cost": "cost", "forbidden": "array", "allowed": "array"}, ("cost",), sensed=True),
    "forbid_above": Kind(
        _forbid_above, {"cost": "cost", "threshold": "number"}, ("cost", "threshold"), sensed=True
    ),
}
