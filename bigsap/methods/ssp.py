"""Successive shortest paths with epsilon pricing: Algorithm 1015 as published.

Each phase empties the matching and augments every row at one epsilon; every settled
column's price falls by epsilon beyond what the path demands, which keeps later
searches short (A1015, section 3.3). The last phase has epsilon 0 and is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine import state as S
from bigsap.engine.cpu import Engine
from bigsap.methods.outcome import Outcome
from bigsap.methods.start import Start, estimate, inspect
from bigsap.sources.base import Array, Grouped


def row_order(engine: Engine, seed: int) -> Array:
    """Seeded pseudo-random order of the rows; groups that decode together stay together."""
    n = engine.problem.shape[0]
    generator = np.random.default_rng(seed)
    source = engine.problem.source
    if not isinstance(source, Grouped) or n == 0:
        return generator.permutation(n).astype(S.ID)
    starts = []
    row = 0
    while row < n:
        starts.append((row, source.rows_together(row)[1]))
        row = starts[-1][1]
    parts = [np.arange(*starts[k]) for k in generator.permutation(len(starts))]
    return np.concatenate([generator.permutation(part) for part in parts]).astype(S.ID)


def next_epsilon(
    epsilon: float, start: Start, drops: float, epsilon_drops: float, m: int, first: bool
) -> float:
    """Epsilon of the next phase (A1015, eq. 18 and the text before it)."""
    if not first and drops > epsilon_drops:
        return 0.0
    epsilon = min(epsilon / 4, epsilon_drops / (8 * m))
    return epsilon if epsilon >= start.epsilon_low else 0.0


def run(
    engine: Engine, *, epsilon: bool, seed: int, grid: float, warm_prices: Array | None,
    enough: Callable[[Array, Array], bool] | None,
) -> Outcome:  # fmt: skip
    """Solve; ``epsilon=False`` is the plain method from prices 0.

    grid: prices and epsilons are kept on multiples of it (0: no grid), which makes
    float64 arithmetic on integer costs exact. warm_prices: (n_columns,) prices to
    start from, in place of the estimator's, in one plain pass. enough: asked after
    each phase with epsilon > 0 whether its matching will do.
    """
    st, monitor = engine.state, engine.monitor
    clock = time.perf_counter()
    if warm_prices is not None or not epsilon or _skinny(engine):
        start = inspect(engine)[0]
    else:
        start = estimate(engine)
    if warm_prices is not None:
        st.v[:] = warm_prices
    seconds = {"start": time.perf_counter() - clock}
    if start.solution is not None:
        st.v[:] = st.v if warm_prices is None else 0
        return Outcome(start.solution, st.v, seconds=seconds)
    if grid and grid < 1:
        st.v[:] = np.floor(st.v / grid) * grid
    order = row_order(engine, seed)
    phases: list[dict[str, Any]] = []
    eps = start.epsilon
    clock = time.perf_counter()
    while True:
        if grid:
            eps = float(np.floor(eps / grid) * grid)
        record, feasible = _phase(engine, order, eps, backward=len(phases) % 2 == 1)
        phases.append(record)
        seconds["search"] = time.perf_counter() - clock
        if not feasible:
            return Outcome(None, st.v, engine.tree(), phases, seconds)
        # Places in the group of virtual columns are no columns.
        matching = np.maximum(st.column_of_row, S.FREE)
        if eps == 0 or (enough is not None and enough(matching, st.v)):
            return Outcome(matching, st.v, phases=phases, seconds=seconds)
        monitor.tick()
        drops, epsilon_drops = record["drops"], record["epsilon_drops"]
        eps = next_epsilon(eps, start, drops, epsilon_drops, st.v.size, len(phases) == 1)


def _skinny(engine: Engine) -> bool:
    """Whether the shorter side is so short that rows hardly compete for columns."""
    n, m = engine.problem.shape
    return 2 * min(n, m) <= max(n, m)


def _phase(
    engine: Engine, order: Array, eps: float, *, backward: bool
) -> tuple[dict[str, Any], bool]:
    """Match every row at one epsilon; the phase's record, and whether all could be."""
    st, progress = engine.state, engine.monitor.progress
    clock = time.perf_counter()
    scanned = engine.rows_scanned
    st.words[S.N_DROPS] = 0
    st.values[S.DROPS] = 0
    progress.stage = "search"
    progress.phase += 1
    progress.epsilon = eps
    engine.monitor.tick(report=True)
    engine.begin_phase()
    feasible = engine.phase(order, backward=backward, epsilon=eps)
    n_drops = int(st.words[S.N_DROPS])
    record = {
        "epsilon": eps,
        "rows_scanned": engine.rows_scanned - scanned,
        "prices_moved": n_drops,
        "drops": float(st.values[S.DROPS]),
        "epsilon_drops": eps * n_drops,
        "seconds": time.perf_counter() - clock,
    }
    return record, feasible
