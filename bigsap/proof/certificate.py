"""The proof of a result: a pass over the costs, or bounds of them, and no engine code.

Everything below is said for minimising; when maximising, ``c`` is minus the cost.
``c`` is (n, m), ``v`` any m finite prices. With ``u[i] = min_j (c[i, j] - v[j])``
the pair (u, v) is dual feasible, ``u[i] + v[j] <= c[i, j]``, whatever ``v`` is, so

* n = m:  every assignment costs at least ``sum(u) + sum(v)`` (v is shifted so that
  its largest is 0);
* n < m:  only n columns are used, so at least ``sum(u)`` + the n smallest ``v``.
  Capping v at its n-th smallest value ``t`` and subtracting ``t`` before the pass
  makes that ``sum(u) + sum(v)`` with v <= 0 (v = 0 on the free columns when the
  assignment is optimal), and can only raise the bound;
* n > m:  only m rows are used, so at least ``sum(v)`` + the m smallest ``u``. With
  ``t`` the m-th smallest u, ``u' = min(u - t, 0)`` and ``v' = v + t`` make it
  ``sum(u') + sum(v')`` with u' <= 0 (u' = 0 on the unassigned rows when optimal).

The gap is not taken as a difference of two large sums but as the sum of its parts,
all of them non-negative: the violations ``s[i] = (c[i, j] - v[j]) - u[i]`` of the
assigned pairs; ``-v`` of the free columns (n < m); ``-u'`` of the unassigned rows
and ``max(u - t, 0)`` of the assigned ones (n > m). ``bound = fun - gap``.

*Rounding.* ``fl(a - b) = (a - b)(1 + d)`` with ``|d| <= 2^-53`` and ``math.fsum``
rounds once, hence ``fun - bound`` is within ``Certificate.rounding`` = 2^-52 times
the sum of all magnitudes that enter. Integer costs: with integral prices all of it
is exact integer arithmetic; with other prices ``fun - floor(gap + rounding)`` is
still a bound, because the optimum is an integer: a gap below 1 proves optimality.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bigsap.errors import CertificateError, OverflowRiskError
from bigsap.proof.minima import minima
from bigsap.proof.row_minima import reach, refuse_invalid
from bigsap.proof.row_pass import BLOCK_BYTES, Work, stream
from bigsap.proof.tightness import UNIT, Tightness, allowance
from bigsap.sources.base import Array, CostSource

#: Rounding of a bound that is not worth a word, as a share of it.
_VISIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a pass over the costs, or bounds of them, has proved.

    fun: cost of the assignment, in the user's sense; an ``int`` for integer costs.
        None when no assignment was given.
    bound: no assignment is better than this (lower bound when minimising, upper
        bound when maximising). ``gap = |fun - bound|``.
    u, v: (n,), (m,) duals in the user's sense, normalised as the module's text says:
        ``u[i] + v[j] <= c[i, j]`` (``>=`` when maximising) for every pair and
        ``sum(u) + sum(v) == bound`` up to rounding (and up to less than 1 when costs
        are integers but prices are not). float64; int64 only for integers that
        float64 cannot hold.
    worst_row, worst_violation: the assigned row farthest from tight (-1: none).
    pairs: how many pairs were looked at.
    by: "pairs", every one was; "bounds", the others were excluded by bounds of their costs.
    bounds: how many bounds were computed.
    exact: integer costs whose optimality is proved without any rounding.
    rounding: radius within which ``gap`` is known.
    optimal: no part of the gap exceeds what rounding explains (see ``allowance``);
        for integer costs the same as ``exact``.
    loose_rows: (k,) intp, the assigned rows whose violation rounding cannot explain.
    magnitude: the size of the numbers that were rounded, cost units: of the prices as they
        were given, before they were normalised, and of what was subtracted from them. Prices
        that lie near 0 here may be differences of large ones. 0 where all is exact.
    """

    fun: float | None
    bound: float
    gap: float | None
    u: Array
    v: Array
    worst_row: int
    worst_violation: float
    pairs: int
    exact: bool
    rounding: float
    optimal: bool
    loose_rows: Array = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    magnitude: float = 0.0
    by: str = "pairs"
    bounds: int = 0


def certify(
    source: CostSource,
    col4row: npt.ArrayLike | None,
    v: npt.ArrayLike,
    *,
    maximize: bool = False,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Callable[[int], None] | None = None,
    normalise: bool = True,
    magnitude: float = 0.0,
    pairs: bool = False,
) -> Certificate:
    """Prove how far an assignment can be from the optimum, in one pass over the costs.

    col4row: (n,) integers, the column of each row, -1 = unassigned; a complete
        assignment of min(n, m) pairs. None: prove the bound alone.
    v: (m,) any finite prices **in the minimising sense** (of minus the cost when
        maximising), as the engine keeps them. The better the prices, the smaller
        the gap; no prices can make the bound wrong.
    threads, block_bytes, tick: see ``streaming.stream``.
    normalise: False takes v as it is (capped at 0 when n < m) and t = 0 when n > m,
        which is what ``Result.verify`` needs; True finds the best shift.
    magnitude: that of an earlier certificate, where v comes from one: its rounding
        excuses a pair that is not tight. It changes neither fun, bound nor gap.
    pairs: look at every pair. Otherwise, where boxes of points bound the costs (``points`` of
        every metric, ``lowrank`` with finite terms, both also with ``unassigned_cost``), pairs
        that a bound excludes are not looked at; the certificate is the same, bit for bit,
        but for ``pairs``, ``by`` and ``bounds``.

    Raises CertificateError when ``col4row`` is not a complete assignment of allowed
    pairs, InvalidCostError (first row and column) for NaN and the infinity that does
    not mean *forbidden*, OverflowRiskError when integers leave int64.
    Time O(n m), or about O((n + m) log m) with bounds; memory two blocks a thread, and six
    vectors, with bounds the points twice more and a tree of them.
    """
    n, m = source.shape
    integer = np.dtype(source.dtype).kind in "iu"
    matching = None if col4row is None else _complete_matching(col4row, n, m)
    prices = checked_prices(v, m, integer)
    if n == 0 or m == 0:
        return _empty(n, m, integer, bound_only=matching is None)
    with np.errstate(over="ignore"):
        largest = float(prices.max() - prices.min())
    if not math.isfinite(largest):
        raise OverflowRiskError("the prices are too far apart for float64")
    if not normalise:
        prices = np.minimum(prices, 0) if n < m else prices
    elif n < m:
        prices = np.minimum(prices - np.partition(prices, n - 1)[n - 1], 0)
    else:
        # Changes no difference between prices, but keeps c - v from losing digits.
        prices = prices - prices.max()
    u, matched, looked = minima(
        source, matching, prices, maximize, threads, block_bytes, tick, every_pair=pairs
    )
    if prices.dtype.kind == "i" and max(reach(u), reach(prices), reach(matched)) > 2**60:
        u, prices, matched = (a.astype(object) for a in (u, prices, matched))  # Python ints
    proof = conclude(
        n, m, matching, u, prices, matched, maximize, integer, largest, normalise, magnitude
    )  # fmt: skip
    return replace(proof, pairs=looked.pairs, by=looked.by, bounds=looked.bounds)


def certify_infeasible(
    source: CostSource,
    violator: npt.ArrayLike,
    *,
    maximize: bool = False,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
    tick: Callable[[int], None] | None = None,
) -> Certificate:
    """Prove by Hall's theorem that no complete assignment exists.

    violator: (k,) row ids whose allowed columns are too few: with N of them allowed
    together, ``k - N > max(n - m, 0)``, more rows than may stay without a column.
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
    allowed = np.zeros(m, dtype=bool)
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
    n_allowed = int(np.count_nonzero(allowed))
    if len(rows) - n_allowed <= max(n - m, 0):
        raise CertificateError(
            f"the violating set of {len(rows)} row(s) has {n_allowed} allowed column(s), which"
            " does not rule out an assignment"
        )
    return Certificate(
        None, forbidden, None, np.full(n, np.nan), np.full(m, np.nan), -1, 0.0,
        len(rows) * m, False, 0.0, False,
    )  # fmt: skip


def _complete_matching(col4row: npt.ArrayLike, n: int, m: int) -> Array:
    matching = np.asarray(col4row)
    if matching.shape != (n,) or (matching.size and matching.dtype.kind not in "iu"):
        raise CertificateError(
            f"col4row must be {n} integers, got {matching.dtype} of shape {matching.shape}"
        )
    matching = matching.astype(np.intp)
    if matching.size and (matching.min() < -1 or matching.max() >= m):
        row = int(np.argmax((matching < -1) | (matching >= m)))
        raise CertificateError(f"row {row} is assigned to column {matching[row]}, outside 0..{m}")
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


def checked_prices(v: npt.ArrayLike, m: int, integer: bool) -> Array:
    """``v`` as (m,) finite prices of a dtype that suits the costs, or CertificateError."""
    prices = np.asarray(v)
    if prices.shape != (m,) or (prices.size and prices.dtype.kind not in "biuf"):
        raise CertificateError(
            f"v must be {m} real numbers, got {prices.dtype} of shape {prices.shape}"
        )
    if not np.isfinite(prices).all():
        column = int(np.argmin(np.isfinite(prices)))
        raise CertificateError(f"v[{column}] is {prices[column]}, not a finite number")
    if m and integer and (prices.dtype.kind in "biu" or (prices == np.rint(prices)).all()):
        if reach(prices) >= 2**63 or int(prices.max()) - int(prices.min()) >= 2**63:
            raise OverflowRiskError("the prices, or their differences, leave int64")
        return prices.astype(np.int64)
    return prices.astype(np.float64)


def exact_sum(a: Array) -> Any:
    """The exact sum: an int for integers, the correctly rounded sum for floats."""
    if a.dtype == object:
        return sum(a.tolist())
    if a.dtype.kind == "i":
        # Halves, because the sum of n int64 numbers need not fit into int64.
        return (int((a >> 32).sum()) << 32) + int((a & 0xFFFFFFFF).sum())
    try:
        total = math.fsum(a)
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise OverflowRiskError("the sum of the costs leaves float64")
    return total


def _user_dual(dual: Array, sign: int) -> Array:
    """A dual in the user's sense; adding 0 turns -0.0 into 0.0."""
    if dual.dtype == np.float64:
        signed = np.asarray(sign * dual)
        signed += 0
        return signed
    largest = reach(dual)
    if largest >= 2**63:
        raise OverflowRiskError("a dual leaves int64: the integer costs are too large")
    return (sign * dual).astype(np.float64 if largest <= 2**53 else np.int64)


def _bound_alone(
    n: int, m: int, u: Array, prices: Array, threshold: Any, integer: bool, largest: float
) -> tuple[Any, float]:
    """The bound without an assignment, rounded up to an integer for integer costs."""
    if threshold == math.inf or (n <= m and (u == math.inf).any()):
        return math.inf, 0.0  # too few rows have an allowed column
    bound = exact_sum(u) + exact_sum(prices)
    if prices.dtype != np.float64:
        return bound, 0.0
    size = float(np.abs(u).sum() + np.abs(prices).sum())
    noise = 2 * UNIT * (size + (n + m) * (largest + abs(float(threshold))))
    return (math.ceil(bound - noise) if integer else bound), noise


def _empty(n: int, m: int, integer: bool, bound_only: bool) -> Certificate:
    """Nothing to assign: the optimum is 0."""
    zero = 0 if integer else 0.0
    fun, gap = (None, None) if bound_only else (zero, zero)
    duals = np.zeros(n), np.zeros(m)
    return Certificate(fun, zero, gap, *duals, -1, 0.0, 0, integer, 0.0, not bound_only)


def conclude(
    n: int,
    m: int,
    matching: Array | None,
    u: Array,
    prices: Array,
    matched: Array,
    maximize: bool,
    integer: bool,
    largest: float,
    normalise: bool,
    magnitude: float,
) -> Certificate:
    """Put the parts of the gap together. u, prices: in the minimising sense."""
    sign = -1 if maximize else 1
    raw_u, raw_prices = u, prices
    threshold: Any = 0
    if n > m:
        if normalise:
            threshold = np.sort(u)[m - 1] if u.dtype == object else np.partition(u, m - 1)[m - 1]
        if threshold != math.inf:
            u, prices = np.minimum(u - threshold, 0), prices + threshold
    duals = _user_dual(u, sign), _user_dual(prices, sign)
    if matching is None:
        bound, noise = _bound_alone(n, m, u, prices, threshold, integer, largest)
        return Certificate(None, sign * bound, None, *duals, -1, 0.0, n * m, False, noise, False)

    # What the free columns, or the unassigned rows and those above the threshold, add.
    surplus = prices[:0]
    if n < m:
        free = np.ones(m, dtype=bool)
        free[matching[matching >= 0]] = False
        surplus = -prices[free]
    elif n > m:
        here = matching >= 0
        above = np.maximum(raw_u[here] - threshold, 0)
        surplus = np.concatenate((-u[~here], above))
    fun = exact_sum(matched)
    real = prices.dtype == np.float64
    # Times UNIT before they are added, because the sum of magnitudes may overflow.
    shift = UNIT * largest + UNIT * abs(float(threshold)) if real else None
    earlier = UNIT * magnitude
    pairs = Tightness(max(n, m), shift, earlier)
    pairs.judge(matching, sign, matched, raw_u, raw_prices)
    if pairs.negative or (surplus < 0).any():
        raise CertificateError("the certificate contradicts itself: a negative part of the gap")

    gap = exact_sum(raw_u) + exact_sum(surplus)
    if shift is not None:
        noise = 2 * (pairs.noise + float((UNIT * surplus).sum()) + UNIT * abs(fun))
        allowed = allowance(max(n, m), shift + earlier + pairs.largest)
        magnitude = max(magnitude, largest + 3 * abs(float(threshold)) + 2 * pairs.largest / UNIT)
        tight = not pairs.loose and not (surplus > allowed).any()
    else:
        noise, tight, magnitude = 0.0, gap == 0, 0.0
    if integer:
        # The optimum is an integer, at least fun - (gap + noise).
        gap = math.floor(gap + noise)
        tight = gap == 0
    bound = fun - sign * gap
    if real and not (integer or tight) and noise > _VISIBLE * abs(bound):
        # The difference of sums that are many times as large may lie clearly above the optimum: it
        # is less what rounding explains, or what the duals prove alone.
        u, prices = sign * duals[0], sign * duals[1]
        alone, error = _bound_alone(n, m, u, prices, threshold, integer, largest)
        proved = [sign * bound - noise]
        if math.isfinite(alone - error):
            proved.append(alone - error)
        bound = sign * max(proved)
    return Certificate(
        fun=fun,
        bound=bound,
        gap=abs(fun - bound),
        u=duals[0],
        v=duals[1],
        worst_row=pairs.worst_row,
        worst_violation=pairs.worst,
        pairs=n * m,
        exact=integer and tight,
        rounding=noise,
        optimal=tight,
        loose_rows=np.array(pairs.loose, dtype=np.intp),
        magnitude=magnitude,
    )
