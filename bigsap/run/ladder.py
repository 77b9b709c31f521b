"""The ladder: which ways to an answer a solve tries, and in which order.

A strategy that declines has changed nothing but counts and ``run.hints``: prices from which a later
one begins. The ladder is a list of strategies, made before the search from what was asked for and
from the problem; the last one never declines.
"""

from __future__ import annotations

from typing import Protocol

from bigsap.run.on_lists import Lists, Trees
from bigsap.run.on_rows import Auction, WholeRows
from bigsap.run.optional_rows import OptionalRows
from bigsap.run.run import Run
from bigsap.run.sorted_matrices import SortedMatrices
from bigsap.strategies import Outcome


class Strategy(Protocol):
    """One way to an answer."""

    def fits(self, run: Run) -> bool:
        """Whether the strategy is tried at all. Reads no costs beyond a sample."""
        ...

    def attempt(self, run: Run) -> Outcome | None:
        """Solve; None if the strategy declines."""
        ...


#: Ways that end without a search where the costs allow it, cheapest first: tried unless a certain
#: way was asked for.
SHORT_WAYS: tuple[Strategy, ...] = (OptionalRows(), SortedMatrices())
#: What follows, by method. Lists may be given up, and whole rows then go on from their prices.
SEARCHES: dict[str, tuple[Strategy, ...]] = {
    "ssp": (WholeRows(),),
    "auction": (Auction(), WholeRows()),
    "compressed": (Lists(), WholeRows()),
    "hungarian": (Trees(), WholeRows()),
}


def climb(run: Run) -> Outcome:
    """Return the outcome of the first strategy that does not decline."""
    for strategy in (*SHORT_WAYS, *SEARCHES[run.method]):
        if strategy.fits(run):
            outcome = strategy.attempt(run)
            if outcome is not None:
                return outcome
    raise AssertionError(f"no strategy of method {run.method!r} has an answer")
