"""Bounds on the optimum that lists prove during a solve by compressed rows.

The smallest ``c - v`` of a row's list and the row's threshold bound the row's minimum from
below at any time, since thresholds stay valid as prices fall. So lists prove a bound
without a pass over the costs.
"""

from __future__ import annotations

import numpy as np

from bigsap.engine.lists.list_engine import ListEngine
from bigsap.proof.tightness import UNIT
from bigsap.types import Array


def row_bounds(engine: ListEngine) -> Array | None:
    """Return P (n_rows,) lower bounds of each row's smallest ``c - v``.

    Infinity if every column is forbidden. None before all rows were evaluated. O(entries).
    """
    lists, infinity = engine.lists, engine.infinity
    if not lists.theta.size or lists.theta.min() <= -infinity:
        return None
    low = np.minimum(engine.list_minima(), lists.reference + lists.theta)
    if low.dtype.kind == "f" and not engine.problem.integer:
        # Costs minus their row's reference were rounded, and these sums are rounded again.
        size = np.abs(low) + np.abs(lists.reference) + float(np.abs(engine.v).max(initial=0))
        low = np.subtract(low, 4 * UNIT * size, out=low, where=low < infinity)
    return low


def pair_costs(engine: ListEngine) -> Array:
    """Return P (n_rows,) signed costs of the present pairs, 0 for rows without a column.

    Correct to one rounding; exact for integers and for computed costs.
    """
    costs = engine.match_cost + engine.lists.reference
    return np.where(engine.column_of_row >= 0, costs, costs.dtype.type(0))
