"""Workers beside kernels: for costs that compiled code computes, and for mapped files.

Searches read such rows here, under the prices of the moment. Waves of rows and the certificate's
pass are made by workers where they make them sooner than the threads here; either way the bits are
the same.
"""

from __future__ import annotations

from bigsap import policy
from bigsap.errors import BigsapError
from bigsap.sources.base import CostSource
from bigsap.sources.cluster.costs import ClusterCosts
from bigsap.sources.cluster.recipes import LiesHereError, recipe_of
from bigsap.sources.cluster.workers import Workers


class Offload:
    """See ``bigsap.sources.offloadable.Beside``. used: whether anything has been handed to them."""

    def __init__(self, crew: Workers) -> None:
        self.crew, self.used = crew, False
        self._known: list[tuple[CostSource, ClusterCosts | None]] = []

    def pays(self, n_rows: int, seconds: float, n_threads: int, answer_bytes: int) -> bool:
        """Whether workers make these rows sooner than so many threads here, which take so many
        seconds for them. answer_bytes: what comes back of a row."""
        self.crew.look()
        there = seconds * n_threads / self.crew.n_threads
        sent = n_rows * answer_bytes / policy.WORKERS_BYTES_A_SECOND
        takes = there + sent + policy.WORKERS_WAVE_SECONDS
        return seconds > policy.WORKERS_LEAST_SECONDS and takes < policy.WORKERS_WORTH * seconds

    def of(self, source: CostSource) -> ClusterCosts | None:
        """The source as workers have it; None for costs that cannot be sent."""
        for known, spread in self._known:
            if known is source:
                return spread
        try:
            recipe = recipe_of(source)
        except (LiesHereError, BigsapError):
            found = None
        else:
            self.used = True
            costs = self.crew.costs(recipe, source.shape[0], keep=False)
            found = ClusterCosts(source, self.crew, costs)
        self._known.append((source, found))
        return found
