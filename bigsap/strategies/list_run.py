"""Settings, state and result of a solve by compressed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.core.team import Team
from bigsap.engine.lists.list_engine import ListEngine, pair_costs, row_bounds
from bigsap.progress import Monitor
from bigsap.proof.tightness import UNIT
from bigsap.sources.offloadable import Offloading
from bigsap.strategies.outcome import Outcome
from bigsap.strategies.phase_run import PhaseRun
from bigsap.strategies.start.samples import Counts
from bigsap.types import Array

# Stages of a run: first evaluation of all rows; a phase about to begin; evaluation of its stale rows;
# matching of its rows; all done.
EVALUATE, OPEN, REFRESH, MATCH, DONE = range(5)


class ListSolve:
    """A solve by compressed rows, while it runs and after.

    outcome: set at the end. engine: of the whole problem, once it exists. rows, columns: the order in
    which that engine has them, None for the problem's own. counts: of everything but the engine.
    guide: (n_columns,) the prices of levels, in the engine's order; None without them.
    """

    outcome: Outcome

    def __init__(self) -> None:
        self.engine: ListEngine | None = None
        self.rows: Array | None = None
        self.columns: Array | None = None
        self.counts = Counts()
        self.first_prices = "none"
        self.guide: Array | None = None
        #: Counts of the Hungarian method, see ``strategies.trees``; empty for others.
        self.trees: dict[str, int] = {}
        #: Current prices, if the engine's differ; see ``trees.forest.true_prices``.
        self.prices: Callable[[], Array] | None = None

    def first_known(self) -> Array | None:
        """Return the prices of levels in the problem's own order, or None."""
        if self.guide is None:
            return None
        return self.restored(np.empty(0, np.intp), self.guide)[1]

    def known(self) -> tuple[Array, Array] | None:
        """Return current matching (complete or not) and prices; None before there are any."""
        engine = self.engine
        if engine is None:
            return None
        v = engine.v if self.prices is None else self.prices()
        return self.restored(np.maximum(engine.column_of_row, S.FREE), v)

    def report_to(self, known: Incumbent) -> None:
        """Add to ``known`` what the current lists, prices and matching prove. O(entries)."""
        engine, now = self.engine, self.known()
        low = None if engine is None else row_bounds(engine)
        if engine is not None and now is not None and low is not None:
            known.add_duals(self._by_row(low), now[1])
            exact, costs = engine.problem.integer, pair_costs(engine)
            # A cost less its row's reference was rounded, and their sum again.
            assigned = engine.column_of_row >= 0
            size = float(np.abs(costs).sum() + np.abs(engine.lists.reference).sum(where=assigned))
            known.add_picks(now[0], self._by_row(costs), exact=exact, error=4 * UNIT * size)
            if known.active:
                known.complete = now[0]  # except for rows given up; better than a sweep's picks

    def pair_costs(self) -> tuple[Array, Array] | None:
        """Return (n_rows,) signed costs of the current pairs, and which of them are known exactly.

        None where there are none, and where the source's own cost less to read.
        """
        engine, now = self.engine, self.known()
        if engine is None or now is None:
            return None
        if engine.problem.integer:
            return self._by_row(pair_costs(engine)), now[0] >= 0
        if engine.listed is None:
            return None
        costs, known = self.costs(now[0])
        return engine.problem.sign * costs.astype(np.float64), known

    def costs(self, column_of_row: Array) -> tuple[Array, Array]:
        """Return the costs of these pairs that lists hold, see ``engine.core.held.Held``. O(n)."""
        engine = self.engine
        if engine is None or engine.listed is None:
            return np.zeros(column_of_row.size), np.zeros(column_of_row.size, bool)
        matching = np.maximum(engine.column_of_row, S.FREE)
        costs, known = engine.listed.costs(matching, engine.match_cost, engine.lists.reference)
        same = self.restored(matching, engine.v)[0] == column_of_row
        return self._by_row(costs), self._by_row(known) & same

    def _by_row(self, values: Array) -> Array:
        if self.rows is None:
            return values
        restored = np.empty_like(values)
        restored[self.rows] = values
        return restored

    def restored(self, matching: Array, v: Array) -> tuple[Array, Array]:
        """Return matching and prices in the problem's own order."""
        if self.rows is None or self.columns is None:
            return matching, v
        prices = np.empty_like(v)
        prices[self.columns] = v
        original = np.full(matching.size, S.FREE, np.intp)
        if matching.size:
            original[self.rows] = np.where(matching >= 0, self.columns[np.maximum(matching, 0)], S.FREE)
        return original, prices

    def seconds_per_row(self) -> float:
        """Recent seconds to read or evaluate a row; 0 while unknown."""
        engine = self.engine
        return max(self.counts.seconds_per_row, 0.0 if engine is None else engine.seconds_per_row)

    def totals(self) -> Counts:
        """Return the counts of evaluations and scans over all levels."""
        engine, total = self.engine, replace(self.counts)
        if engine is not None:
            counts = engine.lists.counts
            total.add(
                Counts(
                    engine.rows_evaluated,
                    engine.pairs_evaluated,
                    engine.rows_scanned,
                    doubled=int(counts.doubled),
                    refused=int(counts.refused),
                    list_bytes=engine.list_bytes,
                )
            )
        return total


@dataclass(frozen=True)
class ListSettings:
    """Settings of a solve on lists, the same for all levels.

    ``epsilon=False``: one phase from prices 0.
    start: one of ``first_prices.STARTS``.
    enough: called after each phase, returns whether its matching suffices; None below the top level.
    memory: initial bytes of the lists, None for no limit. exhausted: lists are abandoned once
    evaluations have taken this multiple of all pairs; 0: never. impatient: lists are abandoned only if
    whole rows are estimated to be faster, but already after the first evaluation if lists are too
    narrow. on_trial: they are abandoned if, and only if, some lists end much sooner than others.
    hold: lists keep the pairs' exact costs, for sources whose single costs take as long as rows.
    products: bytes that the inner products of all rows may take, see ``engine.lists.products``. many:
    costs of points of many dimensions, kept or not: lists are longer, and stale rows are evaluated in the
    midst of phases. offload: cluster workers that may evaluate rows which local kernels can read.
    """

    team: Team
    monitor: Monitor
    arithmetic: Arithmetic
    epsilon: bool
    seed: int
    k: int | None = None
    enough: Callable[[], bool] | None = None
    memory: int | None = None
    exhausted: int = 0
    impatient: bool = False
    on_trial: bool = False
    start: str = "auto"
    hold: bool = False
    products: int = 0
    many: bool = False
    offload: Offloading | None = None


@dataclass
class ListRun(PhaseRun):
    """State of a run over the phases: what a checkpoint adds to the engine's.

    plain: one phase with epsilon 0. warm: ``"pairs"`` or ``"prices"`` after a warm start with or
    without an assignment; pairs: ID (n,) the old column of each row in that case. guided: the first
    prices come from levels. stage: the next stage. Below ``lowest`` epsilon becomes 0. evaluated: rows
    evaluated before the current phase. sigma: epsilons by which events are postponed.
    """

    plain: bool = False
    pairs: Array = field(default_factory=lambda: np.empty(0, S.ID))
    warm: str = ""
    guided: bool = False
    stage: int = EVALUATE
    lowest: float = 0.0
    evaluated: int = 0
    sigma: float = 0.0
