"""All pairs below a limit of each row, read once; for points, blocks that bounds exclude are not read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.lists.below_price import Found, RowReader, run_below
from bigsap.engine.lists.bounds import Blocks, blocks_of, fit, no_blocks
from bigsap.engine.lists.layout import ENTRY_BYTES, PANEL
from bigsap.engine.lists.ordering import compact_order
from bigsap.engine.lists.reading import costs_in
from bigsap.sources.base import CostSource, Fill, Selectable, Separation
from bigsap.sources.filling import fill_of
from bigsap.strategies.list_run import ListSettings
from bigsap.strategies.start.samples import Counts
from bigsap.types import Array

#: Entries that a thread collects at a time, in addition to one row's.
_ROOM = 1 << 16
#: Memory factor of entries while they are collected.
_COPIES = 2
_SLICE_SECONDS = 0.05


class TooMany(Exception):
    """Too many pairs cost less than their row's limit."""


@dataclass(frozen=True)
class CheapPairs:
    """Rows as kernels read them.

    columns: the column at each place, None for the source's order. keep: objects that must outlive the
    addresses that kernels have.
    """

    reader: RowReader
    columns: Array | None
    dtype: np.dtype[Any]
    keep: tuple[object, ...]

    def below(
        self,
        cap: Array,
        setting: ListSettings,
        counts: Counts,
        edge: Array | None = None,
        many: int = policy.OPTIONAL_MANY,
    ) -> tuple[Array, Array, Array]:
        """Return all pairs below the rows' limits: counts per row, columns, and signed costs, by row.

        edge: blocks whose bound is at least this are not read; by default the limits. many: pairs a row
        that are too many. Raises TooMany, and Stopped.
        """
        n, m = cap.size, self.reader.n_columns
        limits = cap, cap if edge is None else edge
        allowed = max(policy.OPTIONAL_FEW, min(m // policy.OPTIONAL_SHARE, many))
        most = n * allowed
        if n > 2 * policy.OPTIONAL_SAMPLE:
            some = np.random.default_rng([setting.seed, n, 17]).permutation(n)[: policy.OPTIONAL_SAMPLE]
            found = self._below(some, limits, setting, counts, policy.OPTIONAL_SAMPLE * allowed)[0].mean()
            most = min(most, int(policy.OPTIONAL_SURPRISE * n * max(found, 1.0)))
        if setting.memory is not None:
            most = min(most, setting.memory // (_COPIES * ENTRY_BYTES))
        return self._below(np.arange(n), limits, setting, counts, most)

    def _below(
        self, rows: Array, limits: tuple[Array, Array], setting: ListSettings, counts: Counts, most: int
    ) -> tuple[Array, Array, Array]:
        reader, team, monitor = self.reader, setting.team, setting.monitor
        m, price = reader.n_columns, setting.arithmetic.price
        width = 1 if rows.size * m < policy.TEAM_PAIRS else team.n_threads
        room = m + _ROOM  # only the part that is written takes memory
        f = Found(
            ids=np.empty((width, room), np.int32),
            costs=np.empty((width, room), price),
            taken=np.zeros(width, np.int64),
            done=np.zeros(width, np.int64),
            pairs=np.zeros(width, np.int64),
            raw=np.empty((width, PANEL * self.dtype.itemsize), np.uint8),
            near=np.empty((width, PANEL), price),
            bound=np.empty((width, max(1, reader.blocks.offset.size))),
        )
        size = np.zeros(rows.size, np.int64)
        of_ids: list[Array] = []
        of_costs: list[Array] = []
        start, batch, total = 0, width, 0
        while start < rows.size:
            part = rows[start : start + batch]
            f.done[:] = 0
            of_thread: list[list[tuple[Array, Array]]] = [[] for _ in range(width)]
            clock = time.perf_counter()
            while int(f.done.sum()) < part.size:
                team.run_some(width, run_below, part, *limits, size[start : start + part.size], reader, f)
                for thread, taken in enumerate(f.taken.tolist()):
                    of_thread[thread].append((f.ids[thread, :taken].copy(), f.costs[thread, :taken].copy()))
                total += int(f.taken.sum())
                if total > most:
                    self._count(counts, start + int(f.done.sum()), f)
                    raise TooMany
                monitor.tick()
            for piece in (piece for pieces in of_thread for piece in pieces):
                of_ids.append(piece[0])
                of_costs.append(piece[1])
            seconds = max(time.perf_counter() - clock, 1e-6)
            start += part.size
            batch = max(width, min(4 * batch, int(part.size * _SLICE_SECONDS / seconds)))
            monitor.reached(0, counts.rows + start)
        self._count(counts, rows.size, f)
        ids = np.concatenate(of_ids)
        of_ids.clear()
        if self.columns is not None:
            ids = self.columns[ids]
        return size, ids, np.concatenate(of_costs)

    @staticmethod
    def _count(counts: Counts, rows: int, f: Found) -> None:
        counts.rows += rows
        counts.pairs += int(f.pairs.sum())


def point_pairs(
    source: CostSource, terms: Separation | None, sign: int, setting: ListSettings
) -> CheapPairs | None:
    """Return how the rows of computed costs are read; None if kernels cannot call them.

    terms: points that bound the costs, or an increasing function of them; None: every pair is read.
    """
    n, m = source.shape
    columns, blocks, ordered = None, no_blocks(), source
    if terms is not None and isinstance(source, Selectable):
        columns = compact_order(terms.y.T, setting.monitor.tick).astype(np.int32)
        chosen = source.select(np.arange(n), columns)
        if chosen is None:
            return None
        ordered = chosen
        y = np.ascontiguousarray(terms.y[:, columns])
        blocks = blocks_of(replace(terms, y=y))
        if blocks.offset.size:
            fit(blocks, y, np.zeros(m), setting.team)
    fill = fill_of(ordered)
    return None if fill is None else _cheap(fill, None, source.dtype, columns, sign, m, blocks, setting)


def matrix_pairs(matrix: Array, n_columns: int, sign: int, setting: ListSettings) -> CheapPairs:
    """Return how the rows of a matrix in memory are read."""
    return _cheap(None, matrix, matrix.dtype, None, sign, n_columns, no_blocks(), setting)


def _cheap(
    fill: Fill | None,
    matrix: Array | None,
    dtype: np.dtype[Any],
    columns: Array | None,
    sign: int,
    m: int,
    blocks: Blocks,
    setting: ListSettings,
) -> CheapPairs:
    price = setting.arithmetic.price
    slots = np.empty((1, 1), dtype) if matrix is None else matrix
    costs = costs_in(slots, price, there=matrix is not None)
    address, context = (fill.address, fill.context) if fill is not None else (0, 0)
    reader = RowReader(costs, address, context, price.type(sign), m, blocks)
    return CheapPairs(reader, columns, np.dtype(dtype), (slots, fill))
