"""Executors: how attempts get to workers. One on threads is here, ``dask_executor`` has the other.

An executor sends an ``Order`` to a worker and reports its end. Command, progress and outcome are in
the job's folder (``control``), which decides whenever an executor loses contact with a worker.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bigsap_server.jobs.control import Order
from bigsap_server.jobs.worker import run_job

_log = logging.getLogger("bigsap_server.executor")


@dataclass(frozen=True)
class Report:
    """The end of an attempt. outcome: None if it was lost from sight; why: the reason."""

    job_id: str
    attempt: int
    outcome: dict[str, Any] | None = None
    why: str = "the worker was lost"


Listener = Callable[[Report], None]


class Executor(ABC):
    """Runs attempts. Methods are called by one thread; the listener is called by any."""

    own_process = False
    """Whether an attempt has a process that may be killed for its sake."""
    _listener: Listener

    def start(self, listener: Listener) -> None:
        """Connect to the workers; reports go to the listener. Raises OSError, and is then called again."""
        self._listener = listener

    def poll(self) -> None:  # noqa: B027 - nothing to detect, unless there is a cluster
        """Detect losses and reconnect. Called several times a second."""

    def ready(self) -> bool:
        """Return whether an attempt can be run."""
        return True

    @abstractmethod
    def free(self) -> int:
        """Return how many more attempts could run now."""

    def workers(self) -> dict[str, int]:
        """Return the numbers of the cluster's workers by activity.

        ``busy`` with a job, ``lent`` to spread ones, ``idle``. Empty where there is no cluster.
        """
        return {}

    def memory(self) -> dict[str, int]:
        """Return the bytes of memory of each of our own worker processes, by name."""
        return {}

    @abstractmethod
    def submit(self, order: Order) -> None:
        """Run an attempt. Raises OSError when no worker can take it."""

    def kill(self, order: Order) -> None:  # noqa: B027 - threads cannot be killed
        """Kill the process of an attempt that ignores its command, or drop one not yet begun."""

    @abstractmethod
    def close(self) -> None:
        """Release the workers. Attempts under way are lost."""


class InlineExecutor(Executor):
    """Runs up to ``slots`` attempts on threads of this process: for tests and notebooks.

    A thread cannot be killed: ``now`` takes effect when the solve checks for it.
    """

    def __init__(self, slots: int = 1) -> None:
        self._slots, self._pool = slots, ThreadPoolExecutor(slots, "bigsap-job")
        self._orders: dict[tuple[str, int], Order] = {}

    def free(self) -> int:
        return self._slots - len(self._orders)

    def submit(self, order: Order) -> None:
        self._orders[order.key] = order
        self._pool.submit(self._run, order)

    def close(self) -> None:
        for order in list(self._orders.values()):
            order.folder.command(order.attempt, "fenced")
        self._pool.shutdown()

    def _run(self, order: Order) -> None:
        try:
            report = Report(*order.key, run_job(order))
        except BaseException as error:  # noqa: BLE001 - of the service, as jobs have outcomes
            _log.exception("%s, attempt %s", *order.key)
            report = Report(*order.key, why=f"{type(error).__name__}: {error}")
        del self._orders[order.key]
        self._listener(report)
