"""Costs of an assignment's pairs, in batches, and their exact sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from bigsap.problem import Problem
from bigsap.row_cache import ABSENT, Rows, RowTable
from bigsap.sources.base import Sparse, read_while
from bigsap.sources.compiled import read_pairs
from bigsap.sources.filling import fill_of
from bigsap.types import Array

# Pairs per batch.
_AT_ONCE = 1024

Tick = Callable[[], None]


def costs_of_pairs(
    problem: Problem, table: RowTable | None, columns: Array, tick: Tick
) -> Iterator[tuple[Array, Array]]:
    """Yield the rows that have a column and the costs of these pairs, in the user's sense, bits of ``read``.

    columns: (n,), negative for an unassigned row. table: rows in memory, which are looked up, or
    None. Other pairs are computed or read one by one, which may take as long as their rows. tick:
    called before each batch that is computed or read.
    """
    source = problem.source
    if isinstance(source, Sparse):
        yield from _listed_costs(source, columns, tick)
        return
    fill = fill_of(source)
    step = _AT_ONCE if fill is not None and fill.in_parts else 1
    for start in range(0, columns.size, _AT_ONCE):
        rows = start + np.flatnonzero(columns[start : start + _AT_ONCE] >= 0)
        if table is not None:
            slots = table.slot_of_row[rows]
            here = slots != ABSENT
            if here.any():
                yield rows[here], table.slots[slots[here], columns[rows[here]]]
            rows = rows[~here]
        for k in range(0, rows.size, step):
            some = rows[k : k + step]
            costs = np.empty(some.size, source.dtype)
            tick()
            if fill is not None:
                read_pairs(fill, some, columns[some], costs)
            else:
                column = int(columns[some[0]])
                read_while(source, tick, some, slice(column, column + 1), costs[None])
            yield some, costs


def _listed_costs(source: Sparse, columns: Array, tick: Tick) -> Iterator[tuple[Array, Array]]:
    """Yield rows and costs of sparse costs' pairs; inf for a pair that is not listed."""
    start, ids, costs = source.entries()
    for first in range(0, columns.size, _AT_ONCE):
        tick()
        stop = min(columns.size, first + _AT_ONCE)
        some = slice(int(start[first]), int(start[stop]))
        rows = np.repeat(np.arange(first, stop), np.diff(start[first : stop + 1]))
        (here,) = np.nonzero(ids[some] == columns[rows])
        chosen = first + np.flatnonzero(columns[first:stop] >= 0)
        if here.size < chosen.size:
            yield chosen, np.full(chosen.size, np.inf)
        else:
            yield rows[here], costs[some][here]


def signed_total(
    problem: Problem, table: RowTable | None, columns: Array, tick: Tick, known: Iterable[Any] = ()
) -> Any:
    """Return the exact signed cost of these pairs, see ``costs_of_pairs``; inf if one is forbidden.

    known: signed costs of other pairs, which are added before anything is rounded.
    """

    def numbers() -> Iterator[list[Any]]:
        for _, costs in costs_of_pairs(problem, table, columns, tick):
            if costs.dtype.kind == "f" and not np.isfinite(costs).all():
                raise OverflowError
            yield costs.tolist()

    try:
        each = chain((problem.sign * cost for cost in known), chain.from_iterable(numbers()))
        total = sum(each) if problem.integer else math.fsum(each)
    except OverflowError:
        return math.inf
    return problem.sign * total


def cheap_total(problem: Problem, rows: Rows, columns: Array, tick: Tick) -> Any:
    """Return ``signed_total`` if it is finite and takes a few operations a pair, else None.

    Returns None if the rows come from Python, which would take longer.
    """
    in_place = rows.policy == "in place"
    if not in_place and fill_of(problem.source) is None:
        return None
    tick()
    total = signed_total(problem, rows.table if in_place else None, columns, tick)
    return total if math.isfinite(total) else None
