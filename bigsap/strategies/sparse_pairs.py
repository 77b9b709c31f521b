"""Pairs of sparse costs as their search sees them: number type, unit, order."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.sparse import pairs as P
from bigsap.engine.sparse.ordering import ORDERING_BYTES, Ordering, local_ordering, ordered
from bigsap.errors import OverflowRiskError
from bigsap.memory import usable_memory
from bigsap.problem import Problem
from bigsap.sources.base import CostSource, Sparse
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.convert import read_only

#: Prices and labels stay below this many ranges of costs a row.
_TERMS = 32
#: Costs beyond this are scaled down, so that no sum of them leaves float64.
_HUGE = 2.0**900
_SCALE = 2.0**-200


def sparse_part(source: CostSource) -> Sparse | None:
    """Return the sparse costs of a source, clipped or not; None for other sources."""
    inner = source.source if isinstance(source, ClippedCosts) else source
    return inner if isinstance(inner, Sparse) else None


def extent(problem: Problem) -> tuple[Any, Any]:
    """Return the least and the largest finite signed cost, prices of unassigned rows included."""
    listed = sparse_part(problem.source)
    assert listed is not None
    parts = [listed.entries().costs]
    if isinstance(problem.source, ClippedCosts):
        parts.append(problem.source.prices)
    ends: list[Any] = []
    for part in parts:
        for end in (part.min(), part.max()) if part.size else ():
            ends.append(end)
        if part.dtype.kind == "f" and not np.isfinite(ends[-2:]).all():
            finite = part[np.isfinite(part)]
            ends[-2:] = [finite.min(), finite.max()] if finite.size else [0.0, 0.0]
    found = [problem.sign * (int(x) if problem.integer else float(x)) for x in ends] or [0]
    return min(found), max(found)


def arithmetic_of(problem: Problem) -> Arithmetic:
    """Return the number type of prices: float64, on a grid for integers, or int64.

    Integer costs count less their smallest, so that only their range matters. Raises
    OverflowRiskError for a range that int64 prices cannot hold.
    """
    if not problem.integer:
        return Arithmetic(np.dtype(np.float64), 0.0)
    low, high = extent(problem)
    reach = 2 * _TERMS * (min(problem.shape) + 2) * (high - low + 1)
    spare = 53 - reach.bit_length()
    if spare >= 0 and max(abs(low), abs(high)) < 2**53:
        return Arithmetic(np.dtype(np.float64), 2.0 ** -min(spare, 40))
    if reach > 2 * S.infinity(np.dtype(np.int64)):
        first, last = sorted((problem.sign * low, problem.sign * high))
        raise OverflowRiskError(
            f"the costs range from {first} to {last}: exact sums over a problem of shape"
            f" {problem.given_shape} need a smaller range of integers;"
            " scale them down, or convert them to float64"
        )
    return Arithmetic(np.dtype(np.int64), 1.0)


def check_infinities(problem: Problem) -> None:
    """Raise InvalidCostError for the infinity that does not mean forbidden."""
    listed = sparse_part(problem.source)
    assert listed is not None
    entries = listed.entries()
    wrong = np.inf if problem.maximize else -np.inf
    if entries.costs.dtype.kind != "f" or not entries.costs.size:
        return
    if (entries.costs.max() if problem.maximize else entries.costs.min()) == wrong:
        k = int((entries.costs == wrong).argmax())
        row = int(np.searchsorted(entries.start, k, side="right")) - 1
        problem.complain(row, int(entries.columns[k]), float(wrong))


def order_of(pairs: P.Pairs, n_columns: int, room: int | None) -> Ordering | None:
    """Return an order for a large problem whose entries may be copied. room: bytes; None: see ``policy``."""
    if pairs.start.size <= policy.SPARSE_ORDERED_ROWS:
        return None
    entry = 2 * np.dtype(S.ID).itemsize + pairs.costs.itemsize
    room = usable_memory() // policy.SPARSE_ORDERED_SHARE if room is None else room
    if pairs.ids.size * entry + ORDERING_BYTES * (pairs.start.size + n_columns) > room:
        return None
    return local_ordering(pairs.start, pairs.ids, n_columns)


def reordered(pairs: P.Pairs, order: Ordering) -> P.Pairs:
    """Return the pairs in this order."""
    start, ids, costs = (read_only(a) for a in ordered(order, pairs.start, pairs.ids, pairs.costs))
    own = pairs.own[order.rows] if pairs.own.size else pairs.own
    return pairs._replace(start=start, ids=ids, costs=costs, own=own)


def pairs_of(problem: Problem, price: np.dtype[Any]) -> tuple[P.Pairs, float]:
    """Return the pairs as kernels see them, and the factor from costs to their unit."""
    listed = sparse_part(problem.source)
    assert listed is not None
    entries = listed.entries()
    low, high = extent(problem)
    scale = 1.0
    if not problem.integer and max(abs(low), abs(high)) > _HUGE:
        scale = _SCALE
    own = np.empty(0, price)
    base: Any = int(low) if problem.integer else 0.0
    if base >= 2**63:
        raise OverflowRiskError(f"the costs, {-base} with maximize, leave int64 when their sign is changed")
    if isinstance(problem.source, ClippedCosts):
        cap = problem.source.cap
        if problem.integer:
            own = (problem.sign * cap.astype(np.int64) - base).astype(price)
        else:
            own = problem.sign * cap.astype(np.float64) * scale
    wall = (high - low) * scale if not problem.integer else int(high - low)
    sign = problem.sign * scale if price.kind == "f" else problem.sign
    found = P.Pairs(
        entries.start,
        entries.columns,
        entries.costs,
        own,
        price.type(sign),
        price.type(base),
        price.type(wall if wall else 1),
        price.type(S.infinity(price)),
    )
    return found, scale
