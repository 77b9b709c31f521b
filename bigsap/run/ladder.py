"""Ladder of strategies: which strategies a solve tries, and in which order.

A strategy that declines has changed only counts and ``run.hints``, which are prices for a later
strategy to begin from. The ladder is built before the search from the request and the problem.
Its last strategy never declines.
"""

from __future__ import annotations

from typing import Protocol

from bigsap.run.ceiling import Ceiling
from bigsap.run.near_pairs import NearPairs
from bigsap.run.on_lists import Lists, Trees
from bigsap.run.on_rows import Auction, WholeRows
from bigsap.run.on_sparse import SparseRows
from bigsap.run.optional_rows import OptionalRows
from bigsap.run.run import Run
from bigsap.run.sorted_matrices import SortedMatrices
from bigsap.strategies import Outcome
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
    ways = () if run.method == "sparse" else SHORT_WAYS
    for strategy in (*ways, *SEARCHES[run.method]):
        work = strategy.expects(run)
        if work is None:
            continue
        run.expected = work
        outcome = strategy.attempt(run)
        if outcome is not None:
            return outcome
    raise AssertionError(f"no strategy of method {run.method!r} has an answer")
