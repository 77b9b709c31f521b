"""A source whose rows are evaluated by the workers of a cluster.

``ClusterCosts`` stands for a source that only Python can read (functions, stores, providers), and does
nothing else than bring its rows from where they are made: whatever reads it gets the costs that
the source would have given. What is made of rows on workers, and comes back instead of them
(lists, duals), is asked of its ``crew``.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from bigsap.errors import BigsapError, ClusterError
from bigsap.sources.base import Array, CostSource, Grouped, Ids, Prefetching, Task, Waiting, range_of
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.cluster.on_worker import rows_of
from bigsap.sources.cluster.recipes import LiesHereError, recipe_of
from bigsap.sources.cluster.workers import Workers, cores_here
from bigsap.sources.convert import check_rows
from bigsap.sources.functions.speed import PerformanceWarning
from bigsap.sources.offloadable import read_by_kernels

#: Rows that are foreseen and come ahead of their reader take at most so many bytes.
_AHEAD_BYTES = 32 << 20
#: A row that is asked for is on its way for about so long; so many others at most come from a
#: thread with it.
_TRIP_SECONDS, _MOST_EACH = 0.01, 8


def spread(source: CostSource, crew: Workers) -> ClusterCosts:
    """The source as the workers of ``crew`` evaluate it. Raises as ``recipe_of`` does."""
    costs = crew.costs(recipe_of(source), source.shape[0])
    grouped = isinstance(source, Grouped) and isinstance(source, Prefetching)
    return (_SpreadGroups if grouped else ClusterCosts)(source, crew, costs)


@contextmanager
def connect(cluster: Any, duals_of: Task) -> Iterator[Workers | None]:
    """The workers that ``solve(cluster=...)`` names, for one solve; None for None.

    duals_of: the task by which they make the certificate's pass over some rows.
    """
    if cluster is None:
        yield None
        return
    with Workers(cluster, cores_here(), duals_of) as crew:
        yield crew


def spread_out(source: CostSource, crew: Workers) -> CostSource:
    """The source with rows that the workers make, where only Python can read them here; others
    stay as they are, see ``handing_over``."""
    if 0 in source.shape or read_by_kernels(source):
        return source
    if isinstance(source, ClippedCosts) and read_by_kernels(source.given):
        return source  # few of its pairs are ever looked at: see ``strategies.optional_rows``
    with suppress(LiesHereError):
        return spread(source, crew)
    return source


def warn_of_little(source: CostSource, crew: Workers) -> None:
    """Say (``PerformanceWarning``) that workers did nothing: what is in this process's memory, or
    takes some nanoseconds a pair, is looked at here."""
    if crew.counts.blocks or isinstance(source, ClusterCosts):
        return
    warnings.warn(
        f"cluster= does not pay: the costs of {source!r} are in memory or a mapped file here, or"
        " compiled code computes them; they were looked at where solve() was called",
        PerformanceWarning,
        stacklevel=3,
    )


class ClusterCosts:
    """Rows of ``source``, from workers that have its recipe.

    Rows that are asked for one by one come with others. Read one after another, upwards or
    downwards, they come many at a time: twice as many as the last time. A reader that says which
    rows may be next (``predict_slot``) has one of them from each worker that would have nothing to do.
    Up to 32 MiB of rows that came last are kept.
    """

    def __init__(self, source: CostSource, crew: Workers, costs: tuple[str, Any]) -> None:
        self.source, self.crew, self.costs = source, crew, costs
        self.shape, self.dtype = source.shape, source.dtype
        self._waiting = Waiting()
        self._ahead: dict[int, Array] = {}
        self._next = np.empty(0, np.int64)
        self._last, self._direction, self._streak = -2, 0, 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ClusterCosts({self.source!r}, {len(self.crew.seats)} workers)"

    @property
    def kind(self) -> str | None:
        """Of a function: how it is called."""
        return getattr(self.source, "kind", None)

    @property
    def evaluated_by(self) -> str | None:
        """What the source tells, see ``FunctionSource``."""
        told: str | None = getattr(self.source, "evaluated_by", None)
        return told

    @property
    def row_bytes(self) -> int:
        """What a row of costs takes."""
        return max(1, self.shape[1] * self.dtype.itemsize)

    def cost_range(self) -> tuple[float, float] | None:
        """That of the source."""
        return range_of(self.source)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called some fifty times a second while a read of this thread waits."""
        self._waiting.check = check

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``; whole rows travel, each once."""
        check_rows(rows, self.shape[0])
        ids = np.asarray(rows, np.int64)
        if not ids.size or columns.start >= columns.stop:
            return
        with self._lock:
            here = {row: self._ahead[row] for row in ids.tolist() if row in self._ahead}
            wanted = np.unique([row for row in ids.tolist() if row not in here]).astype(np.int64)
            others = np.empty(0, np.int64)
            if ids.size == 1 and wanted.size:
                others = self._others(int(wanted[0]))
        here |= self._brought(wanted, others)
        for k, row in enumerate(ids.tolist()):
            out[k] = here[row][columns]
        with self._lock:
            if ids.size == 1:
                self._last = int(ids[0])
                self._ahead |= here
                for old in list(self._ahead)[: -self._most_ahead]:
                    del self._ahead[old]

    def _brought(self, wanted: Array, others: Array) -> dict[int, Array]:
        """Rows of costs by their ids. An error of a row that nobody has asked for is not told."""
        found: dict[int, Array] = {}
        try:
            self.show(np.concatenate([wanted, others]), found.__setitem__)
        except ClusterError:
            raise
        except BigsapError:
            if not others.size:
                raise
            self.show(wanted, found.__setitem__)
        return found

    @property
    def foresees(self) -> int:
        """As many as the workers make in about the time of a round trip, one by each thread at
        least; the row that is asked for is one of them."""
        pace = self.crew.pace(rows_of)
        each = 1 if pace is None else max(1, min(_MOST_EACH, int(_TRIP_SECONDS / pace)))
        return min(self.crew.n_threads * each, self._most_ahead) - 1

    def predict_slot(self, rows: Array) -> None:
        """Rows that may be asked for after the next one, the likeliest first."""
        self._next = np.asarray(rows, np.int64)

    @property
    def _most_ahead(self) -> int:
        return max(1, _AHEAD_BYTES // self.row_bytes)

    def _others(self, row: int) -> Array:
        """Rows to come with one that is asked for."""
        others = self._foreseen(row)
        if others.size <= 1:
            others, self._next = self._next[: self.foresees], self._next[:0]
        others = np.unique(others[others != row])
        return others[[other not in self._ahead for other in others.tolist()]]

    def _foreseen(self, row: int) -> Array:
        """The row, and those that follow if rows have come in their order."""
        step = row - self._last
        if abs(step) == 1 and step == self._direction:
            self._streak = min(self._most_ahead, max(self.crew.n_threads, 2 * self._streak))
        else:
            self._direction, self._streak = (step if abs(step) == 1 else 0), 1
        last = row + (self._streak - 1) * (self._direction or 1)
        low, high = max(0, min(row, last)), min(self.shape[0] - 1, max(row, last))
        return np.arange(low, high + 1)

    def share(self, values: Array) -> Any:
        """See ``Crewed``."""
        return self.crew.share(values)

    def wave(
        self,
        task: Task,
        rows: Array,
        *,
        kind: str,
        row_bytes: int,
        tick: Callable[[], None],
        shared: Any = None,
        args: Callable[[Array], tuple[Any, ...]] = lambda positions: (),
    ) -> Iterator[tuple[Array, Array]]:
        """See ``Crewed`` and ``Workers.wave``."""
        return self.crew.wave(
            self.costs, task, rows, kind=kind, row_bytes=row_bytes, tick=tick, shared=shared, args=args
        )

    def show(
        self, rows: Array, take: Callable[[int, Array], None], tick: Callable[[], None] | None = None
    ) -> None:
        """Hand every row of costs to ``take(row, costs)`` as it arrives, in no fixed order."""
        m = self.shape[1]
        wave = self.wave(rows_of, rows, kind="row", row_bytes=self.row_bytes, tick=tick or self._waiting.look)
        for positions, body in wave:
            costs = body.view(self.dtype).reshape(positions.size, m)
            for row, line in zip(rows[positions].tolist(), costs, strict=True):
                take(row, line)

    def row_minima(
        self,
        matching: Array | None,
        prices: Array,
        low: Array | None,
        maximize: bool,
        tick: Callable[[int], None],
    ) -> tuple[Array, Array | None, Array | None, Array]:
        """See ``Minimised``: the certificate's pass, block by block on the workers."""
        n = self.shape[0]
        given = prices if low is None else np.concatenate((prices, low))
        parts = [np.empty(n, prices.dtype) for _ in range(1 if prices.dtype.kind == "i" else 3)]
        matched = np.zeros(n, np.int64 if self.dtype.kind in "iu" else np.float64)
        done = 0

        def args(positions: Array) -> tuple[Any, ...]:
            pairs = None if matching is None else matching[positions]
            return prices.dtype.str, maximize, pairs

        assert self.crew.duals_of is not None
        wave = self.wave(
            self.crew.duals_of,
            np.arange(n),
            kind="dual",
            row_bytes=self.row_bytes,
            tick=lambda: tick(done),
            shared=self.crew.share(given),
            args=args,
        )
        for positions, body in wave:
            size = positions.size * prices.dtype.itemsize
            for k, part in enumerate(parts):
                part[positions] = body[k * size : (k + 1) * size].view(prices.dtype)
            matched[positions] = body[len(parts) * size :].view(matched.dtype)
            done += positions.size
        if len(parts) == 1:
            return parts[0], None, None, matched
        return parts[0], parts[1], parts[2] if parts[2].any() else None, matched


class _SpreadGroups(ClusterCosts):
    """Spread rows of a source that reads them in groups, ahead of time."""

    def rows_together(self, row: int) -> tuple[int, int]:
        """The half-open range of rows that one read of ``row`` decodes anyway."""
        grouped: Any = self.source
        start, stop = grouped.rows_together(row)
        return int(start), int(stop)

    def prefetch(self, row: int) -> None:
        """Workers read ahead by themselves."""
