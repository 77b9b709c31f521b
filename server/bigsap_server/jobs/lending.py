"""Dask client for a spread job, restricted to its own and lent workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed

from bigsap_server.jobs.control import Order

_CONNECT_S = 30.0


class Lent(distributed.Client):
    """A client that sees only its own workers and those that are lent to the attempt.

    ``dask_executor`` may take them back at any time, through a file in the job's folder.
    """

    order: Order
    own: str

    def nthreads(self, workers: Any = None, **options: Any) -> dict[str, int]:
        ours = {self.own, *self.order.folder.lent(self.order.attempt)}
        there: dict[str, int] = super().nthreads(workers, **options)  # type: ignore[no-untyped-call]
        return {address: count for address, count in there.items() if address in ours}


@contextmanager
def lent_to(order: Order) -> Iterator[Any]:
    """Yield the cluster for a spread attempt in this worker process."""
    worker = distributed.get_worker()
    client = Lent(  # type: ignore[no-untyped-call]
        worker.scheduler.address,
        security=worker.security,
        set_as_default=False,
        timeout=_CONNECT_S,
        direct_to_workers=True,
    )
    client.order, client.own = order, worker.address
    with client:
        yield client
