"""Errors of the certificate's pass: invalid costs, and differences beyond their type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsap.errors import InvalidCostError, OverflowRiskError
from bigsap.types import Array


def refuse_invalid(block: Array, rows: Array, maximize: bool, first: int) -> None:
    """Raise InvalidCostError for the first NaN or wrong infinity of a block.

    block[k] is rows[k] from column ``first`` on.
    """
    wrong = math.inf if maximize else -math.inf
    bad = np.isnan(block) | (block == wrong)
    if bad.any():
        k, column = (int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
        allowed = "-inf" if maximize else "+inf"
        raise InvalidCostError(
            f"matrix contains invalid numeric entries: cost[{rows[k]}, {first + column}] is "
            f"{block[k, column]}; only finite costs and {allowed} (forbidden) are allowed",
            int(rows[k]),
            first + column,
        )


def overflown(block: Array, best: Array, rows: Sequence[int] | Array) -> Array:
    """Return the rows of a block with finite costs but no finite minimum. rows: names in errors.

    Raises OverflowRiskError for a minimum of -inf, which no other part can correct.
    """
    beyond = np.flatnonzero(~np.isfinite(best))
    beyond = beyond[np.isfinite(block[beyond]).any(axis=1)]
    for k in beyond[best[beyond] < 0]:
        raise too_far(int(rows[k]), best.dtype)
    return beyond


def too_far(row: int, number: np.dtype[Any]) -> OverflowRiskError:
    """Return the error for a row whose dual exceeds its type."""
    if number == np.int64:
        return OverflowRiskError(f"the dual of row {row} leaves int64: the integer costs are too large", row)
    return OverflowRiskError(f"costs and prices of row {row} are too far apart for float64", row)


def reach(a: Array) -> int:
    """Return the largest magnitude of an integral array, as a Python integer."""
    return max(-int(a.min()), int(a.max())) if a.size else 0


def refuse_masked(what: str, given: Any) -> None:
    """Raise for a masked array: a conversion to a plain array would use the values under the mask."""
    if np.ma.is_masked(given):
        where = [int(k) for k in np.argwhere(np.ma.getmaskarray(given))[0]]
        raise InvalidCostError(f"{what}{where} is missing (masked)")
