"""The certificate's pass over the costs: row duals and assigned costs from given prices."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bigsap.errors import CertificateError, OverflowRiskError
from bigsap.proof import scan
from bigsap.proof.exact import two_sum
from bigsap.proof.refusals import overflown, refuse_invalid, too_far
from bigsap.proof.row_pass import Work, gives_parts, stream
from bigsap.sources.base import BoundedMinimised, CostSource, Crewed, Minimised
from bigsap.types import Array, Tick

# Costs that each thread converts at a time: three rows, limited by its cache and by the overhead
# of numpy's calls.
_TILE_ROWS, _LEAST_TILE, _LARGEST_TILE = 3, 1 << 14, 1 << 17
#: Limit of near pairs recorded by each thread: this many a row plus a constant.
_NEAR_A_ROW, _NEAR = 4, 1 << 12
#: Rows whose margin is measured, and number of least differences considered for it.
SAMPLE, _LEAST = 16, 8
#: Differences this close to a row's least, in units of its numbers, are ties.
_TIE = 2.0**-48


@dataclass(frozen=True)
class Prices:
    """Column prices in the minimising sense: the exact price is ``high + low``.

    high: (m,) float64, or int64 for integer costs. low: (m,) float64, None where 0. ``high`` is the
    float nearest to the exact price, so the order of prices is the lexicographic one of parts.
    """

    high: Array
    low: Array | None = None

    @property
    def integer(self) -> bool:
        """Whether the prices are int64."""
        return self.high.dtype.kind == "i"

    def of_first(self, count: int) -> Prices:
        """Return the prices of the first columns, without those of additional ones."""
        return Prices(self.high[:count], None if self.low is None else self.low[:count])

    def below(self) -> Array:
        """``low`` as an array for ``scan``, empty if None."""
        return np.empty(0) if self.low is None else self.low


@dataclass(frozen=True)
class NearPairs:
    """Every pair within ``width`` of its row's least difference, up to rounding.

    rows, columns: (k,) int64. costs: (k,) float64, minimising sense.
    """

    width: float
    rows: Array
    columns: Array
    costs: Array


@dataclass(frozen=True)
class RowMinima:
    """Each row's least ``c - v``, exactly: the sum of three parts, each the rounded remainder.

    high: (n,) float64, +inf for a row without allowed pairs; or int64, the largest number for such
    a row. mid, low: (n,) float64; None if all are 0. matched: (n,) costs of the assigned pairs
    in the user's sense, float64 or int64, 0 for unassigned rows. near: None if not requested, or
    too many. margins: (k,) margins of sampled rows' least differences, without inf.
    cap: (n,) upper limit of a row's costs, minimising sense, inf for no limit; None without any:
    near pairs then are of the costs before clipping.
    """

    high: Array
    mid: Array | None
    low: Array | None
    matched: Array
    near: NearPairs | None = None
    margins: Array | None = None
    cap: Array | None = None


def whole(found: RowMinima) -> scan.Minima:
    """Return real minima with all their parts."""
    n = found.high.size
    mid = np.zeros(n) if found.mid is None else found.mid
    return scan.Minima(found.high, mid, np.zeros(n) if found.low is None else found.low)


def some_parts(found: scan.Minima) -> tuple[Array, Array | None, Array | None]:
    """Return the parts of real minima; None for those that are 0."""
    return (found.high, found.mid if found.mid.any() else None, found.low if found.low.any() else None)


def row_minima(
    source: CostSource,
    matching: Array | None,
    prices: Prices,
    maximize: bool,
    threads: int,
    block_bytes: int,
    tick: Tick | None,
    *,
    names: Array | None = None,
    width: float | None = None,
) -> RowMinima:
    """Read all costs once: the exact row duals and the costs of the assigned pairs.

    matching: (n,) intp, -1 = unassigned; None when there is no assignment.
    prices: float64, or int64 (integer costs only), m at least 1.
    names: (n,) names of the rows in errors; their numbers if None.
    width: record near pairs, see ``NearPairs``; read here, even if the source could make the pass.
    Raises as ``certify`` does. Memory: a block and at most 1 MiB a thread, or two blocks; with
    ``width`` 24 bytes for each near pair.
    """
    if isinstance(source, Minimised) and width is None:
        found = source.row_minima(matching, prices.high, prices.low, maximize, tick or (lambda _: None))
        if found is not None:
            margins = None if prices.integer else _sampled(source, prices, maximize, tick)
            return RowMinima(*found, margins=margins)
    some = _Pass(source, matching, prices, maximize, names, block_bytes, width)
    stream(source, some.prepare, threads=threads, block_bytes=block_bytes, tick=tick)
    return some.found()


def bounded_minima(
    source: CostSource, matching: Array | None, prices: Prices, maximize: bool, tick: Tick | None
) -> tuple[RowMinima, int] | None:
    """Return ``row_minima`` by the source's own bounds, and how many costs were computed; None without."""
    if not isinstance(source, BoundedMinimised):
        return None
    found = source.bounded_minima(matching, prices.high, prices.low, maximize, tick or (lambda _: None))
    if found is None:
        return None
    return RowMinima(*found[0], margins=_sampled(source, prices, maximize, tick)), found[1]


class _Pass:
    """Shared results of the threads of a pass."""

    def __init__(
        self,
        source: CostSource,
        matching: Array | None,
        prices: Prices,
        maximize: bool,
        names: Array | None,
        block_bytes: int,
        width: float | None,
    ) -> None:
        n, m = source.shape
        self.matching, self.prices, self.maximize = matching, prices, maximize
        # A range takes no memory.
        self.called: Sequence[int] | Array = range(n) if names is None else names
        integer = np.dtype(source.dtype).kind in "iu"
        self.matched = np.zeros(n, np.int64 if integer else np.float64)
        self.minima = scan.no_minima(0 if prices.integer else n)
        self.least = np.full(n if prices.integer else 0, _WORST)
        # Rows with too large minima in some part: other parts may have smaller ones.
        self.doubtful: list[int] = []
        size = min(max(_TILE_ROWS * m, _LEAST_TILE), _LARGEST_TILE)
        if gives_parts(source):  # blocks already are such tiles
            size = block_bytes // 8
        self.tile_items = max(1, min(size, block_bytes // 8))
        self.width, self.room = width, 0 if width is None else _NEAR_A_ROW * n + _NEAR
        self.near: list[scan.Near] = []
        self.lock = threading.Lock()
        self.sample = sample_of(n)
        self.smallest = np.full((self.sample.size, _LEAST), np.inf)
        # Differences of finite costs and such prices are finite.
        self.near_zero = max(abs(float(prices.high.min())), abs(float(prices.high.max()))) < 2.0**969
        self.wide = integer and np.dtype(source.dtype).itemsize == 8
        self.ends = (int(prices.high.min()), int(prices.high.max())) if prices.integer else (0, 0)

    def prepare(self) -> Work:
        """Return a thread's work function."""
        if self.prices.integer:
            tile = np.empty(self.tile_items, np.int64)
            return lambda start, first, block: self._integers(start, first, block, tile)
        near = scan.no_near(self.room)
        with self.lock:
            self.near.append(near)
        room = np.empty(self.tile_items)
        return lambda start, first, block: self._floats(start, first, block, near, room)

    def _floats(self, start: int, first: int, block: Array, near: scan.Near, room: Array) -> None:
        k, m = block.shape
        if self.wide and max(-int(block.min()), int(block.max())) > 2**53:
            self._by_fractions(start, first, block)
            near.counts[1] += 1  # no pair is recorded here
        elif _lies_well(block):
            self._scan(start, first, block, near)
        else:
            # Few rows, or part of one, at a time: they stay in the cache.
            height, width = max(1, room.size // m), min(m, room.size)
            for top in range(0, k, height):
                for left in range(0, m, width):
                    given = block[top : top + height, left : left + width]
                    costs = room[: given.size].reshape(given.shape)
                    costs[...] = given
                    self._scan(start + top, first + left, costs, near)
        self._sample(start, first, block)
        self._take_matched(start, first, block)

    def _scan(self, start: int, first: int, block: Array, near: scan.Near) -> None:
        k, m = block.shape
        stride = block.strides[0] // 8
        width = -1.0 if self.width is None else self.width
        flags = scan.scan_rows(
            block.__array_interface__["data"][0],
            stride,
            k,
            m,
            -1.0 if self.maximize else 1.0,
            self.prices.high,
            self.prices.below(),
            start,
            first,
            max(0.0, width),
            self.minima,
            near,
        )
        if not flags & scan.INVALID and (not flags or self.near_zero):
            return
        rows = np.asarray(self.called[start : start + k])
        if flags & scan.INVALID:
            refuse_invalid(block, rows, self.maximize, first)
        prices = self.prices.high[first : first + m]
        with np.errstate(over="ignore"):
            best = ((-block if self.maximize else block) - prices).min(axis=1)
        self._doubt((start + overflown(block, best, rows)).tolist())

    def _by_fractions(self, start: int, first: int, block: Array) -> None:
        """Process integers beyond float64's precision, with prices that int64 cannot hold."""
        columns = slice(first, first + block.shape[1])
        exact = [Fraction(x) for x in self.prices.high[columns].tolist()]
        if self.prices.low is not None:
            below = self.prices.low[columns].tolist()
            exact = [a + Fraction(b) for a, b in zip(exact, below, strict=True)]
        for k, row in enumerate(block.tolist()):
            signed = [-c for c in row] if self.maximize else row
            least = min(c - v for c, v in zip(signed, exact, strict=True))
            r = start + k
            parts = parts_of(least)
            if parts < (self.minima.high[r], self.minima.mid[r], self.minima.low[r]):
                self.minima.high[r], self.minima.mid[r], self.minima.low[r] = parts

    def _integers(self, start: int, first: int, block: Array, tile: Array) -> None:
        k, m = block.shape
        here = slice(first, first + m)
        lowest, highest = self.ends
        best = np.full(k, _WORST)
        if block.dtype.itemsize == 8:
            low, high = int(block.min()), int(block.max())
            ends = (low + lowest, high + highest) if self.maximize else (low - highest, high - lowest)
            if max(-ends[0], ends[1]) >= 2**63 - 1:
                best, beyond = _minima_of_wide(block, self.prices.high[here], self.maximize)
                self._doubt((start + beyond).tolist())
                self._lower(start, best)
                self._take_matched(start, first, block)
                return
        height, width = max(1, tile.size // m), min(m, tile.size)
        for top in range(0, k, height):
            lowest_here = best[top : top + height]
            for left in range(0, m, width):
                costs = block[top : top + height, left : left + width]
                part = self.prices.high[here][left : left + width]
                tau = tile[: costs.size].reshape(costs.shape)
                if self.maximize:
                    np.add(costs, part, out=tau)
                    np.minimum(lowest_here, -tau.max(axis=1), out=lowest_here)
                else:
                    np.subtract(costs, part, out=tau)
                    np.minimum(lowest_here, tau.min(axis=1), out=lowest_here)
        self._lower(start, best)
        self._take_matched(start, first, block)

    def _lower(self, start: int, best: Array) -> None:
        mine = self.least[start : start + len(best)]
        np.minimum(mine, best, out=mine)

    def _doubt(self, rows: list[int]) -> None:
        with self.lock:
            self.doubtful.extend(rows)

    def _sample(self, start: int, first: int, block: Array) -> None:
        """Update the least differences of sampled rows."""
        k, m = block.shape
        places = np.flatnonzero((self.sample >= start) & (self.sample < start + k))
        for place in places.tolist():
            costs = block[self.sample[place] - start].astype(np.float64)
            own = least_differences(
                -costs if self.maximize else costs,
                self.prices.high[first : first + m],
                None if self.prices.low is None else self.prices.low[first : first + m],
            )
            both = np.concatenate((self.smallest[place], own))
            self.smallest[place] = np.sort(both)[:_LEAST]

    def _take_matched(self, start: int, first: int, block: Array) -> None:
        if self.matching is None:
            return
        columns = self.matching[start : start + len(block)]
        (here,) = np.nonzero((columns >= first) & (columns < first + block.shape[1]))
        costs = block[here, columns[here] - first]
        if costs.dtype.kind == "f" and not np.isfinite(costs).all():
            row = here[np.argmin(np.isfinite(costs))]
            raise CertificateError(
                f"the assignment uses the forbidden pair ({self.called[start + row]}, {columns[row]})"
            )
        self.matched[start + here] = costs

    def found(self) -> RowMinima:
        """Return the results of the pass. Raises OverflowRiskError for a row whose dual exceeds its type."""
        high = self.least if self.prices.integer else self.minima.high
        worst = _WORST if self.prices.integer else np.inf
        for row in sorted(self.doubtful):
            if high[row] == worst:
                raise too_far(int(self.called[row]), high.dtype)
        if self.prices.integer:
            return RowMinima(high, None, None, self.matched)
        margins = margins_of(self.smallest)
        return RowMinima(*some_parts(self.minima), self.matched, self._near_pairs(), margins)

    def _near_pairs(self) -> NearPairs | None:
        return None if self.width is None else joined(self.near, self.width)


def joined(found: Sequence[scan.Near], width: float) -> NearPairs | None:
    """Return the near pairs of all threads; None if some did not fit."""
    if any(near.counts[1] for near in found):
        return None
    parts = [np.concatenate([near[k][: near.counts[0]] for near in found]) for k in range(3)]
    return NearPairs(width, *parts)


_WORST = np.int64(np.iinfo(np.int64).max)


def _lies_well(block: Array) -> bool:
    """Check whether the compiled scan can read a block in place."""
    rows, columns = block.strides
    return bool(block.dtype == np.float64 and columns == 8 and rows % 8 == 0 and block.flags.aligned)


def least_differences(costs: Array, prices: Array, low: Array | None) -> Array:
    """Return a few of the least ``c - v`` of a row, sorted, to double-double precision.

    costs: (m,) float64, minimising sense.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        high, rest = two_sum(costs, -prices)
        exact = high + (rest if low is None else rest - low)
    exact = np.where(np.isfinite(exact), exact, np.inf)
    some = min(_LEAST, exact.size)
    return np.sort(np.partition(exact, some - 1)[:some])


def sample_of(n: int) -> Array:
    """Return the rows whose margins are measured."""
    found: Array = np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp))
    return found


def _sampled(source: CostSource, prices: Prices, maximize: bool, tick: Tick | None) -> Array:
    """Return the margins of a sample of rows, for a source that makes the pass itself."""
    rows = sample_of(source.shape[0])
    smallest = np.full((rows.size, _LEAST), np.inf)

    def take(row: int, costs: Array) -> None:
        signed = -costs.astype(np.float64) if maximize else costs.astype(np.float64)
        found = least_differences(signed, prices.high, prices.low)
        smallest[np.searchsorted(rows, row), : found.size] = found

    if isinstance(source, Crewed):
        source.show(rows, take, None if tick is None else lambda: tick(source.shape[0]))
    else:
        costs = np.empty((1, source.shape[1]), source.dtype)
        for row in rows.tolist():
            source.read(np.array([row]), slice(0, source.shape[1]), costs)
            take(row, costs[0])
    return margins_of(smallest)


def margins_of(smallest: Array) -> Array:
    """Return the margins of rows from their least differences (k, few).

    Ties do not count. Rows with only ties are left out.
    """
    first = smallest[:, :1]
    with np.errstate(invalid="ignore", over="ignore"):
        excess = smallest - first
        clear = excess > _TIE * np.abs(first)
    clear &= np.isfinite(excess)
    rows = clear.any(axis=1)
    found: Array = excess[rows, clear[rows].argmax(axis=1)]
    return found


def usual_difference(source: CostSource) -> float:
    """Return what the costs of a row usually differ by: the median deviation from their median.

    The median over sampled rows; shifts of rows, and of a few columns, do not change it. Forbidden pairs
    do not count. Reads up to 16 rows.
    """
    n, m = source.shape
    found = []
    costs = np.empty((1, m), source.dtype)
    for row in np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp)).tolist():
        source.read(np.array([row]), slice(0, m), costs)
        allowed = costs[np.isfinite(costs)].astype(np.float64)
        if allowed.size:
            found.append(float(np.median(np.abs(allowed - np.median(allowed)))))
    return float(np.median(found)) if found else 0.0


def parts_of(value: Fraction) -> tuple[float, float, float]:
    """Return a number as the sum of three floats, the last rounded down."""
    high = float(value)
    mid = float(value - Fraction(high))
    rest = value - Fraction(high) - Fraction(mid)
    low = float(rest)
    return high, mid, low if Fraction(low) <= rest else math.nextafter(low, -math.inf)


def _minima_of_wide(block: Array, prices: Array, maximize: bool) -> tuple[Array, Array]:
    """Return row minima of int64 costs for which c - v may exceed int64, by Python integers.

    Also returns which rows' minima exceed int64; these get the largest number.
    """
    best = []
    for row in block:
        costs = row.astype(object)
        best.append(min((-costs if maximize else costs) - prices.astype(object)))
    if min(best) <= -(2**63):
        raise OverflowRiskError("a row dual leaves int64: the integer costs are too large")
    worst = int(_WORST)
    beyond = np.array([k for k, b in enumerate(best) if b >= worst], dtype=np.intp)
    return np.array([min(b, worst) for b in best], dtype=np.int64), beyond
