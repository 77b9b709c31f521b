"""Rows that workers have kept, asked for without tasks.

In searches a wave is a few rows, which workers look up within microseconds. A task for each worker
then costs more than all else: it goes by the scheduler to the worker and back, and its answer is
fetched by another message. Here each worker is sent one message, and its answer is the reply: for
rows that it says it has, under prices that it has or is sent: what changed since those that it was
sent last, see ``sharing``. For anything else it declines, and the rows are asked for by tasks,
which Dask watches over; a worker that lacked the prices is sent all of them the next time.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.sources.base import Array, Task
from bigsap.sources.cluster import on_worker
from bigsap.sources.cluster.connection import ClusterConnection
from bigsap.sources.cluster.sharing import Shared

#: A worker that has not answered after so many seconds is asked by a task.
_PATIENCE = 2.0


@dataclass
class Lookup:
    """What one worker is asked for. args: of the task's function, its rows first. body: the
    answer; None where it declined, or could not be reached."""

    seat: str
    positions: Array
    args: tuple[Any, ...]
    body: Any = None


def look_up(
    crew: ClusterConnection, token: str, task: Task, shared: Shared | None, lookups: Sequence[Lookup]
) -> None:
    """Ask all workers at the same time; what they answer is in ``lookups`` then."""
    client = crew.client
    direct = bool(client.direct_to_workers)
    function, nothing = pickle.dumps(on_worker.looked_up), pickle.dumps({})

    async def ask(lookup: Lookup) -> None:
        version = None if shared is None else shared.message(lookup.seat)
        there = {} if shared is None else shared.line.there
        # Whether it arrives is not known until it is answered.
        there.pop(lookup.seat, None)
        args = pickle.dumps((token, task, version, lookup.args), pickle.HIGHEST_PROTOCOL)
        crew.counts.sent_bytes += len(args) + len(function) + len(nothing)
        message = {"function": function, "args": args, "kwargs": nothing}
        try:
            if direct:
                reply = await client.rpc(lookup.seat).run(**message)
            else:
                reply = await client.scheduler.proxy(worker=lookup.seat, msg={"op": "run", **message})
        except Exception:  # noqa: BLE001 - however a worker is lost: tasks will tell
            return
        answer = reply["result"] if reply.get("status") == "OK" else None
        if isinstance(answer, np.ndarray):
            if shared is not None:
                there[lookup.seat] = shared.serial, shared.values
            # Empty: the prices are there, but not all of the rows.
            lookup.body = answer if answer.size else None

    async def ask_all() -> None:
        asked = [asyncio.ensure_future(ask(lookup)) for lookup in lookups]
        _, late = await asyncio.wait(asked, timeout=_PATIENCE)
        for one in late:
            one.cancel()

    client.sync(ask_all)
