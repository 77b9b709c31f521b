"""Cache of evaluated rows, used where evaluating a row again would be slow.

Costs in memory need no cache, and compiled costs of a few nanoseconds a pair are recomputed faster
than they are looked up. All other costs are read once, as far as memory allows: rows evaluated by
Python (functions, stores, providers), and compiled costs without bounds that would exclude most
pairs, if a pair has a high nominal price or there are few pairs.
With memory for all rows, all threads read them before the search, and the solve is that of a
matrix in memory, whatever the method. With less memory, the row cache keeps the rows that lists
request. The certificate pass reads the same rows.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from bigsap import policy
from bigsap.problem import Problem
from bigsap.proof.row_pass import Work, stream
from bigsap.row_cache import ABSENT, MISSES, N_USED, Rows, claim, touch
from bigsap.run.proof_on_workers import rows_elsewhere
from bigsap.run.run import Run
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Crewed, Fillable, Foreseeing, Reading, Resident, range_of
from bigsap.sources.cuda.placed import bring_all, many_coordinates_there, needed_bytes
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.functions.callbacks import FunctionSource
from bigsap.sources.products import is_multiplied
from bigsap.strategies import ON_LISTS
from bigsap.strategies.pair_prices import pair_ns
from bigsap.strategies.placement import device_name
from bigsap.strategies.work import has_bounds
from bigsap.types import Array, Ids

#: Bytes per block requested from a Python function that computes a row or value at a time. A stop loses the
#: block being read.
_FUNCTION_BYTES = 1 << 17


def keep_rows(run: Run) -> None:
    """Make ``run.reading`` keep its rows where that pays. Called once per solve."""
    if not run.keeps:
        run.keeps = True
        run.reading = kept_problem(run)


def kept_problem(run: Run) -> Problem:
    """Return ``run.problem``, or the same problem with rows kept in ``run.rows`` as they are read.

    With memory for all rows, all are read here if a method on lists needs them, and for an array
    whatever the method. Raises the source's exceptions, InvalidCostError, and ``Stopped``.
    """
    problem, rows = run.problem, run.rows
    source = problem.source
    there = device_name(source) != "cpu"
    if rows.policy == "in place" or (there and not _worth_bringing(run)) or 0 in problem.shape:
        return problem
    if isinstance(source, Resident) and source.resident() is not None:
        return problem
    behind = not isinstance(source, Fillable) or source.fill() is None
    lists = run.method in ON_LISTS
    # A function of blocks takes little more time for hundreds of rows than for one. For an array with
    # strided rows or of another dtype, scans of whole rows would copy each row.
    whole = lists or (isinstance(source, ArraySource) and not source.mapped)
    whole = whole or getattr(source, "rows_a_call", 1) > 1
    fit = whole and rows.n_slots == problem.shape[0]
    if fit and (behind or there or _pays_to_keep(problem)):
        # If the solve is stopped during the read, rows that are already here are not read again.
        seen = KeptRows(source, rows, keep=False)
        run.reading = Problem(seen, problem.maximize, problem.transposed)
        _read_all(run, source if behind else rows_elsewhere(run, source))
        matrix = ArraySource(rows.table.slots)
        return Problem(matrix, problem.maximize, problem.transposed)
    if not behind:
        return problem
    if lists and isinstance(source, Crewed):
        return problem  # workers keep rows, and send lists of them
    kept = KeptRows(source, rows, keep=lists)
    return Problem(kept, problem.maximize, problem.transposed)


def keeps_all(run: Run) -> bool:
    """Return whether each row will be computed once."""
    problem, rows = run.problem, run.rows
    if rows.policy == "in place" or rows.n_slots < problem.shape[0]:
        return False
    if device_name(problem.source) != "cpu":
        return _worth_bringing(run)
    behind = not isinstance(problem.source, Fillable) or problem.source.fill() is None
    return behind or _pays_to_keep(problem)


def _pays_to_keep(problem: Problem) -> bool:
    """Return whether compiled costs are kept, given memory for all."""
    n, m = problem.shape
    if is_multiplied(problem.source) and not _one_by_one(problem.source):
        return True  # many rows at once take a few times as long as inner products, which only exclude
    few = n * m * problem.source.dtype.itemsize <= policy.KEPT_BYTES
    return (few and not has_bounds(problem.source)) or is_slow(problem.source)


def _one_by_one(source: CostSource) -> bool:
    """Return whether costs of inner products come from a formula that computes each pair by itself."""
    return isinstance(source, ExpressionSource) and source.fill().many is None


def _worth_bringing(run: Run) -> bool:
    """Return whether the host keeps the rows that a device makes: not for a method that runs there."""
    source = run.problem.source
    small = many_coordinates_there(source) and needed_bytes(source) <= policy.DEVICE_KEPT_BYTES
    return small and run.options.variant != "classical"


def is_slow(source: CostSource) -> bool:
    """Return whether compiled costs are so slow that a look-up is many times faster; unknown ones count."""
    ns = pair_ns(source)
    return not has_bounds(source) and (ns is None or ns >= policy.SLOW_NS)


def _read_all(run: Run, source: CostSource) -> None:
    """Read every row into its slot, once, with all threads, and report progress to the monitor."""
    problem, table, monitor = run.problem, run.rows.table, run.monitor
    m = problem.shape[1]
    slots = table.slots
    clock = time.perf_counter()
    block_bytes = run.block_bytes()
    if isinstance(source, FunctionSource) and source.rows_a_call == 1:
        block_bytes = min(block_bytes, _FUNCTION_BYTES)

    def work(start: int, first: int, block: Array) -> None:
        stop = start + len(block)
        for row, costs in zip(range(start, stop), block, strict=True):
            problem.check_row(row, costs)
        slots[start:stop, first : first + block.shape[1]] = block
        if first + block.shape[1] == m:
            table.slot_of_row[start:stop] = table.row_of_slot[start:stop] = np.arange(start, stop)

    def prepare() -> Work:
        return work

    def tick(n_done: int) -> None:
        table.head[MISSES] = n_done
        monitor.reached(0, n_done)
        monitor.tick()

    def from_device(n_done: int) -> None:
        table.slot_of_row[:n_done] = table.row_of_slot[:n_done] = np.arange(n_done)
        tick(n_done)

    try:
        if many_coordinates_there(source):
            bring_all(source, slots[:, :m], run.n_threads, from_device)
            return
        stream(source, prepare, threads=run.n_threads, block_bytes=block_bytes, tick=tick)
    finally:
        table.head[N_USED] = table.head[MISSES] = np.count_nonzero(table.slot_of_row != ABSENT)
        seconds = time.perf_counter() - clock
        run.seconds["start"] += seconds
        # The stop handling needs to know how slow rows are.
        run.seconds_per_row = seconds * run.n_threads / max(1, int(table.head[MISSES]))


class KeptRows(Reading):
    """Source whose rows are looked up in the row cache first.

    keep: rows that are read whole are stored in the cache; otherwise they are only looked up. Rows
    and pairs found in the cache are counted.
    """

    def __init__(self, source: CostSource, rows: Rows, *, keep: bool) -> None:
        self.source, self.rows, self.keep = source, rows, keep
        self.shape, self.dtype = source.shape, source.dtype
        self.rows_found = self.pairs_found = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"KeptRows({self.source!r}, slots={self.rows.n_slots})"

    @property
    def kind(self) -> str | None:
        """Calling convention of a function; None for other sources."""
        return getattr(self.source, "kind", None)

    @property
    def rows_a_call(self) -> int:
        """Number of rows that one call of a function of blocks computes; 1 for other sources."""
        return getattr(self.source, "rows_a_call", 1)

    @property
    def complete(self) -> bool:
        """Whether the cache holds every row."""
        return bool((self.rows.table.slot_of_row != ABSENT).all())

    def looking(self) -> KeptRows:
        """Return the same source without storing or counting, for the certificate pass."""
        return KeptRows(self.source, self.rows, keep=False)

    def cost_range(self) -> tuple[float, float] | None:
        return range_of(self.source)

    @property
    def foresees(self) -> int:
        return self.source.foresees if isinstance(self.source, Foreseeing) else 0

    def predict_slot(self, rows: Array) -> None:
        if isinstance(self.source, Foreseeing):
            self.source.predict_slot(rows)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        absent = self._find(rows, columns, out)
        if not absent.size:
            return
        wanted = rows[absent]
        if absent.size == len(rows):
            costs = out
            self.source.read(wanted, columns, costs)
        else:
            costs = np.empty((absent.size, out.shape[1]), out.dtype)
            self.source.read(wanted, columns, costs)
            out[absent] = costs
        whole = columns.stop - columns.start == self.shape[1]
        if self.keep and whole:
            with self._lock:
                self._put(wanted, costs)

    def _find(self, rows: Ids, columns: slice, out: Array) -> Array:
        """Fill in cached rows, and return the positions of the rows that are not cached."""
        table = self.rows.table
        with self._lock:
            slots = table.slot_of_row[rows]
            here = np.flatnonzero(slots != ABSENT)
            if here.size:
                found = slots[here]
                out[here] = table.slots[found, columns]
                self.rows_found += here.size
                self.pairs_found += here.size * out.shape[1]
                if self.keep:
                    for slot in found.tolist():
                        touch(table, slot)
        absent: Array = np.flatnonzero(slots == ABSENT)
        return absent

    def _put(self, rows: Ids, costs: Array) -> None:
        table = self.rows.table
        for row, line in zip(rows.tolist(), costs, strict=True):
            if table.slot_of_row[row] == ABSENT:
                table.slots[claim(table, row, False)] = line
