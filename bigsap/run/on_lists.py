"""Strategies on compressed rows: row-by-row searches, and trees from all free rows."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from bigsap import policy
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.progress import Stopped
from bigsap.run.certify import prove_now, within_gap
from bigsap.run.kept_rows import keep_rows, keeps_all
from bigsap.run.run import Run
from bigsap.run.stats import list_bounds
from bigsap.strategies import Outcome, work
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.list_sizes import many_dimensions
from bigsap.strategies.lists import solve_compressed
from bigsap.strategies.start.samples import pairs_are_cheap
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.trees import solve_hungarian
from bigsap.strategies.work import Work, has_bounds


class Lists:
    """``method="compressed"``: successive shortest paths on lists."""

    def expects(self, run: Run) -> Work:
        """Return the work of lists, which are abandoned later where they do not pay."""
        return work.on_lists(run.problem.shape, bounded=has_bounds(run.problem.source), kept=keeps_all(run))

    def attempt(self, run: Run) -> Outcome | None:
        """Solve, or return None once lists are abandoned, with their prices in ``run.hints``."""
        keep_rows(run)
        solved = run.lists = run.lists or ListSolve()
        clock = time.perf_counter()
        run.monitor.bounds = partial(list_bounds, run)
        try:
            self._solve(run, setting_of(run), solved, run.snapshot, run.phases, run.warm())
        except ListsExhausted:
            run.seconds["search"] += time.perf_counter() - clock
            give_up(run, solved)
            return None
        except Stopped:
            run.seconds["search"] += time.perf_counter() - clock
            known = solved.known()
            if known is not None:
                run.standing = known
                solved.report_to(run.known)
            raise
        finally:
            run.monitor.bounds = None
        outcome = solved.outcome
        run.add_seconds(outcome)
        if outcome.column_of_row is not None:
            run.standing = outcome.column_of_row, outcome.v
        return outcome

    def _solve(self, run: Run, setting: ListSettings, solved: ListSolve, *given: Any) -> None:
        solve_compressed(run.reading, setting, solved, *given)


class Trees(Lists):
    """``method="hungarian"``: trees from all free rows, on the same lists."""

    def expects(self, run: Run) -> Work:
        """Return the work of trees, which lists take over from where they do not pay."""
        return work.on_trees(run.problem.shape)

    def _solve(self, run: Run, setting: ListSettings, solved: ListSolve, *given: Any) -> None:
        solve_hungarian(run.reading, setting, solved, run.options.variant, *given)


def setting_of(run: Run) -> ListSettings:
    """Return the list settings for the options of the call."""
    options = run.options
    return ListSettings(
        run.team,
        run.monitor,
        run.arithmetic,
        options.epsilon,
        options.seed,
        start=options.start,
        enough=partial(_enough, run),
        memory=options.memory_for_lists(run.problem),
        exhausted=run.exhausted,
        impatient=run.exhausted == policy.EXHAUSTED,
        hold=not pairs_are_cheap(run.reading),
        products=options.cache_budget(run.problem),
        many=run.method == "compressed" and many_dimensions(run.problem.source),
        on_trial=run.lists_are_on_trial,
        offload=run.offload,
    )


def _enough(run: Run) -> bool:
    """Return whether the matching after a phase on lists is within the requested gap.

    The pass over the costs is made only when the lists' own bound indicates success.
    """
    assert run.lists is not None
    known, solved = run.known, run.lists
    solved.report_to(known)
    known.tell(run.monitor)
    if run.options.gap <= 0 or known.cost is None or known.bound is None:
        return False
    now = solved.known()
    if now is not None and known.cost - known.bound <= run.options.gap:
        within_gap(run, prove_now(run, *now))
    return run.proved is not None


def give_up(run: Run, solved: ListSolve) -> None:
    """Save the lists' current prices for scans of whole rows."""
    known, first = solved.known(), solved.first_known()
    run.whole_rows, run.monitor.save = True, None  # a resumed solve reaches this point again
    if run.lists_are_on_trial and not run.phases:
        run.why = "the device scans whole rows: some lists end long before others"
        if first is not None and run.takes_levels:
            run.hints = Warm(first, guided=True)
    elif known is not None and not run.exhausted:
        run.hints = Warm(known[1], known[0])
    elif known is not None:
        # Where lists ended, their prices have fallen, and scans from them are 3 to 8 times as many as from
        # the levels' prices. Epsilon phases follow in either case: few rows may be left, but plain searches
        # for them would pass through all others.
        run.hints = Warm(known[1] if first is None else first, guided=True)
