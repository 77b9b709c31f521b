"""Start without a search for costs that sorting makes a Monge matrix.

``c`` is Monge when ``c[i, j] + c[k, l] <= c[i, l] + c[k, j]`` for all rows ``i < k`` and
columns ``j < l``. The diagonal is then an optimal assignment (Hoffman 1963, "On simple
linear programming problems": the north-west corner rule). Examples are products of two numbers in
opposite orders, sums of a Monge matrix and terms of rows and columns, and convex functions of the
difference of two numbers, such as distances on a line. Rows and columns seldom come in that order;
to find it is the recognition of permuted Monge matrices (Burkard, Klinz, Rudolf 1996,
"Perspectives of Monge properties in optimization", Discrete Applied Mathematics 70).

In a Monge matrix the difference of two columns never falls from row to row. So rows are sorted
by the difference of two columns, and columns by that of two rows. If both are the outermost
ones, tied rows (or columns) are equal up to a constant, and any order is correct. The outermost
ones are found from any two columns by alternation: the rows at the two ends of the columns'
difference, then the columns at the two ends of these rows' difference.

The result is verified: a sample decides whether to try, a few entries per row decide whether the
answer may be correct, and the solve proves it by a pass over all pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import BigsapError
from bigsap.problem import Problem
from bigsap.proof.tightness import UNIT, allowance
from bigsap.sources.base import CostSource, Fill, Resident, read_while
from bigsap.sources.compiled import read_pairs
from bigsap.sources.filling import fill_of
from bigsap.strategies.start.samples import Counts
from bigsap.types import Array

#: Limit of alternations between rows and columns. Where many tie, half of the ties are passed over. _IDLE
#: alternations without progress end it.
_ROUNDS, _IDLE = 12, 4
#: Pairs read between two checks of the clock.
_AT_ONCE = 1 << 16
#: Larger integers are left to other strategies: sums of four of them must fit.
_LARGEST = 1 << 59


class _NoOrder(Exception):
    """The costs are not a sorted Monge matrix, or cannot be recognised as one."""


@dataclass(frozen=True)
class SortedStart:
    """Assignment and prices of a sorted Monge matrix, not yet proved.

    column_of_row: intp (n,), an assignment; v: P (n,), signed prices for which it is
    probably optimal: no pair examined violates it.
    """

    column_of_row: Array
    v: Array


def sorted_start(
    problem: Problem, price: np.dtype[Any], seed: int, counts: Counts, tick: Callable[[], None]
) -> SortedStart | None:
    """Return the start of square costs that sorting makes Monge; None for all others.

    For sources whose single pairs are cheap: matrices in memory, compiled functions of
    pairs (points, low rank, expressions), Python functions of one pair. The answer is the same for
    any number of threads. counts: receives the pairs read, and their number as whole rows.

    O(n log n) time, about 13 n pairs, up to 50 n where many rows tie; 292 for other costs.
    Exceptions of the source are suppressed here; later strategies meet and report them.
    """
    n, m = problem.shape
    if n != m or n < 2:
        return None
    pairs = _pairs_of(problem, tick)
    if pairs is None:
        return None
    try:
        return _start(pairs, price, np.random.default_rng([seed, n, 13]))
    except (_NoOrder, BigsapError):
        return None
    finally:
        counts.pairs += pairs.n_read
        counts.rows += pairs.n_read // m


# -- single pairs -----------------------------------------------------------------------


class _Pairs:
    """Signed costs of pairs, float64 or int64; raises _NoOrder for costs that are not finite.

    fetch: fills the costs of rows[k] and columns[k]. noise: the relative error of a cost.
    """

    def __init__(
        self, problem: Problem, fetch: Callable[[Array, Array, Array], None], tick: Callable[[], None]
    ) -> None:
        self.n = problem.shape[0]
        self.sign, self.dtype = problem.sign, np.dtype(problem.source.dtype)
        self.whole = problem.integer
        self.noise = 0.0 if self.whole else float(np.finfo(self.dtype).eps)
        self.n_read = 0
        self._fetch, self._tick = fetch, tick

    def at(self, rows: Array, columns: Array) -> Array:
        """Return the costs of ``rows[k]`` and ``columns[k]``."""
        costs = np.empty(rows.size, self.dtype)
        for start in range(0, rows.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            self._fetch(rows[part], columns[part], costs[part])
            self._tick()
        self.n_read += rows.size
        if not self.whole:
            numbers: Array = self.sign * costs.astype(np.float64)
            if not np.isfinite(numbers).all():
                raise _NoOrder
            return numbers
        if int(costs.min()) < -_LARGEST or int(costs.max()) > _LARGEST:
            raise _NoOrder
        return self.sign * costs.astype(np.int64)

    def row(self, row: int) -> Array:
        return self.at(np.full(self.n, row), np.arange(self.n))

    def column(self, column: int) -> Array:
        return self.at(np.arange(self.n), np.full(self.n, column))

    def block(self, rows: Array, columns: Array) -> Array:
        """Return the costs as an array (rows, columns)."""
        costs = self.at(np.repeat(rows, columns.size), np.tile(columns, rows.size))
        return costs.reshape(rows.size, columns.size)


def _pairs_of(problem: Problem, tick: Callable[[], None]) -> _Pairs | None:
    """Return a reader of single pairs; None where a pair may cost as much as its row."""
    source = problem.source
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is not None:
        here = matrix

        def from_matrix(rows: Array, columns: Array, out: Array) -> None:
            out[:] = here[rows, columns]

        return _Pairs(problem, from_matrix, tick)
    fill = fill_of(source)
    if fill is not None and fill.in_parts:
        return _Pairs(problem, _by_fill(fill), tick)
    if fill is None and getattr(source, "kind", None) == "value":
        return _Pairs(problem, _one_by_one(source, tick), tick)
    return None


def _by_fill(fill: Fill) -> Callable[[Array, Array, Array], None]:
    def fetch(rows: Array, columns: Array, out: Array) -> None:
        read_pairs(fill, rows, columns, out)

    return fetch


def _one_by_one(source: CostSource, tick: Callable[[], None]) -> Callable[[Array, Array, Array], None]:
    def fetch(rows: Array, columns: Array, out: Array) -> None:
        one = np.empty((1, 1), source.dtype)
        for k, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            tick()
            read_while(source, tick, np.array([row]), slice(column, column + 1), one)
            out[k] = one[0, 0]

    return fetch


# -- the order --------------------------------------------------------------------------


def _start(pairs: _Pairs, price: np.dtype[Any], generator: np.random.Generator) -> SortedStart:
    n = pairs.n
    outermost = np.zeros(2, np.intp)
    for size in policy.MONGE_SAMPLES:
        size = min(size, n)
        rows, columns = (generator.permutation(n)[:size] for _ in range(2))
        distinct = policy.MONGE_DISTINCT if size > policy.MONGE_SAMPLES[0] else 2
        costs = pairs.block(rows, columns)
        outermost = columns[_judge(costs, pairs.noise, distinct, generator)]
        if size == n:
            break
    row_key, column_key = _keys(
        pairs.row, pairs.column, (int(outermost[0]), int(outermost[1])), pairs.noise, generator
    )
    rows, columns = (np.argsort(key, kind="stable") for key in (row_key, column_key))
    v = np.empty(n, price)
    v[columns], u = _prices(pairs, rows, columns, price)
    _check(pairs, rows, columns, v[columns], u, generator)
    column_of_row = np.empty(n, np.intp)
    column_of_row[rows] = columns
    return SortedStart(column_of_row, v)


def _judge(costs: Array, noise: float, distinct: int, generator: np.random.Generator) -> Array:
    """Return the outermost columns of a small matrix that sorting makes Monge."""
    slack = 8 * noise * float(np.abs(costs).max())
    differences = costs - costs[:, :1]
    widest = int((differences.max(axis=0) - differences.min(axis=0)).argmax())
    steps = np.diff(differences[differences[:, widest].argsort()], axis=0)
    if (steps[:, widest] > 2 * slack).all():
        # Rows in order, or in the opposite one: no difference of columns both rises and falls.
        rises, falls = (steps > 2 * slack).any(axis=0), (steps < -2 * slack).any(axis=0)
        if (rises & falls).any():
            raise _NoOrder
    row_key, column_key = _keys(
        lambda row: costs[row], lambda column: costs[:, column], (0, widest), noise, generator
    )
    order = np.argsort(column_key, kind="stable")
    costs = costs[np.argsort(row_key, kind="stable")][:, order]
    excess = (costs[:-1, :-1] - costs[:-1, 1:]) - (costs[1:, :-1] - costs[1:, 1:])
    if (excess > slack).any():
        raise _NoOrder
    for key in (row_key, column_key):
        changes = np.count_nonzero(np.diff(np.sort(key)) > slack)
        if changes + 1 < distinct:
            raise _NoOrder
    return order[[0, -1]]


def _keys(
    row: Callable[[int], Array],
    column: Callable[[int], Array],
    first: tuple[int, int],
    noise: float,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Return the sort keys of rows and columns: differences of the outermost columns, and rows.

    The outermost differ most. The iteration ends when nothing ties at the ends, or after some
    alternations without progress.
    """
    columns, rows = first, (-1, -1)
    keys = [np.empty(0), np.empty(0)]
    widest, idle = [0.0, 0.0], 0
    for turn in range(_ROUNDS):
        before, grown, tied = (rows, columns), False, False
        for side, line in enumerate((column, row)):
            low, high = (line(k) for k in (rows if side else columns))
            key = low - high
            ends, width, ties = _ends(key, low, high, noise, turn, generator)
            if width > widest[side]:
                keys[side], widest[side], grown = key, width, True
            if side:
                columns = ends
            else:
                rows = ends
            tied = tied or ties
        idle = 0 if grown else idle + 1
        if idle == _IDLE or ((rows, columns) == before and not tied):
            break
    return keys[0], keys[1]


def _ends(
    key: Array, low: Array, high: Array, noise: float, turn: int, generator: np.random.Generator
) -> tuple[tuple[int, int], float, bool]:
    """Return the positions of the key's minimum and maximum, their distance, and whether others tie.

    Among ties the most expensive is taken, which lies outermost where costs are distances, and
    in every other alternation a random one.
    """
    least, most = key.min(), key.max()
    size = np.maximum(np.abs(low), np.abs(high))
    slack = 8 * noise * float(size.max())
    if not most - least > 2 * slack:
        raise _NoOrder  # a row term plus a column term: any order is correct
    ends, tied = [], False
    for near in (key <= least + slack, key >= most - slack):
        places = np.flatnonzero(near)
        if turn % 2:
            ends.append(int(generator.choice(places)))
        else:
            ends.append(int(places[size[places].argmax()]))
        tied = tied or places.size > 1
    return (ends[0], ends[1]), float(most - least), tied


# -- prices -----------------------------------------------------------------------------


def _prices(pairs: _Pairs, rows: Array, columns: Array, price: np.dtype[Any]) -> tuple[Array, Array]:
    """Return prices (n,) of the sorted columns, and the reduced costs (n,) of the diagonal.

    If no pair next to the diagonal improves on it, no pair of a Monge matrix does. So a price may
    differ from the one before by any value between the two rows' cost differences of the step. The
    middle of this interval is the least sensitive to rounding.
    """
    diagonal = pairs.at(rows, columns)
    above, below = pairs.at(rows[:-1], columns[1:]), pairs.at(rows[1:], columns[:-1])
    least, most = diagonal[1:] - below, above - diagonal[:-1]
    size = np.maximum(np.abs(above), np.abs(below))
    np.maximum(size, np.maximum(np.abs(diagonal[1:]), np.abs(diagonal[:-1])), out=size)
    if (least - most > 8 * pairs.noise * size).any():
        raise _NoOrder
    if pairs.whole:
        steps = least + (most - least) // 2
        limit = _LARGEST if price.kind == "i" else 1 << 52
        if np.abs(np.cumsum(steps, dtype=np.float64)).max(initial=0.0) > limit:
            raise _NoOrder
        v = np.concatenate([[0], np.cumsum(steps)])
    else:
        # In higher precision, where the machine has it.
        middle = least / 2 + most / 2
        v = np.concatenate([[0], np.cumsum(middle, dtype=np.longdouble)]).astype(np.float64)
    if not pairs.whole and not np.isfinite(v).all():
        raise _NoOrder
    return v.astype(price), diagonal - v


def _check(
    pairs: _Pairs, rows: Array, columns: Array, v: Array, u: Array, generator: np.random.Generator
) -> None:
    """Compare some pairs of each row with its reduced cost.

    Half of them are from the whole row, half near the diagonal, where order and prices matter most.
    """
    n = pairs.n
    here = np.arange(n)
    for k in range(policy.MONGE_CHECKS):
        if k % 2:
            far = (n ** generator.random(n)).astype(np.intp)
            there = np.clip(here + np.where(generator.random(n) < 0.5, far, -far), 0, n - 1)
        else:
            there = generator.integers(0, n, n)
        tau = pairs.at(rows, columns[there]) - v[there]
        slack: Any = 0
        if not pairs.whole:
            size = np.abs(tau) + np.abs(u) + (v.max() - v.min())
            slack = allowance(n, UNIT * size)
        if (tau - u < -slack).any():
            raise _NoOrder
