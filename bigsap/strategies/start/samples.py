"""Parts of a problem: some rows and columns, read as cheaply as the source allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Fill, Foreseeing, Resident, Selectable, read_while
from bigsap.sources.compiled import read_pairs
from bigsap.sources.cuda.placed import OnDevice
from bigsap.sources.filling import fill_of
from bigsap.types import Array, Ids

_READ_BYTES = 16 << 20
_READ_SECONDS = 0.1
# Fewest rows that each cluster worker evaluates at a time.
_EACH = 8
# Fewest and most pairs, read one by one, between two checks of the clock.
_FIRST_PAIRS, _MOST_PAIRS = 64, 1 << 16
_PAIR_SECONDS = 0.02
# Pairs of a matrix copied between two checks.
_GATHERED = 1 << 22
#: From this many pairs on, a source of some rows and columns is made to read them.
_SELECTED_PAIRS = 1 << 14


@dataclass
class Counts:
    """Counts of rows and pairs evaluated and rows scanned, over all levels.

    seconds_per_row: recent time of a row, where rows are read one by one. doubled,
    refused: how often a list was doubled, or could not be; list_bytes: largest memory of a
    level's lists.
    """

    rows: int = 0
    pairs: int = 0
    scans: int = 0
    seconds_per_row: float = 0.0
    doubled: int = 0
    refused: int = 0
    list_bytes: int = 0

    def add(self, other: Counts) -> None:
        """Add another level's counts."""
        self.rows += other.rows
        self.pairs += other.pairs
        self.scans += other.scans
        self.seconds_per_row = max(self.seconds_per_row, other.seconds_per_row)
        self.doubled += other.doubled
        self.refused += other.refused
        self.list_bytes = max(self.list_bytes, other.list_bytes)


def read_gently(
    problem: Problem, monitor: Monitor, rows: Array, counts: Counts | None
) -> Iterator[tuple[int, Array]]:
    """Yield short blocks of whole rows, and where each starts in ``rows``.

    Blocks from cluster workers, which can be interrupted at any time, are as large as the workers can
    share. counts: of a whole problem, whose costs are validated; None for a part, which has other ids.
    """
    source = problem.source
    m = problem.shape[1]
    most = max(1, _READ_BYTES // max(1, m * source.dtype.itemsize))
    together = source.foresees + 1 if isinstance(source, Foreseeing) else 1
    most = max(most, _EACH * together)
    step = 1 if together == 1 else most
    start = 0
    while start < rows.size:
        part = rows[start : start + min(step, most)]
        block = np.empty((part.size, m), source.dtype)
        clock = time.perf_counter()
        read_while(source, monitor.tick, part, slice(0, m), block)
        seconds = max(time.perf_counter() - clock, 1e-6)
        if counts is not None:
            counts.seconds_per_row = seconds / part.size
            for row, costs in zip(part.tolist(), block, strict=True):
                problem.check_row(row, costs)
        yield start, block
        start += part.size
        if together == 1:
            step = max(1, min(2 * step, int(part.size * _READ_SECONDS / seconds)))
        monitor.tick()


def all_costs(part: Problem, monitor: Monitor) -> Array:
    """Return all costs of a small part."""
    costs = np.empty(part.shape, part.source.dtype)
    for start, block in read_gently(part, monitor, np.arange(part.shape[0]), None):
        costs[start : start + len(block)] = block
    return costs


def pair_fill(problem: Problem) -> Fill | None:
    """Return compiled code for single pairs; None where a pair costs more than its share of a row."""
    source = problem.source
    fill = fill_of(source)
    return fill if fill is not None and fill.in_parts else None


def pairs_are_cheap(problem: Problem) -> bool:
    """Return whether some costs of a row take only their share of the row's time."""
    source = problem.source
    matrix = source.resident() if isinstance(source, Resident) else None
    return matrix is not None or isinstance(source, OnDevice) or pair_fill(problem) is not None


def part_of(problem: Problem, rows: Ids, columns: Ids, monitor: Monitor, counts: Counts) -> Problem:
    """Return the problem on some rows and columns; rows and pairs read are counted."""
    source = problem.source
    if isinstance(source, Selectable):
        selected = source.select(rows, columns)
        if selected is not None:
            return Problem(selected, problem.maximize, problem.transposed)
    costs = some_costs(problem, rows, columns, monitor, counts)
    return Problem(ArraySource(costs), problem.maximize, problem.transposed)


def some_costs(problem: Problem, rows: Ids, columns: Ids, monitor: Monitor, counts: Counts) -> Array:
    """Return ``cost[rows][:, columns]``, of the source's dtype.

    Reads single pairs where these cost their share of a row, else whole rows. Raises InvalidCostError
    with the problem's own ids.
    """
    source = problem.source
    matrix = source.resident() if isinstance(source, Resident) else None
    fill = pair_fill(problem)
    counts.rows += rows.size
    costs = np.empty((rows.size, columns.size), source.dtype)
    if matrix is not None:
        step = max(1, _GATHERED // max(1, columns.size))
        for first in range(0, rows.size, step):
            costs[first : first + step] = matrix[np.ix_(rows[first : first + step], columns)]
            monitor.tick()
    elif (selected := _selected(source, rows, columns, fill)) is not None:
        costs = all_costs(Problem(selected, problem.maximize), monitor)
    elif fill is not None:
        flat = costs.reshape(-1)
        start, step = 0, _FIRST_PAIRS
        while start < flat.size:
            part = np.arange(start, min(start + step, flat.size))
            clock = time.perf_counter()
            read_pairs(
                fill, rows[part // columns.size], columns[part % columns.size], flat[start : start + step]
            )
            seconds = max(time.perf_counter() - clock, 1e-6)
            start += part.size
            step = max(1, min(2 * step, _MOST_PAIRS, int(part.size * _PAIR_SECONDS / seconds)))
            monitor.tick()
    else:
        for start, block in read_gently(problem, monitor, np.asarray(rows), counts):
            costs[start : start + len(block)] = block[:, columns]
        counts.pairs += rows.size * problem.shape[1]
        return costs
    counts.pairs += costs.size
    _judge(problem, rows, columns, costs)
    return costs


def _selected(source: CostSource, rows: Ids, columns: Ids, fill: Fill | None) -> CostSource | None:
    """Return these rows and columns as a source, where its rows are read faster than single pairs."""
    many = fill is not None and rows.size * columns.size >= _SELECTED_PAIRS
    if isinstance(source, Selectable) and (many or isinstance(source, OnDevice)):
        return source.select(rows, columns)
    return None


def _judge(problem: Problem, rows: Ids, columns: Ids, costs: Array) -> None:
    """Raise for the first invalid cost of a part, with the problem's own row and column."""
    if costs.dtype.kind != "f" or not costs.size:
        return
    wrong = np.inf if problem.maximize else -np.inf
    bad = np.isnan(costs)
    bad |= costs == wrong
    if bad.any():
        k, place = divmod(int(bad.argmax()), costs.shape[1])
        problem.complain(int(rows[k]), int(columns[place]), costs[k, place])
