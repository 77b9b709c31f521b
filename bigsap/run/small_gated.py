"""Small arrays whose rows may stay unassigned: their clipped costs, by the dense kernel."""

from __future__ import annotations

import numpy as np

from bigsap import policy
from bigsap.proof.unassigned import ungate
from bigsap.result import Result
from bigsap.run.small_arrays import solve_small
from bigsap.sources.base import Array
from bigsap.sources.clipped import Gated


def suits_gated(gated: Gated) -> bool:
    """Whether ``solve_small_gated`` is for a problem of this size."""
    n, m = gated.shape
    return 0 < n * m <= policy.MOST_SMALL_GATED_COSTS


def solve_small_gated(costs: Array, gated: Gated) -> Result | None:
    """The result of ``gated``, whose costs lie in an array that ``suits``; or None, as
    ``solve_small``. Raises InvalidCostError as ``solve``."""
    n, m = gated.shape
    if costs.shape == (n, m) and costs.dtype == gated.dtype:
        clip = np.maximum if gated.maximize else np.minimum
        clipped = clip(costs, gated.cap[:, None])
    else:
        clipped = np.empty((n, m), gated.dtype)
        gated.read(np.arange(n), slice(0, m), clipped)
    found = solve_small(clipped, gated.maximize, gated=True)
    if found is None:
        return None
    # At once, not when somebody looks at it: the array may be another frame's by then.
    result = ungate(found, gated)
    result.stats["source"] = "Gated"
    return result
