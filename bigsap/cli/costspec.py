"""Costs named on the command line: a ``.npy`` or ``.npz`` file, a zarr store or a JSON cost spec.

A cost spec is a JSON object with a ``type``; every other key belongs to that type::

    {"type": "points", "metric": "euclidean", "x": {"npy": "x.npy"}, "y": [[0.5, 0.5]]}

============ =================================================== ==========================
type         required                                            optional
============ =================================================== ==========================
points       x, y                                                metric, p, w, radius,
                                                                 max_distance
lowrank      a, b                                                row_terms, column_terms
table        values, row_class, column_class
sparse       columns, costs, and rows or start                   shape (with start: required)
array        values
zarr         path
npy          path
expression   code, shape                                         arrays
http_rows    url, shape, dtype                                   headers, timeout, retries,
                                                                 in_flight, block_rows
sum          terms (a list of costs)
scale        cost, factor
mask         cost, and forbidden or allowed
forbid_above cost, threshold
============ =================================================== ==========================

``arrays`` of an expression is an object of names and arrays or numbers; ``code`` is
written in the language of ``bigsap.expression``.

Arrays are nested lists or ``{"npy": path}``; paths are relative to the spec's folder.
``Infinity`` is a forbidden pair. Unknown and repeated keys are refused. Nothing is ever
evaluated as Python or unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bigsap.errors import DtypeError, ExpressionError, InputError, OverflowRiskError, ShapeError
from bigsap.option_table import ARRAYS, OPTIONS, as_requested
from bigsap.sources import as_source
from bigsap.sources.base import CostSource
from bigsap.sources.cost_specs import KINDS, RESERVED
from bigsap.sources.spec_files import load_npy, read_json
from bigsap.sources.whole_numbers import rounded_among

Array: TypeAlias = npt.NDArray[Any]
#: Levels of sum, scale, mask and forbid_above, as many as the service takes by default.
_DEEPEST = 16


def open_costs(path: str | os.PathLike[str]) -> CostSource:
    """Return the source named by a command-line argument.

    A name ending in ``.json`` is a cost spec, ``.npz`` sparse costs, anything else a ``.npy`` file or a
    zarr store. Raises
    InputError if the file does not exist, StoreError if it is damaged or of another kind.
    """
    name = os.fspath(path)
    if "://" not in name:
        file = Path(name)
        if not file.exists():
            raise InputError(f"{name}: no such file or folder")
        if file.suffix == ".json" and file.is_file():
            return read_spec(file)
    return as_source(name)


def open_problem(
    path: str | os.PathLike[str], maximize: bool | None = None
) -> tuple[CostSource, dict[str, Any]]:
    """Return the costs of a file and the options in it, as ``bigsap.solve`` takes them.

    maximize: the sense, which decides what forbids a pair; None: that of the options. Only a job request,
    a JSON object with ``cost``, has options. Raises as ``open_costs``.
    """
    file = Path(os.fspath(path))
    if file.suffix != ".json" or not file.is_file():
        return open_costs(path), {}
    found = read_json(file)
    if not isinstance(found, Mapping) or "cost" not in found or "type" in found:
        return from_spec(found, file.parent, str(file), maximize=bool(maximize)), {}
    for key in found:
        if key not in ("cost", "shape", "options", "label"):
            raise InputError(f"{file}: /{key}: is for a service; leave it out, or use bigsap submit")
    options = _options(found.get("options", {}), file)
    sense = bool(options.get("maximize") if maximize is None else maximize)
    place = _Place(file.parent, f"{file}: /cost", sense, found.get("shape"))
    source = _from_spec(found["cost"], place)
    if "shape" in found and _shape(found["shape"], _Place(file.parent, f"{file}: /shape")) != source.shape:
        raise ShapeError(f"{file}: /shape: is {found['shape']}, but the costs have {list(source.shape)}")
    return source, options


def _options(given: object, file: Path) -> dict[str, Any]:
    """Return the options of a job request by their names in ``bigsap.solve``."""
    if not isinstance(given, Mapping):
        raise InputError(f"{file}: /options: must be an object, got {_kind_name(given)}")
    known = {option.remote: option for option in OPTIONS}
    found: dict[str, Any] = {}
    try:
        named = as_requested(given)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    for key, value in named.items():
        if key == "certify":
            if value not in ("bounds", "pairs"):
                raise InputError(f'{file}: /options/certify: must be "bounds", "pairs" or true')
            found[key] = value == "bounds" or value
        elif key not in known:
            raise InputError(f"{file}: /options/{key}: unknown option; there are {', '.join(known)}, certify")
        elif known[key].kind == "flag" and not isinstance(value, (bool, type(None))):
            raise InputError(f"{file}: /options/{key}: must be true or false, got {_kind_name(value)}")
        elif value is not None:
            place = _Place(file.parent, f"{file}: /options/{key}")
            if known[key].kind in ARRAYS:
                value = _number_or_array(value, place)
            found[known[key].name] = value
    return found


def read_spec(file: Path) -> CostSource:
    """Return the source described by a JSON file. Raises InputError naming file and place."""
    return from_spec(read_json(file), file.parent, str(file))


def from_spec(spec: object, folder: Path, name: str = "cost spec", *, maximize: bool = False) -> CostSource:
    """Return the source described by a parsed spec; its paths are relative to ``folder``.

    maximize: the sense, which decides what forbids a pair. Raises InputError that begins with ``name``
    and, if one field is wrong, its JSON pointer.
    """
    return _from_spec(spec, _Place(folder, name, maximize))


def _from_spec(spec: object, place: _Place) -> CostSource:
    name = place.pointer
    if not isinstance(spec, Mapping):
        raise InputError(f"{name}: must be a JSON object, got {_kind_name(spec)}")
    if place.depth > _DEEPEST:
        raise InputError(f"{name}: costs are nested more than {_DEEPEST} deep")
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        got = f"got {kind!r}" if "type" in spec else "it is missing"
        raise InputError(f"{name}: /type: must be one of {known}; {got}")
    form = KINDS[kind]
    if place.shape is not None and "shape" in form.fields:
        spec = {"shape": place.shape, **spec}
    for key in spec:
        if key != "type" and key not in form.fields:
            known = ", ".join(form.fields)
            raise InputError(f"{name}: /{key}: unknown key for type {kind!r}; it has {known}")
    for key in form.required:
        if key not in spec:
            raise InputError(f"{name}: /{key}: required for type {kind!r}, but missing")
    values = {
        key: _PARSERS[form.fields[key]](value, replace(place, pointer=f"{name}: /{key}"))
        for key, value in spec.items()
        if key != "type"
    }
    sense = {"maximize": place.maximize} if form.sensed else {}
    return form.build(**values, **sense)


@dataclass(frozen=True)
class _Place:
    """The place of a value: the folder of its relative paths, and its name in errors.

    maximize: the sense of the problem. shape: of costs that have none. depth: of nested costs.
    """

    folder: Path
    pointer: str
    maximize: bool = False
    shape: Any = None
    depth: int = 0

    def path(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.pointer}: must be a path, got {_kind_name(value)}")
        return value if "://" in value else str(self.folder / value)


def _cost(value: object, place: _Place) -> CostSource:
    return _from_spec(value, replace(place, depth=place.depth + 1))


def _costs(value: object, place: _Place) -> list[CostSource]:
    if not isinstance(value, list):
        raise InputError(f"{place.pointer}: must be a list of costs, got {_kind_name(value)}")
    return [_cost(term, replace(place, pointer=f"{place.pointer}/{k}")) for k, term in enumerate(value)]


def _number_or_array(value: object, place: _Place) -> object:
    """Return a number, with the text of an infinite one, which JSON lacks, converted; or an array."""
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    return _array(value, place) if isinstance(value, (list, Mapping)) else value


def _array(value: object, place: _Place) -> Array:
    if isinstance(value, Mapping):
        if set(value) != {"npy"}:
            keys = ", ".join(map(repr, value))
            raise InputError(f'{place.pointer}: expected {{"npy": path}}, got the keys {keys}')
        return load_npy(_Place(place.folder, f"{place.pointer}/npy").path(value["npy"]), place.pointer)
    if not isinstance(value, list):
        raise InputError(f'{place.pointer}: must be nested lists or {{"npy": path}}, got {_kind_name(value)}')
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{place.pointer}: the lists are ragged: {error}") from error
    except OverflowError as error:
        raise DtypeError(f"{place.pointer}: a number is out of range: {error}") from error
    if array.size and array.dtype.kind not in "biuf":
        raise DtypeError(f"{place.pointer}: every entry must be a number, and integers fit 64 bits")
    rounded = rounded_among(value, array)
    if rounded is not None:
        raise OverflowRiskError(
            f"{place.pointer}: {rounded} is an integer that float64 does not hold; fractions,"
            " infinities and integers beyond int64 in the same array make it float64"
        )
    return array


def _named_arrays(value: object, place: _Place) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{place.pointer}: must be an object of names and arrays, got {_kind_name(value)}")
    found: dict[str, Any] = {}
    for name, item in value.items():
        if name in RESERVED:
            raise ExpressionError(f"{place.pointer}: {name!r} cannot be the name of an array")
        # Escape as in JSON pointers (RFC 6901).
        escaped = name.replace("~", "~0").replace("/", "~1")
        inner = _Place(place.folder, f"{place.pointer}/{escaped}")
        plain = isinstance(item, (int, float)) and not isinstance(item, bool)
        found[name] = item if plain else _array(item, inner)
    return found


def _path(value: object, place: _Place) -> str:
    return place.path(value)


def _text(value: object, place: _Place) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place.pointer}: must be a string, got {_kind_name(value)}")
    return value


def _number(value: object, place: _Place) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{place.pointer}: must be a number, got {_kind_name(value)}")
    return value


def _count(value: object, place: _Place) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{place.pointer}: must be an integer, got {_kind_name(value)}")
    return value


def _shape(value: object, place: _Place) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{place.pointer}: must be [n_rows, n_columns]")
    return _count(value[0], place), _count(value[1], place)


def _texts(value: object, place: _Place) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(f"{place.pointer}: must be an object of strings, got {_kind_name(value)}")
    return {key: _text(text, _Place(place.folder, f"{place.pointer}/{key}")) for key, text in value.items()}


def _kind_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


_PARSERS: Mapping[str, Callable[[Any, _Place], Any]] = {
    "array": _array,
    "arrays": _named_arrays,
    "text": _text,
    "texts": _texts,
    "number": _number,
    "count": _count,
    "shape": _shape,
    "path": _path,
    "cost": _cost,
    "costs": _costs,
}
