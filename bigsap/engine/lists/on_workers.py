"""Evaluation of lists on the workers of a cluster, and the data exchanged with them.

The worker runs the same kernel on the row's costs, the current prices and the little that the store
knows of the row, so the list has the same bits. Each worker receives the prices once, and then
only changes (``sources.cluster.sharing``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.team import Team
from bigsap.engine.lists.listed import Listed
from bigsap.engine.lists.store import ListStore, Wave
from bigsap.errors import ClusterError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.base import Crewed
from bigsap.sources.offloadable import read_by_kernels
from bigsap.types import Array

#: int64: pairs evaluated, index of the first invalid row or -1, entries recorded.
_HEAD = 3
#: Limit in bytes of the block minima of all rows on a worker.
_MINIMA_BYTES = 64 << 20
#: Limit of columns up to which their numbers take two bytes.
_SHORT_IDS = 1 << 16


class SentPrices:
    """The prices that workers have: their bits, and a bit for each matched column.

    open_price is the price of a free column and blocked for the others.
    """

    def __init__(self, source: Crewed, blocked: Any) -> None:
        self.source, self._blocked = source, blocked
        self.shared: Any = None

    def of(self, v: Array, open_price: Array) -> Any:
        """Return the present prices, in the form of ``Crewed.share``."""
        taken = open_price != v
        if not (open_price[taken] == self._blocked).all():
            raise AssertionError("a taken column's open price is the blocked one")
        bits = np.packbits(taken)
        bits = np.concatenate([bits, np.zeros(-bits.size % v.itemsize, np.uint8)])
        values = np.concatenate([v.view(np.uint8), bits]).view(f"u{v.itemsize}")
        if self.shared is None:
            self.shared = self.source.share(values)
        elif not np.array_equal(values, self.shared.values):
            self.shared = self.shared.followed_by(values)
        return self.shared


def evaluate_afar(store: ListStore, wave: Wave, sent: SentPrices, tick: Callable[[], None]) -> None:
    """Have the remaining rows of a wave evaluated by workers, in any order.

    tick: called many times a second, whenever the wave is consistent for a checkpoint.
    """
    source, lists, price = sent.source, store.lists, store.price
    shared = sent.of(store.v, store.open_price)
    first = wave.done[0]
    rows, before = wave.rows, wave.before
    finished = np.zeros(rows.size, bool)
    finished[:first] = True
    clock, n_done = time.perf_counter(), 0
    fresh = -store.infinity
    noting = store.listed is not None and not store.immediate
    making = Making(price.str, store.k, store.seed, store.problem.maximize, noting)
    opening = _opening(store)

    def args(positions: Array) -> tuple[Any, ...]:
        some = rows[first + positions]
        never = lists.theta[some] == fresh
        return making, opening, _packed(lists.width[some], lists.reference[some], never)

    def done_first() -> None:
        """Reorder for a checkpoint: finished rows come first."""
        order = np.concatenate([np.flatnonzero(finished), np.flatnonzero(~finished)])
        wave.rows = rows[order]
        wave.before = before[order] if before.size else before
        wave.done = int(finished.sum()), 0

    def between() -> None:
        done_first()
        tick()

    try:
        for positions, body in source.wave(
            lists_of,
            rows[first:],
            kind="list",
            row_bytes=source.row_bytes,
            tick=between,
            shared=shared,
            args=args,
        ):
            _put(store, rows[first + positions], body)
            finished[first + positions] = True
            n_done += positions.size
            store.seconds_per_row = (time.perf_counter() - clock) / n_done
    except ClusterError:
        done_first()
        raise
    wave.rows, wave.before, wave.done = rows, before, (rows.size, 0)


def put_off(store: ListStore, wave: Wave) -> int:
    """Move the rows for workers to the end of the wave; return their first index.

    Earlier lists and minima are not sent: only whole rows, or rows never evaluated before, give the
    same result there as with kernels here.
    """
    done = wave.done[0]
    if not store.blocks.offset.size and not store.lists.low.shape[1]:
        return done
    fresh = store.lists.theta[wave.rows] == -store.infinity
    fresh[:done] = False
    if store.lists.low.nbytes > _MINIMA_BYTES:
        fresh[:] = False
    order = np.concatenate([np.flatnonzero(~fresh), np.flatnonzero(fresh)])
    wave.rows = wave.rows[order]
    wave.before = wave.before[order] if wave.before.size else wave.before
    return int(order.size - fresh.sum())


def _opening(store: ListStore) -> tuple[Array, ...]:
    """Return the data that workers need for blocks of columns.

    The fit of the bounds for compiled costs, the order of the columns whose minima are kept for a
    matrix; empty for whole rows.
    """
    blocks = store.blocks
    if blocks.offset.size:
        return blocks.slope, blocks.offset, blocks.margin
    return (store.lists.order,) if store.lists.low.shape[1] else ()


def _put(store: ListStore, rows: Array, body: Array) -> None:
    """Write a block's lists into the store's pool."""
    lists, price = store.lists, store.price
    n_rows = rows.size
    pairs, bad, n_noted = body[: 8 * _HEAD].view(np.int64).tolist()
    if bad >= 0:
        store.complain(int(rows[bad]))
    at = 8 * _HEAD

    def part(count: int, dtype: Any) -> Array:
        nonlocal at
        size = count * np.dtype(dtype).itemsize
        at += size
        return body[at - size : at].view(dtype)

    theta, reference = part(n_rows, price), part(n_rows, price)
    size = part(n_rows, np.int32)
    total = int(size.sum())
    ids = part(total, _id_type(store))
    part(-at % 8, np.uint8)
    costs = part(total, price)
    first = np.cumsum(size) - size
    places = np.arange(total) + np.repeat(lists.start[rows] - first, size)
    lists.ids[places], lists.costs[places] = ids, costs
    lists.size[rows], lists.theta[rows], lists.reference[rows] = size, theta, reference
    lists.counts.evaluations += n_rows
    lists.counts.pairs += pairs
    if lists.low.shape[1]:
        lists.low[rows] = part(n_rows * lists.low.shape[1], np.float32).reshape(n_rows, -1)
        return
    if store.listed is not None and n_noted:
        owner, columns = part(n_noted, np.int64), part(n_noted, np.int64)
        store.listed.note(rows, owner, columns, part(n_noted, store.problem.source.dtype))


def _id_type(store: ListStore) -> Any:
    """Return the dtype in which column numbers are sent."""
    return np.uint16 if store.v.size <= _SHORT_IDS else np.int32


def _packed(width: Array, reference: Array, fresh: Array) -> Array:
    """Encode each row's reference, whether it was never evaluated, and its list width, as uint8.

    Widths are int32; a single one if all are equal.
    """
    if (width == width[0]).all():
        width = width[:1]
    parts = reference.view(np.uint8), np.packbits(fresh), width.astype(np.int32).view(np.uint8)
    return np.concatenate(parts)


def _unpacked(packed: Array, n_rows: int, price: Any) -> tuple[Array, Array, Array]:
    """Decode ``_packed``: width, reference and fresh, (n_rows,) each."""
    first = n_rows * price.itemsize
    second = first + -(-n_rows // 8)
    fresh = np.unpackbits(packed[first:second], count=n_rows).astype(bool)
    width = packed[second:].view(np.int32)
    return np.broadcast_to(width, n_rows), packed[:first].view(price), fresh


# -- on a worker ----------------------------------------------------------------------


class Making(NamedTuple):
    """Parameters of lists: the price type, their length, and whether ``Listed`` records costs."""

    price: str
    k: int
    seed: int
    maximize: bool
    noting: bool


class _Bench(NamedTuple):
    """Workspace of one thread of a worker."""

    store: ListStore
    listed: Listed


def lists_of(
    built: Any, shared: Array, rows: Array, making: Making, opening: tuple[Array, ...], packed: Array
) -> list[Array]:
    """Evaluate, as a task on a worker, the lists of ``rows`` under the shared prices, see ``SentPrices``.

    opening: see ``_opening``. packed: see ``_packed``.
    """
    bench: _Bench = built.kept(("lists", *making), lambda: _bench(built, making))
    store = bench.store
    if store.immediate:
        built.rows.made(rows.size)
        _set_opening(store, opening)
    _set_prices(store, shared)
    width, reference, fresh = _unpacked(packed, rows.size, store.price)
    lists = store.lists
    order = rows.astype(S.ID)
    start = np.cumsum(width, dtype=np.int64) - width
    total = int(width.sum())
    if total > lists.ids.size:
        lists = store.lists = lists._replace(
            ids=np.empty(total, np.int32), costs=np.empty(total, store.price)
        )
    longest = int(width.max())
    if longest > store.longest:
        store.longest = longest
        store._make_scratch(longest)
    lists.start[order], lists.width[order], lists.size[order] = start, width, 0
    lists.reference[order] = reference
    lists.theta[order] = np.where(fresh, -store.infinity, 0)
    lists.counts.pairs = 0
    slots, bad = store.read_and_evaluate(order)
    n_noted, noted = 0, []
    if bad < 0 and making.noting and not store.immediate:
        owner, ids, costs = bench.listed.doubtful(order, slots, lists)
        n_noted, noted = owner.size, [owner.astype(np.int64), ids.astype(np.int64), costs]
    size = lists.size[order]
    if bad >= 0:
        size[:] = 0
        bad = int(np.flatnonzero(order == bad)[0])
    owner = np.repeat(start - (np.cumsum(size) - size), size)
    places = np.arange(owner.size) + owner
    ids = lists.ids[places].astype(_id_type(store))
    even = np.zeros(-(size.nbytes + ids.nbytes) % 8, np.uint8)
    head = np.array([lists.counts.pairs, bad, n_noted], np.int64)
    low = [lists.low[order]] if lists.low.shape[1] else []
    return [
        head,
        lists.theta[order],
        lists.reference[order],
        size,
        ids,
        even,
        lists.costs[places],
        *low,
        *noted,
    ]


def _bench(built: Any, making: Making) -> _Bench:
    source, price = built.source, np.dtype(making.price)
    # Read by kernels if they can, as in the solving process, to get the same bits.
    problem = Problem(source if read_by_kernels(source) else built.rows, making.maximize)
    store = ListStore(problem, Team(1), Monitor(), price, making.k, making.seed)
    # Row indices are those of the current block.
    store.lists = store.lists._replace(ids=np.empty(0, np.int32), costs=np.empty(0, price))
    return _Bench(store, Listed(problem.source.dtype, problem.sign))


def _set_opening(store: ListStore, opening: tuple[Array, ...]) -> None:
    if len(opening) == 1 and not store.lists.low.shape[1]:
        store.keep_minima(opening[0].astype(S.ID))
    if len(opening) < 3 and store.blocks.offset.size:
        store.drop_bounds()
    if len(opening) == 3:
        for mine, sent in zip(
            (store.blocks.slope, store.blocks.offset, store.blocks.margin), opening, strict=True
        ):
            mine[:] = sent


def _set_prices(store: ListStore, shared: Array) -> None:
    m = store.v.size
    taken = np.unpackbits(shared[m:].view(np.uint8), count=m).astype(bool)
    store.v[:] = shared[:m].view(store.price)
    store.open_price[:] = np.where(taken, store.blocked, store.v)
