"""Strategies on whole rows: the scans of A1015, alone, after lists, or after an auction."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from bigsap import policy
from bigsap.progress import Stopped
from bigsap.run.certify import prove_now, within_gap
from bigsap.run.kept_rows import keep_rows
from bigsap.run.on_lists import setting_of
from bigsap.run.run import Run
from bigsap.strategies import Outcome, whole_rows, work
from bigsap.strategies.baselines.auction import run_auction
from bigsap.strategies.list_run import ListSolve
from bigsap.strategies.lists import first_prices
from bigsap.strategies.placement import device_name
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.work import Work
from bigsap.types import Array


class Auction:
    """``method="auction"``: bids whose prices are the start of whole-row scans."""

    def expects(self, run: Run) -> Work | None:
        """Return None if a warm start or a checkpoint determines the start, or did with more rows."""
        if run.is_continued or run.warm_start is not None or run.problem.n_virtual_columns:
            return None
        return _scanned(run)

    def attempt(self, run: Run) -> None:
        """Decline, and store the prices of the bids in ``run.hints``."""
        keep_rows(run)
        clock = time.perf_counter()
        try:
            run.hints, run.auction = run_auction(
                run.reading, run.monitor, run.arithmetic, run.options.variant
            )
        except Stopped:
            run.seconds["search"] += time.perf_counter() - clock
            raise
        run.seconds["start"] += time.perf_counter() - clock


class WholeRows:
    """``method="ssp"``: scans of whole rows. Never declines."""

    def expects(self, run: Run) -> Work:
        """Return the work of scans of all rows, by the share of them that stays in memory."""
        return _scanned(run)

    def attempt(self, run: Run) -> Outcome:
        """Solve, from ``run.hints`` if an earlier strategy left any."""
        keep_rows(run)
        # There is no checkpoint after lists were abandoned: a resumed solve repeats the same path.
        snapshot = {} if run.whole_rows else run.snapshot
        clock = time.perf_counter()
        try:
            warm = run.hints
            if warm is None and not run.whole_rows:
                warm = run.warm()
                if warm is None:
                    warm = _first_prices(run)
                    run.seconds["start"] += time.perf_counter() - clock
            if warm is not None:
                snapshot = {}
            outcome = whole_rows.run(
                run.dense(),
                epsilon=run.options.epsilon,
                seed=run.options.seed,
                grid=run.arithmetic.grid,
                warm=warm,
                enough=(lambda *found: _enough(run, *found)) if run.options.gap > 0 else None,
                snapshot=snapshot,
                phases=run.phases,
                published=run.options.start == "estimate" and not run.whole_rows,
            )
        except Stopped:
            run.seconds["search"] += time.perf_counter() - clock
            raise
        run.add_seconds(outcome)
        return outcome


def _scanned(run: Run) -> Work:
    n, there = run.problem.shape[0], device_name(run.problem.source) != "cpu"
    kept = 1.0 if there or run.rows.policy == "in place" else min(1.0, run.rows.n_slots / max(1, n))
    return work.on_whole_rows(run.problem.shape, kept)


def _first_prices(run: Run) -> Warm | None:
    """Return prices of levels where they pay; None for the method's own start."""
    snapshot = run.snapshot
    if "levels" in snapshot:
        run.levels = ListSolve()
        run.levels.first_prices = snapshot["levels_kind"]
        run.levels.counts.add(Counts(**snapshot["levels"]))
    within = "ladder_level" in snapshot
    if (snapshot and not within) or not run.takes_levels:
        return None
    run.levels = run.levels or ListSolve()
    setting = replace(setting_of(run), enough=None)
    first = first_prices(run.problem, setting, run.levels, snapshot, own=run.own_first_prices)
    return None if first.v is None else Warm(first.v, guided=True)


def _enough(run: Run, column_of_row: Array, v: Array, epsilon: float) -> bool:
    """Return whether a phase's matching is within the requested gap.

    Makes one pass over the costs, and only when the phase's epsilon makes success likely. The bound
    it finds is kept in either case.
    """
    if epsilon * len(column_of_row) > policy.PROMISING_GAPS * run.options.gap:
        return False
    within_gap(run, prove_now(run, column_of_row.astype(np.intp), v))
    return run.proved is not None
