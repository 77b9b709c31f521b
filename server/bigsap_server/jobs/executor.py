"""Executors: how attempts get to workers. One on threads is here, ``dask_executor`` has the other.

An executor sends an ``Order`` to a worker and reports its end. Command, progress and outcome are in
the job's folder (``control``), which decides whenever an executor loses contact with a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from bigsap_server.jobs.control import Command, Folder
from bigsap_server.jobs.worker import run_job

_ANY_NUMBER = 1 << 30


@dataclass(frozen=True)
class Order:
    """An attempt to run; the fields are those of ``worker.run_job``."""

    job_id: str
    attempt: int
    folder: Path
    spec: dict[str, Any] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)

    @property
    def spread(self) -> int:
        """Most workers that the attempt may use: 1 if it is not spread."""
        asked = self.spec.get("spread", False)
        return _ANY_NUMBER if asked is True else max(1, int(asked))


@dataclass(frozen=True)
class Report:
    """The end of an attempt: ``over`` with its outcome; ``lost`` from sight, with a ``detail``."""

    job_id: str
    attempt: int
    kind: Literal["over", "lost"]
    data: dict[str, Any]


Listener = Callable[[Report], None]


class Executor(Protocol):
    """Runs attempts. Methods are called by one thread; the listener is called by any."""

    own_process: bool
    """Whether an attempt has a process that may be killed for its sake."""

    def subscribe(self, listener: Listener) -> None:
        """Set the receiver of reports. Called once, before ``start``."""

    def start(self) -> None:
        """Connect to the workers. Raises OSError when they cannot be reached (yet)."""

    def poll(self) -> None:
        """Detect losses and reconnect. Called several times a second."""

    def ready(self) -> bool:
        """Return whether an attempt can be run."""

    def free(self) -> int:
        """Return how many more attempts could run now."""

    def workers(self) -> dict[str, int]:
        """Return the numbers of the cluster's workers by activity.

        ``busy`` with a job, ``lent`` to spread ones, ``idle``. Empty where there is no cluster.
        """

    def submit(self, order: Order) -> None:
        """Run an attempt. Raises OSError when no worker can take it."""

    def cancel(self, order: Order, command: Command) -> None:
        """Stop a running attempt as ``command`` says, within about a second."""

    def kill(self, order: Order) -> None:
        """Kill the process of an attempt that ignores its command, or drop one not yet begun."""

    def close(self) -> None:
        """Release the workers. Attempts under way are lost."""


class InlineExecutor:
    """Runs up to ``slots`` attempts on threads of this process: for tests and notebooks.

    A thread cannot be killed: ``now`` takes effect when the solve checks for it.
    """

    own_process = False

    def __init__(self, slots: int = 1) -> None:
        self._slots = slots
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        self._orders: dict[tuple[str, int], Order] = {}
        self._lock = threading.Lock()
        self._listener: Listener = lambda report: None

    def subscribe(self, listener: Listener) -> None:
        self._listener = listener

    def start(self) -> None:
        """Nothing to do."""

    def poll(self) -> None:
        """Nothing to do."""

    def ready(self) -> bool:
        return True

    def free(self) -> int:
        with self._lock:
            return self._slots - len(self._threads)

    def workers(self) -> dict[str, int]:
        return {}

    def submit(self, order: Order) -> None:
        key = (order.job_id, order.attempt)
        thread = threading.Thread(target=self._run, args=(order,), name=f"bigsap-{key[0]}")
        with self._lock:
            self._threads[key], self._orders[key] = thread, order
        thread.start()

    def cancel(self, order: Order, command: Command) -> None:
        Folder(order.folder).command(order.attempt, command)

    def kill(self, order: Order) -> None:
        """Do nothing: a job in this process cannot be killed."""

    def close(self) -> None:
        with self._lock:
            threads, orders = list(self._threads.values()), list(self._orders.values())
        for order in orders:
            self.cancel(order, "fenced")
        for thread in threads:
            thread.join()

    def _run(self, order: Order) -> None:
        key = (order.job_id, order.attempt)
        try:
            outcome = run_job(str(order.folder), order.spec, order.attempt, order.settings)
        except BaseException as error:
            self._forget(order)
            self._listener(Report(*key, "lost", {"detail": f"{type(error).__name__}: {error}"}))
            raise
        self._forget(order)
        self._listener(Report(*key, "over", outcome))

    def _forget(self, order: Order) -> None:
        with self._lock:
            del self._threads[order.job_id, order.attempt]
            del self._orders[order.job_id, order.attempt]
