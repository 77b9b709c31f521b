"""Descent for all rows: build the tree, order the rows, run threads, and stop if too slow."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.proof import scan
from bigsap.proof.geometry import PRODUCT, SQUARE, Geometry, geometry, select
from bigsap.proof.row_minima import NearPairs, Prices, joined
from bigsap.proof.threads import share_out
from bigsap.sources.base import CostSource
from bigsap.sources.filling import fill_of
from bigsap.types import Array, Tick

if TYPE_CHECKING:
    from bigsap.proof.descent import PointCosts
    from bigsap.proof.tree import Tree

# Rows that a thread claims at a time, and work in pairs between two polls.
_ROWS = 1024
_WORK = 1 << 24
#: Limit of near pairs recorded by each thread: this many a row plus a constant.
_NEAR_A_ROW, _NEAR = 8, 1 << 12


@dataclass(frozen=True)
class Descended:
    """Results of a descent.

    minima: of all rows, exact if ``finished``. near: as ``RowMinima``. pairs, bounds: numbers of
    pairs read and bounds computed.
    """

    minima: scan.Minima
    near: NearPairs | None
    pairs: int
    bounds: int
    finished: bool


def descended(
    source: CostSource,
    points: Geometry,
    best: scan.Minima,
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    threads: int,
    tick: Tick | None,
    width: float | None,
    *,
    if_few: bool = False,
) -> Descended | None:
    """Compute each row's least ``c - v`` by bounds; None if the source has no filler for it.

    best: (n,) of the rows, values of ``c - v`` or inf. if_few: record near pairs only if the probed rows
    have few: of many equal points, all pairs are near, and each would be read.
    """
    from bigsap.proof.descent import BOUND_PAIRS, descend

    n, m = source.shape

    def look() -> None:
        if tick is not None:
            tick(0)

    boxed = in_boxes(source, points, matching, prices, maximize, look)
    if boxed is None:
        return None
    by_row, order, tree, costs, v, below, _kept = boxed
    found = scan.Minima(*(np.ascontiguousarray(part[by_row]) for part in best))
    total = np.zeros(2, np.int64)
    lock = threading.Lock()
    rooms: dict[int, scan.Near] = {}

    def near_pairs() -> scan.Near:
        with lock:
            key = threading.get_ident()
            if key not in rooms:
                rooms[key] = scan.no_near(0 if width is None else _NEAR_A_ROW * n + _NEAR)
            return rooms[key]

    def work_of(counts: Array) -> int:
        return int(counts[0]) + BOUND_PAIRS * int(counts[1])

    def some(rows: Array, start: int, stop: int, budget: int, pause: Callable[[], None]) -> bool:
        """Process these rows; return False if the budget was exceeded."""
        near = near_pairs() if sample is None else sample
        while start < stop:
            counts = np.zeros(2, np.int64)
            start = descend(
                costs,
                tree,
                v,
                below,
                rows,
                start,
                stop,
                _WORK,
                -1.0 if width is None else width,
                found,
                near,
                order,
                counts,
            )
            with lock:
                total[:] += counts
                if work_of(total) > budget:
                    return False
            pause()
        return True

    probed = np.unique(np.linspace(0, n - 1, min(n, policy.PROOF_BOUNDS_PROBED)).astype(np.int64))
    sample = scan.no_near(_NEAR_A_ROW * probed.size) if if_few and width is not None else None
    finished = some(probed, 0, probed.size, probed.size * m // policy.PROOF_BOUNDS_SHARE, look)
    if sample is not None:
        if sample.counts[1]:
            width = None
        else:
            rooms[-1] = sample
        sample = None
    if finished:
        rest = np.delete(np.arange(n), probed)
        finished = share_out(
            rest.size,
            _ROWS,
            threads,
            look,
            lambda a, b, pause: some(rest, a, b, n * m // policy.PROOF_BOUNDS_SHARE, pause),
        )
    minima = scan.Minima(*(np.empty(n) for _ in found))
    for given, part in zip(minima, found, strict=True):
        given[by_row] = part
    near = None if width is None else joined(list(rooms.values()), width)
    if near is not None:
        near.rows[:] = by_row[near.rows]
    return Descended(minima, near, int(total[0]), int(total[1]), finished)


class Boxed(NamedTuple):
    """Rows and columns in the tree's order, the boxes of the columns, and the costs of pairs.

    rows (n,), columns (m,): numbers in the source. prices, below: (m,) in this order, below (0,) without
    low parts. kept: the source in this order and its filler, which own the memory that costs reads.
    """

    rows: Array
    columns: Array
    tree: Tree
    costs: PointCosts
    prices: Array
    below: Array
    kept: Any


def in_boxes(
    source: CostSource,
    points: Geometry,
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    look: Callable[[], None],
) -> Boxed | None:
    """Put the columns of a source of points in boxes; None if it has no filler for that order.

    matching: (n,) a column near each row, by which the rows are ordered, or None. look: called often;
    its exceptions end the work. O((n + m) d log m).
    """
    from bigsap.proof.descent import PointCosts
    from bigsap.proof.tree import grown, planted

    order, first, last, leaves = planted(points.y, weights(points), look)
    by_row = _row_order(matching, order, source.shape[0])
    chosen = select(source, by_row, order)
    # Boxes of the points that the filler computes with.
    p, fill = (None, None) if chosen is None else (geometry(chosen), fill_of(chosen))
    if p is None or fill is None:
        return None
    v = np.ascontiguousarray(prices.high[order])
    below = np.empty(0) if prices.low is None else np.ascontiguousarray(prices.low[order])
    look()
    # Boxes use upper bounds of the exact prices.
    most = v if prices.low is None else np.nextafter(v + below, np.inf)
    tree = grown(p.y, most, first, last, leaves, look)
    costs = PointCosts(
        p.x,
        p.scale,
        p.kind,
        -1 if maximize else 1,
        p.factor,
        p.power,
        p.slip,
        p.blur,
        math.inf if maximize else p.limit,
        fill.address,
        fill.context,
    )
    return Boxed(by_row, order, tree, costs, v, below, (chosen, fill))


def weights(points: Geometry) -> Array:
    """Return scale factors that make widths of boxes comparable among coordinates.

    They affect only speed.
    """
    if points.kind == SQUARE:
        return np.sqrt(points.scale)
    reach: Array = np.abs(points.x).max(axis=0)
    return reach if points.kind == PRODUCT else points.scale


def _row_order(matching: Array | None, order: Array, n: int) -> Array:
    """Order rows by the position of their columns in the tree: neighbours open the same boxes."""
    if matching is None:
        return np.arange(n)
    place = np.empty(order.size + 1, np.int64)
    place[order] = np.arange(order.size)
    place[-1] = order.size
    inside = (matching >= 0) & (matching < order.size)
    return np.argsort(place[np.where(inside, matching, order.size)], kind="stable")
