"""Costs described by plain data: the types of a cost spec, and the source of each.

One definition for the JSON of the command line and for that of the service. They differ in how an
array is given (files beside the spec; uploads and stores) and in what they accept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bigsap.sources.base import CostSource
from bigsap.types import Array


@dataclass(frozen=True)
class Kind:
    """A type of cost spec.

    build: makes the source from the fields' values. fields: names of the fields and their types:
    array, arrays (an object of names and arrays or numbers), text, texts (an object), number,
    count, shape or path.
    """

    build: Callable[..., CostSource]
    fields: Mapping[str, str]
    required: tuple[str, ...]


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
}
