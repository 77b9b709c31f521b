"""Choice of the executor: a Dask cluster's worker processes, or threads of this process."""

from __future__ import annotations

import threading
from typing import Any

from bigsap_server.jobs.control import Command, Folder
from bigsap_server.jobs.executor import Executor, Listener, Order, Report
from bigsap_server.jobs.worker import run_job
from bigsap_server.settings import Settings


def make_executor(settings: Settings) -> Executor:
    """Return the executor that the settings specify, not yet started."""
    if settings.executor == "inline":
        return InlineExecutor(settings.default_workers)
    from bigsap_server.jobs.dask_executor import DaskExecutor

    return DaskExecutor(settings.scheduler, settings.default_workers, settings.data / "scratch")


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
        def tell(kind: Any, data: dict[str, Any]) -> None:
            self._listener(Report(order.job_id, order.attempt, kind, data))

        try:
            outcome = run_job(str(order.folder), order.spec, order.attempt, order.settings, report=tell)
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
