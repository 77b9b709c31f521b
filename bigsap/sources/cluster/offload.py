"""Workers beside kernels, for costs that compiled code computes and for mapped files.

Searches read such rows in this process, under the current prices. Waves of rows and the
certificate's pass are made by workers if they are faster than the threads here. The results are the
same bit for bit.
"""

from __future__ import annotations

from bigsap import policy
from bigsap.errors import BigsapError
from bigsap.sources.base import CostSource
from bigsap.sources.cluster.costs import ClusterCosts
from bigsap.sources.cluster.recipes import LiesHereError, recipe_of
from bigsap.sources.cluster.workers import Workers


class Offload:
    """Workers that share the work of kernels. See ``bigsap.sources.offloadable.Offloading``.

    used: whether any work has been sent to them.
    """

    def __init__(self, crew: Workers) -> None:
        self.crew, self.used = crew, False
        self._known: list[tuple[CostSource, ClusterCosts | None]] = []

    def pays(self, n_rows: int, seconds: float, n_threads: int, answer_bytes: int) -> bool:
        """Return whether workers make these rows sooner than the threads here.

        seconds: that ``n_threads`` threads here take for the rows. answer_bytes: of the answer for
        one row.
        """
        self.crew.look()
        there = seconds * n_threads / self.crew.n_threads
        sent = n_rows * answer_bytes / policy.WORKERS_BYTES_A_SECOND
        takes = there + sent + policy.WORKERS_WAVE_SECONDS
        return seconds > policy.WORKERS_LEAST_SECONDS and takes < policy.WORKERS_WORTH * seconds

    def of(self, source: CostSource) -> ClusterCosts | None:
        """Return the source as evaluated by workers; None for costs that cannot be sent."""
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
