"""One solve, from rows to result: which search runs, from where, and what follows it."""

from __future__ import annotations

import math
import time
import weakref
from dataclasses import replace
from functools import partial
from traceback import clear_frames

import numpy as np

from bigsap import checkpoint
from bigsap.engine.core.held import Resting
from bigsap.engine.core.team import Team
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.options import Options, ssp_takes_levels
from bigsap.problem import Problem
from bigsap.progress import Monitor, PartMonitor, Snapshot, Stopped
from bigsap.proof.certificate import Certificate
from bigsap.proof.minima import seconds_by_bounds
from bigsap.result import Result, Status
from bigsap.run.call import SolveCall
from bigsap.run.certify import certified, confirmed, prove_now, within_gap
from bigsap.run.conclude import conclude
from bigsap.run.fingerprint import identity
from bigsap.run.gated_first import before_keeping, gated_outcome
from bigsap.run.interrupted import Conclusion, Deadline, Late, answer
from bigsap.run.kept_rows import kept_problem
from bigsap.run.refine import settled, signed_duals
from bigsap.run.sorted_first import sorted_outcome
from bigsap.run.stats import first_bounds, list_bounds
from bigsap.run.warm_start import GivenStart
from bigsap.run.without_proof import pair_costs, unproved
from bigsap.sources.base import Array
from bigsap.sources.clipped import Gated
from bigsap.sources.cluster.workers import Crew
from bigsap.strategies import ON_LISTS, Outcome, whole_rows
from bigsap.strategies.baselines.auction import run_auction
from bigsap.strategies.list_run import Setting, Solved
from bigsap.strategies.lists import first_prices, solve_compressed
from bigsap.strategies.orientation import orient
from bigsap.strategies.placement import device_name, lists_on_trial
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.trees import solve_hungarian

# Lists are given up once evaluations have taken so many times all pairs, if they still take longer
# than scans of whole rows would. Most problems take one to three.
_EXHAUSTED = 2
# The same where lists were asked for, or where whole rows have to be evaluated first.
_EXHAUSTED_LATE = 8
# A whole pass is worth trying for ``gap`` once epsilon times the rows is this many gaps:
# a phase's matching is usually much closer to optimal than an epsilon a row.
_PROMISING = 8


class Run(SolveCall):
    """The solve of a call."""

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
        gated: Gated | None = None,
        large: bool = False,
        crew: Crew | None = None,
    ) -> None:
        super().__init__(
            given,
            problem,
            monitor,
            options,
            n_threads,
            warm_start,
            saved,
            gated=gated,
            large=large,
            crew=crew,
        )
        self._open_checkpoint(large)

    # -- checkpoints ----------------------------------------------------------------

    def _open_checkpoint(self, large: bool) -> None:
        """Refuse a checkpoint of another solve; see that ours can be written, before work."""
        path, saved = self.options.checkpoint, self.saved
        if path is None and saved is None:
            return
        facts = identity(
            self.given, self.gated, self.problem, self.options, self.method, self.arithmetic, self.asked
        )
        if saved is not None:
            if large:
                # The costs that need int64 were met after the checkpoint: from the beginning.
                of_saved = {name: saved.facts.get(name) for name in ("price", "grid")}
                saved.refuse_unless(facts | of_saved)
                self.saved = replace(saved, snapshot={})
            else:
                saved.refuse_unless(facts)
            self.resumed = int(saved.facts.get("resumed", 0)) + 1
        facts["resumed"] = self.resumed
        if path is None:
            return
        if saved is None:
            checkpoint.write(path, facts, {})

        # Weakly: the monitor is ours. Holding us, it would keep rows and lists of a finished solve
        # until Python looks for cycles, which it does seldom.
        ours = weakref.ref(self)

        def save(snapshot: Snapshot) -> None:
            run = ours()
            if run is None:
                return
            if run.levels is not None:
                own = {"levels": vars(run.levels.counts), "levels_kind": run.levels.first_prices}
                snapshot = {**snapshot, **own}
            checkpoint.write(path, {**facts, "saved_after": run.monitor.seconds}, snapshot)

        self.monitor.save = save

    def _snapshot(self) -> Snapshot:
        """Where to continue; empty for the beginning."""
        return self.saved.snapshot if self.saved is not None else {}

    def _warm(self) -> Warm | None:
        if self.warm_start is None or self._snapshot():
            return None
        return self.warm_start.oriented(self.given, self.problem, self.monitor.tick, self.n_threads)

    # -- the way to the result ------------------------------------------------------

    def result(self) -> Result:
        """Solve, prove, and put the answer together."""
        n, m = self.problem.shape
        if n == 0 or m == 0:
            empty = np.full(n, -1, np.intp)
            return conclude(self, Conclusion(empty, certificate=prove_now(self, empty, np.zeros(m))))
        with Team(self.n_threads) as team:
            self.team = team
            if not self.options.certify and self.rows.policy != "in place":
                self.resting = Resting(self.rows.table)
            if self.method == "ssp":
                self.dense()  # costs that several devices share are copied there first
            first_bounds(self)
            found: Array | None = None
            self.reading = self.problem
            try:
                first = before_keeping(self)
                outcome = self._gated() if first else None
                if outcome is None:
                    self.reading = kept_problem(self)
                    outcome = None if first else self._gated()
                if outcome is None:
                    outcome = self._search_lists() if self.method in ON_LISTS else self._search()
                if outcome.violator.size:
                    outcome = confirmed(self, outcome)
                if outcome.violator.size:
                    return conclude(self, Conclusion(None), outcome.violator)
                found = outcome.column_of_row
                if self.engine is not None:
                    self.engine.release()
                if self.options.certify:
                    return conclude(self, certified(self, outcome, self._residual))
                return conclude(self, self._uncertified(outcome))
            except Stopped as stop:
                try:
                    return conclude(self, self._stopped(stop, found))
                finally:
                    # Frames that carried it to another thread's caller hold it, and so each
                    # other: a stopped solve's arrays would wait for Python's collector.
                    clear_frames(stop.__traceback__)

    def _search(self) -> Outcome:
        snapshot = self._snapshot()
        warm = self._warm()
        clock = time.perf_counter()
        try:
            if warm is None:
                outcome = self._sorted()
                if outcome is not None:
                    return outcome
                warm = self._first_prices(snapshot)
                if self.method == "auction" and not snapshot:
                    warm, self.auction = run_auction(
                        self.reading, self.monitor, self.arithmetic, self.options.variant
                    )
                if warm is not None:
                    snapshot = {}
                self.seconds["start"] += time.perf_counter() - clock
            outcome = whole_rows.run(
                self.dense(),
                epsilon=self.options.epsilon,
                seed=self.options.seed,
                grid=self.arithmetic.grid,
                warm=warm,
                enough=self._enough if self.options.gap > 0 else None,
                snapshot=snapshot,
                phases=self.phases,
                published=self.options.start == "estimate",
            )
        except Stopped:
            self.seconds["search"] += time.perf_counter() - clock
            raise
        for stage, seconds in outcome.seconds.items():
            self.seconds[stage] += seconds
        return outcome

    def _setting(self) -> Setting:
        options = self.options
        return Setting(
            self.team,
            self.monitor,
            self.arithmetic,
            options.epsilon,
            options.seed,
            start=options.start,
            enough=self._lists_enough,
            memory=options.memory_for_lists(self.problem),
            exhausted=self._exhausted(),
            impatient=self._exhausted() == _EXHAUSTED,
            hold=not options.certify,
            on_trial=self._on_trial(),
            beside=self.beside,
        )

    def _on_trial(self) -> bool:
        """Whether lists may still give way to whole rows, as they do where searches ask for too
        many evaluations."""
        return self.asked == "auto" and lists_on_trial(self.problem.source)

    def _exhausted(self) -> int:
        """After how many times all pairs lists give way to scans of whole rows: never, where
        these are not in the host's memory and may not stay in its cache."""
        fit = self.rows.policy == "in place" or self.rows.n_slots >= self.problem.shape[0]
        if device_name(self.problem.source) != "cpu" or not fit:
            return 0
        chosen = self.asked in ON_LISTS or self.rows.policy != "in place"
        return _EXHAUSTED_LATE if chosen else _EXHAUSTED

    def _first_prices(self, snapshot: Snapshot) -> Warm | None:
        """Prices of levels for whole rows, where they pay; None for the method's own start."""
        if "levels" in snapshot:
            self.levels = Solved()
            self.levels.first_prices = snapshot["levels_kind"]
            self.levels.counts.add(Counts(**snapshot["levels"]))
        within = "ladder_level" in snapshot
        if (snapshot and not within) or not ssp_takes_levels(self.problem, self.options):
            return None
        self.levels = self.levels or Solved()
        setting = replace(self._setting(), enough=None)
        first = first_prices(self.problem, setting, self.levels, snapshot, own_estimate=True)
        return None if first.v is None else Warm(first.v, guided=True)

    def _search_lists(self) -> Outcome:
        """Solve by compressed rows, row by row or with trees; the dense engine closes, and
        repairs if need be."""
        solved = self.lists = self.lists or Solved()
        setting = self._setting()
        outcome = self._sorted()
        if outcome is not None:
            return outcome
        clock = time.perf_counter()
        self.monitor.bounds = partial(list_bounds, self)
        try:
            given = (self._snapshot(), self.phases, self._warm())
            if self.method == "hungarian":
                solve_hungarian(self.reading, setting, solved, self.options.variant, *given)
            else:
                solve_compressed(self.reading, setting, solved, *given)
        except ListsExhausted:
            self.seconds["search"] += time.perf_counter() - clock
            return self._search_without_lists(solved)
        except Stopped:
            self.seconds["search"] += time.perf_counter() - clock
            known = solved.known()
            if known is not None:
                self.standing = known
                solved.teach(self.known)
            raise
        finally:
            self.monitor.bounds = None
        outcome = solved.outcome
        for stage, seconds in outcome.seconds.items():
            self.seconds[stage] += seconds
        if outcome.column_of_row is not None:
            self.standing = outcome.column_of_row, outcome.v
        return outcome

    def _gated(self) -> Outcome | None:
        """The answer from the few pairs that are worth it, where rows may stay unassigned."""
        if not isinstance(self.problem.source, Gated) or self._snapshot() or self._asked():
            return None
        return gated_outcome(self, self._shortcut(), self._setting(), self._warm())

    def _sorted(self) -> Outcome | None:
        """The answer for costs that sorting makes Monge."""
        if self.warm_start is not None or self._snapshot() or self._asked():
            return None
        return sorted_outcome(self, self._shortcut(), partial(prove_now, self))

    def _asked(self) -> bool:
        """Whether a certain way to the answer was asked for."""
        options = self.options
        named = self.asked in ("ssp", "hungarian", "auction")
        return options.start != "auto" or named or not options.epsilon

    def _shortcut(self) -> Solved:
        """What takes note of a way that needs no phases; other ways may follow."""
        if self.method in ON_LISTS:
            self.lists = self.lists or Solved()
            return self.lists
        if self.levels is None:
            self.levels = Solved()
            self.levels.first_prices = "estimate"
        return self.levels

    def _search_without_lists(self, solved: Solved) -> Outcome:
        """Go on by scans of whole rows from the prices that the lists have come to."""
        known, first, warm = solved.known(), solved.first_known(), None
        self.whole_rows, self.monitor.save = True, None  # a resumed solve comes here again
        if self._on_trial() and not self.phases:
            self.why = "the device scans whole rows: some lists end long before others"
            if first is not None and ssp_takes_levels(self.problem, self.options):
                warm = Warm(first, guided=True)
        elif known is not None and not self._exhausted():
            warm = Warm(known[1], known[0])
        elif known is not None:
            # Lists leave prices that fell where lists ended, which take whole rows 3 to 8
            # times the scans that the levels' own take. Phases follow either: few rows may be
            # left, but their plain searches would go through all others.
            warm = Warm(known[1] if first is None else first, guided=True)
        outcome = whole_rows.run(
            self.dense(),
            epsilon=self.options.epsilon,
            seed=self.options.seed,
            grid=self.arithmetic.grid,
            warm=warm,
            enough=self._enough if self.options.gap > 0 else None,
            phases=self.phases,
        )
        for stage, seconds in outcome.seconds.items():
            self.seconds[stage] += seconds
        return outcome

    def _lists_enough(self) -> bool:
        """After a phase on lists: what it proves, and whether that is the gap asked for.

        The pass over the costs is made only when the lists' own bound says that it is.
        """
        assert self.lists is not None
        known, solved = self.known, self.lists
        solved.teach(known)
        known.tell(self.monitor)
        if self.options.gap <= 0 or known.cost is None or known.bound is None:
            return False
        now = solved.known()
        if now is not None and known.cost - known.bound <= self.options.gap:
            within_gap(self, prove_now(self, *now))
        return self.proved is not None

    def _enough(self, column_of_row: Array, v: Array, epsilon: float) -> bool:
        """Whether a phase's matching is within the gap asked for.

        One pass over the costs, made only when the phase's epsilon gives hope; what it
        learns is kept either way.
        """
        if epsilon * len(column_of_row) > _PROMISING * self.options.gap:
            return False
        certificate = prove_now(self, column_of_row.astype(np.intp), v)
        within_gap(self, certificate)
        return self.proved is not None

    def _uncertified(self, outcome: Outcome) -> Conclusion:
        """The outcome as it is, its costs and duals from what the search holds."""
        found = outcome.column_of_row
        if found is None:
            return Conclusion(None)
        held = [holder for holder in (self.resting, self.lists) if holder is not None]
        costs = pair_costs(self.problem, self.rows, held, found, self.monitor.tick)
        told = unproved(self.problem, found, costs, outcome.v)
        if told.doubtful:
            # Prices so large that their rounding may have decided.
            proved = certified(self, outcome, self._residual)
            certificate = proved.certificate
            if certificate is not None and not settled(self, certificate):
                return proved
            if self.refined and certificate is not None:
                u, u_low, v, v_low = signed_duals(self, certificate)
                return Conclusion(proved.column_of_row, certificate.fun, u=u, v=v, u_low=u_low, v_low=v_low)
        return Conclusion(found, told.fun, u=told.u, v=told.v)

    def _residual(self, problem: Problem, column_of_row: Array | None) -> Outcome | None:
        """Solve a residual problem, see ``bigsap.run.refine``; from zero prices and an
        assignment, where one is given."""
        options = replace(
            self.options,
            maximize=False,
            method="auto",
            epsilon=True,
            dtype=None,
            device="cpu",
            gap=0.0,
            checkpoint=None,
            certify=False,
            start="auto",
            variant="auto",
        )
        monitor = PartMonitor(self.monitor, problem.shape[0], 0)
        start = None
        if column_of_row is not None:
            start = GivenStart(np.zeros(problem.shape[1]), None, column_of_row)
        run = Run(problem, orient(problem), monitor, options, self.n_threads, start, None)
        try:
            outcome = run.outcome()
        finally:
            monitor.close()
        self.phases += run.phases
        if run.problem.transposed and outcome is not None:
            return None
        return outcome

    def outcome(self) -> Outcome:
        """The search alone, for a part of another solve."""
        with Team(self.n_threads) as team:
            self.team = team
            self.reading = self.problem
            outcome = self._search_lists() if self.method in ON_LISTS else self._search()
            if self.engine is not None:
                self.engine.release()
            return outcome

    def _stopped(self, stop: Stopped, found: Array | None) -> Conclusion:
        """The best that is known; see ``bigsap.run.interrupted``."""
        self.stopped = Status(stop.reason)
        deadline = Deadline(self.monitor.grace(), lambda: self.monitor.cancelled)

        def proof(column_of_row: Array | None, v: Array) -> Certificate:
            if not self.options.certify:
                raise Late
            return prove_now(self, column_of_row, v, deadline=deadline)

        costs = None
        if self.lists is not None and found is None and not self.whole_rows:
            self.seconds_per_row = self.lists.seconds_per_row()
            costs = self.lists.pair_costs()
        every = self.options.certify == "pairs"
        quick = math.inf if every else seconds_by_bounds(self.problem.source)
        closing = answer(self, deadline, proof, found, costs, quick)
        if self.options.certify:
            return closing
        return replace(closing, bound=None, u=None, v=None, u_low=None, v_low=None)
