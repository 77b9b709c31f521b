"""Code that runs on a worker: it builds the costs once, keeps rows, and evaluates blocks.

A task returns one array of bytes: a head of ``HEAD_BYTES``, then the result of the task's function.
So lists, rows and duals travel as arrays; only an error is an object.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bigsap.errors import BigsapError
from bigsap.memory import free_memory
from bigsap.sources.base import CostSource, Fillable, Resident, Task
from bigsap.sources.cluster.recipes import followed
from bigsap.sources.cluster.sharing import applied
from bigsap.types import Array, Ids

#: The head: float64 seconds of work and number of rows read from the source; the worker's address.
HEAD = 2
_ADDRESS = 64
HEAD_BYTES = 8 * HEAD + _ADDRESS
#: Number of solves whose costs a worker keeps; the oldest is dropped first.
_MOST_BUILT = 4
#: A worker's rows may take one part in so many of its memory.
_ROWS_SHARE = 4


@dataclass(frozen=True)
class Failure:
    """An error of BigSAP on a worker.

    cause: the exception that it was raised from, pickled if possible; text: the traceback.
    """

    error: BigsapError
    cause: bytes | None
    text: str
    first_row: int
    address: str


class KeptOnWorker:
    """A cache of a source's rows: the rows read last, up to ``most`` bytes."""

    def __init__(self, source: CostSource, most: int) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self._rows: OrderedDict[int, Array] = OrderedDict()
        row_bytes = max(1, source.shape[1] * source.dtype.itemsize)
        # Rows in memory, and rows that kernels compute, need no second copy.
        matrix = source.resident() if isinstance(source, Resident) else None
        fill = source.fill() if isinstance(source, Fillable) else None
        self._room = 0 if matrix is not None or fill is not None else most // row_bytes
        self._lock = threading.Lock()
        self._local = threading.local()

    @property
    def asked(self) -> int:
        """The number of rows that this thread read from the source itself."""
        return getattr(self._local, "asked", 0)

    def made(self, n_rows: int) -> None:
        """Count rows that kernels computed."""
        self._local.asked = self.asked + n_rows

    def has(self, rows: Ids) -> bool:
        """Return whether all of these rows are kept."""
        with self._lock:
            return all(row in self._rows for row in np.asarray(rows).tolist())

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        ids = np.asarray(rows)
        absent = np.ones(ids.size, bool)
        with self._lock:
            for k, row in enumerate(ids.tolist()):
                found = self._rows.get(row)
                if found is not None:
                    out[k], absent[k] = found[columns], False
                    self._rows.move_to_end(row)
        (places,) = np.nonzero(absent)
        if not places.size:
            return
        self._local.asked = self.asked + places.size
        wanted = ids[places]
        costs = out if places.size == ids.size else np.empty((places.size, out.shape[1]), out.dtype)
        self.source.read(wanted, columns, costs)
        if costs is not out:
            out[places] = costs
        if not self._room or out.shape[1] != self.shape[1]:
            return
        with self._lock:
            for row, line in zip(wanted.tolist(), costs, strict=True):
                self._rows[row] = line.copy()
            while len(self._rows) > self._room:
                self._rows.popitem(last=False)


@dataclass
class Built:
    """The costs of one solve on this worker.

    memo: values that tasks keep from one to the next, one per thread if they must not be shared.
    shared: the prices of blocks without a task, and the number of their version.
    """

    source: CostSource
    rows: KeptOnWorker
    memo: dict[Any, Any] = field(default_factory=dict)
    shared: tuple[int, Array] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def version(self, before: int | None, serial: int, sent: Array | None) -> Array | None:
        """Return the shared data of version ``serial``, see ``Shared.message``.

        None if they cannot be made from ``sent``. Messages that timed out may still arrive, in any
        order.
        """
        with self.lock:
            if before is None and sent is not None:
                self.shared = serial, sent
            have, values = self.shared or (None, None)
            if have == serial:
                return values
            if sent is None or values is None or have != before:
                return None
            self.shared = serial, applied(values, sent)
            return self.shared[1]

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return this thread's value of ``key``; call ``make`` the first time."""
        mine = (threading.get_ident(), key)
        if mine not in self.memo:
            self.memo[mine] = make()
        return self.memo[mine]


_built: OrderedDict[str, Built] = OrderedDict()
_lock = threading.Lock()


def hold(values: Array) -> Array:
    """Return the argument, as a task.

    Dask copies the result to each worker that needs it, and the scheduler makes it again if the
    last copy is lost.
    """
    return values


def perform(
    recipe: Array, shared: Array | None, since: Array | None, token: str, task: Task, args: Any
) -> Any:
    """One block of a wave: ``task`` of the costs of this token.

    recipe: uint8, of which this worker builds the costs, see ``recipes``. token: names the solve.
    shared: the data that all blocks of the wave need (prices), in a version that workers keep. since:
    their changes since that version, applied here. args: of this block; ``args[0]`` are its rows.
    Returns uint8, or a Failure.
    """
    clock = time.perf_counter()
    try:
        built = _costs(token, recipe)
        before = built.rows.asked
        if shared is not None and since is not None:
            shared = applied(shared, since)
        body = task(built, shared, args[0].astype(np.int64), *args[1:])
    except BigsapError as error:
        first = getattr(error, "row", None)
        first = int(args[0].min()) if first is None else int(first)
        return Failure(error, _pickled(error.__cause__), traceback.format_exc(), first, address())
    return _answer(clock, built.rows.asked - before, address(), body)


async def looked_up(token: str, task: Task, version: Any, args: Any, dask_worker: Any = None) -> Array | None:
    """Evaluate a block as ``perform`` does, by a message instead of a task of Dask.

    Only for rows that this worker has kept.

    version: of the shared data, see ``Shared.message``. Returns None if this worker has not built
    the costs or cannot make the version; an empty array if it has not kept all of these rows.
    """
    loop = asyncio.get_running_loop()
    call = partial(_kept_rows, token, task, version, args, dask_worker.address)
    found: Array | None = await loop.run_in_executor(dask_worker.executors["default"], call)
    return found


def _kept_rows(token: str, task: Task, version: Any, args: Any, where: str) -> Array | None:
    clock = time.perf_counter()
    with _lock:
        built = _built.get(token)
    if built is None:
        return None
    shared = None
    if version is not None:
        shared = built.version(*version)
        if shared is None:
            return None
    rows = args[0].astype(np.int64)
    if not built.rows.has(rows):
        return np.empty(0, np.uint8)
    before = built.rows.asked
    try:
        body = task(built, shared, rows, *args[1:])
    except BigsapError:
        return None  # the task reports the error
    return _answer(clock, built.rows.asked - before, where, body)


def _answer(clock: float, n_asked: int, where: str, body: list[Array]) -> Array:
    head = np.array([time.perf_counter() - clock, n_asked])
    name = np.frombuffer(where.encode()[:_ADDRESS].ljust(_ADDRESS, b"\0"), np.uint8)
    return np.concatenate([head.view(np.uint8), name, *(packed(part) for part in body)])


def opened(answer: Array) -> tuple[float, int, str, Array]:
    """Split an answer of ``perform`` into seconds, number of rows read, address and body."""
    seconds, asked = answer[: 8 * HEAD].view(np.float64)
    where = answer[8 * HEAD : HEAD_BYTES].tobytes().rstrip(b"\0").decode()
    return float(seconds), int(asked), where, answer[HEAD_BYTES:]


def _pickled(error: BaseException | None) -> bytes | None:
    if error is None:
        return None
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - a class of the caller's may raise anything
        return None


def address() -> str:
    """Return this worker's address; "" outside of a worker."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # called outside of a task
        return ""


def packed(values: Array) -> Array:
    """Return an array as bytes."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def forget(token: str) -> None:
    """Drop the costs and rows of a solve that has ended."""
    with _lock:
        _built.pop(token, None)


def rows_of(built: Built, shared: Any, rows: Array) -> list[Array]:
    """Return whole rows of costs; a task."""
    m = built.source.shape[1]
    out = np.empty((rows.size, m), built.source.dtype)
    built.rows.read(rows, slice(0, m), out)
    return [out]


def _costs(token: str, recipe: Array) -> Built:
    with _lock:
        if token not in _built:
            source = followed(np.asarray(recipe).tobytes())
            _built[token] = Built(source, KeptOnWorker(source, _room_for_rows()))
            while len(_built) > _MOST_BUILT:
                _built.popitem(last=False)
        _built.move_to_end(token)
        return _built[token]


def _room_for_rows() -> int:
    """Return the bytes that kept rows may take.

    A share of the limit that Dask sets for this worker. Without a limit, a share of the free
    memory, divided among as many workers as the machine has cores.
    """
    from distributed import get_worker

    try:
        state = get_worker()
    except ValueError:  # called outside of a task
        return free_memory() // _ROWS_SHARE
    limit = state.memory_manager.memory_limit
    if limit:
        return int(limit) // _ROWS_SHARE
    neighbours = max(1, (os.cpu_count() or 1) // max(1, state.state.nthreads))
    return free_memory() // (_ROWS_SHARE * neighbours)
