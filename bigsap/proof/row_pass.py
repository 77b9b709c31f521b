"""One pass over the rows of a source, in blocks, by several threads.

The proof reads the costs through this module: numpy only, nothing of the engine. numpy
releases the interpreter's lock while it computes, so plain threads are enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeAlias

import numpy as np

from bigsap.blas import one_thread
from bigsap.errors import BigsapError, OptionError
from bigsap.proof.threads import Left, first_failure, run_together
from bigsap.sources.base import CostSource, Crewed, Resident, read_while
from bigsap.sources.filling import fill_of
from bigsap.types import Array, Ids, Tick

#: Default size of a thread's block: larger blocks exceed the shared cache, smaller ones make the
#: threads wait for the interpreter's lock. Two threads, 1,024,000 columns of points, ns a
#: pair: 1.04 with half a MiB, 0.53, 0.37, 0.32 with four, 0.39 with eight.
BLOCK_BYTES = 4 << 20
#: Columns read at a time if a part of a row costs only its share: whole rows of this length would
#: read as many prices each (0.63 to 0.72 ns a pair).
_PART = 8192
#: After a part that took this many seconds, parts are narrower, so that the pass can be stopped.
_LONG_SECONDS = 0.1
_LEAST_PART = 64
#: In a matrix with more pairs, every thread gets some blocks.
_SHARED_PAIRS = 1 << 17
_BLOCKS_PER_THREAD = 4

#: Processes one block: ``work(start, first, block)``; ``block[k]`` is the row
#: ``rows[start + k]`` from column ``first`` on, and must not be written to or kept.
Work: TypeAlias = Callable[[int, int, Array], None]


def stream(
    source: CostSource,
    prepare: Callable[[], Work],
    *,
    rows: Ids | None = None,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Tick | None = None,
) -> None:
    """Pass every cost (or those of ``rows``) once to a ``Work`` function.

    prepare: called once per thread, returns that thread's own ``Work``, so that
        buffers need no locks. Blocks are whole rows, because many sources cannot
        give a part of a row for less; of those that can, parts of more rows.
    rows: row ids, or None for all rows in order.
    block_bytes: a block holds at most this many bytes counted as float64, but
        always at least one row, or a part of one. Memory: one block per thread, none
        when the source is ``Resident``.
    tick: called in the calling thread, after each block or part, or every 50 ms, with
        the number of rows done; its exceptions end the pass.

    Raises OptionError for threads or block_bytes < 1. An exception in a thread
    ends the pass; of several, the one of the first block is raised, so that the
    error does not depend on the number of threads.
    """
    if threads < 1:
        raise OptionError(f"threads must be at least 1, got {threads}")
    if block_bytes < 1:
        raise OptionError(f"block_bytes must be at least 1, got {block_bytes}")
    n_columns = source.shape[1]
    total = source.shape[0] if rows is None else len(rows)
    matrix = source.resident() if isinstance(source, Resident) else None
    in_parts = matrix is None and gives_parts(source)
    width = max(1, min(n_columns, _PART if in_parts else n_columns))
    height = min(max(1, block_bytes // (8 * width)), max(1, total))
    together = getattr(source, "rows_a_call", 1)
    if together > 1:
        # The same rows in a call for any number of threads: products may be rounded by their sizes.
        height = min(together if block_bytes >= BLOCK_BYTES else height, together, max(1, total))
    elif total * n_columns > _SHARED_PAIRS:
        height = min(height, -(-total // (_BLOCKS_PER_THREAD * threads)))
    n_blocks = -(-total // height)

    if isinstance(source, Crewed):
        _as_they_come(source, prepare(), rows, total, tick)
        return
    lock = threading.Lock()
    stopped = threading.Event()
    failures: list[tuple[int, BaseException]] = []
    taken = done = 0

    def run(after_block: Callable[[], None], while_waiting: Callable[[], None]) -> None:
        nonlocal taken, done
        work = prepare()
        room = np.empty(height * width if matrix is None else 0, dtype=source.dtype)
        while not stopped.is_set():
            with lock:
                block = taken
                taken += 1
            if block >= n_blocks:
                return
            start, stop = block * height, min(total, (block + 1) * height)
            try:
                if rows is not None:
                    ids = rows[start:stop]
                else:
                    ids = np.arange(start, stop, dtype=np.intp)
                if matrix is None:
                    first, step = 0, width
                    while first < n_columns:
                        last = min(n_columns, first + step)
                        size = (stop - start) * (last - first)
                        out = room[:size].reshape(stop - start, last - first)
                        clock = time.perf_counter()
                        read_while(source, while_waiting, ids, slice(first, last), out)
                        if in_parts and time.perf_counter() - clock > _LONG_SECONDS:
                            step = max(min(step, _LEAST_PART), step // 4)
                        work(start, first, out)
                        while_waiting()
                        first = last
                elif rows is None:
                    work(start, 0, matrix[start:stop, :n_columns])
                else:
                    work(start, 0, matrix[ids, :n_columns])
            except BaseException as error:  # noqa: BLE001 - carried to the calling thread
                # Blocks are taken in order: every earlier one is finished or will
                # be, so the failure of the first block is always among these.
                with lock:
                    failures.append((block, error))
                stopped.set()
                return
            with lock:
                done += stop - start
            after_block()

    def report() -> None:
        if tick is not None:
            tick(done)

    def leave() -> None:
        if stopped.is_set():
            raise Left

    # Python's functions may multiply matrices: with threads of their own, these would compete.
    by_python = matrix is None and fill_of(source) is None
    with one_thread() if by_python else nullcontext():
        if min(threads, n_blocks) <= 1:
            run(report, report)
        else:
            run_together(min(threads, n_blocks), lambda: run(_nothing, leave), report, stopped)
            report()
    failures = [failure for failure in failures if not isinstance(failure[1], Left)]
    if failures:
        raise first_failure(failures)


def kept_pairs(
    source: CostSource,
    keep: Callable[[int, int, Array], tuple[Array, Array]],
    *,
    threads: int = 1,
    tick: Tick | None = None,
) -> tuple[Array, Array, Array]:
    """Return rows, columns and costs of the pairs that ``keep`` keeps, by row and column.

    keep: takes a block as ``Work`` does; returns costs, and which of them are kept, both of the block's
    shape. Other arguments and errors as of ``stream``.
    """
    parts: list[tuple[tuple[int, int], Array, Array, Array]] = []

    def work(start: int, first: int, block: Array) -> None:
        costs, kept = keep(start, first, block)
        i, j = np.nonzero(kept)
        parts.append(((start, first), i + start, j + first, costs[i, j]))

    stream(source, lambda: work, threads=threads, tick=tick)
    parts.sort(key=lambda part: part[0])
    rows, columns, costs = (np.concatenate(part) for part in list(zip(*parts, strict=True))[1:])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows, kind="stable")
        rows, columns, costs = rows[order], columns[order], costs[order]
    return rows, columns, costs


def _as_they_come(source: Crewed, work: Work, rows: Ids | None, total: int, tick: Tick | None) -> None:
    """Make the pass over rows that remote workers read, in the order of arrival."""
    done = 0
    ids = np.arange(total) if rows is None else np.asarray(rows)
    place = np.empty(int(ids.max()) + 1 if total else 0, np.intp)
    place[ids] = np.arange(total)

    failures: list[tuple[int, BaseException]] = []

    def take(row: int, costs: Array) -> None:
        nonlocal done
        try:
            work(int(place[row]), 0, costs[None])
        except BigsapError as error:  # of several, the error of the first row is raised
            failures.append((int(place[row]), error))
        done += 1

    source.show(ids, take, lambda: None if tick is None else tick(done))
    if failures:
        raise first_failure(failures)


def gives_parts(source: CostSource) -> bool:
    """Check whether a part of a row costs only its share of the row."""
    fill = fill_of(source)
    return fill is not None and fill.in_parts


def _nothing() -> None:
    pass
