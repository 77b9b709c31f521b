"""A source whose rows are evaluated by the workers of a cluster.

``ClusterCosts`` stands for a source that only Python can read (functions, stores, providers). It
returns the same costs as that source. Results that workers make of rows (lists, duals) instead of
sending the rows themselves are requested from its ``crew``.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from bigsap.errors import BigsapError, ClusterError, level_of_caller
from bigsap.sources.base import CostSource, RowDuals, Task, Waiting, range_of
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.cluster.on_worker import rows_of
from bigsap.sources.cluster.recipes import LiesHereError, recipe_of
from bigsap.sources.cluster.workers import Workers, cores_here
from bigsap.sources.convert import check_rows
from bigsap.sources.functions.speed import PerformanceWarning
from bigsap.sources.offloadable import read_by_kernels
from bigsap.sources.wrappers import Groups, is_grouped
from bigsap.types import Array, Ids, Tick

#: Rows that are foreseen and come ahead of their reader take at most so many bytes.
_AHEAD_BYTES = 32 << 20
#: Seconds that the request of one row takes, about; and the most other rows that one thread sends
#: with it.
_TRIP_SECONDS, _MOST_EACH = 0.01, 8


def spread(source: CostSource, crew: Workers) -> ClusterCosts:
    """Return the source as evaluated by the workers of ``crew``. Raises as ``recipe_of`` does."""
    costs = crew.costs(recipe_of(source), source.shape[0])
    return (_SpreadGroups if is_grouped(source) else ClusterCosts)(source, crew, costs)


@contextmanager
def connect(cluster: Any, duals_of: Task) -> Iterator[Workers | None]:
    """Yield the workers named by ``solve(cluster=...)``, for one solve; None for None."""
    if cluster is None:
        yield None
        return
    with Workers(cluster, cores_here(), duals_of) as crew:
        yield crew


def spread_out(source: CostSource, crew: Workers) -> CostSource:
    """Return the source with its rows evaluated by the workers, if only Python can read them here.

    Other sources are returned unchanged, see ``offload``.
    """
    if 0 in source.shape or read_by_kernels(source):
        return source
    if isinstance(source, ClippedCosts) and read_by_kernels(source.given):
        return source  # few of its pairs are ever read: see ``sparse_gate``
    with suppress(LiesHereError):
        return spread(source, crew)
    return source


def warn_of_little(source: CostSource, crew: Workers) -> None:
    """Warn (``PerformanceWarning``) that the workers were not used.

    Costs in this process's memory, and costs that take some nanoseconds a pair, are read here.
    """
    if crew.counts.blocks or isinstance(source, ClusterCosts):
        return
    warnings.warn(
        f"cluster= does not pay: the costs of {source!r} are in memory or a mapped file here, or"
        " compiled code computes them; they were looked at where solve() was called",
        PerformanceWarning,
        stacklevel=level_of_caller(),
    )


class ClusterCosts:
    """Rows of ``source``, evaluated by workers that have its recipe.

    A request for one row fetches others with it. Rows read one after another, upwards or downwards,
    are fetched in groups that double each time. If the reader predicts the next rows
    (``predict_slot``), each worker that would be idle evaluates one of them. Up to 32 MiB of the
    rows fetched last are kept.
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
        """The kind of calls, for a function."""
        return getattr(self.source, "kind", None)

    @property
    def evaluated_by(self) -> str | None:
        way: str | None = getattr(self.source, "evaluated_by", None)
        return way

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of costs."""
        return max(1, self.shape[1] * self.dtype.itemsize)

    def cost_range(self) -> tuple[float, float] | None:
        return range_of(self.source)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called some fifty times a second while a read of this thread waits."""
        self._waiting.check = check

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``; whole rows are sent, each once."""
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
        """Return rows of costs by id. Errors of the ``others`` are ignored."""
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
        """The number of rows worth predicting, the requested row included.

        As many as the workers evaluate in about the time of a round trip, but at least one for each
        thread.
        """
        pace = self.crew.pace(rows_of)
        each = 1 if pace is None else max(1, min(_MOST_EACH, int(_TRIP_SECONDS / pace)))
        return min(self.crew.n_threads * each, self._most_ahead) - 1

    def predict_slot(self, rows: Array) -> None:
        self._next = np.asarray(rows, np.int64)

    @property
    def _most_ahead(self) -> int:
        return max(1, _AHEAD_BYTES // self.row_bytes)

    def _others(self, row: int) -> Array:
        """Return the rows to fetch together with a requested one."""
        others = self._foreseen(row)
        if others.size <= 1:
            others, self._next = self._next[: self.foresees], self._next[:0]
        others = np.unique(others[others != row])
        return others[[other not in self._ahead for other in others.tolist()]]

    def _foreseen(self, row: int) -> Array:
        """Return the row, and the following ones if rows were read in order."""
        step = row - self._last
        if abs(step) == 1 and step == self._direction:
            self._streak = min(self._most_ahead, max(self.crew.n_threads, 2 * self._streak))
        else:
            self._direction, self._streak = (step if abs(step) == 1 else 0), 1
        last = row + (self._streak - 1) * (self._direction or 1)
        low, high = max(0, min(row, last)), min(self.shape[0] - 1, max(row, last))
        return np.arange(low, high + 1)

    def share(self, values: Array) -> Any:
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
        """Pass every row of costs to ``take(row, costs)`` as it arrives, in no fixed order."""
        m = self.shape[1]
        wave = self.wave(rows_of, rows, kind="row", row_bytes=self.row_bytes, tick=tick or self._waiting.look)
        for positions, body in wave:
            costs = body.view(self.dtype).reshape(positions.size, m)
            for row, line in zip(rows[positions].tolist(), costs, strict=True):
                take(row, line)

    def row_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> RowDuals:
        """Make the certificate's pass, block by block on the workers. See ``Minimised``."""
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


class _SpreadGroups(Groups, ClusterCosts):
    """Rows on workers of a source that reads rows in groups, ahead of time."""

    def prefetch(self, row: int) -> None:
        """Do nothing: workers read ahead by themselves."""
