"""Validation of what is given beside the costs: starts, prices, counts, an assignment.

The library makes the checks, of arrays that are small enough to be read; of others only the sizes
are known. The worker makes them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import bigsap
from bigsap import preview
from bigsap_server.costs.build import Resolver, below, invalid
from bigsap_server.problems import from_error


def check_choices(request: Mapping[str, Any]) -> None:
    """Refuse members that do not go together, whatever the shape is. Raises HttpProblem."""
    options, asked = request["options"], request["assignment"]
    if request["spread"] and (options["capacity"] is not None or options["demand"] is not None):
        raise invalid("is not valid with capacity or demand: the search runs in one worker", "/spread")
    if asked is None:
        return
    for name, default in (("objective", "sum"), ("demand", None)):
        if options[name] != default:
            why = preview.NOT_CERTIFIED[name]
            raise invalid(f"is not valid with an assignment to certify: {why}", f"/options/{name}")
    for name in ("warm_start", "spread"):
        if asked["v"] is not None and request[name]:
            raise invalid("is not valid with prices v: there is no solve", f"/{name}")


def check_given(
    request: Mapping[str, Any], resolver: Resolver, shape: tuple[int, int], most_bytes: int
) -> None:
    """Validate the arrays of a normalised request for costs of this shape. Raises HttpProblem.

    most_bytes: larger arrays are not read.
    """
    (n, m), options = shape, request["options"]
    start, asked = request["warm_start"] or {}, request["assignment"] or {}

    def check(ref: Any, size: int, pointer: str, judge: Callable[[Any], Any]) -> Any:
        """Return what ``judge`` returns of a number or a small array; None for others."""
        value = ref
        if ref is not None and not isinstance(ref, (int, float)):
            facts = resolver.facts(ref, pointer)
            if facts.shape != (size,):
                raise invalid(f"needs shape {[size]}, got {list(facts.shape)}", pointer)
            value = resolver.array(ref, pointer) if facts.nbytes <= most_bytes else None
        try:
            return None if value is None else judge(value)
        except bigsap.CertificateError as error:
            raise invalid(str(error), pointer) from error
        except bigsap.BigsapError as error:
            row = getattr(error, "row", None)
            raise from_error(error, pointer if row is None else below(pointer, row)) from error

    def check_counts(name: str, size: int) -> Any:
        place = f"/options/{name}"
        return check(options[name], size, place, lambda counts: preview.check_counts(counts, size, name))

    def check_pairs(col4row: Any) -> None:
        if (options["capacity"] is None) == (capacity is None):
            partial = options["unassigned_cost"] is not None
            preview.check_assignment(col4row, shape, capacity, partial=partial)

    check(
        options["unassigned_cost"],
        n,
        "/options/unassigned_cost",
        lambda prices: preview.check_unassigned_cost(prices, n, options["maximize"]),
    )
    capacity = check_counts("capacity", m)
    check_counts("demand", n)
    check(start.get("v"), m, "/warm_start/v", lambda v: preview.check_warm_start(v, shape))
    check(
        start.get("col4row"),
        n,
        "/warm_start/col4row",
        lambda pairs: preview.check_warm_start((np.zeros(m), pairs), shape),
    )
    for name in ("v", "v_low"):
        check(asked.get(name), m, f"/assignment/{name}", lambda prices: preview.check_prices(prices, m))
    check(asked.get("col4row"), n, "/assignment/col4row", check_pairs)
