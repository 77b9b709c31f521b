"""What an assignment costs, and the duals it comes with, from what the search holds.

``certify=False`` asks for no pass over the costs. Most of its pairs' costs are at hand, and of
the others single pairs are read: but of Python one pair may take as long as its row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core.held import Held
from bigsap.problem import Problem
from bigsap.proof.certificate import exact_sum
from bigsap.rows import Rows
from bigsap.sources.base import Array, CostSource, Fill, Fillable, read_while
from bigsap.sources.compiled import read_pairs
from bigsap.sources.device.pairs import device_pairs

#: Pairs between two looks at the clock.
_AT_ONCE = 4096

Tick = Callable[[], None]


def pair_costs(
    problem: Problem, rows: Rows, held: Sequence[Held], column_of_row: Array, tick: Tick
) -> Array:
    """Costs (n,) of the source's dtype, in the user's sense, of each row's pair; 0 without one.

    With the bits that ``read`` gives. Taken from a matrix in memory; gathered on a device;
    computed, where a pair costs its share of a row; from what is ``held``; and what is still
    unknown then is read, pair by pair. O(n) but for the last.
    """
    source = problem.source
    n = column_of_row.size
    costs = np.zeros(n, source.dtype)
    wanted = column_of_row >= 0
    if rows.policy == "in place":
        for here in _pieces(wanted):
            tick()
            costs[here] = rows.table.slots[here, column_of_row[here]]
        return costs
    there = device_pairs(source, *_pairs(wanted, column_of_row))
    if there is not None:
        costs[wanted] = there
        return costs
    fill = source.fill() if isinstance(source, Fillable) else None
    if fill is None or not fill.in_parts:
        for holder in held:
            found, known = holder.costs(column_of_row)
            known &= wanted
            costs[known] = found[known]
            wanted &= ~known
    if fill is not None:
        _compute(fill, wanted, column_of_row, costs, tick)
    else:
        _read(source, wanted, column_of_row, costs, tick)
    return costs


def _pairs(wanted: Array, column_of_row: Array) -> tuple[Array, Array]:
    (rows,) = np.nonzero(wanted)
    return rows, column_of_row[rows]


def _pieces(wanted: Array) -> list[Array]:
    (rows,) = np.nonzero(wanted)
    return [rows[k : k + _AT_ONCE] for k in range(0, rows.size, _AT_ONCE)]


def _compute(fill: Fill, wanted: Array, column_of_row: Array, costs: Array, tick: Tick) -> None:
    step = _AT_ONCE if fill.in_parts else 1
    (rows,) = np.nonzero(wanted)
    for k in range(0, rows.size, step):
        here = rows[k : k + step]
        some = np.empty(here.size, costs.dtype)
        tick()
        read_pairs(fill, here, column_of_row[here], some)
        costs[here] = some


def _read(
    source: CostSource, wanted: Array, column_of_row: Array, costs: Array, tick: Tick
) -> None:
    one = np.empty((1, 1), costs.dtype)
    for row in np.flatnonzero(wanted).tolist():
        tick()
        column = int(column_of_row[row])
        read_while(source, tick, np.array([row]), slice(column, column + 1), one)
        costs[row] = one[0, 0]


@dataclass(frozen=True)
class Unproved:
    """An assignment without a certificate, in the solve's orientation.

    fun: as a certificate has it, user's sense. u, v: signed duals, normalised as in
    ``bigsap.proof.certificate``, of which nobody has looked whether they are feasible; None where
    unknown. magnitude: as ``Certificate.magnitude``.
    """

    fun: Any
    u: Array | None
    v: Array | None
    magnitude: float


def unproved(problem: Problem, column_of_row: Array, costs: Array, prices: Array) -> Unproved:
    """What ``costs`` of the assignment's pairs and the search's signed prices tell. O(n + m).

    The optimum's pairs are tight, which tells u of every row that has one.
    """
    n, m = problem.shape
    wanted = column_of_row >= 0
    integer = costs.dtype.kind in "iu"
    here = costs[wanted]
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(here).all():
            return Unproved(problem.sign * math.inf, None, None, 0.0)
        fun = exact_sum(here.astype(np.int64 if integer else np.float64, copy=False))
        number = np.int64 if integer and prices.dtype.kind == "i" else np.float64
        v = prices.astype(number)
        largest = float(v.max() - v.min()) if v.size else 0.0
        # In place: no more vectors than the search's own (see tests/test_memory.py).
        v -= np.partition(v, n - 1)[n - 1] if n < m else v.max(initial=v[0])
        if n < m:
            np.minimum(v, 0, out=v)
        signed: Array = problem.sign * here.astype(number)
        del here
        u = np.zeros(n, number)
        signed -= v[column_of_row[wanted]]
        u[wanted] = signed
        low = -np.inf if number is np.float64 else np.iinfo(np.int64).min
        top = u.max(where=wanted, initial=low)
        shift = number(0)
        if n > m:  # rows without a pair have 0, and none has more
            shift = top
            u[wanted] -= shift
            v += shift
        size = max(abs(float(end)) for x in (u, v) for end in (x.min(), x.max()))
    if number is np.float64 and not math.isfinite(size + largest):
        return Unproved(fun, None, None, 0.0)
    exact = integer and bool((v == np.rint(v)).all())
    return Unproved(fun, u, v, 0.0 if exact else largest + 4 * size + 3 * abs(float(shift)))
