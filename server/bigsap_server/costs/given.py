"""Validation of what is given with the costs: starts, prices, counts, an assignment.

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
from bigsap_server.problems import from_error, pointer_to


def check_choices(request: Mapping[str, Any]) -> None:
    """Refuse members that do not go together, whatever the shape is. Raises HttpProblem."""
    options, asked = request["options"], request["assignment"]
    if request["spread"] and (options["capacity"] is not None or options["demand"] is not None):
        raise invalid("is not valid with capacity or demand: the search runs in one worker", "/spread")
    try:
        preview.check_objective(options | {"cluster": request["spread"] or None})
    except bigsap.OptionError as error:
        name = str(error).partition(" ")[0].partition("=")[0]
        place = "/spread" if name == "cluster" else f"/options/{name}"
        raise invalid(str(error), place) from error
    if request["k_best"] is not None:
        _check_ranking(request)
    if asked is None:
        return
    for name, default in (("objective", "sum"), ("demand", None)):
        if options[name] != default:
            why = preview.NOT_CERTIFIED[name]
            raise invalid(f"is not valid with an assignment to certify: {why}", f"/options/{name}")
    for name in ("warm_start", "spread"):
        if asked["v"] is not None and request[name]:
            raise invalid("is not valid with prices v: there is no solve", f"/{name}")


def _check_ranking(request: Mapping[str, Any]) -> None:
    """Refuse members that have no meaning where assignments are ranked."""
    options = request["options"]
    reasons = {
        "an assignment to prove": (request["assignment"], "there is no solve to go on from"),
        "spread": (request["spread"], "one worker ranks"),
        "a capacity": (options["capacity"] is not None, "a column takes one row; repeat the column instead"),
        "a demand": (options["demand"] is not None, "solve the transposed problem"),
        "this objective": (options["objective"] != "sum", "assignments are ordered by their sums"),
        "a gap": (options["gap"], "every assignment is exact"),
    }
    for what, (given, why) in reasons.items():
        if given:
            raise invalid(f"is not valid with {what}: {why}", "/k_best")


#: Arrays that are given with the costs, and whether they have one entry a row (0) or a column (1).
_SIDES = {
    ("options", "unassigned_cost"): 0,
    ("options", "demand"): 0,
    ("warm_start", "col4row"): 0,
    ("assignment", "col4row"): 0,
    ("options", "capacity"): 1,
    ("warm_start", "v"): 1,
    ("assignment", "v"): 1,
    ("assignment", "v_low"): 1,
}


def _sizes_of(request: Mapping[str, Any], resolver: Resolver) -> list[int | None]:
    """Return the rows and columns that the arrays given with the costs have; None: unknown."""
    sizes: list[int | None] = [None, None]
    for (group, name), side in _SIDES.items():
        ref = (request[group] or {}).get(name)
        if isinstance(ref, (list, dict)):
            shape = resolver.facts(ref, pointer_to(group, name)).shape
            if len(shape) == 1 and sizes[side] is None:
                sizes[side] = shape[0]
    return sizes


def check_given(
    request: Mapping[str, Any], resolver: Resolver, costs: preview.Costs | None, most_bytes: int
) -> None:
    """Validate the arrays of a normalised request for these costs. Raises HttpProblem.

    costs: None if only the data tell their shape; then the arrays must agree with each other, and what
    needs the shape is left to the worker. most_bytes: larger arrays are not read.
    """
    n, m = _sizes_of(request, resolver) if costs is None else costs.shape
    options, rows, columns = request["options"], 1 if n is None else n, 1 if m is None else m

    def check(group: str, name: str, judge: Callable[[Any], Any]) -> Any:
        """Return what ``judge`` returns of a number or a small array; None for others."""
        ref = (request[group] or {}).get(name)
        size, pointer, few = (n, m)[_SIDES[group, name]], pointer_to(group, name), True
        if isinstance(ref, (list, dict)):
            facts = resolver.facts(ref, pointer)
            if facts.shape != (size,):
                needs = "one dimension" if size is None else f"shape {[size]}"
                raise invalid(f"needs {needs}, got shape {list(facts.shape)}", pointer)
            few = facts.nbytes <= most_bytes
        value = resolver.value(ref, pointer) if few else None
        try:
            return None if value is None else judge(value)
        except bigsap.CertificateError as error:
            raise invalid(str(error), pointer) from error
        except bigsap.BigsapError as error:
            row = getattr(error, "row", None) if isinstance(ref, list) else None
            raise from_error(error, pointer if row is None else below(pointer, row)) from error

    def check_pairs(col4row: Any) -> None:
        if m is not None and (options["capacity"] is None) == (capacity is None):
            partial = options["unassigned_cost"] is not None
            preview.check_assignment(col4row, (rows, columns), capacity, partial=partial)

    def check_start(v: Any) -> Any:
        return preview.check_warm_start(v, (rows, columns))

    maximize = options["maximize"]
    check("options", "unassigned_cost", lambda p: preview.check_unassigned_cost(p, rows, maximize, costs))
    capacity = check("options", "capacity", lambda most: preview.check_counts(most, columns, "capacity"))
    demand = check("options", "demand", lambda most: preview.check_counts(most, rows, "demand"))
    if capacity is not None and demand is not None:
        try:
            preview.check_sides(capacity, demand)
        except bigsap.OptionError as error:
            raise invalid(str(error), "/options/demand") from error
    check("warm_start", "v", check_start)
    check("warm_start", "col4row", lambda pairs: check_start((np.zeros(columns), pairs)))
    for name in ("v", "v_low"):
        check("assignment", name, lambda prices: preview.check_prices(prices, columns))
    check("assignment", "col4row", check_pairs)
