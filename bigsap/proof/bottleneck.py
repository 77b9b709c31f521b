"""Proof of a bottleneck: no complete assignment has a smaller largest cost, and its pairs are all.

By Hall's theorem a set of rows whose columns *below* the threshold are too few proves the lower end.
That the sum is the least among assignments within the threshold is proved on the listed pairs; here
it is proved that these are all pairs within it. The code shares nothing with the search.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.errors import CertificateError
from bigsap.proof.certificate import Certificate
from bigsap.proof.claim import Claim
from bigsap.proof.refusals import refuse_invalid
from bigsap.proof.row_pass import Work, stream
from bigsap.proof.verify import verify
from bigsap.sources.base import CostSource, Entries, Selectable
from bigsap.sources.sparse.sparse_costs import SparseCosts, sparse
from bigsap.types import Array


def prove_threshold(
    source: CostSource,
    threshold: Any,
    violator: Array,
    others: Array | None = None,
    *,
    maximize: bool = False,
    threads: int = 1,
    tick: Callable[[int], None] | None = None,
) -> None:
    """Check that each complete assignment has a cost of at least (at most, maximising) the threshold.

    violator: (k,) rows; with N columns that allow one of them a better cost than the threshold,
    ``k - N > max(n - m, 0)``. others: columns that are not among these, which is checked; then only the
    pairs of rows and these columns are read, if the source can select them. Raises CertificateError if
    that is not so. Reads k rows.
    """
    n, m = source.shape
    rows = np.sort(np.asarray(violator).astype(np.intp))
    if not rows.size or rows[0] < 0 or rows[-1] >= n or (np.diff(rows) == 0).any():
        raise CertificateError(f"the violating set must hold distinct rows of 0 to {n - 1}, at least one")
    part = None
    if others is not None and isinstance(source, Selectable):
        part = source.select(rows, np.unique(others).astype(np.intp))
    better = np.zeros(m if part is None else part.shape[1], np.bool_)
    lock = threading.Lock()

    def prepare() -> Work:
        def work(start: int, first: int, block: Array) -> None:
            if block.dtype.kind == "f":
                refuse_invalid(block, rows[start:], maximize, first)
            seen = ((block > threshold) if maximize else (block < threshold)).any(axis=0)
            with lock:
                better[first : first + seen.size] |= seen

        return work

    if part is None:
        stream(source, prepare, rows=rows, threads=threads, tick=tick)
    else:
        stream(part, prepare, threads=threads, tick=tick)
    count = int(np.count_nonzero(better)) + m - better.size
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
    tick: Callable[[int], None] | None = None,
) -> None:
    """Check that the entries are all allowed pairs within the threshold, at their costs.

    Raises CertificateError that names the first row where they are not. Reads every cost.
    """
    n = source.shape[0]
    counts = np.zeros(n, np.int64)
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
    differ = np.flatnonzero(counts != np.diff(entries.start))
    if differ.size:
        raise CertificateError(f"row {differ[0]} does not list all pairs within the threshold")


def verify_bottleneck(result: Claim, source: CostSource, threshold: Any, threads: int = 1) -> Certificate:
    """Verify a result of ``objective="bottleneck"``, see ``Result.verify``; reads every cost."""
    if tuple(source.shape) != tuple(result.shape):
        raise CertificateError(f"the result is for costs of shape {result.shape}, not {tuple(source.shape)}")
    prove_threshold(source, threshold, result.violator, maximize=result.maximize, threads=threads)
    within = _within(source, threshold, result.maximize, threads)
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
    found: list[tuple[Array, Array, Array]] = []
    lock = threading.Lock()

    def prepare() -> Work:
        def work(start: int, first: int, block: Array) -> None:
            if block.dtype.kind == "f":
                refuse_invalid(block, np.arange(start, start + len(block)), maximize, first)
            i, j = np.nonzero((block >= threshold) if maximize else (block <= threshold))
            with lock:
                found.append((i + start, j + first, block[i, j]))

        return work

    stream(source, prepare, threads=threads)
    rows, columns, costs = (np.concatenate(part) for part in zip(*found, strict=True))
    return sparse((rows, columns, costs), source.shape)
