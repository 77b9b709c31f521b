"""How far assigned pairs are from tight, and how far rounding may have put them."""

from __future__ import annotations

import math

import numpy as np

from bigsap.sources.base import Array

#: Half a unit in the last place of 1: the relative error of one rounding.
UNIT = 2.0**-53
# Temporaries are no longer than this, or than one part of so many of a vector.
_AT_ONCE, _PARTS = 1024, 8


def allowance(n: int, rounding: Array | float) -> Array | float:
    """How far from tight a pair of an optimal assignment may be through rounding.

    A price is the result of some hundred to some thousand rounded updates, each
    wrong by at most 2^-53 of its magnitude; such errors add up like a random walk.
    n: rows or columns. rounding: 2^-53 times the magnitude of the numbers involved.
    """
    return 16.0 * max(4.0, math.sqrt(n)) * rounding


class Tightness:
    """How far the assigned pairs are from tight, taken together block by block.

    n: rows or columns. shift: what rounding adds to every pair, None when all is exact.
    earlier: what earlier rounding may have added to its violation.
    """

    def __init__(self, n: int, shift: float | None, earlier: float) -> None:
        self.n, self.shift, self.earlier = n, shift, earlier
        self.negative = False
        self.worst_row, self.worst = -1, 0
        self.noise = self.largest = 0.0
        self.loose: list[int] = []

    def judge(self, matching: Array, sign: int, matched: Array, u: Array, prices: Array) -> None:
        """Replaces u by the violations, 0 for unassigned rows."""
        step = max(_AT_ONCE, len(matching) // _PARTS)
        for start in range(0, len(matching), step):
            columns = matching[start : start + step]
            assigned = columns >= 0
            rows: Array | slice = slice(start, start + columns.size)
            if not assigned.all():
                rows = start + np.flatnonzero(assigned)
                columns = columns[assigned]
            low = u[rows].copy()
            tau = sign * matched[rows] - prices[columns]
            violation = tau - low
            u[start : start + step] = 0
            u[rows] = violation
            if not columns.size:
                continue
            worst = int(np.argmax(violation))
            if self.worst_row < 0 or violation[worst] > self.worst:
                self.worst_row = _row(rows, worst)
                (self.worst,) = violation[worst : worst + 1].tolist()
            self.negative = self.negative or bool((violation < 0).any())
            loose = violation > 0
            if self.shift is not None:
                each = UNIT * np.abs(tau) + UNIT * np.abs(low) + self.shift
                self.noise += float(each.sum())
                self.largest = max(self.largest, UNIT * float(np.abs(low).max()))
                loose = violation > allowance(self.n, each + self.earlier)
            self.loose += [_row(rows, place) for place in np.flatnonzero(loose).tolist()]


def _row(rows: Array | slice, place: int) -> int:
    return int(rows.start + place if isinstance(rows, slice) else rows[place])
