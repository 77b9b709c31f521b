"""Validation of a request before it is accepted, from shapes and small data alone.

No large data are read and nothing is fetched: matrices stay on the disk, and providers and
remote stores are not contacted. The worker makes the checks that need the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from bigsap_server.costs import specs
from bigsap_server.costs.memory_sizes import check_budgets
from bigsap_server.costs.option_checks import check_combination, check_start, check_tall
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.resolver import Resolver
from bigsap_server.costs.validate import Validator, invalid
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import cores


@dataclass
class Plan:
    """Properties of a request.

    shape: None if only the data determine it. dtype: of the costs. source_bytes: memory of
    the source in addition to mapped files. pair_ns: approximate time to compute a cost, nanoseconds,
    one thread. python_rows: whether Python evaluates rows. kinds: the members used. infinite: of
    some costs of the first expression, how many are infinite and why, see ``checking``. close:
    see ``Piece``.
    """

    shape: tuple[int, int] | None = None
    dtype: str = "float64"
    source_bytes: int = 0
    pair_ns: float = 0.3
    python_rows: bool = False
    kinds: list[str] = field(default_factory=list)
    infinite: dict[str, Any] | None = None
    close: bool = False


def plan(request: JobRequest, resolver: Resolver, devices: list[str]) -> Plan:
    """Validate a whole request. Raises HttpProblem with the pointer to the field."""
    found = plan_costs(request.cost, resolver, request.shape, request.options.maximize)
    limits = resolver.settings["limits"]
    options = request.options
    check_combination(options)
    if options.device not in ("auto", *devices):
        raise invalid(f"the workers have no {options.device}", "/options/device")
    longest = limits["time_limit_s"]
    if longest is not None and (options.time_limit_s or math.inf) > longest:
        raise HttpProblem(
            "over-limit",
            f"jobs here need a time limit of at most {longest} s",
            pointer="/options/time_limit_s",
        )
    most = limits["threads"] or (None if resolver.settings["scheduler"] else cores())
    if most is not None and (options.threads or 0) > most:
        raise HttpProblem(
            "over-limit", f"{options.threads} threads; at most {most} are allowed", pointer="/options/threads"
        )
    if found.shape is not None:
        check_tall(request, resolver, found.shape, devices)
        check_start(request, resolver, found.shape)
        check_budgets(request, resolver, found.shape, found.dtype, found.kinds)
    return found


def plan_costs(cost: Any, resolver: Resolver, shape: list[int] | None, maximize: bool) -> Plan:
    """Validate a cost spec."""
    found = Plan()
    depth = _depth(cost)
    limits = resolver.settings["limits"]
    if depth > limits["depth"]:
        raise HttpProblem(
            "over-limit",
            f"costs are nested {depth} deep; at most {limits['depth']} levels are allowed",
            pointer="/cost",
        )
    validator = Validator(resolver, shape, maximize)
    part = validator.part(cost, "/cost")
    found.kinds, found.infinite = validator.kinds, validator.infinite
    found.shape, found.dtype = part.shape, part.dtype
    found.source_bytes, found.pair_ns = part.nbytes, part.pair_ns
    found.python_rows, found.close = part.python_rows, part.close
    if part.shape is not None:
        if shape is not None and tuple(shape) != part.shape:
            raise invalid(f"shape is {shape}, but the costs have {list(part.shape)}", "/shape")
        _check_size(part.shape, limits)
    elif shape is not None:
        found.shape = (shape[0], shape[1])
        _check_size(found.shape, limits)
    return found


def _depth(cost: Any) -> int:
    deepest, level = 0, [cost]
    while level:
        deepest += 1
        level = [
            child
            for item in level
            for child in (
                item.terms
                if isinstance(item, specs.Sum)
                else [item.cost]
                if isinstance(item, (specs.Scale, specs.Mask, specs.ForbidAbove))
                else []
            )
        ]
    return deepest


def _check_size(shape: tuple[int, int], limits: Any) -> None:
    n, m = shape
    for name, size in (("rows", n), ("columns", m), ("pairs", n * m)):
        if size > limits[name]:
            raise HttpProblem(
                "over-limit", f"{size} {name}; at most {limits[name]} are allowed", pointer="/shape"
            )
