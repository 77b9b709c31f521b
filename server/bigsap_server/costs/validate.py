"""Validation of the members of a cost spec, without reading large arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs import specs
from bigsap_server.costs.build import (
    build,
    check_http_rows,
    expression_problem,
    plugin_entry,
    plugin_params,
    shape_of,
)
from bigsap_server.costs.resolver import Facts, Resolver, pointer_to_child
from bigsap_server.costs.sandbox import infinite, infinite_among
from bigsap_server.costs.stores import check_zarr_files, check_zarr_folder
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.problems import HttpProblem

#: Sources whose arrays are at most this large are built, so that the library makes all its checks; starts
#: of at most this size are read.
SMALL_BYTES = 4 << 20
# Rows and columns whose costs are computed with numpy to find infinite ones; and the most operations a pair
# of such formulas.
_SAMPLE = 16
_MOST_OPERATIONS = 5_000
#: Files of a zarr array that are checked; the worker checks all.
_FILES = 10_000
#: Bounds are close with at most this many coordinates (see ``bigsap.policy``).
_FEW_COORDINATES = 6


@dataclass(frozen=True)
class Piece:
    """Validated member of a spec. close: its costs have close bounds, so that lists are short."""

    shape: tuple[int, int] | None
    dtype: str = "float64"
    nbytes: int = 0
    pair_ns: float = 0.3
    python_rows: bool = False
    close: bool = False


class Validator:
    """Validator of a cost spec. kinds: the members found; infinite: see ``Plan``."""

    def __init__(self, resolver: Resolver, shape: list[int] | None, maximize: bool) -> None:
        self.resolver, self.shape, self.maximize = resolver, shape, maximize
        self.kinds: list[str] = []
        self.infinite: dict[str, Any] | None = None

    def facts(self, spec: Any, name: str, pointer: str) -> Facts:
        return self.resolver.facts(getattr(spec, name), pointer_to_child(pointer, name))

    def sided(self, spec: Any, name: str, pointer: str) -> tuple[int, int]:
        """Return (n, d) of points or factors; one dimension means d = 1."""
        facts = self.facts(spec, name, pointer)
        if len(facts.shape) not in (1, 2):
            raise invalid("needs 1 or 2 dimensions", pointer_to_child(pointer, name))
        if facts.finite is False:
            raise HttpProblem(
                "invalid-cost", "the array has infinite entries", pointer=pointer_to_child(pointer, name)
            )
        return (*facts.shape, 1)[:2] if len(facts.shape) == 1 else facts.shape  # type: ignore[return-value]

    def part(self, spec: Any, pointer: str) -> Piece:
        """Validate a member and the members below it."""
        self.kinds.append(spec.type)
        match spec:
            case specs.Points():
                return self.points(spec, pointer)
            case specs.LowRank():
                return self.lowrank(spec, pointer)
            case specs.Table():
                return self.table(spec, pointer)
            case specs.Matrix():
                return self.matrix(spec, pointer)
            case specs.Zarr():
                return self.zarr(spec, pointer)
            case specs.Expression():
                return self.expression(spec, pointer)
            case specs.HttpRows():
                check_http_rows(spec, self.resolver, pointer)
                n, m = shape_of(spec, self.shape, pointer)
                return Piece((n, m), spec.dtype, 0, 1.0, python_rows=True)
            case specs.Plugin():
                enabled = self.resolver.settings["plugins"]
                plugin = plugin_entry(spec.name, enabled, pointer)
                plugin_params(plugin, spec, pointer)
                shape = None if self.shape is None else (self.shape[0], self.shape[1])
                return Piece(shape, python_rows=True)
            case specs.Sum():
                return self.combined(
                    [
                        self.part(term, pointer_to_child(pointer, "terms", k))
                        for k, term in enumerate(spec.terms)
                    ],
                    pointer,
                )
            case specs.Mask():
                below = self.part(spec.cost, pointer_to_child(pointer, "cost"))
                name = "forbidden" if spec.forbidden is not None else "allowed"
                facts = self.facts(spec, name, pointer)
                if len(facts.shape) != 2:
                    raise invalid("needs 2 dimensions", pointer_to_child(pointer, name))
                shape = (facts.shape[0], facts.shape[1])
                if below.shape is not None and below.shape != shape:
                    raise invalid(
                        f"has shape {list(shape)}, but the costs have {list(below.shape)}",
                        pointer_to_child(pointer, name),
                    )
                return self.combined([below, Piece(shape)], pointer)
        return self.combined([self.part(spec.cost, pointer_to_child(pointer, "cost"))], pointer)

    def combined(self, parts: list[Piece], pointer: str) -> Piece:
        shapes = {part.shape for part in parts if part.shape is not None}
        if len(shapes) > 1:
            shown = ", ".join(str(list(shape)) for shape in sorted(shapes))
            raise invalid(f"combined costs need one shape, got {shown}", pointer)
        return Piece(
            shapes.pop() if shapes else None,
            "float64",
            sum(part.nbytes for part in parts),
            1.0 + sum(part.pair_ns for part in parts),
            python_rows=True,
        )

    def small(self, spec: Any, nbytes: int, pointer: str) -> None:
        """Build a small source, so that the library checks everything."""
        if nbytes <= SMALL_BYTES:
            build(spec, self.resolver, self.shape, self.maximize, pointer)

    def points(self, spec: specs.Points, pointer: str) -> Piece:
        (n, d), (m, e) = self.sided(spec, "x", pointer), self.sided(spec, "y", pointer)
        if d != e:
            raise invalid(f"x has {d} coordinates a point, y has {e}", pointer_to_child(pointer, "y"))
        if spec.w is not None:
            place = pointer_to_child(pointer, "w")
            if spec.metric == "haversine":
                raise invalid("haversine takes no w", place)
            expect(self.facts(spec, "w", pointer), (d,), place)
        if spec.p is not None and spec.metric != "minkowski":
            raise invalid("p belongs to minkowski", pointer_to_child(pointer, "p"))
        if spec.radius is not None and spec.metric != "haversine":
            raise invalid("radius belongs to haversine", pointer_to_child(pointer, "radius"))
        if spec.metric == "haversine" and d != 2:
            raise invalid("haversine needs (latitude, longitude)", pointer_to_child(pointer, "x"))
        nbytes = 16 * (n + m) * d
        self.small(spec, nbytes, pointer)
        dear = {"minkowski": 20.0, "haversine": 20.0, "cosine": 0.5}.get(spec.metric, 0.25)
        close = spec.metric == "sqeuclidean" and d <= _FEW_COORDINATES
        return Piece((n, m), "float64", nbytes, 0.2 + dear * d, close=close)

    def lowrank(self, spec: specs.LowRank, pointer: str) -> Piece:
        (n, r), (m, s) = self.sided(spec, "a", pointer), self.sided(spec, "b", pointer)
        if r != s:
            raise invalid(f"a has rank {r}, b has {s}", pointer_to_child(pointer, "b"))
        for name, size in (("row_terms", n), ("column_terms", m)):
            if getattr(spec, name) is not None:
                expect(self.facts(spec, name, pointer), (size,), pointer_to_child(pointer, name))
        nbytes = 16 * (n + m) * r
        self.small(spec, nbytes, pointer)
        close = r <= _FEW_COORDINATES
        return Piece((n, m), "float64", nbytes, 0.2 + 0.15 * r, close=close)

    def table(self, spec: specs.Table, pointer: str) -> Piece:
        values = self.facts(spec, "values", pointer)
        if len(values.shape) != 2:
            raise invalid("needs 2 dimensions", pointer_to_child(pointer, "values"))
        sizes = []
        for name in ("row_class", "column_class"):
            facts = self.facts(spec, name, pointer)
            integers = facts.dtype.kind in "biu" or 0 in facts.shape
            if len(facts.shape) != 1 or not integers:
                raise invalid("needs 1 dimension of integers", pointer_to_child(pointer, name))
            sizes.append(facts.shape[0])
        nbytes = values.nbytes + 8 * sum(sizes)
        self.small(spec, nbytes, pointer)
        return Piece((sizes[0], sizes[1]), str(values.dtype), nbytes, 0.6)

    def matrix(self, spec: specs.Matrix, pointer: str) -> Piece:
        place = pointer_to_child(pointer, "values")
        facts = self.facts(spec, "values", pointer)
        shape = facts.shape
        if len(shape) != 2:
            raise invalid(f"a matrix has 2 dimensions, not {len(shape)}", place)
        if facts.in_place and facts.nbytes <= SMALL_BYTES:
            wrong = np.inf if self.maximize else -np.inf
            values = self.resolver.array(spec.values, place)
            if (values == wrong).any():
                row, column = (int(k) for k in np.argwhere(values == wrong)[0])
                raise HttpProblem(
                    "invalid-cost",
                    f"entry [{row}, {column}] is {wrong}, which does not forbid a pair here",
                    pointer=pointer_to_child(place, row, column),
                    row=row,
                    column=column,
                )
        return Piece((shape[0], shape[1]), str(facts.dtype), 0, 0.3)

    def zarr(self, spec: specs.Zarr, pointer: str) -> Piece:
        if spec.uri is not None:
            prefixes = self.resolver.settings["zarr_uris"]
            check_uri(spec.uri, prefixes, pointer_to_child(pointer, "uri"))
            shape = None if self.shape is None else (self.shape[0], self.shape[1])
            return Piece(shape, python_rows=True, pair_ns=2.0)
        limit = self.resolver.settings["limits"]["zarr_chunk_bytes"]
        folder: Path = self.resolver.zarr_folder(spec, pointer)
        sizes, kind = check_zarr_folder(folder, limit, pointer)
        check_zarr_files(folder, pointer, _FILES)
        return Piece((sizes[0], sizes[1]), kind, 0, 1.0, python_rows=True)

    def expression(self, spec: specs.Expression, pointer: str) -> Piece:
        shape = shape_of(spec, self.shape, pointer)
        facts: dict[str, Facts] = {}
        for name, value in spec.arrays.items():
            if not isinstance(value, float):
                place = pointer_to_child(pointer, "arrays", name)
                facts[name] = self.resolver.facts(value, place)
        nbytes = sum(8 * math.prod(f.shape) for f in facts.values())
        if nbytes <= SMALL_BYTES:
            made = build(spec, self.resolver, self.shape, self.maximize, pointer)
            if self.infinite is None:
                self.infinite = _sample(made)
        else:
            self.parse_only(spec, shape, facts, pointer)
        return Piece(shape, "float64", nbytes, 2.0 + 0.2 * len(spec.code))

    def parse_only(
        self, spec: specs.Expression, shape: tuple[int, int], facts: dict[str, Facts], pointer: str
    ) -> None:
        """Check a formula on large arrays with small arrays in their place.

        The language only tests whether first dimensions are n or m.
        """
        n, m = shape
        small = {n: 2, m: 2 if n == m else 3}
        arrays: dict[str, Any] = {}
        for name, value in spec.arrays.items():
            if isinstance(value, float):
                arrays[name] = value
                continue
            place = pointer_to_child(pointer, "arrays", name)
            given = facts[name].shape
            if len(given) not in (1, 2) or given[0] not in small:
                raise invalid(
                    f"needs one or two dimensions, the first of {n} rows or {m} columns; has {list(given)}",
                    place,
                )
            arrays[name] = np.zeros((small[given[0]], *given[1:]))
        try:
            bigsap.expression(spec.code, (small[n], small[m]), **arrays)
        except bigsap.ExpressionError as error:
            raise expression_problem(error, pointer) from error
        except bigsap.InputError as error:
            raise invalid(" ".join(str(error).split()), pointer) from error


def _sample(expression: Any) -> dict[str, Any] | None:
    """Return how many sampled costs of an expression are infinite; None for a long formula."""
    n, m = expression.shape
    if not n or not m or expression.expression.operations > _MOST_OPERATIONS:
        return None
    rows, columns = (np.unique(np.linspace(0, k - 1, _SAMPLE).astype(np.int64)) for k in (n, m))
    costs = expression.sample(np.repeat(rows, columns.size), np.tile(columns, rows.size))
    return infinite(expression, costs.size, infinite_among(costs))


def expect(facts: Facts, shape: tuple[int, ...], pointer: str) -> None:
    """Raise HttpProblem for an array of another shape."""
    if facts.shape != shape:
        raise invalid(f"needs shape {list(shape)}, got {list(facts.shape)}", pointer)


def invalid(detail: str, pointer: str) -> HttpProblem:
    """Return the problem of an invalid field at ``pointer``."""
    return HttpProblem("invalid-spec", detail, pointer=pointer)
