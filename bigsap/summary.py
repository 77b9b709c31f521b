"""A result as JSON without its arrays, which are stored separately, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bigsap.result import Result, Status, pairs_of
from bigsap.sources.clipped import unassigned_prices
from bigsap.sources.repeated import counts_of
from bigsap.types import Array

RESULT_ARRAYS = ("col4row", "row4col", "u", "v", "violator")
#: Arrays that some results have: low parts of the duals, the prices of unassigned rows, how many pairs a
#: column or row takes. With capacities there is no ``row4col``, with demands no ``col4row``.
FURTHER_ARRAYS = ("u_low", "v_low", "unassigned_cost", "capacity", "demand")
#: Arrays of a job that ranks assignments: the cost of each, and its columns.
RANKING_ARRAYS = ("k_costs", "k_col4row")
_FIRST = 10  # costs of a ranking in its summary

_UNPROVED = "The assignment is proved to be optimal only to within gap."


def arrays_of(result: Result) -> dict[str, Array]:
    """Return the arrays of a result by name; of ``FURTHER_ARRAYS`` those that it has."""
    found = {name: getattr(result, name) for name in (*RESULT_ARRAYS, *FURTHER_ARRAYS)}
    return {name: array for name, array in found.items() if array is not None}


def summary_of(result: Result, attempt: int) -> dict[str, Any]:
    """Return a result's data without the arrays, of which only name, dtype and shape."""
    arrays = arrays_of(result)
    summary: dict[str, Any] = jsonable(
        {
            "attempt": attempt,
            "status": str(result.status),
            "success": result.success,
            "message": result.message,
            "objective": result.fun,
            "bound": result.bound,
            "gap": result.gap,
            "maximize": result.maximize,
            "shape": list(result.shape),
            "n_assigned": len(result.row_ind),
            "phases": result.nit,
            "certificate": certificate_of(result),
            "stats": result.stats,
            "arrays": {name: _form(array) for name, array in arrays.items()},
        }
    )
    return summary


def with_ranking(
    summary: Mapping[str, Any], costs: Array, col4row: Array, *, complete: bool, status: str
) -> dict[str, Any]:
    """Return a result's summary with that of its ranking."""
    ranking = {"count": len(costs), "complete": complete, "status": str(status)}
    ranking["costs"] = jsonable(costs[:_FIRST])
    return {
        **summary,
        "k_best": ranking,
        "arrays": {
            **summary["arrays"],
            **{name: _form(array) for name, array in zip(RANKING_ARRAYS, (costs, col4row), strict=True)},
        },
    }


def _form(array: Array) -> dict[str, Any]:
    return {"dtype": array.dtype.str, "shape": list(array.shape)}


def result_of(summary: Mapping[str, Any], array: Callable[[str], Array]) -> Result:
    """Return the result of a summary; array: gives the arrays by name."""

    def given(name: str) -> Array:
        form = summary["arrays"][name]
        return np.empty(0, form["dtype"]) if form["shape"] == [0] else array(name)

    def further(name: str) -> Array | None:  # older services have none of these
        return given(name) if name in summary["arrays"] else None

    n, m = (int(size) for size in summary["shape"])
    sign = -1 if summary["maximize"] else 1  # from_assignment takes the minimising sense
    u_low, v_low = further("u_low"), further("v_low")
    found, capacity, demand = summary["objective"], further("capacity"), further("demand")
    result = Result.from_assignment(
        None if found is None or demand is not None else given("col4row"),
        sign * given("v"),
        u=sign * given("u"),
        u_low=None if u_low is None else sign * u_low,
        v_low=None if v_low is None else sign * v_low,
        shape=(n, m),
        status=Status(summary["status"]),
        message=summary["message"],
        maximize=summary["maximize"],
        stats=summary["stats"],
        nit=summary["phases"],
        violator=given("violator"),
        fun=found,
        bound=summary["bound"],
        gap=summary["gap"],
    )
    if capacity is not None or demand is not None:
        pairs = given("col4row" if demand is None else "row4col")
        chosen = pairs_of(np.array(pairs, np.intp), m, capacity, demand)
        result = replace(result, **chosen, capacity=capacity, demand=demand)
    return replace(result, unassigned_cost=further("unassigned_cost"))


def certified_result(
    certificate: Any,
    col4row: Array,
    m: int,
    *,
    status: Status,
    maximize: bool = False,
    unassigned_cost: Any = None,
    capacity: Any = None,
    stats: Mapping[str, Any] | None = None,
) -> Result:
    """Return an assignment and its certificate from ``certify`` as a result.

    m: number of columns. status: if the certificate does not prove the optimum.
    """
    n = len(col4row)
    result = Result.from_assignment(
        None if capacity is not None else col4row,
        None,
        certificate,
        shape=(n, m),
        status=Status.OPTIMAL if certificate.optimal else status,
        message=None if status is not Status.IMPRECISE or certificate.optimal else _UNPROVED,
        maximize=maximize,
        stats={**(stats or {}), "certificate_pairs": certificate.pairs + certificate.bounds},
    )
    if unassigned_cost is not None:
        result = replace(result, unassigned_cost=unassigned_prices(unassigned_cost, n, maximize))
    if capacity is not None:
        counts = counts_of(capacity, m, "capacity", "column")
        chosen = pairs_of(np.array(col4row, np.intp), m, counts, None)
        result = replace(result, **chosen, capacity=counts)
    return result


def certificate_of(result: Result) -> dict[str, Any]:
    """Return the kind of proof of the bound: a pass over all pairs, bounds of them, or the search alone.

    A stopped solve has a bound proved by its search, without a pass.
    """
    known = result.bound is not None and result.gap is not None
    proof = result.stats.get("proof")
    certified = known and proof is not None
    came_from = "certificate" if certified else "search" if result.bound is not None else None
    return {
        "certified": certified,
        "bound": result.bound,
        "bound_from": came_from,
        "gap": result.gap,
        "by": proof,
        "pairs": result.stats.get("certificate_pairs", 0),
    }


def jsonable(value: Any) -> Any:
    """Return ``value`` with numpy's numbers and arrays as Python's, and null for values JSON lacks."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, type(None))) else json.loads(json.dumps(str(value)))
