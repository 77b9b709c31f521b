"""Bound on the distance from tightness that rounding can cause in an optimal assignment.

Only searches use it, to keep pairs of a warm start. No proof depends on it.
"""

from __future__ import annotations

import math

from bigsap.types import Array

#: Half a unit in the last place of 1: the relative error of one rounding.
UNIT = 2.0**-53


def allowance(n: int, rounding: Array | float) -> Array | float:
    """Return how far rounding may put a pair of an optimal assignment from tight.

    A price is the result of some hundred to some thousand rounded updates, each
    wrong by at most 2^-53 of its magnitude; such errors add up like a random walk.
    n: rows or columns. rounding: 2^-53 times the magnitude of the numbers involved.
    """
    return 16.0 * max(4.0, math.sqrt(n)) * rounding
