"""Construction of a library source from a cost spec, in the server and in workers.

Workers get plain data: the normalised request, the data folder, the settings as a
dictionary. Nothing here needs the web framework.
"""

from __future__ import annotations

import importlib.metadata
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap.sources.cost_specs import KINDS, RESERVED
from bigsap_server.costs import specs
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.resolver import Resolver, pointer_to_child
from bigsap_server.costs.url_policy import check_host, pinned_client
from bigsap_server.problems import HttpProblem, from_error

PLUGIN_GROUP = "bigsap.costs"


def build_source(
    request: Mapping[str, Any], data: str | Path, settings: Mapping[str, Any]
) -> bigsap.CostSource:
    """Return the source of a normalised request. Raises HttpProblem, with the pointer to the field.

    For a spread job, workers that receive the source call this as well, see ``made_again``.
    """
    parsed = JobRequest.model_validate(request)
    resolver = Resolver(Path(data), settings)
    source = build(parsed.cost, resolver, parsed.shape, parsed.options.maximize, "/cost")
    if parsed.spread:
        source.made_again = (build_source, (dict(request), str(data), dict(settings)))  # type: ignore[attr-defined]
    return source


def unassigned_cost(request: Mapping[str, Any], data: str | Path, settings: Mapping[str, Any]) -> Any:
    """Return ``options.unassigned_cost`` for ``bigsap.solve``: None, a number or an array (n,)."""
    value = JobRequest.model_validate(request).options.unassigned_cost
    if value is None or isinstance(value, (int, float)):
        return value
    return Resolver(Path(data), settings).array(value, "/options/unassigned_cost")


def build(
    spec: Any, resolver: Resolver, shape: list[int] | None, maximize: bool, pointer: str
) -> bigsap.CostSource:
    """Return the source of one member of the union; ``shape``: the request's, if given."""
    try:
        source = _build(spec, resolver, shape, maximize, pointer)
    except bigsap.BigsapError as error:
        raise from_error(error, pointer, resolver.settings) from error
    if shape is not None and tuple(shape) != tuple(source.shape):
        raise HttpProblem(
            "invalid-spec",
            f"shape is {list(shape)}, but the costs have {list(source.shape)}",
            pointer="/shape",
        )
    return source


def _build(
    spec: Any, resolver: Resolver, shape: list[int] | None, maximize: bool, pointer: str
) -> bigsap.CostSource:
    def array(name: str) -> Any:
        ref = getattr(spec, name)
        return None if ref is None else resolver.array(ref, pointer_to_child(pointer, name))

    def inner(*place: Any) -> bigsap.CostSource:
        below = spec
        for part in place:
            below = below[part] if isinstance(part, int) else getattr(below, part)
        return build(below, resolver, shape, maximize, pointer_to_child(pointer, *place))

    match spec:
        case specs.Points() | specs.LowRank() | specs.Table():
            kind = KINDS[spec.type]
            return kind.build(
                **{
                    name: array(name) if holds == "array" else getattr(spec, name)
                    for name, holds in kind.fields.items()
                }
            )
        case specs.Matrix():
            return _matrix(array("values"), pointer)
        case specs.Zarr():
            return resolver.zarr(spec, pointer)
        case specs.Expression():
            return _expression(spec, resolver, shape_of(spec, shape, pointer), pointer)
        case specs.HttpRows():
            return _http_rows(spec, resolver, shape_of(spec, shape, pointer), pointer)
        case specs.Plugin():
            return _plugin(spec, resolver, shape, pointer)
        case specs.Sum():
            return bigsap.sum_of([inner("terms", k) for k in range(len(spec.terms))])
        case specs.Scale():
            return bigsap.scaled(inner("cost"), spec.factor)
        case specs.Mask():
            if spec.forbidden is not None:
                forbidden = array("forbidden")
                return bigsap.masked(inner("cost"), _matrix(forbidden, pointer), maximize=maximize)
            allowed = _matrix(array("allowed"), pointer)
            return bigsap.masked(inner("cost"), _Inverted(allowed), maximize=maximize)
        case specs.ForbidAbove():
            return bigsap.forbid_above(inner("cost"), spec.threshold, maximize=maximize)
    raise TypeError(f"unknown cost spec {type(spec).__name__}")


class _Inverted:
    """Source that is 1 where another source is 0, else 0."""

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, source: bigsap.CostSource) -> None:
        self._source = source
        self.shape = source.shape

    def read(self, rows: Any, columns: slice, out: Any) -> None:
        """Fill ``out[k, :]`` for ``rows[k]``."""
        values = np.empty(out.shape, self._source.dtype)
        self._source.read(rows, columns, values)
        np.equal(values, 0, out=out, casting="unsafe")


def _matrix(values: np.ndarray[Any, Any], pointer: str) -> bigsap.CostSource:
    if values.ndim != 2:
        raise HttpProblem("invalid-spec", f"a matrix has 2 dimensions, not {values.ndim}", pointer=pointer)
    return bigsap.as_source(values)


def shape_of(spec: Any, shape: list[int] | None, pointer: str) -> tuple[int, int]:
    """Return the shape of a spec whose arrays do not determine it. Raises HttpProblem."""
    if spec.shape is not None and shape is not None and spec.shape != shape:
        raise HttpProblem(
            "invalid-spec",
            f"shape is {spec.shape} here, but {shape} in the request",
            pointer=pointer_to_child(pointer, "shape"),
        )
    found = spec.shape if shape is None else shape
    if found is None:
        raise HttpProblem("invalid-spec", f'a cost of type "{spec.type}" needs the shape', pointer="/shape")
    return found[0], found[1]


def _expression(
    spec: specs.Expression, resolver: Resolver, shape: tuple[int, int], pointer: str
) -> bigsap.CostSource:
    arrays: dict[str, Any] = {}
    for name, value in spec.arrays.items():
        place = pointer_to_child(pointer, "arrays", name)
        if name in RESERVED:
            raise HttpProblem("invalid-spec", f"{name!r} cannot be the name of an array", pointer=place)
        arrays[name] = value if isinstance(value, float) else resolver.array(value, place)
    try:
        return bigsap.expression(spec.code, shape, **arrays)
    except bigsap.ExpressionError as error:
        raise expression_problem(error, pointer) from error


def expression_problem(error: bigsap.ExpressionError, pointer: str) -> HttpProblem:
    """Return an HttpProblem for an error of a formula, with the column of its text."""
    extra: dict[str, Any] = {} if error.column is None else {"column": error.column}
    # Only the first line: the others show the text with a caret, which needs several lines.
    text = " ".join((str(error).splitlines() or [""])[0].split())[:1000]
    return HttpProblem("invalid-spec", text, pointer=pointer_to_child(pointer, "code"), **extra)


def _http_rows(
    spec: specs.HttpRows, resolver: Resolver, shape: tuple[int, int], pointer: str
) -> bigsap.CostSource:
    host, port, headers = check_http_rows(spec, resolver, pointer)
    client = pinned_client(host, port, {})
    try:
        source = bigsap.from_http(
            spec.url,
            shape,
            spec.dtype,
            headers=headers,
            timeout=spec.timeout,
            retries=spec.retries,
            in_flight=spec.in_flight,
            block_rows=spec.block_rows,
            client=client,
        )
    except BaseException:
        client.close()
        raise
    # The source does not close a client given to it, so its connections would stay open.
    weakref.finalize(source, client.close)
    return source


def check_http_rows(
    spec: specs.HttpRows, resolver: Resolver, pointer: str
) -> tuple[str, int, dict[str, str]]:
    """Return host, port and headers of an allowed provider. Raises HttpProblem."""
    host, port = check_host(spec.url, resolver.settings["http_rows_hosts"], pointer_to_child(pointer, "url"))
    headers: dict[str, str] = {}
    if spec.credentials is not None:
        known = resolver.settings["credentials"]
        if spec.credentials not in known:
            raise HttpProblem(
                "invalid-spec",
                f"the operator has set no credentials {spec.credentials!r}",
                pointer=pointer_to_child(pointer, "credentials"),
            )
        headers = dict(known[spec.credentials])
    return host, port, headers


def plugin_entry(name: str, enabled: list[str], pointer: str = "/cost") -> Any:
    """Return the loaded plugin ``name``, if the operator has enabled it. Raises HttpProblem.

    A plugin is a callable ``plugin(params, shape) -> source`` (anything ``bigsap.solve``
    takes) with an attribute ``Params``, the pydantic model of its parameters.
    """
    if name in enabled:
        for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP, name=name):
            return entry.load()
    raise HttpProblem(
        "invalid-spec", f"there is no enabled plugin {name!r}", pointer=pointer_to_child(pointer, "name")
    )


def plugin_params(plugin: Any, spec: specs.Plugin, pointer: str) -> Any:
    """Return the parameters as the plugin's own model. Raises HttpProblem."""
    from pydantic import ValidationError

    try:
        return plugin.Params.model_validate(spec.params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise HttpProblem(
            "invalid-spec", first["msg"], pointer=pointer_to_child(pointer, "params", *first["loc"])
        ) from error


def _plugin(
    spec: specs.Plugin, resolver: Resolver, shape: list[int] | None, pointer: str
) -> bigsap.CostSource:
    plugin = plugin_entry(spec.name, resolver.settings["plugins"], pointer)
    params = plugin_params(plugin, spec, pointer)
    return bigsap.as_source(plugin(params, None if shape is None else tuple(shape)))
