"""The workers of one solve, and the waves that they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bigsap.sources.base import Array, Task
from bigsap.sources.cluster.connection import ClusterConnection, cores_here
from bigsap.sources.cluster.row_blocks import WaveBlocks
from bigsap.sources.cluster.sharing import Shared

__all__ = ["Workers", "cores_here"]


class Workers(ClusterConnection):
    """The workers behind a ``distributed.Client``, for one solve; a context manager.

    duals_of: the task that makes the certificate's pass over some rows; None where none is made.
    """

    def __init__(self, where: Any, n_workers: int, duals_of: Task | None = None) -> None:
        super().__init__(where, n_workers)
        self.duals_of = duals_of

    def told(self) -> dict[str, Any]:
        """``stats["cluster"]``: who there was, what they did, and whether it paid: whether their
        work took longer than it was waited for, and would so have taken one thread here."""
        counts = vars(self.counts)
        waited = self.counts.waited + self.counts.started
        paid = {"faster": self.counts.busy / max(waited, 1e-9), "paid": self.counts.busy > waited}
        return {"workers": len(self.seats), "threads": self.n_threads, **counts, **paid}

    def wave(
        self,
        costs: tuple[str, Shared],
        task: Task,
        rows: Array,
        *,
        kind: str,
        row_bytes: int,
        tick: Callable[[], None],
        shared: Shared | None = None,
        args: Callable[[Array], tuple[Any, ...]] = lambda positions: (),
    ) -> Iterator[tuple[Array, Array]]:
        """Evaluate rows, and yield positions in ``rows`` with their bytes, in no fixed order.

        task: a function of a module, called there with the worker's costs, ``shared``, the
        block's rows and ``args(positions)``. kind: "list", "row" or "dual". row_bytes: what a
        row takes on a worker. tick: called many times a second; what it raises ends the wave.

        Of errors of BigSAP on workers, the one of the first row is raised, naming the worker.
        """
        if not rows.size:
            return
        wave = WaveBlocks(self, costs, task, rows, kind, row_bytes, shared, args)
        self.counts.waves += 1
        try:
            yield from wave.run(tick)
        finally:
            wave.end()
