"""Search of a small matrix by the dense kernel, with prices that prove its answer.

A few costs of another size than all others leave prices that lose the digits of the others. The
same search of reduced costs does not: differences of the huge costs of one row, or of one column,
are exact, or nearly so. The given costs prove the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bigsap import policy
from bigsap.engine.small.proof import LARGEST, SHARE
from bigsap.engine.small.search import (
    FACTS,
    HUGE,
    LOOSE,
    MINIMA,
    OPTIMAL,
    SPARE,
    UNSURE,
    kept_of,
    prove_matrix,
    sizes,
    solve_dense,
)
from bigsap.errors import BigsapError
from bigsap.proof.certificate import certify
from bigsap.proof.exact import two_sum
from bigsap.proof.limits import CLEAR
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.types import Array

# Lower limit of given integer prices: with the costs, their sums stay below 2**53.
_LOWEST = -(1 << 51)


@dataclass(frozen=True, slots=True)
class Start:
    """Start of the search of a square problem.

    Signed finite prices (m,), and the column of each row (n,), -1 for none, no column twice.
    """

    prices: Array
    column_of_row: Array


def few_row_prices(matrix: Array) -> Array:
    """Return the minimum of each column over a few rows; 0 where it is not finite."""
    v: Array = matrix[:: max(1, len(matrix) // policy.TIGHT_SAMPLE)].min(axis=0)
    v[~np.isfinite(v)] = 0.0
    return v


#: Status, column of each row, the numbers that ``engine.small.search`` keeps, low parts of the prices.
Answered = tuple[int, Array, Array, Array | None]


def solved_closely(
    matrix: Array, integers: bool, start: Start | None = None, *, gated: bool = False
) -> Answered:
    """Return the kernel's answer; where rounding decided, a closer one.

    matrix, integers: see ``small_arrays.signed_costs``. gated: some columns may stay free, so the largest
    price must be 0.
    """
    n, m = matrix.shape
    if matrix.size > policy.MOST_SMALL_COSTS and start is None:  # ``small_arrays`` found that it is easy
        start = Start(few_row_prices(matrix), np.full(n, -1))
    status, column_of_row, kept = _solved(matrix, integers, start, watch=not gated)
    if gated and status == OPTIMAL and kept[2 * n : 2 * n + m].max() != 0:
        # Proved by prices as they are; the largest must be 0, so that no row's dual is above its price.
        status = LOOSE
    if status in (LOOSE, UNSURE, HUGE) and not integers and start is None and not gated:
        closer = _by_reduced_costs(matrix, kept[2 * n + m + 1])
        if closer is not None:
            return closer
    if status == HUGE:  # no line as a whole: some costs forbid pairs, and no price need be as large
        status, column_of_row, kept = _solved(
            matrix, integers, start, watch=False, most_bid=_most_bid(matrix)
        )
        if status in (LOOSE, UNSURE):
            status, column_of_row, kept = _solved(matrix, integers, start, watch=False)
    if status == LOOSE:
        return _tightened(matrix, column_of_row, kept, gated)
    return status, column_of_row, kept, None


def _by_reduced_costs(matrix: Array, scans: float) -> Answered | None:
    """Return the answer by costs without the huge minima of a few rows, and, if square, columns.

    scans: rows scanned before. None if no minimum is huge, or the answer is not proved.
    """
    n, m = matrix.shape
    columns = matrix.min(axis=0)
    low = _huge(matrix.min(axis=1), matrix)
    least = _huge(columns, matrix) if n == m else {}
    if not (low or least) or not np.isfinite([*low.values(), *least.values()]).all():
        return None
    reduced, exact = matrix.copy(), True
    for i, size in low.items():
        exact &= _lower(reduced[i], size)
    for j in least:
        if low:  # a huge row may have given the minimum of a huge column
            least[j] = reduced[:, j].min()
        exact &= _lower(reduced[:, j], least[j])
    above = _above(matrix, low, columns)
    for i in low:  # last: before, the huge number in a cross's middle would round it away
        exact &= _lower(reduced[i], -above)
    status, column_of_row, kept = _solved(reduced, False, watch=False, most_bid=_most_bid(matrix))
    if status not in (OPTIMAL, LOOSE):
        return None
    scans += kept[2 * n + m + 1]
    if status == OPTIMAL and exact and _is_small(kept[2 * n + m + 4], matrix[np.arange(n), column_of_row]):
        parts = {i: (-above, size) for i, size in low.items()}
        return _raised(matrix, column_of_row, kept, parts, least, scans)
    v = kept[2 * n : 2 * n + m].copy()
    for j, size in least.items():
        v[j] += size
    status, proved = _proved(matrix, column_of_row, v)
    proved[2 * n + m + 1] = scans
    if status == OPTIMAL:
        return status, column_of_row, proved, None
    if low or not least:
        return None
    # Prices of huge columns need two parts: those of the transposed matrix have them.
    status, turned = _proved(np.ascontiguousarray(matrix.T), np.argsort(column_of_row), kept[:n])
    if status != OPTIMAL:
        return None
    turned[3 * n + 1] = scans
    u, matched, facts = turned[2 * n : 3 * n], turned[n : 2 * n], turned[3 * n : 3 * n + FACTS]
    swapped = np.concatenate((u, matched[column_of_row], turned[:n], facts, np.zeros(n)))
    return status, column_of_row, swapped, turned[3 * n + FACTS :]


def _is_small(gap: float, pairs: Array) -> bool:
    """Return whether a gap is that of an optimal result, judged by the given costs of its pairs.

    Reduced costs can be huge where these are not: beside a huge row of one sign and a column of the other.
    """
    paid = np.abs(pairs)
    if not paid.max() < LARGEST:
        return False
    if gap == 0:
        return True
    middle = np.partition(paid, paid.size // 2)[paid.size // 2]
    return bool(gap <= min(SHARE * paid.sum(), CLEAR * paid.size * middle))


def _above(matrix: Array, low: dict[int, float], columns: Array) -> float:
    """Return a power of 2, to the effect that rows ``low`` less their minima give no column its minimum.

    The search begins at the columns' minima. Rows that begin at 0 would make them all 0, which takes up
    to twice as many scans. columns: the minima of all rows.
    """
    if not low:
        return 0.0
    least = columns if min(low.values()) > 0 else np.delete(matrix, list(low), axis=0).min(axis=0)
    sizes = np.abs(least)
    sizes[list(_huge(least, matrix))] = 0.0
    largest = float(sizes.max(where=np.isfinite(sizes), initial=0.0))
    # Where most columns are huge, it would round the rows.
    return 2.0 ** math.frexp(largest)[1] if largest < min(map(abs, low.values())) / 4 else 0.0


def _lower(line: Array, by: float) -> bool:
    """Subtract a number from a line of costs; return whether no difference was rounded."""
    with np.errstate(invalid="ignore"):  # forbidden pairs
        less, error = two_sum(line, -by)
    line[:] = less
    return not np.where(np.isfinite(less), error, 0.0).any()


def _raised(
    matrix: Array,
    column_of_row: Array,
    kept: Array,
    low: dict[int, tuple[float, float]],
    least: dict[int, float],
    scans: float,
) -> Answered:
    """Return the proved answer of exactly reduced costs as that of the given ones.

    low: what was subtracted from rows: minus what they were raised by, and their minima. least: from columns.
    """
    n, m = matrix.shape
    found, v_low = kept.copy(), None
    u, v, facts = found[:n], found[2 * n : 2 * n + m], found[2 * n + m : 2 * n + m + FACTS]
    rest = found[2 * n + m + FACTS :]
    for i, parts in low.items():
        for part in parts:
            u[i], error = two_sum(u[i], part)
            rest[i], error = two_sum(rest[i], error)
            if error < 0:
                rest[i] = math.nextafter(rest[i], -math.inf)
    if least:
        v_low = np.zeros(m)
        for j, size in least.items():
            v[j], v_low[j] = two_sum(v[j], size)
    matched = found[n : 2 * n]
    matched[:] = matrix[np.arange(n), column_of_row]
    pairs, gap = matched.tolist(), facts[4]
    bound = math.fsum((*pairs, -gap))
    if math.fsum((*pairs, -gap, -bound)) < 0:
        bound = math.nextafter(bound, -math.inf)
    facts[:] = v.max() - v.min(), scans, 0.0, math.fsum(pairs), gap, bound
    return OPTIMAL, column_of_row, found, v_low


def _huge(minima: Array, matrix: Array) -> dict[int, float]:
    """Return the minima that are far larger than most others, by their places."""
    sizes = np.abs(minima)
    most = np.partition(sizes, sizes.size // 2)[sizes.size // 2]
    if most == 0:
        most = _typical(matrix) / MINIMA
    places = (sizes > policy.HUGE_MINIMUM * most).nonzero()[0].tolist()
    return {place: float(minima[place]) for place in places}


def _typical(matrix: Array) -> float:
    """Return the median size of the costs of a row, the smaller of two."""
    middle = matrix.shape[1] // 2
    return min(float(np.partition(np.abs(matrix[row]), middle)[middle]) for row in (0, len(matrix) // 2))


def _most_bid(matrix: Array) -> float:
    """Return a limit of bids that ordinary costs seldom reach, and huge ones do; inf for none."""
    return 2 * _typical(matrix) or math.inf


def _proved(matrix: Array, column_of_row: Array, v: Array) -> tuple[int, Array]:
    """Return the status of an assignment with these prices, and what the kernel keeps."""
    n, m = matrix.shape
    kept = np.zeros(kept_of(n, m))
    room, seen = np.empty(4 * m + 2 * n + SPARE), np.empty(m, np.int64)
    return prove_matrix(np.ascontiguousarray(matrix), column_of_row, v, kept, room, seen), kept


def _tightened(matrix: Array, column_of_row: Array, kept: Array, gated: bool) -> Answered:
    """Return the answer with corrected prices, for one whose prices leave a gap.

    LOOSE where the correction does not make it optimal.
    """
    loose = LOOSE, column_of_row, kept, None
    n, m = matrix.shape
    prices = kept[2 * n : 2 * n + m]
    try:
        proof = certify(ArraySource(matrix), column_of_row, prices, not_above_zero=gated)
    except BigsapError:
        return loose
    if not (proof.optimal and proof.clear):
        return loose
    facts = kept[2 * n + m : 2 * n + m + FACTS].copy()
    facts[3:6] = proof.fun, proof.gap, proof.bound
    rest = np.zeros(n) if proof.u_low is None else proof.u_low
    found = np.concatenate((proof.u, kept[n : 2 * n], proof.v, facts, rest))
    return OPTIMAL, column_of_row, found, proof.v_low


def _solved(
    matrix: Array,
    integers: bool,
    start: Start | None = None,
    *,
    watch: bool = True,
    most_bid: float = math.inf,
) -> tuple[int, Array, Array]:
    n, m = matrix.shape
    keep, n_real, n_whole = sizes(n, m)
    column_of_row = np.empty(n, np.intp)
    kept, real = np.empty(keep), np.empty(n_real)
    if start is not None:
        real[:m] = start.prices
        if integers:
            real[:m] = np.maximum(np.floor(real[:m] - real[:m].max()), _LOWEST)
        column_of_row[:] = start.column_of_row
    status = solve_dense(
        matrix.__array_interface__["data"][0],
        max(matrix.strides[0] // 8, 0),
        n,
        m,
        integers,
        start is not None,
        watch,
        most_bid,
        np.empty(0),
        column_of_row,
        kept,
        real,
        np.empty(n_whole, np.int64),
    )
    return status, column_of_row, kept
