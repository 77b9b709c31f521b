"""First prices for compressed rows: none, the estimator's, or a coarse sub-problem's.

A probe on a few hundred random rows and columns decides. It solves its small problem
exactly and asks how much of the dual value that prices of a quarter of it recover: nearly
all of it where costs have structure at large scale, less than nothing for i.i.d. costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.engine import lists as L
from bigsap.engine.bounds import BLOCK, FEW_COORDINATES, GROUP, MOST_COORDINATES
from bigsap.engine.compressed import ListEngine
from bigsap.engine.cpu import Engine
from bigsap.engine.gpu import engine_for
from bigsap.engine.gpu_lists import device_transform
from bigsap.engine.ordering import compact_order
from bigsap.engine.precision import Arithmetic, choose
from bigsap.engine.team import Team
from bigsap.methods import ssp
from bigsap.methods.outcome import Outcome
from bigsap.methods.start import estimate
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.rows import RowCache, Rows
from bigsap.sources.arrays import ArraySource
from bigsap.sources.base import Array, Ids, Resident, Selectable, Separable, read_while
from bigsap.sources.device import OnDevice

_READ_BYTES = 16 << 20
_READ_SECONDS = 0.1
#: Rows and columns of the probe; fewer rows than _WORTH are not probed.
_PROBE = 256
_WORTH = 1500
#: A sub-problem has this share of the rows and columns.
SHARE = 4
#: Sub-problems of at most this many rows are solved densely.
_DENSE = 2500
#: The share of the optimum's dual value that coarse prices must recover.
_GAIN = 0.5


@dataclass
class Counts:
    """Rows and pairs evaluated and rows scanned, over all levels.

    seconds_per_row: what a row took lately, where rows are read one by one. doubled,
    refused: how often a list was doubled, or could not be; list_bytes: the most that a
    level's lists took. rounds: what rounds of searches on a device did, see ``gpu_batch.Tally``.
    """

    rows: int = 0
    pairs: int = 0
    scans: int = 0
    seconds_per_row: float = 0.0
    doubled: int = 0
    refused: int = 0
    list_bytes: int = 0
    rounds: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Count what another level counted."""
        self.rows += other.rows
        self.pairs += other.pairs
        self.scans += other.scans
        self.seconds_per_row = max(self.seconds_per_row, other.seconds_per_row)
        self.doubled += other.doubled
        self.refused += other.refused
        self.list_bytes = max(self.list_bytes, other.list_bytes)
        for name, count in other.rounds.items():
            self.rounds[name] = self.rounds.get(name, 0) + count


#: Solves a sub-problem: its outcome, and the smallest ``c - v`` in each of its lists or None.
SolvePart = Callable[[Problem, Arithmetic], tuple[Outcome, Array | None]]


def estimated_prices(
    problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], counts: Counts
) -> tuple[Array, Array | None, bool]:
    """Prices of A1015's estimator, an assignment if it proved one optimal, and whether
    one plain phase is to follow."""
    matrix = problem.source.resident() if isinstance(problem.source, Resident) else None
    if matrix is not None:
        rows = Rows.in_place(matrix)
    else:
        budget = 64 * problem.shape[1] * problem.source.dtype.itemsize
        rows = Rows.cached(problem.shape, problem.source.dtype, RowCache(), budget)
    engine = engine_for(problem, rows, team, monitor, price)
    start = estimate(engine)
    visits = rows.hits + rows.misses
    counts.rows += visits
    counts.pairs += visits * problem.shape[1]
    return engine.state.v.copy(), start.solution, start.epsilon == 0


def coarse_prices(
    problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], seed: int,
    counts: Counts, solve_part: SolvePart,
) -> Array | None:  # fmt: skip
    """Prices from an exact sub-problem on a quarter of the rows and columns, if it has any."""
    n, m = problem.shape
    generator = np.random.default_rng([seed, n])
    rows = np.sort(generator.permutation(n)[: n // SHARE])
    columns = np.sort(generator.permutation(m)[: n // SHARE])
    rows, columns = _compact(problem, rows, columns)
    part = part_of(problem, rows, columns, monitor, counts)
    inner = choose(part, large=price.kind == "i")
    u: Array | None
    if rows.size <= _DENSE:
        costs = _matrix(part, monitor)
        dense = Problem(ArraySource(costs), problem.maximize)
        engine = Engine(dense, Rows.in_place(costs), team, monitor, inner.price)
        outcome = ssp.run(engine, epsilon=True, seed=seed, grid=inner.grid)
        u = (problem.sign * costs.astype(inner.price) - outcome.v).min(axis=1)
    else:
        outcome, u = solve_part(part, inner)
    if u is None or outcome.violator.size or not np.isfinite(u).all():
        return None
    v = bounded_transform(problem, rows, u, team, monitor, counts)
    return transform(problem, team, monitor, rows, u, counts, price) if v is None else v


def _compact(problem: Problem, rows: Array, columns: Array) -> tuple[Array, Array]:
    """The same rows and columns, in compact order where the source has bounds."""
    source = problem.source
    terms = source.separable() if isinstance(source, Separable) else None
    if terms is None or terms.y.shape[0] > MOST_COORDINATES or columns.size < 2 * BLOCK:
        return rows, columns
    x, y = terms.x[rows], np.ascontiguousarray(terms.y[:, columns].T)
    return rows[compact_order(x, BLOCK, GROUP)], columns[compact_order(y, BLOCK, GROUP)]


def read_gently(
    problem: Problem, monitor: Monitor, rows: Array, counts: Counts | None
) -> Iterator[tuple[int, Array]]:
    """Blocks of whole rows, none of which takes long, and where each starts in ``rows``.

    counts: of a whole problem, the costs of which are judged; None for a part, which has
    other ids.
    """
    source = problem.source
    m = problem.shape[1]
    most = max(1, _READ_BYTES // max(1, m * source.dtype.itemsize))
    step = 1
    start = 0
    while start < rows.size:
        part = rows[start : start + min(step, most)]
        block = np.empty((part.size, m), source.dtype)
        clock = time.perf_counter()
        read_while(source, monitor.tick, part, slice(0, m), block)
        seconds = max(time.perf_counter() - clock, 1e-6)
        if counts is not None:
            counts.seconds_per_row = seconds / part.size
            for row, costs in zip(part.tolist(), block, strict=True):
                problem.check_row(row, costs)
        yield start, block
        start += part.size
        step = max(1, min(2 * step, int(part.size * _READ_SECONDS / seconds)))
        monitor.tick()


def _matrix(part: Problem, monitor: Monitor) -> Array:
    """All costs of a small part."""
    costs = np.empty(part.shape, part.source.dtype)
    for start, block in read_gently(part, monitor, np.arange(part.shape[0]), None):
        costs[start : start + len(block)] = block
    return costs


def part_of(problem: Problem, rows: Ids, columns: Ids, monitor: Monitor, counts: Counts) -> Problem:
    """The problem on some rows and columns; rows that had to be read are counted."""
    source = problem.source
    m = problem.shape[1]
    if isinstance(source, Selectable):
        selected = source.select(rows, columns)
        if selected is not None:
            return Problem(selected, problem.maximize, problem.transposed)
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is not None:
        costs = matrix[np.ix_(rows, columns)]
        counts.pairs += costs.size
    else:
        costs = np.empty((rows.size, columns.size), source.dtype)
        for start, block in read_gently(problem, monitor, rows, counts):
            costs[start : start + len(block)] = block[:, columns]
        counts.pairs += rows.size * m
    counts.rows += rows.size
    return Problem(ArraySource(costs), problem.maximize, problem.transposed)


def transform(
    problem: Problem,
    team: Team,
    monitor: Monitor,
    rows: Array,
    u: Array,
    counts: Counts,
    price: np.dtype[Any],
) -> Array:
    """``v[j] = min over rows of (c[i, j] - u[i])``: prices from some rows' duals. P (m,)."""
    source = problem.source
    m = problem.shape[1]
    v = np.full(m, np.inf if price.kind == "f" else 1 << 59, price)
    if isinstance(source, OnDevice):
        counts.rows += rows.size
        counts.pairs += rows.size * m
        return device_transform(problem, rows, u, price)
    matrix = source.resident() if isinstance(source, Resident) else None
    sign = price.type(problem.sign)
    if matrix is not None:
        team.run(L.run_transform, matrix, rows, u.astype(price), sign, v)
    else:
        for start, block in read_gently(problem, monitor, rows, counts):
            duals = u[start : start + len(block)].astype(price)
            team.run(L.run_transform, block, np.arange(len(block)), duals, sign, v)
    counts.rows += rows.size
    counts.pairs += rows.size * m
    return v


def bounded_transform(
    problem: Problem, rows: Array, u: Array, team: Team, monitor: Monitor, counts: Counts
) -> Array | None:
    """``transform`` as row minima of the transpose, so that bounds help; None without them."""
    source = problem.source
    if not isinstance(source, Selectable) or isinstance(source, OnDevice):
        return None
    selected = source.select(rows, np.arange(problem.shape[1]))
    turned = None if selected is None else Problem(selected, problem.maximize).transpose()
    if turned is None:
        return None
    engine = ListEngine(turned, team, monitor, np.dtype(np.float64), 1, 0)
    if not engine.blocks.offset.size or engine.blocks.low.shape[0] > FEW_COORDINATES:
        return None
    engine.v[:] = u
    engine.open_price[:] = u
    engine.fit_bounds()
    engine.evaluate(np.arange(turned.shape[0]))
    # Rows of the problem, each begun once: those of the turned engine are columns here.
    counts.rows += rows.size
    counts.pairs += engine.pairs_evaluated
    return engine.list_minima()


def probe(problem: Problem, monitor: Monitor, seed: int, counts: Counts) -> str:
    """``"none"``, ``"estimate"`` or ``"coarse"``: which first prices are worth having."""
    n, m = problem.shape
    if n != m or n < _WORTH:
        return "none"
    generator = np.random.default_rng(seed)
    # The same rows and columns: a special diagonal shows only then.
    some = np.sort(generator.permutation(n)[:_PROBE])
    small = part_of(problem, some, some, monitor, counts)
    costs = _matrix(small, monitor)
    signed = problem.sign * costs.astype(np.float64)
    if not np.isfinite(signed).all():
        return "none"
    dense = Problem(ArraySource(signed))
    with Team(1) as team:
        engine = Engine(dense, Rows.in_place(signed), team, Monitor(), np.dtype(np.float64))
        start = estimate(engine)
        if start.epsilon == 0:
            return "estimate"
        v = _exact_prices(dense, team)
        value = _dual(signed, v)
        quarter = np.sort(generator.permutation(_PROBE)[: _PROBE // SHARE])
        corner = np.ascontiguousarray(signed[np.ix_(quarter, quarter)])
        inner = _exact_prices(Problem(ArraySource(corner)), team)
    u = (corner - inner).min(axis=1)
    coarse = (signed[quarter] - u[:, None]).min(axis=0)
    none = _dual(signed, np.zeros(_PROBE))
    return "coarse" if _dual(signed, coarse) - none > _GAIN * (value - none) else "none"


def _dual(costs: Array, v: Array) -> float:
    return float((costs - v).min(axis=1).sum() + v.sum())


def _exact_prices(problem: Problem, team: Team) -> Array:
    matrix = problem.source.resident()  # type: ignore[attr-defined]
    engine = Engine(problem, Rows.in_place(matrix), team, Monitor(), np.dtype(np.float64))
    outcome = ssp.run(engine, epsilon=True, seed=0, grid=0.0)
    return outcome.v
