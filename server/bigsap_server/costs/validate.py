"""Validation of a request's meaning, from shapes and small data alone, and its price.

The models (``request``) have validated its form. No large data are read and nothing is fetched:
matrices stay on the disk, and providers and remote stores are not contacted. A member is built once,
with its arrays if they are small, else with the first rows of them, so that the library makes its
own checks; the worker builds the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import bigsap
from bigsap import preview
from bigsap.system import usable_cores
from bigsap_server.costs.build import (
    DIMENSIONS,
    Resolver,
    Shape,
    below,
    build,
    check_http_rows,
    invalid,
    plugin_of,
    plugin_params,
    shape_of,
)
from bigsap_server.costs.given import check_choices, check_given
from bigsap_server.costs.limits import check_array, check_shape, over
from bigsap_server.costs.sandbox import evenly, infinite, infinite_among
from bigsap_server.costs.stores import check_zarr_folder, zarr_folder
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.problems import HttpProblem, from_error

#: Memory for each rank, row and column where assignments are ranked.
RANK_BYTES = 60
#: Members whose arrays are at most this large are built of all of them; starts of this size are read.
SMALL_BYTES = 4 << 20
# Rows and columns whose costs are computed with numpy to find infinite ones; and the most operations a pair
# of such formulas.
_SAMPLE = 16
_MOST_OPERATIONS = 5_000
# Kinds that give columns as cheaply as rows: for a tall problem the columns are read.
_TURNED = {"points", "lowrank", "table", "expression", "sum", "scale", "forbid_above"}
# Methods that need at most as many rows as columns, or costs whose columns are as cheap as rows.
_WIDE_ONLY = ("hungarian", "auction")


@dataclass(frozen=True)
class Plan:
    """Facts about a valid request. costs: None if only the data determine the shape.

    kinds: the members used. infinite: of some costs of the first expression, how many are infinite
    and why, see ``sandbox``.
    """

    costs: preview.Costs | None
    kinds: tuple[str, ...] = ()
    infinite: dict[str, Any] | None = None

    @property
    def shape(self) -> list[int] | None:
        return None if self.costs is None else list(self.costs.shape)

    @property
    def dtype(self) -> str:
        return "float64" if self.costs is None else str(self.costs.dtype)


def priced(
    request: Mapping[str, Any], resolver: Resolver, devices: list[str], threads: int, workers: int
) -> tuple[Plan, dict[str, Any]]:
    """Return what ``validate`` and ``estimate`` return. Raises HttpProblem beyond the memory of a job."""
    plan = validate(request, resolver, devices)
    found = estimate(request, plan, threads, workers)
    _check_memory(request, found, resolver)
    return plan, found


def check_opened(
    request: Mapping[str, Any], source: bigsap.CostSource, resolver: Resolver, threads: int
) -> None:
    """Make the checks of a request that had to wait until its costs were opened. Raises HttpProblem."""
    n, m = source.shape
    check_shape((n, m), resolver.settings)
    plan = Plan(preview.costs_of(source, (n, m)))
    check_given(request, resolver, plan.costs, SMALL_BYTES)
    found = estimate(request, plan, threads)
    _check_memory(request, found, resolver)


def _check_memory(request: Mapping[str, Any], found: Mapping[str, Any], resolver: Resolver) -> None:
    limit, ranks = resolver.settings["limits"]["memory_bytes"], found["memory"].get("k_best", 0)
    own = request["options"]["memory_limit"]
    if own is not None and ranks > (most := bigsap.RowCache(own).budget(0)):
        raise invalid(f"ranking needs up to {ranks} bytes; memory_limit is {most}", "/k_best")
    if limit is not None and (found["memory_bytes"] or 0) > limit:
        pointer = "/options/cache" if request["options"]["cache"] is not None else "/shape"
        if found["memory_bytes"] - ranks <= limit:
            pointer = "/k_best"
        needs = f"the job would need about {found['memory_bytes']} bytes of memory"
        raise over(f"{needs}; at most {limit} are allowed", pointer)


def validate(request: Mapping[str, Any], resolver: Resolver, devices: list[str]) -> Plan:
    """Validate a whole normalised request. Raises HttpProblem with the pointer to the field."""
    options, limits = request["options"], resolver.settings["limits"]
    found = validate_costs(request["cost"], resolver, request["shape"], options["maximize"])
    try:
        preview.check_options(*(options[name] for name in ("method", "variant", "start", "epsilon")))
    except bigsap.OptionError as error:
        raise invalid(str(error), "/options/variant") from error
    check_choices(request)
    if options["device"] not in ("auto", *devices):
        raise invalid(f"the workers have no {options['device']}", "/options/device")
    longest = limits["time_limit_s"]
    if longest is not None and (options["time_limit_s"] or 0) > longest:
        raise over(f"at most {longest} s are allowed", "/options/time_limit_s")
    most = limits["threads"] or (None if resolver.settings["scheduler"] else usable_cores())
    if most is not None and (options["threads"] or 0) > most:
        raise over(f"{options['threads']} threads; at most {most} are allowed", "/options/threads")
    if found.costs is not None and options["dtype"] is not None:
        _check_dtype(request, found.costs)
        found = replace(found, costs=replace(found.costs, dtype=np.dtype(options["dtype"])))
    if found.costs is not None:
        _check_tall(request, found.costs, resolver, devices)
    check_given(request, resolver, found.costs, SMALL_BYTES)
    if found.costs is not None:
        _check_sizes(request, found, resolver)
    return found


def validate_costs(cost: Mapping[str, Any], resolver: Resolver, shape: Shape, maximize: bool) -> Plan:
    """Validate a normalised cost spec."""
    limits = resolver.settings["limits"]
    if (depth := _depth(cost)) > limits["depth"]:
        raise over(f"costs are nested {depth} deep; at most {limits['depth']} levels are allowed", "/cost")
    validator = _Validator(resolver, shape, maximize)
    costs = validator.part(cost, "/cost")
    if costs is not None:
        n, m = costs.shape
        if shape is not None and tuple(shape) != costs.shape:
            raise invalid(f"shape is {list(shape)}, but the costs have {[n, m]}", "/shape")
        check_shape(costs.shape, resolver.settings)
    return Plan(costs, tuple(validator.kinds), validator.infinite)


def estimate(request: Mapping[str, Any], plan: Plan, threads: int, workers: int = 1) -> dict[str, Any]:
    """Return memory and disk in bytes and time in seconds, with their parts.

    workers: number of the cluster's workers that a spread job will probably have.
    """
    options, costs = request["options"], plan.costs
    if costs is None:
        empty = ("memory_bytes", "seconds", "seconds_low", "seconds_high", "disk_bytes", "spread")
        notes = ["the shape is known only when the costs are opened"]
        return dict.fromkeys(empty) | {"memory": {}, "disk": {}, "infinite": plan.infinite, "notes": notes}
    threads = options["threads"] or threads
    choices = {name: options[name] for name in ("method", "maximize", "cache")}
    asked = request["assignment"]
    if asked is not None and asked["v"] is not None:
        found = preview.price_of_proof(costs, threads)
    else:
        found = preview.price(costs, threads=threads, workers=workers if request["spread"] else 0, **choices)
    notes, memory, seconds = [], found.memory, found.seconds
    if plan.kinds == ("array",):
        memory["mapped"] = 0
        notes.append("the matrix is mapped from the disk: the system keeps of it what fits")
    elif options["cache"] is None and memory["cache"]:
        notes.append("the row cache takes up to a quarter of the worker's memory")
    if plan.infinite is not None and plan.infinite["found"]:
        count, sampled, why = (plan.infinite[key] for key in ("found", "sampled", "why"))
        notes.append(f"of {sampled} costs of the expression {count} are infinite{f': {why}' if why else ''}")
    if (ranks := request["k_best"]) is not None:
        memory["k_best"] = RANK_BYTES * ranks * sum(costs.shape)
        found.disk["result"] += 8 * ranks * (costs.shape[0] + 1)
        notes.append("the time is that of the solve: ranking comes on top, within the time limit")
    spread = None
    if request["spread"]:
        spread = {"workers": workers, "seconds_alone": round(found.alone, 3), "pays": seconds < found.alone}
        if not costs.by_rows:
            notes.append("the estimate assumes that these costs are computed where the search runs")
    if costs.by_rows:
        notes.append("rows come through Python: the time is that of reading them")
    if options["time_limit_s"] is not None:
        seconds = min(seconds, options["time_limit_s"] * 1.1)
    return {
        "memory_bytes": sum(memory.values()),
        "memory": memory,
        "disk_bytes": sum(found.disk.values()),
        "disk": found.disk,
        "infinite": plan.infinite,
        "seconds": round(seconds, 3),
        "seconds_low": round(seconds / 3, 3),
        "seconds_high": round(seconds * 4, 3),
        "rows": costs.shape[0],
        "columns": costs.shape[1],
        "threads": threads,
        "spread": spread,
        "notes": notes,
    }


def _depth(cost: Mapping[str, Any]) -> int:
    inside = cost.get("terms") or ([cost["cost"]] if "cost" in cost else [])
    return 1 + max(map(_depth, inside), default=0)


class _Validator:
    """Validator of a cost spec. kinds: the members found; infinite: see ``Plan``."""

    def __init__(self, resolver: Resolver, shape: Shape, maximize: bool) -> None:
        self.resolver, self.maximize = resolver, maximize
        self.shape = None if shape is None else (shape[0], shape[1])
        self.kinds: list[str] = []
        self.infinite: dict[str, Any] | None = None

    def part(self, spec: Mapping[str, Any], pointer: str) -> preview.Costs | None:
        """Validate a member and the members below it; None if the shape is unknown."""
        self.kinds.append(spec["type"])
        settings = self.resolver.settings
        match spec["type"]:
            case "zarr" | "npy" if spec["uri"] is not None:
                check_uri(spec["uri"], settings["zarr_uris"], below(pointer, "uri"))
                return None if self.shape is None else preview.Costs(self.shape, pair_ns=2.0)
            case "zarr":
                limit = settings["limits"]["zarr_chunk_bytes"]
                (n, m), kind = check_zarr_folder(zarr_folder(spec, settings, pointer), limit, pointer)
                return preview.Costs((n, m), np.dtype(kind))
            case "expression":
                return self.expression(spec, pointer)
            case "sparse":
                return self.sparse(spec, pointer)
            case "http_rows":
                check_http_rows(spec, settings, pointer)
                return preview.Costs(shape_of(spec, self.shape, pointer), np.dtype(spec["dtype"]))
            case "plugin":
                plugin = plugin_of(spec["name"], settings["plugins"], pointer)
                plugin_params(plugin, spec["params"], pointer)
                return None if self.shape is None else preview.Costs(self.shape)
            case "sum":
                parts = [(below(pointer, "terms", k), term) for k, term in enumerate(spec["terms"])]
                return self.combined([self.part(term, place) for place, term in parts], pointer)
            case "mask":
                inner = self.part(spec["cost"], below(pointer, "cost"))
                n, m = self.sizes(spec, pointer, inner)["nm"]
                return self.combined([inner, preview.Costs((n, m), pair_ns=0.3)], pointer)
            case "scale" | "forbid_above":
                return self.combined([self.part(spec["cost"], below(pointer, "cost"))], pointer)
        return self.leaf(spec, pointer)

    def combined(self, parts: list[preview.Costs | None], pointer: str) -> preview.Costs | None:
        known = [part for part in parts if part is not None]
        shapes = {part.shape for part in known}
        if len(shapes) > 1:
            shown = ", ".join(str(list(shape)) for shape in sorted(shapes))
            raise invalid(f"combined costs need one shape, got {shown}", pointer)
        if not known:
            return None
        nbytes, pair_ns = sum(part.nbytes for part in known), sum(part.pair_ns for part in known)
        return preview.Costs(shapes.pop(), nbytes=nbytes, pair_ns=1.0 + pair_ns)

    def sizes(
        self, spec: Mapping[str, Any], pointer: str, known: preview.Costs | None = None
    ) -> dict[str, Any]:
        """Return the sizes of a member by the letters of its ``DIMENSIONS``, and of its arrays together."""
        found: dict[str, Any] = {} if known is None else dict(zip("nm", known.shape, strict=True))
        nbytes, kept, least = 0, 0, 0
        for name, letters in DIMENSIONS[spec["type"]].items():
            if spec[name] is None:
                continue
            place = below(pointer, name)
            facts = self.resolver.facts(spec[name], place)
            shape = facts.shape
            if len(shape) == 1 and letters[1:] in ("d", "r"):
                shape = (*shape, 1)
            if len(shape) != len(letters):
                raise invalid(f"needs {len(letters)} dimensions, got shape {list(facts.shape)}", place)
            check_array(shape, place)
            if letters[1:] in ("d", "r") and facts.finite is False:
                raise HttpProblem("invalid-cost", "the array has infinite entries", pointer=place)
            for letter, size in zip(letters, shape, strict=True):
                if found.setdefault(letter, size) != size:
                    raise invalid(f"has shape {list(facts.shape)}; {found[letter]} were expected", place)
            nbytes += 8 * math.prod(shape)
            least += _work(shape)
            kept += _work(size for letter, size in zip(letters, shape, strict=True) if letter not in "nm")
        nm = (found["n"], found["m"])
        check_shape(nm, self.resolver.settings)
        return found | {"nm": nm, "nbytes": nbytes, "kept": kept, "least": least}

    def leaf(self, spec: Mapping[str, Any], pointer: str) -> preview.Costs:
        sizes = self.sizes(spec, pointer)
        n, m = shape = sizes["nm"]
        if spec["type"] == "array":
            self.check_inline(spec["values"], below(pointer, "values"))
            source = build(spec, self.resolver, shape, self.maximize, pointer)
            return preview.costs_of(source, shape)
        nbytes = 2 * sizes["nbytes"] if spec["type"] != "table" else sizes["nbytes"]
        if 2 * sizes["kept"] > SMALL_BYTES:
            return preview.Costs(shape, nbytes=nbytes, by_rows=False)
        few = None if max(nbytes, sizes["least"]) <= SMALL_BYTES else {"n": 2, "m": 2 if n == m else 3}
        source = build(spec, self.resolver, shape, self.maximize, pointer, few)
        return preview.costs_of(source, shape, nbytes)

    def sparse(self, spec: Mapping[str, Any], pointer: str) -> preview.Costs:
        n, m = shape = shape_of(spec, self.shape, pointer)
        check_shape(shape, self.resolver.settings)
        costs = self.resolver.facts(spec["costs"], below(pointer, "costs"))
        expected = {"costs": costs.shape[:1], "columns": costs.shape[:1]}
        expected |= {"rows": costs.shape[:1]} if spec["start"] is None else {"start": (n + 1,)}
        nbytes = 0
        for name, size in expected.items():
            facts, place = self.resolver.facts(spec[name], below(pointer, name)), below(pointer, name)
            if facts.shape != size or not size:
                raise invalid(f"needs shape {list(size) or ['k']}, got {list(facts.shape)}", place)
            if name != "costs" and facts.dtype.kind not in "biu" and 0 not in facts.shape:
                raise invalid("needs integers", place)
            nbytes += facts.nbytes
        if max(nbytes, _work([max(shape)])) <= SMALL_BYTES:
            build(spec, self.resolver, shape, self.maximize, pointer)
        return preview.Costs((n, m), costs.dtype, nbytes, by_rows=False, entries=costs.shape[0])

    def check_inline(self, values: Any, place: str) -> None:
        """Raise for an inline cost that does not forbid a pair here."""
        wrong = "Infinity" if self.maximize else "-Infinity"
        for row, costs in enumerate(values if isinstance(values, list) else ()):
            if wrong in costs:
                column = costs.index(wrong)
                detail = f"entry [{row}, {column}] is {wrong}, which does not forbid a pair here"
                where = {"row": row, "column": column}
                raise HttpProblem("invalid-cost", detail, pointer=below(place, row, column), **where)

    def expression(self, spec: Mapping[str, Any], pointer: str) -> preview.Costs:
        n, m = shape = shape_of(spec, self.shape, pointer)
        check_shape(shape, self.resolver.settings)
        nbytes, least = 0, 0
        for name, value in spec["arrays"].items():
            if not isinstance(value, (int, float)):
                place = below(pointer, "arrays", name)
                facts = self.resolver.facts(value, place)
                nbytes += 8 * math.prod(facts.shape)
                least += _work(facts.shape)
                if len(facts.shape) not in (1, 2) or facts.shape[0] not in shape:
                    needs = f"needs one or two dimensions, the first of {n} rows or {m} columns"
                    raise invalid(f"{needs}; has {list(facts.shape)}", place)
                check_array(facts.shape, place)
        few = None if max(nbytes, least) <= SMALL_BYTES else {"n": 2, "m": 2 if n == m else 3}
        source = build(spec, self.resolver, shape, self.maximize, pointer, few)
        if few is None and self.infinite is None:
            self.infinite = _sample(source)
        return preview.costs_of(source, shape, nbytes)


def _work(shape: Iterable[int]) -> int:
    """Return the bytes of float64 of this shape; a size of 0 counts as 1: empty rows are walked, too."""
    return 8 * math.prod(max(1, size) for size in shape)


def _sample(source: Any) -> dict[str, Any] | None:
    """Return how many sampled costs of an expression are infinite; None for a long formula."""
    n, m = source.shape
    if not n or not m or source.expression.operations > _MOST_OPERATIONS:
        return None
    rows, columns = evenly(n, _SAMPLE), evenly(m, _SAMPLE)
    costs = source.sample(np.repeat(rows, columns.size), np.tile(columns, rows.size))
    return infinite(source, costs.size, infinite_among(costs))


def _check_dtype(request: Mapping[str, Any], costs: preview.Costs) -> None:
    """Refuse inline costs that the type in which they shall be read does not hold."""
    if not isinstance(request["cost"].get("values"), list) or request["cost"]["type"] != "array":
        return
    source = bigsap.as_source(costs.source, dtype=request["options"]["dtype"])
    n, m = costs.shape
    try:
        source.read(np.arange(n), slice(0, m), np.empty((n, m), source.dtype))
    except bigsap.InvalidCostError as error:
        raise from_error(error, "/cost/values") from error


def _check_tall(
    request: Mapping[str, Any], costs: preview.Costs, resolver: Resolver, devices: list[str]
) -> None:
    """Refuse methods for wide costs where a matrix has more rows than columns and no cheap columns."""
    options, (n, m) = request["options"], costs.shape
    if options["method"] not in _WIDE_ONLY or not n > m > 0 or options["unassigned_cost"] is not None:
        return
    stored = request["cost"]["type"] in ("array", "zarr", "http_rows") and not request["cost"].get("uri")
    inline = isinstance(request["cost"].get("values"), list)
    on_device = options["device"] != "cpu" and devices != ["cpu"]  # it gives columns
    # Pairs of a bottleneck are listed by rows, whatever the costs are.
    if options["objective"] != "bottleneck" and (
        on_device or not stored or inline or _ability(request, costs, resolver, "transposed")
    ):
        return
    needs = f'method "{options["method"]}" needs no more rows than columns here'
    raise invalid(f"{needs}; the shape is {[n, m]}: solve the transpose", "/options/method")


def _ability(request: Mapping[str, Any], costs: preview.Costs, resolver: Resolver, name: str) -> bool:
    """Return whether the costs can be had as the named method of a source gives them."""
    cost, source = request["cost"], costs.source
    if cost["type"] == "zarr" and cost["uri"] is None:
        source = build(cost, resolver, costs.shape, False)
    given = getattr(source, name, None)
    return given is not None and given() is not None


def _check_sizes(request: Mapping[str, Any], plan: Plan, resolver: Resolver) -> None:
    """Refuse a cache or a limit that cannot hold one row, since the solve would refuse it."""
    options, costs = request["options"], plan.costs
    assert costs is not None
    n, m = costs.shape
    if not n or not m or (costs.entries is not None and options["method"] == "auto"):
        return
    gated = options["unassigned_cost"] is not None
    listed = options["objective"] == "bottleneck" and options["method"] != "auto"
    row_bytes = (max(n, m) if gated or _TURNED.issuperset(plan.kinds) else m) * costs.dtype.itemsize
    for name in ("memory_limit", "cache"):
        size = options[name]
        if size is None or bigsap.RowCache(size).budget(0) >= row_bytes:
            continue
        if name == "memory_limit" or gated or listed or not _ability(request, costs, resolver, "resident"):
            raise invalid(f"{size} does not hold one row of costs, {row_bytes} bytes", f"/options/{name}")
