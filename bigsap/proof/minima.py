"""The row duals of the certificate: by bounds where that is less work, else by the pass."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import OverflowRiskError
from bigsap.proof.geometry import PRODUCT, SQUARE, Geometry, boundable, geometry, select
from bigsap.proof.row_minima import reach, row_minima
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.proof.together import Left, first_failure, run_together
from bigsap.sources.base import Array, CostSource, Minimised, Resident
from bigsap.sources.filling import fill_of
from bigsap.sources.gated import Gated

#: With fewer rows, or pairs, the pass is over before kernels are loaded and a tree stands.
LEAST_ROWS = 4096
LEAST_PAIRS = 3 << 24
#: Bounds are given up for the pass when they have cost this share of its pairs,
SHARE = 4
#: or of so many rows' pairs, before anything else.
_PROBED = 256
# Rows that a thread takes at a time, and pairs' work between two looks at the clock.
_ROWS = 1024
_WORK = 1 << 24
_PAIRS_AT_ONCE = 1 << 14
# What a row and a column take, tree included: two to three times as long as measured.
_ROW_SECONDS = 5e-6
#: Rows that are looked at whole as well: what a source says of its costs may be wrong.
_SAMPLE = 16


@dataclass(frozen=True)
class Looked:
    """How row duals were found. by: "bounds" or "pairs". pairs: how many costs were looked at,
    in vain too; bounds: how many bounds of boxes were computed."""

    by: str
    pairs: int
    bounds: int = 0


def minima(
    source: CostSource,
    matching: Array | None,
    prices: Array,
    maximize: bool,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Callable[[int], None] | None = None,
    *,
    every_pair: bool = False,
) -> tuple[Array, Array, Looked]:
    """``row_minima`` of (n, m) costs, the same bits, with fewer pairs where bounds allow it.

    every_pair: make the pass whatever bounds could do. Other arguments and errors as of
    ``row_minima``, n and m at least 1. Time O(n m) at worst; O((n + m) log m) where prices
    follow the points. Memory O((n + m) d) beside the pass's.
    """
    pairs = bounds = 0
    if not every_pair and not isinstance(source, Minimised):
        found = by_bounds(source, matching, prices, maximize, threads, tick)
        if isinstance(found, Looked):
            pairs, bounds = found.pairs, found.bounds
        elif found is not None:
            return found
    every = Looked("pairs", pairs + math.prod(source.shape), bounds)
    if isinstance(source, Gated) and _lies_as_it_is(source):
        with suppress(OverflowRiskError):  # the pass over clipped costs says what is wrong
            return *_clipped(source, matching, prices, threads, block_bytes, tick), every
    return *row_minima(source, matching, prices, maximize, threads, block_bytes, tick), every


def _lies_as_it_is(gate: Gated) -> bool:
    """Whether the costs before the gate lie in memory, of the same type."""
    given = gate.given
    here = isinstance(given, Resident) and given.resident() is not None
    return here and given.dtype == gate.dtype and gate.n_columns > 0


def _clipped(
    gate: Gated, matching: Array | None, prices: Array, threads: int, block_bytes: int,
    tick: Callable[[int], None] | None,
) -> tuple[Array, Array]:  # fmt: skip
    """``row_minima`` of the gate's costs from those before it, without copies of blocks."""
    m, maximize = gate.n_columns, gate.maximize
    u, matched = row_minima(gate.given, None, prices[:m], maximize, threads, block_bytes, tick)
    free = np.flatnonzero(np.isfinite(gate.prices))
    cap = (-1 if maximize else 1) * gate.cap[free].astype(prices.dtype)
    if prices.dtype.kind == "i" and max(reach(cap), reach(prices)) >= 1 << 62:
        raise OverflowRiskError("a difference may leave int64")
    # min(c, cap) - v is the less of both differences, rounded as they are; that of the cap is least
    # at the largest price.
    u[free] = np.minimum(u[free], cap - prices.max())
    if matching is not None:
        (rows,) = np.nonzero(matching >= 0)
        matched[rows] = gate.cap[rows]
        rows = rows[matching[rows] < m]
        assert isinstance(gate.given, Resident)
        matrix = gate.given.resident()
        assert matrix is not None
        clip = np.maximum if maximize else np.minimum
        matched[rows] = clip(matrix[rows, matching[rows]], gate.cap[rows])
        if not np.isfinite(matched).all():
            raise OverflowRiskError("a forbidden pair: the pass says which")
    return u, matched


def by_bounds(
    source: CostSource,
    matching: Array | None,
    prices: Array,
    maximize: bool,
    threads: int = 1,
    tick: Callable[[int], None] | None = None,
    *,
    at_any_size: bool = False,
) -> tuple[Array, Array, Looked] | Looked | None:
    """As ``minima``, by bounds alone. None where the source, or its size, is not for them;
    what was looked at in vain when they exclude too little, or a sample of rows that is
    looked at whole says otherwise."""
    from bigsap.sources.compiled import read_pairs

    n, m = source.shape
    pair = boundable(source)
    if pair is None or prices.dtype != np.float64:
        return None
    if not at_any_size and (n < LEAST_ROWS or n * m < LEAST_PAIRS):
        return None
    inner, gate = pair
    points = geometry(inner)
    if points is None:
        return None
    fill = fill_of(source)
    if fill is None:
        return None
    matched = np.zeros(n)
    best = np.full(n, np.inf)
    looked = 0
    if matching is not None:
        rows = np.flatnonzero(matching >= 0)
        for start in range(0, rows.size, _PAIRS_AT_ONCE):
            some = rows[start : start + _PAIRS_AT_ONCE]
            costs = np.empty(some.size)
            read_pairs(fill, some, matching[some], costs)
            matched[some] = costs
            if tick is not None:
                tick(0)
        if not np.isfinite(matched).all():
            return None  # the pass says which is forbidden
        looked = rows.size
        best[rows] = (-matched[rows] if maximize else matched[rows]) - prices[matching[rows]]
    if gate is not None:
        # min(c, cap) - v is the less of c - v and cap - v, rounded as it is; the latter is
        # least at the largest price, further columns included.
        cap = -gate.cap if maximize else gate.cap
        best = np.minimum(best, cap - prices.max())
    with np.errstate(over="ignore"):
        found = _descend(inner, points, best, matching, prices, maximize, threads, tick)
    if found is None:
        return None
    u, pairs, bounds, finished = found
    if not finished:
        return Looked("pairs", looked + pairs, bounds)
    if not np.isfinite(u).all():
        return None  # the pass says what is too far apart
    sample = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    looked += pairs + sample.size * m
    if not _as_read(source, sample, prices, maximize, u):
        return Looked("pairs", looked, bounds)
    return u, matched, Looked("bounds", looked, bounds)


def kernels_by_bounds(source: CostSource) -> list[tuple[Any, tuple[Any, ...]]]:
    """The kernels of a proof by bounds, and arguments of the types that they are called with; the
    longest first. Empty where the source is not for bounds."""
    from bigsap.proof import descent, tree

    pair = boundable(source)
    one = np.zeros(1, np.int64)
    chosen = None if pair is None else select(pair[0], one, one)
    p = None if chosen is None else geometry(chosen)
    if p is None:
        return []
    costs = descent.PointCosts(p.x, p.scale, p.kind, 1, p.factor, p.power, p.slip, p.blur, 0, 0)
    order, first, last, leaves = tree.planted(p.y, _weights(p), lambda: None)
    wide = np.zeros((1, p.y.shape[1]))
    value = np.zeros(1)
    grown = tree.Tree(first, last, wide, wide, wide, wide, value, value, leaves)
    return [
        (descent.descend, (costs, grown, value, one, 0, 1, 1, value, one)),
        (tree._fit, (p.y, value, grown, 0, 1)),
        (tree._split, (p.y, _weights(p), order, first, last, 0, 1)),
    ]


def seconds_by_bounds(source: CostSource) -> float:
    """About how long a proof by bounds takes at most, of prices near a solve's; infinite
    where the source, or its size, is not for bounds."""
    n, m = source.shape
    small = n < LEAST_ROWS or n * m < LEAST_PAIRS
    if small or isinstance(source, Minimised) or boundable(source) is None:
        return math.inf
    return _ROW_SECONDS * (n + m)


def _as_read(source: CostSource, rows: Array, prices: Array, maximize: bool, u: Array) -> bool:
    """Whether these rows' minima are what their costs say, read as the pass reads them."""
    costs = np.empty((1, source.shape[1]), source.dtype)
    for row in rows.tolist():
        source.read(np.array([row]), slice(0, source.shape[1]), costs)
        signed = -costs[0] if maximize else costs[0]
        if (signed - prices).min() != u[row]:
            return False
    return True


def _descend(
    source: CostSource, points: Geometry, best: Array, matching: Array | None, prices: Array,
    maximize: bool, threads: int, tick: Callable[[int], None] | None,
) -> tuple[Array, int, int, bool] | None:  # fmt: skip
    """u (n,), pairs, bounds, and whether it was worth going to the end. best: (n,) of the
    rows, values of ``c - v`` or inf."""
    from bigsap.proof.descent import BOUND_PAIRS, PointCosts, descend
    from bigsap.proof.tree import grown, planted

    n, m = source.shape

    def look() -> None:
        if tick is not None:
            tick(0)

    order, first, last, leaves = planted(points.y, _weights(points), look)
    by_row = _row_order(matching, order, n)
    chosen = select(source, by_row, order)
    # Boxes of the points that its filler computes with.
    p, fill = (None, None) if chosen is None else (geometry(chosen), fill_of(chosen))
    if p is None or fill is None:
        return None
    v = np.ascontiguousarray(prices[order])
    look()
    tree = grown(p.y, v, first, last, leaves, look)
    costs = PointCosts(
        p.x, p.scale, p.kind, -1 if maximize else 1, p.factor, p.power, p.slip, p.blur,
        fill.address, fill.context,
    )  # fmt: skip
    found = best[by_row]
    total = np.zeros(2, np.int64)
    lock = threading.Lock()

    def work_of(counts: Array) -> int:
        return int(counts[0]) + BOUND_PAIRS * int(counts[1])

    def some(rows: Array, start: int, stop: int, budget: int, pause: Callable[[], None]) -> bool:
        """Do these rows; False when more than the budget was spent."""
        while start < stop:
            counts = np.zeros(2, np.int64)
            start = descend(costs, tree, v, rows, start, stop, _WORK, found, counts)
            with lock:
                total[:] += counts
                if work_of(total) > budget:
                    return False
            pause()
        return True

    probed = np.unique(np.linspace(0, n - 1, min(n, _PROBED)).astype(np.int64))
    finished = some(probed, 0, probed.size, probed.size * m // SHARE, look)
    if finished:
        rest = np.delete(np.arange(n), probed)
        finished = _share_out(
            rest.size, threads, look, lambda a, b, pause: some(rest, a, b, n * m // SHARE, pause)
        )
    u = np.empty(n)
    u[by_row] = found
    return u, int(total[0]), int(total[1]), finished


def _weights(points: Geometry) -> Array:
    """What makes widths of boxes comparable, coordinate by coordinate: of no consequence but
    for speed."""
    if points.kind == SQUARE:
        return np.sqrt(points.scale)
    reach: Array = np.abs(points.x).max(axis=0)
    return reach if points.kind == PRODUCT else points.scale


def _row_order(matching: Array | None, order: Array, n: int) -> Array:
    """Rows by the place of their columns in the tree: neighbours open the same boxes."""
    if matching is None:
        return np.arange(n)
    place = np.empty(order.size + 1, np.int64)
    place[order] = np.arange(order.size)
    place[-1] = order.size
    inside = (matching >= 0) & (matching < order.size)
    return np.argsort(place[np.where(inside, matching, order.size)], kind="stable")


def _share_out(
    count: int, threads: int, look: Callable[[], None],
    some: Callable[[int, int, Callable[[], None]], bool],
) -> bool:  # fmt: skip
    """``some(start, stop, pause)`` over all of ``count``, by several threads; False once one of
    them is. look: called many times a second, by the calling thread; what it raises, or a
    thread, ends all, at their next ``pause``."""
    lock = threading.Lock()
    ended = threading.Event()
    failures: list[tuple[int, BaseException]] = []
    taken = 0
    refused = threading.Event()

    def run(pause: Callable[[], None]) -> None:
        nonlocal taken
        try:
            while not ended.is_set():
                with lock:
                    start = taken
                    taken += _ROWS
                if start >= count:
                    return
                if not some(start, min(count, start + _ROWS), pause):
                    refused.set()
                    ended.set()
        except Left:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            failures.append((len(failures), error))
            ended.set()

    def leave() -> None:
        if ended.is_set():
            raise Left

    members = min(threads, -(-count // _ROWS))
    if members <= 1:
        run(look)
    else:
        run_together(members, lambda: run(leave), look, ended)
    if failures:
        raise first_failure(failures)
    return not refused.is_set()
