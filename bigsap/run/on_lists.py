"""Strategies on compressed rows: searches row by row, and trees from all free rows."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from bigsap import policy
from bigsap.engine.lists.pool import ListsExhausted
from bigsap.progress import Stopped
from bigsap.run.certify import prove_now, within_gap
from bigsap.run.kept_rows import keep_rows
from bigsap.run.run import Run
from bigsap.run.stats import list_bounds
from bigsap.strategies import Outcome
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.lists import solve_compressed
from bigsap.strategies.start.warm import Warm
from bigsap.strategies.trees import solve_hungarian


class Lists:
    """``method="compressed"``: successive shortest paths on lists."""

    def fits(self, run: Run) -> bool:
        """Always: where lists do not pay they are given up."""
        return True

    def attempt(self, run: Run) -> Outcome | None:
        """None once lists are given up; ``run.hints`` are the prices they have come to."""
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

    def _solve(self, run: Run, setting: ListSettings, solved: ListSolve, *given: Any) -> None:
        solve_hungarian(run.reading, setting, solved, run.options.variant, *given)


def setting_of(run: Run) -> ListSettings:
    """How lists are to solve what the call asks for."""
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
        hold=not options.certify,
        on_trial=run.lists_are_on_trial,
        beside=run.beside,
    )


def _enough(run: Run) -> bool:
    """After a phase on lists: what it proves, and whether that is the gap asked for.

    The pass over the costs is made only when the lists' own bound says that it is.
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
    """Leave to whole rows the prices that the lists have come to."""
    known, first = solved.known(), solved.first_known()
    run.whole_rows, run.monitor.save = True, None  # a resumed solve comes here again
    if run.lists_are_on_trial and not run.phases:
        run.why = "the device scans whole rows: some lists end long before others"
        if first is not None and run.takes_levels:
            run.hints = Warm(first, guided=True)
    elif known is not None and not run.exhausted:
        run.hints = Warm(known[1], known[0])
    elif known is not None:
        # Lists leave prices that fell where lists ended, which take whole rows 3 to 8 times the
        # scans that the levels' own take. Phases follow either: few rows may be left, but their
        # plain searches would go through all others.
        run.hints = Warm(known[1] if first is None else first, guided=True)
