"""Who works for one solve: connection, workers, and what is known of them.

Dask.distributed moves, schedules and repeats tasks. What is kept here: which workers there are,
how long their rows take, who has kept which rows, and who keeps others waiting.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from bigsap.errors import ClusterError, OptionError
from bigsap.sources.base import Array, Task
from bigsap.sources.cluster import on_worker
from bigsap.sources.cluster.sharing import Line, Shared

#: Seconds between looks at who is there.
_LOOK_SECONDS = 1.0
_SEND_SECONDS = 0.001


@dataclass
class ClusterCounts:
    """What a solve asked of its workers.

    waves, blocks: of rows; again: blocks sent once more. rows: blocks' rows that came back, rows
    that workers had to ask of the source among them. list_bytes, row_bytes, dual_bytes: of
    answers, by what they hold. sent_bytes: what goes to workers: recipes, prices and what each
    block needs, and all of the messages of lookups; a copy that one worker gives another is not
    counted, nor are the words of Dask's own. busy: seconds that workers worked; idle: that their
    threads did not while a wave was out. waited: seconds for which waves were out; started: until
    there were workers. by_worker: rows by address.
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
    ``n_workers`` processes of one thread, closed in the end.
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
        #: Addresses in the order of which rows are shared out, and threads of each.
        self.seats: list[str] = []
        self.threads: dict[str, int] = {}
        self._looked = -math.inf
        #: Seconds a row, by what is made of it; and of one that the costs are asked for.
        self._pace: dict[tuple[Task, bool], float] = {}
        self._dear: float | None = None
        #: Who evaluated each row last, and has probably kept it: by place in ``_known``, or -1.
        self.row_owners: dict[str, Array] = {}
        self._known: dict[str, int] = {}
        #: The share of rows, of late, that workers should have kept but had not.
        self.forgotten = 0.0
        #: Workers that kept others waiting, and until when they are left alone.
        self.late: dict[str | None, float] = {}
        self._tokens: list[str] = []
        #: Futures whose answers are here. Word that they are not needed any more would go out just
        #: before the next blocks, and hold them up: it follows them instead.
        self.spent: list[Any] = []
        try:
            self._await_workers()
        except BaseException:
            self.close()
            raise
        self._hurry()
        self.counts.started = time.perf_counter() - clock

    # -- coming and going -------------------------------------------------------------

    def _local_cluster(self, distributed: Any, n_workers: int) -> Any:
        import dask

        # A worker that is not back in time is given up, nanny and all; asked at each loss.
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
            # Workers on this machine are within reach: answers need not pass by the scheduler.
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
        """Have tasks sent as they come. A client waits for 10 ms after each message, for more to
        send with the next one: for the second of two blocks that would be as long as its way."""
        stream = getattr(self.client, "scheduler_comm", None)
        if stream is not None and getattr(stream, "interval", 0.0) > _SEND_SECONDS:
            stream.interval = _SEND_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the workers forget; close what was opened here."""
        client = getattr(self, "client", None)
        if client is not None and client.status == "running" and not getattr(self, "local", True):
            # One that hangs would be waited for: what it keeps is little, and goes with it.
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
        """Of all workers together; at least 1."""
        return max(1, sum(self.threads.values()))

    def look(self) -> None:
        """See which workers there are; who is new takes the place of one that left."""
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
        """Raise ClusterError where the scheduler is lost."""
        if self.client.status != "running":
            raise ClusterError(f"the cluster is lost: its scheduler is {self.client.status}")

    # -- waves ------------------------------------------------------------------------

    def pace(self, task: Task, *, kept: bool = False) -> float | None:
        """Seconds that a row takes a worker which has to make it, or which should have ``kept``
        it; as far as is known."""
        if not kept or self._dear is None:
            return self._pace.get((task, True), self._dear)
        quick = self._pace.get((task, False), self._dear)
        return quick + self.forgotten * self._dear

    def learn(self, task: Task, seconds: float, n_rows: int, n_asked: int) -> None:
        """Take note of a block, of which ``n_asked`` rows were made. Rows differ, so the pace
        rises at once, and falls by halves. What looking up takes tells nothing of making: blocks
        sized by a mean of both would keep the other workers waiting."""
        new, key = seconds / (n_asked or n_rows), (task, n_asked > 0)
        self._pace[key] = max(1e-7, new, self._pace.get(key, 0.0) / 2)
        if n_asked:
            self._dear = self._pace[key]

    def is_late(self, seat: str | None) -> bool:
        """Whether a worker is left alone, because others had to wait for it."""
        return time.monotonic() < self.late.get(seat, -math.inf)

    def number(self, address: str) -> int:
        """How ``row_owners`` name a worker."""
        return self._known.setdefault(address, len(self._known))

    def share(self, values: Array) -> Shared:
        """What all blocks of a wave need, sent once: to be handed to ``wave``."""
        return Line(self._serials).version(values)

    def held(self, shared: Shared) -> tuple[Any, Array | None]:
        """The future of what blocks need, sent when the first block needs it, and the changes
        since."""
        base, since = shared.based()
        # Its worker may have died with it, which some schedulers answer with an error at once.
        gone = base.future is None or base.future.status in ("error", "cancelled")
        # Once all are late nobody knows better than Dask where it should be.
        if gone or (base.doubtful and self.prompt()):
            self.counts.sent_bytes += base.values.nbytes
            base.future = self.submit(on_worker.hold, base.values, label="hold", **self.prompt())
            base.doubtful = False
        return base.future, since

    def prompt(self) -> dict[str, Any]:
        """Where to submit, if some are late: Dask does not know of that."""
        if not any(map(self.is_late, self.seats)):
            return {}
        prompt = [seat for seat in self.seats if not self.is_late(seat)]
        return {"workers": prompt, "allow_other_workers": True} if prompt else {}

    def costs(self, recipe: bytes, n_rows: int, *, keep: bool = True) -> tuple[str, Shared]:
        """Costs that workers may build: what ``wave`` takes. keep: workers keep their rows."""
        token = f"{self.token}-{len(self._tokens)}"
        self._tokens.append(token)
        if keep:
            self.row_owners[token] = np.full(n_rows, -1, np.int32)
        return token, self.share(np.frombuffer(recipe, np.uint8))

    def submit(self, function: Any, *args: Any, label: str, **where: Any) -> Any:
        """The future of a task."""
        import dask

        # A word before the first dash is remembered by the scheduler for ever.
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
    """Processes of a cluster of one's own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
