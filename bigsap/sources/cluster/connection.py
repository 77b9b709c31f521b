"""The connection of one solve to its Dask workers.

Dask.distributed moves, schedules and repeats tasks. This module keeps the list of workers, the
seconds that a row takes, the worker that probably has each row in its cache, and the workers that
are late.
"""

from __future__ import annotations

import itertools
import logging
import math
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from bigsap.errors import ClusterError, OptionError
from bigsap.sources.base import Task
from bigsap.sources.cluster import on_worker
from bigsap.sources.cluster.sharing import Line, Shared
from bigsap.system import usable_cores
from bigsap.types import Array

#: Seconds between refreshes of the list of workers.
_LOOK_SECONDS = 1.0
_SEND_SECONDS = 0.001


@dataclass
class ClusterCounts:
    """Counters of one solve's use of its workers.

    waves, blocks: of rows; again: blocks sent once more. rows: rows of blocks that came back;
    rows_asked: those among them that workers read from the source. list_bytes, row_bytes,
    dual_bytes: bytes of answers, by content. sent_bytes: bytes sent to workers: recipes, prices,
    arguments of blocks, and all messages of lookups; copies between workers and Dask's own
    messages are not counted. busy: seconds that workers worked; idle: seconds that their threads
    did not work while a wave was out. waited: seconds for which waves were out; started: seconds
    until there were workers. by_worker: rows by address.
    """

    waves: int = 0
    blocks: int = 0
    again: int = 0
    rows: int = 0
    rows_asked: int = 0
    list_bytes: int = 0
    row_bytes: int = 0
    dual_bytes: int = 0
    sent_bytes: int = 0
    busy: float = 0.0
    idle: float = 0.0
    waited: float = 0.0
    started: float = 0.0
    by_worker: dict[str, int] = field(default_factory=dict)


class ClusterConnection:
    """The workers behind a ``distributed.Client``, for one solve; a context manager.

    where: a Client, which stays open; a scheduler's address; or "local", a ``LocalCluster`` of
    ``n_workers`` processes with one thread each, which is closed at the end.
    """

    def __init__(self, where: Any, n_workers: int) -> None:
        distributed = _distributed()
        self.token = f"bigsap-{secrets.token_hex(6)}"
        self.counts = ClusterCounts()
        self._owned: list[Any] = []
        self._serials = itertools.count(1)
        clock = time.perf_counter()
        if isinstance(where, distributed.Client):
            if where.asynchronous:
                raise OptionError("cluster needs a Client that is not asynchronous")
            self.client = where
        elif isinstance(where, str) and where:
            address = self._local_cluster(distributed, n_workers) if where == "local" else where
            self.client = self._connect(distributed, address)
        else:
            raise OptionError(
                f'cluster must be a distributed.Client, the address of a scheduler, or "local", got {where!r}'
            )
        self.local = where == "local"
        #: Addresses, in the order in which rows are shared out, and the number of threads of each.
        self.seats: list[str] = []
        self.threads: dict[str, int] = {}
        self._looked = -math.inf
        #: Seconds a row, by what is made of it; and of one that the costs are asked for.
        self._pace: dict[tuple[Task, bool], float] = {}
        self._dear: float | None = None
        #: The worker that evaluated each row last and has probably kept it: its place in
        #: ``_known``, or -1.
        self.row_owners: dict[str, Array] = {}
        self._known: dict[str, int] = {}
        #: The recent share of rows that workers should have kept but had not.
        self.forgotten = 0.0
        #: Late workers, and the time until which they get no blocks.
        self.late: dict[str | None, float] = {}
        self._tokens: list[str] = []
        #: Futures whose answers have been fetched. Releasing one sends a message, which would delay
        #: the next blocks; so they are released after those.
        self.spent: list[Any] = []
        try:
            self._await_workers()
        except BaseException:
            self.close()
            raise
        self._hurry()
        self.counts.started = time.perf_counter() - clock

    # -- connecting and closing ---------------------------------------------------------

    def _local_cluster(self, distributed: Any, n_workers: int) -> Any:
        import dask

        # A worker that does not return in time is closed together with its nanny. The setting is
        # read at each loss of a worker.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "3650 days"})
        with dask.config.set({"distributed.worker.daemon": True}):
            cluster = distributed.LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                silence_logs=logging.ERROR,
            )
        self._owned.append(cluster)
        return cluster

    def _connect(self, distributed: Any, where: Any) -> Any:
        try:
            # Local workers can be reached directly: answers need not pass through the scheduler.
            direct = True if self._owned else None
            client = distributed.Client(where, timeout=30, set_as_default=False, direct_to_workers=direct)
        except (OSError, TimeoutError, ValueError) as error:
            self.close()
            raise ClusterError(f"no scheduler answers at {where}: {error}") from error
        self._owned.insert(0, client)
        return client

    def _await_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=60)
        except TimeoutError as error:
            raise ClusterError("the cluster has no worker") from error
        self.look()

    def _hurry(self) -> None:
        """Have tasks sent at once.

        A client waits for 10 ms after each message to batch it with the next ones. For the second
        of two blocks that is as long as its round trip.
        """
        stream = getattr(self.client, "scheduler_comm", None)
        if stream is not None and getattr(stream, "interval", 0.0) > _SEND_SECONDS:
            stream.interval = _SEND_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what the workers keep; close what this object opened."""
        client = getattr(self, "client", None)
        if client is not None and client.status == "running" and not getattr(self, "local", True):
            # Skip late workers: waiting for one that hangs could block, and it keeps little.
            prompt = [seat for seat in self.seats if not self.is_late(seat)]
            for token in self._tokens:
                with suppress(Exception):
                    client.run(on_worker.forget, token, workers=prompt, on_error="ignore")
        for closing in self._owned:
            with suppress(OSError, TimeoutError, RuntimeError):
                closing.close(timeout=5)
        self._owned = []

    @property
    def n_threads(self) -> int:
        """The number of threads of all workers together; at least 1."""
        return max(1, sum(self.threads.values()))

    def look(self) -> None:
        """Refresh the list of workers; a new worker takes the place of one that left."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS and self.threads:
            return
        self.alive()
        try:
            self.threads = dict(self.client.nthreads())
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"the cluster is lost: {error}") from error
        self._looked = now
        new = sorted(set(self.threads) - set(self.seats))
        for place, address in enumerate(self.seats):
            if address not in self.threads and new:
                self.seats[place] = new.pop(0)
        self.seats = [address for address in self.seats if address in self.threads] + new

    def alive(self) -> None:
        """Raise ClusterError if the scheduler is lost."""
        if self.client.status != "running":
            raise ClusterError(f"the cluster is lost: its scheduler is {self.client.status}")

    # -- waves ------------------------------------------------------------------------

    def pace(self, task: Task, *, kept: bool = False) -> float | None:
        """Return the seconds that a worker takes for a row, None if unknown.

        kept: for a row that the worker should have in its cache, not one that it must evaluate.
        """
        if not kept or self._dear is None:
            return self._pace.get((task, True), self._dear)
        quick = self._pace.get((task, False), self._dear)
        return quick + self.forgotten * self._dear

    def learn(self, task: Task, seconds: float, n_rows: int, n_asked: int) -> None:
        """Record the time of a block, of which ``n_asked`` rows were evaluated.

        Rows differ, so the pace rises at once and falls by halves. Cached rows and evaluated rows
        are recorded apart: blocks sized by a mean of both would keep the other workers waiting.
        """
        new, key = seconds / (n_asked or n_rows), (task, n_asked > 0)
        self._pace[key] = max(1e-7, new, self._pace.get(key, 0.0) / 2)
        if n_asked:
            self._dear = self._pace[key]

    def is_late(self, seat: str | None) -> bool:
        """Return whether a worker gets no blocks at present because others had to wait for it."""
        return time.monotonic() < self.late.get(seat, -math.inf)

    def number(self, address: str) -> int:
        """Return the number that stands for a worker in ``row_owners``."""
        return self._known.setdefault(address, len(self._known))

    def share(self, values: Array) -> Shared:
        """Return the data that all blocks of a wave need, to be passed to ``wave``; they are sent once."""
        return Line(self._serials).version(values)

    def held(self, shared: Shared) -> tuple[Any, Array | None]:
        """Return the future of the shared data, and the changes since.

        The data are sent when the first block needs them.
        """
        base, since = shared.based()
        # Its worker may have died with it; some schedulers then answer with an error at once.
        gone = base.future is None or base.future.status in ("error", "cancelled")
        # If all workers are late, Dask's own choice is as good as any.
        if gone or (base.doubtful and self.prompt()):
            self.counts.sent_bytes += base.values.nbytes
            base.future = self.submit(on_worker.hold, base.values, label="hold", **self.prompt())
            base.doubtful = False
        return base.future, since

    def prompt(self) -> dict[str, Any]:
        """Return options of ``submit`` that avoid late workers, which Dask does not know of."""
        if not any(map(self.is_late, self.seats)):
            return {}
        prompt = [seat for seat in self.seats if not self.is_late(seat)]
        return {"workers": prompt, "allow_other_workers": True} if prompt else {}

    def costs(self, recipe: bytes, n_rows: int, *, keep: bool = True) -> tuple[str, Shared]:
        """Return costs that workers can build, as ``wave`` takes them. keep: workers keep their rows."""
        token = f"{self.token}-{len(self._tokens)}"
        self._tokens.append(token)
        if keep:
            self.row_owners[token] = np.full(n_rows, -1, np.int32)
        return token, self.share(np.frombuffer(recipe, np.uint8))

    def submit(self, function: Any, *args: Any, label: str, **where: Any) -> Any:
        """Submit a task; return its future."""
        import dask

        # The scheduler stores the word before the first dash of a key for ever.
        key = f"bigsap-{label}-{self.token}-{next(self._serials)}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self.client.submit(function, *args, key=key, pure=False, **where)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise OptionError('cluster= needs Dask.distributed: pip install "bigsap[cluster]"') from error
    return distributed


def cores_here() -> int:
    """Return the number of processes of a local cluster."""
    return usable_cores()
