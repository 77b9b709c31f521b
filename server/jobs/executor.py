"""Where attempts run: in worker processes of a Dask cluster, or on threads of this process.

An executor carries an ``Order`` to a worker and brings ``Report``s back. It is a fast way
for both and no more: what was ordered and how it ended stands in the job's folder
(``control``), and the supervisor goes by that whenever an executor loses sight of a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from bigsap_server.jobs.control import Command, Folder
from bigsap_server.jobs.worker import run_job
from bigsap_server.settings import Settings


@dataclass(frozen=True)
class Order:
    """An attempt to run; the fields are those of ``worker.run_job``."""

    job_id: str
    attempt: int
    folder: Path
    spec: dict[str, Any] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Report:
    """News of an attempt.

    kind: ``begun``, ``progress`` and ``log`` as the worker tells; ``over`` with the outcome;
    ``lost`` when the executor can no longer tell what becomes of the attempt.
    """

    job_id: str
    attempt: int
    kind: Literal["begun", "progress", "log", "over", "lost"]
    data: dict[str, Any]


Listener = Callable[[Report], None]


class Executor(Protocol):
    """Runs attempts. Methods are called by one thread; the listener is called by any."""

    own_process: bool
    """Whether an attempt has a process that may be killed for its sake."""

    def subscribe(self, listener: Listener) -> None:
        """Where reports go. Once, before ``start``."""

    def start(self) -> None:
        """Get ready. Raises OSError when the workers cannot be reached (yet)."""

    def poll(self) -> None:
        """Regular care, several times a second: notice what was lost, connect again."""

    def ready(self) -> bool:
        """Whether there is somebody to run an attempt."""

    def free(self) -> int:
        """How many more attempts could run now."""

    def submit(self, order: Order) -> None:
        """Run it. Raises OSError when nobody can take it."""

    def cancel(self, order: Order, command: Command) -> None:
        """Have a running attempt stop as ``command`` says, within a second or so."""

    def kill(self, order: Order) -> None:
        """End the process of an attempt that does not obey, or forget one not yet begun."""

    def close(self) -> None:
        """Let the workers go. Attempts under way are lost."""


def make_executor(settings: Settings) -> Executor:
    """The executor that the settings ask for, not yet started."""
    if settings.executor == "inline":
        return InlineExecutor(settings.default_workers)
    from bigsap_server.jobs.dask_executor import DaskExecutor

    return DaskExecutor(settings.scheduler, settings.default_workers, settings.data / "scratch")


class InlineExecutor:
    """Runs up to ``slots`` attempts on threads of this process: for tests and notebooks.

    A thread cannot be killed: ``now`` waits until the solve looks up.
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

    def submit(self, order: Order) -> None:
        key = (order.job_id, order.attempt)
        thread = threading.Thread(target=self._run, args=(order,), name=f"bigsap-{key[0]}")
        with self._lock:
            self._threads[key], self._orders[key] = thread, order
        thread.start()

    def cancel(self, order: Order, command: Command) -> None:
        Folder(order.folder).command(order.attempt, command)

    def kill(self, order: Order) -> None:
        """Not possible."""

    def close(self) -> None:
        with self._lock:
            threads, orders = list(self._threads.values()), list(self._orders.values())
        for order in orders:
            self.cancel(order, "fenced")
        for thread in threads:
            thread.join()

    def _run(self, order: Order) -> None:
        def tell(kind: Any, data: dict[str, Any]) -> None:
            self._listener(Report(order.job_id, order.attempt, kind, data))

        try:
            outcome = run_job(
                str(order.folder), order.spec, order.attempt, order.settings, report=tell
            )
        except BaseException as error:
            self._forget(order)
            tell("lost", {"detail": f"{type(error).__name__}: {error}"})
            raise
        self._forget(order)
        tell("over", outcome)

    def _forget(self, order: Order) -> None:
        with self._lock:
            del self._threads[order.job_id, order.attempt]
            del self._orders[order.job_id, order.attempt]
