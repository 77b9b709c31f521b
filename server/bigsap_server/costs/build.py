"""Construction of a library source from a cost spec, in the server and in workers.

A spec is plain data here, validated and normalised when it was submitted (``request``). Nothing here
needs the web framework, and nothing is validated again but what a reference names: files may change.
"""

from __future__ import annotations

import importlib.metadata
import logging
import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap.sources.cost_specs import KINDS, RESERVED
from bigsap_server.costs.objects import open_npy
from bigsap_server.costs.stores import jailed, open_zarr
from bigsap_server.costs.url_policy import check_host, pinned_client
from bigsap_server.files import read_json
from bigsap_server.problems import HttpProblem, from_error, pointer_to

_log = logging.getLogger("bigsap_server.costs")

PLUGIN_GROUP = "bigsap.costs"
#: Dimensions of the arrays of a member: n rows, m columns; equal letters are equal sizes. A field with a
#: small second dimension, d or r, may have one dimension, which means 1.
DIMENSIONS: Mapping[str, Mapping[str, str]] = {
    "points": {"x": "nd", "y": "md", "w": "d"},
    "lowrank": {"a": "nr", "b": "mr", "row_terms": "n", "column_terms": "m"},
    "table": {"values": "kl", "row_class": "n", "column_class": "m"},
    "array": {"values": "nm"},
    "mask": {"forbidden": "nm", "allowed": "nm"},
}
Shape = tuple[int, int] | list[int] | None


@dataclass(frozen=True)
class Facts:
    """Facts about an array that need no reading. finite: None when unknown."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    finite: bool | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Resolver:
    """Resolver of the arrays, stores and addresses of a spec.

    data: the service's folder. settings: as ``Settings.model_dump(mode="json")``. owner:
    only arrays of this key may be used; None: all.
    """

    data: Path
    settings: Mapping[str, Any]
    owner: str | None = None
    _known: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    def facts(self, ref: Any, pointer: str) -> Facts:
        """Return shape and dtype of an array reference. Raises HttpProblem."""
        if isinstance(ref, dict) and "array" in ref:
            meta = self._meta(ref["array"], pointer)
            return Facts(tuple(meta["shape"]), np.dtype(meta["dtype"]), meta["finite"])
        array = self.array(ref, pointer)
        return Facts(array.shape, array.dtype)

    def array(self, ref: Any, pointer: str) -> np.ndarray[Any, Any]:
        """Return the array of a reference: mapped read-only, or made from inline numbers."""
        if isinstance(ref, list):
            return self._inline(ref, pointer)
        if "array" in ref:
            self._meta(ref["array"], pointer)
            return _load(self.array_folder(ref["array"]) / "data.npy", pointer)
        return _load(jailed(self.settings["stores"], ref["store"], ref["path"], pointer), pointer)

    def value(self, ref: Any, pointer: str) -> Any:
        """Return what a number, the text of an infinite one, or the reference of an array stands for."""
        if isinstance(ref, str):
            return float(ref)
        return self.array(ref, pointer) if isinstance(ref, (list, dict)) else ref

    def array_folder(self, array_id: str) -> Path:
        return self.data / "arrays" / array_id

    def _inline(self, values: list[Any], pointer: str) -> np.ndarray[Any, Any]:
        rows = [row if isinstance(row, list) else [row] for row in values]
        limit = self.settings["limits"]["inline_numbers"]
        if sum(map(len, rows)) > limit:
            detail = f"inline arrays may have {limit} numbers; upload larger ones (POST /v1/arrays)"
            raise HttpProblem("over-limit", detail, pointer=pointer)
        # numpy parses the text "Infinity" as infinity.
        text = any(isinstance(value, str) for row in rows for value in row)
        return np.asarray(values, dtype=np.float64 if text else None)

    def _meta(self, array_id: str, pointer: str) -> dict[str, Any]:
        if array_id not in self._known:
            try:
                meta = read_json(self.array_folder(array_id) / "meta.json")
            except (OSError, ValueError):
                meta = None
            if meta is None or self.owner not in (None, meta["owner"]):
                raise invalid(f"there is no array {array_id}", pointer)
            if meta["sha256"] is None:
                raise HttpProblem("array-incomplete", f"the array {array_id} is not sealed", pointer=pointer)
            self._known[array_id] = meta
        return self._known[array_id]


def build_source(
    request: Mapping[str, Any], data: str | Path, settings: Mapping[str, Any]
) -> bigsap.CostSource:
    """Return the source of a normalised request. Raises HttpProblem, with the pointer to the field.

    For a spread job, workers that receive the source call this as well, see ``made_again``.
    """
    resolver = Resolver(Path(data), settings)
    source = build(request["cost"], resolver, request["shape"], request["options"]["maximize"])
    if request.get("spread"):
        source.made_again = (build_source, (dict(request), str(data), dict(settings)))  # type: ignore[attr-defined]
    return source


def build(
    spec: Mapping[str, Any],
    resolver: Resolver,
    shape: Shape,
    maximize: bool,
    pointer: str = "/cost",
    few: Mapping[str, int] | None = None,
) -> bigsap.CostSource:
    """Return the source of one member of the union. Raises HttpProblem.

    shape: the request's, if given. few: sizes to which arrays are cut, by the letters of
    ``DIMENSIONS``: for a source that is only looked at.
    """
    try:
        source = _Builder(spec, resolver, shape, maximize, pointer, few).source()
    except bigsap.ExpressionError as error:
        extra: dict[str, Any] = {} if error.column is None else {"column": error.column}
        # Only the first line: the others show the text with a caret, which needs several lines.
        text = " ".join((str(error).splitlines() or [""])[0].split())[:1000]
        raise invalid(text, below(pointer, "code"), **extra) from error
    except bigsap.BigsapError as error:
        field_ = str(error).partition(" ")[0]
        kinds = (bigsap.ShapeError, bigsap.OptionError, bigsap.InputError)
        named = type(error) in kinds and field_ in spec
        raise from_error(error, below(pointer, field_) if named else pointer, resolver.settings) from error
    if few is None and shape is not None and tuple(shape) != tuple(source.shape):
        raise invalid(f"shape is {list(shape)}, but the costs have {list(source.shape)}", "/shape")
    return source


@dataclass(frozen=True)
class _Builder:
    spec: Mapping[str, Any]
    resolver: Resolver
    shape: Shape
    maximize: bool
    pointer: str
    few: Mapping[str, int] | None

    def source(self) -> bigsap.CostSource:
        spec, kind = self.spec, self.spec["type"]
        match kind:
            case "points" | "lowrank" | "table":
                fields = KINDS[kind].fields.items()
                return KINDS[kind].build(
                    **{
                        name: self.array(name) if holds == "array" else spec.get(name)
                        for name, holds in fields
                    }
                )
            case "sparse":
                arrays = {name: self.array(name) for name in ("rows", "start", "columns", "costs")}
                return KINDS[kind].build(**arrays, shape=shape_of(spec, self.shape, self.pointer))
            case "array":
                return self.matrix("values")
            case "zarr":
                return open_zarr(spec, self.resolver.settings, self.pointer)
            case "npy":
                place = below(self.pointer, "uri")
                return bigsap.as_source(open_npy(spec["uri"], self.resolver.settings, place))
            case "expression":
                return self.expression()
            case "http_rows":
                return self.http_rows()
            case "plugin":
                plugin = plugin_of(spec["name"], self.resolver.settings["plugins"], self.pointer)
                params = plugin_params(plugin, spec["params"], self.pointer)
                return bigsap.as_source(plugin(params, None if self.shape is None else tuple(self.shape)))
            case "sum":
                return KINDS[kind].build([self.inner("terms", k) for k in range(len(spec["terms"]))])
            case "scale":
                return KINDS[kind].build(self.inner("cost"), spec["factor"])
            case "mask":
                name = "allowed" if spec["forbidden"] is None else "forbidden"
                mask = {name: self.matrix(name)}
                return KINDS[kind].build(self.inner("cost"), **mask, maximize=self.maximize)
            case "forbid_above":
                return KINDS[kind].build(self.inner("cost"), spec["threshold"], maximize=self.maximize)
        raise TypeError(f"unknown cost spec {kind}")

    def inner(self, *place: Any) -> bigsap.CostSource:
        spec: Any = self.spec
        for part in place:
            spec = spec[part]
        return build(spec, self.resolver, self.shape, self.maximize, below(self.pointer, *place))

    def array(self, name: str) -> Any:
        if self.spec[name] is None:
            return None
        array = self.resolver.array(self.spec[name], below(self.pointer, name))
        letters = DIMENSIONS[self.spec["type"]][name] if self.few else ""
        return array[tuple(slice((self.few or {}).get(letter)) for letter in letters[: array.ndim])]

    def matrix(self, name: str) -> bigsap.CostSource:
        values = self.array(name)
        if values.ndim != 2:
            raise invalid(f"a matrix has 2 dimensions, not {values.ndim}", below(self.pointer, name))
        return bigsap.as_source(values)

    def expression(self) -> bigsap.CostSource:
        shape = shape_of(self.spec, self.shape, self.pointer)
        cut = {} if self.few is None else dict(zip(shape, (self.few["n"], self.few["m"]), strict=True))
        arrays: dict[str, Any] = {}
        for name, value in self.spec["arrays"].items():
            place = below(self.pointer, "arrays", name)
            if name in RESERVED:
                raise invalid(f"{name!r} cannot be the name of an array", place)
            arrays[name] = value
            if not isinstance(value, (int, float)):
                array = self.resolver.array(value, place)
                arrays[name] = array[: cut.get(len(array))] if self.few and array.ndim else array
        size = (cut[shape[0]], cut[shape[1]]) if self.few else shape
        return bigsap.expression(self.spec["code"], size, **arrays)

    def http_rows(self) -> bigsap.CostSource:
        spec = self.spec
        host, port, headers = check_http_rows(spec, self.resolver.settings, self.pointer)
        client = pinned_client(host, port, {})
        shape = shape_of(spec, self.shape, self.pointer)
        more = {name: spec[name] for name in ("timeout", "retries", "in_flight", "block_rows")}
        try:
            source = bigsap.from_http(
                spec["url"], shape, spec["dtype"], headers=headers, client=client, **more
            )
        except BaseException:
            client.close()
            raise
        # The source does not close a client given to it, so its connections would stay open.
        weakref.finalize(source, client.close)
        return source


def shape_of(spec: Mapping[str, Any], shape: Shape, pointer: str) -> tuple[int, int]:
    """Return the shape of a spec whose arrays do not determine it. Raises HttpProblem."""
    own = spec["shape"]
    if own is not None and shape is not None and list(own) != list(shape):
        raise invalid(f"shape is {own} here, but {list(shape)} in the request", below(pointer, "shape"))
    found = own if shape is None else shape
    if found is None:
        raise invalid(f'a cost of type "{spec["type"]}" needs the shape', "/shape")
    return found[0], found[1]


def check_http_rows(
    spec: Mapping[str, Any], settings: Mapping[str, Any], pointer: str
) -> tuple[str, int, dict[str, str]]:
    """Return host, port and headers of an allowed provider. Raises HttpProblem."""
    host, port = check_host(spec["url"], settings["http_rows_hosts"], below(pointer, "url"))
    name = spec["credentials"]
    if name is None:
        return host, port, {}
    if name not in settings["credentials"]:
        raise invalid(f"the operator has set no credentials {name!r}", below(pointer, "credentials"))
    return host, port, dict(settings["credentials"][name])


def check_plugins(enabled: list[str]) -> None:
    """Raise ValueError for a plugin that is not installed."""
    for name in enabled:
        if not importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
            raise ValueError(
                f"plugins: {name!r} is not installed: no entry point in {PLUGIN_GROUP!r} has this name"
            )


def plugin_of(name: str, enabled: list[str], pointer: str = "/cost") -> Any:
    """Return the loaded plugin ``name``, if the operator has enabled it. Raises HttpProblem.

    A plugin is a callable ``plugin(params, shape) -> source`` (anything ``bigsap.solve``
    takes) with an attribute ``Params``, the pydantic model of its parameters.
    """
    if name in enabled:
        for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
            try:
                plugin = entry.load()
                plugin.Params.model_validate  # noqa: B018 - that it is there
            except Exception as error:
                _log.exception("the plugin %s cannot be used", name)
                detail = f"the plugin {name!r} cannot be used on this service: see its log"
                raise invalid(detail, below(pointer, "name")) from error
            return plugin
    raise invalid(f"there is no enabled plugin {name!r}", below(pointer, "name"))


def plugin_params(plugin: Any, params: Mapping[str, Any], pointer: str) -> Any:
    """Return the parameters as the plugin's own model. Raises HttpProblem."""
    from pydantic import ValidationError

    try:
        return plugin.Params.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise invalid(first["msg"], below(pointer, "params", *first["loc"])) from error


def below(pointer: str, *parts: object) -> str:
    """Return the pointer to a field below ``pointer``."""
    return pointer + pointer_to(*parts)


def invalid(detail: str, pointer: str, **extra: Any) -> HttpProblem:
    """Return the problem of an invalid field at ``pointer``."""
    return HttpProblem("invalid-spec", detail, pointer=pointer, **extra)


def _load(file: Path, pointer: str) -> np.ndarray[Any, Any]:
    try:
        # A pipe would never end.
        array = np.load(file, mmap_mode="r", allow_pickle=False) if file.is_file() else None
    except (OSError, ValueError, EOFError) as error:
        detail = "this is not a readable .npy file"
        raise HttpProblem("invalid-store", detail, pointer=pointer) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise HttpProblem("invalid-store", "this is not an array of real numbers", pointer=pointer)
    return array
