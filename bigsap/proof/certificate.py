"""Proof of a result: a pass over the costs, or bounds of them, without engine code.

Everything below is stated for minimising; when maximising, ``c`` is minus the cost.
``c`` is (n, m), ``v`` any m finite prices. With ``u[i] = min_j (c[i, j] - v[j])``
the pair (u, v) is dual feasible, ``u[i] + v[j] <= c[i, j]``, whatever ``v`` is, so

* n = m:  every assignment costs at least ``sum(u) + sum(v)`` (v is shifted so that
  its largest is 0);
* n < m:  only n columns are used, so at least ``sum(u)`` + the n smallest ``v``.
  Capping v at its n-th smallest value ``t`` and subtracting ``t`` before the pass
  makes that ``sum(u) + sum(v)`` with v <= 0 (v = 0 on the free columns if the
  assignment is optimal), and can only raise the bound;
* n > m:  only m rows are used, so at least ``sum(v)`` + the m smallest ``u``. With
  ``t`` the m-th smallest u, ``u' = min(u - t, 0)`` and ``v' = v + t`` make it
  ``sum(u') + sum(v')`` with u' <= 0 (u' = 0 on the unassigned rows if optimal).

*All of it is exact*, for the doubles or integers that the source returns: prices are
pairs of doubles, row minima sums of three (``scan``), all sums expansions (``exact``). Only the
reported values are rounded: ``bound`` to the safe side, ``fun`` to nearest, ``gap`` up. For integer
costs the optimum is an integer, so the bound is rounded to the next integer on the safe side.

Prices of a solve carry the rounding of their many updates. If the gap is larger than allowed,
``tighten`` corrects them by that amount, with low parts; the assignment stays the same.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bigsap import policy
from bigsap.errors import CertificateError, OverflowRiskError, quiet
from bigsap.proof.conclusion import SHARE, Claimed, conclude
from bigsap.proof.exact import three_sum, two_sum
from bigsap.proof.limits import CLEAR, DOUBTFUL, HUGE, MARGIN
from bigsap.proof.listed import listed_columns
from bigsap.proof.minima import Looked, may_bound, minima
from bigsap.proof.refusals import reach, refuse_invalid, refuse_masked
from bigsap.proof.row_minima import Prices, usual_difference
from bigsap.proof.row_pass import BLOCK_BYTES, Work, stream
from bigsap.proof.tighten import tightened
from bigsap.sources.base import CostSource, Minimised, Sparse, integral
from bigsap.types import Array, Tick

#: Near pairs are within this share of the prices' spread. Corrections of the prices are smaller: of
#: 1,024,000 points in neighbouring squares the largest is 1.3 times 2**-40 of it.
_WIDTH = 2.0**-38


@dataclass(frozen=True, eq=False)
class Certificate:
    """Result of a pass over the costs, or bounds of them.

    fun: cost of the assignment, in the user's sense, the double nearest to it; an ``int`` for
        integer costs. None without an assignment.
    bound: no assignment is better than this (lower bound when minimising, upper
        bound when maximising), in spite of any rounding.
    gap: the exact cost less the exact bound, rounded up. It may differ from ``fun - bound`` by
        a unit in the last place of these.
    u, v: (n,), (m,) duals in the user's sense, normalised as the module's text says.
        float64; int64 only for integers that float64 cannot hold.
    u_low, v_low: low parts of the duals, which are ``u + u_low`` and ``v + v_low``; None where
        all are 0. With them ``u[i] + v[j] <= c[i, j]`` (``>=`` when maximising) for every pair, as
        real numbers, and their sum is the bound up to 1e-32 of the duals (up to less than 1 when
        costs are integers but prices are not).
    worst_row, worst_violation: the assigned row farthest from tight (-1: none).
    pairs: how many pairs were read.
    by: "pairs", every one was; "bounds", the others were excluded by bounds of their costs.
    bounds: how many bounds were computed.
    exact: integer costs whose optimality is proved.
    optimal: ``gap <= 2**-50 * size``, about 1e-15 of the assigned costs' sizes; 0 for
        integers.
    size: the sum of the magnitudes of the assigned costs.
    margin: the median, over sampled rows, of the margin by which the best column wins; None if
        unknown. Shifts and scales of the costs do not change its ratio to a gap.
    deviation: the assigned costs' median absolute deviation, which a few huge costs do not change.
    matched: (n,) the cost of each row's pair, in the user's sense; without a meaning where a row has
        none (with ``unassigned_cost`` its price). None without an assignment.
    usual: what the costs of a row usually differ by, see ``usual_difference``; None where not looked at.
    """

    fun: int | float | None
    bound: float
    gap: float | None
    u: Array
    v: Array
    worst_row: int
    worst_violation: float
    pairs: int
    exact: bool
    optimal: bool
    u_low: Array | None = None
    v_low: Array | None = None
    by: str = "pairs"
    bounds: int = 0
    size: float = 0.0
    margin: float | None = None
    deviation: float = 0.0
    matched: Array | None = None
    usual: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the gap is also small beside the margins, so that no other assignment is better.

        With many rows some margins are tiny. Then the gap must be within SHARE of the magnitudes,
        measured by the deviation of most costs instead of the few largest. If prices are huge, all margins
        may be ties; if a few costs are, margins may be huge. So what costs usually differ by, and the size
        of the smaller assigned costs, limit them.
        """
        if not self.gap:
            return True
        usual, low = self.usual or 0.0, self._low
        if not self.margin:
            most = max(usual, self.typical)
            most = min(most, HUGE * low) if low else most
            return not 0.0 < self.u.size * CLEAR * most < self.gap
        margin = min(self.margin, MARGIN * usual) if usual else self.margin
        margin = min(margin, HUGE * low) if low else margin
        small = max(CLEAR * margin, min(1e-6 * margin, SHARE * self.deviation))
        return bool(self.gap <= self.u.size * small)

    @property
    def _low(self) -> float:
        """Size that a quarter of the assigned costs do not exceed; 0 without an assignment."""
        if self.matched is None or not self.matched.size:
            return 0.0
        place = self.matched.size // 4
        return float(np.partition(np.abs(self.matched), place)[place])

    @property
    def typical(self) -> float:
        """Median size of a pair's cost; 0 without an assignment."""
        return 0.0 if self.matched is None else float(np.median(np.abs(self.matched)))

    def measured(self, source: CostSource) -> Certificate:
        """Return the certificate with ``usual``, where ``clear`` needs it. Reads a few rows."""
        if not (self.gap and self.optimal) or isinstance(source, Sparse):
            return self
        typical = self.typical
        if self.gap <= self.u.size * CLEAR * typical or 0.0 < (self.margin or 0.0) <= DOUBTFUL * typical:
            return self
        return replace(self, usual=usual_difference(source))


@quiet
def certify(
    source: CostSource,
    col4row: npt.ArrayLike | None,
    v: npt.ArrayLike,
    v_low: npt.ArrayLike | None = None,
    *,
    maximize: bool = False,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Tick | None = None,
    normalise: bool = True,
    not_above_zero: bool = False,
    pairs: bool = False,
) -> Certificate:
    """Prove how far an assignment can be from the optimum, in one pass over the costs.

    col4row: (n,) integers, the column of each row, -1 = unassigned; a complete
        assignment of min(n, m) pairs. None: prove the bound alone.
    v: (m,) any finite prices **in the minimising sense** (of minus the cost when
        maximising), as the engine keeps them. The better the prices, the smaller
        the gap; no prices can make the bound wrong.
    v_low: (m,) low parts, for prices ``v + v_low``.
    threads, block_bytes, tick: see ``row_pass.stream``.
    normalise: False takes v as it is (capped at 0 when n < m) and t = 0 when n > m,
        which is what ``Result.verify`` needs; True finds the best shift, and corrects
        the prices' rounding where that is needed.
    not_above_zero: shift prices of a square problem, too, so that their largest is exactly 0;
        otherwise those in two parts stay as they are.
    pairs: read every pair. Otherwise, if boxes of points bound the costs (``points`` of
        every metric, ``lowrank`` with finite terms, both also with ``unassigned_cost``), pairs
        that a bound excludes are not read; the certificate is the same, bit for bit,
        but for ``pairs``, ``by``, ``bounds`` and ``margin``.

    Raises CertificateError when ``col4row`` is not a complete assignment of allowed
    pairs, InvalidCostError (first row and column) for NaN and the infinity that does
    not mean *forbidden*, OverflowRiskError when numbers leave int64 or float64.
    Time O(n m), or about O((n + m) log m) with bounds; memory two blocks a thread, and ten
    vectors, with bounds the points twice more and a tree of them.
    """
    n, m = source.shape
    for what, numbers in (("col4row", col4row), ("v", v), ("v_low", v_low)):
        refuse_masked(what, numbers)
    integer = integral(source)
    matching = None if col4row is None else complete_matching(col4row, n, m)
    prices = checked_prices(v, m, integer, v_low)
    if n == 0 or m == 0:
        return _empty(n, m, integer, bound_only=matching is None)
    if not prices.integer:
        with np.errstate(over="ignore"):
            if not math.isfinite(float(prices.high.max() - prices.high.min())):
                raise OverflowRiskError("the prices are too far apart for float64")
    if normalise:
        prices = shifted(prices, n, m, not_above_zero, parted=v_low is not None and not prices.integer)
    elif n < m:
        prices = capped_at_zero(prices)
    tighten = normalise and matching is not None and not prices.integer and n <= m
    width = _WIDTH * spread(prices.high) if tighten else None
    # Passes made by others record near pairs only on demand, bounds if they are few.
    on_demand, if_few = isinstance(source, (Minimised, Sparse)), not pairs and may_bound(source)
    given = (source, matching, prices, maximize, threads, block_bytes, tick)
    found, looked = minima(*given, every_pair=pairs, width=None if on_demand else width, if_few=if_few)

    def concluded(prices: Prices, found: Any) -> Certificate:
        return certificate_of(conclude(n, m, matching, found, prices, maximize, integer, normalise), looked)

    certificate = concluded(prices, found).measured(source)
    if width is None or matching is None or (certificate.optimal and certificate.clear):
        return certificate
    if certificate.gap is None or certificate.gap > n * width:
        return certificate  # not caused by rounding
    if on_demand or (if_few and found.near is None):
        found, again = minima(*given, every_pair=pairs, width=width)
        looked = replace(looked, pairs=looked.pairs + again.pairs, bounds=looked.bounds + again.bounds)
    signed = np.asarray((-1 if maximize else 1) * found.matched, np.float64)
    limit = SHARE * certificate.size
    better = tightened(found, matching, signed, prices, limit, limited=not_above_zero)
    if better is None:
        return certificate
    closer = replace(concluded(better[1], better[0]), usual=certificate.usual).measured(source)
    return closer if (closer.gap or 0) < (certificate.gap or 0) else certificate


def certify_infeasible(
    source: CostSource,
    violator: npt.ArrayLike,
    *,
    maximize: bool = False,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Tick | None = None,
    capacity: Array | None = None,
    demand: Array | None = None,
) -> Certificate:
    """Prove by Hall's theorem that no complete assignment exists.

    violator: (k,) row ids whose allowed columns are too few: with N of them allowed
    together, ``k - N > max(n - m, 0)``, more rows than may stay without a column.
    capacity: (m,) rows that each column may take, if every row needs one: N is their sum. demand: (n,)
    columns that each row needs: k is their sum.
    Raises CertificateError when that is not so. Reads k rows, O(k m).
    """
    n, m = source.shape
    rows = np.atleast_1d(np.asarray(violator))
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(rows) == 0:
        raise CertificateError("the violating set must be a non-empty list of row numbers")
    rows = np.sort(rows.astype(np.intp))
    if rows[0] < 0 or rows[-1] >= n or (np.diff(rows) == 0).any():
        raise CertificateError(f"the violating set must hold distinct rows of 0 to {n - 1}")
    forbidden = -math.inf if maximize else math.inf
    duals = np.full(n, np.nan), np.full(m, np.nan)
    allowed = np.zeros(m, dtype=bool)
    if isinstance(source, Sparse):
        allowed[listed_columns(source, rows, maximize)] = True
        _refuse_enough(rows, allowed, n, m, capacity, demand)
        return Certificate(
            None, forbidden, None, *duals, -1, 0.0, source.entries().columns.size, False, False
        )
    lock = threading.Lock()

    def prepare() -> Work:
        def work(start: int, first: int, block: Array) -> None:
            if block.dtype.kind == "f":
                refuse_invalid(block, rows[start:], maximize, first)
            seen = (block != forbidden).any(axis=0)
            with lock:
                allowed[first : first + seen.size] |= seen

        return work

    stream(source, prepare, rows=rows, threads=threads, block_bytes=block_bytes, tick=tick)
    _refuse_enough(rows, allowed, n, m, capacity, demand)
    return Certificate(None, forbidden, None, *duals, -1, 0.0, len(rows) * m, False, False)


def _refuse_enough(
    rows: Array, allowed: Array, n: int, m: int, capacity: Array | None, demand: Array | None
) -> None:
    """Raise CertificateError where the allowed columns do not rule out an assignment."""
    n_rows = len(rows) if demand is None else int(demand[rows].sum())
    n_allowed = int(np.count_nonzero(allowed) if capacity is None else capacity[allowed].sum())
    left_over = max(n - m, 0) if capacity is None and demand is None else 0
    if n_rows - n_allowed <= left_over:
        raise CertificateError(
            f"the violating set of {n_rows} row(s) has {n_allowed} allowed column(s), which"
            " does not rule out an assignment"
        )


def certificate_of(claimed: Claimed, looked: Looked) -> Certificate:
    """Return the certificate of a conclusion."""
    return Certificate(**vars(claimed), pairs=looked.pairs, by=looked.by, bounds=looked.bounds)


def spread(v: Array) -> float:
    """Return the spread of most prices, ignoring a few of another magnitude."""
    low, high = v.size // 20, v.size - 1 - v.size // 20
    ordered = np.partition(v, (low, high))
    found = float(ordered[high] - ordered[low])
    return found if found > 0 else float(v.max() - v.min())


def shifted(prices: Prices, n: int, m: int, always: bool, *, parted: bool) -> Prices:
    """Shift prices so that the largest is 0; with columns left over, the n-th smallest, and cap at 0.

    Prices of a square problem stay as they are if a few are so large that a shift would round the
    others. parted: they were given in two parts, even if all low ones are 0: nothing is rounded.
    """
    high, low = prices.high, prices.low
    if low is None and not parted:
        if n < m:
            return Prices(np.minimum(high - np.partition(high, n - 1)[n - 1], 0))
        top = high.max()
        if n == m and not always:
            place = m - 1 - m // policy.FEW_OUTLIERS
            if top - np.partition(high, place)[place] > policy.OUTLYING * spread(high):
                return prices
        # Changes the difference of two prices only if it rounds one.
        return Prices(high - top)
    if n > m or (n == m and not always):
        return prices
    low = np.zeros(m) if low is None else low
    at = np.lexsort((low, high))[n - 1]
    total, rest = two_sum(high, -high[at])
    total, mid, _ = three_sum(total, rest, low - low[at])
    return capped_at_zero(Prices(total, mid))


def capped_at_zero(prices: Prices) -> Prices:
    """Return the prices capped at 0."""
    if prices.low is None:
        return Prices(np.minimum(prices.high, 0))
    above = prices.high + prices.low > 0
    return Prices(np.where(above, 0.0, prices.high), np.where(above, 0.0, prices.low))


def columns_in_range(col4row: npt.ArrayLike, n: int, m: int) -> Array:
    """Return the columns (n,) of rows, each -1 or one of m; raises CertificateError for anything else."""
    columns = np.asarray(col4row)
    if columns.shape != (n,) or (columns.size and columns.dtype.kind not in "iu"):
        raise CertificateError(f"col4row must be {n} integers, got {columns.dtype} of shape {columns.shape}")
    outside = np.flatnonzero((columns < -1) | (columns >= m))
    if outside.size:
        row = int(outside[0])
        raise CertificateError(f"row {row} is assigned to column {columns[row]}, outside 0..{m - 1}")
    return columns.astype(np.intp)  # large unsigned numbers would wrap


def complete_matching(col4row: npt.ArrayLike, n: int, m: int) -> Array:
    """Return the columns (n,) of a complete assignment; raises CertificateError for anything else."""
    matching = columns_in_range(col4row, n, m)
    columns = matching[matching >= 0]
    counts = np.bincount(columns, minlength=1)
    if counts.max() > 1:
        column = int(np.argmax(counts > 1))
        rows = np.flatnonzero(matching == column)[:2]
        raise CertificateError(f"column {column} is assigned to rows {rows[0]} and {rows[1]}")
    if columns.size != min(n, m):
        raise CertificateError(
            f"the assignment is incomplete: {columns.size} pairs where {min(n, m)} are possible"
        )
    return matching


def checked_prices(v: npt.ArrayLike, m: int, integer: bool, v_low: npt.ArrayLike | None = None) -> Prices:
    """Return (m,) finite prices of a dtype that suits the costs; raises CertificateError."""
    low = None if v_low is None else np.asarray(v_low)
    if low is not None:
        if low.shape != (m,) or low.dtype.kind not in "biuf" or not np.isfinite(low).all():
            raise CertificateError(f"v_low must be {m} finite numbers")
        low = low.astype(np.float64) if low.any() else None
    prices = np.asarray(v)
    if prices.shape != (m,) or (prices.size and prices.dtype.kind not in "biuf"):
        raise CertificateError(f"v must be {m} real numbers, got {prices.dtype} of shape {prices.shape}")
    if not np.isfinite(prices).all():
        column = int(np.argmin(np.isfinite(prices)))
        raise CertificateError(f"v[{column}] is {prices[column]}, not a finite number")
    if integer and low is None and (prices.dtype.kind in "biu" or (prices == np.rint(prices)).all()):
        if m and (reach(prices) >= 2**63 or int(prices.max()) - int(prices.min()) >= 2**63):
            raise OverflowRiskError("the prices, or their differences, leave int64")
        return Prices(prices.astype(np.int64))
    high = prices.astype(np.float64)
    if low is None:
        return Prices(high)
    with np.errstate(over="ignore", invalid="ignore"):
        high, low = two_sum(high, low)
    if not np.isfinite(high).all():
        raise OverflowRiskError("the prices leave float64")
    return Prices(high, low if low.any() else None)


def _empty(n: int, m: int, integer: bool, bound_only: bool) -> Certificate:
    """Return the certificate if there is nothing to assign: the optimum is 0."""
    zero = 0 if integer else 0.0
    fun, gap = (None, None) if bound_only else (zero, zero)
    duals = np.zeros(n), np.zeros(m)
    return Certificate(fun, zero, gap, *duals, -1, 0.0, 0, integer, not bound_only)
