"""Executor on Dask, with a ``LocalCluster`` of its own or an existing scheduler.

A spread job has a worker of its own, like every job, and borrows idle ones in addition. Borrowed
workers count as free: a new job gets one of them at once, and the spread job continues with the
rest.
"""

from __future__ import annotations

import logging
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed
import psutil

from bigsap_server.jobs.control import Order
from bigsap_server.jobs.executor import Executor, Listener, Report
from bigsap_server.jobs.worker import run_job

_log = logging.getLogger("bigsap_server.executor")

_CONNECT_S, _CLUSTER_S = 3.0, 30.0
_LOOK_S = 0.5
#: Errors of a scheduler that is not there any more.
_GONE = (OSError, TimeoutError, RuntimeError)

# Configuration of the scheduler and workers that this process starts.
_CONFIG = {
    # Dask must report a lost attempt instead of running it again: the service counts attempts, records them
    # in the job's events, and delays jobs that kill worker after worker.
    "distributed.scheduler.allowed-failures": 0,
    # Forked children of a process with threads and an open zarr store hang.
    "distributed.worker.multiprocessing-method": "spawn",
    # Dask's memory manager would pause or kill a worker whose row cache fills the memory.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.monitor-interval": "10s",
    "distributed.worker.profile.enabled": False,
    # No web pages on additional ports.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}

# Set permanently, not only while the cluster is created: connections read it when they are created, and
# those of a client or a restarted worker are created later. By default, Dask keeps 1,000 messages of each
# connection, including those with a job's whole request, and an hour of metrics about each process.
_KEEP_LITTLE = {
    "distributed.admin.low-level-log-length": 1,
    "distributed.admin.system-monitor.log-length": 10,
    "distributed.diagnostics.computations.max-history": 1,
    "distributed.diagnostics.erred-tasks.max-history": 1,
}


@dataclass
class _Flight:
    """An attempt under way. lent: the idle workers last assigned to a spread attempt."""

    order: Order
    future: Any
    worker: str | None
    lent: list[str] | None = None


class DaskExecutor(Executor):
    """An ``Executor`` on Dask.distributed, one attempt a worker.

    scheduler: address of an existing scheduler (its workers must see the data directory
    under the same path; TLS and further settings come from Dask's configuration); None: a
    scheduler in this process and ``workers`` child processes, which end with it.
    They use TLS with a temporary certificate: anyone who can connect to a
    scheduler's port can run any code on it, including other users of the machine.
    scratch: folder for the workers' own files.
    """

    own_process = True

    def __init__(self, scheduler: str | None = None, workers: int = 1, scratch: Path | None = None) -> None:
        self._address, self._n_workers, self._scratch = scheduler, workers, scratch
        self._cluster: Any = None
        self._client: Any = None
        # Dask's threads remove flights; each access is one atomic operation.
        self._flights: dict[tuple[str, int], _Flight] = {}
        self._threads: dict[str, int] = {}
        self._looked = self._tried = float("-inf")

    def start(self, listener: Listener) -> None:
        super().start(listener)
        dask.config.set(_KEEP_LITTLE)
        if self._address is None and self._cluster is None:
            # Set permanently, because Dask reads it at each loss. A worker that is not back after this time
            # is given up together with its nanny; two losses within it, or a slow machine, would leave no
            # workers.
            dask.config.set({"distributed.deploy.lost-worker-timeout": "3650 days"})
            with dask.config.set(_CONFIG):
                self._cluster = distributed.LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=self._n_workers,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=0,
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                    security=distributed.Security.temporary(),  # type: ignore[no-untyped-call]
                    local_directory=None if self._scratch is None else str(self._scratch),
                    silence_logs=logging.ERROR,
                    preload=["bigsap_server.jobs.worker"],
                    # None of Dask's extensions: jobs use none of its locks and queues, must not be stolen,
                    # and its spans keep a record of every task forever.
                    scheduler_kwargs={"extensions": {}},
                    extensions={},
                )
        self._connect()

    def poll(self) -> None:
        now = time.monotonic()
        if self._client is None or self._client.status != "running":
            for key in list(self._flights):
                self._finish(Report(*key, why="the scheduler was lost"))
            if now - self._tried >= 1.0:
                self._tried = now
                with suppress(OSError):
                    self._connect()
        if now - self._looked >= _LOOK_S:
            self._update_workers()
        self._lend()

    def ready(self) -> bool:
        return bool(self._threads)

    def free(self) -> int:
        return len(self._threads) - len(self._flights)

    def workers(self) -> dict[str, int]:
        busy, lent = len(self._flights), len(self._lent())
        there = max(len(self._threads), busy + lent)
        return {"busy": busy, "lent": lent, "idle": there - busy - lent}

    def memory(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, nanny in dict(getattr(self._cluster, "workers", {})).items():
            if nanny.pid is not None:  # it is being started again
                with suppress(psutil.Error):
                    found[str(name)] = psutil.Process(nanny.pid).memory_info().rss
        return found

    def submit(self, order: Order) -> None:
        if self._client is None:
            raise ConnectionError("there is no scheduler")
        flights, lent = list(self._flights.values()), self._lent()
        idle = sorted(self._idle(), key=lambda address: address in lent)
        # One job per worker, also if workers have several threads, or if a spread job has released its
        # worker's only thread: the executor chooses among the idle workers. It is only a preference, or
        # Dask would wait for a worker that has died. Workers of one thread need no preference, and must not
        # have one: if a task with a preference finds no worker at all (the last one was killed just now),
        # the scheduler never considers it again when the next worker connects.
        spread = any(one.spread > 1 for one in (order, *(flight.order for flight in flights)))
        several = max(self._threads.values(), default=1) > 1
        worker = idle[0] if idle and (several or spread) else None
        future = self._client.submit(
            _run,
            order,
            # The scheduler keeps the part before the first dash forever.
            key=f"bigsap-{order.job_id}-{order.attempt}-{secrets.token_hex(4)}",
            pure=False,
            retries=0,
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,
        )
        key = order.key  # not the order: a callback that is never called would keep it
        self._flights[key] = _Flight(order, future, worker)
        future.add_done_callback(lambda done: self._done(key, done))

    def kill(self, order: Order) -> None:
        flight = self._flights.get(order.key)
        if flight is None or self._client is None:
            return
        with suppress(*_GONE):
            flight.future.cancel(force=True)
            worker = order.folder.worker(order.attempt)
            if worker is not None:
                self._client.restart_workers([worker], timeout=10, raise_for_error=False)

    def close(self) -> None:
        self._flights.clear()
        client, self._client = self._client, None
        cluster, self._cluster = self._cluster, None
        self._threads = {}
        for closing in (client, cluster):
            if closing is not None:
                try:
                    closing.close(timeout=5)
                except _GONE as error:
                    _log.warning("closing: %s: %s", type(error).__name__, error)

    # Internal

    def _idle(self) -> list[str]:
        busy = {flight.worker for flight in list(self._flights.values())}
        return [address for address in self._threads if address not in busy]

    def _lent(self) -> set[str]:
        return {address for flight in list(self._flights.values()) for address in flight.lent or ()}

    def _connect(self) -> None:
        if self._client is not None:
            with suppress(*_GONE):
                self._client.close(timeout=1)
            self._client = None
        where = self._cluster if self._address is None else self._address
        self._client = distributed.Client(where, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
        self._update_workers()

    def _update_workers(self) -> None:
        self._looked = time.monotonic()
        found: dict[str, int] = {}
        if self._client is not None and self._client.status == "running":
            with suppress(*_GONE):
                found = dict(self._client.nthreads())
        self._threads = found
        for flight in list(self._flights.values()):
            order = flight.order
            flight.worker = order.folder.worker(order.attempt) or flight.worker
            gone = found and flight.worker is not None and flight.worker not in found
            if gone and not order.folder.begun(order.attempt):
                # Dask may never consider the task again, see ``submit``.
                with suppress(*_GONE):
                    flight.future.cancel()
                self._finish(Report(*order.key))

    def _lend(self) -> None:
        """Distribute the idle workers among the spread attempts, and notify these."""
        flights = list(self._flights.values())
        spread = [one for one in flights if one.order.spread > 1 and one.worker is not None]
        if not spread:
            return
        idle = sorted(self._idle())
        for k, flight in enumerate(spread):
            share = idle[k :: len(spread)][: flight.order.spread - 1]
            if share != flight.lent:
                flight.order.folder.lend(flight.order.attempt, share)
                flight.lent = share

    def _done(self, key: tuple[str, int], future: Any) -> None:
        report = Report(*key)
        if future.status == "finished":
            try:
                report = Report(*key, future.result(timeout=_CONNECT_S))
            except Exception as error:  # noqa: BLE001 - the outcome's file decides
                report = Report(*key, why=f"{type(error).__name__}: {error}")
        elif future.status == "error":
            raised = future.exception(timeout=_CONNECT_S)
            if not isinstance(raised, distributed.KilledWorker):
                report = Report(*key, why=f"{type(raised).__name__}: {raised}")
                _log.error("%s, attempt %s: %s", *key, report.why)
        self._finish(report)

    def _finish(self, report: Report) -> None:
        if self._flights.pop((report.job_id, report.attempt), None) is not None:
            self._listener(report)


class _Lent(distributed.Client):
    """A client of a spread job: it sees only its own worker and those that are lent to the attempt.

    The executor may take them back at any time, through a file in the job's folder.
    """

    order: Order
    own: str

    def nthreads(self, workers: Any = None, **options: Any) -> dict[str, int]:
        ours = {self.own, *self.order.folder.lent(self.order.attempt)}
        there: dict[str, int] = super().nthreads(workers, **options)  # type: ignore[no-untyped-call]
        return {address: count for address, count in there.items() if address in ours}


def _run(order: Order) -> dict[str, Any]:
    """Run an attempt in the worker process. Called by Dask."""
    worker = distributed.get_worker()
    if order.spread == 1:
        return run_job(order, worker.address)
    # So that rows may be evaluated on this worker's thread while the solve waits for them.
    distributed.secede()  # type: ignore[no-untyped-call]
    client = _Lent(  # type: ignore[no-untyped-call]
        worker.scheduler.address,
        security=worker.security,
        set_as_default=False,
        timeout=_CLUSTER_S,
        direct_to_workers=True,
    )
    client.order, client.own = order, worker.address
    with client:
        return run_job(order, worker.address, client)
