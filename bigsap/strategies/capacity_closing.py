"""Assignment, costs and bound that a stopped search from column to column knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.capacity.columns import place_rows, read_own
from bigsap.engine.core.incumbent import row_floors
from bigsap.proof.exact import ceiling, down, expansion
from bigsap.proof.weights import weighted
from bigsap.strategies.capacities import EXACT, Balance
from bigsap.types import Array

#: Costs read between two looks at the clock.
_READ_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Placed:
    """A column for each row, none over its capacity, and the signed costs (n,)."""

    column: Array
    costs: Array


@dataclass(frozen=True)
class Floor:
    """A bound of all assignments, minimising, and what proves it: row minima (n,) at prices (m,)."""

    bound: Any
    least: Array
    v: Array


def keep_minima(balance: Balance) -> None:
    """Let passes over rows keep their minima, 8 bytes a row, and load what ``placed`` runs."""
    balance.c = balance.c._replace(least=np.empty(balance.n_rows))
    none = np.empty(0, np.int32)
    place_rows(none, 0, 0, none, balance.capacity, balance.c, balance.reader)
    read_own(none, np.empty(0), balance.c, balance.reader)


def placed(balance: Balance, late: Callable[[], bool], owner: Array | None = None) -> Placed | None:
    """Return an assignment near the one that the search has; None if forbidden pairs stand in the way.

    Rows too many in a column, and those that no level had yet, take the cheapest column with room; once
    it is late, any room. owner: the columns that the last rows, open places, belong to; these rows fill
    what the others leave.
    """
    c, m = balance.c, balance.n_columns
    if not (c.column >= 0).all():
        balance.pass_over_all(late)
    if balance.wrong:
        return None
    column = np.where(c.column < m, c.column, -1).astype(np.int32)
    capacity = balance.capacity
    n_own = column.size if owner is None else column.size - owner.size
    if owner is not None:
        capacity = np.append(capacity[:-1], column.size)
    rows = _without_place(column[:n_own], capacity)
    column[rows] = -1
    own = column[:n_own]
    room = capacity - np.bincount(own[own >= 0], minlength=m)
    step = max(1, _READ_AT_ONCE // m)
    done = 0
    while done < rows.size and not late():
        last = min(rows.size, done + step)
        count = place_rows(rows, done, last, column, room, balance.c, balance.reader)
        done += count
        if done < last:
            return None
    rest = rows[done:]
    ends = np.minimum(np.cumsum(room[::-1]), rest.size)  # from the last column on
    column[rest] = np.repeat(np.arange(m)[::-1], np.diff(ends, prepend=0))
    if owner is not None and not _opened(column, capacity, owner):
        return None
    costs = np.empty(column.size)
    read_own(column, costs, balance.c, balance.reader)
    if not np.isfinite(costs).all() or (balance.problem.integer and np.abs(costs).max(initial=0) > EXACT):
        return None
    return Placed(column, costs)


def _opened(column: Array, capacity: Array, owner: Array) -> bool:
    """Give open places what the columns lack, the further column to others; return whether they suffice."""
    n_own, m = column.size - owner.size, capacity.size
    room = capacity - np.bincount(column[:n_own], minlength=m)
    count = np.bincount(owner, minlength=m)
    is_open = np.arange(owner.size) - (np.cumsum(count) - count)[owner] < room[owner]
    column[n_own:] = np.where(is_open, owner, m - 1)
    return bool((np.bincount(owner[is_open], minlength=m)[:-1] == room[:-1]).all())


def _without_place(column: Array, capacity: Array) -> Array:
    """Return the rows without a column, and those beyond a column's capacity: its last ones."""
    order = np.argsort(column, kind="stable")
    load = np.bincount(column + 1, minlength=capacity.size + 1)
    first = np.cumsum(load) - load
    keep = np.concatenate(([0], np.minimum(capacity, load[1:])))
    rank = np.arange(column.size) - np.repeat(first, load)
    found: Array = np.sort(order[rank >= np.repeat(keep, load)]).astype(np.int32)
    return found


def floor_of(balance: Balance) -> Floor | None:
    """Return the bound of the rows that the last pass over all has passed, and of the others' floors.

    None if there are others, and no floors. The minima were rounded to nearest, so the next float
    below each is a true one; whole numbers were not rounded.
    """
    count = balance.n_passed if balance.c.least.size else 0
    found = [_floor(balance, count)]
    if 0 < count < balance.n_rows:  # prices without their rows' minima may be worse than none
        found.append(_floor(balance, 0))
    known = [floor for floor in found if floor is not None]
    return max(known, key=lambda floor: floor.bound, default=None)


def _floor(balance: Balance, count: int) -> Floor | None:
    """Return the bound of the minima of the first ``count`` rows, and of the floors of others."""
    n = balance.n_rows
    v = balance.passed if count else np.zeros(balance.n_columns)
    least = balance.c.least[:count]
    if count < n:
        floors = row_floors(balance.problem)
        if floors is None:
            return None
        others = floors[count:].astype(np.float64) - v[: balance.reader.n_columns].max()
        if balance.reader.price.size:
            others = np.minimum(others, balance.reader.price[count:] - v[-1])
        least = np.concatenate((least, others))
    integer = balance.problem.integer
    if integer:
        size = max(float(np.abs(least).max(initial=0.0)), float(balance.c.largest.max()))
        if size * (balance.n_columns + 2) > EXACT:
            return None
    if not (integer and (v == np.rint(v)).all()):
        least = np.nextafter(least, -np.inf)
    bound = (ceiling if integer else down)(expansion(least, *weighted(v, balance.capacity)))
    return Floor(bound, least, v)
