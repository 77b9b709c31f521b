"""Ladder of strategies: which strategies a solve tries, and in which order.

A strategy that declines has changed only counts and ``run.hints``, which are prices for a later
strategy to begin from. The ladder is built before the search from the request and the problem.
Its last strategy never declines.
"""

from __future__ import annotations

from typing import Protocol

from bigsap.problem import Problem
from bigsap.run.ceiling import Ceiling
from bigsap.run.near_pairs import NearPairs
from bigsap.run.on_lists import Lists, Trees
from bigsap.run.on_rows import Auction, WholeRows
from bigsap.run.on_sparse import SparseRows
from bigsap.run.optional_rows import OptionalRows, reads_source
from bigsap.run.run import Run
from bigsap.run.sorted_matrices import SortedMatrices
from bigsap.strategies import Outcome
from bigsap.strategies.near_pairs import is_near
from bigsap.strategies.orientation import resident
from bigsap.strategies.work import Work


class Strategy(Protocol):
    """Strategy that may solve a problem or decline it."""

    def expects(self, run: Run) -> Work | None:
        """Return the work of an attempt, None if the strategy does not fit. Reads at most a sample."""
        ...

    def attempt(self, run: Run) -> Outcome | None:
        """Solve, or return None if the strategy declines."""
        ...


#: Strategies that need no search where the costs allow it, cheapest first. Tried unless a certain strategy
#: was requested.
SHORT_WAYS: tuple[Strategy, ...] = (OptionalRows(), NearPairs(), Ceiling(), SortedMatrices())
#: Search strategies by method. Where lists are abandoned, whole rows continue from their prices.
SEARCHES: dict[str, tuple[Strategy, ...]] = {
    "ssp": (WholeRows(),),
    "auction": (Auction(), WholeRows()),
    "compressed": (Lists(), WholeRows()),
    "hungarian": (Trees(), WholeRows()),
    "sparse": (SparseRows(),),
}


def climb(run: Run) -> Outcome:
    """Return the outcome of the first strategy that does not decline."""
    ways = () if run.method == "sparse" or run.declined else SHORT_WAYS
    outcome = _first(run, (*ways, *SEARCHES[run.method]))
    if outcome is None:
        raise AssertionError(f"no strategy of method {run.method!r} has an answer")
    return outcome


def has_short_way(problem: Problem) -> bool:
    """Return whether ``climb_short`` may answer for costs on the host, which it reads in place.

    It would not pay for costs that are first computed, or copied, for it.
    """
    source = problem.source
    return resident(problem) is not None or reads_source(source) or is_near(source)


def climb_short(run: Run) -> Outcome | None:
    """Return the outcome of the first strategy that needs no search; None if all decline. No row is kept."""
    return _first(run, SHORT_WAYS if run.rows.policy == "in place" else SHORT_WAYS[:-1])


def _first(run: Run, strategies: tuple[Strategy, ...]) -> Outcome | None:
    for strategy in strategies:
        work = strategy.expects(run)
        if work is None:
            continue
        run.expected = work
        outcome = strategy.attempt(run)
        if outcome is not None:
            return outcome
    return None
