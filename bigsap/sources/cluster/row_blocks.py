"""One wave of rows, cut into blocks that workers evaluate.

This module decides how many rows a block has, which worker should take it (preferably the one that
had these rows before), how many blocks are out, and when a block without an answer is sent again.

A block's answer depends only on its rows and on the data sent with it, not on the worker. So
losing, adding or waiting for workers changes the time only, never the result.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import pickle
import queue
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.errors import ClusterError, SourceError
from bigsap.sources.base import Task
from bigsap.sources.cluster import on_worker
from bigsap.sources.cluster.connection import ClusterConnection
from bigsap.sources.cluster.lookups import Lookup, look_up
from bigsap.sources.cluster.on_worker import Failure, opened
from bigsap.sources.cluster.sharing import Shared, n_bytes
from bigsap.types import Array

_log = logging.getLogger("bigsap")

#: Seconds of work of a block: a round trip of 5 ms is a fortieth of it.
_BLOCK_SECONDS = 0.2
#: Blocks out for each thread: the next one has arrived before the current one ends.
_AHEAD = 3
#: Most bytes, about, of costs that a worker reads at a time, and of the answers of a block.
_BLOCK_BYTES = 32 << 20
#: Number of consecutive rows that one worker owns.
_OWNED = 16
#: A block of less work than this costs more to send than to evaluate.
_LEAST_SECONDS = 0.02
#: Least seconds until a block is sent to a second worker, if some worker is idle.
_LATE_SECONDS = 2.0
#: A block waits for the ``_AHEAD`` before it, so it is late after five times that.
_LATE_TIMES = 5.0 * _AHEAD
#: Seconds for which a late worker gets no blocks, unless it answers. A worker that hangs without
#: being known as lost costs every wave its share of this.
_LEFT_ALONE_SECONDS = 20.0
#: Number of times that a block whose worker died is sent again; Dask has retried before.
_TRIES = 8
#: Seconds without any worker after which the solve ends.
_PATIENCE = 300.0
_TICK_SECONDS = 0.02
#: Seconds to fetch a finished answer; after that its block is sent again.
_ANSWER_SECONDS = 10.0
#: Most bytes of costs that are looked up without a task.
_LOOKUP_BYTES = 4 << 20
_NONE = np.empty(0, np.int64)


@dataclass
class _Block:
    """Some rows of a wave, sent as one task.

    positions: of the wave's rows. owner: the address preferred; kept: whether it should have the
    rows. copies: futures that are out.
    """

    positions: Array
    owner: str | None
    kept: bool
    since: float
    tries: int = 0
    copies: list[Any] = field(default_factory=list)


class WaveBlocks:
    """One wave: blocks to send, blocks that are out, and failures."""

    def __init__(
        self,
        crew: ClusterConnection,
        costs: tuple[str, Shared],
        task: Task,
        rows: Array,
        kind: str,
        row_bytes: int,
        shared: Shared | None,
        args: Callable[[Array], tuple[Any, ...]],
    ) -> None:
        self.crew, self.rows, self.task, self.kind = crew, rows, task, kind
        self.token, self.recipe = costs
        self.row_bytes, self.shared, self.args = max(1, row_bytes), shared, args
        self.arrived: queue.SimpleQueue[tuple[_Block, Any]] = queue.SimpleQueue()
        self.out: list[_Block] = []
        self.failure: Failure | None = None
        self.tick: Callable[[], None] = lambda: None
        self.busy = 0.0
        self.took: list[float] = []
        self.clock = time.perf_counter()
        crew.look()
        #: Rows that no worker has kept, by preferred worker, and rows that a worker has kept.
        self.ahead: dict[str | None, Array] = {}
        self.kept: dict[str | None, Array] = {}
        self._share_out(np.arange(rows.size))

    def _share_out(self, positions: Array) -> None:
        seats = self.crew.seats
        known = self.crew.row_owners.get(self.token)
        keepers = np.full(self.rows.size, -1) if known is None else known[self.rows]
        numbers = [self.crew.number(seat) for seat in seats]
        self.kept = {seat: positions[keepers == number] for seat, number in zip(seats, numbers, strict=True)}
        new = positions[~np.isin(keepers, numbers)]
        if not seats:
            self.ahead = {None: new}
            return
        owner = self.rows[new] // _OWNED % len(seats)
        self.ahead = {seat: new[owner == k] for k, seat in enumerate(seats)}

    def run(self, tick: Callable[[], None]) -> Iterator[tuple[Array, Array]]:
        self.tick, alone = tick, time.monotonic()
        yield from self._look_up()
        while True:
            self._send()
            if not self.out and not self._left():
                break
            for block, body in self._receive():
                yield block.positions, body
            tick()
            self._repeat()
            if self.crew.threads:
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

    # -- lookups of kept rows -----------------------------------------------------------

    def _look_up(self) -> Iterator[tuple[Array, Array]]:
        """Look up the workers' few kept rows without tasks, see ``lookups``."""
        crew, lookups = self.crew, []
        pace = crew.pace(self.task, kept=True) or _LEAST_SECONDS
        for seat, positions in self.kept.items():
            bytes_ = positions.size * self.row_bytes
            short = positions.size * pace < _LEAST_SECONDS and bytes_ <= _LOOKUP_BYTES
            if seat is not None and positions.size and short and not crew.is_late(seat):
                lookups.append(Lookup(seat, positions, self._args(positions)))
        if not lookups:
            return
        look_up(crew, self.token, self.task, self.shared, lookups)
        for lookup in lookups:
            if isinstance(lookup.body, np.ndarray):
                self.kept[lookup.seat] = _NONE
                crew.counts.blocks += 1
                yield lookup.positions, self._note(lookup.positions, lookup.body)[0]

    # -- sending ----------------------------------------------------------------------

    def _send(self) -> None:
        crew = self.crew
        load = dict.fromkeys(crew.threads, 0)
        for block in self.out:
            if block.owner in load:
                load[block.owner] += 1
        while len(self.out) < _AHEAD * crew.n_threads and self._left():
            seats = [seat for seat in crew.seats if not crew.is_late(seat)] or crew.seats
            free = [s for s in seats if load.get(s, 0) < _AHEAD * crew.threads.get(s, 1)]
            if not free and crew.seats:
                return
            # Prefer workers with rows of their own left: kept rows need not be evaluated again.
            seat = min(free, key=self._preference(load)) if free else None
            positions, kept = self._cut(seat)
            if not positions.size:
                return  # the rest has been kept by workers that are busy
            block = _Block(positions, seat, kept, time.monotonic())
            if seat is not None:
                load[seat] += 1
            self.out.append(block)
            self._submit(block)
            crew.spent = []

    def _preference(self, load: dict[str, int]) -> Callable[[str], tuple[bool, float]]:
        threads = self.crew.threads

        def key(seat: str) -> tuple[bool, float]:
            own = self.kept.get(seat, _NONE).size + self.ahead.get(seat, _NONE).size
            return not own, load[seat] / threads[seat]

        return key

    def _cut(self, seat: str | None) -> tuple[Array, bool]:
        """Return the next rows for a worker, and whether it has kept them.

        First its kept rows, then its own, then rows of the worker with the most left. Rows that
        another worker has kept are looked up there faster than they are evaluated here. So they are
        taken from it only if it is lost or late, or if workers turn out to drop their rows.
        """
        pools: list[tuple[dict[str | None, Array], str | None]] = [
            (self.kept, seat),
            (self.ahead, seat),
            (self.ahead, max(self.ahead, key=lambda s: self.ahead[s].size, default=None)),
        ]
        forgets, there = self.crew.forgotten > 0.5, self.crew.threads
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
        """Return the number of rows of the next block.

        Blocks get smaller towards the end, so that all workers finish at about the same time, but
        never so small that sending costs more than the work.
        """
        pace = self.crew.pace(self.task, kept=kept)
        if pace is None:
            return 1
        even = max(-(-self._left() // (2 * self.crew.n_threads)), int(_LEAST_SECONDS / pace))
        return max(1, min(int(_BLOCK_SECONDS / pace), even, _BLOCK_BYTES // self.row_bytes))

    def _args(self, positions: Array) -> tuple[Any, ...]:
        return self.rows[positions].astype(np.uint32), *self.args(positions)

    def _submit(self, block: _Block, *, anywhere: bool = False, again: str | None = None) -> None:
        """Send a block.

        again: send it to this worker with all the data that it needs, since the worker that holds
        the shared data may be the one that hangs.
        """
        crew = self.crew
        crew.alive()
        args = self._args(block.positions)
        recipe: Any = self.recipe.values
        shared: Any = None if self.shared is None else self.shared.values
        since = None
        if again is None:
            recipe, _ = crew.held(self.recipe)
            if self.shared is not None:
                shared, since = crew.held(self.shared)
        crew.counts.blocks += 1
        crew.counts.sent_bytes += n_bytes((since, args))
        where = crew.prompt()
        if again is not None:
            crew.counts.sent_bytes += n_bytes((recipe, shared))
            where = {"workers": [again], "allow_other_workers": True}
        elif block.owner is not None and not anywhere and block.owner in crew.threads:
            where = {"workers": [block.owner], "allow_other_workers": True}
        future = crew.submit(
            on_worker.perform, recipe, shared, since, self.token, self.task, args, label=self.kind, **where
        )
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
                continue  # another copy was faster
            if future.status == "finished":
                done[id(block)] = block, future
            elif any(future is copy for copy in block.copies):
                self._lost(block, future)
        if not done:
            return []
        found = []
        blocks = list(done.values())
        answers = self._gather(blocks)
        for (block, future), answer in zip(blocks, answers, strict=True):
            if answer is None:
                self._lost(block, future)
                continue
            body = self._take(block, future, answer)
            if body is not None:
                found.append((block, body))
        return found

    def _gather(self, blocks: list[tuple[_Block, Any]]) -> list[Any]:
        """Return the answers; None for one whose worker is lost or does not answer."""
        answers = self._fetch([[future for _, future in blocks]])[0]
        if answers is not None:
            return answers
        self.crew.alive()
        found = self._fetch([[future] for _, future in blocks])
        for (block, _), answer in zip(blocks, found, strict=True):
            if answer is None:
                self._leave_alone(block.owner)
        return [None if answer is None else answer[0] for answer in found]

    def _fetch(self, groups: list[list[Any]]) -> list[list[Any] | None]:
        """Return the answers of groups of futures; None for a group that timed out.

        A worker that hangs still accepts connections, so waiting for it would never end.
        """
        client = self.crew.client

        async def gathered(futures: list[Any]) -> Any:
            return await client.gather(futures, asynchronous=True)

        loop = client.loop.asyncio_loop
        asked = [asyncio.run_coroutine_threadsafe(gathered(group), loop) for group in groups]
        end = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < end:
            if not concurrent.futures.wait(asked, timeout=_TICK_SECONDS).not_done:
                break
            self.tick()
        found: list[list[Any] | None] = []
        for one in asked:
            try:
                found.append(list(one.result(timeout=0)))
            except TimeoutError:
                one.cancel()
                found.append(None)
            except Exception as error:  # noqa: BLE001 - a lost worker can raise many kinds of errors
                _log.info("a block is asked for again: %s", error)
                found.append(None)
        return found

    def _take(self, block: _Block, future: Any, answer: Any) -> Array | None:
        self.out = [other for other in self.out if other is not block]
        for copy in block.copies:
            if copy is not future:
                with suppress(Exception):
                    copy.cancel()
        self.crew.spent.append(future)
        block.copies = []
        if isinstance(answer, Failure):
            self._failed(answer)
            return None
        crew = self.crew
        body, asked, address = self._note(block.positions, answer)
        crew.late.pop(address, None)
        if block.kept and address == block.owner:
            crew.forgotten += (asked / block.positions.size - crew.forgotten) / 4
        return body

    def _note(self, positions: Array, answer: Array) -> tuple[Array, int, str]:
        """Record an answer; return its body, the number of rows evaluated, and the worker's address."""
        crew, counts = self.crew, self.crew.counts
        seconds, asked, address, body = opened(answer)
        n_rows = positions.size
        crew.learn(self.task, seconds, n_rows, asked)
        if self.token in crew.row_owners:
            crew.row_owners[self.token][self.rows[positions]] = crew.number(address)
        # Use the workers' own times, not the time that blocks were out: a block that waits for a
        # hanging worker would make the next one wait five times longer, and so on.
        self.took.append(seconds)
        self.busy += seconds
        counts.busy += seconds
        counts.rows += n_rows
        counts.rows_asked += asked
        name = f"{self.kind}_bytes"
        setattr(counts, name, getattr(counts, name) + answer.nbytes)
        counts.by_worker[address] = counts.by_worker.get(address, 0) + n_rows
        return body, asked, address

    def _failed(self, failure: Failure) -> None:
        """Record a failure. Rows before it are still evaluated: one of them may fail too."""
        if self.failure is None or failure.first_row < self.failure.first_row:
            self.failure = failure
        first = self.failure.first_row
        for pool in (self.kept, self.ahead):
            for seat, part in pool.items():
                pool[seat] = part[self.rows[part] < first]

    def _lost(self, block: _Block, future: Any) -> None:
        """Handle a task that ended without an answer."""
        block.copies = [copy for copy in block.copies if copy is not future]
        self.crew.alive()
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
        """Send again the blocks whose worker has left, and those that are late."""
        crew = self.crew
        crew.look()
        now = time.monotonic()
        typical = statistics.median(self.took) if self.took else 0.0
        late = max(_LATE_SECONDS, _LATE_TIMES * typical)
        prompt = [seat for seat in crew.threads if not crew.is_late(seat)]
        busy = sum(not crew.is_late(block.owner) for block in self.out)
        # If all workers are late, one may hang while the others wait for data on it. No new blocks
        # are sent then, so rows left to send do not keep workers busy.
        room = busy < max(1, sum(crew.threads[seat] for seat in prompt))
        idle = room and not (prompt and self._left())
        for block in self.out:
            gone = block.owner is not None and block.owner not in crew.threads
            if gone:
                block.owner = None
            slow = len(crew.threads) > 1 and now - block.since > late
            if slow and not crew.is_late(block.owner):
                self._leave_alone(block.owner)
            slow = slow and idle
            if gone and len(block.copies) < 2 and crew.threads:
                block.since = now
                crew.counts.again += 1
                self._submit(block, anywhere=True)
            elif slow and len(block.copies) <= len(crew.threads):
                owner = block.owner
                seats = sorted(prompt or crew.threads, key=lambda seat: seat == owner)
                seat = seats[(len(block.copies) - 1) % len(seats)]
                block.since = now
                crew.counts.again += 1
                self._submit(block, again=seat)

    def _leave_alone(self, seat: str | None) -> None:
        self.crew.late[seat] = time.monotonic() + _LEFT_ALONE_SECONDS
        # The late worker may hold the data that the blocks of others need.
        for shared in (self.recipe, self.shared):
            if shared is not None and shared.line.base is not None:
                shared.line.base.doubtful = True

    def end(self) -> None:
        """Cancel the blocks that are still out."""
        futures = [copy for block in self.out for copy in block.copies]
        self.out, self.ahead, self.kept = [], {}, {}
        if futures:
            with suppress(Exception):
                self.crew.client.cancel(futures)


def raise_failure(failure: Failure) -> None:
    """Raise the error of a worker, with its address."""
    error = failure.error
    error.args = (f"{error} (on worker {failure.address})", *error.args[1:])
    cause: BaseException | None = None
    if failure.cause is not None:
        with suppress(Exception):  # a class that exists on the worker only
            cause = pickle.loads(failure.cause)
    if hasattr(error, "add_note"):
        error.add_note(failure.text)
    raise error from cause
