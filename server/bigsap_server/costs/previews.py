"""Preview of a matching of points in the plane: a sample of the points and links.

Sampled in the server and not in the browser, so that the size of the sets does not matter, nor
their location: the request, an upload, or a store of the operator's. (A job may read any file of a
store, and ``costs:check`` shows costs of its points, so a preview reveals nothing new.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigsap_server.costs.build import Resolver

_LINKS = 3000  # more could not be told apart
_POINTS = 10_000
#: Coordinates are whole numbers, from 0 to this along the longer side.
_GRID = 65_535

_Array = np.ndarray[Any, Any]


def points_in(cost: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the spec of the points whose distances are the costs, perhaps inside other members."""
    if cost["type"] == "points":
        return cost
    if cost["type"] in ("scale", "mask", "forbid_above"):
        return points_in(cost["cost"])
    if cost["type"] == "sum":
        found = [term for term in map(points_in, cost["terms"]) if term is not None]
        return found[0] if len(found) == 1 else None
    return None


def picture(
    cost: Mapping[str, Any], resolver: Resolver, chosen: _Array, by: str = "rows"
) -> dict[str, Any] | None:
    """Return a ``schemas.Picture``; None without links, or without points in the plane.

    chosen: int (n,), the column of each row; ``by="columns"``: (m,), the row of each column. -1 = none.
    Raises HttpProblem when the points no longer exist.
    Reads some 20,000 points, however many there are.
    """
    found = points_in(cost)
    assigned = int(np.count_nonzero(chosen >= 0))
    if found is None or assigned == 0:
        return None
    x, y = (resolver.array(found[side], f"/cost/{side}") for side in "xy")
    if not x.ndim == y.ndim == 2 or not x.shape[1] == y.shape[1] == 2:
        return None
    each = np.arange(0, len(chosen), _step(len(chosen), _LINKS))
    each = each[chosen[each] >= 0]
    rows, columns = (each, chosen[each]) if by == "rows" else (chosen[each], each)
    sampled = (x[:: _step(len(x), _POINTS)], y[:: _step(len(y), _POINTS)], x[rows], y[columns])
    # The first coordinate of haversine is the latitude, which is drawn upwards.
    axes = [1, 0] if found.get("metric") == "haversine" else [0, 1]
    parts = [part[:, axes].astype(np.float64) for part in sampled]
    whole = np.concatenate(parts)
    low, high = whole.min(axis=0), whole.max(axis=0)
    # Halved, because the span of numbers near the largest float would overflow.
    span = float((high / 2 - low / 2).max()) or 1.0
    drawn = [np.rint((part / 2 - low / 2) / span * _GRID).astype(np.int64) for part in parts]
    return {
        "shape": [len(x), len(y)],
        "assigned": assigned,
        "low": low.tolist(),
        "high": high.tolist(),
        "x": drawn[0].tolist(),
        "y": drawn[1].tolist(),
        "links": np.concatenate(drawn[2:], axis=1).tolist(),
    }


def _step(total: int, most: int) -> int:
    return max(1, -(-total // most))
