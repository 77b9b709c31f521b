"""JSON representation of a result for a job."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import bigsap
from bigsap_server.jobs.control import FURTHER_ARRAYS, RESULT_ARRAYS


def arrays_of(result: bigsap.Result) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a result by name; of ``FURTHER_ARRAYS`` those that it has."""
    found = {name: getattr(result, name) for name in (*RESULT_ARRAYS, *FURTHER_ARRAYS)}
    return {name: array for name, array in found.items() if array is not None}


def summary_of(result: bigsap.Result, attempt: int) -> dict[str, Any]:
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
            "arrays": {
                name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()
            },
        }
    )
    return summary


def certificate_of(result: bigsap.Result) -> dict[str, Any]:
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
