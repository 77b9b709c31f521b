"""The workers of one solve: waves of rows, cut into blocks, evaluated wherever there is room.

Dask.distributed moves, schedules and repeats tasks. What is decided here: how many rows a block
has, which worker would best take it (the one that had these rows before), how many are on their
way, and when a block that does not come back is asked for once more.

A block's answer depends on its rows and on what was sent with it alone, never on who gives it, so
that losing, adding or waiting for workers changes nothing but time.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import queue
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.errors import ClusterError, OptionError, SourceError
from bigsap.sources.base import Array
from bigsap.sources.spread import worker
from bigsap.sources.spread.worker import Failure, opened

_log = logging.getLogger("bigsap")

#: A block takes about so long: a round trip of 5 ms is then a fortieth of it.
_BLOCK_SECONDS = 0.2
#: Blocks on their way for each thread: while one is worked on, the next is there.
_AHEAD = 3
#: Costs that a worker reads at a time, and answers of a block: at most about so many bytes.
_BLOCK_BYTES = 32 << 20
#: Consecutive rows that one worker owns.
_OWNED = 16
#: A block of less work costs more in going to and fro than it takes.
_LEAST_SECONDS = 0.02
#: Seconds between looks at who is there, and until a block is asked for elsewhere at the
#: earliest, if some worker is idle.
_LOOK_SECONDS = 1.0
_LATE_SECONDS = 2.0
_LATE_TIMES = 5.0
#: For so long a worker gets no blocks after others had to wait for it, unless it answers: one
#: that hangs, and is not known to be lost, costs every wave its share of this.
_LEFT_ALONE_SECONDS = 20.0
#: How often a block that took a worker with it is sent again; Dask has tried before.
_TRIES = 8
#: Without any worker for so long, the solve ends.
_PATIENCE = 300.0
_TICK_SECONDS = 0.02
_SEND_SECONDS = 0.001
_NONE = np.empty(0, np.int64)


@dataclass
class Counts:
    """What a solve asked of its workers.

    waves, blocks: of rows; again: blocks sent once more. rows: blocks' rows that came back, rows
    that workers had to ask of the source among them. list_bytes, row_bytes, dual_bytes: of
    answers, by what they hold. sent_bytes: prices, rows' ids and recipes on their way to workers,
    as far as the caller sends them. busy: seconds that workers worked; idle: that their
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


@dataclass
class _Block:
    """positions: of the wave's rows. owner: the address preferred; kept: it should have the rows.
    copies: futures out."""

    positions: Array
    owner: str | None
    kept: bool
    since: float
    tries: int = 0
    copies: list[Any] = field(default_factory=list)


@dataclass
class Shared:
    """What blocks need, and the future of it on a worker."""

    values: Array
    future: Any


class Crew:
    """The workers behind a ``distributed.Client``, for one solve; a context manager.

    where: a Client, which stays open; a scheduler's address; or "local", a ``LocalCluster`` of
    ``n_workers`` processes of one thread, closed in the end.
    """

    def __init__(self, where: Any, n_workers: int) -> None:
        distributed = _distributed()
        self.token = f"bigsap-{secrets.token_hex(6)}"
        self.counts = Counts()
        self._owned: list[Any] = []
        self._serial = 0
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
                'cluster must be a distributed.Client, the address of a scheduler, or "local",'
                f" got {where!r}"
            )
        self.local = where == "local"
        #: Addresses in the order of which rows are shared out, and threads of each.
        self.seats: list[str] = []
        self._threads: dict[str, int] = {}
        self._looked = -math.inf
        #: Seconds a row, by what is made of it; and of one that the costs are asked for.
        self._pace: dict[tuple[str, bool], float] = {}
        self._dear: float | None = None
        #: Who evaluated each row last, and has probably kept it: by place in ``_known``, or -1.
        self.keepers: dict[str, Array] = {}
        self._known: dict[str, int] = {}
        #: The share of rows, of late, that workers should have kept but had not.
        self.forgotten = 0.0
        #: Workers that kept others waiting, and until when they are left alone.
        self.late: dict[str | None, float] = {}
        self._tokens: list[str] = []
        #: Futures whose answers are here. Word that they are not needed any more would go out just
        #: before the next blocks, and hold them up: it follows them instead.
        self._spent: list[Any] = []
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
                n_workers=n_workers, threads_per_worker=1, processes=True, memory_limit=0,
                dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
                silence_logs=logging.ERROR,
            )  # fmt: skip
        self._owned.append(cluster)
        return cluster

    def _connect(self, distributed: Any, where: Any) -> Any:
        try:
            # Workers on this machine are within reach: answers need not pass by the scheduler.
            direct = True if self._owned else None
            client = distributed.Client(
                where, timeout=30, set_as_default=False, direct_to_workers=direct
            )
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

    def __enter__(self) -> Crew:
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
                    client.run(worker.forget, token, workers=prompt, on_error="ignore")
        for closing in self._owned:
            with suppress(OSError, TimeoutError, RuntimeError):
                closing.close(timeout=5)
        self._owned = []

    @property
    def n_threads(self) -> int:
        """Of all workers together; at least 1."""
        return max(1, sum(self._threads.values()))

    def look(self) -> None:
        """See which workers there are; who is new takes the place of one that left."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS and self._threads:
            return
        self._alive()
        try:
            self._threads = dict(self.client.nthreads())
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"the cluster is lost: {error}") from error
        self._looked = now
        new = sorted(set(self._threads) - set(self.seats))
        for place, address in enumerate(self.seats):
            if address not in self._threads and new:
                self.seats[place] = new.pop(0)
        self.seats = [address for address in self.seats if address in self._threads] + new

    def told(self) -> dict[str, Any]:
        """``stats["cluster"]``: who there was, what they did, and whether it paid: whether their
        work took longer than it was waited for, and would so have taken one thread here."""
        counts = vars(self.counts)
        waited = self.counts.waited + self.counts.started
        paid = {"faster": self.counts.busy / max(waited, 1e-9), "paid": self.counts.busy > waited}
        return {"workers": len(self.seats), "threads": self.n_threads, **counts, **paid}

    def _alive(self) -> None:
        if self.client.status != "running":
            raise ClusterError(f"the cluster is lost: its scheduler is {self.client.status}")

    # -- waves ------------------------------------------------------------------------

    def pace(self, name: str, *, kept: bool = False) -> float | None:
        """Seconds that a row takes a worker which has to make it, or which should have ``kept``
        it; as far as is known."""
        if not kept or self._dear is None:
            return self._pace.get((name, True), self._dear)
        quick = self._pace.get((name, False), self._dear)
        return quick + self.forgotten * self._dear

    def learn(self, name: str, seconds: float, n_rows: int, n_asked: int) -> None:
        """Take note of a block, of which ``n_asked`` rows were made. Rows differ, so the pace
        rises at once, and falls by halves. What looking up takes tells nothing of making: blocks
        sized by a mean of both would keep the other workers waiting."""
        new, key = seconds / (n_asked or n_rows), (name, n_asked > 0)
        self._pace[key] = max(1e-7, new, self._pace.get(key, 0.0) / 2)
        if n_asked:
            self._dear = self._pace[key]

    def is_late(self, seat: str | None) -> bool:
        """Whether a worker is left alone, because others had to wait for it."""
        return time.monotonic() < self.late.get(seat, -math.inf)

    def number(self, address: str) -> int:
        """How ``keepers`` name a worker."""
        return self._known.setdefault(address, len(self._known))

    def share(self, values: Array) -> Shared:
        """What all blocks of a wave need, sent once: to be handed to ``wave``."""
        shared = Shared(values, None)
        self._hold(shared)
        return shared

    def _hold(self, shared: Shared) -> None:
        self.counts.sent_bytes += shared.values.nbytes
        where = self._prompt()
        shared.future = self._submit(worker.hold, shared.values, label="hold", **where)

    def _prompt(self) -> dict[str, Any]:
        """Where to submit, if some are late: Dask does not know of that."""
        if not any(map(self.is_late, self.seats)):
            return {}
        prompt = [seat for seat in self.seats if not self.is_late(seat)]
        return {"workers": prompt, "allow_other_workers": True} if prompt else {}

    def costs(self, recipe: bytes, n_rows: int) -> tuple[str, Shared]:
        """Costs that workers may build: what ``wave`` takes."""
        token = f"{self.token}-{len(self._tokens)}"
        self._tokens.append(token)
        self.keepers[token] = np.full(n_rows, -1, np.int32)
        return token, self.share(np.frombuffer(recipe, np.uint8))

    def _submit(self, function: Any, *args: Any, label: str, **where: Any) -> Any:
        import dask

        self._serial += 1
        # A word before the first dash is remembered by the scheduler for ever.
        key = f"bigsap-{label}-{self.token}-{self._serial}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self.client.submit(function, *args, key=key, pure=False, **where)

    def wave(
        self, costs: tuple[str, Shared], name: str, rows: Array, *, kind: str, row_bytes: int,
        tick: Callable[[], None], shared: Shared | None = None,
        args: Callable[[Array], tuple[Any, ...]] = lambda positions: (),
    ) -> Iterator[tuple[Array, Array]]:  # fmt: skip
        """Evaluate rows, and yield positions in ``rows`` with their bytes, in no fixed order.

        name: ``module:function``, called with the worker's costs, ``shared``, the block's rows
        and ``args(positions)``. kind: "list", "row" or "dual". row_bytes: what a row takes
        on a worker. tick: called many times a second; what it raises ends the wave.

        Of errors of BigSAP on workers, the one of the first row is raised, naming the worker.
        """
        if not rows.size:
            return
        wave = _Wave(self, costs, name, rows, kind, row_bytes, shared, args)
        self.counts.waves += 1
        try:
            yield from wave.run(tick)
        finally:
            wave.end()


class _Wave:
    """One wave: what is still to be sent, what is out, what has failed."""

    def __init__(
        self, crew: Crew, costs: tuple[str, Shared], name: str, rows: Array, kind: str,
        row_bytes: int, shared: Shared | None, args: Callable[[Array], tuple[Any, ...]],
    ) -> None:  # fmt: skip
        self.crew, self.rows, self.name, self.kind = crew, rows, name, kind
        self.token, self.recipe = costs
        self.row_bytes, self.shared, self.args = max(1, row_bytes), shared, args
        self.arrived: queue.SimpleQueue[tuple[_Block, Any]] = queue.SimpleQueue()
        self.out: list[_Block] = []
        self.failure: Failure | None = None
        self.busy = 0.0
        self.took: list[float] = []
        self.clock = time.perf_counter()
        crew.look()
        #: Rows that nobody has, by who is to have them, and those that a worker has kept.
        self.ahead: dict[str | None, Array] = {}
        self.kept: dict[str | None, Array] = {}
        self._share_out(np.arange(rows.size))

    def _share_out(self, positions: Array) -> None:
        seats = self.crew.seats
        keepers = self.crew.keepers[self.token][self.rows]
        numbers = [self.crew.number(seat) for seat in seats]
        self.kept = {
            seat: positions[keepers == number] for seat, number in zip(seats, numbers, strict=True)
        }
        new = positions[~np.isin(keepers, numbers)]
        if not seats:
            self.ahead = {None: new}
            return
        owner = self.rows[new] // _OWNED % len(seats)
        self.ahead = {seat: new[owner == k] for k, seat in enumerate(seats)}

    def run(self, tick: Callable[[], None]) -> Iterator[tuple[Array, Array]]:
        alone = time.monotonic()
        while True:
            self._send()
            if not self.out and not self._left():
                break
            for block, body in self._receive():
                yield block.positions, body
            tick()
            self._repeat()
            if self.crew._threads:
                alone = time.monotonic()
            elif time.monotonic() - alone > _PATIENCE:
                raise ClusterError(f"the cluster has had no worker for {_PATIENCE:.0f} s")
        waited, counts = time.perf_counter() - self.clock, self.crew.counts
        counts.waited += waited
        counts.idle += max(0.0, waited * self.crew.n_threads - self.busy)
        if self.failure is not None:
            raise_failure(self.failure)

    def _left(self) -> int:
        return sum(part.size for pool in (self.kept, self.ahead) for part in pool.values())

    # -- sending ----------------------------------------------------------------------

    def _send(self) -> None:
        crew = self.crew
        load = dict.fromkeys(crew._threads, 0)
        for block in self.out:
            if block.owner in load:
                load[block.owner] += 1
        while len(self.out) < _AHEAD * crew.n_threads and self._left():
            seats = [seat for seat in crew.seats if not crew.is_late(seat)] or crew.seats
            free = [s for s in seats if load.get(s, 0) < _AHEAD * crew._threads.get(s, 1)]
            if not free and crew.seats:
                return
            # Those with rows of their own first: what they have kept need not be made again.
            seat = min(free, key=self._preference(load)) if free else None
            positions, kept = self._cut(seat)
            if not positions.size:
                return  # what is left has been kept by workers with enough to do
            block = _Block(positions, seat, kept, time.monotonic())
            if seat is not None:
                load[seat] += 1
            self.out.append(block)
            self._submit(block)
            crew._spent = []

    def _preference(self, load: dict[str, int]) -> Callable[[str], tuple[bool, float]]:
        threads = self.crew._threads

        def key(seat: str) -> tuple[bool, float]:
            own = self.kept.get(seat, _NONE).size + self.ahead.get(seat, _NONE).size
            return not own, load[seat] / threads[seat]

        return key

    def _cut(self, seat: str | None) -> tuple[Array, bool]:
        """The next rows for a worker, and whether it has kept them: those, else its own, else some
        of those of whoever has most left. What others have kept they look up faster than it is
        made again: that is taken from them only if they are gone or late, or turn out to forget."""
        pools: list[tuple[dict[str | None, Array], str | None]] = [
            (self.kept, seat), (self.ahead, seat),
            (self.ahead, max(self.ahead, key=lambda s: self.ahead[s].size, default=None)),
        ]  # fmt: skip
        forgets, there = self.crew.forgotten > 0.5, self.crew._threads
        others = [s for s in self.kept if forgets or s not in there or self.crew.is_late(s)]
        if others:
            pools.append((self.kept, max(others, key=lambda s: self.kept[s].size)))
        for pool, whose in pools:
            found = pool.get(whose, _NONE)
            if found.size:
                size = min(found.size, self._size(kept=pool is self.kept))
                pool[whose] = found[size:]
                return found[:size], pool is self.kept and whose == seat
        return _NONE, False

    def _size(self, kept: bool) -> int:
        """Smaller towards the end, so that all workers are done at about the same time, but never
        too small to be worth its way."""
        pace = self.crew.pace(self.name, kept=kept)
        if pace is None:
            return 1
        even = max(-(-self._left() // (2 * self.crew.n_threads)), int(_LEAST_SECONDS / pace))
        return max(1, min(int(_BLOCK_SECONDS / pace), even, _BLOCK_BYTES // self.row_bytes))

    def _submit(self, block: _Block, *, anywhere: bool = False) -> None:
        crew = self.crew
        crew._alive()
        rows = self.rows[block.positions]
        args = (rows, *self.args(block.positions))
        crew.counts.blocks += 1
        crew.counts.sent_bytes += sum(a.nbytes for a in args if isinstance(a, np.ndarray))
        where = crew._prompt()
        if block.owner is not None and not anywhere and block.owner in crew._threads:
            where = {"workers": [block.owner], "allow_other_workers": True}
        future = crew._submit(
            worker.perform, self.recipe.future, self.shared and self.shared.future, self.token,
            self.name, args,
            label=self.kind, **where,
        )  # fmt: skip
        block.copies.append(future)
        future.add_done_callback(lambda done: self.arrived.put((block, done)))

    # -- receiving --------------------------------------------------------------------

    def _receive(self) -> list[tuple[_Block, Array]]:
        ready: list[tuple[_Block, Any]] = []
        try:
            ready.append(self.arrived.get(timeout=_TICK_SECONDS))
            while True:
                ready.append(self.arrived.get_nowait())
        except queue.Empty:
            pass
        done: dict[int, tuple[_Block, Any]] = {}
        for block, future in ready:
            if not any(block is other for other in self.out) or id(block) in done:
                continue  # a copy was faster
            if future.status == "finished":
                done[id(block)] = block, future
            elif any(future is copy for copy in block.copies):
                self._lost(block, future)
        if not done:
            return []
        found = []
        blocks = list(done.values())
        answers = self._gather([future for _, future in blocks])
        for (block, future), answer in zip(blocks, answers, strict=True):
            if answer is None:
                self._lost(block, future)
                continue
            body = self._take(block, future, answer)
            if body is not None:
                found.append((block, body))
        return found

    def _gather(self, futures: list[Any]) -> list[Any]:
        """The answers; None for one that its worker took with it."""
        client = self.crew.client
        try:
            return list(client.gather(futures))
        except Exception as error:  # noqa: BLE001 - whatever a lost worker looks like
            self.crew._alive()
            if len(futures) == 1:
                _log.info("a block is asked for again: %s", error)
                return [None]
        return [self._gather([future])[0] for future in futures]

    def _take(self, block: _Block, future: Any, answer: Any) -> Array | None:
        self.out = [other for other in self.out if other is not block]
        for copy in block.copies:
            if copy is not future:
                with suppress(Exception):
                    copy.cancel()
        self.crew._spent.append(future)
        block.copies = []
        if isinstance(answer, Failure):
            self._failed(answer)
            return None
        crew, counts = self.crew, self.crew.counts
        seconds, asked, address, body = opened(answer)
        n_rows = block.positions.size
        crew.late.pop(address, None)
        crew.learn(self.name, seconds, n_rows, asked)
        crew.keepers[self.token][self.rows[block.positions]] = crew.number(address)
        if block.kept and address == block.owner:
            crew.forgotten += (asked / n_rows - crew.forgotten) / 4
        self.took.append(time.monotonic() - block.since)
        self.busy += seconds
        counts.busy += seconds
        counts.rows += n_rows
        counts.rows_asked += asked
        name = f"{self.kind}_bytes"
        setattr(counts, name, getattr(counts, name) + answer.nbytes)
        counts.by_worker[address] = counts.by_worker.get(address, 0) + n_rows
        return body

    def _failed(self, failure: Failure) -> None:
        """Rows before the one that failed are still evaluated: one of them may fail too."""
        if self.failure is None or failure.first_row < self.failure.first_row:
            self.failure = failure
        first = self.failure.first_row
        for pool in (self.kept, self.ahead):
            for seat, part in pool.items():
                pool[seat] = part[self.rows[part] < first]

    def _lost(self, block: _Block, future: Any) -> None:
        """A block's task ended without an answer."""
        block.copies = [copy for copy in block.copies if copy is not future]
        self.crew._alive()
        block.tries += 1
        error = future.exception() if future.status == "error" else None
        died = error is None or type(error).__name__ in ("KilledWorker", "FutureCancelledError")
        if not died or block.tries > _TRIES:
            first = int(self.rows[block.positions[0]])
            raise SourceError(
                f"row {first} could not be evaluated on a worker: {type(error).__name__}: {error}"
            ) from error
        if not block.copies:
            self.crew.counts.again += 1
            self._submit(block, anywhere=True)

    def _repeat(self) -> None:
        """Ask elsewhere for blocks whose worker has left, or that keep others waiting."""
        crew = self.crew
        crew.look()
        now = time.monotonic()
        typical = statistics.median(self.took) if self.took else 0.0
        late = max(_LATE_SECONDS, _LATE_TIMES * typical)
        prompt = [seat for seat in crew._threads if not crew.is_late(seat)]
        busy = sum(not crew.is_late(block.owner) for block in self.out)
        idle = not self._left() and busy < sum(crew._threads[seat] for seat in prompt)
        for block in self.out:
            gone = block.owner is not None and block.owner not in crew._threads
            if gone:
                block.owner = None
            slow = len(crew._threads) > 1 and now - block.since > late
            if slow and not crew.is_late(block.owner):
                crew.late[block.owner] = now + _LEFT_ALONE_SECONDS
                # It may be the one that holds what the blocks of others need.
                for shared in (self.recipe, self.shared):
                    if shared is not None:
                        crew._hold(shared)
            slow = slow and idle
            if (gone or slow) and len(block.copies) < 2 and crew._threads:
                block.since = now
                crew.counts.again += 1
                self._submit(block, anywhere=True)

    def end(self) -> None:
        """Give up what is still out."""
        futures = [copy for block in self.out for copy in block.copies]
        self.out, self.ahead, self.kept = [], {}, {}
        if futures:
            with suppress(Exception):
                self.crew.client.cancel(futures)


def raise_failure(failure: Failure) -> None:
    """Raise the error of a worker, naming it."""
    error = failure.error
    error.args = (f"{error} (on worker {failure.address})", *error.args[1:])
    cause: BaseException | None = None
    if failure.cause is not None:
        with suppress(Exception):  # a class that is only there
            cause = pickle.loads(failure.cause)
    if hasattr(error, "add_note"):
        error.add_note(failure.text)
    raise error from cause


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise OptionError(
            'cluster= needs Dask.distributed: pip install "bigsap[cluster]"'
        ) from error
    return distributed


def cores_here() -> int:
    """Processes of a cluster of one's own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
