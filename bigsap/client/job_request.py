"""Conversion of ``solve``'s arguments to a job request: a cost spec with numpy arrays in it.

Code is never sent. Stored data (arrays, files) are sent, and costs defined by few numbers (points,
factors, tables, formulas) as those numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bigsap.errors import InputError
from bigsap.option_table import as_requested
from bigsap.result import Result
from bigsap.sources import ArraySource, SliceableSource, as_source
from bigsap.sources.base import CostSource
from bigsap.sources.convert import cost_shape
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.http.http_rows import HttpSource
from bigsap.sources.kept_bounds import NearPoints
from bigsap.sources.lowrank import LowRankSource, TableSource
from bigsap.sources.metrics import PointSource
from bigsap.sources.sparse.sparse_costs import SparseCosts
from bigsap.sources.spec_files import load_npy, read_json
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource
from bigsap.types import Array

Record = dict[str, Any]

_WAYS_OUT = (
    "write the costs as a formula, bigsap.expression(...); or compute the matrix here and submit"
    " that; or have a provider serve the rows (see bigsap.from_http) at an address that the"
    " service allows"
)


class RowBlocks:
    """A matrix behind a source, read by blocks of rows: ``blocks[3:5]`` is an array."""

    ndim = 2

    def __init__(self, source: CostSource) -> None:
        self._source = source
        self.shape, self.dtype = source.shape, source.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        ids = np.arange(*rows.indices(len(self)))
        out = np.empty((len(ids), self.shape[1]), self.dtype)
        self._source.read(ids, slice(0, self.shape[1]), out)
        return out


def request_of(cost: Any, options: Mapping[str, Any] | None = None, shape: Any = None) -> Record:
    """Return a job request for any argument of ``Client.submit``, with arrays and ``RowBlocks`` in it.

    Raises InputError for costs that cannot be sent; the message names an alternative.
    """
    if _is_json_file(cost):
        cost = _read_spec(Path(cost))
    whole = isinstance(cost, Mapping) and "type" not in cost
    request: Record = dict(cost) if whole else {"cost": cost}
    if options:
        request["options"] = {**as_requested(request.get("options") or {}), **as_requested(options)}
    elif isinstance(request.get("options"), Mapping):
        request["options"] = as_requested(request["options"])
    if shape is not None:
        request["shape"] = list(cost_shape(shape, "shape="))
    if "cost" in request:
        request["cost"] = spec_of(request["cost"], maximize=_maximizes(request))
    return request


def _maximizes(request: Record) -> bool:
    options = request.get("options")
    return isinstance(options, Mapping) and options.get("maximize") is True


def assignment_of(request: Record, col4row: Any, v: Any = None) -> Record:
    """Return ``assignment`` of a job request, with arrays in it, for arguments of ``Client.certify``.

    request: without it.
    """
    from bigsap.certification import columns_of, columns_of_result, prices_of

    low = None
    if isinstance(v, Result):
        v, low = prices_of(v)
    if isinstance(col4row, Result):
        col4row = columns_of_result(col4row, _maximizes(request))
    shape = request.get("shape")
    if isinstance(col4row, tuple) and shape is None:
        raise InputError(
            "pairs (row_ind, col_ind) are not enough: give shape=(n, m), or the column of each row"
        )
    if shape is None:
        shape = np.shape(col4row) if np.ndim(col4row) == 2 else (0, 0)
    n, m = cost_shape(shape, "shape=")
    found: Record = {"col4row": np.asarray(columns_of(col4row, n, m, several=True))}
    given = {"v": v, "v_low": low}
    return found | {name: np.asarray(values) for name, values in given.items() if values is not None}


def spec_of(cost: Any, *, maximize: bool = False) -> Any:
    """Return the cost spec of ``cost``; costs within a given spec are converted too.

    maximize: the sense of the problem, which decides the infinity that forbids a pair. Raises as
    ``request_of``, and as ``bigsap.as_source`` if ``cost`` is not valid.
    """
    if isinstance(cost, Mapping):
        return _looked_through(cost, maximize)
    if cost is None:
        raise InputError("there are no costs: got None")
    if callable(cost) and not hasattr(cost, "shape"):
        raise _refusal(f"a Python function ({_name(cost)})")
    if hasattr(cost, "__cuda_array_interface__"):
        raise InputError(
            f"{_name(cost)} lies in a device's memory: submit a copy in this machine's, cupy.asnumpy(...)"
        )
    if isinstance(cost, (str, os.PathLike)):
        path = os.fspath(cost)
        if "://" in path:
            return {"type": "npy" if path.endswith(".npy") else "zarr", "uri": path}
        if not Path(path).exists():
            raise InputError(f"{path}: no such file or folder")
    return _of_source(as_source(cost), maximize)


def _looked_through(spec: Mapping[str, Any], maximize: bool) -> Record:
    found = dict(spec)
    if spec.get("type") == "sum" and isinstance(spec.get("terms"), (list, tuple)):
        found["terms"] = [spec_of(term, maximize=maximize) for term in spec["terms"]]
    elif spec.get("type") in ("scale", "mask", "forbid_above") and "cost" in spec:
        found["cost"] = spec_of(spec["cost"], maximize=maximize)
    return found


def _of_source(source: CostSource, maximize: bool) -> Record:
    match source:
        case NearPoints():
            return _of_source(source.given, maximize) | {"max_distance": source.max_distance}
        case PointSource():
            found = {"type": "points", "metric": source.metric, "x": source.x, "y": source.y}
            given = {"p": source.p, "w": source.w, "radius": source.radius}
            return found | {name: value for name, value in given.items() if value is not None}
        case LowRankSource():
            found = {"type": "lowrank", "a": source.a, "b": source.b}
            terms = {"row_terms": source.row_terms, "column_terms": source.column_terms}
            return found | {name: values for name, values in terms.items() if values.any()}
        case TableSource():
            classes = {"row_class": source.row_class, "column_class": source.column_class}
            return {"type": "table", "values": source.values, **classes}
        case SparseCosts():
            entries = source.entries()
            arrays = {"start": entries.start, "columns": entries.columns, "costs": entries.costs}
            return {"type": "sparse", **arrays, "shape": list(source.shape)}
        case ExpressionSource():
            return _of_expression(source)
        case HttpSource():
            return _of_provider(source)
    made_of: Callable[[], Any] | None = getattr(source, "made_of", None)
    if made_of is not None:
        return _of_combined(*made_of(), maximize=maximize)
    return {"type": "array", "values": _matrix(source)}


def _of_expression(source: ExpressionSource) -> Record:
    if source.swapped:
        raise InputError(f"{source!r} cannot be sent: exchange i and j in the formula instead")
    names = [declared.name for declared in source.expression.declared]
    arrays = {
        name: values if values.ndim else float(values)
        for name, values in zip(names, source.arrays, strict=True)
    }
    shape = list(source.shape)
    return {"type": "expression", "code": source.code, "shape": shape, "arrays": arrays}


def _of_provider(source: HttpSource) -> Record:
    url, dtype, has_headers = source.address()
    if has_headers or "@" in urlsplit(url).netloc:
        raise InputError(
            f"{source!r} cannot be sent with headers, a client or a password: submit"
            ' {"type": "http_rows", "url": ..., "credentials": NAME}, a name under which the'
            " service's operator keeps them"
        )
    return {"type": "http_rows", "url": url, "shape": list(source.shape), "dtype": dtype}


def _of_combined(
    kind: str, numbers: dict[str, float], sources: tuple[CostSource, ...], *, maximize: bool
) -> Record:
    infinity = numbers.get("infinity")
    if infinity is not None and maximize != (infinity < 0):
        raise InputError(
            f"these costs forbid pairs by {infinity}, which is for maximize={infinity < 0};"
            f" the options say maximize={maximize}"
        )
    if kind == "sum":
        return {"type": kind, "terms": [_of_source(source, maximize) for source in sources]}
    found: Record = {"type": kind, "cost": _of_source(sources[0], maximize)}
    if kind == "mask":
        found["forbidden"] = _matrix(sources[1])
    return found | {name: value for name, value in numbers.items() if name != "infinity"}


def _matrix(source: CostSource) -> Array | RowBlocks:
    """Return a stored matrix: an array, or a source read by blocks."""
    if isinstance(source, ArraySource):
        source.intact()
        array = source.array
        wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
        return RowBlocks(source) if wide else array
    if isinstance(source, (SliceableSource, RawZarrSource, DecodedZarrSource)):
        return RowBlocks(source)
    raise _refusal(repr(source))


def _refusal(what: str) -> InputError:
    return InputError(f"{what} cannot be sent to a service, to which no code goes: {_WAYS_OUT}")


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


# Files


def _is_json_file(cost: Any) -> bool:
    return isinstance(cost, (str, os.PathLike)) and Path(cost).suffix == ".json"


def _read_spec(file: Path) -> Record:
    """Return the job request or cost spec in a file; ``{"npy": path}`` in it become mapped arrays."""
    found = read_json(file)
    if not isinstance(found, dict) or not ("cost" in found or "type" in found):
        raise InputError(f'{file}: must be an object with "cost" (a job) or "type" (a cost spec)')
    opened: Record = _with_arrays(found, file.parent)
    return opened


def _with_arrays(spec: Any, folder: Path) -> Any:
    if isinstance(spec, dict):
        if spec.get("type") == "npy" and set(spec) == {"type", "path"}:
            spec = {"type": "array", "values": {"npy": spec["path"]}}
        if spec.get("type") == "zarr" and set(spec) == {"type", "path"}:
            # not the address of a store: a path relative to this folder
            return os.fspath(folder / spec["path"])
        if set(spec) == {"npy"} and isinstance(spec["npy"], str):
            return load_npy(folder / spec["npy"])
        return {key: _with_arrays(value, folder) for key, value in spec.items()}
    if isinstance(spec, list) and any(isinstance(value, dict) for value in spec):
        return [_with_arrays(value, folder) for value in spec]
    return spec
