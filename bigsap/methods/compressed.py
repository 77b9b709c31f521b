"""Successive shortest paths on compressed rows, epsilon phases and all."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bigsap.engine import list_search as F
from bigsap.engine import lists as L
from bigsap.engine import state as S
from bigsap.engine.compressed import ListEngine
from bigsap.methods.outcome import Outcome
from bigsap.sources.base import Array

# Events of phases with epsilon > 0 are postponed by this many epsilons.
SIGMA = 8.0


def run(engine: ListEngine, *, epsilon: bool, seed: int, grid: float, first=1.0, divide=4.0, guard=2.0, cutshare=0.0) -> Outcome:
    n, m = engine.problem.shape
    seconds = {"start": 0.0, "search": 0.0}
    clock = time.perf_counter()
    order = np.random.default_rng(seed).permutation(n).astype(S.ID)
    engine.open_price[:] = engine.v
    engine.evaluate(order)
    lists = engine.lists
    eps = 0.0
    if epsilon and n == m:
        gap, matched = L.greedy(
            lists.ids, lists.costs, lists.start, lists.size, lists.theta, engine.v, order,
            np.zeros(m, np.uint8), engine.infinity,
        )  # fmt: skip
        eps = first * gap / n
    low_eps = eps / (16 * n)
    seconds["start"] = time.perf_counter() - clock
    phases: list[dict[str, Any]] = []
    clock = time.perf_counter()
    while True:
        if grid:
            eps = float(np.floor(eps / grid) * grid)
        scans, evaluations = engine.rows_scanned, engine.rows_evaluated
        started = time.perf_counter()
        engine.begin_phase()
        if phases:
            engine.evaluate(engine.stale_rows())
        stale = engine.rows_evaluated - evaluations
        f = engine.frontier
        cut0 = int(f.words[F.N_CUT])
        feasible = engine.phase(
            order, backward=len(phases) % 2 == 1, epsilon=eps, postpone=SIGMA * eps,
            cut=int(cutshare * n),
        )  # fmt: skip
        drops, n_drops = float(f.values[F.DROPS]), int(f.words[F.N_DROPS])
        phases.append(
            {
                "epsilon": eps, "rows_scanned": engine.rows_scanned - scans,
                "rows_evaluated": engine.rows_evaluated - evaluations, "stale": stale, "cut": int(f.words[F.N_CUT]) - cut0,
                "prices_moved": n_drops, "drops": drops, "epsilon_drops": eps * n_drops,
                "seconds": time.perf_counter() - started,
            }
        )  # fmt: skip
        seconds["search"] = time.perf_counter() - clock
        if not feasible:
            return Outcome(None, engine.v, engine.tree(), phases, seconds)
        if eps == 0:
            matching = np.maximum(engine.column_of_row, S.FREE)
            return Outcome(matching, engine.v, phases=phases, seconds=seconds)
        done = len(phases) > 1 and drops > eps * n_drops and drops <= guard * n * eps
        eps = 0.0 if done else min(eps / divide, eps * n_drops / (8 * m) if n_drops else 0.0)
        if eps < low_eps:
            eps = 0.0
