"""Strategy for costs with a ceiling: most pairs equal the largest cost, as in ``minimum(costs, c)``.

A row at the ceiling may take any free column. So the costs are those of rows that may stay unassigned at
this price, and only pairs below it are searched.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.pair_costs import costs_of_pairs
from bigsap.progress import Stopped
from bigsap.run.on_lists import setting_of
from bigsap.run.run import Run
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.strategies import Outcome
from bigsap.strategies.optional_rows import SparseGate, sparse_gate
from bigsap.strategies.orientation import resident
from bigsap.strategies.work import Work, on_pairs
from bigsap.types import Array


class Ceiling:
    """Strategy of ``strategies.optional_rows``, for a matrix in memory and for formulas."""

    def expects(self, run: Run) -> Work | None:
        """Return None unless sampled rows have a ceiling and no other strategy was requested."""
        n, m = run.problem.shape
        if run.is_way_named or run.asked != "auto" or run.is_continued or n > m or n < policy.CEILING_ROWS:
            return None
        matrix = resident(run.problem)
        found = _of_formula(run) if matrix is None else _sampled(matrix[:, :m], run)
        return None if found is None else on_pairs((n, m), n * m)

    def attempt(self, run: Run) -> Outcome | None:
        """Solve, or return None where a cost is above the ceiling, or many are below.

        If the solve is stopped, the current matching is available.
        """
        matrix, solved = resident(run.problem), run.short_way()
        clock = time.perf_counter()
        gate: SparseGate | None = None
        try:
            m = run.problem.shape[1]
            ceiling = _of_formula(run) if matrix is None else _checked(matrix[:, :m], run)
            if ceiling is not None:
                gated = ClippedCosts(run.problem.source, ceiling, maximize=run.problem.maximize)
                gate = sparse_gate(gated, gated, setting_of(run), solved, run.warm())
            run.seconds["start"] += time.perf_counter() - clock
            clock = time.perf_counter()
            done = gate is not None and gate.run()
        except Stopped:
            if gate is not None:
                run.standing = _completed(gate), gate.prices
            raise
        finally:
            solved.counts.scans += 0 if gate is None else gate.scans
        seconds = time.perf_counter() - clock
        run.seconds["search"] += seconds
        if gate is None or not done or (matrix is None and not _allowed(_completed(gate), run)):
            return None
        solved.first_prices, run.why = "none", "most pairs cost as much as the dearest"
        run.phases.append(gate.phase(seconds))
        return Outcome(_completed(gate), gate.prices, hidden=gate.hidden)


def _completed(gate: SparseGate) -> Array:
    """Return the matching; rows at the ceiling take the free columns in order, as scipy does."""
    matching = gate.state.column_of_row.astype(np.intp)
    left = np.flatnonzero(matching < 0)
    matching[left] = np.flatnonzero(gate.state.row_of_column < 0)[: left.size]
    return matching


def _allowed(matching: Array, run: Run) -> bool:
    """Return whether no pair is forbidden, which a formula's range does not tell."""
    parts = costs_of_pairs(run.problem, None, matching, run.monitor.tick)
    return all(bool(np.isfinite(costs).all()) for _, costs in parts)


def _of_formula(run: Run) -> Array | None:
    """Return the end of a formula's range, which no finite cost exceeds, if most sampled pairs have it."""
    source, (n, m) = run.problem.source, run.problem.shape
    if not isinstance(source, ExpressionSource):
        return None
    rows, columns = (np.linspace(0, k - 1, policy.CEILING_PLACES).astype(np.int64) for k in (n, m))
    some = source.sample(np.repeat(rows, columns.size), np.tile(columns, rows.size))
    end = source.cost_range()[0 if run.problem.maximize else 1]
    return _ceiling(some, end)


def _sampled(costs: Array, run: Run) -> Array | None:
    """Return the largest signed cost of sampled rows, () of the costs' dtype, if most pairs have it."""
    n = costs.shape[0]
    rows = np.unique(np.linspace(0, n - 1, policy.CEILING_SAMPLE).astype(np.int64))
    some = costs[rows]
    return _ceiling(some, some.min() if run.problem.maximize else some.max())


def _ceiling(some: Array, largest: Any) -> Array | None:
    """Return the largest cost if it is finite and most of some costs have it."""
    at_ceiling = int(np.count_nonzero(some == largest))
    # Where all are equal, tight pairs match every row at once.
    if not np.isfinite(largest) or not some.size <= 2 * at_ceiling < 2 * some.size:
        return None
    return np.asarray(largest)


def _checked(costs: Array, run: Run) -> Array | None:
    """Return the ceiling, or None if some cost is above it, or NaN."""
    ceiling = _sampled(costs, run)
    assert ceiling is not None
    step = max(1, policy.CEILING_PAIRS // costs.shape[1])
    for start in range(0, costs.shape[0], step):
        some = costs[start : start + step]
        largest = some.min() if run.problem.maximize else some.max()
        above = largest < ceiling if run.problem.maximize else largest > ceiling
        if above or largest != largest:
            return None
        run.monitor.tick()
    return ceiling
