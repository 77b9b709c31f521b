"""State of one solve: the request, and its progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigsap import checkpoint, policy
from bigsap.engine.core.held import Resting
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.precision import choose
from bigsap.engine.core.state import FREE, infinity
from bigsap.engine.core.team import Team
from bigsap.engine.rows.row_engine import Engine
from bigsap.options import Options, choose_method, ssp_takes_levels
from bigsap.problem import Problem
from bigsap.progress import Monitor, Snapshot
from bigsap.proof.certificate import Certificate
from bigsap.proof.row_pass import BLOCK_BYTES
from bigsap.result import Status
from bigsap.row_cache import RowCache, Rows, parse_bytes
from bigsap.run.deadline import Deadline
from bigsap.run.warm_start import GivenStart
from bigsap.sources.base import Crewed
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.cluster.offload import Offload
from bigsap.sources.cluster.workers import Workers
from bigsap.strategies import ON_LISTS, Outcome, whole_rows
from bigsap.strategies.baselines.auction import refuse_many_costs
from bigsap.strategies.far_lines import NearCosts
from bigsap.strategies.list_run import ListSolve
from bigsap.strategies.orientation import refuse_more_rows, resident
from bigsap.strategies.placement import (
    device_name,
    engine_where,
    lists_on_trial,
    refuse_slabs,
    refuse_streaming,
)
from bigsap.strategies.sparse_pairs import arithmetic_of, sparse_part
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.work import Work
from bigsap.types import Array

# The certificate checks the clock after each block; blocks of slow rows take no longer than this.
BLOCK_SECONDS = 0.1


class Run:
    """State of one call of ``solve`` or ``resume``.

    given: the user's problem. problem: the same as it is solved. saved: the checkpoint to continue.
    gated: the source of ``given`` before it was placed on a device, where rows may stay unassigned.
    large: integer costs exceeded the usual range, see ``precision``. crew: the workers of a cluster,
    if one was given. offload: the same, for costs that stay in this process. hints: prices from an
    earlier strategy for the start of whole rows. keeps: whether ``reading`` caches the rows it reads,
    where that pays. stands_for: facts of the user's problem for a checkpoint, where ``given`` is not that
    problem, but one with copies of its columns or rows. near: the same problem without the sizes of far
    lines, to be searched in its place, see ``without_far_lines``. halted: the solve was stopped before the
    costs that it would search were known. declined: the strategies that need no search have declined the
    costs already, before these were placed on a device.
    """

    team: Team  # set when the search begins

    def __init__(
        self,
        given: Problem,
        problem: Problem,
        monitor: Monitor,
        options: Options,
        n_threads: int,
        warm_start: GivenStart | None,
        saved: checkpoint.Saved | None,
        *,
        gated: ClippedCosts | None = None,
        large: bool = False,
        crew: Workers | None = None,
        stands_for: dict[str, Any] | None = None,
        near: NearCosts | None = None,
        halted: bool = False,
        declined: bool = False,
    ) -> None:
        self.given, self.monitor = given, monitor
        if near is not None:
            problem = near.problem
        self.options, self.n_threads, self.saved = options, n_threads, saved
        self.warm_start, self.gated, self.crew = warm_start, gated, crew
        self.stands_for, self.near, self.halted = stands_for or {}, near, halted
        self.declined = declined
        stays = crew is not None and not isinstance(problem.source, Crewed)
        self.offload = Offload(crew) if crew is not None and stays else None
        # The method of the original request, if a checkpoint is continued: it determines which strategies
        # may be abandoned.
        facts = {} if saved is None else saved.facts
        self.asked = facts.get("asked_method", options.method)
        #: Largest price of the warm start. Prices of the search may be small again, and yet be rounded as
        #: numbers of this size.
        self.reach = float(facts.get("reach", 0.0 if warm_start is None else warm_start.reach))
        self.method, self.why = options.method, "asked for"
        listed = self.method == "auto" and sparse_part(problem.source) is not None
        # Sparse costs are searched as they are: one row has room, for the answer of a stopped solve.
        row_bytes = problem.shape[1] * problem.source.dtype.itemsize
        budget = row_bytes if listed else options.cache_budget(problem)
        if self.method == "auto":
            trees = bool(options.epsilon) and options.start == "auto" and warm_start is None
            self.method, self.why = choose_method(problem, budget, trees=trees)
        if near is not None:
            self.why = f"{self.why}; searched without the sizes of a few columns that are far from all others"
        if self.method == "ssp":
            refuse_streaming(problem.source)
        else:
            refuse_slabs(problem.source)
        anew = saved is None and warm_start is None  # a warm start needs no bids, and is not kept
        if self.method == "hungarian" or (self.method == "auction" and anew):
            refuse_more_rows(problem, self.method)
        if self.method == "auction":
            refuse_many_costs(problem, options.memory_for_lists(problem))
        large = large or facts.get("price") == "int64"
        self.arithmetic = arithmetic_of(problem) if listed else choose(problem, large=large)
        self.lists: ListSolve | None = None  # of methods on lists
        self.auction: dict[str, Any] = {}  # counts of the auction, see strategies.baselines.auction
        self.levels: ListSolve | None = None  # source of the first prices of "ssp"
        self.whole_rows = False  # whether whole rows continued after lists
        self.sparse_scans = 0  # rows scanned on sparse costs
        self.hints: Warm | None = None
        self.expected: Work | None = None  # of the strategy that is tried
        self.keeps = False
        self.engine: Engine | None = None  # scans whole rows; built on first use
        self.known = Incumbent(problem, infinity(self.arithmetic.price), active=monitor.can_stop)
        self.earlier: Incumbent | None = None  # of the attempts before, if a checkpoint is continued
        self.resting: Resting | None = None  # rows evicted from the cache, where these matter
        # Matching and prices found without the engine, until it has better ones.
        self.standing: tuple[Array, Array] | None = None
        self._seconds_per_row = 0.0
        self.stopped: Status | None = None
        self.late: Deadline | None = None  # the grace period, once a proof has met the time limit
        self.proved: Certificate | None = None  # of an assignment within the gap
        self.seconds = {"start": 0.0, "search": 0.0, "certificate": 0.0}
        self.phases: list[dict[str, Any]] = []
        self.certificate_pairs = 0
        self.refined = 0  # rounds of refinement
        self.resumed = 0
        self.fingerprint: str | None = None  # of the user's costs, if they have one and checkpoints are kept
        if near is not None:
            self.read(near.given, options.cache_budget(near.given))  # errors come before the search
        self.read(problem, budget, listed=listed)
        self.searched: dict[str, Any] = {}  # statistics of a search of other costs, see ``without_far_lines``

    def read(self, problem: Problem, budget: int, *, listed: bool = False) -> None:
        """Set the problem whose costs are read from now on, and the rows of them in memory.

        budget: bytes that rows may take, where they are not in memory already. listed: they stay sparse.
        """
        self.problem = problem
        self.reading = problem  # the same costs, of which rows may be kept
        matrix = resident(problem)
        if matrix is not None:
            self.rows = Rows.in_place(matrix)
            return
        cache = self.options.cache if isinstance(self.options.cache, RowCache) and not listed else RowCache()
        self.rows = Rows.cached(problem.shape, problem.source.dtype, cache, budget)

    # -- interface for strategies -------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """State to continue from; empty for a new solve."""
        return self.saved.snapshot if self.saved is not None else {}

    @property
    def is_continued(self) -> bool:
        """Whether the solve continues from a checkpoint."""
        return bool(self.snapshot)

    @property
    def is_way_named(self) -> bool:
        """Whether a certain strategy was requested."""
        options = self.options
        named = self.asked in ("ssp", "hungarian", "auction")
        return options.start != "auto" or named or not options.epsilon

    @property
    def takes_levels(self) -> bool:
        """Whether scans of whole rows may begin from prices of levels."""
        return ssp_takes_levels(self.problem, self.options)

    @property
    def own_first_prices(self) -> str:
        """The first prices of scans of whole rows without levels, as ``stats["first_prices"]`` names them."""
        if self.auction:
            return "none"
        if self.warm_start is not None:
            return "warm"
        return whole_rows.own_first_prices(self.problem.shape, self.options.epsilon)

    @property
    def lists_are_on_trial(self) -> bool:
        """Whether lists may still be abandoned for whole rows.

        This happens where searches need too many evaluations.
        """
        return self.asked == "auto" and lists_on_trial(self.problem.source)

    @property
    def exhausted(self) -> int:
        """Evaluations, as a multiple of all pairs, after which lists are abandoned for whole rows.

        Never, where whole rows are not in the host's memory and may not stay in its cache.
        """
        fit = self.rows.policy == "in place" or self.rows.n_slots >= self.problem.shape[0]
        if device_name(self.problem.source) != "cpu" or not fit:
            return 0
        chosen = self.asked in ON_LISTS or self.rows.policy != "in place"
        return policy.EXHAUSTED_LATE if chosen else policy.EXHAUSTED

    def warm(self) -> Warm | None:
        """The warm start in the problem's orientation; None without one, or for a resumed solve."""
        if self.warm_start is None or self.is_continued:
            return None
        warm = self.warm_start.oriented(self.given, self.problem, self.monitor.tick, self.n_threads)
        return warm if self.near is None else replace(warm, v=self.near.prices(warm.v))

    def short_way(self) -> ListSolve:
        """Return the record of a strategy that needs no phases; other strategies may follow."""
        if self.method in ON_LISTS:
            self.lists = self.lists or ListSolve()
            return self.lists
        if self.levels is None:
            self.levels = ListSolve()
            self.levels.first_prices = self.own_first_prices
        return self.levels

    def add_seconds(self, outcome: Outcome) -> None:
        """Count the seconds of a search, by stage."""
        for stage, seconds in outcome.seconds.items():
            self.seconds[stage] += seconds

    # -- engines ------------------------------------------------------------------------

    @property
    def seconds_per_row(self) -> float:
        """Longest recent time to read a whole row; 0 while unknown."""
        return self._seconds_per_row if self.engine is None else self.engine.reader.seconds_per_row

    @seconds_per_row.setter
    def seconds_per_row(self, seconds: float) -> None:
        self._seconds_per_row = seconds
        if self.engine is not None:
            self.engine.reader.seconds_per_row = seconds

    def dense(self) -> Engine:
        """Return the engine that scans whole rows, built on first use."""
        self.standing = None
        if self.engine is None:
            problem, engine = engine_where(
                self.problem, self.rows, self.team, self.monitor, self.arithmetic.price
            )
            if problem is not self.problem:  # the host's, after a stopped copy
                self.problem, self.known = problem, engine.known
            engine.known, engine.reader.resting = self.known, self.resting
            engine.reader.seconds_per_row = self._seconds_per_row
            self.engine = engine
        return self.engine

    def renewed(self) -> Engine:
        """Return that engine reset to prices 0 and no matching; counts are kept."""
        if self.engine is not None:
            self.engine.renew()
        return self.dense()

    def at_hand(self) -> tuple[Array, Array]:
        """Return copies of the current matching, FREE for a row without a column, and prices."""
        if self.standing is not None:
            matching, v = self.standing
            return np.maximum(matching, FREE).astype(np.intp), v.astype(self.arithmetic.price)
        if self.engine is not None:
            return self.engine.matching(), self.engine.prices()
        n, m = self.problem.shape
        return np.full(n, FREE, np.intp), np.zeros(m, self.arithmetic.price)

    def block_bytes(self) -> int:
        """Return the block size in bytes, for each thread, of a pass over the costs."""
        most = BLOCK_BYTES
        if self.options.memory_limit is not None:
            # Two blocks a thread, which together take a quarter of the limit.
            limit = parse_bytes(self.options.memory_limit, "memory_limit")
            most = min(most, max(1, limit // (8 * self.n_threads)))
        per_row = self.seconds_per_row
        if not per_row:
            return most
        rows = max(1, int(BLOCK_SECONDS / per_row))
        return max(1, min(most, rows * 8 * self.problem.shape[1]))
