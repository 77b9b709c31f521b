"""Proof of a bottleneck: no complete assignment has a smaller largest cost, and its pairs are all.

The listed pairs are proved to be all pairs within the threshold: by a pass over all costs, or by boxes
of points. Among them, by Hall's theorem, a set of rows whose columns *below* the threshold are too few
proves the lower end; that the sum is the least within the threshold is proved on them, too. The code
shares nothing with the search.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.errors import CertificateError, InvalidCostError
from bigsap.proof.certificate import Certificate
from bigsap.proof.claim import Claim
from bigsap.proof.descending import in_boxes
from bigsap.proof.geometry import boundable, geometry
from bigsap.proof.pair_costs import read_pair_costs
from bigsap.proof.refusals import refuse_invalid
from bigsap.proof.row_minima import Prices
from bigsap.proof.row_pass import Work, kept_pairs, stream
from bigsap.proof.threads import share_out
from bigsap.proof.verify import verify
from bigsap.sources.base import CostSource, Entries, Sparse
from bigsap.sources.sparse.sparse_costs import SparseCosts, sparse
from bigsap.types import Array, Tick

# Rows that a thread claims at a time.
_ROWS = 1024
# Sparse costs compared between two looks at the clock.
_ENTRIES = 1 << 21


def prove_threshold(
    entries: Entries, shape: tuple[int, int], threshold: Any, violator: Array, *, maximize: bool = False
) -> None:
    """Check that each complete assignment has a cost of at least (at most, maximising) the threshold.

    entries: all allowed pairs within the threshold. violator: (k,) rows; with N columns that allow one
    of them a better cost than the threshold, ``k - N > max(n - m, 0)``. Raises CertificateError if that
    is not so. O(entries).
    """
    n, m = shape
    rows = np.sort(np.asarray(violator).astype(np.intp))
    if not rows.size or rows[0] < 0 or rows[-1] >= n or (np.diff(rows) == 0).any():
        raise CertificateError(f"the violating set must hold distinct rows of 0 to {n - 1}, at least one")
    among = np.zeros(n, np.bool_)
    among[rows] = True
    better = (entries.costs > threshold) if maximize else (entries.costs < threshold)
    reached = np.zeros(m, np.bool_)
    reached[entries.columns[better & np.repeat(among, np.diff(entries.start))]] = True
    count = int(np.count_nonzero(reached))
    if rows.size - count <= max(n - m, 0):
        raise CertificateError(
            f"the violating set of {rows.size} rows has {count} columns of better costs than {threshold},"
            " which does not rule out a better assignment"
        )


def prove_entries(
    source: CostSource,
    threshold: Any,
    entries: Entries,
    *,
    maximize: bool = False,
    threads: int = 1,
    tick: Tick | None = None,
    bounds: bool = True,
) -> tuple[str, int]:
    """Check that the entries are all allowed pairs within the threshold, at their costs.

    bounds: False to read every pair. Returns the way, ``"pairs"`` or, for points whose boxes exclude
    most, ``"bounds"``, and the number of pairs read. Raises CertificateError that names the first row
    where it is not so. Distinct columns of a row are the caller's: ``sparse`` checks them.
    """
    beyond = (entries.costs < threshold) if maximize else (entries.costs > threshold)
    beyond |= entries.costs == (-np.inf if maximize else np.inf)
    if beyond.any():
        row = int(np.searchsorted(entries.start, int(np.argmax(beyond)), side="right")) - 1
        raise CertificateError(f"row {row} lists a pair beyond the threshold")
    if isinstance(source, Sparse):
        return "pairs", _compared(source, threshold, entries, maximize, tick)
    lists = _Lists(source, threshold, entries, maximize, threads, tick)
    by, counted = "bounds", _counted_in_boxes(lists) if bounds else None
    if counted is None:
        by, counted = "pairs", _counted(lists)
    counts, pairs = counted
    differ = np.flatnonzero(counts != np.diff(entries.start))
    if differ.size:
        raise CertificateError(f"row {differ[0]} does not list all pairs within the threshold")
    return by, pairs


class _Lists(NamedTuple):
    """Arguments of ``prove_entries``."""

    source: CostSource
    threshold: Any
    entries: Entries
    maximize: bool
    threads: int
    tick: Tick | None


def _counted_in_boxes(c: _Lists) -> tuple[Array, int] | None:
    """Check the costs of the entries and count each row's pairs within the threshold, by boxes.

    None where boxes do not bound the costs, or exclude too little, judged by some rows.
    """
    from bigsap.proof.descent import BOUND_PAIRS, count_within

    source, threshold, entries, maximize, threads, tick = c
    known = boundable(source)
    points = geometry(source) if known is not None and known[1] is None else None
    if points is None or source.shape[0] < policy.BOTTLENECK_BOUNDED_ROWS:
        return None

    def look() -> None:
        if tick is not None:
            tick(0)

    n, m = source.shape
    # A row's column says where the row is, if it has one.
    first = np.append(entries.columns, m)[np.minimum(entries.start[:-1], entries.columns.size)]
    near = np.where(np.diff(entries.start) > 0, first, m).astype(np.int64)
    boxed = in_boxes(source, points, near, Prices(np.zeros(m)), maximize, look)
    if boxed is None:
        return None
    limit = float(-threshold if maximize else threshold)
    found, total, lock = np.zeros(n, np.int64), np.zeros(2, np.int64), threading.Lock()
    probed = np.unique(np.linspace(0, n - 1, min(n, policy.PROOF_BOUNDS_PROBED)).astype(np.int64))
    for place in probed.tolist():
        count_within(boxed.costs, boxed.tree, limit, place, place + 1, found, total)
    if total[0] + BOUND_PAIRS * total[1] > probed.size * m // policy.PROOF_BOUNDS_SHARE:
        return None
    look()
    rows = np.repeat(np.arange(n), np.diff(entries.start))
    wrong = read_pair_costs(source, rows, entries.columns) != entries.costs
    if wrong.any():
        raise CertificateError(f"row {rows[int(np.argmax(wrong))]} lists another cost")
    total[:] = 0

    def some(start: int, stop: int, pause: Callable[[], None]) -> bool:
        counts = np.zeros(2, np.int64)
        row = count_within(boxed.costs, boxed.tree, limit, start, stop, found, counts)
        if row >= 0:
            raise InvalidCostError(f"row {boxed.rows[row]} has a cost of NaN or of the wrong infinity")
        with lock:
            total[:] += counts
        pause()
        return True

    share_out(n, _ROWS, threads, look, some)
    by_row = np.empty_like(found)
    by_row[boxed.rows] = found
    return by_row, int(total[0]) + entries.columns.size


def _counted(c: _Lists) -> tuple[Array, int]:
    """Check the costs of the entries and count each row's pairs within the threshold, in a pass."""
    source, threshold, entries, maximize, threads, tick = c
    counts = np.zeros(source.shape[0], np.int64)
    forbidden = -np.inf if maximize else np.inf
    lock = threading.Lock()

    def prepare() -> Work:
        def work(start: int, first: int, block: Array) -> None:
            rows = np.arange(start, start + len(block))
            if block.dtype.kind == "f":
                refuse_invalid(block, rows, maximize, first)
            within = (block >= threshold) if maximize else (block <= threshold)
            if block.dtype.kind == "f" and np.isinf(threshold):
                within &= block != forbidden
            found = np.count_nonzero(within, axis=1)
            begin, end = entries.start[start], entries.start[start + len(block)]
            row = np.repeat(np.arange(len(block)), np.diff(entries.start[start : start + len(block) + 1]))
            columns, costs = entries.columns[begin:end] - first, entries.costs[begin:end]
            here = (columns >= 0) & (columns < block.shape[1])
            wrong = block[row[here], columns[here]] != costs[here]
            if wrong.any():
                raise CertificateError(f"row {rows[row[here][int(np.argmax(wrong))]]} lists another cost")
            with lock:
                counts[rows] += found

        return work

    stream(source, prepare, threads=threads, tick=tick)
    return counts, source.shape[0] * source.shape[1]


def _compared(source: Sparse, threshold: Any, entries: Entries, maximize: bool, tick: Tick | None) -> int:
    """Check that the entries are the pairs within the threshold; return the number of pairs read."""
    start = source.entries().start
    n, first = start.size - 1, 0
    while first < n:
        # At least one row, and as many as have so many entries.
        stop = max(first + 1, int(np.searchsorted(start, start[first] + _ENTRIES, side="right")) - 1)
        rows, columns, costs = _within_entries(source, threshold, maximize, first, stop)
        listed = slice(int(entries.start[first]), int(entries.start[stop]))
        counts = np.diff(entries.start[first : stop + 1])
        differ = np.flatnonzero(np.bincount(rows - first, minlength=stop - first) != counts)
        if differ.size:
            raise CertificateError(f"row {first + differ[0]} does not list all pairs within the threshold")
        own = np.repeat(np.arange(first, stop), counts)
        one, other = np.lexsort((columns, rows)), np.lexsort((entries.columns[listed], own))
        wrong = columns[one] != entries.columns[listed][other]
        wrong |= costs[one] != entries.costs[listed][other]
        if wrong.any():
            row = own[other][int(np.argmax(wrong))]
            raise CertificateError(f"row {row} lists another pair, or another cost")
        first = stop
        if tick is not None:
            tick(first)
    return int(source.entries().columns.size)


def _within_entries(
    source: Sparse, threshold: Any, maximize: bool, first: int = 0, stop: int | None = None
) -> tuple[Array, Array, Array]:
    """Return rows, columns and costs of the allowed pairs of sparse costs within the threshold.

    first, stop: of the rows.
    """
    start, columns, costs = source.entries()
    stop = start.size - 1 if stop is None else stop
    listed = slice(int(start[first]), int(start[stop]))
    rows = np.repeat(np.arange(first, stop), np.diff(start[first : stop + 1]))
    columns, costs = columns[listed], costs[listed]
    keep = (costs >= threshold) if maximize else (costs <= threshold)
    if costs.dtype.kind == "f":
        (wrong,) = np.nonzero(costs == (np.inf if maximize else -np.inf))
        for k in wrong[:1].tolist():
            refuse_invalid(costs[k : k + 1][None], rows[k : k + 1], maximize, int(columns[k]))
        keep &= costs != (-np.inf if maximize else np.inf)
    return rows[keep], columns[keep], costs[keep]


def verify_bottleneck(result: Claim, source: CostSource, threshold: Any, threads: int = 1) -> Certificate:
    """Verify a result of ``objective="bottleneck"``, see ``Result.verify``; reads every cost."""
    if tuple(source.shape) != tuple(result.shape):
        raise CertificateError(f"the result is for costs of shape {result.shape}, not {tuple(source.shape)}")
    within = _within(source, threshold, result.maximize, threads)
    n, m = result.shape
    prove_threshold(within.entries(), (n, m), threshold, result.violator, maximize=result.maximize)
    certificate = verify(result, within, threads)
    if result.fun is not None:
        start, columns, costs = within.entries()
        row = np.repeat(np.arange(len(start) - 1), np.diff(start))
        assigned = costs[result.col4row[row] == columns]
        worst = assigned.min() if result.maximize else assigned.max()
        if worst != threshold:
            raise CertificateError(f"the bottleneck is {threshold}, but {worst} was found")
    return certificate


def _within(source: CostSource, threshold: Any, maximize: bool, threads: int) -> SparseCosts:
    """Return the allowed pairs within the threshold as sparse costs."""
    if isinstance(source, Sparse):
        return sparse(_within_entries(source, threshold, maximize), source.shape)

    def keep(start: int, first: int, block: Array) -> tuple[Array, Array]:
        if block.dtype.kind == "f":
            refuse_invalid(block, np.arange(start, start + len(block)), maximize, first)
        return block, (block >= threshold) if maximize else (block <= threshold)

    return sparse(kept_pairs(source, keep, threads=threads), source.shape)
